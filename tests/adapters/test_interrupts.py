"""What a signal handler raises comes out of `observe` and `close`, and what it cost is counted."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import tiltmeter.rundir.atomic_write
import tiltmeter.rundir.writer
from tiltmeter.adapters.capture.capture import capture
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.errors import Boundary, finish_first
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.environments.verify import wrap_verify

SIGNAL = signal.SIGUSR1


class PreemptedError(RuntimeError): ...


def stop(number: int, frame: FrameType | None) -> None:
    raise PreemptedError(number)


def forgetful(number: int, frame: FrameType | None) -> None:
    """Takes itself away, so that a second signal ends the process, and raises."""
    signal.signal(number, signal.SIG_IGN)
    raise PreemptedError(number)


def renaming(number: Any, frame: Any) -> None:
    number, frame = signal.Signals(number).name, None  # noqa: F841
    raise PreemptedError(number)


class Scheduler:
    def stop(self, number: int, frame: FrameType | None) -> None:
        raise PreemptedError(number)

    def __call__(self, *arguments: Any) -> None:
        raise PreemptedError


def named(name: str, number: int, frame: FrameType | None) -> None:
    raise TimeoutError(name)


HANDLERS: dict[str, Callable[..., None]] = {
    "function": stop,
    "one that takes itself away": forgetful,
    "one that forgets its arguments": renaming,
    "lambda": lambda *_: (_ for _ in ()).throw(PreemptedError()),
    "method": Scheduler().stop,
    "object": Scheduler(),
    "partial": functools.partial(named, "time"),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (SIGNAL, signal.SIGINT)}
    # What a shell starts in the background ignores Ctrl-C, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def good(step: int) -> dict[str, Any]:
    return {"step": step, "group": [0, 0, 1, 1], "reward": [1.0, 0.0, 0.5, 0.2], "completion": ["a", "b", "c", "d"]}


class Signalling:
    """A column in whose reading a signal comes."""

    def __array__(self, *args: object, **kwargs: object) -> Any:
        signal.raise_signal(SIGNAL)
        return np.ones(4)

    def __len__(self) -> int:
        return 4


def all_accounted(run: Run, handed: int) -> bool:
    counts = run.counters
    return counts["seen"] == handed == counts["written"] + counts["thinned"] + counts["dropped"]


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_handler_raises_comes_out_of_observe_and_the_batch_is_counted(tmp_path: Path, handler: str) -> None:
    run = open_run(tmp_path / "run", monitor=False)
    signal.signal(SIGNAL, HANDLERS[handler])
    for column in ("reward", "logprob"):  # one that a step needs, and one that it can do without
        signal.signal(SIGNAL, HANDLERS[handler])
        with pytest.raises((PreemptedError, TimeoutError)):
            run.observe(**{**good(0), column: Signalling()})
    run.observe(**good(1))
    run.close()
    assert all_accounted(run, 3) and run.counters["dropped"] == 2


def test_what_an_object_raises_does_not_come_out_though_a_handler_is_installed(tmp_path: Path) -> None:
    signal.signal(SIGNAL, stop)

    class Failing(Signalling):
        def __array__(self, *args: object, **kwargs: object) -> Any:
            self.fail(int(SIGNAL), sys._getframe().f_back)
            return np.ones(4)

        def fail(self, number: int, frame: FrameType | None) -> None:
            raise PreemptedError(number)

    with open_run(tmp_path / "run", monitor=False) as run:
        run.observe(**{**good(0), "reward": Failing()})
    assert all_accounted(run, 1) and run.counters["dropped"] == 1


def test_a_verifier_may_have_a_time_limit_by_a_signal() -> None:
    def verify(answer: str) -> float:
        signal.signal(SIGNAL, functools.partial(named, "no answer in 60 s"))
        signal.raise_signal(SIGNAL)
        return 1.0

    outcome = wrap_verify(verify)("x")
    assert (outcome.reward, outcome.stop) == (None, "verifier")


def test_a_captured_reward_lets_it_out_and_counts_the_call(tmp_path: Path) -> None:
    def reward(prompts: Any, completions: Any) -> Any:
        return [1.0] * 4

    class Odd(list[str]):
        def __iter__(self) -> Iterator[str]:
            signal.raise_signal(SIGNAL)
            return super().__iter__()

    signal.signal(SIGNAL, stop)
    wrapped: Any = capture(reward, tmp_path / "run", monitor=False)
    with pytest.raises(PreemptedError):
        wrapped(prompts=["p"] * 4, completions=Odd("abcd"))
    wrapped(prompts=["p"] * 4, completions=list("abcd"))
    wrapped.recorder.close()
    assert (wrapped.recorder.counters["calls"], wrapped.recorder.counters["unread"]) == (2, 1)


def moments_of(work: Callable[[], object], at: int) -> int:
    """How many moments `work` had in which Python looks for signals: a function of ours begins, or a call that it made
    into C is over. At moment `at` there is one."""
    moments = 0

    def look(frame: FrameType, event: str, argument: object) -> None:
        nonlocal moments
        if event in ("call", "c_return") and "/tiltmeter/" in frame.f_code.co_filename:
            moments += 1
            if moments == at:
                signal.raise_signal(SIGNAL)

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return moments


def test_at_whichever_moment_of_observe_it_comes_the_batch_is_counted_once(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", monitor=False)
    moments = moments_of(lambda: run.observe(**good(0)), 0)
    assert moments > 40
    signal.signal(SIGNAL, stop)
    for at in range(2, moments + 1):  # in the first, `observe` has not begun
        with pytest.raises(PreemptedError):
            moments_of(functools.partial(run.observe, **good(at)), at)
    run.observe(**good(1))
    run.close()
    assert all_accounted(run, moments + 1)
    assert run.counters["dropped"] > 0 and run.counters["written"] > 2, "some came before it was queued, some after"
    assert len(RunDirectory(tmp_path / "run").files(0)) == run.counters["written"]


def test_at_whichever_moment_of_close_it_comes_the_end_is_written(tmp_path: Path) -> None:
    signal.signal(SIGNAL, stop)
    for at in range(2, 40):
        run = open_run(tmp_path / str(at), monitor=False)
        run.observe(**good(0))
        try:
            moments = moments_of(run.close, at)
        except PreemptedError:
            # Three moments are before the end begins; then the end of the process closes the run.
            assert at <= 3 or RunDirectory(tmp_path / str(at)).ended(0)
            run.close()
        else:
            assert moments < at, "a signal came and nothing came out"
        assert all_accounted(run, 1) and RunDirectory(tmp_path / str(at)).ended(0)


class SlowDisk:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        self.released.wait(self.seconds)
        os.fsync(handle)


def signals_to_come(number: int, *seconds: float) -> None:
    for after in seconds:
        threading.Timer(after, os.kill, (os.getpid(), number)).start()


@pytest.mark.parametrize(("number", "kind"), [(SIGNAL, PreemptedError), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_in_close_comes_out_after_the_end_has_been_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[BaseException]
) -> None:
    signal.signal(SIGNAL, stop)
    run = open_run(tmp_path / "run", monitor=False)
    monkeypatch.setattr(tiltmeter.rundir.atomic_write, "os", SlowDisk(0.01))
    for step in range(40):
        run.observe(**good(step))
    signals_to_come(number, 0.05)
    with pytest.raises(kind):
        run.close()
    assert run.counters["written"] == 40 and all_accounted(run, 40)
    store = RunDirectory(tmp_path / "run")
    assert store.ended(0) and store.counters(0)[0]["seen"] == 40


def test_a_second_ctrl_c_ends_the_wait_for_a_disk_and_what_is_lost_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiltmeter.rundir.writer, "HURRY_SECONDS", 0.2)
    run, disk = open_run(tmp_path / "run", monitor=False), SlowDisk(0.4)
    monkeypatch.setattr(tiltmeter.rundir.atomic_write, "os", disk)
    for step in range(30):
        run.observe(**good(step))
    signals_to_come(signal.SIGINT, 0.1, 0.3)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run.close()
    assert time.monotonic() - began < 4.0, "of the ten seconds that there were"
    disk.released.set()
    deadline = time.monotonic() + 20.0
    while not RunDirectory(tmp_path / "run").ended(0) and time.monotonic() < deadline:
        time.sleep(0.02)
    counts = RunDirectory(tmp_path / "run").counters(0)[0]
    assert counts["seen"] == 30 == counts["written"] + counts["thinned"] + counts["dropped"]
    assert counts["dropped"] > 20


def test_the_first_interrupt_is_raised_when_all_is_done_and_an_exit_before_others() -> None:
    signal.signal(SIGNAL, stop)
    begun: list[int] = []

    def work(interrupts: int) -> str:
        begun.append(interrupts)
        if interrupts == 0:
            signal.raise_signal(SIGNAL)
        if interrupts == 1:
            raise KeyboardInterrupt
        return "done"

    with pytest.raises(KeyboardInterrupt):
        finish_first(work)
    assert begun == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        finish_first(lambda interrupts: 1 // 0)


def test_a_signal_while_an_error_is_counted_comes_out_and_is_tallied() -> None:
    class Tally:
        uncounted = 0

    def count(error: BaseException) -> None:
        signal.raise_signal(SIGNAL)

    signal.signal(SIGNAL, stop)
    tally = Tally()
    with pytest.raises(PreemptedError), Boundary(count, tally=tally):
        raise ValueError("ours")
    assert tally.uncounted == 1
