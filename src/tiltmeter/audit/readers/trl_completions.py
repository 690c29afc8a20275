"""Interprets the columns of TRL's completions files, and makes a batch of each step's rows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.jsonl import NAME_LENGTH
from tiltmeter.audit.readers.trl_state import TrainerLog
from tiltmeter.data.batches import from_columns, plain_text
from tiltmeter.data.records import Floats, Ints, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.decoded_size import check_whole
from tiltmeter.safety.safe_text import log_line

ROW_LIMIT = 1 << 20  # rows of one step
BYTES_LIMIT = 4 << 30  # of one step, unpacked
FILE = re.compile(r"completions_(\d+)\.parquet")

_OWN = ("step", "prompt", "completion", "advantage")


def load_completions(file: Path) -> pa.Table:
    try:
        with pq.ParquetFile(file) as opened:
            meta = opened.metadata
            size = sum(meta.row_group(group).total_byte_size for group in range(meta.num_row_groups))
            if meta.num_rows > ROW_LIMIT or size > BYTES_LIMIT:
                raise StoreError(f"{file}: {meta.num_rows} rows in one step; this is no file of completions")
            check_whole(file, meta)
            table = opened.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        why = log_line(str(error), 120)
        raise StoreError(f"{file}: not a whole Parquet file ({why}); copy it again or move it away") from error
    names = table.column_names
    if missing := [name for name in _OWN[:3] if name not in names]:
        raise StoreError(f"{file}: no column {', '.join(missing)}; this is no file of TRL completions: move it away")
    if len(set(names)) < len(names):
        raise StoreError(f"{file}: two columns have one name; rename one")
    return table


def same_rollouts(one: pa.Table, two: pa.Table) -> bool:
    return all(one.column(name).equals(two.column(name)) for name in ("prompt", "completion"))


def settings_of(
    where: Path, samples: Sequence[tuple[int, pa.Table]], state: TrainerLog | None, options: ReadOptions
) -> tuple[dict[str, Any], list[str]]:
    """The settings for `batch_of`, and notes on how they were found."""
    rewards, extras, notes = _columns(where, samples[0][1], state, options)
    size, group_note = _group_size(where, [_texts(table, "prompt") for _, table in samples], options)
    notes.append(group_note)
    repeats = any(same_rollouts(one, two) for (_, one), (_, two) in pairwise(samples))
    if repeats:
        notes.append(
            "files of neighbouring steps hold the same rollouts (num_iterations or steps_per_generation above 1): the "
            "first is kept, for a batch belongs to the step that first uses it"
        )
    gold = options.columns.get("gold", "")
    if gold and gold not in samples[0][1].column_names:
        columns = _list([*rewards, *extras])
        raise StoreError(f"{where}: no column {log_line(gold, NAME_LENGTH)!r} for gold: the columns are {columns}")
    if gold:
        paid = ", and it is paid as well: what a policy is paid for is no independent truth" if gold in rewards else ""
        notes.append(f"gold: {log_line(gold, NAME_LENGTH)}, as given{paid}")
    settings = {"repeats": repeats, "group": size, "rewards": rewards, "extras": extras, "total": True, "gold": gold}
    notes += _unscored_notes(samples, rewards)
    if any(_has_calls(table.schema.field("completion").type) for _, table in samples):
        notes.append(
            "completions are conversations with calls of tools; an argument that is null counts as not given, because "
            "one struct has those of all tools; which tokens the policy wrote is not in these files"
        )
    if state is not None and state.logging_steps == 1 and not options.weights and not repeats:
        clash, log_notes = _compare_with_log(samples, rewards, state)
        settings["total"] = not clash
        notes += log_notes
    return settings, notes


def _columns(
    where: Path, table: pa.Table, state: TrainerLog | None, options: ReadOptions
) -> tuple[dict[str, float], list[str], list[str]]:
    """The reward functions' columns with their weights, the other columns, and how they were told apart."""
    others = [name for name in table.column_names if name not in _OWN]
    logged = [] if state is None else [name for name in state.parts if name in others]
    if unknown := sorted(set(options.weights) - set(others)):
        raise StoreError(
            f"{where}: no reward column {log_line(unknown[0], NAME_LENGTH)!r} to weigh: the columns are {_list(others)}"
        )
    if logged:
        parts, how = [name for name in others if name in logged], "as the log names them"
    elif options.weights:
        parts, how = [name for name in others if name in options.weights], "as they were given weights"
    else:
        kinds = (pa.types.is_floating, pa.types.is_null)
        parts = [name for name in others if any(kind(table.schema.field(name).type) for kind in kinds)]
        how = "all that hold fractions, because no log tells them from log_extra columns; --weight NAME=1 names them"
    if not parts:
        raise StoreError(f"{where}: the completions have no reward column; pass --weight NAME=1 to say which it is")
    weights = {name: float(options.weights.get(name, 1.0)) for name in parts}
    extras = [name for name in others if name not in parts]
    notes = [f"reward functions: {_list(parts)} ({how})"]
    if extras:
        notes.append(f"kept as facts of a row, not as rewards: {_list(extras)}")
    if options.weights:
        notes.append("the total is their sum with the weights " + _weights(weights))
    elif len(parts) > 1:
        notes.append("the total is their sum with weight 1 each, as TRL's default: weights are not in these files")
    return weights, extras, notes


