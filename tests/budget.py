"""CPU seconds by test file, and a run that fails in CI when a file costs more than `tests/budget.toml` allows.

CPU seconds, because they hardly depend on what else the machine does. Processes that a test starts count once they
were waited for. `TILTMETER_TEST_RECORD` names a file for what every test file cost and how many tests there were, which
`benchmarks/ci_run.py` adds up.
"""

from __future__ import annotations

import json
import os
import resource
import time
import tomllib
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

BUDGET = Path(__file__).with_name("budget.toml")
SPENT: defaultdict[str, float] = defaultdict(float)
WAITED: defaultdict[str, float] = defaultdict(float)  # seconds of the clock, CPU and waiting together
SHOWN = 30
RECORD = os.environ.pop("TILTMETER_TEST_RECORD", "")  # of this run alone, not of a pytest that a test starts


def cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def over_budget(spent: Mapping[str, float], budget: Mapping[str, Any]) -> list[str]:
    """What is too dear, in words: files above their own budget or the common one, and all of them together.

    >>> over_budget({"tests/a.py": 31.0, "tests/b.py": 3.0}, {"file": 20, "all": 1000, "files": {}})
    ['tests/a.py: 31 CPU seconds, and 20 are allowed']
    """
    allowed = {name: budget["files"].get(name, budget["file"]) for name in spent}
    dear = [
        f"{name}: {seconds:.0f} CPU seconds, and {allowed[name]} are allowed"
        for name, seconds in sorted(spent.items())
        if seconds > allowed[name]
    ]
    total = sum(spent.values())
    return dear + (
        [f"all files: {total:.0f} CPU seconds, and {budget['all']} are allowed"] if total > budget["all"] else []
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    start, clock = cpu_seconds(), time.monotonic()
    try:
        return (yield)
    finally:
        SPENT[item.location[0]] += cpu_seconds() - start
        WAITED[item.location[0]] += time.monotonic() - clock


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput["seconds"] = {name: (SPENT[name], WAITED[name]) for name in SPENT}
        return
    config.stash[DEAR] = over_budget(SPENT, tomllib.loads(BUDGET.read_text())) if _enforced() else []
    if config.stash[DEAR] and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)  # of xdist, which need not be there
def pytest_testnodedown(node: Any) -> None:
    for name, (cpu, clock) in getattr(node, "workeroutput", {}).get("seconds", {}).items():
        SPENT[name] += cpu
        WAITED[name] += clock


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    terminalreporter.section("CPU seconds by test file")
    for name, seconds in sorted(SPENT.items(), key=lambda item: -item[1])[:SHOWN]:
        terminalreporter.write_line(f"{seconds:8.1f}  {name}")
    terminalreporter.write_line(f"{sum(SPENT.values()):8.1f}  in all")
    if RECORD:
        counts = {kind: len(found) for kind, found in terminalreporter.stats.items() if kind}
        failed = sorted(
            {report.nodeid for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, [])}
        )
        files = {name: [round(seconds, 1), round(WAITED[name], 1)] for name, seconds in sorted(SPENT.items())}
        Path(RECORD).write_text(json.dumps({"counts": counts, "failed": failed, "files": files}))
    for line in config.stash.get(DEAR, []):
        terminalreporter.write_line(f"over budget: {line} (tests/budget.toml)", red=True)


def _enforced() -> bool:
    return os.environ.get("CI") == "true" and not os.environ.get("TILTMETER_CAMPAIGN")


DEAR = pytest.StashKey[list[str]]()
