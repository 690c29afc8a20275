"""What a group size buys: against simulation, against every subset, and on real samples."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.plan.groups import SIZES, at_rate, from_counts, from_file

DATA = Path(__file__).parents[5] / "shared" / "data" / "math_group_samples_rm" / "samples.jsonl.gz"


def test_the_worked_numbers() -> None:
    found = at_rate(0.5)
    assert found.of(2).dead == 0.5 and found.of(8).dead == pytest.approx(0.0078, abs=5e-5)
    assert found.of(2).spread == 0.25 and found.of(8).spread == pytest.approx(0.464, abs=5e-4)
    assert found.of(2).cost == 4.0 and found.of(2).noise == 1.0


@pytest.mark.parametrize("rate", [0.03, 0.4, 0.9])
def test_shares_are_those_of_simulated_groups(rate: float) -> None:
    rng = np.random.default_rng(5)
    for size in (2, 8, 32):
        drawn = rng.random((20_000, size)) < rate
        row = at_rate(rate).of(size)
        assert row.dead == pytest.approx(float((drawn.all(1) | ~drawn.any(1)).mean()), abs=0.015)
        assert row.spread == pytest.approx(float(drawn.std(1).mean()), abs=0.01)


def test_counted_shares_are_those_of_every_subset() -> None:
    samples = [[0, 0, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]]
    found = from_counts([sum(each) for each in samples], [6, 6, 6], sizes=(2, 3, 4))
    for size in (2, 3, 4):
        subsets = [[len(set(part)) == 1 for part in combinations(each, size)] for each in samples]
        assert found.of(size).dead == pytest.approx(float(np.mean([np.mean(each) for each in subsets])))
        assert found.of(size).how == "counted"


def test_counting_is_unbiased_where_an_estimated_rate_is_not() -> None:
    rng = np.random.default_rng(9)
    rates = rng.beta(0.4, 0.6, size=4_000)
    right = rng.binomial(8, rates)
    truth = float((rates**4 + (1 - rates) ** 4).mean())
    counted = from_counts([int(k) for k in right], [8] * len(right)).of(4).dead
    guessed = float(((right / 8) ** 4 + (1 - right / 8) ** 4).mean())
    assert counted == pytest.approx(truth, abs=0.015)
    assert abs(guessed - truth) > 2 * abs(counted - truth)


def test_sizes_beyond_the_samples_are_extrapolated_and_say_so() -> None:
    rng = np.random.default_rng(3)
    rates = rng.beta(0.7, 1.1, size=6_000)
    found = from_counts([int(k) for k in rng.binomial(8, rates)], [8] * len(rates))
    assert [row.how for row in found.rows] == ["counted"] * 3 + ["extrapolated"] * 3
    truth = float((rates**32 + (1 - rates) ** 32).mean())
    assert found.of(32).dead == pytest.approx(truth, abs=0.03)


def test_the_size_to_take_follows_the_rate() -> None:
    assert [at_rate(rate).size for rate in (0.5, 0.3, 0.1, 0.9)] == [8, 8, 32, 32]
    hopeless = at_rate(0.005)
    assert hopeless.size is None and "too hard" in hopeless.why
    assert at_rate(0.0).size is None and at_rate(0.0).of(2).cost == float("inf")
    assert "too easy" in at_rate(0.999).why
    for rate in np.linspace(0.01, 0.99, 40):
        found = at_rate(float(rate))
        dead = [row.dead for row in found.rows]
        assert dead == sorted(dead, reverse=True)
        assert found.size is None or found.of(found.size).dead < 0.5


def test_real_samples_say_that_the_prompts_are_too_easy() -> None:
    if not DATA.exists():
        pytest.skip("the shared data are not beside the repository")
    found = from_file(DATA, "idx", "correct")
    assert found.rate == pytest.approx(0.91, abs=0.005) and found.prompts == 100
    assert found.of(8).dead == pytest.approx(0.90, abs=1e-9)  # 10 groups are mixed
    assert found.size is None and "too easy" in found.why


def test_files_that_cannot_be_judged_say_why(tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    for rows, says in (
        ([{"prompt": "a", "score": 1}], "no correct"),
        ([{"prompt": "a", "correct": 0.5}, {"prompt": "a", "correct": 1}], "right or wrong"),
        ([{"prompt": "a", "correct": 1}, {"prompt": "b", "correct": 0}], "two samples"),
    ):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        with pytest.raises(AttachError, match=says):
            from_file(file)
    with pytest.raises(ValueError, match="between 0 and 1"):
        at_rate(1.5)


def test_what_nobody_checked_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    file.write_text("prompt,correct\na,True\na,False\na,\nb,1\nb,0.0\n")
    found = from_file(file, sizes=(2,))
    assert found.rate == 0.5 and found.samples == 2 and found.of(2).dead == 0.0
    assert SIZES[0] == 2
