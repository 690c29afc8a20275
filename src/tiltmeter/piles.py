"""What the workers of one attempt have written, and what of it has no step yet: the waiting room as it stands."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.durable import entries
from tiltmeter.errors import StoreError
from tiltmeter.records import Floats, Ints
from tiltmeter.store import RunDirectory, read_json
from tiltmeter.unplaced import BOUNDARY, ROWS, WORKER, Boundary, folder, read_boundary, read_order, tell

SECONDS = 1.0  # after which a worker writes what it holds, if the run does not say otherwise
STILL_OPEN = 600.0  # seconds without a file, after which a worker that has not closed is given up
WITHHELD = 60.0  # seconds for which a file that storage does not hand out is asked for again


@dataclass(slots=True)
class Pile:
    """What one worker has written and what of it is placed; rows are numbered over the worker's life."""

    files: list[tuple[Path, int, int]] = field(default_factory=list)  # first row and the one after the last
    start: int = 0  # the first row whose time is held here
    times: Floats = field(default_factory=lambda: np.zeros(0))
    steps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    taken: int = 0
    closed: bool = False
    written: int = -1  # rows in all, once it has closed and said so
    broken: bool = False  # a file of it could not be read
    since: float = 0.0  # when something was last heard of it, by the clock of the process that looks
    pid: int = 0  # of a worker on this machine

    @property
    def stop(self) -> int:
        return self.start + len(self.times)

    def until(self, moment: float, side: str = "right") -> int:
        """The row at which `moment` is passed, never one that is placed."""
        found = int(np.searchsorted(self.times, moment, side))  # type: ignore[call-overload]
        return max(self.taken, self.start + found)


@dataclass(frozen=True, slots=True)
class Choice:
    """Which rows are a step, by worker, and how far each worker is then read: rows left out belong to no step."""

    step: int
    by: str
    end: float
    rows: Mapping[str, Ints]
    upto: Mapping[str, int]
    scalars: Mapping[str, float] = field(default_factory=dict)
    late: int = 0


