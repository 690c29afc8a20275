"""Text search over a million rollouts of 2 KB, a text in ten of them: how long the first search takes, which reads all
and fills the filter, how long later ones take, and what the filter holds in memory. Beside it, on a sample: an index of
SQLite (FTS5, trigrams), for its space and the time to make it.

    python benchmarks/text_search.py --rows 1000000 --json
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before numpy is imported: the machine has other users

import argparse
import json
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.data.batches import from_columns
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server.rollouts import RolloutIndex, rollouts

NEEDLE = "then call sys.exit(0) here"
NEEDLES = 10
PER_STEP = 1000
CHARACTERS = 2000
QUERIES = {
    "literal": f'"{NEEDLE}"',
    "ignore_case": f'"{NEEDLE.upper()}"i',
    "expression": r"text~/sys\.exit\(\d\)/",
    "nothing": '"no such words anywhere here"',
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--run", type=Path, help="made by an earlier call, or to be made and left")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tiltmeter-search-") as folder:
        path = options.run or Path(folder) / "run"
        if not path.exists():
            make(path, options.rows)
        figures = search_figures(RunDirectory(path))
    figures |= sqlite_figures(2000)
    print(json.dumps(figures) if options.json else "\n".join(f"{name:28} {value}" for name, value in figures.items()))


def make(path: Path, rows: int, seed: int = 0) -> RunDirectory:
    """A run whose texts are all different, from everyday words, with the needle in ten of them."""
    rng = np.random.default_rng(seed)
    pool = word_pool(rng)
    run = RunDirectory.create(path)
    run.open_attempt(launch="benchmark", ranks=1, resume_step=None)
    needles = set(rng.choice(rows, NEEDLES, replace=False).tolist())
    for step, first in enumerate(range(0, rows, PER_STEP)):
        many = min(PER_STEP, rows - first)
        starts = rng.integers(0, len(pool) - CHARACTERS, many)
        texts = [pool[start : start + CHARACTERS] for start in starts]
        for row in needles & set(range(first, first + many)):
            texts[row - first] = f"{texts[row - first][:900]} {NEEDLE} {texts[row - first][900:]}"
        groups = np.arange(many) // 8
        prompts = [f"Problem {number}: what is it?" for number in (groups + step * 7) % 5_000]
        batch = from_columns(step, groups, reward=rng.normal(size=many), prompt=prompts, completion=texts)
        run.write(batch, 0, {"time": time.time()})
    return run


def word_pool(rng: np.random.Generator) -> str:
    words = (Path(__file__).parent / "everyday_words.txt").read_text().split()
    return " ".join(rng.choice(np.array(words), 2_000_000))


def search_figures(run: RunDirectory) -> dict[str, Any]:
    index = RolloutIndex(RunReader(run))
    began = time.monotonic()
    index.update()
    figures: dict[str, Any] = {"rollouts": index.rollouts, "numbers_indexed_s": round(time.monotonic() - began, 1)}
    began, cpu = time.monotonic(), time.process_time()
    while (page := rollouts(index, {"find": '"zzzz qqqq"'})).searched != page.to_search:  # the first reads all
        pass
    figures |= {
        "texts_indexed_s": round(time.monotonic() - began, 1),
        "texts_indexed_cpu_s": round(time.process_time() - cpu, 1),
    }
    figures["filter_mb"] = round(index.texts.bytes / 1e6, 1)
    for name, query in QUERIES.items():
        began, cpu = time.monotonic(), time.process_time()
        while (page := rollouts(index, {"find": query})).searched != page.to_search:
            pass
        assert page.total == (0 if name == "nothing" else NEEDLES), (name, page.total)
        figures[f"search_{name}_ms"] = round(1000 * (time.monotonic() - began))
        figures[f"search_{name}_cpu_ms"] = round(1000 * (time.process_time() - cpu))
    index.close()
    return figures


def sqlite_figures(rows: int) -> dict[str, Any]:
    """What FTS5 would take, for so many rows, and the filter for the same, per million."""
    pool = word_pool(np.random.default_rng(0))
    starts = np.random.default_rng(1).integers(0, len(pool) - CHARACTERS, rows)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fts"
        database = sqlite3.connect(file)
        database.execute("CREATE VIRTUAL TABLE t USING fts5(x, content='', detail='none', tokenize='trigram')")
        began = time.process_time()
        database.executemany(
            "INSERT INTO t(rowid, x) VALUES (?, ?)", ((k, pool[s : s + CHARACTERS]) for k, s in enumerate(starts))
        )
        database.execute("INSERT INTO t(t) VALUES ('optimize')")
        database.commit()
        taken = time.process_time() - began
        database.close()
        size = file.stat().st_size
    return {"fts5_cpu_s_per_million": round(taken * 1e6 / rows), "fts5_mb_per_million": round(size / rows)}


if __name__ == "__main__":
    main()
