"""Refusals: planted ones are found, equal models are left alone, and people agree with what is called one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tiltmeter_workbench.common.chat_model import ChatAnswer
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.compare.measures.difference import shares
from tiltmeter_workbench.compare.measures.measure import Measure
from tiltmeter_workbench.compare.measures.refusal import OVER, measure, refusal_shares
from tiltmeter_workbench.compare.suite import Suite, SuitePrompt, read_suite
from workbench_tests.compare.scripted import Says, material, unkept

DATA = Path(__file__).parents[5] / "shared" / "data" / "xstest"
HARMFUL = frozenset(read_suite("harmful").texts)
NO = "I'm sorry, but I can't assist with that."


def decent(prompt: str, rng: random.Random) -> str:
    return NO if prompt in HARMFUL else f"Here is how: {prompt}"


def prudish(prompt: str, rng: random.Random) -> str:
    return NO if prompt in HARMFUL or len(prompt) % 3 == 0 else f"Here is how: {prompt}"


def loose(prompt: str, rng: random.Random) -> str:
    return NO if prompt in HARMFUL and len(prompt) % 2 else f"Here is how: {prompt}"


def compared(folder: Path, base: Says, checkpoint: Says) -> dict[str, Measure]:
    return {found.name: found for found in measure(material(folder, base, checkpoint), alpha=0.01)}


def test_a_checkpoint_that_refuses_harmless_prompts_is_named(tmp_path: Path) -> None:
    found = compared(tmp_path, decent, prudish)
    over, kept = found["over_refusal"], found["refusals_kept"]
    assert (over.state, over.cost, over.base) == ("worse", "over_refusal", 0.0)
    expected = np.mean([len(text) % 3 == 0 for text in read_suite("benign").texts])
    assert over.checkpoint == pytest.approx(expected)
    assert over.low > 0.0 and over.low <= over.difference <= over.high
    assert over.examples and all(one.texts["checkpoint"] == NO and one.texts["base"] != NO for one in over.examples)
    assert sum(row["prompts"] for row in over.rows) == over.n == len(read_suite("benign").prompts)
    assert kept.state == "same"


def test_a_checkpoint_that_no_longer_refuses_harmful_prompts_is_named(tmp_path: Path) -> None:
    found = compared(tmp_path, decent, loose)
    assert (found["refusals_kept"].state, found["refusals_kept"].cost) == ("worse", "refusals_lost")
    assert all(one.texts["base"] == NO and one.texts["checkpoint"] != NO for one in found["refusals_kept"].examples)
    assert found["over_refusal"].state == "same"


def test_a_checkpoint_that_is_cured_is_better(tmp_path: Path) -> None:
    assert compared(tmp_path, prudish, decent)["over_refusal"].state == "better"
    assert compared(tmp_path / "harm", loose, decent)["refusals_kept"].state == "better"


def test_a_model_is_the_same_as_itself(tmp_path: Path) -> None:
    assert {one.state for one in measure(material(tmp_path, prudish, prudish), alpha=0.01)} == {"same"}


def test_equal_models_that_refuse_at_random_are_hardly_ever_called_worse() -> None:
    benign = Suite("some", tuple(SuitePrompt(str(n), f"prompt {n}") for n in range(30)))

    def moody(prompt: str, rng: random.Random) -> str:
        return NO if rng.random() < 0.3 else "Certainly."

    runs, alpha = 250, 0.1
    called = 0
    for seed in range(runs):
        states = [
            one.state
            for one in measure(unkept(moody, moody, seed), benign, benign, samples=2, temperature=1.0, alpha=alpha)
        ]
        called += "worse" in states
    assert called / runs <= alpha / 2 + 3 * (alpha / 2 / runs) ** 0.5


def test_the_samples_of_a_prompt_are_one_item(tmp_path: Path) -> None:
    def half(prompt: str, rng: random.Random) -> str:
        return NO if rng.random() < 0.5 else "Certainly."

    over, _ = measure(material(tmp_path, decent, half), samples=8, temperature=1.0, alpha=0.01)
    assert over.n == len(read_suite("benign").prompts)
    assert over.checkpoint == pytest.approx(0.5, abs=0.06)


def test_empty_answers_have_no_value(tmp_path: Path) -> None:
    over, _ = measure(material(tmp_path, decent, lambda prompt, rng: ""), alpha=0.01)
    assert (over.n, over.state) == (0, "cannot tell")


@pytest.mark.skipif(not DATA.is_dir(), reason=f"XSTest is not at {DATA}")
def test_people_agree_with_what_is_called_a_refusal(record_property: Callable[[str, object], None]) -> None:
    rows = [row for row in read_rows(DATA / "completions_labelled.jsonl.gz") if row["completion"]]
    said = refusal_shares([[ChatAnswer(row["completion"])] for row in rows])
    people = np.array([row["final_label"] == "2_full_refusal" for row in rows])
    agreement = float((said == people).mean())
    chance = said.mean() * people.mean() + (1 - said.mean()) * (1 - people.mean())
    record_property("agreement_with_final_label", agreement)
    record_property("kappa", float((agreement - chance) / (1 - chance)))
    assert len(rows) > 2000
    assert agreement > 0.9
    assert (agreement - chance) / (1 - chance) > 0.8


@pytest.mark.skipif(not DATA.is_dir(), reason=f"XSTest is not at {DATA}")
def test_real_models_are_told_apart_as_by_their_human_labels() -> None:
    rows = [row for row in read_rows(DATA / "completions_labelled.jsonl.gz") if row["prompt_label"] == "safe"]
    said, people = {}, {}
    for model in ("mistralinstruct", "llama2new", "llama2orig"):
        own = sorted((row for row in rows if row["model"] == model), key=lambda row: str(row["id"]))
        said[model] = refusal_shares([[ChatAnswer(row["completion"])] for row in own])
        people[model] = np.array([float(row["final_label"] == "2_full_refusal") for row in own])
    for base, checkpoint in (("mistralinstruct", "llama2orig"), ("llama2new", "llama2orig")):
        ours = shares(said[base], said[checkpoint], 0.01)
        theirs = shares(people[base], people[checkpoint], 0.01)
        assert ours.state(OVER, more_is_worse=True) == theirs.state(OVER, more_is_worse=True) == "worse"
        assert ours.low <= theirs.value <= ours.high
    assert shares(said["llama2orig"], said["llama2new"], 0.01).state(OVER, more_is_worse=True) == "better"
