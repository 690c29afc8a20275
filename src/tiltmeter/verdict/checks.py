"""The nine checks that a healthy run must pass: whether its data is there, and whether its gold can say that it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tiltmeter.stats.intervals import upper_bound
from tiltmeter.verdict.checkpoint_gold import AskedCheckpoint
from tiltmeter.verdict.evidence_words import awaited_text, gold_reason
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import Advice

#: The nine checks, in the order in which a failure is reported.
CHECKS = ("monitor", "fresh", "gold", "gold_recent", "gold_level", "detectors", "ranks", "kept", "scored")

NO_COMPLETIONS = "no completions"  # of the check `scored`
RECENT_STEPS = 40  # two blocks of the alarm's test: older gold is no evidence about the current policy
MISSING_SHARE = 0.1  # of labels that never came: each counts in favour of the run, so many of them hide its harm
EVALUATIONS = 2  # at least two are needed to see a fall
TRAPPED = 0.25  # of answers: while so many may take pay that honest work cannot earn, traps say nothing
LOST_SHARE = 0.01
INFRA_SHARE = 0.05
UNPAID_SHARE = 1 / 3  # of completions without a reward, whatever the reason: the reward function is broken
PATIENCE_SECONDS = 60.0
UNKNOWN_PACE_SECONDS = 600.0  # used until the duration of a step is known: loading a model takes time


@dataclass(frozen=True)
class HealthCheck:
    """One of the nine checks: whether it passed, and why."""

    ok: bool
    why: str


@dataclass(frozen=True)
class Ages:
    """Seconds since the trainer's last data, and since the oldest step that is not measured yet was written."""

    data: float
    waiting: float | None  # None: nothing waits
    behind: int = 0  # steps that are stored and not measured, or 1 for an attempt nobody has looked at
    over: bool = False  # every rank has closed: what is not measured now is late, not on its way


def run_checks(
    run_facts: RunFacts, ages: Ages, advice: Advice | None, *, impatient: bool = False
) -> dict[str, HealthCheck]:
    """Each by its name."""
    gold = _GoldEvidence.of(run_facts)
    return {
        "monitor": _monitor_check(run_facts, ages, impatient),
        "fresh": _fresh_check(run_facts, ages),
        "gold": _gold_check(run_facts, gold),
        "gold_recent": _recent_check(run_facts, gold),
        "gold_level": _trap_check(gold.traps) if gold.by_traps and gold.traps else _level_check(advice),
        "detectors": _detectors_check(run_facts),
        "ranks": _ranks_check(run_facts),
        "kept": _kept_check(run_facts),
        "scored": _scored_check(run_facts),
    }


def _alarm_parts(run_facts: RunFacts) -> list[Mapping[str, Any]]:
    return [part for part in run_facts.detectors if part["tier"] == "alarm"]


@dataclass(frozen=True)
class _GoldEvidence:
    """What gold there is: labels that can be bet on, declared evaluations, traps."""

    least: int  # prompts with gold that the alarm needs
    enough: bool  # so many there are, and gold is not the reward
    lacking: bool  # too many labels never came
    declared: list[tuple[int, int]]  # evaluations of the current lineage
    traps: list[tuple[int, int, int, int]]  # recent ones
    trapped: bool  # any ever

    @classmethod
    def of(cls, run_facts: RunFacts) -> _GoldEvidence:
        spans, (missing, requested, _) = run_facts.spans(), run_facts.missing_labels
        least = max([1, *(int(part["least"]) for part in _alarm_parts(run_facts))])
        return cls(
            least,
            run_facts.bets >= least and run_facts.gold_differs and run_facts.open_trial is None,
            missing > MISSING_SHARE * requested,
            [at for at in run_facts.evaluations if at[1] < spans.get(at[0], -1)],
            [at for at in run_facts.traps if _is_recent(run_facts, at[:2], RECENT_STEPS, spans)],
            bool(run_facts.traps),
        )

    @property
    def evaluated(self) -> bool:
        return len(self.declared) >= EVALUATIONS

    @property
    def by_traps(self) -> bool:
        return self.trapped and not (self.enough or self.evaluated)

    @property
    def is_there(self) -> bool:
        return not self.lacking and (self.enough or self.evaluated or self.by_traps)


def _is_recent(run_facts: RunFacts, at: tuple[int, int], steps: int, spans: Mapping[int, float]) -> bool:
    """Whether a step is recent enough, and in the current lineage, to be evidence about the run."""
    return at[1] < spans.get(at[0], -1) and run_facts.last_step - at[1] <= steps


def _gold_check(run_facts: RunFacts, gold: _GoldEvidence) -> HealthCheck:
    if why := run_facts.void_gold or run_facts.gold_audit.failure:
        return HealthCheck(False, why)
    return HealthCheck(gold.is_there, gold_reason(run_facts, gold.least, gold.lacking, gold.evaluated))


def _recent_check(run_facts: RunFacts, gold: _GoldEvidence) -> HealthCheck:
    spans, declared = run_facts.spans(), gold.declared
    labelled = run_facts.last_bet is not None and _is_recent(run_facts, run_facts.last_bet, RECENT_STEPS, spans)
    # Up to twice the usual gap is still recent: a benchmark may be run every hundred steps.
    gap = max(RECENT_STEPS, 2 * (declared[-1][1] - declared[-2][1])) if gold.evaluated else 0
    recent = labelled or bool(gold.traps) or (gold.evaluated and _is_recent(run_facts, declared[-1], gap, spans))
    all_gold = (run_facts.last_bet, *declared[-1:], *run_facts.traps[-1:])
    newest = max((at[1] for at in all_gold if at is not None), default=-1)
    why = f"newest gold is of step {newest}, the run is at {run_facts.last_step}"
    why = why if newest >= 0 else "no prompt group with informative gold so far"
    return HealthCheck(recent, f"{why}{awaited_text(run_facts)}")


