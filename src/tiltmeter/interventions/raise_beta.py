"""Raises beta, the weight of the KL penalty."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import GAMED, proposal
from tiltmeter.rundir.requests import Knob

LEAST = 0.01  # a beta of 1e-6, set only so that there is a reference, would need ten doublings to matter


class RaiseBeta:
    """Double the weight of the KL penalty, so that what can be gained far from the reference is worth less.

    The first answer to most hacking: it holds the policy back and can be undone at any step. It does not undo what was
    learnt, it does not help where reward errors are heavy-tailed (a huge reward at a tiny KL), and learning becomes
    slower.

    >>> finding = Finding(0, 120, "length_hacking", 0.8, ("gold.slope",), ())
    >>> action = RaiseBeta().propose(finding, {"beta": Knob("beta", 0.04, 1e-6, 1.0)})
    >>> action.id, action.before, action.after
    ('0-120-beta', 0.04, 0.08)
    """

    name = "raise_beta"
    knob = "beta"
    answers = (
        *GAMED,
        "mode_collapse",
        "verifier_fault",
        "kl_failure",
        "alignment_tax",
        "likelihood_displacement",
    )
    reversible = True
    conservative = True

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        beta = knobs.get(self.knob)
        after = 0.0 if beta is None else max(2.0 * beta.value, LEAST)
        return proposal(finding, beta, after, f"{finding.failure}: a stronger pull towards the reference policy")
