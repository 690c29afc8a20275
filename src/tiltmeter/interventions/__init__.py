"""Interventions: one file per change that can be made to a run. Each only proposes; `policy.py` decides."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.entropy_bonus import EntropyBonus
from tiltmeter.interventions.gold_budget import GoldBudget
from tiltmeter.interventions.inoculate_prompt import InoculatePrompt
from tiltmeter.interventions.lower_learning_rate import LowerLearningRate
from tiltmeter.interventions.penalise_rollouts import PenaliseRollouts
from tiltmeter.interventions.quarantine_slice import QuarantineSlice
from tiltmeter.interventions.raise_beta import RaiseBeta
from tiltmeter.interventions.reward_weight import RewardWeight
from tiltmeter.interventions.roll_back import RollBack
from tiltmeter.interventions.screen_rollouts import ScreenRollouts
from tiltmeter.interventions.stop_and_save import StopAndSave
from tiltmeter.rundir.requests import Knob


class Intervention(Protocol):
    """`propose` answers a finding with an action, or with None where this knob cannot help.

    `answers` are the failures it helps against. `reversible`: what it does can be taken back without losing the run.
    `conservative`: it can only slow the policy down, never move it in a new direction; only such ones may follow from a
    judge's labels. The value an action asks for is absolute and lies between the knob's floor and ceiling.
    """

    # Read-only here, so that plain class attributes of narrower types satisfy the protocol.
    @property
    def name(self) -> str: ...
    @property
    def knob(self) -> str: ...  # from the closed list of `rundir.requests.KNOBS`
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
    ScreenRollouts,
    QuarantineSlice,
    InoculatePrompt,
    PenaliseRollouts,
    RaiseBeta,
    EntropyBonus,
    LowerLearningRate,
    RewardWeight,
    RollBack,
    StopAndSave,
)
