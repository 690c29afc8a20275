"""Sentences and number formats that terminal, page, report and notebook share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tiltmeter.data.records import Finding, Floats, Ints
from tiltmeter.rundir.payloads import restore_number
from tiltmeter.verdict.gold_standing import GoldStanding
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import Advice
from tiltmeter.verdict.verdict import Verdict

#: By missing column, the setting or argument that provides it. Columns that a user cannot add have no entry.
COLUMN_FIXES = {
    "gold": 'tiltmeter.attach(trainer, gold="checks.py:score")',
    "ref_logprob": "beta=1e-6 in the trainer's config: keeps the reference model at almost no KL penalty",
    "engine_logprob": "an inference engine that returns log-probabilities (use_vllm=True)",
    "logprob": "a trainer that computes them; or pass logprob= to observe()",
    "entropy": "a trainer that computes it; or pass entropy= to observe()",
    "step_reward": "a process reward: pass step_reward= to observe()",
    "truncated": "pass truncated= to observe()",
    "completion": "pass completion= to observe()",
    "prompt": "pass prompt= to observe()",
    "rewards": "several reward functions, or pass rewards= to observe()",
    "scalars": "logging_steps=1 in the trainer's config",
    "advantage": "a trainer that has them; or pass advantage= to observe()",
    "turns": "pass messages= to observe()",
    "own": "pass own= to observe()",
    "stop": "pass stop= to observe()",
    "task": "pass task= to observe()",
    "trained": "pass trained= to observe()",
    "version_low": "pass version= to observe()",
}
#: Columns of agents alone. A run that has none of them is not told what it lacks.
AGENT_COLUMNS = frozenset({"turns", "own", "stop", "task", "trained", "version_low", "version_high"})
OVERUSED = "text.overused.share"

#: Steps and values of a reading along the current lineage, by its name; both empty where there is none.
ReadingLookup = Callable[[str], tuple[Ints, Floats]]


def format_number(value: float) -> str:
    """Four significant digits, rounding errors as 0; what is not a number is a dash.

    >>> format_number(0.123456), format_number(-1e-15), format_number(float("nan"))
    ('0.1235', '0', '–')
    """
    return f"{value if abs(value) > 1e-12 else 0.0:.4g}" if np.isfinite(value) else "–"


def finite_or_none(value: object) -> float | None:
    """A number for JSON, which has only finite ones; None also for the journal's placeholder of a missing value.

    >>> finite_or_none(0.5), finite_or_none(float("inf")), finite_or_none({"value": None, "flag": "nan"})
    (0.5, None, None)
    """
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def truncate(text: str, limit: int) -> str:
    """The beginning of a text that may be long.

    >>> truncate("a long sentence", 7)
    'a long…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def ranked_findings(run_facts: RunFacts) -> list[Finding]:
    """The current findings, the most likely first."""
    return sorted(run_facts.findings.values(), key=lambda finding: (-finding.confidence, finding.failure))


def describe_change(row: Mapping[str, Any]) -> str:
    """The change that an action makes, as text; in the journal a number that is not finite stands as its flag.

    >>> describe_change({"knob": "beta", "before": 0.04, "after": 0.08})
    'beta 0.04 → 0.08'
    >>> describe_change({"knob": "stop", "before": 0.0, "after": {"value": None, "flag": "nan"}})
    'stop 0 → –'
    """
    before, after = (restore_number(row[name]) for name in ("before", "after"))
    if row["knob"] == "rollback" and row.get("with_knob"):
        with_value = format_number(restore_number(row["with_value"]))
        return f"back to step {format_number(after)}, {row['with_knob']} {with_value}"
    if before == after:
        return str(row["knob"])
    return f"{row['knob']} {format_number(before)} → {format_number(after)}"


