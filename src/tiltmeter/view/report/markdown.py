"""The report as Markdown, short enough to paste into an issue."""

from __future__ import annotations

from typing import Any

from tiltmeter.safety.safe_text import markdown as fenced
from tiltmeter.view.check_report.markdown import LONGEST, escape_line, table
from tiltmeter.view.report.answers import collect_answers
from tiltmeter.view.screens.run_reader import RunReader

EXAMPLES = 5  # completions


def render_markdown(reader: RunReader, *, redact: bool = False) -> str:
    """The verdict, findings, alarms, actions and example completions."""
    report = collect_answers(reader, rollouts=EXAMPLES, redact=redact)
    answers: dict[str, Any] = report["answers"]
    summary = answers["/api/summary"]
    lines = [f"## {summary['state']}: {escape_line(summary['sentence'])}", ""]
    lines += [f"Run {escape_line(summary['name'])}. {escape_line(report['made'])}.", ""]
    if summary["symptom"]:
        lines += [f"**Symptom.** {escape_line(summary['symptom'])}", ""]
    for finding in summary["findings"]:
        lines += [
            f"**{escape_line(finding['failure'])}** ({finding['confidence']:.0%} sure). "
            f"{escape_line(finding['summary'])}",
            "",
        ]
        lines += [f"- {word}: {escape_line(finding[key])}" for word, key in _PARTS if finding[key]] + [""]
    if (advice := summary["advice"]) is not None:
        lines += [f"**Advice.** {escape_line(advice['word'])}: {escape_line(advice['why'])}.", ""]
    if (best := summary["last_good"]) is not None:
        interval = f"{best['gold']:.3g} [{best['low']:.3g}, {best['high']:.3g}]"
        lines += [f"**Checkpoint to keep.** Step {best['step']}, gold {interval}.", ""]
    lines += table(("alarm or warning", "raised", "onset", "status"), _alarm_cells(answers["/api/alarms"]["rows"]))
    lines += table(("change", "state", "outcome"), _action_cells(answers["/api/actions"]["rows"]))
    for example in summary["proves"][:EXAMPLES]:
        cut = example["text"] if len(example["text"]) <= LONGEST else f"{example['text'][:LONGEST]}…"
        lines += [f"Reward {_number(example['reward'])}, gold {_number(example['gold'])}:", "", fenced(cut), ""]
    return "\n".join(lines).rstrip() + "\n"


_PARTS = (("Likely cause", "cause"), ("Tried", "tried"), ("What helps", "fix"))


def _alarm_cells(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (row["summary"] or row["name"], f"step {row['step']}", f"{row['onset_low']}-{row['onset_high']}", row["status"])
        for row in rows
    ]


def _action_cells(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [(f"{row['change']} (step {row['step']})", row["state"], row["outcome"] or row["reason"]) for row in rows]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"
