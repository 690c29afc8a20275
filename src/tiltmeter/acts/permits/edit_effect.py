"""What an edit of a test does to what the test checks: the same or more, less, or nothing any more."""

from __future__ import annotations

import re

LONGEST = 100_000  # characters of a text that are compared
LINE = 400

_ASSERT = re.compile(
    r"^\s{0,80}assert\b|\bself\.assert\w{1,40}\(|\bassert\w{0,30}!?\(|\bexpect\w{0,20}\(|\bpytest\.raises\("
    r"|\bassertRaises\w{0,10}\(|\b(?:t|tb|b)\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(|\brequire\.\w{1,30}\("
    r"|\b(?:should|must)[._]\w{1,30}|\bEXPECT_\w{1,20}\(|\bASSERT_\w{1,20}\(|\bassert_\w{1,40}\b|\bok\(|\bis\("
    r"|\bis_deeply\(|\.should\b|\bassert\.\w{1,30}\(|\bfail\(|^\s{0,8}>>>\s"
)
_TEST = re.compile(
    r"^\s{0,80}(?:async\s{1,4})?def\s{1,4}test\w{0,80}|\b(?:it|test)\(\s{0,4}['\"`]|^func\s{1,4}Test|#\[test\]"
    r"|@Test\b|\bTEST(?:_F|_P)?\("
)
_TRIVIAL = re.compile(
    r"\bassert\s{1,4}(?:True|1|not\s{1,4}False|not\s{1,4}None)\b\s{0,4}(?:,|#|$|;)"
    r"|\bassert\s{1,4}(\w[\w.()\[\]]{0,60})\s{0,4}==\s{0,4}\1\s{0,4}$|\bor\s{1,4}True\b|\|\|\s{0,4}true\b"
    r"|\bassertTrue\(\s{0,4}[Tt]rue\s{0,4}[,)]|\bassertEquals?\(\s{0,4}(\w{1,30})\s{0,4},\s{0,4}\2\s{0,4}\)"
    r"|\bexpect\(\s{0,4}(\w{1,20})\s{0,4}\)\.(?:toBe|toEqual|toStrictEqual)\(\s{0,4}\3\s{0,4}\)"
    r"|\bexpect\(\s{0,4}true\s{0,4}\)\.(?:toBeTruthy|to\.be)|\bassert!?\(\s{0,4}true\s{0,4}[,)]"
    r"|\bassert_eq!\(\s{0,4}(\w{1,20})\s{0,4},\s{0,4}\4\s{0,4}\)|\bassert\.(?:True|ok"
    r"|isTrue)\((?:t,\s{0,4})?true\s{0,4}\)|\b(?:EXPECT|ASSERT)_TRUE\(\s{0,4}true\s{0,4}\)"
    r"|\bassert\s{1,4}(?:len\([^)\n]{1,60}\)|\w{1,40})\s{0,4}>=\s{0,4}0\s{0,4}$"
    r"|\bassert\s{1,4}\w[^\n]{0,80}\bin\s{1,4}\([^)\n]{0,80}\bFalse\b[^)\n]{0,20}\bTrue\b|\bSUCCEED\(\)|\bpass_test\b"
)
_SWALLOW = re.compile(
    r"^\s{0,80}except(?:\s{1,4}\(?(?:AssertionError|Exception|BaseException)\b[^\n:]{0,60})?\s{0,4}:\s{0,4}(?:pass"
    r"|return|continue)?\s{0,4}(?:#.{0,80})?$|\bsuppress\(\s{0,4}(?:AssertionError|Exception|BaseException)"
    r"|\bcatch\s{0,4}(?:\([^)\n]{0,40}\)\s{0,4})?\{\s{0,8}\}|\brescue\b[^\n]{0,40}nil"
)
_SKIP = re.compile(
    r"\bpytest\.(?:skip|xfail)\(|\bmark\.(?:skip|xfail)\w{0,2}\b|\bunittest\.skip|\.skipTest\(|\bSkipTest\b"
    r"|\bexpectedFailure\b|\bx(?:it|describe|test)\("
    r"|\b(?:it|test|describe)\.(?:skip|todo|fails|only)\(|@Disabled\b|@Ignore\b|#\[ignore\]|\bt\.Skip(?:Now|f)?\("
)
_REASON = re.compile(r"\bskipif\b|\bskip(?:If|Unless)\b|\bimportorskip\b|\breason\s{0,4}=|\bskipTest\(\s{0,4}f?['\"]")
_EMPTY = re.compile(r"^\s{0,80}(?:pass|return(?:\s{1,4}None)?|\.\.\.)\s{0,4}(?:#.{0,80})?$")
_LOOSE = re.compile(
    r"\bassert\s{1,4}[^\n]{1,160}?\bis\s{1,4}not\s{1,4}None\b|\bassertIsNotNone\(|\bassert\s{1,4}(?:isinstance|callable"
    r"|hasattr)\(|\.toBeDefined\(\)|\.toBeTruthy\(\)|\bassert\s{1,4}\w{1,40}(?:\([^)\n]{0,60}\))?\s{0,4}$|!="
    r"|\bassertNotEqual|\bassertIsInstance|\bassertTrue\(\s{0,4}\w{1,40}\s{0,4}\)|\.not\.|\b(?:abs|rel|rtol|atol"
    r"|delta)\s{0,4}=\s{0,4}(?:-?[1-9]\d{0,9}(?:\.\d{1,9})?\b(?!e-)|1e[1-9]|0\.[5-9])"
)
_EXACT = re.compile(
    r"==|\bassertEquals?\(|\.toBe\(|\.toEqual\(|\.toStrictEqual\(|assert_eq!|\bEXPECT_EQ|\bASSERT_EQ|\.eq\("
    r"|deepEqual|strictEqual|assert\.Equal"
)
_CASES = re.compile(
    r"parametri[sz]e|\.each\(|@ParameterizedTest|\bsubTest\(|\bdescribe\.each|:=\s{0,4}range\s"
    r"|\bfor\s{1,4}.{1,80}\bin\b|test_case\(|\brange\s(?:tests|cases)"
)
_LITERAL = re.compile(r"-?\b\d{1,18}(?:\.\d{1,18})?\b|'[^'\n]{1,80}'|\"[^\"\n]{1,80}\"")

