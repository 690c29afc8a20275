"""The instruments, derived readings and detectors of one run, and the one boundary that keeps their errors in.

No files and no clock: a batch goes in, readings and alarms come out. What a part does wrong becomes a `Fault`; after
three in a row the part is switched off until the next attempt, and shown as off.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from tiltmeter.baseline import Baseline
from tiltmeter.batches import from_columns, take
from tiltmeter.columns import from_table, to_table
from tiltmeter.config import Config
from tiltmeter.derived import Derived
from tiltmeter.detectors import Detector
from tiltmeter.errors import ContractError
from tiltmeter.instruments import Instrument
from tiltmeter.records import Alarm, Fault, Floats, Reading, RolloutBatch
from tiltmeter.remembered import forget
from tiltmeter.stats.groups import clustered_mean
from tiltmeter.story import alarm_id, watched

STRIKES = 3
CHUNK = 2_048  # rows that a local instrument is asked about at once
BETS_PER_STEP = 64  # audited values kept with a reading; more are averaged in even runs, and a mean of bets is a bet

log = logging.getLogger("tiltmeter")
Made = TypeVar("Made")
Watcher = TypeVar("Watcher", Derived, Detector)
Values = Any  # what an instrument answers: values, or values by suffix


@dataclass(frozen=True, slots=True)
class Answer:
    """What one instrument said of one step: its readings, or why it has none."""

    part: str
    readings: tuple[Reading, ...] = ()
    error: str = ""


class Panel:
    """All parts of one run. `strict` re-raises what would be a Fault; tests and CI use it."""

    def __init__(self, config: Config, *, strict: bool = False) -> None:
        self.config, self.strict = config, strict
        made = [make() for make in config.detectors]
        self.detectors = made
        self._alarming = [part for part in made if part.tier == "alarm"]  # one state for the whole run, rewinds or not
        self._raised: dict[tuple[object, ...], int] = {}  # step by identity, where that is not the step of the data
        self.standing: set[tuple[object, ...]] = set()  # alarms that are open, by identity
        self.renew()

    def renew(self) -> None:
        """Fresh folds for a new lineage, and a fresh chance for parts that were off."""
        self._derived = [make() for make in self.config.derived]
        self._warning = [part for part in (make() for make in self.config.detectors) if part.tier == "warning"]
        self._watchers: dict[tuple[str, str], Any] = {}
        self._strikes: dict[str, dict[str, int]] = {"step": {}, "late": {}}
        self._off: set[str] = set()
        self._failed: list[Fault] = []

    def warm(self) -> None:
        """Call every instrument on a small batch, so that no step waits for kernels to be compiled."""
        batch = specimen()
        for part in self.config.instruments:
            for baseline in (None, Baseline(batch)):
                try:
                    with np.errstate(all="ignore"):
                        part.measure(batch, baseline)
                except Exception:  # a part that fails will say so on a real step, with its fault
                    log.debug("%s failed on the warm-up batch", part.name, exc_info=True)

    def cannot_compare(self, baseline: Baseline) -> dict[str, str]:
        """Instruments that compare, and the columns that what they would compare with does not have."""
        parts = (part for part in self.config.instruments if getattr(part, "compares", False))
        return {part.name: ", ".join(lack) for part in parts if (lack := lacking(part, baseline.batch))}

    @property
    def off(self) -> frozenset[str]:
        """Parts that failed three times in a row, and are not asked until a new attempt."""
        return frozenset(self._off)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> list[Reading]:
        """What every instrument reads off one step, here and now."""
        answers = ask(self.config.instruments, batch, baseline, strict=self.strict, off=self._off)
        return self.take(answers, batch.attempt, batch.step)

    def take(self, answers: Iterable[Answer], attempt: int, step: int) -> list[Reading]:
        """The readings among what instruments said of one step, here or in another process; the rest are faults."""
        found: list[Reading] = []
        for answer in answers:
            if answer.error and answer.part not in self._off:
                self._fail(answer.part, attempt, step, answer.error)
            elif answer.part not in self._off:
                found += answer.readings
        return found

    def fold(
        self,
        measured: Iterable[Reading],
        *,
        history: bool = False,
        abandoned: bool = False,
        now: tuple[int, int] | None = None,
    ) -> tuple[list[Reading], list[Alarm]]:
        """Derived readings and alarms of one step. `history`: a step measured before, for a new lineage's folds.

        `abandoned`: a step that the run has gone back behind; it stays evidence for alarms and for nothing else. `now`:
        the attempt and step that runs, where the readings come later than their step: an alarm is raised there.
        """
        derived: list[Reading] = []
        alarms: list[Alarm] = []
        measured = list(measured)
        for item in [] if abandoned else measured:
            for fold in self._watching("derived", item.name, self._derived):
                out = self._guard(fold.name, item, lambda f=fold, r=item: _sound(f.fold(r), Reading))  # type: ignore[misc]
                if out is not None:
                    derived.append(out)
        kinds = {"alarm": [] if history else self._alarming, "warning": [] if abandoned else self._warning}
        for item in (*measured, *derived):
            for part in [
                one for kind, parts in kinds.items() if parts for one in self._watching(kind, item.name, parts)
            ]:
                name = f"{part.name}:{item.name}"
                alarm = self._guard(name, item, lambda p=part, r=item: _sound(p.update(r), Alarm))  # type: ignore[misc]
                if alarm is not None:
                    alarms.append(self._placed(alarm, now))
        if history:
            self._failed = []  # faults of those steps are on record where they happened
        return derived, alarms

    def _watching(self, kind: str, name: str, parts: Sequence[Watcher]) -> Sequence[Watcher]:
        """Those of a kind that watch a reading, looked up once: a hundred readings a step are each asked about."""
        known = self._watchers.get((kind, name))
        if known is None:
            known = self._watchers[kind, name] = [part for part in parts if watched(name, part.watches)]
        return known

    def _placed(self, alarm: Alarm, now: tuple[int, int] | None) -> Alarm:
        """The alarm at the step that ran when it was raised; its detector knows only the step of the data."""
        key = _identity(alarm)
        if alarm.resolved is None and now is not None and now[0] == alarm.attempt and now[1] > alarm.step:
            self._raised[key] = now[1]
        if alarm.tier == "alarm":
            (self.standing.add if alarm.resolved is None else self.standing.discard)(key)
        return self._as_raised(alarm)

    def _as_raised(self, alarm: Alarm) -> Alarm:
        return replace(alarm, step=self._raised.get(_identity(alarm), alarm.step))

    def rewind(self, attempt: int, step: int) -> list[Alarm]:
        """Tell the alarms that a new attempt begins at this step; those that this resolves."""
        told = [part.rewind(attempt, step) for part in self._alarming if hasattr(part, "rewind")]
        return [self._placed(alarm, None) for alarm in told if alarm is not None]

    def dismiss(self, about: str, step: int) -> list[Alarm]:
        """Tell the alarm of this id that an operator calls it false; the alarm as resolved, if it was open."""
        made = []
        for part in self._alarming:
            standing: Alarm | None = getattr(part, "standing", None)
            if standing is not None and alarm_id(self._as_raised(standing)) == about:
                made.append(self._placed(part.dismiss(step), None))  # type: ignore[attr-defined]
        return made

    def close_step(
        self, recorded: Iterable[Fault] | None = None, kind: Literal["step", "late"] = "step"
    ) -> list[Fault]:
        """This step's faults, with the parts that are off from now on. `recorded`: as the journal had them instead.

        `late`: of readings that came after their step, labels and evaluations. A part fails three times in a row among
        the readings of one kind.
        """
        failed = {fault.part: fault for fault in (self._failed if recorded is None else recorded)}
        self._failed = []
        strikes = self._strikes[kind]
        self._strikes[kind] = {part: strikes.get(part, 0) + 1 for part in failed}
        self._off |= {part for part, count in self._strikes[kind].items() if count >= STRIKES}
        return [Fault(f.attempt, f.step, f.part, f.error, f.part in self._off) for f in failed.values()]

    def _guard(self, part: str, at: Reading, work: Callable[[], Made]) -> Made | None:
        """What fails here is written down, and nobody else is stopped by it."""
        if part in self._off:
            return None
        made, error = guarded(work, strict=self.strict)
        if error:
            self._fail(part, at.attempt, at.step, error)
        return made

    def _fail(self, part: str, attempt: int, step: int, error: str) -> None:
        if not any(part in strikes for strikes in self._strikes.values()):
            log.warning("%s failed at step %d: %s", part, step, error)
        self._failed.append(Fault(attempt, step, part, error))


def guarded(work: Callable[[], Made], *, strict: bool) -> tuple[Made | None, str]:
    """The error boundary: what `work` made, or what went wrong."""
    try:
        with np.errstate(all="ignore"):
            return work(), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in's SystemExit must not end the monitor either
        if strict:
            raise
        return None, f"{type(error).__name__}: {str(error)[:300]}"


def ask(
    parts: Iterable[Instrument],
    batch: RolloutBatch,
    baseline: Baseline | None,
    *,
    strict: bool = False,
    off: Container[str] = (),
) -> tuple[Answer, ...]:
    """What every instrument that has its columns says of one step. Knows no run: any process may ask."""
    asked = [part for part in parts if part.name not in off and not lacking(part, batch)]
    answers: dict[str, Answer] = {}
    for part, values, error in _by_chunk([part for part in asked if is_local(part)], batch, baseline, strict):
        if not error:
            made, error = guarded(lambda p=part, v=values: readings(p, batch, baseline, v), strict=strict)  # type: ignore[misc]
            answers[part.name] = Answer(part.name, tuple(made or ()), error)
        else:
            answers[part.name] = Answer(part.name, (), error)
    for part in asked:
        if part.name not in answers:
            made, error = guarded(lambda p=part: readings(p, batch, baseline), strict=strict)  # type: ignore[misc]
            answers[part.name] = Answer(part.name, tuple(made or ()), error)
    forget()  # or a step's rollouts stay in memory while the next one is read
    return tuple(answers[part.name] for part in asked)


def is_local(part: Instrument) -> bool:
    """Whether an instrument's values depend on nothing but the prompt group they belong to."""
    return bool(getattr(part, "local", False))


