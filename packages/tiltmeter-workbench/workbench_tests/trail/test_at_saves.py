"""Which saved checkpoints are asked and which are counted as missed; a reward model's checkpoints against gold."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter.rundir.checkpoints.sampling import (
    CheckpointSampling,
    is_sampling,
    open_sampling_lock,
    write_save,
)
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.compare.referees import ScoringReferee, open_referee
from tiltmeter_workbench.trail.at_saves import MOST_WAITING, SaveWatcher
from tiltmeter_workbench.trail.reward_checkpoints import RewardPairs
from tiltmeter_workbench.trail.saves import list_saves


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    run.claim(0, 0)
    return run


def save(run: RunDirectory, output: Path, step: int) -> None:
    (output / f"checkpoint-{step}").mkdir(parents=True)
    write_save(run, 0, step)


def test_what_was_deleted_before_it_could_be_asked_is_counted(run: RunDirectory, tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(run, tmp_path / "out", step)
    write_save(run, 0, 30)  # the trainer saves again at its end
    shutil.rmtree(tmp_path / "out" / "checkpoint-10")
    run.close_rank(0, 0, {"seen": 0})
    saves = SaveWatcher(run, 0, str(tmp_path / "out"), os.getppid())
    assert list(saves.steps()) == [20, 30] and saves.take_missed() == 1 and saves.take_missed() == 0
    assert list_saves(run, 0) == [10, 20, 30] and list_saves(run, 1) == []


def test_while_training_goes_on_a_queue_is_thinned_and_at_its_end_all_that_is_left_is_asked(
    run: RunDirectory, tmp_path: Path
) -> None:
    for step in range(1, MOST_WAITING + 3):
        save(run, tmp_path / "out", step)
    saves = SaveWatcher(run, 0, str(tmp_path / "out"), os.getppid())
    steps = saves.steps()
    first = next(steps)
    assert first == 2 and saves.take_missed() == 3  # of six: one, three and five
    for step in range(10, 20):
        save(run, tmp_path / "out", step)
    run.close_rank(0, 0, {"seen": 0})
    assert list(steps) == [4, 6, *range(10, 20)] and saves.take_missed() == 0


def test_sampling_is_seen_for_as_long_as_somebody_holds_its_lock(run: RunDirectory) -> None:
    assert not is_sampling(run)
    lock = open_sampling_lock(run)
    assert is_sampling(run)
    with pytest.raises(OSError):
        open_sampling_lock(run)
    os.close(lock)
    assert not is_sampling(run)


def test_a_reward_model_is_asked_for_the_better_of_two_answers(tiny_model: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    model = AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=1)
    model.config.pad_token_id = tokenizer.pad_token_id
    for name, sign in (("checkpoint-1", 1.0), ("checkpoint-2", -1.0)):
        with torch.no_grad():
            model.score.weight.mul_(sign)
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    (tmp_path / "checks.py").write_text("def score(prompt, completion):\n    return float('answer' in completion)\n")
    rows = [{"prompt": f"what is {at}", "chosen": f" the answer {at}", "rejected": " what"} for at in range(20)]
    rows += [{"prompt": "tie", "chosen": " one", "rejected": " two"}]
    settings: dict[str, Any] = {
        "name": "checkpoint_gold",
        "output": str(tmp_path),
        "base": "",
        "source": "",
        "plain": True,
    }
    sampling = CheckpointSampling(
        kind="pairs", gold=f"{tmp_path}/checks.py:score", rows=tuple(rows), answers=1, tokens=8, seed=0, **settings
    )
    referee = open_referee(sampling.gold, tmp_path / "work", scored=True)
    assert isinstance(referee, ScoringReferee)
    pairs = RewardPairs(sampling, referee)
    one, other = (pairs.measure(tmp_path / name) for name in ("checkpoint-1", "checkpoint-2"))
    assert len(one) == 20 and set(one) <= {0.0, 1.0}  # gold does not tell the last pair apart
    np.testing.assert_array_equal(one, 1.0 - other)  # the same model with its head turned round
    alike = CheckpointSampling(
        kind="pairs", gold=sampling.gold, rows=tuple(rows[-1:]), answers=1, tokens=8, seed=0, **settings
    )
    with pytest.raises(AttachError, match="tells no two answers"):
        RewardPairs(alike, referee)
