"""The report as one self-contained HTML file: the page's screens with their data inside, no network access."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from importlib.resources import files

from tiltmeter.safety.safe_text import html_json, visible
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.payloads.overview import Summary
from tiltmeter.view.report.answers import ROLLOUTS, SUMMARY, collect_answers
from tiltmeter.view.screens.picture.svg import render_svg
from tiltmeter.view.screens.run_reader import RunReader

TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page">{plain}</div>
{files}<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def render_html(reader: RunReader, *, rollouts: int = ROLLOUTS, redact: bool = False, files: Sequence[str] = ()) -> str:
    """The whole file; `files`: names of files beside it, which it links to.

    Foreign text cannot execute: data is JSON in a block that is not executed, and the policy allows
    only our own script and style, by their hashes."""
    report = collect_answers(reader, rollouts=rollouts, redact=redact)
    style, script = read_asset("report.css"), read_asset("report.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    summary: Summary = report.answers[SUMMARY]
    return TEMPLATE.format(
        policy=policy,
        title=f"{summary.state} - tiltmeter",
        style=style,
        script=script,
        plain=_plain_html(report.about, summary),
        files=_links(files),
        data=html_json(plain(report)),
    )


def read_asset(name: str) -> str:
    """A file of the built page, checked that it can be put inside a script or style element."""
    text = (files("tiltmeter.view") / "static" / name).read_text("utf-8")
    if "</script" in text.lower() or "</style" in text.lower() or "<!--" in text:
        raise ValueError(f"{name} would end its own element: build the page again")
    return text


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


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
