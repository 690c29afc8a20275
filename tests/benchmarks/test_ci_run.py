"""What CI says about itself: its record adds up, and the texts show it."""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

import pytest
from tests.shared_fixtures import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))

from ci_run import DURATIONS, ROOT, SHOWN, count_tests, dearest

RECORD = json.loads((BENCHMARKS / "results" / "ci.json").read_text())


def test_the_rules_show_the_recorded_seconds() -> None:
    assert SHOWN.findall((ROOT / "AGENTS.md").read_text()) == [f"{RECORD['ci_seconds']:,}"]


def test_the_record_of_durations_names_test_files() -> None:
    files = json.loads(DURATIONS.read_text())
    assert all(name.endswith((".py", ".md")) and len(seconds) == 2 for name, seconds in files.items())
    assert len([name for name in files if (ROOT / name).exists()]) > len(files) / 2, "run .ci/run and commit its record"


def test_what_was_retried_is_counted_once_and_its_cost_twice() -> None:
    first = {"counts": {"passed": 7, "failed": 1}, "failed": ["a.py::test_b"], "files": {"a.py": [2.0, 3.0]}}
    again = {"counts": {"passed": 1}, "failed": [], "files": {"a.py": [1.0, 1.5], "c.py": [9.0, 9.0]}}
    figures, files = count_tests({"tests.tests.json": first, "tests.again.tests.json": again})
    assert (figures["tests"], figures["retried"], figures["retried_tests"]) == (8, 1, ["a.py::test_b"])
    assert figures["tests_cpu_seconds"] == 12 and files == {"c.py": [9.0, 9.0], "a.py": [3.0, 4.5]}
    assert dearest(files, 1) == ["     9.0      9.0  c.py"]


CHOICE = runpy.run_path(str(ROOT / ".ci" / "packages_to_leave_out.py"))


@pytest.mark.parametrize(
    ("file", "due"),
    [
        ("packages/tiltmeter-lab/lab_tests/test_score.py", True),
        ("src/tiltmeter/stats/betting.py", True),  # imported by name
        ("tests/shared_fixtures.py", True),
        ("pyproject.toml", True),
        ("packages/tiltmeter-workbench/workbench_tests/plan/test_lint.py", False),
        ("src/tiltmeter/view/server/app.py", False),
        ("docs/index.md", False),
    ],
)
def test_a_package_is_tested_where_something_that_it_depends_on_has_changed(file: str, due: bool) -> None:
    is_due: Any = CHOICE["is_due"]
    assert is_due(ROOT / "packages" / "tiltmeter-lab", [file]) is due


def test_all_packages_are_tested_where_the_last_whole_run_is_not_in_the_history() -> None:
    changed_since: Any = CHOICE["changed_since"]
    assert changed_since("") is None and changed_since("0123456") is None and changed_since("HEAD") is not None
