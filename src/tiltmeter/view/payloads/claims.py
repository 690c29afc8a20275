"""What was done in a run, as acts, behaviours and the witness tell it, each beside how far it can be believed."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ClaimSource = Literal["act", "behaviour", "witness"]


class Claim(Struct, frozen=True, kw_only=True):
    """One thing that was done. A policy or the witness wrote `quote` and `own_words`."""

    source: ClaimSource
    says: str  # what was done
    own_words: str  # what the witness calls it, or what tells a behaviour from others; may be empty
    many: str  # how many rollouts, and since when
    paid: str  # what they were paid; empty: not known
    id: str  # of an example: attempt-step-row; empty: none is stored
    step: int | None  # of the example
    turn: int | None  # of the quote, from 1 on; null: it is in no turn
    place: str  # of the quote, in words
    quote: str
    accuracy: str  # recall and false positives with their intervals; empty: not calibrated


class Claims(Struct, frozen=True, kw_only=True):
    """What was done, with what the witness's answers rest on."""

    claims: list[Claim]  # acts of the newest step, then behaviours, then the witness's
    witness: str  # who was asked; empty: nobody
    remarks: list[str]  # on the witness: how often it is right, what it was asked about, and why nothing is shown
