"""Readers of other tools' files: which there are, and which of them knows a folder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from tiltmeter.adapters.readers.areal import AReaL
from tiltmeter.adapters.readers.foreign import Asked, Foreign, Reader, usable
from tiltmeter.adapters.readers.generic import Generic
from tiltmeter.adapters.readers.nemo import Nemo
from tiltmeter.adapters.readers.open_instruct import OpenInstruct
from tiltmeter.adapters.readers.places import refusal
from tiltmeter.adapters.readers.scalars import Scalars
from tiltmeter.adapters.readers.skyrl import SkyRL
from tiltmeter.adapters.readers.tensorboard import TensorBoard
from tiltmeter.adapters.readers.trl import Trl
from tiltmeter.adapters.readers.verifiers import Verifiers
from tiltmeter.adapters.readers.verl import Verl
from tiltmeter.adapters.readers.wandb import WandB
from tiltmeter.errors import StoreError

TRAINERS: tuple[Reader, ...] = (Trl(), Verifiers(), Verl(), Nemo(), SkyRL(), OpenInstruct(), AReaL())
#: Asked in this order where no trainer's rollouts are found: rollouts before numbers.
OTHERS: tuple[Reader, ...] = (Generic(), WandB(), TensorBoard(), Scalars())
BUILTIN = (*TRAINERS, *OTHERS)
BY_NAME = {reader.name: reader for reader in BUILTIN}


def find(path: Path, asked: Asked) -> list[Foreign]:
    """The runs that some reader recognises at this place. Raises `StoreError`, with the fix, where none does."""
    if asked.format and asked.format not in BY_NAME:
        raise StoreError(f"there is no reader {asked.format!r}: choose one of {', '.join(BY_NAME)}")
    trainers, others = (TRAINERS, OTHERS) if not asked.format else ((BY_NAME[asked.format],), ())
    # All that are there: a folder may be mixed.
    found = usable({f"what {reader.name} wrote": partial(reader.find, path, asked) for reader in trainers})
    for reader in others:
        found = found or reader.find(path, asked)
    if not found:
        told = f"{path}: no rollouts or metrics that a reader knows ({', '.join(BY_NAME)})"
        raise StoreError(refusal(path) or told)
    names = [run.name for run in found]
    return [replace(run, name=f"{run.name}-{run.reader}") if names.count(run.name) > 1 else run for run in found]