def _by_chunk(
    parts: Sequence[Instrument], batch: RolloutBatch, baseline: Baseline | None, strict: bool
) -> Iterator[tuple[Instrument, Values, str]]:
    """What local instruments answer, asked about some groups at a time: what they need for that does not grow with the
    step. All of them about one chunk first, because they share what they make of its text."""
    found: dict[str, list[Values]] = {part.name: [] for part in parts}
    errors: dict[str, str] = {}
    for chunk in chunks(batch) if parts else ():
        for part in parts:
            if part.name in errors:
                continue
            against = baseline if baseline is not None and _comparable(part, batch, baseline) else None
            made, error = guarded(lambda p=part, b=against: p.measure(chunk, b), strict=strict)  # type: ignore[misc]  # noqa: B023
            if error:
                errors[part.name] = error
            else:
                found[part.name].append(made)
    for part in parts:
        error = errors.get(part.name, "")
        values, error = (None, error) if error else guarded(lambda p=part: _joined(found[p.name]), strict=strict)  # type: ignore[misc]
        yield part, values, error


def chunks(batch: RolloutBatch) -> Iterator[RolloutBatch]:
    """The batch in parts of whole prompt groups, of about `CHUNK` rows each."""
    if len(batch) <= CHUNK:
        yield batch
        return
    start = 0
    for stop in map(int, batch.starts[1:]):
        if stop - start >= CHUNK or stop == len(batch):
            yield take(batch, np.arange(start, stop))
            start = stop


