"""The numbers that tokens are coloured by: from which columns they are made, and at which values a colour begins.

Levels are fixed, so that a colour means the same in every group, step and run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tiltmeter.data.records import Floats
from tiltmeter.view.payloads.reading_room import ColourScale, TokenColour

Cell = Mapping[str, Any]


def _column(cell: Cell, name: str) -> Floats:
    return np.asarray(cell[name], np.float64)


@dataclass(frozen=True, slots=True)
class TokenNumber:
    """One number of a token, as it is made from the columns of a row."""

    name: TokenColour
    title: str
    unit: str
    columns: tuple[str, ...]
    levels: tuple[float, ...]
    says: str
    lacking: str  # what would add it
    values: Callable[[Cell], Floats] | None = None  # None: of a stretch of text, not of a token
    signed: bool = False
    side: Literal["above", "below"] = "above"
    centre: float = 0.0

    def scale(self, present: Collection[str], why: str) -> ColourScale:
        """As the page has it; `present`: columns of the step, `why`: why tokens have no place in the text."""
        lacks = [name for name in self.columns if name not in present]
        if lacks:
            why = f"{' and '.join(lacks)} {'is' if len(lacks) == 1 else 'are'} not stored: {self.lacking}"
        elif self.values is None:
            why = ""
        return ColourScale(
            name=self.name, title=self.title, unit=self.unit, centre=self.centre, levels=list(self.levels),
            signed=self.signed, side=self.side, says=self.says, why=why,
        )  # fmt: skip


NUMBERS: dict[TokenColour, TokenNumber] = {
    number.name: number
    for number in (
        TokenNumber(
            "logprob", "log-probability", "nats", ("logprob",), (0.1, 0.5, 1.0, 2.0, 4.0, 8.0),
            "the policy did not expect it", "this trainer does not hand it over",
            lambda cell: _column(cell, "logprob"), side="below",
        ),
        TokenNumber(
            "reference", "log π/π_ref", "nats", ("logprob", "ref_logprob"), (0.05, 0.2, 0.5, 1.0, 2.0, 4.0),
            "red: training has made it likelier; blue: less likely",
            "the reference is not scored; beta=1e-6 has TRL do it",
            lambda cell: _column(cell, "logprob") - _column(cell, "ref_logprob"), signed=True,
        ),
        TokenNumber(
            "entropy", "entropy", "nats", ("entropy",), (0.1, 0.5, 1.0, 1.5, 2.5, 4.0),
            "many next tokens were likely", "this trainer does not hand it over",
            lambda cell: _column(cell, "entropy"),
        ),
        TokenNumber(
            "engine", "engine gap", "nats", ("logprob", "engine_logprob"), (0.01, 0.05, 0.1, 0.3, 1.0, 3.0),
            "red: the trainer finds it likelier than the engine that wrote it; blue: less likely",
            "the inference engine's are not recorded; with vLLM TRL has them",
            lambda cell: _column(cell, "logprob") - _column(cell, "engine_logprob"), signed=True,
        ),
        TokenNumber(
            "advantage", "advantage", "", ("advantage",), (0.1, 0.25, 0.5, 1.0, 1.5, 2.5),
            "red: made likelier by this step; blue: less likely. One number for each completion",
            "this trainer does not hand it over", signed=True,
        ),
        TokenNumber(
            "process", "process reward", "", ("step_reward",), (0.05, 0.1, 0.2, 0.3, 0.4, 0.45),
            "red: a step that was scored low; blue: high", "there is no process reward",
            signed=True, centre=0.5,
        ),
    )
}  # fmt: skip
