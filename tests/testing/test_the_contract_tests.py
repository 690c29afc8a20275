"""Tests of the tests: each way of breaking the contract must be noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.errors import ContractError
from tiltmeter.instruments.dead_groups import DeadGroups
from tiltmeter.instruments.reward_mean import RewardMean
from tiltmeter.testing import check_derived, check_detector, check_instrument

DOC = "Broken in one way.\n\n>>> 1\n1\n"


class Sound(RewardMean):
    """A copy of a good instrument, to be broken in one way at a time.

    >>> Sound.name
    'reward.mean'
    """


def test_the_unbroken_instrument_passes() -> None:
    check_instrument(Sound)


class NotLocal(Sound):
    __doc__ = DOC
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        return batch.reward - np.nanmax(batch.reward) if np.isfinite(batch.reward).any() else batch.reward


def test_an_instrument_called_local_that_looks_at_other_groups_is_noticed() -> None:
    with pytest.raises(ContractError, match="depends on other prompt groups"):
        check_instrument(NotLocal)


class Mutating(Sound):
    __doc__ = DOC

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        batch.reward[:] = 0.0
        return batch.reward


class MutatingTheDict(Sound):
    __doc__ = DOC

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        batch.rewards["mine"] = batch.reward  # type: ignore[index]
        return batch.reward


class WrongGrain(Sound):
    __doc__ = DOC

    grain = "group"


class OutOfBounds(Sound):
    __doc__ = DOC

    bounds = (-0.001, 0.001)  # type: ignore[assignment]


class BadName(Sound):
    __doc__ = DOC

    name = "Reward Mean!"


class NoSubject(Sound):
    __doc__ = DOC

    name = "reward"


class NanToNumber(Sound):
    __doc__ = DOC

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        return np.nan_to_num(batch.reward)


class GroupNanToNumber(DeadGroups):
    __doc__ = DOC

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        return np.nan_to_num(super().measure(batch, baseline))


class Dividing(Sound):
    __doc__ = DOC

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        spread = np.full(len(batch), batch.reward.std()) if len(batch) else batch.reward
        return batch.reward / spread


class Infinite(Sound):
    __doc__ = DOC

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        return np.where(batch.reward > 0, np.inf, batch.reward)


class Undocumented(Sound): ...


class UnknownColumn(Sound):
    __doc__ = DOC

    needs = ("rewardz",)


class Forgetful(Sound):
    __doc__ = DOC

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        return batch.reward + np.random.default_rng().normal(size=len(batch))


class OrderMatters(DeadGroups):
    __doc__ = DOC
    bounds = (None, None)  # type: ignore[assignment]

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        return batch.reward[batch.starts[:-1]]


BROKEN = [
    (Mutating, "change the batch"),
    (MutatingTheDict, "changed the batch"),
    (WrongGrain, "grain group"),
    (OutOfBounds, "bound"),
    (BadName, "bad name"),
    (NoSubject, "subject.measure"),
    (NanToNumber, "NaN"),
    (GroupNanToNumber, "NaN"),
    (Dividing, "divided by zero"),
    (Infinite, "infinite"),
    (Undocumented, "docstring"),
    (UnknownColumn, "rewardz"),
    (Forgetful, "two answers"),
    (OrderMatters, "order of rows"),
]


@pytest.mark.parametrize(("broken", "message"), BROKEN, ids=lambda part: getattr(part, "__name__", ""))
def test_a_broken_instrument_is_noticed(broken: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        check_instrument(broken)


def test_a_detector_without_a_promise_is_noticed() -> None:
    from tiltmeter.detectors.limit import Limit

    class Silent(Limit):
        """Says nothing.

        >>> 1
        1
        """

    with pytest.raises(ContractError, match="Promise"):
        check_detector(lambda: Silent("reward.dead_share", 0.5))


def test_a_detector_that_opens_twice_is_noticed() -> None:
    from tiltmeter.data.records import Alarm, Reading
    from tiltmeter.detectors.limit import Limit

    class Stuttering(Limit):
        """Promise: none kept.

        >>> 1
        1
        """

        def update(self, reading: Reading) -> Alarm | None:
            alarm = super().update(reading)
            self._open = None
            return alarm

    with pytest.raises(ContractError, match="second alarm"):
        check_detector(lambda: Stuttering("reward.dead_share", 0.5))


def test_a_derived_reading_that_answers_for_another_step_is_noticed() -> None:
    from dataclasses import replace

    from tiltmeter.data.records import Reading
    from tiltmeter.detectors.kl_speed import KlSpeed

    class Late(KlSpeed):
        __doc__ = DOC

        def fold(self, reading: Reading) -> Reading | None:
            answer = super().fold(reading)
            return None if answer is None else replace(answer, step=answer.step - 1)

    with pytest.raises(ContractError, match="answered for"):
        check_derived(Late)
