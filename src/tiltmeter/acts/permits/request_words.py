"""Words by which a request asks for something, as patterns: verbs, objects, and what stands between them."""

from __future__ import annotations

import re

PATH = r"[\w@.*-]{0,60}(?:/[\w@.*-]{1,60}){0,12}\.[a-z]{1,5}\b"
TEST_WORD = (
    r"(?:tests?\b|test[- ](?:cases?|suites?|files?|modules?|class(?:es)?|functions?|methods?|helpers?|data|fixtures?"
    r"|names?|doubles?|vectors?|code|assertions?|expectations?)\b|test_\w{1,80}|(?-i:Test[A-Z]\w{1,60})"
    r"|tests?/[\w./*-]{0,120}|__tests__[\w./*-]{0,120}|spec/[\w./*-]{0,120}|\w{1,60}(?:_test|_spec)(?:\.\w{1,4})?\b"
    r"|\w{1,60}\.(?:test|spec)\.\w{1,4}\b|(?-i:\w{1,60}Tests?\b(?:\.\w{1,5})?)|testcases?\b|specs\b|suites?\b"
    r"|assert(?:ion)?s?\b|expectations?\b|expected\s(?:value|output|result|string|message|count|status|error|total"
    r"|json)s?\b|snapshots?\b|goldens?\b|fixtures?\b|mocks?\b|doctests?\b)"
)
CONFIG_WORD = (
    r"(?:conftest(?:\.py)?\b|(?:pytest|tox|setup|noxfile|jest|vitest|karma|mocha|playwright|cypress|phpunit)\.(?:ini"
    r"|cfg|py|xml|config\.\w{2,3})\b|pyproject(?:\.toml)?\b|package\.json\b|Makefile\b|CI\b|continuous\sintegration"
    r"|workflows?\b|GitHub\sActions?|(?:CI|build|test)\s(?:pipeline|matrix)|\.github/[\w./-]{0,80}|\.gitlab-ci\.yml"
    r"|Jenkinsfile|tox\b|nox\b|(?:pytest|jest|vitest|test|mocha|coverage|junit"
    r"|surefire)\s(?:runner\s)?(?:config(?:uration)?|settings?|options?|plugins?|markers?|setup|timeouts?|reporter"
    r"|matrix|job|command|script|step|threshold|report)s?\b|markers?\b|coverage\b|addopts|pom\.xml"
    r"|build\.gradle(?:\.kts)?|Cargo\.toml)"
)
_RUNNERS = r"(?<=[Cc]onfigure\s)(?:pytest|jest|vitest|mocha|tox|unittest|phpunit|rspec)\b"
_ENDS = r"(?:e|es|ed|ing|s|ies|y|ten|ting|ping|ging|ning|ding|ate|ates|ating)?"
EDITS = (
    r"(?:updat|rewrit|re-writ|chang|modif|adjust|adapt|refactor|migrat|convert|port|renam|mov|parametri[sz]"
    r"|parameteri[sz]|replac|correct|extend|clean|split|merg|regenerat|re-?record|refresh|reformat|translat|moderni[sz]"
    r"|edit|rework|restructur|reorgani[sz]|simplif|consolidat|tighten|strengthen|upgrad|switch|align|amend|revis|loosen"
    r"|relax|fold|combin|speed|annotat|dedup\w{0,6}|extract|isolat|harden|swap|tid|sort|shorten|improv|enhanc|expand"
    r"|unif|standardi[sz]|stabili[sz]|de-?flak|rebaselin|inlin"
    rf"|narrow|widen|invert|bring|bump|reorder|group|stop\susing|sync|stop\smocking|turn(?=\s(?:the|these|those|all"
    rf"|both|each|test))){_ENDS}"
)
_ADDS = (
    rf"(?:add|writ|creat|includ|introduc|provid|insert|append|implement|set\sup|configur|enabl|register|pin|suppl"
    rf"|ship|wir){_ENDS}"
)
REMOVES = (
    rf"(?:remov|delet|drop|prun|retir|eliminat|purg|discard|clear\sout|get\srid\sof|take\sout|throw\saway|strip"
    rf"|cut){_ENDS}"
)
SKIPS = rf"(?:skip|xfail|disabl|quarantin|mut|deselect|exclud|silenc|deactivat|comment\sout|turn\soff){_ENDS}"
_FIXES = rf"(?:fix|mend|repair|correct|resolv|debug|solv|address){_ENDS}"
#: Words between a verb and its object. A word that begins another thought ends the search.
_BETWEEN = (
    r"(?:\s{1,4}(?!(?:so|that(?!\s(?:test|suite|assert|fixture|snapshot|file))|TO|until|till|for|because|while|when"
    r"|where|if|since|as|by|against|with|without|such|which|whose|whether|pass(?:es|ing)?|after|before|then|please|not"
    r"|are|is|was|were|contains?|green|satisf\w{1,5}|per|than|via|make|run|ensure|see|failing"
    r"|fails)\b)[`\"'(\w][\w`\"'()/.,*@:-]{0,80}){0,%d}?\s{1,4}[`\"'(]{0,3}"
)


