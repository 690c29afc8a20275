"""Small runs of many kinds, recorded through the product, and their replay, for `portable.py`.

python benchmarks/portable_runs.py record FOLDER [NAME ...]     python benchmarks/portable_runs.py replay FOLDER
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.cli.demo import EXPECTED, measure_demo_run
from tiltmeter.data.batches import from_columns
from tiltmeter.gold import CompletionToLabel, GoldAnswer
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_files import read_request
from tiltmeter.gold.people import PeopleSource, label_pairs, store_answer
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import RunReader

GROUPS, SIZE = 4, 4
ROWS = GROUPS * SIZE
STEPS = 40
WORDS = ("the", "sum", "of", "two", "primes", "is", "even", "so", "answer", "therefore", "we", "check", "again", "done")
Columns = dict[str, Any]


def rows(step: int, *, harm: float = 1.0, rank: int = 0) -> Columns:
    """A reward that comes to prefer the longer and worse of two answers."""
    rng = np.random.default_rng((step, rank))
    right = rng.random(ROWS) < max(0.1, 0.7 - harm * 0.012 * step)
    length = rng.integers(5, 12 + step, ROWS)
    texts = [
        " ".join(rng.choice(WORDS, n)) + (" right" if good else " wrong") for n, good in zip(length, right, strict=True)
    ]
    reward = 0.05 * length + (1.0 - harm * 1.5) * right + rng.normal(0.0, 0.3, ROWS)
    prompts = [f"prompt {(step * GROUPS + k) % 12}" for k in np.repeat(np.arange(GROUPS), SIZE)]
    return {"reward": reward, "prompt": prompts, "completion": texts, "length": length, "right": right.astype(float)}


def logprobs(columns: Columns, step: int) -> Columns:
    """Tokens with log-probabilities of two policies, which drift apart."""
    rng = np.random.default_rng(step + 1000)
    lengths = columns["length"]
    policy = [rng.normal(-1.0, 0.5, n).tolist() for n in lengths]
    reference = [[value - 0.01 * step * rng.random() for value in values] for values in policy]
    tokens = [rng.integers(0, 500, n).tolist() for n in lengths]
    return {"tokens": tokens, "logprob": policy, "ref_logprob": reference}


def write(run: RunDirectory, step: int, columns: Mapping[str, Any], *, attempt: int = 0, rank: int = 0) -> None:
    batch = from_columns(step, np.repeat(np.arange(GROUPS), SIZE), attempt=attempt, **columns)
    run.write(batch, rank, {"counters": {"seen": step + 1, "written": step + 1}})


def without(columns: Columns, *names: str) -> Columns:
    return {name: value for name, value in columns.items() if name not in ("right", *names)}


def watch(run: RunDirectory, config: Config | None = None) -> None:
    loop = MonitorLoop(run, config or Config.standard(), strict=True)
    while loop.poll():
        pass
    for _ in range(200):  # labels may be answered on a thread
        if not loop.waiting:
            break
        loop.poll()
    loop.close()


def begin(path: Path, ranks: int = 1) -> RunDirectory:
    run = RunDirectory.create(path, {"id": path.name.encode().hex()[:16].ljust(16, "0")})  # its draws follow from it
    run.open_attempt(launch="x", ranks=ranks, resume_step=None)
    return run


class Score(FunctionSource):
    """A gold function of the completion alone, which is the same in every process."""

    def label(self, requests: Any) -> list[GoldAnswer]:
        return [score(one) for one in requests]


def score(request: CompletionToLabel) -> float:
    return 0.25 + 0.5 * request.completion.endswith("right") + 0.01 * (len(request.completion) % 7)


def with_function(path: Path, share: float) -> None:
    run = begin(path)
    for step in range(STEPS):
        write(run, step, without(rows(step)))
    run.close_rank(0, 0, {"seen": STEPS})
    watch(run, Config.standard().with_gold(Score("score", lambda prompt, completion: 0.0), share))


# -- the runs ---------------------------------------------------------------------------------------------------------


def gold_column(path: Path) -> None:
    run = begin(path)
    for step in range(STEPS):
        columns = rows(step)
        write(run, step, {**without(columns), "gold": columns["right"]})
    run.close_rank(0, 0, {"seen": STEPS})
    watch(run)


def learning(path: Path) -> None:
    run = begin(path)
    for step in range(STEPS):
        columns = rows(step, harm=-0.5)
        write(run, step, {**without(columns), "gold": columns["right"]})
    run.close_rank(0, 0, {"seen": STEPS})
    watch(run)


def function_sampled(path: Path) -> None:
    with_function(path, 0.3)


def function_whole(path: Path) -> None:
    with_function(path, 1.0)


def people(path: Path) -> None:
    run = begin(path)
    for step in range(STEPS // 2):
        write(run, step, without(rows(step)))
    run.close_rank(0, 0, {"seen": STEPS // 2})
    config = Config.standard().with_gold(PeopleSource(1), 0.3)
    loop = MonitorLoop(run, config, strict=True)
    loop.poll()
    for step in range(STEPS // 2):
        if (request := read_request(run, 0, step)) is None:
            continue
        pairs = label_pairs(request)
        for number in range(len(request.rows)):
            other = pairs.get(number)
            if other is None:
                store_answer(run, request, "ada", (number,), "0.5")
            elif number < other:
                store_answer(run, request, "ada", (number, other), "ab"[(step + number) % 2])
    while loop.poll():
        pass
    loop.close()


def numbers_only(path: Path) -> None:
    run = begin(path)
    for step in range(STEPS):
        scalars = {"kl": 0.1 * step + 0.01 * np.sin(step), "loss": 1.0 / (step + 1.0), "entropy": 2.0 - 0.03 * step}
        write(run, step, {"reward": rows(step)["reward"], "scalars": scalars})
    run.close_rank(0, 0, {"seen": STEPS})
    watch(run)


def three_ranks(path: Path) -> None:
    run = begin(path, ranks=3)
    for step in range(STEPS // 2):
        for rank in range(3):
            if (step, rank) != (7, 2):  # a batch that never came
                columns = rows(step, rank=rank)
                write(run, step, {**without(columns), "gold": columns["right"]}, rank=rank)
    for rank in range(3):
        run.close_rank(0, rank, {"seen": STEPS // 2})
    watch(run)


def went_back(path: Path) -> None:
    run = begin(path)
    for step in range(30):
        columns = rows(step)
        write(run, step, {**without(columns), "gold": columns["right"]})
    watch(run)
    attempt = run.open_attempt(launch="y", ranks=1, resume_step=15)
    for step in range(15, 35):
        columns = rows(step, harm=0.0)
        write(run, step, {**without(columns), "gold": columns["right"]}, attempt=attempt)
    run.close_rank(attempt, 0, {"seen": 20})
    watch(run)


def evaluations(path: Path) -> None:
    run = begin(path)
    for step in range(STEPS):
        write(run, step, without(rows(step)))
        if step % 4 == 0:
            write_evaluation(run, Evaluation(0, step, "gsm8k", 0.6 - 0.01 * step, 200))
    run.close_rank(0, 0, {"seen": STEPS})
    watch(run)


def tokens_and_parts(path: Path) -> None:
    run = begin(path)
    for step in range(STEPS // 2):
        columns = rows(step)
        parts = {"style": columns["length"] / 10.0, "tests": columns["right"]}
        write(run, step, {**without(columns), **logprobs(columns, step), "rewards": parts, "gold": columns["right"]})
    run.close_rank(0, 0, {"seen": STEPS // 2})
    watch(run)


def agent(path: Path) -> None:
    """Long answers with calls of tools, some cut off."""
    run = begin(path)
    for step in range(STEPS // 2):
        columns = rows(step)
        calls = [
            f'<tool name="search">{text}</tool>\n' * (1 + row % 5) for row, text in enumerate(columns["completion"])
        ]
        cut = [row % 7 == 0 for row in range(ROWS)]
        facts = [{"tests": float(good)} for good in columns["right"]]
        own = {"completion": calls, "truncated": cut, "facts": facts, "gold": columns["right"]}
        write(run, step, {**without(columns, "length"), **own})
    run.close_rank(0, 0, {"seen": STEPS // 2})
    watch(run)


RUNS: dict[str, Callable[[Path], None]] = {
    "gold_column": gold_column,
    "learning": learning,
    "function_sampled": function_sampled,
    "function_whole": function_whole,
    "people": people,
    "numbers_only": numbers_only,
    "three_ranks": three_ranks,
    "went_back": went_back,
    "evaluations": evaluations,
    "tokens_and_parts": tokens_and_parts,
    "agent": agent,
}


def record(folder: Path, names: list[str]) -> None:
    for name in EXPECTED:
        if not names or name in names:
            measure_demo_run(name, folder / name)
    for name, make in RUNS.items():
        if not names or name in names:
            make(folder / name)


def replay_all(folder: Path) -> dict[str, dict[str, str]]:
    answers = {}
    for path in sorted(path.parent for path in folder.glob("*/run.json")):
        run = RunDirectory(path)
        again = replay(run, Config.standard())
        different = again.difference
        verdict = RunReader(run).verdict
        alarms = [event.step for event in again.events if event.kind == "alarm" and event.data["tier"] == "alarm"]
        text = "" if different is None else " / ".join("-" if one is None else repr(one)[:600] for one in different)
        answers[path.name] = {
            "difference": text,
            "verdict": f"{verdict.state}, {len(again.events)} events, first alarm {alarms[0] if alarms else '-'}",
        }
    return answers


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]), sys.argv[3:])
    else:
        print(json.dumps(replay_all(Path(sys.argv[2]))))
