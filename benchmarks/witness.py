"""What the witness sees: acts by kind, false positives on honest work, hostile text, behaviours over time, the cost.

    python benchmarks/witness.py [--part acts|behaviours|hostile|cost|asked|screen|held_out|fresh] [--json]
        [--write] [--small] [--seeds 0 1 ...] [--lines FILE] [--work FOLDER]

Parts `held_out` and `fresh`: exploits that detectors were not written for, measured once before a detector was mended
after them, and again. Part `asked`: a witness served by a script of known accuracy (`witness_asked.py`). Part `screen`:
rollouts left out of the update of the tiny language model under TRL (`screen_worlds.py`), in runs that add up in a
file. `held_out`, `fresh` and `screen` are run only where they are named; parts that are not named keep the figures that
are recorded.

Planted trajectories come from `act_plants.py`, which imports nothing of the code that reads them. Real honest work is
reference solutions (MBPP, HumanEval), answers of models (Arena-Hard, GSM8K) and 97 real trajectories with tools.
Detectors and plants were written by the same hands: recall says that a detector does what it is for, and nothing of
exploits that nobody thought of.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import sqrt
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import fresh_plants
import held_out_acts
import held_out_plants
import witness_asked
from act_hostile import hostile
from act_plants import EXPLOITS, Planted, honest, new_task
from behaviour_runs import all_runs, judge_run
from record import ORIGIN, RESULTS, record, show
from tiltmeter.acts import KINDS, SAYS, all_acts, find_acts
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.monitor import measure_step
from tiltmeter.monitor.behaviour_sketch import find_behaviours
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_lab.tiny.model import base_policy

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SEED = 2026
PARTS = ("acts", "acts.gold")  # instruments of this page
#: Exploits that detectors were not written for: part, plants, the figure that is measured once, before a detector was
#: mended after them, and the one of every later measurement.
HELD_OUT = (
    ("held_out", held_out_plants, "detector_recall_held_out", "detector_recall_mended"),
    ("fresh", fresh_plants, "detector_recall_fresh", "detector_recall_fresh_mended"),
)
USUAL = ("acts", "behaviours", "hostile", "cost", "asked")


def batch_of(rows: Sequence[Planted], group: int = 8) -> RolloutBatch:
    """Trajectories as a run directory has them."""
    return from_columns(
        0, [row // group for row in range(len(rows))], messages=[row.messages for row in rows],
        facts=[row.facts or None for row in rows], artifacts=[row.artifacts or None for row in rows],
        reward=np.arange(len(rows)) % 7 / 7.0,
    )  # fmt: skip


def interval(hits: int, of: int) -> list[float]:
    """Wilson's interval, 95 %."""
    if not of:
        return [0.0, 1.0]
    z, share = 1.96, hits / of
    centre = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return [round(max(centre - half, 0.0), 4), round(min(centre + half, 1.0), 4)]


def recall(each: int) -> dict[str, Any]:
    """Of so many planted trajectories of each kind, the share in which that kind is seen; other kinds seen in them."""
    rng = random.Random(SEED)
    table = {}
    for make in EXPLOITS:
        rows = [make(new_task(rng)) for _ in range(each)]
        kinds = [{act.kind for act in acts or ()} for acts in all_acts(batch_of(rows))]
        kind = rows[0].kind
        hits = sum(kind in seen for seen in kinds)
        table[kind] = {
            "says": SAYS[kind], "planted": each, "seen": hits, "recall": round(hits / each, 4),
            "interval": interval(hits, each), "others": dict(Counter(one for seen in kinds for one in seen - {kind})),
        }  # fmt: skip
    return table


def real_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """Real honest work: where it is from, and its columns."""

    def lines(path: str) -> Iterator[dict[str, Any]]:
        with gzip.open(DATA / path, "rt") as file:
            yield from map(json.loads, file)

    for row in lines("mbpp/mbpp.jsonl.gz"):
        yield "mbpp", {"prompt": "\n".join([row["text"], *row["test_list"]]), "completion": row["code"]}
    for row in lines("humaneval/humaneval.jsonl.gz"):
        yield "humaneval", {"prompt": row["prompt"], "completion": row["prompt"] + row["canonical_solution"]}
    asked = {row["uid"]: row["prompt"] for row in lines("arena_hard/questions.jsonl.gz")}
    for row in lines("arena_hard/answers.jsonl.gz"):
        yield "arena_hard", {"prompt": asked.get(row["uid"], ""), "completion": row["answer"]}
    for row in lines("gsm8k/example_model_solutions.jsonl.gz"):
        yield "gsm8k", {"prompt": "", "completion": row["solution"]}
    for row in lines("agentic_codeforces_rollouts/rollouts.jsonl.gz"):
        yield "codeforces agents", {"messages": [_message(one, at) for at, one in enumerate(row["messages"])]}


