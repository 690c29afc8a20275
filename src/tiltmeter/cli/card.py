"""What was found in a run, what would help, what was done and what came of it, in lines for any screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tiltmeter.advice import Advice
from tiltmeter.records import Action, Finding
from tiltmeter.story import Story

MOST = 3  # findings on a screen: more are in --json
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


def findings(story: Story) -> list[Finding]:
    """Those that hold now, the surest first."""
    return sorted(story.findings.values(), key=lambda finding: (-finding.confidence, finding.failure))


def diagnosis(story: Story) -> list[str]:
    """Three lines a finding: what it is, why, and what to do; a fourth where an experiment was made."""
    lines = []
    for finding in findings(story)[:MOST]:
        lines.append(
            f"{finding.failure} ({finding.confidence:.0%} sure, told at step {finding.step}): {finding.summary}"
        )
        if finding.cause:
            lines.append(f"  Likely cause: {finding.cause}")
        if finding.fix:
            lines.append(f"  What helps: {finding.fix}")
        if finding.failure in story.experiments:
            lines.append(f"  Tried: {story.experiments[finding.failure]['sentence']}")
    if len(story.findings) > MOST:
        lines.append(f"{len(story.findings) - MOST} more findings: --json")
    return lines


def actions(story: Story, run: str) -> list[str]:
    """The newest changes that were proposed or made, oldest first."""
    newest = sorted(story.actions.values(), key=lambda action: (action.attempt, action.step))[-MOST:]
    return [_action(action, run) for action in newest] + [f"  Came of it: {told['sentence']}" for told in _last(story)]


def _action(action: Action, run: str) -> str:
    change = f"{action.knob} {action.before:g} -> {action.after:g}"
    match action.state:
        case "proposed":
            return f"Proposed: {change}, {action.reason}. Approve: tiltmeter approve {run} {action.id}"
        case "applied":
            return f"Done: {change}, {action.reason}. Undo: tiltmeter undo {run} {action.id}"
        case "refused":
            return f"Not done: {action.reason}"
    return f"{action.state.capitalize()}: {change}"


def _last(story: Story) -> Iterable[dict[str, str]]:
    return [{"sentence": str(told["sentence"])} for told in story.outcomes[-1:]]


def stop_advice(advice: Advice | None) -> list[str]:
    """Whether to go on, and which checkpoint to keep."""
    if advice is None:
        return []
    kept = ""
    if (best := advice.best) is not None:
        what = "gold of audited pairs" if advice.source == "gold.level" else "gold"
        kept = f" Best checkpoint so far: step {best.step}, {what} {best.gold:.3g} [{best.low:.3g}, {best.high:.3g}]."
    return [f"Stop advice: {advice.word}: {advice.why}.{kept}"]


def unseen(absent: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """What cannot be seen and the one line that would show it, what would show most first."""
    lines = []
    for lack, names in absent:
        columns = lack.split(", ")
        shown = next((SHOWN_BY[column] for column in columns if column in SHOWN_BY), "")
        what = f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
        lines.append(f"Not seen without {lack}: {what}.{f' To see: {shown}' if shown else ''}")
    return lines
