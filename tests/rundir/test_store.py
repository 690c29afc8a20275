"""The run directory: exact round trips, newer files, packing, verifying, purging."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tiltmeter.data.batches import from_columns, join
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.columns import TEXT_LIMIT, to_table
from tiltmeter.rundir.maintenance import pack, purge, verify
from tiltmeter.rundir.parquet import encode
from tiltmeter.rundir.pinned_prompts import list_snapshots, make_snapshot, write_snapshot
from tiltmeter.rundir.seal import SealedFile, seal
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.testing import sample_batch


def run_with(path: Path, batches: list[RolloutBatch], ranks: int = 1) -> RunDirectory:
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="x", ranks=ranks, resume_step=None)
    for batch in batches:
        run.write(replace(batch, attempt=attempt), 0, {"counters": {"seen": 1, "written": 1}})
    run.close_rank(attempt, 0, {"seen": len(batches)})
    return run


def read_back(run: RunDirectory, step: int) -> RolloutBatch:
    [file] = run.find(0, step)
    return run.read(file)[0]


def same(one: Any, two: Any) -> bool:
    if one is None or two is None:
        return one is two
    if hasattr(one, "offsets"):
        return np.array_equal(one.values, two.values, equal_nan=True) and np.array_equal(one.offsets, two.offsets)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return bool(one == two)


def test_every_column_comes_back_as_it_was(tmp_path: Path) -> None:
    batch = replace(sample_batch([3, 1, 4], seed=5), scalars={"loss": 0.25}, fingerprint="abc")
    run = run_with(tmp_path / "run", [batch])
    found = read_back(run, batch.step)
    for name in (field.name for field in fields(RolloutBatch)):
        assert same(getattr(batch, name), getattr(found, name)), name


def test_hostile_text_and_numbers_come_back_exactly(tmp_path: Path) -> None:
    texts = ["\ud800 lone", "nul \x00", "\x1b[2J", "\u202e", "", None, "é" * 10, "\U0010ffff"]
    rewards = [1, None, float("nan"), float("inf"), -float("inf"), 10**400, "7", TimeoutError("judge")]
    batch = from_columns(0, [0] * 8, completion=texts, reward=rewards, rewards={"<lambda>": rewards, "x_flag": rewards})
    found = read_back(run_with(tmp_path / "run", [batch]), 0)
    assert list(found.completion or ()) == texts
    words = ["ok", "missing", "nan", "+inf", "-inf", "overflow", "type", "infra"]
    assert [FLAGS[code] for code in found.flags["reward"]] == words
    assert found.reward is not None
    assert np.isnan(found.reward[1:]).all(), "instruments must see NaN wherever a value is not ok"
    assert set(found.rewards) == set(batch.rewards)


def test_text_over_the_limit_keeps_both_ends_and_says_so(tmp_path: Path) -> None:
    long = "é" * TEXT_LIMIT + "end"
    batch = from_columns(0, [0, 0], completion=[long, "short"])
    run = run_with(tmp_path / "run", [batch])
    found = read_back(run, 0)
    assert found.completion is not None
    kept = found.completion[0]
    assert kept is not None
    assert kept.endswith("end")
    assert len(kept.encode()) <= TEXT_LIMIT
    assert [FLAGS[code] for code in found.flags["completion"]] == ["capped", "ok"]


@pytest.mark.parametrize("precision", ["round12", "fp16"])
def test_rounded_log_probabilities_are_close_and_keep_odd_values(tmp_path: Path, precision: str) -> None:
    values = [[-0.123456789, float("-inf"), float("nan")]]
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    run.write(from_columns(0, [0], logprob=values), 0, {}, precision)
    found = read_back(run, 0).logprob
    assert found is not None
    assert found.values[0] == pytest.approx(-0.123456789, rel=1e-3)
    assert np.isneginf(found.values[1])
    assert np.isnan(found.values[2])


def test_an_empty_batch_and_a_batch_of_few_columns_come_back(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [from_columns(0, []), from_columns(1, [5])])
    assert len(read_back(run, 0)) == 0
    assert read_back(run, 1).reward is None


def test_a_large_step_is_cut_between_prompt_groups(tmp_path: Path) -> None:
    rows = 600
    batch = from_columns(0, np.repeat(np.arange(rows // 4), 4), length=np.full(rows, 3000), reward=np.zeros(rows))
    run = run_with(tmp_path / "run", [batch])
    [file] = run.find(0, 0)
    parquet = SealedFile(pa.py_buffer(file.path.read_bytes()), "x").file
    sizes = [parquet.metadata.row_group(i).num_rows for i in range(parquet.num_row_groups)]
    assert len(sizes) > 2
    assert all(size % 4 == 0 for size in sizes)
    assert same(read_back(run, 0).group, batch.group)


def test_packing_keeps_every_value_and_the_replay(tmp_path: Path) -> None:
    batches = [sample_batch([2, 3], seed=seed) for seed in range(20)]
    batches[3] = from_columns(3, [])  # an empty step
    batches[4] = from_columns(
        4, [1, 1], reward=[1, None], completion=["\ud800", "x"]
    )  # other columns than its neighbours
    run = run_with(tmp_path / "run", batches)
    watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.poll()
    watch.close()
    before = {batch.step: read_back(run, batch.step) for batch in batches}
    assert pack(run) == 20
    assert [path.name for path in (run.path / "rollouts" / "0").glob("*.parquet")] == []
    fresh = RunDirectory(run.path)
    for step, expected in before.items():
        found = read_back(fresh, step)
        for name in (field.name for field in fields(RolloutBatch)):
            assert same(getattr(expected, name), getattr(found, name)), (step, name)
    assert verify(fresh) == []
    assert replay(fresh, Config.standard()).difference is None


def test_unknown_columns_and_keys_of_a_newer_version_survive(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [sample_batch([2], seed=1)])
    identity = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**identity, "from_the_future": [1]}))
    assert run.identity()["from_the_future"] == [1]
    for step in (50, 51):
        table, facts = to_table(from_columns(step, [0, 0], reward=[1.0, 2.0]))
        table = table.append_column("hue", pa.array(["red", None]))
        facts = {"format": 1, "attempt": 0, "step": step, "rank": 0, "rows": 2, "mood": "blue", **facts}
        publish(run.step_path(0, step, 0), seal(encode(table, facts, [(0, 2)])))
    assert read_back(run, 50).reward is not None
    pack(run)
    [packed] = (run.path / "rollouts" / "0" / "packed").glob("*.parquet")
    sealed = SealedFile(pa.memory_map(str(packed)).read_buffer(), "x")
    assert sealed.read()["hue"].to_pylist()[-4:] == ["red", None, "red", None]
    fresh = RunDirectory(run.path)
    [file] = fresh.find(0, 51)
    assert fresh.read(file)[1]["mood"] == "blue"
    line = journal.Event("note", 0, 1, {"note": "x", "new": 1}, "id", extra={"later": True}).line()
    [parsed] = journal.parse(line)
    assert parsed.line() == line


def test_an_event_of_an_unknown_kind_is_kept_and_disturbs_nobody(tmp_path: Path) -> None:
    from tiltmeter.verdict.verdict import judge_run

    run = run_with(tmp_path / "run", [sample_batch([2, 2], seed=1)])
    events = run.path / "events" / "0.jsonl"
    events.write_bytes(journal.Event("prophecy", 0, 0, {"doom": 1}, "p", seq=0).line())
    watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.poll()
    watch.close()
    _, story, found = judge_run(run)
    assert story.steps == 1
    assert found[0].kind == "prophecy"


def test_a_newer_format_is_refused_with_the_way_out(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [])
    (run.path / "run.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(StoreError, match="pip install --upgrade tiltmeter"):
        run.identity()


def test_a_file_under_another_steps_name_is_refused(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [sample_batch([2], seed=1)])
    [file] = run.find(0, 1)
    file.path.rename(run.step_path(0, 7, 0))
    [moved] = run.find(0, 7)
    with pytest.raises(StoreError, match="another step"):
        run.read(moved)


def test_a_step_written_twice_keeps_the_first_and_is_reported(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [from_columns(0, [0], reward=[1.0]), from_columns(0, [0], reward=[2.0])])
    watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.poll()
    watch.close()
    assert read_back(run, 0).reward == np.array([1.0])
    faults = [event.data["error"] for event in journal.read_events(run.path / "events") if event.kind == "fault"]
    assert any("written twice" in fault for fault in faults)


def test_verify_notices_a_swapped_file_and_a_missing_one(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [sample_batch([2], seed=seed) for seed in (1, 2, 3)])
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    assert verify(run) == []
    [one] = run.find(0, 1)
    [two] = run.find(0, 2)
    one.path.unlink()
    run.write(from_columns(1, [0], reward=[5.0]), 0, {})
    two.path.unlink()
    problems = " ".join(verify(run))
    assert "not the bytes that were measured" in problems
    assert "files that are gone" in problems


def test_purge_leaves_no_byte_of_a_completion_and_keeps_the_readings(tmp_path: Path) -> None:
    secret = "correct horse battery staple"
    batches = [from_columns(step, [0, 0], reward=[0, 1], completion=[secret, secret]) for step in range(6)]
    run = run_with(tmp_path / "run", batches)
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    for step in (1, 4):
        write_snapshot(run, make_snapshot(0, step, "evaluation", ["a prompt"], [secret]))
    assert purge(run, before=3) == 4
    assert [file.step for file in run.files(0)] == [3, 4, 5]
    assert [place.step for place in list_snapshots(run)] == [4]
    assert verify(run) == []
    purge(run)
    for path in run.path.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()
    assert any(event.kind == "reading" for event in journal.read_events(run.path / "events"))


def test_symbolic_links_in_a_run_directory_are_not_followed(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", [sample_batch([2], seed=1)])
    outside = run_with(tmp_path / "outside", [sample_batch([2], seed=2)])
    [target] = outside.find(0, 2)
    run.step_path(0, 2, 0).symlink_to(target.path)
    assert [file.step for file in run.files(0)] == [1]


def test_ranks_with_their_own_groups_are_not_mixed_and_shared_groups_are() -> None:
    one = from_columns(0, [0, 0, 1], reward=[1.0, 2.0, 3.0])
    two = from_columns(0, [0, 1, 1], reward=[4.0, 5.0, 6.0])
    assert np.diff(join([one, two], shared_groups=False).starts).tolist() == [2, 1, 1, 2]
    shared = join([one, two], shared_groups=True)
    assert shared.reward is not None
    assert np.diff(shared.starts).tolist() == [3, 3]
    assert shared.reward.tolist() == [1.0, 2.0, 4.0, 3.0, 5.0, 6.0]


def test_a_column_that_one_rank_lacks_is_absent_and_its_components_are_missing() -> None:
    one = from_columns(0, [0], reward=[1.0], rewards={"a": [1.0]}, completion=["x"])
    two = from_columns(0, [0], reward=[2.0], rewards={"b": [2.0]})
    whole = join([one, two], shared_groups=False)
    assert whole.completion is None
    assert np.array_equal(whole.rewards["a"], [1.0, np.nan], equal_nan=True)
    assert FLAGS[whole.flags["rewards.a"][1]] == "missing"


def test_chat_messages_are_stored_as_what_was_said() -> None:
    """As JSON a line break is two characters, and no reading of the text sees it."""
    chat = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "# Because\n- so"}]
    tool = [{"role": "assistant", "content": None, "tool_calls": [1]}]
    batch = from_columns(0, [0, 0, 0], completion=[chat, tool, {"content": "yes"}])
    assert batch.completion is not None
    assert batch.completion == ("# Because\n- so", "?()", "yes")


@pytest.mark.parametrize("content", ["", "[]", '{"dropped": "many"}', '{"seen": -1}', '{"seen": NaN}'])
def test_counters_that_cannot_be_read_close_a_rank_and_are_told(tmp_path: Path, content: str) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=2, resume_step=None)
    run.close_rank(0, 0, {"seen": 3, "of a newer version": [1]})
    folder = run.path / "rollouts" / "0"
    (folder / "1.counters.json").write_text(content)
    (folder / "2.trouble.json").symlink_to("0.counters.json")
    run.report_trouble(0, 0, "disk full")
    assert run.ended(0) and run.counters(0) == {0: {"seen": 3, "of a newer version": [1]}, 1: {}}
    told = run.troubles(0)
    assert list(told) == ["0.trouble.json", "2.trouble.json", "1.counters.json"]
    assert (told["0.trouble.json"], told["2.trouble.json"]) == ("disk full", "a symbolic link")
    watch = MonitorLoop(run, Config.standard(), strict=True)
    while watch.poll():
        pass
    watch.close()
    faults = [event.data["error"] for event in journal.read_events(run.path / "events") if event.kind == "fault"]
    assert any(error.startswith("1.counters.json: ") for error in faults)
