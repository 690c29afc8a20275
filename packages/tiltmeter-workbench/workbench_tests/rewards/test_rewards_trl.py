"""Rewards of `tiltmeter.rewards` in a real TRL run: parts as readings, an outage as an outage, steps as a column."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltmeter
from tiltmeter.adapters.trl import attach as adapter
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import series
from tiltmeter.verdict.verdict import judge_run
from tiltmeter_workbench import rewards

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
pytestmark = pytest.mark.filterwarnings("ignore:tiltmeter. the reward")
Make = Callable[..., Any]


def long(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 50 for text in completions]


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(a in text) for text, a in zip(completions, answer, strict=True)]


def third(completions: list[str], **_: Any) -> list[float | None]:
    return [None if row % 4 == 2 else 1.0 for row, _ in enumerate(completions)]


def down(completions: list[str], **_: Any) -> list[float]:
    raise ConnectionError("the verifier's server is down")


def attached(trainer: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        return tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True), **options)


def stored(run: Any) -> list[RolloutBatch]:
    directory = RunDirectory(run.directory)
    return [directory.read(file)[0] for file in directory.files(0)]


def words(batch: RolloutBatch, column: str) -> list[str]:
    return [FLAGS[code] for code in batch.flags.get(column, np.zeros(len(batch), np.uint8))]


@pytest.fixture(params=["deep", "wrapper"])
def listening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of listening: the one for tested versions of TRL, and the one for any other."""
    if request.param == "wrapper":
        monkeypatch.setattr(adapter, "TRL", ())
    return str(request.param)


def test_the_parts_of_a_combined_reward_become_readings_and_none_is_missing(make_trainer: Make, listening: str) -> None:
    reward = rewards.combine({"long": long, "right": right, "rule": third}, weights={"right": 2.0, "rule": 0.0})
    trainer = make_trainer(rewards=reward, max_steps=2)
    run = attached(trainer)
    trainer.train()
    batches = stored(run)
    assert len(batches) == 2
    for batch in batches:
        assert set(batch.rewards) == {"long", "right", "rule"} and batch.reward is not None
        assert np.flatnonzero(np.isnan(batch.reward)).tolist() == [2, 6]
        assert words(batch, "reward") == ["missing" if row in (2, 6) else "ok" for row in range(8)]
        assert words(batch, "rewards.long") == ["ok"] * 8
        np.testing.assert_allclose(
            batch.reward, batch.rewards["long"] + 2.0 * batch.rewards["right"] + 0.0 * batch.rewards["rule"], rtol=1e-5
        )
    assert run.verdict().checks["scored"].ok
    told = series(read_events(run.directory / "events"), {0: np.inf})
    assert {"reward.component.long", "reward.component.right", "reward.unscored_share"} <= set(told)
    assert [point[1] for point in told["reward.infra_share"]] == [0.0, 0.0]


def test_a_verifier_that_is_down_makes_the_run_blind_and_is_no_reward_of_zero(
    make_trainer: Make, listening: str
) -> None:
    trainer = make_trainer(rewards=rewards.combine({"long": long, "checked": down}), max_steps=2)
    run = attached(trainer)
    trainer.train()
    for batch in stored(run):
        assert batch.reward is not None and np.isnan(batch.reward).all()
        assert words(batch, "reward") == ["infra"] * 8 and words(batch, "rewards.checked") == ["infra"] * 8
        assert np.isfinite(batch.rewards["long"]).all()
    verdict = run.verdict()
    assert verdict.exit_code == 2 and not verdict.checks["scored"].ok
    assert "16 of the last 16 completions could not be scored (infrastructure)" in verdict.checks["scored"].why
    told = series(read_events(run.directory / "events"), {0: np.inf})
    assert [point[1] for point in told["reward.infra_share"]] == [1.0, 1.0] and "reward.mean" not in told


@pytest.mark.usefixtures("unmeasured")
def test_given_separately_the_outage_is_still_told_and_the_sum_is_what_was_trained_on(
    make_trainer: Make, listening: str
) -> None:
    checked = rewards.combine({"checked": down}, name="checked")
    trainer = make_trainer(rewards=[long, checked], max_steps=1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True))
    assert sum("tiltmeter.rewards.combine" in str(one.message) for one in told) == 1
    trainer.train()
    (batch,) = stored(run)
    assert words(batch, "rewards.checked") == ["infra"] * 8 and set(batch.rewards) == {"long", "checked"}
    assert batch.reward is not None
    np.testing.assert_allclose(batch.reward, batch.rewards["long"])


@pytest.mark.usefixtures("unmeasured")
def test_scores_of_steps_are_stored_beside_their_rows(make_trainer: Make, listening: str) -> None:
    def scorer(prompts: Any, steps: list[list[str]], **_: Any) -> list[list[float]]:
        return [[float(len(step)) for step in row] for row in steps]

    reward = rewards.combine({"long": long, "steps": rewards.process(scorer, split=lambda text: list(text[:3]))})
    trainer = make_trainer(rewards=reward, max_steps=2)
    run = attached(trainer)
    trainer.train()
    for batch in stored(run):
        assert batch.step_reward is not None and batch.completion is not None
        assert batch.step_reward.lengths.tolist() == [min(len(text or ""), 3) for text in batch.completion]


