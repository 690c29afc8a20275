"""The check of groups: planted ones are shown with sizes, prompts and intervals, and written for a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.command_line import tiltmeter

from tiltmeter.gold.rater_groups import read_groups
from tiltmeter_workbench.preferences.checks import rater_groups
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons


def planted(seed: int = 0, items: int = 200) -> Comparisons:
    """Six raters like the longer answer to four of ten prompts that four others want short; on the rest all agree."""
    rng = np.random.default_rng(seed)
    contested = rng.random(items) < 0.4
    wants = rng.integers(0, 2, items)  # 1: the first is better
    longer = np.where(contested, 1, rng.integers(0, 2, items))  # where they differ the first is the longer one
    truths = np.stack([np.where(contested, 1, wants)] * 6 + [np.where(contested, 0, wants)] * 4, 1)
    votes = np.where(rng.random(truths.shape) < 0.9, truths, 1 - truths).astype(float)
    votes[rng.random(votes.shape) < 0.3] = np.nan
    first, second = (["word " * (12 if one == side else 4) for one in longer.tolist()] for side in (1, 0))
    names = [f"rater{number}" for number in range(10)]
    return Comparisons([f"prompt {i}" for i in range(items)], first, second, votes, names)


def test_groups_are_shown_with_sizes_intervals_and_prompts() -> None:
    check = rater_groups.check(planted(), alpha=0.05, seed=0)
    assert check.state == "known"
    assert [row["raters"] for row in check.rows] == [6, 4]
    assert check.low < 0.4 < check.high
    assert check.facts["members"] == {"1": [f"rater{n}" for n in range(6)], "2": [f"rater{n}" for n in range(6, 10)]}
    longer = [row["longer_wins"] for row in check.rows]
    assert longer[0] > 0.6 > 0.5 > longer[1]
    inside, outside = ([row[name] for row in check.rows] for name in ("agree_inside", "agree_outside"))
    assert min(inside) > max(outside)
    assert len(check.examples) == 5
    assert all("group 1: first; group 2: second" in example.why for example in check.examples)


def test_three_raters_are_too_few_to_tell() -> None:
    pairs = planted()
    few = Comparisons(pairs.prompts, pairs.first, pairs.second, pairs.votes[:, :3], pairs.raters[:3])
    check = rater_groups.check(few, alpha=0.05, seed=0)
    assert (check.state, check.sentence.endswith("there are 3 raters.")) == ("cannot tell", True)


def test_the_command_writes_groups_that_a_run_can_read(tmp_path: Path) -> None:
    pairs, data = planted(), tmp_path / "votes.jsonl"
    with data.open("w") as file:
        for i, prompt in enumerate(pairs.prompts):
            for r, name in enumerate(pairs.raters):
                if np.isfinite(pairs.votes[i, r]):
                    winner = "a" if pairs.votes[i, r] == 1.0 else "b"
                    row = {"prompt": prompt, "a": pairs.first[i], "b": pairs.second[i], "winner": winner, "rater": name}
                    file.write(json.dumps(row) + "\n")
    columns = "prompt=prompt,first=a,second=b,votes=winner,rater=rater"
    path = tmp_path / "groups.json"
    result = tiltmeter("data", "preferences", data, "--map", columns, "--groups", path, "--json")
    groups = read_groups(path)
    assert sorted(groups.values()) == ["1"] * 6 + ["2"] * 4
    names = {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}
    assert names["groups"]["facts"]["groups"] == 2
