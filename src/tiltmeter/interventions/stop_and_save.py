"""Saves a checkpoint and stops training."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import GAMED, proposal
from tiltmeter.rundir.requests import Knob


class StopAndSave:
    """Write a checkpoint and end training at the end of the step.

    What every other knob is measured against: a stopped run loses no more gold and no more compute. It is reversible in
    the sense that training goes on from the checkpoint as if nothing had happened; `tiltmeter undo` cannot do that,
    because the process is gone.

    >>> finding = Finding(0, 120, "verifier_fault", 0.9, ("gold.slope",), ())
    >>> StopAndSave().propose(finding, {"stop": Knob("stop", 0.0, 0.0, 1.0)}).after
    1.0
    """

    name = "stop_and_save"
    knob = "stop"
    answers = (
        *GAMED,
        "mode_collapse",
        "kl_failure",
        "heavy_tailed_reward",
        "alignment_tax",
        "verifier_fault",
        "unstable_training",
        "engine_mismatch",
        "environment_fault",
        "likelihood_displacement",
        "unknown",
    )
    reversible = True
    conservative = True

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        return proposal(finding, knobs.get(self.knob), 1.0, f"{finding.failure}: nothing is gained by going on")