@pytest.mark.usefixtures("unmeasured")
def test_an_evaluation_between_two_steps_changes_neither_what_is_told_nor_what_is_learnt(
    make_trainer: Make, listening: str
) -> None:
    calls: list[int] = []

    def counted(completions: list[str], **_: Any) -> list[float]:
        calls.append(len(completions))
        return [0.0] * len(completions)

    reward = rewards.constrained(long, {"kept": (counted, 1.0)}, rate=0.1)
    settings = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    trainer = make_trainer(rewards=reward, max_steps=3, **settings)
    run = attached(trainer)
    trainer.train()
    assert len(calls) > 3 and 4 in calls
    assert reward.rule.multipliers == pytest.approx({"kept": 0.3})
    assert [len(batch.rewards["kept"]) for batch in stored(run)] == [8, 8, 8]
    logged = [entry["constrained/kept/multiplier"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == pytest.approx([0.0, 0.1, 0.2])


@pytest.mark.usefixtures("unmeasured")
def test_what_a_reward_learns_does_not_open_a_segment_and_its_settings_would(make_trainer: Make) -> None:
    def made(rate: float = 0.1) -> rewards.Reward:
        debiased = rewards.length_debiased(long, least=4)
        return rewards.constrained(debiased, {"right": (right, 0.9)}, rate=rate)

    reward = made()
    trainer = make_trainer(rewards=reward, max_steps=3)
    run = attached(trainer)
    before = fingerprint([reward])
    trainer.train()
    assert reward.rule.multipliers["right"] > 0.0  # type: ignore[attr-defined]
    assert fingerprint([reward]) == before == fingerprint([made()]) != fingerprint([made(rate=0.2)])
    assert len({batch.fingerprint for batch in stored(run)}) == 1


@pytest.mark.usefixtures("unmeasured")
def test_being_watched_does_not_change_what_a_learning_reward_pays_by_a_bit(make_trainer: Make, listening: str) -> None:
    found = []
    for watched in (False, True):
        reward = rewards.constrained(rewards.length_debiased(long, least=4), {"right": (right, 0.9)}, rate=0.5)
        trainer = make_trainer(rewards=reward, name=f"out{watched}", max_steps=3)
        if watched:
            attached(trainer)
        trainer.train()
        values = [value.detach().numpy().tobytes() for _, value in sorted(trainer.model.state_dict().items())]
        found.append((values, reward.state()))
    assert found[0] == found[1]


@pytest.mark.usefixtures("unmeasured")
def test_chat_messages_reach_every_reward(make_trainer: Make, tmp_path: Path) -> None:
    from datasets import Dataset

    reward = rewards.combine(
        {
            "overlong": rewards.overlong(16, 8),
            "repetition": rewards.repetition(2, of="tokens"),
            "shaped": rewards.shaped(rewards.combine([rewards.repetition()], name="r"), "answer"),
        }
    )
    trainer = make_trainer(rewards=reward, max_steps=1)
    asked = [{"prompt": [{"role": "user", "content": f"what is {i}"}], "answer": "3"} for i in range(8)]
    trainer.train_dataset = Dataset.from_list(asked)
    run = attached(trainer)
    trainer.train()
    (batch,) = stored(run)
    assert batch.reward is not None and np.isfinite(batch.reward).all() and set(batch.rewards) == set(reward.components)


@pytest.mark.usefixtures("unmeasured")
def test_what_a_reward_gets_wrong_about_itself_costs_its_parts_and_not_the_batch(
    make_trainer: Make, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd:
        __name__, bounds, components, infra = "odd", (None, None), ("a",), [False]
        told: dict[str, list[float | None]] = {"a": [1.0]}  # noqa: RUF012

        def __call__(self, completions: list[str], **_: Any) -> list[float]:
            return [1.0] * len(completions)

    trainer = make_trainer(rewards=Odd(), max_steps=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        run = tiltmeter.attach(trainer)
    trainer.train()
    (batch,) = stored(run)
    assert batch.rewards["odd"].tolist() == [1.0] * 8
    assert run.counters["dropped"] == 0
    assert "odd was asked about 8 rows" in caplog.text


def test_a_green_run_goes_blind_when_its_verifier_goes_down_and_green_again_when_it_is_back(tmp_path: Path) -> None:
    """In a loop of one's own, with gold: without the outage nothing else is wrong with this run."""
    broken = False

    def verifier(completions: list[float], **_: Any) -> list[float]:
        if broken:
            raise TimeoutError("no answer")
        return [float(value) for value in completions]

    reward = rewards.combine({"verifier": verifier})
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    verdicts = []
    for step in range(150):
        broken = 100 <= step < 110
        values = np.random.default_rng(step).random(16)
        told = rewards.observed(reward, reward(completions=values.tolist()))
        batch = from_columns(step, np.repeat(np.arange(4), 4), gold=(values > 0.5).astype(float), **told)
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
        if step in (99, 109, 149):
            watch = MonitorLoop(run, Config.standard())
            watch.poll()
            watch.close()
            verdicts.append(judge_run(run)[0])
    assert [verdict.state for verdict in verdicts] == ["OK", "BLIND", "OK"]
    assert "could not be scored (infrastructure)" in verdicts[1].sentence