def _group_size(where: Path, prompts: Sequence[list[str]], options: ReadOptions) -> tuple[int, str]:
    """The group size: consecutive rows of one prompt are a group; two groups of one prompt may be adjacent."""
    runs = [int(length) for texts in prompts for length in np.diff(_starts(texts))]
    if options.group_size is not None:
        for texts in prompts:
            _blocks(texts, options.group_size, where)
        return options.group_size, f"groups: {options.group_size} rows in a row, as given, and their prompts agree"
    size = reduce(math.gcd, runs, 0)
    if size > 1:
        return size, f"groups: {size} rows in a row, inferred from equal prompts (the files hold no group id)"
    if max(runs, default=1) == 1:
        return 1, "groups: every prompt stands alone, so nothing within a group can be measured"
    return 0, f"groups: neighbouring rows with equal prompts, of {min(runs)} to {max(runs)} rows: irregular, inferred"


def _starts(texts: Sequence[str]) -> list[int]:
    return [row for row, text in enumerate(texts) if row == 0 or text != texts[row - 1]] + [len(texts)]


def _blocks(texts: Sequence[str], size: int, where: object) -> Ints:
    """Group ids of rows in blocks of `size`. Raises `StoreError` where a block holds two prompts."""
    if size < 1 or len(texts) % size or any(texts[row] != texts[row - row % size] for row in range(len(texts))):
        raise StoreError(
            f"{where}: {len(texts)} rows are not groups of {size} with one prompt each; "
            "pass --group-size with the run's num_generations"
        )
    return np.arange(len(texts)) // size


def _unscored_notes(samples: Sequence[tuple[int, pa.Table]], rewards: Mapping[str, float]) -> list[str]:
    some = none = every = 0
    for _, table in samples:
        lost = np.array([np.isnan(_numbers(table, name)) for name in rewards])
        none += int(lost.all(axis=0).sum())
        some += int((lost.any(axis=0) & ~lost.all(axis=0)).sum())
        every += table.num_rows
    notes = []
    if some:
        notes.append(
            f"{some} of {every} rows looked at were left unscored by one reward function and not by another: TRL "
            "counted that part as 0 in the total, and so does this total"
        )
    if none:
        notes.append(f"{none} of {every} rows looked at were scored by no function: unscored, not 0")
    return notes


def _compare_with_log(
    samples: Sequence[tuple[int, pa.Table]], rewards: Mapping[str, float], state: TrainerLog
) -> tuple[bool, list[str]]:
    """Whether the columns contradict the log, as they do if names clash or weights were not 1, and notes on it."""
    shared = [(table, state.train_log[step]) for step, table in samples if step in state.train_log]
    for name in rewards:
        pairs = [(_mean(_numbers(table, name)), row.get(f"rewards/{name}/mean")) for table, row in shared]
        if pairs and all(_differ(one, two) for one, two in pairs):
            return True, [
                f"the log's mean of {log_line(name, NAME_LENGTH)!r} is {pairs[0][1]:g} where its column has "
                f"{pairs[0][0]:g}: two reward functions share that name and only the last one's column was kept, "
                "so the total that was trained is not in these files: left out; give each function a name of its own"
            ]
    totals = [(_mean(_total(table, rewards)), row.get("reward")) for table, row in shared]
    if totals and all(_differ(one, two) for one, two in totals):
        fitted = _fit_weights(rewards, state)
        advice = f"{_options(fitted)} agrees with it" if fitted else "pass --weight NAME=W for each"
        message = f"the log's reward is {totals[0][1]:g} where the sum is {totals[0][0]:g}"
        return False, [f"{message}: the weights were not 1; {advice}"]
    return False, []


def _fit_weights(rewards: Mapping[str, float], state: TrainerLog) -> dict[str, float]:
    """The weights under which the logged parts give the logged total at every step; empty if they are not unique."""
    keys = [f"rewards/{name}/mean" for name in rewards]
    rows = [[row.get(key) for key in (*keys, "reward")] for row in state.train_log.values()]
    data = np.array([row for row in rows if all(isinstance(cell, (int, float)) for cell in row)], np.float64)
    if len(data) <= len(keys) or not np.isfinite(data).all():
        return {}
    weights, _, rank, _ = np.linalg.lstsq(data[:, :-1], data[:, -1], rcond=1e-6)
    off = np.abs(data[:, :-1] @ weights - data[:, -1]).max()
    if rank < len(keys) or off > 1e-4 * max(1.0, float(np.abs(data[:, -1]).max())):
        return {}
    return {name: round(float(weight), 4) for name, weight in zip(rewards, weights, strict=True)}


