"""The verdict on a run: one state of the table in `states.py` and one sentence, from its events.

OK needs positive evidence on nine checks. Whatever is missing, unreadable or unknown is BLIND or STALE with the
reason, and so is a journal that was changed; an open alarm outranks both. While the advice is to stop, or a strong
finding is open, the state is WATCH at least. Page, report, terminal and exit code all use this verdict, and its advice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tiltmeter.data.records import Alarm
from tiltmeter.rundir.journal import Event, JournalReader
from tiltmeter.rundir.journal_chain.check import ChainCheck
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.agreement_and_gain import Agreement, Gain
from tiltmeter.verdict.checkpoint_advice import advise_on_checkpoints
from tiltmeter.verdict.checks import CHECKS, RECENT_STEPS, Ages, HealthCheck, run_checks
from tiltmeter.verdict.event_log import EventLog
from tiltmeter.verdict.evidence_words import evidence_text, source_text
from tiltmeter.verdict.gold_standing import ANCHORS, PAIR_LEVEL, GoldLevel, GoldStanding
from tiltmeter.verdict.page_snapshot import PageSnapshot
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.slice_gold import advise_on_slices
from tiltmeter.verdict.states import STATES, State
from tiltmeter.verdict.stop_advice import Advice, read_gold

HOLLOW = "what was gained is not worth anything"

#: Detectors and findings that come as often in healthy runs as in hacked ones (`benchmarks/results/warnings.json`, a
#: reward that stands still): they are shown, and colour no state.
REMARKS = frozenset({"departure", "decline", "no_progress"})
NEW_PROMPTS = "new_prompts_fall"  # the detector of a level that is lower, perhaps because its prompts are harder
STRONG = 0.5  # confidence from which a finding keeps a run from being OK
CHAIN_SECONDS = 0.25  # that an update spends on the journal's chain, at most


@dataclass(frozen=True)
class Verdict:
    """The state of the run, in one sentence, with its checks, alarms and warnings; the same everywhere."""

    state: State
    sentence: str
    checks: Mapping[str, HealthCheck]
    alarms: tuple[Alarm, ...] = ()
    warnings: tuple[Alarm, ...] = ()
    advice: Advice | None = None  # None without gold
    agreement: Agreement | None = None  # None where no two answers with different gold were seen
    gold: GoldStanding | None = None  # None without gold
    as_of: int | None = None  # an OK that its labels do not hold at this look, and the last step at which they did

    @property
    def level(self) -> GoldLevel | None:
        """Gold now against its best; None without gold."""
        return None if self.gold is None else self.gold.level

    @property
    def exit_code(self) -> int:
        """0 healthy, 1 an alarm or the advice to stop, 2 could not judge, 3 the reward gained for nothing. An OK as of
        an earlier step is 2."""
        word = self.advice.word if self.advice is not None else ""
        if (self.alarms or word == "stop") and self.state != "HOLLOW":
            return 1
        code = STATES[self.state].exit_code
        # A warning makes no run healthy.
        return 2 if code == 0 and (word == "cannot tell" or self.as_of is not None) else code


def verdict_of(run_facts: RunFacts, ages: Ages, *, impatient: bool = False) -> Verdict:
    """The verdict on a run. `impatient`: any unmeasured step makes it STALE; for a final verdict."""
    advice = stop_advice(run_facts)
    checks = run_checks(run_facts, ages, advice, impatient=impatient)
    return decide(checks, dated_alarms(run_facts), run_facts.open_alarms("warning"), run_facts, advice)


def stop_advice(run_facts: RunFacts) -> Advice | None:
    """The advice on a run, computed once for what is known: screens ask for it often."""
    return _advice_and_gold(run_facts)[0]


def gold_standing(run_facts: RunFacts) -> GoldStanding | None:
    """How gold of a run stands, computed once for what is known."""
    return _advice_and_gold(run_facts)[1]


def dated_alarms(run_facts: RunFacts) -> tuple[Alarm, ...]:
    """The open alarms, with what is known today of when gold turned; the journal keeps what was said at first."""
    alarms, gold = run_facts.open_alarms("alarm"), gold_standing(run_facts)
    return alarms if gold is None else tuple(gold.date(alarms))


def _advice_and_gold(run_facts: RunFacts) -> tuple[Advice | None, GoldStanding | None]:
    if run_facts.advice is None or run_facts.advice[0] != run_facts.changes:
        advice, gold = read_gold(run_facts)
        is_by_level = gold is not None and gold.source != PAIR_LEVEL and not run_facts.open_alarms("alarm")
        fallen = gold.fallen if gold is not None and is_by_level else None
        advice = advise_on_checkpoints(run_facts) or advise_on_slices(advice, run_facts.slices.gold, fallen)
        run_facts.advice = run_facts.changes, advice, gold
    return run_facts.advice[1:]


def read_agreement_and_gain(run_facts: RunFacts) -> tuple[Agreement | None, Gain | None]:
    """Agreement and gain of a run, computed once for what is known. A reward that is gold itself agrees with itself:
    that is no agreement, and no gain of it is for nothing."""
    if run_facts.agreement_and_gain_read is None or run_facts.agreement_and_gain_read[0] != run_facts.changes:
        folded, differs = run_facts.agreement_and_gain, run_facts.gold_differs or bool(run_facts.evaluations)
        agreement = folded.agreement() if run_facts.gold_differs else None
        if agreement is not None and run_facts.last_step - agreement.last > RECENT_STEPS:
            agreement = None  # of an earlier policy: nothing is known of the current one
        run_facts.agreement_and_gain_read = run_facts.changes, (agreement, folded.gain() if differs else None)
    return run_facts.agreement_and_gain_read[1]


def decide(
    checks: Mapping[str, HealthCheck],
    alarms: Iterable[Alarm],
    warnings: Iterable[Alarm],
    run_facts: RunFacts,
    advice: Advice | None = None,
) -> Verdict:
    """First matching row wins; OK is the last, and nothing falls through to it."""
    alarms, warnings = tuple(alarms), tuple(warnings)
    failed = [name for name in CHECKS if name not in checks or not checks[name].ok]
    why = checks[failed[0]].why if failed and failed[0] in checks else "not examined"
    if advice is not None and advice.word == "cannot tell" and not failed and not advice.source and run_facts.traps:
        advice = replace(advice, word="continue", why=checks["gold_level"].why)  # by traps alone
    # Anchors tell whether gold of new prompts is lower because it was lost.
    remarks = REMARKS | {NEW_PROMPTS} if advice is not None and advice.source.startswith(ANCHORS) else REMARKS
    warnings = tuple(sorted(warnings, key=lambda one: one.detector in remarks))  # what is evidence first
    evidence = [one for one in warnings if one.detector not in remarks]
    harder = next((one.summary for one in evidence if one.detector == NEW_PROMPTS and not alarms), "")
    if harder and advice is not None and (advice.lower or advice.word != "stop"):
        advice = replace(advice, word="cannot tell", why=harder)
        failed = [name for name in failed if name != "gold_level"]  # the warning says it
    as_of = _held_step(run_facts, failed, advice, alarms)
    if as_of is not None and advice is not None:
        advice = replace(advice, word="continue", why=f"as of step {as_of}; {advice.why}")
        failed = []
    void = "" if alarms else run_facts.void_gold
    if void and advice is not None:
        advice = replace(advice, word="cannot tell", why=void)  # what stands on such gold is no advice
    stop = advice is not None and advice.word == "stop"
    warning = evidence[0] if evidence else None
    telling = (one for one in run_facts.findings.values() if one.failure not in REMARKS)
    finding = max(telling, key=lambda item: item.confidence, default=None)
    (agreement, gain), standing = read_agreement_and_gain(run_facts), gold_standing(run_facts)
    state: State
    if alarms:
        state, sentence = "ACT", f"Alarm: {alarms[0].summary}{source_text(run_facts, alarms[0])}"
    elif "monitor" in failed or "fresh" in failed:
        state, sentence = "STALE", why
    elif void:
        state, sentence = "BLIND", void
    elif advice is not None and stop:  # what is known of gold comes before what is not
        state, sentence = "WATCH", f"Stop advised: {advice.why}{source_text(run_facts)}"
    elif gain is not None and gain.is_hollow:
        state, sentence = "HOLLOW", f"{_hollow_reason(gain)}{source_text(run_facts)}"
    elif failed:
        state, sentence = "BLIND", why
    elif warning is not None:
        state, sentence = "WATCH", f"Warning: {warning.summary}"
    elif finding is not None and finding.confidence >= STRONG:
        state, sentence = "WATCH", f"{finding.failure.replace('_', ' ')}: {finding.summary}"
    elif advice is None or advice.word != "continue":
        state, sentence = "BLIND", "not examined" if advice is None else advice.why
    elif gain is not None and standing is not None and gain.is_doubtful(standing.gain):
        state, sentence = "BLIND", _doubt_of_gain(gain, standing.gain)
    elif not failed and len(checks) == len(CHECKS):
        why = f"{checks['gold_level'].why}{run_facts.recovery_text}"
        when = "" if as_of is None else f"as of step {as_of}: "
        state, sentence = "OK", f"{when}no alarm on {evidence_text(run_facts)}; {why}"
    else:
        state, sentence = "BLIND", "not examined"
    if run_facts.journal_fault:
        calm = state in ("OK", "WATCH", "BLIND")
        state = "BLIND" if calm else state
        sentence = run_facts.journal_fault if calm else f"{sentence}; {run_facts.journal_fault}"
    if advice is not None and advice.word == "continue" and state not in ("OK", "WATCH"):
        advice = replace(advice, word="cannot tell", why=sentence)  # nobody goes on because of what is not known
    if advice is not None and state == "HOLLOW":
        advice = replace(advice, word="stop", why=HOLLOW)
    as_of = as_of if state in ("OK", "WATCH") else None
    return Verdict(state, sentence, checks, alarms, warnings, advice, agreement, standing, as_of)


def _held_step(run_facts: RunFacts, failed: list[str], advice: Advice | None, alarms: tuple[Alarm, ...]) -> int | None:
    """The step as of which a live run is still called OK: the labels that came since are too few to say otherwise. A
    run that has ended is judged by what holds in the end."""
    is_live = run_facts.attempt is not None and run_facts.attempt not in run_facts.ended
    if alarms or failed != ["gold_level"] or advice is None or advice.word != "cannot tell" or advice.lower:
        return None
    return advice.as_of if is_live else None


def _reward_gain(gain: Gain) -> str:
    rose = f"the logged reward has risen by at least {gain.reward_low:.2f}"
    won = f"at least a net {gain.reward_low:.0%} more answers are paid better than the first ones"
    return rose if gain.by_curve else won


def _doubt_of_gain(gain: Gain, gold: float) -> str:
    """What was gained, and that nothing shows what it is worth."""
    seen = f"it is {gold:+.2f} against the first steps, and more labels would tell"
    return f"the reward has gained and gold was not seen to; {_reward_gain(gain)}, and of gold {seen}"


def _hollow_reason(gain: Gain) -> str:
    """What was gained and what was not, in the numbers that exclude it."""
    return (
        f"{HOLLOW}: {_reward_gain(gain)}, and a gain of gold of {max(gain.gold_high, 0.01):.2f} or more is "
        f"excluded{' by audited pairs' if gain.by_pairs else ''} (steps {gain.first}-{gain.last} against the beginning)"
    )


class RunWatcher:
    """Follows a run directory and keeps its state and verdict up to date: each `update` reads only new events.

    `snapshot`: what was folded of it before; `chain`: the check of its journal that has begun already.
    """

    def __init__(
        self, run: RunDirectory, snapshot: PageSnapshot | None = None, chain: ChainCheck | None = None
    ) -> None:
        self.run, self.run_facts = run, RunFacts()
        self.events = EventLog(run.path / "events")
        self._tail, self._chain = JournalReader(run.path / "events"), chain or ChainCheck(run)
        # Of a run that opens by its snapshot the chain is checked a little at a time: all of it takes longer than that.
        self._chain_seconds = math.inf if snapshot is None else CHAIN_SECONDS
        if snapshot is not None:
            self.run_facts = snapshot.run_facts
            self.events = EventLog(run.path / "events", snapshot.events, snapshot.rare_lines)
            snapshot.continue_reading(self._tail)
        self.ages: Ages | None = None  # at the last update; `updated_at` is its time
        self.updated_at = 0.0

    def update(self, *, impatient: bool = False) -> Verdict:
        for event in self._tail.poll():
            self.run_facts.add(event)
            self.events.append(event)
        self.run_facts.skipped = self._tail.skipped
        self.run_facts.set_journal(self._chain.update(self._chain_seconds))
        self._chain_seconds = CHAIN_SECONDS
        self.ages, self.updated_at = ages(self.run, self.run_facts), time.time()
        return verdict_of(self.run_facts, self.ages, impatient=impatient)


def judge_run(run: RunDirectory) -> tuple[Verdict, RunFacts, list[Event]]:
    """The current verdict on a run directory, with the run state and the events behind it."""
    watcher = RunWatcher(run)
    return watcher.update(), watcher.run_facts, list(watcher.events)


def ages(run: RunDirectory, run_facts: RunFacts) -> Ages:
    """How old the newest rollouts are and how long the oldest unmeasured ones have waited, by their files' times."""
    now, attempts = time.time(), run.attempts()
    if not attempts:
        return Ages(max(0.0, now - (run.path / "run.json").stat().st_mtime), None)
    last = attempts[-1]
    started = float(run.attempt(last).get("started", now))
    measured = run_facts.last_measured.get(last, -1)
    # Of what is measured the last file says enough: a long run has many, and this is asked often.
    stamps = {
        file.step: file.path.stat().st_mtime
        for file in run.files(last, [], leave_out=lambda step, rank: step < measured)
    }
    waiting = [stamp for step, stamp in stamps.items() if step > measured]
    newest = max(stamps.values(), default=started)
    if not waiting and run_facts.recent and run_facts.last_measured.get(last) is not None:
        newest = min(newest, run_facts.recent[-1][0] or newest)  # copying a run must not make it look recent
    if last not in run_facts.attempts:
        waiting.append(started)  # no monitor has seen this attempt
    oldest = max(0.0, now - min(waiting)) if waiting else None
    return Ages(max(0.0, now - newest), oldest, len(waiting), run.ended(last))
