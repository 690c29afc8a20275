"""Each reward on numbers worked by hand."""

from __future__ import annotations

import asyncio
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiltmeter.gold.guards.composed_reward import ComposedReward
from tiltmeter.models.judge import CANARIES, Judge, JudgeCanary
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.rewards import InfraError, Scores
from tiltmeter_workbench import rewards


def says(*scores: float | None) -> Any:
    """A part that answers the same whatever it is asked."""

    def part(completions: Any, **_: Any) -> Scores:
        return list(scores)

    return part


ROWS = {"prompts": ["p", "p"], "completions": ["a", "b"]}


# -- ensemble ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("min", 1.0),
        ("mean", 3.0),
        ("median", 2.0),
        ("mean_minus_std", 3.0 - 0.5 * math.sqrt(14 / 3)),  # deviations -2, -1, 3
        ("mean_minus_variance", 3.0 - 0.5 * 14 / 3),
    ],
)
def test_an_ensembles_rules(rule: Any, expected: float) -> None:
    reward = rewards.ensemble([says(1.0), says(2.0), says(6.0)], rule, penalty=0.5)
    assert reward(completions=["x"]) == pytest.approx([expected])


def test_an_unknown_rule_is_refused_with_the_choices() -> None:
    with pytest.raises(ValueError, match="min, mean, median, mean_minus_std, mean_minus_variance"):
        rewards.ensemble([says(1.0)], "max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one member"):
        rewards.ensemble([])


def test_a_members_own_scale_does_not_decide() -> None:
    small, large = says(0.1, 0.3), says(500.0, 100.0)
    reward = rewards.ensemble([small, large], "min", scale=[(0.2, 0.1), (300.0, 100.0)])
    assert reward(**ROWS) == pytest.approx([-1.0, -2.0])  # (-1, 2) and (1, -2)


def test_the_scale_of_the_first_rows_is_frozen() -> None:
    given = iter([[1.0, 3.0], [5.0, 7.0], [100.0, 100.0]])
    reward = rewards.ensemble([lambda completions, **_: next(given)], scale=4)
    assert reward(**ROWS) == pytest.approx([-1.0, 1.0])  # mean 2, sd 1 of these two
    assert reward(**ROWS) == pytest.approx([1 / math.sqrt(5), 3 / math.sqrt(5)])  # mean 4, sd sqrt(5) of four
    assert reward(**ROWS) == pytest.approx([96 / math.sqrt(5)] * 2)  # still those
    again = rewards.ensemble([says(100.0, 100.0)], scale=4)
    again.restore(reward.state())
    assert again(**ROWS) == pytest.approx([96 / math.sqrt(5)] * 2)


# -- shaping -----------------------------------------------------------------------------------------------------------


def test_a_shaped_reward_is_the_chance_to_be_preferred() -> None:
    sigmoid = 1 / (1 + math.exp(-1.5))
    assert rewards.shaped(says(2.0), 0.5)(completions=["x"]) == pytest.approx([sigmoid])
    assert rewards.shaped(says(3.5), 0.5, scale=2.0)(completions=["x"]) == pytest.approx([sigmoid])
    assert rewards.shaped(says(1e308, -1e308), 0.0)(**ROWS) == [1.0, 0.0]


def test_the_reference_may_be_a_number_by_prompt_and_a_prompt_without_one_is_none() -> None:
    reward = rewards.shaped(says(2.0, 2.0), {"p": 2.0})
    assert reward(prompts=["p", "q"], completions=["x", "y"]) == [0.5, None] and reward.infra == [False, False]
    size = lambda completions, **_: [float(len(c)) for c in completions]  # noqa: E731
    assert rewards.reference_means(size, ["p", "p", "q"], ["a", "aaa", "aa"]) == {"p": 2.0, "q": 2.0}


def test_a_reference_answer_is_asked_once_per_group_and_without_the_policys_tokens() -> None:
    calls: list[dict[str, Any]] = []

    def size(completions: list[str], **given: Any) -> list[float]:
        calls.append({"completions": completions, **given})
        return [float(len(text)) for text in completions]

    reward = rewards.shaped(size, "best")
    best = ["bb", "bb", "bb", None]
    told = reward(
        prompts=["p", "p", "q", "q"], completions=["aa", "aaa", "a", "a"], completion_ids=[[1]] * 4, best=best
    )
    assert told == pytest.approx([0.5, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1)), None], nan_ok=True)
    assert calls[1] == {"completions": ["bb", "bb"], "prompts": ["p", "q"], "best": ["bb", "bb"]}
    assert reward.told == {"size": [2.0, 3.0, 1.0, 1.0]}, "told is about the policy's answers"
    with pytest.raises(TypeError, match=r"no column 'best' .* the dataset has \['answer'\]"):
        reward(prompts=["p"], completions=["x"], answer=["4"])


