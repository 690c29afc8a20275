"""What every hook does with results: find the file, or say that it was not made yet; and put values into cells."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.safety.safe_text import log_line

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
PENDING = "*not measured yet*"

log = logging.getLogger("mkdocs.hooks")  # a warning here fails a strict build


def measured(path: Path) -> Any:
    """What a results file holds; None, said in the build's log, if it is not there."""
    if not path.exists():
        missing(path.name)
        return None
    return json.loads(path.read_text())


def missing(what: str) -> str:
    log.warning("%s is not there: make it, or a page says that it was not measured", what)
    return PENDING


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; one without rows was not measured."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(map(number, row)) + " |" for row in rows]
    return "\n".join(lines) if len(lines) > 2 else PENDING


def number(value: object) -> str:
    """A value as it may stand in a cell. Text is passed as it is: what a model wrote goes through `literal` first."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(map(number, value)) or "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def literal(text: str, limit: int = 400) -> str:
    """One line that neither Markdown nor HTML reads anything into: what could mean something there is an entity."""
    return "".join(char if char.isalnum() or char in " ./-:," else f"&#{ord(char)};" for char in log_line(text, limit))
