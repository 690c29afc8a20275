"""A verifier of ours that reads answers; it must come out of an audit clean."""

from __future__ import annotations

from tiltmeter import rewards

answers = rewards.maths()
