"""Interventions: one file per change that can be made to a run. Each proposes; whether it happens others decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tiltmeter.control import Knob
from tiltmeter.interventions.entropy_bonus import EntropyBonus
from tiltmeter.interventions.gold_budget import GoldBudget
from tiltmeter.interventions.lower_learning_rate import LowerLearningRate
from tiltmeter.interventions.raise_beta import RaiseBeta
from tiltmeter.interventions.reward_weight import RewardWeight
from tiltmeter.interventions.roll_back import RollBack
from tiltmeter.interventions.stop_and_save import StopAndSave
from tiltmeter.records import Action, Finding


class Intervention(Protocol):
    """`propose` answers a finding with an action, or with None where this knob has nothing to give.

    `answers` are the failures it helps against. `reversible`: what it does can be taken back without losing the run.
    `conservative`: it can only hold the policy back, never push it somewhere new; only such ones may follow from a
    judge's word. The value an action asks for is absolute and lies between the knob's floor and ceiling.
    """

    # Read-only here, so that plain class attributes of narrower types satisfy the protocol.
    @property
    def name(self) -> str: ...
    @property
    def knob(self) -> str: ...  # from the closed list of `control.KNOBS`
    @property
    def answers(self) -> tuple[str, ...]: ...
    @property
    def reversible(self) -> bool: ...
    @property
    def conservative(self) -> bool: ...

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None: ...


#: Mildest first: the order in which they are tried where a diagnosis gives none.
BUILTIN: tuple[Callable[[], Intervention], ...] = (
    GoldBudget,
    RaiseBeta,
    EntropyBonus,
    LowerLearningRate,
    RewardWeight,
    RollBack,
    StopAndSave,
)
