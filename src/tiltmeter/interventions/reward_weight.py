"""Lowers the weight of the reward function that is gamed."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import GAMED, proposal
from tiltmeter.rundir.requests import WEIGHT, Knob


class RewardWeight:
    """Halve the weight of the reward function that brings most of the gain.

    One component that brings all of the gain while gold falls is what the policy has found to optimise. The honest
    component may be the one that gains most, so this is not conservative and never follows from a judge's labels.
    It changes the reward itself: a new segment begins, and gaps between reward and gold do not compare across it.

    The caller gives the weights in order of what their functions gained, most first, and none if that is not known.
    A trainer with a single reward function usually divides by its spread, so its weight would change nothing.

    >>> finding = Finding(0, 120, "format_hacking", 0.8, ("gold.slope",), ())
    >>> knobs = {f"reward_weight.{name}": Knob(f"reward_weight.{name}", 1.0, 0.0, 1.0) for name in ("style", "tests")}
    >>> action = RewardWeight().propose(finding, knobs)
    >>> action.knob, action.after
    ('reward_weight.style', 0.5)
    """

    name = "reward_weight"
    knob = "reward_weight"
    answers = (
        *GAMED,
        "heavy_tailed_reward",
        "verifier_fault",
    )
    reversible = True
    conservative = False

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        weights = [knob for name, knob in knobs.items() if name.startswith(WEIGHT)]
        if len(weights) < 2:
            return None
        first = weights[0]
        part = first.name.removeprefix(WEIGHT)
        return proposal(finding, first, first.value / 2.0, f"{finding.failure}: {part} brings most of the gain")
