"""The intervention policy: which action to propose when, which to apply without asking, and how each turned out.

It uses neither clock nor files: the same inputs in the same order give the same proposals, so a replay agrees.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tiltmeter.data.records import Action, Alarm, Finding, Reading
from tiltmeter.interventions import BUILTIN, Intervention
from tiltmeter.interventions.action_log import ActionLog, Entry
from tiltmeter.interventions.kl_controller import KlController
from tiltmeter.interventions.outcome import ActionOutcome, ReadingHistory, outcome
from tiltmeter.interventions.proposal import action_id
from tiltmeter.interventions.roll_back import RollBack, RollbackAction, beta_for_kl
from tiltmeter.rundir.requests import ENDED, ROLLOUT_KNOBS, WEIGHT, ControlRequest, Knob, Mode, Receipt, request_for

COOL_DOWN = 20  # steps between two changes of one knob, and between two for one failure
PATIENCE = 50  # steps after which a proposal that nobody answered has expired
WINDOW = 20  # steps on each side that an outcome compares
PROPOSE_CONFIDENCE = 0.3  # confidence of a finding from which something is proposed
ACT_CONFIDENCE = 0.5  # from which something is done without asking: more than a suspicion without gold can reach
#: What only a person may decide: the reward function that gained most may be the honest one; a penalty teaches to hide.
ASK_FIRST = ("reward_weight", "penalise_rollouts", "inoculate_prompt")
MAX_SWINGS = 4  # times in a row that a change of a knob takes the one before it back
SWING = math.log(1.15)  # a change of at least this factor: the KL controller's small corrections are none
MAX_ROLLBACKS = 3  # a run that goes wrong this often needs another reward, not another try
GAIN = "reward.gain_share."
MAIN_GAIN_SHARE = 0.5  # share of the gain from which a reward function is the one that brings it


class InterventionPolicy:
    """Turns findings into proposed actions, follows their states, and judges their outcomes.

    In mode `observe` it proposes nothing; in `advise` a person decides; in `act` it asks the trainer itself for what it
    is sure of. `judged`: gold is a judge's opinion, so actions that follow from it must be conservative and reversible.
    `order`: by failure, knobs from the most promising on, as `diagnosis.knobs_for` gives them.

    >>> policy = InterventionPolicy("advise", {"beta": Knob("beta", 0.04, 1e-6, 1.0)})
    >>> finding = Finding(0, 120, "length_hacking", 0.8, ("gold.slope",), ())
    >>> [(action.id, action.after, action.state) for action in policy.consider(0, 120, [finding], [], [])]
    [('0-120-beta', 0.08, 'proposed')]
    >>> done = Receipt("0-120-beta.approve", 0, "applied", "beta", 0.04, 0.08, 123)
    >>> [action.state for action in policy.heard(done, 124)], policy.heard(done, 125), policy.knobs["beta"].value
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
        self.action_log = ActionLog(ranks)
        self._interventions: tuple[Intervention, ...] = tuple(make() for make in BUILTIN)
        self._controller = None if target_kl is None else KlController(target_kl)
        self._controller_step: int | None = (
            None  # step of the controller's own last change, if that was the last of beta
        )
        self._attempt: int | None = None
        self._standing: dict[str, Finding] = {}  # by failure
        self._last_change: dict[str, int] = {}  # step of the last change or expiry, by knob
        self._excluded: set[tuple[str, str]] = set()  # (failure, intervention) that were refused, rejected or did harm
        self._swings: dict[str, tuple[int, int]] = {}  # by knob: direction of its last change, and swings in a row
        self._gains: dict[str, float] = {}  # newest share of the gain, by reward function
        self._history = ReadingHistory()

    def begin_attempt(
        self, attempt: int, mode: Mode | None = None, knobs: Mapping[str, Knob] | None = None
    ) -> list[Action]:
        """Begin an attempt: its trainer reports its knobs, and open proposals from before it expire."""
        if attempt == self._attempt:
            return []
        self._attempt = attempt
        self.mode = self.mode if mode is None else mode
        self.knobs = self.knobs if knobs is None else dict(knobs)
        self._standing, self._last_change, self._excluded, self._gains = {}, {}, set(), {}
        if self._controller is not None:
            self._controller.restart()
        actions = []
        for entry in self.action_log:
            if isinstance(entry.action, RollbackAction) and entry.attempt is None and entry.action.attempt < attempt:
                entry.attempt = attempt  # its first steps show the outcome
            elif entry.is_open:
                actions.append(entry.move("expired", "the run was started again before anybody answered"))
        return actions

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
        actions = self.begin_attempt(attempt)
        self.action_log.tidy(KlController.name)
        self._add_readings(readings)
        self._standing |= {finding.failure: finding for finding in findings}
        self._standing = {key: finding for key, finding in self._standing.items() if finding.confidence > 0.0}
        if self.mode == "observe":
            return []
        for entry in self.action_log.open(attempt):
            if step > entry.action.step + self.patience:
                self._last_change[entry.action.knob] = step
                actions.append(entry.move("expired", f"nobody answered within {self.patience} steps"))
            elif (
                (now := self._standing.get(entry.finding.failure)) is not None
                and now.alarms
                and not entry.finding.alarms
            ):
                # It was proposed on a suspicion; an alarm asks for another answer, and may not have to wait for one.
                actions.append(entry.move("expired", "an alarm was raised since"))
        for finding in sorted(self._standing.values(), key=lambda finding: (-finding.confidence, finding.failure)):
            if finding.confidence >= PROPOSE_CONFIDENCE:
                onset = (onsets or {}).get(finding.failure, finding.step - self.window + 1)
                good = [saved for saved in checkpoints if saved < min(onset, step)]
                if not self._is_being_tried(finding, attempt, step):
                    actions += self._propose_for(replace(finding, attempt=attempt, step=step), good)
        return actions + self._controller_actions(attempt, step)

    def _propose_for(self, finding: Finding, good: Sequence[int]) -> Iterator[Action]:
        """The next action against a finding, after those that would come first and cannot be done."""
        for part in self._choices(finding, bool(good)):
            if why := self._why_unusable(part, good):
                self._excluded.add((finding.failure, part.name))
                yield self._refused_action(finding, part, why)
                continue
            action = part.propose(finding, self._proposal_knobs(finding.step, good))
            if action is None:
                continue  # at its limit
            action = self._hold_at_kl(action)
            if not self._is_busy(action.knob, finding.step):
                self.action_log.add(action, finding, part.name)
                yield action
            return

    def _hold_at_kl(self, action: Action) -> Action:
        """A rollback that raises beta raises it far enough to hold the policy where it was good, if that is known."""
        if not isinstance(action, RollbackAction) or action.with_knob != "beta":
            return action
        back = int(action.after)
        points = self._history.window(action.attempt, back - self.window // 2, back).get("policy.kl.k3", [])
        kl = sum(value for _, value in points) / len(points) if points else 0.0
        if kl <= 0.0:
            return action
        value = self.knobs["beta"].clip(max(action.with_value, beta_for_kl(kl)))
        reason = (
            f"{action.finding}: back to step {back}, where the KL was {kl:.2g}, with beta {value:.2g} to hold it there"
        )
        return replace(action, with_value=value, reason=reason)

    def _choices(self, finding: Finding, saved: bool) -> list[Intervention]:
        """What may be tried next. What was tried in this attempt is repeated only if it helped.

        With an open alarm gold has been lost, and going back is the one thing that returns it: where nobody has to be
        asked it comes first, unless gold is a judge, whose labels alone may not lead there.
        """
        failure = finding.failure
        used = {
            entry.part
            for entry in self.action_log
            if entry.finding.failure == failure and entry.attempt == self._attempt and entry.action.state == "applied"
            if entry.verdict != "better" and not isinstance(entry.action, RollbackAction)
        }
        shut = {name for key, name in self._excluded if key == failure}
        offered = {name.split(".")[0] for name in self.knobs}
        fit = [
            part
            for part in self._interventions
            if failure in part.answers and part.name not in used | shut
            if part.knob not in ROLLOUT_KNOBS or part.knob in offered  # these are there only where a user wants them
        ]
        if failure not in self.order:
            return fit
        order = list(self.order[failure])
        if finding.alarms and saved and self.mode == "act" and not self.judged and RollBack.knob in order:
            order = [RollBack.knob, *(knob for knob in order if knob != RollBack.knob)]
        return [part for knob in order for part in fit if part.knob == knob]

    def _why_unusable(self, part: Intervention, good: Sequence[int]) -> str:
        """Why this knob cannot be used at all, in this attempt; empty if it can."""
        matching = [knob for name, knob in self.knobs.items() if name.split(".")[0] == part.knob]
        if not matching and part.knob == "gold_share":
            return "how much is labelled was fixed at attach: start again with a larger Gold(share=)"
        if not matching:
            return f"this trainer has no {part.knob} that can be changed while it runs"
        if all(knob.why for knob in matching):
            return matching[0].why
        if why := self._why_left_alone([knob.name for knob in matching]):
            return why
        if part.knob != "rollback":
            return ""
        rollbacks = [
            entry for entry in self.action_log if isinstance(entry.action, RollbackAction) and entry.since is not None
        ]
        if len(rollbacks) >= MAX_ROLLBACKS:
            return f"the run went back {len(rollbacks)} times already: the reward needs to change, not the settings"
        return "" if good else "there is no checkpoint from before the trouble: save more often"

    def _why_left_alone(self, knobs: Sequence[str]) -> str:
        """Why knobs that were changed back and forth are not changed any more, in this run; empty if they may be."""
        if min(self._swings.get(name, (0, 0))[1] for name in knobs) < MAX_SWINGS:
            return ""
        return f"{knobs[0]} was changed back and forth {MAX_SWINGS} times in a row: it stays as it is in this run"

    def _count_swing(self, knob: str, before: float, after: float) -> None:
        if before > 0.0 and after > 0.0 and abs(math.log(after / before)) < SWING:
            self._swings.pop(knob, None)
            return
        direction = (after > before) - (after < before)
        last, swings = self._swings.get(knob, (0, 0))
        if direction:
            self._swings[knob] = (direction, swings + 1 if direction == -last else 0)

    def _proposal_knobs(self, step: int, good: Sequence[int]) -> dict[str, Knob]:
        """The knobs as interventions want them: the good checkpoint as a ceiling, weights by what they gained."""
        view = {name: knob for name, knob in self.knobs.items() if not name.startswith(WEIGHT)}
        if "rollback" in view and good:
            view["rollback"] = Knob("rollback", float(step), 0.0, float(max(good)), view["rollback"].why)
        weights = {name.removeprefix(WEIGHT): knob for name, knob in self.knobs.items() if name.startswith(WEIGHT)}
        order = sorted(weights, key=lambda name: (-self._gains.get(name, 0.0), name))
        if order and self._gains.get(order[0], 0.0) >= MAIN_GAIN_SHARE:
            view |= {f"{WEIGHT}{name}": weights[name] for name in order}
        return view

    def _refused_action(self, finding: Finding, part: Intervention, why: str) -> Action:
        """An action that would help and cannot be done: reported once, because the reason names the fix."""
        value = self.knobs[part.knob].value if part.knob in self.knobs else 0.0
        key = f"{action_id(finding.attempt, finding.step, part.knob)}-{finding.failure}"
        reason = f"{finding.failure}: {part.name.replace('_', ' ')} would be an answer, but {why}"[:500]
        return Action(key, finding.attempt, finding.step, finding.failure, part.knob, value, value, reason, "refused")

    def _is_being_tried(self, finding: Finding, attempt: int, step: int) -> bool:
        """Whether something against this failure is open, still has to show its effect, or has helped so far."""
        mine = [entry for entry in self.action_log if entry.finding.failure == finding.failure]
        if any(entry.is_open and entry.action.attempt == attempt for entry in mine):
            return True
        applied = [entry for entry in mine if entry.attempt == attempt and entry.action.state == "applied"]
        if not applied or applied[-1].since is None:
            return False
        last, since = applied[-1], applied[-1].since
        if last.verdict == "better":
            return not self._history.is_gold_falling(
                attempt, step, self.window
            )  # an alarm stays open though the harm is over
        wait = 2 * self.window if self._is_judged(last) and not last.verdict else self.cool_down
        return step < since + wait

    @staticmethod
    def _is_judged(entry: Entry) -> bool:
        """Whether its outcome is judged: not for a stop, for more labels, or for the KL controller."""
        return entry.action.knob not in ("stop", "gold_share") and entry.part != KlController.name

    def _is_busy(self, knob: str, step: int) -> bool:
        if step < self._last_change.get(knob, step - self.cool_down) + self.cool_down:
            return True
        return any(entry.action.knob == knob for entry in self.action_log.open(self._attempt))

    def _controller_actions(self, attempt: int, step: int) -> list[Action]:
        """What the KL controller proposes. It never lowers beta while a finding stands."""
        controller, beta = self._controller, self.knobs.get("beta")
        if controller is None or beta is None or beta.why or ("kl_target", controller.name) in self._excluded:
            return []
        last = self._last_change.get("beta")
        wait = controller.every if last == self._controller_step else self.cool_down
        if last is not None and step < last + wait:
            return []
        if any(entry.action.knob == "beta" for entry in self.action_log.open(attempt)):
            return []
        finding = Finding(attempt, step, "kl_target", 1.0, (), controller.watches)
        if why := self._why_left_alone(["beta"]):
            self._excluded.add(("kl_target", controller.name))
            return [self._refused_action(finding, controller, why)]
        action = controller.propose(finding, self.knobs)
        if action is None or (action.after < action.before and self._standing):
            return []
        self.action_log.add(action, finding, controller.name)
        return [action]

    @property
    def open(self) -> list[Action]:
        """Proposals of this attempt that wait for an answer."""
        return [entry.action for entry in self.action_log.open(self._attempt)]

    def requests(self, actions: Iterable[Action], *, canaries_pass: bool = False) -> list[ControlRequest]:
        """What to ask of the trainer without asking a person: in mode `act`, and of what this is sure of.

        The same actions give the same requests, with the same ids: asking twice is refused by the file system.
        `canaries_pass`: the judge, if gold is one, still answers questions with known answers rightly.
        """
        requests = []
        for action in actions if self.mode == "act" else ():
            entry = self.action_log.entries.get(action.id)
            if entry is None or entry.action.state != "proposed" or not self._is_sure(entry, canaries_pass):
                continue
            proposal = entry.action
            knob, value = (
                (proposal.with_knob, proposal.with_value) if isinstance(proposal, RollbackAction) else (None, None)
            )
            until = proposal.step + self.patience
            requests.append(
                request_for(proposal, "apply", "monitor", expires_step=until, with_knob=knob, with_value=value)
            )
        return requests

    def _is_sure(self, entry: Entry, canaries_pass: bool) -> bool:
        if entry.finding.confidence < ACT_CONFIDENCE or entry.part in ASK_FIRST:
            return False
        evidence = (*entry.finding.alarms, *entry.finding.readings)
        if not self.judged or not any(name.startswith("gold") for name in evidence):
            return True
        part = next((part for part in self._interventions if part.name == entry.part), None)
        return canaries_pass and part is not None and part.conservative and part.reversible

    def heard(self, message: Receipt | ControlRequest, step: int) -> list[Action]:
        """What a receipt or an operator's request changes: the action in its new state, or nothing."""
        if isinstance(message, Receipt) and message.id.endswith(f".{ENDED}"):
            return self._record_end(message)
        entry = self.action_log.apply_message(message)
        return [] if entry is None else [self._record_change(entry)]

    def _record_end(self, receipt: Receipt) -> list[Action]:
        """The trainer has put a knob back itself: whatever had turned it is over, and it is not turned again."""
        knob, name = self.knobs.get(receipt.knob), receipt.id.rpartition(".")[0]
        is_ours = self._attempt is not None and name.startswith(f"{self._attempt}-")
        if knob is None or not is_ours or (knob.why and knob.value == receipt.after):  # heard before
            return []
        why = f"ended by the trainer: {receipt.why}"
        ended = []
        for entry in self.action_log.in_force(receipt.knob, self._attempt):
            entry.changed_step, entry.value = receipt.step, receipt.after
            entry.move("reverted", why)
            ended.append(self._record_change(entry))
        self._last_change[receipt.knob] = receipt.step
        self.knobs[receipt.knob] = replace(knob, value=receipt.after, why=receipt.why)
        if not ended:  # on since attach: there was no action that it could be the end of
            attempt = int(name.partition("-")[0])
            values = (receipt.knob, receipt.after, receipt.before)
            ended = [Action(name, attempt, receipt.step, "on since attach", *values, why[:500], "reverted")]
        return ended

    def restore(self, action: Action, step: int) -> None:
        """Restore the state that the journal has at `step` for a proposed action, where there is no receipt."""
        entry = self.action_log.restore(action, step)
        if entry is not None:
            self._record_change(entry)

    def _record_change(self, entry: Entry) -> Action:
        """Update knobs and exclusions after an action has changed its state."""
        action = entry.action
        late = action.state == "refused" and "stale: " in action.reason  # measuring is behind: not its fault
        if action.state in ("refused", "rejected", "reverted") and not late:
            self._excluded.add((entry.finding.failure, entry.part))
        if action.state in ("applied", "reverted") and entry.changed_step is not None:
            knobs = [action.knob, action.with_knob] if isinstance(action, RollbackAction) else [action.knob]
            self._last_change |= dict.fromkeys(knobs, entry.changed_step)
            if action.knob in self.knobs and action.knob not in ("stop", "rollback"):
                # After a rollback the next attempt says itself how its knobs stand.
                self._count_swing(action.knob, self.knobs[action.knob].value, entry.value)
                self.knobs[action.knob] = replace(self.knobs[action.knob], value=entry.value)
            if "beta" in knobs and self._controller is not None:
                self._controller.restart()
                self._controller_step = entry.changed_step if entry.part == self._controller.name else None
        return action

    def judge_outcome(self, step: int, readings: Iterable[Reading] = ()) -> list[ActionOutcome]:
        """Outcomes that are known now: a window of steps after a change, once the gold of that window has come.

        Gold may come late; after two windows the outcome is judged without what is missing. A rollback is compared
        with the steps before it was proposed, in the abandoned attempt. What failed is not proposed again.
        """
        self._add_readings(readings)
        outcomes = []
        for entry in self.action_log:
            result = None if entry.verdict else self._judge_entry(entry, step)
            if result is not None:
                entry.verdict = result.verdict
                outcomes.append(result)
                if result.verdict == "worse":
                    self._excluded.add((entry.finding.failure, entry.part))
        return outcomes

    def _judge_entry(self, entry: Entry, step: int) -> ActionOutcome | None:
        action, since, attempt = entry.action, entry.since, entry.attempt
        if since is None or attempt is None or not self._is_judged(entry):
            return None
        if action.state == "reverted" or attempt != self._attempt:
            why = "undone" if action.state == "reverted" else "over with its attempt"
            sentence = (
                f"after {action.knob} {action.before:g} -> {action.after:g}: it was {why} before it could be judged"
            )
            return ActionOutcome(action.id, attempt, step, "no clear change", sentence)
        end = since + self.window
        if step < end or (step < end + self.window and self._history.waits_for_gold(attempt, end)):
            return None
        origin = (action.attempt, action.step) if isinstance(action, RollbackAction) else (attempt, since)
        before = self._history.window(origin[0], origin[1] - self.window + 1, origin[1])
        after = self._history.window(attempt, since + 1, end)
        others = (t for t in self.action_log if t is not entry and t.attempt == attempt and t.since is not None)
        knobs = sorted({t.action.knob for t in others if abs((t.since or 0) - since) < self.window})
        remark = f"; {', '.join(knobs)} changed in the same steps" if knobs else ""
        return outcome(action, attempt, step, before, after, remark)

    def _add_readings(self, readings: Iterable[Reading]) -> None:
        for reading in readings:
            new = self._history.add(reading)
            if new and self._controller is not None and reading.name in self._controller.watches:
                self._controller.fold(reading)
            if reading.name.startswith(GAIN):
                self._gains[reading.name.removeprefix(GAIN)] = reading.value


def onsets(findings: Iterable[Finding], alarms: Iterable[Alarm]) -> dict[str, int]:
    """By failure, the earliest step to which an open alarm that it names dates the trouble.

    >>> alarm = Alarm(0, "gold.slope", "gold_loss", "alarm", "down", 120, 118, 90, 80, 100, 130.0, 125.0)
    >>> onsets([Finding(0, 120, "length_hacking", 0.8, ("gold.slope",), ())], [alarm])
    {'length_hacking': 90}
    """
    since: dict[str, int] = {}
    for alarm in alarms:
        if alarm.resolved is None and alarm.tier == "alarm":
            since[alarm.name] = min(alarm.onset, since.get(alarm.name, alarm.onset))
    by_failure = {f.failure: [since[name] for name in f.alarms if name in since] for f in findings}
    return {failure: min(steps) for failure, steps in by_failure.items() if steps}