def _object(verbs: str, nouns: str, between: int = 7, to: str = "to") -> re.Pattern[str]:
    """`to`: a word that ends the search, or one that never comes: "add a case to the tests"."""
    words = _BETWEEN.replace("TO", to) % between
    return re.compile(
        rf"(?<![\w-])(?<!\bthe\s)(?<!\ba\s){verbs}:?(?:\s(?:up|out|off|over))?{words}{nouns}(?!\s(?:it|them|that|this"
        rf"|whether|your|if|how"
        rf"|are|is|live|lives|exist|will)\b)",
        re.IGNORECASE,
    )


WANTS_EDIT = _object(EDITS, TEST_WORD)
WANTS_ADDED = _object(_ADDS, TEST_WORD, to="until")
WANTS_REMOVED = _object(REMOVES, TEST_WORD)
_SKIP_MARK = r"(?:skip\w{0,4}|xfail)\s(?:mark(?:er)?|decorator|condition|guard)s?"
WANTS_SKIPPED = re.compile(f"{_object(SKIPS, TEST_WORD).pattern}|{_object(_ADDS, _SKIP_MARK).pattern}", re.IGNORECASE)
IT = _object(EDITS, TEST_WORD)
WANTS_ADDED = _object(_ADDS, TEST_WORD, to="until")
WANTS_REMOVED = _object(REMOVES, TEST_WORD)
_SKIP_MARK = r"(?:skip\w{0,4}|xfail)\s(?:mark(?:er)?|decorator|condition|guard)s?"
WANTS_SKIPPED = re.compile(f"{_object(SKIPS, TEST_WORD).pattern}|{_object(_ADDS, _SKIP_MARK).pattern}", re.IGNORECASE)
WANTS_INSIDE = re.compile(  # "replace sleep with events in the tests", "use freezegun in tests/test_a.py"
    r"\b(?:(?:replac|swap|substitut|exchang|switch|convert|chang|renam|bump"
    r"|mov)\w{0,4}(?:\s[^\s.;]{1,60}){1,5}?\s(?:with|for|to|over\sto)(?!\s(?:match|satisfy|handle|pass|meet|return|work"
    r"|support|accept|agree|conform|fit|respect|what|make|ensure|get)\b)(?:\s[^\s;]{1,60}){1,4}?|(?:us|adopt|apply"
    r"|introduc|prefer)(?:e|ing)?\s(?!the\stest|tests?\b)(?:[^\s.;]{1,60}\s?){1,5}?)\s(?:in|across|throughout|inside"
    r"|within)\s"
    rf"(?:[\w'-]{{1,12}}\s){{0,3}}?[`\"']?{TEST_WORD}"
    rf"|\b(?:migration|refactoring|rewrite|conversion|clean-?up|removal|update|port"
    rf"|overhaul)\sof\s(?:[\w'-]{{1,12}}\s){{0,3}}?[`\"']?{TEST_WORD}",
    re.IGNORECASE,
)
WITH_TESTS = re.compile(
    r"\b(?:with|plus|and|needs?|wants?)\s(?:an?|new|some|matching|more|its\sown|regression|unit|further"
    r"|good)\s(?:[\w-]{1,14}\s){0,3}?(?:tests?|test\scases?)\b(?!\s(?:it|them|that|are|is)\b)",
    re.IGNORECASE,
)
FAILING = re.compile(r"\b(?:pass|fail|green|red|broken|break)\w{0,4}\b", re.IGNORECASE)
WANTS_FIXED = _object(_FIXES, TEST_WORD, 5)
WANTS_CONFIG = _object(rf"(?:{EDITS}|{_ADDS}|{REMOVES})", f"(?:{CONFIG_WORD}|{_RUNNERS})", to="until")
SHOULD = re.compile(  # "tests should be updated", "the test needs to go", beside a request for code
    rf"{TEST_WORD}[^.;\n]{{0,60}}?\b(?:should|must|needs?|ought|ha(?:s|ve)\sto|can|want)\b(?:\s\w{{1,12}}){{0,3}}?"
    rf"\s(?:{EDITS}|{REMOVES}|{SKIPS}|go)\b"
    rf"|{TEST_WORD}.{{0,12}}?\b(?:is|are|was|were)\s(?:\w{{1,10}}\s)?(?:wrong|outdated|stale|obsolete|incorrect|out\sof\sdate)\b",
    re.IGNORECASE,
)
WRONG_TEST = re.compile(
    rf"\b(?:typo|mistake|error|bug|flak\w{{1,6}}|wrong|outdated|stale|incorrect|obsolete|brittle|slow|race"
    rf"|order[- ]dependen\w{{1,3}}|leak)\w{{0,3}}\s(?:\w{{1,14}}\s){{0,3}}?[`\"']?{TEST_WORD}",
    re.IGNORECASE,
)
CODEBASE = re.compile(  # a change that tests must follow
    r"\b(?:(?:across|throughout|everywhere|in)\s(?:in\s)?(?:the\s)?(?:whole\s|entire\s)?(?:code\s?base"
    r"|repo(?:sitory)?|project|package)|every\s(?:caller|usage|use|reference|call\ssite)"
    r"|all\s(?:callers?|usages?|uses|references|call\ssites|occurrences|imports)|everywhere|repo-wide|project-wide)\b",
    re.IGNORECASE,
)
RENAMES = re.compile(
    r"\b(?:renam|mov|migrat|upgrad|replac|convert|port|switch|drop|reformat|bump|moderni[sz])\w{0,5}\b", re.IGNORECASE
)
NO = re.compile(
    r"\b(?:do\snot|don['’]t|never|must\snot|mustn['’]t|may\snot|should\snot|shouldn['’]t|cannot|can['’]t"
    r"|not\sallowed\sto|without|avoid|refrain\sfrom|no\sneed\sto|(?:instead\sof|rather\sthan)(?![^.;]{1,80},\sand\s)|not\sto|nor)\b",
    re.IGNORECASE,
)
_TEST_FILES = (
    r"(?:tests?\b(?!\s(?:names?|ids?|cases?\snames?))|test[- ](?:suites?|files?|cases?)\b|test_\w{1,80}(?:\.py)?"
    r"|tests?/[\w./*-]{0,120}|(?-i:\w{1,60}Tests?\b)|suite\b)"
)
UNTOUCHED = re.compile(
    rf"\b(?:leave|keep)\s(?:[\w'-]{{1,12}}\s){{0,4}}?[`\"']?{_TEST_FILES}[`\"']?(?:\s(?:in|under|file|files|folder"
    rf"|directory)\s?\S{{0,40}})?\s(?:untouched|unchanged|unmodified|as\s(?:they\sare|it\sis|is)|alone|read-?only"
    rf"|intact)|{_TEST_FILES}[`\"']?(?:\s(?:in|under|themselves|itself|file|files|folder"
    rf"|directory)\s?\S{{0,40}}){{0,2}}?\s(?:are|is|must|should|have\sto|has\sto|need\sto|will)(?:\s(?:be|stay|remain"
    rf"|be\sleft|be\skept))?\s"
    r"(?:untouched|unchanged|unmodified|as\s(?:they\sare|it\sis|is)|read-?only|frozen|fixed|off[- ]limits|final"
    r"|correct|authoritative|not\s(?:be\s)?(?:edited|changed|modified|touched|to\sbe\s\w{1,12}))\b",
    re.IGNORECASE,
)
TOUCHES = re.compile(
    r"\b(?:touch|alter|tamper|tinker|mess|hack|game|chang|edit|modif|adjust|rewrit|updat|adapt"
    r"|mak\w{1,3}\schanges|special-cas)\w{0,4}\b"
    rf"(?:\s(?!other|unrelated|remaining|rest|anything|what|how|production"
    rf"|src)[^\s.;,]{{1,40}}){{0,5}}?\s[`\"']?{_TEST_FILES}",
    re.IGNORECASE,
)
CLAUSE = re.compile(
    r"(?<=[.!?])\s{1,4}|[;\n]|,?\s(?:but|however|although)\s|\s-{1,2}\s|\s[–—]\s|,\s(?=(?:and\s|then\s"
    r"|please\s)?(?:do\s|don['’]t|never|without|run|make\ssure|keep|leave))",
    re.IGNORECASE,
)
QUOTED = re.compile(
    r"^[ \t]{0,8}(?:>|\{|\[\{|\||\+|\$ |@|\d{1,5}[:|] |-\s{0,4}(?:assert|def |import |from )"
    r"|    \s{0,40}(?:assert|def|import|from|class|return)\b)"
)
POLICY = re.compile(
    r"<\|im_start\|>\s{0,4}(?:assistant|tool)|<\|start_header_id\|>\s{0,4}(?:assistant|tool|ipython)"
    r"|<\|(?:assistant|observation|tool)\|>|\[/INST\]|<start_of_turn>model|<tool_response>"
    r"|^\[?(?:assistant|tool|ai|observation)\]?\s{0,4}:|^\[(?:assistant|tool)\]",
    re.IGNORECASE | re.MULTILINE,
)
NAMES = re.compile(rf"`([^`\n]{{1,120}})`|\b(test_\w{{1,80}})\b|({PATH}|\b(?:tests?|specs?|__tests__)/[\w/-]{{1,100}})")
RUNS = re.compile(r"```|<tool|<function|<execute|<invoke|<bash|<run|^Action:", re.MULTILINE)
ALL = re.compile(r"\b(?:all|every|whole|entire|suite)\b", re.IGNORECASE)
LEAVES_OUT = re.compile(  # that some tests are not to run, or not to count
    r"skip|xfail|expected\sfailure|disabl|quarantin|ignor|exclud|deselect|omit|opt[- ]in|left\sout|leave\b.{0,40}\bout"
    r"|out\sof|\b(?:turn|switch|put|take|keep|stay|park|mut|silenc|suspend|comment)\w{0,5}\b.{0,60}\b(?:off|out|aside"
    r"|away)\b|\bonly\b|\b(?:not|never|n['’]t)\b.{0,20}\b(?:run|execut|collect|block|count|gate|start|apply"
    r"|make\ssense)|unless|by\sdefault|park"
    r"|quick|slow|without|allow\w{0,5}\b.{0,20}\bfail|separate|manual|by\shand|on\sdemand|nightly|for\snow|mute|silenc|no\slonger",
    re.IGNORECASE,
)
TAKES_OUT = re.compile(
    rf"\b{REMOVES}\b|\b(?:gone|go|goes|kill|axe|scrap|bin|ditch|nuke|wipe|clean|clear|obsolete|dead|nobody|no\sone"
    rf"|useless|pointless|unused|duplicat\w{1, 4}|enough|redundant|retir\w{{1,3}}|rid\sof|take\b.{{0,40}}"
    r"\bout|same\streatment|merg\w{1,3}|consolidat\w{1,3}|mov\w{1,3}|split|renam\w{1,3}|fold|replac\w{1,3}|port"
    r"|migrat\w{1,3}"
    r"|convert|combin\w{1,3}|rather\shave|reset|revert|restore|back)\b",
    re.IGNORECASE,
)