def describe_agreement_and_level(verdict: Verdict) -> list[str]:
    """The two numbers of a run: how often the reward prefers the better answer, and gold now against its best."""
    lines = ["Agreement: not known: no two recent answers to one prompt with different gold"]
    if (agreement := verdict.agreement) is not None:
        lines = [
            f"Agreement: the reward prefers the better of two answers in {agreement.share:.0%} "
            f"[{agreement.low:.0%}, {agreement.high:.0%}]; a coin does in 50% "
            f"({agreement.n} {agreement.of} of steps {agreement.first}-{agreement.last})"
        ]
    if (level := verdict.level) is None:
        return [*lines, "Level: not known: no gold of whole prompts, audited pairs or evaluations"]
    what = "gold of audited pairs" if level.source == "gold.level" else "gold"
    best = (
        "its best so far"
        if level.change == 0.0
        else f"{format_number(level.best)} at its best (steps {level.best_first}-{level.best_last})"
    )
    change, low, high = ("0.00" if abs(x) < 0.005 else f"{x:+.2f}" for x in (level.change, level.low, level.high))
    steps = f"steps {level.first}-{level.last}"
    return [*lines, f"Level: {what} {format_number(level.now)} ({steps}), {best}: {change} [{low}, {high}]"]


def describe_advice(advice: Advice | None) -> list[str]:
    """Whether to continue training, and which checkpoint to keep."""
    if advice is None:
        return []
    checkpoint_text = ""
    if (best := advice.best) is not None:
        what = "gold of audited pairs" if advice.source == "gold.level" else "gold"
        checkpoint_text = (
            f" Best checkpoint so far: step {best.step}, {what} {best.gold:.3g} [{best.low:.3g}, {best.high:.3g}]."
        )
    return [f"Stop advice: {advice.word}: {advice.why}.{checkpoint_text}"]


def other_remarks(verdict: Verdict, run_facts: RunFacts, line: ReadingLookup) -> list[str]:
    """Further lines below a verdict: other alarms and warnings, failed checks, losses, disabled parts."""
    others = (*verdict.alarms[1:], *(verdict.warnings if verdict.state != "WATCH" else verdict.warnings[1:]))
    lines = [f"{alarm.tier.capitalize()}: {alarm.summary}" for alarm in others]
    return [*lines, *remarks(verdict, run_facts, line)]


def remarks(verdict: Verdict, run_facts: RunFacts, line: ReadingLookup) -> list[str]:
    """The same without alarms and warnings, for screens that list those separately."""
    # A fall of gold is said above by an alarm or the advice to stop; without gold nothing is known of its level.
    said_above = verdict.alarms or verdict.state == "WATCH" or not verdict.checks["gold"].ok
    skipped = "gold_level" if said_above else ""
    failed = [
        check.why
        for name, check in verdict.checks.items()
        if not check.ok and check.why != verdict.sentence and name != skipped
    ]
    lines = [f"Not healthy either: {why}" if verdict.state != "ACT" else f"Note: {why}" for why in failed]
    if verdict.alarms:
        first = verdict.alarms[0]
        lines.append(f"Raised at step {first.step}; onset between step {first.onset_low} and {first.onset_high}.")
    lines += [*describe_gold_source(run_facts, verdict.gold), *run_facts.gold_probes.lines]
    lines += describe_gold_peak(verdict.gold, alarmed=bool(verdict.alarms))
    lines += describe_phrases(line(OVERUSED)[1])
    lost, total = run_facts.lost
    if lost and verdict.checks["kept"].ok:
        lines.append(f"{lost} of {total} batches were thinned, dropped or not measured.")
    if run_facts.unmeasured:
        lines.append(f"Not measured: {len(run_facts.unmeasured)}, the last: {run_facts.unmeasured[-1].error}")
    lines += [f"Off: {part} ({error})" for part, error in run_facts.off.items()]
    lines += [f"The reward itself changed at step {step}: compare nothing across it." for _, step in run_facts.segments]
    if run_facts.segments and any(run_facts.rewards):
        lines.append(
            f"Before that it was {run_facts.rewards[0] or 'unknown'}, since then {run_facts.rewards[1] or 'unknown'}."
        )
    lines += [
        f"The reference could not be read: {fault.error}" for fault in run_facts.faults if fault.part == "reference"
    ]
    if run_facts.baseline in ("start", "later"):
        what = "own first steps" if run_facts.baseline == "start" else "first steps that were not deleted"
        lines.append(f"Compared with this run's {what}; open_run(reference=...) compares with the reference.")
    if run_facts.uncompared and run_facts.baseline == "reference":
        lack = ", ".join(dict.fromkeys(run_facts.uncompared.values()))
        lines.append(f"Not compared, because the reference has no {lack}: {', '.join(run_facts.uncompared)}")
    lines += describe_unseen(absent_by_column(run_facts), imported=run_facts.imported)
    if run_facts.skipped:
        lines.append(f"{run_facts.skipped} damaged lines in events/ were skipped; run: tiltmeter verify")
    if run_facts.journal_text:
        lines.append(f"Journal: {run_facts.journal_text}.")
    return lines


