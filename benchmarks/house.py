"""The code base in figures: circles, layers, lines, verbs, parameters, pages, the first use, benchmarks, CI's time.

    python benchmarks/house.py [--json] [--write] [--quick]

`--quick` leaves out what installs the package. CI's seconds are those that `.ci/run` wrote into
`benchmarks/results/ci.json`. The guess test is recorded in `benchmarks/results/guess_test.json`: questions, the right
files, and the answers of readers who saw the tree of names and no code.
"""

from __future__ import annotations

import argparse
import ast
import functools
import json
import re
import sys
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import first_minutes
import headline
import smoke
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


def files_to_alarm(page: Path) -> int:
    """Files that are read from `train.py` to an alarm: the rows of the table in the architecture page."""
    text = page.read_text().partition("## From `train.py` to an alarm")[2].partition("\n## ")[0]
    files = re.findall(r"^\| \d+ \| `([^`]+)`", text, re.M)
    if lacking := [name for name in files if not (SRC / name).exists()]:
        raise SystemExit(f"{page} names files that are not there: {lacking}")
    return len(files)


def lines_of(src: Path) -> int:
    """Lines of Python below a folder."""
    return sum(len(path.read_text().splitlines()) for path in src.rglob("*.py"))


def parameters(file: str, function: str) -> int:
    """Public parameters of a function of the core, `*` not counted."""
    (node,) = (
        node
        for node in walk(SRC / file)
        if isinstance(node, ast.FunctionDef) and node.name == function and node.col_offset == 0
    )
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(not argument.arg.startswith("_") for argument in arguments)


def verbs(table: str = "cli/verb_table.py") -> int:
    """Verbs of the core, those below a noun included."""
    nodes = (node for node in walk(SRC / table) if isinstance(node, ast.Call))
    return sum(isinstance(node.func, ast.Name) and node.func.id == "Verb" for node in nodes)


def guess_scores(test: dict[str, Any]) -> tuple[int, int]:
    """Of the questions: folders guessed right at the first guess, and files among the first three guesses."""
    folders = files = 0
    for question in test["questions"]:
        right, guesses = question["files"], test["answers"][str(question["id"])]
        folders += str(Path(guesses[0]).parent) in {str(Path(name).parent) for name in right}
        files += bool(set(guesses[:3]) & set(right))
    return folders, files


def ci_figures() -> dict[str, Any]:
    """What the last whole run of `.ci/run` wrote about itself; None where it wrote nothing."""
    file = RESULTS / "ci.json"
    recorded = json.loads(file.read_text()) if file.exists() else {}
    names = {
        "ci_seconds": "ci_seconds",
        "ci_cpu_seconds": "ci_cpu_seconds",
        "ci_load": "load",
        "ci_revision": "revision",
    }
    return {name: recorded.get(key) for name, key in names.items()}


def first_use(quick: bool) -> dict[str, Any]:
    """The core in an environment of its own: packages, size, and CPU seconds of the first demo; None: not measured."""
    names = {"demo_cpu_s": "demo_cpu_s", "base_install_mb": "install_mb", "base_install_packages": "install_packages"}
    found = {} if quick else first_minutes.demo()
    return {name: found.get(key) for name, key in names.items()}


def all_packages() -> tuple[int, int]:
    """Circles and upward imports in the core and in each package."""
    graphs = [(tree.name, import_graph(tree)) for tree in (SRC, *PACKAGES)]
    circles = sum(len(import_circles(graph)) for _, graph in graphs)
    return circles, sum(len(upward_imports(graph, layer_order(name))) for name, graph in graphs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="without the install and the demo; nothing is written")
    options = parser.parse_args()
    sizes = folder_sizes(SRC)
    workbench, lab = (ROOT / "packages" / name / "src" for name in ("tiltmeter-workbench", "tiltmeter-lab"))
    folders, files = guess_scores(json.loads((RESULTS / "guess_test.json").read_text()))
    circles, upward = all_packages()
    tables, scripts = smoke.plan(), smoke.recording_scripts()
    in_ci = {*tables["run"], *tables["tested"]}
    figures: dict[str, Any] = {
        **ci_figures(),
        "core_lines": lines_of(SRC),
        "core_files": len(list(SRC.rglob("*.py"))),
        "workbench_lines": lines_of(workbench),
        "lab_lines": lines_of(lab),
        "verbs_core": verbs(),
        "attach_parameters": parameters("adapters/trl/attach.py", "attach"),
        "open_run_parameters": parameters("adapters/custom_loop.py", "open_run"),
        "docs_pages": len(list((ROOT / "docs").rglob("*.md"))),
        **first_use(options.quick),
        "guess_folder_of_40": folders,
        "guess_file_of_40": files,
        "benchmarks": len(scripts),
        "benchmarks_run": len(scripts & {*in_ci, *tables["campaign"]}),
        "benchmarks_in_ci": len(scripts & in_ci),
        "headline": len(headline.headline()),
        "headline_stale": len(headline.stale_names()),
        "import_circles": circles,
        "upward_imports": upward,
        "top_level_modules": len(top_level_modules(SRC)),
        "largest_folder": max(size for name, size in sizes.items() if name not in ("instruments", "stats")),
        "participle_names": participle_names(SRC),
        "shared_class_names": len(shared_class_names(SRC)),
        "files_train_to_alarm": files_to_alarm(ROOT / "docs" / "architecture.md"),
    }
    show(record("house", figures, seed=0, keep=options.write and not options.quick), as_json=options.json)


if __name__ == "__main__":
    main()
