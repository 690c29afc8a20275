"""`LabelSession`: the label requests of one run, the answers of its raters, and the texts to show."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import shown_text
from tiltmeter.errors import StoreError
from tiltmeter.gold.label_files import ONSET, PEOPLE, LabelRequest, read_request
from tiltmeter.gold.people import RaterAnswers, label_pairs, people_numbers, raters_of
from tiltmeter.gold.sampler import Bet, Row
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.rank_summary import rank_ranges
from tiltmeter.rundir.run_path import entries, exists
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory

LabelItem = tuple[int, ...]  # numbers of the labels that one answer gives: two for a pair, or one
PromptAndText = tuple[str | None, str]  # prompt and completion

CACHED_STEPS = 16  # steps whose texts are cached
_STEP = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")
_ONSET = re.compile(r"([0-9]{1,9})-([0-9]{1,9})\.onset\.jsonl")
_PICKED = re.compile(r"([0-9]{1,9})-([0-9]{1,9})-([0-9]{1,9})\.json")


class LabelStep:
    """The label request of one step, or of one hand-picked rollout."""

    def __init__(self, run: RunDirectory, request: LabelRequest, *, picked: bool = False) -> None:
        self.request, self.picked = request, picked
        self.raters = 1 if picked else raters_of(request)
        self.answers = RaterAnswers(run, request)
        self.items: list[LabelItem] | None = None  # None: its texts were not read yet
        self.likely: list[LabelItem] | None = None  # as far as is known without them


class LabelSession:
    """A run whose gold source is people. It holds requests and answers, and caches few texts."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self.identity = run, run.identity()
        self.key = str(self.identity.get("id", run.path))
        self.steps: dict[str, LabelStep] = {}  # by the name of the folder, or of the picked rollout
        self.waiting: list[str] = []  # steps whose labels are not closed, in the order drawn
        self.at_work = True
        self._texts: OrderedDict[str, dict[Row, PromptAndText]] = OrderedDict()
        self._folder_read = False

    def update(self, waiting: Iterable[tuple[int, int]]) -> None:
        """Read new requests and answers. `waiting`: attempt and step of labels that are not closed in the journal."""
        before = set(self.waiting)
        self.waiting = [name for key in waiting if (name := self._add_step(*key)) is not None]
        if not self._folder_read:
            self._folder_read = True
            for entry in entries(self.run.path / "gold" / PEOPLE):
                if match := _STEP.fullmatch(entry.name):
                    before |= {name for name in [self._add_step(int(match[1]), int(match[2]))] if name is not None}
        for entry in entries(self.run.path / "gold" / "requests"):
            # Labels of the past are written all at once, when everybody has answered.
            if match := _ONSET.fullmatch(entry.name):
                name = self._add_step(int(match[1]), int(match[2]), ONSET)
                labels = self.run.path / "gold" / "labels" / entry.name.removesuffix(".jsonl")
                self.waiting += [name] if name is not None and not exists(labels) else []
        for entry in entries(self.run.path / "gold" / "picked"):
            if (match := _PICKED.fullmatch(entry.name)) and entry.name not in self.steps:
                self.steps[entry.name] = self._picked_step(*map(int, match.groups()))
        picks = {name for name, step in self.steps.items() if step.picked}
        for name in before | set(self.waiting) | picks:  # once more those that were closed meanwhile
            self.steps[name].answers.read_new()
        self.at_work = monitor_running(self.run) is not False

    def is_open(self, step: LabelStep) -> bool:
        return step.picked or any(self.steps[name] is step for name in self.waiting)

    def open_steps(self) -> list[LabelStep]:
        return [self.steps[name] for name in self.waiting] + [step for step in self.steps.values() if step.picked]

    def likely_items(self, step: LabelStep) -> list[LabelItem]:
        """The items to judge, as far as they are known without reading texts."""
        if step.items is not None:
            return step.items
        if step.likely is None:
            other = label_pairs(step.request)
            numbers = people_numbers(step.request)
            step.likely = [(n, other[n]) if n in other else (n,) for n in numbers if other.get(n, n) >= n]
        return step.likely

    def items(self, step: LabelStep) -> list[LabelItem]:
        """The items to judge. Two answers form a pair if both texts are stored and answer the same prompt."""
        if step.items is None:
            texts, rows = self._read_texts(step), step.request.rows
            duels = {row for bet in step.request.bets if bet.purpose == "duel" for row in (bet.up, bet.down)}
            items: list[LabelItem] = []
            for item in self.likely_items(step):
                readable = [number for number in item if rows[number] in texts]
                prompts = {texts[rows[number]][0] for number in readable}
                # Without text, prompts are known to be equal only if the rows are of one group.
                unknown = None in prompts and rows[item[0]] in duels
                together = len(item) == len(readable) and len(prompts) == 1 and not unknown
                items += [item] if together else [(number,) for number in readable]
            step.items = items
        return step.items

    def texts(self, step: LabelStep, numbers: Sequence[int]) -> tuple[str | None, list[str]] | None:
        """The prompt and the completions in the order shown; None if they cannot be read."""
        texts, rows = self._read_texts(step), [step.request.rows[number] for number in numbers]
        if any(row not in texts for row in rows):
            return None
        return texts[rows[0]][0], [texts[row][1] for row in rows]

    def _read_texts(self, step: LabelStep) -> dict[Row, PromptAndText]:
        key = step.request.digest
        if key not in self._texts:
            texts: dict[Row, PromptAndText] = {}
            for attempt, at in dict.fromkeys(row[:2] for row in step.request.rows):
                if (batch := self._read_batch(step.request, attempt, at)) is None or batch.completion is None:
                    continue
                for row in (row for row in step.request.rows if row[:2] == (attempt, at) and row[2] < len(batch)):
                    if (text := shown_text(batch, row[2])) is not None:
                        texts[row] = (None if batch.prompt is None else batch.prompt[row[2]], text)
            self._texts[key] = texts
            while len(self._texts) > CACHED_STEPS:
                self._texts.popitem(last=False)
        self._texts.move_to_end(key)
        return self._texts[key]

    def _read_batch(self, request: LabelRequest, attempt: int, step: int) -> RolloutBatch | None:
        """The texts of a step, with the row numbers that the request used."""
        try:
            own_request = (
                request if (attempt, step) == (request.attempt, request.step) else read_request(self.run, attempt, step)
            )
            if own_request is None:
                return None
            return read_step(self.run, attempt, step, own_request.ranks, ("group", "prompt", "completion", "turns"))
        except StoreError:
            return None

    def _add_step(self, attempt: int, step: int, part: str = "") -> str | None:
        name = f"{attempt}-{step:06d}{part and f'.{part}'}"
        if name not in self.steps:
            try:
                request = read_request(self.run, attempt, step, part)
            except StoreError:
                request = None
            if request is None or not request.rows or not all(map(_is_rollout_key, request.rows)):
                return None
            self.steps[name] = LabelStep(self.run, request)
        return name

    def _picked_step(self, attempt: int, step: int, row: int) -> LabelStep:
        """A hand-picked rollout as a request of its own, whose digest ensures that no test uses the answer."""
        at = (attempt, step, row)
        try:
            step_request = read_request(self.run, attempt, step)
        except StoreError:
            step_request = None
        ranks = (
            step_request.ranks
            if step_request is not None
            else rank_ranges(file.rank for file in self.run.find(attempt, step))
        )
        request = LabelRequest(
            attempt, step, tuple((a, b) for a, b in ranks), "", {"name": "picked", "identity": ""}, 0.0, {},
            (Bet("picked", at, at, 0.0, 0.0),), (None,), time.time(),
        )  # fmt: skip
        return LabelStep(self.run, request, picked=True)


def _is_rollout_key(row: Sequence[object]) -> bool:
    """Whether it is a valid rollout key: the file is untrusted, and -1 would index the last row."""
    return len(row) == 3 and all(type(number) is int and number >= 0 for number in row)
