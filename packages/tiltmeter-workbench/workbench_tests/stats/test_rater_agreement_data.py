"""Agreement of real raters, and a real over-optimisation curve, from the shared public data."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tiltmeter_workbench.stats.rater_agreement import Floats, count_ratings, fleiss_kappa, krippendorff_alpha

DATA = Path(__file__).parents[5] / "shared" / "data"
#: Each number below is looked up here as it was computed: the page cannot say another one.
PAGE = (Path(__file__).parents[4] / "docs" / "worked-examples.md").read_text("utf-8")

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")


def rows(name: str) -> list[dict[str, str]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pandalm() -> Floats:
    with gzip.open(DATA / "pandalm_multi_rater" / "testset.jsonl.gz", "rt", encoding="utf-8") as file:
        pairs = [json.loads(line) for line in file]
    return np.array([[pair[f"annotator{k}"] for k in (1, 2, 3)] for pair in pairs], float)


def bbq() -> list[list[float]]:
    items: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in rows("bbq_worker_labels/labels.csv.gz"):
        if row["answer"]:  # a few workers left one blank
            items[row["batch"], row["category"], row["uid"]].append(float(row["answer"]))
    return list(items.values())


def test_three_raters_of_preference_pairs() -> None:
    ratings = pandalm()
    assert ratings.shape == (999, 3)
    assert f"| Fleiss' kappa {fleiss_kappa(count_ratings(ratings)):.3f} | three annotators on {len(ratings)} " in PAGE


def test_five_crowd_workers() -> None:
    items = bbq()
    five = np.array([answers for answers in items if len(answers) == 5])
    assert (
        f"| Fleiss' kappa {fleiss_kappa(count_ratings(five)):.3f} | five crowd workers on {len(five):,} items |" in PAGE
    )


def test_alpha_needs_no_equal_numbers_of_raters() -> None:
    """With all items, and the few that are not rated five times, alpha is next to kappa: the sample is large."""
    items = bbq()
    widest = max(map(len, items))
    padded = np.array([answers + [np.nan] * (widest - len(answers)) for answers in items])
    assert len(padded) > 2154
    assert krippendorff_alpha(padded) == pytest.approx(0.863, abs=0.002)
    assert krippendorff_alpha(pandalm()) == pytest.approx(fleiss_kappa(count_ratings(pandalm())), abs=1e-3)


def test_the_win_rate_of_a_run_with_a_weak_leash_rises_and_collapses() -> None:
    runs = [
        row
        for row in rows("overopt_direct_alignment/curves.csv.gz")
        if row["method"] == "dpo" and row["model"] == "pythia-2.8b" and float(row["beta"]) == 0.01
    ]
    curve = {round(float(row["kl"])): float(row["win_rate"]) for row in runs}
    assert f"| win rate {curve[72]:.3f} at KL 72, {curve[206]:.3f} at KL 206 | DPO of Pythia 2.8B at β = 0.01" in PAGE
    assert max(curve.values()) > 0.7
