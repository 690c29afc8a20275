"""The queue of gold labels: draws what to label, stores the requests, asks the source, closes steps in their order.

The order of draws and closings is that of the journal. A draw is fixed by its `step_done` event, then written to a
request file together with the sampler's state, and only then is the source asked. So a monitor that was killed resumes
with the same draws, asks for no label twice, and a replay, which asks nobody, makes the same bets.
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

from tiltmeter.data.dataset_facts import from_text
from tiltmeter.data.records import RAGGED_COLUMNS, Fault, Floats, Ints, RolloutBatch
from tiltmeter.errors import ContractError, StoreError
from tiltmeter.gold import LATER, CompletionToLabel, GoldAnswer, GoldSource
from tiltmeter.gold.bet_settlement import SettledStep, settle_bets
from tiltmeter.gold.label_files import (
    Label,
    LabelRequest,
    draw_generator,
    labels_without_request,
    read_labels,
    read_request,
    stray_labels,
    to_label,
    write_label,
    write_request,
)
from tiltmeter.gold.people import PeopleSource, adjust_for_pairs, collect_labels
from tiltmeter.gold.sampler import Bet, Row, Sampler
from tiltmeter.rundir.atomic_write import sweep
from tiltmeter.rundir.journal import Event, readings_of
from tiltmeter.rundir.rank_summary import expand_ranges, rank_ranges
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.groups import standardise

MAX_BETS = 16_384  # bets a step: their values must fit one line of the journal
_COLUMNS = ("group", "reward", "advantage", "prompt", "completion", "facts", "length", "truncated")


@dataclass
class _OpenStep:
    """A step that was drawn and is not closed."""

    request: LabelRequest
    requests: dict[int, CompletionToLabel] | None = None  # by number, those without an answer; None: not looked up yet
    unlabelled: list[int] | None = None  # the same for people, without texts: days of open steps must fit in memory
    durable: bool = False  # its request file is there

    @property
    def key(self) -> tuple[int, int]:
        return self.request.attempt, self.request.step


@dataclass
class _JournalState:
    """State while the journal is read: the open steps, the last two draws, and the closings after each."""

    open_steps: dict[tuple[int, int], None] = field(default_factory=dict)
    last_draw_but_one: Event | None = None  # the last draw but one
    closings_between: list[Event | tuple[int, int]] = field(
        default_factory=list
    )  # closings, and rewinds as attempt and step
    last_draw: Event | None = None
    closings_since: list[Event | tuple[int, int]] = field(default_factory=list)


@dataclass
class LabelQueue:
    """One run's label queue. `live=False` asks nobody and writes nothing: it reads the stored requests and labels."""

    run: RunDirectory
    source: GoldSource
    share: float = 0.02
    steps: int | None = None  # optimiser steps that are planned
    live: bool = True
    configured_share: float = field(default=0.0, init=False)  # as configured; `share` may be raised later
    rollouts: int = field(default=0, init=False)
    bought: int = field(default=0, init=False)  # labels that came
    _sampler: Sampler = field(init=False, repr=False)
    _pending: deque[_OpenStep] = field(default_factory=deque, init=False, repr=False)
    _newest: RolloutBatch | None = field(default=None, init=False, repr=False)
    _strays_checked: bool = field(
        default=False, init=False, repr=False
    )  # for answers to steps that were never asked about
    _reported: set[str] = field(default_factory=set, init=False, repr=False)  # stray labels that were reported
    _journal_state: _JournalState | None = field(
        default_factory=lambda: _JournalState(), init=False, repr=False
    )  # None: the journal was read

    def __post_init__(self) -> None:
        self.configured_share = self.share
        self._sampler = Sampler(self.share, self.steps, recall=self._groups)
        self._id, self._began = str(self.run.identity().get("id", "")), time.time()
        if self.live:
            sweep(self.run.path / "gold" / "requests")

    @property
    def facts(self) -> dict[str, Any]:
        """The source and the share of rollouts to label. `judged`: the labels are a model's opinions."""
        source = {"name": self.source.name, "identity": self.source.identity, "judged": self.source.judged}
        return {**source, "share": self.configured_share, "steps": self.steps}

    @property
    def open_steps(self) -> list[tuple[int, int]]:
        """Attempt and step of what was drawn and is not closed, in the order drawn."""
        return (
            list(self._journal_state.open_steps)
            if self._journal_state is not None
            else [item.key for item in self._pending]
        )

    def draw_requests(self, batch: RolloutBatch, ranks: Iterable[int], *, boost: bool = False) -> dict[str, Any]:
        """Choose which rollouts of a step to label; returns the fields of its `step_done` event about that.

        `boost`: this step raised a warning, so more rollouts of later steps are labelled. It must not change what is
        asked about this one, whose own rollouts raised it.
        """
        attempt, step = batch.attempt, batch.step
        seed, rng = draw_generator(self._id, attempt, step)
        before, bets = self._sampler.state(), []
        try:
            advantage = _advantage(batch)
            if advantage is not None and batch.completion is not None and len(batch):
                chosen_bets = self._sampler.draw(attempt, step, advantage, batch.starts, _prompts(batch), rng)
                if len(chosen_bets) > MAX_BETS:
                    chosen_bets = [
                        chosen_bets[k] for k in np.sort(rng.choice(len(chosen_bets), MAX_BETS, replace=False))
                    ]
                bets = [_plain_bet(bet) for bet in chosen_bets]
            if boost:
                self._sampler.boost()
            state = json.loads(json.dumps(self._sampler.state(), allow_nan=False))
        except Exception:
            self._sampler.restore(before)
            raise
        self._sampler.restore(state)  # continue from what is written, so that a restart cannot differ
        source = {"name": self.source.name, "identity": self.source.identity}
        rewards = {row: _reward_of(batch, row) for bet in bets for row in (bet.up, bet.down)}
        request = LabelRequest(
            attempt, step, tuple((a, b) for a, b in rank_ranges(ranks)), seed, source, self.share, state, tuple(bets),
            tuple(rewards.values()), time.time(),
        )  # fmt: skip
        self._newest = replace(batch, **dict.fromkeys(RAGGED_COLUMNS))  # type: ignore[arg-type]
        self._pending.append(_OpenStep(request))
        self.rollouts += len(batch)
        return {"asked": len(request.rows), "requests": request.digest, "boost": boost}

    def set_share(self, share: float) -> None:
        """Set the share of rollouts to label. Requests that were drawn stay; labels saved under a lower share may be
        used now, and a bet's size never depends on the share."""
        self.share = self._sampler.share = share

    def rewind(self, attempt: int, step: int) -> None:
        if self._journal_state is not None:
            self._journal_state.closings_since.append((attempt, step))
        else:
            self._sampler.rewind(attempt, step)

    def poll(self) -> Iterator[tuple[int, int] | Fault]:
        """Ask for the open labels; then yield each step whose labels are complete, oldest first, to be closed at once.

        A later step waits for an earlier one, because bets are placed in the order in which they were drawn. Stray
        answers are reported as faults.
        """
        if not self.live:
            return
        if not self._strays_checked:
            self._strays_checked = True
            for attempt, step, name in labels_without_request(self.run):
                yield from self._report_once(attempt, step, name)
        for item in self._pending:
            self._write_request(item)
            if not isinstance(self.source, PeopleSource):
                self._ask(item)
        while self._pending and self._is_complete(self._pending[0]):
            request = self._pending[0].request
            yield from self._stray_faults(request)
            yield request.attempt, request.step

    def _write_request(self, item: _OpenStep) -> None:
        """Make a step's requests durable. Its `step_done` event is on disk already; nobody was asked yet."""
        if item.durable:
            return
        try:
            write_request(self.run, item.request)
        except FileExistsError:  # its event was lost to damage, and it is measured again: what was asked stands
            item.request = read_request(self.run, *item.key) or item.request
        item.durable = True

    def _ask(self, item: _OpenStep) -> None:
        """Ask for what has no answer yet."""
        if item.requests == {}:
            return
        by_number = read_labels(self.run, item.request)
        if item.requests is None:
            missing = [number for number, label in enumerate(by_number) if label is None]
            item.requests = self._requests(item.request, missing) if missing else {}
        item.requests = {number: request for number, request in item.requests.items() if by_number[number] is None}
        if not item.requests:
            return
        step_request, timed_out = item.request, time.time() > item.request.time + self.source.timeout
        for number, reply in zip(list(item.requests), self._ask_source(list(item.requests.values())), strict=True):
            if reply is LATER and not timed_out:
                continue
            label = Label(None, f"no answer within {self.source.timeout:g} s") if reply is LATER else to_label(reply)
            write_label(self.run, step_request, number, label, self.source.name)
            del item.requests[number]

    def _is_complete(self, item: _OpenStep) -> bool:
        """Whether a step has all its labels. Raters' answers are read for the oldest step only: hundreds may wait."""
        if not isinstance(self.source, PeopleSource):
            return item.requests == {}
        if item.unlabelled is None:
            missing = [number for number, label in enumerate(read_labels(self.run, item.request)) if label is None]
            item.unlabelled = list(self._requests(item.request, missing))
        item.unlabelled = collect_labels(self.run, item.request, item.unlabelled, self.source, self._began)
        return not item.unlabelled

    def _ask_source(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        try:
            answers = list(self.source.label(requests))
            if len(answers) != len(requests):
                raise ContractError(f"{self.source.name} gave {len(answers)} answers to {len(requests)} requests")
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # a source that fails makes missing labels, with the reason
            return [error] * len(requests)
        return answers

    def _requests(self, request: LabelRequest, numbers: Iterable[int]) -> dict[int, CompletionToLabel]:
        """The requests for these rows. A row without text cannot be labelled: its label is missing at once."""
        purposes = {row: bet.purpose for bet in request.bets for row in (bet.up, bet.down)}
        requests: dict[int, CompletionToLabel] = {}
        batches: dict[tuple[int, int], RolloutBatch | str] = {}
        for number in numbers:
            attempt, step, row = request.rows[number]
            if (attempt, step) not in batches:
                batches[attempt, step] = self._batch(attempt, step)
            batch = batches[attempt, step]
            text = None
            if isinstance(batch, RolloutBatch) and batch.completion is not None and row < len(batch):
                text = batch.completion[row]
            if text is None or isinstance(batch, str):
                why = batch if isinstance(batch, str) else "the completion's text was not stored"
                write_label(self.run, request, number, Label(None, why), self.source.name)
                continue
            prompt = None if batch.prompt is None else batch.prompt[row]
            key, purpose = request.label_id(number), purposes[attempt, step, row]
            requests[number] = CompletionToLabel(
                key, attempt, step, row, purpose, prompt, text, _row_columns(batch, row)
            )
        return requests

    def _batch(self, attempt: int, step: int) -> RolloutBatch | str:
        """A step's rollouts, with the row numbers of its draw; or why they cannot be read."""
        newest = self._newest
        if newest is not None and (newest.attempt, newest.step) == (attempt, step):
            return newest
        try:
            request = read_request(self.run, attempt, step)
            return (
                "its requests are gone"
                if request is None
                else read_step(self.run, attempt, step, request.ranks, _COLUMNS)
            )
        except StoreError as error:
            return f"the rollout cannot be read: {error}"[:200]

    def _groups(self, attempt: int, step: int) -> tuple[Ints, list[str]] | None:
        """A stored step's groups, as they were when it was drawn: where each begins, and its prompt."""
        batch = self._batch(attempt, step)
        return None if isinstance(batch, str) else (batch.starts, _prompts(batch))

    def _stray_faults(self, request: LabelRequest) -> Iterator[Fault]:
        for name in stray_labels(self.run, request):
            yield from self._report_once(request.attempt, request.step, name)

    def _report_once(self, attempt: int, step: int, name: str) -> Iterator[Fault]:
        if name not in self._reported:
            self._reported.add(name)
            yield Fault(attempt, step, "label", f"{name}: an answer without a request before it; not used")

    def close(self, attempt: int, step: int) -> SettledStep:
        """Settle a step's bets from its files, and update the sampler. Raises `StoreError` if a label is gone."""
        while not self.live and self._pending and self._pending[0].key != (attempt, step):
            self._pending.popleft()  # replayed with gold, and watched without it at that step
        if not self._pending or self._pending[0].key != (attempt, step):
            raise StoreError(f"step {step} of attempt {attempt}: labels were closed that were not asked for")
        request = self._pending.popleft().request
        if not self._pending:
            self._newest = None
        if not self.live:  # the choice on disk is what was asked, even if this version would have chosen otherwise
            request = read_request(self.run, attempt, step) or request
        step_labels = read_labels(self.run, request)
        if None in step_labels:
            raise StoreError(f"step {step} of attempt {attempt}: label {step_labels.index(None)} is gone")
        step_result = adjust_for_pairs(
            request, settle_bets(request, [label for label in step_labels if label is not None])
        )
        self.bought += step_result.facts["answered"]
        sampler_error = self._update_sampler(step_result.slopes, step_result.duels)
        facts = {**step_result.facts, "labels": self.bought, "rollouts": self.rollouts}
        facts["share"] = self.bought / self.rollouts if self.rollouts else 0.0
        facts["why"] = "; ".join(filter(None, (step_result.facts["why"], sampler_error)))
        return replace(step_result, facts=facts)

    def _update_sampler(self, slopes: Sequence[float], duels: Sequence[float]) -> str:
        """Give the sampler the values of a step's bets; returns the reason if the sampler failed."""
        before = self._sampler.state()
        try:
            self._sampler.close(slopes, duels)
        except Exception as error:  # noqa: BLE001  # the bets stand, whatever the sampler learns from them
            self._sampler.restore(before)
            return f"the sampler failed: {type(error).__name__}: {str(error)[:200]}"
        return ""

    def apply_event(self, event: Event) -> None:
        """Apply one event of the journal: a step that was drawn or closed, or a stray label that was reported."""
        state = self._journal_state
        assert state is not None
        key = (event.attempt, event.step)
        if event.kind == "step_done" and "requests" in event.data:
            self.rollouts += event.data["rows"]
            state.open_steps[key] = None
            state.last_draw_but_one, state.closings_between, state.last_draw, state.closings_since = (
                state.last_draw,
                state.closings_since,
                event,
                [],
            )
        elif event.kind == "labels_closed":
            state.open_steps.pop(key, None)
            self.bought = event.data["labels"]
            state.closings_since.append(event)
        elif event.kind == "fault" and event.data["part"] == "label":
            self._reported.add(event.data["error"].split(":")[0])

    def resume(self) -> None:
        """Call after the journal was read: restores the open steps, and the sampler as it was after the last event."""
        state, self._journal_state = self._journal_state, None
        assert state is not None
        last = state.last_draw
        key = None if last is None else (last.attempt, last.step)
        if last is not None and key in state.open_steps and read_request(self.run, *key) is None:
            # Killed between the event and the request file: the same draw again, from the same past.
            state.open_steps.pop(key)
            self._restore_sampler(state.last_draw_but_one, state.closings_between)
            self.rollouts -= last.data["rows"]
            batch = read_step(self.run, last.attempt, last.step, last.data["ranks"], _COLUMNS)
            self.draw_requests(batch, expand_ranges(last.data["ranks"]), boost=last.data["boost"])
            self._replay_closings(state.closings_since)
        else:
            self._restore_sampler(last, state.closings_since)
        self._pending.extendleft(
            _OpenStep(self._require_request(key), durable=True) for key in reversed(state.open_steps)
        )

    def _restore_sampler(self, draw: Event | None, since: Iterable[Event | tuple[int, int]]) -> None:
        if draw is not None:
            self._sampler.restore(self._require_request((draw.attempt, draw.step)).state)
        self._replay_closings(since)

    def _replay_closings(self, since: Iterable[Event | tuple[int, int]]) -> None:
        for item in since:
            if isinstance(item, tuple):
                self._sampler.rewind(*item)
                continue
            us = {reading.name: reading.values for reading in readings_of(item)}
            slopes, duels = us.get("gold.slope", ()), us.get("gold.duel", ())
            self._update_sampler(slopes, duels)

    def _require_request(self, key: tuple[int, int]) -> LabelRequest:
        request = read_request(self.run, *key)
        if request is None:
            raise StoreError(
                f"gold/requests has nothing about step {key[1]} of attempt {key[0]}, which was asked about: "
                "restore the folder from a copy, or watch without --gold"
            )
        return request


def _advantage(batch: RolloutBatch) -> Floats | None:
    """What the optimiser weighs each answer's gradient with: the trainer's own, else the reward as GRPO scales it."""
    if batch.advantage is not None and np.isfinite(batch.advantage).any():
        return batch.advantage
    return None if batch.reward is None else standardise(batch.reward, batch.starts)[0]


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


def _plain_bet(bet: Bet) -> Bet:
    """A bet as JSON holds it."""
    if bet.purpose not in ("slope", "duel") or not 0.0 <= bet.weight <= 1.0:
        raise ContractError(f"{bet} is no bet: its purpose is slope or duel, its weight lies in [0, 1]")
    return Bet(bet.purpose, _plain_row(bet.up), _plain_row(bet.down), float(bet.weight), float(bet.chance))


def _plain_row(row: Row) -> Row:
    return int(row[0]), int(row[1]), int(row[2])


def _row_columns(batch: RolloutBatch, row: int) -> dict[str, object]:
    """What else is known of a row: the dataset's facts, and what the trainer measured under names of its own."""
    try:
        columns: dict[str, object] = {} if batch.facts is None else {**from_text(batch.facts[row])}
    except ValueError:  # not an object: whoever needs a fact of this row says that it has none
        columns = {}
    measured = (name for name in ("length", "truncated") if batch.column(name) is not None)
    return columns | {name: getattr(batch, name)[row].item() for name in measured}


def _reward_of(batch: RolloutBatch, row: Row) -> float | None:
    if row[:2] != (batch.attempt, batch.step) or batch.reward is None:
        return None
    reward = float(batch.reward[row[2]])
    return reward if np.isfinite(reward) else None
