"""The report as one HTML file: the page's own screens with their data inside, allowed by hash, asking nobody."""

from __future__ import annotations

import base64
import hashlib
import html
from importlib.resources import files
from typing import Any

from tiltmeter.encode import html_json, visible
from tiltmeter.page.book import Book
from tiltmeter.report.answers import ROLLOUTS, collected

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
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def document(book: Book, *, rollouts: int = ROLLOUTS, redact: bool = False) -> str:
    """The whole file. Nothing that anybody else wrote can act in it: data is JSON in a block that is not executed, and
    only our own script and style, named by their hashes, are allowed."""
    told = collected(book, rollouts=rollouts, redact=redact)
    style, script = asset("report.css"), asset("report.js")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    summary = told["answers"]["/api/summary"]
    return TEMPLATE.format(
        policy=policy,
        title=f"{summary['state']} - tiltmeter",
        style=style,
        script=script,
        plain=_plain(told["made"], summary),
        data=html_json(told),
    )


def asset(name: str) -> str:
    """A file of the built page, as it may stand inside an HTML element of its own kind."""
    text = (files("tiltmeter") / "page" / "static" / name).read_text("utf-8")
    if "</script" in text.lower() or "</style" in text.lower() or "<!--" in text:
        raise ValueError(f"{name} would end its own element: build the page again")
    return text


def _plain(made: str, summary: dict[str, Any]) -> str:
    """What a mail program without scripts shows: the verdict, what was found and what to do."""
    lines = [made, f"{summary['state']}  {summary['name']}", summary["sentence"]]
    for finding in summary["findings"]:
        lines += [f"{finding['failure']}: {finding['summary']}", f"What helps: {finding['fix']}"]
    return "".join(f"<p>{html.escape(visible(line))}</p>" for line in lines)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
