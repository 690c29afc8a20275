"""Rewards and guards as data: what is built, what it pays, and what every mistake is answered with."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.rewards.recipe_reward import STANDARD_GUARDS, add_guards, reward_from_recipe

FILE = """
from tiltmeter_workbench import rewards

def size(completions, **_):
    return [float(len(text)) for text in completions]

def right(completions, answer, **_):
    return [float(known in text) for text, known in zip(completions, answer)]

def polite(completions, **_):
    return [float("please" in text) for text in completions]

def down(completions, **_):
    raise ConnectionError("nobody answers")

checked = rewards.gate(right, size, otherwise=-1.0)
word = "no function"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pay.py").write_text(FILE, "utf-8")
    return tmp_path


def test_functions_are_found_beside_the_recipe_and_weighted(folder: Path) -> None:
    reward = reward_from_recipe(
        [{"function": "pay.py:size", "weight": 0.5}, {"function": "pay.py:right", "name": "answer"}], folder=folder
    )
    assert reward(completions=["four", "4"], answer=["4", "4"]) == [2.0, 1.5]
    assert reward.components == ("size", "answer")
    assert reward.told["size"] == [4.0, 1.0]


def test_a_reward_that_is_made_already_may_be_named_like_a_function(folder: Path) -> None:
    reward = reward_from_recipe([{"function": "pay.py:checked"}], folder=folder)
    assert reward(completions=["it is 4", "no"], answer=["4", "4"]) == [7.0, -1.0]


def test_an_absolute_path_stays_what_it_is(folder: Path) -> None:
    reward = reward_from_recipe([{"function": f"{folder / 'pay.py'}:size"}], folder="/nowhere")
    assert reward(completions=["four"]) == [4.0]


def test_the_standard_guards_debias_length_and_add_both_penalties(folder: Path) -> None:
    reward = reward_from_recipe([{"function": "pay.py:size"}], "standard", limit=10, folder=folder)
    assert reward.components == ("reward", "repetition", "overlong") and len(STANDARD_GUARDS) == 3
    texts = ["a", "aaa", "aaaaa", "aaaaaaa"] * 8
    given = {"prompts": ["q"] * 32, "completions": texts, "completion_ids": [[1] * len(text) for text in texts]}
    assert reward(**given)[:4] == [1.0, 3.0, 5.0, 7.0]  # nothing is known of length yet
    assert reward(**given)[:4] == pytest.approx([4.0] * 4)  # all that length bought is taken out
    cut = {"prompts": ["q"], "completions": ["b"], "completion_ids": [[1] * 10]}
    reward(**cut)
    assert reward.told["overlong"] == [-1.0], "the limit of the trainer is the limit of the penalty"


def test_guards_stand_around_the_reward_in_the_order_in_which_they_are_named(folder: Path) -> None:
    clip, shape = {"clipped": {"low": 0.0, "high": 1.0}}, {"shaped": {"reference": 4.0}}
    source = [{"function": "pay.py:size"}]
    inner = reward_from_recipe(source, [shape, clip], folder=folder)
    outer = reward_from_recipe(source, [clip, shape], folder=folder)
    assert inner(completions=["four"]) == [0.5]
    assert outer(completions=["four"])[0] == pytest.approx(0.04743, abs=1e-4)  # sigmoid(1 - 4)


def test_a_penalty_has_a_weight_and_settings(folder: Path) -> None:
    reward = reward_from_recipe(
        [{"function": "pay.py:size"}], [{"repetition": {"order": 1, "weight": 10.0}}], folder=folder
    )
    assert reward(completions=["no no"]) == [0.0]
    assert reward.told["repetition"] == [-0.5]


def test_a_gate_pays_only_where_the_check_passes(folder: Path) -> None:
    guards = [{"gate": {"check": "pay.py:right", "otherwise": -2.0}}]
    reward = reward_from_recipe([{"function": "pay.py:size"}], guards, folder=folder)
    assert reward(completions=["it is 4", "no"], answer=["4", "4"]) == [7.0, -2.0]


def test_floors_move_their_multipliers_and_are_saved_with_the_rest(folder: Path) -> None:
    floors = [{"function": "pay.py:polite", "floor": 0.75}]
    guards: list[Any] = [{"constrained": {"floors": floors, "rate": 2.0}}, "repetition"]
    reward = reward_from_recipe([{"function": "pay.py:size"}], guards, folder=folder)
    assert reward(completions=["ab", "please"]) == [2.0, 6.0]
    again = reward_from_recipe([{"function": "pay.py:size"}], guards, folder=folder)
    reward.save(folder / "reward.json")  # type: ignore[attr-defined]
    again.load(folder / "reward.json")  # type: ignore[attr-defined]
    told = reward(completions=["ab", "please"])
    assert told != [2.0, 6.0] and again(completions=["ab", "please"]) == told


