"""What a run suffers from, what would help, what was done and what came of it: diagnosis and interventions in one fold.

The loop tells it everything in the order of the journal, so it says the same again when the journal is read again. Only
two things leave it: requests to the trainer, once the action that asks is on disk, and experiments on the user's own
reward function, whose results come back as arrivals.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tiltmeter.advice import advise
from tiltmeter.baseline import Baseline
from tiltmeter.control import Offer, Receipt, Request, ask
from tiltmeter.diagnosis import FAILURES, Diagnosis, experiment, knobs_for
from tiltmeter.errors import AttachError
from tiltmeter.facts import from_text
from tiltmeter.gold import GoldSource
from tiltmeter.gold import Request as Asked
from tiltmeter.gold.function import FunctionSource
from tiltmeter.instruments.phrases import overused
from tiltmeter.interventions.steward import Steward
from tiltmeter.journal import Event, event, event_id, jsonable
from tiltmeter.records import Alarm, Fault, Finding, Reading, RolloutBatch
from tiltmeter.signing import read_token
from tiltmeter.store import RunDirectory

GOLDEN = ("gold.mean", "gold.level", "gold.slope", "eval.")  # what a checkpoint's worth is estimated from
Rollouts = Callable[[], RolloutBatch]
CHECKPOINT = "training.checkpoint"  # the reading that says a checkpoint was saved, and at which step
ORDER = {failure: knobs_for(failure) for failure in FAILURES}


class Counsel:
    """One run's findings, proposals and outcomes. `live=False` asks nobody for anything: a replay, or a look back."""

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
        self.steward: Steward | None = None  # None: this run's trainer lets nothing be changed
        self._alarms: dict[tuple[object, ...], Alarm] = {}  # open ones, by identity
        self._late: list[Reading] = []  # labels and evaluations since the last step
        self._checkpoints: dict[int, set[int]] = {}  # steps by attempt
        self._golden: list[Reading] = []  # gold along the current lineage
        self._attempt = 0
        self.canaries_pass = False  # as the newest labels of a judge say; nobody else has any
        self._asked: set[str] = set()  # ids of requests that were written
        self._tried: set[tuple[int, str]] = set()  # (attempt, failure) of experiments
        self._results: list[dict[str, Any]] = []
        self._off = False

    # -- told by the loop ---------------------------------------------------------------------------------------------

    def alarmed(self, alarms: Iterable[Alarm]) -> None:
        """Alarms and warnings that were raised or resolved."""
        for alarm in alarms:
            key = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
            if alarm.resolved is None:
                self._alarms[key] = alarm
            else:
                self._alarms.pop(key, None)

    def late(self, readings: Iterable[Reading]) -> None:
        """Readings that came after their step; they are folded with the next one."""
        self._late += readings

    def leave(self) -> None:
        """The run goes on in another attempt: what belongs to the one that is left is forgotten."""
        self._alarms = {key: alarm for key, alarm in self._alarms.items() if alarm.tier == "alarm"}
        self._late = []  # what belongs to the lineage is in its history

    def mute(self) -> None:
        """Say nothing until a new attempt: a part of this has failed."""
        self._off = True

    def enter(
        self, attempt: int, step: int, history: Iterable[Sequence[Reading]], offer: Offer | None, *, judged: bool
    ) -> list[Event]:
        """An attempt's first step: the diagnosis sees its lineage alone; the trainer says what can be changed."""
        self._attempt, self._off = attempt, False
        return self._guard(attempt, step, lambda: self._enter(attempt, step, history, offer, judged))

    def _enter(
        self, attempt: int, step: int, history: Iterable[Sequence[Reading]], offer: Offer | None, judged: bool
    ) -> list[Event]:
        self.diagnosis.renew()
        self._golden = [reading for reading in self._golden if reading.step < step]
        for readings in history:
            self.diagnosis.update(attempt, readings[0].step if readings else -1, readings, ())
            self._saved(attempt, readings)
        self.diagnosis.retell()
        if offer is None:
            return []  # a loop of the user's own: nothing can be changed from here
        if self.steward is None:
            ranks = int(self.run.attempt(attempt).get("ranks", 1))
            self.steward = Steward(
                offer.mode, offer.knobs, judged=judged, target_kl=offer.target_kl, order=ORDER, ranks=ranks
            )
        made = self.steward.enter(attempt, offer.mode, offer.knobs)
        return [event(action, attempt, step, self._digest) for action in made]

    def segment(self) -> None:
        """Another reward pays from here on."""
        self.diagnosis.segment()

    def step(
        self, attempt: int, step: int, readings: Sequence[Reading], rollouts: Rollouts | None, start: Baseline | None
    ) -> list[Event]:
        """Findings, proposals and outcomes of a step that was measured; its rollouts are read only to show some."""
        return self._guard(attempt, step, lambda: self._step(attempt, step, readings, rollouts, start))

    def _step(
        self, attempt: int, step: int, readings: Sequence[Reading], rollouts: Rollouts | None, start: Baseline | None
    ) -> list[Event]:
        told, self._late = [*readings, *self._late], []
        self._saved(attempt, readings)
        alarms = list(self._alarms.values())
        found = self.diagnosis.update(attempt, step, told, alarms, rollouts)
        self._golden += [reading for reading in told if reading.name.startswith(GOLDEN)]
        onsets = {item.failure: self._onset(item, alarms) for item in self.diagnosis.standing if item.alarms}
        saved = sorted(self._checkpoints.get(attempt, ()))
        if onsets and saved and (best := advise(step, self._golden, alarms, saved).best) is not None:
            saved = [checkpoint for checkpoint in saved if checkpoint <= best.step]  # the onset is an estimate too
        steward = self.steward
        actions = [] if steward is None else steward.consider(attempt, step, found, told, saved, onsets)
        outcomes = [] if steward is None else steward.judge_outcome(step, told)
        self._try(found, rollouts, start)
        made = [event(finding, attempt, step, self._digest) for finding in found]
        made += [event(action, attempt, step, self._digest) for action in actions]
        for outcome in outcomes:
            data = {"note": "outcome", **jsonable(asdict(outcome))}
            made.append(Event("note", attempt, step, data, event_id("note", "outcome", outcome.action, self._digest)))
        return made

    def heard(self, told: Receipt | Request, attempt: int, step: int) -> list[Event]:
        """What a rank of the trainer did about a request, or a person decided about a proposal."""
        steward = self.steward
        if steward is None:
            return []
        return self._guard(
            attempt, step, lambda: [event(action, attempt, step, self._digest) for action in steward.heard(told, step)]
        )

    # -- what leaves --------------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Ask the trainer for what may be done without a person. Called once the proposals are on disk."""
        if not self._live or self.steward is None or self.steward.mode != "act" or not self.steward.open:
            return
        try:
            token = read_token(self.run)
        except AttachError:
            return  # not the user who trains: nothing can be asked from here
        for request in self.steward.requests(self.steward.open, canaries_pass=self.canaries_pass):
            if request.id in self._asked:
                continue
            try:
                ask(self.run, request, token)
            except FileExistsError:
                pass  # asked before this monitor was started again
            self._asked.add(request.id)

    def poll(self) -> Iterator[Mapping[str, Any]]:
        """Experiments that have ended."""
        results, self._results = self._results, []
        yield from results

    def _try(self, found: Sequence[Finding], rollouts: Rollouts | None, start: Baseline | None) -> None:
        """Try edited completions on the user's reward function, where that would confirm a finding; once an attempt."""
        if not self._live or self._reward is None or rollouts is None or not found:
            return
        if (batch := rollouts()).completion is None:
            return
        for finding in found:
            kind = self.diagnosis.experiment(finding.failure)
            if not kind or finding.confidence == 0.0 or (self._attempt, finding.failure) in self._tried:
                continue
            phrases = overused(batch, start, 1) if kind == "drop_phrase" else []
            if kind == "drop_phrase" and not phrases:
                continue
            self._tried.add((self._attempt, finding.failure))
            where = {"note": "experiment", "attempt": finding.attempt, "step": finding.step, "failure": finding.failure}
            phrase = phrases[0].text if phrases else None
            threading.Thread(target=self._run, args=(where, kind, batch, phrase), daemon=True).start()

    def _run(self, where: dict[str, Any], kind: str, batch: RolloutBatch, phrase: str | None) -> None:
        """On a thread of its own: the user's function may take its time."""
        assert self._reward is not None and batch.completion is not None
        rows = [row for row, text in enumerate(batch.completion) if text is not None]
        prompts = [(batch.prompt[row] if batch.prompt is not None else None) or "" for row in rows]
        texts = [batch.completion[row] or "" for row in rows]
        facts = {} if batch.facts is None else {p: batch.facts[row] for p, row in zip(prompts, rows, strict=True)}
        gold = None
        if isinstance(self._gold, FunctionSource):
            # One of its own: while it answers here, labels are still asked of the other.
            gold = FunctionSource(self._gold.name, self._gold.function)
        try:
            outcome = experiment(
                kind, prompts, texts, _asking(self._reward, facts),
                phrase=phrase, gold=None if gold is None else _asking(gold, facts),
            )  # fmt: skip
            told: dict[str, Any] = jsonable(asdict(outcome))
        except BaseException as error:  # noqa: BLE001  # the user's function: whatever it does, the monitor goes on
            told = {"sentence": f"the experiment failed: {type(error).__name__}: {str(error)[:200]}"}
        self._results.append({**where, "reward_function": self._reward.name, **told})

    def _guard(self, attempt: int, step: int, work: Callable[[], list[Event]]) -> list[Event]:
        """What goes wrong here is a fault of ours: alarms go on, and advice is off until a new attempt."""
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

    # -- what it knows ------------------------------------------------------------------------------------------------

    def _saved(self, attempt: int, readings: Iterable[Reading]) -> None:
        for reading in readings:
            if reading.name == CHECKPOINT:
                self._checkpoints.setdefault(attempt, set()).add(int(reading.value))

    @staticmethod
    def _onset(finding: Finding, alarms: Iterable[Alarm]) -> int:
        return min((alarm.onset for alarm in alarms if alarm.name in finding.alarms), default=finding.step)


def _asking(
    source: FunctionSource, facts: Mapping[str, str | None]
) -> Callable[[list[str], list[str]], list[float | None]]:
    """A function of the user's as experiments call it: prompts and completions in, numbers or None out."""

    def score(prompts: list[str], completions: list[str]) -> list[float | None]:
        asked = [
            Asked(str(row), 0, 0, row, "experiment", prompt, text, from_text(facts.get(prompt)))
            for row, (prompt, text) in enumerate(zip(prompts, completions, strict=True))
        ]
        return [answer if isinstance(answer, (int, float)) else None for answer in source.label(asked)]

    return score
