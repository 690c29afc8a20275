"""The advisor: diagnoses a run, proposes interventions and judges their outcomes, step by step.

It is a fold over the journal: reading the journal again gives the same findings and actions. It has two side effects:
requests to the trainer, sent once the action is on disk, and experiments on the user's reward function, whose results
come back as arrivals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.dataset_facts import from_text
from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Alarm, Fault, Finding, Reading, RolloutBatch
from tiltmeter.diagnosis import FAILURES, Diagnosis, experiment, knobs_for
from tiltmeter.diagnosis.experiments import edit_outcome
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel as GoldRequest
from tiltmeter.gold import GoldSource
from tiltmeter.gold.function import FunctionSource
from tiltmeter.instruments.hedging import HEDGES
from tiltmeter.instruments.phrases import phrases_overused_in
from tiltmeter.interventions.policy import InterventionPolicy
from tiltmeter.rundir.journal import Event, event, event_id, jsonable
from tiltmeter.rundir.requests import ROLLOUT_KNOBS, ControlOffer, ControlRequest, Receipt, write_request
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.gold_standing import PAST, stand

GOLD_NAMES = (
    "gold.mean",
    "gold.answers",
    "gold.level",
    "gold.slope",
    "eval.",
)  # readings that the gold of a checkpoint is estimated from
Rollouts = Callable[[], RolloutBatch]
CHECKPOINT = "training.checkpoint"  # its value is the step at which a checkpoint was saved
#: What acts on single rollouts comes before what slows down all of training, where the user offers it.
KNOB_ORDER = {failure: (*ROLLOUT_KNOBS, *knobs_for(failure)) for failure in FAILURES}


class Advisor:
    """One run's findings, proposals and outcomes. `live=False`, for replay: no requests and no experiments."""

    def __init__(
        self,
        run: RunDirectory,
        digest: str,
        *,
        live: bool,
        reward: FunctionSource | None = None,
        gold: GoldSource | None = None,
        strict: bool = False,
    ) -> None:
        self.run, self._digest, self._live, self._strict = run, digest, live, strict
        self._reward, self._gold = reward, gold
        self.diagnosis = Diagnosis()
        self.interventions: InterventionPolicy | None = None  # None: this run's trainer allows no changes
        self._alarms: dict[tuple[object, ...], Alarm] = {}  # open ones, by identity
        self._late_readings: list[Reading] = []  # labels and evaluations since the last step
        self._checkpoints: dict[int, set[int]] = {}  # steps by attempt
        self._gold_readings: dict[str, ReadingTable] = {}  # by name, along the current lineage
        self._attempt = 0
        self.canaries_pass = False  # of the judge, at the newest labels; False for other sources
        self._sent_ids: set[str] = set()  # ids of requests that were written
        self._started_experiments: set[tuple[int, str]] = set()  # (attempt, failure) of experiments
        self._results: list[dict[str, Any]] = []
        self._off = False

    # -- inputs from the loop ------------------------------------------------------------------------------------------

    def update_alarms(self, alarms: Iterable[Alarm]) -> None:
        """Alarms and warnings that were raised or resolved."""
        for alarm in alarms:
            key = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
            if alarm.resolved is None:
                self._alarms[key] = alarm
            else:
                self._alarms.pop(key, None)

    def add_past(self, readings: Iterable[Reading]) -> None:
        """Labels of the past that were bought after an alarm."""
        past = self._gold_readings.setdefault(PAST, ReadingTable(PAST))
        for one in readings:
            past.add(one.attempt, one.step, one.value, one.n)

    def add_late_readings(self, readings: Iterable[Reading]) -> None:
        """Readings that came after their step; they are folded with the next one."""
        self._late_readings += readings

    def leave_attempt(self) -> None:
        """The run continues in another attempt: forget the warnings and readings of the old one."""
        self._alarms = {key: alarm for key, alarm in self._alarms.items() if alarm.tier == "alarm"}
        self._late_readings = []  # readings of the lineage are in its history

    def mute(self) -> None:
        """Give no advice until a new attempt: the advisor has failed."""
        self._off = True

    def enter_attempt(
        self, attempt: int, step: int, history: Iterable[Sequence[Reading]], offer: ControlOffer | None, *, judged: bool
    ) -> list[Event]:
        """Called at an attempt's first step: resets the diagnosis to this lineage and reads what the trainer allows."""
        self._attempt, self._off = attempt, False
        return self._guard(attempt, step, lambda: self._enter_attempt(attempt, step, history, offer, judged))

    def _enter_attempt(
        self, attempt: int, step: int, history: Iterable[Sequence[Reading]], offer: ControlOffer | None, judged: bool
    ) -> list[Event]:
        self.diagnosis.renew()
        self._gold_readings = {name: series.where(series.steps < step) for name, series in self._gold_readings.items()}
        for readings in history:
            self.diagnosis.update(attempt, readings[0].step if readings else -1, readings, ())
            self._add_checkpoints(attempt, readings)
        self.diagnosis.report_again()
        if offer is None:
            return []  # a custom training loop: it offers no knobs
        if self.interventions is None:
            ranks = int(self.run.attempt(attempt).get("ranks", 1))
            self.interventions = InterventionPolicy(
                offer.mode, offer.knobs, judged=judged, target_kl=offer.target_kl, order=KNOB_ORDER, ranks=ranks
            )
        actions = self.interventions.begin_attempt(attempt, offer.mode, offer.knobs)
        return [event(action, attempt, step, self._digest) for action in actions]

    def add_experiment(self, facts: Mapping[str, Any]) -> None:
        """An experiment has ended: what it showed decides how findings rank from the next step on."""
        self.diagnosis.add_experiment(str(facts.get("failure", "")), edit_outcome(facts))

    def start_segment(self) -> None:
        """The reward functions have changed at this step."""
        self.diagnosis.segment()

    def advise_step(
        self, attempt: int, step: int, readings: Sequence[Reading], rollouts: Rollouts | None, start: Baseline | None
    ) -> list[Event]:
        """Findings, proposals and outcomes after a measured step; rollouts are read for exemplars and experiments."""
        return self._guard(attempt, step, lambda: self._advise_step(attempt, step, readings, rollouts, start))

    def _advise_step(
        self, attempt: int, step: int, readings: Sequence[Reading], rollouts: Rollouts | None, start: Baseline | None
    ) -> list[Event]:
        all_readings, self._late_readings = [*readings, *self._late_readings], []
        self._add_checkpoints(attempt, readings)
        alarms = list(self._alarms.values())
        for one in all_readings:
            if one.name.startswith(GOLD_NAMES):
                series = self._gold_readings.setdefault(one.name, ReadingTable(one.name))
                series.add(one.attempt, one.step, one.value, one.n, one.stderr)
        raised = [alarm for alarm in alarms if alarm.tier == "alarm"]
        standing = stand(step, self._gold_readings, raised) if raised else None
        if standing is not None:
            alarms = [*standing.date(raised), *(alarm for alarm in alarms if alarm.tier != "alarm")]
        findings = self.diagnosis.update(attempt, step, all_readings, alarms, rollouts)
        onsets = {item.failure: self._onset(item, alarms) for item in self.diagnosis.standing if item.alarms}
        saved_steps = sorted(at for at in self._checkpoints.get(attempt, ()) if at <= step)
        if onsets and standing is not None and (best := standing.checkpoint(saved_steps, raised)) is not None:
            saved_steps = [at for at in saved_steps if at <= best.step]  # the onset is an estimate too
        interventions = self.interventions
        actions = (
            []
            if interventions is None
            else interventions.consider(attempt, step, findings, all_readings, saved_steps, onsets)
        )
        outcomes = [] if interventions is None else interventions.judge_outcome(step, all_readings)
        self._start_experiments(findings, rollouts, start)
        events = [event(finding, attempt, step, self._digest) for finding in findings]
        events += [event(action, attempt, step, self._digest) for action in actions]
        for outcome in outcomes:
            data = {"note": "outcome", **jsonable(asdict(outcome))}
            events.append(Event("note", attempt, step, data, event_id("note", "outcome", outcome.action, self._digest)))
        return events

    def handle_reply(self, message: Receipt | ControlRequest, attempt: int, step: int) -> list[Event]:
        """What a rank of the trainer did about a request, or a person decided about a proposal."""
        interventions = self.interventions
        if interventions is None:
            return []
        return self._guard(
            attempt,
            step,
            lambda: [event(action, attempt, step, self._digest) for action in interventions.heard(message, step)],
        )

    # -- outputs ------------------------------------------------------------------------------------------------------

    def send_requests(self) -> None:
        """Send the requests that need no approval to the trainer. Called once the proposals are on disk."""
        if (
            not self._live
            or self.interventions is None
            or self.interventions.mode != "act"
            or not self.interventions.open
        ):
            return
        try:
            token = read_token(self.run)
        except AttachError:
            return  # not the user who started training: no request can be signed
        for request in self.interventions.requests(self.interventions.open, canaries_pass=self.canaries_pass):
            if request.id in self._sent_ids:
                continue
            try:
                write_request(self.run, request, token)
            except FileExistsError:
                pass  # sent before this monitor was restarted
            self._sent_ids.add(request.id)

    def poll_experiments(self) -> Iterator[Mapping[str, Any]]:
        """The results of experiments that have ended."""
        results, self._results = self._results, []
        yield from results

    def _start_experiments(
        self, findings: Sequence[Finding], rollouts: Rollouts | None, start: Baseline | None
    ) -> None:
        """Score edited completions with the user's reward function, to confirm a finding; once per attempt."""
        if not self._live or self._reward is None or rollouts is None or not findings:
            return
        if (batch := rollouts()).completion is None:
            return
        for finding in findings:
            kind = self.diagnosis.experiment(finding.failure)
            if not kind or finding.confidence == 0.0 or (self._attempt, finding.failure) in self._started_experiments:
                continue
            phrases = phrases_overused_in(batch, start, 1) if kind == "drop_phrase" else []
            if kind == "drop_phrase" and not phrases:
                continue
            self._started_experiments.add((self._attempt, finding.failure))
            where = {"note": "experiment", "attempt": finding.attempt, "step": finding.step, "failure": finding.failure}
            phrase = phrases[0].text if phrases else None
            threading.Thread(target=self._run_experiment, args=(where, kind, batch, phrase), daemon=True).start()

    def _run_experiment(self, where: dict[str, Any], kind: str, batch: RolloutBatch, phrase: str | None) -> None:
        """Runs in its own thread: the user's function may be slow."""
        assert self._reward is not None and batch.completion is not None
        rows = [row for row, text in enumerate(batch.completion) if text is not None]
        prompts = [(batch.prompt[row] if batch.prompt is not None else None) or "" for row in rows]
        texts = [batch.completion[row] or "" for row in rows]
        facts = {} if batch.facts is None else {p: batch.facts[row] for p, row in zip(prompts, rows, strict=True)}
        gold = None
        if isinstance(self._gold, FunctionSource):
            # A separate instance: the other one may be labelling at the same time.
            gold = replace(self._gold)
        try:
            outcome = experiment(
                kind, prompts, texts, _scorer(self._reward, facts),
                phrase=phrase, phrases=HEDGES.phrases if kind == "drop_hedges" else (),
                gold=None if gold is None else _scorer(gold, facts),
            )  # fmt: skip
            result: dict[str, Any] = jsonable(asdict(outcome))
        except BaseException as error:  # noqa: BLE001  # the user's function: whatever it does, the monitor goes on
            result = {"sentence": f"the experiment failed: {type(error).__name__}: {str(error)[:200]}"}
        self._results.append({**where, "reward_function": self._reward.name, **result})

    def _guard(self, attempt: int, step: int, work: Callable[[], list[Event]]) -> list[Event]:
        """An error here becomes a fault and turns advice off until a new attempt; alarms go on."""
        if self._off:
            return []
        try:
            return work()
        except Exception as error:
            if self._strict:
                raise
            self._off = True
            fault = Fault(attempt, step, "counsel", f"{type(error).__name__}: {str(error)[:200]}", off=True)
            return [event(fault, attempt, step, self._digest)]

    # -- checkpoints and onsets ---------------------------------------------------------------------------------------

    def _add_checkpoints(self, attempt: int, readings: Iterable[Reading]) -> None:
        for reading in readings:
            if reading.name == CHECKPOINT:
                self._checkpoints.setdefault(attempt, set()).add(int(reading.value))

    @staticmethod
    def _onset(finding: Finding, alarms: Iterable[Alarm]) -> int:
        return min((alarm.onset for alarm in alarms if alarm.name in finding.alarms), default=finding.step)


def _scorer(
    source: FunctionSource, facts: Mapping[str, str | None]
) -> Callable[[list[str], list[str]], list[float | None]]:
    """The user's function in the form that experiments call: prompts and completions in, scores or None out."""

    def score(prompts: list[str], completions: list[str]) -> list[float | None]:
        requests = [
            GoldRequest(str(row), 0, 0, row, "experiment", prompt, text, from_text(facts.get(prompt)))
            for row, (prompt, text) in enumerate(zip(prompts, completions, strict=True))
        ]
        return [answer if isinstance(answer, (int, float)) else None for answer in source.label(requests)]

    return score
