"""How old the figures of a page are: the revision that each was measured at, against the commit that is built."""

from __future__ import annotations

import subprocess
import time
from functools import cache
from pathlib import Path

from .registry import ResultFiles

ROOT = Path(__file__).parents[2]


def age_lines(read: ResultFiles) -> str:
    """A line for each revision at which results of a page were measured, as Markdown; nothing for a page without."""
    by_revision: dict[str, list[str]] = {}
    for name in sorted(read.used):
        if (read.folder / f"{name}.json").exists():
            result = read(name)
            revision = result.get("revision", "") if isinstance(result, dict) else ""
            by_revision.setdefault(revision, []).append(f"`{name}`")
    if not by_revision:
        return ""
    lines = [f"- {', '.join(names)}: {age_of(revision)}" for revision, names in by_revision.items()]
    return "\n\n---\n\nAge of the figures on this page:\n\n" + "\n".join(lines) + "\n"


@cache
def age_of(revision: str) -> str:
    """How many commits and days lie between a revision and the commit that is checked out."""
    if not revision:
        return "measured at no recorded revision"
    if _git("merge-base", "--is-ancestor", revision, "HEAD") is None:
        return f"measured at `{revision}`, which is not in the history of this version"
    commits, then = _git("rev-list", "--count", f"{revision}..HEAD"), _git("log", "-1", "--format=%ct", revision)
    days = int((time.time() - int(then or 0)) // 86_400)
    return f"measured at `{revision}`, {commits} commits and {days} days ago"


def _git(*words: str) -> str | None:
    """What git prints; None if it fails."""
    done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT)
    return None if done.returncode else done.stdout.strip()
