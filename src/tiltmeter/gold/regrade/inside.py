"""The program that restores a workspace in a sandbox and runs its cases or its rewritten tests. It grades nothing.

This file is not imported: its text, after `sandbox/values.py`, is run in the sandbox. What is needed later is bound
before the tested program is loaded. A program that finds the mark can write lines itself, which is the same as
returning values: what is expected is not here.
"""

from __future__ import annotations

import base64
import importlib
import io
import json
import os
import random
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # inside, they stand above
    from tiltmeter.sandbox.values import NotPlain, decode, encode

WORK = "/tmp/work"  # of the sandbox alone
PACKAGES = "/packages"
PLAIN: tuple[Any, ...] = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset)
MOST_REPORTS = 2000  # of one assertion


class Sink(io.TextIOBase):
    """Where prints of the tested program go."""

    def write(self, text: str) -> int:
        return len(text)


JOB: dict[str, Any] = {"tests": []}


def read_job() -> dict[str, Any]:
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        part = os.read(0, 1 << 20)
        if not part:
            break
        parts.append(part)
    job: dict[str, Any] = json.loads(b"".join(parts).decode("ascii"))
    return job


def restore(files: dict[str, str], binary: dict[str, str], links: dict[str, str]) -> None:
    os.makedirs(WORK, exist_ok=True)  # noqa: PTH103
    for path, text in {**files, **binary}.items():
        place = f"{WORK}/{path}"
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
        with open(place, "wb") as file:
            file.write(base64.b64decode(text) if path in binary else text.encode())
    for path, target in links.items():
        place = f"{WORK}/{path}"
        os.makedirs(os.path.dirname(place), exist_ok=True)  # noqa: PTH103, PTH120
        if not os.path.lexists(place):
            os.symlink(target, place)  # noqa: PTH211


def plain(value: Any) -> Any:
    """A value that `encode` takes. What equals in a way of its own is not plain."""
    kind = type(value)
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    for base in PLAIN:
        if kind is not base and isinstance(value, base) and kind.__module__ != "collections":
            same = kind.__eq__ is base.__eq__
            if not same:
                raise NotPlain(kind.__name__)
            return base(value) if base not in (int, str, float) else base.__add__(value, base())
    if kind in (list, tuple) and any(type(one) not in PLAIN for one in value):
        return kind(plain(one) for one in value)
    if kind is dict and any(type(one) not in PLAIN for one in value.values()):
        return {key: plain(one) for key, one in value.items()}
    return value


def fooled(value: Any) -> bool:
    """Whether it says that it equals what nobody returns."""
    word, number = f"{random.getrandbits(64):x}", random.random() * 1e77
    for other in (object(), word, number, int(number), (word,), [word], {word: word}, {word}, word.encode()):
        try:
            if value == other or other == value:
                return True
        except BaseException:  # noqa: BLE001
            continue
    return False


def of_tests(value: Any) -> bool:
    """Whether its class is one that the tests made for themselves."""
    if (type(value).__module__, type(value).__name__) == ("unittest.mock", "_Call"):
        return True  # one of a mock's calls, which equals a tuple with any name
    file = getattr(sys.modules.get(type(value).__module__), "__file__", None) or ""
    return file.removeprefix(f"{WORK}/") in JOB["tests"] or file.endswith("/conftest.py")


