"""The plots of the overview: what each panel shows and says."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET
from tests.view.as_sent import as_sent

from tiltmeter.data.records import Floats, Reading
from tiltmeter.rundir.journal import Event, Journal, reading_event
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import advise_on_run
from tiltmeter.view.screens import plots as plots_screen
from tiltmeter.view.screens.gold import gold_name
from tiltmeter.view.screens.proxy_gold import pool_gold
from tiltmeter.view.screens.run_reader import ReadingColumns, ReadingSeries, RunReader

plots = as_sent(plots_screen.plots)
N = 300
T = np.arange(N) / N


def write(path: Path, lines: Mapping[str, Floats], *, every: int = 1, n: int = 64, absent: Any = None) -> RunReader:
    """A run with these readings; those of gold at every so many steps."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="test", ranks=1, resume_step=None)
    journal = Journal(path / "events")
    facts: dict[str, Any] = {"state": "open", "facts": run.attempt(attempt), "detectors": [], "gold": None}
    journal.commit([Event("attempt", attempt, 0, facts, "open")])
    journal.commit([Event("note", attempt, 0, {"note": "absent", "absent": absent or {}}, "absent")])
    last = max(map(len, lines.values()), default=0) - 1
    for step in range(last + 1):
        names = [name for name in lines if step % every == 0 or not name.startswith("gold.")]
        told = [
            Reading(attempt, step, name, float(lines[name][step]), n * (1 + ("large" in name)), 0.02) for name in names
        ]
        if step and step % 50 == 0:
            told.append(Reading(attempt, step, "training.checkpoint", float(step), 1))
        journal.commit([reading_event(attempt, step, told, [], "config")])
        done = {
            "ranks": [[0, 0]],
            "sha256": "",
            "rows": n,
            "missing": [],
            "unreadable": [],
            "seen": step + 1,
            "lost": {},
        }
        done |= {"labels": n, "written": 0.0}
        if step in (0, last):  # each is synced, and nothing here asks for those between
            journal.commit([Event("step_done", attempt, step, done, f"done-{step}")])
    journal.close()
    book = RunReader(run)
    book.refresh()
    return book


def noisy(line: Floats, spread: float = 0.02, seed: int = 0) -> Floats:
    return np.asarray(line + np.random.default_rng(seed).normal(0.0, spread, len(line)), np.float64)


def test_proxy_and_gold_share_a_plot_with_peak_checkpoints_distance_and_labels(tmp_path: Path) -> None:
    lines = {
        "reward.mean": noisy(2.0 + T),
        "gold.mean": noisy(0.4 + 1.2 * T - 1.5 * T * T),
        "policy.kl.k3": np.where(T == 0, -0.01, 4.0 * T),
    }
    book = write(tmp_path / "run", lines, every=2)
    truth = plots(book)["truth"]
    assert [(line["name"], line["role"], line["axis"]) for line in truth["lines"]] == [
        ("reward.mean", "proxy", "left"),
        ("gold.mean", "gold", "right"),
    ]
    assert truth["lines"][1]["low"][0] < truth["lines"][1]["values"][0] < truth["lines"][1]["high"][0]
    assert truth["root_kl"][0] == 0.0  # an estimate below 0 is no imaginary distance
    assert truth["root_kl"][150] == pytest.approx(np.sqrt(2.0), rel=1e-4)
    assert abs(truth["peak"]["step"] - 120) < 25
    assert truth["peak"]["gold"] == pytest.approx(0.64, abs=0.03)
    assert truth["labels"][:4] == [64, 0, 64, 0]
    assert [one["step"] for one in truth["checkpoints"]] == [50, 100, 150, 200, 250]
    advice = advise_on_run(book.run_facts)
    assert advice is not None
    assert advice.best is not None
    assert [one["step"] for one in truth["checkpoints"] if one["best"]] == [advice.best.step]
    assert "it was highest at steps" in truth["sentence"]
    assert truth["empty"] == ""


def test_without_gold_the_proxy_stands_alone_and_the_sentence_says_blind(tmp_path: Path) -> None:
    truth = plots(write(tmp_path / "run", {"reward.mean": 1.0 + T}))["truth"]
    assert [line["name"] for line in truth["lines"]] == ["reward.mean"]
    assert truth["empty"] == ""
    assert "no gold: BLIND" in truth["sentence"]
    assert "checks.py:score" in truth["sentence"]
    assert truth["peak"] is None
    assert truth["forecast"] is None
    assert set(truth["labels"]) == {0}


def test_of_evaluations_the_one_with_most_items_stands_for_gold(tmp_path: Path) -> None:
    book = write(tmp_path / "run", {"eval.small": T, "eval.large": T})
    assert gold_name(book) == "eval.large"
    only = write(tmp_path / "other", {"reward.mean": T, "eval.math": T, "gold.level": T})
    assert gold_name(only) == "gold.level"


