"""What a run at an address costs the training thread, beside a run in a folder and beside none.

    python benchmarks/objectstore_handoff.py [--pairs 60] [--json] [--write]

The address is that of a real S3 server in another process; each run has its monitor, and that of the address uploads
meanwhile. In each round the same training work is done three times in random order: with a run at the address,
with one in a folder, and with none. Ratios are of CPU time of the training thread, within a round. `--write` puts
the figures under `handoff` into `results/objectstore.json`.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported, as in handoff.py

import argparse
import json
import random
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from handoff import _backlog, _columns, _unit
from objectstore_server import BUCKET, s3_process
from record import RESULTS, record, show
from tiltmeter import open_run
from tiltmeter.rundir.remote.objects import open_objects

KINDS = ("address", "folder", "none")
STEPS, UNITS = 3, 30  # hand-overs in a turn, and units of work after each


def measure(folder: Path, pairs: int, seed: int) -> dict[str, Any]:
    rng, order = np.random.default_rng(seed), random.Random(seed)
    pool = [_columns(rng, ragged=False) for _ in range(2)]
    wall: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu: dict[str, list[float]] = {kind: [] for kind in KINDS}
    turns: dict[str, list[float]] = {kind: [] for kind in KINDS}
    address = f"s3://{BUCKET}/handoff/run"
    with ExitStack() as opened:
        runs: dict[str, Any] = {
            "address": opened.enter_context(open_run(address)),
            "folder": opened.enter_context(open_run(folder / "local")),
        }
        for round_ in range(pairs):
            for kind in order.sample(KINDS, 3):
                run = runs.get(kind)
                began = time.thread_time()
                for step in range(STEPS):
                    columns = {**pool[step % 2], "step": round_ * STEPS + step}
                    start, used = time.perf_counter(), time.thread_time()
                    if run is not None:
                        run.observe(give=True, **columns)
                    wall[kind].append(time.perf_counter() - start)
                    cpu[kind].append(time.thread_time() - used)
                    for _ in range(UNITS):
                        _unit()
                turns[kind].append(time.thread_time() - began)
                while run is not None and _backlog(run):
                    time.sleep(0.005)
    uploaded = sum(1 for one in open_objects(address).list() if one.key.endswith(".parquet"))

    def ms(values: list[float], share: float) -> float:
        return round(1000 * float(np.quantile(values, share)), 4)

    none = np.array(turns["none"])
    return {
        "rounds": pairs,
        "calls": pairs * STEPS,
        **{f"p{share}_ms": ms(wall["address"], share / 100) for share in (50, 95)},
        **{f"p{share}_cpu_ms": ms(cpu["address"], share / 100) for share in (50, 95)},
        "folder_p50_ms": ms(wall["folder"], 0.5),
        "folder_p95_ms": ms(wall["folder"], 0.95),
        "folder_p95_cpu_ms": ms(cpu["folder"], 0.95),
        "cpu_ratio": round(float(np.median(np.array(turns["address"]) / none)), 4),
        "folder_cpu_ratio": round(float(np.median(np.array(turns["folder"]) / none)), 4),
        "cpu_ratio_to_folder": round(float(np.median(np.array(turns["address"]) / np.array(turns["folder"]))), 4),
        "uploaded": uploaded,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tiltmeter-handoff-"))
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "TILTMETER_SPOOL": str(folder / "spool")}
    try:
        with s3_process():
            figures = measure(folder, options.pairs, options.seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = record("objectstore_handoff", figures, seed=options.seed, keep=False)
    if options.write:
        path = RESULTS / "objectstore.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "handoff": result}, indent=1) + "\n")
    show(result, as_json=options.json)
    raise SystemExit(0 if figures["uploaded"] else 1)


if __name__ == "__main__":
    main()
