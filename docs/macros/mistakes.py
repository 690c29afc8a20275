"""Mistakes of the first minutes, and what is said of them: a table, and the scripts that were run."""

from __future__ import annotations

from .registry import ResultFiles, macro
from .tables import escape, table


@macro
def mistakes(read: ResultFiles, about: str) -> str:
    """Each mistake about gold or about rewards: where it is answered, and in which words."""
    rows = [
        (escape(one["what"]), one["where"], "<br>".join(escape(line) for line in one["said"].splitlines()))
        for one in read("first_minutes")["mistakes"]
        if one["about"] == about
    ]
    return table("mistake | answered | what is said", rows)


@macro
def mistake_scripts(read: ResultFiles, about: str) -> str:
    """The text of each, as it was run."""
    chosen = [one for one in read("first_minutes")["mistakes"] if one["about"] == about]
    return "\n\n".join(f"**{escape(one['what'])}**\n\n```python\n{one['script'].strip()}\n```" for one in chosen)
