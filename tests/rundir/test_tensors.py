"""Tensors of the real torch, where it is installed; the core does not need it."""

from __future__ import annotations

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.rundir.column_copies import copy_columns

torch = pytest.importorskip("torch", reason="torch is not part of the base install; CI brings it for the main test run")


def test_tensors_with_a_gradient_or_in_bfloat16_are_taken_as_they_are() -> None:
    reward = torch.tensor([0.5, 1.5], requires_grad=True) * 1.0
    logprob = torch.full((2, 3), -0.25, dtype=torch.bfloat16)
    columns = copy_columns(
        {"step": 0, "group": torch.tensor([0, 0]), "reward": reward, "logprob": logprob, "length": [3, 2]}
    )
    logprob.fill_(7.0)
    batch = from_columns(**columns)
    assert batch.reward is not None
    assert batch.reward.tolist() == [0.5, 1.5]
    assert batch.logprob is not None
    assert np.array_equal(batch.logprob.values, np.full(5, -0.25, np.float32))
