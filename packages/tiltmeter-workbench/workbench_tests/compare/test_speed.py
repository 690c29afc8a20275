"""Speed by a clock that the models themselves move: nothing hangs on the machine that runs the test."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.chat_model import ChatAnswer, Turns
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.measures.measure import Measure
from tiltmeter_workbench.compare.measures.speed import ROUNDS, SLOWER, measure
from tiltmeter_workbench.compare.sampling import AnswerSampler
from workbench_tests.compare.scripted import Scripted, material

LIKED = "def liked(completions, **_):\n    return [float(len(text)) for text in completions]\n"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Timed(Scripted):
    """Takes so many seconds for a token, more or less."""

    def __init__(self, folder: Path, clock: Clock, seconds: Callable[[random.Random], float]) -> None:
        super().__init__(folder, lambda prompt, rng: " ".join(["word"] * rng.randint(5, 20)))
        self.clock, self.seconds, self.rng = clock, seconds, random.Random(str(folder))

    def answers(self, asked: Sequence[Turns], **settings: Any) -> Iterator[tuple[int, list[ChatAnswer]]]:
        for number, told in super().answers(asked, **settings):
            self.clock.now += self.seconds(self.rng) * len(told[0].tokens)
            yield number, told


def compared(where: Path, slower: float, scatter: float = 0.1, **settings: Any) -> list[Measure]:
    clock = Clock()
    base = Timed(where / "base", clock, lambda rng: 0.01 * rng.uniform(1 - scatter, 1 + scatter))
    checkpoint = Timed(where / "new", clock, lambda rng: 0.01 * slower * rng.uniform(1 - scatter, 1 + scatter))
    return measure(material(where, base, checkpoint), clock=clock, alpha=0.01, **settings)


def test_a_checkpoint_of_half_the_speed_is_slower(tmp_path: Path) -> None:
    told, _ = compared(tmp_path, slower=2.0)
    assert (told.state, told.cost, told.n) == ("worse", "slower", ROUNDS)
    assert told.checkpoint == pytest.approx(0.5, abs=0.03)
    speed = told.rows[0]
    assert speed["base"] == pytest.approx(100.0, rel=0.05) and speed["checkpoint"] == pytest.approx(50.0, rel=0.05)
    assert told.rows[1]["checkpoint"] > told.rows[1]["base"]


@pytest.mark.parametrize("slower", [0.5, 1.0, SLOWER - 0.1])
def test_less_than_that_is_shown(tmp_path: Path, slower: float) -> None:
    assert compared(tmp_path, slower)[0].state == "shown"


def test_a_machine_that_swings_does_not_make_a_checkpoint_slow(tmp_path: Path) -> None:
    states = [compared(tmp_path / str(seed), 1.0, scatter=0.95, batch=2)[0].state for seed in range(40)]
    assert set(states) == {"shown"}


class Batched(Scripted):
    """Takes so many seconds for each next token of a batch, which goes on until its longest answer ends."""

    def __init__(self, folder: Path, clock: Clock, longest: Callable[[random.Random], int]) -> None:
        super().__init__(folder, lambda prompt, rng: " ".join(["word"] * longest(rng)))
        self.clock = clock

    def answers(self, asked: Sequence[Turns], **settings: Any) -> Iterator[tuple[int, list[ChatAnswer]]]:
        found = list(super().answers(asked, **settings))
        self.clock.now += 0.01 * max(len(told[0].tokens) for _, told in found)
        yield from found


def test_answers_of_unequal_length_do_not_make_a_checkpoint_slow(tmp_path: Path) -> None:
    clock = Clock()
    base = Batched(tmp_path / "base", clock, lambda rng: 20)
    checkpoint = Batched(tmp_path / "new", clock, lambda rng: rng.choice([3, 3, 3, 20]))
    told, _ = measure(material(tmp_path, base, checkpoint), clock=clock, alpha=0.01)
    assert told.rows[0]["checkpoint"] < told.rows[0]["base"] / SLOWER  # tokens a second: the short ones wait
    assert told.state == "shown" and told.checkpoint == pytest.approx(1.0)


def test_without_a_reward_the_option_that_asks_is_named(tmp_path: Path) -> None:
    _, scoring = compared(tmp_path, 1.0)
    assert scoring.state == "not asked" and "--reward" in scoring.sentence


def test_scoring_is_timed_with_guards_and_without(tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(LIKED)
    reward = [{"function": "rewards.py:liked"}]
    _, told = compared(tmp_path, 1.0, reward=reward, folder=tmp_path)
    assert [row["what"] for row in told.rows] == ["generation", "with reward", "with reward and guards"]
    # Scoring does not move this clock: all that is left is generation.
    assert told.rows[0]["seconds a completion"] == told.rows[2]["seconds a completion"] > 0.0
    with pytest.raises(AttachError, match="there is no 'seatbelt'"):
        compared(tmp_path, 1.0, reward=reward, guards=["seatbelt"], folder=tmp_path)


def test_a_slow_guard_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setitem(sys.modules, "a_clock", cast(ModuleType, clock))
    (tmp_path / "rewards.py").write_text(LIKED)
    (tmp_path / "checks.py").write_text(
        "import a_clock\n\n\ndef fine(completions, **_):\n"
        "    a_clock.now += 0.5 * len(completions)\n    return [1.0] * len(completions)\n"
    )
    models = [Timed(tmp_path / name, clock, lambda rng: 0.01) for name in ("base", "new")]
    _, told = measure(
        material(tmp_path, *models),
        reward=[{"function": "rewards.py:liked"}],
        guards=[{"gate": {"check": "checks.py:fine"}}],
        folder=tmp_path,
        clock=clock,
        alpha=0.01,
    )
    assert told.base == 0.0
    assert told.difference == pytest.approx(0.5)


def test_real_models_are_timed(tiny_model: Path, tmp_path: Path) -> None:
    model = LocalModel(tiny_model)
    told, _ = measure(AnswerSampler(model, model, tmp_path, limit=4), rounds=2, batch=2, alpha=0.01)
    assert told.state == "shown" and told.n == 2
    assert all(row["base"] > 0.0 and row["checkpoint"] > 0.0 for row in told.rows)
