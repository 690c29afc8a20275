"""A verifier of ours that runs code; it must come out of an audit clean."""

from __future__ import annotations

from tiltmeter import rewards

values_out = rewards.code(hidden=4)
