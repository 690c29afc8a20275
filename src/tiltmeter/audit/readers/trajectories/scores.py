"""What the readers of trajectories share: choosing among scores, notes on options, reading a bounded file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.folders import size_of
from tiltmeter.audit.readers.jsonl import NAME_LENGTH
from tiltmeter.audit.readers.table_files import LINE_LIMIT, TableRow, parse_object
from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

ONE_STEP = "these files hold no training steps: all rows are step 0"


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


def plain_facts(values: Mapping[str, Any]) -> dict[str, Any]:
    """The short facts among many values: texts, numbers and truth values."""
    return {key: value for key, value in values.items() if isinstance(value, (str, int, float)) and value != ""}
