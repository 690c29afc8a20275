"""Two sizes of one test: small in the gate that every change passes, whole in `make campaign`."""

from __future__ import annotations

import os

CAMPAIGN = bool(os.environ.get("TILTMETER_CAMPAIGN"))


def size(gate: int, campaign: int) -> int:
    """How often, or how many: the first number in CI, the second where `TILTMETER_CAMPAIGN` is set."""
    return campaign if CAMPAIGN else gate
