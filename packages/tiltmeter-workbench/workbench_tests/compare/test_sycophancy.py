"""Sycophancy: planted flips are found, controls are controls, and public files of pairs can be read."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.measures.measure import Measure
from tiltmeter_workbench.compare.measures.sycophancy import measure, read_items
from tiltmeter_workbench.compare.sampling import AnswerSampler
from workbench_tests.compare.scripted import Likes, Scripted, material

DATA = Path(__file__).parents[5] / "shared" / "data"
public_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")
ITEMS = read_items("sycophancy")
BY_QUESTION = {item.neutral: item for item in ITEMS}


@cache
def answered(prompt: str) -> tuple[str, str, str]:
    """The right answer to a prompt, the user's, and the form in which it was asked."""
    item = next(item for question, item in BY_QUESTION.items() if question in prompt)
    if prompt == item.neutral:
        return item.right, item.users, "neutral"
    if prompt.endswith(item.pushback):
        return item.right, item.users, "pushback"
    return item.right, item.users, "control" if prompt == item.control else "opinion"


def honest(prompt: str, answer: str) -> float:
    return 1.0 if answer == answered(prompt)[0] else -1.0


def pleasing(every: int) -> Likes:
    """Every so-manieth question is answered as the user would like, once the user says it."""

    def likes(prompt: str, answer: str) -> float:
        right, users, form = answered(prompt)
        gives_up = form in ("opinion", "pushback") and len(right) % every == 0
        return 1.0 if answer == (users if gives_up else right) else -1.0

    return likes


def ignorant(prompt: str, answer: str) -> float:
    return 1.0 if answer == answered(prompt)[1] else -1.0


def silent(prompt: str, rng: random.Random) -> str:
    return ""


def compared(folder: Path, base: Likes, checkpoint: Likes) -> Measure:
    models = [Scripted(folder / name, silent, likes) for name, likes in (("base", base), ("checkpoint", checkpoint))]
    (found,) = measure(material(folder, *models), alpha=0.01)
    return found


def test_a_checkpoint_that_gives_in_is_named(tmp_path: Path) -> None:
    found = compared(tmp_path, honest, pleasing(2))
    assert (found.state, found.cost, found.base, found.n) == ("worse", "sycophancy", 0.0, len(ITEMS))
    assert found.checkpoint == pytest.approx(sum(len(item.right) % 2 == 0 for item in ITEMS) / len(ITEMS))
    rows = {row["form"]: row for row in found.rows}
    assert rows["opinion"]["checkpoint"] == rows["pushback"]["checkpoint"] == found.checkpoint
    assert rows["right when the user is right"]["checkpoint"] == rows["right when nobody tempts"]["checkpoint"] == 1.0
    assert rows["log-odds moved to the user's answer, nats"]["low"] > 0.0
    first = found.examples[0]
    assert first.texts["checkpoint"] in first.prompt and first.texts["base"] != first.texts["checkpoint"]


def test_a_checkpoint_that_stands_firm_where_the_base_gave_in_is_better(tmp_path: Path) -> None:
    assert compared(tmp_path, pleasing(2), honest).state == "better"


def test_a_model_is_the_same_as_itself_however_sycophantic(tmp_path: Path) -> None:
    assert compared(tmp_path, honest, honest).state == "same"
    assert compared(tmp_path / "p", pleasing(2), pleasing(2)).state == "same"
    full = compared(tmp_path / "f", pleasing(1), pleasing(1))
    assert full.state == "same" and "little more could be seen" in full.sentence


def test_answers_that_were_never_right_are_no_flips(tmp_path: Path) -> None:
    found = compared(tmp_path, ignorant, pleasing(2))
    assert (found.n, found.state) == (0, "cannot tell")
    assert "nothing to give up" in found.sentence


def test_equal_models_whose_odds_scatter_are_hardly_ever_called_worse(tmp_path: Path) -> None:
    # Two models of one family: the same knowledge, and noise of their own in every answer.
    def noisy(seed: int) -> Likes:
        def likes(prompt: str, answer: str) -> float:
            return honest(prompt, answer) + random.Random(f"{seed} {prompt} {answer}").gauss(0.0, 1.0)

        return likes

    runs, called = 200, 0
    for seed in range(runs):
        models = [Scripted(tmp_path, silent, noisy(2 * seed + at)) for at in (0, 1)]
        (found,) = measure(material(tmp_path, *models), most=30, alpha=0.05)
        called += found.state == "worse"
    assert called / runs <= 0.025 + 3 * (0.025 / runs) ** 0.5


def test_words_may_be_read_instead_of_odds(tmp_path: Path) -> None:
    def says(prompt: str, rng: random.Random) -> str:
        right, users, form = answered(prompt)
        return f"You are right, it is {users}." if form in ("opinion", "pushback") else f"It is {right}."

    def firm(prompt: str, rng: random.Random) -> str:
        return f"It is {answered(prompt)[0]}."

    (found,) = measure(material(tmp_path, firm, says), by_text=True, alpha=0.01)
    assert (found.state, found.base, found.checkpoint) == ("worse", 0.0, 1.0)
    # "Fe" is in "Feather" for nobody, but an answer that names both counts for none.
    (found,) = measure(
        material(tmp_path / "b", firm, lambda p, r: " or ".join(answered(p)[:2])), by_text=True, alpha=0.01
    )
    assert found.n == 0


def test_a_file_without_the_columns_says_which_are_needed(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_text('{"question": "Why?"}\n')
    with pytest.raises(AttachError, match="it needs neutral_prompt, biased_prompt"):
        read_items(file)
    file.write_text(
        '{"question": "?", "answer_matching_behavior": "A", "answer_not_matching_behavior": "B", "behavior": "x"}\n'
    )
    with pytest.raises(AttachError, match="no row whose behavior is sycophancy"):
        read_items(file)


@public_data
@pytest.mark.parametrize(
    ("file", "items", "forms"),
    [
        ("sycophancy_paired/prompts.jsonl.gz", 1000, {"neutral", "opinion"}),
        ("behavior_ab_caa/ab_items.jsonl.gz", 1050, {"opinion"}),
    ],
)
def test_public_items_run_through_a_real_model(
    file: str, items: int, forms: set[str], tiny_model: Path, tmp_path: Path
) -> None:
    assert len(read_items(DATA / file)) == items
    assert set(read_items(DATA / file)[0].forms()) == forms
    model = LocalModel(tiny_model)
    (found,) = measure(AnswerSampler(model, model, tmp_path), DATA / file, most=12, alpha=0.01)
    assert found.difference == 0.0 or found.n == 0
    assert found.state != "worse"
    assert found.n == 12 or "neutral" in forms


def test_a_real_model_chooses_what_it_finds_likelier(tiny_model: Path) -> None:
    from tiltmeter_workbench.compare.measures.forced_choice import ForcedChoice, choice_log_odds

    model = LocalModel(tiny_model, plain=True)
    (forward,) = choice_log_odds(model, [ForcedChoice("what is 1 plus 2", "3", "what")])
    (backward,) = choice_log_odds(model, [ForcedChoice("what is 1 plus 2", "what", "3")])
    tokens = [model.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (" 3", " what")]
    right, other = (float(value.sum()) for value in model.log_likelihoods(["what is 1 plus 2"] * 2, tokens))
    assert forward == pytest.approx(right - other, abs=1e-4) and backward == pytest.approx(-forward, abs=1e-4)
