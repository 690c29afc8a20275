"""The index of rollouts behind S2: how long it takes to build, what it holds in memory, and how fast it answers.

    python benchmarks/rollout_index.py --rows 1000000 --json

Makes a run of short texts with gold on 2 % of rollouts in a temporary directory, a file per step, and asks what the
page asks: the 20 worst by reward, a filtered range sorted by gap, a page deep in the list by its cursor, 50 rows with
the beginning of their text, one rollout in full, one group with its base. Then the same of the run packed. Times are
wall-clock times of the server's function, one client, no network. Budget: a filtered and sorted page within 300 ms at
the 95th percentile. The result is written only with --write.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported: the machine has other users

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from record import record
from tiltmeter.data.batches import from_columns
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server.rollouts import RolloutIndex, group, rollout, rollouts

GROUP = 8
GOLD_SHARE = 0.02
BUDGET_MS = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--per-step", type=int, default=1_000, help="rollouts of one step")
    parser.add_argument("--characters", type=int, default=200, help="of a completion, about")
    parser.add_argument("--repeats", type=int, default=40, help="of each question")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/rollout_index.json")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory(prefix="tiltmeter-rollouts-") as folder:
        began = time.perf_counter()
        run = make(Path(folder) / "run", rng, options.rows, options.per_step, options.characters)
        figures: dict[str, Any] = {
            "rollouts": options.rows,
            "steps": -(-options.rows // options.per_step),
            "characters": options.characters,
            "made_s": round(time.perf_counter() - began, 1),
        }
        figures |= measure(run, rng, options.repeats)
        run.close_rank(0, 0, {})  # an attempt that has ended is packed to its last step
        pack(run)
        packed = measure(RunDirectory(run.path), rng, options.repeats)
        figures |= {f"packed_{name}": value for name, value in packed.items()}
    pages = [value for name, value in figures.items() if name.endswith("_p95_ms")]
    figures |= {"budget_ms": BUDGET_MS, "slowest_p95_ms": max(pages), "within_budget": max(pages) <= BUDGET_MS}
    result = record("rollout_index", figures, seed=options.seed, keep=options.write)
    print(json.dumps(result) if options.json else "\n".join(f"{name:28} {value}" for name, value in result.items()))


def make(path: Path, rng: np.random.Generator, rows: int, per_step: int, characters: int) -> RunDirectory:
    """A run of one rank with a few hundred distinct texts, which is quick to make and no easier to sort."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="benchmark", ranks=1, resume_step=None)
    words = np.array(
        ["so", "the", "answer", "is", "two", "plus", "four", "we", "verify", "again", "and", "once", "more"]
    )
    texts = [" ".join(rng.choice(words, max(1, characters // 5))) for _ in range(500)]
    for step, first in enumerate(range(0, rows, per_step)):
        many = min(per_step, rows - first)
        groups = np.arange(many) // GROUP
        reward = rng.normal(size=many)
        gold = np.where(rng.random(many) < GOLD_SHARE, rng.random(many), np.nan)
        batch = from_columns(
            step,
            groups,
            attempt=attempt,
            reward=np.where(rng.random(many) < 0.001, np.nan, reward),
            rewards={"correct": (reward > 0).astype(float), "length": rng.random(many)},
            advantage=reward,
            gold=gold,
            length=rng.integers(10, 400, many),
            truncated=rng.random(many) < 0.05,
            prompt=[f"Problem {number}: what is it?" for number in (groups + step * 7) % 5_000],
            completion=[texts[which] for which in rng.integers(0, len(texts), many)],
        )
        run.write(batch, 0, {"time": time.time()})
    return run


def measure(run: RunDirectory, rng: np.random.Generator, repeats: int) -> dict[str, Any]:
    before = _resident()
    index = RolloutIndex(RunReader(run))
    began = time.perf_counter()
    index.update()
    built = time.perf_counter() - began
    figures: dict[str, Any] = {"build_s": round(built, 2), "memory_mb": round(_resident() - before, 1)}
    began = time.perf_counter()
    index.update()
    figures["nothing_new_ms"] = round(1000 * (time.perf_counter() - began), 1)
    for name, ask in questions(index, rng).items():
        taken = []
        for _ in range(repeats):
            began = time.perf_counter()
            ask()
            taken.append(1000 * (time.perf_counter() - began))
        figures |= {f"{name}_p50_ms": round(float(np.median(taken)), 1)}
        figures |= {f"{name}_p95_ms": round(float(np.quantile(taken, 0.95)), 1)}
    began = time.perf_counter()
    found = rollouts(index, {"phrase": "verify again and once"})
    figures |= {"search_s": round(time.perf_counter() - began, 2), "search_rows": found.searched}
    index.close()
    return figures


def questions(index: RolloutIndex, rng: np.random.Generator) -> dict[str, Callable[[], object]]:
    """What the page asks, with other steps each time."""
    with index.cursor() as cursor:
        newest = (cursor.execute("SELECT max(step) FROM rollouts").fetchone() or (0,))[0]

    def steps() -> dict[str, int]:
        low = int(rng.integers(0, max(1, newest // 2)))
        return {"from": low, "to": low + newest // 3}

    def gap() -> object:
        return rollouts(index, {**steps(), "reward_min": 0.0, "labelled": 1}, "gap", "down", limit=50)

    def deep() -> object:
        value = float(rng.normal())
        after = f"reward.down~{value!r}~0-{int(rng.integers(0, newest + 1))}-0"
        return rollouts(index, {}, "reward", "down", after, 50)

    def page_of_rows() -> object:
        return rollouts(index, steps(), "length", "down", limit=50)

    def single() -> object:
        return rollout(index, f"0-{int(rng.integers(0, newest + 1))}-3")

    def whole_group() -> object:
        return group(index, f"0-{int(rng.integers(0, newest + 1))}-3")

    return {
        "worst20": lambda: rollouts(index, {}, "reward", "up", limit=20),
        "gap": gap,
        "deep": deep,
        "rows50": page_of_rows,
        "rollout": single,
        "group": whole_group,
    }


def _resident() -> float:
    """Megabytes of this process that are in memory and no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1000.0


if __name__ == "__main__":
    main()
