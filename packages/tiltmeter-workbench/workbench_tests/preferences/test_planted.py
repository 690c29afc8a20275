"""Biases of known size are found and measured; labels drawn by lot, and labels of quality alone, show none."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks import form, length, phrases, position, shallow
from tiltmeter_workbench.preferences.checks.decided_pairs import LOG_ODDS, DecidedPairs
from tiltmeter_workbench.preferences.finding import ALPHA
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import sigmoid

SHARE = ALPHA / 6
CHECKS = (length, position, phrases, form, shallow)
WORDS = [f"{a}{b}{c}" for a in ("ba", "di", "ko", "lu", "me") for b in ("na", "ri", "so", "tu") for c in "bdgklmnprst"]
Floats = NDArray[np.float64]


def answers(rng: np.random.Generator, count: int) -> list[str]:
    """Texts of very different lengths; some words are common, most are not."""
    chance = 1.0 / np.arange(1, len(WORDS) + 1)
    sizes = (rng.lognormal(3.3, 0.6, count) + 3).astype(int)
    return [" ".join(rng.choice(WORDS, size, p=chance / chance.sum())) for size in sizes.tolist()]


def drawn(seed: int, count: int = 500, prompts: int | None = None) -> Comparisons:
    """Labels by lot."""
    rng = np.random.default_rng(seed)
    asked = [f"question {n % (prompts or count)}" for n in range(count)]
    votes = rng.integers(0, 2, (count, 1)).astype(np.float64)
    return Comparisons(asked, answers(rng, count), answers(rng, count), votes, order_known=True)


def labelled(pairs: Comparisons, logit: Floats, seed: int) -> Comparisons:
    won = np.random.default_rng([seed, 1]).random(len(pairs)) < sigmoid(logit)
    return replace(pairs, votes=won[:, None].astype(np.float64))


def doublings(pairs: Comparisons) -> Floats:
    return DecidedPairs.of(replace(pairs, votes=np.ones((len(pairs), 1)))).doublings


def written(pairs: Comparisons, text: str, seed: int, share: float = 0.3) -> tuple[Comparisons, Floats]:
    """The text put at the end of some answers; first minus second."""
    has = np.random.default_rng([seed, 2]).random((2, len(pairs))) < share
    first, second = (
        [f"{answer} {text}" if here else answer for answer, here in zip(side, row.tolist(), strict=True)]
        for side, row in zip((pairs.first, pairs.second), has, strict=True)
    )
    return replace(pairs, first=first, second=second), has[0] * 1.0 - has[1] * 1.0


def plain(finding: Check) -> None:
    """What every screen relies on."""
    json.dumps([dict(finding.facts), [dict(row) for row in finding.rows]], allow_nan=False)
    assert finding.sentence.endswith(".") and finding.unit
    if finding.state == "found":
        assert finding.fix and finding.low <= finding.estimate <= finding.high


def test_labels_by_lot_show_no_bias() -> None:
    """20 files with all checks each: one false find is to be expected at most."""
    false = []
    for seed in range(20):
        pairs = drawn(seed, 300)
        findings = [check.check(pairs, alpha=SHARE, seed=seed) for check in CHECKS]
        for finding in findings:
            plain(finding)
        false += [finding.name for finding in findings if finding.state == "found"]
    assert len(false) <= 3, false


def test_copies_of_a_prompt_are_not_taken_for_evidence() -> None:
    """Each comparison stands there ten times with its label by lot: 40 prompts are what there is to go by."""
    false = []
    for seed in range(20):
        once = drawn(seed, 40)
        many = once.at(np.tile(np.arange(40), 10))
        false += [check.__name__ for check in CHECKS if check.check(many, alpha=SHARE, seed=0).state == "found"]
    assert len(false) <= 2, false


@pytest.mark.parametrize("seed", range(4))
def test_a_length_bias_is_found_and_measured(seed: int) -> None:
    pairs = drawn(seed)
    finding = length.check(labelled(pairs, 0.9 * doublings(pairs), seed), alpha=SHARE, seed=0)
    plain(finding)
    assert finding.state == "found"
    assert finding.low <= 0.9 <= finding.high and finding.low > 0.3
    assert finding.facts["longer_preferred"][1] > 0.5
    best = finding.examples[0]
    assert len(best.texts["chosen"].split()) > 2 * len(best.texts["rejected"].split())


def test_a_bias_for_short_answers_has_the_other_sign() -> None:
    pairs = drawn(5)
    finding = length.check(labelled(pairs, -0.9 * doublings(pairs), 5), alpha=SHARE, seed=0)
    assert finding.state == "found" and finding.high < 0.0
    assert "shorter" in finding.fix


def test_length_that_only_goes_with_quality_is_cleared_by_ratings() -> None:
    """Better answers are longer here and win for being better; without ratings that looks like a length bias."""
    pairs = drawn(6, 1500)
    rng = np.random.default_rng(6)
    better = doublings(pairs) + rng.normal(size=1500)
    labels = labelled(pairs, 1.2 * better, 6)
    blind = length.check(labels, alpha=SHARE, seed=0)
    rated = length.check(replace(labels, quality=np.column_stack((better, np.zeros(1500)))), alpha=SHARE, seed=0)
    assert blind.state == "found" and "cannot be told apart" in blind.sentence
    assert rated.state != "found" and rated.low < 0.0 < rated.high
    assert rated.facts["raw"] == blind.facts["raw"]


def test_a_bias_too_small_to_matter_is_clear_with_enough_labels() -> None:
    pairs = drawn(7, 4000)
    finding = length.check(labelled(pairs, 0.05 * doublings(pairs), 7), alpha=SHARE, seed=0)
    assert finding.state == "clear" and finding.facts["matters"] == round(LOG_ODDS, 4)


def test_chosen_and_rejected_say_the_same_as_first_and_second() -> None:
    """A file that puts the winner first must not make a bias, nor change one."""
    pairs = replace(drawn(8), order_known=False)
    pairs, has = written(pairs, "all in all", 8)
    labels = labelled(pairs, 0.8 * doublings(pairs) + 1.0 * has, 8)
    won = labels.winner == 1.0
    first = [one if up else other for one, other, up in zip(pairs.first, pairs.second, won, strict=True)]
    second = [other if up else one for one, other, up in zip(pairs.first, pairs.second, won, strict=True)]
    sorted_ = replace(labels, first=first, second=second, votes=np.ones((len(pairs), 1)))
    for check in (length, phrases, form):
        one, other = (check.check(each, alpha=SHARE, seed=0) for each in (labels, sorted_))
        assert one.state == other.state
        assert one.estimate == pytest.approx(other.estimate, nan_ok=True, rel=1e-6)
    assert position.check(sorted_, alpha=SHARE, seed=0).state == "cannot tell"


@pytest.mark.parametrize("seed", range(3))
def test_a_phrase_that_wins_is_named_and_measured(seed: int) -> None:
    pairs, has = written(drawn(seed + 10), "To put it another way.", seed)
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(len(pairs), 2))
    labels = labelled(pairs, 1.4 * has + quality[:, 0] - quality[:, 1], seed)
    finding = phrases.check(replace(labels, quality=quality), alpha=SHARE, seed=0)
    plain(finding)
    assert finding.state == "found"
    assert finding.rows[0]["phrase"] == "to put it another way"
    assert finding.low <= 1.4 <= finding.high
    assert len(finding.rows) == 1  # its parts are not named beside it
    best = finding.examples[0]
    assert "another way" in best.texts["chosen"] and "another way" not in best.texts["rejected"]


def test_a_phrase_that_loses_is_named_too() -> None:
    pairs, has = written(drawn(13), "As an aside, so be it.", 13)
    finding = phrases.check(labelled(pairs, -1.6 * has, 13), alpha=SHARE, seed=0)
    assert finding.state == "found" and finding.high < 0.0
    assert "loses" in finding.sentence and "aside" in finding.examples[0].texts["rejected"]


def test_words_of_long_answers_are_not_phrases_that_win() -> None:
    """Long answers win and contain more of everything: at equal length no word does."""
    named = []
    for seed in range(6):
        pairs = drawn(seed + 20)
        labels = labelled(pairs, 1.5 * doublings(pairs), seed)
        named += [phrases.check(labels, alpha=SHARE, seed=0).state, form.check(labels, alpha=SHARE, seed=0).state]
    assert named.count("found") <= 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("\n- one\n- two", "list items"),
        ("**so it is**", "bold"),
        ("I hope this helps", "closing offer"),
        ("😀", "emoji"),
    ],
)
def test_a_form_that_wins_is_named(text: str, name: str) -> None:
    pairs, has = written(drawn(30), text, 30)
    finding = form.check(labelled(pairs, 1.3 * has, 30), alpha=SHARE, seed=0)
    plain(finding)
    assert finding.state == "found" and name in finding.facts["found"]
    row = next(row for row in finding.rows if row["form"] == name)
    assert row["low"] <= 1.3 <= row["high"]
    assert len(finding.rows) == len(form.FORMS)


def test_forms_are_counted_as_they_look() -> None:
    said = (
        "# Plan\n\n| a | b |\n\n```py\nx\n```\nSee [this](http://a.example). Certainly 42!",
        "I'm sorry, but I can't assist with that. As an AI, perhaps not?",
    )
    table = form.count_forms(said)
    has = [{form.FORMS[column] for column in np.flatnonzero(row)} for row in table]
    assert has[0] == {"headings", "tables", "code fences", "links", "paragraphs", "exclamation marks", "numbers"}
    assert has[1] >= {"apologies", "refusal", "first person", "speaks as a model", "hedges", "question at the end"}
    assert "eager opening" not in has[0]  # it does not stand first


def test_shallow_labels_are_predicted_and_the_others_are_named() -> None:
    """Nine in ten labels go to the longer answer."""
    pairs = drawn(40, 600)
    longer = doublings(pairs) > 0
    odd = np.random.default_rng(40).random(600) < 0.1
    labels = replace(pairs, votes=(longer ^ odd)[:, None].astype(np.float64))
    finding = shallow.check(labels, alpha=SHARE, seed=0)
    plain(finding)
    assert finding.state == "found" and finding.low > 0.55
    assert finding.low <= 0.9 <= finding.high
    assert finding.facts["carried_by"] == ["length"]
    named = np.array(finding.facts["valuable_rows"]) - 1
    assert odd[named].mean() > 0.9
    alone = {row["feature"]: row["predicted"] for row in finding.rows if row["kind"] == "alone"}
    assert alone["length"] > 0.85 and alone["form"] < 0.6


def test_labels_of_quality_alone_are_not_predicted_by_looks() -> None:
    pairs = drawn(41, 1200)
    finding = shallow.check(labelled(pairs, np.random.default_rng(41).normal(size=1200) * 3.0, 41), alpha=SHARE, seed=0)
    assert finding.state == "clear" and finding.high < 0.57


def test_ties_and_missing_votes_are_left_out_and_counted() -> None:
    pairs = drawn(42, 200)
    votes = pairs.votes.copy()
    votes[:30], votes[30:50] = 0.5, np.nan
    for check in CHECKS:
        facts = check.check(replace(pairs, votes=votes), alpha=SHARE, seed=0).facts
        assert (facts["decided"], facts["ties_left_out"], facts["without_votes"]) == (150, 30, 20)


def test_a_few_comparisons_are_too_few_for_any_check() -> None:
    for count in (0, 1, 29):
        for check in CHECKS:
            assert check.check(drawn(43, count), alpha=SHARE, seed=0).state == "cannot tell"


def test_strange_texts_do_no_harm() -> None:
    """Empty answers, lone surrogates, one text for all: no number is better than a wrong one, and nothing raises."""
    for text in ("", "\ud800 \x00", "好 " * 50, "a"):
        same = Comparisons([f"q{n}" for n in range(60)], [text] * 60, [text] * 60, np.ones((60, 1)))
        for check in (length, phrases, form, shallow):
            finding = check.check(same, alpha=SHARE, seed=0)
            assert finding.state != "found" and not math.isinf(finding.estimate)


def test_phrases_are_the_same_however_the_texts_are_cut_into_pieces_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, has = written(drawn(50, 300), "To put it another way.", 50)
    labels = labelled(pairs, 1.5 * has, 50)
    whole = phrases.check(labels, alpha=SHARE, seed=0)
    phrases._phrases.cache_clear()
    monkeypatch.setattr(phrases, "_CHUNK", 37)
    assert phrases.check(labels, alpha=SHARE, seed=0) == whole
    assert whole.state == "found"


def test_one_prompt_with_most_of_the_comparisons_does_not_speak_for_all() -> None:
    """Labels by the worth of 20 answers to one prompt, which has nothing to do with their texts: 190 comparisons that
    are worth a few. Before this was looked at, position was found in a third of such sets and length in a quarter."""
    rng = np.random.default_rng(5)
    texts, ends = answers(rng, 20 + 80), np.array([(a, b) for a in range(20) for b in range(a + 1, 20)])
    ends = np.concatenate((ends, np.arange(20, 100).reshape(-1, 2)))
    prompts = ["the same"] * 190 + [f"question {n}" for n in range(40)]
    for seed in range(5):
        worth = np.random.default_rng(seed).normal(0.0, 2.0, 100)
        first, second = ([texts[at] for at in side] for side in ends.T.tolist())
        pairs = Comparisons(prompts, first, second, np.ones((230, 1)), order_known=True)
        pairs = labelled(pairs, worth[ends[:, 0]] - worth[ends[:, 1]], seed)
        for check in (length, position, shallow):
            found = check.check(pairs, alpha=SHARE, seed=0)
            assert found.state == "cannot tell" and "few prompts have most" in found.sentence


def test_one_enormous_answer_does_not_make_length_harmless() -> None:
    pairs = drawn(7, 60)
    assert length.check(pairs, alpha=SHARE, seed=0).state == "cannot tell"
    huge = replace(
        pairs, first=[*pairs.first[:-1], "word " * 10**6], votes=np.append(pairs.votes[:-1], [[1.0]], axis=0)
    )
    assert length.check(huge, alpha=SHARE, seed=0).state == "cannot tell"


def test_few_labels_do_not_clear_shallow_features() -> None:
    """With 40 labels and a real love of length, one set in ten was called clear while only the upper end was asked."""
    for seed in range(20):
        pairs = drawn(seed, 40)
        assert shallow.check(labelled(pairs, 0.4 * doublings(pairs), seed), alpha=SHARE, seed=0).state != "clear"


def test_answers_without_any_form_are_told_in_words_that_fit() -> None:
    texts = [f"plain words number {item % 7}" for item in range(400)]
    pairs = Comparisons([f"q{item}" for item in range(400)], texts, texts[::-1], np.ones((400, 1)))
    found = form.check(pairs, alpha=ALPHA / 8, seed=0)
    assert found.state == "clear" and "0 forms" not in found.sentence