_LEAVES_OUT = re.compile(  # some tests are not run, or do not count: for those who ask for it
    r"\bcollect_ignore|\bpytest_(?:collection_modifyitems|runtest_setup|ignore_collect|configure|itemcollected"
    r"|collect_\w{1,20}|deselected|runtest_makereport|terminal_summary|exception_\w{1,20}|assertrepr\w{0,20}"
    r"|sessionfinish|make_\w{1,20}|unconfigure)\b|--ignore|--deselect|-k\s{0,4}['\"]?not\b|-m\s{0,4}['\"]?not\b"
    r"|-p\s{0,4}no:|continue-on-error\s{0,4}:\s{0,4}true|\bif\s{0,4}:\s{0,4}false\b|allow_failure\s{0,4}:\s{0,4}true"
    r"|ignore_outcome\s{0,4}=\s{0,4}true|\bpython_(?:files|functions|classes)\s{0,4}=|testPathIgnorePatterns|<exclude>"
    r"|testMatch|testRegex|norecursedirs|testpaths\s{0,4}=\s{0,4}(?![^\n]{0,80}[tT]est|\s{0,4}$)|passWithNoTests"
    r"|skipTests|testFailureIgnore|ignoreFailures|\bxfail_strict\s{0,4}=\s{0,4}false|--passWithNoTests"
    r"|\bpytest\.(?:skip|xfail)\s{0,4}\(|^(?:doc)?test\s{0,4}[:=]\s{0,4}false"
    r"|\bhookwrapper|\bhookimpl",
    re.MULTILINE,
)
_FORGES = re.compile(  # results that are not those of the tests
    r"\bexitstatus\s{0,4}=|\.exitstatus\b|\boutcome\s{0,4}=(?!=|\s{0,4}yield)|\.outcome\s{0,4}=[^=]"
    r"|\.longrepr\s{0,4}=[^=]|\.wasxfail\b|force_result|\.passed\s{0,4}=[^=]|\bos\._exit|\bsys\.exit|\batexit\b"
    r"|\|\|\s{0,4}(?:true|:|exit 0)|\bexit 0\b|--collect-only|--co\b|--exitfirst=|--lf\b|--no-run"
    r"|\bpytest_(?:pyfunc_call|cmdline_main|runtest_(?:call|protocol|testloop)|report_\w{1,30})\b|\bsys\.modules\["
    r"|\bbuiltins\.|\bunittest\.TestCase\.\w{1,40}\s{0,4}=|\b__eq__\b|\bimport\s{1,4}_pytest|\bfrom\s{1,4}_pytest"
    r"|\bpytest\.(?:exit|raises|approx)\s{0,4}[=(]|\bpytest\.(?:skip|xfail)\s{0,4}=|set_trace"
    r"|\bcommands\s{0,4}=\s{0,4}(?:true|echo)|\"test\"\s{0,4}:\s{0,4}\"(?:true|echo|exit|:)"
    r"|items\[:\]\s{0,4}=\s{0,4}\[\s{0,4}\]|items\.clear\(|\bjobs\s{0,4}:\s{0,4}\{\s{0,4}\}"
    r"|(?<!monkeypatch\.)\bsetattr\(|\bAssertionError\b|\bTestReport\b"
    r"|^test\s{0,4}:\s{0,4}@?(?:true|echo|:)",
    re.MULTILINE,
)


