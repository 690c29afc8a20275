"""Faults around a training loop that calls `observe`: training must end as if nobody had watched, and nothing is lost
that the run does not count.

    python benchmarks/training_faults.py [--only NAME ...] [--steps N] [--json] [--write] [--broken]

Each fault is met by a training in a process of its own: storage that fails, a gold function that fails, batches that
are none, a monitor that is killed, a second trainer, signals in `observe` and in `close`. The trainer catches its own
signals and goes on. The harness counts what it handed over; a call that a signal ended before its first line was none.
A training failure is a step that was not done, an exception that is not of the user's own signal, or such an exception
that did not come out. Uncounted is a batch that is neither stored nor among the losses that the run states; green, a
run that says OK although a step was not measured or gold failed. Read-only and full disks are a `tmpfs` in a private
mount namespace, and are left out where that cannot be had. The clock that jumps is Python's `time.time`, in the
trainer and in the monitor.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import logging
import math
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import tiltmeter
import tiltmeter.rundir.atomic_write
from record import record, show
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.errors import Boundary
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory

FULL_STEPS, PAUSE = 60, 0.03
STORM = 20  # times as many steps, in a storm of signals
GROUP = np.repeat(np.arange(4), 4)
VERDICT_SECONDS = 90.0
KILLED_SECONDS = 62.0  # after which a run whose trainer was killed must not look alive
DISK_BYTES = 24 << 20
CLOCK = "TILTMETER_BENCH_CLOCK"  # a file with seconds by which the clock is wrong
CLOCK_CODE = """
import os, time
_true = time.time
def _wrong():
    try:
        with open(os.environ["TILTMETER_BENCH_CLOCK"]) as file:
            return _true() + float(file.read() or 0)
    except OSError:
        return _true()
time.time = _wrong
"""
GOLD = {
    "gold_raises": "raise ValueError('boom ' * 50)",
    "gold_is_nonsense": "return 'perhaps'",
    "gold_exits": "os._exit(3) if completion.startswith('5 ') else None; return float(completion.endswith('1'))",
    "gold_hangs": "re.search(r'^(\\w+\\s?)*$', 'word ' * 9 + '!' if completion.startswith('5 0 ') else ''); "
    "return float(completion.endswith('1'))",
}


class SwapOSError(Exception):
    """Never raised: the base of what a broken column raises, so that no handler of ours knows its name."""


class PreemptedError(RuntimeError):
    """What the user's handler raises."""


@dataclass
class Training:
    """One training under one fault, as the harness sees it."""

    fault: str
    work: Path
    steps: int
    run: Run = field(init=False)
    handed: int = 0  # batches
    done: int = 0  # steps
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    signals_due: int = 0  # that must come out, one by one
    signals_seen: int = 0
    is_inside: bool = False  # a call of ours, where a handler may raise
    is_over: bool = False
    held: list[Any] = field(default_factory=list)

    @property
    def place(self) -> Path:
        return self.work / "disk" / "run"

    def columns(self, step: int) -> dict[str, Any]:
        rng = np.random.default_rng(step)
        reward = rng.normal(size=16)
        good = (reward > 0).astype(int)
        columns = {
            "step": step,
            "group": GROUP,
            "reward": reward,
            "completion": [f"{step} {row} {good[row]}" for row in range(16)],
            "prompt": [f"task {group}" for group in GROUP],
        }
        return columns if self.fault in GOLD else columns | {"gold": good.astype(float)}

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The user's signal handler."""
        if self.is_inside:
            self.is_inside = False
            raise PreemptedError(number)

    def call(self, work: Callable[[], object], *, batch: bool = False) -> None:
        """A call into the product, with what came out of it. `batch`: one is handed over."""
        began = time.perf_counter()
        try:
            self.is_inside = True
            work()
            self.is_inside = False
            self.handed += batch
        except (PreemptedError, KeyboardInterrupt, SystemExit) as error:
            self.is_inside = False
            self.signals_seen += 1
            self.handed += batch and was_begun(error)
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is what must not come
            self.failures.append(f"{type(error).__name__}: {error}"[:200])
            self.handed += batch
        if batch:
            self.slowest = max(self.slowest, time.perf_counter() - began)

    def send(self, number: int) -> None:
        self.signals_due += 1
        os.kill(os.getpid(), number)

    def soon(self, number: int, seconds: float = 0.05) -> None:
        threading.Timer(seconds, self.send, (number,)).start()


