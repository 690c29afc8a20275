"""What is said about a run in the same words on every surface: terminal, page, report and notebook."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tiltmeter.advice import Advice
from tiltmeter.page.gold import highest
from tiltmeter.records import Finding, Floats, Ints
from tiltmeter.story import Story
from tiltmeter.verdict import Verdict

#: The one line that would show what lacks a column. Columns that nobody can be told to add have none.
SHOWN_BY = {
    "gold": 'tiltmeter.attach(trainer, gold="checks.py:score")',
    "ref_logprob": "beta=1e-6 in the trainer's config: keeps the reference, holds nothing back",
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
}
OVERUSED = "text.overused.share"

#: Steps and values of a reading along the current lineage, by its name; both empty where there is none.
Line = Callable[[str], tuple[Ints, Floats]]


def number(value: float) -> str:
    """Four significant digits, rounding errors as 0; what is not a number is a dash.

    >>> number(0.123456), number(-1e-15), number(float("nan"))
    ('0.1235', '0', '–')
    """
    return f"{value if abs(value) > 1e-12 else 0.0:.4g}" if np.isfinite(value) else "–"


def finite(value: object) -> float | None:
    """A number for JSON, which has none that is not finite; None also for what a journal says in place of one.

    >>> finite(0.5), finite(float("inf")), finite({"value": None, "flag": "nan"})
    (0.5, None, None)
    """
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def short(text: str, limit: int) -> str:
    """The beginning of a text that may be long.

    >>> short("a long story", 7)
    'a long…'
    """
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def findings(story: Story) -> list[Finding]:
    """Those that hold now, the surest first."""
    return sorted(story.findings.values(), key=lambda finding: (-finding.confidence, finding.failure))


def change(row: Mapping[str, Any]) -> str:
    """What an action changes, with what goes with it.

    >>> change({"knob": "beta", "before": 0.04, "after": 0.08})
    'beta 0.04 → 0.08'
    """
    if row["knob"] == "rollback" and row.get("with_knob"):
        return f"back to step {number(row['after'])}, {row['with_knob']} {number(row['with_value'])}"
    if row["before"] == row["after"]:
        return str(row["knob"])
    return f"{row['knob']} {number(row['before'])} → {number(row['after'])}"


def stop_advice(advice: Advice | None) -> list[str]:
    """Whether to go on, and which checkpoint to keep."""
    if advice is None:
        return []
    kept = ""
    if (best := advice.best) is not None:
        what = "gold of audited pairs" if advice.source == "gold.level" else "gold"
        kept = f" Best checkpoint so far: step {best.step}, {what} {best.gold:.3g} [{best.low:.3g}, {best.high:.3g}]."
    return [f"Stop advice: {advice.word}: {advice.why}.{kept}"]


def asides(verdict: Verdict, story: Story, line: Line) -> list[str]:
    """What else a reader must know: open warnings, other failed counts, losses, parts that are off, segments."""
    others = (*verdict.alarms[1:], *(verdict.warnings if verdict.state != "WATCH" else verdict.warnings[1:]))
    lines = [f"{alarm.tier.capitalize()}: {alarm.summary}" for alarm in others]
    return [*lines, *remarks(verdict, story, line)]


def remarks(verdict: Verdict, story: Story, line: Line) -> list[str]:
    """The same without alarms and warnings, for where those have places of their own."""
    failed = [check.why for check in verdict.checks.values() if not check.ok and check.why != verdict.sentence]
    lines = [f"Not healthy either: {why}" if verdict.state != "ACT" else f"Note: {why}" for why in failed]
    if verdict.alarms:
        first = verdict.alarms[0]
        lines.append(
            f"Raised at step {first.step}; the push turned between step {first.onset_low} and {first.onset_high}."
        )
    lines += gold_source(story)
    lines += gold_peak(*line("gold.mean"), alarmed=bool(verdict.alarms))
    lines += stock_phrases(line(OVERUSED)[1])
    lost, seen = story.lost
    if lost and verdict.checks["kept"].ok:
        lines.append(f"{lost} of {seen} batches were thinned, dropped or not measured.")
    if story.unmeasured:
        lines.append(f"Not measured: {len(story.unmeasured)}, the last: {story.unmeasured[-1].error}")
    lines += [f"Off: {part} ({error})" for part, error in story.off.items()]
    lines += [f"The reward itself changed at step {step}: compare nothing across it." for _, step in story.segments]
    if story.segments and any(story.rewards):
        lines.append(f"Before that it was {story.rewards[0] or 'unknown'}, since then {story.rewards[1] or 'unknown'}.")
    lines += [f"The reference could not be read: {fault.error}" for fault in story.faults if fault.part == "reference"]
    if story.baseline in ("start", "later"):
        what = "own first steps" if story.baseline == "start" else "first steps that were not deleted"
        lines.append(f"Compared with this run's {what}; open_run(reference=...) compares with the reference.")
    if story.uncompared and story.baseline == "reference":
        lack = ", ".join(dict.fromkeys(story.uncompared.values()))
        lines.append(f"Not compared, because the reference has no {lack}: {', '.join(story.uncompared)}")
    lines += not_seen(unseen(story), imported=story.imported)
    if story.skipped:
        lines.append(f"{story.skipped} damaged lines in events/ were skipped; run: tiltmeter verify")
    return lines


def unseen(story: Story) -> list[tuple[str, list[str]]]:
    """Absent readings by the columns that would show them, those that would show most first."""
    found: dict[str, list[str]] = {}
    for name, lack in story.absent.items():
        if lack.startswith("gold") and story.gold is not None:
            continue  # it is bought, and read from the labels
        # Nobody has to pass gold_chance: it is 1 where gold is given.
        found.setdefault(lack.replace("gold, gold_chance", "gold"), []).append(name)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def remedy(lack: str, *, imported: bool = False) -> str:
    """The one line that would show what lacks these columns; empty if there is none."""
    column = next((column for column in lack.split(", ") if column in SHOWN_BY), None)
    if column is None:
        return ""
    if imported and column in ("scalars", "rewards"):
        return ""  # read wherever a file has them
    if imported:
        return "--gold checks.py:score" if column == "gold" else f"--map {column}=COLUMN, if the files have it"
    return SHOWN_BY[column]


def not_seen(absent: Sequence[tuple[str, Sequence[str]]], *, imported: bool = False) -> list[str]:
    """What cannot be seen and the one line that would show it, what would show most first."""
    lines = []
    for lack, names in absent:
        shown = remedy(lack, imported=imported)
        what = f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
        lines.append(f"Not seen without {lack}: {what}.{f' To see: {shown}' if shown else ''}")
    return lines


def gold_source(story: Story) -> list[str]:
    """Whom the alarm speaks for, and how much of what was asked of it never came."""
    if story.gold is None:
        return []
    lines = [f"Gold is {story.gold['identity']}: alarms speak of it and of nothing else."]
    if story.unanswered:
        lines.append(f"{story.unanswered} of {story.asked} labels never came; each counts in favour of the run.")
    if story.rejected:
        lines.append(f"{story.rejected} answers without a request before them were rejected.")
    if story.unlabelled:
        lines.append(f"Labels of {len(story.unlabelled)} steps are still to come.")
    return lines


def gold_peak(steps: Ints, values: Floats, *, alarmed: bool, window: int = 5) -> list[str]:
    """Where gold itself stood highest, if it is clearly lower now.

    Parameters are shared and prompts differ, so gold may fall while inside prompts the reward still prefers the better
    answer: no alarm says that.
    """
    if len(steps) < 2 * window:
        return []
    best, top, now, noise = highest(values, window)
    if not alarmed and top - now < 4.0 * noise:  # the best of many windows is high by chance
        return []
    around = int(steps[best + window // 2])
    told = f"Gold was highest around step {around}, at {number(top)}; it is {number(now)} now"
    why = "" if alarmed else ", though inside prompts the reward does not yet prefer the worse answer"
    return [f"{told}{why}."]


def stock_phrases(shares: Floats) -> list[str]:
    """The way to the phrases, when there are some."""
    if not len(shares) or shares[-1] < 0.05:
        return []
    return [f"{shares[-1]:.0%} of completions have an over-used phrase; see: tiltmeter phrases RUN"]
