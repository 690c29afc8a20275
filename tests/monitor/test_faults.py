"""P1, F4, F5, F6, F18: whatever storage or a plug-in does, training reaches its end and what was lost is told.

The faults are real calls that fail: `os` as the storage modules see it is replaced by one that counts calls and lets
the chosen ones fail. A small run's calls are all tried, one after the other, with each error.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltmeter.monitor.process
import tiltmeter.rundir.atomic_write
import tiltmeter.rundir.journal
import tiltmeter.rundir.store
import tiltmeter.rundir.writer
from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Floats
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.rundir.atomic_write import sweep
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.rundir.writer import THIN_BATCHES, WHOLE_BATCHES, StepWriter

STEPS = 4
ERRORS = {name: getattr(errno, name) for name in ("ENOSPC", "EIO", "EDQUOT", "EROFS")}
WAYS = (*ERRORS, "short", "torn")

# -- calls that fail --------------------------------------------------------------------------------------------------


class FaultyOs:
    """Stands where a module has `os`. Calls are numbered from 1; those in `failing` fail, the others are real.

    `way`: an error's name; `short`: a write takes half of what it was given and says so; `torn`: it takes half and the
    next call fails for lack of space, which is how a disk fills up.
    """

    COUNTED = frozenset({"open", "write", "fsync", "link", "unlink", "close"})

    def __init__(self, way: str = "EIO", failing: Container[int] = ()) -> None:
        self.way, self.failing = way, failing
        self.calls: list[str] = []
        self.failed: list[str] = []
        self.synced: set[str] = set()  # paths whose fsync came back
        self._torn = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return (lambda *args, **kwargs: self.call(name, real, *args, **kwargs)) if name in self.COUNTED else real

    def call(self, name: str, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls.append(name)
        due = len(self.calls) in self.failing
        if self._torn:
            self._torn = False
            return self._fail(name, real, "ENOSPC", *args)
        if not due:
            answer = real(*args, **kwargs)
            if name == "fsync":
                self.synced.add(str(Path(f"/proc/self/fd/{args[0]}").readlink()))
            return answer
        if self.way in ("short", "torn"):
            if name != "write" or len(args[1]) < 2:
                return real(*args, **kwargs)
            self.failed.append(name)
            self._torn = self.way == "torn"
            return real(args[0], memoryview(args[1])[: len(args[1]) // 2])
        return self._fail(name, real, self.way, *args)

    def _fail(self, name: str, real: Callable[..., Any], way: str, *args: Any) -> Any:
        self.failed.append(name)
        if name == "close":
            real(*args)  # Linux frees the descriptor and then reports the error
        raise OSError(ERRORS[way], os.strerror(ERRORS[way]))


@contextmanager
def storage(faulty: Any, *modules: Any) -> Iterator[None]:
    """The modules see `faulty` in place of `os`; so does the removal of dot files, which pathlib does for them."""
    unlink = Path.unlink

    def counted_unlink(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("."):
            faulty.call("unlink", lambda p: unlink(p, missing_ok=missing_ok), path)
        else:
            unlink(path, missing_ok=missing_ok)

    try:
        for module in modules:
            module.os = faulty
        Path.unlink = counted_unlink  # type: ignore[method-assign, assignment]
        yield
    finally:
        for module in modules:
            module.os = os
        Path.unlink = unlink  # type: ignore[method-assign]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between tries are for real disks."""
    monkeypatch.setattr(tiltmeter.rundir.writer, "CLOSING_PAUSES", (0.001, 0.001))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder where a hundred small runs do not wait for a real disk: here it is the calls that are made to fail."""
    home = Path("/dev/shm")
    if not os.access(home, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="tiltmeter-faults-", dir=home) as folder:
        yield Path(folder)


# -- a toy trainer, and what must hold after it, whatever failed -----------------------------------------------------


def train(observe: Callable[..., None], steps: int = STEPS) -> Floats:
    """A loop that learns something: its last parameters are right only if every step ran, on unharmed data."""
    rng = np.random.default_rng(0)
    parameters = np.zeros(4)
    reward = np.zeros(4)
    for step in range(steps):
        reward[:] = rng.normal(size=4) + parameters
        parameters = parameters + 0.1 * (reward - reward.mean())
        observe(step=step, group=[0, 0, 1, 1], reward=reward, completion=texts(step), tokens=[[step], [], [1, 2], [3]])
        reward[:] = np.nan  # trainers reuse their buffers
    return parameters


def texts(step: int) -> list[str]:
    return [f"{step}/{row} " + "word " * 50 for row in range(4)]


def rewards_seen(steps: int = STEPS) -> list[list[float]]:
    """What `train` handed over, step by step."""
    seen: list[list[float]] = []
    train(lambda **columns: seen.append(columns["reward"].tolist()), steps)
    return seen


@dataclass
class Outcome:
    """One disturbed training run, as the outside sees it."""

    directory: Path
    faulty: FaultyOs
    parameters: Floats | None = None
    error: BaseException | None = None
    counters: dict[str, int] = field(default_factory=dict)


Opens = Callable[[Path], Any]


def recorded(path: Path) -> Run:
    return open_run(path, monitor=False, options=Options(on_full="wait"))


def disturbed(path: Path, faulty: FaultyOs, opens: Opens = recorded) -> Outcome:
    """Train with these calls failing from the first step on; attaching itself is another matter, tested elsewhere."""
    outcome = Outcome(path, faulty)
    run = opens(path)
    with storage(faulty, tiltmeter.rundir.atomic_write):
        try:
            outcome.parameters = train(run.observe)
            run.close()
        except BaseException as error:  # noqa: BLE001  # whatever reaches the trainer is the failure looked for
            outcome.error = error
    outcome.counters = dict(run.counters)
    return outcome


def problems(outcome: Outcome, *, closed: bool = True) -> list[str]:
    """What is wrong after a disturbed run. `closed`: the end marker must be there and everything lost must be told."""
    if outcome.error is not None:
        return [f"training was stopped by {outcome.error!r}"]
    wrong = []
    if outcome.parameters is None or not np.array_equal(outcome.parameters, train(lambda **_: None)):
        wrong.append("the parameters are not those of an undisturbed run")
    counts = outcome.counters
    if not counts["seen"] == STEPS == counts["written"] + counts["thinned"] + counts["dropped"]:
        wrong.append(f"the accounts do not add up: {counts}")
    run = RunDirectory(outcome.directory)
    kept: Counter[str] = Counter()
    expected = rewards_seen()
    for file in run.files(0):
        try:
            batch, _, _ = run.read(file)
        except StoreError as error:
            wrong.append(f"acknowledged and not readable: {error}")
            continue
        kept["whole" if batch.completion is not None else "thin"] += 1
        if batch.reward is None or batch.reward.tolist() != expected[file.step]:
            wrong.append(f"step {file.step} has other rewards than it had")
        if batch.completion is not None and list(batch.completion) != texts(file.step):
            wrong.append(f"step {file.step} has other texts than it had")
    if (kept["whole"], kept["thin"]) != (counts["written"], counts["thinned"]):
        wrong.append(f"stored {dict(kept)}, counted {counts}")
    if run.conflicts(0):
        wrong.append(f"a step was stored twice: {run.conflicts(0)}")
    if closed:
        wrong += untold(run, counts)
    left = sum(entry.name.startswith(".") for entry in (outcome.directory / "rollouts" / "0").iterdir())
    if left != sweep(outcome.directory / "rollouts" / "0") or left > outcome.faulty.failed.count("unlink"):
        wrong.append(f"{left} dot files were left and not swept")
    return wrong


def untold(run: RunDirectory, counts: dict[str, int]) -> list[str]:
    """Losses that the monitor, polled afterwards, does not turn into Fault events; and steps it does not measure."""
    watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.poll()
    watch.close()
    events = read_events(run.path / "events")
    told: Counter[str] = Counter()
    for item in events:
        if item.kind == "fault" and item.data["part"] == "writer":
            amounts = item.data["error"].split(": ")[1]  # "rank 0: 1 thinned, 2 dropped: the reason"
            told.update({word: int(count) for count, word in re.findall(r"(\d+) (thinned|dropped|unsynced)", amounts)})
    wrong = []
    lost = {name: counts[name] for name in ("thinned", "dropped", "unsynced") if counts[name]}
    if dict(told) != lost:
        wrong.append(f"lost {lost}, told {dict(told)}")
    if sum(item.kind == "step_done" for item in events) != counts["written"] + counts["thinned"]:
        wrong.append("a stored step was not measured")
    if not any(item.kind == "attempt" and item.data["state"] == "end" for item in events):
        wrong.append("the attempt has no end")
    return wrong


def calls_of_a_small_run(path: Path) -> list[str]:
    outcome = disturbed(path, FaultyOs())
    assert problems(outcome) == []
    assert outcome.counters["written"] == STEPS
    return outcome.faulty.calls


# -- the sweep --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_any_single_call_may_fail_and_training_never_notices(way: str, memory: Path) -> None:
    calls = calls_of_a_small_run(memory / "whole")
    hit: Counter[str] = Counter()
    for nth, name in enumerate(calls, 1):
        if way in ("short", "torn") and name != "write":
            continue
        outcome = disturbed(memory / str(nth), FaultyOs(way, [nth]))
        where = f"call {nth} ({name}) failing with {way}"
        assert problems(outcome) == [], where
        # It recovers by itself: one failing call costs at most the text of one step.
        assert outcome.counters["written"] >= STEPS - 1 and outcome.counters["dropped"] == 0, where
        if way == "short":
            assert outcome.counters["written"] == STEPS, where
        hit.update(outcome.faulty.failed)
        shutil.rmtree(outcome.directory)
    assert set(hit) == ({"write"} if way == "short" else set(calls) if way != "torn" else set(hit))
    assert sum(hit.values()) > STEPS


@pytest.mark.parametrize("length", (6, 15, 40))
def test_a_disk_that_fails_for_a_while_costs_what_the_counters_say(length: int, memory: Path) -> None:
    calls = calls_of_a_small_run(memory / "whole")
    lost: Counter[str] = Counter()
    for nth in range(1, len(calls) - 11, 3):  # a fault that lasts to the very end has its own test
        outcome = disturbed(memory / str(nth), FaultyOs("ENOSPC", range(nth, nth + length)))
        # If the end marker falls into the fault it is tried again for half a second, and told if that was enough.
        closed = RunDirectory(outcome.directory).ended(0)
        assert problems(outcome, closed=closed) == [], f"calls {nth} to {nth + length - 1} failing"
        lost.update({name: outcome.counters[name] for name in ("thinned", "dropped", "unsynced")})
        shutil.rmtree(outcome.directory)
    assert lost["thinned"] + lost["dropped"] > 0, "the faults cost nothing: they were not felt"
    assert length < 15 or lost["dropped"] > 0


def test_a_disk_that_never_comes_back_costs_the_record_and_not_the_training(memory: Path) -> None:
    for nth in range(1, len(calls_of_a_small_run(memory / "whole")), 9):
        outcome = disturbed(memory / str(nth), FaultyOs("EROFS", range(nth, 10**9)))
        assert problems(outcome, closed=False) == [], f"everything failing from call {nth} on"
        assert not RunDirectory(outcome.directory).ended(0), "an attempt that could not be closed must not look closed"


def test_a_failing_call_at_attach_is_an_attach_error_and_the_next_start_works(memory: Path) -> None:
    counting = FaultyOs()
    with storage(counting, tiltmeter.rundir.atomic_write):
        open_run(memory / "whole", monitor=False).close()
    assert len(counting.calls) > 15
    raised = 0
    for nth in range(1, len(counting.calls) + 1):
        run: Run | None = None
        with storage(FaultyOs("ENOSPC", [nth]), tiltmeter.rundir.atomic_write):
            try:
                run = open_run(memory / str(nth), monitor=False)
            except AttachError as error:
                raised += 1
                assert "No space left" in str(error)
            else:
                run.close()
        with open_run(memory / str(nth), monitor=False) as again:
            again.observe(step=0, group=[0], reward=[1.0])
        assert again.counters["written"] == 1
    assert raised > 5


def test_every_folder_on_the_way_to_an_acknowledged_file_is_synced(memory: Path) -> None:
    """A file that is fsynced in a folder whose own name is not on disk is lost in a power cut all the same."""
    noting = FaultyOs()
    with storage(noting, tiltmeter.rundir.atomic_write), open_run(memory / "run", monitor=False) as run:
        run.observe(step=0, group=[0], reward=[1.0])
    home = memory.resolve()
    assert {str(home / part) for part in (".", "run", "run/rollouts", "run/rollouts/0")} <= noting.synced


def test_a_start_that_failed_does_not_cut_the_next_one_off_from_its_past(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_run(memory / "run", monitor=False) as run:
        run.observe(step=0, group=[0], reward=[1.0])
    # A disk that is full only once storage has been tried: the attempt has a number, and nothing in it.
    monkeypatch.setattr(tiltmeter.rundir.store, "storage_problem", lambda folder: "")
    with storage(FaultyOs("ENOSPC", range(1, 99)), tiltmeter.rundir.atomic_write), pytest.raises(AttachError):
        open_run(memory / "run", monitor=False)
    with open_run(memory / "run", monitor=False) as again:
        assert RunDirectory(memory / "run").attempt(again.attempt)["parent"] == 0
    assert RunDirectory(memory / "run").attempt(again.attempt)["parent"] != again.attempt - 1, "the control"


def test_two_losses_of_the_same_size_at_one_step_are_both_told(memory: Path) -> None:
    syncs = [nth for nth, name in enumerate(calls_of_a_small_run(memory / "whole"), 1) if name == "fsync"]
    folders = syncs[1::2]  # file, folder, file, folder, ...
    outcome = disturbed(memory / "run", FaultyOs("EIO", folders[STEPS - 2 : STEPS]))
    assert outcome.counters["unsynced"] == 2
    assert problems(outcome) == []


class Bare:
    """A store without the boundary: writes where it is called and lets errors through."""

    def __init__(self, path: Path, *, swallow: bool) -> None:
        self.run, self.swallow = RunDirectory.create(path), swallow
        self.attempt = self.run.open_attempt(launch="x", ranks=1, resume_step=None)
        self.counters = dict.fromkeys(("seen", "written", "thinned", "dropped", "bytes_lost", "unsynced"), 0)

    def observe(self, **columns: Any) -> None:
        self.counters["seen"] += 1
        try:
            self.run.write(from_columns(attempt=self.attempt, **columns), 0, {"counters": self.counters})
        except OSError:
            if not self.swallow:
                raise
        self.counters["written"] += 1

    def close(self) -> None:
        self.run.close_rank(self.attempt, 0, self.counters)


@pytest.mark.parametrize("swallow", (False, True), ids=("raises", "swallows"))
def test_a_store_without_the_boundary_does_not_pass(swallow: bool, memory: Path) -> None:
    def opens(path: Path) -> Bare:
        return Bare(path, swallow=swallow)

    whole = disturbed(memory / "whole", FaultyOs(), opens)
    assert problems(whole) == []
    caught = [problems(disturbed(memory / str(nth), FaultyOs("ENOSPC", [nth]), opens)) for nth in range(1, 20)]
    assert sum(map(bool, caught)) > 5
    told = "training was stopped" if not swallow else "stored"
    assert any(told in text for texts in caught for text in texts)


# -- a real full disk -------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    if os.geteuid() != 0:
        pytest.skip("not proved here: mounting a 2 MB tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    asked = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)], capture_output=True, text=True
    )
    if asked.returncode:
        pytest.skip(f"not proved here: mount is not permitted ({asked.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_costs_text_first_then_batches_and_recovers(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1 << 20))
    rng = np.random.default_rng(0)
    run = open_run(small_disk / "run", monitor=False, options=Options(on_full="wait"))

    def observe(first: int, stop: int) -> None:
        for step in range(first, stop):
            noise = rng.bytes(60_000).hex()  # does not compress to less than a half
            run.observe(step=step, group=[0, 1], reward=[step, 1.0], completion=[noise[:60_000], noise[60_000:]])
        deadline = time.monotonic() + 30
        while sum(run.counters[name] for name in ("written", "thinned", "dropped")) < stop:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    observe(0, 80)
    full = run.counters
    assert full["seen"] == 80 and min(full["written"], full["thinned"], full["dropped"]) > 0
    kinds = [
        "whole" if batch.completion is not None else "thin"
        for batch in (
            RunDirectory(small_disk / "run").read(file)[0] for file in RunDirectory(small_disk / "run").files(0)
        )
    ]
    assert kinds == ["whole"] * full["written"] + ["thin"] * full["thinned"], "numbers are kept longer than text"
    assert not list((small_disk / "run").rglob(".*")), "a failed file still holds the last free space"
    ballast.unlink()
    observe(80, 84)
    run.close()
    assert run.counters["written"] == full["written"] + 4, "space came back and the record went on by itself"
    assert run.counters["seen"] == sum(run.counters[name] for name in ("written", "thinned", "dropped"))
    directory = RunDirectory(small_disk / "run")
    assert {80, 81, 82, 83} <= {file.step for file in directory.files(0)}
    assert untold(directory, run.counters) == []


# -- a slow disk ------------------------------------------------------------------------------------------------------


class Stalled:
    """`os` whose fsync does not come back until it is released."""

    def __init__(self) -> None:
        self.entered, self.released = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        self.entered.set()
        assert self.released.wait(60)
        os.fsync(handle)

    def call(self, name: str, real: Callable[..., Any], *args: Any) -> Any:
        return real(*args)


def test_a_stalled_disk_never_holds_training_up_and_every_batch_is_accounted_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiltmeter.rundir.writer, "SMALL_BATCHES", 0)  # treated as large ones are, without their memory
    stalled = Stalled()
    run = open_run(tmp_path / "run", monitor=False)
    steps = WHOLE_BATCHES + THIN_BATCHES + 40
    with storage(stalled, tiltmeter.rundir.atomic_write):
        slowest = 0.0
        for step in range(steps):
            started = time.perf_counter()
            run.observe(step=step, group=[0, 0], reward=[step, 0.5], completion=["x" * 100, "y"])
            slowest = max(slowest, time.perf_counter() - started)
            assert step or stalled.entered.wait(10)  # the first batch is in the writer's hands, the others queue up
        assert slowest < 0.5, "observe() waited for the disk"
        assert run.counters["seen"] == steps and run.counters["written"] == 0
        assert 0 < run.counters["dropped"] <= 40
        writer = run._writer
        assert writer is not None and writer._thread is not None
        assert writer.close(timeout=0.2) is False, "close() must give up, and say so"
        stalled.released.set()
        writer._thread.join(30)
    counts = run.counters
    assert counts["seen"] == counts["written"] + counts["thinned"] + counts["dropped"]
    assert counts["written"] == WHOLE_BATCHES
    directory = RunDirectory(tmp_path / "run")
    kept = {file.step: directory.read(file)[0] for file in directory.files(0)}
    assert [step for step in kept if kept[step].completion is not None] == list(range(WHOLE_BATCHES))
    thin = [step for step in kept if kept[step].completion is None]
    assert thin == list(range(WHOLE_BATCHES, WHOLE_BATCHES + counts["thinned"])), "first thinned, then refused"
    assert all(kept[step].reward is not None for step in thin)
    assert untold(directory, counts) == []


def test_waiting_for_the_disk_would_be_noticed(tmp_path: Path) -> None:
    stalled = Stalled()
    bare = Bare(tmp_path / "run", swallow=False)
    with storage(stalled, tiltmeter.rundir.atomic_write):
        threading.Timer(0.6, stalled.released.set).start()
        started = time.perf_counter()
        bare.observe(step=0, group=[0], reward=[1.0])
        assert time.perf_counter() - started > 0.5


# -- the journal ------------------------------------------------------------------------------------------------------

BAD_PARTS = """
import sys

