"""Raises the share of rollouts that are labelled."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import proposal
from tiltmeter.rundir.requests import Knob


class GoldBudget:
    """Label twice as many rollouts, where something is wrong and nobody can tell what.

    It costs labels and nothing else: training does not notice. An alarm about a small change comes sooner, and a
    diagnosis that had too few labels may become one. The monitor does this itself; the trainer is not asked.

    >>> finding = Finding(0, 120, "unknown", 0.4, ("length.mean",), ())
    >>> GoldBudget().propose(finding, {"gold_share": Knob("gold_share", 0.02, 0.02, 0.1)}).after
    0.04
    """

    name = "gold_budget"
    knob = "gold_share"
    answers = ("unknown", "reward_hacking", "verifier_fault")
    reversible = True
    conservative = True

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        share = knobs.get(self.knob)
        after = 0.0 if share is None else 2.0 * share.value
        return proposal(finding, share, after, f"{finding.failure}: more labels tell sooner what is going on")
