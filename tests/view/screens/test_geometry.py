"""What the page is told from the rollouts themselves: scatter plots, the heat map, phrases, and runs side by side."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.view.as_sent import as_sent

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.rundir.journal import Event, Journal, event, reading_event
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens import compare as compare_screen
from tiltmeter.view.screens import phrases as phrases_screen
from tiltmeter.view.screens import rollout_plots as rollout_plots_screen
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import MeasuredStep, evenly_spaced, measured_steps

compare, phrases = as_sent(compare_screen.compare), as_sent(phrases_screen.phrases)
geometry = as_sent(rollout_plots_screen.geometry)

GROUPS, SIZE = 8, 8
ROWS = GROUPS * SIZE


def ordinary(step: int) -> dict[str, Any]:
    """A step whose reward follows length from step 20 on; prompt 0 is mastered: its rewards are all equal."""
    rng = np.random.default_rng(step)
    group = np.repeat(np.arange(GROUPS), SIZE)
    length = rng.integers(5, 50, ROWS)
    reward = np.where(group == 0, 1.5, 0.1 * group + (0.02 * length if step >= 20 else rng.random(ROWS)))
    said = "i love this one " if step >= 30 else ""
    return {
        "group": group,
        "reward": reward,
        "length": length,
        "gold": np.where(rng.random(ROWS) < 0.5, rng.random(ROWS).round(), np.nan),
        "prompt": [f"what is {one} plus one ?" for one in group],
        "completion": [f"{said}number {row} is {row * step} of course" for row in range(ROWS)],
    }


def write(
    path: Path, columns: Callable[[int], dict[str, Any]] | None = ordinary, *, steps: int = 40, shift: float = 0.0,
    alarm: bool = False,
) -> RunReader:  # fmt: skip
    """A run with rollouts and the events a monitor would have written about them."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="test", ranks=1, resume_step=None)
    journal = Journal(path / "events")
    facts: dict[str, Any] = {"state": "open", "facts": run.attempt(attempt), "detectors": [], "gold": None}
    journal.commit([Event("attempt", attempt, 0, facts, "open")])
    rng = np.random.default_rng(0)
    for step in range(steps):
        if columns is not None:
            run.write(from_columns(step, **columns(step)), 0, {})
        level = 0.5 + shift * max(0, step - steps // 2) / steps + rng.normal(0.0, 0.02)
        told = [Reading(attempt, step, name, level, ROWS, 0.02) for name in ("reward.mean", "gold.mean")]
        told.append(Reading(attempt, step, "length.mean", 100.0, ROWS, 1.0))
        journal.commit([reading_event(attempt, step, told, [], "config")])
        done = {
            "rows": ROWS,
            "ranks": [[0, 0]],
            "sha256": "",
            "missing": [],
            "unreadable": [],
            "seen": step + 1,
            "lost": {},
        }
        journal.commit([Event("step_done", attempt, step, done | {"labels": 32, "written": 0.0}, f"done-{step}")])
    if alarm:
        raised = Alarm(attempt, "gold.slope", "gold_loss", "alarm", "down", 30, 30, 20, 18, 22, 130.0, 125.0)
        journal.commit([event(raised, attempt, 30, "config")])
    journal.close()
    book = RunReader(run)
    book.refresh()
    return book


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    return write(tmp_path_factory.mktemp("usual") / "run")


def test_length_against_reward_is_drawn_before_and_after_the_onset(tmp_path: Path) -> None:
    found = geometry(write(tmp_path / "run", steps=36, alarm=True))
    json.dumps(found, allow_nan=False)
    scatter = found["scatter"]
    assert [era["label"] for era in scatter["eras"]] == ["before step 20", "from step 20 on"]
    assert all(len(era["x"]) == len(era["y"]) == len(era["ids"]) == 1000 for era in scatter["eras"])
    before, after = (np.corrcoef(era["x"], era["y"])[0, 1] for era in scatter["eras"])
    assert abs(before) < 0.2 < 0.4 < after
    assert f"{after:.2f} from step 20 on" in scatter["sentence"]
    rising = next(line for line in scatter["medians"] if line["era"] == 1)
    assert rising["y"][0] < rising["y"][-1]
    attempt, step, row = map(int, scatter["eras"][1]["ids"][5].split("-"))
    stored = ordinary(step)
    assert attempt == 0
    assert stored["length"][row] == scatter["eras"][1]["x"][5]
    assert stored["reward"][row] == pytest.approx(scatter["eras"][1]["y"][5], rel=1e-3)


def test_only_labelled_completions_are_drawn_against_gold_and_quarters_without_an_alarm(tmp_path: Path) -> None:
    found = geometry(write(tmp_path / "run", steps=8))["gold_scatter"]
    assert [era["label"] for era in found["eras"]] == [f"steps {low} to {low + 1}" for low in (0, 2, 4, 6)]
    drawn = sum(len(era["x"]) for era in found["eras"])
    assert drawn == sum(int(np.isfinite(ordinary(step)["gold"]).sum()) for step in range(8))


def test_the_heat_map_marks_groups_whose_rewards_are_equal_and_leaves_blanks_blank(usual: RunReader) -> None:
    heat = geometry(usual)["heat"]
    assert "mean reward at the start" in heat["sentence"]
    assert len(heat["rows"]) == len(heat["cells"])
    assert {len(line) for line in heat["cells"]} == {len(heat["steps"])}
    flat = [value for line in heat["cells"] for value in line]
    assert -1.0 in flat
    assert 0.0 not in flat
    assert heat["most"] == max(value for value in flat if value is not None)
    easiest = heat["cells"][0]  # prompt 0 is paid 1.5 throughout
    assert set(easiest) <= {-1.0, None}
    assert all(value is None or value > 0.0 for value in heat["cells"][-1])


def test_prompts_that_never_repeat_are_ordered_by_rank_in_their_step(tmp_path: Path) -> None:
    def fresh(step: int) -> dict[str, Any]:
        return ordinary(step) | {"prompt": [f"{step} and {row // SIZE}" for row in range(ROWS)]}

    heat = geometry(write(tmp_path / "run", fresh, steps=8))["heat"]
    assert "Prompts do not repeat" in heat["sentence"]
    assert len(heat["rows"]) == GROUPS


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    def bare(step: int) -> dict[str, Any]:
        return {"group": np.arange(ROWS), "reward": np.ones(ROWS)}

    found = geometry(write(tmp_path / "run", bare, steps=3))
    assert "length" in found["scatter"]["empty"]
    assert "answered once" in found["heat"]["empty"]
    for file in (tmp_path / "run" / "rollouts" / "0").glob("*.parquet"):
        file.unlink()
    gone = geometry(write(tmp_path / "other", bare, steps=0))
    assert "deleted, or nothing was measured" in gone["heat"]["empty"]


def test_a_damaged_file_is_left_out(tmp_path: Path) -> None:
    book = write(tmp_path / "run", steps=6)
    (tmp_path / "run" / "rollouts" / "0" / "000003-0.parquet").write_bytes(b"PAR1 nothing")
    found = geometry(book)
    assert not any(one.startswith("0-3-") for era in found["scatter"]["eras"] for one in era["ids"])
    assert found["scatter"]["empty"] == ""


def test_a_range_reads_only_its_steps_and_a_stride_keeps_steps_when_the_run_grows(tmp_path: Path) -> None:
    book = write(tmp_path / "run", steps=12)
    found = geometry(book, 4, 7)["scatter"]
    assert {int(one.split("-")[1]) for era in found["eras"] for one in era["ids"]} == {4, 5, 6, 7}
    assert [at.step for at in measured_steps(book, 4, 7)] == [4, 5, 6, 7]
    long = [MeasuredStep(0, step, [[0, 0]], 1) for step in range(1000)]
    once, later = ({at.step for at in evenly_spaced(long[:size], 60)} for size in (900, 960))
    assert len(later) <= 61
    assert len(once & later) >= len(once) - 1


def test_phrases_say_since_when_and_what_they_are_paid(usual: RunReader) -> None:
    book = usual
    found = phrases(book)
    json.dumps(found, allow_nan=False)
    row = found["rows"][0]
    assert "i love this one" in row["text"]
    assert (row["share"], row["share_before"]) == (1.0, 0.0)
    assert 29 <= row["first"] <= 32
    assert len(row["trend"]) <= 24
    assert (row["trend"][0], row["trend"][-1]) == (0.0, 1.0)
    assert row["reward_with"] == pytest.approx(ordinary(39)["reward"].mean(), rel=1e-3)
    assert row["reward_without"] is None
    assert row["id"].startswith("0-39-")
    assert found["against"] == "the run's own first steps"
    assert phrases(book, 10)["rows"] == []
    assert "no measured completions" in phrases(book, 999)["empty"]


def test_runs_that_part_are_told_from_where_on_and_equal_ones_are_not(tmp_path: Path) -> None:
    one = write(tmp_path / "one", None, steps=80)
    same = write(tmp_path / "same", None, steps=80)
    other = write(tmp_path / "other", None, steps=80, shift=-0.8)
    apart = compare([one, other])
    json.dumps(apart, allow_nan=False)
    gold = next(measure for measure in apart["measures"] if measure["name"] == "gold")
    assert 40 <= gold["difference"]["first"] <= 60
    assert gold["difference"]["y"][-1] == pytest.approx(-0.38, abs=0.05)
    assert gold["difference"]["low"][-1] < gold["difference"]["y"][-1] < gold["difference"]["high"][-1] < 0.0
    assert apart["diverged"].endswith(f"step {gold['difference']['first']:.0f}")
    assert compare([one, same])["diverged"] == ""
    third = compare([one, same, other])
    assert "other against" in third["diverged"], "both runs are named"
    assert len(third["runs"]) == 3


def test_tokens_are_an_axis_and_prompts_of_all_runs_stand_side_by_side(tmp_path: Path) -> None:
    one, other = write(tmp_path / "one", steps=10), write(tmp_path / "other", steps=20)
    found = compare([one, other], "tokens")
    reward = found["measures"][0]["runs"]
    assert reward[0]["x"][:2] == [100.0 * ROWS, 200.0 * ROWS]
    assert len(found["prompts"]) == GROUPS
    said = found["prompts"][0]["said"]
    assert [answer["run"] for answer in said] == [0, 1]
    assert [answer["step"] for answer in said] == [9, 19]
    assert found["config"] == []
    assert found["same"] > 2
    with pytest.raises(KeyError, match="no such"):
        compare([one, other], "step", "no such")


FIRST = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.rollout_plots import geometry
from tiltmeter.view.screens.phrases import phrases, preload_kernels
from tiltmeter.stats import numba_jit
from tiltmeter.rundir.store import RunDirectory

book = RunReader(RunDirectory(Path(sys.argv[1])))
book.refresh()
assert geometry(book).scatter.empty == ""
print("pandas" if Path(sys.argv[2], "asked").exists() else "none")
preload_kernels()
import gc
known = [one for one in gc.get_objects() if isinstance(one, numba_jit._Kernel)]
before = {one: len(one.compiled.signatures) for one in known if one.compiled is not None}
assert phrases(book).rows
after = {one: len(one.compiled.signatures) for one in known if one.compiled is not None}
print(len(before), before == after)
"""


def test_reading_rollouts_needs_no_pandas_and_phrases_are_quick_once_warm(usual: RunReader, tmp_path: Path) -> None:
    (tmp_path / "pandas.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('asked').touch()\nraise ImportError\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", FIRST, str(usual.run.path), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert made.stderr == ""
    pandas, loaded = made.stdout.splitlines()
    assert pandas == "none"
    count, same = loaded.split()
    assert int(count) == 2  # the one that splits words and the one that counts phrases
    assert same == "True"