def test_a_reference_that_broke_is_infra() -> None:
    def fails_on_reference(completions: list[str], **_: Any) -> list[Any]:
        return [InfraError("down") if text == "ref" else 1.0 for text in completions]

    with pytest.warns(UserWarning, match="could not score 1 of 2"):
        reward = rewards.shaped(fails_on_reference, "best")
        assert reward(prompts=["p", "q"], completions=["a", "b"], best=["ref", "b"]) == [None, 0.5]
    assert reward.infra == [True, False]


def test_clipping() -> None:
    assert rewards.clipped(says(-7.0, 0.25), -1.0, 1.0)(**ROWS) == [-1.0, 0.25]
    with pytest.raises(ValueError, match="low must lie below high"):
        rewards.clipped(says(1.0), 1.0, 1.0)


# -- length and repetition ---------------------------------------------------------------------------------------------


def test_the_overlong_penalty_at_its_corners() -> None:
    reward = rewards.overlong(20, 4)
    lengths = [0, 16, 17, 19, 20, 21, 500]
    ids = [[1] * n for n in lengths]
    assert reward(completions=[""] * 7, completion_ids=ids) == [0.0, 0.0, -0.25, -0.75, -1.0, -1.0, -1.0]
    with pytest.raises(TypeError, match="measure by words instead"):
        reward(completions=["x"])
    with pytest.raises(ValueError, match="tokens, words, characters"):
        rewards.overlong(20, 4, unit="pages")  # type: ignore[arg-type]


def test_repetition_counts_runs_that_stood_before() -> None:
    said = ["a b a b a b", "a b c d", "x x x", "x"]  # bigrams ab ba ab ba ab: 3 of 5; 0 of 3; 1 of 2; none
    assert rewards.repetition(2)(completions=said) == pytest.approx([-0.6, 0.0, -0.5, 0.0])
    assert rewards.repetition(2, free=0.2)(completions=said) == pytest.approx([-0.5, 0.0, -0.375, 0.0])
    ids = [[33] * 9, [1, 2, 3]]
    assert rewards.repetition(2, of="tokens")(completions=["!" * 9, "abc"], completion_ids=ids) == pytest.approx(
        [-7 / 8, 0.0]
    )


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 4))
def test_the_repetition_penalty_is_the_share_of_runs_seen_before(words: list[str], order: int) -> None:
    runs = [tuple(words[i : i + order]) for i in range(len(words) - order + 1)]
    share = (len(runs) - len(set(runs))) / len(runs) if runs else 0.0
    assert rewards.repetition(order)(completions=[" ".join(words)]) == pytest.approx([-share])


# -- gate and combine --------------------------------------------------------------------------------------------------


def test_a_gate_pays_for_style_only_where_the_check_passes() -> None:
    reward = rewards.gate(says(1.0, 0.0, None, 1.0), says(0.8, 0.8, 0.8, None), otherwise=-0.5)
    assert reward(completions=["a"] * 4) == [0.8, -0.5, None, None]
    assert reward.told == {"check": [1.0, 0.0, None, 1.0], "then": [0.8, 0.8, 0.8, None]}
    assert rewards.gate(says(0.5, 0.49), says(1.0, 1.0))(**ROWS) == [1.0, 0.0], "reaching the threshold is passing"
    assert rewards.gate(says(0.5), rewards.clipped(says(9.0), 0.0, 1.0), otherwise=-0.5).bounds == (-0.5, 1.0)


def test_behind_a_closed_gate_an_outage_does_not_matter() -> None:
    reward = rewards.gate(says(1.0, 0.0), lambda completions, **_: [InfraError("down"), InfraError("down")])
    with pytest.warns(UserWarning, match="then could not score 2 of 2"):
        assert reward(**ROWS) == [None, 0.0]
    assert reward.infra == [True, False]


def test_combine_is_none_where_any_part_is_and_an_optional_one_may_be_absent() -> None:
    parts = {"right": says(1.0, 1.0), "style": says(0.5, None)}
    assert rewards.combine(parts, {"style": 2.0})(**ROWS) == [2.0, None]
    assert rewards.combine(parts, {"style": 2.0}, optional=["style"])(**ROWS) == [2.0, 1.0]
    broken = rewards.combine({**parts, "style": lambda completions, **_: [0.5, TimeoutError()]}, optional=["style"])
    with pytest.warns(UserWarning, match="style could not score 1 of 2"):
        assert broken(**ROWS) == [1.5, None]
    assert broken.infra == [False, True], "an optional part may not apply; one that broke is an outage all the same"