def was_begun(error: BaseException) -> bool:
    """Whether a signal came after the first line of `observe`: before, no batch was handed over."""
    trace = error.__traceback__
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    for position, one in enumerate(frames):
        if one.tb_frame.f_code is Run.observe.__code__:
            is_last = position + 1 == len(frames) or frames[position + 1].tb_frame.f_code is Training.handle.__code__
            return not (is_last and one.tb_lineno == one.tb_frame.f_code.co_firstlineno)
    return False


class Column:
    """Values whose reading does something."""

    def __init__(self, values: Any, act: Callable[[], object]) -> None:
        self.values, self.act = values, act

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        self.act()
        return np.asarray(self.values)

    def __len__(self) -> int:
        return len(self.values)


# -- what happens before a step; each may change the step's columns ----------------------------------------------------

Act = Callable[[Training, int, dict[str, Any]], None]
ACTS: dict[str, Act] = {}


def act(function: Act) -> Act:
    ACTS[function.__name__] = function
    return function


def third(training: Training) -> int:
    return training.steps // 3


@act
def empty_steps(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step % 3 == 1:
        columns |= {"group": [], "reward": [], "completion": [], "prompt": [], "gold": []}


@act
def not_numbers(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step % 2:
        columns["reward"] = [math.nan, math.inf, -math.inf, 1e308] * 4


@act
def broken_text(training: Training, step: int, columns: dict[str, Any]) -> None:
    columns["completion"] = ["\ud800bad", "x\x00y", "\udcff" * 10, "\x1b[2J"] * 4


@act
def bytes_for_text(training: Training, step: int, columns: dict[str, Any]) -> None:
    columns["completion"] = [b"\xff\xfe\x00"] * 16


@act
def huge_text(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step % 5 == 0:
        columns["completion"] = ["x" * 1_000_000] * 16


@act
def ragged_columns(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step % 2:
        columns["reward"] = [1.0, 0.0]


@act
def raising_columns(training: Training, step: int, columns: dict[str, Any]) -> None:
    def fail() -> None:
        raise SwapOSError("odd")

    if step % 4 == 1:
        columns["reward"] = Column(columns["reward"], fail)


@act
def directory_deleted(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step == third(training):
        shutil.rmtree(training.place, ignore_errors=True)


@act
def directory_moved(training: Training, step: int, columns: dict[str, Any]) -> None:
    away = training.place.with_name("away")
    if step == third(training):
        training.place.rename(away)
    if step == 2 * third(training):
        shutil.rmtree(training.place, ignore_errors=True)
        away.rename(training.place)


@act
def directory_changed(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step == third(training):
        os.chdir("/")


@act
def disk_read_only(training: Training, step: int, columns: dict[str, Any]) -> None:
    place = str(training.place)
    if step == third(training):  # mounted over itself, since a file that is open for writing keeps a disk writable
        subprocess.run(["mount", "--bind", place, place], check=True)
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
    if step == 2 * third(training):
        subprocess.run(["umount", "-l", place], check=True)


@act
def disk_full(training: Training, step: int, columns: dict[str, Any]) -> None:
    filler = training.place.parent / "filler"
    if step == third(training):
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 65536)
    if step == 2 * third(training):
        filler.unlink()


@act
def no_descriptors(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step == third(training):
        with suppress(OSError):
            while True:
                training.held.append(os.open(os.devnull, os.O_RDONLY))
    if step == 2 * third(training):
        for handle in training.held:
            os.close(handle)


@act
def forked_children(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step % 10 == 5:
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12, about forks beside threads
        if (child := os.fork()) == 0:
            try:
                for later in range(3):
                    training.run.observe(**{**columns, "step": 1000 + later})
                training.run.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)


@act
def clock_jumps(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step in (third(training), 2 * third(training)):
        Path(os.environ[CLOCK]).write_text("86400" if step == third(training) else "-86400")


@act
def monitor_stopped(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step == third(training):
        monitor(training).send_signal(signal.SIGSTOP)


@act
def monitor_killed(training: Training, step: int, columns: dict[str, Any]) -> None:
    """More often than it is started again at once: the run ends in the pause before the next start."""
    if step >= third(training) and monitor(training).poll() is None:
        monitor(training).kill()


@act
def same_directory_twice(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step == 0:
        training.held.append(open_run(training.place, monitor=False))
    training.held[0].observe(**columns)
    if step == training.steps - 1:
        training.held[0].close()
        check_rival(training, training.held[0].directory)


@act
def second_trainer(training: Training, step: int, columns: dict[str, Any]) -> None:
    if step == 0:
        command = [
            sys.executable,
            __file__,
            "--child",
            "none",
            "--place",
            str(training.place),
            "--steps",
            "5",
            "--unwatched",
        ]
        training.held.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    if step == training.steps - 1:
        told = json.loads(training.held[0].communicate(timeout=VERDICT_SECONDS)[0].splitlines()[-1])
        check_rival(training, Path(told["directory"]))
        if not any(f"process {os.getpid()} " in line for line in told["told"]):
            training.failures.append(f"the second trainer was not told who writes there: {told['told']}")


def check_rival(training: Training, place: Path | None) -> None:
    if place in (None, training.run.directory):
        training.failures.append("two trainers write into one directory")


@act
def signal_storm(training: Training, step: int, columns: dict[str, Any]) -> None:
    """At any moment of any call."""
    if step == 0:
        signal.signal(signal.SIGUSR1, training.handle)

        def shoot() -> None:
            rng = np.random.default_rng(7)
            while not training.is_over:
                time.sleep(float(rng.random()) * 0.001)
                os.kill(os.getpid(), signal.SIGUSR1)

        threading.Thread(target=shoot, daemon=True).start()


def interrupted_observe(number: int, *, handler: bool) -> Act:
    def interrupt(training: Training, step: int, columns: dict[str, Any]) -> None:
        if step == 0 and handler:
            signal.signal(number, training.handle)
        if step % 7 == 3:
            columns["reward"] = Column(columns["reward"], lambda: training.send(number))

    return interrupt


def interrupted_close(number: int, *, handler: bool) -> Act:
    def interrupt(training: Training, step: int, columns: dict[str, Any]) -> None:
        if step == 0 and handler:
            signal.signal(number, training.handle)
        if step == training.steps - 10:
            make_storage_slow()  # the end has a queue to write
        if step == training.steps - 1:
            training.held.append(number)  # sent once `close` has begun

    return interrupt


for _number, _name in ((signal.SIGINT, "sigint"), (signal.SIGTERM, "sigterm")):
    for _handler in (False, True):
        _how = "handled" if _handler else "default"
        ACTS[f"{_name}_{_how}_in_observe"] = interrupted_observe(_number, handler=_handler)
        ACTS[f"{_name}_{_how}_in_close"] = interrupted_close(_number, handler=_handler)


@act
def signals_twice_in_close(training: Training, step: int, columns: dict[str, Any]) -> None:
    interrupted_close(signal.SIGINT, handler=False)(training, step, columns)
    if step == training.steps - 1:
        training.held.append(signal.SIGINT)


@act
def none(training: Training, step: int, columns: dict[str, Any]) -> None:
    """The control: a run without a fault, which must say OK."""


FAULTS = tuple(name for name in (*GOLD, *ACTS, "read_only_from_the_start") if name != "none")
#: Whose storage is a disk of its own.
ON_A_DISK = ("disk_read_only", "disk_full", "read_only_from_the_start")
#: The signal's own action ends the process, and no code of ours runs: what was queued is lost and cannot be counted,
#: but the run must not look well.
KILLS_TRAINER = ("sigterm_default_in_observe", "sigterm_default_in_close")
STORAGE_TAKEN_AWAY = ("directory_deleted",)


def monitor(training: Training) -> subprocess.Popen[bytes]:
    process = training.run._monitor
    assert process is not None
    return process.process


def make_storage_slow() -> None:
    class Slow:
        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

        def fsync(self, handle: int) -> None:
            time.sleep(0.03)
            os.fsync(handle)

    vars(tiltmeter.rundir.atomic_write)["os"] = Slow()


# -- one training, in a process of its own -----------------------------------------------------------------------------


def train(fault: str, work: Path, steps: int, place: Path | None, *, watched: bool) -> dict[str, Any]:
    told: list[str] = []
    # A shell's background job ignores Ctrl-C, and so would every training here: "default" is what a terminal gives.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    class Listener(logging.Handler):
        def emit(self, line: logging.LogRecord) -> None:
            told.append(line.getMessage()[:300])

    logging.getLogger("tiltmeter").addHandler(Listener())
    steps *= STORM if fault == "signal_storm" else 1
    training = Training(fault, work, steps)
    where = training.place if place is None else place
    with disk(training), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        settings: dict[str, Any] = {}
        if fault in GOLD:
            source = work / "gold.py"
            source.write_text(f"import os, re\ndef score(prompt, completion, **facts):\n    {GOLD[fault]}\n")
            settings = {"gold": tiltmeter.Gold(f"{source}:score", share=1.0)}
        try:
            training.run = open_run(where, monitor=watched and place is None, **settings)
        except tiltmeter.AttachError as error:
            return {"fault": fault, "refused": str(error)[:200]}
        if fault == "no_descriptors":
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        for step in range(steps):
            columns = training.columns(step)
            ACTS.get(fault, none)(training, step, columns)
            training.call(lambda: training.run.observe(**columns), batch=True)  # noqa: B023 - called at once
            training.done += 1
            is_hurried = fault == "signal_storm" or vars(tiltmeter.rundir.atomic_write)["os"] is not os
            time.sleep(0.001 if is_hurried else PAUSE)
        for later, number in enumerate(item for item in training.held if isinstance(item, signal.Signals)):
            training.soon(number, 0.05 + 0.1 * later)
        began = time.perf_counter()
        training.call(training.run.close)
        closing = time.perf_counter() - began
        training.is_over = True
        time.sleep(0.3)  # a timer that is late
        if fault == "signals_twice_in_close":
            training.signals_due = 1  # of several that come in one call one comes out
        told += [str(one.message) for one in warned]
        return result_of(training, closing, told, watched=watched)


def result_of(training: Training, closing: float, told: list[str], *, watched: bool) -> dict[str, Any]:
    counts, place = training.run.counters, training.run.directory
    due = training.signals_seen if training.fault == "signal_storm" else training.signals_due
    return {
        "fault": training.fault,
        "directory": str(place),
        "done": training.done,
        "handed": training.handed,
        "said_stored": counts["written"] + counts["thinned"],
        "accounted": counts["written"] + counts["thinned"] + counts["dropped"],
        "failures": training.failures,
        "swallowed": due - training.signals_seen,
        "slowest_ms": round(1e3 * training.slowest, 1),
        "close_s": round(closing, 1),
        "signals": training.signals_seen,
        "told": told[:8],
        "steps": training.steps,
        **({"state": "GONE"} if place is None or not (place / "run.json").exists() else judge(place, watched=watched)),
    }


def judge(place: Path, *, watched: bool = True) -> dict[str, Any]:
    """What the run says, and the harness's own look at what is stored and measured."""
    store = RunDirectory(place)
    attempt = store.attempts()[-1]
    if not watched:
        return {"state": "NOT ASKED", "stored": len(store.files(attempt)), "measured": 0}
    verdict = Run(store, attempt=attempt).verdict(timeout=VERDICT_SECONDS)
    with suppress(tiltmeter.TiltmeterError, OSError):
        events = read_events(place / "events")
        return {
            "state": verdict.state,
            "exit_code": verdict.exit_code,
            "why": verdict.sentence[:160],
            "stored": len(store.files(attempt)),
            "ended": store.ended(attempt),
            "measured": sum(event.kind == "step_done" and event.attempt == attempt for event in events),
        }
    return {"state": verdict.state, "exit_code": verdict.exit_code, "stored": 0, "ended": False, "measured": 0}


@contextmanager
def disk(training: Training) -> Iterator[None]:
    """The disk of a run: a folder, or a file system of its own, which is gone with this process's namespace."""
    folder = training.work / "disk"
    folder.mkdir(exist_ok=True)
    if training.fault in ON_A_DISK:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)], check=True)
        if training.fault == "read_only_from_the_start":
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield


# -- all of them -----------------------------------------------------------------------------------------------------


def can_mount() -> str:
    """How a process gets a mount namespace of its own here; empty if it cannot."""
    for way in ("unshare -m", "unshare -rm"):
        with suppress(OSError), tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*way.split(), "mount", "-t", "tmpfs", "none", folder], capture_output=True)
            if done.returncode == 0:
                return way
    return ""


def run_one(fault: str, work: Path, steps: int, *, mounts: str, options: list[str]) -> dict[str, Any]:
    work.mkdir()
    environment = dict(os.environ)
    if fault == "clock_jumps":
        (work / "clock").mkdir()
        (work / "clock" / "sitecustomize.py").write_text(CLOCK_CODE)
        environment |= {CLOCK: str(work / "clock" / "offset")}
        environment["PYTHONPATH"] = os.pathsep.join([str(work / "clock"), environment.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, "--child", fault, "--work", str(work), "--steps", str(steps)]
    command = [*(mounts.split() if fault in ON_A_DISK else ()), *command, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    if done.returncode == -signal.SIGTERM and fault in KILLS_TRAINER:
        return {"fault": fault, "killed": True, "ended_at": time.time(), "steps": steps}
    try:
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return {"steps": steps, **result}
    except (IndexError, ValueError):
        why = f"exit {done.returncode}: {done.stderr[-500:]}"
        return {"fault": fault, "steps": steps, "done": 0, "failures": [why], "handed": 0, "accounted": 0, "state": "?"}


def judge_killed(result: dict[str, Any], work: Path) -> None:
    """A trainer that a signal killed says nothing: once it is silent for too long, the run must say so."""
    time.sleep(max(0.0, result["ended_at"] + KILLED_SECONDS - time.time()))
    result |= judge(work / "disk" / "run")


def problems_of(result: dict[str, Any]) -> dict[str, int]:
    """What a fault led to, by kind of defect."""
    if "refused" in result:
        return {"training_failed": int(result["fault"] != "read_only_from_the_start"), "uncounted": 0, "green": 0}
    if result.get("killed"):
        is_green = result["state"] == "OK" or result["exit_code"] == 0
        return {"training_failed": 0, "uncounted": 0, "green": int(is_green)}
    is_short = result["state"] != "GONE" and result.get("measured", 0) < result["handed"]
    costs = is_short or result["fault"] in ("gold_raises", "gold_is_nonsense")
    # What the run says that it stored, and is not there, is lost unless somebody took the directory away.
    gone = result["said_stored"] - result["stored"] if "stored" in result else 0
    unsaid = abs(result["handed"] - result["accounted"]) + (
        0 if result["fault"] in STORAGE_TAKEN_AWAY else max(0, gone)
    )
    return {
        "training_failed": int(bool(result["failures"] or result["done"] < result["steps"] or result.get("swallowed"))),
        "uncounted": unsaid,
        "green": int(costs and result.get("exit_code") == 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=(*FAULTS, "none"), default=None)
    parser.add_argument("--steps", type=int, default=FULL_STEPS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--broken", action="store_true", help="a boundary that hides signals and lets errors through")
    parser.add_argument("--unwatched", action="store_true", help="without a monitor: what is counted, in little time")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.broken:
        Boundary.__exit__ = lambda self, kind, error, trace: kind is PreemptedError  # type: ignore[method-assign]
    if options.child:
        work = options.work or Path(tempfile.mkdtemp())
        print(
            json.dumps(train(options.child, work, options.steps, options.place, watched=not options.unwatched)),
            flush=True,
        )
        return
    mounts = can_mount()
    passed = [f"--{name}" for name in ("broken", "unwatched") if vars(options)[name]]
    results, left_out = [], {}
    with tempfile.TemporaryDirectory(prefix="training-faults-") as folder:
        for fault in options.only or ("none", *FAULTS):
            if fault in ON_A_DISK and not mounts:
                left_out[fault] = "no private mount namespace here: run as root, or allow user namespaces"
                continue
            results.append(run_one(fault, Path(folder) / fault, options.steps, mounts=mounts, options=passed))
            if not options.json:
                print(json.dumps(results[-1]), flush=True)
        for result in results:
            if result.get("killed"):
                judge_killed(result, Path(folder) / result["fault"])
    show_results(results, left_out, options)


def show_results(results: list[dict[str, Any]], left_out: dict[str, str], options: argparse.Namespace) -> None:
    problems = {result["fault"]: problems_of(result) for result in results}
    faulty = {fault: found for fault, found in problems.items() if fault != "none"}
    figures = {
        "faults": len(faulty),
        **{kind: sum(found[kind] for found in problems.values()) for kind in ("training_failed", "uncounted", "green")},
        "control_is_ok": all(result["exit_code"] == 0 for result in results if result["fault"] == "none"),
        "slowest_observe_ms": max((result.get("slowest_ms", 0.0) for result in results), default=0.0),
        "slowest_close_s": max((result.get("close_s", 0.0) for result in results), default=0.0),
        "steps": sum(result.get("steps", 0) for result in results),
        "unmeasured": sum(max(0, result["stored"] - result["measured"]) for result in results if "stored" in result),
        "verdicts": {result["fault"]: result.get("state", "refused at attach") for result in results},
        "left_out": left_out,
        "wrong": [result for result in results if any(problems[result["fault"]].values())],
    }
    keep = options.write and options.only is None
    show(record("training_faults", figures, seed=7, keep=keep), as_json=options.json)


if __name__ == "__main__":
    main()
