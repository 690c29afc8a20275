"""The recorded worlds load as plain arrays, are what they say they are, and turn where their facts say they turn."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_lab.worlds import empirical
from tiltmeter_workbench.stats.tilting import tilted

ROOT = Path(__file__).parents[3]
JUDGED = ROOT.parent / "shared" / "data" / "judge_goodhart" / "best_of_n.jsonl.gz"


def gold_at(world: dict[str, Any], strength: float) -> float:
    """Mean gold of the reference tilted by the proxy, in units of its pooled standard deviation inside a prompt."""
    reference, proxy = world["reference"], world["proxy"]
    centred = proxy - (reference * proxy).sum(1, keepdims=True)
    scale = np.sqrt((reference * centred**2).sum(1).mean())
    beta = scale / strength if strength else np.inf
    rows = zip(reference, centred, world["gold"], strict=True)
    return float(np.mean([tilted(chance, score, beta) @ gold for chance, score, gold in rows]))


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def row(task: str, sample: int, score: float | None, correct: bool | None) -> dict[str, Any]:
    return {"task_id": task, "sample": sample, "judge_score": score, "correct": correct}


def test_the_file_is_small_and_holds_no_pickle() -> None:
    assert empirical.RECORDED.stat().st_size < 400_000
    with zipfile.ZipFile(empirical.RECORDED) as file:
        for name in file.namelist():
            with file.open(name) as member:
                version = np.lib.format.read_magic(member)
                assert version == (1, 0)
                dtype = np.lib.format.read_array_header_1_0(member)[2]
            assert dtype.kind in "fiU", name


def test_every_recorded_world_has_matching_tables_in_their_ranges() -> None:
    assert len(empirical.names()) >= 4
    for name in empirical.names():
        world = empirical.smollm(name)
        assert set(world) == {"family", "reference", "proxy", "gold", "tokens"}
        assert world["family"] == f"smollm_{name}"
        prompts, answers = world["gold"].shape
        assert prompts >= 40
        assert answers == 128
        for table in ("reference", "proxy", "gold", "tokens"):
            assert world[table].shape == (prompts, answers)
            assert world[table].dtype == np.float64
            assert np.isfinite(world[table]).all()
        assert world["reference"].sum(1) == pytest.approx(np.ones(prompts), abs=1e-12)
        assert world["gold"].min() >= 0.0
        assert world["gold"].max() <= 1.0
        assert world["tokens"].min() >= 0
        assert world["tokens"].max() <= 40


def test_gold_varies_within_nearly_every_prompt_and_so_does_every_proxy() -> None:
    gold = empirical.smollm("good")["gold"]
    assert np.mean((gold.mean(1) > 0.02) & (gold.mean(1) < 0.98)) >= 0.95
    for name in empirical.names():
        assert empirical.smollm(name)["proxy"].std(1).min() > 0.0


def test_a_world_is_the_callers_own_and_the_next_one_is_the_same() -> None:
    first = empirical.smollm("length")
    kept = {name: np.copy(first[name]) for name in ("reference", "proxy", "gold", "tokens")}
    for name in kept:
        first[name][:] = -1.0
    again = empirical.smollm("length")
    for name, table in kept.items():
        assert np.array_equal(again[name], table)


def test_the_facts_describe_every_prompt_and_reward_model() -> None:
    facts = empirical.facts()
    assert len(facts["prompts"]) == len(empirical.smollm("good")["gold"])
    assert set(facts["reward_models"]) == set(empirical.names())
    for name, model in facts["reward_models"].items():
        world = empirical.smollm(name)
        assert model["accuracy_held_out"] == pytest.approx(accuracy(world["proxy"], world["gold"]), abs=2e-4)


def accuracy(score: np.ndarray[Any, Any], gold: np.ndarray[Any, Any]) -> float:
    """Share of the pairs with different gold that the score orders rightly."""
    better = gold[:, :, None] > gold[:, None, :]
    gap = score[:, :, None] - score[:, None, :]
    return float(((gap > 0) + 0.5 * (gap == 0))[better].mean())


def test_some_recorded_worlds_overoptimise_and_some_do_not() -> None:
    strengths = np.linspace(0.0, 8.0, 33)
    drops = {}
    for name in empirical.names():
        gold = [gold_at(empirical.smollm(name), strength) for strength in strengths]
        drops[name] = max(gold) - gold[-1]
        assert max(gold) > gold[0] + 0.01, f"{name} never raises gold"
    assert {name for name, drop in drops.items() if drop >= 0.05} == {"overfitted", "weak", "length"}
    assert {name for name, drop in drops.items() if drop <= 0.01} == {"good", "fair", "few"}


def test_an_unknown_reward_model_is_refused_with_those_there_are() -> None:
    with pytest.raises(AttachError, match="good"):
        empirical.smollm("perfect")


def test_tasks_of_different_sizes_are_padded_with_answers_that_are_never_given(tmp_path: Path) -> None:
    rows = [row("b", 0, 10, True), row("a", 1, 90, False), row("a", 0, 80, True), row("a", 2, 7, False)]
    world = empirical.judge_goodhart(written(tmp_path / "best_of_n.jsonl", rows))
    assert world["proxy"].tolist() == [[80.0, 90.0, 7.0], [10.0, 0.0, 0.0]]
    assert world["gold"].tolist() == [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert world["reference"] == pytest.approx(np.array([[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]]))
    assert world["tokens"] is None


def test_a_row_without_a_score_or_a_verdict_is_left_out(tmp_path: Path) -> None:
    rows = [row("a", 0, 80, True), row("a", 1, None, True), row("a", 2, 90, None), row("a", 3, 1, False)]
    path = tmp_path / "best_of_n.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    world = empirical.judge_goodhart(path)
    assert world["proxy"].tolist() == [[80.0, 1.0]]
    assert world["reference"].tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("text", ["", "not json\n", '{"task_id": "a"}\n', "[1, 2]\n"])
def test_a_foreign_file_is_refused_in_words(tmp_path: Path, text: str) -> None:
    path = tmp_path / "best_of_n.jsonl"
    path.write_text(text)
    with pytest.raises(AttachError, match=r"is not judge-goodhart's best_of_n"):
        empirical.judge_goodhart(path)


def test_a_file_that_is_not_compressed_as_its_name_says_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "best_of_n.jsonl.gz"
    path.write_text("plain")
    with pytest.raises(AttachError, match=r"is not judge-goodhart's best_of_n"):
        empirical.judge_goodhart(path)


def test_a_missing_file_is_named_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match=r"give the path of judge-goodhart's best_of_n"):
        empirical.judge_goodhart(tmp_path / "absent.jsonl.gz")


@pytest.mark.skipif(not JUDGED.exists(), reason="the judge_goodhart data is not here (shared/data)")
def test_the_real_judge_raises_gold_and_the_tables_are_complete() -> None:
    world = empirical.judge_goodhart(JUDGED)
    assert world["proxy"].shape == (120, 24)
    assert (world["reference"] > 0).all()
    assert world["gold"].mean() == pytest.approx(1925 / 2880)
    assert gold_at(world, 1.0) > gold_at(world, 0.0)
