"""How each row that was scored without knowing its step gets into exactly one step's file.

A captured reward function runs in many worker processes. Each worker writes what it scored to files of its own, in the
order in which it scored; the driver, if it takes part, writes one small file per step. The monitor joins them: it
decides which rows are a step, publishes the ordinary step file, and keeps in that file's metadata how far it has read
each worker. A row is used when a step file that counts it is there, and not before: killed at any moment, nothing is
lost and nothing is counted twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tiltmeter.batches import INFRA, MISSING, by_group, from_columns, join, take
from tiltmeter.durable import sweep
from tiltmeter.errors import StoreError
from tiltmeter.piles import STILL_OPEN, Choice, Piles
from tiltmeter.records import Floats, RolloutBatch
from tiltmeter.stats.rhythm import rhythm
from tiltmeter.store import RunDirectory, read_json
from tiltmeter.unplaced import Boundary, first, folder, read_rows, tell

GUESS = 64  # rows of a step, where nobody says and no pause tells
ENOUGH = 4096  # rows without a rhythm, after which it is guessed


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
    """Decides which rows of one attempt are a step, from what its workers have written, and publishes it."""

    def __init__(self, run: RunDirectory, attempt: int, clock: Callable[[], float]) -> None:
        self.run, self.attempt = run, attempt
        self.piles = Piles(run, attempt, clock)
        self.path = self.piles.path

    def place(self, *, over: bool) -> bool:
        self.piles.look(over=over)
        while (choice := self._choose(over)) is not None:
            if not self._publish(choice):
                return True
            self.piles.forget(choice)
        waiting = bool(self.piles.boundaries) or any(pile.stop > pile.taken for pile in self.piles.by_worker.values())
        if over and self.piles.quiet():
            if rows := sum(pile.stop - pile.taken for pile in self.piles.by_worker.values()):
                why = f"{rows} were scored after the last step that ended; kept, not measured"
                tell(self.path, f"rows left over: {why}")
            if left := sum(not pile.closed and not self.piles.gone(pile) for pile in self.piles.by_worker.values()):
                why = f"{left} had not closed and wrote nothing for {STILL_OPEN / 60:.0f} minutes after the run's end"
                tell(self.path, f"workers were given up: {why}")
            sweep(self.path)
            return False
        waiting = waiting or (over and any(not pile.closed for pile in self.piles.by_worker.values()))
        if over and not waiting:
            sweep(self.path)
        return waiting

    def _next_counted(self) -> int:
        """The number of the next step where nobody gives it one; a resumed run goes on from what it was told."""
        if self.piles.last >= 0:
            return self.piles.last + 1
        facts = self.run.attempt(self.attempt)
        if facts.get("resume_step") is None and facts.get("parent") is not None:
            return max((file.step for file in self.run.files(int(facts["parent"]))), default=-1) + 1
        return int(facts.get("resume_step") or 0)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _choose(self, over: bool) -> Choice | None:
        steps = [pile.steps[pile.taken - pile.start :] for pile in self.piles.by_worker.values()]
        if any(len(part) and part.max() >= 0 for part in steps):
            return self._by_step(over)
        if self.piles.boundaries:
            return self._by_boundary(self.piles.boundaries[min(self.piles.boundaries)])
        driven = self.piles.facts.get("driver") or self.piles.driver or self.piles.by == "boundary"
        return None if driven else self._by_count(over)

    def _by_step(self, over: bool) -> Choice | None:
        """Rows that know their step; the step is over when every worker that is there has gone on to a later one."""
        pending = {name: pile.steps[pile.taken - pile.start :] for name, pile in self.piles.by_worker.items()}
        heads = [int(part[part > self.piles.last][0]) for part in pending.values() if (part > self.piles.last).any()]
        if not heads:
            return None  # all of them too late for their steps: kept, and told when the run ends
        step = min(heads)
        ready = over and self.piles.quiet()
        if not ready:
            later = [name for name, part in pending.items() if (part > step).any()]
            ready = all(name in later or pile.closed for name, pile in self.piles.by_worker.items()) or any(
                end > self.piles.by_worker[name].taken
                and self.piles.old(path.name)
                and self._step_of(name, end - 1) > step
                for name in later
                for path, _, end in self.piles.by_worker[name].files
            )
        if not ready:
            return None
        upto = {}
        for name, pile in self.piles.by_worker.items():
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
        pile = self.piles.by_worker[worker]
        return int(pile.steps[row - pile.start])

    def _by_boundary(self, boundary: Boundary) -> Choice | None:
        upto = {name: pile.until(boundary.end) for name, pile in self.piles.by_worker.items()}
        first = dict.fromkeys(upto, 0)
        if boundary.begin is not None:
            first = {name: pile.until(boundary.begin, "left") for name, pile in self.piles.by_worker.items()}
        late = {name: min(upto[name], pile.until(self.piles.end)) for name, pile in self.piles.by_worker.items()}
        there = sum(max(0, upto[name] - max(first[name], late[name])) for name in upto)
        enough = boundary.rows is not None and there >= boundary.rows
        if not (enough or self.piles.closed() or self.piles.old(f"{boundary.step:06d}.step.json")):
            return None
        choice = self._choice(boundary.step, "boundary", upto, end=boundary.end, scalars=boundary.scalars)
        kept = {name: rows[(rows < late[name]) | (rows >= first[name])] for name, rows in choice.rows.items()}
        count = sum(int((rows < late[name]).sum()) for name, rows in kept.items()) if self.piles.end else 0
        return replace(choice, rows=kept, late=count)

    def _by_count(self, over: bool) -> Choice | None:
        """The next `batch_size` rows in the order of scoring, once nobody can still have an earlier one."""
        alone = len(self.piles.by_worker) == 1
        final = over and self.piles.quiet()
        known = int(
            self.piles.facts.get("batch_size") or read_json(self.path / "inferred.json").get("batch_size") or ENOUGH
        )
        rows: list[tuple[float, str, int]] = []
        for name, pile in self.piles.by_worker.items():
            settled = [end for path, _, end in pile.files if alone or self.piles.closed() or self.piles.old(path.name)]
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
            name: max((r + 1 for _, of, r in chosen if of == name), default=p.taken)
            for name, p in self.piles.by_worker.items()
        }
        return self._choice(self._next_counted(), by, upto, end=chosen[-1][0])

    def _size(self, times: Floats, final: bool) -> tuple[int | None, str]:
        """Rows of a step: as given, as told by the pauses between them, or guessed. What was inferred is kept."""
        if self.piles.facts.get("batch_size"):
            return int(self.piles.facts["batch_size"]), "count"
        known = read_json(self.path / "inferred.json")
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
        rows = {name: np.arange(pile.taken, upto[name]) for name, pile in self.piles.by_worker.items()}
        last = [float(p.times[upto[n] - 1 - p.start]) for n, p in self.piles.by_worker.items() if upto[n] > p.taken]
        return Choice(step, by, max(last, default=self.piles.end) if end is None else end, rows, upto, scalars or {})

    # -- publishing -------------------------------------------------------------------------------------------------

    def _publish(self, choice: Choice) -> bool:
        """The ordinary file of a step. Until it has its name nothing has happened; afterwards its rows are used. False
        if storage does not hand out a row just now."""
        parts, seconds = [], []
        for name, rows in choice.rows.items():
            for path, begin, end in self.piles.by_worker[name].files:
                inside = rows[(rows >= begin) & (rows < end)] - begin
                if len(inside):
                    try:
                        whole, took = read_rows(path, self.attempt, choice.step)
                    except StoreError as error:
                        if self.piles.try_again(path, error):
                            return False
                        tell(self.path, f"rows were left out: {error}")
                        continue
                    self.piles.handed_out(path)
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
        placed = {"by": choice.by, "end": choice.end, "upto": {**self.piles.upto, **choice.upto}, "late": choice.late}
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


def _health(batch: RolloutBatch, seconds: Floats) -> dict[str, float]:
    """What the wrapper saw of the reward function itself."""
    codes = batch.flags.get("reward", np.zeros(len(batch), np.uint8))
    return {
        "reward_seconds": float(seconds.mean()),
        "reward_error_share": float((codes == INFRA).mean()),
        "reward_missing_share": float((codes == MISSING).mean()),
    }
