"""Any reward function, recorded: workers that do not know the step, and the driver that does."""

from __future__ import annotations

import asyncio
import inspect
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.capture import recorder as recorders
from tiltmeter.adapters.capture import reward_calls
from tiltmeter.adapters.capture.capture import capture
from tiltmeter.adapters.capture.reward_calls import read_call, read_result, reader_for
from tiltmeter.data.records import FLAGS
from tiltmeter.errors import AttachError
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.maintenance import purge
from tiltmeter.rundir.run_path import read_file
from tiltmeter.rundir.staging import staged_rows
from tiltmeter.rundir.staging.assign_steps import StepAssembler
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import RunWatcher

PROMPTS = [f"what is {i} plus 2?" for i in range(4)]


def reward(prompt: str, completion: str) -> float:
    return len(completion) / 10


@pytest.fixture(autouse=True)
def own_launch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test is a start of its own, and closes what it opened."""
    monkeypatch.setenv("TILTMETER_RUN", f"test-{time.time_ns()}")
    yield
    for recorder in recorders._RECORDERS.values():
        recorder.close()
    recorders._RECORDERS.clear()


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def placed(run: RunDirectory, *, over: bool = True) -> dict[int, list[str]]:
    """Completions by step, after everything that can be placed is, with a clock that passes every wait."""
    clock = Hands()
    placing = StepAssembler(run, clock=clock)
    for _ in range(3):
        placing.assemble(over=over)
        clock.now += 60.0
    return stored(run)


def stored(run: RunDirectory) -> dict[int, list[str]]:
    return {
        file.step: sorted(str(text) for text in run.read(file)[0].completion or ())
        for attempt in run.attempts()
        for file in run.files(attempt)
    }


def scored_by(worker: str, step: int) -> list[str]:
    return [f"{worker} says {step} to {row % 4} as {row // 4}" for row in range(8)]


def work(directory: Path, name: str, steps: int, gate: Any, dies_after: int | None) -> None:
    """One worker: scores eight rows a step when the driver lets it, and may be killed."""
    wrapped = capture(reward, directory, seconds=0.05, monitor=False)
    for step in range(steps):
        gate.wait()
        for row, text in enumerate(scored_by(name, step)):
            wrapped(PROMPTS[row % 4], text)
        if dies_after == step:
            deadline = time.monotonic() + 20.0
            counters = wrapped.recorder.counters  # type: ignore[attr-defined]
            while counters["written"] < counters["rows"] and time.monotonic() < deadline:
                time.sleep(0.01)
            gate.wait()
            os._exit(9)
        gate.wait()


def drive(directory: Path, steps: int, dies_after: int | None = None) -> RunDirectory:
    """A driver with two workers in processes of their own, of which the second may die after a step."""
    context = multiprocessing.get_context("fork")
    recorder = capture.open(directory, seconds=0.05, monitor=False)
    assert recorder is not None
    gates = {name: context.Barrier(2) for name in ("ann", "bob")}
    dies = {"ann": None, "bob": dies_after}
    processes = {
        name: context.Process(target=work, args=(directory, name, steps, gate, dies[name]))
        for name, gate in gates.items()
    }
    for process in processes.values():
        process.start()
    for step in range(steps):
        there = [gate for name, gate in gates.items() if dies[name] is None or step <= int(dies[name] or 0)]
        for gate in there:
            gate.wait(30)
        for gate in there:
            gate.wait(30)
        capture.step(step, scalars={"loss": 0.5 + step})
        time.sleep(0.01)
    for process in processes.values():
        process.join(30)
    recorder.close()
    return RunDirectory(directory)


def test_two_workers_and_a_driver_make_the_steps_that_the_driver_says(tmp_path: Path) -> None:
    run = drive(tmp_path / "run", 4)
    assert placed(run) == {step: sorted(scored_by("ann", step) + scored_by("bob", step)) for step in range(4)}
    batch, facts, _ = run.read(run.find(0, 2)[0])
    assert len(batch.starts) - 1 == 4  # prompts, each answered by both workers
    assert batch.scalars["loss"] == 2.5
    assert {"reward_seconds", "reward_error_share", "reward_missing_share"} <= set(batch.scalars)
    assert facts["placed"]["by"] == "boundary"
    assert sum(facts["placed"]["upto"].values()) == 48
    assert not list(staged_rows.staging_folder(run, 0).glob("*.parquet"))  # used rows are not kept twice


def test_a_worker_that_is_killed_loses_nothing_it_wrote_and_counts_nothing_twice(tmp_path: Path) -> None:
    run = drive(tmp_path / "run", 4, dies_after=1)
    both = {step: sorted(scored_by("ann", step) + scored_by("bob", step)) for step in (0, 1)}
    assert placed(run) == both | {step: sorted(scored_by("ann", step)) for step in (2, 3)}


def meet(directory: Path, name: str, gate: Any) -> None:
    gate.wait(30)
    wrapped = capture(reward, directory, 12, monitor=False)
    for row in range(4):
        wrapped(PROMPTS[row], f"{name} {row}")
    gate.wait(30)


def test_of_workers_that_start_at_once_one_opens_the_run(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(3)
    processes = [context.Process(target=meet, args=(tmp_path / "run", name, gate)) for name in ("a", "b", "c")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    run = RunDirectory(tmp_path / "run")
    assert run.attempts() == [0]
    assert placed(run) == {0: [f"{name} {row}" for name in "abc" for row in range(4)]}


def test_a_placing_that_is_killed_anywhere_ends_with_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def rows(run: RunDirectory) -> dict[int, Any]:
        return {file.step: run.read(file)[1]["placed"] for file in run.files(0)}

    def recorded(name: str) -> RunDirectory:
        path = tmp_path / name
        recorder = capture.open(path, seconds=60.0, monitor=False)
        assert recorder is not None
        wrapped = capture(reward, path)
        for step in range(3):
            for row in range(8):
                wrapped(PROMPTS[row % 4], f"{step} {row}")
            recorder.flush()
            recorder.step(staged_rows.StepBoundary(step, time.time()))
        recorder.close()
        return RunDirectory(path)

    whole = recorded("whole")
    expected = placed(whole)
    assert {step: len(texts) for step, texts in expected.items()} == {0: 8, 1: 8, 2: 8}
    removes, links = os.unlink, os.link
    for moment in range(12):
        run, left = recorded(f"run{moment}"), [moment]

        def killed_at(call: Callable[..., Any], left: list[int] = left) -> Callable[..., Any]:
            def at(*args: Any, **kwargs: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed
                return call(*args, **kwargs)

            return at

        with monkeypatch.context() as patch:
            patch.setattr(os, "link", killed_at(links))
            patch.setattr(os, "unlink", killed_at(removes))
            try:
                placed(run)
            except Killed:
                pass
        assert placed(run) == expected
        assert all(sum(told["upto"].values()) == 8 * (step + 1) for step, told in rows(run).items())


def test_a_damaged_or_planted_file_costs_its_own_rows_and_is_told(tmp_path: Path) -> None:
    recorder = capture.open(tmp_path / "run", 2, seconds=60.0, monitor=False)
    assert recorder is not None
    wrapped = capture(reward, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    for part in range(3):
        wrapped("p", f"{part} a")
        wrapped("p", f"{part} b")
        recorder.flush()
    recorder.close()
    middle = staged_rows.staging_folder(run, 0) / f"{recorder.worker}-000001.parquet"
    middle.write_bytes(middle.read_bytes()[:-40])
    (staged_rows.staging_folder(run, 0) / "000007.step.json").write_text(
        '{"end": [], "begin": 0, "rows": 1, "scalars": {}}'
    )
    assert placed(run) == {0: ["0 a", "0 b"], 1: ["2 a", "2 b"]}
    told = " ".join(run.troubles(0).values())
    assert "rows were left out" in told and "000007.step.json" in told


@pytest.mark.parametrize("content", ["[", '{"batch_size": "8"}', '{"seconds": NaN}', '{"driver": 1}', ""])
def test_settings_and_notes_that_cannot_be_read_are_left_out_and_told(tmp_path: Path, content: str) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    staged_rows.make_staging_folder(run, 0)
    folder = staged_rows.staging_folder(run, 0)
    (folder / "capture.json").write_text(content)
    (folder / f"{'a' * 12}.counters.json").symlink_to(folder / "capture.json")
    (folder / f"{'b' * 12}.counters.json").write_text('{"written": "many"}')
    assert placed(run) == {}
    told = run.troubles(0)
    assert "capture.json cannot be read: " in told["settings-were-left-out.trouble.json"]
    assert "Expected `int`, got `str`" in told["a-note-of-a-worker-was-left-out.trouble.json"]
    assert staged_rows.read_settings(folder) == staged_rows.CaptureSettings()


def test_without_a_driver_steps_are_counted(tmp_path: Path) -> None:
    wrapped = capture(reward, tmp_path / "run", 8, monitor=False)
    for row in range(20):
        wrapped(PROMPTS[row % 4], f"answer {row:02}")
    wrapped.recorder.close()  # type: ignore[attr-defined]
    run = RunDirectory(tmp_path / "run")
    texts = [f"answer {row:02}" for row in range(20)]
    assert placed(run) == {0: texts[:8], 1: texts[8:16], 2: texts[16:]}
    assert run.read(run.find(0, 0)[0])[1]["placed"]["by"] == "count"
    assert not run.troubles(0)


def test_a_start_that_goes_back_is_a_new_attempt_with_the_steps_its_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for start, steps in enumerate(([0, 1, 2], [1, 2, 3])):
        monkeypatch.setenv("TILTMETER_RUN", f"{start} {time.time_ns()}")
        recorder = capture.open(tmp_path / "run", monitor=False)
        assert recorder is not None and recorder.attempt == start
        wrapped = capture(reward, tmp_path / "run")
        for step in steps:
            wrapped("p", f"start {start} step {step}")
            capture.step(step)
        recorder.close()
    run = RunDirectory(tmp_path / "run")
    placed(run)
    assert [file.step for file in run.files(0)] == [0, 1, 2]
    assert [file.step for file in run.files(1)] == [1, 2, 3]
    counted = capture(reward, tmp_path / "run", 2, monitor=False)
    counted("p", "one")
    counted("p", "two")
    counted.recorder.close()  # type: ignore[attr-defined]
    placed(run)
    assert [file.step for file in run.files(2)] == [4]  # nobody said where it goes on


def test_without_a_count_steps_are_inferred_from_pauses_and_the_run_says_so(tmp_path: Path) -> None:
    wrapped = capture(reward, tmp_path / "run", monitor=False)
    for step in range(12):  # long pauses and many bursts: a busy machine makes pauses of its own
        for row in range(8):
            wrapped(PROMPTS[row % 4], f"{step} {row}")
        time.sleep(0.3)
    wrapped.recorder.close()  # type: ignore[attr-defined]
    run = RunDirectory(tmp_path / "run")
    assert {step: len(texts) for step, texts in placed(run).items()} == dict.fromkeys(range(12), 8)
    assert run.read(run.find(0, 3)[0])[1]["placed"]["by"] == "inferred"
    assert "8 rows each, told from the pauses" in run.troubles(0)["steps-are-inferred.trouble.json"]


def test_rows_that_know_their_step_need_no_driver(tmp_path: Path) -> None:
    class State:
        global_step = 0

    def paid(prompts: list[str], completions: list[str], answer: list[str], **kwargs: Any) -> list[float]:
        return [float(text in told) for text, told in zip(answer, completions, strict=True)]

    wrapped = capture(paid, tmp_path / "run", monitor=False)
    for step in range(3):
        State.global_step = step
        texts = [f"{step} {row}" for row in range(8)]
        ids = [[1, 2, 3]] * 8
        wrapped(prompts=PROMPTS * 2, completions=texts, answer=["1"] * 8, trainer_state=State(), completion_ids=ids)
    run = RunDirectory(tmp_path / "run")
    wrapped.recorder.flush()  # type: ignore[attr-defined]
    early = placed(run, over=False)
    assert sorted(early) == [1, 2]  # the third may go on
    wrapped.recorder.close()  # type: ignore[attr-defined]
    assert sorted(placed(run)) == [1, 2, 3]
    batch = run.read(run.find(0, 1)[0])[0]
    assert batch.length is not None and batch.length.tolist() == [3] * 8
    assert batch.facts is not None and json.loads(str(batch.facts[0])) == {"answer": "1"}


def test_an_evaluation_between_steps_is_in_no_step(tmp_path: Path) -> None:
    recorder = capture.open(tmp_path / "run", monitor=False)
    assert recorder is not None
    wrapped = capture(reward, tmp_path / "run")
    begin: float | None = None
    for step in range(3):
        wrapped("train", f"train {step}")
        capture.step(step, begin=begin)
        time.sleep(0.002)
        wrapped("held out", f"evaluation {step}")
        time.sleep(0.002)
        begin = time.time()
    recorder.close()
    assert placed(RunDirectory(tmp_path / "run")) == {step: [f"train {step}"] for step in range(3)}


def test_an_async_function_stays_one_and_scores_the_same(tmp_path: Path) -> None:
    async def slow(prompt: str, completion: str) -> dict[str, float]:
        await asyncio.sleep(0.001)
        return {"score": 0.5, "format": 1.0}

    wrapped = capture(slow, tmp_path / "run", 8, monitor=False)
    assert inspect.iscoroutinefunction(wrapped) and wrapped.__name__ == "slow"
    assert inspect.signature(wrapped) == inspect.signature(slow)
    results: list[Any] = []

    async def together() -> None:
        results.extend(await asyncio.gather(*(wrapped(PROMPTS[row % 4], str(row)) for row in range(8))))

    thread = threading.Thread(target=lambda: asyncio.run(together()))
    thread.start()
    thread.join()
    assert results == [{"score": 0.5, "format": 1.0}] * 8
    wrapped.recorder.close()  # type: ignore[attr-defined]
    run = RunDirectory(tmp_path / "run")
    assert placed(run) == {0: sorted(str(row) for row in range(8))}
    assert run.read(run.find(0, 0)[0])[0].rewards["format"].tolist() == [1.0] * 8


def test_an_exception_passes_through_and_is_never_a_reward_of_zero(tmp_path: Path) -> None:
    def fragile(prompt: str, completion: str) -> float | None:
        if completion == "boom":
            raise TimeoutError("the judge does not answer")
        return None if completion == "none" else 1.0

    wrapped = capture(fragile, tmp_path / "run", 4, monitor=False)
    assert (wrapped("a", "fine"), wrapped("a", "none")) == (1.0, None)
    with pytest.raises(TimeoutError, match="does not answer"):
        wrapped("a", "boom")
    wrapped("a", "good")
    counters = wrapped.recorder.counters  # type: ignore[attr-defined]
    wrapped.recorder.close()  # type: ignore[attr-defined]
    assert (counters["calls"], counters["exceptions"], counters["missing"]) == (4, 1, 1)
    run = RunDirectory(tmp_path / "run")
    placed(run)
    batch = run.read(run.find(0, 0)[0])[0]
    assert batch.completion is not None and batch.reward is not None
    flags = dict(zip(batch.completion, (FLAGS[code] for code in batch.flags["reward"]), strict=True))
    assert flags == {"fine": "ok", "none": "missing", "boom": "infra", "good": "ok"}
    assert np.isnan(batch.reward[list(batch.completion).index("boom")])
    assert batch.scalars["reward_error_share"] == batch.scalars["reward_missing_share"] == 0.25


def test_a_call_that_is_not_understood_is_told_and_changes_nothing(tmp_path: Path) -> None:
    def odd(*args: Any, **kwargs: Any) -> float:
        return 7.0

    wrapped = capture(odd, tmp_path / "run", 4, monitor=False)
    assert wrapped(1, 2, 3) == 7.0
    assert wrapped.recorder.counters["unread"] == 1  # type: ignore[attr-defined]
    wrapped.recorder.flush()  # type: ignore[attr-defined]  # a word is written by the thread, not by the call
    (why,) = RunDirectory(tmp_path / "run").troubles(0).values()
    assert "was not recorded" in why and "columns=" in why


def test_what_cannot_work_is_loud_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def three(a: str, b: str, c: str) -> float:
        return 0.0

    with pytest.raises(AttachError, match="columns="):
        capture(three, tmp_path / "run")
    with pytest.raises(AttachError, match="gold of"):
        capture(reward, tmp_path / "run", 4, gold="reward:right")
    with pytest.raises(AttachError, match="batch_size"):
        capture(reward, tmp_path / "run", 0)
    wrapped = capture(
        three, tmp_path / "run", 1, columns={"prompt": "a", "completion": "b", "group": "c"}, monitor=False
    )
    with pytest.raises(AttachError, match=r"combine"):
        capture(reward, tmp_path / "run")
    wrapped("p", "said", "g")
    wrapped.recorder.close()  # type: ignore[attr-defined]
    assert placed(RunDirectory(tmp_path / "run")) == {0: ["said"]}
    monkeypatch.delenv("TILTMETER_RUN")
    monkeypatch.setenv("RAY_RAYLET_PID", "1")
    with pytest.raises(AttachError, match=r"capture\.open"):
        capture(reward, tmp_path / "other")
    monkeypatch.setenv("TILTMETER_DISABLED", "1")
    assert capture(reward, tmp_path / "other") is reward


def test_the_wrapper_costs_microseconds(tmp_path: Path) -> None:
    wrapped = capture(reward, tmp_path / "run", 64, monitor=False)
    costs = []
    for row in range(2000):
        began = time.perf_counter()
        wrapped("a prompt", f"an answer of some length {row}")
        costs.append(time.perf_counter() - began)
    assert np.median(costs) < 200e-6
    counters = wrapped.recorder.counters  # type: ignore[attr-defined]
    wrapped.recorder.close()  # type: ignore[attr-defined]
    assert counters["written"] == counters["rows"] == 2000


class Sample:
    prompt, response, label, group_index, response_length = "p", "said", "l", 3, 1


@pytest.mark.parametrize(
    ("names", "given", "prompt", "completion", "group"),
    [
        (["prompts", "completions", "**kwargs"], {"prompts": ["p"], "completions": ["said"]}, ["p"], ["said"], None),
        (
            ["data_source", "solution_str", "ground_truth", "extra_info"],
            {"data_source": "s", "solution_str": "said", "ground_truth": "4", "extra_info": {"index": 7}},
            None,
            ["said"],
            ["s 7"],
        ),
        (
            ["data_sources", "solution_strs", "ground_truths", "extra_infos"],
            {"solution_strs": ["said"], "extra_infos": [{"question": "p"}]},
            ["p"],
            ["said"],
            None,
        ),
        (
            ["queries", "prompts", "labels"],
            {"queries": ["psaid"], "prompts": ["p"], "labels": ["l"]},
            ["p"],
            ["said"],
            None,
        ),
        (["args", "sample", "**kwargs"], {"args": None, "sample": Sample()}, ["p"], ["said"], [3]),
        (["args", "samples"], {"args": None, "samples": [Sample(), Sample()]}, ["p", "p"], ["said", "said"], [3, 3]),
        (
            ["prompt", "completions", "prompt_ids", "completion_ids", "answer"],
            {"prompt": "p", "completions": "said", "prompt_ids": [1], "completion_ids": [1, 2], "answer": "4"},
            ["p"],
            ["said"],
            None,
        ),
        (["completions"], {"completions": ["said"]}, None, ["said"], None),
        (["text"], {"text": "said"}, None, ["said"], None),
        (["question", "responses"], {"question": ["p"], "responses": ["said"]}, ["p"], ["said"], None),
        (["**kwargs"], {"solution_str": "said"}, None, ["said"], None),
    ],
    ids=["trl", "verl", "verl-batch", "openrlhf", "slime", "slime-batch", "areal", "list", "one", "two", "kwargs"],
)
def test_conventions_are_told_apart_by_their_arguments(
    names: list[str], given: dict[str, Any], prompt: Any, completion: Any, group: Any
) -> None:
    call = reader_for(names)(given)
    assert (call.prompt, call.completion, call.group) == (prompt, completion, group)


def test_results_of_every_trainer_are_one_number_per_row() -> None:
    torch = pytest.importorskip("torch", reason="OpenRLHF rewards are tensors: pip install torch")
    told = {
        "rewards": torch.tensor([1.0, 2.0]),
        "scores": torch.tensor([0.0, 1.0]),
        "extra_logs": {"acc": torch.ones(2)},
    }
    assert read_result(told, 2).reward == [1.0, 2.0]
    assert read_result(told, 2).parts == {"acc": [1.0, 1.0]}
    assert read_result(torch.tensor(3.0), 1).reward == [3.0]
    assert read_result([{"score": 1.0, "acc": 0.0}, {"score": 2.0}], 2).parts == {"acc": [0.0, None]}
    assert read_result([1.0, None], 2).reward == [1.0, None]
    for wrong, rows in (([1.0], 2), (1.0, 2), ({"loss": 1.0}, 1)):
        with pytest.raises(ValueError, match=r"rows were scored|none of"):
            read_result(wrong, rows)
    with pytest.raises(TypeError, match="list"):  # reading it would take it from the trainer
        read_call({"completions": (text for text in "ab")})


def test_one_process_needs_one_line_and_is_judged(tmp_path: Path) -> None:
    """The real monitor in its own process, on a run whose steps are counted."""
    wrapped = capture(reward, tmp_path / "run", 16, seconds=0.1)
    for step in range(12):
        for row in range(16):
            wrapped(PROMPTS[row % 4], "x" * ((step * 7 + row * 5) % 11 + 1))
    wrapped.recorder.close()  # type: ignore[attr-defined]
    run = RunDirectory(tmp_path / "run")
    deadline = time.monotonic() + 60.0
    look = RunWatcher(run)
    while look.update().state == "STALE" or look.run_facts.last_measured.get(0, -1) < 11:
        assert time.monotonic() < deadline, (tmp_path / "run" / "monitor.log").read_text()
        time.sleep(0.1)
    assert look.update().state == "BLIND"  # nobody gave gold
    while 0 not in look.run_facts.ended:
        look.update()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert replay(run, Config.standard()).difference is None


def test_the_monitor_waits_for_rows_that_are_written_after_the_driver_has_closed(tmp_path: Path) -> None:
    recorder = capture.open(tmp_path / "run", seconds=0.1, monitor=False)
    assert recorder is not None
    run = RunDirectory(tmp_path / "run")
    wrapped = capture(reward, tmp_path / "run")
    wrapped("p", "early")
    capture.step(0)
    other = recorders.Recorder(run, 0, run=None, seconds=60.0, rows=9)
    other.add_call(read_call({"prompt": "p", "completion": "late"}), read_result(1.0, 1), 0.0)
    capture.step(1)
    recorder.close()
    writer = threading.Timer(0.5, other.close)
    writer.start()
    run_monitor(run, Config.standard())
    writer.join()
    assert stored(run) == {0: ["early"], 1: ["late"]}
    kinds = [event.kind for event in journal.read_events(run.path / "events") if event.kind in ("step_done", "attempt")]
    assert kinds == ["attempt", "step_done", "step_done", "attempt"]
    assert replay(run, Config.standard()).difference is None


def test_ray_actors_are_workers(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'tiltmeter[ray]'")
    recorder = capture.open(tmp_path / "run", seconds=0.1, monitor=False)  # before ray.init: workers inherit the launch
    assert recorder is not None
    try:
        ray.init(num_cpus=2, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)

        def paid(prompt: str, completion: str) -> float:
            return float(len(completion))

        class Scorer:
            def __init__(self, directory: str, given: Any) -> None:
                from tiltmeter.adapters.capture.capture import capture as within

                self.paid: Any = given or within(paid, directory, seconds=0.1)

            def score(self, prompt: str, completions: list[str]) -> list[float]:
                return [self.paid(prompt, text) for text in completions]

            def written(self) -> int:
                return int(self.paid.recorder.counters["written"])

        remote = ray.remote(num_cpus=1)(Scorer)
        # One gets the function that was wrapped here, the other wraps it there.
        ours = capture(paid, tmp_path / "run", seconds=0.1)
        actors = [remote.remote(str(tmp_path / "run"), given) for given in (ours, None)]
        for step in range(3):
            told = ray.get(
                [actor.score.remote(f"p{i}", [f"{step} {i} a", f"{step} {i} b"]) for i, actor in enumerate(actors)]
            )
            assert told == [[5.0, 5.0], [5.0, 5.0]]
            capture.step(step, rows=4)
        deadline = time.monotonic() + 60.0  # Ray ends its workers without ceremony: what they hold then is lost
        while ray.get([actor.written.remote() for actor in actors]) != [6, 6]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        ray.shutdown()
    recorder.close()
    run = RunDirectory(tmp_path / "run")
    assert placed(run) == {step: [f"{step} {i} {x}" for i in (0, 1) for x in "ab"] for step in range(3)}
    batch = run.read(run.find(0, 1)[0])[0]
    assert np.diff(batch.starts).tolist() == [2, 2]
    assert run.attempts() == [0]


def test_a_real_trl_run_is_captured_at_the_steps_it_says(tmp_path: Path, make_trainer: Callable[..., Any]) -> None:
    def longer(completions: list[str], **kwargs: Any) -> list[float]:
        return [len(text) / 50 for text in completions]

    wrapped = capture(longer, tmp_path / "run", monitor=False)
    trainer = make_trainer("GRPO", rewards=[wrapped], max_steps=3)
    assert trainer.reward_func_names == ["longer"]
    trainer.train()
    wrapped.recorder.close()  # type: ignore[attr-defined]
    run = RunDirectory(tmp_path / "run")
    assert {step: len(texts) for step, texts in placed(run).items()} == {1: 8, 2: 8, 3: 8}
    batch, facts, _ = run.read(run.find(0, 2)[0])
    assert facts["placed"]["by"] == "step" and np.diff(batch.starts).tolist() == [4, 4]
    assert batch.facts is not None and '"answer"' in str(batch.facts[0])
    logged = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    assert batch.reward is not None and batch.reward.mean() == pytest.approx(logged[1], abs=1e-5)


def held_by(wrapped: Any) -> RunDirectory:
    wrapped.recorder.close()
    store: RunDirectory = wrapped.recorder.store
    return store


def test_the_lazy_imports_of_a_writing_thread_are_made_before_it_starts(tmp_path: Path) -> None:
    """A fork in the middle of an import leaves a child that waits for it for ever."""
    pytest.importorskip("pandas", reason="pyarrow imports pandas with its first array: pip install pandas")
    code = (
        "import sys, tiltmeter\n"
        f"tiltmeter.open_run({str(tmp_path / 'loop')!r}, monitor=False)\n"
        "assert 'pandas' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_thread_that_cannot_start_costs_the_trainer_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    wrapped: Any = capture(reward, tmp_path / "run", 2, monitor=False)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert wrapped("p", "a") == 0.1
    wrapped("p", "b")
    run = held_by(wrapped)
    assert placed(run) == {0: ["a", "b"]}
    assert "can't start new thread" in " ".join(run.troubles(0).values())


def test_a_full_disk_bounds_what_is_held_and_is_not_asked_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    write = staged_rows.write_rows

    def full(*args: Any) -> bool:
        tries.append(len(args[5]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(recorders, "MOST_ROWS", 100)
    monkeypatch.setattr(recorders, "write_rows", full)
    wrapped: Any = capture(reward, tmp_path / "run", 100, rows=8, monitor=False)
    ends = time.monotonic() + 0.4
    while time.monotonic() < ends:
        wrapped("p", "a")
        time.sleep(0.0005)
    recorder = wrapped.recorder
    assert recorder._count == len(recorder._pending) == 100 and 1 <= len(tries) <= 3
    assert recorder.counters["dropped"] == recorder.counters["rows"] - 100 > 0
    monkeypatch.setattr(recorders, "write_rows", write)
    run = held_by(wrapped)
    assert {step: len(texts) for step, texts in placed(run).items()} == {0: 100}
    told = " ".join(run.troubles(0).values())
    assert "rows were dropped" in told and "No space left" in told and f"that {recorder.worker} scored" in told


def test_text_is_bounded_too_and_files_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "MOST_BYTES", 10_000)
    monkeypatch.setattr(reward_calls, "FILE_ROWS", 4)
    wrapped: Any = capture(reward, tmp_path / "run", 64, seconds=60.0, monitor=False)
    for _ in range(10):
        wrapped("p", "a" * 5)
    wrapped("p", "a" * 9_000)
    assert wrapped.recorder.counters["dropped"] == 1
    wrapped.recorder.flush()
    assert len(list(staged_rows.staging_folder(wrapped.recorder.store, 0).glob("*.parquet"))) == 3


def test_one_bad_call_costs_no_other_its_rows(tmp_path: Path) -> None:
    def paid(prompts: list[str], completions: list[str], uid: Any) -> list[float]:
        return [0.0] * len(completions)

    wrapped: Any = capture(paid, tmp_path / "run", 4, group="uid", seconds=60.0, monitor=False)
    wrapped(["p", "q"], ["c"], ["u"])
    wrapped(["p", "p", "q", "q"], list("abcd"), np.array(["u", "u", "v", "v"], object))
    assert wrapped.recorder.counters["unread"] == 1
    run = held_by(wrapped)
    assert placed(run) == {0: ["a", "b", "c", "d"]}
    assert np.diff(run.read(run.find(0, 0)[0])[0].starts).tolist() == [2, 2]
    assert "1 completions were passed with 2 of prompt" in " ".join(run.troubles(0).values())


def test_a_word_that_was_used_by_a_start_that_was_killed_names_a_new_one(tmp_path: Path) -> None:
    code = (
        "import os, tiltmeter\ndef reward(prompt, completion): return 1.0\n"
        f"wrapped = tiltmeter.capture(reward, {str(tmp_path / 'run')!r}, 8, monitor=False)\n"
        "print(wrapped.recorder.attempt, flush=True)\nos._exit(9)\n"
    )
    found = [subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=300).stdout for _ in range(2)]
    assert found == [b"0\n", b"1\n"]


def joins(directory: Path, told: Any) -> None:
    try:
        capture(reward, directory, monitor=False)
    except AttachError as error:
        told.put(str(error))
    else:
        told.put("")


def test_a_worker_that_finds_no_run_where_it_looks_stops_with_the_fix(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    assert capture.open(tmp_path / "run", monitor=False) is not None
    for place in ("run", "elsewhere"):
        process = context.Process(target=joins, args=(tmp_path / place, told))
        process.start()
        process.join(60)
    assert told.get(timeout=10) == ""
    assert "absolute path" in told.get(timeout=10)


def test_what_only_the_opener_can_be_given_is_refused_afterwards(tmp_path: Path) -> None:
    gold = tmp_path / "checks.py"
    gold.write_text("def solved(prompt, completion):\n    return 1.0\n")
    wrapped = capture(reward, tmp_path / "run", gold=f"{gold}:solved", monitor=False)
    assert capture.open(tmp_path / "run", gold=f"{gold}:solved") is wrapped.recorder  # type: ignore[attr-defined]
    with pytest.raises(AttachError, match=r"without options\.experiment"):
        capture.open(tmp_path / "run", options=Options(experiment=f"{gold}:solved"))
    with pytest.raises(AttachError, match="with another gold"):
        capture.open(tmp_path / "run", gold="people")


def test_a_driver_that_joins_late_ends_the_counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, switch in (("asked", "capture"), ("joined", "0")):
        monkeypatch.setenv("TILTMETER_VERL", switch)
        path = tmp_path / name
        wrapped: Any = capture(reward, path, seconds=60.0, rows=10**6, monitor=False)
        for _ in range(4200):
            wrapped("p", "validation")
        time.sleep(0.002)
        begin = time.time()
        driver = recorders.open_recorder(path, driver=True, seconds=60.0, rows=256, settings={})
        wrapped("p", "train")
        driver.step(staged_rows.StepBoundary(1, time.time(), begin))
        run = held_by(wrapped)
        assert placed(run) == {1: ["train"]}
        assert not run.troubles(0)


def test_steps_that_go_back_are_told(tmp_path: Path) -> None:
    recorder = capture.open(tmp_path / "run", monitor=False)
    assert recorder is not None
    wrapped = capture(reward, tmp_path / "run")
    placing, clock = None, Hands()
    for step in (0, 1, 0, 1, 2):
        wrapped("p", f"{step}")
        recorder.flush()
        recorder.step(staged_rows.StepBoundary(step, time.time()))
        placing = placing or StepAssembler(recorder.store, clock=clock)
        placing.assemble()
        clock.now += 60.0
        placing.assemble()
    assert stored(recorder.store) == {0: ["0"], 1: ["1"], 2: ["0", "1", "2"]}
    assert "0 after 1" in recorder.store.troubles(0)["steps-go-back.trouble.json"]


def test_rows_that_know_their_step_stay_in_it_whatever_their_order(tmp_path: Path) -> None:
    def at(prompt: str, completion: str, step: int) -> float:
        return 0.0

    columns = {"prompt": "prompt", "completion": "completion", "step": "step"}
    wrapped: Any = capture(at, tmp_path / "run", columns=columns, seconds=60.0, monitor=False)
    for part in ((5, 6, 5, 6), (5, 7), (3,)):
        for step in part:
            wrapped("p", f"of {step}", step)
        wrapped.recorder.flush()
    run = held_by(wrapped)
    assert placed(run) == {5: ["of 5", "of 5"], 6: ["of 6", "of 6"], 7: ["of 7"]}
    assert list(run.troubles(0)) == ["rows-came-after-their-step-was-over.trouble.json"]


def test_a_file_that_storage_withholds_for_a_moment_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapped: Any = capture(reward, tmp_path / "run", 4, monitor=False)
    for row in range(4):
        wrapped("p", f"{row}")
    run = held_by(wrapped)
    whole, reads = read_file, [0]

    def stale(path: Path, limit: int, **how: Any) -> bytes:
        reads[0] += path.suffix == ".parquet" and path.parent.name == "unplaced"
        if reads[0] == 2:
            raise OSError(116, "Stale file handle")
        return whole(path, limit, **how)

    placing = StepAssembler(run, clock=Hands())
    with monkeypatch.context() as patch:
        patch.setattr(staged_rows, "read_file", stale)
        assert placing.assemble(over=True)
    assert stored(run) == {} and reads == [2]
    placing.assemble(over=True)
    assert stored(run) == {0: ["0", "1", "2", "3"]}


def test_a_link_in_place_of_unplaced_rows_is_not_followed(tmp_path: Path) -> None:
    wrapped: Any = capture(reward, tmp_path / "victim", 1, monitor=False)
    wrapped("p", "a")
    victim = held_by(wrapped)
    rows = list(staged_rows.staging_folder(victim, 0).glob("*.parquet"))
    other: Any = capture(reward, tmp_path / "other", 1, monitor=False)
    run = held_by(other)
    place = staged_rows.staging_folder(run, 0)
    place.rename(tmp_path / "aside")
    place.symlink_to(staged_rows.staging_folder(victim, 0))
    assert placed(run) == {} and purge(run) == 0
    assert rows and all(path.exists() for path in rows)


def test_workers_that_have_closed_leave_nothing_behind(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    wrapped: Any = capture(reward, tmp_path / "run", 2, monitor=False)
    run, clock = wrapped.recorder.store, Hands()
    placing = StepAssembler(run, clock=clock)
    for step in range(3):
        for row in range(2):
            process = context.Process(target=wrapped, args=("p", f"{step} {row}"))
            process.start()
            process.join(60)
        placing.assemble()
        clock.now += 60.0
        placing.assemble()
    assert sorted(stored(run)) == [0, 1, 2]
    assert [path.name for path in staged_rows.staging_folder(run, 0).iterdir()] == ["capture.json"]
    assert len(run.read(run.find(0, 2)[0])[1]["placed"]["upto"]) == 2
    assert not placing._by_attempt[0].pending.by_worker and not placing._by_attempt[0].pending._first_seen


def test_workers_that_score_on_after_the_opener_are_waited_for(tmp_path: Path) -> None:
    wrapped: Any = capture(reward, tmp_path / "run", 2, monitor=False)
    run, clock = wrapped.recorder.store, Hands()
    other = recorders.Recorder(run, 0, run=None, seconds=0.05, rows=9)
    other.add_call(read_call({"prompt": "p", "completion": "a"}), read_result(1.0, 1), 0.0)
    other.flush()
    wrapped.recorder.close()
    placing = StepAssembler(run, clock=clock)
    for _ in range(3):
        assert placing.assemble(over=True)  # its worker may score the other half of the step
        clock.now += 60.0
    other.add_call(read_call({"prompt": "p", "completion": "b"}), read_result(1.0, 1), 0.0)
    other.flush()
    placing.assemble(over=True)
    clock.now += 60.0
    assert placing.assemble(over=True) and stored(run) == {0: ["a", "b"]}
    clock.now += 601.0
    assert not placing.assemble(over=True)
    assert "10 minutes" in run.troubles(0)["workers-were-given-up.trouble.json"]
    other.close()


def test_a_monitor_that_dies_is_started_again(tmp_path: Path) -> None:
    wrapped: Any = capture(reward, tmp_path / "run", 4, seconds=0.05)
    monitor = wrapped.recorder.run._monitor
    os.kill(monitor.process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30.0
    while not monitor._restarts:
        assert time.monotonic() < deadline
        wrapped("p", "a")
        time.sleep(0.02)


def test_a_metric_that_is_no_number_does_not_cost_its_step(tmp_path: Path) -> None:
    recorder = capture.open(tmp_path / "run", monitor=False)
    assert recorder is not None
    wrapped = capture(reward, tmp_path / "run")
    wrapped("p", "a")
    capture.step(0, scalars={"kl_ref": None, "phase": 1j, "loss": 1.0})  # type: ignore[dict-item]
    recorder.close()
    placed(recorder.store)
    scalars = recorder.store.read(recorder.store.find(0, 0)[0])[0].scalars
    assert scalars["loss"] == 1.0 and "kl_ref" not in scalars and "phase" not in scalars


def test_catching_up_once_places_rows_first(tmp_path: Path) -> None:
    wrapped: Any = capture(reward, tmp_path / "run", 8, monitor=False)
    for row in range(32):
        wrapped(PROMPTS[row % 4], "x" * row)
    run = held_by(wrapped)
    command = [sys.executable, "-m", "tiltmeter", "watch", str(run.path), "--once", "--plain"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert sorted(stored(run)) == [0, 1, 2, 3] and "step 3" in told.stdout
