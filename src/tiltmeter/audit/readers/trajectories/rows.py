"""What the readers of trajectories share: making a batch of rows, choosing among scores, reading a bounded file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.folders import size_of
from tiltmeter.audit.readers.jsonl import NAME_LENGTH
from tiltmeter.audit.readers.table_files import LINE_LIMIT, TableRow, number, parse_object
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RAGGED_COLUMNS, RolloutBatch
from tiltmeter.data.stops import is_trusted
from tiltmeter.data.turns import prompt_text
from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

ONE_STEP = "these files hold no training steps: all rows are step 0"


class UnscoredError(Exception):
    """Scoring failed for reasons that are not the policy's: the row has no reward and is flagged `infra`."""


def batch_of(step: int, rows: Sequence[Mapping[str, Any]]) -> RolloutBatch:
    """One step's batch from rows with a `group`, `turns`, `rewards` by name, and any other columns.

    A column that no row has is left out; so is one of numbers a token that some row lacks.

    >>> from tiltmeter.data.turns import Turn
    >>> turns = [Turn("user", "Mend it."), Turn("assistant", call="rm", arguments='{"path": "tests"}')]
    >>> batch = batch_of(0, [{"group": "a", "turns": turns, "reward": 1.0}])
    >>> batch.prompt, batch.completion
    (('Mend it.',), ('rm({"path": "tests"})',))
    """
    rows = [_without_untrusted(_with_prompt(row)) for row in rows]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("group", "rewards"))
    columns: dict[str, Any] = {}
    for name in names:
        values = [row.get(name) for row in rows]
        full = all(value is not None for value in values)
        if full if name in RAGGED_COLUMNS else any(value is not None for value in values):
            columns[name] = values
    parts = dict.fromkeys(name for row in rows for name in row.get("rewards") or {})
    columns["rewards"] = {name: [(row.get("rewards") or {}).get(name) for row in rows] for name in parts}
    return from_columns(step, [str(row["group"]) for row in rows], **columns)


def _with_prompt(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with its prompt; without turns where the policy never spoke: that is no empty answer."""
    turns = row.get("turns")
    if turns is None:
        return row
    spoke = any(turn.written for turn in turns)
    return {"prompt": prompt_text(turns), **row, "turns": turns if spoke else None}


def _without_untrusted(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row; where a container, a verifier or a clock failed and nothing was scored, that is why."""
    if is_trusted(row.get("stop")):
        return row
    failed = UnscoredError()
    parts = {name: failed if part is None else part for name, part in (row.get("rewards") or {}).items()}
    return {**row, "rewards": parts, "reward": failed if row.get("reward") is None else row["reward"]}


def choose_scores(names: Sequence[str], options: ReadOptions, where: object) -> tuple[dict[str, str], list[str]]:
    """Which of several named scores is the reward and which gold, as settings and notes.

    Raises `StoreError` for a name that is not among them.
    """
    available = ", ".join(log_line(name, NAME_LENGTH) for name in names[:30]) or "none"
    chosen = {"reward": options.columns.get("reward", ""), "gold": options.columns.get("gold", "")}
    for ours, name in chosen.items():
        if name and name not in names:
            raise StoreError(
                f"{where}: no score {log_line(name, NAME_LENGTH)!r} for {ours}; the scores are {available}"
            )
    free = [name for name in names if name != chosen["gold"]] or list(names)
    chosen["reward"] = chosen["reward"] or (free[0] if free else "")
    reward = log_line(chosen["reward"], NAME_LENGTH)
    notes = [f"reward: {reward}" if names else "no scores: nothing was paid, as far as these files say"]
    if len(free) > 1 and "reward" not in options.columns:
        notes = [f"reward: {reward}, the first of {available}; --map reward=NAME chooses another"]
    if chosen["gold"]:
        paid = ", and it is paid as well: what a policy is paid for is no independent truth"
        notes.append(
            f"gold: {log_line(chosen['gold'], NAME_LENGTH)}, as given" + paid * (chosen["gold"] == chosen["reward"])
        )
    return chosen, notes


def option_notes(options: ReadOptions, used: Collection[str] = ("reward", "gold")) -> list[str]:
    """Notes on options that the format does not use. `used`: the columns that may be mapped."""
    names = [ours for ours in options.columns if ours not in used]
    notes = [f"--map {log_line(name, NAME_LENGTH)}= is not used: this format has no such column" for name in names[:1]]
    notes += ["--weight is not used: no score is a weighted sum here"] * bool(options.weights)
    notes += ["--eval is not used: no metrics in these files"] * bool(options.evals)
    return notes + ["--group-size is not used: groups are stored"] * (options.group_size is not None)


def score_columns(scores: Mapping[str, object], chosen: Mapping[str, str]) -> dict[str, Any]:
    """The columns `reward`, `gold` and `rewards` of one row."""
    paid = {name: score for name, score in scores.items() if name != chosen["gold"]}
    columns: dict[str, Any] = {"reward": scores.get(chosen["reward"]), "rewards": paid}
    if chosen["gold"]:
        columns["gold"] = scores.get(chosen["gold"])
    return columns


def read_document(path: Path) -> TableRow:
    """The JSON object that a file holds. Raises `StoreError` for anything else, and for a file that is too large."""
    if size_of(path) > LINE_LIMIT:
        raise StoreError(f"{path}: more than {LINE_LIMIT >> 20} MB are no trajectory; move it away")
    try:
        with path.open("rb") as stream:
            data = stream.read(LINE_LIMIT + 1)
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read ({error.strerror}); copy it again or move it away") from error
    document = parse_object(data)
    if not isinstance(document, dict):
        raise StoreError(f"{path}: not a JSON object ({log_line(document, 120)}); copy it again or move it away")
    return document


def as_object(value: object) -> Mapping[str, Any]:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[TableRow]:
    """The JSON objects of a list; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_number(value: object) -> float | None:
    """A finite or infinite number as JSON has it; None for anything else, truth values included."""
    return None if isinstance(value, (bool, str)) else number(value)


def plain_facts(values: Mapping[str, Any]) -> dict[str, Any]:
    """The short facts among many values: texts, numbers and truth values."""
    return {key: value for key, value in values.items() if isinstance(value, (str, int, float)) and value != ""}
