"""Runs that are named by an address: fetched from W&B, Trackio, MLflow or the Hugging Face Hub, then read as files.

    wandb:ENTITY/PROJECT/RUN   trackio:PROJECT/RUN   mlflow:RUN_ID   hf:OWNER/NAME

Everything is fetched by the tracker's own package, with the account that it knows. A run becomes a folder with its
history (`history.jsonl`) and its tables of completions where W&B itself would keep them, so one reader reads all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.wandb import HISTORY, OURS
from tiltmeter.audit.readers.wandb_tables import TABLES
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.safety.safe_text import log_line

KINDS = {
    "wandb": ("ENTITY/PROJECT/RUN", "trackers"),
    "trackio": ("PROJECT/RUN", "trackio"),
    "mlflow": ("RUN_ID, where MLFLOW_TRACKING_URI says", "mlflow"),
    "hf": ("OWNER/NAME, a dataset of rollouts", "trl"),
}
#: What a dataset of rollouts may consist of; never code, never a pickle.
HUB_FILES = ("*.parquet", "*.jsonl", "*.jsonl.gz", "*.csv", "*.csv.gz", "*.json", "*.eval")
#: Names that a tracker gives to its tables. Any other is left: it might lead out of the folder.
_TABLE = re.compile(r"media/table/(?:[\w -]+/)*[\w.-]+\.table\.json")
_TRACKIO_TABLE = "trackio.table"


def is_address(text: str) -> bool:
    """
    >>> is_address("wandb:me/grpo/1a2b3c"), is_address("runs/wandb")
    (True, False)
    """
    kind, colon, rest = text.partition(":")
    return bool(colon and rest) and kind in KINDS and not Path(text).exists()


def fetch_run(address: str, home: Path) -> Path:
    """Fetch a run into a folder below `home` and return it; one that is there already is not fetched again."""
    kind, _, name = address.partition(":")
    folder = home / re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")
    if (folder / HISTORY).exists():
        return folder
    try:
        return _FETCHERS[kind](name, folder)
    except (AttachError, StoreError):
        raise
    except Exception as error:
        why = log_line(f"{type(error).__name__}: {error}", 300)
        raise StoreError(f"{address} cannot be fetched ({why}); the form is {kind}:{KINDS[kind][0]}") from error


def _fetch_wandb(name: str, folder: Path) -> Path:
    if name.count("/") != 2:
        raise StoreError(f"wandb:{name}: the form is wandb:{KINDS['wandb'][0]}")
    run: Any = _package("wandb", "wandb").Api().run(name)
    for file in run.files():
        if _TABLE.fullmatch(file.name):
            file.download(root=str(folder / "files"), exist_ok=True)
    return _write_history(folder, run.scan_history())


def _fetch_trackio(name: str, folder: Path) -> Path:
    project, slash, run = name.rpartition("/")
    if not slash:
        raise StoreError(f"trackio:{name}: the form is trackio:{KINDS['trackio'][0]}")
    storage: Any = _package("trackio.sqlite_storage", "trackio").SQLiteStorage
    rows = storage.get_logs(project, run)
    if not rows:
        others = ", ".join(log_line(one, 60) for one in storage.get_runs(project)[:20]) or "none"
        raise StoreError(f"trackio:{name}: no such run here; there are {others}")
    tables = folder / TABLES
    tables.mkdir(parents=True, exist_ok=True)
    for number, row in enumerate(rows):
        for value in row.values():
            cells = value.get("_value") if isinstance(value, dict) and value.get("_type") == _TRACKIO_TABLE else None
            if cells:
                columns = list(cells[0])
                table = {"columns": columns, "data": [[cell.get(one) for one in columns] for cell in cells]}
                (tables / f"completions_{number}_0.table.json").write_text(json.dumps(table))
    return _write_history(folder, rows)


def _fetch_mlflow(name: str, folder: Path) -> Path:
    client: Any = _package("mlflow.tracking", "mlflow").MlflowClient()
    run = client.get_run(name)
    rows: dict[int, dict[str, float]] = {}
    for metric in (one for one in run.data.metrics if not one.startswith(OURS)):
        for point in client.get_metric_history(name, metric):
            rows.setdefault(int(point.step), {"_step": int(point.step)})[metric] = point.value
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in client.list_artifacts(name):
        if artifact.path in ("completions", "rollouts"):  # as TRL's folder is called
            client.download_artifacts(name, artifact.path, str(folder))
    return _write_history(folder, [rows[step] for step in sorted(rows)])


def _fetch_hub(name: str, folder: Path) -> Path:
    hub: Any = _package("huggingface_hub", "hf")
    return Path(hub.snapshot_download(name, repo_type="dataset", allow_patterns=list(HUB_FILES)))


def _write_history(folder: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write the rows that hold numbers; the file comes last, so that a fetch that was broken off is begun again."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f".{HISTORY}"
    with draft.open("w") as file:
        for row in rows:
            plain = {key: value for key, value in row.items() if isinstance(value, (int, float))}
            if plain:
                file.write(f"{json.dumps(plain)}\n")
    draft.replace(folder / HISTORY)
    return folder


def _package(module: str, kind: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        name = module.split(".")[0]
        raise AttachError(f"{name} is not installed: pip install 'tiltmeter[{KINDS[kind][1]}]'") from error


_FETCHERS: dict[str, Callable[[str, Path], Path]] = {
    "wandb": _fetch_wandb,
    "trackio": _fetch_trackio,
    "mlflow": _fetch_mlflow,
    "hf": _fetch_hub,
}
