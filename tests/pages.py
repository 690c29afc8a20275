"""Renders a page of the documentation as mkdocs does, with the results of any folder."""

from __future__ import annotations

import os
import re
from pathlib import Path

import yaml
from jinja2 import Environment, StrictUndefined

import macros  # noqa: F401  fills the registry
from macros.registry import RESULTS, ResultFiles, macros_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
(OPTIONS,) = (plugin["macros"] for plugin in SETTINGS["plugins"] if "macros" in plugin)

#: Pages whose Python and commands a test runs from top to bottom.
RUN_WHOLE = (
    *("start.md", "add-an-instrument.md", "gold.md", "rewards.md", "verifier-audit.md", "plan.md", "agents.md"),
    *("read.md", "regrade.md"),
    *("tutorials/agent-run.md", "tutorials/audit.md", "tutorials/labelling.md", "tutorials/guards.md"),
)
LINK = re.compile(r"(?<!`)\[[^\]]+\]\(([^)\s]+)\)")
BLOCK = re.compile(r"^(?:<!--# (not run|run by):? ([^\n]+) #-->\n)?```(\w*)[^\n]*\n(.*?)^```$", re.M | re.S)


def site_pages(docs: Path = DOCS) -> set[str]:
    """Every Markdown page that the site builds."""
    left_out = set(SETTINGS["exclude_docs"].split())
    return {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - left_out


def clicks(docs: Path = DOCS) -> dict[str, int]:
    """By page that one can reach from the front page: over how many links in texts, not the navigation."""
    pages, found, last = site_pages(docs), {"index.md": 0}, ["index.md"]
    while last:
        reached = [
            os.path.normpath(Path(page).parent / target.partition("#")[0])
            for page in last
            for target in LINK.findall((docs / page).read_text())
        ]
        last = sorted(pages.intersection(reached) - set(found))
        found |= dict.fromkeys(last, max(found.values()) + 1)
    return found


def block_state(page: Path, mark: str | None, language: str) -> str:
    """Of a fenced block: `run` by a test, `not run` and marked so, `data` that nobody runs, or `unmarked`."""
    whole = page.is_relative_to(DOCS) and page.relative_to(DOCS).as_posix() in RUN_WHOLE
    if mark is not None:
        return "run" if mark == "run by" else mark
    if language == "pycon" or (language in ("python", "console") and whole):
        return "run"
    if language == "sh":
        return "not run"  # its commands are looked up: tests/docs/test_search.py
    return "unmarked" if language in ("python", "console") else "data"


def block_states(page: Path) -> list[str]:
    return [block_state(page, found[1], found[3]) for found in BLOCK.finditer(page.read_text())]


def render(text: str, results: Path = RESULTS) -> str:
    """The page with every call replaced."""
    marks = {name.removeprefix("j2_"): mark for name, mark in OPTIONS.items() if name.startswith("j2_")}
    template = Environment(undefined=StrictUndefined, autoescape=False, **marks).from_string(text)
    return template.render(macros_of(ResultFiles(results)))


def render_page(name: str, results: Path = RESULTS) -> str:
    return render((DOCS / name).read_text(), results)