def test_bounds_of_a_sum() -> None:
    unit, open_end = rewards.clipped(says(0.0), 0.0, 1.0), says(0.0)
    assert rewards.combine([unit, rewards.overlong(4, 2)], {"overlong": 0.5}).bounds == (-0.5, 1.0)
    assert rewards.combine([unit, unit], {"clipped": -2.0}).bounds == (-2.0, 1.0)
    assert rewards.combine([unit, open_end]).bounds == (None, None)
    low = rewards.clipped(says(0.0), 2.0, 3.0)
    assert rewards.combine([low]).bounds == (2.0, 3.0) and rewards.combine([low], optional=["clipped"]).bounds == (0, 3)


def test_names_that_are_no_parts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\['stile'\] are no parts; the parts are \['style'\]"):
        rewards.combine({"style": says(1.0)}, {"stile": 2.0})
    with pytest.raises(TypeError, match="'style' is float, which cannot be called"):
        rewards.combine({"style": 2.0})  # type: ignore[dict-item]


# -- what parts may answer ---------------------------------------------------------------------------------------------


def test_a_part_may_have_to_be_waited_for_also_where_a_loop_is_running() -> None:
    async def later(completions: list[str], **_: Any) -> list[float]:
        await asyncio.sleep(0)
        return [1.0] * len(completions)

    async def failing(completions: list[str], **_: Any) -> list[float]:
        raise ZeroDivisionError

    reward = rewards.combine([later])

    async def inside(reward: ComposedReward) -> Scores:
        return reward(**ROWS)

    assert reward(**ROWS) == [1.0, 1.0]
    # In a thread of its own: a test of the page in the same process may have left a loop running in this one.
    with ThreadPoolExecutor(1) as apart:
        assert apart.submit(asyncio.run, inside(reward)).result() == [1.0, 1.0]
        with pytest.raises(ZeroDivisionError):
            apart.submit(asyncio.run, inside(rewards.combine([failing]))).result()