def test_a_part_that_broke_is_none_and_never_zero(folder: Path) -> None:
    reward = reward_from_recipe(
        [{"function": "pay.py:size"}, {"function": "pay.py:down"}], "standard", limit=8, folder=folder
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        told = reward(prompts=["q"], completions=["four"], completion_ids=[[1, 2]])
    assert any("nobody answers" in str(warning.message) for warning in said)
    assert told == [None] and reward.infra == [True]


def test_no_guards_leave_the_reward_itself() -> None:
    def long(completions: Sequence[str], **_: Any) -> list[float]:
        return [float(len(text)) for text in completions]

    plain = add_guards(long, ())
    assert plain(completions=["four"]) == [4.0] and plain.__name__ == "reward"


SIZE = {"function": "pay.py:size"}
WRONG: dict[str, tuple[Any, Any, str]] = {
    "nothing": ([], (), "name at least one"),
    "no list": ({"function": "pay.py:size"}, (), "name at least one"),
    "a word": (["pay.py:size"], (), "each is a source"),
    "a stranger": ([{**SIZE, "wieght": 1}], (), "wieght means nothing here"),
    "no source": ([{"name": "size"}], (), "number 1 needs exactly one of function, judge, model"),
    "two sources": ([{**SIZE, "model": "x"}], (), "exactly one of"),
    "two names": ([SIZE, SIZE], (), "two are called 'size'"),
    "a weight": ([{**SIZE, "weight": "high"}], (), "the weight of size is a number, not 'high'"),
    "a weight that is yes": ([{**SIZE, "weight": True}], (), "is a number, not True"),
    "an infinite weight": ([{**SIZE, "weight": float("inf")}], (), "is a number, not inf"),
    "settings of a function": ([{**SIZE, "settings": {"low": 1}}], (), "a function takes no settings here"),
    "settings that are none": ([{**SIZE, "settings": 3}], (), "its settings are names with values"),
    "no such file": ([{"function": "gone.py:size"}], (), "there is no file"),
    "no such function": ([{"function": "pay.py:gone"}], (), "defines no gone"),
    "no function": ([{"function": "pay.py:word"}], (), "is a str, not a function"),
    "no name of one": ([{"function": "size"}], (), "does not name a function"),
    "a judge that is gone": ([{"judge": "gone.toml"}], (), "cannot be read"),
    "a model that is gone": ([{"model": "gone"}], (), "is no folder"),
    "a model that is a number": ([{"model": 3}], (), "name a folder, or a list of folders"),
    "no models": ([{"model": []}], (), "name a folder, or a list of folders"),
    "an unknown setting of a model": ([{"model": "gone", "settings": {"bach": 3}}], (), "bach"),
    "another set": ([SIZE], "strict", 'write "standard" or a list'),
    "a mapping of guards": ([SIZE], {"clipped": {"low": 0, "high": 1}}, 'write "standard" or a list'),
    "a number for guards": ([SIZE], 3, 'write "standard" or a list'),
    "a guard that is a number": ([SIZE], [3], "each is a name, or one name with its settings"),
    "two guards in one": ([SIZE], [{"gate": {}, "clipped": {}}], "each is a name, or one name"),
    "an unknown guard": ([SIZE], ["lenght"], "there is no 'lenght'; there are clipped, constrained, gate"),
    "a guard twice": ([SIZE], ["repetition", {"repetition": {"order": 2}}], "repetition stands there twice"),
    "settings of a guard": ([SIZE], [{"clipped": 3}], "clipped: its settings are names with values"),
    "an unknown setting": ([SIZE], [{"clipped": {"low": 0, "high": 1, "tall": 2}}], "clipped: .*tall"),
    "a setting that is missing": ([SIZE], ["clipped"], "clipped: .*low"),
    "limits the wrong way": ([SIZE], [{"clipped": {"low": 1, "high": 0}}], "low must lie below high"),
    "a penalty's weight": ([SIZE], [{"repetition": {"weight": "much"}}], "repetition: its weight is a number"),
    "no limit": ([SIZE], ["overlong"], "say the limit in tokens"),
    "a limit that is a word": ([SIZE], [{"overlong": {"limit": "long"}}], "overlong: "),
    "no check": ([SIZE], ["gate"], "name the check that must pass"),
    "no reference": ([SIZE], ["shaped"], "name the reference"),
    "no floors": ([SIZE], ["constrained"], "name what must hold"),
    "a floor without a number": ([SIZE], [{"constrained": {"floors": [SIZE]}}], "the floor of size is a number"),
    "a floor with a weight": ([SIZE], [{"constrained": {"floors": [{**SIZE, "weight": 1}]}}], "weight means nothing"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_every_mistake_is_answered_with_the_fix(what: str, folder: Path) -> None:
    rewards, guards, said = WRONG[what]
    with pytest.raises(AttachError, match=said):
        reward_from_recipe(rewards, guards, folder=folder)


def test_one_model_is_no_ensemble(folder: Path) -> None:
    (folder / "rm").mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / "rm" / name).write_text("{}", "utf-8")
    settings: Mapping[str, Any] = {"rule": "min"}
    with pytest.raises(AttachError, match="rule: one model is no ensemble"):
        reward_from_recipe([{"model": "rm", "settings": settings}], folder=folder)
    with pytest.raises(AttachError, match=r"model: .*best"):
        reward_from_recipe([{"model": ["rm", "rm"], "settings": {"rule": "best"}}], folder=folder)
    assert reward_from_recipe([{"model": ["rm", "rm"], "name": "two"}], folder=folder).components == (
        "ensemble.0",
        "ensemble.1",
    )