def _joined(parts: Sequence[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Mapping):
        if any(not isinstance(part, Mapping) or part.keys() != parts[0].keys() for part in parts):
            raise ContractError("a local instrument answered with other names for other rows")
        return {name: np.concatenate([np.asarray(part[name], np.float64) for part in parts]) for name in parts[0]}
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def _identity(alarm: Alarm) -> tuple[object, ...]:
    return alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step


def specimen() -> RolloutBatch:
    """Some prompt groups with every column filled, as if read from a file: kernels compile for such arrays."""
    rows = range(240)  # enough for every statistic to be computed
    number = np.arange(240.0) ** 2
    logprob = [[-1.0 - 0.001 * row] * 6 for row in rows]
    text = [f"# Answer {row}\nI think the answer is {row}.\n```\nx = {row}  # {row}\n```" for row in rows]
    batch = from_columns(
        step=0,
        group=np.arange(240) // 8,
        reward=number,
        rewards={"a.0": number, "a.1": number, "a.2": -number},
        advantage=number,
        gold=np.arange(240) % 2,
        truncated=number > 6,
        prompt=["I believe it is 3. Is it?"] * 240,
        completion=text,
        tokens=[[1 + row, 2, 3, 4, 5, 6] for row in rows],
        logprob=logprob,
        ref_logprob=[[-1.1] * 6] * 240,
        engine_logprob=logprob,
        entropy=[[1.0] * 6] * 240,
        step_reward=[[0.5, 1.0]] * 240,
        scalars={"loss": 0.5, "grad_norm": 1.0},
    )
    return from_table(*to_table(batch), batch.attempt, batch.step)


Record = TypeVar("Record", Reading, Alarm)


def _sound(answer: Record | None, kind: type[Record]) -> Record | None:
    """What a fold answered, if the journal can hold it; else it is the part's fault, and stays inside the boundary."""
    if answer is None:
        return None
    if not isinstance(answer, kind):
        raise ContractError(f"answered with a {type(answer).__name__}, not a {kind.__name__}")
    json.dumps(asdict(answer), allow_nan=False)
    return answer


def lacking(part: Instrument, batch: RolloutBatch) -> list[str]:
    return [column for column in part.needs if batch.column(column) is None]


def readings(part: Instrument, batch: RolloutBatch, baseline: Baseline | None, answer: Values = None) -> list[Reading]:
    """One instrument's readings of one step: mean, count and standard error, computed here for everyone. `answer`: what
    it measured, where it was asked already.

    Gold is weighted by the inverse of the chance each row had of being labelled. Values that are not finite are left
    out; if none is left there is no reading, never a 0.
    """
    if baseline is not None and not _comparable(part, batch, baseline):
        baseline = None
    if answer is None:
        answer = part.measure(batch, baseline)
    against = "" if baseline is None else baseline.source
    named: dict[str, Any] = {part.name: answer}
    if isinstance(answer, Mapping):
        named = {f"{part.name}.{suffix}": values for suffix, values in answer.items()}
    weights = None
    if "gold" in part.needs and part.grain == "rollout" and batch.gold_chance is not None:
        weights = np.divide(1.0, batch.gold_chance, out=np.zeros(len(batch)), where=batch.gold_chance > 0)
    expected, starts = shape(part, batch)
    found = []
    for name, raw in named.items():
        values = np.asarray(raw, np.float64)
        if part.grain == "item" and values.ndim == 1:
            expected, starts = len(values), np.arange(len(values) + 1)
        if values.shape != (expected,):
            raise ContractError(f"{name} has {values.shape} values, its grain {part.grain!r} asks for ({expected},)")
        mean, n, stderr = clustered_mean(values, starts, weights)
        if stderr is not None and not np.isfinite(stderr):
            stderr = None  # rewards near the end of float64 have a mean, and a standard error that no float holds
        if n and np.isfinite(mean):
            bets = _bets(values) if getattr(part, "audited", False) else ()
            found.append(Reading(batch.attempt, batch.step, name, mean, n, stderr, bets, against))
    return found


def _comparable(part: Instrument, batch: RolloutBatch, baseline: Baseline) -> bool:
    """Whether a part compares, has what it needs on both sides and, if that is the reward, the same reward."""
    if not getattr(part, "compares", False) or lacking(part, baseline.batch):
        return False
    return "reward" not in part.needs or baseline.same_reward(batch)


def shape(part: Instrument, batch: RolloutBatch) -> tuple[int, Any]:
    """How many values an instrument must give for this batch, and the clusters they fall into.

    Of items there are as many as somebody counted: each is a cluster, and there is nothing to check them against.
    """
    groups = len(batch.starts) - 1
    if part.grain == "rollout":
        return len(batch), batch.starts
    expected = groups if part.grain == "group" else 1
    return expected, np.arange(expected + 1)


def _bets(values: Floats) -> tuple[float, ...]:
    finite = values[np.isfinite(values)]
    if len(finite) > BETS_PER_STEP:
        finite = np.array([run.mean() for run in np.array_split(finite, BETS_PER_STEP)])
    return tuple(map(float, finite))
