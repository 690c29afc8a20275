"""What an audit costs at 10^5, 10^6 and 10^7 rollouts: against a bare loop and a bare Ray program over the same files.

    python benchmarks/audit_scale.py --json [--write] [--quick] [--seed N] [--work DIR]

Rollouts have 20 tokens, text, two log-probabilities, a reward and gold, in groups of 8; the number of steps is fixed,
so steps grow with the run. Every program runs in a process tree of its own, from start to exit, imports included; CPU
is that of the whole tree. *Bare* programs read the same files with the same reader and ask
the same instruments, and do nothing else: no detectors, no journal, no verdict, no retries. Both sides have as many
workers as cores (the bare loop has none). Pairs are interleaved (ABBA) at 10^6; each engine sees 10^7 once.

`cpu_per_row_growth`: CPU a row at the largest size over that at the smallest, the worse engine. `memory_growth`: the
same for the largest peak of resident memory of a worker. `ray_vs_bare_ray`, `processes_vs_bare`: medians of CPU over
the repeats. `duckdb_ratio`, `polars_ratio`: CPU of our kernels over theirs for what they can express, four readings a
step from the columns group, reward and length, one thread each.
"""

from __future__ import annotations

import os

# Before numpy is imported: pools of threads would blur CPU time.
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import ctypes
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from record import record, show
from tiltmeter.data.baseline import Baseline, Comparison
from tiltmeter.data.records import Ragged, RolloutBatch
from tiltmeter.monitor.measure_step import measure
from tiltmeter.monitor.panel import readings
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory, StepFile

STEPS, TOKENS, GROUP = 1_000, 20, 8
SIZES = (100_000, 1_000_000, 10_000_000)
PAIRS = 7  # at the middle size, of each engine
POOL = 40_000  # different completions: making ten million texts would take longer than auditing them
SEED = 8
WORKERS = 2
WORDS = str.split(
    "the answer is a number that we find by adding so then because it was x y three four five first therefore value "
    "sum of each side equals take away what remains and check again with another way to see if this holds for all"
)
FOUR = ("reward.mean", "reward.spread", "length.mean", "reward.dead_share")  # what a query can express
LONG = (20_000, 400)  # rollouts, and tokens in each
AUDIT = [sys.executable, "-m", "tiltmeter", "audit"]
PR_SET_CHILD_SUBREAPER = 36

Figures = dict[str, Any]


# -- rollouts ---------------------------------------------------------------------------------------------------------


