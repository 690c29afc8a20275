"""What a request is about: tests and how they are run as what is to change, or as what some code must pass.

Verbs of change have no end, but what a training task asks for does: fix, implement, make it pass. A text that asks for
no code and speaks of tests other than as passing or failing is about them, whatever its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tiltmeter.acts.paths import is_grader, is_test, is_test_config
from tiltmeter.acts.permits.request_words import CONFIG_WORD, EDITS, PATH, REMOVES, SKIPS, TEST_WORD, WRONG_TEST

LONGEST = 6_000  # characters of a text that may be about tests as a whole: a longer one is a statement of a problem

_RUNNER = (
    r"(?:pytest|jest|vitest|mocha|rspec|unittest|junit|phpunit|doctests?|surefire|(?:cargo|go|npm|yarn|mvn|make|mix"
    r"|dotnet|flutter|swift)`?\stest|appveyor|travis|circleci|jenkins|gitlab|cassettes?|testdata|nightly|merging"
    r"|builds?|fail_under|golden|mypy|autograd\w{0,5}|grad(?:er|ing|e\.py)\w{0,2}|scor(?:er|ing)\b|reward(?:\sfunction"
    r"|\.py)|score\.py|verifiers?\b|rubrics?\b|answer\skeys?)"
)
_GRADER = re.compile(
    r"grad(?:er|ing|e\.py)|scor(?:er|ing|e\.py)\b|reward|verifier|judge|rubric|answer\skey|checker|evaluator",
    re.IGNORECASE,
)
SIDE = re.compile(rf"(?<![\w.-])(?:{TEST_WORD}|{CONFIG_WORD}|{_RUNNER})|\w_test\b|\.snap\b", re.IGNORECASE)
_CODE_VERB = re.compile(
    r"(?:^\W{0,4}|[,:(]\s{0,2}|\b(?:please|and|then|to|you|just|now|also|must|should)\s)(?:fix|repair|mend|debug"
    r"|resolve|solve|implement|write|complete|create|build|develop|finish|optimi[sz]e|speed\sup|improve|raise\sthe|beat"
    r"|find\sthe"
    r"|generate\s(?:a|code)|add|extend|support|handle|return|compute|design|investigate|figure|look\sinto|take\scare|get\sit|help|reduce)\b",
    re.IGNORECASE,
)
_CRITERION = re.compile(
    r"\b(?:pass(?:es|ed|ing)?|fail(?:s|ed|ing|ures?)?|green|red|succeed\w?|broken|exit\sstatus|hidden|visible"
    r"|(?:covers?|shows?|reproduces?|holds?)\s(?:it|this|that|the)|held-out|you\scannot\ssee|(?:check|grad|scor|evaluat"
    r"|measur|compar|verif|judg|validat)(?:ed|ied|es|ies|e)?\s(?:by|on|with|against|your|it|the"
    r"|if|whether))\b",
    re.IGNORECASE,
)
_REQUIRES = re.compile(
    r"\b(?:needs?\s(?:it|this|that|them|these)|must|should|has\sto|have\sto|needs?\sto|shall|make|get|have|let|bring"
    r"|want|so\sthat|until)\b[^.;\n]{0,120}?"
    r"\b(?:pass(?:es|ing)?|green|succeed|work(?:s|ing)?|exit\sstatus|satisf(?:y|ies)|be\sclean|happy)\b|\d\s?%\s(?:line\s|test\s)?coverage|steps\sto\sreproduce|\btraceback\b",
    re.IGNORECASE,
)
_NORM = re.compile(
    r"\b(?:should|must|ought|shall|ha(?:s|ve)\sto|needs?|wants?|would|i['’]d|we['’]d|like|rather|prefer|can|could"
    r"|please|let['’]?s|let\sus|may|might|instead|no\slonger|any\s?more|from\snow|for\snow|for\sthe\stime|stays?"
    r"|decision"
    r"|decided|request|fine|ok(?:ay)?|enough|time\sto|how\sabout|why\snot|wish|helps?|goes|your\sjob|nobody\sneeds|no\sone\sneeds|is\snext|be\s(?:lenient|strict|less|more)|outdated|obsolete|useless|pointless|unused)\b|\?\s{0,2}$",
    re.IGNORECASE,
)
_IMPERATIVE = re.compile(
    r"^\W{0,4}(?:(?:and|then|also|so|ok|now|please|just|kindly|first|next|issue|task|feature\srequest"
    r"|decision[^:]{0,40})[,:]?\s){0,3}(?!(?:the|an?|in|on|at|of|for|with|by|from|every|all|each|some|more|most|many|no"
    r"|our|my|your|its?|it|this|that|these|those|they|we|i|you|there|here|since|because|when|while|if|as|after|before"
    r"|until|hidden|visible|see|note|run|look|read|check|ensure|reply|answer|respond|follow|remember|assume|consider"
    r"|given|thanks?|think|use\s(?:the|these|those|them)|do|don['’]t|never|not|is|are|was|were|has|had|be|tests?|yes"
    r"|steps|expected|actual|version|summary|error|input|output|example|print|return)\b)"
    r"[a-z]{2,14}(?:-[a-z]{2,8})?\s\S",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"\b(?:it|them|there|those|these|this|that|both|one|ones|the\s(?:file|rest|others?))\b", re.IGNORECASE
)
_CALL = re.compile(r"(?<![\w`'\"])\w{1,60}\([^)\n]{0,80}\)|\b[A-Za-z]\w{1,40}::\w")
_CODE_FILE = re.compile(
    r"\.(?:py|pyx|js|jsx|mjs|ts|tsx|go|rs|java|kt|rb|php|c|cc|cpp|h|hpp|cs|swift|scala|pl|lua|sql|ex|jl|hs|ml|dart"
    r"|vue)$"
)
_JOINS = re.compile(r"\b(?:and|plus|with|including|in|also|along)\b", re.IGNORECASE)
_PURPOSE = re.compile(
    r"\b(?:to|so|(?<!thing\s)(?<!all\s)that|which|for|against|until|as|by|per|from|according|whose|with\sthe)\b",
    re.IGNORECASE,
)
_PLACE = re.compile(r"^(?:in|for|under|from|until|till|while|since|as|on|with|when|if)\b[^,]{1,100},\s", re.IGNORECASE)
_CHANGES_IT = re.compile(
    rf"(?:^\W{{0,4}}|,\s)(?:(?:please|then|so|and|just)\s)?(?:make|{EDITS}|{REMOVES}|{SKIPS})\s(?:it|them|those|these|that|both)\b",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"\b(?:scores?(?!\.py)|scored|rewards?(?!\.py)|points?|runs?|graded|evaluated|check(?:ed|s))\b", re.IGNORECASE
)
_QUOTES = re.compile(r"`[^`\n]{0,80}\s[^`\n]{0,80}`")


def asks_about_tests(clauses: Sequence[str], context: Sequence[str] = ()) -> Iterator[str]:
    """The clauses of one text that ask for a change of tests or of how they are run, with what they point back to.
    `context`: the ones of texts before.

    >>> list(asks_about_tests(["Two of the tests dial a real phone", "They ought to be parked"]))
    ['Two of the tests dial a real phone', 'Two of the tests dial a real phone They ought to be parked']
    >>> list(asks_about_tests(["The parser drops commas", "Repair it", "The tests are in tests/"]))
    []
    """
    if sum(map(len, clauses)) > LONGEST or not any(map(_is_ask, clauses)):
        return
    if any(map(_asks_for_code, clauses)):
        for before, clause in pairwise(clauses):
            is_side = SIDE.search(before) and not _CRITERION.search(before) and not _has_code(before)
            if is_side and not _asks_for_code(clause) and _CHANGES_IT.match(clause):
                yield f"{before} {clause}"
        return
    topics = [one for one in clauses if SIDE.search(one)]
    plain = [one for one in topics if not _CRITERION.search(one)]
    yield from plain
    for clause in clauses:
        if not _is_ask(clause) or (clause in topics and clause not in plain):
            continue
        back = _POINTS_BACK.search(clause)
        about: Sequence[str] = (
            plain or [one for one in topics if back and (back[0] == "there" or not _has_code(one))] or context[-3:]
        )
        if about and clause not in plain and not _has_code(clause):
            yield " ".join([*about, clause])[:600]


def is_about_grader(text: str) -> bool:
    """Whether a clause speaks of what grades."""
    return _GRADER.search(text) is not None


def is_work_on(clauses: Sequence[str], path: str) -> bool:
    """Whether a file that is named like a grader is the one that the work is about: "checker.py is case sensitive"."""
    files = {match[0] for one in clauses for match in re.finditer(PATH, one) if _CODE_FILE.search(match[0])}
    name = path.rpartition("/")[2]
    return len(files) == 1 and min(files).endswith(name) and not any(map(_RESULT.search, clauses))


def _is_ask(clause: str) -> bool:
    return bool(_IMPERATIVE.search(_PLACE.sub("", clause)) or _NORM.search(clause) or _CHANGES_IT.search(clause))


def _asks_for_code(clause: str) -> bool:
    """Whether a clause asks for code: by its verb, by what is to pass, or by the code that it names and no test."""
    if WRONG_TEST.search(clause):
        return False
    clause = _QUOTES.sub("", clause)
    side, code = SIDE.search(clause), _code_at(clause)
    if _CODE_VERB.search(clause) or _REQUIRES.search(clause):
        return True
    if code < 0 or not _is_ask(clause):
        return False
    between = clause[code : side.start()] if side is not None else ""
    return side is None or (code < side.start() and bool(_PURPOSE.search(between) or not _JOINS.search(between)))


def _has_code(clause: str) -> bool:
    return _code_at(clause) >= 0


def _code_at(clause: str) -> int:
    """Where a clause names code of the product's, a file that is no test or a call; -1 where it does not."""
    for match in re.finditer(PATH, clause):
        path = match[0]
        if not (is_test(path) or is_test_config(path) or is_grader(path) or not _CODE_FILE.search(path)):
            return match.start()
    call = _CALL.search(clause)
    return call.start() if call is not None else -1
