"""An act: something that a trajectory did, with the place that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import msgspec

from tiltmeter.acts.transcript import Transcript

QUOTE = 200  # characters that are quoted


class TrajectoryAct(msgspec.Struct, frozen=True):
    """One act of one trajectory. Its quote is what a model, a tool or a trainer wrote: escape it where it is shown."""

    kind: str
    turn: int  # position in the row's turns; -1: known from the trainer's record of files, not from a turn
    line: int  # of that turn's text or command, from 1
    quote: str


class ActDetector(Protocol):
    """Finds acts of one kind: a pure function of a transcript, linear in its size. `says`: what was done, in words."""

    @property
    def kind(self) -> str: ...
    @property
    def says(self) -> str: ...

    def find(self, transcript: Transcript) -> Iterator[TrajectoryAct]: ...


def quote(text: str) -> str:
    """One line of evidence, as long as a line may be."""
    words = text.strip()
    return words if len(words) <= QUOTE else f"{words[: QUOTE - 1]}…"
