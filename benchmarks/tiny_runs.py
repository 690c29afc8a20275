"""Records the tiny-language-model runs of the proving ground: real TRL, gold on every rollout, one file for all.

    python benchmarks/tiny_runs.py --work folder            # train what is not yet there, then write the package's file
    python benchmarks/tiny_runs.py --work folder --only length_hacking --seeds 2 --no-pack

Each run is a process of its own and a file of its own in the folder, so an interrupted campaign goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

from tiltmeter.lab.tiny.model import base_policy
from tiltmeter.lab.tiny.record import RECORDED, pack, save, train_and_record
from tiltmeter.lab.tiny.scenarios import SCENARIOS, scenario


def plan(seeds: int | None, only: list[str]) -> list[tuple[str, int]]:
    """Every run, first seeds first: 20 hacked and 20 benign ones unless asked otherwise."""
    found = []
    for kind in ("hack", "benign"):
        names = [known.name for known in SCENARIOS if known.kind == kind]
        found += [(names[at % len(names)], at // len(names)) for at in range(seeds * len(names) if seeds else 20)]
    return sorted((run for run in found if not only or run[0] in only), key=lambda run: run[1])


def one(name: str, seed: int, work: Path) -> str:
    """Train one run in a process of its own, unless it is there."""
    target = work / f"{name}-{seed}.npz"
    if target.is_file():
        return f"{target.stem} is there"
    begun = time.perf_counter()
    # With Tiltmeter attached in advise mode, which changes no bit of the run: what it says is kept beside the arrays.
    program = Path(__file__).with_name("tiny_watched.py")
    command = [sys.executable, str(program), "--work", str(work), "--single", name, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{target.stem} failed:\n{done.stderr[-3000:]}")
    (work / "advise" / target.name).replace(target)
    return f"{target.stem} {time.perf_counter() - begun:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder of the base policy and of one file a run")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, help="seeds of each scenario; without it 20 hacked and 20 benign runs")
    parser.add_argument("--only", nargs="*", default=[], help="scenarios")
    parser.add_argument("--single", nargs=2, metavar=("NAME", "SEED"), help="train one run here and end")
    parser.add_argument("--no-pack", action="store_true", help="leave the package's file as it is")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    base = base_policy(options.work)
    if options.single:
        name, seed = options.single[0], int(options.single[1])
        save(options.work / f"{name}-{seed}.npz", train_and_record(scenario(name), seed, base=base))
        return
    runs = plan(options.seeds, options.only)
    with ThreadPoolExecutor(options.jobs) as pool:
        for at, said in enumerate(pool.map(lambda run: one(run[0], run[1], options.work), runs), 1):
            print(f"{at}/{len(runs)} {said}", flush=True)
    if not options.no_pack:
        size = pack({f"{name}-{seed}": options.work / f"{name}-{seed}.npz" for name, seed in runs}, RECORDED)
        print(f"{RECORDED.name}: {len(runs)} runs, {size:,} bytes")


if __name__ == "__main__":
    main()
