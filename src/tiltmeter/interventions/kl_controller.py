"""Adaptive KL controller: changes beta so that the KL to the reference stays at a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from tiltmeter.data.records import Action, Finding, Reading
from tiltmeter.interventions.proposal import proposal
from tiltmeter.rundir.requests import Knob

GAIN = 0.1  # of Ziegler et al., per optimiser step
CLIP = 0.2


@dataclass
class KlController:
    """A proportional controller of beta in log space: KL above the target raises it, below lowers it, slowly.

    For a run whose owner knows how far the policy may go, in nats per completion, and not what beta that takes. A KL at
    its target is no proof of health: a reward may be hacked at any distance. The published controller acts at every
    batch; this one acts at most every `every` steps, on the mean of the readings in between, with the sum of the
    changes it would have made, since each change of a running trainer is written down and read back.

    Formula: beta <- beta (1 + 0.1 n e), e = clip((KL - target) / target, -0.2, 0.2), n the readings since the last
    change, at most `every`
    Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2

    >>> steer = KlController(6.0)
    >>> for step in range(10): steer.fold(Reading(0, step, "policy.kl.k3", 12.0, 64))
    >>> finding = Finding(0, 9, "kl_target", 1.0, (), ("policy.kl.k3",))
    >>> round(steer.propose(finding, {"beta": Knob("beta", 0.04, 1e-6, 1.0)}).after, 6)
    0.048
    """

    target: float
    every: int = 10
    name: ClassVar = "kl_controller"
    knob: ClassVar = "beta"
    answers: ClassVar = ("kl_target",)
    reversible: ClassVar = True
    conservative: ClassVar = False
    watches: ClassVar = ("policy.kl.k3",)
    _recent: list[float] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.target > 0.0:
            raise ValueError(f"target_kl is {self.target}: give the nats per completion to keep to, as 6.0")

    def fold(self, reading: Reading) -> None:
        """Take in one step's KL."""
        self._recent = [*self._recent, reading.value][-self.every :]

    def restart(self) -> None:
        """Forget what was seen under another beta."""
        self._recent = []

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        beta = knobs.get(self.knob)
        if beta is None or len(self._recent) < self.every:
            return None
        kl = sum(self._recent) / len(self._recent)
        error = min(max((kl - self.target) / self.target, -CLIP), CLIP)
        after = beta.value * (1.0 + GAIN * len(self._recent) * error)
        if abs(after - beta.value) < 0.01 * beta.value:
            return None  # not worth an entry in the journal
        return proposal(finding, beta, after, f"KL is {kl:.3g} nats per completion, the target {self.target:.3g}")