def assertions(text: str) -> int:
    """How many lines check something and may fail.

    >>> assertions("assert f(1) == 2\\nassert True"), assertions("self.assertEqual(a, 2)")
    (1, 1)
    """
    return sum(1 for line in _lines(text) if _ASSERT.search(line) and not _TRIVIAL.search(line))


def is_gutted(new: str, old: str = "") -> bool:
    """Whether a test's text checks nothing any more: always true, swallowed, empty, or skipped with no reason given.

    >>> is_gutted("def test_a():\\n    assert True"), is_gutted("def test_a():\\n    assert f() == 3")
    (True, False)
    >>> is_gutted("assert f() == 4", "assert f() == 3"), is_gutted("pass", "assert f() == 3")
    (False, True)
    """
    before = {line.strip() for line in _lines(old)}
    lines = [line for line in _lines(new) if line.strip() not in before]
    if any(_TRIVIAL.search(line) for line in lines) or _swallows(lines):
        return True
    if any(
        _SKIP.search(line) and not _REASON.search(line) for line in lines if not line.lstrip().startswith(("#", "//"))
    ):
        return True
    has_tests = any(_TEST.search(line) for line in lines) or assertions(old) > 0
    return has_tests and not assertions(new) and any(map(_EMPTY.match, lines))


def is_weaker(new: str, old: str, ask: str = "") -> bool:
    """Whether less is checked after an edit: fewer assertions, looser ones, or another value that nobody asked for.

    >>> is_weaker("assert f(1) == 3", "assert f(1) == 2"), is_weaker("assert f(1) == 3", "assert f(1) == 2", "expect 3")
    (True, False)
    >>> is_weaker("assert g(1) == 2\\nassert g(2) == 3", "assert f(1) == 2")
    False
    """
    if is_gutted(new, old):
        return True
    left, right = assertions(new), assertions(old)
    if left < right and not (left and has_cases(new) and not has_cases(old)):
        return True
    lines, before = ([line for line in _lines(text) if _ASSERT.search(line)] for text in (new, old))
    fresh = [line for line in lines if line.strip() not in {one.strip() for one in before}]
    if sum(map(bool, map(_EXACT.search, lines))) < sum(map(bool, map(_EXACT.search, before))) and any(
        map(_LOOSE.search, fresh)
    ):
        return True
    old_values = set(_LITERAL.findall(old[:LONGEST])) | set(_LITERAL.findall(ask[:LONGEST]))
    left_values = set(_LITERAL.findall(new[:LONGEST]))
    lost = any(value not in left_values for line in before for value in _LITERAL.findall(line))
    return lost and any(
        value.strip("'\"") not in ask and value not in old_values for line in fresh for value in _LITERAL.findall(line)
    )


def adds_only(new: str, old: str) -> bool:
    """Whether every line that was there still is, in its order, and what is new checks something.

    >>> adds_only("assert f(1) == 2\\nassert f(0) == 0", "assert f(1) == 2"), adds_only("assert f(0) == 0", "")
    (True, False)
    """
    rest = iter(line.strip() for line in _lines(new))
    old_lines = [line.strip() for line in _lines(old) if line.strip()]
    return bool(old_lines) and all(line in rest for line in old_lines) and not is_gutted(new, old)


def is_plain_config(text: str) -> bool:
    """Whether a configuration of tests leaves every test where it is and its outcome as it comes.

    >>> is_plain_config("@pytest.fixture\\ndef db(): ..."), is_plain_config("collect_ignore = ['test_a.py']")
    (True, False)
    """
    return forges_nothing(text) and not _LEAVES_OUT.search(text[:LONGEST])


def has_cases(text: str) -> bool:
    """Whether cases stand in a table."""
    return _CASES.search(text[:LONGEST]) is not None


def forges_nothing(text: str) -> bool:
    """Whether a configuration of tests leaves outcomes as they come, whatever it leaves out."""
    return bool(text.strip()) and not _FORGES.search(text[:LONGEST])


def _lines(text: str) -> list[str]:
    return [line[:LINE] for line in text[:LONGEST].split("\n")]


def _swallows(lines: list[str]) -> bool:
    """Whether a failure is caught and nothing done."""
    for at, line in enumerate(lines):
        if _SWALLOW.search(line):
            after = next((one for one in lines[at + 1 : at + 4] if one.strip()), "")
            if (
                "suppress(" in line
                or "catch" in line
                or "rescue" in line
                or not line.rstrip().endswith(":")
                or _EMPTY.match(after)
            ):
                return True
    return False
