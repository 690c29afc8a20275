"""Runs with turns and tools: what is read of the files that agents' tools write, and what damaged files do.

    python benchmarks/trajectories.py [--mutants 10000] [--part NAME ...] [--json] [--write]

Figures: `formats_read`, formats whose fixture is read by its own reader; `calls`, and of those `calls_lost`, with
`reasons_lost` and `texts_lost` beside them; `mutants`, damaged files that were read, and `crashes`, those that ended in
anything but a batch or a `StoreError` that names the file; `split_invariance_failures`, steps of which a reading
changes when trajectories are divided into rows. At full size also real runs of TRL with tools, `engine_gap_max` (nats)
and `length_error_max` (tokens against TRL's log), and `cpu_ratio_trainer_64_turns`. Each part is a function in `PARTS`.
With `--part` only some are run, and the figures of the others stay as they are recorded, each with its revision.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trajectory_files as files
import trajectory_runs as runs
from record import RESULTS, record, revision, show

FULL = 10_000  # mutants of a run whose figures are recorded
FAILURES = ("calls_lost", "reasons_lost", "texts_lost", "crashes", "split_invariance_failures")

Figures = dict[str, object]


def formats(options: argparse.Namespace) -> Figures:
    """Every format's fixture, and the real files where they are."""
    results = {one.folder: files.losses(one) for one in files.FORMATS}
    read = {one.reader for one in files.FORMATS if one.reader in files.readers(files.FIXTURES / one.folder)}
    real = dict(files.real_losses())
    for name, lost in {**results, **real}.items():
        for line in lost.missing[:5]:
            print(f"{name}: lost {line}", file=sys.stderr)
    every = [*results.values(), *real.values()]
    return {
        "formats_read": len(read),
        "calls": sum(lost.calls for lost in every),
        "calls_lost": sum(lost.calls_lost for lost in every),
        "reasons_lost": sum(lost.reasons_lost for lost in every),
        "texts_lost": sum(lost.texts_lost for lost in every),
        "real_files": len(real),
        "fixtures": f"{files.checksum():08x}",
    }


def mutants(options: argparse.Namespace) -> Figures:
    """Damaged copies of the fixtures, in a process that may die: one that does counts as a crash of its last file."""
    processes = multiprocessing.get_context("fork")
    at = processes.Value("q", 0)
    wrong = processes.Value("q", 0)
    died = 0
    while at.value < options.mutants:
        worker = processes.Process(target=_read_mutants, args=(at, wrong, options))
        worker.start()
        worker.join()
        if worker.exitcode:
            print(f"mutant {at.value}: the process died with {worker.exitcode}", file=sys.stderr)
            died, at.value = died + 1, at.value + 1
    return {"mutants": options.mutants, "crashes": wrong.value + died, "processes_died": died}


def _read_mutants(at: Any, wrong: Any, options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as place:
        while at.value < options.mutants:
            if problem := files.try_mutant(at.value, options.seed, Path(place)):
                wrong.value += 1
                print(problem, file=sys.stderr)
            at.value += 1


def rows(options: argparse.Namespace) -> Figures:
    """Trajectories that a trainer divides into several rows."""
    batches = max(20, options.mutants // 20)
    return {"split_batches": batches, "split_invariance_failures": runs.split_failures(batches, options.seed)}


def live(options: argparse.Namespace) -> Figures:
    """Real runs of TRL; only at full size."""
    return {} if options.mutants < FULL else {**runs.under_trl()}


def cost(options: argparse.Namespace) -> Figures:
    """What long conversations cost a trainer; only at full size."""
    if options.mutants < FULL:
        return {}
    ratio, low, high = runs.trainer_cpu_ratio(steps=4, pairs=8)
    figures = {"cpu_ratio_trainer_64_turns": ratio, "cpu_ratio_low": low, "cpu_ratio_high": high}
    return {name: round(value, 4) for name, value in figures.items()}


#: Each adds its figures.
PARTS: dict[str, Callable[[argparse.Namespace], Figures]] = {
    part.__name__: part for part in (formats, mutants, rows, live, cost)
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be repeated")
    options = parser.parse_args()
    recorded = RESULTS / "trajectories.json"
    figures: Figures = json.loads(recorded.read_text()) if options.part and recorded.exists() else {}
    for name in options.part or PARTS:
        figures |= {**PARTS[name](options), f"revision_{name}": revision()}
    show(record("trajectories", figures, seed=options.seed, keep=options.write), as_json=options.json)
    return 1 if any(figures.get(name) for name in FAILURES) else 0


if __name__ == "__main__":
    sys.exit(main())