def absent_by_column(run_facts: RunFacts) -> list[tuple[str, list[str]]]:
    """Absent readings by the columns that they lack, the columns with most readings first."""
    by_column: dict[str, list[str]] = {}
    lacking = {column for lack in run_facts.absent.values() for column in lack.split(", ")}
    no_agent = lacking >= AGENT_COLUMNS
    for name, lack in run_facts.absent.items():
        if no_agent and not AGENT_COLUMNS.isdisjoint(lack.split(", ")):
            continue
        if lack.startswith("gold") and run_facts.gold is not None:
            continue  # a gold source provides it
        # Nobody has to pass gold_chance: it is 1 where gold is given.
        by_column.setdefault(lack.replace("gold, gold_chance", "gold"), []).append(name)
    return sorted(by_column.items(), key=lambda item: -len(item[1]))


def column_fix(lack: str, *, imported: bool = False) -> str:
    """The setting or argument that provides the missing columns; empty if there is none."""
    column = next((column for column in lack.split(", ") if column in COLUMN_FIXES), None)
    if column is None:
        return ""
    if imported and column in ("scalars", "rewards"):
        return ""  # imported wherever a file has them
    if imported:
        return "--gold checks.py:score" if column == "gold" else f"--map {column}=COLUMN, if the files have it"
    return COLUMN_FIXES[column]


def describe_unseen(absent: Sequence[tuple[str, Sequence[str]]], *, imported: bool = False) -> list[str]:
    """What is not seen, in one line: how many readings, what they lack, and what would show most of them."""
    if not absent:
        return []
    count = sum(len(names) for _, names in absent)
    columns = list(dict.fromkeys(column for lack, _ in absent for column in lack.split(", ")))
    fix = next((fix for lack, _ in absent if (fix := column_fix(lack, imported=imported))), "")
    how = f" Most of them with: {fix}." if fix else ""
    return [f"Not seen: {count} readings, for want of {', '.join(columns)}.{how} Each: --json"]


def describe_gold_source(run_facts: RunFacts, gold: GoldStanding | None) -> list[str]:
    """What gold is, and how many labels are missing, rejected or pending."""
    if run_facts.gold is None:
        return []
    lines = [f"Gold is {run_facts.gold['identity']}: alarms are about this and nothing else."]
    if run_facts.gold_cost:
        lines.append(f"{run_facts.gold_cost}.")
    if (onset := run_facts.onset) is not None:
        lines.append(
            f"{onset.why}."
            if onset.why
            else f"{onset.answered} labels of the stored past were bought after the alarm: gold has not fallen beyond "
            "chance yet."
            if gold is None or gold.turn is None
            else f"Gold turned down around step {gold.turn.step} (between {gold.turn.low} and {gold.turn.high}), by "
            f"{onset.answered} labels of the stored past too, bought after the alarm."
        )
    if run_facts.unanswered:
        lines.append(
            f"{run_facts.unanswered} of {run_facts.labels_requested} labels never came; "
            "each counts in favour of the run."
        )
    if run_facts.rejected:
        lines.append(f"{run_facts.rejected} answers without a request before them were rejected.")
    if run_facts.unlabelled:
        lines.append(f"Labels of {len(run_facts.unlabelled)} steps are still to come.")
    return lines


def describe_gold_peak(gold: GoldStanding | None, *, alarmed: bool) -> list[str]:
    """Where gold was highest, if it is lower now by more than chance.

    Gold may fall although within each prompt the reward still prefers the better answer, because prompts share the
    model's parameters.
    """
    if gold is None or (best := gold.best) is None:
        return []
    text = f"Gold was highest at steps {best.first} to {best.last}, at {best.mean:.2f}; it is {gold.now.mean:.2f} now"
    why = "" if alarmed else ", though inside prompts the reward does not yet prefer the worse answer"
    return [f"{text}{why}."]


def describe_phrases(shares: Floats) -> list[str]:
    """Where they are listed, if phrases are over-used."""
    if not len(shares) or shares[-1] < 0.05:
        return []
    return [f"{shares[-1]:.0%} of completions have an over-used phrase; see: tiltmeter rollouts RUN --phrases"]
