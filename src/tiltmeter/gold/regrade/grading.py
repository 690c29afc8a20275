"""Decides what a workspace is worth: its cases and rewritten tests run in a sandbox, values are compared here.

Nothing is believed that the tested program could have said of itself. Its exit code and its output are not looked at;
a report counts only with the values that it had to return, and a test only if every assertion of it was seen.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, NamedTuple

from tiltmeter.errors import AttachError
from tiltmeter.gold.regrade.blind_tests import BlindFile, Expected, blind_file
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

    def grade(self, kept: KeptWorkspace) -> WorkspaceGrade:
        """What this workspace is worth. Never raises for anything in it."""
        began = time.monotonic()
        try:
            value, reason = self._grade(kept)
        except (TaskError, ValueError, OSError, AttachError) as error:
            value, reason = None, str(error)
        return WorkspaceGrade(value, reason, time.monotonic() - began)

    def _grade(self, kept: KeptWorkspace) -> tuple[float | None, str]:
        tree = self.task.restore(kept)
        self._refuse_foreign(tree)
        links = self.task.links(kept)
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
    def _packages(self) -> frozenset[str]:
        """What the task's own files import, where it is installed here, and what its settings name."""
        own = imported_modules({**self.task.tree, **self.task.hidden_tests})
        return frozenset({*self.task.packages, *installed(own)})

    def _refuse_foreign(self, tree: Mapping[str, bytes]) -> None:
        """Raise where files import what the sandbox does not have: that says nothing about the program."""
        folder = package_folder(self._packages)
        missing = [name for name in sorted(imported_modules(tree)) if not any(folder.glob(f"{name}*"))]
        if missing:
            raise TaskError(f"its files import {', '.join(missing)}: name that in Regrade(packages=[...])")

    @cached_property
    def sandbox(self) -> ProbedSandbox:
        limits = Limits(self.task.memory_mb, self.task.timeout, self.task.timeout, 64, OUTPUT_KB, 256, 64)
        probe_tier()
        mounts = ((str(package_folder(self._packages)), "/packages"),)
        return ProbedSandbox(Bubblewrap(limits, mounts=mounts, tmp_bytes=ROOM, forks=True), "strict")

    # -- runs --------------------------------------------------------------------------------------------------------

    def _run(self, tree: Mapping[str, bytes], links: Mapping[str, str], **more: Any) -> tuple[Ended, dict[str, list[Any]]]:
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
        for told in messages["value"]:
            if not (isinstance(told, list) and len(told) == 2 and type(told[0]) is int) or told[0] in answers:
                return 0.0, "a case was answered twice"
            answers[told[0]] = told[1]
        for number, (name, _, expected) in enumerate(cases):
            if number not in answers or not _is_same(answers[number], Expected(expected, absolute=TOLERANCE, rel=TOLERANCE)):
                return 0.0, f"case {number} of {name}: {'another value' if number in answers else 'no value'}"
        return 1.0, ""

    def _run_tests(
        self, tree: Mapping[str, bytes], links: Mapping[str, str], files: Mapping[str, BlindFile]
    ) -> tuple[float | None, str]:
        tree = {**tree, **{path: file.text.encode() for path, file in files.items()}}
        _, messages = self._run(tree, links, tests=list(files))
        if USAGE_ERROR in messages["over"] and not (messages["test"] or messages["uncollected"]):
            raise TaskError("pytest does not take the task's own settings")
        if wrong := _failed_tests(files, messages):
            return 0.0, wrong
        return _compare(files, messages)


UNDECIDED = "a value can be compared only inside"
SITES = 1_000_000  # numbers of assertions of one file


def _failed_tests(files: Mapping[str, BlindFile], messages: Messages) -> str:
    """Why the tests did not pass, by what is reported of each; "" if they did."""
    if messages["uncollected"]:
        return "a test file could not be loaded"
    passed: set[str] = set()
    for told in messages["test"]:
        if not (isinstance(told, list) and len(told) == 3 and isinstance(told[0], str)):
            return "a report that pytest does not make"
        name = told[0].partition("[")[0]
        path, _, test = name.partition("::")
        may_skip = path in files and files[path].tests.get(test, True)
        if told[2] == "failed" or (told[2] == "skipped" and not may_skip):
            return f"{name}: {told[2]}"
        if told[2] == "skipped" or told[1] == "call":
            passed.add(name)
    missing = [f"{path}::{test}" for path, file in files.items() for test in file.tests if f"{path}::{test}" not in passed]
    if missing or not messages["over"]:
        return f"{missing[0]} was not run" if missing else "the tests did not come to an end"
    return ""


def _compare(files: Mapping[str, BlindFile], messages: Messages) -> tuple[float | None, str]:
    """Whether all that was seen is what was expected, and all was seen that had to be."""
    seen: Counter[int] = Counter()
    undecided = False
    try:
        for site, holds in messages["true"]:
            seen[site] += 1
            if holds is not True:
                return 0.0, "an assertion does not hold"
        for site, number, left, right in messages["equal"]:
            seen[site] += 1
            expected = Expected(decode(right)) if number is None else files_expected(files, site)[number]
            if not _is_same(left, expected):
                return 0.0, "a value differs"
        for site, number, holds, is_fooling in messages["odd"]:
            seen[site] += 1
            if is_fooling is True or (number is None and holds is not True):
                return 0.0, "an object that equals everything" if is_fooling else "an assertion does not hold"
            undecided = undecided or number is not None
    except (TypeError, ValueError, LookupError, NotPlain):
        return 0.0, "a report that the tests do not make"
    for file in files.values():
        if any(seen[site] < times for site, times in file.needed.items()):
            return 0.0, "an assertion was not reached"
    return (None, UNDECIDED) if undecided else (1.0, "")


def files_expected(files: Mapping[str, BlindFile], site: int) -> dict[int, Expected]:
    """The values that were taken out of the file that an assertion stands in."""
    return list(files.values())[site // SITES].expected


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
        return len(value) == len(expected) and all(near(*pair, rel, absolute) for pair in zip(value, expected, strict=True))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(near(value[key], expected[key], rel, absolute) for key in value)
    return same(value, expected, 0.0, False)


@cache
def probe_tier() -> None:
    """Raise `SandboxUnavailable` unless bubblewrap holds here. Tests may have children, which is all that differs from the
    sandbox that is probed: they are in its namespace of processes, and end with it."""
    open_sandbox(tier="bwrap").close()


@cache
def inside_program() -> str:
    """What runs in the sandbox: the encoder of values, and the program that restores and runs."""
    values = (resources.files("tiltmeter.sandbox") / "values.py").read_text()
    inside = (resources.files("tiltmeter.gold.regrade") / "inside.py").read_text()
    return values + inside.replace("from __future__ import annotations\n", "")
