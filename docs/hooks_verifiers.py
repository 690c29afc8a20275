"""Renders which forgeries harnesses pay for, while mkdocs builds. No figure is typed into a page.

`<!-- verifiers: forgeries -->` becomes the table of `benchmarks/results/verifiers.json`,
`<!-- verifiers: catalogue -->` the list of all forgeries with what closes them. What is not there was not made yet: the
page says so, and a strict build fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from shown import PENDING, RESULTS, measured

_MARK = re.compile(r"<!-- verifiers: ([a-z]+) -->")
#: The harnesses as a reader would name them.
HEADS = {
    "exit_code": "exit code",
    "assert_loop": "asserts in a loop",
    "json_values": "values by `json.dumps`",
    "values_out": "values out",
    "values_out_hidden": "values out, hidden inputs",
}


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(text, RESULTS) if _MARK.search(text) else text


def rendered(text: str, results: Path) -> str:
    """The page with its tables filled in."""
    return _MARK.sub(lambda mark: catalogue() if mark[1] == "catalogue" else forgeries(results), text)


def forgeries(results: Path) -> str:
    found = measured(results / "verifiers.json")
    if found is None:
        return PENDING
    lines = [f"| forgery | {' | '.join(HEADS.values())} |", "|---|" + "---|" * len(HEADS)]
    for row in found["forgeries"]:
        told = [f"**{row[name]}**" if row[name] == "paid" else row[name] for name in HEADS]
        lines.append(f"| {row['forgery'].replace('|', '/')} | {' | '.join(told)} |")
    return "\n".join(lines)


def catalogue() -> str:
    from tiltmeter.workbench.probe.forgeries import FORGERIES

    lines = ["| forgery | of | why it may be paid | what closes it |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.kind} | {one.why} | {one.fix} |".replace("\\", "\\\\") for one in FORGERIES]
    return "\n".join(lines)
