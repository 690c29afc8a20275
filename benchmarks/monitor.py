"""What the monitor costs: CPU time of a step, steps a second when it catches up, and reading a journal at a restart.

    python benchmarks/monitor.py [--quick] [--steps 400] [--pairs 5] [--before REVISION] [--json] [--seed 0]

A run of 64 rollouts a step with text, tokens and gold is stored first. The monitor then measures all of it (journal
synced as in a live run) and is started again on its journal. With `--before` an older revision does the same on the
same files, in turns with this one, so that a busy machine slows both; figures are medians, ratios are of medians.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import record, show

ROOT = Path(__file__).parent.parent
#: Runs in a process of its own, with this revision's package or an older one's.
PROGRAM = """
import json, sys, time
from pathlib import Path
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
run, config = RunDirectory(Path(sys.argv[1])), Config.standard()
warm = MonitorLoop(run, config, events_folder=Path(sys.argv[2]) / "warm")
warm.panel.warm_up()
warm.close()
loop = MonitorLoop(run, config, events_folder=Path(sys.argv[2]) / "events")
wall, cpu = time.perf_counter(), time.process_time()
steps = loop.poll()
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
loop.close()
again = time.process_time()
MonitorLoop(run, config, events_folder=Path(sys.argv[2]) / "events").close()
again = time.process_time() - again
size = sum(file.stat().st_size for file in (Path(sys.argv[2]) / "events").glob("*.jsonl"))
print(json.dumps({"steps": steps, "wall": wall, "cpu": cpu, "restart": again, "bytes": size}))
"""


def store(path: Path, steps: int, seed: int) -> None:
    import numpy as np

    from tiltmeter.data.batches import from_columns
    from tiltmeter.rundir.store import RunDirectory

    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    words = np.array(["the", "answer", "is", "seven", "because", "we", "add", "three", "and", "four"])
    for step in range(steps):
        rng = np.random.default_rng([seed, step])
        reward = rng.random(64)
        texts = [" ".join(rng.choice(words, 40)) for _ in range(64)]
        tokens = [rng.integers(0, 1000, 48).tolist() for _ in range(64)]
        logprob = [(-rng.random(48)).tolist() for _ in range(64)]
        batch = from_columns(
            step, np.repeat(np.arange(8), 8), reward=reward, rewards={"a": reward}, gold=(reward > 0.5).astype(float),
            completion=texts, prompt=[f"question {row // 8}" for row in range(64)], tokens=tokens, logprob=logprob,
            ref_logprob=logprob,
        )  # fmt: skip
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})
    run.close_rank(0, 0, {"seen": steps, "written": steps})


def measured(source: Path, run: Path) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", PROGRAM, str(run), folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
        result: dict[str, float] = json.loads(done.stdout)
    return result


def figures_of(results: list[dict[str, float]]) -> dict[str, float]:
    steps = results[0]["steps"]
    return {
        "cpu_ms_a_step": round(1e3 * statistics.median(one["cpu"] for one in results) / steps, 3),
        "catch_up_steps_a_second": round(steps / statistics.median(one["wall"] for one in results), 1),
        "restart_ms_a_thousand_steps": round(1e6 * statistics.median(one["restart"] for one in results) / steps, 1),
        "journal_bytes_a_step": round(results[0]["bytes"] / steps),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5, help="how often each revision measures the run")
    parser.add_argument("--before", metavar="REVISION", help="measure this revision too, in turns")
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)  # the older revision stores: both can read that
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="60 steps, once; nothing is recorded")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.store:
        store(options.store, options.steps, options.seed)
        return
    if options.quick:
        options.steps, options.pairs = 60, 1
    with tempfile.TemporaryDirectory() as folder:
        run, older = Path(folder) / "run", Path(folder) / "older"
        sources = {"": ROOT / "src"}
        if options.before:
            add = ["git", "worktree", "add", "-f", "--detach", str(older), options.before]
            subprocess.run(add, check=True, cwd=ROOT, capture_output=True)
            sources["_before"] = older / "src"
        try:
            command = [sys.executable, __file__, "--store", str(run)]
            command += ["--steps", str(options.steps), "--seed", str(options.seed)]
            environment = {**os.environ, "PYTHONPATH": str(sources.get("_before", ROOT / "src"))}
            subprocess.run(command, check=True, env=environment)
            results: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
            for name, source in [*sources.items()] * (options.pairs + 1):
                results[name].append(measured(source, run))
        finally:
            if options.before:
                subprocess.run(["git", "worktree", "remove", "--force", str(older)], check=False, cwd=ROOT)
                shutil.rmtree(older, ignore_errors=True)
    # The first of each compiles kernels.
    found = {name: figures_of(rest) for name, (_, *rest) in results.items()}
    figures: dict[str, Any] = {f"{key}{name}": value for name, part in found.items() for key, value in part.items()}
    if options.before:
        figures |= {f"{key}_ratio": round(found[""][key] / found["_before"][key], 3) for key in found[""]}
        figures["before"] = options.before
    show(
        record("monitor", {"steps": options.steps, **figures}, seed=options.seed, keep=not options.quick),
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