def _differ(one: float, two: object) -> bool:
    if not isinstance(two, (int, float)) or math.isnan(one) or not math.isfinite(two):
        return False
    return abs(one - two) > 1e-3 * max(1.0, abs(one), abs(two))


def _mean(values: Floats) -> float:
    finite = values[~np.isnan(values)]
    return float(finite.mean()) if len(finite) else math.nan


def batch_of(file: Path, table: pa.Table, settings: Mapping[str, Any]) -> RolloutBatch:
    """The rows of one of TRL's own files, whose name has its step."""
    match = FILE.fullmatch(file.name)
    step = int(match[1]) if match else -1
    inside = set(table.column("step").to_pylist())
    if table.num_rows and inside != {step}:
        raise StoreError(f"{file}: its rows say step {_list(sorted(map(str, inside)))}; it was renamed: name it back")
    return batch_of_step(file, step, table, settings)


def batch_of_step(file: Path, step: int, table: pa.Table, settings: Mapping[str, Any]) -> RolloutBatch:
    if not table.num_rows:
        raise StoreError(f"{file}: it holds no rows; copy it again or move it away")
    prompts = _texts(table, "prompt")
    size = settings["group"]
    if size:
        group = _blocks(prompts, size, file)
    else:
        starts = _starts(prompts)
        group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    rewards = {name: _none_for_nan(_numbers(table, name)) for name in settings["rewards"]}
    total = _none_for_nan(_total(table, settings["rewards"])) if settings["total"] else None
    extras = {name: table.column(name).to_pylist() for name in settings["extras"] if name in table.column_names}
    facts = [{name: column[row] for name, column in extras.items()} for row in range(table.num_rows)]
    return from_columns(
        step,
        group,
        reward=total,
        gold=_none_for_nan(_numbers(table, settings["gold"])) if settings["gold"] else None,
        rewards=rewards,
        advantage=_numbers(table, "advantage") if "advantage" in table.column_names else None,
        prompt=prompts,
        completion=_completions(table),
        facts=facts if extras else None,
    )


def _completions(table: pa.Table) -> list[Any]:
    """The completions; arguments that a call did not have are left out: one struct has those of all tools."""
    column = table.column("completion")
    items = column.to_pylist()
    return [_without_nulls(item) for item in items] if _has_calls(column.type) else items


def _has_calls(kind: pa.DataType) -> bool:
    item = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else None
    return item is not None and pa.types.is_struct(item) and item.get_field_index("tool_calls") >= 0


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return value


def _texts(table: pa.Table, name: str) -> list[str]:
    return [plain_text(item) or "" for item in table.column(name).to_pylist()]


def _numbers(table: pa.Table, name: str) -> Floats:
    """A column as floats, NaN where a function returned no score. A missing column is all NaN."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    column = table.column(name)
    if pa.types.is_null(column.type):
        return np.full(table.num_rows, np.nan)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        raise TypeError(f"the column {log_line(name, NAME_LENGTH)!r} holds {column.type}, not numbers; it is no reward")
    return np.array([np.nan if item is None else float(item) for item in column.to_pylist()], np.float64)


def _total(table: pa.Table, rewards: Mapping[str, float]) -> Floats:
    """The weighted sum over the functions that returned a score, as TRL trains on it; NaN where none did."""
    parts = np.array([_numbers(table, name) * weight for name, weight in rewards.items()])
    lost = np.isnan(parts)
    with np.errstate(invalid="ignore"):  # +inf and -inf of two functions
        return np.where(lost.all(axis=0), np.nan, np.where(lost, 0.0, parts).sum(axis=0))


def _none_for_nan(values: Floats) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]


def _list(names: Sequence[str]) -> str:
    text = ", ".join(log_line(name, NAME_LENGTH) for name in names[:10])
    return text + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _weights(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{log_line(name, NAME_LENGTH)}={weight:g}" for name, weight in weights.items())


def _options(weights: Mapping[str, float]) -> str:
    return " ".join(f"--weight {log_line(name, NAME_LENGTH)}={weight:g}" for name, weight in weights.items())


def steps_in_words(steps: Sequence[int]) -> str:
    return (
        f"step {steps[0]}"
        if len(steps) == 1
        else f"steps {', '.join(map(str, steps[:10]))}" + (f" and {len(steps) - 10} more" if len(steps) > 10 else "")
    )