class Part:
    grain, needs, bounds = "batch", (), (None, None)

class Raises(Part):
    name = "bad.raises"
    def measure(self, batch, baseline):
        raise ZeroDivisionError("by design")

class Exits(Part):
    name = "bad.exits"
    def measure(self, batch, baseline):
        sys.exit(3)

class Recurses(Part):
    name = "bad.recurses"
    def measure(self, batch, baseline):
        return self.measure(batch, baseline)

class WrongShape(Part):
    name = "bad.shape"
    def measure(self, batch, baseline):
        return [1.0, 2.0, 3.0]

class Sometimes(Part):
    name = "bad.sometimes"
    def measure(self, batch, baseline):
        if batch.step % 3 == 2:
            return [1.0]
        raise MemoryError
"""


@pytest.fixture
def bad_parts(tmp_path: Path) -> tuple[str, ...]:
    plugin = tmp_path / "bad_parts.py"
    plugin.write_text(BAD_PARTS)
    return tuple(f"{plugin}:{name}" for name in ("Raises", "Exits", "Recurses", "WrongShape", "Sometimes"))


def eventful_run(path: Path) -> RunDirectory:
    """A finished run with something of everything: losses, a late rank, a missing one, a damaged file, a duplicate."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="x", ranks=2, resume_step=None)

    def write(step: int, rank: int, **counters: int) -> None:
        batch = from_columns(step, [0, 0, 1], attempt=attempt, reward=[step, rank, None], gold=[1, 0, 1])
        run.write(batch, rank, {"groups": "rank", "counters": counters})

    for step in range(5):
        write(step, 0, seen=step + 1, thinned=step // 2)
        if step != 1:
            write(step, 1, seen=step + 1)
    write(3, 1)
    damaged = run.step_path(attempt, 2, 1)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    for rank in (0, 1):
        run.close_rank(attempt, rank, {"seen": 6, "dropped": 1, "thinned": 2})
    return run


def said(folder: Path) -> list[tuple[Any, ...]]:
    """Everything the events say but when they were written."""
    return [(e.kind, e.attempt, e.step, e.id, e.data) for e in read_events(folder)]


def watched_undisturbed(run: RunDirectory, config: Config, events: Path) -> list[tuple[Any, ...]]:
    watch = MonitorLoop(run, config, events_folder=events)
    while watch.poll():
        pass
    watch.close()
    return said(events)


@pytest.mark.parametrize("way", ("ENOSPC", "EIO", "short", "torn"))
def test_a_journal_write_that_fails_loses_and_doubles_no_event(
    way: str, memory: Path, bad_parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiltmeter.monitor.process, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(tiltmeter.monitor.process, "IDLE_SECONDS", 0.0)
    run, config = eventful_run(memory / "run"), Config.standard(bad_parts)
    expected = watched_undisturbed(run, config, memory / "undisturbed")
    assert {kind for kind, *_ in expected} >= {"attempt", "reading", "fault", "step_done", "note"}
    run_monitor(run, config)  # the first makes folders that the others find
    shutil.rmtree(run.path / "events")
    shutil.rmtree(run.path / "cache", ignore_errors=True)
    counting = FaultyOs()
    with storage(counting, tiltmeter.rundir.atomic_write, tiltmeter.rundir.journal):
        run_monitor(run, config)
    assert said(run.path / "events") == expected
    hit = 0
    for nth, name in enumerate(counting.calls, 1):
        if way in ("short", "torn") and name != "write":
            continue
        shutil.rmtree(run.path / "events")
        shutil.rmtree(run.path / "cache", ignore_errors=True)
        faulty = FaultyOs(way, [nth])
        with storage(faulty, tiltmeter.rundir.atomic_write, tiltmeter.rundir.journal):
            run_monitor(run, config)
        assert said(run.path / "events") == expected, f"call {nth} ({name}) failing with {way}"
        ids = [event["id"] for commit in parsable(run.path / "events" / "0.jsonl") for event in commit["events"]]
        assert len(ids) == len(set(ids)), f"call {nth} ({name}): an event is on disk twice"
        assert str(run.path / "events") in faulty.synced, f"call {nth} ({name}): a power cut may take the whole file"
        hit += bool(faulty.failed)
    assert hit >= (5 if way in ("short", "torn") else 15)


def parsable(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            pass


def test_a_monitor_that_goes_on_after_a_failed_line_would_be_noticed(memory: Path) -> None:
    """The positive control: without starting over from the disk, some failing call must change what is said."""
    run, config = eventful_run(memory / "run"), Config.standard()
    expected = watched_undisturbed(run, config, memory / "undisturbed")
    different = 0
    for nth in range(1, 30):
        events = memory / f"events-{nth}"
        watch = MonitorLoop(run, config, events_folder=events)
        with storage(FaultyOs("torn", [nth]), tiltmeter.rundir.atomic_write, tiltmeter.rundir.journal):
            for _ in range(3):
                try:
                    watch.poll()
                except OSError:
                    pass  # by design: the same watch goes on
        watch.close()
        different += said(events) != expected
    assert different > 0


# -- the trainer's process --------------------------------------------------------------------------------------------

FORK = """
import os, sys, tiltmeter
run = tiltmeter.open_run(sys.argv[1], monitor=False)
run.observe(step=0, group=[0], reward=[1.0])
child = os.fork()
if child == 0:
    run.observe(step=100, group=[0], reward=[2.0])
    run.close()
    sys.exit(0)  # through atexit, as a data loader's worker ends
_, status = os.waitpid(child, 0)
assert status == 0, status
assert not os.path.exists(sys.argv[1] + "/rollouts/0/0.counters.json"), "the child closed its parent's run"
run.observe(step=1, group=[0], reward=[3.0])
run.close()
assert run.counters["written"] == run.counters["seen"] == 2, run.counters
"""


def test_a_forked_child_never_writes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, str(tmp_path / "run")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    run = RunDirectory(tmp_path / "run")
    assert [file.step for file in run.files(0)] == [0, 1]
    assert run.ended(0)


class Interrupts:
    """A tensor during whose copy the user presses Ctrl-C."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.kind


@pytest.mark.parametrize("kind", (KeyboardInterrupt, SystemExit))
def test_stopping_training_is_not_stopped_by_us(kind: type[BaseException], tmp_path: Path) -> None:
    with open_run(tmp_path / "run", monitor=False) as run, pytest.raises(kind):
        run.observe(step=0, group=[0], reward=Interrupts(kind))


def test_an_error_in_a_column_is_counted_and_goes_no_further(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", monitor=False) as run:
        run.observe(step=0, group=[0], reward=Interrupts(MemoryError))
        run.observe(step=1, group=[0, 1], reward=[1.0])
        run.observe(step=2, reward=[1.0])
        run.observe(step=3, group=[0], nonsense=[1.0])
        run.observe(step=4, group=[0], reward=[1.0])
    assert (run.counters["seen"], run.counters["written"], run.counters["dropped"]) == (5, 1, 4)
    assert untold(RunDirectory(tmp_path / "run"), run.counters) == []


def test_a_monitor_that_cannot_be_started_again_does_not_end_the_record(tmp_path: Path) -> None:
    def after_write() -> None:
        raise RuntimeError("can't start new thread")

    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    writer = StepWriter(run, attempt, 0, {}, after_write=after_write)
    for step in range(3):
        writer.offer({"step": step, "group": [0], "reward": [1.0]})
    assert writer.close()
    assert writer.counters["written"] == 3 and run.ended(attempt)


# -- plug-ins ---------------------------------------------------------------------------------------------------------


def test_a_plug_in_that_fails_is_a_fault_is_off_after_three_and_stops_nobody(
    tmp_path: Path, bad_parts: tuple[str, ...]
) -> None:
    with open_run(tmp_path / "run", monitor=False, options=Options(plugins=bad_parts)) as run:
        train(run.observe, steps=7)
    watch = MonitorLoop(RunDirectory(tmp_path / "run"), Config.standard(bad_parts))
    watch.poll()
    watch.close()
    events = read_events(tmp_path / "run" / "events")
    faults = faults_by_part(events)
    for part in ("bad.raises", "bad.exits", "bad.recurses", "bad.shape"):
        assert faults[part] == [(0, False), (1, False), (2, True)], part
    # Twice, a good step, twice again: never three in a row.
    assert faults["bad.sometimes"] == [(0, False), (1, False), (3, False), (4, False), (6, False)]
    assert set(faults) <= {"bad.raises", "bad.exits", "bad.recurses", "bad.shape", "bad.sometimes"}
    readings = {e.step: e.data["measured"] for e in events if e.kind == "reading"}
    assert sorted(readings) == list(range(7))
    assert all("reward.mean" in found for found in readings.values()), "another instrument was stopped by these"
    assert [step for step, found in readings.items() if "bad.sometimes" in found] == [2, 5]
    assert sum(e.kind == "step_done" for e in events) == 7


def faults_by_part(events: list[Event]) -> dict[str, list[tuple[int, bool]]]:
    found: dict[str, list[tuple[int, bool]]] = {}
    for item in events:
        if item.kind == "fault":
            found.setdefault(item.data["part"], []).append((item.step, item.data["off"]))
    return found


def test_a_part_that_was_off_gets_a_new_chance_in_the_next_attempt(tmp_path: Path, bad_parts: tuple[str, ...]) -> None:
    for _ in range(2):
        with open_run(tmp_path / "run", monitor=False) as run:
            train(run.observe, steps=4)
    watch = MonitorLoop(RunDirectory(tmp_path / "run"), Config.standard(bad_parts[:1]))
    watch.poll()
    watch.close()
    faults = [(e.attempt, e.step, e.data["off"]) for e in read_events(tmp_path / "run" / "events") if e.kind == "fault"]
    assert faults == [(a, s, s == 2) for a in (0, 1) for s in (0, 1, 2)]


def test_without_the_boundary_a_plug_in_would_stop_the_monitor(tmp_path: Path, bad_parts: tuple[str, ...]) -> None:
    with open_run(tmp_path / "run", monitor=False) as run:
        train(run.observe, steps=1)
    watch = MonitorLoop(RunDirectory(tmp_path / "run"), Config.standard(bad_parts[1:2]), strict=True)
    with pytest.raises(SystemExit):
        watch.poll()
    watch.close()
