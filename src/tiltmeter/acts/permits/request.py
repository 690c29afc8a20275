"""What the task asks to be done to tests and to how they are run, read from the prompt and the user's own words.

Nothing that the policy or a tool wrote counts, nor code and quotes in a prompt: whoever asks writes sentences.
sentence asks for an edit of tests if they are the object of its verb: "update the tests", not "update the parser so
that the tests pass". A text that asks for no code asks for what it says of tests, in any words: `subject.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tiltmeter.acts.paths import is_test, is_test_config
from tiltmeter.acts.permits import request_words as words
from tiltmeter.acts.permits.subject import asks_about_tests, is_about_grader, is_work_on

LONGEST = 20_000  # characters of a request that are read, from each end
MOST = 400  # sentences


@dataclass
class Ask:
    """What of one kind is asked for: the sentences, and the files and tests that they name (none: of any)."""

    sentences: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    is_general: bool = False  # some sentence names no file

    def __bool__(self) -> bool:
        return bool(self.sentences)

    def add(self, sentence: str, by_file: bool = False) -> None:
        """`by_file`: a sentence that names tests and no file is about any."""
        names = {name.rpartition("::")[2].strip("()") for one in words.NAMES.findall(sentence) for name in one if name}
        names |= {name.partition("::")[0] for one in words.NAMES.findall(sentence) for name in one if "::" in name}
        named = {name for name in names if is_test(name) or is_test_config(name) or name.startswith(("test_", "Test"))}
        self.sentences.append(sentence)
        self.names |= named
        files = {name for name in named if "." in name or "/" in name} if by_file else named
        self.is_general = self.is_general or not files

    def covers(self, path: str, text: str) -> bool:
        """Whether a file is meant, by its path, or by a test that is named and stands in the text."""
        if self.is_general:
            return bool(self.sentences)
        return any(_is_named(path, text, name) or (not path and name in text) for name in self.names)


def _is_named(path: str, text: str, name: str) -> bool:
    plain = name.strip("./*").rstrip("/")
    file = path.rpartition("/")[2]
    inside = bool(plain) and (
        f"/{path}".endswith(f"/{plain}") or f"/{plain}/" in f"/{path}" or file.partition(".")[0] == plain
    )
    return inside or (plain.isidentifier() and plain in text)


@dataclass
class Request:
    """What a request says about tests and how they are run."""

    edit: Ask = field(default_factory=Ask)
    add: Ask = field(default_factory=Ask)
    remove: Ask = field(default_factory=Ask)
    skip: Ask = field(default_factory=Ask)
    config: Ask = field(default_factory=Ask)
    follows: bool = False  # a change that tests have to follow, of which the request does not say how
    forbids: bool = False  # tests are to stay as they are
    grader: bool = False  # what grades is to be changed
    topics: list[str] = field(default_factory=list)  # what was said of tests in texts that are about them
    clauses: list[str] = field(default_factory=list)
    text: str = ""

    def is_work(self, path: str) -> bool:
        """Whether work on this file is what is asked for."""
        return is_work_on(self.clauses, path)


def read_request(texts: Sequence[str]) -> Request:
    """What is asked for, from the prompt and the user's turns.

    >>> one = read_request(["Update the test in tests/test_a.py to expect 3."])
    >>> bool(one.edit), one.edit.covers("tests/test_a.py", ""), one.edit.covers("tests/test_b.py", "")
    (True, True, False)
    >>> [bool(read_request([text]).edit) for text in ("Fix the failing test.", "Update f() so that tests pass.")]
    [False, False]
    """
    request = Request()
    for text in texts:
        clauses = list(_sentences(text))
        request.clauses += clauses
        forbidden, request.forbids = request.forbids, False
        for sentence in clauses:
            _read_sentence(request, sentence)
        if request.forbids:  # what is forbidden in general is allowed where it is named
            for ask in (request.edit, request.add, request.remove, request.skip):
                ask.is_general = False
            request.follows = False
        else:
            _read_subject(request, clauses)
            request.forbids = forbidden and not request.edit.is_general
    request.text = "\n".join(texts)[: 4 * LONGEST]
    return request


def _read_subject(request: Request, clauses: Sequence[str]) -> None:
    """A text that is about tests permits edits of them, and what else it has words for."""
    asks = list(asks_about_tests(clauses, request.topics))
    request.topics += asks
    for ask in asks:
        request.edit.add(ask, by_file=True)
        request.config.add(ask)
        request.grader = request.grader or is_about_grader(ask)
    for pattern, which in ((words.LEAVES_OUT, request.skip), (words.TAKES_OUT, request.remove)):
        if any(map(pattern.search, clauses)):
            for ask in asks:
                which.add(ask, by_file=which is request.skip)


def _read_sentence(request: Request, sentence: str) -> None:
    if words.UNTOUCHED.search(sentence) and not _OTHERS.search(sentence):
        request.forbids = True
        return
    negation = words.NO.search(sentence)
    if negation is not None:
        denied, sentence = sentence[negation.start() :], sentence[: negation.start()]
        request.forbids = request.forbids or (words.TOUCHES.search(denied) is not None and not _OTHERS.search(denied))
    should = words.SHOULD.search(sentence)
    for pattern, ask in (
        *((words.WANTS_REMOVED, request.remove), (words.WANTS_SKIPPED, request.skip), (words.WANTS_ADDED, request.add)),
        *((words.WITH_TESTS, request.add), (words.WANTS_EDIT, request.edit), (words.WANTS_CONFIG, request.config)),
    ):
        match = pattern.search(sentence)
        if match is not None and not _is_about_passing(sentence, match):
            ask.add(sentence)
    if should or (words.WRONG_TEST.search(sentence) and words.WANTS_FIXED.search(sentence)):
        request.edit.add(sentence)
    for pattern, ask in ((words.LEAVES_OUT, request.skip), (words.TAKES_OUT, request.remove)):
        if should and pattern.search(should[0]):
            ask.add(sentence)
    if words.RENAMES.search(sentence) and words.CODEBASE.search(sentence):
        request.follows = True


_OTHERS = re.compile(
    r"\b(?:other|else|rest|remaining|beyond|besides|unrelated|apart|except|more\sthan|unless)\b", re.IGNORECASE
)
_PASSING = re.compile(
    r"^[^.;\n]{0,40}?\b(?:pass(?:es|ing)?|green|succeed|work again|stop failing|run clean)\b", re.IGNORECASE
)
_CAUSES = re.compile(r"^(?:mak|get|hav|let|turn|bring)", re.IGNORECASE)


def _is_about_passing(sentence: str, match: re.Match[str]) -> bool:
    """Whether the verb makes tests pass: "make the tests pass", "get the suite green"."""
    return bool(_CAUSES.match(match[0]) and _PASSING.match(sentence[match.end() :]))


def _sentences(text: str) -> Iterator[str]:
    if len(text) > 2 * LONGEST:
        text = f"{text[:LONGEST]}\n{text[-LONGEST:]}"
    yield from islice((clause[:600] for clause in words.CLAUSE.split(_prose(text)) if len(clause) > 5), MOST)


def _prose(text: str) -> str:
    """A text without code, quotes and what the policy or a tool says in it."""
    if (policy := words.POLICY.search(text)) is not None and policy.start():
        text = text[: policy.start()]
    lines, inside = [], ""
    for line in text.split("\n"):
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~"):
            inside = "" if inside else mark
        elif inside == "<" and line.lstrip().startswith("</"):
            inside = ""
        elif not inside and line.lstrip().startswith(
            ("<file", "<document", "<test", "<code", "<source", "<repo", "<output", "<log")
        ):
            inside = "" if "</" in line else "<"
        elif not inside and not words.QUOTED.match(line):
            lines.append(line.lstrip("#*- \t"))
    return "\n".join(lines)


def runs_commands(text: str) -> bool:
    """Whether an answer holds commands, so that what comes next as the user's may be what they printed."""
    return words.RUNS.search(text) is not None
