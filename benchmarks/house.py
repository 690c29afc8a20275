"""The shape of the code base: circles, layers, sizes, how well a stranger guesses where things are, and CI's time.

    python benchmarks/house.py [--json] [--write] [--before REVISION] [--since REVISION]

`--before` counts lines and tests of an older revision beside today's. CI's time is of its own record (`ci_run.py`). The
guess test is recorded in `benchmarks/results/guess_test.json`: questions, the right files of today, and the answers of
readers who saw the tree of names of that time and no code. An answer stays as it was given, also where its file has
gone since (`cli/terminal/report_parts.py`).
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from record import RESULTS, record, show

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "tiltmeter"
#: The distributions beside the core.
PACKAGES = tuple(sorted((ROOT / "packages").glob("*/src/*")))
Graph = dict[str, set[str]]


def module_of(path: Path, src: Path) -> str:
    parts = path.relative_to(src.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(src: Path) -> Graph:
    """Which file imports which: imports inside functions and for type checkers count like any other."""
    files = {module_of(path, src): path for path in sorted(src.rglob("*.py"))}
    graph: Graph = {name: set() for name in files}
    for name, path in files.items():
        for node in walk(path):
            targets: list[str] = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                both = ((f"{node.module}.{alias.name}", node.module) for alias in node.names)
                targets = [child if child in files else parent for child, parent in both]
            graph[name] |= {target for target in targets if target in files and target != name}
    return graph


def import_circles(graph: Graph) -> list[list[str]]:
    """Groups of files that import each other, directly or around (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph[node]):
            if target not in index:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == index[node]:
            at = stack.index(node)
            circle = stack[at:]
            del stack[at:]
            if len(circle) > 1:
                circles.append(sorted(circle))

    sys.setrecursionlimit(10_000)
    for node in graph:
        if node not in index:
            visit(node)
    return circles


def layer_order(package: str = "tiltmeter") -> dict[str, int]:
    """The height of each room, 0 at the bottom, as the import-linter contracts in pyproject.toml state it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers: list[str] = next((one["layers"] for one in contracts if one.get("containers") == [package]), [])
    return {room.strip(): height for height, row in enumerate(reversed(layers)) for room in re.split(r"[|:]", row)}


def upward_imports(graph: Graph, order: dict[str, int]) -> list[str]:
    """Imports of a room that stands higher, or beside."""
    wrong = []
    for name, targets in graph.items():
        room = name.partition(".")[2].partition(".")[0]
        for target in targets:
            other = target.partition(".")[2].partition(".")[0]
            if room in order and other in order and room != other and order[other] >= order[room]:
                wrong.append(f"{name} imports {target}")
    return sorted(wrong)


def top_level_modules(src: Path) -> list[str]:
    return sorted(path.name for path in src.glob("*.py"))


def folder_sizes(src: Path) -> dict[str, int]:
    """Python files standing directly in each folder."""
    counts = Counter(path.parent.relative_to(src).as_posix() for path in src.rglob("*.py"))
    return dict(counts.most_common())


def lines_by_room(src: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for path in src.rglob("*.py"):
        parts = path.relative_to(src).parts
        counts[parts[0] if len(parts) > 1 else "top level"] += len(path.read_text().splitlines())
    return dict(sorted(counts.items()))


#: Participles that name neither a verb nor a result; `tests/architecture/test_names.py` keeps their number falling.
PARTICIPLES = frozenset({"told", "made", "found", "said", "known", "given", "asked", "kept", "held"})


def walk(path: Path) -> list[ast.AST]:
    """Every node of a file."""
    return _walk(path.read_text())


@functools.lru_cache(2_000)
def _walk(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def participle_names(src: Path) -> int:
    """How often a bare participle stands as a name in the source."""
    count = 0
    for path in src.rglob("*.py"):
        for node in walk(path):
            if isinstance(node, ast.Name):
                count += node.id in PARTICIPLES
            elif isinstance(node, ast.Attribute):
                count += node.attr in PARTICIPLES
            elif isinstance(node, ast.arg | ast.keyword):
                count += node.arg in PARTICIPLES
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                count += node.name in PARTICIPLES
    return count


def shared_class_names(src: Path) -> dict[str, list[str]]:
    """Class names that stand for more than one thing."""
    where: dict[str, list[str]] = defaultdict(list)
    for path in sorted(src.rglob("*.py")):
        for node in walk(path):
            if isinstance(node, ast.ClassDef):
                where[node.name].append(path.relative_to(src).as_posix())
    return {name: files for name, files in where.items() if len(files) > 1}


#: Code that runs only when a monitor starts again on a journal.
RESTORE = {
    "monitor/loop.py": ("_restore", "_reenter_attempt", "_recorded_events"),
    "monitor/recorded_arrivals.py": ("recorded_inputs", "_recorded_step"),
    "gold/label_queue.py": ("restore_draw", "resume", "_RestoredDraw"),
}


def restore_lines(src: Path) -> int:
    """Lines of the functions in `RESTORE`; raises `KeyError` if one is gone."""
    total = 0
    for file, names in RESTORE.items():
        nodes = [node for node in walk(src / file) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        lines = {node.name: (node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes}
        total += sum(lines[name] for name in names)
    return total


def files_to_alarm(page: Path) -> int:
    """Files that are read from `train.py` to an alarm: the rows of the table in the architecture page."""
    text = page.read_text().partition("## From `train.py` to an alarm")[2].partition("\n## ")[0]
    files = re.findall(r"^\| \d+ \| `([^`]+)`", text, re.M)
    if lacking := [name for name in files if not (SRC / name).exists()]:
        raise SystemExit(f"{page} names files that are not there: {lacking}")
    return len(files)


def any_payloads(src: Path) -> int:
    """Functions of the page's room that return `dict[str, Any]`: what a type checker and the page cannot see into."""
    nodes = (node for path in sorted((src / "view").rglob("*.py")) for node in walk(path))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return sum(node.returns is not None and "dict[str, Any]" in ast.unparse(node.returns) for node in functions)


