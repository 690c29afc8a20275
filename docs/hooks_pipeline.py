"""Renders the recorded training of a real model from SFT to the comparison, while mkdocs builds.

`<!-- pipeline: PART -->` becomes a part of `benchmarks/results/pipeline.json`. What is not there was not made yet: the
page says so, and a strict build fails. What a model wrote leaves through `tiltmeter.safety.safe_text` only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shown import PENDING, RESULTS, literal, measured, number, table

from tiltmeter.safety.safe_text import markdown

_MARK = re.compile(r"<!-- pipeline: ([a-z_]+) -->")

Found = Mapping[str, Any]


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(text, RESULTS) if _MARK.search(text) else text


def rendered(text: str, results: Path) -> str:
    """The page with its marks filled in."""
    found = measured(results / "pipeline.json")
    return _MARK.sub(lambda mark: PENDING if found is None else PARTS[mark[1]](found), text)


def recipe(found: Found) -> str:
    return f"```yaml\n{found['recipe']}```"


def stages(found: Found) -> str:
    """One column for each fact that any stage has."""
    names = [name for name in found["stages"][0] if any(row[name] is not None for row in found["stages"])]
    rows = [[row[name] for name in names] for row in found["stages"]]
    return table(names, rows)


def watched(found: Found) -> str:
    told = found["watched"]
    rows = [(f"`{row['reading']}`", row["first step"], row["last step"]) for row in told["readings"]]
    said = (
        f"{told['rollouts']:,} rollouts. The verdict on the watched run is {told['state']}: {literal(told['sentence'])}"
    )
    return f"{table(('reading', 'first step', 'last step'), rows)}\n\n{said}"


def verdict(found: Found) -> str:
    return f"**{found['verdict'].upper()}**\n\n{markdown(found['sentence'])}"


def priced(found: Found) -> str:
    rows = [
        (
            literal(row["title"]),
            row["base"],
            row["checkpoint"],
            _interval(row),
            row["n"],
            f"**{row['state']}**" if row["state"] in ("worse", "better") else row["state"],
        )
        for row in found["measures"]
        if row["state"] != "not asked"
    ]
    return table(("measure", "base", "checkpoint", "difference", "n", "state"), rows)


def not_asked(found: Found) -> str:
    return "\n".join(f"- {literal(line)}" for line in found["not_asked"]) or "Everything was asked."


def examples(found: Found) -> str:
    shown = [
        f"**{literal(row['measure'])}**: {literal(row['prompt'])}\n\nBase:\n\n{markdown(row['base'])}\n\n"
        f"Checkpoint:\n\n{markdown(row['checkpoint'])}"
        for row in found["examples"]
    ]
    return "\n\n".join(shown) or "None."


def origin(found: Found) -> str:
    spent = sum(row["seconds"] for row in found["stages"]) + found["compare_seconds"]
    load = f"{found['cores']} cores, load {found['load_1min']}"
    return (
        f"Made by `{found['command']}`, revision `{found['revision']}`, {load}: {number(spent)} seconds in all, "
        f"{number(found['compare_seconds'])} of them for the comparison."
    )


def _interval(row: Found) -> str:
    if row["difference"] is None:
        return "–"
    ends = "" if row["low"] is None else f" ({row['low']:+.3g} to {row['high']:+.3g})"
    return f"{row['difference']:+.3g}{ends}"


PARTS: Mapping[str, Callable[[Found], str]] = {
    "recipe": recipe,
    "stages": stages,
    "watched": watched,
    "verdict": verdict,
    "priced": priced,
    "not_asked": not_asked,
    "examples": examples,
    "origin": origin,
}