class Hidden:
    """Stands in a test for a value that is compared elsewhere."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Assertions:
    """What rewritten tests call in place of an assertion."""

    def __init__(self, say: Any, encode: Any, plain: Any, fooled: Any) -> None:
        self.say, self.encode, self.plain, self.fooled = say, encode, plain, fooled
        self.reports: Counter[int] = Counter()

    def equal(self, left: Any, right: Any, site: int) -> None:
        self.reports[site] += 1
        if self.reports[site] > MOST_REPORTS:
            return
        if isinstance(left, Hidden):
            left, right = right, left
        number = right.number if type(right) is Hidden else None
        try:
            seen = [self.encode(self.plain(left)), None if number is not None else self.encode(self.plain(right))]
        except BaseException:  # noqa: BLE001
            holds = number is None and bool(left == right)
            is_fooling = self.fooled(left) and not of_tests(left)
            if number is None and type(right).__module__ != "unittest.mock":
                is_fooling = is_fooling or (self.fooled(right) and not of_tests(right))
            self.say("odd", [site, number, holds, is_fooling])
        else:
            self.say("equal", [site, number, *seen])

    def true(self, value: Any, site: int) -> None:
        self.reports[site] += 1
        if self.reports[site] <= MOST_REPORTS:
            self.say("true", [site, bool(value)])


def run_cases(cases: list[Any], say: Any, decode: Any) -> None:
    for number, (name, payload) in enumerate(cases):
        module, _, path = name.partition(":")
        try:
            function: Any = importlib.import_module(module)
            for part in path.split("."):
                function = getattr(function, part)
            value = function(*decode(payload))
        except BaseException as error:  # noqa: BLE001
            say("raised", [number, type(error).__name__[:80], str(getattr(error, "name", ""))[:80]])
            continue
        try:
            say("value", [number, encode(plain(value))])
        except BaseException as error:  # noqa: BLE001
            say("odd", [number, type(error).__name__[:80]])


def run_tests(job: dict[str, Any], say: Any) -> None:
    import builtins

    import pytest

    class Reporter:
        """Passes on what pytest says of each test."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            say("test", [report.nodeid, report.when, report.outcome])

        def pytest_deselected(self, items: Any) -> None:
            for item in items:
                say("deselected", item.nodeid)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                say("uncollected", [report.nodeid, str(report.longrepr)[-400:].encode("ascii", "replace").decode()])

    assertions = Assertions(say, encode, plain, fooled)
    names = {"_tiltmeter_eq": assertions.equal, "_tiltmeter_true": assertions.true, "_tiltmeter_hidden": Hidden}
    for name, function in names.items():
        setattr(builtins, name, function)
    quiet = ["-q", "--tb=line", "--rootdir", WORK, *([] if job["own_options"] else ["-o", "addopts="])]
    for plugin in ("cacheprovider", "doctest", "junitxml", "pastebin", "faulthandler", "stepwise"):
        quiet += ["-p", f"no:{plugin}"]
    code = pytest.main([*quiet, *job["tests"]], plugins=[Reporter()])
    say("over", int(code))


def set_places(paths: list[str], *, with_pytest: bool) -> None:
    """The current folder, the environment and the import path of the tested program."""
    os.chdir(WORK)
    os.makedirs("/tmp/bin")  # noqa: PTH103
    for name in ("python", "python3"):
        os.symlink(sys.executable, f"/tmp/bin/{name}")  # noqa: PTH211
    sys.stdin = io.StringIO()
    os.environ.update(
        PYTHONPATH=":".join([*paths, PACKAGES]), PYTHONDONTWRITEBYTECODE="1", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
        USER="agent", LANG="C.UTF-8", PATH=f"/tmp/bin:{os.path.dirname(sys.executable)}", COLUMNS="80",  # noqa: PTH120
    )  # fmt: skip
    sys.path.append(PACKAGES)
    if with_pytest:
        importlib.import_module("pytest")
    sys.path[0:0] = paths  # after what we need is loaded: nothing of the tested program stands in its place


def main() -> None:
    job = read_job()
    JOB["tests"] = job["tests"]
    out, quiet = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)

    def say(
        kind: str, payload: Any, mark: str = job["mark"], out: int = out, write: Any = os.write, dumps: Any = json.dumps
    ) -> None:
        line = ("\n" + mark + " " + dumps([kind, payload]) + "\n").encode("ascii")
        while line:
            line = line[write(out, line) :]

    leave = os._exit
    try:
        restore(job["files"], job["binary"], job["links"])
    except OSError as error:
        say("unrestored", str(error))
        leave(0)
    set_places([f"{WORK}/{one}" if one else WORK for one in job["paths"]], with_pytest=bool(job["tests"]))
    say("started", list(sys.version_info[:2]))
    try:
        if job["tests"]:
            run_tests(job, say)
        else:
            sys.stdout, sys.stderr = Sink(), Sink()
            run_cases(job["cases"], say, decode)
            say("over", 0)
    finally:
        leave(0)


if __name__ == "__main__":
    main()
