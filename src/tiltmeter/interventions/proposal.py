"""Builds a proposed action: its id from attempt, step and knob, its value within the knob's limits."""

from __future__ import annotations

import hashlib
import math
import re

from tiltmeter.data.records import Action, Finding
from tiltmeter.rundir.requests import Knob

#: Failures in which the policy is paid for something else than what is wanted.
GAMED = (
    "reward_hacking",
    "length_hacking",
    "phrase_gaming",
    "refusal_hacking",
    "sycophancy",
    "format_hacking",
    "hedging",
    "tool_loop",
    "tampering",
)


def action_id(attempt: int, step: int, knob: str) -> str:
    """A name that a person can type and a file can have. The same place gives the same id, so a replay agrees.

    >>> action_id(0, 120, "beta"), action_id(0, 120, "reward_weight.<b>")
    ('0-120-beta', '0-120-reward_weight-5849374e')
    """
    if re.fullmatch(r"[a-z_]+", knob):
        return f"{attempt}-{step}-{knob}"
    return f"{attempt}-{step}-{knob.split('.')[0]}-{hashlib.sha256(knob.encode('utf-8', 'replace')).hexdigest()[:8]}"


def proposal(finding: Finding, knob: Knob | None, after: float, reason: str) -> Action | None:
    """The action that sets a knob, clipped to its floor and ceiling; None if it cannot be set or would not move.

    >>> beta = Knob("beta", 0.75, 1e-6, 1.0)
    >>> finding = Finding(0, 120, "kl_failure", 0.8, (), ("policy.kl.k3",))
    >>> proposal(finding, beta, 1.5, "").after, proposal(finding, beta, 0.75, "")
    (1.0, None)
    """
    if knob is None or knob.why or not math.isfinite(after):
        return None
    after = knob.clip(after)
    if math.isclose(after, knob.value, rel_tol=1e-9, abs_tol=1e-15):
        return None
    key = action_id(finding.attempt, finding.step, knob.name)
    return Action(key, finding.attempt, finding.step, finding.failure, knob.name, knob.value, after, reason)