def _monitor_check(run_facts: RunFacts, ages: Ages, impatient: bool) -> HealthCheck:
    is_late = ages.waiting is not None and (ages.over or impatient or ages.waiting > patience_seconds(run_facts))
    if ages.behind:
        why = f"{ages.behind} stored steps are not measured yet; to measure them: tiltmeter watch RUN"
    else:
        why = "every stored step is measured" if run_facts.steps else "no step has been measured yet"
    return HealthCheck(not is_late and bool(run_facts.steps), why)


def _fresh_check(run_facts: RunFacts, ages: Ages) -> HealthCheck:
    if run_facts.attempt is not None and run_facts.attempt in run_facts.ended:
        return HealthCheck(True, "the run has ended")
    why = f"the trainer was last heard of {duration_text(ages.data)} ago"
    return HealthCheck(ages.data <= patience_seconds(run_facts), why)


def _detectors_check(run_facts: RunFacts) -> HealthCheck:
    needed = _alarm_parts(run_facts)
    off = [name for name in run_facts.off if any(name.split(":")[0] == part["name"] for part in needed)]
    off += [name for name in run_facts.off if any(name in part["watches"] for part in needed)]
    if off:
        return HealthCheck(False, f"switched off: {', '.join(off)}")
    return HealthCheck(bool(needed), "the alarm is on" if needed else "no alarm detector is set up")


def _ranks_check(run_facts: RunFacts) -> HealthCheck:
    gaps, unread = (
        [step for attempt, step in steps if attempt == run_facts.attempt and step > run_facts.last_step - 3]
        for steps in (run_facts.missing, run_facts.unread)
    )
    if gaps:
        return HealthCheck(False, f"ranks missing at step {gaps[-1]}; if only one process observes, pass ranks=1")
    if unread:
        return HealthCheck(False, f"files of step {unread[-1]} were not read: nothing is known of them")
    return HealthCheck(True, "all ranks are there")


def _kept_check(run_facts: RunFacts) -> HealthCheck:
    lost, batches = run_facts.lost
    if not batches:
        return HealthCheck(False, "the trainer's counters are missing")
    why = f"{lost} of {batches} batches were thinned, dropped or not measured"
    return HealthCheck(lost < LOST_SHARE * batches, why)


def _scored_check(run_facts: RunFacts) -> HealthCheck:
    rows, infra, unpaid = (sum(item[at] for item in run_facts.recent) for at in (1, 2, 3))
    points = run_facts.checkpoints.on_lineage(run_facts.spans())
    if not rows:
        return _asked_check(points[-1]) if points else HealthCheck(False, NO_COMPLETIONS)
    works, paid = infra < INFRA_SHARE * rows, unpaid < UNPAID_SHARE * rows
    if works and not paid:
        why = f"{unpaid} of the last {rows} completions have no reward (None, NaN): fix the reward function"
    else:
        why = f"{infra} of the last {rows} completions could not be scored (infrastructure)"
    return HealthCheck(works and paid, why)


def _asked_check(newest: AskedCheckpoint) -> HealthCheck:
    """Whether the answers of the newest checkpoint have gold: what is missing counts against every claim."""
    count = len(newest.gold)
    ok = newest.unknown < MISSING_SHARE * count
    why = f"{newest.unknown} of {count} prompts have no gold for the checkpoint at step {newest.step}"
    return HealthCheck(ok, f"{why}: fix the gold source" if not ok else why)


def _trap_check(traps: Iterable[tuple[int, int, int, int]]) -> HealthCheck:
    """Whether the traps of recent steps exclude that many answers take pay that honest work cannot earn."""
    count, paid = (sum(item[at] for item in traps) for at in (2, 3))
    share = upper_bound(min(paid, count), count)
    if share > TRAPPED:
        why = f"{share:.0%} of answers may take pay that honest work cannot earn: too few traps, or too many were paid"
        return HealthCheck(False, why)
    unseen = "hacks that need no lie, as length or flattery, are not seen"
    return HealthCheck(
        True, f"judged by traps, at most {share:.0%} of answers take pay that honest work cannot earn; {unseen}"
    )


def _level_check(advice: Advice | None) -> HealthCheck:
    """Whether the labels exclude that a quarter of gold is lost; a fall that is sure is the advice to stop."""
    if advice is None or advice.fall is None:
        return HealthCheck(False, "no fall of gold is excluded: too few labels of recent steps")
    if advice.lower:
        return HealthCheck(False, "gold stands lower than it did, by more than chance")
    if not advice.excluded:
        return HealthCheck(False, advice.why)
    of_slices = f"; {advice.slices}" if advice.slices else ""
    return HealthCheck(True, f"a fall of gold of {max(advice.fall, 0.01):.2f} or more is excluded{of_slices}")


def patience_seconds(run_facts: RunFacts) -> float:
    """Seconds without anything new after which a live run is STALE."""
    return max(3.0 * run_facts.step_seconds, PATIENCE_SECONDS) if run_facts.step_seconds else UNKNOWN_PACE_SECONDS


def duration_text(seconds: float) -> str:
    seconds = max(0.0, seconds)  # clocks of two machines
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
