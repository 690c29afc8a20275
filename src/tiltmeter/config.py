"""Names become objects: which instruments, derived readings and detectors watch a run.

Built-ins stand in explicit tuples; anything else is named `my_file.py:MyInstrument` by the operator. A run directory
only *records* such names. They are never imported because a file says so: a directory made by somebody else must not
run code here.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter import derived, detectors, instruments
from tiltmeter.errors import AttachError

#: Raised whenever the loop would write other events for the same rollouts; part of every event's id.
EVENTS = 2


@dataclass(frozen=True)
class Config:
    """The parts of one watch. Folds are given as what makes a fresh one, because a rewind needs one."""

    instruments: tuple[instruments.Instrument, ...]
    derived: tuple[Callable[[], derived.Derived], ...]
    detectors: tuple[Callable[[], detectors.Detector], ...]
    plugins: tuple[str, ...] = ()

    @classmethod
    def standard(cls, plugins: Iterable[str] = ()) -> Config:
        """The built-ins, and the named classes of the operator's own files.

        >>> Config.standard().digest == Config.standard().digest
        True
        """
        names = tuple(plugins)
        extra = [load(name) for name in names]
        return cls(
            tuple(cls_() for cls_ in instruments.BUILTIN) + tuple(part() for part in extra if hasattr(part, "measure")),
            derived.BUILTIN + tuple(part for part in extra if hasattr(part, "fold")),
            detectors.BUILTIN + tuple(part for part in extra if hasattr(part, "update")),
            names,
        )

    @property
    def digest(self) -> str:
        """A hash of what is measured and decided, part of every event's id: other settings make other events."""
        parts = [f"events {EVENTS}"] + [f"{part.name}/{part.grain}/{part.needs}" for part in self.instruments]
        parts += [repr(make()) for make in (*self.derived, *self.detectors)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def load(name: str) -> Any:
    """The class that `path/to/file.py:ClassName` names."""
    path, _, attribute = name.rpartition(":")
    if not path.endswith(".py") or not attribute:
        raise AttachError(f"{name!r} does not name a class: write it as path/to/file.py:ClassName")
    source = Path(path).resolve()
    spec = importlib.util.spec_from_file_location(f"tiltmeter_plugin_{source.stem}", source)
    if not source.is_file() or spec is None or spec.loader is None:
        raise AttachError(f"{name!r}: there is no file {source}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    part = getattr(module, attribute, None)
    if part is None:
        raise AttachError(f"{name!r}: {source.name} defines no {attribute}")
    if not any(hasattr(part, verb) for verb in ("measure", "fold", "update")):
        raise AttachError(f"{name!r} has none of measure (instrument), fold (derived reading), update (detector)")
    return part
