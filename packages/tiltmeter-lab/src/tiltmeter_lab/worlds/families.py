"""World families by name, and their split into development, calibration and held-out families."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from types import ModuleType
from typing import Literal

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter_lab.worlds import benign, hacks, shared_parameters
from tiltmeter_lab.worlds.world import UPDATES, World

Kind = Literal["hack", "benign", "boundary"]


@dataclass(frozen=True)
class WorldFamily:
    """A way of making runs. `kind` is what its runs are meant to be; `ground_truth.py` measures what each was."""

    name: str
    kind: Kind
    cliff: bool
    make: Callable[[np.random.Generator, str], World]

    def world(self, seed: int, run: int, update: str) -> World:
        """Run number `run` of a campaign with this seed."""
        return self.make(generator(self.name, seed, run), update)


def generator(family: str, seed: int, run: int) -> np.random.Generator:
    """The stream of random numbers of one run: by campaign, family and number, whatever else is run beside it.

    >>> one, same, other = (generator("length", 1, run).random() for run in (0, 0, 1))
    >>> bool(one == same), bool(one == other)
    (True, False)
    """
    return np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(family.encode()), run]))


_CLIFFS = ("heavy_t2", "heavy_lognormal", "heavy_pareto", "phase_switch")
_SPLIT: dict[str, dict[str, list[str]]] = json.loads(
    resources.files("tiltmeter_lab").joinpath("split.json").read_text(encoding="utf-8")
)


def _load_families() -> dict[str, WorldFamily]:
    kinds: tuple[tuple[str, Kind, ModuleType], ...] = (
        ("hacks", "hack", hacks),
        ("benign", "benign", benign),
        ("boundary", "boundary", benign),
    )
    return {
        name: WorldFamily(name, kind, name in _CLIFFS, getattr(module, name))
        for part in _SPLIT.values()
        for key, kind, module in kinds
        for name in part[key]
    }


#: Every family of the split file by name.
FAMILIES = _load_families()


#: Families whose policy shares parameters between prompts: held out, and a part of their own beside the split, so that
#: the figures of tables keep their meaning.
NETWORK = "network"
_NETWORK_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("forgetting", "transfer", "bottleneck", "loud_parameter"), "hack"),
    "helpful_transfer": "benign",
    "boundary_shared": "boundary",
}
NETWORK_FAMILIES = {
    name: WorldFamily(name, kind, False, getattr(shared_parameters, name)) for name, kind in _NETWORK_KINDS.items()
}


def split(name: str) -> tuple[tuple[WorldFamily, ...], tuple[str, ...]]:
    """The families and the update rules of one part of the split, which was fixed before any detector was tuned.

    >>> families, updates = split("dev")
    >>> "length" in [family.name for family in families], updates
    (True, ('tilt', 'natural', 'grpo'))
    """
    if name == NETWORK:
        return tuple(NETWORK_FAMILIES.values()), UPDATES
    if name not in _SPLIT:
        raise AttachError(f"there is no split {name!r}; choose one of {', '.join((*_SPLIT, NETWORK))}")
    part = _SPLIT[name]
    names = [family for kind in ("hacks", "benign", "boundary") for family in part[kind]]
    return tuple(FAMILIES[family] for family in names), tuple(part["updates"])
