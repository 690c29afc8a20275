"""A run of 100,000 steps x 70 readings: how soon it opens, what its monitor needs, how fast missed steps are caught up.

    python benchmarks/journal_scale.py [DIRECTORY] [--steps 100000] [--missed 5000] [--json] [--write] [--seed 0]

The long run is watched by the real `run_monitor`: arrivals, state, folds, journal, snapshots, list entry. Two things
are made up. A trainer in the same process puts the files of steps in place just before they are looked for, as hard
links to a few real ones. And what the instruments answer is one step's real answers with other numbers, because
measuring 100,000 steps takes most of an hour and leaves the same events.

`memory_growth`: resident memory of that process at the last step by that at a tenth of it, and in MB for 10,000 steps.
`cpu_ratio_last_to_first`: CPU time of a step in its last tenth by that in its second.
`open_s`: from the first question to a server that has opened no run until the overview is served, without starting
Python, and None if the server gave up; `plots_s` the plots after that; `open_without_cache_s` the same where there is
nothing but the journal to read. `open_s_1e5` is `open_s` of a run of 100,000 steps.
`restart_s`: until a monitor goes on, with and without its snapshot; `restore_steps_a_second` is without.
Then `--missed` real steps of 16 rollouts are added to the long run while no monitor runs. `catch_up_s` is from the
start of the real monitor process until the last of them is in the journal. `catch_up_ratio` is their rate by
LIVE_STEPS_A_SECOND: one a second, which is faster than the smallest model on record here is trained (`overhead_trl`,
`wall_plain_s`). `replay_steps_a_second` is of `--missed` such steps in a run of their own, measured again.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Container
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from page_browser import served
from record import record, show
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Reading, RolloutBatch
from tiltmeter.instruments.training import SCALARS
from tiltmeter.monitor import loop as monitor_loop
from tiltmeter.monitor.arrivals import Rollouts, StepReady
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.measure_step import StepMeasurement, measure
from tiltmeter.monitor.panel import InstrumentResult
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import run_id

LIVE_STEPS_A_SECOND = 1.0
READINGS = 70
ROWS = 16
AHEAD = 100  # steps that are put in place at once
FIRST = 100  # steps whose files are their own: a restart reads what the run is compared with
LINKS = 20_000  # to one file: file systems have a limit
SECONDS = 3600.0  # that anything may take


def make_batch(step: int, seed: int) -> RolloutBatch:
    """Sixteen rollouts with everything that a trainer can hand over."""
    rng = np.random.default_rng((seed, step))
    lengths = rng.integers(8, 24, ROWS)
    tokens = [rng.integers(0, 1000, length).tolist() for length in lengths]
    logprob, reference, entropy = ([(-rng.random(length)).tolist() for length in lengths] for _ in range(3))
    return from_columns(
        step,
        np.arange(ROWS) // 4,
        reward=rng.random(ROWS),
        gold=rng.random(ROWS),
        rewards={"correct": rng.random(ROWS), "format": rng.random(ROWS)},
        prompt=[f"question {step % 50} {row // 4}" for row in range(ROWS)],
        completion=[" ".join(map(str, row)) for row in tokens],
        tokens=tokens,
        logprob=logprob,
        ref_logprob=reference,
        entropy=[[-one for one in row] for row in entropy],
        truncated=(rng.random(ROWS) < 0.1).tolist(),
        scalars={name: float(rng.random()) for name in SCALARS[4:17]},
    )


def extra(step: int) -> dict[str, Any]:
    return {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()}


# -- the long run -----------------------------------------------------------------------------------------------------


class MadeAnswers:
    """Measures nothing: the real answers of one step, with the numbers of another."""

    def __init__(self, run: RunDirectory, config: Config, *, strict: bool = False) -> None:
        self.batch = make_batch(1, 0)
        stored = RunDirectory.create(Path(tempfile.mkdtemp()) / "one")
        stored.open_attempt(launch="one", ranks=1, resume_step=None)
        stored.write(self.batch, 0, extra(1))
        measured, _ = measure(stored, stored.files(0), config.instruments, Baseline(make_batch(0, 0)), strict=True)
        self.measured = replace(measured, counters={}, written=0.0, behaviours=())
        shutil.rmtree(stored.path.parent)
        self.rng = np.random.default_rng(0)
        count = sum(len(one.readings) for one in measured.answers)
        assert count >= READINGS - 1, count  # and at least one that is derived

    def step(
        self, arrival: StepReady, baseline: Baseline | None, off: Container[str]
    ) -> tuple[StepMeasurement, Rollouts | None]:
        left = READINGS - 1
        answers: list[InstrumentResult] = []
        for one in self.measured.answers:
            chosen = tuple(self.changed(reading, arrival.step) for reading in one.readings[:left])
            answers.append(replace(one, readings=chosen))
            left -= len(chosen)
        counters = {0: {"seen": arrival.step + 1, "why": ""}}
        measured = replace(self.measured, answers=tuple(answers), written=time.time(), counters=counters)
        return measured, lambda: replace(self.batch, step=arrival.step)

    def changed(self, reading: Reading, step: int) -> Reading:
        """Scattered by a twentieth around what it was: a run in which nothing happens."""
        factor = 1.0 - 0.1 * float(self.rng.random())
        values = tuple(value * factor for value in reading.values)
        return replace(reading, step=step, value=reading.value * factor, values=values)


def watch_long_run(path: Path, steps: int) -> None:
    """The process that is measured: prints a line of JSON for each tenth of the run."""
    run = RunDirectory.create(path)
    run.open_attempt(launch="long", ranks=1, resume_step=None)
    run.claim(0, 0)
    templates: list[Path] = []
    stored = handled = 0

    def put(step: int) -> None:
        if step < FIRST or step % LINKS == 0:
            run.write(make_batch(step, 0), 0, extra(step))
            templates.append(run.step_path(0, step, 0))
        else:
            os.link(templates[-1], run.step_path(0, step, 0))

    def on_poll(measured: int) -> None:
        """What a trainer would have done meanwhile."""
        nonlocal stored, handled
        before, handled = handled, handled + measured
        if handled * 10 // steps > before * 10 // steps:
            status = Path("/proc/self/status").read_text()
            memory = int(status.split("VmRSS:")[1].split()[0]) / 1024
            print(json.dumps({"steps": handled, "memory_mb": memory, "cpu_s": time.process_time()}), flush=True)
        for step in range(stored, min(handled + AHEAD, steps)):
            put(step)
            stored = step + 1

    vars(monitor_loop)["InProcess"] = MadeAnswers
    run_monitor(run, Config.standard(), parent=os.getppid(), on_poll=on_poll, give_up=lambda: handled >= steps)


def long_run(path: Path, steps: int) -> dict[str, Any]:
    command = [sys.executable, __file__, str(path), "--steps", str(steps), "--child"]
    begun = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS * 4)
    samples = [json.loads(line) for line in done.stdout.splitlines()]
    first, second, before, last = samples[0], samples[1], samples[-2], samples[-1]
    early = (second["cpu_s"] - first["cpu_s"]) / (second["steps"] - first["steps"])
    late = (last["cpu_s"] - before["cpu_s"]) / (last["steps"] - before["steps"])
    return {
        "steps": steps,
        "readings_a_step": READINGS,
        "made_s": round(time.monotonic() - begun, 1),
        "memory_mb_first": round(first["memory_mb"], 1),
        "memory_mb_last": round(last["memory_mb"], 1),
        "memory_growth": round(last["memory_mb"] / first["memory_mb"], 3),
        "memory_mb_per_10k_steps": round(1e4 * (last["memory_mb"] - first["memory_mb"]) / (steps - first["steps"]), 2),
        "memory_mb_by_tenth": [round(one["memory_mb"], 1) for one in samples],
        "cpu_ms_a_step": round(1e3 * last["cpu_s"] / steps, 3),
        "cpu_ratio_last_to_first": round(late / early, 3),
        "journal_mb": megabytes(path / "events"),
        "cache_mb": megabytes(path / "cache"),
    }


def megabytes(folder: Path) -> float:
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6, 1)


# -- opening it -------------------------------------------------------------------------------------------------------


def open_page(path: Path, state: Path) -> dict[str, float]:
    """Seconds until the overview of the run is served, and then its plots; memory of the server."""
    with served(path, state) as server:
        code = urlsplit(server.url).fragment.partition("code=")[2] or server.url.rpartition("=")[2]
        with httpx.Client(base_url=server.origin, timeout=SECONDS) as client:
            token = client.post("/api/login", json={"code": code}).raise_for_status().json()["token"]
            client.headers["Authorization"] = f"Bearer {token}"
            run = run_id(path.resolve())
            begun = time.perf_counter()
            if client.get("/api/summary", params={"run": run}).status_code == httpx.codes.GATEWAY_TIMEOUT:
                return {}
            overview = time.perf_counter() - begun
            begun = time.perf_counter()
            client.get("/api/plots", params={"run": run}).raise_for_status()
            plots = time.perf_counter() - begun
            memory = sum(map(memory_mb, tree(server.process.pid)))
    return {"open_s": round(overview, 2), "plots_s": round(plots, 2), "memory_mb": round(memory, 1)}


def memory_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in tree(int(child)))]


def opened(path: Path, state: Path, steps: int) -> dict[str, Any]:
    seconds = open_page(path, state)
    (path / "cache").rename(path / "away")
    without = open_page(path, state)
    (path / "away").rename(path / "cache")
    return {
        "open_s": seconds.get("open_s"),
        "open_s_1e5": seconds.get("open_s") if steps == 100_000 else None,
        "plots_s": seconds.get("plots_s"),
        "page_memory_mb": seconds.get("memory_mb"),
        "open_without_cache_s": without.get("open_s"),
        "page_memory_without_cache_mb": without.get("memory_mb"),
    }


# -- going on ---------------------------------------------------------------------------------------------------------


def restarted(path: Path, steps: int) -> dict[str, Any]:
    """Seconds until a monitor has what it remembers, in a process of its own: by its snapshot, and by the journal."""
    times = {}
    for name, snapshots in (("restart_s", True), ("restart_without_snapshot_s", False)):
        code = (
            "import sys, time; from tiltmeter.monitor.loop import MonitorLoop; from tiltmeter.monitor.parts import "
            "Config; from tiltmeter.rundir.store import RunDirectory; begun = time.perf_counter(); "
            f"MonitorLoop(RunDirectory(sys.argv[1]), Config.standard(), snapshots={snapshots}).close(); "
            "print(time.perf_counter() - begun)"
        )
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        times[name] = round(float(done.stdout), 2)
    return {**times, "restore_steps_a_second": round(steps / times["restart_without_snapshot_s"])}


def catch_up(path: Path, steps: int, missed: int) -> dict[str, Any]:
    """A monitor that was away while the trainer stored so many steps."""
    run, before = RunDirectory(path), count_steps(path)
    for step in range(steps, steps + missed):
        run.write(make_batch(step, 1), 0, extra(step))
    run.close_rank(0, 0, {"seen": steps + missed, "written": steps + missed})
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "tiltmeter", "watch", str(path)], stdout=subprocess.DEVNULL, timeout=SECONDS)
    seconds = time.monotonic() - begun
    count = count_steps(path) - before
    assert count == missed, f"{count} of {missed} steps were measured"
    return {
        "missed": missed,
        "catch_up_s": round(seconds, 1),
        "catch_up_steps_a_second": round(missed / seconds, 2),
        "live_steps_a_second": LIVE_STEPS_A_SECOND,
        "catch_up_ratio": round(missed / seconds / LIVE_STEPS_A_SECOND, 2),
    }


def count_steps(path: Path) -> int:
    with (path / "events" / "0.jsonl").open("rb") as lines:
        return sum(line.count(b'"kind":"step_done"') for line in lines)


def replayed(path: Path, missed: int) -> dict[str, Any]:
    run = RunDirectory.create(path)
    run.open_attempt(launch="one", ranks=1, resume_step=None)
    run.claim(0, 0)
    for step in range(missed):
        run.write(make_batch(step, 1), 0, extra(step))
    run.close_rank(0, 0, {"seen": missed, "written": missed})
    watch = MonitorLoop(run, Config.standard(), durable=False)
    watch.poll()
    watch.close()
    begun = time.monotonic()
    result = replay(run, Config.standard())
    seconds = time.monotonic() - begun
    return {
        "replay_steps_a_second": round(missed / seconds, 2),
        "replay_equal": result.difference is None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?", help="of the runs; without it one that is removed again")
    parser.add_argument("--steps", type=int, default=100_000, help="of the long run")
    parser.add_argument("--missed", type=int, default=5000, help="steps to catch up")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        watch_long_run(options.directory, options.steps)
        return
    with tempfile.TemporaryDirectory(prefix="tiltmeter-journal-") as made:
        folder = (options.directory or Path(made)).resolve()
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        path = folder / "runs" / "long"
        figures = long_run(path, options.steps)
        figures |= opened(path, folder / "state", options.steps)
        figures |= restarted(path, options.steps)
        figures |= catch_up(path, options.steps, options.missed)
        figures |= replayed(folder / "replayed", min(options.missed, 500))
    show(record("journal_scale", figures, seed=options.seed, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
