"""Slices of a run: the environments, task sources or values of a column that bets and readings are divided by.

A slice is what the column `env` says. Everything here uses a name that a reading may carry, so no text of a dataset
or of an environment reaches a screen as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import component_name
from tiltmeter.data.memo import shared
from tiltmeter.data.records import Floats, Ints, Reading, RolloutBatch
from tiltmeter.data.slice_facts import FACT, group_facts, part_words

RATERS = "raters."  # begins the slice of a group of raters; no environment's name has a dot there
PREFIX = "slices."  # of readings that hold the values of all slices of a step
RAW_NAME = 200  # characters of a value that names a slice
AND = ".."  # between the slices of one row
LABEL = 120  # characters of the slices of a row; those that do not fit are left out
MOST_ENVIRONMENTS = 20  # with readings of their own
MOST_SLICES = 1_000  # of a step that have values: the largest
SLICE_BETS = 8  # of one slice in a step; more are averaged, and a mean of bets is a bet
KEY_BITS = 20  # of a key, for a number of answers
STEP_BETS = 1_024  # of all slices in a step, as far as each has one


def slice_name(raw: str) -> str:
    """An environment's name as a reading may carry it; no dot in it but that of a digest.

    >>> slice_name("AEEnv"), slice_name("swe.fix"), slice_name("a b")
    ('AEEnv', 'swe_fix', 'a_b.c868')
    """
    return component_name(raw.replace(".", "_"), {})


def environments_of(column: str, facts: object) -> dict[str, list[str | None]]:
    """The column `env` of rows whose facts name their slice; empty where they do not.

    >>> environments_of("language", [{"language": "C"}, {"level": 3}])
    {'env': ['C', None]}
    >>> environments_of("language", None)
    {}
    """
    rows = facts if isinstance(facts, list | tuple) else []
    values = [row.get(column) if isinstance(row, dict) else None for row in rows]
    names = [str(value)[:RAW_NAME] if isinstance(value, str | int | float) else None for value in values]
    return {"env": names} if any(name is not None for name in names) else {}


@shared(2)  # with the facts of the first steps, and without
def row_slices(batch: RolloutBatch, first_steps: Baseline | None = None) -> list[str] | None:
    """The slices of each row, empty where a row has none; None if no row has any: its environment, and the facts that
    the first steps chose (`data.slice_facts`), with `AND` between them."""
    names = {raw: slice_name(raw) for raw in set(batch.env or ()) if raw is not None}
    of_facts = group_facts(batch, first_steps)
    if not names and not of_facts:
        return None
    sizes = np.diff(batch.starts).tolist()
    by_group = of_facts or [()] * len(sizes)
    by_row = [one for one, size in zip(by_group, sizes, strict=True) for _ in range(size)]
    pairs = list(zip(batch.env or [None] * len(batch), by_row, strict=True))
    labels = {pair: _label([names.get(pair[0] or "", ""), *pair[1]]) for pair in set(pairs)}
    return [labels[pair] for pair in pairs] if any(labels.values()) else None


def _label(names: Sequence[str]) -> str:
    """The slices of a row, as far as they fit."""
    label = ""
    for name in filter(None, names):
        longer = f"{label}{AND}{name}" if label else name
        label = longer if len(longer) <= LABEL else label
    return label


def row_tasks(batch: RolloutBatch) -> list[str] | None:
    """The task of each row as a reading may name it, empty where a row has none; None if no row has any."""
    names = {raw: slice_name(raw) for raw in set(batch.task or ()) if raw is not None}
    return [names.get(raw, "") for raw in batch.task or ()] if names else None  # type: ignore[arg-type]


@shared(2)
def group_slices(batch: RolloutBatch, first_steps: Baseline | None = None) -> list[str] | None:
    """The slices of each prompt group, which are those of its first row."""
    slices = row_slices(batch, first_steps)
    return None if slices is None else [slices[int(row)] for row in batch.starts[:-1]]


def reading_of(name: str) -> str:
    """A reading's name without the slice that it is about.

    >>> reading_of("env.AEEnv.gold.slope"), reading_of("gold.slope"), reading_of("env.a_b.c868.eval.honest")
    ('gold.slope', 'gold.slope', 'eval.honest')
    """
    starts = [name.find(kind) for kind in (".gold.", ".eval.")] if name.startswith("env.") else []
    return name[min((at for at in starts if at > 0), default=-1) + 1 :]


def slice_of(name: str) -> str:
    """The slice that an alarm or reading is about; empty: it is about the whole run.

    >>> slice_of("env.AEEnv.gold.slope"), slice_of("gold.slope")
    ('AEEnv', '')
    """
    return name.removeprefix("env.").removesuffix(f".{reading_of(name)}") if name.startswith("env.") else ""


def slice_words(name: str) -> str:
    """A slice in a sentence.

    >>> slice_words("AEEnv"), slice_words("raters.2")
    ('in environment AEEnv', 'for the raters of group 2')
    """
    if name.startswith(FACT):
        return part_words(name)
    return (
        f"for the raters of group {name.removeprefix(RATERS)}" if name.startswith(RATERS) else f"in environment {name}"
    )


def by_slice(slices: Sequence[str], keep: Sequence[bool]) -> dict[str, list[int]]:
    """Where the values of each slice stand that are to be kept, in the order of names; of many slices the largest."""
    places: dict[str, list[int]] = {}
    names = {name: name.split(AND) if name else [] for name in set(slices)}
    for at, (name, is_kept) in enumerate(zip(slices, keep, strict=True)):
        for one in names[name] if is_kept else ():
            places.setdefault(one, []).append(at)
    largest = sorted(places, key=lambda name: (-len(places[name]), name))[:MOST_SLICES]
    return {name: places[name] for name in sorted(largest)}


def bets_by_slice(reading: Reading, us: Sequence[float], slices: Sequence[str]) -> Reading | None:
    """The bets of a step by their slices, as a reading beside the one of all of them; None where there is no slice.

    How many bets a slice has depends on how many there are and never on their values.
    """
    values = np.asarray(us, np.float64)
    if not len(slices):
        return None
    places = by_slice(slices, np.isfinite(values).tolist())
    most = _most_bets(len(places))
    parts = {
        name: [float(part.mean()) for part in np.array_split(values[at], min(len(at), most))]
        for name, at in places.items()
    }
    return _with_slices(reading, parts, {})


def prompts_by_slice(
    reading: Reading, means: Sequence[float], numbers: Mapping[int, int], slices: Sequence[str], size: int
) -> Reading | None:
    """Gold of prompts by their slices. `numbers`: of the prompt of each group that has gold; evenly chosen."""
    places = by_slice(slices, [at in numbers for at in range(len(means))])
    most = _most_bets(len(places))
    chosen = {
        name: [at[k] for k in np.linspace(0, len(at) - 1, min(len(at), most)).round().astype(int)]
        for name, at in places.items()
    }
    parts = {name: [float(means[k]) for k in at] for name, at in chosen.items()}
    keys = {name: [numbers[k] for k in at] for name, at in chosen.items()}
    sliced = _with_slices(reading, parts, keys)
    return None if sliced is None else replace(sliced, n=size * len(sliced.values))


def overpay_by_slice(
    reading: Reading, means: Floats, labels: tuple[Ints, Ints], slices: Sequence[str]
) -> Reading | None:
    """Overpay of groups by their slices; of many groups in blocks, each weighed by its answers. `labels`: how many
    answers each group's mean is over, and of how many of them nothing is known: together the key of a value."""
    places = by_slice(slices, np.isfinite(means).tolist())
    most = _most_bets(len(places))
    parts, keys = dict[str, list[float]](), dict[str, list[int]]()
    for name, at in places.items():
        blocks = min(len(at), most)
        starts = np.arange(blocks) * (len(at) // blocks) + np.minimum(np.arange(blocks), len(at) % blocks)
        answers, unknown = (np.add.reduceat(count[at], starts) for count in labels)
        parts[name] = (np.add.reduceat(means[at] * labels[0][at], starts) / answers).tolist()
        keys[name] = [label_key(*counts) for counts in zip(answers.tolist(), unknown.tolist(), strict=True)]
    return _with_slices(reading, parts, keys)


def label_key(answers: int, unknown: int) -> int:
    """How many answers a value is about, and of how many of them nothing is known, as one number.

    >>> label_key(8, 0), label_counts(label_key(8, 3))
    (8, (8, 3))
    """
    return unknown << KEY_BITS | answers


def label_counts(key: int) -> tuple[int, int]:
    """The inverse of `label_key`."""
    return key & ((1 << KEY_BITS) - 1), key >> KEY_BITS


def means_by_slice(reading: Reading, values: Floats, slices: Sequence[str], weights: Floats | None) -> Reading | None:
    """The mean of each slice, with the number of values behind it as its key."""
    weights = np.ones(len(values)) if weights is None else weights
    places = by_slice(slices, (np.isfinite(values) & (weights > 0.0)).tolist())
    parts = {name: [float(values[at] @ weights[at] / weights[at].sum())] for name, at in places.items()}
    return _with_slices(reading, parts, {name: [len(at)] for name, at in places.items()})


def slice_parts(reading: Reading) -> Iterator[tuple[str, Reading]]:
    """The inverse: each slice, and its part of the reading under the name that the reading of all has."""
    start = 0
    for name, count in reading.slices:
        values = reading.values[start : start + count]
        keys = reading.keys[start : start + count]
        start += count
        if not values:
            continue
        at, table, mean = (reading.attempt, reading.step), reading.name.removeprefix(PREFIX), sum(values) / len(values)
        if table.startswith("eval."):
            yield name, Reading(*at, table, mean, keys[0])
        else:
            n = reading.n * len(values) // len(reading.values) if keys else len(values)
            yield name, Reading(*at, table, mean, n, None, values, reading.against, keys)


def with_single_readings(sliced: Reading | None) -> list[Reading]:
    """The reading, and `env.NAME.` readings of its largest slices: what a plot of one slice shows."""
    if sliced is None:
        return []
    by_name = [item for item in sliced.slices if not item[0].startswith(FACT)]  # of the others the alarm tells enough
    largest = sorted(by_name, key=lambda item: (-item[1], item[0]))[:MOST_ENVIRONMENTS]
    names, readings = {name for name, _ in largest}, [sliced]
    for name, part in slice_parts(sliced) if names else ():
        if name in names:
            stderr = float(np.std(part.values, ddof=1) / len(part.values) ** 0.5) if len(part.values) > 1 else None
            full = f"env.{name}.{part.name}"
            n = len(part.values) or part.n
            readings.append(Reading(part.attempt, part.step, full, part.value, n, stderr))
    return readings


def _most_bets(slices: int) -> int:
    return min(max(STEP_BETS // max(slices, 1), 1), SLICE_BETS)


def _with_slices(
    reading: Reading, parts: Mapping[str, Sequence[float]], keys: Mapping[str, Sequence[int]]
) -> Reading | None:
    if not parts:
        return None
    values = tuple(value for part in parts.values() for value in part)
    return replace(
        reading,
        name=f"{PREFIX}{reading.name}",
        value=float(np.mean(values)),
        n=len(values),
        stderr=None,
        values=values,
        keys=tuple(key for part in keys.values() for key in part),
        slices=tuple((name, len(part)) for name, part in parts.items()),
    )