def report_stacks(src: Path) -> int:
    """Modules outside the page's room that write an HTML document of their own."""
    rooms = (src / "audit", src / "cli", *PACKAGES)
    files = (path for room in rooms for path in room.rglob("*.py"))
    return sum("<!doctype html" in path.read_text().lower() for path in files)


def lines_changed(since: str) -> dict[str, int]:
    """Lines of source that were removed and added since a revision."""
    command = ["git", "diff", "--numstat", "-M", since, "--", "src/tiltmeter/*.py"]
    rows = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    added, removed = (sum(int(row.split("\t")[column]) for row in rows) for column in (0, 1))
    return {"lines_removed": removed, "lines_added": added}


def test_count(root: Path) -> int:
    """Test cases that pytest collects there, campaigns excluded."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    counted = re.search(r"^(?:(\d+)/)?(\d+) tests? collected|^(\d+) tests? collected", done.stdout, re.M)
    if counted is None:
        raise SystemExit(f"pytest could not collect {root}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return int(next(group for group in counted.groups() if group))


def modules_loaded(command: str) -> dict[str, float]:
    """Modules loaded and CPU seconds after one statement in a fresh interpreter; the best of five."""
    program = (
        "import sys, time\n"
        f"{command}\n"
        "ours = sum(name.split('.')[0] == 'tiltmeter' for name in sys.modules)\n"
        "print(ours, len(sys.modules), time.process_time())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()[-3:]
        for _ in range(5)
    ]
    best = min(runs, key=lambda run: float(run[2]))
    return {"ours": int(best[0]), "all": int(best[1]), "cpu_seconds": round(float(best[2]), 3)}


def guess_scores(test: dict[str, Any], which: str) -> tuple[int, int]:
    """Of the 40: folders guessed right at the first guess, and files among the first three guesses."""
    folders = files = 0
    for question in test["questions"]:
        right = question[f"files_{which}"]
        guesses = test[f"answers_{which}"][str(question["id"])]
        folders += str(Path(guesses[0]).parent) in {str(Path(name).parent) for name in right}
        files += bool(set(guesses[:3]) & set(right))
    return folders, files


def ci_figures() -> dict[str, Any]:
    """What the last whole run of `.ci/run` wrote about itself."""
    told = json.loads((RESULTS / "ci.json").read_text())
    kept = {name: value for name, value in told.items() if name.startswith("ci_") or name in ("tests", "retried")}
    return kept | {"ci_load": told["load"], "ci_revision": told["revision"]}


def counted(src: Path) -> dict[str, Any]:
    rooms = lines_by_room(src)
    return {"lines": sum(rooms.values()), "lines_by_room": rooms, "tests": test_count(src.parent.parent)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--before", metavar="REVISION", help="count lines and tests of this revision too")
    parser.add_argument("--since", metavar="REVISION", help="count lines of source removed and added since then")
    options = parser.parse_args()
    graph, sizes = import_graph(SRC), folder_sizes(SRC)
    figures: dict[str, Any] = {}
    known = RESULTS / "house.json"
    if known.exists():  # what is not measured anew stays as it was measured
        old = json.loads(known.read_text())
        figures = {
            name: value for name, value in old.items() if name.startswith(("tests_", "lines_", "show_", "monitor_"))
        }
    figures |= ci_figures()
    if options.since:
        figures |= lines_changed(options.since)
    if options.before:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                ["git", "worktree", "add", "-f", "--detach", folder, options.before],
                check=True,
                cwd=ROOT,
                capture_output=True,
            )
            try:
                before = counted(Path(folder) / "src" / "tiltmeter")
            finally:
                subprocess.run(["git", "worktree", "remove", "--force", folder], check=True, cwd=ROOT)
        figures |= {f"{name}_before": value for name, value in before.items()}
    figures |= {f"{name}_after": value for name, value in counted(SRC).items()}
    figures |= {
        "import_circles": len(import_circles(graph)),
        "upward_imports": len(upward_imports(graph, layer_order())),
        "top_level_modules": len(top_level_modules(SRC)),
        "largest_folder": max(size for name, size in sizes.items() if name not in ("instruments", "stats")),
        "participle_names": participle_names(SRC),
        "shared_class_names": len(shared_class_names(SRC)),
        "loop_lines": len((SRC / "monitor" / "loop.py").read_text().splitlines()),
        "restore_lines": restore_lines(SRC),
        "files_train_to_alarm": files_to_alarm(ROOT / "docs" / "architecture.md"),
        "report_stacks": report_stacks(SRC),
        "any_payloads": any_payloads(SRC),
        "show_loads": modules_loaded("from tiltmeter.cli import app; app(['show', '--help'], standalone_mode=False)"),
        "monitor_loads": modules_loaded("import tiltmeter.monitor.__main__"),
    }
    test = json.loads((RESULTS / "guess_test.json").read_text())
    for which in ("before", "after"):
        folders, files = guess_scores(test, which)
        suffix = "" if which == "after" else "_before"
        figures |= {f"guess_folder_of_40{suffix}": folders, f"guess_file_of_40{suffix}": files}
    show(record("house", figures, seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
