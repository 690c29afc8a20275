"""Decides what a workspace is worth: its cases and rewritten tests run in a sandbox, values are compared here.

Nothing is believed that the tested program could have said of itself. Its exit code and its output are not looked at;
a report counts only with the values that it had to return, and a test only if every assertion of it was seen.
"""

from __future__ import annotations

import base64
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple

from tiltmeter.errors import AttachError
from tiltmeter.gold.regrade.assertions import Expected
from tiltmeter.gold.regrade.blind_tests import ANYWHERE, BEFORE, BlindFile, blind_file
from tiltmeter.gold.regrade.packages import imported_modules, installed, package_folder
from tiltmeter.gold.regrade.task import GradingTask, TaskError
from tiltmeter.gold.regrade.workspace import KeptWorkspace
from tiltmeter.sandbox.bubblewrap import Bubblewrap
from tiltmeter.sandbox.contract import Ended, Limits
from tiltmeter.sandbox.harness_programs import job_line, parse_messages
from tiltmeter.sandbox.opening import open_sandbox
from tiltmeter.sandbox.probed_sandbox import ProbedSandbox
from tiltmeter.sandbox.values import NotPlain, decode, encode, same

TOLERANCE = 1e-9  # of floats that cases return
ROOM = 256 << 20  # bytes for a workspace and what its tests write
OUTPUT_KB = 4096
USAGE_ERROR = 4  # of pytest: it was asked what it does not know
Messages = Mapping[str, Sequence[Any]]


class WorkspaceGrade(NamedTuple):
    """1.0 or 0.0, or None where there is no grade, and why."""

    value: float | None
    reason: str = ""
    seconds: float = 0.0


