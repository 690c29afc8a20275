"""Lines about a run for any screen: its findings with cause and fix, and the newest actions with their outcome."""

from __future__ import annotations

from collections.abc import Iterable

from tiltmeter.data.records import Action
from tiltmeter.verdict.message import describe_likelihood
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.view.screens.wording import ranked_findings

MOST = 3  # findings on a screen: more are in --json


def diagnosis_lines(run_facts: RunFacts) -> list[str]:
    """Three lines a finding: what it is, why, and what to do; a fourth where an experiment was made."""
    lines = []
    for finding in ranked_findings(run_facts)[:MOST]:
        lines.append(
            f"{describe_likelihood(finding).capitalize()} {finding.failure.replace('_', ' ')}, seen at step "
            f"{finding.step}: {finding.summary}"
        )
        if finding.cause:
            lines.append(f"  Likely cause: {finding.cause}")
        if finding.fix:
            lines.append(f"  What helps: {finding.fix}")
        if finding.failure in run_facts.experiments:
            lines.append(f"  Tried: {run_facts.experiments[finding.failure]['sentence']}")
    if len(run_facts.findings) > MOST:
        lines.append(f"{len(run_facts.findings) - MOST} more findings: --json")
    return lines


def action_lines(run_facts: RunFacts, run: str) -> list[str]:
    """The newest changes that were proposed or made, oldest first."""
    newest = sorted(run_facts.actions.values(), key=lambda action: (action.attempt, action.step))[-MOST:]
    return [_action_line(action, run) for action in newest] + [
        f"  Outcome: {outcome['sentence']}" for outcome in _last_outcome(run_facts)
    ]


def _action_line(action: Action, run: str) -> str:
    change = f"{action.knob} {action.before:g} -> {action.after:g}"
    match action.state:
        case "proposed":
            return f"Proposed: {change}, {action.reason}. Approve: tiltmeter approve {run} {action.id}"
        case "applied":
            return f"Done: {change}, {action.reason}. Undo: tiltmeter undo {run} {action.id}"
        case "reverted" if action.reason.startswith("ended "):
            return f"Ended: {action.knob} {action.after:g} -> {action.before:g}, {action.reason}"
        case "refused":
            return f"Not done: {action.reason}"
    return f"{action.state.capitalize()}: {change}"


def _last_outcome(run_facts: RunFacts) -> Iterable[dict[str, str]]:
    return [{"sentence": str(outcome["sentence"])} for outcome in run_facts.outcomes[-1:]]
