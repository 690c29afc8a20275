"""Run the instruments, derived readings and detectors of one run, and turn their errors into faults.

No files and no clock: a batch goes in, readings and alarms come out. An error of a part becomes a `Fault`; after three
in a row the part is off until the next attempt, and shown as off.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import component_name, from_columns, take
from tiltmeter.data.memo import shared_results
from tiltmeter.data.records import Alarm, Fault, Floats, Reading, RolloutBatch
from tiltmeter.data.slices import MOST_ENVIRONMENTS
from tiltmeter.data.turns import Turn
from tiltmeter.detectors import Detector, SliceDetector
from tiltmeter.detectors.derived_readings import Derived
from tiltmeter.errors import ContractError
from tiltmeter.instruments import Instrument
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.slice_readings import prompt_number, slice_readings
from tiltmeter.rundir.columns import from_table, to_table
from tiltmeter.stats.groups import clustered_mean
from tiltmeter.verdict.run_facts import alarm_id, is_watched

MAX_FAULTS_IN_A_ROW = 3
CHUNK = 2_048  # rows that a local instrument measures at once
MAX_BETS_PER_STEP = (
    64  # audited values kept with a reading; more are averaged in equal chunks, and a mean of bets is a bet
)

log = logging.getLogger("tiltmeter")
T = TypeVar("T")
Watcher = TypeVar("Watcher", Derived, Detector)
Values = Any  # what an instrument returns: values, or values by suffix


@dataclass(frozen=True, slots=True)
class InstrumentResult:
    """One instrument's result on one step: its readings, or an error."""

    part: str
    readings: tuple[Reading, ...] = ()
    error: str = ""


