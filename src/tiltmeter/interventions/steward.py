"""Which change is proposed when, which may be made without asking, and what came of it: a fold, without clock or files.

Everything here follows from what it was told, in order, so a replay of the journal comes to the same proposals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tiltmeter.control import WEIGHT, Knob, Mode, Receipt, Request, request_for
from tiltmeter.interventions import BUILTIN, Intervention
from tiltmeter.interventions.docket import Docket, Entry
from tiltmeter.interventions.kl_controller import KlController
from tiltmeter.interventions.outcome import History, Outcome, outcome
from tiltmeter.interventions.proposal import action_id
from tiltmeter.interventions.roll_back import RollBack, Rollback, leash
from tiltmeter.records import Action, Alarm, Finding, Reading

COOL_DOWN = 20  # steps between two changes of one knob, and between two for one failure
PATIENCE = 50  # steps after which a proposal that nobody answered has expired
WINDOW = 20  # steps on each side that an outcome compares
WORTH_SAYING = 0.3  # confidence of a finding from which something is proposed
SURE = 0.5  # from which something is done without asking: more than a suspicion without gold can reach
#: What only a person may decide: the reward function that gained most may be the honest one.
ASK_FIRST = ("reward_weight",)
MOST_ROLLBACKS = 3  # a run that goes wrong this often needs another reward, not another try
GAIN = "reward.gain_share."
MOST_OF_IT = 0.5  # share of the gain from which a reward function is the one that brings it


class Steward:
    """Turns findings into proposals, hears what was done about them, and judges what followed.

    In mode `observe` it proposes nothing; in `advise` a person decides; in `act` it asks the trainer itself for what it
    is sure of. `judged`: gold is a judge's opinion, so what follows from it must be conservative and reversible.
    `order`: by failure, knobs from the most promising on, as `diagnosis.knobs_for` gives them.

    >>> steward = Steward("advise", {"beta": Knob("beta", 0.04, 1e-6, 1.0)})
    >>> finding = Finding(0, 120, "length_hacking", 0.8, ("gold.slope",), ())
    >>> [(action.id, action.after, action.state) for action in steward.consider(0, 120, [finding], [], [])]
    [('0-120-beta', 0.08, 'proposed')]
    >>> done = Receipt("0-120-beta.approve", 0, "applied", "beta", 0.04, 0.08, 123)
    >>> [action.state for action in steward.heard(done, 124)], steward.heard(done, 125), steward.knobs["beta"].value
    (['applied'], [], 0.08)
    """

    def __init__(
        self,
        mode: Mode,
        knobs: Mapping[str, Knob],
        *,
        judged: bool = False,
        target_kl: float | None = None,
        order: Mapping[str, Sequence[str]] | None = None,
        ranks: int = 1,
        cool_down: int = COOL_DOWN,
        patience: int = PATIENCE,
        window: int = WINDOW,
    ) -> None:
        self.mode: Mode = mode
        self.knobs = dict(knobs)  # as they stand now, as far as receipts tell
        self.judged, self.order = judged, dict(order or {})
        self.cool_down, self.patience, self.window = cool_down, patience, window
        self.docket = Docket(ranks)
        self._interventions: tuple[Intervention, ...] = tuple(make() for make in BUILTIN)
        self._controller = None if target_kl is None else KlController(target_kl)
        self._steered: int | None = None  # step of the controller's own last change, if that was the last of beta
        self._attempt: int | None = None
        self._standing: dict[str, Finding] = {}  # by failure
        self._changed: dict[str, int] = {}  # step of the last change or expiry, by knob
        self._shut: set[tuple[str, str]] = set()  # (failure, intervention) that were refused, rejected or did harm
        self._gains: dict[str, float] = {}  # newest share of the gain, by reward function
        self._history = History()

    def enter(self, attempt: int, mode: Mode | None = None, knobs: Mapping[str, Knob] | None = None) -> list[Action]:
        """A new attempt: its knobs stand as its trainer says, and what was proposed before it is over."""
        if attempt == self._attempt:
            return []
        self._attempt = attempt
        self.mode = self.mode if mode is None else mode
        self.knobs = self.knobs if knobs is None else dict(knobs)
        self._standing, self._changed, self._shut, self._gains = {}, {}, set(), {}
        if self._controller is not None:
            self._controller.restart()
        made = []
        for entry in self.docket:
            if isinstance(entry.action, Rollback) and entry.attempt is None and entry.action.attempt < attempt:
                entry.attempt = attempt  # its first steps show what came of it
            elif entry.is_open:
                made.append(entry.move("expired", "the run was started again before anybody answered"))
        return made

    def consider(
        self,
        attempt: int,
        step: int,
        findings: Iterable[Finding],
        readings: Iterable[Reading],
        checkpoints: Sequence[int],
        onsets: Mapping[str, int] | None = None,
    ) -> list[Action]:
        """What to propose now. Called once per step, when the step's readings and findings are made.

        A finding stands until one of its failure with confidence 0 comes, or a new attempt. `checkpoints`: steps that
        can be resumed from. `onsets`: by failure, the step to which its alarm dates the trouble; without it, a good
        checkpoint is one from a window before the finding.
        """
        made = self.enter(attempt)
        self.docket.tidy(KlController.name)
        self._take_in(readings)
        self._standing |= {finding.failure: finding for finding in findings}
        self._standing = {key: finding for key, finding in self._standing.items() if finding.confidence > 0.0}
        if self.mode == "observe":
            return []
        for entry in self.docket.open(attempt):
            if step > entry.action.step + self.patience:
                self._changed[entry.action.knob] = step
                made.append(entry.move("expired", f"nobody answered within {self.patience} steps"))
            elif (
                (now := self._standing.get(entry.finding.failure)) is not None
                and now.alarms
                and not entry.finding.alarms
            ):
                # It was proposed on a suspicion; an alarm asks for another answer, and may not have to wait for one.
                made.append(entry.move("expired", "an alarm was raised since"))
        for finding in sorted(self._standing.values(), key=lambda finding: (-finding.confidence, finding.failure)):
            if finding.confidence >= WORTH_SAYING:
                onset = (onsets or {}).get(finding.failure, finding.step - self.window + 1)
                good = [saved for saved in checkpoints if saved < min(onset, step)]
                if not self._is_being_tried(finding, attempt, step):
                    made += self._answer(replace(finding, attempt=attempt, step=step), good)
        return made + self._steer(attempt, step)

    def _answer(self, finding: Finding, good: Sequence[int]) -> Iterator[Action]:
        """The next thing to try against a finding, and what on the way to it cannot be done."""
        for part in self._choices(finding, bool(good)):
            if why := self._hindrance(part, good):
                self._shut.add((finding.failure, part.name))
                yield self._refused(finding, part, why)
                continue
            action = part.propose(finding, self._view(finding.step, good))
            if action is None:
                continue  # at its limit
            action = self._held(action)
            if not self._is_busy(action.knob, finding.step):
                self.docket.add(action, finding, part.name)
                yield action
            return

    def _is_alarmed(self, failure: str) -> bool:
        return failure in self._standing and bool(self._standing[failure].alarms)

    def _held(self, action: Action) -> Action:
        """A rollback that raises beta raises it far enough to hold the policy where it was good, if that is known."""
        if not isinstance(action, Rollback) or action.with_knob != "beta":
            return action
        back = int(action.after)
        points = self._history.window(action.attempt, back - self.window // 2, back).get("policy.kl.k3", [])
        kl = sum(value for _, value in points) / len(points) if points else 0.0
        if kl <= 0.0:
            return action
        value = self.knobs["beta"].clipped(max(action.with_value, leash(kl)))
        reason = (
            f"{action.finding}: back to step {back}, where the KL was {kl:.2g}, with beta {value:.2g} to hold it there"
        )
        return replace(action, with_value=value, reason=reason)

    def _choices(self, finding: Finding, saved: bool) -> list[Intervention]:
        """What may be tried next. What was tried in this attempt is repeated only if it helped.

        With an open alarm gold has been lost, and going back is the one thing that returns it: where nobody has to be
        asked it comes first, unless only a judge says so, whose word alone may not lead there.
        """
        failure = finding.failure
        used = {
            entry.part
            for entry in self.docket
            if entry.finding.failure == failure and entry.attempt == self._attempt and entry.action.state == "applied"
            if entry.verdict != "better" and not isinstance(entry.action, Rollback)
        }
        shut = {name for key, name in self._shut if key == failure}
        fit = [p for p in self._interventions if failure in p.answers and p.name not in used | shut]
        if failure not in self.order:
            return fit
        order = list(self.order[failure])
        if finding.alarms and saved and self.mode == "act" and not self.judged and RollBack.knob in order:
            order = [RollBack.knob, *(knob for knob in order if knob != RollBack.knob)]
        return [part for knob in order for part in fit if part.knob == knob]

    def _hindrance(self, part: Intervention, good: Sequence[int]) -> str:
        """Why this knob cannot be used at all, in this attempt; empty if it can."""
        named = [knob for name, knob in self.knobs.items() if name.split(".")[0] == part.knob]
        if not named and part.knob == "gold_share":
            return "how much is labelled was fixed at attach: start again with a larger gold_share"
        if not named:
            return f"this trainer has no {part.knob} that can be changed while it runs"
        if all(knob.why for knob in named):
            return named[0].why
        if part.knob != "rollback":
            return ""
        gone = [entry for entry in self.docket if isinstance(entry.action, Rollback) and entry.since is not None]
        if len(gone) >= MOST_ROLLBACKS:
            return f"the run went back {len(gone)} times already: the reward needs to change, not the settings"
        return "" if good else "there is no checkpoint from before the trouble: save more often"

    def _view(self, step: int, good: Sequence[int]) -> dict[str, Knob]:
        """The knobs as interventions want them: the good checkpoint as a ceiling, weights by what they gained."""
        view = {name: knob for name, knob in self.knobs.items() if not name.startswith(WEIGHT)}
        if "rollback" in view and good:
            view["rollback"] = Knob("rollback", float(step), 0.0, float(max(good)), view["rollback"].why)
        weights = {name.removeprefix(WEIGHT): knob for name, knob in self.knobs.items() if name.startswith(WEIGHT)}
        order = sorted(weights, key=lambda name: (-self._gains.get(name, 0.0), name))
        if order and self._gains.get(order[0], 0.0) >= MOST_OF_IT:
            view |= {f"{WEIGHT}{name}": weights[name] for name in order}
        return view

    def _refused(self, finding: Finding, part: Intervention, why: str) -> Action:
        """What would have helped and cannot be done: said once, because the reason names the fix."""
        value = self.knobs[part.knob].value if part.knob in self.knobs else 0.0
        key = f"{action_id(finding.attempt, finding.step, part.knob)}-{finding.failure}"
        reason = f"{finding.failure}: {part.name.replace('_', ' ')} would be an answer, but {why}"[:500]
        return Action(key, finding.attempt, finding.step, finding.failure, part.knob, value, value, reason, "refused")

    def _is_being_tried(self, finding: Finding, attempt: int, step: int) -> bool:
        """Whether something against this failure is open, still has to show its effect, or has helped so far."""
        mine = [entry for entry in self.docket if entry.finding.failure == finding.failure]
        if any(entry.is_open and entry.action.attempt == attempt for entry in mine):
            return True
        held = [entry for entry in mine if entry.attempt == attempt and entry.action.state == "applied"]
        if not held or held[-1].since is None:
            return False
        last, since = held[-1], held[-1].since
        if last.verdict == "better":
            return not self._history.falls(attempt, step, self.window)  # an alarm stays open though the harm is over
        waits = 2 * self.window if self._is_judged(last) and not last.verdict else self.cool_down
        return step < since + waits

    @staticmethod
    def _is_judged(entry: Entry) -> bool:
        """Nothing follows a stop, more labels change no policy, and the controller is always at it."""
        return entry.action.knob not in ("stop", "gold_share") and entry.part != KlController.name

    def _is_busy(self, knob: str, step: int) -> bool:
        if step < self._changed.get(knob, step - self.cool_down) + self.cool_down:
            return True
        return any(entry.action.knob == knob for entry in self.docket.open(self._attempt))

    def _steer(self, attempt: int, step: int) -> list[Action]:
        """What the KL controller asks for. It never lengthens the leash while something is wrong."""
        steer, beta = self._controller, self.knobs.get("beta")
        if steer is None or beta is None or beta.why or ("kl_target", steer.name) in self._shut:
            return []
        last = self._changed.get("beta")
        wait = steer.every if last == self._steered else self.cool_down
        if last is not None and step < last + wait:
            return []
        if any(entry.action.knob == "beta" for entry in self.docket.open(attempt)):
            return []
        finding = Finding(attempt, step, "kl_target", 1.0, (), steer.watches)
        action = steer.propose(finding, self.knobs)
        if action is None or (action.after < action.before and self._standing):
            return []
        self.docket.add(action, finding, steer.name)
        return [action]

    @property
    def open(self) -> list[Action]:
        """Proposals of this attempt that wait for an answer."""
        return [entry.action for entry in self.docket.open(self._attempt)]

    def requests(self, actions: Iterable[Action], *, canaries_pass: bool = False) -> list[Request]:
        """What to ask of the trainer without asking a person: in mode `act`, and of what this is sure of.

        The same actions give the same requests, with the same ids: asking twice is refused by the file system.
        `canaries_pass`: the judge, if gold is one, still answers questions with known answers rightly.
        """
        sent = []
        for action in actions if self.mode == "act" else ():
            entry = self.docket.entries.get(action.id)
            if entry is None or entry.action.state != "proposed" or not self._is_sure(entry, canaries_pass):
                continue
            made = entry.action
            knob, value = (made.with_knob, made.with_value) if isinstance(made, Rollback) else (None, None)
            until = made.step + self.patience
            sent.append(request_for(made, "apply", "monitor", expires_step=until, with_knob=knob, with_value=value))
        return sent

    def _is_sure(self, entry: Entry, canaries_pass: bool) -> bool:
        if entry.finding.confidence < SURE or entry.part in ASK_FIRST:
            return False
        evidence = (*entry.finding.alarms, *entry.finding.readings)
        if not self.judged or not any(name.startswith("gold") for name in evidence):
            return True
        part = next((part for part in self._interventions if part.name == entry.part), None)
        return canaries_pass and part is not None and part.conservative and part.reversible

    def heard(self, told: Receipt | Request, step: int) -> list[Action]:
        """What a receipt or an operator's request changes: the action in its new state, or nothing."""
        entry = self.docket.hear(told)
        return [] if entry is None else [self._follow(entry)]

    def recall(self, action: Action, step: int) -> None:
        """Take over what a journal says at `step` of an action that this has proposed, where no receipt is at hand."""
        entry = self.docket.recall(action, step)
        if entry is not None:
            self._follow(entry)

    def _follow(self, entry: Entry) -> Action:
        """Keep up with an action that has moved."""
        action = entry.action
        late = action.state == "refused" and "stale: " in action.reason  # measuring is behind: not its fault
        if action.state in ("refused", "rejected", "reverted") and not late:
            self._shut.add((entry.finding.failure, entry.part))
        if action.state in ("applied", "reverted") and entry.moved is not None:
            knobs = [action.knob, action.with_knob] if isinstance(action, Rollback) else [action.knob]
            self._changed |= dict.fromkeys(knobs, entry.moved)
            if action.knob in self.knobs and action.knob not in ("stop", "rollback"):
                # After a rollback the next attempt says itself how its knobs stand.
                self.knobs[action.knob] = replace(self.knobs[action.knob], value=entry.value)
            if "beta" in knobs and self._controller is not None:
                self._controller.restart()
                self._steered = entry.moved if entry.part == self._controller.name else None
        return action

    def judge_outcome(self, step: int, readings: Iterable[Reading] = ()) -> list[Outcome]:
        """Outcomes that are known now: a window of steps after a change, once the gold of that window has come.

        Gold may come late; after two windows the outcome is judged without what is missing. A rollback is held against
        the steps before it was proposed, in the attempt that was left. What failed is not proposed again.
        """
        self._take_in(readings)
        made = []
        for entry in self.docket:
            told = None if entry.verdict else self._outcome(entry, step)
            if told is not None:
                entry.verdict = told.verdict
                made.append(told)
                if told.verdict == "worse":
                    self._shut.add((entry.finding.failure, entry.part))
        return made

    def _outcome(self, entry: Entry, step: int) -> Outcome | None:
        action, since, attempt = entry.action, entry.since, entry.attempt
        if since is None or attempt is None or not self._is_judged(entry):
            return None
        if action.state == "reverted" or attempt != self._attempt:
            why = "undone" if action.state == "reverted" else "over with its attempt"
            told = f"after {action.knob} {action.before:g} -> {action.after:g}: it was {why} before it could be judged"
            return Outcome(action.id, attempt, step, "no clear change", told)
        end = since + self.window
        if step < end or (step < end + self.window and self._history.waits_for_gold(attempt, end)):
            return None
        left = (action.attempt, action.step) if isinstance(action, Rollback) else (attempt, since)
        before = self._history.window(left[0], left[1] - self.window + 1, left[1])
        after = self._history.window(attempt, since + 1, end)
        others = (t for t in self.docket if t is not entry and t.attempt == attempt and t.since is not None)
        knobs = sorted({t.action.knob for t in others if abs((t.since or 0) - since) < self.window})
        aside = f"; {', '.join(knobs)} changed in the same steps" if knobs else ""
        return outcome(action, attempt, step, before, after, aside)

    def _take_in(self, readings: Iterable[Reading]) -> None:
        for reading in readings:
            new = self._history.take_in(reading)
            if new and self._controller is not None and reading.name in self._controller.watches:
                self._controller.fold(reading)
            if reading.name.startswith(GAIN):
                self._gains[reading.name.removeprefix(GAIN)] = reading.value


def onsets(findings: Iterable[Finding], alarms: Iterable[Alarm]) -> dict[str, int]:
    """By failure, the earliest step to which an open alarm that it names dates the trouble.

    >>> alarm = Alarm(0, "gold.slope", "ledger", "alarm", "down", 120, 118, 90, 80, 100, 130.0, 125.0)
    >>> onsets([Finding(0, 120, "length_hacking", 0.8, ("gold.slope",), ())], [alarm])
    {'length_hacking': 90}
    """
    since: dict[str, int] = {}
    for alarm in alarms:
        if alarm.resolved is None and alarm.tier == "alarm":
            since[alarm.name] = min(alarm.onset, since.get(alarm.name, alarm.onset))
    found = {f.failure: [since[name] for name in f.alarms if name in since] for f in findings}
    return {failure: min(steps) for failure, steps in found.items() if steps}
