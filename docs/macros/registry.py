"""The macros by name, and the results that they read."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .tables import PENDING

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

log = logging.getLogger("mkdocs.macros")  # a warning here fails a strict build

#: Takes the results, then what the page passes.
Macro = Callable[..., str]
MACROS: dict[str, Macro] = {}


def macro(function: Macro) -> Macro:
    MACROS[function.__name__] = function
    return function


class NotMeasuredError(Exception):
    """What a page shows was not made yet; names the file."""


class ResultFiles:
    """A folder of results; each file is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.used: set[str] = set()  # names, since it was last cleared
        self._read: dict[str, Any] = {}

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def __call__(self, name: str) -> Any:
        """What the file of this name holds."""
        self.used.add(name)
        if name not in self._read:
            path = self.folder / f"{name}.json"
            if not path.exists():
                raise NotMeasuredError(path.name)
            self._read[name] = json.loads(path.read_text())
        return self._read[name]


def macros_of(read: ResultFiles) -> dict[str, Macro]:
    """Every macro as a page calls it, with these results."""

    def ready(function: Macro) -> Macro:
        def call(*arguments: str) -> str:
            try:
                return function(read, *arguments)
            except NotMeasuredError as lacking:
                log.warning("%s is not there: make it, or a page says that it was not measured", lacking)
                return PENDING

        return call

    return {name: ready(function) for name, function in MACROS.items()}
