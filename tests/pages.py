"""Renders a page of the documentation as mkdocs does, with the results of any folder."""

from __future__ import annotations

from pathlib import Path

import yaml
from jinja2 import Environment, StrictUndefined

import macros  # noqa: F401  fills the registry
from macros.registry import RESULTS, macros_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
(OPTIONS,) = (plugin["macros"] for plugin in SETTINGS["plugins"] if "macros" in plugin)


def render(text: str, results: Path = RESULTS) -> str:
    """The page with every call replaced."""
    marks = {name.removeprefix("j2_"): mark for name, mark in OPTIONS.items() if name.startswith("j2_")}
    template = Environment(undefined=StrictUndefined, autoescape=False, **marks).from_string(text)
    return template.render(macros_of(results))


def render_page(name: str, results: Path = RESULTS) -> str:
    return render((DOCS / name).read_text(), results)
