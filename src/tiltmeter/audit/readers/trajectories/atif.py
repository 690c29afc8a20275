"""Reads ATIF, the Agent Trajectory Interchange Format: documents, and trial folders of Harbor with their rewards."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import list_folders, run_name, size_of
from tiltmeter.audit.readers.jsonl import as_store_errors
from tiltmeter.audit.readers.table_files import TableRow, number
from tiltmeter.audit.readers.trajectories.atif_turns import turns_of
from tiltmeter.audit.readers.trajectories.scores import (
    ONE_STEP,
    choose_scores,
    option_notes,
    read_document,
    score_columns,
)
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import as_number, as_object, batch_of
from tiltmeter.errors import StoreError

_NAME = re.compile(r"(?:.+[._-])?trajectory(?:[._-].+)?\.json", re.IGNORECASE)
_REWARD_LIMIT = 1 << 16  # bytes of a reward file
_PEEK = 20  # trials whose scores are looked at
#: How a trial ended, by words in the name of its exception, as Harbor names them.
_FAILURES = (
    (re.compile(r"verif", re.IGNORECASE), "verifier"),
    (re.compile(r"environment|sandbox|docker|container|build|download", re.IGNORECASE), "sandbox"),
    (re.compile(r"timeout", re.IGNORECASE), "wall_clock"),
    (re.compile(r"cancel|interrupt", re.IGNORECASE), "aborted"),
    (re.compile(r"context|length|token", re.IGNORECASE), "length"),
)


class AtifReader:
    """Trajectories of agents as Harbor and others write them, one JSON document each; rewards by the trial's verifier.

    Steps that were copied from another trajectory are no words of the policy in this one. Sub-agents stand behind the
    call that started them.
    """

    name = "atif"
    title = "ATIF trajectories (trajectory.json), alone or in trial folders of Harbor"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        if path.is_file():
            homes = {path.parent: [path]} if path.suffix == ".json" and _is_atif(path, quiet=True) else {}
        else:
            homes = {}
            for listing in list_folders(path):
                for name in listing.files:
                    file = listing.folder / name
                    if _NAME.fullmatch(name) and _is_atif(file, quiet=False):
                        trial = _trial(file)
                        homes.setdefault(listing.folder if trial is None else trial.parent, []).append(file)
        root = path if path.is_dir() else path.parent
        return collect_runs(
            {str(home): partial(_run, home, files, root, options) for home, files in sorted(homes.items())}
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        rows = []
        documents = {Path(file): read_document(Path(file)) for file in piece.files}
        continued = {_beside(file, document.get("continued_trajectory_ref")) for file, document in documents.items()}
        for file, document in documents.items():
            if file in continued:
                continue  # it is read with the one that it continues
            with as_store_errors(file):
                rows.append(_row(file, document, run.settings))
        with as_store_errors(Path(piece.files[0])):
            batch = batch_of(0, rows)
        yield batch


def _is_atif(file: Path, *, quiet: bool) -> bool:
    """Whether a file begins like a document of this format: reading thousands whole would take too long."""
    try:
        with file.open("rb") as stream:
            head = stream.read(4096)
    except OSError:
        return False
    return b'"ATIF-v' in head or (not quiet and file.name == "trajectory.json" and b'"schema_version"' in head)


def _trial(file: Path) -> Path | None:
    """The trial's folder: Harbor writes TRIAL/agent/trajectory.json beside TRIAL/result.json."""
    folder = file.absolute().parent
    trial = folder.parent if folder.name == "agent" else folder
    return trial if (trial / "result.json").is_file() or (trial / "verifier").is_dir() else None


