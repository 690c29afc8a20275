"""The fold: readings and open alarms of a step go in, findings that are new or have changed come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tiltmeter.diagnosis.evidence import Evidence, Holding
from tiltmeter.diagnosis.exemplars import exemplars
from tiltmeter.diagnosis.rules import Condition, Rule, Rules, builtin_rules
from tiltmeter.records import Alarm, Finding, Reading, RolloutBatch

CERTAIN = 0.99  # rules are not proofs
GROWN = 2.0  # times what was told: told again
TOLD = 4  # conditions whose numbers are put into a sentence


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that holds at a step, with what makes it hold."""

    rule: Rule
    confidence: float
    alarms: tuple[Alarm, ...]
    holding: tuple[Holding, ...]
    doubt: str  # what gold leaves open


@dataclass(slots=True)
class _Standing:
    """A failure that is being followed: named once it has held long enough, over once it has been quiet long enough."""

    case: Match
    held: int = 0
    quiet: int = 0
    told: Finding | None = None
    size: float = 0.0  # of what is told first


class Diagnosis:
    """Names what a run suffers from, why, and what would mend it, from its readings and its open alarms.

    An alarm says that gold is being lost. This says by which of the known ways, with the numbers and the completions
    that show it, so that the person who reads it knows what to change. Without an alarm it can only suspect: nothing
    but gold tells a hack from its benign twin, and such findings say so and carry half the confidence. A confidence is
    1 - Π (1 - weight) over the conditions that hold, weights being the rules' own: it orders findings and is no
    probability.

    A pure fold: the same readings and alarms, in the same order, give the same findings; only `exemplars` come from the
    batch. A finding of confidence 0 says that an earlier one no longer holds. A finding is told when its failure
    appears, when its confidence has moved by 0.2, when its alarms change, when what it is about has doubled, and when
    it is over.

    >>> diagnosis = Diagnosis()
    >>> told = []
    >>> for step in range(60):
    ...     gap = 0.01 if step < 30 else 0.2
    ...     told += diagnosis.update(0, step, [Reading(0, step, "engine.gap.mean", gap, 64)], [])
    >>> [(finding.failure, finding.step > 30) for finding in told]
    [('engine_mismatch', True)]
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = builtin_rules() if rules is None else rules
        self._ordered = sorted(self.rules.rules, key=lambda rule: rule.otherwise)
        self.renew()

    def renew(self) -> None:
        """Forget everything: a new lineage begins, whose history the caller feeds again."""
        self.evidence = Evidence(self.rules)
        self._standing: dict[str, _Standing] = {}
        self._explained: dict[str, set[str]] = {}  # by name of an open alarm, the failures that explain it

    def retell(self) -> None:
        """Tell again whatever holds: a history was folded, and nobody has heard what it showed."""
        for item in self._standing.values():
            item.told = None

    def segment(self) -> None:
        """Another reward pays from this step on: its readings begin anew, and no gain is seen across the change."""
        self.evidence.forget_reward()

    @property
    def standing(self) -> tuple[Finding, ...]:
        """The findings that hold now, the surest first, as they were last told."""
        told = [item.told for item in self._standing.values() if item.told is not None]
        return tuple(sorted(told, key=lambda finding: (-finding.confidence, finding.failure)))

    def rule(self, failure: str) -> str:
        """The name of the rule behind a finding that stands; empty if it does not."""
        found = self._standing.get(failure)
        return found.case.rule.name if found is not None and found.told is not None else ""

    def experiment(self, failure: str) -> str:
        """The experiment that would confirm a finding that stands; empty if there is none."""
        found = self._standing.get(failure)
        return "" if found is None else found.case.rule.experiment

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
        best: dict[str, Match] = {}
        for case in self._cases(step, proved):
            known = best.get(case.rule.failure)
            if known is None or case.confidence > known.confidence:
                best[case.rule.failure] = case
        found = []
        for failure in [*best, *(name for name in self._standing if name not in best)]:
            finding = self._follow(attempt, step, failure, best.get(failure))
            if finding is not None:
                if rollouts is not None and failure in best:
                    finding = replace(finding, exemplars=exemplars(rollouts(), best[failure].rule.show))
                found.append(finding)
        return sorted(found, key=lambda finding: (-finding.confidence, finding.failure))

    def _cases(self, step: int, alarms: tuple[Alarm, ...]) -> list[Match]:
        """Every rule that holds. Those that stand back do so for a rule that explains the same alarms.

        A finding that stands explains its alarms until it is over, so that two do not take turns.
        """
        healthy = any(condition in self.evidence.holds for condition in self.rules.healthy)
        golden = self.evidence.golden
        judged = golden is not None and step - golden <= self.rules.settings.gold_age
        self._explained = {alarm.name: set() for alarm in alarms}
        for item in self._standing.values():
            if item.told is not None and not item.case.rule.otherwise:
                self._explain(item.case.rule, item.told.alarms)
        cases, gamed = [], False
        for rule in self._ordered:
            if rule.otherwise and (all(self._explained.values()) if alarms else gamed):
                continue
            case = self._case(rule, alarms, healthy=healthy, judged=judged)
            if case is not None:
                cases.append(case)
                self._explain(rule, _names(case))
                gamed |= rule.judged == "harm"
            elif rule.otherwise and (known := self._standing.get(rule.failure)) is not None and known.told is not None:
                self._explain(rule, known.told.alarms)
        return cases

    def _explain(self, rule: Rule, alarms: tuple[str, ...]) -> None:
        for name in alarms:
            if name in self._explained:
                self._explained[name].add(rule.failure)

    def _case(self, rule: Rule, alarms: tuple[Alarm, ...], *, healthy: bool, judged: bool) -> Match | None:
        holds = self.evidence.holds
        carried = tuple(alarm for alarm in alarms if any(fnmatchcase(alarm.name, name) for name in rule.explains))
        if any(condition not in holds for condition in rule.must) or any(one in holds for one in rule.unless):
            return None
        some = [condition for condition in rule.any if condition in holds]
        if len(some) < (rule.least if carried else rule.alone) or (rule.judged and healthy and not carried):
            return None
        shown: list[Condition] = [*rule.must, *some, *(condition for condition in rule.also if condition in holds)]
        left = 1.0
        for condition in shown:
            left *= 1.0 - condition.weight
        if carried and not any(condition.alarm and condition.tier == "alarm" for condition in shown):
            left *= 1.0 - self.rules.settings.alarm_weight
        confidence, doubt = 1.0 - left, ""
        if rule.judged and not carried and (rule.judged == "harm" or not judged):
            confidence *= self.rules.settings.suspected
            doubt = "suspected, gold does not show it so far" if judged else "suspected, no gold to judge by"
        return Match(rule, min(confidence, CERTAIN), carried, tuple(holds[condition] for condition in shown), doubt)

    def _follow(self, attempt: int, step: int, failure: str, case: Match | None) -> Finding | None:
        """What is to be told about one failure at this step, if anything."""
        known = self._standing.get(failure)
        if case is None:
            assert known is not None
            return self._fade(attempt, step, known)
        if known is None:
            known = self._standing[failure] = _Standing(case)
        known.case, known.held, known.quiet = case, known.held + 1, 0
        told, size = known.told, case.holding[0].size if case.holding else 0.0
        if told is None:
            if not case.alarms and known.held < (case.rule.hold or self.rules.settings.hold):
                return None
        elif (
            abs(case.confidence - told.confidence) < self.rules.settings.moved - 1e-9
            and told.alarms == _names(case)
            and not size > GROWN * known.size > 0.0
        ):
            return None
        known.told, known.size = _finding(attempt, step, case), size
        return known.told

    def _fade(self, attempt: int, step: int, known: _Standing) -> Finding | None:
        """A failure that nothing shows at this step: over after some quiet, or at once if its alarm is gone."""
        known.held, known.quiet = 0, known.quiet + 1
        rule, told = known.case.rule, known.told
        if told is None:
            del self._standing[rule.failure]
            return None
        why = ""
        if told.alarms and not any(name in self._explained for name in told.alarms):
            why = "its alarm is resolved"
        elif told.alarms and rule.otherwise:
            by = [self._explained.get(name, set()) - {rule.failure} for name in told.alarms]
            why = f"its alarm is explained by {min(by[0])}" if all(by) else ""
        elif not told.alarms and rule.otherwise and self._explained:
            why = "an alarm has taken its place"
        if not why and known.quiet < self.rules.settings.quiet:
            return None
        del self._standing[rule.failure]
        summary = f"no longer: {rule.symptom} ({why or 'nothing has shown it for a while'})"
        return replace(told, attempt=attempt, step=step, confidence=0.0, exemplars=(), summary=summary)


def _names(case: Match) -> tuple[str, ...]:
    return tuple(dict.fromkeys(alarm.name for alarm in case.alarms))


def _finding(attempt: int, step: int, case: Match) -> Finding:
    names = _names(case)
    alarmed = {alarm.name for alarm in case.alarms}
    told = [item.says for item in case.holding if item.says][:TOLD]
    told += [
        f"alarm on {alarm.name} since about step {alarm.onset}"
        for alarm in case.alarms
        if not any(alarm.name == item.about for item in case.holding)
    ]
    sentence = f"{case.rule.symptom}: {_listed(told)}" if told else case.rule.symptom
    return Finding(
        attempt=attempt,
        step=step,
        failure=case.rule.failure,
        confidence=round(case.confidence, 2),
        alarms=names,
        readings=tuple(dict.fromkeys(item.about for item in case.holding if item.about not in alarmed)),
        cause=case.rule.cause,
        fix="; ".join(case.rule.fix),
        summary=f"{sentence} ({case.doubt})" if case.doubt else sentence,
    )


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
