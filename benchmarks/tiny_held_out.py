"""Trains the second suite of the tiny language model, which nothing was tuned on, and records its runs.

    python benchmarks/tiny_held_out.py --work FOLDER [--seeds N] [--pack]

Another base policy, other rewards, other seeds than the first suite's; each run is trained once and kept as it came
out, also where gold did not fall. Runs that the folder has are not made again. `--pack` writes the file that
`tiltmeter lab score --suite tiny-lm-2` reads. A minute or two of CPU a run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tiltmeter_lab.tiny.model import base_policy
from tiltmeter_lab.tiny.run_files import HELD_OUT_RECORDED, pack, save
from tiltmeter_lab.tiny.scenarios import HELD_OUT
from tiltmeter_lab.tiny.watched_training import train_watched

BASE_SEED, FIRST_SEED = 1, 101


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--pack", action="store_true", help="only put what was recorded into the package")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    files = {
        f"{one.name}-{seed}": (one, seed, options.work / f"{one.name}-{seed}.npz")
        for seed in range(FIRST_SEED, FIRST_SEED + options.seeds)
        for one in HELD_OUT
    }
    if options.pack:
        print(pack({name: path for name, (_, _, path) in files.items() if path.is_file()}, HELD_OUT_RECORDED))
        return 0
    base = base_policy(options.work, BASE_SEED)
    for name, (one, seed, path) in files.items():
        if not path.is_file():
            run, facts = train_watched(one, seed, options.work / name, base=base)
            save(path, run)
            gold = f"gold {facts['gold_start']}, {facts['gold_peak']} at {facts['peak_step']}, {facts['gold_end']}"
            print(f"{name}: {gold}; alarm {facts['alarm']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
