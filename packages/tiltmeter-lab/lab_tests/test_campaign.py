"""Campaigns: the same runs from the same seed, whatever was interrupted and however many cores there are."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tiltmeter.errors import AttachError, StoreError
from tiltmeter_lab import campaign
from tiltmeter_lab.campaign import CampaignRun, Line
from tiltmeter_lab.worlds.world import World

WORLDS = """
import os
import numpy as np

def turning(rng):
    proxy = rng.normal(size=(4, 16))
    return {"reference": np.full((4, 16), 1 / 16), "proxy": proxy, "gold": 1 / (1 + np.exp(proxy)), "length": 20}

def rising(rng):
    proxy = rng.normal(size=(4, 16))
    return {"reference": np.full((4, 16), 1 / 16), "proxy": proxy, "gold": 1 / (1 + np.exp(-proxy)), "length": 20}

BOTH = [turning, rising]

def contest(world, seed):
    facts = {"seed": seed, "proxy": float(world.proxy.sum()), "steps": world.steps, "gold": [0.5] * world.steps}
    return {"update": world.update, "threads": os.environ.get("OMP_NUM_THREADS"), "process": os.getpid(), **facts}
"""


def contest(world: World, seed: int) -> Line:
    """A stand-in for the real one, which takes a second: what the machinery does is all that matters here."""
    return {"update": world.update, "seed": seed, "proxy": float(world.proxy.sum()), "gold": [0.5] * world.steps}


@pytest.fixture
def worlds(tmp_path: Path) -> str:
    (tmp_path / "outside.py").write_text(WORLDS)
    return f"{tmp_path}/outside.py:BOTH"


def made(folder: Path, worlds: str, runs: int = 3, seed: int = 1, **options: object) -> list[Line]:
    given = {"evaluate": contest, **options}
    return campaign.run(["turning", "rising"], [""], runs, seed, folder, worlds=worlds, **given)  # type: ignore[arg-type]


def test_a_run_depends_on_seed_family_and_index_alone(tmp_path: Path, worlds: str) -> None:
    few = made(tmp_path / "few", worlds, runs=2)
    many = made(tmp_path / "many", worlds, runs=4)
    assert [line for line in many if line["index"] < 2] == few
    assert len({line["proxy"] for line in many}) == len({line["seed"] for line in many}) == 8
    assert made(tmp_path / "other", worlds, runs=2, seed=2) != few


def test_a_campaign_makes_the_worlds_that_its_families_say() -> None:
    from tiltmeter_lab.worlds.families import FAMILIES

    name = next(iter(FAMILIES))
    world, _ = CampaignRun(name, "natural", 3, 7).make_world()
    assert np.array_equal(world.proxy, FAMILIES[name].world(7, 3, "natural").proxy)
    assert world.update == "natural"


def test_update_rules_are_taken_in_turn_within_a_family() -> None:
    tasks = campaign.plan(["a", "b"], ["tilt", "grpo", "ppo"], runs=4, seed=0)
    assert [task.update for task in tasks if task.family == "b"] == ["tilt", "grpo", "ppo", "tilt"]


def test_finished_runs_are_not_made_again_and_a_torn_line_is(tmp_path: Path, worlds: str) -> None:
    whole = made(tmp_path / "whole", worlds)
    calls = []

    def counted(world: World, seed: int) -> Line:
        calls.append(seed)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return contest(world, seed)

    folder = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        made(folder, worlds, evaluate=counted)
    assert len(campaign.read_runs(folder)) == 3
    (shard,) = folder.glob("runs-*.jsonl")
    shard.write_bytes(shard.read_bytes()[:-9])
    assert len(campaign.read_runs(folder)) == 2
    calls[:] = [0] * 10
    assert made(folder, worlds, evaluate=counted) == whole
    assert len(calls) == 14
    assert made(folder, worlds, evaluate=counted) == whole
    assert len(calls) == 14


def test_a_line_damaged_in_the_middle_is_not_silently_made_again(tmp_path: Path, worlds: str) -> None:
    made(tmp_path / "c", worlds)
    (shard,) = (tmp_path / "c").glob("runs-*.jsonl")
    lines = shard.read_text().splitlines(keepends=True)
    shard.write_text("".join([lines[0][:20] + "\n", *lines[1:]]))
    with pytest.raises(StoreError, match="line 1 is damaged"):
        made(tmp_path / "c", worlds)


@pytest.mark.parametrize("changed", ["seed", "code", "worlds_code"])
def test_a_folder_never_mixes_runs_of_two_kinds(
    tmp_path: Path, worlds: str, changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "c", worlds, runs=1)
    if changed == "code":
        monkeypatch.setattr(campaign, "code", lambda: "other")
    if changed == "worlds_code":
        (tmp_path / "outside.py").write_text(WORLDS.replace("(4, 16)", "(3, 16)"))
    with pytest.raises(AttachError, match=f"another {changed}"):
        made(tmp_path / "c", worlds, runs=1, seed=2 if changed == "seed" else 1)


def test_two_processes_make_the_same_lines_as_one(tmp_path: Path, worlds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    import outside  # type: ignore[import-not-found]

    alone = made(tmp_path / "alone", worlds, evaluate=outside.contest)
    seen: list[tuple[int, int]] = []
    both = made(
        tmp_path / "both",
        worlds,
        workers=2,
        evaluate=outside.contest,
        on_progress=lambda done, total, _: seen.append((done, total)),
    )
    assert {line.pop("threads") for line in both} == {"1"}
    assert os.getpid() not in {line.pop("process") for line in both}
    assert [{k: v for k, v in line.items() if k not in ("threads", "process")} for line in alone] == both
    assert "OMP_NUM_THREADS" not in os.environ
    assert seen == [(done, 6) for done in range(7)]
    sys.modules.pop("outside")


def test_a_run_that_fails_in_a_worker_is_heard_and_the_others_are_kept(
    tmp_path: Path, worlds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(
        "def contest(world, seed):\n    if world.family == 'rising':\n        raise ValueError('no labels')\n"
        "    return {'gold': [0.5]}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import failing  # type: ignore[import-not-found]

    with pytest.raises(ValueError, match="no labels"):
        made(tmp_path / "c", worlds, runs=1, workers=2, evaluate=failing.contest)
    assert {family for family, _ in campaign.read_runs(tmp_path / "c")} <= {"turning"}
    sys.modules.pop("failing")


def test_a_result_that_is_not_a_number_is_refused(tmp_path: Path, worlds: str) -> None:
    with pytest.raises(StoreError, match="not a number"):
        made(tmp_path, worlds, evaluate=lambda world, seed: {"regret": float("nan"), "gold": []})


def test_the_gold_curve_is_added_where_the_contest_left_it_out(tmp_path: Path, worlds: str) -> None:
    line = made(tmp_path / "c", worlds, runs=1, evaluate=lambda world, seed: {"steps": np.int64(world.steps)})[1]
    assert line["family"] == "turning"
    assert len(line["gold"]) == line["steps"] == 20
    assert line["gold"][0] > line["gold"][-1]


def test_a_folder_says_what_made_it_and_names_no_machine(tmp_path: Path, worlds: str) -> None:
    for command in ("first", "second", "first"):
        made(tmp_path / "c", worlds, runs=1, facts={"commands": [command], "date": "2030-01-01"})
    text = (tmp_path / "c" / campaign.FACTS).read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["commands"] == ["first", "second"]
    assert json.loads(text)["worlds"] == "outside.py:BOTH"
