"""Detectors fold readings and decide. Each states its promise as a field and what voids it in its docstring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, Protocol, runtime_checkable

from tiltmeter.data.records import Alarm, Reading, Tier
from tiltmeter.detectors.canary import Canary
from tiltmeter.detectors.coverage_fall import CoverageFall
from tiltmeter.detectors.decline import calibrated_decline
from tiltmeter.detectors.departure import calibrated_departure
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.limit import Limit
from tiltmeter.detectors.new_prompts import NewPromptsFall


class Detector(Protocol):
    """`update` sees every reading it watches, in order, and answers with an alarm when it opens or resolves one.

    Tier "alarm": a proved bound `alpha` per run; its state goes on through rewinds, of which it is told by
    `rewind(attempt, step)` if it has that method. Tier "warning": everything else;
    its state follows the current lineage of attempts. The `repr` of a fresh detector states its settings. A name in
    `watches` may end in `.*`: every reading of that kind.
    """

    name: str
    tier: Tier
    alpha: float
    watches: tuple[str, ...]

    def update(self, reading: Reading) -> Alarm | None: ...


@runtime_checkable
class Fact(Protocol):
    """A detector of what is known and not inferred: its `alpha` is 0, because chance has no part in it."""

    fact: Literal[True]


@runtime_checkable
class SliceDetector(Protocol):
    """A detector that also decides about each slice: of a reading with `slices` it may raise several alarms, one a
    slice, which stand and are resolved each for itself."""

    @property
    def standing_slices(self) -> Sequence[Alarm]: ...

    def update_slices(self, reading: Reading) -> Sequence[Alarm]: ...

    def rewind_slices(self, attempt: int, step: int) -> Sequence[Alarm]: ...

    def dismiss_slice(self, name: str, step: int) -> Alarm: ...


#: Made anew per run (alarms) or per lineage (warnings).
BUILTIN: tuple[Callable[[], Detector], ...] = (
    GoldLossTest,
    CoverageFall,
    Canary,
    NewPromptsFall,
    partial(Limit, "reward.dead_share", 0.8),
    partial(Limit, "length.truncated_share", 0.3),
    partial(Limit, "verifier.judge.wrong_paid_share", 0.02),
    calibrated_departure("policy.kl.k3", "up", "fast honest learning, or a higher learning rate"),
    calibrated_departure("policy.entropy", "down", "a verifiable task that is being mastered"),
    calibrated_decline("policy.entropy", "training.entropy", cause="a task with one right answer that is mastered"),
    calibrated_departure("length.mean", "up", "harder prompts, or reasoning that helps"),
    calibrated_departure("reward.mean", "up", "something was learnt at once, or the prompts became easier"),
    calibrated_departure("reward.spread", "down", "prompts that are mastered", fewest=32),  # groups, not rollouts
)
