"""Reads episodes that OpenEnv collected: `results.jsonl`, one episode a line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import list_folders, run_name, size_of
from tiltmeter.audit.readers.jsonl import as_store_errors, first_row, read_rows, require_rows
from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.audit.readers.trajectories.scores import (
    ONE_STEP,
    choose_scores,
    option_notes,
    plain_facts,
    score_columns,
)
from tiltmeter.data.messages import TurnBuilder, as_text, parse_call
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import as_number, as_object, as_objects, batch_of
from tiltmeter.data.turns import ASSISTANT, TOOL, Turn

_KEYS = frozenset({"episode_id", "messages", "tool_trace", "reward"})
_REWARD = "reward"


class OpenEnvReader:
    """Episodes of OpenEnv's collector. Its trace of tools tells which calls failed, and holds calls of black boxes."""

    name = "openenv"
    title = "OpenEnv: results.jsonl of collected episodes"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        files = [
            listing.folder / name
            for listing in list_folders(path)
            for name in listing.files
            if name.endswith(".jsonl") and (path.is_file() or name == "results.jsonl")
        ]
        return collect_runs({str(file): partial(_run, file, path, options) for file in files})

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        file = Path(piece.files[0])
        with as_store_errors(file):
            rows = [_row(row, run.settings) for row in require_rows(file, list(read_rows(file, growing=True)))]
            batch = batch_of(0, rows)
        yield batch


def _run(file: Path, path: Path, options: ReadOptions) -> ExternalRun | None:
    first = first_row(file)
    if not first.keys() >= _KEYS:
        return None
    chosen, notes = choose_scores(list(_scores(first)), options, file)
    described = (
        f"OpenEnv: collected episodes; {ONE_STEP}; groups by task, or each episode alone where none is named",
        "failed and dropped episodes are not in this file: the collector does not write them",
    )
    piece = Piece((str(file.absolute()),), size_of(file), (0,))
    notes = [*described, *notes, *option_notes(options)]
    name = run_name(file.parent, path if path.is_dir() else file.parent)
    return ExternalRun(name, OpenEnvReader.name, (piece,), tuple(notes), chosen)


def _scores(row: TableRow) -> dict[str, object]:
    """The reward, and the numbers that the verifier gave beside it."""
    beside = {f"verify.{name}": as_number(value) for name, value in as_object(row.get("verify_metrics")).items()}
    return {_REWARD: row.get("reward"), **{name: value for name, value in beside.items() if value is not None}}


def _row(row: TableRow, settings: Mapping[str, Any]) -> dict[str, Any]:
    task = row.get("task")
    key = as_object(task).get("id") or as_object(task).get("task_id") or (None if task is None else as_text(task))
    return {
        "group": str(key if key is not None else row.get("episode_id")),
        "turns": _turns(row),
        "task": None if key is None else str(key),
        "stop": "done" if row.get("done") else "unknown",
        "artifacts": row.get("artifacts") or None,
        "facts": plain_facts(as_object(row.get("metrics"))) | {"episode": str(row.get("episode_id"))},
        **score_columns(_scores(row), settings),
    }


def _turns(row: TableRow) -> list[Turn]:
    """The messages' turns; what only the trace of tools knows is added: errors, and calls that no message holds."""
    builder = TurnBuilder()
    for message in as_objects(row.get("messages")):
        builder.add_message(message)
    turns = builder.turns
    calls: dict[str, deque[int]] = {}
    for place, turn in enumerate(turns):
        if turn.role == ASSISTANT and turn.call:
            calls.setdefault(turn.call, deque()).append(place)
    answers = {turn.parent: at for at, turn in enumerate(turns) if turn.role == TOOL and turn.parent is not None}
    for entry in as_objects(row.get("tool_trace")):
        name, result = str(entry.get("tool_name") or "?"), as_object(entry.get("result"))
        error = as_text(result.get("error")) or None
        if not calls.get(name):
            call = parse_call({"name": name, "arguments": entry.get("arguments")})
            builder.add_words(ASSISTANT, None, None, [call])
            builder.add_answer(as_text(result.get("data")) or None, "", name=name, error=error)
            continue
        at = calls[name].popleft()
        answer = answers.get(at)
        if answer is not None and error and turns[answer].error is None:
            turns[answer] = msgspec.structs.replace(turns[answer], error=error)
        elif answer is None and _has_words(result):
            turns.append(Turn(TOOL, as_text(result.get("data")) or None, call=name, error=error, parent=at))
    return turns


def _has_words(result: Mapping[str, Any]) -> bool:
    return result.get("data") is not None or bool(result.get("error"))
