"""Reads logs of Inspect: `.eval` files, which are zip files with one JSON document for each sample."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import list_folders, size_of
from tiltmeter.audit.readers.jsonl import as_store_errors
from tiltmeter.audit.readers.table_files import TableRow, parse_object
from tiltmeter.audit.readers.trajectories.inspect_turns import turns_of
from tiltmeter.audit.readers.trajectories.scores import (
    ONE_STEP,
    choose_scores,
    option_notes,
    plain_facts,
    score_columns,
)
from tiltmeter.audit.readers.trajectories.zip_files import ZipMembers, open_zip
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import as_number, as_object, as_objects, batch_of
from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

_SAMPLE = re.compile(r"samples/.+_epoch_\d+\.json")
_PEEK = 3  # samples whose scores are looked at
#: Values of scores that are letters: correct, incorrect, partly, no answer.
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_LIMITS = {
    "context": "length",
    "token": "length",
    "message": "turns",
    "turn": "turns",
    "cost": "tool_budget",
    "time": "wall_clock",
    "working": "wall_clock",
    "operator": "aborted",
}
_FINISHED = {"stop": "done", "max_tokens": "length", "model_length": "length", "content_filter": "done"}
_SANDBOX = re.compile(r"sandbox|docker|container|kubernetes|\bpod\b", re.IGNORECASE)
_TIMEOUT = re.compile(r"timeout|timed out", re.IGNORECASE)


class InspectReader:
    """Logs of Inspect. A sample is a row, its epochs are a group; scores are the reward, or gold, by name.

    Messages of the sample come first; calls and words that only its events hold (of sub-agents, or before a context
    was compacted) follow in their order. What a scorer asked a judge is not the policy's and is left out.
    """

    name = "inspect"
    title = "Inspect: logs of evaluations, *.eval"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        files = [
            listing.folder / name
            for listing in list_folders(path)
            for name in listing.files
            if name.lower().endswith(".eval")
        ]
        return collect_runs({str(file): partial(_run, file, options) for file in files})

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        file = Path(piece.files[0])
        with open_zip(file) as members, as_store_errors(file):
            rows = [_row(_document(members, name, file), run.settings) for name in _samples(members)]
            batch = batch_of(0, rows)
        yield batch


def _run(file: Path, options: ReadOptions) -> ExternalRun:
    with open_zip(file) as members:
        running = "header.json" not in members.names
        start = "_journal/start.json" if running else "header.json"
        header = _document(members, start, file) if start in members.names else {}
        evaluation = as_object(header.get("eval"))
        samples = _samples(members)
        status = "still running" if running else str(header.get("status"))
        if not samples:
            raise StoreError(f"{file}: no sample in this log ({log_line(status, 40)}); nothing to judge")
        scores: dict[str, None] = {}
        for name in samples[:_PEEK]:
            with as_store_errors(file):
                scores |= dict.fromkeys(_scores(_document(members, name, file)))
    chosen, score_notes = choose_scores(list(scores), options, file)
    task = log_line(str(evaluation.get("task")), 80)
    notes = [
        f"Inspect: {len(samples)} samples of {task}, with {log_line(str(evaluation.get('model')), 80)}",
        f"{ONE_STEP}; groups by sample id, epochs are its members",
        *score_notes,
        "left out: what scorers asked judges, state and store events, usage",
        *option_notes(options),
    ]
    if status != "success":
        notes.append(f"the evaluation did not end well: {log_line(status, 40)}; the samples that are there count")
    piece = Piece((str(file.absolute()),), size_of(file), (0,))
    return ExternalRun(file.stem, InspectReader.name, (piece,), tuple(notes), {**chosen, "env": task})


def _samples(members: ZipMembers) -> list[str]:
    return [name for name in members.names if _SAMPLE.fullmatch(name)]


def _document(members: ZipMembers, name: str, file: Path) -> TableRow:
    document = parse_object(members.read(name))
    if not isinstance(document, dict):
        raise StoreError(
            f"{file}: {log_line(name, 100)} is not a JSON object ({log_line(document, 80)}); copy it again"
        )
    return document


def _row(sample: TableRow, settings: Mapping[str, Any]) -> dict[str, Any]:
    target = sample.get("target")
    turns = turns_of(sample)
    return {
        "group": str(sample.get("id")),
        "turns": turns,
        "env": settings["env"],
        "task": str(sample.get("id")),
        "stop": _stop(sample),
        "facts": plain_facts(as_object(sample.get("metadata"))) | ({"target": target} if target else {}),
        **score_columns(_scores(sample), settings),
    }


def _scores(sample: TableRow) -> dict[str, object]:
    """The scores by name; those of a scorer that gives several as `scorer.name`."""
    scores: dict[str, object] = {}
    for name, score in as_object(sample.get("scores")).items():
        value = score.get("value") if isinstance(score, dict) else score
        several = value if isinstance(value, dict) else dict(enumerate(value)) if isinstance(value, list) else None
        if several is None:
            scores[name] = _number(value)
        else:
            scores |= {f"{name}.{part}": _number(item) for part, item in several.items()}
    return scores


def _number(value: object) -> object:
    if isinstance(value, str):
        return _LETTERS.get(value, value)  # another word is kept, to be flagged
    return value if isinstance(value, bool) else as_number(value)


def _stop(sample: TableRow) -> str:
    if error := sample.get("error"):
        words = str(as_object(error).get("message", error))[:10_000]
        return "sandbox" if _SANDBOX.search(words) else "wall_clock" if _TIMEOUT.search(words) else "engine"
    if sample.get("invalidation"):
        return "aborted"
    if limit := as_object(sample.get("limit")):
        return _LIMITS.get(str(limit.get("type")), "unknown")
    choices: Sequence[TableRow] = as_objects(as_object(sample.get("output")).get("choices"))
    return _FINISHED.get(str(choices[0].get("stop_reason")), "unknown") if choices else "unknown"
