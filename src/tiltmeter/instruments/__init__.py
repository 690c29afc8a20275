"""Instruments compute values from one step's rollouts and keep no state. Each is a class in a file of its own.

`measure` returns values, not means: the loop computes mean, count and standard error once for everyone. To add one,
write the file, add it to the tuple, and the contract tests find it (`docs/add-an-instrument.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.instruments.act_gold import ActGold
from tiltmeter.instruments.acts import TamperActs
from tiltmeter.instruments.answer_classes import AnswerClasses
from tiltmeter.instruments.comments import CommentShare
from tiltmeter.instruments.compression import CompressionRatio
from tiltmeter.instruments.dead_groups import DeadGroups
from tiltmeter.instruments.dead_sides import DeadSides
from tiltmeter.instruments.distinct_across import DistinctAcross
from tiltmeter.instruments.drops import Drops
from tiltmeter.instruments.effective_samples import EffectiveSamples
from tiltmeter.instruments.engine_gap import EngineGap
from tiltmeter.instruments.engine_lost import LostEngine
from tiltmeter.instruments.engine_staleness import EngineGapByStaleness
from tiltmeter.instruments.engine_turns import EngineGapByTurn
from tiltmeter.instruments.ensemble import EnsembleDisagreement
from tiltmeter.instruments.entropy import PolicyEntropy
from tiltmeter.instruments.entropy_ratio import EntropyRatio
from tiltmeter.instruments.error_tail import ErrorTail
from tiltmeter.instruments.expected_across import ExpectedAcross
from tiltmeter.instruments.expected_distinct import ExpectedDistinct
from tiltmeter.instruments.first_action import FirstActionDiversity
from tiltmeter.instruments.formatting import Markdown
from tiltmeter.instruments.gain_share import GainShare
from tiltmeter.instruments.gibberish import Gibberish
from tiltmeter.instruments.gold_agreement import GoldAgreement
from tiltmeter.instruments.gold_covariance import GoldCovariance
from tiltmeter.instruments.gold_gap import GoldGap
from tiltmeter.instruments.gold_mean import GoldMean
from tiltmeter.instruments.gold_overpay import GoldOverpay
from tiltmeter.instruments.gold_prompts import GoldPrompts
from tiltmeter.instruments.gold_slope import GoldSlope
from tiltmeter.instruments.gold_traps import TrapPayments
from tiltmeter.instruments.group_size import GroupSize
from tiltmeter.instruments.hedging import Hedging
from tiltmeter.instruments.infra import InfraFailures
from tiltmeter.instruments.kl import ReferenceKl
from tiltmeter.instruments.kl_lost import LostKl
from tiltmeter.instruments.kl_tokens import TokenKl
from tiltmeter.instruments.length_gain import LengthGain
from tiltmeter.instruments.length_mean import LengthMean
from tiltmeter.instruments.length_residual import LengthResidual
from tiltmeter.instruments.length_slope import LengthSlope
from tiltmeter.instruments.length_tail import LengthTail
from tiltmeter.instruments.nonfinite import NonfiniteShare
from tiltmeter.instruments.old_kl import OldKl
from tiltmeter.instruments.openings import RepeatedOpenings
from tiltmeter.instruments.opinion import OpinionAgreement
from tiltmeter.instruments.own_share import OwnShare
from tiltmeter.instruments.phrases import OverusedPhrases
from tiltmeter.instruments.prompt_dependence import PromptDependence
from tiltmeter.instruments.prompt_diversity import PromptDiversity
from tiltmeter.instruments.refusal import RefusalShare
from tiltmeter.instruments.repetition import Repetition
from tiltmeter.instruments.reward_component import RewardComponent
from tiltmeter.instruments.reward_mean import RewardMean
from tiltmeter.instruments.reward_spread import RewardSpread
from tiltmeter.instruments.reward_tail import RewardTail
from tiltmeter.instruments.reward_win import RewardWin
from tiltmeter.instruments.saturation import Saturation
from tiltmeter.instruments.spread_share import SpreadShare
from tiltmeter.instruments.staleness import Staleness
from tiltmeter.instruments.starved_tasks import StarvedTasks
from tiltmeter.instruments.step_gold import StepGold
from tiltmeter.instruments.step_paid import StepPaid
from tiltmeter.instruments.stop_causes import StopCauses
from tiltmeter.instruments.tool_calls import ToolCalls
from tiltmeter.instruments.tool_entropy import ToolEntropy
from tiltmeter.instruments.training import Training
from tiltmeter.instruments.truncation import Truncation
from tiltmeter.instruments.unscored import Unscored
from tiltmeter.instruments.verifier import VerifierCanaries


class Instrument(Protocol):
    """What `measure` returns has one value per row, per prompt group, or one in all, as `grain` says; NaN where there
    is nothing to measure. A dict gives several readings, named `name.suffix`.

    `baseline` holds the reference policy's rollouts, or the run's first steps. It is None while there are too few,
    where it lacks a column that the instrument needs and, for one that needs the reward, where another reward paid it.

    Facts that few have: `compares = True`, it compares with the baseline, of which it needs the columns `compared` or
    else those of its own; `counts_nan = True`, rows without a value are
    what it counts; `audited = True`, its values are the bets of an alarm; `by_prompt = True`, and each is about its
    prompt, which the alarm is told; `by_env = True` (or some suffixes), each environment has a reading of its own, with
    `env.NAME.` before its name; `by_slice = True`, the mean of every slice is kept too; `local = True`, a value depends
    on nothing but its own prompt group, so that a large step may be measured some groups at a time, in little memory.
    """

    # Read-only here, so that plain class attributes of narrower types satisfy the protocol.
    @property
    def name(self) -> str: ...  # subject.measure; stable for ever
    @property
    def grain(self) -> str: ...  # "rollout", "group" or "batch"; "item": as many as somebody counted
    @property
    def needs(self) -> tuple[str, ...]: ...  # columns; without them it does not run, and the run says so
    @property
    def bounds(self) -> tuple[float | None, float | None]: ...

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats | Mapping[str, Floats]: ...


BUILTIN: tuple[Callable[[], Instrument], ...] = (
    RewardMean,
    RewardSpread,
    RewardComponent,
    RewardWin,
    GainShare,
    SpreadShare,
    DeadGroups,
    DeadSides,
    Saturation,
    Unscored,
    InfraFailures,
    EnsembleDisagreement,
    RewardTail,
    GoldMean,
    GoldSlope,
    GoldPrompts,
    GoldOverpay,
    TrapPayments,
    GoldGap,
    GoldCovariance,
    StepPaid,
    StepGold,
    GoldAgreement,
    ErrorTail,
    LengthMean,
    LengthTail,
    Truncation,
    LengthSlope,
    LengthResidual,
    LengthGain,
    ReferenceKl,
    TokenKl,
    LostKl,
    OldKl,
    PolicyEntropy,
    EntropyRatio,
    NonfiniteShare,
    EngineGap,
    LostEngine,
    Training,
    PromptDiversity,
    ExpectedDistinct,
    DistinctAcross,
    ExpectedAcross,
    PromptDependence,
    CompressionRatio,
    RepeatedOpenings,
    AnswerClasses,
    OverusedPhrases,
    Hedging,
    RefusalShare,
    OpinionAgreement,
    Markdown,
    CommentShare,
    Repetition,
    Gibberish,
    GroupSize,
    VerifierCanaries,
    ToolCalls,
    OwnShare,
    ToolEntropy,
    FirstActionDiversity,
    StopCauses,
    StarvedTasks,
    Drops,
    Staleness,
    EngineGapByTurn,
    EngineGapByStaleness,
    EffectiveSamples,
    TamperActs,
    ActGold,
)
