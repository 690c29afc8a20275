"""Rooms import downwards only, no files import each other in circles, and no folder fills up again.

The order of the rooms is in pyproject.toml, under import-linter. Every rule is also tried on a tree that breaks it.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tiltmeter"
sys.path.insert(0, str(ROOT / "benchmarks"))

import house  # noqa: E402  # the figures that are published are those that are tested

MOST_AT_THE_TOP = 6
MOST_IN_A_FOLDER = 25
#: One file per reading, and one per method: they may grow.
LARGE = ("instruments", "stats")

HEAVY = {
    *("torch", "transformers", "trl", "peft", "accelerate", "lm_eval", "datasets", "tokenizers", "ray", "starlette"),
    *("uvicorn", "duckdb", "wandb", "tensorboard", "mlflow", "trackio", "prometheus_client"),
    *("verl", "openrlhf", "verifiers"),
}
#: The only files that may import what is heavy: nothing imports them unless a trainer or a model is there.
MAY_BE_HEAVY = {
    "tiltmeter": (
        *(
            "adapters/trl/",
            "adapters/verl/",
            "adapters/openrlhf",
        ),
        *("audit/readers/tensorboard", "audit/readers/wandb", "audit/engine/ray", "audit/dataset_join"),
        *("audit/addresses", "view/server/", "view/trackers/"),
    ),
    "tiltmeter_workbench": (
        *("common/checkpoint_samples.py", "common/local_model.py"),
        *("rewards/process_model.py", "rewards/reward_model.py", "rewards/weight_averaging.py"),
        *("rewards/distillation.py", "train/", "probe/gradient.py", "preferences/likelihood.py"),
        *("compare/measures/capability.py", "compare/suite.py", "repay/interpolate.py"),
    ),
    "tiltmeter_lab": ("tiny/", "verbs/"),
}
#: What only these rooms may use.
ONLY_IN = {
    "jinja2": ("check_report/html",),
    "rich": ("cli/", "verbs/", "terminal/", "safety/safe_text"),
    "typer": ("cli/", "verbs/", "terminal/"),
    "numba": ("stats/",),
    "httpx": ("models/",),
}

#: Functions that import our own modules late: public names on first use, and modules that need TRL, veRL or DuckDB.
LATE = {
    "tiltmeter": {
        *("__init__.py: __getattr__", "__init__.py: _open_view", "adapters/verl/plugin.py: fit"),
        *("adapters/verl/plugin.py: wrap", "cli/run/rollouts.py: _find_rollouts"),
    },
    "tiltmeter_workbench": {
        *("train/checks.py: _check_watch", "train/methods/dpo.py: _trainer_setup", "train/methods/grpo.py: train"),
        *("train/methods/process_reward.py: train", "train/trl_trainer.py: _add_projection"),
        *("train/trl_trainer.py: _evaluate", "train/trl_trainer.py: attach_monitor"),
    },
    "tiltmeter_lab": {
        *("verbs/campaigns.py: tiny_runs", "verbs/campaigns.py: tiny_score"),
        "tiny/watched_training.py: train_watched",
    },
}
TREES = (SRC, *house.PACKAGES)


def external_imports(src: Path) -> list[str]:
    """Packages of others where they must not be imported."""
    wrong = []
    for path in sorted(src.rglob("*.py")):
        place = path.relative_to(src).as_posix()
        for node in house.walk(path):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for top in (name.partition(".")[0] for name in names):
                heavy = top in HEAVY and not place.startswith(MAY_BE_HEAVY[src.name])
                if heavy or (top in ONLY_IN and not place.startswith(ONLY_IN[top])):
                    wrong.append(f"{place} imports {top}")
    return wrong


def own_imports_inside_functions(src: Path) -> list[str]:
    """Imports of our own modules that hide in functions: those are for packages that may be absent."""
    hidden = []
    for path in sorted(src.rglob("*.py")):
        if "    from tiltmeter" not in path.read_text():
            continue  # walking every function of every file takes seconds
        functions = (node for node in house.walk(path) if isinstance(node, ast.FunctionDef))
        for function in functions:
            for node in ast.walk(function):
                own = isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LATE
                if own:
                    hidden.append(f"{path.relative_to(src)}: {function.name}")
    return sorted(set(hidden))


def crowded(src: Path) -> list[str]:
    """Too many modules at the top, or too many files in one folder."""
    wrong = []
    most = MOST_IN_A_FOLDER if src.name == "tiltmeter_lab" else MOST_AT_THE_TOP  # the lab is one room itself
    if len(top := house.top_level_modules(src)) > most:
        wrong.append(f"{len(top)} modules at the top level: {', '.join(top)}")
    sizes = house.folder_sizes(src)
    return wrong + [
        f"{size} files in {folder}" for folder, size in sizes.items() if size > MOST_IN_A_FOLDER and folder not in LARGE
    ]


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """import-linter with the contracts of pyproject.toml, on the tree below `root`."""
    linter = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    command = [*linter, "--config", str(root / "pyproject.toml"), "--no-cache"]
    trees = (root / "src", *(root / "packages").glob("*/src"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, trees))}
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)


def test_every_contract_holds() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("src", TREES, ids=lambda src: src.name)
def test_no_files_import_each_other_in_circles_and_none_imports_a_higher_room(src: Path) -> None:
    graph = house.import_graph(src)
    assert house.import_circles(graph) == []
    assert house.upward_imports(graph, house.layer_order(src.name)) == []


@pytest.mark.parametrize("src", TREES, ids=lambda src: src.name)
def test_no_folder_fills_up(src: Path) -> None:
    assert crowded(src) == []


@pytest.mark.parametrize("src", TREES, ids=lambda src: src.name)
def test_other_peoples_packages_are_imported_where_they_belong(src: Path) -> None:
    assert external_imports(src) == []


@pytest.mark.parametrize("src", TREES, ids=lambda src: src.name)
def test_own_modules_are_imported_at_the_top_of_a_file(src: Path) -> None:
    assert set(own_imports_inside_functions(src)) == LATE[src.name]


# -- every rule, broken on purpose -------------------------------------------------------------------------------------


def plant(src: Path, file: str, line: str) -> Path:
    target = src / file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text((target.read_text() if target.exists() else '"""Planted."""\n') + f"\n{line}\n")
    return src


PLANTED = (
    ("data/records.py", "from tiltmeter.rundir.store import RunDirectory", "data.records -> tiltmeter.rundir.store"),
    ("rundir/writer.py", "def late():\n    from tiltmeter.cli import main", "rundir.writer -> tiltmeter.cli"),
    ("adapters/launch.py", "import tiltmeter.view.report.html", "adapters.launch -> tiltmeter.view.report.html"),
    ("audit/measure.py", "import tiltmeter_workbench.plan.rules", "audit.measure -> tiltmeter_workbench.plan"),
    (
        "instruments/kl.py",
        "from tiltmeter.instruments.entropy import PolicyEntropy",
        "instruments.kl -> tiltmeter.instr",
    ),
)


def test_planted_imports_break_their_contracts(tmp_path: Path) -> None:
    left_out = shutil.ignore_patterns("__pycache__", "demo_runs", "static", "recorded", "suites")
    src = Path(shutil.copytree(SRC, tmp_path / "src" / "tiltmeter", ignore=left_out))
    for tree in house.PACKAGES:
        shutil.copytree(tree, tmp_path / tree.relative_to(ROOT), ignore=left_out)
    suite = tmp_path / "packages/tiltmeter-workbench/src/tiltmeter_workbench"
    plant(suite, "plan/groups.py", "import tiltmeter_workbench.compare.suite")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for file, line, _ in PLANTED:
        plant(src, file, line)
    plant(src, "rundir/parquet.py", "import tiltmeter.rundir.store")
    done = lint_imports(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("BROKEN") == 5
    shown = " ".join(done.stdout.split())
    assert "plan.groups -> tiltmeter_workbench.compare" in shown, done.stdout
    for _, _, chain in PLANTED:
        assert chain in shown, done.stdout
    plant(src, "helpers.py", "")
    assert "tiltmeter.helpers" in lint_imports(tmp_path).stdout


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A tree of a few files in the rooms of ours, in order."""
    src = tmp_path / "tiltmeter"
    plant(src, "__init__.py", "")
    for room in ("data", "sandbox", "monitor"):
        plant(src, f"{room}/__init__.py", "")
    plant(src, "data/records.py", "")
    plant(src, "sandbox/contract.py", "import tiltmeter.data.records")
    plant(src, "sandbox/opening.py", "from tiltmeter.sandbox.contract import Limits")
    plant(src, "sandbox/__init__.py", "from tiltmeter.sandbox.opening import open_sandbox")
    plant(src, "monitor/loop.py", "def late():\n    import torch_free\n    import tiltmeter.data.records")
    assert not house.import_circles(house.import_graph(src))
    assert not house.upward_imports(house.import_graph(src), house.layer_order())
    assert not crowded(src) and not external_imports(src) and not own_imports_inside_functions(src)
    return src


