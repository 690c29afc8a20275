"""Forecasts: right on average and in their intervals where the truth is known, and silent where it cannot be."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import write_rows
from tiltmeter_workbench.forecast.curves import CurvePoint, ForecastInterval, few_samples_dominate
from tiltmeter_workbench.forecast.estimate import forecast_gold
from tiltmeter_workbench.forecast.render import UNSEEN, as_json, sentence
from tiltmeter_workbench.forecast.samples import choose_samples, even_chances, read_sheet
from tiltmeter_workbench.stats.reweighting import (
    Floats,
    Reweighted,
    SampleTable,
    label_chances,
    rank_weights,
    split_halves,
    tilt_kl,
    tilt_weights,
)
from tiltmeter_workbench.stats.tilting import best_of_n_mean, kl, tilted
from tiltmeter_workbench.verbs.reward.forecast import forecast, forecast_chart

app = typer.Typer()
app.command()(forecast)

COLUMNS = {"prompt": "prompt", "score": "score", "gold": "gold", "chance": "gold_chance"}


def bent(score: Floats) -> Floats:
    """Gold that rises with the score to 0.5 and falls beyond."""
    return np.asarray(0.9 * np.exp(-np.square(score - 0.5)), np.float64)


def rising(score: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-score)), np.float64)


def labelled(score: Floats, worth: Floats, labels: int, seed: int) -> SampleTable:
    """Coins of this worth on a few samples, drawn as `choose_samples` says."""
    rng = np.random.default_rng([seed, 1])
    blank = SampleTable(score, np.full(score.shape, np.nan), np.ones(score.shape))
    asked, chances = choose_samples(blank, labels, seed)
    coins = (rng.random(score.shape) < worth).astype(float)
    return SampleTable(score, np.where(asked, coins, np.nan), chances)


def drawn(seed: int, worth: Any = bent, shape: tuple[int, int] = (80, 128), labels: int = 640) -> SampleTable:
    score = np.random.default_rng(seed).normal(size=shape)
    return labelled(score, worth(score), labels, seed)


def exact(worth: Any, beta: float) -> tuple[float, float]:
    """Gold and KL of the tilt of a standard normal score, on a fine table."""
    at = np.linspace(-8.0, 8.0, 4001)
    reference = np.exp(-0.5 * at**2)
    reference /= reference.sum()
    policy = tilted(reference, at, beta)
    return float(policy @ worth(at)), kl(policy, reference)


def table(sheet: SampleTable, path: Path, chances: bool = True) -> Path:
    rows = []
    for prompt, (scores, gold, chance) in enumerate(zip(sheet.score, sheet.gold, sheet.chance, strict=True)):
        for s, g, c in zip(scores.tolist(), gold.tolist(), chance.tolist(), strict=True):
            row = {"prompt": f"p{prompt}", "score": s, "gold": None if math.isnan(g) else g}
            rows.append(row | ({"gold_chance": c} if chances else {}))
    write_rows(path, rows)
    return path


def test_few_labels_give_the_mean_that_all_labels_would_on_average() -> None:
    score = np.random.default_rng(0).normal(size=(20, 64))
    worth = bent(score)
    weights = tilt_weights(score, 1.0)
    whole = float((weights * worth).sum(1).mean())
    found = []
    for seed in range(300):
        blank = SampleTable(score, np.full(score.shape, np.nan), np.ones(score.shape))
        asked, chances = choose_samples(blank, 120, seed)
        sheet = SampleTable(score, np.where(asked, worth, np.nan), chances)
        found.append(float(Reweighted(sheet, draws=1, seed=0).gold(weights)[0]))
    assert np.mean(found) == pytest.approx(whole, abs=4.0 * float(np.std(found)) / math.sqrt(len(found)) + 0.002)
    # Labels taken as if they had been drawn evenly would be wrong: most of them lie at the top.
    naive = [SampleTable(score, np.where(asked, worth, np.nan), even_chances(score, np.where(asked, worth, np.nan)))]
    off = float((tilt_weights(score, math.inf) * naive[0].label_weights * np.nan_to_num(naive[0].gold)).sum(1).mean())
    assert abs(off - worth.mean()) > 0.05


def test_with_every_label_the_estimates_are_the_plain_sums() -> None:
    rng = np.random.default_rng(1)
    score, gold = rng.normal(size=(12, 40)), rng.random((12, 40))
    means = Reweighted(SampleTable(score, gold, np.ones((12, 40))), draws=2, seed=0)
    weights = tilt_weights(score, 0.7)
    assert means.gold(weights)[0] == pytest.approx((weights * gold).sum(1).mean())
    assert means.coverage(weights)[0] == pytest.approx(1.0)
    ranked = rank_weights(means.table, 4)
    expected = np.mean([best_of_n_mean(s, g, 4) for s, g in zip(score, gold, strict=True)])
    assert means.gold(ranked)[0] == pytest.approx(expected)


def test_weights_of_prompts_with_fewer_samples_stay_inside_them() -> None:
    score = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 5.0, np.nan, np.nan]])
    sheet = SampleTable(score, np.full(score.shape, np.nan), np.ones(score.shape))
    for weights in (tilt_weights(score, 0.5), rank_weights(sheet, 2), tilt_weights(score, math.inf)):
        assert weights.sum(1) == pytest.approx([1.0, 1.0])
        assert (weights[1, 2:] == 0.0).all()
    assert tilt_kl(tilt_weights(score, math.inf), sheet.sizes) == pytest.approx([0.0, 0.0])
    first, second = split_halves(sheet.sampled, np.random.default_rng(0))
    assert first.sum(1).tolist() == [2, 1]
    assert ((first | second) == sheet.sampled).all() and not (first & second).any()
    assert label_chances(sheet, 2)[1, 2:].tolist() == [0.0, 0.0]


def test_most_intervals_hold_the_truth_and_not_by_being_vast() -> None:
    inside, widths = [], []
    for seed in range(12):
        found = forecast_gold(drawn(seed), seed=seed)
        for point in found.tilt.points[1::4]:
            gold, nats = exact(bent, point.at)
            inside += [point.gold.low <= gold <= point.gold.high, point.kl.low <= nats <= point.kl.high]
            widths.append(point.gold.high - point.gold.low)
    assert len(inside) > 60
    assert np.mean(inside) >= 0.75
    assert np.mean(widths) < 0.12


def test_a_bend_is_found_where_it_is_and_named() -> None:
    found = forecast_gold(drawn(3, labels=2000))
    peak = found.tilt.peak
    assert found.exit_code == 1
    assert peak is not None
    betas = [point.at for point in found.tilt.points]
    true = int(np.argmax([exact(bent, beta)[0] for beta in betas]))
    assert abs(peak - true) <= 4
    assert found.tilt.near <= peak <= found.tilt.far
    assert f"stay above beta {betas[peak]:.3g}" in sentence(found)
    assert found.best.peak is not None
    assert found.best.points[found.best.peak].at in (2.0, 3.0, 4.0)


def test_an_honest_reward_has_no_peak_and_nothing_is_claimed_beyond_the_reach() -> None:
    found = forecast_gold(drawn(4, rising))
    assert (found.exit_code, found.tilt.peak, found.best.peak) == (0, None, None)
    assert "beyond, nothing is claimed" in sentence(found)
    assert 0.5 < found.tilt.reach <= 0.5 * math.log(128) + 0.2
    told = as_json(found)
    assert told["tilt"]["peak"] is None
    assert "no bend" in told["tilt"]["peak_refused"]


def test_a_verifier_of_zeros_and_ones_can_be_followed_to_its_end() -> None:
    rng = np.random.default_rng(5)
    score = (rng.random((60, 64)) < 0.55).astype(float)
    found = forecast_gold(labelled(score, 0.2 + 0.6 * score, 600, 5))
    assert found.tilt.whole
    assert found.tilt.points[-1].kl.mean == pytest.approx(-math.log(0.55), abs=0.05)
    assert found.tilt.points[-1].gold.mean == pytest.approx(0.8, abs=0.06)
    assert "at any beta" in sentence(found)
    # Best-of-n by a score with ties has less KL than the formula without them.
    assert found.best.points[-1].kl.mean < math.log(16) - 15 / 16 - 0.5


@pytest.mark.parametrize("tail", ["t", "lognormal", "pareto"])
def test_a_heavy_tail_is_refused(tail: str) -> None:
    rng = np.random.default_rng(6)
    error = {"t": rng.standard_t(2, (64, 128)), "lognormal": rng.lognormal(0, 1.5, (64, 128))}
    score = error.get(tail, rng.pareto(1.8, (64, 128)))
    found = forecast_gold(labelled(score, rising(score), 256, 6))
    assert found.exit_code == 2
    assert "tail is heavy" in sentence(found)
    assert not found.tilt.points and not found.best.points


def test_a_few_scores_that_outweigh_the_rest_are_noticed_where_no_test_of_the_tail_could() -> None:
    rng = np.random.default_rng(12)
    blank = np.full((24, 32), np.nan)
    heavy, light = rng.lognormal(0.0, 1.5, (24, 32)), rng.normal(size=(24, 32))
    assert few_samples_dominate(SampleTable(heavy, blank, np.ones(blank.shape)), 32, 0)
    assert not few_samples_dominate(SampleTable(light, blank, np.ones(blank.shape)), 32, 0)
    almost_right = (rng.random((24, 32)) < 0.97).astype(float)  # no tilt of 0.3 nats exists
    assert not few_samples_dominate(SampleTable(almost_right, blank, np.ones(blank.shape)), 32, 0)


def test_too_little_is_refused_with_what_is_lacking() -> None:
    few = drawn(7, shape=(10, 64), labels=40)
    assert "10 prompts" in forecast_gold(few).refused[0]
    assert "labels" in forecast_gold(few).refused[1]
    assert "samples a prompt" in forecast_gold(drawn(7, shape=(64, 4), labels=200)).refused[0]
    score = drawn(7).score
    alike = SampleTable(np.ones(score.shape), rising(score), np.ones(score.shape))
    assert "different scores" in forecast_gold(alike).refused[0]
    flat = SampleTable(score, np.ones(score.shape), np.ones(score.shape))
    assert "all labels are alike" in forecast_gold(flat).refused[0]


def test_few_samples_a_prompt_do_not_reach_far_enough_for_a_tilt() -> None:
    found = forecast_gold(drawn(8, rising, (200, 12), 1200))
    assert not found.tilt.points
    assert "before KL 0.5" in found.tilt.ended


def test_labels_that_leave_out_the_top_end_the_reach_and_labels_of_the_top_alone_are_noticed() -> None:
    sheet = drawn(9)
    low = sheet.ranks < 0.75
    hidden = SampleTable(
        sheet.score, np.where(low & (sheet.ranks > 0.6), rising(sheet.score), np.nan), np.full(low.shape, 1.0)
    )
    assert forecast_gold(hidden).exit_code == 2
    top = np.where(sheet.ranks > 0.95, rising(sheet.score), np.nan)
    uneven = forecast_gold(SampleTable(sheet.score, top, even_chances(sheet.score, top)))
    assert "not drawn evenly" in uneven.refused[0]
    even = np.where(np.random.default_rng(0).random(top.shape) < 0.06, rising(sheet.score), np.nan)
    assert not forecast_gold(SampleTable(sheet.score, even, even_chances(sheet.score, even))).refused


def test_a_table_is_read_with_its_columns_and_rows_without_a_score_are_left_out(tmp_path: Path) -> None:
    sheet = drawn(10, shape=(24, 32), labels=200)
    path = table(sheet, tmp_path / "s.jsonl")
    again, rows, notes = read_sheet(path, COLUMNS)
    assert again.score == pytest.approx(sheet.score)
    assert np.nan_to_num(again.label_weights) == pytest.approx(sheet.label_weights)
    assert (len(rows), notes) == (24 * 32, [])
    path.write_text(path.read_text() + '{"prompt": "p0", "score": "none"}\n')
    assert read_sheet(path, COLUMNS)[2] == ["1 rows without a score are left out"]
    plain = table(sheet, tmp_path / "plain.jsonl", chances=False)
    assert "drawn evenly" in read_sheet(plain, COLUMNS)[2][0]
    with pytest.raises(AttachError, match="name yours by an option"):
        read_sheet(path, {**COLUMNS, "score": "reward"})
    write_rows(tmp_path / "bad.jsonl", [{"prompt": "a", "score": 1, "gold": 1, "gold_chance": 0}])
    with pytest.raises(AttachError, match="above 0 and at most 1"):
        read_sheet(tmp_path / "bad.jsonl", COLUMNS)


def test_the_command_tells_picks_labels_and_refuses(tmp_path: Path) -> None:
    run = CliRunner(env={"COLUMNS": "120"})
    path = table(drawn(3, labels=2000), tmp_path / "s.jsonl")
    done = run.invoke(app, [str(path)], catch_exceptions=False)
    assert done.exit_code == 1
    for words in ("GOLD PEAKS", UNSEEN, "━", "░", "best of n", "sqrt(KL)"):
        assert words in done.stdout
    told = json.loads(run.invoke(app, [str(path), "--json"], catch_exceptions=False).stdout)
    assert (told["state"], told["exit_code"], told["unseen"]) == ("peak", 1, UNSEEN)
    assert told["tilt"]["points"][0]["beta"] is None
    assert told["tilt"]["peak"]["near"] >= told["tilt"]["peak"]["beta"]
    unlabelled = table(drawn(3, labels=0), tmp_path / "u.jsonl", chances=False)
    assert run.invoke(app, [str(unlabelled)]).exit_code == 2
    picked = run.invoke(app, [str(unlabelled), "--choose", str(tmp_path / "c.jsonl"), "--labels", "500"])
    assert picked.exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert len(rows) == 80 * 128
    assert 400 < sum(row["to_label"] for row in rows) < 600
    best = max((row for row in rows if row["prompt"] == "p0"), key=lambda row: float(row["score"]))
    assert best["gold_chance"] > 10 * min(row["gold_chance"] for row in rows)


def test_chosen_samples_labelled_lead_to_a_forecast(tmp_path: Path) -> None:
    run = CliRunner()
    blank = table(drawn(11, labels=0), tmp_path / "u.jsonl", chances=False)
    run.invoke(app, [str(blank), "--choose", str(tmp_path / "c.jsonl"), "--labels", "600"])
    rows = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    for row in rows:
        row["gold"] = float(bent(np.array(row["score"]))) if row["to_label"] else None
    write_rows(tmp_path / "c.jsonl", rows)
    assert run.invoke(app, [str(tmp_path / "c.jsonl"), "--json"]).exit_code == 1


def test_the_picture_turns_red_at_the_peak() -> None:
    def point(nats: float, gold: float) -> CurvePoint:
        return CurvePoint(1.0, ForecastInterval(nats, nats, nats), ForecastInterval(nats, 0, 0),
                          ForecastInterval(gold, gold - 0.1, gold + 0.1), ForecastInterval(0, 0, 0), 50.0)  # fmt: skip

    drawing = forecast_chart([point(0.0, 0.5), point(0.25, 0.7), point(1.0, 0.4)], 1)
    assert "◆" in drawing.plain
    assert any(span.style == "bold red" for span in drawing.spans)
    calm = forecast_chart([point(0.0, 0.5), point(1.0, 0.7)], None)
    assert "◆" not in calm.plain
    assert not any(span.style == "bold red" for span in calm.spans)


@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_scores_of_a_size_that_no_square_holds_are_refused_and_not_a_crash(scale: float) -> None:
    sheet = drawn(0)
    found = forecast_gold(SampleTable(scale * sheet.score, sheet.gold, sheet.chance))
    assert found.exit_code == 2 and "scale the reward" in sentence(found)
    json.dumps(as_json(found), allow_nan=False)


def test_one_sample_a_prompt_is_said_and_not_called_no_prompts() -> None:
    sheet = drawn(0)
    found = forecast_gold(SampleTable(sheet.score[:, :1], sheet.gold[:, :1], sheet.chance[:, :1]))
    assert "1 samples a prompt" in sentence(found) and "0 prompts" not in sentence(found)


def test_labels_that_are_no_numbers_are_counted_in_a_note(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "score": 1.0, "gold": gold} for gold in (1, "maybe", "inf", None, "")]
    write_rows(tmp_path / "s.jsonl", rows)
    names = {"prompt": "prompt", "score": "score", "gold": "gold", "chance": "gold_chance"}
    sheet, _, notes = read_sheet(tmp_path / "s.jsonl", names)
    assert sheet.labels == 1 and any(note.startswith("2 rows have a gold") for note in notes)


def test_labels_that_were_there_before_are_not_taken_for_chosen_ones(tmp_path: Path) -> None:
    path = table(drawn(0), tmp_path / "s.jsonl", chances=False)
    done = CliRunner().invoke(app, [str(path), "--choose", str(tmp_path / "out.jsonl")])
    assert isinstance(done.exception, AttachError) and "labels already" in str(done.exception)
    assert not (tmp_path / "out.jsonl").exists()
