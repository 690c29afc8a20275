"""Checks the journals of many runs, a few at a time, for lists of runs."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal_chain.check import UNCHECKED, ChainCheck, JournalState
from tiltmeter.rundir.store import RunDirectory

SLICE_SECONDS = 0.05  # for one run, before the next has its turn


class ChainChecks:
    """The states of many journals, by the runs' ids in a list."""

    def __init__(self) -> None:
        self._checks: dict[str, ChainCheck] = {}
        self._states: dict[str, JournalState] = {}
        self._waiting: list[str] = []  # to be looked at, the next one last

    def state(self, id: str) -> JournalState:
        return self._states.get(id, UNCHECKED)

    def look(self, paths: Mapping[str, str], seconds: float) -> None:
        """Look at runs for so long: first at those that were never checked to the end, then at the others in turn."""
        deadline = time.monotonic() + seconds
        for gone in self._checks.keys() - paths.keys():
            del self._checks[gone]
            self._states.pop(gone, None)
        unchecked = [id for id in paths if id not in self._states]
        if not self._waiting:
            self._waiting = [id for id in self._states if id in paths]
        for queue in (unchecked, self._waiting):
            while queue and time.monotonic() < deadline:
                id = queue.pop()
                if id in paths:
                    self._look_at(id, paths[id])

    def _look_at(self, id: str, path: str) -> None:
        try:
            check = self._checks.get(id)
            if check is None:
                check = self._checks[id] = ChainCheck(RunDirectory(path))
            if (state := check.update(SLICE_SECONDS)) != UNCHECKED:
                self._states[id] = state
        except (StoreError, OSError):
            self._checks.pop(id, None)  # the list says of itself that it cannot be read
            self._states[id] = UNCHECKED
