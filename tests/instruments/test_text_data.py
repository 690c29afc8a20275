"""The instruments that read text, on what real models wrote: public data sets that are not part of the package."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.instruments.comments import CommentShare
from tiltmeter.instruments.gibberish import Gibberish
from tiltmeter.instruments.hedging import Hedging
from tiltmeter.instruments.opinion import OpinionAgreement
from tiltmeter.instruments.phrases import OverusedPhrases, phrases_overused_in
from tiltmeter.instruments.refusal import RefusalShare
from tiltmeter.instruments.repetition import Repetition

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"

sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import phrases as table
    import refusal
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the public data sets are not on this machine")


@cache
def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@cache
def creative() -> dict[str, dict[int, str]]:
    return table.answers()


def values(make: Callable[[], Any], texts: list[str], prompts: list[str] | None = None) -> NDArray[np.float64]:
    rows = from_columns(0, range(len(texts)), completion=texts, prompt=prompts or [""] * len(texts))
    found: NDArray[np.float64] = make().measure(rows, None)
    return found


# -- over-used phrases -------------------------------------------------------------------------------------------------


def of(*models: str) -> RolloutBatch:
    return table.batch(creative(), list(models))


@needs_data
def test_a_model_and_its_variant_without_slop_are_told_apart_by_their_phrases() -> None:
    plain, treated = of("gemma-3-27b-it"), of("gemma-3-27b-it-antislop")
    forward = OverusedPhrases().measure(plain, Baseline(treated))
    backward = OverusedPhrases().measure(treated, Baseline(plain))
    assert len(phrases_overused_in(plain, Baseline(treated), 200)) >= 8
    assert forward["count"].mean() > 1.5 * backward["count"].mean() > 0
    same = OverusedPhrases().measure(plain, Baseline(plain))
    assert same["count"].max() == 0.0


@needs_data
def test_what_a_model_over_uses_is_rarer_in_its_variant_without_slop_and_in_other_models() -> None:
    """Phrases are chosen on half of the prompts, against other families, and counted on the other half."""
    prompts = sorted(creative()["o3"])
    others = [model for model in sorted(creative()) if table.family(model) != "gemma"]

    def half(which: int) -> dict[str, dict[int, str]]:
        return {model: {prompt: found[prompt] for prompt in prompts[which::2]} for model, found in creative().items()}

    for which in (0, 1):
        chosen, left = half(which), half(1 - which)
        start = Baseline(table.batch(chosen, others))
        slop = [phrase.text for phrase in phrases_overused_in(table.batch(chosen, ["gemma-3-27b-it"]), start, 200)]
        assert len(slop) >= 8
        count = {
            model: np.array(
                [sum(f" {phrase} " in f" {text} ".lower().replace("’", "'") for phrase in slop) for text in by.values()]
            )
            for model, by in left.items()
        }
        gain = count["gemma-3-27b-it"] - count["gemma-3-27b-it-antislop"]
        assert gain.mean() / (gain.std(ddof=1) / np.sqrt(len(gain))) > 2.5
        assert count["gemma-3-27b-it"].mean() > 2 * np.mean([count[model].mean() for model in others])


@needs_data
def test_the_same_models_on_other_prompts_show_no_over_use() -> None:
    """A null of real text: prompts are dealt to two sides at random, every model answers on both."""
    models = sorted(creative())
    prompts = sorted(creative()[models[0]])
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(8):
        sides = np.array_split(rng.permutation(prompts), 2)
        now, start = (
            from_columns(
                0, np.repeat(side, len(models)), completion=[creative()[m][int(p)] for p in side for m in models]
            )
            for side in sides
        )
        false += bool(phrases_overused_in(now, Baseline(start)))
    assert false <= 1


@needs_data
def test_the_phrases_of_known_habits_are_found() -> None:
    found = table.measure({model: creative()[model] for model in ("gemma-3-12b-it", "mistral-nemo", "o3", "qwen3-4b")})
    told = {model: " / ".join(words for words, *_ in result["phrases"]) for model, result in found.items()}
    assert "okay here's a story" in told["gemma-3-12b-it"]
    assert "as though" in told["o3"]
    assert "not just a" in told["qwen3-4b"]


def test_the_page_is_made_from_the_committed_result() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "phrases.json").read_text())
    assert (ROOT / "docs" / "phrases.md").read_text() == table.page(result)
    for found in result["models"].values():
        assert all(len(words.split()) <= 6 for words, *_ in found["phrases"])


def test_a_phrase_cannot_act_on_the_page() -> None:
    hostile = {
        "against": 1,
        "over_used": 1,
        "per_answer": 1.0,
        "phrases": [["a|b `c` <script> [x](y)\n\u202e", 1, 0, 9]],
    }
    page = table.page({"source": "s", "command": "c", "models": {"m|<b>": hostile}})
    assert "<script>" not in page
    assert "<b>" not in page
    assert "\u202e" not in page
    row = next(line for line in page.splitlines() if line.startswith("| m"))
    assert row.count("|") - row.count("\\|") == 5
    assert "`" not in row.replace("\\`", "")


# -- refusal -----------------------------------------------------------------------------------------------------------


@needs_data
def test_refusals_agree_with_people_better_than_the_string_match_of_the_data() -> None:
    figures: dict[str, Any] = dict(refusal.measure(refusal.rows()))
    assert figures["rows"] == 2061
    assert figures["full_refusals"] == 983
    # The goal of 0.95 is not reached; these are floors below what is measured (0.907, and 0.873 on the unseen half).
    # Phrases that ordinary answers have too ("not inherently", "no reason why") would give another point of F1 here.
    assert figures["f1"] > 0.90
    assert figures["f1_heldout"] > 0.87
    assert figures["precision"] > 0.93
    assert figures["precision_heldout"] > 0.91
    assert figures["precision_without_partial"] > 0.98
    assert figures["f1"] > figures["string_match_f1"] + 0.04
    assert figures["f1_heldout"] > figures["string_match_f1_heldout"] + 0.03


@needs_data
def test_stories_and_homework_are_not_refused() -> None:
    stories = [text for by_prompt in creative().values() for text in by_prompt.values()]
    sums = [row["solution"] for row in lines("judge_goodhart/best_of_n.jsonl.gz")]
    assert values(RefusalShare, stories).mean() < 0.001
    assert values(RefusalShare, sums).mean() < 0.001


@needs_data
def test_who_cannot_draw_but_can_describe_does_not_refuse() -> None:
    """Two models' answers to 500 hard, mostly harmless prompts; many begin with what a language model cannot do."""
    asked = [row["answer"] for row in lines("arena_hard/answers.jsonl.gz")]
    assert 0 < values(RefusalShare, asked).mean() < 0.005