class Piles:
    """The rows of one attempt that are in no step's file yet, by worker, and the driver's word on steps.

    How far each worker was read is told by the newest step's file, so a monitor that is started again goes on there.
    """

    def __init__(self, run: RunDirectory, attempt: int, clock: Callable[[], float]) -> None:
        self.run, self.attempt, self._clock = run, attempt, clock
        self.path = folder(run, attempt)
        self.by_worker: dict[str, Pile] = {}
        self.facts: dict[str, Any] = {}
        self.boundaries: dict[int, Boundary] = {}
        self.driver = False
        self._seen: dict[str, float] = {}  # when a file was first seen, by this process's clock
        self._looked = False
        self._let_go = False  # of some worker that has closed, with all its rows placed
        self._withheld: dict[Path, float] = {}  # files that storage does not hand out, since when
        self.last, self.end, self.by, self.upto = self._placed_before()

    def _placed_before(self) -> tuple[int, float, str, dict[str, int]]:
        """The newest step, when it ended, who said so, and how far each worker was read for it: all in its own file."""
        files = self.run.files(self.attempt)
        if files:
            told = self.run.read(files[-1], ("group",))[1].get("placed", {})
            return files[-1].step, float(told.get("end", 0.0)), str(told.get("by", "")), dict(told.get("upto", {}))
        return -1, 0.0, "", {}

    def look(self, *, over: bool = False) -> None:
        """Take note of what is new, the files of each worker in the order in which it wrote them. `over`: of the end of
        the attempt too."""
        now = self._clock()
        if over:
            self._seen.setdefault("over", now)
        self.facts = self.facts or read_json(self.path / "capture.json")
        for name in sorted(entry.name for entry in entries(self.path)):
            if name in self._seen:
                continue
            if match := WORKER.fullmatch(name):
                self._seen[name] = now
                self._hear_worker(match[1], match[2], read_json(self.path / name))
            self.driver = self.driver or name == "driver.json"
            if (match := ROWS.fullmatch(name)) and self._take_note(match[1], self.path / name):
                self._seen[name] = now
            elif match := BOUNDARY.fullmatch(name):
                if int(match[1]) <= self.last:
                    (self.path / name).unlink()
                    if self._looked or int(match[1]) < self.last:  # else a placing was killed before it was removed
                        why = f"{int(match[1])} after {self.last}; what was scored for it is in the next new step"
                        tell(self.path, f"steps go back: {why}: number them on, or start the run anew")
                    continue
                self._seen[name] = now
                try:
                    self.boundaries[int(match[1])] = read_boundary(self.path / name)
                except StoreError as error:
                    tell(self.path, f"the end of a step was left out: {error}")
        self._looked = True

    def _hear_worker(self, worker: str, word: str, facts: Mapping[str, Any]) -> None:
        pile = self._pile(worker)
        pile.since = self._clock()
        if word == "worker" and facts.get("host") == socket.gethostname():
            pile.pid = min(max(0, _whole(facts.get("pid"))), 2**31 - 1)
        if word == "counters":
            pile.closed = True
            pile.written = _whole(facts.get("written"))
            if (dropped := _whole(facts.get("dropped"))) > 0:
                total = _whole(facts.get("rows"))
                tell(self.path, f"rows were dropped by a worker: {dropped} of {total} that {worker} scored")

    def _pile(self, worker: str) -> Pile:
        read_before = int(self.upto.get(worker, 0))
        return self.by_worker.setdefault(worker, Pile(start=read_before, taken=read_before))

    def _take_note(self, worker: str, path: Path) -> bool:
        """Whether the file is the worker's next: a listing may show a file and not yet the one written before it."""
        pile = self._pile(worker)
        try:
            begin, times, steps = read_order(path)
        except StoreError as error:
            if self.try_again(path, error):
                return False
            tell(self.path, f"rows were left out: {error}")
            pile.broken = True
            return True
        if begin > pile.stop and pile.broken and pile.taken == pile.stop:
            pile.start = pile.taken = begin  # what lies between is in a file that cannot be read
            pile.times, pile.steps, pile.files, pile.broken = times[:0], steps[:0], [], False
        if begin > pile.stop or (pile.files and begin != pile.stop):
            return False
        if not pile.files:
            pile.start, pile.times, pile.steps = begin, times[:0], steps[:0]
        pile.times, pile.steps = np.concatenate((pile.times, times)), np.concatenate((pile.steps, steps))
        pile.files.append((path, begin, pile.stop))
        pile.since = self._clock()
        self.handed_out(path)
        return True

    def try_again(self, path: Path, error: StoreError) -> bool:
        """Whether it was storage that failed, which may have the file the next time; a damaged file stays damaged."""
        if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, FileNotFoundError):
            return False
        return self._clock() - self._withheld.setdefault(path, self._clock()) < WITHHELD

    def handed_out(self, path: Path) -> None:
        self._withheld.pop(path, None)

    def old(self, name: str) -> bool:
        """Whether a file was seen long enough ago that every worker has written what it held then."""
        pause = float(self.facts.get("seconds") or SECONDS)
        return self._clock() - self._seen[name] >= 2.0 * pause + 1.0

    def closed(self) -> bool:
        return (bool(self.by_worker) or self._let_go) and all(pile.closed for pile in self.by_worker.values())

    def quiet(self) -> bool:
        """Whether nothing more is to come after the end: workers may score on when whoever opened the run has left."""
        now = self._clock()
        silent = all(p.closed or self.gone(p) or now - p.since >= STILL_OPEN for p in self.by_worker.values())
        return self.closed() or (silent and all(self.old(name) for name in self._seen))

    @staticmethod
    def gone(pile: Pile) -> bool:
        """Whether a worker on this machine has ended without closing."""
        try:
            if pile.pid:
                os.kill(pile.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # somebody else's, and alive
            return False
        return False

    def forget(self, choice: Choice) -> None:
        """Let go of what is in a step's file now; a file that cannot be removed is passed over at the next start."""
        self.last, self.end, self.by = choice.step, max(self.end, choice.end), choice.by
        self.upto = {**self.upto, **choice.upto}
        self.boundaries = {step: kept for step, kept in self.boundaries.items() if step > choice.step}
        (self.path / f"{choice.step:06d}.step.json").unlink(missing_ok=True)
        self._seen.pop(f"{choice.step:06d}.step.json", None)
        for name, pile in self.by_worker.items():
            pile.taken = choice.upto[name]
            for path, _, end in pile.files:
                if end <= pile.taken and path not in self._withheld:  # what storage withheld may be had again one day
                    path.unlink(missing_ok=True)
                    self._seen.pop(path.name, None)
            pile.files = [kept for kept in pile.files if kept[2] > pile.taken]
            keep = pile.files[0][1] if pile.files else pile.stop
            pile.times, pile.steps, pile.start = pile.times[keep - pile.start :], pile.steps[keep - pile.start :], keep
        for name in [name for name, pile in self.by_worker.items() if pile.closed and pile.taken == pile.written]:
            self._let_go_of(name)

    def _let_go_of(self, worker: str) -> None:
        """A worker that has closed, and all of whose rows are placed: a run may have thousands of them."""
        for word in ("worker", "counters"):  # in this order: one that is half removed has closed all the same
            (self.path / f"{worker}.{word}.json").unlink(missing_ok=True)
            self._seen.pop(f"{worker}.{word}.json", None)
        if not any(path.name.startswith(f"{worker}-") for path in self._withheld):
            self.upto.pop(worker, None)
        del self.by_worker[worker]
        self._let_go = True


def _whole(value: Any) -> int:
    """A number in a file that anybody may have written, or -1."""
    return value if isinstance(value, int) else -1
