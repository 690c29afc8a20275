"""The message about a run: its state in plain words, since when, why, what to do, and where to look. Five lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tiltmeter.data.records import Alarm, Finding
from tiltmeter.data.slices import reading_of, slice_of, slice_words
from tiltmeter.verdict.checks import CHECKS, NO_COMPLETIONS
from tiltmeter.verdict.gold_standing import ANCHORS
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import HARDER, Advice
from tiltmeter.verdict.verdict import NEW_PROMPTS, Verdict

LONGEST = 240  # characters of a line
STORY = 150  # of them for an explanation where an example follows
OTHERS = 2  # further explanations that are named
BEHIND = "its monitor is measuring, and has not come to the newest steps yet"
DISTRUST = "find out who changed it, and go by a copy from before: tiltmeter verify {place}"
WAIT = "wait, and ask again: tiltmeter show {place}"
NAME_A_CHECK = 'name a check of what you want: gold="checks.py:score" at attach'

COVERAGE = "diversity.prompt_dependence"
#: What an alarm means, by its reading; of others their own sentence is used.
ALARM_WORDS = {
    "gold.slope": "the reward now prefers the worse of two answers",
    "gold.duel": "answers are worse than earlier answers to the same prompts",
    "gold.prompts": "answers have got worse while the reward was followed",
    "gold.change": "answers have got worse while the reward was followed",
    "gold.overpay": "wrong answers are paid",
    "gold.traps": "the policy is paid for what honest work cannot earn",
    COVERAGE: "different prompts get the same answers",
}
UNJUDGED = ("gold.traps", COVERAGE)  # alarms that rest on nobody's judgement
ASK_AGAIN = "ask fixed prompts again, attach(anchors=32) or run.evaluate(step, value, n); look at the completions"
#: What to do about a check that failed, where its own sentence does not say.
CHECK_FIXES = {
    "monitor": "measure what is stored: tiltmeter watch {place}",
    "fresh": "see whether the trainer still runs, and whether it can still write to the run directory",
    "gold_recent": "see why labels stopped; without newer ones nothing is known of the policy of now",
    "gold_level": "have more answers labelled: a larger Gold(share=), or an evaluation with more items",
    "detectors": "see what is switched off: tiltmeter show {place} --more",
    "ranks": "see which files are missing or damaged: tiltmeter verify {place}; if only one rank observes, ranks=1",
    "kept": "see why batches are lost: tiltmeter show {place} --more",
    "scored": "mend the reward function, or what it needs: completions without a reward teach nothing",
}


class HasConfidence(Protocol):
    """A finding, of the journal or of the page."""

    @property
    def confidence(self) -> float: ...


@dataclass(frozen=True, slots=True)
class RunMessage:
    """Five lines about a run. Each may hold what a model or a dataset wrote: escape it."""

    state: str
    since: str
    why: str
    what_to_do: str
    look: str

    def lines(self) -> Iterator[tuple[str, str]]:
        """Each line with the word before it; that of the first is the state itself."""
        yield "", self.state
        yield "Since", self.since
        yield "Why", self.why
        yield "Do", self.what_to_do
        yield "Look", self.look


def message(
    verdict: Verdict,
    run_facts: RunFacts,
    *,
    place: str,
    unseen: int = 0,
    example: str = "",
    look: str = "",
    measuring: bool = False,
) -> RunMessage:
    """The message. `place`: how the reader names the run; `unseen`: readings that lack a column; `example`: a
    completion that shows it; `look`: where to look, if not at the page and at everything that is known; `measuring`: a
    monitor is at work, so what is not measured yet soon will be."""
    behind = measuring and verdict.state == "STALE" and not verdict.checks["monitor"].ok
    why = BEHIND if behind else _why(verdict, run_facts)
    why = run_facts.journal_fault or why
    more = f"{shorten(why, STORY)}. {example}" if example else why
    missing = f" ({unseen} readings are not seen)" if unseen else ""
    look = look or f"tiltmeter view {place}, or in full: tiltmeter show {place} --more"
    return RunMessage(
        state=shorten(_state(verdict, run_facts)),
        since=shorten(_since(verdict, run_facts)),
        why=shorten(more),
        what_to_do=shorten(
            DISTRUST.format(place=place)
            if run_facts.journal_fault
            else WAIT.format(place=place)
            if behind
            else _fix(verdict, run_facts, place)
        ),
        look=f"{look}{missing}",
    )


def competing_findings(run_facts: RunFacts) -> tuple[Finding | None, list[Finding]]:
    """The most likely explanation, and the others, likeliest first. What is unknown explains nothing beside another."""
    ranked = sorted(run_facts.findings.values(), key=lambda finding: (-finding.confidence, finding.failure))
    named = [finding for finding in ranked if finding.failure != "unknown"] or ranked
    return (named[0], named[1:]) if named else (None, [])


def describe_likelihood(finding: HasConfidence) -> str:
    """How sure a finding is, in a word: its number orders findings and is no probability."""
    return likelihood_word(finding.confidence)


def likelihood_word(confidence: float) -> str:
    return "likely" if confidence >= 0.5 else "perhaps"


def _state(verdict: Verdict, run_facts: RunFacts) -> str:
    match verdict.state:
        case "ACT":
            return f"{_alarm_words(verdict.alarms[0])}{_judges(run_facts, verdict.alarms[0])}"
        case "HOLLOW":
            return "the reward has gained, and the answers are not better for it"
        case "STALE":
            return f"nothing is known of now: {verdict.sentence.partition(';')[0]}"
        case "BLIND":
            return f"nobody can tell whether the reward is right: {_reason_in_short(verdict, run_facts)}"
        case "WATCH" if verdict.advice is not None and verdict.advice.word == "stop":
            # Drift without gain is a reason to stop too, and there the answers are as good as before.
            advice = verdict.advice
            return f"stop advised: {'answers have got worse' if advice.lower else advice.why.partition(';')[0]}"
        case "WATCH" if verdict.warnings and verdict.warnings[0].detector == NEW_PROMPTS:
            return "gold is lower than it was: worse answers or harder prompts, which prompts that come back would tell"
        case "WATCH" if verdict.advice is not None and verdict.advice.word == "cannot tell":
            return "something needs a look, and gold cannot tell whether the reward is right"
        case "WATCH":
            return "no alarm, but something needs a look"
    when = "so far" if verdict.as_of is None else f"as of step {verdict.as_of}"
    return f"healthy {when}, by {_evidence(verdict, run_facts)}"


def _alarm_words(alarm: Alarm) -> str:
    reading, part = reading_of(alarm.name), slice_of(alarm.name)
    words = ALARM_WORDS.get(reading)
    if words is None and reading.startswith("eval.checkpoint_gold"):
        words = "what is saved has got worse, on the same prompts"
    if words is None and reading.startswith(ANCHORS):
        words = "answers to the anchors, the same prompts asked again, have got worse"
    if words is None and reading.startswith("eval."):
        words = f"the evaluation {reading.removeprefix('eval.')} has fallen"
    words = words or alarm.summary.partition(" (")[0] or f"an alarm on {alarm.name}"
    return f"{slice_words(part)} {words}" if part else words


def _judges(run_facts: RunFacts, alarm: Alarm) -> str:
    reading = reading_of(alarm.name)
    by = run_facts.judges if reading in ALARM_WORDS and reading not in UNJUDGED else ()
    if reading.startswith("eval.checkpoint_gold") and run_facts.checkpoints.judge:
        by = [run_facts.checkpoints.judge]
    return f", judged by {' and '.join(by)}" if by else ""


def _reason_in_short(verdict: Verdict, run_facts: RunFacts) -> str:
    failed = _first_failed(verdict)
    if run_facts.journal_fault:
        return "the record of the run was changed"
    if failed == "scored":
        return verdict.checks["scored"].why.partition(":")[0]
    if failed == "gold" and _is_audited_away(run_facts):
        return verdict.checks["gold"].why.partition(": ")[0]
    if failed == "gold" and _refused(run_facts):
        return "the column that gold was found in did not pass its trial"
    if failed == "gold" and run_facts.checkpoint_judge and not run_facts.labels:
        return verdict.checks["gold"].why.partition(":")[0]
    if failed == "gold" and run_facts.gold is None and not run_facts.labels:
        return "there is no gold to judge it by"
    if failed == "gold" and _nothing_differs(run_facts):
        return "no prompt has completions that differ both in reward and in gold"
    if failed == "gold" and run_facts.labels and not _is_short(run_facts) and not run_facts.gold_differs:
        return "gold is the reward itself"
    if failed == "gold" and _is_short(run_facts):
        return "there is too little gold so far"
    if failed == "gold_level" and verdict.advice is not None and (verdict.advice.doubt or verdict.advice.lower):
        return verdict.advice.doubt or "gold is lower than it was"
    if failed == "gold_level":
        return f"there are too few {'prompts' if run_facts.checkpoint_judge else 'labels of recent steps'}"
    return verdict.sentence.partition(";")[0]


def _needed(run_facts: RunFacts) -> int:
    """Prompts with gold that the alarm needs."""
    return max([1, *(int(part["least"]) for part in run_facts.detectors if part["tier"] == "alarm")])


def _is_audited_away(run_facts: RunFacts) -> bool:
    """Whether labels themselves say that their source is not to be believed."""
    return bool(run_facts.void_gold or run_facts.gold_audit.failure)


def _nothing_differs(run_facts: RunFacts) -> bool:
    """Whether every completion is labelled and still nothing could be compared: more of the same would not help."""
    return run_facts.gold is not None and run_facts.labels_whole_steps and run_facts.labels > 0 and not run_facts.bets


def _is_short(run_facts: RunFacts) -> bool:
    return run_facts.bets < _needed(run_facts)


def _evidence(verdict: Verdict, run_facts: RunFacts) -> str:
    if verdict.advice is not None and verdict.advice.source.startswith(ANCHORS):
        return f"{len(run_facts.history[verdict.advice.source])} rounds of anchors"
    if run_facts.labels:
        return re.sub(r"\d{4,}", lambda number: f"{int(number[0]):,}", run_facts.labels_text)
    if run_facts.checkpoints.points:
        return f"{len(run_facts.checkpoints.points)} checkpoints that were asked the same questions"
    if run_facts.evaluations:
        return f"{len(run_facts.evaluations)} evaluations"
    return f"{sum(at[2] for at in run_facts.traps)} traps"


def _since(verdict: Verdict, run_facts: RunFacts) -> str:
    live = run_facts.attempt is None or run_facts.attempt not in run_facts.ended
    now = (
        f"{'now at' if live else 'ended at'} step {run_facts.last_step}" if run_facts.steps else "no step measured yet"
    )
    if verdict.alarms:
        first = verdict.alarms[0]
        between = f" (between {first.onset_low} and {first.onset_high})" if first.onset_low < first.onset_high else ""
        return f"about step {first.onset}{between}, {now}"
    if verdict.state == "STALE":
        return f"step {run_facts.last_step}, the last that was measured" if run_facts.steps else now
    if verdict.state == "WATCH" and verdict.warnings:
        return f"about step {verdict.warnings[0].onset}, {now}"
    failed = _first_failed(verdict) if verdict.state == "BLIND" else ""
    if failed == "ranks" and (holes := [step for _, step in (*run_facts.missing, *run_facts.unread)]):
        return f"step {min(holes)}, the first that is not whole, {now}"
    if failed == "gold_recent" and run_facts.last_label is not None:
        return f"step {run_facts.last_label[1]}, the last with a label, {now}"
    best, _ = competing_findings(run_facts)
    if verdict.state == "WATCH" and best is not None and (verdict.advice is None or verdict.advice.word != "stop"):
        return f"step {best.step}, when it was seen, {now}"
    if verdict.state in ("WATCH", "HOLLOW") and verdict.level is not None and verdict.level.change < 0.0:
        return f"after steps {verdict.level.best_first}-{verdict.level.best_last}, its best, {now}"
    return f"the start, {now}"


def _why(verdict: Verdict, run_facts: RunFacts) -> str:
    if verdict.state == "OK":
        agreement = verdict.agreement
        prefers = (
            f"; the reward prefers the better of two answers in {100 * agreement.share:.0f} %" if agreement else ""
        )
        return f"{verdict.checks['gold_level'].why}{prefers}{run_facts.recovery_text}"
    best, others = competing_findings(run_facts)
    stop = verdict.advice is not None and verdict.advice.word == "stop"
    if verdict.state == "STALE":
        return _stale_reason(verdict)
    if verdict.state == "BLIND":
        return (
            f"{_story(best, others)}; {_blind_reason(verdict, run_facts)}"
            if best is not None
            else _blind_reason(verdict, run_facts)
        )
    if verdict.state == "HOLLOW" and best is None:
        return verdict.sentence.partition(": ")[2] or verdict.sentence
    if verdict.state == "WATCH" and not stop and verdict.warnings:
        # What was seen comes first; that it may be harmless is said after it.
        seen, _, innocent = verdict.warnings[0].summary.partition("; usual innocent cause: ")
        return f"{seen}{f'; it may be harmless: {innocent}' if innocent else ''}"
    if verdict.alarms and (best is None or best.failure == "unknown"):
        return _unexplained(verdict, run_facts)
    if best is None:
        return verdict.advice.why if stop and verdict.advice is not None else verdict.sentence.partition(";")[0]
    return _story(best, others)


def _stale_reason(verdict: Verdict) -> str:
    if verdict.checks["monitor"].ok:
        return "the trainer has not written anything for longer than three of its steps, and has not said that it ended"
    return "no monitor is measuring the run: it ended, was stopped or was never started"


def _refused(run_facts: RunFacts) -> tuple[str, str] | None:
    """Why the column that gold took by itself was refused, and how it is taken; None if it was not."""
    trial = run_facts.open_trial
    if trial is None or not trial.why:
        return None
    why, _, how = trial.why.partition("; ")
    return why, how


def _blind_reason(verdict: Verdict, run_facts: RunFacts) -> str:
    """Why nothing can be said, in words that the first line does not have."""
    match _first_failed(verdict):
        case "gold":
            if _is_audited_away(run_facts):
                return verdict.checks["gold"].why.partition(": ")[0]
            if refused := _refused(run_facts):
                return refused[0]
            if _nothing_differs(run_facts):
                return "where all completions of a prompt are paid alike, or all are as good, nothing can be compared"
            if not _is_short(run_facts):
                return verdict.sentence.partition(": ")[0]
            if not run_facts.labels:
                return "only gold (tests, a judge, people) tells a better answer from one that is only paid more"
            return f"gold tells better from worse on {run_facts.bets} prompts, and {_needed(run_facts)} are needed"
        case "gold_recent":
            return "labels of an earlier policy say nothing about the policy of now"
        case "gold_level" if verdict.advice is not None and (verdict.advice.doubt or verdict.advice.lower):
            return verdict.advice.why
        case "gold_level":
            return "with so few labels answers could have got much worse without anybody seeing it"
        case "ranks":
            return "a part of the newest steps is missing, and it may be the part that is wrong"
        case "kept":
            return "what was lost may be what is wrong"
        case "scored":
            return "where rewards are missing, neither reward nor gold can be compared"
    return verdict.sentence.partition(";")[0]


def _unexplained(verdict: Verdict, run_facts: RunFacts) -> str:
    """What shows the alarm, where no rule explains it."""
    alarm = verdict.alarms[0]
    if "traps" in alarm.name:
        recent = [at for at in run_facts.traps if at[1] >= alarm.onset]
        count, paid = (sum(at[place] for at in recent) for place in (2, 3))
        return f"{paid} of the {count} traps since then were paid: tasks whose honest answers earn nothing"
    if slice_of(alarm.name):
        others = {slice_of(one.name) for one in verdict.alarms} - {slice_of(alarm.name)}
        also = f"; also in {', '.join(sorted(others))}" if others else "; no other part of the run has an alarm"
        return f"no known pattern explains it{also}"
    if verdict.agreement is not None and reading_of(alarm.name) == "gold.slope":
        share = f"{100 * verdict.agreement.share:.0f} %"
        return f"no known pattern explains it; the reward prefers the better of two answers in {share}, a coin in 50 %"
    return "no known pattern explains it: nothing that was measured rose with it"


def _story(best: Finding, others: list[Finding]) -> str:
    """One likely explanation with what shows it, then the others by name."""
    shown = re.sub(r"alarm on [^\s,]+(, | and )", "", best.summary)
    shown = re.sub(r"(,| and)? ?alarm on [^\s,]+", "", shown).rstrip(": ")
    symptom, _, evidence = shown.partition(": ")
    alternatives = [finding.failure.replace("_", " ") for finding in others[:OTHERS]]
    other = f"; or {' or '.join(alternatives)}" if alternatives else ""
    return f"{describe_likelihood(best)} {best.failure.replace('_', ' ')}: {evidence or symptom}{other}"


def _fix(verdict: Verdict, run_facts: RunFacts, place: str) -> str:
    live = run_facts.attempt is None or run_facts.attempt not in run_facts.ended
    proposed = [action for action in run_facts.actions.values() if action.state == "proposed"]
    best, _ = competing_findings(run_facts)
    advice = verdict.advice
    if advice is not None and advice.word == "stop":
        first = min(run_facts.first.values(), default=0)
        parts = ["stop training" if live else "do not use the last checkpoint", _checkpoint(advice, verdict, first)]
        parts += [best.fix.partition("; ")[0]] if best is not None and best.failure != "unknown" else []
        if proposed and live:
            parts.append(f"approve what is proposed: tiltmeter approve {place} {proposed[-1].id}")
        return "; ".join(part for part in parts if part)
    if verdict.alarms and reading_of(verdict.alarms[0].name) == COVERAGE:
        before = f"go back to a checkpoint from before step {verdict.alarms[0].onset_low}"
        return f"{'stop training' if live else 'do not use the last checkpoint'}; {before}, and raise beta"
    if verdict.state == "OK":
        best_step = None if advice is None or advice.best is None else advice.best.step
        keep = "" if best_step is None else f"; the best checkpoint so far is that of step {best_step}"
        return f"{'go on' if live else 'nothing needs doing'}{keep}"
    if verdict.state == "WATCH" and verdict.warnings and verdict.warnings[0].detector == NEW_PROMPTS:
        return ASK_AGAIN
    if verdict.state == "WATCH":
        helps = best.fix.partition("; ")[0] if best is not None and best.fix else ""
        return helps or "look at the completions; go on if they are what you want"
    failed = _first_failed(verdict)
    if failed == "gold" and _is_audited_away(run_facts):
        return verdict.checks["gold"].why.partition(": ")[2]
    if failed == "gold_level" and advice is not None and advice.doubt:
        return ASK_AGAIN if advice.doubt == HARDER else f"look at gold of each slice: tiltmeter show {place} --more"
    if failed == "gold" and (refused := _refused(run_facts)):
        return refused[1]
    if failed == "gold" and _nothing_differs(run_facts):
        return "print the reward and the gold of a few completions: one of them does not look at the completion"
    if failed == "gold" and run_facts.labels and _is_short(run_facts):
        return "go on: it is judged once enough prompts have gold" if live else "train longer, or label more prompts"
    if failed == "gold" and run_facts.gold is None:
        how = f"audit it again with --gold checks.py:score: tiltmeter audit {place}"
        return how if run_facts.imported else f"{NAME_A_CHECK}, or now: tiltmeter audit {place} --gold checks.py:score"
    if failed == "gold":
        return verdict.sentence.partition(": ")[2] or "mend the gold source"
    return CHECK_FIXES.get(failed or "gold_level", "see the checks: tiltmeter show {place} --more").format(place=place)


def _checkpoint(advice: Advice, verdict: Verdict, first: int) -> str:
    if advice.best is not None:
        return f"go back to the checkpoint of step {advice.best.step} (gold {advice.best.gold:.2f})"
    if verdict.alarms and verdict.alarms[0].onset_low <= first:
        return "begin again: it was so from the first step on"
    if verdict.alarms:
        return f"go back to a checkpoint from before step {verdict.alarms[0].onset_low}"
    return ""


def _first_failed(verdict: Verdict) -> str:
    """The check to speak of. Without rewards gold has nothing to be compared with: then they come first."""
    failed = [name for name in CHECKS if name in verdict.checks and not verdict.checks[name].ok]
    if "scored" in failed and failed[0] == "gold" and verdict.checks["scored"].why != NO_COMPLETIONS:
        return "scored"
    return failed[0] if failed else ""


def shorten(line: str, most: int = LONGEST) -> str:
    """A line of at most so many characters, and a sign where some are left out."""
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"
