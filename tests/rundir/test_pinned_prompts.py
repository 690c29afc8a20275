"""Pinned prompts: files that keep text exactly and are never replaced, a hostile folder, and what the page shows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.view.as_sent import as_sent

from tiltmeter import Launch, Options, open_run
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.pinned_prompts import (
    FILE_BYTES,
    PROMPTS,
    TEXT_BYTES,
    PinnedSnapshot,
    SnapshotFile,
    list_snapshots,
    make_snapshot,
    read_snapshot,
    shorten,
    write_snapshot,
)
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens import pinned_prompts as pinned_prompts_screen
from tiltmeter.view.screens.pinned_prompts import HOW
from tiltmeter.view.screens.run_reader import RunReader

pinned = as_sent(pinned_prompts_screen.pinned)

HOSTILE = "\ud800 <img src=x onerror=alert(1)>\x1b]0;t\x07\u202e\x00 \N{PILE OF POO}"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def measured(path: Path) -> None:
    watch = MonitorLoop(RunDirectory(path), Config.standard(), strict=True)
    while watch.poll():
        pass
    watch.close()


def trained(path: Path, prompts: list[list[str]], **options: Any) -> None:
    """A run whose step k asks `prompts[k]`, two completions each."""
    with open_run(path, monitor=False, options=Options(strict=True), **options) as opened:
        for step, asked in enumerate(prompts, options.get("resume_step") or 0):
            twice = [prompt for prompt in asked for _ in range(2)]
            opened.observe(
                step=step, group=np.repeat(np.arange(len(asked)), 2), reward=np.arange(len(twice), dtype=float),
                prompt=twice, completion=[f"{prompt} at {step}, {row}" for row, prompt in enumerate(twice)],
            )  # fmt: skip


# -- files ----------------------------------------------------------------------------------------------------------


def test_text_comes_back_exactly_as_it_was(run: RunDirectory) -> None:
    made = make_snapshot(0, 7, "evaluation", [HOSTILE, "plain"], ["", HOSTILE * 3], [0.25, None], [None, 1.0])
    write_snapshot(run, made)
    (place,) = list_snapshots(run)
    assert (place.step, place.attempt, place.checkpoint) == (7, 0, False)
    assert read_snapshot(place) == made
    assert place.path.read_bytes().isascii()
    assert set(json.loads(place.path.read_bytes())["rows"][1]) == {"prompt", "completion", "gold"}


def test_the_first_of_a_step_stands_and_a_checkpoint_of_that_step_stands_beside_it(run: RunDirectory) -> None:
    write_snapshot(run, make_snapshot(0, 7, "evaluation", ["a"], ["first"]))
    with pytest.raises(FileExistsError):
        write_snapshot(run, make_snapshot(0, 7, "evaluation", ["a"], ["second"]))
    write_snapshot(run, make_snapshot(0, 7, "checkpoint checkpoint-7", ["a"], ["third"]))
    assert [read_snapshot(place).rows[0].completion for place in list_snapshots(run)] == ["first", "third"]


def test_prompts_and_texts_beyond_the_limits_are_cut(run: RunDirectory) -> None:
    worst = "\x00" * (2 * TEXT_BYTES)
    made = make_snapshot(0, 1, "evaluation", [f"{k}{worst}{k}" for k in range(50)], ["\x01" * TEXT_BYTES] * 50)
    assert len(made.rows) == PROMPTS
    write_snapshot(run, made)
    (place,) = list_snapshots(run)
    assert place.path.stat().st_size < FILE_BYTES and read_snapshot(place) == made


@pytest.mark.parametrize("letter", ["x", "ä", "猫", "\N{PILE OF POO}", "\ud800"])
def test_a_long_text_keeps_its_beginning_and_its_end(letter: str) -> None:
    kept = shorten("begin" + letter * TEXT_BYTES + "end")
    assert kept.startswith("begin" + letter) and kept.endswith(letter + "end") and "characters left out" in kept
    assert TEXT_BYTES - 64 < len(kept.encode("utf-8", "surrogatepass")) <= TEXT_BYTES
    whole = "y" * TEXT_BYTES
    assert shorten(whole) == whole


def changed(row: Any = None, **facts: Any) -> bytes:
    """A stored look at step 7, with something in it that should not be there."""
    rows = [{"prompt": "a", "completion": "b"} | row] if isinstance(row, dict) else [row]
    return json.dumps({"attempt": 0, "step": 7, "source": "evaluation", "rows": rows, **facts}).encode()


ROW = {"prompt": "a", "completion": "b"}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b'"text"', b"null", b"[" * 100_000, b"\xff\xfe", b"{}", b" " * (FILE_BYTES + 1),
        changed(1), changed({"prompt": 1}), changed({"completion": None}), changed({"prompt": "b" * (TEXT_BYTES + 1)}),
        changed({"reward": float("nan")}), changed({"reward": "1"}), changed({"gold": True}),
        changed({"gold": 10**400}), changed({}, rows=[]),
        changed({}, rows=ROW), changed({}, rows=[ROW] * (PROMPTS + 1)), changed({}, source=5),
        changed({}, step=8), changed({}, attempt=1), changed({}, source="checkpoint x"), changed({}, step="7"),
    ],
    ids=range(25),
)  # fmt: skip
def test_a_file_that_is_not_what_it_should_be_is_a_store_error_and_no_page_fails(
    run: RunDirectory, content: bytes
) -> None:
    write_snapshot(run, make_snapshot(0, 3, "evaluation", ["a"], ["said"]))
    (run.path / "pinned" / "0-000007.json").write_bytes(content)
    good, bad = list_snapshots(run)
    assert read_snapshot(good).rows[0].completion == "said"
    with pytest.raises(StoreError, match=r"0-000007\.json"):
        read_snapshot(bad)
    shown = pinned(RunReader(run))
    assert [said["text"] for said in shown["prompts"][0]["said"]] == ["said"]
    assert "0-000007.json" in shown["source"]


def test_names_that_are_none_links_and_folders_are_passed_over(run: RunDirectory, tmp_path: Path) -> None:
    write_snapshot(run, make_snapshot(0, 3, "evaluation", ["a"], ["said"]))
    folder = run.path / "pinned"
    for name in (".0-000004.json.ab12", "0-5.txt", "x-5.json", "٣-٤.json", "0-9999999999999999999.json", "0--5.json"):
        (folder / name).write_bytes((folder / "0-000003.json").read_bytes())
    (folder / "0-000006.json").mkdir()
    os.mkfifo(folder / "0-000008.json")  # reading it would wait for ever
    (tmp_path / "secret.json").write_bytes((folder / "0-000003.json").read_bytes())
    (folder / "0-000009.json").symlink_to(tmp_path / "secret.json")
    assert [place.step for place in list_snapshots(run)] == [3]
    assert read_snapshot(SnapshotFile(3, 0, False, folder / "0-000003.json")).step == 3


# -- a loop of one's own --------------------------------------------------------------------------------------------


def test_a_loop_pins_what_it_evaluates_and_only_rank_0_writes(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "2 + 2?"}]
    for rank in range(2):
        with open_run(
            tmp_path / "run",
            monitor=False,
            options=Options(strict=True),
            launch=Launch(rank=rank, ranks=2, name="x"),
        ) as opened:
            opened.pinned(5, [chat, "b"], [[{"role": "assistant", "content": "4"}], "c"], [1.0, None])
    (place,) = list_snapshots(RunDirectory(tmp_path / "run"))
    assert [(row.prompt, row.completion, row.reward) for row in read_snapshot(place).rows] == [
        ("2 + 2?", "4", 1.0), ("b", "c", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((5, ["a"], ["b", "c"]), "rows"),
        ((-1, ["a"], ["b"]), "steps count"),
        ((5, [], []), "no prompt"),
        ((5, 3, 4), ""),
    ],
)
def test_what_cannot_be_pinned_never_raises_in_training_and_is_said(
    tmp_path: Path, arguments: tuple[Any, ...], why: str
) -> None:
    with open_run(tmp_path / "run", monitor=False) as opened:
        opened.pinned(*arguments)
    store = RunDirectory(tmp_path / "run")
    assert list_snapshots(store) == []
    (told,) = store.troubles(0).values()
    assert "pinned prompts at step" in told and why in told
    with (
        open_run(tmp_path / "strict", monitor=False, options=Options(strict=True)) as opened,
        pytest.raises((TypeError, ValueError)),
    ):
        opened.pinned(*arguments)


def test_a_disabled_run_pins_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILTMETER_DISABLED", "1")
    open_run(tmp_path / "run").pinned(5, ["a"], ["b"])
    assert not (tmp_path / "run").exists()


# -- the page -------------------------------------------------------------------------------------------------------


def test_the_page_shows_the_first_and_the_newest_step_and_six_between(run: RunDirectory) -> None:
    for step in range(0, 300, 10):
        write_snapshot(
            run, make_snapshot(0, step, "evaluation", [HOSTILE, "b"], [f"{HOSTILE}{step}", "same"], [step / 10, None])
        )
    shown = pinned(RunReader(run))
    first, second = shown["prompts"]
    steps = [said["step"] for said in first["said"]]
    assert len(steps) == 8 and steps[0] == 0 and steps[-1] == 290 and steps == sorted(set(steps))
    assert first["prompt"] == HOSTILE and [said["text"] for said in first["said"]] == [f"{HOSTILE}{s}" for s in steps]
    assert [said["reward"] for said in first["said"]] == [step / 10 for step in steps]
    assert {said["reward"] for said in second["said"]} == {None} == {said["gold"] for said in first["said"]}
    assert shown["empty"] == "" and "8 of 30 steps" in shown["source"]
    json.dumps(shown, allow_nan=False)


def test_sampled_and_greedy_answers_to_one_prompt_are_not_put_side_by_side(run: RunDirectory) -> None:
    for step in (0, 10):
        write_snapshot(run, make_snapshot(0, step, "evaluation", ["both", "sampled only"], ["s", "s"]))
    for step in (0, 5, 10):
        write_snapshot(run, make_snapshot(0, step, f"checkpoint checkpoint-{step}", ["both"], ["g"]))
    shown = pinned(RunReader(run))
    said = {item["prompt"]: [(at["step"], at["text"]) for at in item["said"]] for item in shown["prompts"]}
    assert said == {"both": [(0, "g"), (5, "g"), (10, "g")], "sampled only": [(0, "s"), (10, "s")]}
    assert "evaluations" in shown["source"] and "checkpoints" in shown["source"]


def test_what_a_later_attempt_left_behind_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "run"
    trained(path, [["a"]] * 6)
    trained(path, [["a"]] * 4, resume_step=3)
    measured(path)
    run = RunDirectory(path)
    for attempt, step in ((0, 2), (0, 5), (1, 4)):
        write_snapshot(run, make_snapshot(attempt, step, "evaluation", ["a"], [f"attempt {attempt}"]))
    (item,) = pinned(RunReader(run))["prompts"]
    assert [(said["step"], said["text"]) for said in item["said"]] == [(2, "attempt 0"), (4, "attempt 1")]


def test_without_pins_prompts_that_training_repeated_are_shown_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "run"
    trained(path, [["a", "b"], ["c"], ["d"], ["e"], ["b"], ["x"], ["c", "a"], ["y"]])
    measured(path)
    shown = pinned(RunReader(RunDirectory(path)))
    assert (
        shown["source"].startswith("training rollouts, because nothing was pinned") and "run.pinned(" in shown["source"]
    )
    said = {item["prompt"]: [(at["step"], at["text"], at["reward"], at["id"]) for at in item["said"]]
            for item in shown["prompts"]}  # fmt: skip
    assert said == {
        "a": [(0, "a at 0, 0", 0.0, "0-0-0"), (6, "a at 6, 2", 2.0, "0-6-2")],
        "b": [(0, "b at 0, 2", 2.0, "0-0-2"), (4, "b at 4, 0", 0.0, "0-4-0")],
        "c": [(1, "c at 1, 0", 0.0, "0-1-0"), (6, "c at 6, 0", 0.0, "0-6-0")],
    }


def test_where_neither_is_there_the_page_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "run"
    trained(path, [["a"], ["b"], ["c"], ["d"], ["e"], ["f"]])
    measured(path)
    shown = pinned(RunReader(RunDirectory(path)))
    assert shown["prompts"] == [] and shown["source"] == "" and shown["empty"].endswith(HOW)
    assert pinned(RunReader(RunDirectory.create(tmp_path / "new")))["empty"].endswith(HOW)


# -- the command line, as far as no model is needed -----------------------------------------------------------------


def test_prompts_of_a_file_are_lines_or_json(tmp_path: Path) -> None:
    from tiltmeter_workbench.verbs.run.pin import read_prompts

    chat = [{"role": "user", "content": "hello"}]
    (tmp_path / "p.txt").write_text("one\n\ntwo\none\n")
    (tmp_path / "p.jsonl").write_text(f'"one"\n{json.dumps({"prompt": chat})}\n')
    (tmp_path / "p.json").write_text(json.dumps(["one", chat]))
    assert read_prompts(tmp_path / "p.txt") == ["one", "two"]
    assert read_prompts(tmp_path / "p.jsonl") == read_prompts(tmp_path / "p.json") == ["one", chat]
    for name, text in (("q.json", "{}"), ("q.json", "[1]"), ("q.json", "[[1]]"), ("q.jsonl", "{"), ("q.txt", "")):
        (tmp_path / name).write_text(text)
        with pytest.raises(AttachError, match=name):
            read_prompts(tmp_path / name)


def test_a_model_without_a_step_or_a_folder_is_refused_with_the_fix(tmp_path: Path) -> None:
    from tiltmeter_workbench.verbs.run.pin import find_checkpoints, parse_model

    (tmp_path / "model").mkdir()
    (tmp_path / "checkpoint-30").mkdir()
    assert parse_model(f"0={tmp_path / 'model'}")[0] == 0 and parse_model(str(tmp_path / "checkpoint-30"))[0] == 30
    assert find_checkpoints(tmp_path / "tiltmeter") == [(30, tmp_path.resolve() / "checkpoint-30")]
    with pytest.raises(AttachError, match="write --model STEP="):
        parse_model(str(tmp_path / "model"))
    with pytest.raises(AttachError, match="is no folder"):
        parse_model("meta/llama")
    with pytest.raises(AttachError, match="--model"):
        find_checkpoints(tmp_path / "model" / "tiltmeter")


def test_pins_are_named_by_attempt_and_step() -> None:
    assert PinnedSnapshot(2, 40, "evaluation", ()).file == "2-000040.json"