def test_nan_and_infinity_are_not_scored_and_said_once() -> None:
    reward = rewards.combine({"odd": says(math.nan, math.inf)})
    with pytest.warns(UserWarning, match="odd returned NaN or infinity for 2 of 2 rows"):
        assert reward(**ROWS) == [None, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reward(**ROWS) == [None, None]
    assert reward.infra == [False, False] and reward.told == {"odd": [None, None]}


def test_arrays_bools_and_numpy_numbers_are_scores() -> None:
    for scores in (np.array([1.0, 0.0]), [True, False], [np.float32(1.0), np.int64(0)], (1, 0)):
        assert rewards.combine({"a": lambda completions, s=scores, **_: s})(**ROWS) == [1.0, 0.0]


def test_what_a_model_wrote_into_an_error_does_not_act_in_the_terminal() -> None:
    def part(completions: list[str], **_: Any) -> list[float]:
        raise TimeoutError("\x1b[2J" + completions[0])

    with pytest.warns(UserWarning, match="TimeoutError") as told:
        rewards.combine([part])(**ROWS)
    assert "\x1b" not in str(told[0].message)


def test_on_infra_raise_stops() -> None:
    def down(completions: list[str], **_: Any) -> list[float]:
        raise ConnectionError("down")

    with (
        pytest.warns(UserWarning, match="down could not score"),
        pytest.raises(InfraError, match="combine: 2 of 2 rows could not be scored"),
    ):
        rewards.combine([down], on_infra="raise")(**ROWS)
    outer = rewards.clipped(rewards.combine({"down": down, "up": says(1.0, 2.0)}, on_infra="raise"), 0.0, 1.0)
    with pytest.warns(UserWarning, match=r"(combine|down) could not score 2 rows: (InfraError|ConnectionError)"):
        assert outer(**ROWS) == [None, None]
    assert outer.infra == [True, True] and outer.told == {"down": [None, None], "up": [None, None]}
    with pytest.raises(ValueError, match='must be "none" or "raise"'):
        rewards.combine([down], on_infra="zero")  # type: ignore[arg-type]


def test_a_reward_around_another_shows_what_that_is_made_of() -> None:
    reward = rewards.clipped(rewards.combine({"a": says(1.0, 2.0), "b": says(3.0, 4.0)}), 0.0, 5.0)
    assert reward(**ROWS) == [4.0, 5.0]
    assert reward.components == ("a", "b") and reward.told == {"a": [1.0, 2.0], "b": [3.0, 4.0]}


# -- process, judge, pareto --------------------------------------------------------------------------------------------


def by_length(prompts: Any, steps: list[list[str]], **_: Any) -> list[list[float] | None]:
    return [None if row == ["?"] else [len(step) / 10 for step in row] for row in steps]


@pytest.mark.parametrize(
    ("outcome", "expected"), [("min", 0.2), ("mean", 0.4), ("last", 0.4), ("product", 0.2 * 0.6 * 0.4)]
)
def test_the_outcome_of_steps(outcome: Any, expected: float) -> None:
    reward = rewards.process(by_length, outcome=outcome)
    told = reward(prompts=["p", "p"], completions=["ab\nabcdef\n\nabcd", "?"])
    assert told == pytest.approx([expected, None], nan_ok=True)
    assert reward.step_reward == [[0.2, 0.6, 0.4], []]
    assert reward.rule.first_bad_step() == [0, None] and reward.rule.first_bad_step(0.1) == [None, None]


@pytest.mark.parametrize("nothing", ["", "\n\n", " \n\t"])
def test_saying_nothing_is_no_way_to_go_unscored(nothing: str) -> None:
    reward = rewards.process(lambda prompts, steps, **_: [[-1.0 for step in row] for row in steps])
    assert reward(completions=[nothing, "bad"]) == [-1.0, -1.0]


def test_steps_may_be_sentences_and_a_scorer_must_answer_for_each() -> None:
    reward = rewards.process(by_length, split="sentences", outcome="last")
    assert reward(completions=["Add 1.5. So 3!"]) == [0.5]
    with pytest.raises(ValueError, match="gave 1 scores for 2 steps"):
        rewards.process(lambda prompts, steps, **_: [[1.0]])(completions=["a\nb"])
    with pytest.raises(ValueError, match="answered for 1 of 2 completions"):
        rewards.process(lambda prompts, steps, **_: [[1.0]])(completions=["a", "b"])


def test_a_step_scorer_that_is_down_leaves_no_steps_of_the_call_before() -> None:
    answers = iter([[[0.5]], TimeoutError("busy")])

    def scorer(prompts: Any, steps: list[list[str]], **_: Any) -> Any:
        told = next(answers)
        if isinstance(told, Exception):
            raise told
        return told

    reward = rewards.process(scorer)
    assert reward(completions=["a"]) == [0.5] and reward.step_reward == [[0.5]]
    with pytest.warns(UserWarning, match="TimeoutError: busy"):
        assert reward(completions=["a"]) == [None]
    assert reward.step_reward is None and reward.infra == [True] and reward.rule.first_bad_step() == []


class FakeJudge(Judge):
    """Answers without a server: an answer that names its own worth is believed, and one asks in vain."""

    def scores(self, texts: Any, within: float = 1.0, references: Any = ()) -> list[float | JudgeError]:
        return [JudgeError("busy") if said == "?" else float("4" in said) for _, said in texts]


def test_a_judge_that_gives_no_score_is_an_outage_and_no_bad_answer() -> None:
    reward = rewards.judge(FakeJudge("http://localhost:1/v1", "m", "right"), every=0)
    assert reward.bounds == (0.0, 1.0) and reward.__name__ == "judge"
    with pytest.warns(UserWarning, match="judge could not score 1 of 3 rows: JudgeError: busy"):
        assert reward(prompts=["2+2?"] * 3, completions=["4", "5", "?"]) == [1.0, 0.0, None]
    assert reward.infra == [False, False, True]


def test_a_judge_comes_with_its_canaries() -> None:
    judge = FakeJudge("http://localhost:1/v1", "m", "right", canaries=(JudgeCanary("it is 4", "high"),))
    reward = rewards.judge(judge)
    assert reward(prompts=["2+2?"] * 2, completions=["4", "5"]) == [1.0, 0.0]
    assert len(CANARIES) > 3 and isinstance(reward, rewards.Reward)


def test_the_front_of_a_sweep_by_hand() -> None:
    points = [[3.0, 1.0], [2.0, 2.0], [1.0, 3.0], [2.0, 1.0], [2.0, 2.0], [math.nan, 9.0]]
    found = rewards.pareto(points, reference=[0.0, 0.0])
    assert found.front == (0, 1, 4, 2) and found.dominated == {3: 0}
    assert found.hypervolume == 3.0 + 2.0 + 1.0 and found.knee is None  # the front is a straight line
    assert rewards.pareto([[3.0, 0.0], [2.9, 2.9], [0.0, 3.0]]).knee == 1
    assert rewards.pareto([[1.0, 2.0, 3.0], [1.0, 2.0, 2.0]]).dominated == {1: 0}


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)), max_size=12), st.integers(2, 3))
def test_the_front_is_what_no_point_dominates(points: list[tuple[int, ...]], width: int) -> None:
    table = np.array([point[:width] for point in points], float).reshape(len(points), width)
    beaten = {
        row: [o for o in range(len(table)) if (table[o] >= table[row]).all() and (table[o] > table[row]).any()]
        for row in range(len(table))
    }
    found = rewards.pareto(table, reference=[0.0] * width)
    assert set(found.front) == {row for row, by in beaten.items() if not by}
    assert set(found.dominated) == {row for row, by in beaten.items() if by}
    assert all(over in beaten[row] and over in found.front for row, over in found.dominated.items())
    if width == 2 and len(table):
        cells = {(x, y) for a, b in table for x in range(int(a)) for y in range(int(b))}
        assert found.hypervolume == len(cells)
