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

from tiltmeter.adapters.names import BOOKKEEPING, KNOWN, translation
from tiltmeter.adapters.readers.foreign import Asked
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
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - 1))
            if stream.read() == b"\n":
                return False
            stream.seek(max(0, size - TAIL))
            last = stream.read()
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read ({error.strerror}); copy it again or move it away") from error
    return not last or isinstance(_parsed(last.rsplit(b"\n", 1)[-1]), str)


def wanting(path: Path) -> str:
    """Why the newest file of a run does not count yet; empty where it does."""
    try:
        return "is not whole yet" if unfinished(path) else ""
    except StoreError:  # it went away, or is a link to nothing
        return "cannot be read"


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


def unused(asked: Asked, *, grouped: bool = False) -> list[str]:
    """What is said of options that a format has no use for: no column to choose, nothing logged, groups `grouped`."""
    said = ["--map gold= is not used: this format has no column to choose; --gold names who judges"]
    said = said if "gold" in asked.columns else []
    if others := [ours for ours in asked.columns if ours != "gold"]:
        said.append(f"--map {others[0]}= is not used: this format has no column to choose")
    if asked.weights:
        said.append("--weight is not used: the reward is stored as it was paid")
    if asked.evals:
        said.append("--eval is not used: no metrics in these files")
    if grouped and asked.group_size is not None:
        said.append("--group-size is not used: groups are stored")
    return said


def refuse_options(asked: Asked, keys: Iterable[str], where: object, *, stored: str = "") -> None:
    """Raises `StoreError` for an option that these files have no use for, and says what there is.

    `keys`: of what the trainer logged. `stored`: what holds the total, where weights would change nothing.
    """
    known = sorted(set(keys) - BOOKKEEPING - {"step", "time"})
    shown = ", ".join(log_line(key, SHOWN) for key in known[:30]) or "nothing"
    for ours, theirs in asked.columns.items():
        if ours == "gold":
            continue
        if ours not in KNOWN and ours != "checkpoint" and not ours.startswith("rewards/"):
            told = ", ".join(("gold", "checkpoint", *KNOWN))
            raise StoreError(f"--map {log_line(ours, SHOWN)}=: no scalar of ours has that name; choose one of {told}")
        if theirs not in known:
            raise StoreError(f"{where}: --map {ours}=: {log_line(theirs, SHOWN)!r} was not logged; there is {shown}")
    if stored and asked.weights:
        raise StoreError(f"{where}: nothing is weighed, the total is stored ({stored}): leave --weight out")


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


def asked_for(logged: Mapping[int, Mapping[str, Any]], asked: Asked, where: object) -> list[Evaluation]:
    """The evaluations that the user named among the logged keys, with the items behind each.

    Raises `StoreError` where a key was never logged, or is no mean of scores from 0 to 1.
    """
    known = {key for row in logged.values() for key, cell in row.items() if number(cell) is not None}
    shown = ", ".join(log_line(key, SHOWN) for key in sorted(known - {"step"})[:30]) or "nothing"
    taken: dict[str, str] = {}
    found: list[Evaluation] = []
    for key, behind in asked.evals.items():
        for name in (key, behind):
            if isinstance(name, str) and name not in known:
                raise StoreError(f"{where}: --eval: {log_line(name, SHOWN)!r} was not logged; there is {shown}")
        for step, row in sorted(logged.items()):
            value, items = number(row.get(key)), number(row.get(behind) if isinstance(behind, str) else behind)
            if value is None or items is None or math.isnan(value) or math.isnan(items):
                continue
            if not 0.0 <= value <= 1.0:
                raise StoreError(
                    f"{where}: {log_line(key, SHOWN)} is {value:g} at step {step}; an evaluation is a mean of scores "
                    "from 0 to 1: name another, or log it rescaled (a percentage by 100)"
                )
            if not 1 <= items < math.inf:
                raise StoreError(f"{where}: {items:g} items at step {step}; an evaluation has at least 1: --eval KEY=N")
            found.append(Evaluation(0, step, named(key, taken), value, int(items)))
    return sorted(found)


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


def renamed(taken: Mapping[str, str]) -> list[str]:
    """What is said of names that had to be numbered."""
    return [f"{mine} is {log_line(name, SHOWN)}" for name, mine in taken.items() if mine != slug(name)]


def named(name: str, taken: dict[str, str]) -> str:
    """A name as an evaluation may carry it, and no other of these: names that become the same are numbered.

    >>> taken: dict[str, str] = {}
    >>> [named(name, taken) for name in ("eval \u6570\u5b66", "eval \u63a8\u7406", "eval \u6570\u5b66")]
    ['eval', 'eval_2', 'eval']
    """
    if name not in taken:
        plain, used = slug(name), set(taken.values())
        more = (f"{plain[:58]}_{at}" for at in range(2, len(used) + 3))
        taken[name] = next(one for one in (plain, *more) if one not in used)
    return taken[name]
