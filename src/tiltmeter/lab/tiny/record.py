"""Trains scenarios and keeps of each run what a monitor could have seen, and gold on every rollout."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.lab.tiny.scenarios import Scenario
from tiltmeter.lab.tiny.train import make_trainer

Run = dict[str, NDArray[Any]]

RECORDED = Path(__file__).parent.parent / "recorded" / "tiny-lm.npz"
#: As they are kept: rewards and gold to about three digits, which is finer than any of them is.
KINDS = {
    "prompt": np.int16,
    "length": np.int16,
    "reward": np.float16,
    "gold": np.float16,
    "advantage": np.float16,
    "kl": np.float32,
    "entropy": np.float32,
}


def train_and_record(scenario: Scenario, seed: int, *, base: str | Path, **changes: Any) -> Run:
    """One run: arrays steps x rollouts (`prompt`, `reward`, `advantage`, `gold`, `length`) and one value a step (`kl`,
    TRL's k3 per token, and `entropy`, per token). A group's rows are adjacent. `changes` as in `make_trainer`."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(scenario, seed, folder, base=base, **changes)
        rows = watched(trainer, scenario)
        trainer.train()
    logged = [entry for entry in trainer.state.log_history if "entropy" in entry]
    series = {name: [entry.get(name, np.nan) for entry in logged] for name in ("kl", "entropy")}
    return {name: np.array(values, KINDS[name]) for name, values in {**rows, **series}.items()}


def watched(trainer: Any, scenario: Scenario) -> dict[str, list[Any]]:
    """Lists that fill, step by step, with the rollouts the trainer makes; the trainer does nothing differently."""
    known = {prompt: at for at, prompt in enumerate(dict.fromkeys(p for part in scenario.prompts for p in part))}
    rows: dict[str, list[Any]] = {name: [] for name in ("prompt", "reward", "advantage", "gold", "length")}
    score, rewarded = trainer._generate_and_score_completions, trainer._calculate_rewards
    weight = trainer.reward_weights

    def paid(inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
        found = rewarded(inputs, prompts, completions, ids)
        rows["reward"].append((found * weight).nansum(1).tolist())
        rows["gold"].append([scenario.gold(*pair) for pair in zip(prompts, completions, strict=True)])
        rows["length"].append([len(tokens) for tokens in ids])
        rows["prompt"].append([known[prompt] for prompt in prompts])
        return found

    def scored(inputs: Any) -> Any:
        found = score(inputs)
        rows["advantage"].append(found["advantages"].tolist())
        return found

    trainer._calculate_rewards, trainer._generate_and_score_completions = paid, scored
    return rows


def save(path: Path, run: Run) -> None:
    """Write a run, whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez_compressed(file, **run)  # type: ignore[arg-type]  # numpy's stub takes allow_pickle for one of them
    part.replace(path)


def load(path: Path) -> Run:
    """A run as it was saved."""
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def pack(runs: Mapping[str, Path], target: Path) -> int:
    """Put runs into one file, each array under `run/array`; gives its size in bytes."""
    save(target, {f"{run}/{name}": array for run, path in runs.items() for name, array in load(path).items()})
    return target.stat().st_size


def recorded(path: Path = RECORDED) -> dict[str, Run]:
    """The runs of a packed file by name (`scenario-seed`)."""
    found: dict[str, Run] = {}
    for key, array in load(path).items():
        run, name = key.rsplit("/", 1)
        found.setdefault(run, {})[name] = array
    return found
