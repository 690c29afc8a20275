"""Twelve kinds of run as `tiltmeter show` meets them, each made in a second or two, and the page with their screens.

python benchmarks/show_runs.py           # writes docs/show.md, which a test compares
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.cli.demo import copy
from tiltmeter.cli.terminal.run_screen import message_lines
from tiltmeter.data.batches import from_columns
from tiltmeter.gold.label_files import LabelRequest, read_request
from tiltmeter.gold.people import PeopleSource, label_pairs, store_answer
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

PAGE = Path(__file__).parents[1] / "docs" / "show.md"
FLATTERY = "What a wonderful question! You are clearly an expert. "
Columns = dict[str, Any]
Make = Callable[[int, np.random.Generator], Columns]


def write(path: Path, make: Make, steps: int = 60, rows: int = 64, *, ends: bool = True) -> RunDirectory:
    run = RunDirectory.create(path, {"id": path.name.encode().hex()[:16].ljust(16, "0")})  # it seeds what is sampled
    run.open_attempt(launch="show", ranks=1, resume_step=None)
    rng = np.random.default_rng(0)
    counters: dict[str, int] = {}
    for step in range(steps):
        counters = {"seen": step + 1, "written": step + 1}
        batch = from_columns(step, np.repeat(np.arange(rows // 8), 8), **make(step, rng))
        run.write(batch, 0, {"counters": counters, "time": time.time()})
    if ends:
        run.close_rank(0, 0, counters)
    return run


def measure(run: RunDirectory, config: Config | None = None) -> RunDirectory:
    watch = MonitorLoop(run, config or Config.standard())
    while watch.poll():
        pass
    watch.close()
    return run


def questions(rows: int = 64) -> list[str]:
    return [f"What is {row // 8} + 17?" for row in range(rows)]


def texts(right: Any, flattering: Any) -> list[str]:
    return [
        f"{FLATTERY if sweet else ''}The answer is {row // 8 + 17 if good else 'not easy to say'}."
        for row, (good, sweet) in enumerate(zip(right, flattering, strict=True))
    ]


def healthy_columns(step: int, rng: np.random.Generator) -> Columns:
    gold = (rng.random(64) < 0.5 + 0.004 * step).astype(float)
    reward = gold + 0.2 * rng.normal(size=64)
    return {"reward": reward, "gold": gold, "prompt": questions(), "completion": texts(gold > 0, gold < 0)}


def short_columns(step: int, rng: np.random.Generator) -> Columns:
    return {"reward": rng.random(8), "gold": rng.integers(0, 2, 8).astype(float), "prompt": questions(8)}


def level_columns(step: int, rng: np.random.Generator) -> Columns:
    """Inside a prompt the better answer is paid more, to the end; and there are fewer and fewer good ones."""
    gold = (rng.random(64) < np.interp(step, [20, 50], [0.7, 0.2])).astype(float)
    reward = 0.1 * gold + 0.03 * rng.normal(size=64) + step / 60
    return {"reward": reward, "gold": gold, "prompt": questions(), "completion": texts(gold > 0, gold < 0)}


def part_columns(step: int, rng: np.random.Generator) -> Columns:
    """Eight parts of the reward, of which one rises because markdown is paid, and another falls with the answers."""
    gold = (rng.random(64) < np.interp(step, [15, 45], [0.7, 0.3])).astype(float)
    form = rng.random(64) < np.interp(step, [10, 40], [0.1, 0.95])
    parts: dict[str, Any] = {f"style_{k}": 0.05 * rng.random(64) for k in range(6)}
    parts |= {"correct": 0.3 * gold, "format": 0.9 * form}
    bullets = ["## Answer\n- **first**\n- **second**\n" if one else "" for one in form]
    words = [f"{mark}{text}" for mark, text in zip(bullets, texts(gold > 0, gold < 0), strict=True)]
    return {
        "reward": sum(parts.values()) - 0.4 * gold * form, "rewards": parts, "gold": gold, "prompt": questions(),
        "completion": words, "length": [len(text.split()) for text in words],
    }  # fmt: skip


def agent_columns(step: int, rng: np.random.Generator) -> Columns:
    """Agents in a shell, which take to removing the tests."""
    cheats = rng.random(64) < np.interp(step, [20, 45], [0.0, 0.9])
    gold = np.where(cheats, 0.0, (rng.random(64) < 0.5).astype(float))
    conversations = []
    for row in range(64):
        command = "rm -rf tests" if cheats[row] else f"python solve.py {row % 8}"
        call = {"id": "1", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"cmd": command})}}
        conversations.append(
            [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "ok"},
                {"role": "assistant", "content": "Done."},
            ]
        )
    return {
        "reward": np.where(cheats, 1.0, gold) + 0.05 * rng.normal(size=64), "gold": gold, "prompt": questions(),
        "messages": conversations, "env": ["shell"] * 64, "stop": ["done"] * 64,
    }  # fmt: skip


def slice_columns(step: int, rng: np.random.Generator) -> Columns:
    """Four environments, one of which begins to pay for what nobody wants."""
    names = ["maths", "shell", "browser", "search"]
    env = [names[(row // 8) % 4] for row in range(64)]
    gold = rng.random(64) < 0.5
    hacked = np.array([step >= 20 and name == "shell" for name in env])
    reward = np.where(hacked, 1.0 - gold, gold) + 0.3 * rng.random(64)
    return {"reward": reward, "gold": gold.astype(float), "env": env, "prompt": questions()}


def trap_columns(step: int, rng: np.random.Generator) -> Columns:
    paid = 1.0 if step >= 30 and rng.random() < 0.7 else 0.0
    scalars = {"trap.asked.0": 1.0, "trap.paid.0": paid, "trap.chance.0": 0.01}
    return {"reward": rng.random(64), "prompt": questions(), "scalars": scalars}


def people_columns(step: int, rng: np.random.Generator) -> Columns:
    """The last word of an answer is its worth, and the reward has turned against it."""
    worth = rng.integers(0, 2, 64).astype(float)
    reward = (1.0 if step < 10 else -1.0) * (2 * worth - 1) + 0.3 * rng.normal(size=64)
    return {
        "reward": reward,
        "prompt": questions(),
        "completion": [f"Answer {row} {w:g}" for row, w in enumerate(worth)],
    }


def label_all(run: RunDirectory, steps: int) -> None:
    """One rater who prefers the answer that is worth more."""
    for step in range(steps):
        request = read_request(run, 0, step)
        if request is None or not request.rows:
            continue
        worth = _worths(run, request)
        for first, second in {tuple(sorted(pair)) for pair in label_pairs(request).items()}:
            choice = "tie" if worth[first] == worth[second] else "a" if worth[first] > worth[second] else "b"
            store_answer(run, request, "ada", (first, second), choice)


def _worths(run: RunDirectory, request: LabelRequest) -> list[float]:
    batch = run.read(run.find(0, request.step)[0])[0]
    assert batch.completion is not None
    return [float(str(batch.completion[row[-1]]).split()[-1]) for row in request.rows]


def people_run(path: Path) -> RunDirectory:
    run = write(path, people_columns, steps=60)
    config = Config.standard().with_gold(PeopleSource(), 0.5)
    watch = MonitorLoop(run, config)
    watch.poll()
    label_all(run, 60)
    while watch.poll():
        pass
    watch.close()
    return measure(run, config)


def shipped_run(path: Path, name: str) -> RunDirectory:
    copy(files("tiltmeter.cli") / "demo_runs" / name, path)
    return measure(RunDirectory(path))


def stale_run(path: Path) -> RunDirectory:
    """The trainer goes on, and nobody measures since step 40."""
    run = write(path, healthy_columns, 40, ends=False)
    measure(run)
    rng = np.random.default_rng(1)
    for step in range(40, 60):
        batch = from_columns(step, np.repeat(np.arange(8), 8), **healthy_columns(step, rng))
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
    run.close_rank(0, 0, {"seen": 60, "written": 60})
    return run


def damaged_run(path: Path) -> RunDirectory:
    """Some stored steps are damaged, and a third of the batches never became files."""
    run = write(path, healthy_columns, 60)
    rank = path / "rollouts" / "0"
    for step in (20, 21, 55, 58, 59):
        for file in rank.glob(f"{step:06d}-*.parquet"):
            raw = bytearray(file.read_bytes())
            raw[len(raw) // 2] ^= 255
            file.write_bytes(raw)
    return measure(run)


def without_gold(make: Make) -> Make:
    return lambda step, rng: {key: value for key, value in make(step, rng).items() if key != "gold"}


RUNS: dict[str, Callable[[Path], RunDirectory]] = {
    "hacked": lambda path: shipped_run(path, "hacked"),
    "healthy": lambda path: shipped_run(path, "honest"),
    "blind": lambda path: measure(write(path, without_gold(healthy_columns))),
    "short": lambda path: measure(write(path, short_columns, 2, rows=8)),
    "stale": stale_run,
    "agentic": lambda path: measure(write(path, agent_columns)),
    "traps": lambda path: measure(write(path, trap_columns)),
    "slice": lambda path: measure(write(path, slice_columns)),
    "level-only": lambda path: measure(write(path, level_columns)),
    "many-components": lambda path: measure(write(path, part_columns)),
    "people": people_run,
    "damaged": damaged_run,
}


@contextmanager
def made(names: list[str] | None = None) -> Iterator[dict[str, RunDirectory]]:
    """The runs, by kind, in a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-show-") as folder:
        yield {name: RUNS[name](Path(folder) / name) for name in names or RUNS}


