"""The report as Markdown, short enough to paste into an issue."""

from __future__ import annotations

from tiltmeter.safety.safe_text import markdown as fenced
from tiltmeter.verdict.message import describe_likelihood
from tiltmeter.view.markdown_text import LONGEST, escape_line, table
from tiltmeter.view.payloads.alarms import Actions, Alarms
from tiltmeter.view.payloads.overview import Summary
from tiltmeter.view.report.answers import ACTIONS, ALARMS, SUMMARY, collect_answers
from tiltmeter.view.screens.claims.run_claims import claim_lines
from tiltmeter.view.screens.run_reader import RunReader

EXAMPLES = 5  # completions


def render_markdown(reader: RunReader, *, redact: bool = False) -> str:
    """The verdict, findings, alarms, actions and example completions."""
    report = collect_answers(reader, rollouts=EXAMPLES, redact=redact)
    summary: Summary = report.answers[SUMMARY]
    lines = [f"## {summary.state}: {escape_line(summary.sentence)}", ""]
    lines += [f"Run {escape_line(summary.name)}. {escape_line(report.about)}.", ""]
    lines += [f"- {escape_line(line)}" for line in summary.agreement_and_level] + [""]
    if summary.symptom:
        lines += [f"**Symptom.** {escape_line(summary.symptom)}", ""]
    for finding in summary.findings:
        name = f"{describe_likelihood(finding)} {finding.failure.replace('_', ' ')}".capitalize()
        head = f"**{escape_line(name)}.** {escape_line(finding.summary)}"
        parts = (("Likely cause", finding.cause), ("Tried", finding.tried), ("What helps", finding.fix))
        lines += [head, "", *(f"- {word}: {escape_line(text)}" for word, text in parts if text), ""]
    if summary.claims.claims or summary.claims.witness:
        lines += ["**What was done.** Evidence, not a verdict.", ""]
        lines += [*(f"- {escape_line(line)}" for line in claim_lines(summary.claims)), ""]
    if (advice := summary.advice) is not None:
        lines += [f"**Advice.** {escape_line(advice.word)}: {escape_line(advice.why)}.", ""]
    if (best := summary.last_good) is not None:
        interval = f"{best.gold:.3g} [{best.low:.3g}, {best.high:.3g}]"
        lines += [f"**Checkpoint to keep.** Step {best.step}, gold {interval}.", ""]
    lines += table(("alarm or warning", "raised", "onset", "status"), _alarm_cells(report.answers[ALARMS]))
    lines += table(("change", "state", "outcome"), _action_cells(report.answers[ACTIONS]))
    for example in summary.proves[:EXAMPLES]:
        cut = example.text if len(example.text) <= LONGEST else f"{example.text[:LONGEST]}…"
        lines += [f"Reward {_number(example.reward)}, gold {_number(example.gold)}:", "", fenced(cut), ""]
    return "\n".join(lines).rstrip() + "\n"


def _alarm_cells(alarms: Alarms) -> list[tuple[str, ...]]:
    return [
        (row.summary or row.name, f"step {row.step}", f"{row.onset_low}-{row.onset_high}", row.status)
        for row in alarms.rows
    ]


def _action_cells(actions: Actions) -> list[tuple[str, ...]]:
    return [(f"{row.change} (step {row.step})", row.state, row.outcome or row.reason) for row in actions.rows]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"
