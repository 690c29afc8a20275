"""Objects that fail in every way, a writer's thread that ends, storage that stands still: nothing reaches training."""

from __future__ import annotations

import ctypes
import os
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltmeter.rundir.atomic_write
import tiltmeter.rundir.writer
from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.capture.capture import capture
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.errors import Boundary, describe_error, warn_user
from tiltmeter.rundir.store import RunDirectory


class Panic(BaseException): ...


class MuteError(Exception):
    def __str__(self) -> str:
        return str(self.args[1])  # an ordinary bug


class Raising:
    """A column that raises when it is looked at."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise self.error

    def __len__(self) -> int:
        return 4


class Number:
    """Looks like a tensor of one element, and is converted on the writer's thread."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def item(self) -> float:
        raise self.error

    def __float__(self) -> float:
        raise self.error


def good(step: int) -> dict[str, Any]:
    return {"step": step, "group": [0, 0, 1, 1], "reward": [1.0, 0.0, 0.5, 0.2], "completion": ["a", "b", "c", "d"]}


def balanced(run: Run, seen: int) -> bool:
    counts = run.counters
    return counts["seen"] == seen == counts["written"] + counts["thinned"] + counts["dropped"]


def troubles(run: Run) -> str:
    assert run.directory is not None
    return " | ".join(RunDirectory(run.directory).troubles(0).values())


@pytest.mark.parametrize(
    "error", [MuteError("x"), Panic("x"), MemoryError(), GeneratorExit()], ids=["mute", "panic", "memory", "exit"]
)
@pytest.mark.parametrize("where", [Raising, Number])
def test_what_a_column_raises_is_counted_and_the_next_batches_are_written(
    tmp_path: Path, where: Any, error: BaseException
) -> None:
    with open_run(tmp_path / "run", monitor=False) as run:
        run.observe(**{**good(0), "reward": where(error) if where is Raising else [where(error)] * 4})
        for step in range(1, 30):
            run.observe(**good(step))
    assert balanced(run, 30) and run.counters["written"] == 29
    assert "a batch was not stored" in troubles(run)
    assert RunDirectory(tmp_path / "run").ended(0)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_stops_training_and_the_batch_is_counted(tmp_path: Path, kind: type[BaseException]) -> None:
    run = open_run(tmp_path / "run", monitor=False)
    with pytest.raises(kind):
        run.observe(**{**good(0), "reward": Raising(kind())})
    run.close()
    assert balanced(run, 1) and run.counters["dropped"] == 1


def test_a_captured_reward_gives_its_result_whatever_the_objects_do(tmp_path: Path) -> None:
    def reward(prompts: Any, completions: Any) -> Any:
        return [1.0] * 4

    wrapped: Any = capture(reward, tmp_path / "run", monitor=False)
    for odd in (Raising(MuteError("x")), Raising(Panic("x"))):
        assert wrapped(prompts=odd, completions=odd) == [1.0] * 4
    wrapped.recorder.close()
    assert (wrapped.recorder.counters["calls"], wrapped.recorder.counters["unread"]) == (2, 2)


def test_an_error_is_described_whatever_its_methods_do() -> None:
    class Shouting(str):
        def __getitem__(self, key: Any) -> str:
            raise Panic

    class WordyError(Exception):
        def __str__(self) -> str:
            return Shouting("x" * 500)

    assert describe_error(MuteError("x")) == "MuteError, which does not say why (IndexError)"
    assert describe_error(WordyError()) == "WordyError: " + "x" * 200


def test_what_cannot_even_be_counted_is_tallied() -> None:
    class Tally:
        uncounted = 0

    def count(error: BaseException) -> None:
        raise MemoryError

    tally = Tally()
    with Boundary(count, tally=tally):
        raise Panic
    assert tally.uncounted == 1


