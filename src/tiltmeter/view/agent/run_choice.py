"""The runs that the server was started for, each opened once: no tool takes a path."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from tiltmeter.errors import StoreError
from tiltmeter.rundir.locate_run import run_around, runs_below
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import RunReader, run_id, run_name
from tiltmeter.view.server.rollouts import RolloutIndex

MOST_OPEN = 8  # runs kept in memory


class RunChoice:
    """Runs by id or name. New ones below the same folders are seen when they appear."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self.roots = tuple(roots)
        self._indexes: dict[str, RolloutIndex] = {}

    def paths(self) -> dict[str, Path]:
        """Every run by its id."""
        by_id: dict[str, Path] = {}
        for root in self.roots:
            around = run_around(root)
            for path in [around] if around is not None else runs_below(root):
                by_id[run_id(path.resolve())] = path.resolve()
        return by_id

    def reader(self, run: str) -> RunReader:
        """A run by id or name, up to date. Empty: the only one. Raises `StoreError` if that means none, or several."""
        reader = self.index(run).reader
        reader.refresh(force=True)
        return reader

    def index(self, run: str) -> RolloutIndex:
        paths = self.paths()
        matches = [name for name, path in paths.items() if run in ("", name, run_name(path))]
        if len(matches) != 1:
            wrong = "several runs have this name" if matches else "there is no such run"
            raise StoreError(f"{wrong if run else 'there are several runs, or none'}: give an id as list_runs has it")
        name = matches[0]
        index = self._indexes.pop(name, None)
        if index is None or index.reader.run.path != paths[name]:
            index = RolloutIndex(RunReader(RunDirectory(paths[name])))
        self._indexes[name] = index  # newest last
        while len(self._indexes) > MOST_OPEN:
            self._indexes.pop(next(iter(self._indexes))).close()
        return index

    def close(self) -> None:
        with ExitStack() as stack:
            for index in self._indexes.values():
                stack.enter_context(closing(index))
        self._indexes = {}
