"""What was found in a run, what would help, what was done and what came of it, in lines for any screen."""

from __future__ import annotations

from collections.abc import Iterable

from tiltmeter.page.words import findings
from tiltmeter.records import Action
from tiltmeter.story import Story

MOST = 3  # findings on a screen: more are in --json


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
