"""Trains the tiny-language-model scenarios with Tiltmeter attached: what it saw, said and did, and what came of it.

    python benchmarks/tiny_watched.py --work folder --write        # every scenario, three seeds, in mode advise
    python benchmarks/tiny_watched.py --work folder --mode act --only length_hacking --seeds 5 --write

Each run is a process of its own with files of its own in the folder, so an interrupted campaign goes on where it was.
Gold is programmatic; the monitor is asked for 10 % of the rollouts, and gold of all rollouts is computed afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

from record import record
from tiltmeter.lab.tiny.model import base_policy
from tiltmeter.lab.tiny.record import save
from tiltmeter.lab.tiny.scenarios import FIXES, SCENARIOS, scenario
from tiltmeter.lab.tiny.watched import SHARE, train_watched


def single(name: str, seed: int, work: Path, mode: Any, base: Path) -> None:
    arrays, facts = train_watched(scenario(name), seed, work / mode / f"{name}-{seed}", base=base, mode=mode)
    save(work / mode / f"{name}-{seed}.npz", arrays)
    (work / mode / f"{name}-{seed}.json").write_text(json.dumps(facts, indent=1, allow_nan=False))


def one(name: str, seed: int, options: argparse.Namespace) -> str:
    """One run in a process of its own, unless it is there."""
    target = options.work / options.mode / f"{name}-{seed}.json"
    if target.is_file():
        return f"{target.stem} is there"
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--work", str(options.work), "--mode", options.mode]
    done = subprocess.run([*command, "--single", name, str(seed)], capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{target.stem} FAILED:\n{done.stderr[-3000:]}"
    facts = json.loads(target.read_text())
    alarm = facts["alarm"] and facts["alarm"]["step"]
    levels = f"gold {facts['gold_start']} / {facts['gold_peak']} at {facts['peak_step']} / {facts['gold_end']}"
    return f"{target.stem} {time.perf_counter() - begun:.0f} s, {levels}, alarm {alarm}, {facts['last_findings']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder of the base policy and of one run each")
    parser.add_argument("--mode", choices=["observe", "advise", "act"], default="advise")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each scenario")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", nargs="*", default=[], help="scenarios")
    parser.add_argument("--single", nargs=2, metavar=("NAME", "SEED"), help="train one run here and end")
    parser.add_argument("--write", action="store_true", help="collect everything in the folder into the results")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    (options.work / options.mode).mkdir(parents=True, exist_ok=True)
    base = base_policy(options.work)
    if options.single:
        single(options.single[0], int(options.single[1]), options.work, options.mode, base)
        return
    names = options.only or [known.name for known in (*SCENARIOS, *FIXES)]
    runs = [(name, seed) for seed in range(options.first, options.first + options.seeds) for name in names]
    with ThreadPoolExecutor(options.jobs) as pool:
        for at, said in enumerate(pool.map(lambda run: one(run[0], run[1], options), runs), 1):
            print(f"{at}/{len(runs)} {said}", file=sys.stderr, flush=True)
    files = sorted(options.work.glob("*/*-*.json"))
    figures = {"share": SHARE, "runs": [json.loads(path.read_text()) for path in files]}
    if options.write:
        record("tiny_watched", figures, seed=0)
    if options.json:
        print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
