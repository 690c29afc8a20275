"""The report as one self-contained HTML file: the page's screens with their data inside, no network access."""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib.resources import files

from tiltmeter.safety.safe_text import html_json, visible
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.payloads.overview import Summary
from tiltmeter.view.report.answers import ROLLOUTS, SUMMARY, collect_answers
from tiltmeter.view.screens.picture.svg import render_svg
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.shell.shell import render_shell


def render_html(reader: RunReader, *, rollouts: int = ROLLOUTS, redact: bool = False, files: Sequence[str] = ()) -> str:
    """The whole file; `files`: names of files beside it, which it links to.

    Foreign text cannot execute: data is JSON in a block that is not executed, and the shell's policy allows only
    our own script and style."""
    report = collect_answers(reader, rollouts=rollouts, redact=redact)
    summary: Summary = report.answers[SUMMARY]
    body = f'<div id="page">{_plain_html(report.about, summary)}</div>\n{_links(files)}'
    body += f'<script type="application/json" id="data">{html_json(plain(report))}</script>'
    return render_shell(f"{summary.state} - tiltmeter", body, read_asset("report.css"), read_asset("report.js"))


def read_asset(name: str) -> str:
    """A file of the built page."""
    return (files("tiltmeter.view") / "static" / name).read_text("utf-8")


def _plain_html(made_by: str, summary: Summary) -> str:
    """The content for viewers without scripts: the verdict, the findings and the fixes."""
    lines = [made_by, f"{summary.state}  {summary.name}", summary.sentence, *summary.agreement_and_level]
    for finding in summary.findings:
        lines += [f"{finding.failure}: {finding.summary}", f"What helps: {finding.fix}"]
    text = "".join(f"<p>{html.escape(visible(line))}</p>" for line in lines)
    return text + render_svg(summary.pictures[1], dark=False)  # the report's policy allows no style of another's


def _links(names: Sequence[str]) -> str:
    """Our own file names, as links beneath the page; empty for a report that stands alone."""
    links = ", ".join(f'<a href="{html.escape(name)}">{html.escape(name)}</a>' for name in names)
    return f"<footer>Data: {links}</footer>\n" if names else ""
