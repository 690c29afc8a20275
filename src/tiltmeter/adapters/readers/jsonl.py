"""JSON lines as trainers write them: one row at a time, and a last line that is still being written is not an error."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.adapters.readers.foreign import Asked
from tiltmeter.adapters.readers.names import BOOKKEEPING, KNOWN, translation
from tiltmeter.adapters.readers.tables import Row, Table, number, parsed
from tiltmeter.batches import STEP_LIMIT
from tiltmeter.encode import log_line
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation

FILE_LIMIT = 16 << 30  # bytes of one file after unpacking: a few KB of gzip can hold more than any disk
TAIL = 64 << 20
SHOWN = 60  # characters of a name that somebody else's file holds


def rows(path: Path, *, growing: bool = False) -> Iterator[Row]:
    """The rows of a file. A damaged line raises `StoreError` with its number and what to do.

    `growing`: the newest file of a run, whose last line may not be whole yet and then does not count.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "5.jsonl"
    >>> _ = path.write_text('{"score": 1}\\n{"score": NaN}\\n{"sco')
    >>> list(rows(path, growing=True))
    [{'score': 1}, {'score': nan}]
    """
    total = 0
    table = Table(path)
    try:
        for count, line in table.lines():
            total += len(line)
            if total > FILE_LIMIT:
                raise StoreError(f"{path}: more than {FILE_LIMIT >> 30} GB unpacked; split it by step")
            if not line.strip():
                continue
            row = _parsed(line)
            if isinstance(row, dict):
                yield row
            elif line.endswith(b"\n"):
                raise StoreError(f"{path}: line {count} is not a JSON object ({row}); mend or remove that line")
            elif not growing:
                raise StoreError(f"{path}: line {count}, the last, is cut off; copy the file again or remove that line")
    except EOFError as error:
        if not growing:
            raise StoreError(f"{path}: the gzip file is cut short; copy it again") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: it cannot be read ({log_line(str(error), 120)}); copy it again") from error


def _parsed(line: bytes) -> Row | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # a number of 5,000 digits among them, which is no damage
        return parsed(line)
    return row if isinstance(row, dict) else f"it holds a {type(row).__name__}"


def peek(path: Path) -> Row:
    """The first row; empty where there is none or the file is something else."""
    try:
        return next(rows(path, growing=True), {})
    except StoreError:
        return {}


def unfinished(path: Path) -> bool:
    """Whether the file ends in the middle of a line, or holds nothing: somebody is still writing it, or stopped."""
    if path.suffix == ".gz":
        return False
    with path.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - TAIL))
        last = stream.read()
    return not last or (not last.endswith(b"\n") and isinstance(_parsed(last.rsplit(b"\n", 1)[-1]), str))


@contextmanager
def blamed(file: Path) -> Iterator[None]:
    """Whatever a row makes go wrong is the file's fault, and is said so with its name."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        why = f"{type(error).__name__}: {log_line(str(error), 120)}"
        raise StoreError(f"{file}: a row is not as its trainer writes it ({why}); mend it or move the file") from error


def filled(file: Path, read: list[Row]) -> list[Row]:
    """The rows, if there are any: a step without rollouts is a file that was lost."""
    if not read:
        raise StoreError(f"{file}: it holds no rows; copy it again or move it away")
    return read


def step_of(row: Mapping[str, Any], path: Path, name: str = "step") -> int:
    """The row's step. Raises `StoreError` where it is no whole number from 0 on."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= STEP_LIMIT:
        raise StoreError(f"{path}: {name} is {log_line(repr(value), SHOWN)}, not a step; mend or remove that line")
    if value != int(value):
        raise StoreError(f"{path}: {name} is {value}, not a whole number; mend or remove that line")
    return int(value)


def compact(values: Sequence[Any]) -> NDArray[Any]:
    """A row's numbers in the bytes that a batch will keep them in: as Python objects they take eight times as many."""
    array = np.asarray(values)
    if array.dtype.kind == "i" and array.size and array.min() >= -(2**31) and array.max() < 2**31:
        return array.astype(np.int32)
    with np.errstate(over="ignore"):
        return array.astype(np.float32) if array.dtype.kind == "f" else array


def unused(asked: Asked) -> list[str]:
    """What is said where a column was named for gold, and the format has no column to choose."""
    if "gold" not in asked.columns:
        return []
    return ["--map gold= is not used: this format has no column to choose; --gold names who judges"]


def scalars(logged: Mapping[int, Mapping[str, Any]], asked: Asked) -> dict[int, dict[str, float]]:
    """What a trainer logged, by step, under our names; null is absent, NaN stays, words are not numbers.

    >>> scalars({3: {"actor/ppo_kl": 0.1, "note": "x", "lr": None}}, Asked())
    {3: {'kl_old_new': 0.1}}
    """
    keys = {key for row in logged.values() for key in row} - BOOKKEEPING - {"step", "time"}
    told = translation(keys, asked.columns)
    first = sorted(
        told, key=lambda key: (told[key] not in KNOWN, key)
    )  # ours first: there is a limit to how many are kept
    kept: dict[int, dict[str, float]] = {}
    for step, row in sorted(logged.items()):
        cells = ((told[key], row[key]) for key in first if key in row and not isinstance(row[key], str))
        kept[step] = {name: value for name, cell in cells if (value := number(cell)) is not None}
    return {step: row for step, row in kept.items() if row}


def asked_for(logged: Mapping[int, Mapping[str, Any]], asked: Asked) -> list[Evaluation]:
    """The evaluations that the user named among the logged keys, with the items behind each."""
    found: dict[tuple[int, str], Evaluation] = {}
    for step, row in sorted(logged.items()):
        for key, behind in asked.evals.items():
            value, items = number(row.get(key)), number(row.get(behind) if isinstance(behind, str) else behind)
            if value is not None and items is not None and 0.0 <= value <= 1.0 and 1 <= items < math.inf:
                found[step, key] = Evaluation(0, step, slug(key), value, int(items))
    return list(found.values())


def judged(step: int, name: str, scores: Iterable[tuple[object, object]]) -> tuple[Evaluation | None, str]:
    """An evaluation from the scores of held-out items (item, score), or why there is none.

    Items asked several times count once, with their mean: the answers to one question are no two questions.

    >>> judged(4, "val", [("a", 1), ("a", 0), ("b", 1.0), ("c", None)])[0]
    Evaluation(attempt=0, step=4, name='val', value=0.75, n=2)
    >>> judged(4, "val", [("a", -1)])[1]
    'scores from -1 to -1 are not between 0 and 1'
    """
    items: dict[object, list[float]] = {}
    for item, score in scores:
        value = None if isinstance(score, str) else number(score)
        if value is not None and math.isfinite(value):
            items.setdefault(item, []).append(value)
    if not items:
        return None, "no row is scored"
    every = [value for values in items.values() for value in values]
    if min(every) < 0.0 or max(every) > 1.0:
        return None, f"scores from {min(every):g} to {max(every):g} are not between 0 and 1"
    mean = math.fsum(math.fsum(values) / len(values) for values in items.values()) / len(items)
    return Evaluation(0, step, name, min(mean, 1.0), len(items)), ""


def slug(name: str) -> str:
    """A name as an evaluation may carry it.

    >>> slug("eval_rewards/Correct/mean"), slug("2024 AIME")
    ('eval_rewards_correct_mean', 'eval_2024_aime')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return (plain if plain[:1].isalpha() else f"eval_{plain}".rstrip("_"))[:64]
