"""Agreement of real raters, and a real over-optimisation curve, from the shared public data."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from tiltmeter.stats.agreement import Floats, counted, fleiss_kappa, krippendorff_alpha

DATA = Path(__file__).parents[3] / "shared" / "data"

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
    assert round(fleiss_kappa(counted(ratings)), 3) == 0.864


def test_five_crowd_workers() -> None:
    items = bbq()
    five = np.array([answers for answers in items if len(answers) == 5])
    assert len(five) == 2154
    assert round(fleiss_kappa(counted(five)), 3) == 0.863


def test_alpha_needs_no_equal_numbers_of_raters() -> None:
    """With all items, and the few that are not rated five times, alpha is next to kappa: the sample is large."""
    items = bbq()
    widest = max(map(len, items))
    padded = np.array([answers + [np.nan] * (widest - len(answers)) for answers in items])
    assert len(padded) > 2154
    assert krippendorff_alpha(padded) == pytest.approx(0.863, abs=0.002)
    assert krippendorff_alpha(pandalm()) == pytest.approx(fleiss_kappa(counted(pandalm())), abs=1e-3)


def test_the_win_rate_of_a_run_with_a_weak_leash_rises_and_collapses() -> None:
    runs = [
        row
        for row in rows("overopt_direct_alignment/curves.csv.gz")
        if row["method"] == "dpo" and row["model"] == "pythia-2.8b" and float(row["beta"]) == 0.01
    ]
    curve = {round(float(row["kl"])): float(row["win_rate"]) for row in runs}
    assert round(curve[72], 3) == 0.730
    assert round(curve[206], 3) == 0.086
    assert max(curve.values()) > 0.7
