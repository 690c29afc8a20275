"""Readers of other tools' files: the list of them, and the search for runs in a folder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from tiltmeter.audit.readers.described import AREAL, NEMO, OPEN_INSTRUCT, SKYRL
from tiltmeter.audit.readers.external_run import ExternalRun, FormatReader, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import pickle_refusal
from tiltmeter.audit.readers.generic import GenericReader
from tiltmeter.audit.readers.scalars import ScalarsReader
from tiltmeter.audit.readers.tensorboard import TensorBoardReader
from tiltmeter.audit.readers.trajectories.art import ArtReader
from tiltmeter.audit.readers.trajectories.atif import AtifReader
from tiltmeter.audit.readers.trajectories.inspect_eval import InspectReader
from tiltmeter.audit.readers.trajectories.openenv import OpenEnvReader
from tiltmeter.audit.readers.trajectories.otel import OtelReader
from tiltmeter.audit.readers.trajectories.tinker import TinkerReader
from tiltmeter.audit.readers.trl import TrlReader
from tiltmeter.audit.readers.verifiers import VerifiersReader
from tiltmeter.audit.readers.verl import VerlReader
from tiltmeter.audit.readers.wandb import WandBReader
from tiltmeter.errors import StoreError

TRAINERS: tuple[FormatReader, ...] = (
    TrlReader(),
    VerifiersReader(),
    VerlReader(),
    NEMO,
    SKYRL,
    OPEN_INSTRUCT,
    AREAL,
    InspectReader(),
    AtifReader(),
    OpenEnvReader(),
    ArtReader(),
    TinkerReader(),
    OtelReader(),
)
#: Tried in this order where no trainer's rollouts are found: rollouts before metrics.
OTHERS: tuple[FormatReader, ...] = (GenericReader(), WandBReader(), TensorBoardReader(), ScalarsReader())
BUILTIN = (*TRAINERS, *OTHERS)
BY_NAME = {reader.name: reader for reader in BUILTIN}


def is_trainers_file(path: Path, options: ReadOptions) -> bool:
    """Whether a trainer's reader knows this file, or knows it and finds it damaged."""
    try:
        return any(reader.find(path, options) for reader in TRAINERS)
    except StoreError:
        return True


def find_runs(path: Path, options: ReadOptions) -> list[ExternalRun]:
    """The runs that some reader recognises at this path. Raises `StoreError`, with the fix, where none does."""
    if options.format and options.format not in BY_NAME:
        raise StoreError(f"there is no reader {options.format!r}: choose one of {', '.join(BY_NAME)}")
    trainers, others = (TRAINERS, OTHERS) if not options.format else ((BY_NAME[options.format],), ())
    # All that are there: a folder may be mixed.
    runs = collect_runs({f"what {reader.name} wrote": partial(reader.find, path, options) for reader in trainers})
    for reader in others:
        runs = runs or reader.find(path, options)
    if not runs:
        message = f"{path}: no rollouts or metrics that a reader knows ({', '.join(BY_NAME)})"
        raise StoreError(pickle_refusal(path) or message)
    names = [run.name for run in runs]
    return [replace(run, name=f"{run.name}-{run.reader}") if names.count(run.name) > 1 else run for run in runs]
