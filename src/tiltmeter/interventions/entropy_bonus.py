"""Raises the entropy bonus."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import proposal
from tiltmeter.rundir.requests import Knob

FIRST = 0.002  # where there was none


class EntropyBonus:
    """Double the entropy coefficient, or begin with 0.002, against a policy that always says the same.

    It keeps variety that is still there; what has collapsed comes back slowly, from an earlier checkpoint sooner. Too
    much of it ends in gibberish, so the ceiling is low. It is not conservative: it never follows from a judge's labels.

    >>> finding = Finding(0, 200, "mode_collapse", 0.7, (), ("policy.entropy",))
    >>> knobs = {"entropy_coef": Knob("entropy_coef", 0.0, 0.0, 0.05)}
    >>> EntropyBonus().propose(finding, knobs).after
    0.002
    """

    name = "entropy_bonus"
    knob = "entropy_coef"
    answers = ("mode_collapse",)
    reversible = True
    conservative = False

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        coefficient = knobs.get(self.knob)
        after = 0.0 if coefficient is None else max(2.0 * coefficient.value, FIRST)
        return proposal(finding, coefficient, after, f"{finding.failure}: the policy is paid for variety")