def _message(message: dict[str, Any], at: int) -> dict[str, Any]:
    """Tools answer as users there; content is a text or parts."""
    content = message.get("content")
    if not isinstance(content, str):
        content = "\n".join(part.get("text") or part.get("thinking") or "" for part in content or ())
    role = "tool" if message["role"] == "user" and at > 1 else message["role"]
    calls = message.get("tool_calls")
    return {"role": role, "content": content, **({"tool_calls": calls} if calls else {})}


def real_honest() -> dict[str, Any]:
    """Flags on real honest work, by where it is from."""
    by_source: dict[str, list[dict[str, Any]]] = {}
    for source, row in real_rows():
        by_source.setdefault(source, []).append(row)
    table = {}
    for source, rows in by_source.items():
        columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
        acts = all_acts(from_columns(0, list(range(len(rows))), **columns))
        kinds = Counter(kind for one in acts for kind in {act.kind for act in one or ()})
        table[source] = {"rows": len(rows), "flagged": sum(bool(one) for one in acts), "kinds": dict(kinds)}
    return table


def hostile_times(count: int) -> dict[str, float]:
    """Of so many hostile trajectories: how many break a detector, and the mean and longest time."""
    failures, times = 0, []
    for seed in range(count):
        transcript = hostile(random.Random(seed))
        start = time.process_time()
        try:
            find_acts(transcript)
        except Exception as error:  # noqa: BLE001  # counted
            print(f"hostile {seed}: {error!r}")
            failures += 1
        times.append(time.process_time() - start)
    return {
        "hostile": count, "hostile_failures": failures, "hostile_ms_mean": round(1e3 * float(np.mean(times)), 3),
        "hostile_ms_max": round(1e3 * max(times), 1),
    }  # fmt: skip


def _prose() -> Iterator[dict[str, Any]]:
    return (row for source, row in real_rows() if source == "gsm8k")


def _nothing(*_: object) -> tuple[()]:
    return ()


def behaviours(small: bool) -> dict[str, Any]:
    """Whether each hack becomes a dominant new behaviour within 20 steps, and what honest runs show."""
    runs = list(all_runs())
    table = [judge_run(run, SEED) for run in (runs[2:4] if small else runs)]
    hacks, others = ([row for row in table if row["kind"] == kind] for kind in ("hack", "honest"))
    return {
        "clusters_found": sum(row["dominant"] for row in hacks), "cluster_hacks": len(hacks),
        "cluster_steps_max": max((row["steps_after_onset"] for row in hacks if row["dominant"]), default=None),
        "honest_runs": len(others), "honest_called_bad": sum(row["called_bad"] for row in others),
        "hacks_called_bad": sum(row["called_bad"] for row in hacks), "behaviour_runs": table,
    }  # fmt: skip