def test_a_curve_that_bends_gets_a_forecast_and_a_straight_one_none(tmp_path: Path) -> None:
    distance = np.linspace(0.05, 2.5, N)
    bent = 0.3 + distance * (0.15 - 0.12 * np.log(distance))
    book = write(
        tmp_path / "run", {"reward.mean": T, "gold.mean": noisy(bent, 0.01), "policy.kl.k3": distance**2}, n=400
    )
    found = plots(book)["truth"]["forecast"]
    assert found["peak"] == pytest.approx(np.exp(0.15 / 0.12 - 1.0), rel=0.2)
    assert len(found["root_kl"]) == len(found["low"]) == len(found["high"])
    assert all(low <= mean <= high for low, mean, high in zip(found["low"], found["gold"], found["high"], strict=True))
    assert "no guarantee" in found["sentence"]
    straight = write(
        tmp_path / "other",
        {"reward.mean": T, "gold.mean": noisy(0.2 + 0.2 * distance, 0.01), "policy.kl.k3": distance**2},
    )
    assert plots(straight)["truth"]["forecast"] is None


def test_what_paid_is_the_change_since_the_start_with_the_total_first(tmp_path: Path) -> None:
    lines = {"reward.mean": 5.0 + T, "reward.component.format": 1.0 + 0.9 * T, "reward.component.right": 4.0 + 0.1 * T}
    paid = plots(write(tmp_path / "run", lines))["paid"]
    assert [line["label"] for line in paid["lines"]] == ["total", "format", "right"]
    assert paid["lines"][0]["values"][0] == pytest.approx(0.0, abs=0.01)
    assert paid["lines"][1]["values"][-1] == pytest.approx(0.9, abs=0.02)
    assert "format +0.87" in paid["sentence"] or "format +0.88" in paid["sentence"]


def test_the_three_kls_are_told_apart_and_beta_is_on_the_right(tmp_path: Path) -> None:
    names = ("policy.kl.k3", "policy.kl_old", "engine.gap.k3", "policy.kl_tokens.worst", "training.beta")
    kl = plots(write(tmp_path / "run", dict.fromkeys(names, 0.1 + T)))["kl"]
    labels = [line["label"] for line in kl["lines"]]
    assert len(set(labels)) == 5
    assert kl["log"]
    assert [line["name"] for line in kl["lines"] if line["role"] == "beta" and line["axis"] == "right"] == [
        "training.beta"
    ]


def test_a_panel_without_its_column_says_which_and_how_to_give_it(tmp_path: Path) -> None:
    absent = {"policy.kl": "logprob, ref_logprob", "policy.entropy": "entropy"}
    found = plots(write(tmp_path / "run", {"reward.mean": T}, absent=absent))
    assert "logprob, ref_logprob is missing" in found["kl"]["empty"]
    assert "entropy= to observe()" in found["diversity"]["empty"]
    assert "length= to observe()" in found["length"]["empty"]
    assert found["kl"]["lines"] == []


def test_a_range_cuts_every_panel_and_a_run_without_steps_has_none(tmp_path: Path) -> None:
    lines = {"reward.mean": T, "length.mean": T, "policy.entropy": T}
    book = write(tmp_path / "run", lines)
    found = plots(book, 100, 120)
    assert (found["from"], found["to"]) == (100, 120)
    assert {tuple(found[name]["steps"]) for name in ("truth", "length", "diversity")} == {tuple(range(100, 121))}
    assert "wider range" in plots(book, 9000, 9100)["length"]["empty"]
    nothing = plots(write(tmp_path / "empty", {}))
    assert all("tiltmeter watch" in nothing[name]["empty"] for name in ("truth", "paid", "kl", "diversity", "length"))


def test_a_long_run_is_sent_in_67_kb_and_soon(tmp_path: Path) -> None:
    length = 3000
    t = np.arange(length) / length
    names = [
        *("reward.mean", "gold.mean", "reward.component.a", "reward.component.b", "reward.component.c"),
        *("policy.entropy", "diversity.distinct_3", "diversity.self_bleu", "diversity.answer_classes.count"),
        *("policy.kl.k3", "policy.kl_tokens.worst", "policy.kl_old", "engine.gap.k3", "training.beta"),
        *("length.mean", "length.truncated_share"),
    ]
    book = write(tmp_path / "run", {name: noisy(0.2 + 0.5 * t, 0.03, i) for i, name in enumerate(names)})
    found = plots(book)
    text = json.dumps(found, allow_nan=False, separators=(",", ":")).encode()
    assert len(gzip.compress(text, 6)) <= 67_000
    taken = []
    for _ in range(3):
        start = time.process_time()
        plots(book)
        taken.append(time.process_time() - start)
    assert min(taken) < 0.2  # of CPU; 30 ms measured


