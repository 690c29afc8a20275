"""What holds of every reward: None stays None, an outage is no zero, and a trainer calls it as it calls any other."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.rewards import InfraError, Reward, Scores
from tiltmeter.sandbox import SandboxUnavailable
from tiltmeter_workbench import rewards

Part = Callable[..., Any]
Make = Callable[[Part], Any]

#: Every reward around one part, by what it needs; `otherwise` of the gate lies inside the part's range.
AROUND: dict[str, Make] = {
    "combine": lambda part: rewards.combine({"a": part, "b": rewards.repetition()}, {"a": 2.0}),
    "constrained": lambda part: rewards.constrained(part, {"calm": (rewards.repetition(), -0.5)}, start=1.0),
    "ensemble min": lambda part: rewards.ensemble([part, rewards.repetition()]),
    "ensemble mean": lambda part: rewards.ensemble([part, rewards.repetition()], "mean"),
    "ensemble median": lambda part: rewards.ensemble([part, rewards.repetition(), rewards.repetition(2)], "median"),
    "ensemble std": lambda part: rewards.ensemble([part, rewards.repetition()], "mean_minus_std", 0.5),
    "ensemble variance": lambda part: rewards.ensemble([part, rewards.repetition()], "mean_minus_variance", 0.5),
    "ensemble scaled": lambda part: rewards.ensemble([part, rewards.repetition()], scale=[(0.1, 2.0), (0.0, 1.0)]),
    "ensemble first": lambda part: rewards.ensemble([part, rewards.repetition()], scale=4),
    "gate check": lambda part: rewards.gate(part, rewards.repetition(), otherwise=-1.0, threshold=0.0),
    "shaped column": lambda part: rewards.shaped(part, "gold"),
    "shaped number": lambda part: rewards.shaped(part, 0.3, scale=2.0),
    "clipped": lambda part: rewards.clipped(part, -0.5, 0.5),
    "length_debiased": lambda part: rewards.length_debiased(part, slope=0.01),
    "nested": lambda part: rewards.clipped(rewards.combine({"a": rewards.shaped(part, 0.0)}), 0.2, 0.8),
}
ALONE: dict[str, Callable[[], Any]] = {
    "overlong": lambda: rewards.overlong(6, 3),
    "repetition words": lambda: rewards.repetition(1),
    "repetition tokens": lambda: rewards.repetition(2, of="tokens", free=0.1),
    "process": lambda: rewards.process(lambda prompts, steps, **_: [[float(len(s)) for s in row] for row in steps]),
}
TEXTS = ["one two one two", "three", "", "four four\nfour four five", "it is 4", "no"]
PROMPTS = ["p", "p", "p", "q", "q", "q"]


def trl(texts: list[str], *, chat: bool = False) -> dict[str, Any]:
    """A call as TRL 1.16 makes it."""
    asked: list[Any] = list(PROMPTS[: len(texts)])
    said: list[Any] = list(texts)
    if chat:
        asked = [[{"role": "user", "content": prompt}] for prompt in asked]
        said = [[{"role": "assistant", "content": text}] for text in said]
    return {
        "prompts": asked,
        "completions": said,
        "completion_ids": [list(text.encode()) for text in texts],
        "gold": ["g" if prompt == "p" else "h" for prompt in PROMPTS[: len(texts)]],
        "trainer_state": object(),
        "log_extra": lambda column, values: None,
        "log_metric": lambda name, value: None,
    }


def size(completions: list[Any], **_: Any) -> Scores:
    return [float(len(text)) / 10 - 0.5 for text in rewards.texts(completions)]


def with_holes(completions: list[Any], **_: Any) -> Scores:
    return [None if text in ("", "no") else len(text) / 10 for text in rewards.texts(completions)]


def quiet(reward: Any, **call: Any) -> Scores:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: the reward")
        return list(reward(**call))


def check(make: Make) -> None:
    """The contract of a reward around one part. Raises `AssertionError` with what is wrong."""
    call = trl(TEXTS)
    reward = make(size)
    assert isinstance(reward, Reward), "it has no metadata"
    scores: Any = reward(**call)
    assert len(scores) == len(TEXTS), "one score per completion"
    assert all(type(score) is float for score in scores), "every row was scored, so every score is a float"
    assert set(reward.told) == set(reward.components) and reward.components, "told and components disagree"
    assert all(len(told) == len(TEXTS) for told in reward.told.values()) and reward.infra == [False] * len(TEXTS)
    np.testing.assert_allclose(make(size)(**trl(TEXTS, chat=True)), scores, err_msg="chat messages score otherwise")
    order = [3, 1, 5, 0, 4, 2]
    turned = {key: [value[i] for i in order] if isinstance(value, list) else value for key, value in call.items()}
    np.testing.assert_allclose(make(size)(**turned), [scores[i] for i in order], err_msg="the order of rows matters")
    holed = make(with_holes)
    told = quiet(holed, **call)
    missing = [row for row, text in enumerate(TEXTS) if text in ("", "no")]
    assert [row for row, score in enumerate(told) if score is None] == missing, "None did not stay None"
    assert not any(holed.infra), "what does not apply is no outage"
    for error in (InfraError, JudgeError, SandboxUnavailable, ConnectionError, TimeoutError, OSError):
        broken = make(_raising(error("down")))
        assert quiet(broken, **call) == [None] * len(TEXTS), "an outage was paid"
        assert broken.infra == [True] * len(TEXTS), "an outage is not told"
    for bug in (ValueError, KeyError, ZeroDivisionError):
        with pytest.raises(bug):
            make(_raising(bug("bug")))(**call)
    with pytest.raises(ValueError, match=r"returned 1 scores for 6 completions"):
        make(lambda completions, **_: [1.0])(**call)
    with pytest.raises(TypeError, match="neither a number nor None"):
        make(lambda completions, **_: ["7"] * len(completions))(**call)


def _raising(error: Exception) -> Part:
    def part(completions: Any, **_: Any) -> Scores:
        raise error

    return part


@pytest.mark.parametrize("name", AROUND)
def test_every_reward_around_a_part_keeps_the_contract(name: str) -> None:
    check(AROUND[name])


@pytest.mark.parametrize("name", ALONE)
def test_every_reward_of_its_own_keeps_the_contract(name: str) -> None:
    reward, call = ALONE[name](), trl(TEXTS)
    assert isinstance(reward, Reward) and reward.components == ()
    scores = reward(**call)
    assert len(scores) == len(TEXTS) and reward.told == {} and reward.infra == [False] * len(TEXTS)
    assert scores == ALONE[name]()(**trl(TEXTS, chat=True))
    turned = {key: value[::-1] if isinstance(value, list) else value for key, value in call.items()}
    assert ALONE[name]()(**turned) == scores[::-1]
    low, high = reward.bounds
    assert all(s is None or ((low is None or s >= low) and (high is None or s <= high)) for s in scores)


class PaysForOutages:
    """A deliberately broken reward: what could not be scored is 0."""

    __name__, bounds, components = "broken", (None, None), ("part",)

    def __init__(self, part: Part) -> None:
        self.part, self.told, self.infra = part, dict[str, Scores](), list[bool]()

    def __call__(self, **call: Any) -> Scores:
        try:
            scores = self.part(**call)
        except OSError:
            scores = [None] * len(call["completions"])
        if len(scores) != len(call["completions"]):
            raise ValueError(f"returned {len(scores)} scores for {len(call['completions'])} completions")
        self.told, self.infra = {"part": scores}, [False] * len(scores)
        return [score or 0.0 for score in scores]


class DependsOnOrder(PaysForOutages):
    def __call__(self, **call: Any) -> Scores:
        return [score + row for row, score in enumerate(super().__call__(**call))]  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (PaysForOutages, "None did not stay None"),
        (DependsOnOrder, "the order of rows matters"),
        (lambda part: functools.partial(part), "it has no metadata"),
    ],
)
def test_the_contract_catches_rewards_that_break_it(make: Make, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(make)


@pytest.mark.parametrize("name", [name for name in AROUND if name not in ("length_debiased", "ensemble first")])
@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.one_of(st.none(), st.floats(-3.0, 3.0)), min_size=1, max_size=6))
def test_scores_lie_within_the_bounds_and_none_stays_none(name: str, values: Scores) -> None:
    def bounded(completions: list[Any], **_: Any) -> Scores:
        # A reference answer is asked in the same way; it always has a score.
        return [values[int(text)] if text.isdigit() else 0.1 for text in rewards.texts(completions)]

    part = rewards.clipped(bounded, -2.5, 2.5)
    reward = AROUND[name](part)
    scores = reward(**trl([str(row) for row in range(len(values))]))
    low, high = reward.bounds
    assert high is not None and (low is not None or "std" in name or "variance" in name)
    for value, score in zip(values, scores, strict=True):
        assert (score is None) == (value is None)
        assert score is None or ((low is None or score >= low - 1e-9) and score <= high + 1e-9)


@pytest.mark.parametrize("name", AROUND)
def test_settings_and_parts_change_the_fingerprint_and_use_does_not(name: str) -> None:
    reward = AROUND[name](size)
    before = fingerprint([reward])
    for _ in range(3):
        reward(**trl(TEXTS))
    assert fingerprint([reward]) == before == fingerprint([AROUND[name](size)])
    assert fingerprint([AROUND[name](with_holes)]) != before


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (rewards.overlong(6, 3), rewards.overlong(6, 2)),
        (rewards.repetition(2), rewards.repetition(3)),
        (rewards.combine([size], {"size": 1.0}), rewards.combine([size], {"size": 2.0})),
        (rewards.combine([size]), rewards.combine([size], optional=["size"])),
        (rewards.gate(size, size), rewards.gate(size, size, otherwise=-1.0)),
        (rewards.ensemble([size], "min"), rewards.ensemble([size], "mean")),
        (rewards.shaped(size, {"p": 1.0}), rewards.shaped(size, {"p": 2.0})),
        (rewards.clipped(size, 0.0, 1.0), rewards.clipped(size, 0.0, 2.0)),
        (rewards.length_debiased(size, slope=0.1), rewards.length_debiased(size, slope=0.2)),
        (rewards.constrained(size, {"c": (size, 0.1)}), rewards.constrained(size, {"c": (size, 0.2)})),
        (
            rewards.combine({"x": rewards.gate(size, rewards.clipped(rewards.combine([size]), 0.0, 1.0))}),
            rewards.combine({"x": rewards.gate(size, rewards.clipped(rewards.combine([with_holes]), 0.0, 1.0))}),
        ),
    ],
)
def test_another_setting_is_another_reward(one: Reward, other: Reward) -> None:
    assert fingerprint([one]) != fingerprint([other])


def test_rewards_are_found_by_name_and_nothing_heavy_comes_with_them() -> None:
    import subprocess
    import sys

    program = (
        "import sys, tiltmeter_workbench.rewards.verifiers.verifier_gate, tiltmeter.gold.guards.composed_reward\n"
        "from tiltmeter import rewards\n"
        "from tiltmeter_workbench.rewards.weighted_sum import WeightedSum\n"
        "assert callable(rewards.gate) and callable(rewards.combine) and callable(rewards.pareto), rewards.gate\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'numba', 'rich', 'httpx'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert all(callable(getattr(rewards, name)) for name in rewards.__all__ if name != 'Scores')\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rewards.nothing  # type: ignore[attr-defined]  # noqa: B018
