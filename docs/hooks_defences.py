"""Renders what the campaign of defences came to, while mkdocs builds. No figure is typed into a page.

`<!-- defences: PART -->` becomes a part of `benchmarks/results/hardening.json`, `<!-- defences: =FIGURE -->` one figure
of it. What is not there was not made yet: the page says so, and a strict build fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from shown import PENDING, RESULTS, measured, number, table

_MARK = re.compile(r"<!-- defences: (=?[a-z_.]+) -->")

Found = Mapping[str, Any]


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(text, RESULTS) if _MARK.search(text) else text


def rendered(text: str, results: Path) -> str:
    """The page with its marks filled in."""
    found = measured(results / "hardening.json")
    if found is None:
        return _MARK.sub(PENDING, text)
    return _MARK.sub(lambda mark: part(mark[1], found), text)


def part(name: str, found: Found) -> str:
    return number(found[name[1:]]) if name.startswith("=") else PARTS[name](found)


def undefended(found: Found) -> str:
    rows = [
        (f"`{row['hack']}`", row["gold_start"], row["gold_peak"], row["gold_end"], each(row), row["words_end"])
        for row in found["undefended"]
    ]
    return table(("hack", "gold at the start", "at its best", "at the end", "seeds", "words at the end"), rows)


def made_for(found: Found) -> str:
    return compared(found, [row for row in found["defended"] if row["made_for"]])


def not_made_for(found: Found) -> str:
    return compared(found, [row for row in found["defended"] if not row["made_for"]])


def compared(found: Found, cells: Sequence[Found]) -> str:
    bare = {row["hack"]: row["gold_end"] for row in found["undefended"]}
    rows = [
        (
            f"`{row['defence']}`",
            f"`{row['hack']}`",
            bare[row["hack"]],
            row["gold_end"],
            each(row),
            f"{row['gain']:+.2f} ({row['gain_low']:+.2f} to {row['gain_high']:+.2f})",
            row["verdict"],
        )
        for row in cells
    ]
    return table(("defence", "hack", "gold without", "gold with", "seeds", "gain, with 95 % interval", ""), rows)


def sentence(found: Found) -> str:
    """Which helped where, in words."""
    lines = []
    for asked, where in ((True, "the hack it is made for"), (False, "the other hack")):
        for verdict in ("helps", "harms", "not shown"):
            named = [f"`{row['defence']}`" for row in found["defended"]
                     if row["made_for"] is asked and row["verdict"] == verdict]  # fmt: skip
            if named:
                lines.append(f"- On {where}, {SAYS[verdict]}: {', '.join(named)}.")
    return "\n".join(lines)


SAYS = {
    "helps": "gold at the end is shown to be higher",
    "harms": "gold at the end is shown to be lower",
    "not shown": "three seeds show neither",
}


def averaged(found: Found) -> str:
    keys = ("raters", "pairs", "members", "members_mean", "ensemble", "warm", "standard_error")
    rows = [[row[key] for key in keys] for row in found["averaged"]]
    heads = ("raters", "pairs", "each member", "their mean", "mean of scores", "mean of weights", "standard error")
    said = [
        f"For `{row['raters']}`, the mean of weights is right {100 * abs(row['warm'] - row['ensemble']):.1f} points "
        f"{'less' if row['warm'] < row['ensemble'] else 'more'} often than the mean of scores, and "
        f"{100 * abs(row['warm'] - row['members_mean']):.1f} points "
        f"{'less' if row['warm'] < row['members_mean'] else 'more'} often than a member."
        for row in found["averaged"]
    ]
    return "\n\n".join([table(heads, rows), *said])


def students(found: Found) -> str:
    rows = [
        (
            made["raters"],
            check["name"],
            check["agreement"],
            f"{number(check['low'])} to {number(check['high'])}",
            check["spearman"],
            check["r2"],
            check["gap"],
        )
        for made in found["students"]
        for check in made["checks"]
    ]
    heads = ("teacher's raters", "answers", "agreement", "95 % interval", "Spearman", "R²", "liked beyond the teacher")
    said = [
        f"The student of `{made['raters']}` has {made['size_ratio']:.0%} of its teacher's parameters and is "
        f"{number(made['speed_ratio'])} times as fast. It is {'accepted' if made['usable'] else 'refused'}"
        f"{'' if made['usable'] else ': ' + '; '.join(made['why'])}."
        for made in found["students"]
    ]
    return "\n\n".join([table(heads, rows), *said])


def linear_members(found: Found) -> str:
    return ", ".join(number(row["weight_of_a_reason"]) for row in found["linear_members"])


def origin(found: Found) -> str:
    load = f"{found['cores']} cores, load {found['load_1min']}"
    return f"Made by `{found['command']}`, revision `{found['revision']}`, {load}."


PARTS: Mapping[str, Callable[[Found], str]] = {
    "undefended": undefended,
    "made_for": made_for,
    "not_made_for": not_made_for,
    "sentence": sentence,
    "averaged": averaged,
    "students": students,
    "linear_members": linear_members,
    "origin": origin,
}


def each(row: Found) -> str:
    return ", ".join(f"{value:.2f}" for value in row["gold_ends"])
