"""Preference for likely wording: recovered where it is known, and likelihoods of a real model, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tiltmeter.data.memo import shared_results
from tiltmeter.errors import AttachError
from tiltmeter_workbench.preferences.balanced_subset import balanced_subset
from tiltmeter_workbench.preferences.checks import typicality
from tiltmeter_workbench.preferences.finding import ALPHA
from tiltmeter_workbench.preferences.likelihood import ModelLikelihood, model_likelihood
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import sigmoid

SHARE = ALPHA / 6
Floats = NDArray[np.float64]


def made(
    seed: int, alpha: float, length: float = 0.5, quality: float = 0.0, count: int = 600, a_word: float = 0.0
) -> Comparisons:
    """Answers of some words, each word so and so likely; labels of known preference for likely ones, `a_word` nats
    given back for each word."""
    rng = np.random.default_rng(seed)

    def side() -> list[str]:
        sizes = rng.integers(5, 60, count).tolist()
        return [" ".join(f"w{word}" for word in rng.geometric(0.1, size)) for size in sizes]

    first, second = side(), side()
    gap = likely([], first) - likely([], second)
    gap += a_word * np.array([len(a.split()) - len(b.split()) for a, b in zip(first, second, strict=True)])
    longer = np.array([np.log2(len(a.split()) / len(b.split())) for a, b in zip(first, second, strict=True)])
    rated = rng.normal(size=(count, 2))
    logit = alpha * gap + length * longer + quality * (rated[:, 0] - rated[:, 1])
    votes = (rng.random(count) < sigmoid(logit))[:, None].astype(np.float64)
    return Comparisons([f"q{n}" for n in range(count)], first, second, votes, quality=rated if quality else None)


def likely(prompts: Sequence[str], answers: Sequence[str]) -> Floats:
    """The law that the words were drawn from."""
    return np.array([sum(np.log(0.1) + (int(word[1:]) - 1) * np.log(0.9) for word in text.split()) for text in answers])


@pytest.mark.parametrize("alpha", [0.1, 0.3, -0.15])
def test_a_known_preference_is_recovered(alpha: float) -> None:
    """Five seeds each, intervals at a sixth of 5 %: one miss in fifteen would already be much."""
    covered = 0
    for seed in range(5):
        finding = typicality.check(made(seed, alpha), alpha=SHARE, seed=0, likelihood=likely)
        assert finding.state == "found" and np.sign(finding.estimate) == np.sign(alpha)
        covered += finding.low <= alpha <= finding.high
    assert covered == 5


@pytest.mark.parametrize(("alpha", "length"), [(0.2, 0.0), (0.2, 1.0), (-0.2, 1.0)])
def test_a_balanced_subset_teaches_neither_likelihood_nor_length(alpha: float, length: float) -> None:
    pairs = made(11, alpha, length, count=4000, a_word=3.25)  # what a word costs on average: length does not show
    likelier = typicality.likelier_at_equal_length(pairs, likely)
    items, facts = balanced_subset(pairs, 0, likelier)
    assert abs(facts["before"]["likelier_chosen"] - 0.5) > 0.1 and facts["kept_share"] > 0.3
    assert facts["after"]["longer_chosen"] == 0.5 and abs(facts["after"]["likelier_chosen"] - 0.5) < 0.01
    kept = pairs.at(items)
    finding = typicality.check(kept, alpha=SHARE, seed=0, likelihood=likely)
    assert finding.low < 0.0 < finding.high and abs(finding.estimate) < 0.15 * abs(alpha)
    by_length = balanced_subset(pairs, 0)[0]
    assert typicality.check(pairs.at(by_length), alpha=SHARE, seed=0, likelihood=likely).state == "found"
    for low, high in ((0.0, 5.0), (5.0, 12.0), (12.0, 1e9)):  # at every difference, whichever answer is the longer
        won = np.where(pairs.winner[items] > 0.5, likelier[items], -likelier[items])
        part = won[(np.abs(won) > low) & (np.abs(won) <= high)]
        assert np.mean(part > 0) == pytest.approx(0.5, abs=0.05)


def test_comparisons_without_a_likelihood_are_evened_out_by_length() -> None:
    pairs = made(12, 0.0, 1.5, count=1000)

    def some(prompts: Sequence[str], answers: Sequence[str]) -> Floats:
        return np.where(np.arange(len(answers)) % 2 == 0, likely(prompts, answers), np.nan)

    likelier = typicality.likelier_at_equal_length(pairs, some)
    assert np.isnan(likelier[1::2]).all() and np.isfinite(likelier[::2]).all()
    items, facts = balanced_subset(pairs, 0, likelier)
    assert facts["after"]["longer_chosen"] == 0.5 and facts["after"]["likelihoods"] < len(items)


def test_a_model_is_asked_once_for_the_check_and_the_balance() -> None:
    pairs, calls = made(13, 0.2, count=100), []

    def counted(prompts: Sequence[str], answers: Sequence[str]) -> Floats:
        calls.append(len(answers))
        return likely(prompts, answers)

    with shared_results():
        typicality.check(pairs, alpha=SHARE, seed=0, likelihood=counted)
        typicality.likelier_at_equal_length(pairs, counted)
        again = typicality.check(pairs, alpha=SHARE, seed=0, likelihood=counted)
    assert calls == [200]
    assert again == typicality.check(pairs, alpha=SHARE, seed=0, likelihood=likely)


def test_length_alone_is_not_taken_for_typicality() -> None:
    """Short answers are likelier as sums go; a bias for length must not show as a taste for the unlikely."""
    states = [
        typicality.check(made(seed, 0.0, length=1.5), alpha=SHARE, seed=0, likelihood=likely).state
        for seed in range(12)
    ]
    assert states.count("found") <= 1


def test_quality_is_held_equal_and_equally_rated_answers_are_fitted_alone() -> None:
    pairs = made(3, 0.15, quality=1.5, count=1200)
    assert pairs.quality is not None
    finding = typicality.check(pairs, alpha=SHARE, seed=0, likelihood=likely)
    assert finding.low <= 0.15 <= finding.high
    assert finding.facts["raw"][0] < finding.estimate  # what is left out of a logistic fit shrinks the rest
    even = made(4, 0.15, count=1200)
    rated = np.tile([1.0, 1.0], (1200, 1))
    rated[:600, 0] = 2.0
    finding = typicality.check(replace(even, quality=rated), alpha=SHARE, seed=0, likelihood=likely)
    assert finding.facts["matched_comparisons"] == 600
    assert finding.facts["matched"][1] <= 0.15 <= finding.facts["matched"][2]


def test_the_sharpening_is_one_plus_alpha_over_beta() -> None:
    finding = typicality.check(made(5, 0.2), alpha=SHARE, seed=0, likelihood=likely)
    row = next(row for row in finding.rows if row["beta"] == 0.1)
    assert row["power"] == pytest.approx(1.0 + finding.estimate / 0.1, abs=1e-3)
    assert f"power {row['power']:.2f}" in finding.sentence


def test_without_a_likelihood_nothing_is_said_and_unknown_ones_are_counted() -> None:
    pairs = made(6, 0.3)
    assert typicality.check(pairs, alpha=SHARE, seed=0).state == "not asked"

    def some(prompts: Sequence[str], answers: Sequence[str]) -> Floats:
        values = likely(prompts, answers)
        values[:40] = np.nan
        return values

    finding = typicality.check(pairs, alpha=SHARE, seed=0, likelihood=some)
    assert finding.facts["without_likelihood"] == 40 and finding.facts["decided"] == 560
    with pytest.raises(AttachError, match="one each"):
        typicality.check(pairs, alpha=SHARE, seed=0, likelihood=lambda prompts, answers: np.zeros(3))


def test_a_models_likelihoods_are_sums_over_the_answers_tokens(tiny_model: Path, their_warnings: None) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    coder = AutoTokenizer.from_pretrained(tiny_model)
    prompts, answers = ["what is 1 plus 2", "two", "one"], ["the answer is 3", "3", "because one and two is three"]
    found = model_likelihood(tiny_model)(prompts, answers)
    for prompt, answer, value in zip(prompts, answers, found.tolist(), strict=True):
        before = coder(f"user: {prompt}\n", add_special_tokens=False)["input_ids"]
        after = coder(answer, add_special_tokens=False)["input_ids"]
        total = 0.0
        for place, token in enumerate(after):
            with torch.no_grad():
                last = model(torch.tensor([before + after[:place]])).logits[0, -1].double()
            total += float(last.log_softmax(-1)[token])
        assert value == pytest.approx(total, abs=1e-4)


def test_what_does_not_fit_is_cut_or_left_out_and_said(tiny_model: Path, their_warnings: None) -> None:
    likelihood = ModelLikelihood(tiny_model)
    values = likelihood(["one " * 200, "one", "one"], ["two", "two " * 200, "two"])
    assert np.isfinite(values).tolist() == [True, False, True]
    assert (likelihood.cut_prompts, likelihood.left_out, likelihood.formatting) == (1, 1, "chat template")


def test_a_folder_without_a_model_names_the_fix(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="save_pretrained"):
        model_likelihood(tmp_path)(["q"], ["a"])
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    pytest.importorskip("transformers")
    with pytest.raises(AttachError, match="could not be read"):
        model_likelihood(tmp_path)(["q"], ["a"])