class InstrumentPanel:
    """All parts of one run. `strict` re-raises what would be a Fault; tests and CI use it."""

    def __init__(self, config: Config, *, strict: bool = False) -> None:
        self.config, self.strict = config, strict
        detectors = [make() for make in config.detectors]
        self.detectors = detectors
        self._alarm_detectors = [
            part for part in detectors if part.tier == "alarm"
        ]  # one state for the whole run: never reset
        self._raised_steps: dict[tuple[object, ...], int] = {}  # step by alarm, if later than its data's
        self.open_alarms: set[tuple[object, ...]] = set()  # alarms that are open, by identity
        self.reset()

    def reset(self) -> None:
        """Reset derived readings and warnings for a new lineage, and switch parts that were off on again."""
        self._derived = [make() for make in self.config.derived]
        self._warning_detectors = [
            part for part in (make() for make in self.config.detectors) if part.tier == "warning"
        ]
        self._watchers: dict[tuple[str, str], Any] = {}
        self._faults_in_a_row: dict[str, dict[str, int]] = {"step": {}, "late": {}}
        self._off: set[str] = set()
        self._faults: list[Fault] = []

    def warm_up(self) -> None:
        """Call every instrument on a small batch, so that no step waits for kernels to be compiled."""
        batch = warmup_batch()
        for part in self.config.instruments:
            for baseline in (None, Baseline(batch)):
                try:
                    with np.errstate(all="ignore"):
                        part.measure(batch, baseline)
                except Exception:  # if it fails on a real step too, that becomes a fault
                    log.debug("%s failed on the warm-up batch", part.name, exc_info=True)

    def cannot_compare(self, baseline: Baseline) -> dict[str, str]:
        """Instruments that compare with a baseline, and the columns that this baseline lacks for them."""
        parts = (part for part in self.config.instruments if getattr(part, "compares", False))
        return {part.name: ", ".join(lack) for part in parts if (lack := _missing_to_compare(part, baseline))}

    @property
    def off(self) -> frozenset[str]:
        """Parts that failed three times in a row; they are not run until a new attempt."""
        return frozenset(self._off)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> list[Reading]:
        """The readings of every instrument on one step, measured in this process."""
        answers = run_instruments(self.config.instruments, batch, baseline, strict=self.strict, off=self._off)
        return self.collect_readings(answers, batch.attempt, batch.step)

    def collect_readings(self, answers: Iterable[InstrumentResult], attempt: int, step: int) -> list[Reading]:
        """The readings of one step from instrument results, of this or another process; errors become faults."""
        all_readings: list[Reading] = []
        for answer in answers:
            if answer.error and answer.part not in self._off:
                self._fail(answer.part, attempt, step, answer.error)
            elif answer.part not in self._off:
                all_readings += answer.readings
        return all_readings

    def fold(
        self,
        measured: Iterable[Reading],
        *,
        history: bool = False,
        abandoned: bool = False,
        now: tuple[int, int] | None = None,
    ) -> tuple[list[Reading], list[Alarm]]:
        """Derived readings and alarms of one step. `history`: a step measured before, for a new lineage's folds.

        `abandoned`: a step that a rewind has discarded; it is evidence for alarms only. `now`: the current attempt and
        step, if the readings arrive later than their step; an alarm is then raised at the current step.
        """
        derived: list[Reading] = []
        alarms: list[Alarm] = []
        measured = list(measured)
        for item in [] if abandoned else measured:
            for fold in self._watchers_of("derived", item.name, self._derived):
                out = self._guard(fold.name, item, lambda f=fold, r=item: _check_record(f.fold(r), Reading))  # type: ignore[misc]
                if out is not None:
                    derived.append(out)
        kinds = {
            "alarm": [] if history else self._alarm_detectors,
            "warning": [] if abandoned else self._warning_detectors,
        }
        for item in (*measured, *derived):
            for part in [
                one for kind, parts in kinds.items() if parts for one in self._watchers_of(kind, item.name, parts)
            ]:
                name = f"{part.name}:{item.name}"
                if item.slices and isinstance(part, SliceDetector):
                    raised = self._guard(name, item, lambda p=part, r=item: _check_records(p.update_slices(r)))  # type: ignore[misc]
                    alarms += [self._record_alarm(alarm, now) for alarm in raised or ()]
                    continue
                alarm = self._guard(name, item, lambda p=part, r=item: _check_record(p.update(r), Alarm))  # type: ignore[misc]
                if alarm is not None:
                    alarms.append(self._record_alarm(alarm, now))
        if history:
            self._faults = []  # faults of those steps are already in the journal
        return derived, alarms

    def _watchers_of(self, kind: str, name: str, parts: Sequence[Watcher]) -> Sequence[Watcher]:
        """The parts of a kind that watch a reading, cached: there may be a hundred readings per step."""
        watchers = self._watchers.get((kind, name))
        if watchers is None:
            watchers = self._watchers[kind, name] = [part for part in parts if is_watched(name, part.watches)]
        return watchers

    def _record_alarm(self, alarm: Alarm, now: tuple[int, int] | None) -> Alarm:
        """Track whether the alarm is open, and return it at the step at which it was raised, not that of its data."""
        key = _identity(alarm)
        if alarm.resolved is not None and now is not None:
            alarm = replace(alarm, resolved=max(alarm.resolved, now[1]))  # by labels that came after their step
        if alarm.resolved is None and now is not None and now[0] == alarm.attempt and now[1] > alarm.step:
            self._raised_steps[key] = now[1]
        if alarm.tier == "alarm":
            (self.open_alarms.add if alarm.resolved is None else self.open_alarms.discard)(key)
        return self._with_raised_step(alarm)

    def _with_raised_step(self, alarm: Alarm) -> Alarm:
        return replace(alarm, step=self._raised_steps.get(_identity(alarm), alarm.step))

    def rewind(self, attempt: int, step: int) -> list[Alarm]:
        """Tell the alarm detectors that a new attempt begins at this step; returns the alarms this resolves."""
        alarms = [part.rewind(attempt, step) for part in self._alarm_detectors if hasattr(part, "rewind")]
        sliced = [part for part in self._alarm_detectors if isinstance(part, SliceDetector)]
        alarms += [alarm for part in sliced for alarm in part.rewind_slices(attempt, step)]
        return [self._record_alarm(alarm, None) for alarm in alarms if alarm is not None]

    def dismiss(self, about: str, step: int) -> list[Alarm]:
        """Resolve the open alarm of this id, which an operator marked as false; returns it as resolved."""
        alarms = []
        for part in self._alarm_detectors:
            open_alarm: Alarm | None = getattr(part, "standing", None)
            if open_alarm is not None and alarm_id(self._with_raised_step(open_alarm)) == about:
                alarms.append(self._record_alarm(part.dismiss(step), None))  # type: ignore[attr-defined]
            if isinstance(part, SliceDetector):
                of_slices = [one for one in part.standing_slices if alarm_id(self._with_raised_step(one)) == about]
                alarms += [self._record_alarm(part.dismiss_slice(one.name, step), None) for one in of_slices]
        return alarms

    def close_step(
        self, recorded: Iterable[Fault] | None = None, kind: Literal["step", "late"] = "step"
    ) -> list[Fault]:
        """This step's faults, with the parts that are off from now on. `recorded`: as the journal had them instead.

        `late`: faults of readings that came after their step (labels, evaluations). Faults in a row count per kind.
        """
        failed = {fault.part: fault for fault in (self._faults if recorded is None else recorded)}
        self._faults = []
        counts = self._faults_in_a_row[kind]
        self._faults_in_a_row[kind] = {part: counts.get(part, 0) + 1 for part in failed}
        self._off |= {part for part, count in self._faults_in_a_row[kind].items() if count >= MAX_FAULTS_IN_A_ROW}
        return [Fault(f.attempt, f.step, f.part, f.error, f.part in self._off) for f in failed.values()]

    def _guard(self, part: str, at: Reading, work: Callable[[], T]) -> T | None:
        """Run `work`; an error becomes a fault and does not stop the other parts."""
        if part in self._off:
            return None
        result, error = run_guarded(work, strict=self.strict)
        if error:
            self._fail(part, at.attempt, at.step, error)
        return result

    def _fail(self, part: str, attempt: int, step: int, error: str) -> None:
        if not any(part in strikes for strikes in self._faults_in_a_row.values()):
            log.warning("%s failed at step %d: %s", part, step, error)
        self._faults.append(Fault(attempt, step, part, error))


