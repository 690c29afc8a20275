"""Two trainers never write one run directory: the second gets one of its own, and is told."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.adapters import trainer_lock
from tiltmeter.adapters.arguments import Launch
from tiltmeter.adapters.capture.capture import capture
from tiltmeter.adapters.capture.recorder import current_recorder
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.rundir.store import RunDirectory

TRAINER = """
import os, sys, time
from tiltmeter.adapters.custom_loop import open_run
run = open_run(sys.argv[1], monitor=False)
print(run.directory, flush=True)
if sys.argv[2] == "fork" and os.fork() == 0:
    sys.stdout.close()
    time.sleep(60)
time.sleep(60)
"""


@contextmanager
def another_trainer(directory: Path, how: str = "wait") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(directory), how],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == str(directory)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def opened(directory: Any, **settings: Any) -> Any:
    """A run, which was opened without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return open_run(directory, monitor=False, **settings)


def test_a_second_run_in_this_process_is_kept_beside_the_first_until_that_is_closed(tmp_path: Path) -> None:
    first = opened(tmp_path / "run")
    with pytest.warns(UserWarning, match=r"this process is writing a run in .*run: this one is kept in .*run-2;"):
        second = open_run(tmp_path / "run", monitor=False)
    assert (first.directory, second.directory) == (tmp_path / "run", tmp_path / "run-2")
    assert second.store is not None and second.store.identity()["name"] == "run-2"
    with pytest.warns(UserWarning, match="run-3"):
        third = open_run(tmp_path / "run", monitor=False)
    for run in (first, second, third):
        run.observe(step=0, group=[0, 0], reward=[0.0, 1.0])
        run.close()
        assert run.store is not None and len(run.store.files(0)) == 1 and run.store.conflicts(0) == []
    with opened(tmp_path / "run") as again:
        assert (again.directory, again.attempt) == (tmp_path / "run", 1)


def test_a_trainer_in_another_process_is_named_and_its_end_frees_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_lock, "WAIT_SECONDS", 0.2)
    # It has a data loader's worker, which lives longer.
    with another_trainer(tmp_path / "run", "fork") as process:
        with pytest.warns(UserWarning, match=f"process {process.pid} on .* is writing a run in .*kept in .*run-2"):
            second = open_run(tmp_path / "run", monitor=False)
        second.close()
        process.kill()
        process.wait()
        with opened(tmp_path / "run") as resumed:
            assert (resumed.directory, resumed.attempt) == (tmp_path / "run", 1)


def test_a_trainer_that_is_about_to_end_is_waited_for(tmp_path: Path) -> None:
    with another_trainer(tmp_path / "run") as process:
        threading.Timer(0.5, process.kill).start()
        with opened(tmp_path / "run") as run:
            assert run.directory == tmp_path / "run"


def test_a_lock_whose_process_has_ended_is_none(tmp_path: Path) -> None:
    """A process that was forked behind Python's back holds what it knows nothing of."""
    first = opened(tmp_path / "run")
    record = tmp_path / "run" / "cache" / trainer_lock.LOCK
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    record.write_bytes(record.read_bytes().replace(f'"pid":{os.getpid()}'.encode(), f'"pid":{ended.pid}'.encode()))
    with opened(tmp_path / "run") as run:
        assert run.directory == tmp_path / "run"
    first.close()


def test_ranks_find_the_directory_that_rank_0_of_their_launch_was_given(tmp_path: Path) -> None:
    first = [opened(tmp_path / "run", launch=Launch(rank, 2, "monday")) for rank in (0, 1)]
    with pytest.warns(UserWarning, match="run-2"):
        zero = open_run(tmp_path / "run", launch=Launch(rank=0, ranks=2, name="tuesday"), monitor=False)
    one = opened(tmp_path / "run", launch=Launch(1, 2, "tuesday"))
    assert [run.directory for run in first] == [tmp_path / "run"] * 2
    assert [zero.directory, one.directory] == [tmp_path / "run-2"] * 2
    for run in (*first, zero, one):
        run.close()


def test_a_file_system_without_locks_refuses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("tiltmeter.adapters.trainer_lock.fcntl.flock", no_locks)
    first, second = opened(tmp_path / "run"), opened(tmp_path / "run")
    assert first.directory == second.directory == tmp_path / "run"
    assert (first.attempt, second.attempt) == (0, 1)
    first.close()
    second.close()


def test_a_set_up_that_fails_leaves_the_directory_free(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "monitor.log").mkdir()  # so that no monitor can be started
    with pytest.raises(Exception, match="monitor") as caught:
        open_run(tmp_path / "run")
    with opened(tmp_path / "run") as run:
        assert run.directory == tmp_path / "run", caught


def test_a_captured_run_beside_another_trainer_is_one_run(tmp_path: Path) -> None:
    def reward(prompts: Any, completions: Any) -> Any:
        return [1.0] * len(completions)

    with opened(tmp_path / "run"):
        with pytest.warns(UserWarning, match="run-2"):
            wrapped: Any = capture(reward, tmp_path / "run", monitor=False)
        wrapped(prompts=["p"] * 4, completions=list("abcd"))
        assert current_recorder(tmp_path / "run") is wrapped.recorder
        assert capture(reward, tmp_path / "run").recorder is wrapped.recorder  # type: ignore[attr-defined]
        wrapped.recorder.close()
    assert wrapped.recorder.store.path == tmp_path / "run-2"
    assert wrapped.recorder.counters["written"] == 4 and RunDirectory(tmp_path / "run-2").ended(0)


def test_a_second_trainer_of_an_address_has_an_address_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("TILTMETER_SPOOL", str(tmp_path / "spool"))
    (tmp_path / "store").mkdir()
    address = f"file://{tmp_path}/store/run"
    first = opened(address)
    with pytest.warns(UserWarning, match=f"is writing a run in {address}: this one is kept in {address}-2"):
        second = open_run(address, monitor=False)
    assert first.directory is not None and second.directory is not None
    assert (first.directory.name, second.directory.name) == ("run", "run-2")
    first.close()
    second.close()
    with opened(address) as again:
        assert (again.directory, again.attempt) == (first.directory, 1)
