"""Rolls back to a checkpoint from before the failure, with one setting changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import GAMED, action_id
from tiltmeter.rundir.requests import Knob

LEAST_BETA = 0.02


@dataclass(frozen=True, slots=True)
class RollbackAction(Action):
    """An action that returns to a checkpoint, with the setting that is changed on the way: `after` is the step."""

    with_knob: str = ""
    with_value: float = 0.0


class RollBack:
    """Return to the last checkpoint from before the failure, with beta times 4 or, where that cannot be, the learning
    rate divided by 5. If the KL of the good checkpoint is known, `beta_for_kl` gives a beta that keeps it there.

    The one answer that gives lost gold back. Training from a checkpoint repeats the same steps bit for bit, so a change
    goes with it, always. What was trained since is abandoned (its files stay), so it never follows from a judge alone.

    The caller gives the good checkpoint as the ceiling of the knob `rollback` and the present step as its value.

    >>> finding = Finding(0, 120, "reward_hacking", 0.9, ("gold.slope",), ())
    >>> knobs = {"rollback": Knob("rollback", 120.0, 0.0, 80.0), "beta": Knob("beta", 0.04, 1e-6, 1.0)}
    >>> action = RollBack().propose(finding, knobs)
    >>> action.after, action.with_knob, action.with_value
    (80.0, 'beta', 0.16)
    """

    name = "roll_back"
    knob = "rollback"
    answers = (
        *GAMED,
        "mode_collapse",
        "heavy_tailed_reward",
        "verifier_fault",
        "kl_failure",
        "alignment_tax",
        "unstable_training",
        "likelihood_displacement",
    )
    reversible = False
    conservative = False

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        back = knobs.get(self.knob)
        setting = _changed_setting(knobs)
        if back is None or back.why or setting is None or not back.floor <= back.ceiling < back.value:
            return None
        knob, value = setting
        reason = f"{finding.failure}: back to step {back.ceiling:.0f}, with {knob.name} {knob.value:g} -> {value:g}"
        key = action_id(finding.attempt, finding.step, self.knob)
        where = (finding.attempt, finding.step, finding.failure)
        return RollbackAction(
            key, *where, self.knob, back.value, back.ceiling, reason, with_knob=knob.name, with_value=value
        )


def _changed_setting(knobs: Mapping[str, Knob]) -> tuple[Knob, float] | None:
    """The first setting that can be moved, with its new value."""
    beta, rate = knobs.get("beta"), knobs.get("learning_rate")
    if beta is not None and not beta.why and (value := beta.clip(max(4.0 * beta.value, LEAST_BETA))) > beta.value:
        return beta, value
    if rate is not None and not rate.why and (value := rate.clip(rate.value / 5.0)) < rate.value:
        return rate, value
    return None


def beta_for_kl(kl: float) -> float:
    """The beta at which training on advantages of unit variance settles about `kl` nats from the reference.

    The optimum at beta is the reference tilted by exp(advantage / beta), which for Gaussian advantages of variance 1
    lies exactly 1 / (2 beta²) nats away. Held to the distance it had when gold was good, a policy can still improve
    inside that distance. Void where advantages are not divided by their standard
    deviation.

    >>> beta_for_kl(0.5), round(beta_for_kl(2.0), 2)
    (1.0, 0.5)
    """
    return sqrt(1.0 / (2.0 * kl))