def run_guarded(work: Callable[[], T], *, strict: bool) -> tuple[T | None, str]:
    """The error boundary: the result of `work`, or the error message."""
    try:
        with np.errstate(all="ignore"):
            return work(), ""
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plug-in's SystemExit must not end the monitor either
        if strict:
            raise
        return None, f"{type(error).__name__}: {str(error)[:300]}"


@shared_results()
def run_instruments(
    parts: Iterable[Instrument],
    batch: RolloutBatch,
    baseline: Baseline | None,
    *,
    strict: bool = False,
    off: Container[str] = (),
) -> tuple[InstrumentResult, ...]:
    """Run every instrument whose columns are present on one step. Independent of the run: any process may call it."""
    instruments = [part for part in parts if part.name not in off and not missing_columns(part, batch)]
    answers: dict[str, InstrumentResult] = {}
    for part, values, error in _measure_chunks(
        [part for part in instruments if is_local(part)], batch, baseline, strict
    ):
        if not error:
            result, error = run_guarded(lambda p=part, v=values: readings(p, batch, baseline, v), strict=strict)  # type: ignore[misc]
            answers[part.name] = InstrumentResult(part.name, tuple(result or ()), error)
        else:
            answers[part.name] = InstrumentResult(part.name, (), error)
    for part in instruments:
        if part.name not in answers:
            result, error = run_guarded(lambda p=part: readings(p, batch, baseline), strict=strict)  # type: ignore[misc]
            answers[part.name] = InstrumentResult(part.name, tuple(result or ()), error)
    return tuple(answers[part.name] for part in instruments)


def is_local(part: Instrument) -> bool:
    """Whether an instrument's values depend on nothing but the prompt group they belong to."""
    return bool(getattr(part, "local", False))


