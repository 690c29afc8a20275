"""Lowers the learning rate."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import proposal
from tiltmeter.rundir.requests import Knob


class LowerLearningRate:
    """Divide the learning rate by 5, the usual cause where the KL explodes early or training becomes unstable.

    The value is the base of the schedule: a warm-up or decay goes on from it. Learning becomes five times slower, which
    is also how a run looks that stands still.

    >>> finding = Finding(0, 30, "kl_failure", 0.8, (), ("policy.kl.k3",))
    >>> LowerLearningRate().propose(finding, {"learning_rate": Knob("learning_rate", 1.0, 0.01, 1.0)}).after
    0.2
    """

    name = "lower_learning_rate"
    knob = "learning_rate"
    answers = ("kl_failure", "unstable_training", "mode_collapse", "likelihood_displacement", "alignment_tax")
    reversible = True
    conservative = True

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        rate = knobs.get(self.knob)
        after = 0.0 if rate is None else rate.value / 5.0
        return proposal(finding, rate, after, f"{finding.failure}: each update moves the policy less")