def test_a_planted_circle_is_found_also_through_a_function_and_a_package(small: Path) -> None:
    plant(small, "sandbox/contract.py", "def late():\n    from tiltmeter.sandbox import open_sandbox")
    circle = ["tiltmeter.sandbox", "tiltmeter.sandbox.contract", "tiltmeter.sandbox.opening"]
    assert house.import_circles(house.import_graph(small)) == [circle]


def test_a_planted_upward_import_is_counted(small: Path) -> None:
    plant(small, "data/records.py", "import tiltmeter.monitor.loop")
    upward = house.upward_imports(house.import_graph(small), house.layer_order())
    assert upward == ["tiltmeter.data.records imports tiltmeter.monitor.loop"]


def test_planted_crowds_are_seen(small: Path) -> None:
    for number in range(MOST_AT_THE_TOP):
        plant(small, f"planted_{number}.py", "")
    assert len(crowded(small)) == 1
    for number in range(MOST_IN_A_FOLDER):
        plant(small, f"monitor/planted_{number}.py", "")
    assert len(crowded(small)) == 2


@pytest.mark.parametrize(
    ("file", "line"), [("monitor/loop.py", "import torch"), ("data/records.py", "from rich.text import Text")]
)
def test_a_planted_package_is_seen(small: Path, file: str, line: str) -> None:
    assert external_imports(plant(small, file, line))


