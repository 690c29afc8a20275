"""The desk where gold is bought: it draws what to ask, writes that down, asks, and closes steps in the order drawn.

The order of draws and closings is that of the journal. A draw is fixed by its `step_done` event, then written to a
request file together with the sampler's state, and only then is anybody asked. So a monitor that was killed goes on
with the same choices, asks nobody twice for what has an answer, and a replay, which asks nobody, makes the same bets.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tiltmeter.durable import sweep
from tiltmeter.errors import ContractError, StoreError
from tiltmeter.facts import from_text
from tiltmeter.gold import LATER, Answer, GoldSource, Request
from tiltmeter.gold.files import Asked, Label, answer, checked, generator, labels, record, recorded, strays, unasked
from tiltmeter.gold.people import PeopleSource, hear, settled_by_people
from tiltmeter.gold.sampler import Bet, Row, Sampler
from tiltmeter.gold.settlement import Closed, settled
from tiltmeter.journal import Event, readings_of
from tiltmeter.ranks import expand, spans
from tiltmeter.records import RAGGED_COLUMNS, Fault, Floats, Ints, RolloutBatch
from tiltmeter.stats.groups import standardised
from tiltmeter.steps import stored
from tiltmeter.store import RunDirectory

MOST = 16_384  # bets a step: their values must fit one line of the journal
_COLUMNS = ("group", "reward", "advantage", "prompt", "completion", "facts", "length", "truncated")


@dataclass
class _Open:
    """A step that was drawn and is not closed."""

    asked: Asked
    requests: dict[int, Request] | None = None  # by number, those without an answer; None: not looked up yet
    unheard: list[int] | None = None  # the same for people, without texts: days of open steps must fit in memory
    durable: bool = False  # its request file is there

    @property
    def key(self) -> tuple[int, int]:
        return self.asked.attempt, self.asked.step


@dataclass
class _Past:
    """What the journal says while it is read: steps that are open, the last two draws, and what came after each."""

    drawn: dict[tuple[int, int], None] = field(default_factory=dict)
    before: Event | None = None  # the last draw but one
    between: list[Event | tuple[int, int]] = field(default_factory=list)  # closings, and rewinds as attempt and step
    last: Event | None = None
    since: list[Event | tuple[int, int]] = field(default_factory=list)


@dataclass
class Desk:
    """One run's gold. `live=False` asks nobody and writes nothing: what was chosen and answered is read."""

    run: RunDirectory
    source: GoldSource
    share: float = 0.02
    steps: int | None = None  # optimiser steps that are planned
    live: bool = True
    asked_share: float = field(default=0.0, init=False)  # as configured; `share` may be raised later
    rollouts: int = field(default=0, init=False)
    bought: int = field(default=0, init=False)  # labels that came
    _sampler: Sampler = field(init=False, repr=False)
    _pending: deque[_Open] = field(default_factory=deque, init=False, repr=False)
    _newest: RolloutBatch | None = field(default=None, init=False, repr=False)
    _looked: bool = field(default=False, init=False, repr=False)  # for answers to steps that were never asked about
    _told: set[str] = field(default_factory=set, init=False, repr=False)  # stray answers that are on record
    _past: _Past | None = field(default_factory=lambda: _Past(), init=False, repr=False)  # None: the journal was read

    def __post_init__(self) -> None:
        self.asked_share = self.share
        self._sampler = Sampler(self.share, self.steps, recall=self._groups)
        self._id, self._began = str(self.run.identity().get("id", "")), time.time()
        if self.live:
            sweep(self.run.path / "gold" / "requests")

    @property
    def facts(self) -> dict[str, Any]:
        """Who is asked, and about how much. `judged` tells whoever would act on an alarm that it rests on opinions."""
        source = {"name": self.source.name, "identity": self.source.identity, "judged": self.source.judged}
        return {**source, "share": self.asked_share, "steps": self.steps}

    @property
    def waiting(self) -> list[tuple[int, int]]:
        """Attempt and step of what was drawn and is not closed, in the order drawn."""
        return list(self._past.drawn) if self._past is not None else [item.key for item in self._pending]

    def draw(self, batch: RolloutBatch, ranks: Iterable[int], *, boost: bool = False) -> dict[str, Any]:
        """Choose what to ask about a step; what its `step_done` event says of it.

        `boost`: this step raised a warning, so later steps are looked at more closely. It must not change what is asked
        about this one, whose own rollouts raised it.
        """
        attempt, step = batch.attempt, batch.step
        seed, rng = generator(self._id, attempt, step)
        before, bets = self._sampler.state(), []
        try:
            advantage = _advantage(batch)
            if advantage is not None and batch.completion is not None and len(batch):
                drawn = self._sampler.draw(attempt, step, advantage, batch.starts, _prompts(batch), rng)
                if len(drawn) > MOST:
                    drawn = [drawn[k] for k in np.sort(rng.choice(len(drawn), MOST, replace=False))]
                bets = [_plain(bet) for bet in drawn]
            if boost:
                self._sampler.boost()
            state = json.loads(json.dumps(self._sampler.state(), allow_nan=False))
        except Exception:
            self._sampler.restore(before)
            raise
        self._sampler.restore(state)  # what goes on is what is written: a restart cannot differ from having gone on
        source = {"name": self.source.name, "identity": self.source.identity}
        paid = {row: _paid(batch, row) for bet in bets for row in (bet.up, bet.down)}
        asked = Asked(
            attempt, step, tuple((a, b) for a, b in spans(ranks)), seed, source, self.share, state, tuple(bets),
            tuple(paid.values()), time.time(),
        )  # fmt: skip
        self._newest = replace(batch, **dict.fromkeys(RAGGED_COLUMNS))  # type: ignore[arg-type]
        self._pending.append(_Open(asked))
        self.rollouts += len(batch)
        return {"asked": len(asked.rows), "requests": asked.digest, "boost": boost}

    def spend(self, share: float) -> None:
        """Label this share of all rollouts. What was drawn stands; what was saved under a lower share may be spent now,
        and a bet's size never depends on the share."""
        self.share = self._sampler.share = share

    def rewind(self, attempt: int, step: int) -> None:
        if self._past is not None:
            self._past.since.append((attempt, step))
        else:
            self._sampler.rewind(attempt, step)

    def poll(self) -> Iterator[tuple[int, int] | Fault]:
        """Ask for what is open; then each step whose labels are complete, oldest first, to be closed before the next.

        A later step waits for an earlier one, because bets are placed in the order in which they were drawn. Stray
        answers are reported as faults.
        """
        if not self.live:
            return
        if not self._looked:
            self._looked = True
            for attempt, step, name in unasked(self.run):
                yield from self._told_once(attempt, step, name)
        for item in self._pending:
            self._record(item)
            if not isinstance(self.source, PeopleSource):
                self._ask(item)
        while self._pending and self._complete(self._pending[0]):
            asked = self._pending[0].asked
            yield from self._stray(asked)
            yield asked.attempt, asked.step

    def _record(self, item: _Open) -> None:
        """Make a step's requests durable. Its `step_done` event is on disk already; nobody was asked yet."""
        if item.durable:
            return
        try:
            record(self.run, item.asked)
        except FileExistsError:  # its event was lost to damage, and it is measured again: what was asked stands
            item.asked = recorded(self.run, *item.key) or item.asked
        item.durable = True

    def _ask(self, item: _Open) -> None:
        """Ask for what has no answer yet."""
        if item.requests == {}:
            return
        known = labels(self.run, item.asked)
        if item.requests is None:
            missing = [number for number, label in enumerate(known) if label is None]
            item.requests = self._requests(item.asked, missing) if missing else {}
        item.requests = {number: request for number, request in item.requests.items() if known[number] is None}
        if not item.requests:
            return
        asked, over = item.asked, time.time() > item.asked.time + self.source.timeout
        for number, told in zip(list(item.requests), self._answers(list(item.requests.values())), strict=True):
            if told is LATER and not over:
                continue
            label = Label(None, f"no answer within {self.source.timeout:g} s") if told is LATER else checked(told)
            answer(self.run, asked, number, label, self.source.name)
            del item.requests[number]

    def _complete(self, item: _Open) -> bool:
        """Whether a step has all its labels. What people said is looked up for the oldest alone: hundreds may wait."""
        if not isinstance(self.source, PeopleSource):
            return item.requests == {}
        if item.unheard is None:
            missing = [number for number, label in enumerate(labels(self.run, item.asked)) if label is None]
            item.unheard = list(self._requests(item.asked, missing))
        item.unheard = hear(self.run, item.asked, item.unheard, self.source, self._began)
        return not item.unheard

    def _answers(self, requests: Sequence[Request]) -> Sequence[Answer]:
        try:
            told = list(self.source.label(requests))
            if len(told) != len(requests):
                raise ContractError(f"{self.source.name} gave {len(told)} answers to {len(requests)} requests")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a source that fails makes missing labels, with the reason
            return [error] * len(requests)
        return told

    def _requests(self, asked: Asked, numbers: Iterable[int]) -> dict[int, Request]:
        """What to ask about these rows. A row without text cannot be judged by anybody: it is missing at once."""
        purposes = {row: bet.purpose for bet in asked.bets for row in (bet.up, bet.down)}
        found: dict[int, Request] = {}
        batches: dict[tuple[int, int], RolloutBatch | str] = {}
        for number in numbers:
            attempt, step, row = asked.rows[number]
            if (attempt, step) not in batches:
                batches[attempt, step] = self._batch(attempt, step)
            batch = batches[attempt, step]
            text = None
            if isinstance(batch, RolloutBatch) and batch.completion is not None and row < len(batch):
                text = batch.completion[row]
            if text is None or isinstance(batch, str):
                why = batch if isinstance(batch, str) else "the completion's text was not stored"
                answer(self.run, asked, number, Label(None, why), self.source.name)
                continue
            prompt = None if batch.prompt is None else batch.prompt[row]
            key, purpose = asked.label_id(number), purposes[attempt, step, row]
            found[number] = Request(key, attempt, step, row, purpose, prompt, text, _known(batch, row))
        return found

    def _batch(self, attempt: int, step: int) -> RolloutBatch | str:
        """A step's texts, as its rows were counted when it was drawn; or why they cannot be had."""
        newest = self._newest
        if newest is not None and (newest.attempt, newest.step) == (attempt, step):
            return newest
        try:
            asked = recorded(self.run, attempt, step)
            return "its requests are gone" if asked is None else stored(self.run, attempt, step, asked.ranks, _COLUMNS)
        except StoreError as error:
            return f"the rollout cannot be read: {error}"[:200]

    def _groups(self, attempt: int, step: int) -> tuple[Ints, list[str]] | None:
        """A stored step's groups, as they were when it was drawn: where each begins, and its prompt."""
        batch = self._batch(attempt, step)
        return None if isinstance(batch, str) else (batch.starts, _prompts(batch))

    def _stray(self, asked: Asked) -> Iterator[Fault]:
        for name in strays(self.run, asked):
            yield from self._told_once(asked.attempt, asked.step, name)

    def _told_once(self, attempt: int, step: int, name: str) -> Iterator[Fault]:
        if name not in self._told:
            self._told.add(name)
            yield Fault(attempt, step, "label", f"{name}: an answer without a request before it; not used")

    def close(self, attempt: int, step: int) -> Closed:
        """Settle a step's bets from its files, and tell the sampler. Raises `StoreError` if an answer is gone."""
        while not self.live and self._pending and self._pending[0].key != (attempt, step):
            self._pending.popleft()  # replayed with gold, and watched without it at that step
        if not self._pending or self._pending[0].key != (attempt, step):
            raise StoreError(f"step {step} of attempt {attempt}: labels were closed that were not asked for")
        asked = self._pending.popleft().asked
        if not self._pending:
            self._newest = None
        if not self.live:  # the choice on disk is what was asked, even if this version would have chosen otherwise
            asked = recorded(self.run, attempt, step) or asked
        given = labels(self.run, asked)
        if None in given:
            raise StoreError(f"step {step} of attempt {attempt}: label {given.index(None)} is gone")
        closed = settled_by_people(asked, settled(asked, [label for label in given if label is not None]))
        self.bought += closed.facts["answered"]
        trouble = self._tell(closed.slopes, closed.duels)
        facts = {**closed.facts, "labels": self.bought, "rollouts": self.rollouts}
        facts["share"] = self.bought / self.rollouts if self.rollouts else 0.0
        facts["why"] = "; ".join(filter(None, (closed.facts["why"], trouble)))
        return replace(closed, facts=facts)

    def _tell(self, slopes: Sequence[float], duels: Sequence[float]) -> str:
        """Tell the sampler how a step's bets went; what it made of that if it failed."""
        before = self._sampler.state()
        try:
            self._sampler.close(slopes, duels)
        except Exception as error:  # noqa: BLE001  # the bets stand, whatever the sampler learns from them
            self._sampler.restore(before)
            return f"the sampler failed: {type(error).__name__}: {str(error)[:200]}"
        return ""

    def recall(self, event: Event) -> None:
        """Take note of an event of the journal: a step that was drawn or closed, or a stray answer reported."""
        past = self._past
        assert past is not None
        key = (event.attempt, event.step)
        if event.kind == "step_done" and "requests" in event.data:
            self.rollouts += event.data["rows"]
            past.drawn[key] = None
            past.before, past.between, past.last, past.since = past.last, past.since, event, []
        elif event.kind == "labels_closed":
            past.drawn.pop(key, None)
            self.bought = event.data["labels"]
            past.since.append(event)
        elif event.kind == "fault" and event.data["part"] == "label":
            self._told.add(event.data["error"].split(":")[0])

    def resume(self) -> None:
        """After the journal was read: what is still open, and the sampler as it was after the last event."""
        past, self._past = self._past, None
        assert past is not None
        last = past.last
        key = None if last is None else (last.attempt, last.step)
        if last is not None and key in past.drawn and recorded(self.run, *key) is None:
            # Killed between the event and the request file: the same draw again, from the same past.
            past.drawn.pop(key)
            self._go_back(past.before, past.between)
            self.rollouts -= last.data["rows"]
            batch = stored(self.run, last.attempt, last.step, last.data["ranks"], _COLUMNS)
            self.draw(batch, expand(last.data["ranks"]), boost=last.data["boost"])
            self._go_on(past.since)
        else:
            self._go_back(last, past.since)
        self._pending.extendleft(_Open(self._must(key), durable=True) for key in reversed(past.drawn))

    def _go_back(self, draw: Event | None, since: Iterable[Event | tuple[int, int]]) -> None:
        if draw is not None:
            self._sampler.restore(self._must((draw.attempt, draw.step)).state)
        self._go_on(since)

    def _go_on(self, since: Iterable[Event | tuple[int, int]]) -> None:
        for item in since:
            if isinstance(item, tuple):
                self._sampler.rewind(*item)
                continue
            us = {reading.name: reading.values for reading in readings_of(item)}
            slopes, duels = us.get("gold.slope", ()), us.get("gold.duel", ())
            self._tell(slopes, duels)

    def _must(self, key: tuple[int, int]) -> Asked:
        asked = recorded(self.run, *key)
        if asked is None:
            raise StoreError(
                f"gold/requests has nothing about step {key[1]} of attempt {key[0]}, which was asked about: "
                "restore the folder from a copy, or watch without --gold"
            )
        return asked


