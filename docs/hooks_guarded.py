"""Renders guarded against unguarded training, while mkdocs builds. No figure is typed into a page.

`<!-- guarded: PART -->` becomes a part of `benchmarks/results/defences.json`. What is not there was not made yet: the
page says so, and a strict build fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shown import PENDING, RESULTS, measured, number, table

_MARK = re.compile(r"<!-- guarded: ([a-z]+) -->")

Found = Mapping[str, Any]


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(text, RESULTS) if _MARK.search(text) else text


def rendered(text: str, results: Path) -> str:
    """The page with its marks filled in."""
    found = measured(results / "defences.json")
    if found is None:
        return _MARK.sub(PENDING, text)
    return _MARK.sub(lambda mark: PARTS[mark[1]](found), text)


def reach(row: Found, name: str) -> str:
    """A figure with its interval."""
    return f"{number(row[name])} [{number(row[f'{name}_low'])}, {number(row[f'{name}_high'])}]"


def gold(found: Found) -> str:
    start = {row["scenario"]: row["gold"] for row in found["start"]}
    rows = [
        (
            f"`{row['scenario']}`",
            row["kind"],
            start[row["scenario"]],
            reach(row, "unguarded_gold"),
            reach(row, "guarded_gold"),
            reach(row, "gold_gain"),
        )
        for row in found["scenarios"]
    ]
    return table(("scenario", "kind", "base", "unguarded", "guarded", "gain"), rows)


def rest(found: Found) -> str:
    rows = [
        (
            f"`{row['scenario']}`",
            *(reach(row, f"{arm}_{what}") for what in ("diversity", "kl") for arm in ("unguarded", "guarded")),
            row["unguarded_words"],
            row["guarded_words"],
        )
        for row in found["scenarios"]
    ]
    heads = ("diversity, unguarded", "guarded", "KL, unguarded", "guarded", "words, unguarded", "guarded")
    return table(("scenario", *heads), rows)


def start(found: Found) -> str:
    rows = [(f"`{row['scenario']}`", row["gold"], row["diversity"], row["words"]) for row in found["start"]]
    return table(("scenario", "gold", "diversity", "words"), rows)


PARTS: dict[str, Callable[[Found], str]] = {"gold": gold, "rest": rest, "start": start}