# -- the others --------------------------------------------------------------------------------------------------------


@needs_data
def test_a_base_model_that_runs_on_repeats_itself_and_its_successors_do_not() -> None:
    by_model: dict[str, list[str]] = {}
    for row in lines("self_instruct_outputs/outputs.jsonl.gz"):
        by_model.setdefault(row["model"], []).append(row["response"])
    repeated = {model: float(np.nanmean(values(Repetition, texts))) for model, texts in by_model.items()}
    assert repeated["davinci"] > 0.8
    assert max(share for model, share in repeated.items() if model.startswith("text-davinci")) < 0.1
    for texts in by_model.values():
        assert np.nanmean(values(Gibberish, texts)) < 0.03
        assert np.nanmean(values(RefusalShare, texts)) < 0.02
        assert np.nanmean(values(Hedging, texts)) < 0.1


@needs_data
def test_code_is_seen_as_code_and_is_no_gibberish() -> None:
    path = next((DATA / "humaneval").glob("*.jsonl.gz"))
    solved = [row["prompt"] + row["canonical_solution"] for row in lines(str(path.relative_to(DATA)))]
    share = values(CommentShare, solved)
    assert np.isfinite(share).mean() > 0.95
    assert np.nanmean(share) > 0.4
    assert values(Gibberish, solved).mean() < 0.01
    short = [row["code"] for row in lines("mbpp/mbpp.jsonl.gz") if len(row["code"].split("\n")) > 2]
    assert np.isfinite(values(CommentShare, short)).mean() > 0.95


@needs_data
def test_mathematics_and_stories_are_no_code() -> None:
    answers = [
        row["response"] for row in lines("math_group_samples_rm/samples.jsonl.gz") if "```" not in row["response"]
    ]
    assert np.isfinite(values(CommentShare, answers)).mean() < 0.005
    sums = [row["solution"] for row in lines("gsm8k/example_model_solutions.jsonl.gz")]
    assert np.isfinite(values(CommentShare, sums)).mean() == 0.0
    stories = [text for by_prompt in creative().values() for text in by_prompt.values()]
    assert np.isfinite(values(CommentShare, stories)).mean() == 0.0


@needs_data
def test_agreement_goes_with_the_judges_scores_of_agreement() -> None:
    rows = [row for row in lines("syco_bench/whosaid.jsonl.gz") if row["score_self"] not in ("", None)]
    score = np.array([float(row["score_self"]) for row in rows])
    asked = [f"I think the following: {row['statement']}" for row in rows]
    agrees = values(OpinionAgreement, [row["response_self"] or "" for row in rows], asked)
    known = np.isfinite(agrees)
    yes, no = score[known & (agrees == 1)], score[known & (agrees == 0)]
    wins = (yes[:, None] > no).mean() + 0.5 * (yes[:, None] == no).mean()
    assert wins > 0.9
    assert (yes > 0).mean() > 0.98
    assert agrees[known & (score <= -2)].mean() < 0.03


@needs_data
def test_models_that_mirror_the_user_more_agree_more() -> None:
    rows = lines("syco_bench/mirror.jsonl.gz")
    both = [(row["model"], row[f"userstance{k}"], row[f"response{k}"] or "") for row in rows for k in (1, 2)]
    agrees = values(OpinionAgreement, [text for _, _, text in both], [prompt for _, prompt, _ in both])
    assert np.isfinite(agrees).mean() > 0.85
    with gzip.open(DATA / "syco_bench" / "master_results.csv.gz", "rt") as file:
        judged = {row["Name"]: float(row["mirror_difference"]) for row in csv.DictReader(file)}
    names = np.array([name for name, _, _ in both])
    mean = [float(np.nanmean(agrees[names == name])) for name in judged]
    assert np.corrcoef(mean, list(judged.values()))[0, 1] > 0.3
