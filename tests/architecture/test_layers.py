"""Imports point down only. The layers are the ones of the architecture; a new file must be given its place here."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tiltmeter"

#: Each file or folder by layer; a folder's files may not import each other unless it is listed in TALKING.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("remembered", "errors"),
    ("records", "stats", "ranks"),
    ("facts",),
    ("batches", "fingerprint", "durable", "lineage", "encode", "loading", "rows", "tables"),
    ("seal", "columns", "journal", "baseline"),
    ("parquet", "story"),
    ("store",),
    ("chat",),
    ("verdict", "upkeep", "writer", "evaluations", "pinned", "steps", "signing", "judge", "sandbox", "verifier_audits"),
    ("control", "advice", "unplaced"),
    ("instruments", "derived", "detectors", "gold", "diagnosis", "interventions", "rewards"),
    ("config", "arrivals", "counsel"),
    ("panel",),
    ("measuring",),
    ("watch",),
    ("piles",),
    ("placing",),
    ("monitor", "replay"),
    ("engine",),
    ("page", "sheet"),
    ("report",),
    ("adapters",),
    ("audit",),
    ("testing", "lab", "dashboard", "probe", "trackers", "preferences", "plan", "forecast", "compare", "constitution"),
    ("train",),  # a recipe puts the workbenches together
    ("cli",),
    ("__init__", "__main__"),
)
TALKING = {
    *("cli", "stats", "gold", "lab", "diagnosis", "interventions", "adapters", "page", "dashboard", "report"),
    *("sandbox", "rewards", "probe", "engine", "trackers", "audit", "preferences", "plan", "forecast"),
    *("chat", "compare", "constitution", "train"),
}
#: `tiltmeter` itself gives `__version__`; anything else of it would be an upward import.
HEAVY = {
    *(
        "torch",
        "transformers",
        "trl",
        "peft",
        "accelerate",
        "lm_eval",
        "datasets",
        "tokenizers",
        "ray",
        "starlette",
        "uvicorn",
        "duckdb",
        "wandb",
    ),
    *("tensorboard", "mlflow", "trackio", "prometheus_client", "verl", "openrlhf", "verifiers"),
}
#: Models, which are read and trained by the libraries that made them.
MODELS = (
    *("rewards/reward_model.py", "rewards/weight_averaging.py", "rewards/distillation.py"),
    *("workbench/probe/gradient.py", "probe/models.py"),
    *(
        "workbench/preferences/likelihood.py",
        "models/chat/local.py",
        "workbench/compare/measures/capability.py",
        "workbench/compare/suite.py",
    ),
)
#: The only files that may import what is heavy: nothing imports them unless a trainer is there.
MAY_BE_HEAVY = (
    *("adapters/trl", "adapters/checkpoints", "lab/tiny/", "cli/lab.py", "dashboard/", *MODELS),
    *("adapters/verl", "adapters/openrlhf", "adapters/readers/tensorboard", "adapters/readers/wandb"),
    *("engine/ray", "trackers/", "train/"),
)
#: What the command line and the writer's side may use, by package.
ONLY_IN = {
    "rich": {"cli", "encode"},
    "typer": {"cli"},
    "numba": {"stats"},
    "datasketches": {"stats"},
    "httpx": {"judge", "chat"},
}


def imports(path: Path) -> list[tuple[int, str]]:
    """Every imported module with its line, those inside functions included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def violations(src: Path) -> list[str]:
    """What breaks the layering of a source tree, in words."""
    place = {name: level for level, names in enumerate(LAYERS) for name in names}
    wrong = []
    for path in sorted(src.rglob("*.py")):
        parts = path.relative_to(src).with_suffix("").parts
        own = parts[0]
        if own not in place:
            wrong.append(f"{own} has no layer")
            continue
        for line, name in imports(path):
            where = f"{path.relative_to(src)}:{line}"
            top, *rest = name.split(".")
            if top in HEAVY and not path.relative_to(src).as_posix().startswith(MAY_BE_HEAVY):
                wrong.append(f"{where} imports {top}")
            if top in ONLY_IN and own not in ONLY_IN[top]:
                wrong.append(f"{where} imports {top}")
            if top != "tiltmeter" or not rest or rest[0] not in place or own in ("__init__", "__main__"):
                continue
            target = rest[0]
            sibling = target == own and len(parts) > 1 and parts[1] != "__init__" and len(rest) > 1
            if place[target] > place[own] or (place[target] == place[own] and target != own):
                wrong.append(f"{where} imports upward or sideways: {name}")
            elif sibling and own not in TALKING:
                wrong.append(f"{where} imports a sibling: {name}")
    return wrong


def test_imports_point_down() -> None:
    assert violations(SRC) == []


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("records.py", "from tiltmeter.rundir.store import RunDirectory", "upward"),
        ("store.py", "import tiltmeter.monitor.loop", "upward"),
        ("stats/betting.py", "from tiltmeter import records", "sideways"),
        ("instruments/kl.py", "from tiltmeter.instruments.entropy import PolicyEntropy", "sibling"),
        ("instruments/kl.py", "from tiltmeter.detectors.limit import Limit", "sideways"),
        ("writer.py", "def late():\n    from tiltmeter.cli import main", "upward"),
        ("panel.py", "import torch", "imports torch"),
        ("verdict.py", "from rich.text import Text", "imports rich"),
        ("helpers.py", "", "has no layer"),
    ],
)
def test_a_planted_import_is_noticed(tmp_path: Path, file: str, line: str, message: str) -> None:
    copy = tmp_path / "tiltmeter"
    shutil.copytree(SRC, copy, ignore=shutil.ignore_patterns("__pycache__", "demo"))
    target = copy / file
    target.write_text((target.read_text() if target.exists() else "") + f"\n{line}\n")
    assert any(message in wrong for wrong in violations(copy))
