"""Leaves flagged rollouts out of the update."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import GAMED, proposal
from tiltmeter.rundir.requests import Knob


class ScreenRollouts:
    """Turn the screen on: a rollout that the user's function flags, or in which acts are seen, gets no advantage.

    Nothing is learned from what is left out, and its group's mean is that of the others. What flags must not be what
    judges, and the trainer ends a screen that leaves out more than its share. It decides which rollouts teach, so it is
    not conservative and never follows from a judge's labels alone.

    >>> finding = Finding(0, 120, "tampering", 0.8, ("gold.slope",), ())
    >>> ScreenRollouts().propose(finding, {"screen": Knob("screen", 0.0, 0.0, 1.0)}).after
    1.0
    """

    name = "screen_rollouts"
    knob = "screen"
    answers = (*GAMED, "verifier_fault")
    reversible = True
    conservative = False

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        return proposal(finding, knobs.get(self.knob), 1.0, f"{finding.failure}: what is flagged leaves the update")
