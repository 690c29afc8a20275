"""Renders what `tiltmeter audit` said about real logs, while mkdocs builds. No figure is typed into a page.

`<!-- audits: SET -->` becomes the table of a set of `benchmarks/results/real_audits.json`, with `command` behind the
set the command that made it, and `<!-- audits: =SET.FIGURE -->` one figure (without a set: of the whole). What is not
there was not made yet: the page says so, and a strict build fails.

Names of runs were written by others: they are shown as text and do nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shown import PENDING, RESULTS, literal, measured, number
from shown import table as tabled

from tiltmeter.safety.safe_text import log_line

_MARK = re.compile(r"<!-- audits: (=?[a-z_.]+)( command)? -->")

Run = Mapping[str, Any]


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(text, RESULTS) if _MARK.search(text) else text


def rendered(text: str, results: Path) -> str:
    """The page with its marks filled in."""
    found = measured(results / "real_audits.json")
    if found is None:
        return _MARK.sub(PENDING, text)
    sets = {one["name"]: one for one in found["sets"]}

    def part(mark: re.Match[str]) -> str:
        if mark[1].startswith("="):
            of, _, name = mark[1][1:].rpartition(".")
            return number((sets[of] if of else found)[name])
        return f"```sh\n{log_line(sets[mark[1]]['command'])}\n```" if mark[2] else table(sets[mark[1]])

    return _MARK.sub(part, text)


def table(found: Mapping[str, Any]) -> str:
    """Every run of a set, in the order of its file."""
    entropy = any(run["entropy"] for run in found["table"])
    heads = ["run", "steps", "proxy", "truth", *(["entropy"] if entropy else []), "verdict", "since", "why"]
    rows = []
    for run in found["table"]:
        since = "–" if run["alarm"] is None else str(run["alarm"]["onset"])
        cells = [literal(run["run"]), str(run["steps"]), course(run["proxy"]), course(run["truth"])]
        cells += [course(run["entropy"])] if entropy else []
        rows.append([*cells, run["state"], since, literal(run["why"], 200)])
    return tabled(heads, rows)


def course(ends: Sequence[float] | None) -> str:
    return "–" if ends is None else f"{number(ends[0])} → {number(ends[1])}"
