"""The diagnosis: takes the readings and open alarms of a step, returns findings that are new or have changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from math import inf

from tiltmeter.data.records import Alarm, Finding, Reading, RolloutBatch
from tiltmeter.data.slices import reading_of
from tiltmeter.diagnosis.conditions import ConditionMatch, ConditionTracker
from tiltmeter.diagnosis.exemplars import exemplars
from tiltmeter.diagnosis.rules import MOVES, Condition, DiagnosisRule, RuleSet, builtin_rules

CERTAIN = 0.99  # rules are not proofs
GROWTH = 2.0  # of the size since the last report, from which it is reported again
MAX_CONDITIONS = 4  # whose numbers are put into a sentence


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A rule that holds at a step, with what makes it hold."""

    rule: DiagnosisRule
    confidence: float
    alarms: tuple[Alarm, ...]
    conditions: tuple[ConditionMatch, ...]
    doubt: str  # what is uncertain without gold
    ceiling: float = inf  # of its confidence, because a more specific rule holds


@dataclass(slots=True)
class _FollowedFailure:
    """A failure that is being followed: named once it has held long enough, over once it has been quiet long enough."""

    match: RuleMatch
    steps_held: int = 0
    quiet: int = 0
    finding: Finding | None = None
    size: float = 0.0  # of its first condition