def make_run(folder: Path, rows: int, steps: int, seed: int, tokens: int = TOKENS) -> None:
    """A run of so many rollouts, written as a trainer's own writer would."""
    run = RunDirectory.create(folder)
    run.open_attempt(launch="scale", ranks=1, resume_step=None)
    each = [(folder, rows // steps, worker, WORKERS, steps, tokens, seed) for worker in range(WORKERS)]
    with ProcessPoolExecutor(WORKERS) as pool:
        list(pool.map(make_steps, *zip(*each, strict=True)))
    run.close_rank(0, 0, {"seen": steps, "written": steps, "thinned": 0, "dropped": 0, "bytes_lost": 0, "why": ""})


def make_steps(folder: Path, rows: int, first: int, stride: int, steps: int, length: int, seed: int) -> None:
    run, rng, pool = RunDirectory(folder), np.random.default_rng(seed), POOL * TOKENS // length
    picks = rng.integers(0, len(WORDS), (pool, length))
    texts = [" ".join(WORDS[word] for word in row) for row in picks]
    prompts = [f"Question {number}: what is {number} plus {number % 17}?" for number in range(pool)]
    tokens = (np.minimum(rng.zipf(1.3, (pool, length)), 30_000) + picks).astype(np.int32)
    for step in range(first, steps, stride):
        rng = np.random.default_rng((seed, step))
        chosen = rng.integers(0, pool, rows)
        asked = np.repeat(rng.integers(0, pool, -(-rows // GROUP)), GROUP)[:rows]
        offsets = np.arange(rows + 1, dtype=np.int64) * length
        logprob = -rng.exponential(1.0, rows * length).astype(np.float32)
        moved = (logprob + rng.normal(0.0, 0.05, rows * length)).astype(np.float32)
        reward = rng.normal(step / steps, 1.0, rows)
        batch = RolloutBatch(
            0,
            step,
            np.arange(rows, dtype=np.int64) // GROUP,
            reward=reward,
            advantage=reward - step / steps,
            gold=(rng.random(rows) < 0.5).astype(np.float64),
            gold_chance=np.ones(rows),
            length=np.full(rows, length, np.int64),
            truncated=np.zeros(rows, np.bool_),
            prompt=[prompts[k] for k in asked],
            completion=[texts[k] for k in chosen],
            tokens=Ragged(tokens[chosen].reshape(-1), offsets),
            logprob=Ragged(logprob, offsets),
            ref_logprob=Ragged(moved, offsets),
        )
        run.write(batch, 0, {"groups": "rank", "time": 0.0})


# -- bare programs ----------------------------------------------------------------------------------------------------


def bare_loop(folder: Path) -> None:
    """Read each step and ask every instrument: what somebody would write who wants the numbers and nothing else."""
    run, parts, compared = RunDirectory(folder), Config.standard().instruments, Comparison(None)
    for file in run.files(0):
        measured, batch = measure(run, (file,), parts, compared.against(file.step))
        assert measured.answers
        if compared.baseline is None:
            compared.add(batch)


def bare_ray(folder: Path) -> None:
    """The same as Ray tasks over lists of files."""
    import ray

    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    run, parts, compared = RunDirectory(folder), Config.standard().instruments, Comparison(None)
    files = run.files(0)
    while compared.baseline is None:
        file, *files = files
        compared.add(measure(run, (file,), parts, None)[1])
    baseline = ray.put(compared.baseline)
    size = max(1, round(8_000_000 / files[0].path.stat().st_size))
    task = ray.remote(_ray_steps)
    lists = [files[at : at + size] for at in range(0, len(files), size)]
    waiting: list[Any] = []
    for part in lists:
        waiting.append(task.remote(str(folder), part, baseline))
        if len(waiting) >= 2 * WORKERS:
            ray.get(waiting.pop(0))
    ray.get(waiting)
    ray.shutdown()


def _ray_steps(folder: str, files: Sequence[StepFile], baseline: Baseline) -> list[Any]:
    run, parts = RunDirectory(folder), Config.standard().instruments
    return [measure(run, (file,), parts, baseline)[0] for file in files]


# -- what a query can express -----------------------------------------------------------------------------------------


def queries(folder: Path) -> Figures:
    """CPU seconds for readings of every step: DuckDB, Polars, and our reader and instruments. One thread each."""
    told = {name: _inside(("--query", name, str(folder))) for name in ("ours", "duckdb", "polars")}
    sums = [said["sum"] for _, said in told.values()]
    if not np.allclose(sums, sums[0], rtol=1e-9):
        raise SystemExit(f"they do not agree, so none of them has a speed: {sums}")
    return {name: cpu for name, (cpu, _) in told.items()}


def query(name: str, folder: Path) -> None:
    run = RunDirectory(folder)
    files = [str(file.path) for file in run.files(0)]
    start = time.process_time()
    found = {"ours": _ours, "duckdb": _duckdb, "polars": _polars}[name](run, files)
    print(json.dumps({"cpu_s": time.process_time() - start, "sum": round(sum(sum(row) for row in found), 6)}))


def _ours(run: RunDirectory, files: Sequence[str]) -> list[tuple[float, ...]]:
    parts = [part for part in Config.standard().instruments if part.name in FOUR]
    found: list[tuple[float, ...]] = []
    for file in run.files(0):
        batch = run.read(file, ("group", "reward", "length"))[0]
        told = {one.name: one.value for part in parts for one in readings(part, batch, None)}
        found.append((told["reward.mean"], told["length.mean"], told["reward.dead_share"]))
    return found


def _duckdb(run: RunDirectory, files: Sequence[str]) -> list[tuple[float, ...]]:
    import duckdb

    return duckdb.connect(config={"threads": 1}).execute(
        'with g as (select filename, "group", avg(reward) m, stddev_samp(reward) s, avg(length) l, count(*) n, '
        'max(reward) = min(reward) d from read_parquet($f, filename=true) group by 1, 2) '
        "select sum(m * n) / sum(n), sum(l * n) / sum(n), avg(d::int) from g group by filename order by filename",
        {"f": list(files)},
    ).fetchall()  # fmt: skip


def _polars(run: RunDirectory, files: Sequence[str]) -> list[tuple[float, ...]]:
    import polars as pl

    groups = (
        pl.scan_parquet(list(files), include_file_paths="file")
        .group_by("file", "group")
        .agg(
            m=pl.col("reward").mean(),
            s=pl.col("reward").std(),
            l=pl.col("length").mean(),
            n=pl.len(),
            d=pl.col("reward").max() == pl.col("reward").min(),
        )
    )
    return (
        groups.group_by("file")
        .agg(
            (pl.col("m") * pl.col("n")).sum() / pl.col("n").sum(),
            l=(pl.col("l") * pl.col("n")).sum() / pl.col("n").sum(),
            d=pl.col("d").mean(),
        )
        .sort("file")
        .drop("file")
        .collect()
        .rows()
    )


# -- measuring --------------------------------------------------------------------------------------------------------


class Peaks(threading.Thread):
    """The highest resident memory of each worker, and the CPU time of every process, by what the kernel keeps.

    Looked at ten times a second: Ray's own daemon does not wait for its workers, so nobody is told their times at the
    end. What a process does after the last look is not counted, on either side of a comparison.
    """

    def __init__(self, driver: int) -> None:
        super().__init__(daemon=True)
        self.main, self.over, self.worker, self.driver = driver, threading.Event(), 0, 0
        self.ticks: dict[int, int] = {}

    def run(self) -> None:
        while not self.over.wait(0.1):
            for pid, command, peak, ticks in _tree(os.getpid()):
                self.ticks[pid] = max(ticks, self.ticks.get(pid, 0))
                if pid == self.main:
                    self.driver = max(self.driver, peak)
                elif "multiprocessing" in command or "ray::" in command:
                    self.worker = max(self.worker, peak)

    @property
    def cpu(self) -> float:
        return sum(self.ticks.values()) / os.sysconf("SC_CLK_TCK")


def _tree(root: int) -> list[tuple[int, str, int, int]]:
    """Process, command, peak memory (kB) and CPU (ticks) of everything below a process, orphans that came to it too."""
    parents, found = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "status").read_text()
                stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue  # ended while we looked
            facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            parents[int(entry.name)] = int(facts["PPid"])
            found[int(entry.name)] = (command, int(facts.get("VmHWM", "0").split()[0]), int(stat[11]) + int(stat[12]))
    below = {root}
    while grown := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= grown
    return [(pid, *found[pid]) for pid in below - {root} if pid in found]


def _inside(arguments: Sequence[str]) -> tuple[float, Any]:
    """CPU seconds that a function of this file says it took, in a process of its own, and what else it says."""
    command = [sys.executable, __file__, *arguments]
    told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return float(told["cpu_s"]), told


def timed(command: Sequence[str], **environment: str) -> Figures:
    """CPU of a whole process tree, wall time, and peak memory of its workers, in a fresh session of its own."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ, **environment}, start_new_session=True
        )
        peaks = Peaks(child.pid)
        peaks.start()
        code = child.wait()
        wall = time.monotonic() - start
        _reap()
        peaks.over.set()
        peaks.join()
        if code not in (0, 1, 2, 3):
            errors.seek(0)
            raise SystemExit(f"{command} ended with {code}: {errors.read()[-2000:].decode()}")
        errors.seek(0)
        if b"Traceback" in (said := errors.read()):
            raise SystemExit(f"{command} failed: {said[-2000:].decode()}")
    return {"cpu_s": peaks.cpu, "wall_s": wall, "worker_mb": peaks.worker / 1024, "driver_mb": peaks.driver / 1024}


def _reap() -> None:
    """Wait for processes that a dead one left to us: their CPU counts too, and the next run must find nobody."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            time.sleep(0.05)
    raise SystemExit("a process of the last run does not end")


def ours(engine: str, folder: Path) -> Callable[[], Figures]:
    command = [*AUDIT, str(folder), "--engine", engine, "--jobs", str(WORKERS)]
    return lambda: timed([*command, "--json"], RAY_ADDRESS="local", RAY_DEDUP_LOGS="0")


def bare(kind: str, folder: Path) -> Callable[[], Figures]:
    return lambda: timed([sys.executable, __file__, "--bare", kind, str(folder)])


def paired(
    first: Callable[[], Figures], other: Callable[[], Figures], pairs: int
) -> tuple[list[Figures], list[Figures]]:
    """ABBA: what drifts with time meets both sides alike."""
    a: list[Figures] = []
    b: list[Figures] = []
    for pair in range(pairs):
        order = ((first, a), (other, b)) if pair % 2 == 0 else ((other, b), (first, a))
        for run, into in order:
            into.append(run())
            _say(f"{'ours' if into is a else 'bare'} {into[-1]['cpu_s']:.1f} CPU s")
    return a, b


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _ratio(a: Sequence[Figures], b: Sequence[Figures]) -> tuple[float, list[float]]:
    """Median over median, and the span of the pairs' own ratios."""
    ratio = statistics.median(x["cpu_s"] for x in a) / statistics.median(x["cpu_s"] for x in b)
    each = sorted(x["cpu_s"] / y["cpu_s"] for x, y in zip(a, b, strict=True))
    return round(ratio, 3), [round(each[0], 3), round(each[-1], 3)]


def constants(work: Path, small: Path, ours_small: Figures, steps: int, long: tuple[int, int], seed: int) -> Figures:
    """What a plan for other sizes needs: the loop's own cost a step (start-up of workers included, so too high for a
    long run), a token's cost in a long rollout, the journal."""
    kept = work / "kept"
    shutil.rmtree(kept, ignore_errors=True)
    timed([*AUDIT, str(small), "--engine", "processes", "--jobs", str(WORKERS), "--json", "--keep", str(kept)])
    journal = sum(file.stat().st_size for file in kept.glob("*/events/*.jsonl"))
    shutil.rmtree(kept)
    rows, tokens = long
    folder = work / f"long-{rows}-{tokens}-{seed}"
    if not folder.exists():
        make_run(folder, rows, 50, seed, tokens)
    found = bare("loop", folder)()
    start = bare("loop", _one_step(work, folder))()
    stored = sum(file.path.stat().st_size for file in RunDirectory(folder).files(0))
    return {
        "driver_ms_a_step": round(1e3 * (ours_small["cpu_s"] - bare("loop", small)()["cpu_s"]) / steps, 2),
        "journal_bytes_a_step": round(journal / steps),
        "long_tokens": tokens,
        "long_us_a_row": round(1e6 * (found["cpu_s"] - start["cpu_s"]) / (rows * 49 / 50), 1),
        "long_bytes_a_row": round(stored / rows),
    }


def _one_step(work: Path, folder: Path) -> Path:
    """The first step alone: what a program costs that does hardly anything."""
    alone = work / f"{folder.name}-one"
    if not alone.exists():
        run = RunDirectory.create(alone)
        run.open_attempt(launch="scale", ranks=1, resume_step=None)
        shutil.copy(folder / "rollouts" / "0" / "000000-0.parquet", alone / "rollouts" / "0")
    return alone


def campaign(work: Path, sizes: Sequence[int], pairs: int, steps: int, seed: int) -> Figures:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    folders = {}
    for rows in sizes:
        folders[rows] = work / f"run-{rows}-{steps}-{seed}"
        if not folders[rows].exists():
            making = work / f".making-{rows}"
            shutil.rmtree(making, ignore_errors=True)
            make_run(making, rows, steps, seed)
            making.rename(folders[rows])
    middle = sizes[1]
    for engine in ("processes", "ray"):
        ours(engine, folders[sizes[0]])()  # kernels compiled, files in the page cache
    sized: dict[str, dict[str, Figures]] = {}
    for engine in ("processes", "ray"):
        sized[engine] = {}
        for rows in sizes:
            sized[engine][str(rows)] = ours(engine, folders[rows])()
            _say(f"{engine} {rows}: {sized[engine][str(rows)]}")
    processes = paired(ours("processes", folders[middle]), bare("loop", folders[middle]), pairs)
    on_ray = paired(ours("ray", folders[middle]), bare("ray", folders[middle]), pairs)
    asked = queries(folders[middle])
    long = LONG if pairs > 1 else (500, 400)
    told = constants(work, folders[sizes[0]], sized["processes"][str(sizes[0])], steps, long, seed)
    (smallest, largest) = (str(sizes[0]), str(sizes[-1]))
    growth = {
        engine: (found[largest]["cpu_s"] / sizes[-1]) / (found[smallest]["cpu_s"] / sizes[0])
        for engine, found in sized.items()
    }
    later = {
        engine: (found[largest]["cpu_s"] / sizes[-1]) / (found[str(middle)]["cpu_s"] / middle)
        for engine, found in sized.items()
    }
    memory = {engine: found[largest]["worker_mb"] / found[smallest]["worker_mb"] for engine, found in sized.items()}
    process_ratio, process_span = _ratio(*processes)
    ray_ratio, ray_span = _ratio(*on_ray)
    stored = {str(rows): sum(f.path.stat().st_size for f in RunDirectory(folders[rows]).files(0)) for rows in sizes}
    return {
        "rows": list(sizes),
        "steps": steps,
        "tokens_a_row": TOKENS,
        "workers": WORKERS,
        "pairs": pairs,
        "cpu_per_row_growth": round(max(growth.values()), 3),
        "cpu_per_row_growth_from_middle": round(max(later.values()), 3),
        "memory_growth": round(max(memory.values()), 3),
        "ray_vs_bare_ray": ray_ratio,
        "ray_vs_bare_ray_span": ray_span,
        "processes_vs_bare": process_ratio,
        "processes_vs_bare_span": process_span,
        "rows_per_core_s": round(sizes[-1] / sized["processes"][largest]["cpu_s"]),
        "rows_per_core_s_ray": round(sizes[-1] / sized["ray"][largest]["cpu_s"]),
        "duckdb_ratio": round(asked["ours"] / asked["duckdb"], 2),
        "polars_ratio": round(asked["ours"] / asked["polars"], 2),
        "query_cpu_s": {name: round(asked[name], 3) for name in ("ours", "duckdb", "polars")},
        "bytes": stored,
        **told,
        "sizes": {e: {r: {k: round(v, 2) for k, v in f.items()} for r, f in s.items()} for e, s in sized.items()},
        "bare_cpu_s": {
            "loop": round(statistics.median(one["cpu_s"] for one in processes[1]), 2),
            "ray": round(statistics.median(one["cpu_s"] for one in on_ray[1]), 2),
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--write", action="store_true", help="keep it in benchmarks/results")
    parser.add_argument("--quick", action="store_true", help="2,000, 10,000 and 40,000 rollouts in 40 steps, one pair")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--work", type=Path, help="where the runs are made and kept")
    parser.add_argument("--bare", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--query", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.bare:
        {"loop": bare_loop, "ray": bare_ray}[asked.bare[0]](Path(asked.bare[1]))
        return
    if asked.query:
        os.environ["POLARS_MAX_THREADS"] = "1"
        query(asked.query[0], Path(asked.query[1]))
        return
    with tempfile.TemporaryDirectory() as scratch:
        work = asked.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        sizes, pairs, steps = ((2_000, 10_000, 40_000), 1, 40) if asked.quick else (SIZES, PAIRS, STEPS)
        found = campaign(work, sizes, pairs, steps, asked.seed)
    show(record("audit_scale", found, seed=asked.seed, keep=asked.write and not asked.quick), as_json=asked.json)


if __name__ == "__main__":
    main()
