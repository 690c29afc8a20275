"""A phrase that completions over-use, with an example."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phrase:
    """An over-used phrase with a completion that contains it. A model wrote its words: encode them before showing."""

    text: str
    share: float  # of completions now that contain it
    share_before: float
    z: float
    row: int  # of the batch
    excerpt: str