def test_few_labels_a_step_are_pooled_from_every_step_of_the_range_though_few_points_are_sent(tmp_path: Path) -> None:
    t = np.arange(900) / 900
    gold = np.clip(noisy(0.6 - 0.4 * t, 0.2), 0.0, 1.0)
    book = write(tmp_path / "run", {"reward.mean": t, "gold.mean": gold, "policy.kl.k3": t}, n=6)
    truth = plots(book, points=100)["truth"]
    found = truth["pooled"]
    assert truth["shown"] < truth["of"] == 900
    assert sum(found["labels"]) == 900 * 6
    assert min(found["labels"]) >= 90  # 60 stretches at most, though 30 labels would do
    assert len(found["steps"]) == 60
    assert found["gold"][3] == pytest.approx(gold[45:60].mean(), rel=1e-3)
    assert (found["steps"][3], found["root_kl"][3]) == (52, pytest.approx(np.sqrt(t[45:60]).mean(), rel=1e-4))
    scatter = gold[45:60].std(ddof=1) / np.sqrt(15)  # larger than the 0.02 of each step
    assert found["high"][3] - found["low"][3] == pytest.approx(2 * 2.145 * scatter, rel=1e-2)  # Student's t
    part = plots(book, 100, 199)["truth"]["pooled"]
    assert sum(part["labels"]) == 600
    assert min(part["labels"]) >= 30
    assert len(part["steps"]) == 20


def test_pooled_intervals_hold_what_they_should_and_all_right_is_not_certain() -> None:
    rng = np.random.default_rng(3)
    held = []
    for _ in range(200):
        n = rng.integers(2, 9, 120)
        level = np.clip(0.6 + 0.15 * rng.standard_normal(120), 0.05, 0.95)  # prompts differ from step to step
        line = ReadingSeries(np.arange(120), rng.binomial(n, level) / n, n, np.full(120, np.nan))
        found = as_sent(pool_gold)(line, line)
        held += [low <= 0.6 <= high for low, high in zip(found["low"], found["high"], strict=True)]
    assert 0.9 < np.mean(held) < 0.99
    right = ReadingSeries(np.arange(10), np.ones(10), np.full(10, 6), np.zeros(10))
    none = right._replace(steps=right.steps[:0], values=right.values[:0])
    sure = as_sent(pool_gold)(right, none)
    assert sure["gold"] == [1.0, 1.0]
    assert max(sure["low"]) < 0.95
    assert sure["root_kl"] == [None, None]


def test_steps_with_labels_enough_are_not_pooled_nor_are_too_few_labels() -> None:
    line = ReadingSeries(np.arange(50), np.full(50, 0.5), np.full(50, 64), np.full(50, 0.1))
    assert pool_gold(line, line) is UNSET
    for steps in (0, 4):
        few = ReadingSeries(line.steps[:steps], line.values[:steps], np.full(steps, 6), line.stderr[:steps])
        assert pool_gold(few, line) is UNSET


def test_readings_gathered_together_are_those_gathered_alone_in_the_order_of_the_journal() -> None:
    def event(step: int, told: dict[str, Any], kind: str = "reading") -> Event:
        derived = {"late": [step / 2, 1, None]} if step % 3 else {}
        return Event(kind, 0, step, {"measured": told, "derived": derived}, "x")

    together, alone = ReadingColumns(), ReadingColumns()
    for step in range(700):
        told = {"every": [step, 4, None], "twice": [0.0, 1, 0.5]}
        events = [event(step, told if step % 5 else {**told, "some": [float(step), 2, 0.1]})]
        if step % 7 == 0:
            events.append(event(step, {"twice": [1.0, 2, None]}, "labels_closed"))
        for columns in (together, alone):
            for one in events:
                columns.add(one, RunFacts())
        if step == 300:
            together.gather(["every", "unknown"])
    together.gather(together.names())
    for name in ("every", "some", "twice", "late"):
        for left, right in zip(together.branch_series(0, name), alone.branch_series(0, name), strict=True):
            np.testing.assert_array_equal(left, right)
    every, twice = together.branch_series(0, "every"), together.branch_series(0, "twice")
    assert every.values.tolist() == list(range(700))
    assert np.isnan(every.stderr).all()
    assert [part[:3].tolist() for part in (twice.steps, twice.values, twice.n)] == [[0, 0, 1], [0, 1, 0], [1, 2, 1]]
    assert len(together.branch_series(0, "unknown").steps) == 0