def test_a_planted_late_import_is_seen(small: Path) -> None:
    plant(small, "monitor/loop.py", "def later():\n    from tiltmeter.data.records import Reading")
    assert own_imports_inside_functions(small) == ["monitor/loop.py: later"]


def core_modules_of(tree: Path) -> set[str]:
    """Modules of the core that a package imports, without `tiltmeter.`."""
    core = set(house.import_graph(SRC))
    found = set()
    for path in tree.rglob("*.py"):
        for node in house.walk(path):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                both = ((f"{node.module}.{alias.name}", node.module) for alias in node.names)
                found |= {child if child in core else parent for child, parent in both}
    return {name.removeprefix("tiltmeter.") for name in found & core - {"tiltmeter"}}


def test_packages_import_what_the_page_of_the_api_lists() -> None:
    part = (ROOT / "docs" / "api.md").read_text().split("## For packages")[1]
    listed = {"rewards"}  # public, and has a part of its own there
    for room, cell in re.findall(r"^\| `(\w+)` \| (.+) \|$", part, re.M):
        listed |= {f"{room}.{module}" for module in re.findall(r"`([\w.]+)`", cell)}
        listed |= {room} if "the room itself" in cell else set()
        if not re.search(r"`", cell):
            listed.add(room)
    used = set().union(*map(core_modules_of, house.PACKAGES))
    assert used <= listed, f"a package imports what docs/api.md does not list: {sorted(used - listed)}"
    assert listed - used <= {"rewards"}, f"docs/api.md lists what no package imports: {sorted(listed - used)}"