def _measure_chunks(
    parts: Sequence[Instrument], batch: RolloutBatch, baseline: Baseline | None, strict: bool
) -> Iterator[tuple[Instrument, Values, str]]:
    """Measure local instruments chunk by chunk, so that memory does not grow with the step. All instruments run on one
    chunk before the next, because they share cached results about its text."""
    values_by_part: dict[str, list[Values]] = {part.name: [] for part in parts}
    errors: dict[str, str] = {}
    for chunk in chunks(batch) if parts else ():
        for part in parts:
            if part.name in errors:
                continue
            against = baseline if baseline is not None and _comparable(part, batch, baseline) else None
            result, error = run_guarded(lambda p=part, b=against: p.measure(chunk, b), strict=strict)  # type: ignore[misc]  # noqa: B023
            if error:
                errors[part.name] = error
            else:
                values_by_part[part.name].append(result)
    for part in parts:
        error = errors.get(part.name, "")
        values = None
        if not error:
            values, error = run_guarded(lambda p=part: _join_values(values_by_part[p.name]), strict=strict)  # type: ignore[misc]
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


def _join_values(parts: Sequence[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Mapping):
        if any(not isinstance(part, Mapping) or part.keys() != parts[0].keys() for part in parts):
            raise ContractError("a local instrument answered with other names for other rows")
        return {name: np.concatenate([np.asarray(part[name], np.float64) for part in parts]) for name in parts[0]}
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def _identity(alarm: Alarm) -> tuple[object, ...]:
    return alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step


def warmup_batch() -> RolloutBatch:
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
        own=[[1] * 6] * 240,
        turns=[[Turn("assistant", text[row], call="bash", arguments='{"cmd": "rm -r tests"}')] for row in rows],
        trajectory=rows,
        agent=["a"] * 240,
        env=["a"] * 240,
        task=["a"] * 240,
        stop=["done"] * 240,
        version=number,
        trained=number > 6,
    )
    return from_table(*to_table(batch), batch.attempt, batch.step)


Record = TypeVar("Record", Reading, Alarm)


def _check_record(answer: Record | None, kind: type[Record]) -> Record | None:
    """The part's answer, if it is a record the journal can store; else raises `ContractError`."""
    if answer is None:
        return None
    if not isinstance(answer, kind):
        raise ContractError(f"answered with a {type(answer).__name__}, not a {kind.__name__}")
    json.dumps(asdict(answer), allow_nan=False)
    return answer


def _check_records(answer: Sequence[Alarm]) -> list[Alarm]:
    return [alarm for one in answer if (alarm := _check_record(one, Alarm)) is not None]


def missing_columns(part: Instrument, batch: RolloutBatch) -> list[str]:
    return [column for column in part.needs if batch.column(column) is None]


def _missing_to_compare(part: Instrument, baseline: Baseline) -> list[str]:
    """Columns that an instrument that compares would need of the baseline."""
    return [column for column in getattr(part, "compared", part.needs) if baseline.batch.column(column) is None]