def test_a_call_with_no_stack_left_is_counted_later(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", monitor=False)
    calls = 0

    def descend() -> None:
        nonlocal calls
        try:
            descend()
        except RecursionError:
            calls += 1
            run.observe(**good(calls))  # raises at the very edge, as any function would; a little above it does not
            raise StopIteration from None

    with pytest.raises((StopIteration, RecursionError)):
        descend()
    run.observe(**good(10**6))
    run.close()
    counts = run.counters
    assert counts["seen"] == counts["written"] + counts["dropped"]


def test_observe_that_is_called_by_a_column_is_refused_and_counted(tmp_path: Path) -> None:
    class Calls:
        def __array__(self, *args: object, **kwargs: object) -> Any:
            run.observe(**{**good(1), "reward": self})
            return np.ones(4)

    with open_run(tmp_path / "run", monitor=False) as run:
        run.observe(**{**good(0), "reward": Calls()})
    assert balanced(run, 2) and run.counters["written"] == 1


def test_a_bad_column_costs_the_column_and_is_named(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", monitor=False) as run:
        run.observe(**good(0), logprob=Raising(ValueError("sparse")), tokens=np.ones((4, 2), int), length=np.full(4, 2))
        run.observe(**good(1), prompt=["p"], scalars={"loss": 1.0, "odd": Number(Panic("x"))})
        run.observe(**good(2), rewards={"format": [1, 0, 1, 0], "odd": [1.0]})
        run.observe(**{**good(3), "reward": [1.0]})
    store = RunDirectory(tmp_path / "run")
    batches = {file.step: store.read(file)[0] for file in store.files(0)}
    assert list(batches) == [0, 1, 2] and run.counters["dropped"] == 1, "a step without its reward is none"
    assert batches[0].tokens is not None and batches[0].logprob is None
    assert batches[1].prompt is None and dict(batches[1].scalars) == {"loss": 1.0}
    assert set(batches[2].rewards) == {"format"}
    assert run.counters["columns_lost"] == 4 and balanced(run, 4)
    assert "columns were left out: of step 0: logprob: ValueError: sparse" in troubles(run)


def test_a_column_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    def ones() -> Any:
        while True:
            yield 1.0

    with open_run(tmp_path / "run", monitor=False) as run:
        run.observe(**good(0), gold=ones(), advantage=np.broadcast_to(np.float64(1), (10**12,)))
    assert balanced(run, 1) and run.counters["written"] == 1 and run.counters["columns_lost"] == 2


def kill_thread(thread: threading.Thread) -> None:
    """Raise in another thread, as libraries do that put a time limit on a function."""
    raised = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
    assert raised == 1


def test_a_thread_that_ends_is_started_again_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiltmeter.rundir.writer.Writer, "_work", lambda self: None)  # it ends at once, saying nothing
    run = open_run(tmp_path / "run", monitor=False)
    writer = run._writer
    assert writer is not None and writer._thread is not None
    writer._thread.join(5)
    run.observe(**good(0))
    monkeypatch.undo()
    for step in range(1, 10):
        run.observe(**good(step))
    run.close()
    assert balanced(run, 10) and run.counters["written"] == 10
    assert "thread ended and was started again" in troubles(run)


def test_an_exception_thrown_into_the_thread_does_not_end_it(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", monitor=False)
    writer = run._writer
    assert writer is not None and writer._thread is not None
    for step in range(2):
        while writer._pending:
            time.sleep(0.001)
        time.sleep(0.005)  # it waits for the next
        kill_thread(writer._thread)
        run.observe(**good(step))
    run.close()
    assert balanced(run, 2) and RunDirectory(tmp_path / "run").ended(0)


class Stalled:
    """The operating system with a disk that takes nothing until it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        assert self.released.wait(60)
        os.fsync(handle)


def test_waiting_for_storage_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiltmeter.rundir.writer, "SMALL_BATCHES", 0)
    monkeypatch.setattr(tiltmeter.rundir.writer, "WAIT_SECONDS", 0.3)
    run, stalled = open_run(tmp_path / "run", monitor=False, options=Options(on_full="wait")), Stalled()
    monkeypatch.setattr(tiltmeter.rundir.atomic_write, "os", stalled)
    began = time.monotonic()
    for step in range(tiltmeter.rundir.writer.WHOLE_BATCHES + 20):
        run.observe(**good(step))
    assert 0.3 <= time.monotonic() - began < 5.0, "it waited once, and not for each batch"
    stalled.released.set()
    run.close()
    assert balanced(run, tiltmeter.rundir.writer.WHOLE_BATCHES + 20) and run.counters["thinned"] > 0


def test_no_memory_while_a_batch_is_queued_counts_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoMemory:
        def put(self, item: None) -> None:
            raise MemoryError

    run = open_run(tmp_path / "run", monitor=False)
    writer = run._writer
    assert writer is not None
    real = writer._wake
    writer._wake = NoMemory()  # type: ignore[assignment]
    run.observe(**good(0))
    writer._wake = real
    run.observe(**good(1))
    run.close()
    assert balanced(run, 2) and (run.counters["written"], run.counters["dropped"]) == (1, 1)


def test_a_relative_directory_stays_where_it_was_when_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = open_run("runs/x", monitor=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for step in range(5):
        run.observe(**good(step))
    run.close()
    assert len(RunDirectory(tmp_path / "runs/x").files(0)) == 5 and RunDirectory(tmp_path / "runs/x").ended(0)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_advice_stops_nobody_where_warnings_are_errors(caplog: pytest.LogCaptureFixture) -> None:
    with warnings.catch_warnings(), caplog.at_level("WARNING", "tiltmeter"):
        warnings.simplefilter("error")
        warn_user("no gold is given")
    assert "no gold is given" in caplog.text


@pytest.mark.parametrize("give", [False, True])
def test_a_fingerprint_that_is_no_text_is_lost_and_the_batch_can_be_read(tmp_path: Path, give: bool) -> None:
    run = open_run(tmp_path / "run", monitor=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step, odd in enumerate([{"mapping": 1}, None, 7, Raising(ValueError("x"))]):
            run.observe(step=step, group=["p", "p"], reward=[0.0, 1.0], fingerprint=odd, give=give)
        run.close()
    assert run.counters["written"] == 4 and run.counters["columns_lost"] >= 3
    store = RunDirectory(tmp_path / "run")
    batches = [store.read(file)[0] for file in store.files(0)]
    assert [batch.fingerprint for batch in batches] == [""] * 4
    assert all(batch.reward is not None and batch.reward.tolist() == [0.0, 1.0] for batch in batches)
