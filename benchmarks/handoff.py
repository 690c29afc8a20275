"""What `observe()` costs the training thread: by reference, by copy, and with a full queue on a stalled disk.

    python benchmarks/handoff.py --json

Each call hands over one optimiser step of 512 rollouts x 200 tokens with every usual column, while the writer thread
is busy with the step before and the training thread works (matrix products and plain Python) in between. The monitor
is another process and is left out. Times are wall time on the training thread, because waiting for the interpreter
lock is part of what a trainer pays; `work_cpu_ratio` is the same comparison in CPU time.
"""

from __future__ import annotations

import os

# Before numpy is imported: a matrix product on all cores would leave none to the writer thread.
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import record
from store import Others, completions, logprobs
from tiltmeter import Launch, open_run
from tiltmeter.adapters.custom_loop import Run
from tiltmeter.data.records import Ragged
from tiltmeter.rundir.store import RunDirectory

ROLLOUTS, TOKENS, GROUP = 512, 200, 8
ROUND = 100  # calls of each form on one run directory: its files (about 1 MB each) are deleted before the next round
FORMS = ("give", "copy", "give_ragged", "copy_ragged")
TURNS = ("give", "copy", "plain", "give_ragged", "copy_ragged")  # plain: the arrays are copied and nothing else is done

