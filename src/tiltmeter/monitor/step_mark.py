"""A mark on the step that is being measured, in a file: a monitor that dies is known to have died of it.

A step of which two monitors died (or that two were killed in, because they stood still) is set aside by the third. The
mark is written before each step and not removed after it: a step that is in the journal is not begun again.
"""

from __future__ import annotations

import os
from typing import Annotated

from msgspec import Meta, Struct, json
from msgspec.structs import replace

from tiltmeter.errors import StoreError
from tiltmeter.rundir.run_path import make_folder, open_file
from tiltmeter.rundir.sidecar import Count, find_sidecar
from tiltmeter.rundir.store import RunDirectory

MOST_BEGINNINGS = 2
_BYTES = 128  # always as many: a shorter mark leaves nothing of a longer one


class BegunStep(Struct, frozen=True, kw_only=True):
    """The step that was begun last, and how many monitors have begun it."""

    attempt: Count
    step: Count
    begun: Annotated[int, Meta(ge=0, le=MOST_BEGINNINGS + 1)]


class StepMark:
    """The mark of one run. For one process: a loop that is made again within it does not count as another monitor."""

    def __init__(self, run: RunDirectory) -> None:
        self._path = make_folder(run.path, "cache") / "measuring.json"
        try:
            self._mark = find_sidecar(self._path, BegunStep, _BYTES)
        except (OSError, StoreError):
            self._mark = None  # torn by a crash
        self._own = False  # this process wrote it
        self._handle = -1

    def begin(self, attempt: int, step: int) -> bool:
        """Mark the step; returns whether it may be measured, and is not one that monitors die of."""
        mark = self._mark
        if mark is None or (mark.attempt, mark.step) != (attempt, step):
            mark = BegunStep(attempt=attempt, step=step, begun=0)
        elif self._own:
            return mark.begun <= MOST_BEGINNINGS
        self._own, self._mark = True, replace(mark, begun=min(mark.begun, MOST_BEGINNINGS) + 1)
        self._write(self._mark)
        return self._mark.begun <= MOST_BEGINNINGS

    def take_back(self) -> None:
        """This monitor was asked to end: the step that it is at did not kill it."""
        if self._own and self._mark is not None:
            self._write(replace(self._mark, begun=self._mark.begun - 1))

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def _write(self, mark: BegunStep) -> None:
        try:
            if self._handle < 0:
                self._handle = open_file(self._path, os.O_RDWR | os.O_CREAT)
                os.ftruncate(self._handle, _BYTES)
            os.pwrite(self._handle, json.encode(mark).ljust(_BYTES), 0)
        except OSError:
            pass  # a full disk: the step is measured all the same
