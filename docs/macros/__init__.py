"""What pages call: `<!-- NAME("ARGUMENT") -->` is replaced by what the function NAME returns. No figure is typed.

mkdocs-macros loads this (`mkdocs.yml`). A result that is not there was not measured yet: the page says so, and a strict
build fails. So does a page that calls what is not here. `tables.py` has how values become text. What a model wrote
leaves through `tables.literal` and `tiltmeter.safety.safe_text` only.
"""

from __future__ import annotations

from typing import Any

from . import api, code, detectors, failures, mistakes, results  # noqa: F401  each adds its macros
from .ages import age_lines
from .registry import RESULTS, ResultFiles, macros_of

READ = ResultFiles(RESULTS)


def define_env(env: Any) -> None:
    """Called by mkdocs-macros."""
    for name, function in macros_of(READ).items():
        env.macro(function, name)


def on_pre_page_macros(env: Any) -> None:
    """Called before each page."""
    READ.used.clear()


def on_post_page_macros(env: Any) -> None:
    """Called after each page: one that shows figures ends with their age."""
    env.markdown += age_lines(READ)
