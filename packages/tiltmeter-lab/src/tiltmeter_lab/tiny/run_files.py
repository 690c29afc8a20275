"""Recorded runs of the tiny language model as .npz files: rollout arrays, with gold for every rollout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Run = dict[str, NDArray[Any]]

RECORDED = Path(__file__).parent.parent / "recorded" / "tiny-lm.npz"
HELD_OUT_RECORDED = RECORDED.with_name("tiny-lm-2.npz")
#: Arrays of a run: steps x rollouts, a group's rows adjacent, and one value a step for `kl` (TRL's k3) and `entropy`,
#: both per token. As they are kept: rewards and gold to about three digits, which is finer than any of them is.
ARRAY_TYPES = {
    "prompt": np.int16,
    "length": np.int16,
    "reward": np.float16,
    "gold": np.float16,
    "advantage": np.float16,
    "kl": np.float32,
    "entropy": np.float32,
}


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


def load_packed(path: Path = RECORDED) -> dict[str, Run]:
    """The runs of a packed file by name (`scenario-seed`)."""
    runs: dict[str, Run] = {}
    for key, array in load(path).items():
        run, name = key.rsplit("/", 1)
        runs.setdefault(run, {})[name] = array
    return runs