@dataclass
class TaskGrader:
    """Grades workspaces of one task.

    >>> task = GradingTask({"src/a.py": b""}, (), cases=(("src.a:double", (2,), 4),))
    >>> grader = TaskGrader(task)  # doctest: +SKIP
    >>> grader.grade(KeptWorkspace(files={"src/a.py": "def double(x): return 2 * x"})).value  # doctest: +SKIP
    1.0
    """

    task: GradingTask

    def grade(self, workspace: KeptWorkspace) -> WorkspaceGrade:
        """What this workspace is worth. Never raises for anything in it."""
        began = time.monotonic()
        try:
            value, reason = self._grade(workspace)
        except (TaskError, ValueError, OSError, AttachError) as error:
            value, reason = None, str(error)
        return WorkspaceGrade(value, reason, time.monotonic() - began)

    def _grade(self, workspace: KeptWorkspace) -> tuple[float | None, str]:
        tree = self.task.restore(workspace)
        self._refuse_foreign(tree)
        links = self.task.links(workspace)
        if self.task.cases:
            without = {path: data for path, data in tree.items() if path not in self.blind}
            value, reason = self._run_cases(without, links)
            if value != 1.0:
                return value, reason
        if not self.blind:
            return 1.0, ""
        value, reason = self._run_tests(tree, links, self.blind)
        if value is None and reason == UNDECIDED:
            return self._run_tests(tree, links, self.shown)
        return value, reason

    # -- what is the task's, made once -------------------------------------------------------------------------------

    @cached_property
    def blind(self) -> dict[str, BlindFile]:
        return self._blind(hide=True)

    @cached_property
    def shown(self) -> dict[str, BlindFile]:
        """The same with the values that are expected: for values that can be compared only where they are."""
        return self._blind(hide=False)

    def _blind(self, *, hide: bool) -> dict[str, BlindFile]:
        files: dict[str, BlindFile] = {}
        content = {**self.task.tree, **self.task.hidden_tests}
        for number, path in enumerate(self.task.test_files):
            try:
                files[path] = blind_file(content[path].decode(), number * SITES, hide=hide)
            except (SyntaxError, ValueError, RecursionError) as error:
                raise TaskError(f"the test {path} cannot be read: {error}") from error
        if not any(file.tests for file in files.values()) and not self.task.cases:
            raise TaskError("its test files have no tests")
        return files

    @cached_property
    def _imports(self) -> set[str]:
        """What the task's own tests and program import. What is not installed here is the agent's to write."""
        return imported_modules({**self.task.tree, **self.task.hidden_tests}, self._is_loaded)

    @cached_property
    def _packages(self) -> frozenset[str]:
        return frozenset({*self.task.packages, *installed(self._imports)})

    def _is_loaded(self, path: str) -> bool:
        """Whether a file is one of the tests, or may be a part of the program."""
        return path in self.blind or path.endswith("conftest.py") or self.task.counts(path)

    def _refuse_foreign(self, tree: Mapping[str, bytes]) -> None:
        """Raise where the agent's files import what the sandbox does not have: that says nothing about the program."""
        names = imported_modules({**self.task.tree, **tree}, self.task.counts) - self._imports
        folder = package_folder(self._packages)
        missing = [name for name in sorted(names) if not any(folder.glob(f"{name}*"))]
        if missing:
            raise TaskError(f"its files import {', '.join(missing)}: name that in Regrade(packages=[...])")

    @cached_property
    def sandbox(self) -> ProbedSandbox:
        limits = Limits(self.task.memory_mb, self.task.timeout, self.task.timeout, 64, OUTPUT_KB, 256, 64)
        probe_tier()
        mounts = ((str(package_folder(self._packages)), "/packages"),)
        return ProbedSandbox(Bubblewrap(limits, mounts=mounts, tmp_bytes=ROOM, forks=True), "strict")

    # -- runs --------------------------------------------------------------------------------------------------------

    def _run(
        self, tree: Mapping[str, bytes], links: Mapping[str, str], **more: Any
    ) -> tuple[Ended, dict[str, list[Any]]]:
        texts, binary = {}, {}
        for path, content in tree.items():
            try:
                texts[path] = content.decode()
            except UnicodeDecodeError:
                binary[path] = base64.b64encode(content).decode()
        is_layout = any(path.startswith("src/") for path in tree) and "src/__init__.py" not in tree
        paths = ["", "src"] if is_layout else [""]
        job = {"files": texts, "binary": binary, "links": dict(links), "paths": paths, "tests": [], "cases": [], **more}
        mark, line = job_line(job)
        end = self.sandbox.run(inside_program(), line)
        messages: dict[str, list[Any]] = defaultdict(list)
        for kind, payload in parse_messages(end.stdout, mark):
            messages[kind].append(payload)
        if end.kind == "infra" or "unrestored" in messages or "started" not in messages:
            raise TaskError(end.reason if end.kind == "infra" else f"the workspace was not restored: {end.reason}")
        return end, messages

    def _run_cases(self, tree: Mapping[str, bytes], links: Mapping[str, str]) -> tuple[float | None, str]:
        cases = self.task.cases
        _, messages = self._run(tree, links, cases=[[name, encode(list(args))] for name, args, _ in cases])
        answers: dict[int, Any] = {}
        for report in messages["value"]:
            if not (isinstance(report, list) and len(report) == 2 and type(report[0]) is int) or report[0] in answers:
                return 0.0, "a case was answered twice"
            answers[report[0]] = report[1]
        for number, (name, _, expected) in enumerate(cases):
            if number not in answers or not _is_same(
                answers[number], Expected(expected, absolute=TOLERANCE, rel=TOLERANCE)
            ):
                return 0.0, f"case {number} of {name}: {'another value' if number in answers else 'no value'}"
        return 1.0, ""

    def _run_tests(
        self, tree: Mapping[str, bytes], links: Mapping[str, str], files: Mapping[str, BlindFile]
    ) -> tuple[float | None, str]:
        tree = {**tree, **{path: file.text.encode() for path, file in files.items()}}
        for own_options in (True, False):  # those that the task's settings name, unless they need a plug-in
            _, messages = self._run(tree, links, tests=list(files), own_options=own_options)
            if USAGE_ERROR not in messages["over"] or messages["test"] or messages["uncollected"]:
                break
        else:
            raise TaskError("pytest does not take the task's own settings")
        return judge(files, messages, self._may_skip_all)

    @cached_property
    def _may_skip_all(self) -> bool:
        """Whether the task's own settings leave tests out, as marked slow."""
        texts = (data for path, data in self.task.tree.items() if path.endswith("conftest.py"))
        return any(word in text for text in texts for word in (b"skip", b"deselect", b"xfail"))


UNDECIDED = "a value can be compared only inside"
SITES = 1_000_000  # numbers of assertions of one file


def judge(files: Mapping[str, BlindFile], messages: Messages, may_skip_all: bool = False) -> tuple[float | None, str]:
    """1.0 if each test passed and each of its assertions was seen to hold, else 0.0 and the first reason."""
    wrong, skipped = _failed_tests(files, messages, may_skip_all)
    if wrong:
        return 0.0, wrong
    try:
        seen, wrong, undecided = _compare(files, messages)
    except (TypeError, ValueError, LookupError, NotPlain):
        return 0.0, "a report that the tests do not make"
    for path, file in files.items():
        for site, times in file.needed.items():
            if seen[site] < times and f"{path}::{file.owners[site]}" not in skipped:
                wrong = wrong or f"an assertion of {file.owners[site]} was not reached"
    return (0.0, wrong) if wrong else (None, UNDECIDED) if undecided else (1.0, "")