def _run(home: Path, files: list[Path], root: Path, options: ReadOptions) -> ExternalRun:
    names: dict[str, None] = {}
    joined = 0
    for file in files[:_PEEK]:
        trial = _trial(file)
        joined += trial is not None
        names |= dict.fromkeys({} if trial is None else _scores(trial, _result(trial)))
    chosen, notes = choose_scores(list(names), options, home)
    if not joined:
        notes = ["no rewards: no result.json or verifier/ of Harbor beside these documents"]
    piece = Piece(tuple(str(file.absolute()) for file in files), sum(map(size_of, files)), (0,))
    described = (
        f"ATIF: {len(files)} documents, {joined} of the first {min(len(files), _PEEK)} with a trial's result",
        f"{ONE_STEP}; groups by task",
        "folders of trials are read from Harbor's documentation: no folder of a real job was at hand",
        "steps that were copied from another trajectory do not count as the policy's; costs and notes are left out",
    )
    return ExternalRun(
        run_name(home, root), AtifReader.name, (piece,), (*described, *notes, *option_notes(options)), chosen
    )


def _row(file: Path, document: TableRow, settings: Mapping[str, Any]) -> dict[str, Any]:
    if not str(document.get("schema_version")).startswith("ATIF-v"):
        raise ValueError("no schema_version of ATIF")
    parts = [document]
    seen = {file}
    while (following := _beside(file, parts[-1].get("continued_trajectory_ref"))) and following not in seen:
        seen.add(following)
        parts.append(read_document(following))
    turns, tokens = turns_of(parts, partial(_load_once, file, seen))
    trial = _trial(file)
    result = {} if trial is None else _result(trial)
    agent = as_object(document.get("agent"))
    task = result.get("task_name") or (trial.name.rsplit("__", 1)[0] if trial else document.get("session_id"))
    group = task or document.get("trajectory_id") or file
    facts = {"model": agent.get("model_name"), "trial": result.get("trial_name") or (trial.name if trial else None)}
    return {
        "group": str(group),
        "turns": turns,
        "agent": agent.get("name"),
        "task": None if task is None else str(task),
        "stop": _stop(result),
        "facts": {key: value for key, value in facts.items() if value},
        **tokens,
        **score_columns({} if trial is None else _scores(trial, result), settings),
    }


def _beside(file: Path, name: object) -> Path | None:
    """The file of that name in the same folder; a name that leads elsewhere is not followed."""
    if not isinstance(name, str) or not name or len(name) > 255 or "\0" in name:
        return None
    place = file.parent / Path(name.replace("\\", "/")).name
    return place if place != file and place.is_file() and not place.is_symlink() else None


def _load_once(file: Path, seen: set[Path], name: object) -> TableRow | None:
    """The document of that name beside a file, the first time that it is asked for."""
    place = _beside(file, name)
    if place is None or place in seen:
        return None
    seen.add(place)
    return _optional(place)


def _optional(file: Path | None) -> TableRow | None:
    if file is None:
        return None
    try:
        return read_document(file)
    except StoreError:
        return None


def _result(trial: Path) -> TableRow:
    return _optional(trial / "result.json" if (trial / "result.json").is_file() else None) or {}


def _scores(trial: Path, result: TableRow) -> dict[str, object]:
    """The verifier's rewards: from the trial's result, else from the file that the verifier wrote."""
    rewards = as_object(as_object(result.get("verifier_result")).get("rewards"))
    if not rewards:
        for name in ("reward.json", "reward.txt"):
            file = trial / "verifier" / name
            if not file.is_file() or size_of(file) > _REWARD_LIMIT:
                continue
            if name == "reward.json":
                rewards = _optional(file) or {}
            elif (value := number(_text(file).strip())) is not None:
                rewards = {"reward": value}
            if rewards:
                break
    return {name: value if isinstance(value, bool) else as_number(value) for name, value in rewards.items()}


def _text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(_REWARD_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""


def _stop(result: TableRow) -> str | None:
    failure = as_object(result.get("exception_info"))
    if failure:
        words = str(failure.get("exception_type") or "")[:200]
        return next((stop for pattern, stop in _FAILURES if pattern.search(words)), "engine")
    return "done" if result else None
