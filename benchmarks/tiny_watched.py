"""Trains the tiny-language-model scenarios with Tiltmeter attached: what it saw, said and did, and what came of it.

    python benchmarks/tiny_watched.py --work folder --write        # 20 hacked and 20 benign runs, and the three fixes
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
from tiltmeter_lab.tiny.model import base_policy
from tiltmeter_lab.tiny.run_files import RECORDED, pack, save
from tiltmeter_lab.tiny.scenarios import FIXES, SCENARIOS, scenario
from tiltmeter_lab.tiny.watched_training import SHARE, train_watched

STEPS = 200


def single(name: str, seed: int, work: Path, mode: Any, base: Path, steps: int) -> None:
    folder = work / mode / f"{name}-{seed}"
    arrays, facts = train_watched(scenario(name), seed, folder, base=base, mode=mode, steps=steps)
    save(work / mode / f"{name}-{seed}.npz", arrays)
    (work / mode / f"{name}-{seed}.json").write_text(json.dumps(facts, indent=1, allow_nan=False))


def plan(seeds: int | None, only: list[str]) -> list[tuple[str, int]]:
    """Every run, first seeds first."""
    found = [(fix.name, seed) for fix in FIXES for seed in range(seeds or 1)]
    for kind in ("hack", "benign"):
        names = [known.name for known in SCENARIOS if known.kind == kind]
        found += [(names[at % len(names)], at // len(names)) for at in range(seeds * len(names) if seeds else 20)]
    return sorted((run for run in found if not only or run[0] in only), key=lambda run: run[1])


def one(name: str, seed: int, options: argparse.Namespace) -> str:
    """One run in a process of its own, unless it is there."""
    target = options.work / options.mode / f"{name}-{seed}.json"
    if target.is_file():
        return f"{target.stem} is there"
    begun = time.perf_counter()
    command = [sys.executable, __file__, "--work", str(options.work), "--mode", options.mode]
    command += ["--steps", str(options.steps)]
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
    parser.add_argument("--seeds", type=int, help="seeds of each scenario; without it 20 hacked and 20 benign runs")
    parser.add_argument("--steps", type=int, default=STEPS, help="another number is written nowhere")
    parser.add_argument("--only", nargs="*", default=[], help="scenarios")
    parser.add_argument("--single", nargs=2, metavar=("NAME", "SEED"), help="train one run here and end")
    parser.add_argument(
        "--write",
        action="store_true",
        help="collect everything in the folder into the results and, in mode advise, into the package's recorded runs",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options = parser.parse_args()
    (options.work / options.mode).mkdir(parents=True, exist_ok=True)
    base = base_policy(options.work)
    if options.single:
        single(options.single[0], int(options.single[1]), options.work, options.mode, base, options.steps)
        return
    runs, failed = plan(options.seeds, options.only), 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for at, said in enumerate(pool.map(lambda run: one(run[0], run[1], options), runs), 1):
            failed += "FAILED" in said
            print(f"{at}/{len(runs)} {said}", file=sys.stderr, flush=True)
    files = sorted(options.work.glob("*/*-*.json"))
    figures = {"share": SHARE, "runs": [json.loads(path.read_text()) for path in files]}
    write = options.write and options.steps == STEPS
    record("tiny_watched", figures, seed=0, keep=write)
    if write and options.mode == "advise" and not options.only:
        kept = {f"{name}-{seed}" for name, seed in plan(None, [known.name for known in SCENARIOS])}
        size = pack({name: options.work / "advise" / f"{name}.npz" for name in sorted(kept)}, RECORDED)
        print(f"{RECORDED.name}: {len(kept)} runs, {size:,} bytes", file=sys.stderr)
    if options.json:
        print(json.dumps(figures, indent=1))
    if failed:
        raise SystemExit(f"{failed} of {len(runs)} runs failed")


if __name__ == "__main__":
    main()
