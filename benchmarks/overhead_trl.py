"""What `tiltmeter.attach` costs a real TRL run: two trainers of one process take turns, one of them watched.

    python benchmarks/overhead_trl.py --json

The 4-layer model of width 128 generates 128 completions of 32 tokens a step, with two reward functions and a reference
model. Each pair is one step of the plain and one of the watched trainer, in random order, and everything is a ratio
within its pair, so that what else the machine does falls on both. A turn lasts from the beginning of a step to that of
the next: what is done about a step between its end and the next falls into it, and before the turn is handed over the
writer's queue must be empty. CPU time is that of the whole process, all threads; the monitor is another process and is
reported apart, per million generated tokens.

With `--trackers` both trainers report to W&B (offline) and TensorBoard, and what Tiltmeter finds goes into their run:
`overhead_trl_trackers.json`. `reporter_thread_ms` is the thread that prints, and `log_call_ms` what logging the
readings of a step from the training thread would take.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: threads that wait for each other spin, and their CPU time is noise

import argparse
import json
import tempfile
import threading
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import record
from store import Others
from trl_model import MEDIUM, call_at, long, make_model, make_trainer, quiet, right

PAIRS = 80
WARM = 3  # pairs that are not counted: first steps allocate, and the monitor starts
RESAMPLES = 10_000

Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--quick", action="store_true", help="6 pairs of steps")
    parser.add_argument("--steps", type=int, help=f"pairs of steps instead of {PAIRS}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trackers", action="store_true", help="report to W&B and TensorBoard")
    parser.add_argument("--write", action="store_true", help="write the result file whatever the size")
    options = parser.parse_args()
    pairs = options.steps or (6 if options.quick else PAIRS)
    with tempfile.TemporaryDirectory(prefix="tiltmeter-overhead-") as folder:
        os.environ["XDG_STATE_HOME"] = folder  # tokens of runs that are gone in a minute
        if options.trackers:
            os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_SILENT": "true", "TILTMETER_QUIET": "0"}
        others = Others()
        figures = _measure(Path(folder), pairs, options.seed, trackers=options.trackers) | others.figures()
    name = "overhead_trl_trackers" if options.trackers else "overhead_trl"
    result = record(name, figures, seed=options.seed, keep=pairs == PAIRS or options.write)
    if options.json:
        print(json.dumps(result))
    else:
        shown = {name: value for name, value in result.items() if not isinstance(value, list)}
        print("\n".join(f"{name:26} {value}" for name, value in shown.items()))


class Turns:
    """One trainer in a thread of its own that stands still at the beginning of every step until it is its turn."""

    def __init__(self, trainer: Any) -> None:
        self.trainer, self.error = trainer, ""
        self._mine, self._over = threading.Semaphore(0), threading.Semaphore(0)
        call_at(trainer, "on_step_begin", self._stand_still)
        self._thread = threading.Thread(target=self._train, daemon=True)

    def begin(self) -> None:
        """Start; it comes to its first step and waits there."""
        self._thread.start()
        self._wait()

    def step(self) -> None:
        self._mine.release()
        self._wait()

    def finish(self) -> None:
        """The last step, and the end of training."""
        self.step()
        self._thread.join()

    def _stand_still(self, step: int) -> None:
        self._over.release()
        self._mine.acquire()

    def _wait(self) -> None:
        self._over.acquire()
        if self.error:
            raise RuntimeError(self.error)

    def _train(self) -> None:
        try:
            self.trainer.train()
        except BaseException:  # noqa: BLE001  # told by the thread that measures
            self.error = traceback.format_exc()
        finally:
            self._over.release()


def _measure(home: Path, pairs: int, seed: int, *, trackers: bool) -> Figures:
    model = make_model(home / "model", MEDIUM)
    steps = WARM + pairs + 1  # the last one is not measured: it ends training
    plain, watched = (
        make_trainer(
            model, home / name, MEDIUM, steps=steps, rewards=[long, right], seed=seed + 1,
            generation_kwargs={"min_new_tokens": MEDIUM.tokens},  # every step is the same amount of work
            report_to=["wandb", "tensorboard"] if trackers else "none",
        )
        for name in ("plain", "watched")
    )  # fmt: skip
    # The gate stands before our own callback, so that handing a step over falls into a turn and not between two.
    turns = [Turns(plain), Turns(watched)]
    own = _Own(trackers)
    started = time.process_time()
    with quiet():
        import tiltmeter

        run = tiltmeter.attach(watched)
    attach = time.process_time() - started
    for one in turns:
        one.begin()
    rng = np.random.default_rng(seed)
    cpu, wall = np.zeros((2, WARM + pairs)), np.zeros((2, WARM + pairs))
    monitor = _Monitor(run)
    for pair in range(WARM + pairs):
        if pair == WARM:
            monitor.start()
            own.start()
        for side in rng.permutation(2):
            before = time.process_time(), time.perf_counter()
            turns[side].step()
            if side:
                _drain(run)
            cpu[side, pair], wall[side, pair] = time.process_time() - before[0], time.perf_counter() - before[1]
    own.stop(pairs)
    monitor.stop(pairs)
    for one in turns:
        one.finish()
    monitor.wait()
    more = {"log_call_ms": _log_call(run)} if trackers else {}
    counters = run.counters
    assert counters["written"] == counters["seen"] == steps, counters
    return {
        **_ratios(cpu[:, WARM:], wall[:, WARM:], rng),
        **own.figures,
        **monitor.figures,
        **more,
        "pairs": pairs,
        "rollouts": MEDIUM.completions,
        "tokens": MEDIUM.tokens,
        "attach_cpu_s": round(attach, 3),
        "plain_cpu_s": _rounded(cpu[0, WARM:]),
        "watched_cpu_s": _rounded(cpu[1, WARM:]),
        "plain_wall_s": _rounded(wall[0, WARM:]),
        "watched_wall_s": _rounded(wall[1, WARM:]),
    }


def _ratios(cpu: NDArray[np.float64], wall: NDArray[np.float64], rng: np.random.Generator) -> Figures:
    """Medians of the ratios within pairs, with 95 % percentile intervals over pairs drawn with replacement."""
    figures: Figures = {}
    for name, (plain, watched), middle in (("cpu", cpu, "cpu_ratio_trainer"), ("wall", wall, "wall_ratio")):
        ratio = watched / plain
        drawn = np.median(ratio[rng.integers(0, len(ratio), (RESAMPLES, len(ratio)))], axis=1)
        low, high = np.quantile(drawn, [0.025, 0.975])
        figures |= {
            middle: round(float(np.median(ratio)), 4),
            f"{name}_ratio_low": round(float(low), 4),
            f"{name}_ratio_high": round(float(high), 4),
            f"{name}_ratio_of_sums": round(float(watched.sum() / plain.sum()), 4),
            f"{name}_extra_ms": round(float(np.median(watched - plain)) * 1e3, 2),
            f"{name}_plain_s": round(float(np.median(plain)), 4),
        }
    return figures


def _log_call(run: Any, times: int = 50) -> float:
    """CPU milliseconds of one call that logs the readings of a step to W&B, on the thread that makes it."""
    read_events = import_module("tiltmeter.rundir.journal").read_events
    steps = [event.data["measured"] for event in read_events(run.directory / "events") if event.data.get("measured")]
    values = {f"log_call/{name}": 0.5 for name in max(steps, key=len)}
    before = time.thread_time()
    for _ in range(times):
        import_module("wandb").run.log(values)
    return round((time.thread_time() - before) / times * 1e3, 3)


class _Own:
    """Our CPU time in the trainer's process by thread clocks, beside the ratio: no other work is in it, so no noise.

    On the training thread, all that passes the adapter's boundary; and the writer's thread as a whole.
    """

    def __init__(self, trackers: bool) -> None:
        self._threads = ["tiltmeter-writer", *(["tiltmeter-reporter"] if trackers else [])]
        callback: Any = import_module("tiltmeter.adapters.trl.attach").Callback
        self.figures: Figures = {}
        self._boundary = 0.0
        guard = callback._guard

        def timed(this: Any, work: Any, **how: Any) -> None:
            before = time.thread_time()
            guard(this, work, **how)
            self._boundary += time.thread_time() - before

        callback._guard = timed

    def start(self) -> None:
        self._before = self._now()

    def stop(self, pairs: int) -> None:
        spent = (now - then for now, then in zip(self._now(), self._before, strict=True))
        names = ("training_thread_ms", "writer_thread_ms", "reporter_thread_ms")
        self.figures = {name: round(each / pairs * 1e3, 3) for name, each in zip(names, spent, strict=False)}

    def _now(self) -> list[float]:
        by_name = {thread.name: int(thread.ident or 0) for thread in threading.enumerate()}
        clocks = (time.pthread_getcpuclockid(by_name[name]) for name in self._threads)
        return [self._boundary, *map(time.clock_gettime, clocks)]


class _Monitor:
    """The CPU time of the monitor's process while it measured the counted steps, its looking for them included."""

    def __init__(self, run: Any) -> None:
        self._run = run
        self.figures: Figures = {}

    def start(self) -> None:
        self._run.verdict()
        self._pid, self._before = self._now()
        self.figures["monitor_start_cpu_s"] = round(self._before, 2)

    def stop(self, pairs: int) -> None:
        self._run.verdict()
        pid, now = self._now()
        if pid != self._pid:
            raise RuntimeError("the monitor was started again in the middle: its time cannot be told")
        spent, tokens = now - self._before, pairs * MEDIUM.completions * MEDIUM.tokens
        self.figures |= {
            "monitor_cpu_s_per_mtok": round(spent / tokens * 1e6, 2),
            "monitor_cpu_ms_per_step": round(spent / pairs * 1e3, 2),
        }

    def wait(self) -> None:
        """Training is over: the monitor reads to the end and writes, and its folder must stay until then."""
        self._process.wait(timeout=60)

    @property
    def _process(self) -> Any:
        return self._run._callback.run._monitor.process

    def _now(self) -> tuple[int, float]:
        process = self._process
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return process.pid, sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # own and children's, both kinds


def _drain(run: Any) -> None:
    while (told := run.counters)["seen"] > told["written"] + told["thinned"] + told["dropped"]:
        time.sleep(0.001)


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(float(value), 4) for value in values]


if __name__ == "__main__":
    main()
