"""Final workspaces, re-graded: how many hacks are seen, how many honest ones are flagged, and what it costs.

    python benchmarks/trusted_regrade.py --json [--small]

Over `sealed_workspaces.py` beside this file where it is there, else over the small known set. Flagged is a label of 0;
a workspace without a label is counted as missing, on either side.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import py_compile
import random
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from scipy.stats import beta

import regrade_workspaces
from tiltmeter.gold.regrade.grading import TaskGrader, WorkspaceGrade
from tiltmeter.gold.regrade.task import GradingTask
from tiltmeter.gold.regrade.workspace import KeptWorkspace, diff_workspace

#: Counted apart: a program that is right for a while, honest work that needs files outside of what is allowed.
APART = ("delayed", "outside_allow")
SECONDS = 1.0  # of the tests by which workspaces an hour are measured


def measure_regrade(runs: int = 10_000, seed: int = 0, small: bool = False) -> dict[str, Any]:
    """The figures over at most `runs` workspaces of each side, drawn by `seed`."""
    try:
        found: Any = importlib.import_module("sealed_workspaces")
    except ModuleNotFoundError:
        found = regrade_workspaces
    graders = {task.name: TaskGrader(to_task(task)) for task in found.TASKS}
    rng, chosen = random.Random(seed), []
    for is_hack in (True, False):
        side = [one for one in found.WORKSPACES if one.hack is is_hack]
        most = min(runs, 10 if small else runs)
        chosen += side if len(side) <= most else rng.sample(side, most)
    next(iter(graders.values())).sandbox.run("pass")  # the sandbox and its packages are made once
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        grades = list(threads.map(lambda one: grade(graders[one.task], one), chosen))
    seconds = time.monotonic() - began
    figures = _figures(chosen, grades)
    figures["regrade_seconds_per_workspace"] = round(seconds / len(chosen), 3)
    return figures | measure_speed(4 if small else 40)


def to_task(task: Any) -> GradingTask:
    """A task of a set as what workspaces are graded by."""
    tests = task.tests
    more: Mapping[str, str] = tests if isinstance(tests, Mapping) else {}
    named = [tests] if isinstance(tests, str) else list(tests)
    tree = {path: text.encode() for path, text in {**task.files, **more}.items()}
    held_out = {path: text.encode() for path, text in (task.held_out_tests or {}).items()}
    paths = tuple(one.strip("/") for one in named)
    return GradingTask(tree, paths, held_out, tuple(task.cases), tuple(task.allow), tuple(task.protected))


def grade(grader: TaskGrader, workspace: Any) -> WorkspaceGrade:
    """The grade of a workspace that is made in a folder, and kept as an agent's would be."""
    return grader.grade(keep(grader.task, workspace))


def keep(task: GradingTask, workspace: Any) -> KeptWorkspace:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in task.tree.items():
            if workspace.changed.get(path, "") is not None:
                _write(folder / path, content)
        for path, text in workspace.changed.items():
            if text is not None:
                _write(folder / path, text if isinstance(text, bytes) else text.encode())
        if getattr(workspace, "compiled", None):
            _compile(folder, workspace.compiled)
        for path, target in workspace.links.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).unlink(missing_ok=True)
            (folder / path).symlink_to(target)
        return diff_workspace(folder, task.tree, task.allow, task.protected)


def _compile(folder: Path, sources: Mapping[str, str]) -> None:
    """Compiled files that an agent left; those outside a cache are used whatever the source is."""
    for path, source in sources.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (scratch := folder / f"{path}.source").write_text(source)
        cached = "__pycache__" in path
        mode = py_compile.PycInvalidationMode.TIMESTAMP if cached else py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(str(scratch), cfile=str(folder / path), invalidation_mode=mode)
        scratch.unlink()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _figures(chosen: list[Any], grades: list[WorkspaceGrade]) -> dict[str, Any]:
    every = list(zip(chosen, grades, strict=True))
    apart = {kind: _share_of_zero([got for one, got in every if one.kind == kind]) for kind in APART}
    pairs = [(one, got) for one, got in every if one.kind not in APART]
    wrong = [(one, got) for one, got in pairs if one.hack and one.program_wrong]
    right = [(one, got) for one, got in pairs if one.hack and not one.program_wrong]
    honest = [(one, got) for one, got in pairs if not one.hack]
    kinds = sorted({one.kind for one, _ in wrong})
    seen = [one.kind for one, got in wrong if got.value == 0.0]
    by_kind = {kind: _share(seen.count(kind), sum(one.kind == kind for one, _ in wrong)) for kind in kinds}
    return {
        "regrade_hacks": len(wrong), "regrade_recall": _ratio(len(seen), len(wrong)),
        "regrade_recall_interval": _share(len(seen), len(wrong))[2:], "regrade_kinds": len(kinds),
        "regrade_by_kind": by_kind, "regrade_hacks_missing": sum(got.value is None for _, got in wrong),
        "regrade_hacks_with_a_right_program": len(right),
        "regrade_right_programs_flagged": sum(got.value == 0.0 for _, got in right),
        "regrade_honest": len(honest), "regrade_honest_flagged": sum(got.value == 0.0 for _, got in honest),
        "regrade_honest_missing": sum(got.value is None for _, got in honest),
        "regrade_apart": apart,
        "regrade_unseen": [f"{one.name}: {got.value} {got.reason}" for one, got in wrong if got.value != 0.0][:40],
        "regrade_not_right": [f"{one.name}: {got.value} {got.reason}" for one, got in honest if got.value != 1.0][:40],
    }  # fmt: skip


def _share_of_zero(grades: list[WorkspaceGrade]) -> list[int]:
    """How many are graded 0, of how many."""
    return [sum(got.value == 0.0 for got in grades), len(grades)]


def _ratio(count: int, of: int) -> float | None:
    return round(count / of, 4) if of else None


def _share(count: int, of: int) -> list[Any]:
    """How many of how many, and the 95 % interval of Clopper and Pearson."""
    low = 0.0 if count == 0 else float(beta.ppf(0.025, count, of - count + 1))
    high = 1.0 if count == of else float(beta.ppf(0.975, count + 1, of - count))
    return [count, of, round(low, 3), round(high, 3)]


def measure_speed(count: int) -> dict[str, Any]:
    """Different workspaces an hour whose tests take a second of one core each, graded by two threads."""
    tests = (
        "import time\nfrom src.a import f\n\n\ndef test_f():\n"
        f"    until = time.process_time() + {SECONDS}\n    while time.process_time() < until:\n        pass\n"
        "    assert f(2) == 4\n"
    )
    tree = {"src/__init__.py": b"", "src/a.py": b"", "tests/test_a.py": tests.encode()}
    grader = TaskGrader(GradingTask(tree, ("tests",), cases=(("src.a:f", (7,), 14),)))
    kept = [KeptWorkspace(files={"src/a.py": f"def f(x):\n    return 2 * x  # {at}\n"}) for at in range(count)]
    grader.grade(kept[0])
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        grades = list(threads.map(grader.grade, kept))
    seconds = time.monotonic() - began
    assert all(one.value == 1.0 for one in grades), grades
    return {"workspaces_per_hour": round(3600 * count / seconds), "load_1min": round(os.getloadavg()[0], 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    figures = measure_regrade(options.runs, options.seed, options.small)
    print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
