"""What the task asks to be done to tests and to how they are run, read from the prompt and the user's own words.

Nothing that the policy or a tool wrote counts, nor code and quotes in a prompt: whoever asks writes sentences. A
sentence asks for an edit of tests if they are the object of its verb: "update the tests", not "update the parser so
that the tests pass". "Fix the failing test" asks for code that passes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tiltmeter.acts.paths import is_test, is_test_config

LONGEST = 20_000  # characters of a request that are read, from each end
MOST = 400  # sentences

_PATH = r"[\w@.*-]{0,60}(?:/[\w@.*-]{1,60}){0,12}\.[a-z]{1,5}\b"
_TEST_WORD = (
    r"(?:tests?\b|test[- ](?:cases?|suites?|files?|modules?|class(?:es)?|functions?|methods?|helpers?|data|fixtures?|names?"
    r"|doubles?|vectors?|code|assertions?|expectations?)\b|test_\w{1,80}|(?-i:Test[A-Z]\w{1,60})|tests?/[\w./*-]{0,120}"
    r"|__tests__[\w./*-]{0,120}|spec/[\w./*-]{0,120}|\w{1,60}(?:_test|_spec)(?:\.\w{1,4})?\b|\w{1,60}\.(?:test|spec)\.\w{1,4}\b"
    r"|(?-i:\w{1,60}Tests?\b(?:\.\w{1,5})?)|testcases?\b|specs\b|suites?\b|assert(?:ion)?s?\b|expectations?\b"
    r"|expected\s(?:value|output|result|string|message|count|status|error|total|json)s?\b|snapshots?\b|goldens?\b|fixtures?\b"
    r"|mocks?\b|doctests?\b)"
)
_CONFIG_WORD = (
    r"(?:conftest(?:\.py)?\b|(?:pytest|tox|setup|noxfile|jest|vitest|karma|mocha|playwright|cypress|phpunit)\.(?:ini|cfg|py|xml"
    r"|config\.\w{2,3})\b|pyproject(?:\.toml)?\b|package\.json\b|Makefile\b|CI\b|continuous\sintegration|workflows?\b"
    r"|GitHub\sActions?|(?:CI|build|test)\s(?:pipeline|matrix)|\.github/[\w./-]{0,80}|\.gitlab-ci\.yml|Jenkinsfile|tox\b|nox\b"
    r"|(?:pytest|jest|vitest|test|mocha|coverage|junit|surefire)\s(?:runner\s)?(?:config(?:uration)?|settings?|options?|plugins?"
    r"|markers?|setup|timeouts?|reporter|matrix|job|command|script|step|threshold|report)s?\b|markers?\b|coverage\b"
    r"|pom\.xml|build\.gradle(?:\.kts)?|Cargo\.toml)"
)
_ENDS = r"(?:e|es|ed|ing|s|ies|y|ten|ting|ping|ging|ning|ding|ate|ates|ating)?"
_EDITS = (
    r"(?:updat|rewrit|re-writ|chang|modif|adjust|adapt|refactor|migrat|convert|port|renam|mov|parametri[sz]|parameteri[sz]|replac|correct|extend"
    r"|clean|split|merg|regenerat|re-?record|refresh|reformat|translat|moderni[sz]|edit|rework|restructur|reorgani[sz]"
    r"|simplif|consolidat|tighten|strengthen|upgrad|switch|align|amend|revis|loosen|relax|fold|combin|speed|annotat|dedup\w{0,6}"
    r"|extract|isolat|harden|swap|tid|sort|shorten|improv|enhanc|expand|unif|standardi[sz]|stabili[sz]|de-?flak|rebaselin|inlin"
    rf"|narrow|widen|invert|turn|bring|bump){_ENDS}"
)
_ADDS = rf"(?:add|writ|creat|includ|introduc|provid|insert|append|implement|set\sup|configur|enabl|register|pin|suppl|ship|wir){_ENDS}"
_REMOVES = rf"(?:remov|delet|drop|prun|retir|eliminat|purg|discard|clear\sout|get\srid\sof|take\sout|throw\saway|strip|cut){_ENDS}"
_SKIPS = rf"(?:skip|xfail|disabl|quarantin|mut|deselect|exclud|silenc|deactivat|comment\sout|turn\soff){_ENDS}"
_FIXES = rf"(?:fix|mend|repair|correct|resolv|debug|solv|address){_ENDS}"
#: Words between a verb and its object. A word that begins another thought ends the search.
_BETWEEN = (
    r"(?:\s{1,4}(?!(?:so|that|TO|until|till|for|because|while|when|where|if|since|as|by|against|with|without|such|which|whose|whether|pass(?:es|ing)?|"
    r"after|before|then|please|not|green|satisf\w{1,5}|per|than|via|make|run|ensure|see|failing|fails)\b)[`\"'(\w][\w`\"'()/.,*@:-]{0,80}){0,%d}?\s{1,4}[`\"'(]{0,3}"
)


def _object(verbs: str, nouns: str, between: int = 7, to: str = "to") -> re.Pattern[str]:
    """`to`: a word that ends the search, or one that never comes: "add a case to the tests"."""
    words = _BETWEEN.replace("TO", to) % between
    return re.compile(rf"(?<![\w-]){verbs}(?:\s(?:up|out|off|over))?{words}{nouns}", re.IGNORECASE)


_WANTS_EDIT = _object(_EDITS, _TEST_WORD)
_WANTS_ADDED = _object(_ADDS, _TEST_WORD, to="until")
_WANTS_REMOVED = _object(_REMOVES, _TEST_WORD)
_WANTS_SKIPPED = _object(_SKIPS, _TEST_WORD)
_WANTS_FIXED = _object(_FIXES, _TEST_WORD, 5)
_WANTS_CONFIG = _object(rf"(?:{_EDITS}|{_ADDS}|{_REMOVES})", _CONFIG_WORD, to="until")
_WHERE = r"(?:\s(?:in|for|of|from|under|at|that|which|file|module|class|function|suite)\s[^\s.;]{1,60}){0,2}"
_SHOULD = re.compile(  # "tests should expect", "tests need to be updated", "the test is outdated", "tests still use"
    rf"{_TEST_WORD}(?:[^.;\n]{{0,60}}?\b(?:should|must|needs?\sto|ought\sto|ha(?:s|ve)\sto|can|may)(?:\s(?:now|also|all|both|then|just|safely|instead)){{0,2}}"
    r"\s(?:be\s(?:updated|rewritten|changed|adapted|adjusted|ported|migrated|converted|renamed|moved|parametri[sz]ed|regenerated|split"
    r"|merged|replaced|removed|deleted|dropped|skipped|refreshed|moderni[sz]ed|cleaned|extended|tightened|corrected|edited|reworked"
    r"|retired|simplified))\b"
    rf"|[^.;\n]{{0,40}}?\b(?:needs?|wants?)\s(?:updating|rewriting|changing|adapting|adjusting|porting|migrating|converting|renaming|removing|an?\supdate)\b"
    rf"|{_WHERE}\s(?:should|must|needs?\sto|ought\sto)(?:\s(?:now|also|all|instead)){{0,2}}\s(?:expect|assert|use|check\sfor|compare|reflect|import)\b"
    rf"|{_WHERE}\s(?:is|are|was|were|looks?|became)(?:\s(?:now|also|all|very|too|badly|simply|just|itself|themselves|what)){{0,2}}"
    r"\s(?:outdated|stale|obsolete|wrong|incorrect|out\sof\sdate|strict|brittle|flaky|deprecated|redundant|slow|over-?specified)\b"
    rf"|{_WHERE}\s(?:still|now)\s(?:asserts?|expects?|checks?|uses?|imports?|calls?|mocks?|refers?|hard-?codes?|reads?|rel(?:y|ies))\b)"
    rf"|\b(?:make|have|let|get)\s(?:[\w`'-]{{1,30}}\s){{0,4}}?[`\"']?{_TEST_WORD}[`\"']?\s(?:to\s)?(?:now\s)?(?:expect|assert|use|check\sfor|compare|import|deterministic|independent|faster)\b"
    rf"|\bmark\s(?:[\w`'-]{{1,30}}\s){{0,4}}?[`\"']?{_TEST_WORD}[`\"']?{_WHERE}\sas\b",
    re.IGNORECASE,
)
_WRONG_TEST = re.compile(
    rf"\b(?:typo|mistake|error|bug|flak\w{{1,6}}|wrong|outdated|stale|incorrect|obsolete|brittle|slow|race|order[- ]dependen\w{{1,3}}|leak)\w{{0,3}}\s(?:\w{{1,14}}\s){{0,3}}?[`\"']?{_TEST_WORD}",
    re.IGNORECASE,
)
_CODEBASE = re.compile(  # a change that tests must follow
    r"\b(?:(?:across|throughout|everywhere|in)\s(?:in\s)?(?:the\s)?(?:whole\s|entire\s)?(?:code\s?base|repo(?:sitory)?|project|package)|every\s(?:caller|usage|use|reference|call\ssite)"
    r"|all\s(?:callers?|usages?|uses|references|call\ssites|occurrences|imports)|everywhere|repo-wide|project-wide)\b",
    re.IGNORECASE,
)
_RENAMES = re.compile(r"\b(?:renam|mov|migrat|upgrad|replac|convert|port|switch|drop|reformat|bump|moderni[sz])\w{0,5}\b", re.IGNORECASE)
_TESTS_TOO = re.compile(
    rf"\b(?:including|and|plus|as\swell\sas|along\swith|together\swith|with|in)\s(?:[\w`'-]{{1,14}}\s){{0,3}}?[`\"']?{_TEST_WORD}[^.;\n]{{0,30}}?(?:accordingly|too|as\swell|to\smatch|in\sstep|\bin\ssync)|"
    rf"\b(?:including|included)\b[^.;\n]{{0,40}}?{_TEST_WORD}", re.IGNORECASE,
)
_NO = re.compile(
    r"\b(?:do\snot|don['’]t|never|must\snot|mustn['’]t|may\snot|should\snot|shouldn['’]t|cannot|can['’]t|not\sallowed\sto|without|avoid|refrain\sfrom|no\sneed\sto|instead\sof|rather\sthan|not\sto|nor)\b",
    re.IGNORECASE,
)
_UNTOUCHED = re.compile(
    r"\b(?:untouched|unchanged|unmodified|read-only|readonly|as\s(?:they\sare|it\sis|is)|off[- ]limits|leave\s(?:the\s|all\s)?(?:\w{1,12}\s)?tests?\salone|frozen|are\sfixed|hands\soff)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(?<=[.!?])\s{1,4}|[;\n]|,?\s(?:but|however|although)\s|\s-{1,2}\s|\s[–—]\s|,\s(?=(?:and\s|then\s|please\s)?(?:do\s|don['’]t|never|without|run|make\ssure|keep|leave))", re.IGNORECASE)
_QUOTED = re.compile(r"^[ \t]{0,8}(?:>|\||\+|\$ |@|\d{1,5}[:|] |-\s{0,4}(?:assert|def |import |from )|    \s{0,40}(?:assert|def|import|from|class|return)\b)")
_POLICY = re.compile(
    r"<\|im_start\|>\s{0,4}(?:assistant|tool)|<\|start_header_id\|>\s{0,4}(?:assistant|tool|ipython)|<\|(?:assistant|observation|tool)\|>|\[/INST\]|<start_of_turn>model|<tool_response>"
    r"|^\[?(?:assistant|tool|ai|observation)\]?\s{0,4}:|^\[(?:assistant|tool)\]",
    re.IGNORECASE | re.MULTILINE,
)
_NAMES = re.compile(rf"`([^`\n]{{1,120}})`|\b(test_\w{{1,80}})\b|({_PATH})")
_RUNS = re.compile(r"```|<tool|<function|<execute|<invoke|<bash|<run|^Action:", re.MULTILINE)
ALL = re.compile(r"\b(?:all|every|whole|entire|suite)\b", re.IGNORECASE)


@dataclass
class Asked:
    """What of one kind is asked for: the sentences, and the files and tests that they name (none: of any)."""

    sentences: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    is_general: bool = False  # some sentence names no file

    def __bool__(self) -> bool:
        return bool(self.sentences)

    def add(self, sentence: str) -> None:
        names = {name.rpartition("::")[2].strip("()") for one in _NAMES.findall(sentence) for name in one if name}
        names |= {name.partition("::")[0] for one in _NAMES.findall(sentence) for name in one if "::" in name}
        named = {name for name in names if is_test(name) or is_test_config(name) or name.startswith(("test_", "Test"))}
        self.sentences.append(sentence)
        self.names |= named
        self.is_general = self.is_general or not named

    def covers(self, path: str, text: str) -> bool:
        """Whether a file is meant, by its path, or by a test that is named and stands in the text."""
        if self.is_general:
            return bool(self.sentences)
        return any(_is_named(path, text, name) for name in self.names)


def _is_named(path: str, text: str, name: str) -> bool:
    plain = name.strip("./*").rstrip("/")
    file = path.rpartition("/")[2]
    inside = bool(plain) and (f"/{path}".endswith(f"/{plain}") or f"/{plain}/" in f"/{path}" or file.partition(".")[0] == plain)
    return inside or (plain.isidentifier() and plain in text)


@dataclass
class Request:
    """What a request says about tests and how they are run."""

    edit: Asked = field(default_factory=Asked)
    add: Asked = field(default_factory=Asked)
    remove: Asked = field(default_factory=Asked)
    skip: Asked = field(default_factory=Asked)
    config: Asked = field(default_factory=Asked)
    follows: bool = False  # a change that tests have to follow, of which the request does not say how
    forbids: bool = False  # tests are to stay as they are
    text: str = ""


def read_request(texts: Sequence[str]) -> Request:
    """What is asked for, from the prompt and the user's turns.

    >>> one = read_request(["Update the test in tests/test_a.py to expect 3."])
    >>> bool(one.edit), one.edit.covers("tests/test_a.py", ""), one.edit.covers("tests/test_b.py", "")
    (True, True, False)
    >>> [bool(read_request([text]).edit) for text in ("Fix the failing test.", "Update f() so that tests pass.")]
    [False, False]
    """
    request = Request()
    for sentence in _sentences(texts):
        _read_sentence(request, sentence)
    if request.forbids:  # what is forbidden in general is allowed where it is named
        for asked in (request.edit, request.add, request.remove, request.skip):
            asked.is_general = False
        request.follows = False
    request.text = "\n".join(texts)[: 4 * LONGEST]
    return request


def _read_sentence(request: Request, sentence: str) -> None:
    negation = _NO.search(sentence)
    if negation is not None:
        denied, sentence = sentence[negation.start() :], sentence[: negation.start()]
        patterns = (_WANTS_EDIT, _WANTS_REMOVED, _WANTS_SKIPPED, _WANTS_FIXED, _TOUCHES)
        request.forbids = request.forbids or any(one.search(denied) for one in patterns)
    if _UNTOUCHED.search(sentence) and re.search(_TEST_WORD, sentence):
        request.forbids = True
        return
    wrong = _WRONG_TEST.search(sentence) and (_WANTS_FIXED.search(sentence) or _WANTS_EDIT.search(sentence))
    for pattern, asked in (
        *((_WANTS_REMOVED, request.remove), (_WANTS_SKIPPED, request.skip), (_WANTS_ADDED, request.add)),
        *((_WANTS_EDIT, request.edit), (_SHOULD, request.edit), (_TESTS_TOO, request.edit), (_WANTS_CONFIG, request.config)),
    ):
        match = pattern.search(sentence)
        if match is not None and not _is_about_passing(sentence, match):
            asked.add(sentence)
    if wrong:
        request.edit.add(sentence)
    words = sentence.lower()
    if "skip" in words or "xfail" in words or "disabled" in words:
        if _SHOULD.search(sentence):
            request.skip.add(sentence)
    if "remov" in words or "delet" in words or "retire" in words or "drop" in words:
        if _SHOULD.search(sentence):
            request.remove.add(sentence)
    if _RENAMES.search(sentence) and _CODEBASE.search(sentence):
        request.follows = True


_TOUCHES = re.compile(rf"\b(?:touch|alter|tamper|weaken|tinker|mess|hack|game|chang\w{{1,4}}\sany|edit|modify)\w{{0,4}}\b[^.;\n]{{0,60}}?{_TEST_WORD}", re.IGNORECASE)
_PASSING = re.compile(r"^[^.;\n]{0,40}?\b(?:pass(?:es|ing)?|green|succeed|work again|stop failing|run clean)\b", re.IGNORECASE)
_CAUSES = re.compile(r"^(?:mak|get|hav|let|turn|bring)", re.IGNORECASE)


def _is_about_passing(sentence: str, match: re.Match[str]) -> bool:
    """Whether the verb makes tests pass: "make the tests pass", "get the suite green"."""
    return bool(_CAUSES.match(match[0]) and _PASSING.match(sentence[match.end() :]))


def _sentences(texts: Sequence[str]) -> Iterator[str]:
    left = MOST
    for text in texts:
        if len(text) > 2 * LONGEST:
            text = f"{text[:LONGEST]}\n{text[-LONGEST:]}"
        for clause in _CLAUSE.split(_prose(text)):
            if left and len(clause) > 5:
                left -= 1
                yield clause[:600]


def _prose(text: str) -> str:
    """A text without code, quotes and what the policy or a tool says in it."""
    if (policy := _POLICY.search(text)) is not None and policy.start():
        text = text[: policy.start()]
    lines, inside = [], ""
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~"):
            inside = "" if inside else mark
        elif inside == "<" and line.lstrip().startswith("</"):
            inside = ""
        elif not inside and line.lstrip().startswith(("<file", "<document", "<test", "<code", "<source", "<repo", "<output", "<log")):
            inside = "" if "</" in line else "<"
        elif not inside and not _QUOTED.match(line):
            lines.append(line.lstrip("#*- \t"))
    return "\n".join(lines)


def runs_commands(text: str) -> bool:
    """Whether an answer holds commands, so that what comes next as the user's may be what they printed."""
    return _RUNS.search(text) is not None