def _failed_tests(files: Mapping[str, BlindFile], messages: Messages, may_skip_all: bool) -> tuple[str, set[str]]:
    """Why the tests did not pass, by what is reported of each, "" if they did; and those that were left out."""
    if messages["uncollected"]:
        return "a test file could not be loaded", set()
    passed, skipped = set[str](), set[str]()
    for report in [*messages["test"], *([name, "setup", "skipped"] for name in messages["deselected"])]:
        if not (isinstance(report, list) and len(report) == 3 and isinstance(report[0], str)):
            return "a report that pytest does not make", set()
        name = report[0].partition("[")[0]
        path, _, test = name.partition("::")
        if report[2] == "skipped":
            may_skip = files[path].tests.get(test, ANYWHERE) if path in files else ANYWHERE
            if not (may_skip == ANYWHERE or (report[1] == "setup" and (may_skip == BEFORE or may_skip_all))):
                return f"{name} was skipped", set()
            skipped.add(name)
        elif report[2] == "failed":
            return f"{name} failed", set()
        elif report[1] == "call":
            passed.add(name)
    wanted = (f"{path}::{test}" for path, file in files.items() for test in file.tests)
    missing = [name for name in wanted if name not in passed and name not in skipped]
    if missing or not messages["over"]:
        return f"{missing[0]} was not run" if missing else "the tests did not come to an end", set()
    return "", skipped


def _compare(files: Mapping[str, BlindFile], messages: Messages) -> tuple[Counter[int], str, bool]:
    """How often each assertion was seen, what does not hold, and whether a value can be compared only inside."""
    seen: Counter[int] = Counter()
    wrong, undecided, by_file = "", False, list(files.values())
    for site, holds in messages["true"]:
        seen[site] += 1
        wrong = wrong or ("" if holds is True else "an assertion does not hold")
    for site, number, left, right in messages["equal"]:
        seen[site] += 1
        expected = Expected(decode(right)) if number is None else by_file[site // SITES].expected[number]
        wrong = wrong or ("" if _is_same(left, expected) else "a value differs")
    for site, number, holds, is_fooling in messages["odd"]:
        seen[site] += 1
        if is_fooling is True or (number is None and holds is not True):
            wrong = wrong or ("an object that equals everything" if is_fooling else "an assertion does not hold")
        undecided = undecided or number is not None
    return seen, wrong, undecided


def _is_same(encoded: Any, expected: Expected) -> bool:
    try:
        value = decode(encoded)
        if expected.rel is not None or expected.absolute is not None:
            return near(value, expected.value, expected.rel or 0.0, expected.absolute or 0.0)
        return same(value, expected.value, 0.0, expected.strict)
    except (NotPlain, RecursionError, OverflowError):
        return False


def near(value: Any, expected: Any, rel: float, absolute: float) -> bool:
    """Whether two plain values are the same, but for floats, which may differ a little.

    >>> near([1.0, {"a": 2}], [1.0 + 1e-9, {"a": 2}], 1e-6, 0.0), near((1,), [1], 1e-6, 0.0)
    (True, False)
    """
    numbers = (int, float)
    if type(value) in numbers and type(expected) in numbers and float in (type(value), type(expected)):
        return same(value, expected, 0.0, False) or math.isclose(value, expected, rel_tol=rel, abs_tol=absolute)
    if isinstance(value, (list, tuple)) and type(value) is type(expected):
        return len(value) == len(expected) and all(
            near(*pair, rel, absolute) for pair in zip(value, expected, strict=True)
        )
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(near(value[key], expected[key], rel, absolute) for key in value)
    return same(value, expected, 0.0, False)


@cache
def probe_tier() -> None:
    """Raise `SandboxUnavailable` unless bubblewrap holds here. Tests may have children, which is all that differs from
    the sandbox that is probed: they are in its namespace of processes, and end with it."""
    open_sandbox(tier="bwrap").close()


@cache
def inside_program() -> str:
    """What runs in the sandbox: the encoder of values, and the program that restores and runs."""
    values = (resources.files("tiltmeter.sandbox") / "values.py").read_text()
    inside = (resources.files("tiltmeter.gold.regrade") / "inside.py").read_text()
    return values + inside.replace("from __future__ import annotations\n", "")