def readings(part: Instrument, batch: RolloutBatch, baseline: Baseline | None, answer: Values = None) -> list[Reading]:
    """One instrument's readings of one step: mean, count and standard error, computed here for all instruments.
    `answer`: its values, if they were measured already.

    Gold is weighted by the inverse of the chance each row had of being labelled. Values that are not finite are left
    out; if none is left there is no reading, never a 0.
    """
    first_steps = baseline
    if baseline is not None and not _comparable(part, batch, baseline):
        baseline = None
    if answer is None:
        answer = part.measure(batch, baseline)
    against = "" if baseline is None else baseline.source
    by_name: dict[str, Any] = {part.name: answer}
    if isinstance(answer, Mapping):
        by_name = {f"{part.name}.{suffix}": values for suffix, values in answer.items()}
    weights = None
    if "gold" in part.needs and part.grain == "rollout" and batch.gold_chance is not None:
        weights = np.divide(1.0, batch.gold_chance, out=np.zeros(len(batch)), where=batch.gold_chance > 0)
    expected, starts = expected_shape(part, batch)
    results = []
    by_env: Any = getattr(part, "by_env", ())
    environments = environment_rows(batch) if by_env and part.grain == "rollout" else {}
    for name, raw in by_name.items():
        values = np.asarray(raw, np.float64)
        if part.grain == "item" and values.ndim == 1:
            expected, starts = len(values), np.arange(len(values) + 1)
        if values.shape != (expected,):
            raise ContractError(f"{name} has {values.shape} values, its grain {part.grain!r} asks for ({expected},)")
        mean, n, stderr = clustered_mean(values, starts, weights)
        if stderr is not None and not np.isfinite(stderr):
            stderr = None  # rewards near the float64 limit can have a finite mean and an infinite standard error
        if n and np.isfinite(mean):
            bets: tuple[float, ...] = ()
            keys: tuple[int, ...] = ()
            if getattr(part, "by_prompt", False):
                bets, keys, n = _bets_by_prompt(values, batch)
            elif getattr(part, "audited", False):
                bets = _bets(values)
            results.append(Reading(batch.attempt, batch.step, name, mean, n, stderr, bets, against, keys))
            results += slice_readings(part, batch, results[-1], values, weights, baseline, first_steps)
        for env, rows in environments.items() if by_env is True or name.rpartition(".")[2] in by_env else ():
            own_groups = np.concatenate(([0], np.flatnonzero(np.diff(batch.group[rows])) + 1, [len(rows)]))
            mean, n, stderr = clustered_mean(values[rows], own_groups, None if weights is None else weights[rows])
            if n and np.isfinite(mean):
                stderr = stderr if stderr is not None and np.isfinite(stderr) else None
                results.append(Reading(batch.attempt, batch.step, f"env.{env}.{name}", mean, n, stderr, (), against))
    return results


def environment_rows(batch: RolloutBatch) -> dict[str, Any]:
    """The rows of each environment, by a name that a reading may have; of many environments, the largest."""
    if batch.env is None:
        return {}
    rows: dict[str, list[int]] = {}
    for row, env in enumerate(batch.env):
        if env is not None:
            rows.setdefault(env, []).append(row)
    largest = sorted(sorted(rows), key=lambda env: -len(rows[env]))[:MOST_ENVIRONMENTS]
    names: dict[str, Any] = {}
    for env in sorted(largest):
        names[component_name(env.replace(".", "_"), existing=names)] = np.array(rows[env])
    return names


def _comparable(part: Instrument, batch: RolloutBatch, baseline: Baseline) -> bool:
    """Whether a part compares, has what it needs on both sides and, if that is the reward, the same reward."""
    if not getattr(part, "compares", False) or _missing_to_compare(part, baseline):
        return False
    return "reward" not in part.needs or baseline.same_reward(batch)


def expected_shape(part: Instrument, batch: RolloutBatch) -> tuple[int, Any]:
    """How many values an instrument must give for this batch, and the clusters they fall into.

    The number of items is not known in advance: each is a cluster, and the count is not checked.
    """
    groups = len(batch.starts) - 1
    if part.grain == "rollout":
        return len(batch), batch.starts
    expected = groups if part.grain == "group" else 1
    return expected, np.arange(expected + 1)


def _bets(values: Floats) -> tuple[float, ...]:
    finite = values[np.isfinite(values)]
    if len(finite) > MAX_BETS_PER_STEP:
        finite = np.array([run.mean() for run in np.array_split(finite, MAX_BETS_PER_STEP)])
    return tuple(map(float, finite))


def _bets_by_prompt(values: Floats, batch: RolloutBatch) -> tuple[tuple[float, ...], tuple[int, ...], int]:
    """The values that are finite, evenly chosen where there are many; a number for the prompt of each; and how many
    answers they are about."""
    groups = np.flatnonzero(np.isfinite(values))
    if len(groups) > MAX_BETS_PER_STEP:
        groups = groups[np.linspace(0, len(groups) - 1, MAX_BETS_PER_STEP).round().astype(int)]
    keys = tuple(prompt_number(batch, int(group)) for group in groups)
    return tuple(map(float, values[groups])), keys, int(np.diff(batch.starts)[groups].sum())