def _advantage(batch: RolloutBatch) -> Floats | None:
    """What the optimiser weighs each answer's gradient with: the trainer's own, else the reward as GRPO scales it."""
    if batch.advantage is not None and np.isfinite(batch.advantage).any():
        return batch.advantage
    return None if batch.reward is None else standardised(batch.reward, batch.starts)[0]


def _prompts(batch: RolloutBatch) -> list[str]:
    """A key per group that is equal where the prompt is. Without its text no two groups are known to be alike."""
    if batch.prompt is None:
        return [f"{batch.attempt}-{batch.step}-{k}" for k in range(len(batch.starts) - 1)]
    texts = [batch.prompt[int(row)] for row in batch.starts[:-1]]
    return [
        f"{batch.attempt}-{batch.step}-{k}"
        if text is None
        else hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        for k, text in enumerate(texts)
    ]


def _plain(bet: Bet) -> Bet:
    """A bet as JSON holds it."""
    if bet.purpose not in ("slope", "duel") or not 0.0 <= bet.weight <= 1.0:
        raise ContractError(f"{bet} is no bet: its purpose is slope or duel, its weight lies in [0, 1]")
    return Bet(bet.purpose, _row(bet.up), _row(bet.down), float(bet.weight), float(bet.chance))


def _row(row: Row) -> Row:
    return int(row[0]), int(row[1]), int(row[2])


def _known(batch: RolloutBatch, row: int) -> dict[str, object]:
    """What else is known of a row: the dataset's facts, and what the trainer measured under names of its own."""
    try:
        known: dict[str, object] = {} if batch.facts is None else {**from_text(batch.facts[row])}
    except ValueError:  # not an object: whoever needs a fact of this row says that it has none
        known = {}
    given = (name for name in ("length", "truncated") if batch.column(name) is not None)
    return known | {name: getattr(batch, name)[row].item() for name in given}


def _paid(batch: RolloutBatch, row: Row) -> float | None:
    if row[:2] != (batch.attempt, batch.step) or batch.reward is None:
        return None
    paid = float(batch.reward[row[2]])
    return paid if np.isfinite(paid) else None
