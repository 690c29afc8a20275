"""Takes reward from flagged rollouts."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import GAMED, proposal
from tiltmeter.rundir.requests import Knob


class PenaliseRollouts:
    """Give flagged rollouts half of the largest penalty, where leaving them out was not enough.

    The policy is then trained against what flags, and may learn to do the same unseen: only a person may decide it.

    >>> finding = Finding(0, 120, "tampering", 0.8, ("gold.slope",), ())
    >>> PenaliseRollouts().propose(finding, {"penalty": Knob("penalty", 0.0, 0.0, 1.0)}).after
    0.5
    """

    name = "penalise_rollouts"
    knob = "penalty"
    answers = (*GAMED, "verifier_fault")
    reversible = True
    conservative = False

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        knob = knobs.get(self.knob)
        after = 0.0 if knob is None else knob.ceiling / 2.0
        reason = f"{finding.failure}: flagged rollouts pay; the policy may learn to do the same unseen"
        return proposal(finding, knob, after, reason)