class Diagnosis:
    """Names a run's failure, its cause and the fix, from its readings and its open alarms.

    An alarm says that gold is being lost. This says by which of the known ways, with the numbers and the completions
    that show it, so that the person who reads it knows what to change. Without an alarm it can only suspect: nothing
    but gold tells a hack from its benign twin, and such findings say so and are never above 40 %. A confidence is
    1 - Π (1 - weight) over the conditions that hold, weights being the rules' own: it orders findings and is no
    probability.

    A pure fold: the same readings and alarms, in the same order, give the same findings; only `exemplars` come from the
    batch. A finding of confidence 0 says that an earlier one no longer holds. A finding is reported when its failure
    appears, when its confidence has moved by 0.2, when its alarms change, when what it is about has doubled, and when
    it is over.

    >>> diagnosis = Diagnosis()
    >>> findings = []
    >>> for step in range(60):
    ...     gap = 0.01 if step < 30 else 0.2
    ...     findings += diagnosis.update(0, step, [Reading(0, step, "engine.gap.mean", gap, 64)], [])
    >>> [(finding.failure, finding.step > 30) for finding in findings]
    [('engine_mismatch', True)]
    """

    def __init__(self, rules: RuleSet | None = None) -> None:
        self.rules = builtin_rules() if rules is None else rules
        self._failures = {rule.name: rule.failure for rule in self.rules.rules}
        self._ordered = sorted(self.rules.rules, key=lambda rule: rule.otherwise)
        self.renew()

    def renew(self) -> None:
        """Forget everything: a new lineage begins, whose history the caller feeds again."""
        self.evidence = ConditionTracker(self.rules)
        self._standing: dict[str, _FollowedFailure] = {}
        self._edits: dict[str, bool] = {}  # by failure, whether an edit showed that the reward pays for it
        self._reordered = False  # an edit has come: whatever holds is reported with its new confidence
        self._explained: dict[str, set[str]] = {}  # by name of an open alarm, the failures that explain it

    def report_again(self) -> None:
        """Report again whatever holds: a history was folded, and its findings were not reported."""
        for item in self._standing.values():
            item.finding = None

    def segment(self) -> None:
        """The reward changes at this step: its readings begin anew, and no gain is computed across the change."""
        self.evidence.forget_reward()
        self._edits = {}

    def add_experiment(self, failure: str, is_paid: bool | None) -> None:
        """What an edit of completions showed of a failure (`edit_outcome`); it counts from the next step on."""
        if is_paid is not None:
            self._edits[failure] = is_paid
            self._reordered = True

    @property
    def standing(self) -> tuple[Finding, ...]:
        """The findings that hold now, the most confident first, as they were last reported."""
        findings = [item.finding for item in self._standing.values() if item.finding is not None]
        return tuple(sorted(findings, key=lambda finding: (-finding.confidence, finding.failure)))

    def rule(self, failure: str) -> str:
        """The name of the rule behind a finding that stands; empty if it does not."""
        state = self._standing.get(failure)
        return state.match.rule.name if state is not None and state.finding is not None else ""

    def experiment(self, failure: str) -> str:
        """The experiment that would confirm a finding that stands; empty if there is none."""
        state = self._standing.get(failure)
        return "" if state is None else state.match.rule.experiment

    def update(
        self,
        attempt: int,
        step: int,
        readings: Sequence[Reading],
        alarms: Sequence[Alarm],
        rollouts: Callable[[], RolloutBatch] | None = None,
    ) -> list[Finding]:
        """Fold one step; `alarms` are all that are open now, warnings too. Findings that are new or have changed."""
        self.evidence.fold(step, readings, alarms)
        proved = tuple(alarm for alarm in alarms if alarm.tier == "alarm")
        best: dict[str, RuleMatch] = {}
        for match in self._ranked(self._matches(step, proved)):
            best_match = best.get(match.rule.failure)
            if best_match is None or match.confidence > best_match.confidence:
                best[match.rule.failure] = match
        findings = []
        for failure in [*best, *(name for name in self._standing if name not in best)]:
            finding = self._follow(attempt, step, failure, best.get(failure))
            if finding is not None:
                if rollouts is not None and failure in best:
                    finding = replace(finding, exemplars=exemplars(rollouts(), best[failure].rule.show))
                findings.append(finding)
        self._reordered = False
        return sorted(findings, key=lambda finding: (-finding.confidence, finding.failure))

    def _matches(self, step: int, alarms: tuple[Alarm, ...]) -> list[RuleMatch]:
        """Every rule that holds. A rule with `otherwise` gives way to one that explains the same alarms.

        A finding that stands explains its alarms until it is over, so that two do not take turns.
        """
        lost = any(reading_of(alarm.name).startswith(("gold.", "eval.")) for alarm in alarms)
        healthy = [] if lost else [one for one in self.rules.healthy if one in self.evidence.holds]
        rises = any(condition.form in MOVES for condition in healthy)
        last_gold_step = self.evidence.last_gold_step
        has_gold = last_gold_step is not None and step - last_gold_step <= self.rules.settings.gold_age
        self._explained = {alarm.name: set() for alarm in alarms}
        for item in self._standing.values():
            if item.finding is not None and not item.match.rule.otherwise:
                self._explain(item.match.rule, item.finding.alarms)
        matches, gamed = [], False
        for rule in self._ordered:
            if rule.otherwise and (all(self._explained.values()) if alarms else gamed):
                continue
            match = self._match_rule(rule, alarms, healthy=bool(healthy), rises=rises, has_gold=has_gold)
            if match is not None:
                matches.append(match)
                self._explain(rule, _alarm_names(match))
                gamed |= rule.judged == "harm"
            elif (
                rule.otherwise and (state := self._standing.get(rule.failure)) is not None and state.finding is not None
            ):
                self._explain(rule, state.finding.alarms)
        return matches

    def _ranked(self, matches: list[RuleMatch]) -> list[RuleMatch]:
        """The same matches, a general one below the specific ones that show what it rests on.

        Refusals are stock phrases and hedges are length: what a general rule sees is then a part of the specific cause.
        """
        # As reported, since that is what a reader sees, and as long as it stands: two are not to take turns.
        confidences = {
            item.match.rule.name: item.finding.confidence
            for item in self._standing.values()
            if item.finding is not None
        }
        ranked = []
        for match in matches:  # a rule yields only to rules that stand before it
            specific = [
                confidences[name]
                for name in match.rule.yields_to
                if name in confidences and self._precedes(name, match.rule.failure)
            ]
            ceiling = self.rules.settings.yields * min(specific, default=inf)
            ranked.append(replace(match, confidence=min(match.confidence, ceiling), ceiling=ceiling))
            confidences[match.rule.name] = min(ranked[-1].confidence, confidences.get(match.rule.name, inf))
        return ranked

    def _precedes(self, name: str, general: str) -> bool:
        """Whether a specific rule still comes first once edits have shown what the reward pays for."""
        paid = self._edits.get(self._failures[name])
        return paid is not False and (paid is True or self._edits.get(general) is not True)

    def _explain(self, rule: DiagnosisRule, alarms: tuple[str, ...]) -> None:
        for name in alarms:
            if name in self._explained:
                self._explained[name].add(rule.failure)

    def _match_rule(
        self, rule: DiagnosisRule, alarms: tuple[Alarm, ...], *, healthy: bool, rises: bool, has_gold: bool
    ) -> RuleMatch | None:
        holds = self.evidence.holds
        explained = tuple(
            alarm for alarm in alarms if any(fnmatchcase(reading_of(alarm.name), name) for name in rule.explains)
        )
        if any(condition not in holds for condition in rule.must) or any(one in holds for one in rule.unless):
            return None
        some = [condition for condition in rule.any if condition in holds]
        # A reward that points towards gold is no gain yet: only gold that rises is.
        cleared = {"": False, "harm": healthy, "gain": rises}[rule.judged] and not explained
        if cleared or len(some) < (rule.least if explained else rule.alone):
            return None
        conditions: list[Condition] = [*rule.must, *some, *(condition for condition in rule.also if condition in holds)]
        remaining = 1.0
        for condition in conditions:
            remaining *= 1.0 - condition.weight
        if explained and not any(condition.alarm and condition.tier == "alarm" for condition in conditions):
            remaining *= 1.0 - self.rules.settings.alarm_weight
        paid = self._edits.get(rule.failure) if rule.experiment else None
        if paid is not None:
            settings = self.rules.settings
            remaining = remaining * (1.0 - settings.edit_weight) if paid else 1.0 - settings.unpaid * (1.0 - remaining)
        confidence, doubt = 1.0 - remaining, ""
        if rule.judged and not explained and (rule.judged == "harm" or not has_gold):
            confidence *= self.rules.settings.suspected
            doubt = "suspected, gold does not show it so far" if has_gold else "suspected, no gold to judge by"
        return RuleMatch(
            rule, min(confidence, CERTAIN), explained, tuple(holds[condition] for condition in conditions), doubt
        )

    def _follow(self, attempt: int, step: int, failure: str, match: RuleMatch | None) -> Finding | None:
        """The finding to report about one failure at this step, if any."""
        state = self._standing.get(failure)
        if match is None:
            assert state is not None
            return self._fade(attempt, step, state)
        if state is None:
            state = self._standing[failure] = _FollowedFailure(match)
        state.match, state.steps_held, state.quiet = match, state.steps_held + 1, 0
        previous, size = state.finding, match.conditions[0].size if match.conditions else 0.0
        if previous is None:
            if not match.alarms and state.steps_held < (match.rule.hold or self.rules.settings.hold):
                return None
        elif (
            abs(match.confidence - previous.confidence) < self.rules.settings.moved - 1e-9
            and previous.confidence <= match.ceiling
            and not self._reordered
            and previous.alarms == _alarm_names(match)
            and not size > GROWTH * state.size > 0.0
        ):
            return None
        state.finding, state.size = _finding(attempt, step, match), size
        return state.finding

    def _fade(self, attempt: int, step: int, state: _FollowedFailure) -> Finding | None:
        """A failure that nothing shows at this step: over after some quiet, or at once if its alarm is gone."""
        state.steps_held, state.quiet = 0, state.quiet + 1
        rule, previous = state.match.rule, state.finding
        if previous is None:
            del self._standing[rule.failure]
            return None
        why = ""
        if previous.alarms and not any(name in self._explained for name in previous.alarms):
            why = "its alarm is resolved"
        elif previous.alarms and rule.otherwise:
            by = [self._explained.get(name, set()) - {rule.failure} for name in previous.alarms]
            why = f"its alarm is explained by {min(by[0])}" if all(by) else ""
        elif not previous.alarms and rule.otherwise and self._explained:
            why = "an alarm has taken its place"
        if not why and state.quiet < self.rules.settings.quiet:
            return None
        del self._standing[rule.failure]
        summary = f"no longer: {rule.symptom} ({why or 'nothing has shown it for a while'})"
        return replace(previous, attempt=attempt, step=step, confidence=0.0, exemplars=(), summary=summary)


def _alarm_names(match: RuleMatch) -> tuple[str, ...]:
    return tuple(dict.fromkeys(alarm.name for alarm in match.alarms))


def _finding(attempt: int, step: int, match: RuleMatch) -> Finding:
    names = _alarm_names(match)
    alarmed = {alarm.name for alarm in match.alarms}
    phrases = [item.says for item in match.conditions if item.says][:MAX_CONDITIONS]
    phrases += [
        f"alarm on {alarm.name}"  # its onset is known better from day to day: the alarm says it
        for alarm in match.alarms
        if not any(alarm.name == item.about for item in match.conditions)
    ]
    sentence = f"{match.rule.symptom}: {_join_words(phrases)}" if phrases else match.rule.symptom
    return Finding(
        attempt=attempt,
        step=step,
        failure=match.rule.failure,
        confidence=round(match.confidence, 2),
        alarms=names,
        readings=tuple(dict.fromkeys(item.about for item in match.conditions if item.about not in alarmed)),
        cause=match.rule.cause,
        fix="; ".join(match.rule.fix),
        summary=f"{sentence} ({match.doubt})" if match.doubt else sentence,
    )


def _join_words(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
