"""Runs of agents, for `trajectories.py`: trajectories in one row and in several, under TRL, and what they cost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tiltmeter
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import Turn
from tiltmeter.instruments import BUILTIN
from tiltmeter.monitor.panel import run_instruments

ROOT = Path(__file__).parents[1]
TURNS, TOKENS, ROWS = 64, 32_768, 4  # of the run whose cost is measured


def draw(rng: np.random.Generator, rows: int) -> list[dict[str, Any]]:
    """Whole trajectories in pieces at which a trainer may divide them."""
    items = []
    for row in range(rows):
        sizes = rng.integers(3, 9, int(rng.integers(1, 6)))
        logprob = [-rng.exponential(size=n) for n in sizes]
        items.append({
            "group": row // 4, "trajectory": row, "reward": float(rng.normal()), "advantage": float(rng.normal()),
            "gold": float(rng.integers(0, 2)), "prompt": f"prompt {row // 4}", "stop": "done", "task": f"{row // 4}",
            "env": ("shell", "browser")[row % 2], "version_low": 3.0, "version_high": 4.0,
            "tokens": [rng.integers(1, 99, n) for n in sizes], "logprob": logprob,
            "engine_logprob": [part + 0.01 * rng.normal(size=len(part)) for part in logprob],
            "entropy": [rng.exponential(size=n) for n in sizes],
            "own": [np.concatenate([[1], rng.integers(0, 2, n - 1)]) for n in sizes],
            "turns": [
                [Turn("assistant", f"word{rng.integers(9)}", call="bash", arguments=f"{rng.integers(3)}"), Turn("tool")]
                for _ in sizes
            ],
        })  # fmt: skip
    return items


def batch_of(items: list[dict[str, Any]], cuts: list[int]) -> RolloutBatch:
    """Those trajectories, the i-th divided into cuts[i] rows, or as many as it has pieces."""
    rows = []
    for item, cut in zip(items, cuts, strict=True):
        pieces = len(item["tokens"])
        for part in np.array_split(np.arange(pieces), min(cut, pieces)):
            row = {**item, "turns": [turn for piece in part for turn in item["turns"][piece]]}
            for name in ("tokens", "logprob", "engine_logprob", "entropy", "own"):
                row[name] = np.concatenate([item[name][piece] for piece in part])
            rows.append(row)
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return from_columns(1, **columns)


def split_failures(batches: int, seed: int) -> int:
    """Of so many random steps, those of which a reading changes when trajectories are divided into rows."""
    parts = [make() for make in BUILTIN]
    failures = 0
    for number in range(batches):
        rng = np.random.default_rng([seed, number])
        items = draw(rng, 16)
        whole = batch_of(items, [1] * 16)
        divided = batch_of(items, rng.integers(1, 6, 16).tolist())
        answers = [run_instruments(parts, replace(batch, fingerprint=""), None) for batch in (whole, divided)]
        failures += answers[0] != answers[1]
    return failures


def trainer_cpu_ratio(steps: int, pairs: int) -> tuple[float, float, float]:
    """CPU of a process that trains with and without us, in turns, and a 95 % interval over the pairs. The model is a
    network without attention, of less than a million weights: any policy takes longer over the same tokens."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(512, 256), torch.nn.Linear(256, 512), torch.nn.ReLU())
    head = torch.nn.Linear(512, 512)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
    rng = np.random.default_rng(0)

    def train(run: Any, step: int) -> None:
        tokens = rng.integers(0, 512, (ROWS, TOKENS))
        scores = []
        for row in torch.from_numpy(tokens):
            loss = torch.nn.functional.cross_entropy(head(model(row[:-1])), row[1:], reduction="none")
            loss.mean().backward()
            scores.append(-loss.detach().numpy())
        optimizer.step()
        optimizer.zero_grad()
        if run is not None:
            own = np.tile(np.repeat(np.arange(TURNS) % 2 == 0, TOKENS // TURNS), (ROWS, 1)).astype(np.uint8)[:, 1:]
            run.observe(
                step=step, group=np.zeros(ROWS, np.int64), reward=rng.normal(size=ROWS), tokens=tokens[:, 1:], own=own,
                logprob=np.stack(scores), length=[TOKENS - 1] * ROWS, messages=[conversation(rng) for _ in range(ROWS)],
                env=["shell"] * ROWS, stop=["done"] * ROWS, trajectory=np.arange(ROWS) + ROWS * step,
                version=[step] * ROWS,
            )  # fmt: skip

    def measure(watched: bool) -> float:
        with tempfile.TemporaryDirectory() as folder:
            run = tiltmeter.open_run(Path(folder) / "run", monitor=False) if watched else None
            start = time.process_time()
            for step in range(steps):
                train(run, step)
            if run is not None:
                run.close()
            return time.process_time() - start

    measure(True)  # the first use imports and compiles
    ratios = np.array([measure(True) / measure(False) for _ in range(pairs)])
    spread = 1.96 * ratios.std(ddof=1) / np.sqrt(pairs) if pairs > 1 else float("nan")
    return float(ratios.mean()), float(ratios.mean() - spread), float(ratios.mean() + spread)


def conversation(rng: np.random.Generator) -> list[dict[str, Any]]:
    """So many turns, calls and answers in turn."""
    words = " ".join(map(str, rng.integers(0, 99_999, TOKENS // TURNS // 2)))
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend it."}]
    for turn in range(TURNS // 2):
        call = {"id": str(turn), "function": {"name": "bash", "arguments": json.dumps({"cmd": words[: 40 + turn]})}}
        messages.append({"role": "assistant", "content": words, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": str(turn), "content": words})
    return messages


def under_trl() -> dict[str, float]:
    """The largest engine gap and the largest error of the length in real runs of TRL with tools, where both are 0."""
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(folder) / "figures.jsonl"
        environment = {**os.environ, "TILTMETER_CAMPAIGN": "1", "TILTMETER_FIGURES": str(figures)}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/adapters/trl/test_tools.py"]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=3600)
        if done.returncode != 0 or not figures.exists():
            raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
        rows = [json.loads(line) for line in figures.read_text().splitlines()]
    return {
        "engine_gap_max": max(row["engine_gap"] for row in rows),
        "length_error_max": max(row["length_error"] for row in rows),
        "trl_runs": len(rows),
        "trl_steps": sum(row["steps"] for row in rows),
    }
