"""The instruments, derived readings and detectors of one run, and the one boundary that keeps their errors in.

No files and no clock: a batch goes in, readings and alarms come out. What a part does wrong becomes a `Fault`; after
three in a row the part is switched off until the next attempt, and shown as off.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, TypeVar

import numpy as np

from tiltmeter.baseline import Baseline
from tiltmeter.batches import from_columns
from tiltmeter.columns import from_table, to_table
from tiltmeter.config import Config
from tiltmeter.errors import ContractError
from tiltmeter.instruments import Instrument
from tiltmeter.records import Alarm, Fault, Floats, Reading, RolloutBatch
from tiltmeter.stats.groups import clustered_mean
from tiltmeter.story import alarm_id, watched

STRIKES = 3
BETS_PER_STEP = 64  # audited values kept with a reading; more are averaged in even runs, and a mean of bets is a bet

log = logging.getLogger("tiltmeter")
Answer = TypeVar("Answer")


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
        self._strikes: dict[str, dict[str, int]] = {"step": {}, "late": {}}
        self._off: set[str] = set()
        self._failed: list[Fault] = []

    def lacks(self, batch: RolloutBatch) -> dict[str, str]:
        """Instruments that cannot run on this batch, and the columns they would need."""
        return {part.name: ", ".join(lack) for part in self.config.instruments if (lack := lacking(part, batch))}

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

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> list[Reading]:
        """What every instrument reads off one step."""
        found: list[Reading] = []
        for part in self.config.instruments:
            if not lacking(part, batch):
                made = self._guard(part.name, batch, lambda p=part: readings(p, batch, baseline))  # type: ignore[misc]
                found += made or []
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
            for fold in self._derived:
                if watched(item.name, fold.watches):
                    out = self._guard(fold.name, item, lambda f=fold, r=item: _sound(f.fold(r), Reading))  # type: ignore[misc]
                    if out is not None:
                        derived.append(out)
        parts = self._alarming if abandoned else self._warning if history else [*self._alarming, *self._warning]
        for item in (*measured, *derived):
            for part in parts:
                if watched(item.name, part.watches):
                    name = f"{part.name}:{item.name}"
                    alarm = self._guard(name, item, lambda p=part, r=item: _sound(p.update(r), Alarm))  # type: ignore[misc]
                    if alarm is not None:
                        alarms.append(self._placed(alarm, now))
        if history:
            self._failed = []  # faults of those steps are on record where they happened
        return derived, alarms

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

    def _guard(self, part: str, at: RolloutBatch | Reading, work: Callable[[], Answer]) -> Answer | None:
        """The error boundary: what fails here is written down, and nobody else is stopped by it."""
        if part in self._off:
            return None
        try:
            with np.errstate(all="ignore"):
                return work()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plug-in's SystemExit must not end the monitor either
            if self.strict:
                raise
            text = f"{type(error).__name__}: {str(error)[:300]}"
            if not any(part in strikes for strikes in self._strikes.values()):
                log.warning("%s failed at step %d: %s", part, at.step, text)
            self._failed.append(Fault(at.attempt, at.step, part, text))
            return None


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


def readings(part: Instrument, batch: RolloutBatch, baseline: Baseline | None) -> list[Reading]:
    """One instrument's readings of one step: mean, count and standard error, computed here for everyone.

    Gold is weighted by the inverse of the chance each row had of being labelled. Values that are not finite are left
    out; if none is left there is no reading, never a 0.
    """
    if baseline is not None and not _comparable(part, batch, baseline):
        baseline = None
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