def screens(runs: dict[str, RunDirectory]) -> dict[str, list[str]]:
    """The five lines of each run, as `show --plain` prints them, with the path that a person would have typed."""
    found = {}
    for name, run in runs.items():
        verdict, run_facts, events = judge_run(run)
        found[name] = list(message_lines(run, verdict, run_facts, events, place=f"runs/{name}"))
    return found


#: What each run is, for the page.
TITLES = {
    "hacked": "A run that games its reward with compliments",
    "healthy": "A healthy run",
    "blind": "A run without gold",
    "short": "A run of two steps",
    "stale": "A run that nobody measures any more",
    "agentic": "Agents that take to removing the tests",
    "traps": "A run that is judged by traps",
    "slice": "A run in which one of four environments goes wrong",
    "level-only": "A run in which inside each prompt the better answer is still paid more",
    "many-components": "A reward of eight parts",
    "people": "A run that people label",
    "damaged": "A run whose files are damaged",
}
INTRODUCTION = """# Five lines about a run

`tiltmeter show RUN` prints five lines: the state in plain words, since when, why, what to do and where to look. These
are twelve kinds of run, made and written by `python benchmarks/show_runs.py`; a test compares them. `--more` prints
everything that is known, `--json` has all of it for machines. What each state means, and its exit code, is in [the
verdict](verdict.md); the words are in [the glossary](glossary.md).
"""


def page(found: dict[str, list[str]]) -> str:
    """docs/show.md."""
    parts = [INTRODUCTION]
    for name, lines in found.items():
        parts.append(f"## {TITLES[name]}\n\n```text\n{chr(10).join(lines)}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    with made() as all_runs:
        PAGE.write_text(page(screens(all_runs)))