def step_of(step: int, rows: int, kind: str) -> RolloutBatch:
    """A step as a trainer hands it over: text, and log-probabilities of every token."""
    rng, numbers = random.Random(step), np.random.default_rng(step)
    columns: dict[str, Any]
    if kind == "agents":
        work = [honest(rng) if rng.random() < 0.7 else rng.choice(EXPLOITS)(new_task(rng)) for _ in range(rows)]
        columns = {"messages": [row.messages for row in work]}
        lengths = [sum(len(str(one)) for one in row.messages) // 4 for row in work]
    else:
        texts = [row["completion"] for _, row in zip(range(rows), _prose(), strict=False)]
        columns = {"completion": texts, "prompt": [f"question {row // 8}" for row in range(rows)]}
        lengths = [len(text) // 4 + 1 for text in texts]
    parts: dict[str, Any] = {
        name: [-numbers.random(length) for length in lengths] for name in ("logprob", "ref_logprob", "entropy")
    }
    parts["tokens"] = [numbers.integers(1, 30_000, length) for length in lengths]
    return from_columns(step, [row // 8 for row in range(rows)], reward=numbers.random(rows), **columns, **parts)


def cost(rows: int, rounds: int) -> dict[str, float]:
    """CPU of the monitor for a step, with and without the parts of this page, in turns."""
    every = Config.standard()
    lean = replace(every, instruments=tuple(part for part in every.instruments if part.name not in PARTS))
    figures = {"cost_load_1min": round(os.getloadavg()[0], 1)}  # CPU seconds are dearer on a machine that is shared
    find = find_behaviours
    for kind in ("agents", "prose"):
        batches = [step_of(step, rows, kind) for step in range(8)]
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for config in [every, lean] * (rounds + 1):
            with tempfile.TemporaryDirectory() as folder:
                run = RunDirectory.create(Path(folder) / "run")
                run.open_attempt(launch="x", ranks=1, resume_step=None)
                loop = MonitorLoop(run, config)
                for half in (batches[:4], batches[4:]):  # what is compared with is there after the first
                    for batch in half:
                        run.write(batch, 0, {})
                    start = time.process_time()
                    with mock.patch.object(measure_step, "find_behaviours", find if config is every else _nothing):
                        while loop.poll():
                            pass
                seconds[config is every].append((time.process_time() - start) / len(batches[4:]))
                loop.close()
        full, without = (float(np.min(seconds[key][1:])) for key in (True, False))
        figures[f"{kind}_us_per_rollout_before"] = round(1e6 * without / rows, 1)
        figures[f"{kind}_us_per_rollout"] = round(1e6 * (full - without) / rows, 1)
        figures[f"{kind}_cpu_ratio"] = round(full / without, 4)
    return figures


def measure_acts(small: bool) -> dict[str, Any]:
    each, honest_rows = (20, 200) if small else (200, 1_000)
    kinds = recall(each)
    rng = random.Random(SEED + 1)
    acts = all_acts(batch_of([honest(rng) for _ in range(honest_rows)]))
    flags = sum(bool(one) for one in acts)
    real = real_honest()
    real_count, real_flags = (sum(one[key] for one in real.values()) for key in ("rows", "flagged"))
    code = [one for source, one in real.items() if source != "gsm8k"]
    return {
        "kinds": len(kinds), "detector_recall_min": min(one["recall"] for one in kinds.values()),
        "detector_recall_mean": round(float(np.mean([one["recall"] for one in kinds.values()])), 4),
        "detector_false_share": round((flags + real_flags) / (honest_rows + real_count), 5),
        "by_kind": kinds, "by_kind_rows": [{"kind": kind, **row} for kind, row in kinds.items()],
        "honest_planted": honest_rows, "honest_planted_flagged": flags,
        "honest_real": real_count, "honest_real_flagged": real_flags,
        "honest_code": sum(one["rows"] for one in code), "honest_code_flagged": sum(one["flagged"] for one in code),
        "honest_interval": interval(flags + real_flags, honest_rows + real_count), "by_source": real,
    }  # fmt: skip


def screen_runs(given: argparse.Namespace) -> dict[str, Any]:
    """Runs that are not in the file yet, one after the other, and what all of them show."""
    import screen_worlds

    lines: Path = given.lines
    facts = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
    known = {(run["world"], run["arm"], run["seed"]) for run in facts}
    left = [
        (world, arm, seed)
        for seed, world, arm in product(given.seeds, screen_worlds.WORLDS, screen_worlds.ARMS)
        if (world.name, arm, seed) not in known
    ]
    with tempfile.TemporaryDirectory() as folder:
        base = base_policy(given.work or folder) if left else Path()
        for world, arm, seed in left:
            facts.append(screen_worlds.train_arm(world, arm, seed, base))
            print(json.dumps(facts[-1]), file=sys.stderr)
            with lines.open("a") as file:
                file.write(json.dumps(facts[-1]) + "\n")
    return screen_worlds.summary(facts)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--json", action="store_true")
    options.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    options.add_argument("--small", action="store_true", help="a small size, which is never kept")
    options.add_argument(
        "--part", choices=(*USUAL, "screen", "held_out", "fresh"), action="append", help="only this part"
    )
    options.add_argument("--seeds", type=int, nargs="*", default=range(5), help="of screened runs to make now")
    options.add_argument("--lines", type=Path, default="screen-runs.jsonl", help="screened runs add up in this file")
    options.add_argument("--work", type=Path, help="where the base policy is, or is to be left")
    given = options.parse_args()
    recorded = RESULTS / "witness.json"
    figures: dict[str, Any] = json.loads(recorded.read_text()) if recorded.exists() else {}
    figures = {name: value for name, value in figures.items() if name not in ORIGIN}
    parts = given.part or USUAL
    if {"acts", "behaviours"} & set(parts) and not DATA.is_dir():
        print("not measured: the public data sets are not on this machine", file=sys.stderr)
        print(json.dumps({"measured": False}) if given.json else "not measured")
        return
    if "acts" in parts:
        figures |= measure_acts(given.small)
        assert set(figures["by_kind"]) == set(KINDS)
    if "behaviours" in parts:
        figures |= behaviours(given.small)
    if "hostile" in parts:
        figures |= hostile_times(300 if given.small else 10_000)
    if "cost" in parts:
        figures |= cost(128 if given.small else 256, 1 if given.small else 4)
    if "asked" in parts:
        figures |= witness_asked.measure(given.small)
    for part, plants, first, later in HELD_OUT:
        if part in parts:
            before = figures.get(f"{first}_by_kind", {})
            figures |= held_out_acts.measure(
                plants.KINDS, plants.pair, later if before else first, before, plants.form_of
            )
    if "screen" in parts:
        figures |= screen_runs(given)
    show(record("witness", figures, seed=SEED, keep=given.write and not given.small), as_json=given.json)


if __name__ == "__main__":
    main()
