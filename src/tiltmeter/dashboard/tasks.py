"""One run's part of the labelling screen: what its monitor has asked, what people have said, and the texts to show."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from tiltmeter.durable import entries
from tiltmeter.errors import StoreError
from tiltmeter.gold.files import Asked, recorded
from tiltmeter.gold.people import PEOPLE, Answers, pairs, raters_of
from tiltmeter.gold.sampler import Bet, Row
from tiltmeter.monitor import at_work
from tiltmeter.ranks import spans
from tiltmeter.records import RolloutBatch
from tiltmeter.steps import stored
from tiltmeter.store import RunDirectory

Thing = tuple[int, ...]  # numbers of the labels that one answer gives: two, or one
Text = tuple[str | None, str]  # prompt and completion

KEPT = 16  # steps whose texts are held
_STEP = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_PICKED = re.compile(r"([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,9})\.json")


class Step:
    """What was asked about one step, or one rollout that somebody picked."""

    def __init__(self, run: RunDirectory, asked: Asked, *, picked: bool = False) -> None:
        self.asked, self.picked = asked, picked
        self.raters = 1 if picked else raters_of(asked)
        self.answers = Answers(run, asked)
        self.things: list[Thing] | None = None  # None: its texts were not looked at yet


class Room:
    """A run whose gold is people. `look` reads what is new; it holds numbers and answers, and few texts."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.identity = run, run.identity()
        self.key = str(self.identity.get("id", run.path))
        self.steps: dict[str, Step] = {}  # by the name of their folder, or of the pick
        self.waiting: list[str] = []  # steps whose labels are not closed, in the order drawn
        self.at_work = True
        self._texts: OrderedDict[str, dict[Row, Text]] = OrderedDict()
        self._began = False

    def look(self, waiting: Iterable[tuple[int, int]]) -> None:
        """`waiting`: attempt and step of what the journal says is not closed."""
        before = set(self.waiting)
        self.waiting = [name for key in waiting if (name := self._add(*key)) is not None]
        if not self._began:
            self._began = True
            for entry in entries(self.run.path / "gold" / PEOPLE):
                if named := _STEP.fullmatch(entry.name):
                    before |= {name for name in [self._add(int(named[1]), int(named[2]))] if name is not None}
        for entry in entries(self.run.path / "gold" / "picked"):
            if (named := _PICKED.fullmatch(entry.name)) and entry.name not in self.steps:
                self.steps[entry.name] = self._pick(*map(int, named.groups()))
        picks = {name for name, step in self.steps.items() if step.picked}
        for name in before | set(self.waiting) | picks:  # once more what has been closed since
            self.steps[name].answers.look()
        self.at_work = at_work(self.run) is not False

    def is_open(self, step: Step) -> bool:
        return step.picked or any(self.steps[name] is step for name in self.waiting)

    def open_steps(self) -> list[Step]:
        return [self.steps[name] for name in self.waiting] + [step for step in self.steps.values() if step.picked]

    def guess(self, step: Step) -> list[Thing]:
        """What there is to judge, as far as it is known without reading texts."""
        if step.things is not None:
            return step.things
        other = pairs(step.asked)
        return [(n, other[n]) if n in other else (n,) for n in range(len(step.asked.rows)) if other.get(n, n) >= n]

    def things(self, step: Step) -> list[Thing]:
        """What there is to judge. Two answers are compared if both are there and they answer the same prompt."""
        if step.things is None:
            texts, rows = self._read(step), step.asked.rows
            duels = {row for bet in step.asked.bets if bet.purpose == "duel" for row in (bet.up, bet.down)}
            found: list[Thing] = []
            for thing in self.guess(step):
                known = [number for number in thing if rows[number] in texts]
                prompts = {texts[rows[number]][0] for number in known}
                # Without its text no two prompts are known to be alike, unless the rows are of one group.
                unknown = None in prompts and rows[thing[0]] in duels
                together = len(thing) == len(known) and len(prompts) == 1 and not unknown
                found += [thing] if together else [(number,) for number in known]
            step.things = found
        return step.things

    def texts(self, step: Step, shown: Sequence[int]) -> tuple[str | None, list[str]] | None:
        """The prompt and the completions in the order shown; None if they cannot be read."""
        texts, rows = self._read(step), [step.asked.rows[number] for number in shown]
        if any(row not in texts for row in rows):
            return None
        return texts[rows[0]][0], [texts[row][1] for row in rows]

    def _read(self, step: Step) -> dict[Row, Text]:
        key = step.asked.digest
        if key not in self._texts:
            found: dict[Row, Text] = {}
            for attempt, at in dict.fromkeys(row[:2] for row in step.asked.rows):
                if (batch := self._batch(step.asked, attempt, at)) is None or batch.completion is None:
                    continue
                for row in (row for row in step.asked.rows if row[:2] == (attempt, at) and row[2] < len(batch)):
                    if (text := batch.completion[row[2]]) is not None:
                        found[row] = (None if batch.prompt is None else batch.prompt[row[2]], text)
            self._texts[key] = found
            while len(self._texts) > KEPT:
                self._texts.popitem(last=False)
        self._texts.move_to_end(key)
        return self._texts[key]

    def _batch(self, asked: Asked, attempt: int, step: int) -> RolloutBatch | None:
        """A step's texts, with its rows counted as they were when they were drawn."""
        try:
            own = asked if (attempt, step) == (asked.attempt, asked.step) else recorded(self.run, attempt, step)
            if own is None:
                return None
            return stored(self.run, attempt, step, own.ranks, ("group", "prompt", "completion"))
        except StoreError:
            return None

    def _add(self, attempt: int, step: int) -> str | None:
        name = f"{attempt}-{step:06d}"
        if name not in self.steps:
            try:
                asked = recorded(self.run, attempt, step)
            except StoreError:
                asked = None
            if asked is None or not asked.rows or not all(map(_is_row, asked.rows)):
                return None
            self.steps[name] = Step(self.run, asked)
        return name

    def _pick(self, attempt: int, step: int, row: int) -> Step:
        """A rollout that a person picked, as a request of its own: by its hash no bet can ever use the answer."""
        at = (attempt, step, row)
        try:
            drawn = recorded(self.run, attempt, step)
        except StoreError:
            drawn = None
        ranks = drawn.ranks if drawn is not None else spans(file.rank for file in self.run.find(attempt, step))
        asked = Asked(
            attempt, step, tuple((a, b) for a, b in ranks), "", {"name": "picked", "identity": ""}, 0.0, {},
            (Bet("picked", at, at, 0.0, 0.0),), (None,), time.time(),
        )  # fmt: skip
        return Step(self.run, asked, picked=True)


def _is_row(row: Sequence[object]) -> bool:
    """Whether it names a rollout: the file may be somebody else's, and -1 would be the last one."""
    return len(row) == 3 and all(type(number) is int and number >= 0 for number in row)
