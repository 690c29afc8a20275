"""Runs for tests of engines: a small one whose reward turns against gold, written as a trainer would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.rundir.journal import Event, JournalReader

STEPS, ROWS, GROUP = 60, 96, 4
WORDS = ("the", "sum", "is", "plainly", "seven", "because", "three", "and", "four", "make", "it", "so")


def columns(step: int) -> dict[str, Any]:
    """From step 25 on the reward pays for length, which is worth nothing."""
    rng = np.random.default_rng(step)
    gold = rng.random(ROWS) < 0.5
    length = rng.integers(4, 12, ROWS) + (8 * ~gold if step >= 25 else 0)
    reward = 0.1 * length + 0.2 * rng.random(ROWS) + (0.0 if step >= 25 else 1.0 * gold)
    texts = [" ".join(rng.choice(WORDS, n)) for n in length]
    logprob = [-rng.random(n).astype(np.float32) for n in length]
    return {
        "step": step,
        "group": np.arange(ROWS) // GROUP,
        "reward": reward,
        "gold": gold.astype(float),
        "prompt": [f"what is {row // GROUP} and {step % 7}?" for row in range(ROWS)],
        "completion": texts,
        "tokens": [rng.integers(0, 500, n) for n in length],
        "logprob": logprob,
        "ref_logprob": [row - 0.01 for row in logprob],
        "scalars": {"loss": 0.1, "kl_ref": 0.01 * step},
    }


def write_run(folder: Path, *, steps: int = STEPS, monitor: bool = False) -> Path:
    """The run, without or with its live monitor, which is waited for."""
    with open_run(folder, monitor=monitor, options=Options(on_full="wait", strict=True)) as run:
        for step in range(steps):
            run.observe(**columns(step))
            if step % 20 == 19:
                run.evaluate(step, 0.5 - 0.002 * step, 200, "held_out")
    if monitor:
        run.verdict(timeout=120)
    return folder


def told(events: Path) -> list[tuple[object, ...]]:
    """Everything a journal says, but when it was written."""
    return [plain(item) for item in JournalReader(events).poll()]


def plain(item: Event) -> tuple[object, ...]:
    return item.kind, item.attempt, item.step, item.id, dict(item.data)


def twice(events: Path) -> list[str]:
    """Ids that a journal has more than once, as its lines are."""
    import json

    lines = [json.loads(line) for file in events.glob("*.jsonl") for line in file.read_text().splitlines()]
    ids = [event["id"] for line in lines for event in line["events"]]
    return [name for name in ids if ids.count(name) > 1]