Figures = dict[str, float | int | str | bool]
Columns = dict[str, Any]
Pool = dict[bool, list[Columns]]  # by whether token columns are ragged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quick", action="store_true", help="500 calls of each form instead of 2,000")
    parser.add_argument("--calls", type=int, help="calls of each form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="write the result file whatever the size")
    options = parser.parse_args()
    logging.getLogger("tiltmeter").setLevel(logging.ERROR)  # losing batches is the subject here, not news
    calls = options.calls or (500 if options.quick else 2_000)
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory(prefix="tiltmeter-handoff-") as folder:
        home = Path(folder)
        pool = {ragged: [_columns(rng, ragged) for _ in range(2)] for ragged in (False, True)}
        _check_oracle(home / "oracle", rng)
        others = Others()
        figures = {
            "calls": calls,
            "rollouts": ROLLOUTS,
            "tokens": TOKENS,
            "batch_mb": round(_bytes(pool[False][0]) / 1e6, 2),
        }
        figures |= _free_queue(home, pool, calls) | _full_queue(home, pool, calls)
        figures |= _work(home, pool, pairs=max(2, min(40, calls // 25))) | others.figures()
    full = options.calls is None and not options.quick
    result = record("handoff", figures, seed=options.seed, keep=full or options.keep)
    print(json.dumps(result) if options.json else "\n".join(f"{name:24} {value}" for name, value in result.items()))


def _free_queue(home: Path, pool: Pool, calls: int) -> Figures:
    """Calls beside a busy writer whose queue is not full; the four forms take turns, so noise falls on all alike."""
    taken: dict[str, list[float]] = {turn: [] for turn in TURNS}
    totals = dict.fromkeys(("seen", "written", "thinned", "dropped"), 0)
    for first in range(0, calls, ROUND):
        rounds = min(ROUND, calls - first)
        with _run(home / "free") as run:
            for call in range(rounds * len(TURNS)):
                turn = TURNS[call % len(TURNS)]
                columns = {**pool["ragged" in turn][call // len(TURNS) % 2], "step": call}
                # The next step ends while the writer still has one to do, and before it has two.
                _unit()
                while _backlog(run) > 1:
                    _unit()
                start = time.perf_counter()
                if turn == "plain":
                    held = _plain_copy(columns)
                else:
                    run.observe(give=turn.startswith("give"), **columns)
                taken[turn].append(time.perf_counter() - start)
                if turn == "plain":
                    del held
                    run.observe(give=True, **columns)
        for name, count in _closing_counters(home / "free", run, calls=rounds * len(TURNS)).items():
            totals[name] += count
        shutil.rmtree(home / "free")
    figures: Figures = {}
    for form, name in (("give", ""), ("copy", "_copy"), ("give_ragged", "_ragged"), ("copy_ragged", "_copy_ragged")):
        for share, figure in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1.0, "max")):
            figures[f"{figure}{name}_ms"] = _ms(np.quantile(taken[form], share))
    plain = float(np.median(taken["plain"]))
    figures["copy_ms_median"] = _ms(plain)
    figures["copy_ms_p95"] = _ms(np.quantile(taken["plain"], 0.95))
    figures["p95_vs_copy"] = round(float(np.quantile(taken["give"], 0.95)) / plain, 3)
    return figures | {f"free_{name}": count for name, count in totals.items()}


def _full_queue(home: Path, pool: Pool, calls: int) -> Figures:
    """Every fsync hangs: the writer never finishes a file, so whole batches, then thinned ones, then none fit."""
    taken: list[float] = []
    with _run(home / "full") as run, _stalled_disk() as stalled:
        run.observe(**pool[False][0], step=0)
        stalled.wait()
        for step in range(1, calls + 1):
            full = _backlog(run) >= 8
            columns = {**pool[False][step // 2 % 2], "step": step}
            start = time.perf_counter()
            run.observe(give=step % 2 == 0, **columns)
            if full:
                taken.append(time.perf_counter() - start)
            _unit()
    counters = _closing_counters(home / "full", run, calls=calls + 1)
    shutil.rmtree(home / "full")
    return {
        "full_queue_calls": len(taken),
        "full_queue_median_ms": _ms(np.median(taken)),
        "full_queue_p95_ms": _ms(np.quantile(taken, 0.95)),
        "full_queue_p99_ms": _ms(np.quantile(taken, 0.99)),
        "full_queue_max_ms": _ms(max(taken)),
        **{name: counters[name] for name in ("seen", "written", "thinned", "dropped")},
    }


def _work(home: Path, pool: Pool, pairs: int, steps: int = 3, units: int = 30) -> Figures:
    """The same training work with a run (default copy, one batch per step) and without, in turns ABBA."""
    wall: dict[bool, list[float]] = {True: [], False: []}
    busy: dict[bool, list[float]] = {True: [], False: []}
    beside = 0.0
    with _run(home / "work") as run:
        for pair in range(pairs):
            for on in (True, False) if pair % 2 else (False, True):
                start, cpu, process = time.perf_counter(), time.thread_time(), time.process_time()
                for step in range(steps):
                    if on:
                        run.observe(**pool[False][step % 2], step=pair * steps + step)
                    for _ in range(units):
                        _unit()
                wall[on].append(time.perf_counter() - start)
                busy[on].append(time.thread_time() - cpu)
                time.sleep(0.05)  # after both alike: a core that has rested is faster for a moment
                while _backlog(run):
                    time.sleep(0.005)
                if on:
                    beside += time.process_time() - process - (time.thread_time() - cpu)
    _closing_counters(home / "work", run, calls=pairs * steps)
    shutil.rmtree(home / "work")
    ratios = np.array(wall[True]) / np.array(wall[False])
    return {
        "work_step_ms": _ms(np.median(wall[False]) / steps),
        "work_ratio": round(float(np.median(ratios)), 4),
        "work_ratio_low": round(float(np.quantile(ratios, 0.25)), 4),
        "work_ratio_high": round(float(np.quantile(ratios, 0.75)), 4),
        "work_extra_ms": _ms(np.median(np.array(wall[True]) - np.array(wall[False])) / steps),
        "work_cpu_ratio": round(float(np.median(np.array(busy[True]) / np.array(busy[False]))), 4),
        "work_pairs": pairs,
        "writer_cpu_ms": _ms(beside / (pairs * steps)),
    }


def _check_oracle(folder: Path, rng: np.random.Generator) -> None:
    """All four forms end up on disk bit by bit, also where the caller overwrites its buffers after the call."""
    with _run(folder) as run:
        wanted = []
        for step, form in enumerate(FORMS):
            columns = _columns(rng, "ragged" in form)
            wanted.append({name: _flat(column) for name, column in columns.items()})
            run.observe(give=form.startswith("give"), **columns, step=step)
            if form == "copy":
                columns["logprob"][:] = 0
                columns["reward"][:] = 0
    stored = RunDirectory(folder)
    for step, file in enumerate(stored.files(run.attempt)):
        batch, _, _ = stored.read(file)
        for name in (
            "group",
            "reward",
            "length",
            "truncated",
            "prompt",
            "completion",
            "tokens",
            "logprob",
            "ref_logprob",
        ):
            assert np.array_equal(_flat(getattr(batch, name)), wanted[step][name]), (FORMS[step], name)
        assert np.array_equal(batch.rewards["format"], wanted[step]["rewards"]), FORMS[step]
    assert _closing_counters(folder, run, calls=len(FORMS))["written"] == len(FORMS)
    shutil.rmtree(folder)


def _columns(rng: np.random.Generator, ragged: bool) -> Columns:
    """One step as a trainer holds it: padded matrices with 64-bit ids (torch's own), or flat rows with offsets."""
    texts, ids = completions(ROLLOUTS, TOKENS, skip=int(rng.integers(100_000)))
    prompts, _ = completions(ROLLOUTS // GROUP, 50, skip=int(rng.integers(100_000)))
    logprob, ref_logprob = logprobs(rng, ROLLOUTS * TOKENS, "noise")
    rewards = {"correct": rng.integers(0, 2, ROLLOUTS).astype(np.float64), "format": rng.random(ROLLOUTS)}
    columns: Columns = {
        "group": np.repeat(np.arange(ROLLOUTS // GROUP), GROUP),
        "reward": rewards["correct"] + 0.1 * rewards["format"],
        "rewards": rewards,
        "length": np.full(ROLLOUTS, TOKENS),
        "truncated": rng.random(ROLLOUTS) < 0.05,
        "prompt": [prompt for prompt in prompts for _ in range(GROUP)],
        "completion": texts,
    }
    flat: dict[str, NDArray[Any]] = {"tokens": ids, "logprob": logprob, "ref_logprob": ref_logprob}
    if ragged:
        offsets = np.arange(ROLLOUTS + 1) * TOKENS
        return columns | {name: Ragged(values, offsets) for name, values in flat.items()}
    flat["tokens"] = flat["tokens"].astype(np.int64)
    return columns | {name: values.reshape(ROLLOUTS, TOKENS).copy() for name, values in flat.items()}


def _flat(column: Any) -> NDArray[np.generic] | list[str]:
    """A copy of what a column says, in a form that is the same before and after storage."""
    if isinstance(column, dict):
        column = column["format"]
    if isinstance(column, Ragged):
        column = column.values
    return np.array(column).reshape(-1) if isinstance(column, np.ndarray) else list(column)


def _plain_copy(columns: Columns) -> list[NDArray[np.generic]]:
    arrays = [column for column in columns.values() if isinstance(column, np.ndarray)]
    return [array.copy() for array in (*arrays, *columns["rewards"].values())]


def _bytes(columns: Columns) -> int:
    return sum(array.nbytes for array in _plain_copy(columns))


_MATRIX = np.random.default_rng(0).random((256, 256), np.float32)


def _unit() -> int:
    """About 3 ms of training: half in a library that lets go of the interpreter lock, half plain Python."""
    for _ in range(4):
        _MATRIX @ _MATRIX
    total = 0
    for number in range(25_000):
        total += number & 7
    return total


@contextmanager
def _run(folder: Path) -> Iterator[Run]:
    with open_run(folder, launch=Launch(rank=0, ranks=1), monitor=False) as run:
        yield run


@contextmanager
def _stalled_disk() -> Iterator[threading.Event]:
    """`os.fsync` does not come back until the block is left; the event says that somebody is waiting in it."""
    real, stalled, released = os.fsync, threading.Event(), threading.Event()

    def stuck(handle: int) -> None:
        stalled.set()
        released.wait()
        real(handle)

    os.fsync = stuck  # type: ignore[assignment]
    try:
        yield stalled
    finally:
        os.fsync = real
        released.set()


def _closing_counters(folder: Path, run: Run, calls: int) -> dict[str, int]:
    """The counters a closed run left on disk, after the promise about them is checked."""
    counters = RunDirectory(folder).counters(run.attempt)[0]
    assert counters["seen"] == calls == counters["written"] + counters["thinned"] + counters["dropped"], counters
    assert len(RunDirectory(folder).files(run.attempt)) == counters["written"] + counters["thinned"], counters
    return {name: counters[name] for name in ("seen", "written", "thinned", "dropped")}


def _backlog(run: Run) -> int:
    counters = run.counters
    return counters["seen"] - counters["written"] - counters["thinned"] - counters["dropped"]


def _ms(seconds: float | np.floating[Any]) -> float:
    return round(float(seconds) * 1e3, 4)


if __name__ == "__main__":
    main()
