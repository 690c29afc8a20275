"""Contract tests for your own instrument, derived reading or detector: the same checks that the built-ins pass.

    from tiltmeter.testing import check_instrument
    check_instrument(MyInstrument)

Each function returns nothing, or raises `ContractError` with what was asked and what was found.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tiltmeter.data import batches
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import (
    BOOL_COLUMNS,
    COLUMNS,
    LABEL_COLUMNS,
    NUMBER_COLUMNS,
    RAGGED_COLUMNS,
    TEXT_COLUMNS,
    Alarm,
    Floats,
    Ragged,
    Reading,
    RolloutBatch,
)
from tiltmeter.data.turns import Turn
from tiltmeter.detectors import Detector, Fact
from tiltmeter.detectors.derived_readings import Derived
from tiltmeter.errors import ContractError
from tiltmeter.instruments import Instrument
from tiltmeter.monitor.panel import expected_shape, missing_columns
from tiltmeter.rundir.journal import encode_commit, event, parse

_READING_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[A-Za-z0-9_-]+)+")


def check_instrument(make: Callable[[], Instrument]) -> None:
    """An instrument's facts, and its answers on batches that are empty, tiny, unscored, flat, ordinary and extreme.

    >>> from tiltmeter.instruments.reward_mean import RewardMean
    >>> check_instrument(RewardMean)
    """
    instrument = make()
    _check_facts(instrument)
    for title, batch in sample_batches():
        if missing_columns(instrument, batch):
            raise ContractError(f"{instrument.name} needs {missing_columns(instrument, batch)}, which no batch has")
        for baseline in (None, Baseline(batch), Baseline(dict(sample_batches())["ordinary"])):
            _check_answer(instrument, batch, baseline, title)
    _check_nan(instrument)
    _check_order(instrument)
    _check_tools(instrument)
    if getattr(instrument, "local", False):
        _check_local(instrument)


def check_derived(make: Callable[[], Derived]) -> None:
    """A derived reading's facts, and that it is a function of the readings it was shown.

    >>> from tiltmeter.detectors.derived_readings import DERIVED
    >>> check_derived(DERIVED[0])
    """
    derived = make()
    _require(bool(_READING_NAME.fullmatch(derived.name)), f"{derived.name!r} is not a name of the form subject.measure")
    _require(bool(derived.watches), f"{derived.name} watches no reading")
    _check_docstring(derived)
    for readings in _streams(derived.watches[0]):
        one, two = make(), make()
        for reading in readings:
            answer = one.fold(reading)
            _require(answer == two.fold(reading), f"{derived.name} gave two answers to the same readings")
            if answer is not None:
                key = (answer.attempt, answer.step, answer.name)
                _require(key == (reading.attempt, reading.step, derived.name), f"{derived.name} answered for {key}")
                _require(np.isfinite(answer.value), f"{derived.name} gave a value that is not finite")


def check_detector(
    make: Callable[[], Detector],
    null: Callable[[np.random.Generator], Iterator[Reading]] | None = None,
    runs: int = 200,
) -> None:
    """A detector's facts and alarms; with `null`, a source of streams under its null, also that it keeps its promise.

    The promise is refuted only when the false alarms seen would have a chance below 1 in 1,000 under it.

    Example:

        check_detector(MyDetector, null=lambda rng: stream_without_a_loss(rng), runs=200)
    """
    detector = make()
    _require(detector.tier in ("alarm", "warning"), f"tier {detector.tier!r} is neither alarm nor warning")
    states = 0.0 < detector.alpha < 1.0 or (detector.alpha == 0.0 and isinstance(detector, Fact))
    _require(states, f"{detector.name} states no promise: alpha = {detector.alpha}")
    _require(bool(detector.watches), f"{detector.name} watches no reading")
    _require(repr(make()) == repr(make()), f"the repr of {detector.name} must state its settings and nothing else")
    _check_docstring(detector)
    _require("Promise" in (type(detector).__doc__ or ""), f"{detector.name}: the docstring must state its Promise")
    for name in detector.watches:
        for readings in _streams(name):
            _check_alarms(make, readings)
    if null is not None:
        false = sum(any(map(make().update, null(np.random.default_rng(seed)))) for seed in range(runs))
        _require(
            _binomial_tail(runs, detector.alpha, false) > 0.001,
            f"{detector.name} alarmed in {false} of {runs} null runs",
        )


def sample_batches() -> Iterator[tuple[str, RolloutBatch]]:
    """Typical and extreme batches that every instrument must handle, with all columns.

    >>> names = [name for name, batch in sample_batches()]
    >>> "empty" in names
    True
    """
    yield "empty", sample_batch([], seed=1)
    yield "one row", sample_batch([1], seed=2)
    yield "groups of one", sample_batch([1, 1, 1], seed=3)
    yield "ordinary", sample_batch([8, 8, 8, 8], seed=4)
    yield "one group", sample_batch([12], seed=11)
    yield "one token each", sample_batch([4, 4], seed=12, shortest=1, longest=1)
    odd = ("\ud800", "\0\0 \0", None, "", "!!!!" * 50, "你好，世界", " \n\t", "`" * 9)
    yield "odd texts", replace(sample_batch([4, 4], seed=13), completion=odd, prompt=odd[::-1])
    yield "uneven groups", sample_batch([1, 5, 2, 16, 3], seed=5)
    flat = sample_batch([4, 4, 4], seed=6)
    ones = {name: np.ones(len(flat)) for name in NUMBER_COLUMNS}
    yield "all equal", replace(flat, rewards={"a": np.ones(len(flat))}, **ones)  # type: ignore[arg-type]
    yield "all unscored", _blank_rows(sample_batch([4, 4], seed=7), np.arange(8))
    large = sample_batch([4, 4, 4], seed=8)
    assert large.reward is not None
    yield "extreme values", replace(large, reward=large.reward * 1e150, rewards={"a": large.reward * -1e150})


def sample_batch(sizes: list[int], seed: int, shortest: int = 0, longest: int = 11) -> RolloutBatch:
    """A batch of prompt groups of the given sizes with every column filled; some completions are empty.

    >>> len(sample_batch([2, 3], seed=0))
    5
    """
    return batches.from_columns(**sample_columns(sizes, seed, shortest, longest))


def sample_columns(sizes: list[int], seed: int, shortest: int = 0, longest: int = 11) -> dict[str, Any]:
    """What `sample_batch` is made of: trajectories of one or two turns, with a tool's tokens and words between.

    >>> len(sample_columns([2, 3], seed=0)["reward"])
    5
    """
    rng = np.random.default_rng(seed)
    rows = sum(sizes)
    length = rng.integers(shortest, longest + 1, rows)
    words = ("the answer", "is", "not", "sorry", "I think", "so.", "42", "**", "\n- ", "you", "are right", "```")
    tokens = [rng.integers(0, 50, n) for n in length]
    logprob = [-rng.exponential(size=n) for n in length]
    texts = [" ".join(rng.choice(words, n)) for n in length]
    return {
        "step": seed,
        "group": np.repeat(np.arange(len(sizes)), sizes),
        "reward": rng.normal(size=rows),
        "rewards": {"a": rng.normal(size=rows), "b": rng.integers(0, 2, rows)},
        "advantage": rng.normal(size=rows),
        "gold": rng.integers(0, 2, rows).astype(float),
        "length": length,
        "truncated": length > 9,
        "prompt": ["I believe it is 4. Is it?"] * rows,
        "completion": texts,
        "tokens": tokens,
        "logprob": logprob,
        "ref_logprob": [row + rng.normal(0, 0.1, len(row)) for row in logprob],
        "engine_logprob": logprob,
        "entropy": [rng.exponential(size=n) for n in length],
        "step_reward": [rng.normal(size=2) for _ in range(rows)],
        "scalars": {
            "loss": 0.5, "grad_norm": 1.0, "canary.asked.rule.low.0.0": 2.0, "canary.failed.rule.low.0.0": 1.0
        },
        "trajectory": np.arange(rows),
        "agent": ["solver"] * rows,
        "env": [("shell", "browser")[row % 2] for row in range(rows)],
        "task": [f"task {row % 3}" for row in range(rows)],
        "stop": [("done", "length", "turns")[row % 3] for row in range(rows)],
        "version": np.arange(rows) % 4,
        "trained": np.arange(rows) % 5 > 0,
        "artifacts": [{"files": row} for row in range(rows)],
        "own": [np.concatenate([np.ones(n // 2), np.zeros(3), np.ones(n - n // 2)]) for n in length],
        "turns": [_sample_turns(text) for text in texts],
    }  # fmt: skip


def _sample_turns(text: str) -> list[Turn]:
    words = text.split(" ")
    half = len(words) // 2
    call = Turn("assistant", " ".join(words[:half]), call="bash", arguments='{"cmd": "ls"}')
    return [call, Turn("tool", "three files", call="bash", parent=0), Turn("assistant", " ".join(words[half:]))]


def _check_facts(instrument: Instrument) -> None:
    _require(re.fullmatch(r"[a-z][a-z0-9_.]*", instrument.name) is not None, f"bad name {instrument.name!r}")
    _require(instrument.grain in ("rollout", "group", "batch", "item"), f"bad grain {instrument.grain!r}")
    unknown = set(instrument.needs) - {*COLUMNS, "scalars"}
    _require(not unknown, f"{instrument.name} needs {sorted(unknown)}; columns are {COLUMNS}")
    low, high = instrument.bounds
    _require(low is None or high is None or low < high, f"bad bounds {instrument.bounds}")
    _check_docstring(instrument)


def _check_docstring(part: object) -> None:
    text = type(part).__doc__ or ""
    _require(">>>" in text, f"{type(part).__name__} has no docstring with a doctest")


def _check_answer(instrument: Instrument, batch: RolloutBatch, baseline: Baseline | None, title: str) -> None:
    where = f"{instrument.name} on the batch {title!r}"
    before = _fingerprint(batch), None if baseline is None else _fingerprint(baseline.batch)
    first = _measure(instrument, _freeze(batch), None if baseline is None else Baseline(_freeze(baseline.batch)), where)
    second = _measure(instrument, batch, baseline, where)
    after = _fingerprint(batch), None if baseline is None else _fingerprint(baseline.batch)
    _require(before == after, f"{where} changed the batch it was given")
    expected, _ = expected_shape(instrument, batch)
    low, high = instrument.bounds
    for name, values in first.items():
        _require(bool(_READING_NAME.fullmatch(name)), f"{name!r} is not a name of the form subject.measure")
        _require(isinstance(values, np.ndarray) and values.dtype == np.float64, f"{where} must give a float64 array")
        rows = len(values) if instrument.grain == "item" and values.ndim == 1 else expected
        _require(values.shape == (rows,), f"{where} gave {values.shape} values; grain {instrument.grain} is {expected}")
        _require(np.array_equal(values, second[name], equal_nan=True), f"{where} gave two answers to one question")
        _require(not np.isinf(values).any(), f"{where} gave an infinite value; nothing to measure is NaN")
        finite = values[np.isfinite(values)]
        _require(low is None or not (finite < low).any(), f"{where} went below its bound {low}")
        _require(high is None or not (finite > high).any(), f"{where} went above its bound {high}")


def _check_nan(instrument: Instrument) -> None:
    """A row that was not scored has no value: NaN in, NaN out, whatever the others are."""
    numeric = [
        name
        for name in instrument.needs
        if name in (*NUMBER_COLUMNS, "rewards", *RAGGED_COLUMNS) and name not in ("tokens", "own")
    ]
    if not numeric or getattr(instrument, "counts_nan", False):
        return
    batch = sample_batch([4, 4, 4], seed=9)
    lost = np.array([1, 4, 5, 6, 7])  # one row of the first group, all of the second
    unscored = _blank_rows(batch, lost)
    where = f"{instrument.name} on a batch with unscored rows"
    for values in _measure(instrument, unscored, None, where).values():
        if instrument.grain == "rollout":
            _require(bool(np.isnan(values[lost]).all()), f"{where} turned a NaN into a number")
        elif instrument.grain == "group":
            _require(bool(np.isnan(values[1])), f"{where} turned a group of NaN into a number")
    empty = _blank_rows(batch, np.arange(len(batch)))
    for values in _measure(instrument, empty, None, where).values():
        _require(not np.isfinite(values).any(), f"{where} made a number of nothing but NaN")


def _check_order(instrument: Instrument) -> None:
    """The order of rows inside a group carries no meaning."""
    batch = sample_batch([5, 1, 7], seed=10)
    rng = np.random.default_rng(0)
    order = np.concatenate(
        [rng.permutation(np.arange(a, b)) for a, b in zip(batch.starts, batch.starts[1:], strict=False)]
    )
    one = _measure(instrument, batch, Baseline(batch), instrument.name)
    two = _measure(instrument, batches.take(batch, order), Baseline(batch), instrument.name)
    for name, values in one.items():
        expected = values[order] if instrument.grain == "rollout" else values
        same = np.allclose(expected, two[name], rtol=1e-9, atol=1e-12, equal_nan=True)
        _require(same, f"{name} depends on the order of rows inside a group")


def _check_tools(instrument: Instrument) -> None:
    """A tool's tokens and words are not the policy's: only an instrument that asks for them may see them."""
    if set(instrument.needs) & {"own", "turns"}:
        return
    columns = sample_columns([5, 1, 7], seed=14)
    with_tools = batches.from_columns(**columns)
    louder = [[*row, *(Turn("tool", "the answer is sorry 42 ```" * 9) for _ in range(3))] for row in columns["turns"]]
    longer = [np.concatenate([row, np.zeros(40)]) for row in columns["own"]]
    planted = batches.from_columns(**{**columns, "turns": louder, "own": longer})
    one = _measure(instrument, with_tools, Baseline(with_tools), instrument.name)
    two = _measure(instrument, planted, Baseline(with_tools), instrument.name)
    for name, values in one.items():
        _require(np.array_equal(values, two[name], equal_nan=True), f"{name} takes a tool's words for the policy's")


def _check_local(instrument: Instrument) -> None:
    """A local instrument gives the same values for a prompt group whatever other groups are in the batch."""
    batch = sample_batch([5, 1, 7, 3, 9], seed=11)
    whole = _measure(instrument, batch, Baseline(batch), instrument.name)
    for cut in range(1, len(batch.starts) - 1):
        rows = int(batch.starts[cut])
        sides = [
            _measure(instrument, batches.take(batch, np.arange(*span)), Baseline(batch), instrument.name)
            for span in ((0, rows), (rows, len(batch)))
        ]
        for name, values in whole.items():
            joined = np.concatenate([side[name] for side in sides])
            same = np.array_equal(joined, values, equal_nan=True)
            _require(same, f"{name} is called local and depends on other prompt groups")


def _measure(
    instrument: Instrument, batch: RolloutBatch, baseline: Baseline | None, where: str
) -> Mapping[str, Floats]:
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        try:
            answer = instrument.measure(batch, baseline)
        except (Warning, FloatingPointError) as error:
            raise ContractError(f"{where} divided by zero or overflowed: {error}") from error
        except ValueError as error:
            if "read-only" in str(error):
                raise ContractError(f"{where} tried to change the batch it was given") from error
            raise
    if isinstance(answer, Mapping):
        return {f"{instrument.name}.{suffix}": values for suffix, values in answer.items()}
    return {instrument.name: answer}


def _check_alarms(make: Callable[[], Detector], readings: list[Reading]) -> None:
    one, two = make(), make()
    opened: Alarm | None = None
    for reading in readings:
        alarm = one.update(reading)
        _require(alarm == two.update(reading), f"{one.name} gave two answers to the same readings")
        if alarm is None:
            continue
        _require(alarm.detector == one.name and alarm.tier == one.tier, f"{one.name} signed an alarm with another name")
        copies = parse(encode_commit([event(alarm, alarm.attempt, alarm.step, "")]))
        _require([copy.payload for copy in copies] == [alarm], f"{one.name}: not a plain record")
        if alarm.resolved is None:
            _require(opened is None, f"{one.name} opened a second alarm before the first was resolved")
            _require(alarm.step == reading.step, f"{one.name} raised an alarm for another step than it was shown")
            opened = alarm
        else:
            _require(
                opened is not None and replace(alarm, resolved=None) == opened, f"{one.name} resolved no open alarm"
            )
            opened = None


def _streams(name: str) -> Iterator[list[Reading]]:
    """Low, high, turning, noisy and gappy series of one reading, each with bets beside it."""
    rng = np.random.default_rng(0)
    shapes = {
        "low": np.full(120, 0.05),
        "high": np.full(120, 0.95),
        "turns": np.concatenate([np.full(60, 0.1), np.full(60, 0.95), np.full(120, 0.1)]),
        "noise": rng.random(200),
        "negative": np.concatenate([np.full(40, 0.5), np.full(80, -0.8)]),
    }
    if name.endswith(".*"):  # any series of that kind; evaluations are means of scores from 0 to 1
        name, shapes = name.replace("*", "any"), {kind: values.clip(0.0, 1.0) for kind, values in shapes.items()}
    for values in shapes.values():
        yield [Reading(0, 2 * t, name, float(v), 8, 0.1, (float(v),) * 4) for t, v in enumerate(values)]


def _blank_rows(batch: RolloutBatch, rows: Any) -> RolloutBatch:
    """The same batch with every number of these rows NaN."""

    def blank(values: Floats) -> Floats:
        values = values.copy()
        values[rows] = np.nan
        return values

    changed: dict[str, Any] = {name: blank(getattr(batch, name)) for name in NUMBER_COLUMNS}
    for name in RAGGED_COLUMNS:
        column: Ragged = getattr(batch, name)
        if name not in ("tokens", "own"):
            values = column.values.copy()
            for row in rows:
                values[column.offsets[row] : column.offsets[row + 1]] = np.nan
            changed[name] = Ragged(values, column.offsets)
    return replace(batch, rewards={name: blank(part) for name, part in batch.rewards.items()}, **changed)


def _freeze(batch: RolloutBatch) -> RolloutBatch:
    """A copy whose arrays refuse to be written to."""
    copy = batches.take(batch, np.arange(len(batch)))
    for array in _arrays(copy):
        array.flags.writeable = False
    return copy


def _arrays(batch: RolloutBatch) -> Iterator[Any]:
    for name in (*NUMBER_COLUMNS, "group", "length", "trajectory", *BOOL_COLUMNS):
        yield getattr(batch, name)
    yield from batch.rewards.values()
    for name in RAGGED_COLUMNS:
        yield getattr(batch, name).values
        yield getattr(batch, name).offsets


def _fingerprint(batch: RolloutBatch) -> tuple[object, ...]:
    texts = (getattr(batch, name) for name in (*TEXT_COLUMNS, *LABEL_COLUMNS))
    return (*texts, tuple(batch.rewards), *(array.tobytes() for array in _arrays(batch)))


def _binomial_tail(n: int, p: float, k: int) -> float:
    """P(at least k of n) for independent chances p."""
    from math import comb

    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ContractError(message)
