"""The report as Markdown, short enough to paste into an issue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tiltmeter.encode import log_line
from tiltmeter.encode import markdown as fenced
from tiltmeter.page.book import Book
from tiltmeter.report.answers import collected

SHOWN = 5  # completions
LONGEST = 600  # characters of one
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~@#!&]|:(?=//))")  # a colon only where it would make an address


def markdown(book: Book, *, redact: bool = False) -> str:
    """The verdict, the diagnosis, the numbers, what was done, and completions that show it."""
    told = collected(book, rollouts=SHOWN, redact=redact)
    answers: dict[str, Any] = told["answers"]
    summary = answers["/api/summary"]
    lines = [f"## {summary['state']}: {line(summary['sentence'])}", ""]
    lines += [f"Run {line(summary['name'])}. {line(told['made'])}.", ""]
    if summary["symptom"]:
        lines += [f"**Symptom.** {line(summary['symptom'])}", ""]
    for finding in summary["findings"]:
        lines += [f"**{line(finding['failure'])}** ({finding['confidence']:.0%} sure). {line(finding['summary'])}", ""]
        lines += [f"- {word}: {line(finding[key])}" for word, key in _PARTS if finding[key]] + [""]
    if (advice := summary["advice"]) is not None:
        lines += [f"**Advice.** {line(advice['word'])}: {line(advice['why'])}.", ""]
    if (best := summary["last_good"]) is not None:
        interval = f"{best['gold']:.3g} [{best['low']:.3g}, {best['high']:.3g}]"
        lines += [f"**Checkpoint to keep.** Step {best['step']}, gold {interval}.", ""]
    lines += table(("alarm or warning", "raised", "onset", "status"), _alarms(answers["/api/alarms"]["rows"]))
    lines += table(("change", "state", "came of it"), _actions(answers["/api/actions"]["rows"]))
    for shown in summary["proves"][:SHOWN]:
        cut = shown["text"] if len(shown["text"]) <= LONGEST else f"{shown['text'][:LONGEST]}…"
        lines += [f"Reward {_number(shown['reward'])}, gold {_number(shown['gold'])}:", "", fenced(cut), ""]
    return "\n".join(lines).rstrip() + "\n"


_PARTS = (("Likely cause", "cause"), ("Tried", "tried"), ("What helps", "fix"))


def line(text: str) -> str:
    r"""One line of foreign text that Markdown reads as nothing but text: no link, no mention, no HTML.

    >>> print(line("<b>[x](y)\nmail @me: http://x"))
    \<b\>\[x\](y)\\u{a}mail \@me: http\://x
    """
    return _SPECIAL.sub(r"\\\1", log_line(text))


def _alarms(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (row["summary"] or row["name"], f"step {row['step']}", f"{row['onset_low']}-{row['onset_high']}", row["status"])
        for row in rows
    ]


def _actions(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [(f"{row['change']} (step {row['step']})", row["state"], row["outcome"] or row["reason"]) for row in rows]


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with an empty one after them; none where there are no rows."""
    if not rows:
        return []
    head = [f"| {' | '.join(map(line, titles))} |", f"|{'---|' * len(titles)}"]
    return [*head, *(f"| {' | '.join(map(line, row))} |" for row in rows), ""]


def bullets(title: str, lines: Sequence[str]) -> list[str]:
    """A section of lines; nothing where there are none."""
    return [f"### {title}", "", *(f"- {line(each)}" for each in lines), ""] if lines else []


def quoted(name: str, text: str) -> list[str]:
    """Foreign text under its name, cut where it is long, fenced so that nothing in it is read as Markdown."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}… (+{len(text) - LONGEST})"
    return [f"{name}:", "", fenced(cut), ""]


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"
