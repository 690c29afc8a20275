"""How each row that was scored without knowing its step gets into exactly one step's file.

A captured reward function runs in many worker processes. Each worker writes what it scored to files of its own, in the
order in which it scored; the driver, if it takes part, writes one small file per step. The monitor joins them: it
decides which rows are a step, publishes the ordinary step file, and keeps in that file's metadata how far it has read
each worker. A row is used when a step file that counts it is there, and not before: killed at any moment, nothing is
lost and nothing is counted twice.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.batches import INFRA, MISSING, by_group, from_columns, join, take
from tiltmeter.durable import entries, sweep
from tiltmeter.errors import StoreError
from tiltmeter.records import Floats, Ints, RolloutBatch
from tiltmeter.stats.rhythm import rhythm
from tiltmeter.store import RunDirectory
from tiltmeter.unplaced import (
    BOUNDARY,
    ROWS,
    WORKER,
    Boundary,
    first,
    folder,
    read,
    read_boundary,
    read_order,
    read_rows,
    tell,
)

SECONDS = 1.0  # after which a worker writes what it holds, if the run does not say otherwise
GUESS = 64  # rows of a step, where nobody says and no pause tells
ENOUGH = 4096  # rows without a rhythm, after which it is guessed
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


class Placing:
    """The joiner of one run, kept by its monitor. `place` may be called again and again by whoever holds the lock."""

    def __init__(self, run: RunDirectory, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self._clock = run, clock
        self._done: set[int] = set()  # attempts of which nothing more can come
        self._parts: dict[int, Unplaced] = {}

    def place(self, *, over: bool = False) -> bool:
        """Publish the step files that are ready; whether some of the rest may become so. `over`: nobody writes to the
        newest attempt any more."""
        waiting = False
        if (self.run.path / "rollouts").is_symlink():
            return False  # an audit's, which are another run's own
        attempts = self.run.attempts()
        for attempt in attempts:
            path = folder(self.run, attempt)
            if attempt in self._done or path.is_symlink() or not path.is_dir():
                continue  # a link would lead to what is another run's
            last = over or attempt != attempts[-1]
            try:
                if attempt not in self._parts:
                    self._parts[attempt] = Unplaced(self.run, attempt, self._clock)
                more = self._parts[attempt].place(over=last)
            except StoreError as error:  # of the step files themselves: who reads them reports more
                tell(folder(self.run, attempt), f"rows could not be placed: {error}")
                more = False
            waiting |= more
            if not more and attempt != attempts[-1]:
                self._done.add(attempt)
        return waiting


class Unplaced:
    """The rows of one attempt that are in no step's file yet."""

    def __init__(self, run: RunDirectory, attempt: int, clock: Callable[[], float]) -> None:
        self.run, self.attempt, self._clock = run, attempt, clock
        self.path = folder(run, attempt)
        self.piles: dict[str, Pile] = {}
        self.facts: dict[str, Any] = {}
        self._seen: dict[str, float] = {}  # when a file was first seen, by this process's clock
        self._boundaries: dict[int, Boundary] = {}
        self._driver = False
        self._looked = False
        self._let_go = False  # of some worker that has closed, with all its rows placed
        self._withheld: dict[Path, float] = {}  # files that storage does not hand out, since when
        self._last, self._end, self._by, self._upto = self._placed_before()

    def place(self, *, over: bool) -> bool:
        self._look()
        if over:
            self._seen.setdefault("over", self._clock())
        while (choice := self._choose(over)) is not None:
            if not self._publish(choice):
                return True
            self._forget(choice)
        waiting = bool(self._boundaries) or any(pile.stop > pile.taken for pile in self.piles.values())
        if over and self._quiet():
            if rows := sum(pile.stop - pile.taken for pile in self.piles.values()):
                why = f"{rows} were scored after the last step that ended; kept, not measured"
                tell(self.path, f"rows left over: {why}")
            if left := sum(not pile.closed and not self._gone(pile) for pile in self.piles.values()):
                why = f"{left} had not closed and wrote nothing for {STILL_OPEN / 60:.0f} minutes after the run's end"
                tell(self.path, f"workers were given up: {why}")
            sweep(self.path)
            return False
        waiting = waiting or (over and any(not pile.closed for pile in self.piles.values()))
        if over and not waiting:
            sweep(self.path)
        return waiting

    # -- looking ----------------------------------------------------------------------------------------------------

    def _placed_before(self) -> tuple[int, float, str, dict[str, int]]:
        """The newest step, when it ended, who said so, and how far each worker was read for it: all in its own file."""
        files = self.run.files(self.attempt)
        if files:
            told = self.run.read(files[-1], ("group",))[1].get("placed", {})
            return files[-1].step, float(told.get("end", 0.0)), str(told.get("by", "")), dict(told.get("upto", {}))
        return -1, 0.0, "", {}

    def _next_counted(self) -> int:
        """The number of the next step where nobody gives it one; a resumed run goes on from what it was told."""
        if self._last >= 0:
            return self._last + 1
        facts = self.run.attempt(self.attempt)
        if facts.get("resume_step") is None and facts.get("parent") is not None:
            return max((file.step for file in self.run.files(int(facts["parent"]))), default=-1) + 1
        return int(facts.get("resume_step") or 0)

    def _look(self) -> None:
        """Take note of what is new, the files of each worker in the order in which it wrote them."""
        now = self._clock()
        self.facts = self.facts or read(self.path / "capture.json")
        for name in sorted(entry.name for entry in entries(self.path)):
            if name in self._seen:
                continue
            if match := WORKER.fullmatch(name):
                self._seen[name] = now
                self._hear_worker(match[1], match[2], read(self.path / name))
            self._driver = self._driver or name == "driver.json"
            if (match := ROWS.fullmatch(name)) and self._take_note(match[1], self.path / name):
                self._seen[name] = now
            elif match := BOUNDARY.fullmatch(name):
                if int(match[1]) <= self._last:
                    (self.path / name).unlink()
                    if self._looked or int(match[1]) < self._last:  # else a placing was killed before it was removed
                        why = f"{int(match[1])} after {self._last}; what was scored for it is in the next new step"
                        tell(self.path, f"steps go back: {why}: number them on, or start the run anew")
                    continue
                self._seen[name] = now
                try:
                    self._boundaries[int(match[1])] = read_boundary(self.path / name)
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
        read_before = int(self._upto.get(worker, 0))
        return self.piles.setdefault(worker, Pile(start=read_before, taken=read_before))

    def _take_note(self, worker: str, path: Path) -> bool:
        """Whether the file is the worker's next: a listing may show a file and not yet the one written before it."""
        pile = self._pile(worker)
        try:
            begin, times, steps = read_order(path)
        except StoreError as error:
            if self._try_again(path, error):
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
        self._withheld.pop(path, None)
        return True

    def _try_again(self, path: Path, error: StoreError) -> bool:
        """Whether it was storage that failed, which may have the file the next time; a damaged file stays damaged."""
        if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, FileNotFoundError):
            return False
        return self._clock() - self._withheld.setdefault(path, self._clock()) < WITHHELD

    def _old(self, name: str) -> bool:
        """Whether a file was seen long enough ago that every worker has written what it held then."""
        pause = float(self.facts.get("seconds") or SECONDS)
        return self._clock() - self._seen[name] >= 2.0 * pause + 1.0

    def _closed(self) -> bool:
        return (bool(self.piles) or self._let_go) and all(pile.closed for pile in self.piles.values())

    def _quiet(self) -> bool:
        """Whether nothing more is to come after the end: workers may score on when whoever opened the run has left."""
        now = self._clock()
        silent = all(p.closed or self._gone(p) or now - p.since >= STILL_OPEN for p in self.piles.values())
        return self._closed() or (silent and all(self._old(name) for name in self._seen))

    @staticmethod
    def _gone(pile: Pile) -> bool:
        """Whether a worker on this machine has ended without closing."""
        try:
            if pile.pid:
                os.kill(pile.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # somebody else's, and alive
            return False
        return False

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _choose(self, over: bool) -> Choice | None:
        steps = [pile.steps[pile.taken - pile.start :] for pile in self.piles.values()]
        if any(len(part) and part.max() >= 0 for part in steps):
            return self._by_step(over)
        if self._boundaries:
            return self._by_boundary(self._boundaries[min(self._boundaries)])
        driven = self.facts.get("driver") or self._driver or self._by == "boundary"
        return None if driven else self._by_count(over)

    def _by_step(self, over: bool) -> Choice | None:
        """Rows that know their step; the step is over when every worker that is there has gone on to a later one."""
        pending = {name: pile.steps[pile.taken - pile.start :] for name, pile in self.piles.items()}
        heads = [int(part[part > self._last][0]) for part in pending.values() if (part > self._last).any()]
        if not heads:
            return None  # all of them too late for their steps: kept, and told when the run ends
        step = min(heads)
        ready = over and self._quiet()
        if not ready:
            later = [name for name, part in pending.items() if (part > step).any()]
            ready = all(name in later or pile.closed for name, pile in self.piles.items()) or any(
                end > self.piles[name].taken and self._old(path.name) and self._step_of(name, end - 1) > step
                for name in later
                for path, _, end in self.piles[name].files
            )
        if not ready:
            return None
        upto = {}
        for name, pile in self.piles.items():
            after = np.flatnonzero(pending[name] > step)
            upto[name] = pile.taken + int(after[0]) if len(after) else pile.stop
        choice = self._choice(step, "step", upto)
        own = {name: pending[name][: len(rows)] for name, rows in choice.rows.items()}
        kept = {name: rows[(own[name] == step) | (own[name] < 0)] for name, rows in choice.rows.items()}
        late = sum(len(rows) - len(kept[name]) for name, rows in choice.rows.items())
        if late:
            tell(self.path, f"rows came after their step was over: {late} by step {step}; left out of what is measured")
        return replace(choice, rows=kept, late=late)

    def _step_of(self, worker: str, row: int) -> int:
        pile = self.piles[worker]
        return int(pile.steps[row - pile.start])

    def _by_boundary(self, boundary: Boundary) -> Choice | None:
        upto = {name: pile.until(boundary.end) for name, pile in self.piles.items()}
        first = dict.fromkeys(upto, 0)
        if boundary.begin is not None:
            first = {name: pile.until(boundary.begin, "left") for name, pile in self.piles.items()}
        late = {name: min(upto[name], pile.until(self._end)) for name, pile in self.piles.items()}
        there = sum(max(0, upto[name] - max(first[name], late[name])) for name in upto)
        enough = boundary.rows is not None and there >= boundary.rows
        if not (enough or self._closed() or self._old(f"{boundary.step:06d}.step.json")):
            return None
        choice = self._choice(boundary.step, "boundary", upto, end=boundary.end, scalars=boundary.scalars)
        kept = {name: rows[(rows < late[name]) | (rows >= first[name])] for name, rows in choice.rows.items()}
        count = sum(int((rows < late[name]).sum()) for name, rows in kept.items()) if self._end else 0
        return replace(choice, rows=kept, late=count)

    def _by_count(self, over: bool) -> Choice | None:
        """The next `batch_size` rows in the order of scoring, once nobody can still have an earlier one."""
        alone = len(self.piles) == 1
        final = over and self._quiet()
        known = int(self.facts.get("batch_size") or read(self.path / "inferred.json").get("batch_size") or ENOUGH)
        rows: list[tuple[float, str, int]] = []
        for name, pile in self.piles.items():
            settled = [end for path, _, end in pile.files if alone or self._closed() or self._old(path.name)]
            stop = pile.stop if final else max([*settled, 0])
            ready = range(pile.taken, min(stop, pile.taken + known))
            rows += [(float(pile.times[row - pile.start]), name, row) for row in ready]
        if not rows:
            return None
        rows.sort()
        size, by = self._size(np.array([moment for moment, _, _ in rows]), final)
        if size is None or (len(rows) < size and not final):
            return None
        chosen = rows[:size]
        upto = {
            name: max((r + 1 for _, of, r in chosen if of == name), default=p.taken) for name, p in self.piles.items()
        }
        return self._choice(self._next_counted(), by, upto, end=chosen[-1][0])

    def _size(self, times: Floats, final: bool) -> tuple[int | None, str]:
        """Rows of a step: as given, as told by the pauses between them, or guessed. What was inferred is kept."""
        if self.facts.get("batch_size"):
            return int(self.facts["batch_size"]), "count"
        known = read(self.path / "inferred.json")
        if not known:
            size, why = rhythm(times), "told from the pauses between calls"
            if size is None and (final or len(times) >= ENOUGH):
                size, why = GUESS, "guessed, because there are no regular pauses between calls"
            if size is None:
                return None, ""
            known = first(self.path / "inferred.json", {"batch_size": size, "why": why})
            tell(
                self.path,
                f"steps are inferred: {known['batch_size']} rows each, {known['why']}; give capture(..., batch_size=), "
                "or call tiltmeter.capture.step(...) in the driver",
            )
        return int(known["batch_size"]), "inferred"

    def _choice(
        self,
        step: int,
        by: str,
        upto: Mapping[str, int],
        end: float | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> Choice:
        rows = {name: np.arange(pile.taken, upto[name]) for name, pile in self.piles.items()}
        last = [float(p.times[upto[n] - 1 - p.start]) for n, p in self.piles.items() if upto[n] > p.taken]
        return Choice(step, by, max(last, default=self._end) if end is None else end, rows, upto, scalars or {})

    # -- publishing -------------------------------------------------------------------------------------------------

    def _publish(self, choice: Choice) -> bool:
        """The ordinary file of a step. Until it has its name nothing has happened; afterwards its rows are used. False
        if storage does not hand out a row just now."""
        parts, seconds = [], []
        for name, rows in choice.rows.items():
            for path, begin, end in self.piles[name].files:
                inside = rows[(rows >= begin) & (rows < end)] - begin
                if len(inside):
                    try:
                        whole, took = read_rows(path, self.attempt, choice.step)
                    except StoreError as error:
                        if self._try_again(path, error):
                            return False
                        tell(self.path, f"rows were left out: {error}")
                        continue
                    self._withheld.pop(path, None)
                    parts.append(take(whole, inside))
                    seconds.append(took[inside])
        scalars = dict(choice.scalars)
        batch = from_columns(choice.step, np.zeros(0, np.int64), attempt=self.attempt)
        if parts:
            batch = join(parts, shared_groups=True)
            scalars = {**_health(batch, np.concatenate(seconds)), **scalars}
        batch = replace(by_group(batch), scalars=scalars)
        done = {
            "seen": choice.step + 1,
            "written": choice.step + 1,
            "thinned": 0,
            "dropped": 0,
            "bytes_lost": 0,
            "unsynced": 0,
        }
        placed = {"by": choice.by, "end": choice.end, "upto": {**self._upto, **choice.upto}, "late": choice.late}
        told = {
            "groups": "rank",
            "counters": done,
            "faults": [],
            "thinned": False,
            "time": time.time(),
            "placed": placed,
        }
        self.run.write(batch, 0, told)
        return True

    def _forget(self, choice: Choice) -> None:
        """Let go of what is in a step's file now; a file that cannot be removed is passed over at the next start."""
        self._last, self._end, self._by = choice.step, max(self._end, choice.end), choice.by
        self._upto = {**self._upto, **choice.upto}
        self._boundaries = {step: kept for step, kept in self._boundaries.items() if step > choice.step}
        (self.path / f"{choice.step:06d}.step.json").unlink(missing_ok=True)
        self._seen.pop(f"{choice.step:06d}.step.json", None)
        for name, pile in self.piles.items():
            pile.taken = choice.upto[name]
            for path, _, end in pile.files:
                if end <= pile.taken and path not in self._withheld:  # what storage withheld may be had again one day
                    path.unlink(missing_ok=True)
                    self._seen.pop(path.name, None)
            pile.files = [kept for kept in pile.files if kept[2] > pile.taken]
            keep = pile.files[0][1] if pile.files else pile.stop
            pile.times, pile.steps, pile.start = pile.times[keep - pile.start :], pile.steps[keep - pile.start :], keep
        for name in [name for name, pile in self.piles.items() if pile.closed and pile.taken == pile.written]:
            self._let_go_of(name)

    def _let_go_of(self, worker: str) -> None:
        """A worker that has closed, and all of whose rows are placed: a run may have thousands of them."""
        for word in ("worker", "counters"):  # in this order: one that is half removed has closed all the same
            (self.path / f"{worker}.{word}.json").unlink(missing_ok=True)
            self._seen.pop(f"{worker}.{word}.json", None)
        if not any(path.name.startswith(f"{worker}-") for path in self._withheld):
            self._upto.pop(worker, None)
        del self.piles[worker]
        self._let_go = True


def _whole(value: Any) -> int:
    """A number in a file that anybody may have written, or -1."""
    return value if isinstance(value, int) else -1


def _health(batch: RolloutBatch, seconds: Floats) -> dict[str, float]:
    """What the wrapper saw of the reward function itself."""
    codes = batch.flags.get("reward", np.zeros(len(batch), np.uint8))
    return {
        "reward_seconds": float(seconds.mean()),
        "reward_error_share": float((codes == INFRA).mean()),
        "reward_missing_share": float((codes == MISSING).mean()),
    }
