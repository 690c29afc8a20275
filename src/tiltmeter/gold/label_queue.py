"""The queue of gold labels: draws what to label, stores the requests, asks the source, closes steps in their order.

The order of draws and closings is that of the journal. A draw is fixed by its `step_done` event, then written to a
request file together with the sampler's state, and only then is the source asked. So a monitor that was killed resumes
with the same draws, asks for no label twice, and a replay, which asks nobody, makes the same bets.

A thread asks the source (`label_worker.py`), and whoever measures a live run waits for it a second at most. Labels that
come later are folded in when they come. While too many steps are open, no labels of further steps are requested.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import to_builtins

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import with_gold
from tiltmeter.data.records import RAGGED_COLUMNS, SHARED_STEP, Fault, Floats, Ints, Reading, RolloutBatch
from tiltmeter.data.slices import row_slices
from tiltmeter.errors import ContractError, StoreError
from tiltmeter.gold import LATER, CompletionToLabel, GoldSource
from tiltmeter.gold.bet_settlement import SettledStep, settle_bets, with_source
from tiltmeter.gold.closer_looks import CloserLooks, count_labels
from tiltmeter.gold.corrected_judge import CorrectedJudge, PairChoice, correct_step
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_cost import (
    GOLD_SHARE,
    GRADED_A_STEP,
    LABELS_A_STEP,
    STEP_SECONDS,
    TIMED,
    LabelCost,
    needed_share,
    read_cost,
    time_source,
    write_cost,
)
from tiltmeter.gold.label_files import (
    ONSET,
    PROBES,
    Label,
    LabelRequest,
    asks_people,
    draw_generator,
    labels_without_request,
    read_labels,
    read_request,
    stray_labels,
    to_label,
    write_column,
    write_label,
    write_request,
)
from tiltmeter.gold.label_worker import LabelWorker, SourceReply, ask_source
from tiltmeter.gold.level_labels import LevelLabels, gives_same_label_again, level_bets
from tiltmeter.gold.level_sampler import LevelDraw, split_share
from tiltmeter.gold.onset_labels import StoredStep, draw_rows, estimate_onset, request_texts
from tiltmeter.gold.people import (
    PeopleSource,
    adjust_for_pairs,
    collect_labels,
    labelled_by,
    people_numbers,
    with_groups,
)
from tiltmeter.gold.probe_labels import SourceProbes, probe_facts, probe_requests
from tiltmeter.gold.rater_groups import groups_of
from tiltmeter.gold.regrade.source import RegradeSource, with_directory
from tiltmeter.gold.row_features import prompt_keys
from tiltmeter.gold.row_request import REQUEST_COLUMNS, row_request
from tiltmeter.gold.sampler import Bet, Row, Sampler
from tiltmeter.rundir.atomic_write import sweep
from tiltmeter.rundir.payloads import OnsetEstimated, StepDone
from tiltmeter.rundir.rank_summary import expand_ranges, rank_ranges
from tiltmeter.rundir.step_files import count_source, read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.groups import standardise

MAX_BETS = 16_384  # bets a step: their values must fit one line of the journal
MAX_CALLS = 2  # that the source is given at a time: their texts are in memory
MAX_OPEN_STEPS = 8  # of a live run; while more wait for labels, none are requested: gold stays near the present


@dataclass
class _OpenStep:
    """A step that was drawn and is not closed."""

    request: LabelRequest
    #: By number, those without an answer, or a label where none can come; None: not looked up yet.
    requests: dict[int, CompletionToLabel | Label] | None = None
    unlabelled: list[int] | None = None  # the same for people, without texts: days of open steps must fit in memory
    durable: bool = False  # its request file is there
    call: Future[SourceReply] | None = None  # to the source, that is not answered yet
    probes: _OpenStep | None = None  # what is asked about the source itself, once the step's labels are there

    @property
    def key(self) -> tuple[int, int]:
        return self.request.attempt, self.request.step


@dataclass(frozen=True)
class _RestoredDraw:
    """A draw that the journal has, and the changes to the sampler since the draw before."""

    key: tuple[int, int]
    done: StepDone
    changes_before: list[Callable[[], str]]


@dataclass
class LabelQueue:
    """One run's label queue. `live=False` asks nobody and writes nothing: it reads the stored requests and labels."""

    run: RunDirectory
    source: GoldSource
    share: float | None = None  # of rollouts that labels are asked for; 1: all; None: by what a label costs
    steps: int | None = None  # optimiser steps that are planned
    live: bool = True
    in_hurry: bool = False  # a trainer is at work: measuring waits for labels a second at most; else until they come
    configured_share: float | None = field(default=None, init=False)  # as configured; `share` may be raised later
    _choice: LabelCost | None = field(default=None, init=False, repr=False)  # of the share, until it is reported
    rollouts: int = field(default=0, init=False)
    bought: int = field(default=0, init=False)  # labels that came
    _sampler: Sampler = field(init=False, repr=False)
    _level: LevelLabels = field(init=False, repr=False)
    _looks: CloserLooks = field(default_factory=CloserLooks, init=False, repr=False)
    _probes: SourceProbes = field(init=False, repr=False)
    _pairs: PairChoice | None = field(init=False, repr=False)  # that people compare beside a judge
    _past: _OpenStep | None = field(default=None, init=False, repr=False)  # labels of the past that are open
    _pending: deque[_OpenStep] = field(default_factory=deque, init=False, repr=False)
    _newest: RolloutBatch | None = field(default=None, init=False, repr=False)
    reported: set[str] = field(default_factory=set, init=False, repr=False)  # names of stray labels
    _strays_checked: bool = field(default=False, init=False, repr=False)  # answers about what was never asked
    _restored: dict[tuple[int, int], None] = field(default_factory=dict, init=False, repr=False)  # open, by the journal
    _drawn: deque[_RestoredDraw] = field(default_factory=lambda: deque(maxlen=2), init=False, repr=False)
    _changes: list[Callable[[], str]] = field(default_factory=list, init=False, repr=False)  # the sampler has not seen
    _worker: LabelWorker = field(default_factory=LabelWorker, init=False, repr=False)
    _calls: list[Future[SourceReply]] = field(default_factory=list, init=False, repr=False)  # that are not answered
    _is_started: bool = field(default=False, init=False, repr=False)  # the process of the source, if it has one
    _source_is_quick: bool = field(default=True, init=False, repr=False)  # its last call took a second at most

    def __post_init__(self) -> None:
        self.configured_share, self.source = self.share, with_directory(self.source, self.run.path)
        self._sampler = Sampler(self.share or GOLD_SHARE, self.steps, recall=self._groups)
        self._level = LevelLabels(self.run, self.steps)
        self._pairs = PairChoice.of_source(self.source.identity)
        self._id, self._began = str(self.run.identity().get("id", "")), time.time()
        self._probes = SourceProbes(self.run, self._id, self.source)
        if self.live:
            sweep(self.run.path / "gold" / "requests")

    @property
    def facts(self) -> dict[str, Any]:
        """The source and the share of rollouts to label. `judged`: the labels are a model's opinions."""
        source = {**self._source_facts, "judged": self.source.judged}
        return {**source, "share": self.configured_share, "steps": self.steps}

    @property
    def _source_facts(self) -> dict[str, str]:
        return {"name": self.source.name, "identity": self.source.identity}

    @property
    def open_steps(self) -> list[tuple[int, int]]:
        """Attempt and step of what was drawn and is not closed, in the order drawn."""
        return [*self._restored, *(item.key for item in self._pending)]

    def draw_requests(
        self,
        batch: RolloutBatch,
        ranks: Iterable[int],
        *,
        boost: bool = False,
        behind: bool | None = None,
        behaviours: Mapping[str, Sequence[Sequence[int]]] = MappingProxyType({}),
        first_steps: Baseline | None = None,
    ) -> dict[str, Any]:
        """Choose which rollouts of a step to label; returns the fields of its `step_done` event about that.

        `boost`: this step raised a warning, so more rollouts of later steps are labelled. It must not change what is
        asked about this one, whose own rollouts raised it. `behind`: whether nothing is asked because the source is
        busy with earlier steps, where that is on record. It depends on earlier steps alone, so it selects nothing by
        its outcome. `behaviours`: of those that are new and well paid, rows with it and rows without it.
        `first_steps`: by whose facts bets are divided into slices.
        """
        attempt, step = batch.attempt, batch.step
        seed, rng = draw_generator(self._id, attempt, step)
        self._choose_share(batch)
        assert self.share is not None
        self._update_sampler()
        behind = self._is_behind(attempt, step) if behind is None else behind
        can_ask = batch.completion is not None and not behind
        whole = len(batch) if self.labels_whole_steps and can_ask and batch.reward is not None else 0
        level_share, slices = self._divide_share(attempt, step), row_slices(batch, first_steps)
        before, level_before, bets = self._sampler.state(), self._level.state(), []
        looks_before = self._looks.state()
        try:
            advantage = _advantage(batch)
            can_label = can_ask and len(batch) > 0 and not self.labels_whole_steps
            if advantage is not None and can_label:
                chosen_bets = self._sampler.draw(attempt, step, advantage, batch.starts, prompt_keys(batch), rng)
                if len(chosen_bets) > MAX_BETS:
                    chosen_bets = [
                        chosen_bets[k] for k in np.sort(rng.choice(len(chosen_bets), MAX_BETS, replace=False))
                    ]
                bets = [_plain_bet(bet, "" if slices is None else slices[bet.up[2]]) for bet in chosen_bets]
            if boost:
                self._sampler.boost()
            state = self._sampler.state()
            if level_share > 0.0:
                draw = LevelDraw()
                if batch.reward is not None and can_label:
                    draw = self._level.draw(level_share, batch, prompt_keys(batch), rng)
                bets += level_bets(draw, attempt, step, slices)
                state["level"] = {"sampler": self._level.state(), "draw": asdict(draw)}
            if self._has_looks(attempt, step):
                of_step = {
                    row for bet in bets for at in (bet.up, bet.down) if at[:2] == (attempt, step) for row in at[2:]
                }
                free = advantage if can_label else None
                looks = self._looks.draw(batch, self.share, free, behaviours, of_step, rng)
                if looks:
                    self._sampler.spend(count_labels(looks))
                    bets += looks
                    state |= self._sampler.state()
                state["looks"] = self._looks.state()
            if self._pairs is not None:
                state["people"] = to_builtins(self._pairs.draw(bets, rng))
            if groups := self._rater_groups(attempt, step):
                state["groups"] = groups
            if behind:
                state["behind"] = True
            state = json.loads(json.dumps(state, allow_nan=False))
        except Exception:
            self._sampler.restore(before)
            self._level.restore(level_before)
            self._looks.restore(looks_before)
            raise
        source = self._source_facts
        rows = [(attempt, step, row) for row in range(whole)] or [row for bet in bets for row in (bet.up, bet.down)]
        rewards = {row: _reward_of(batch, row) for row in rows}
        request = LabelRequest(
            attempt, step, tuple((a, b) for a, b in rank_ranges(ranks)), seed, source, self.share, state, tuple(bets),
            tuple(rewards.values()), time.time(), whole,
        )  # fmt: skip
        if not self.live:
            request = self._as_stored(request)
        self._restore_samplers(request.state)  # continue from what is written, so that a restart cannot differ
        self._newest = replace(batch, **dict.fromkeys(RAGGED_COLUMNS))  # type: ignore[arg-type]
        self._pending.append(_OpenStep(request, None if request.rows else {}))
        self.rollouts += len(batch)
        fields = {"asked": len(request.rows), "requests": request.digest, "boost": boost}
        fields |= {"behaviours": dict(behaviours)} if behaviours else {}
        return {**fields, "behind": True} if behind else fields

    def _is_behind(self, attempt: int, step: int) -> bool:
        """Whether so many steps wait for labels that no more are requested.

        What is on record stands: for a replay, and where a step's event was lost to damage and it is measured again.
        """
        stored = read_request(self.run, attempt, step)
        if stored is not None or not self.in_hurry or isinstance(self.source, PeopleSource):
            return stored is not None and bool(stored.state.get("behind"))
        # Beside a judge people may take a day: only what the judge has not answered counts.
        waiting = (item for item in self._pending if self._pairs is None or item.requests != {})
        return sum(bool(item.request.rows) for item in waiting) >= MAX_OPEN_STEPS

    def _rater_groups(self, attempt: int, step: int) -> dict[str, str]:
        """The group of each rater, on record before anybody is asked. A replay does what was done."""
        stored = None if self.live else read_request(self.run, attempt, step)
        if stored is not None:
            return groups_of(stored)
        return dict(self.source.groups) if isinstance(self.source, PeopleSource) else {}

    def _as_stored(self, request: LabelRequest) -> LabelRequest:
        """The request on disk, if it makes the same choice: another processor may compute other last digits."""
        stored = read_request(self.run, request.attempt, request.step)
        return stored if stored is not None and stored.is_nearly(request) else request

    def _divide_share(self, attempt: int, step: int) -> float:
        """Give the slope its part of the share; returns what is left for the level of gold.

        The past can be labelled later only by who gives the same label again. A replay does what was done: a run that
        was watched before the level had labels of its own has none.
        """
        assert self.share is not None
        parts = split_share(self.share) if gives_same_label_again(self.source.identity) else (self.share, 0.0)
        if not self.live:
            request = read_request(self.run, attempt, step)
            if request is not None and "level" not in request.state:
                parts = (self.share, 0.0)
        self._sampler.share = parts[0]
        return parts[1]

    def _has_looks(self, attempt: int, step: int) -> bool:
        """Whether labels may be asked for closer looks. People compare pairs; and a replay does what was done."""
        if isinstance(self.source, PeopleSource) or asks_people(self._source_facts):
            return False
        request = None if self.live else read_request(self.run, attempt, step)
        return request is None or "looks" in request.state

    def _restore_samplers(self, state: Mapping[str, Any]) -> None:
        self._sampler.restore(state)
        if "looks" in state:
            self._looks.restore(state["looks"])
        if self._pairs is not None:
            self._pairs.restore(state)
        if "level" in state:
            self._level.restore(state["level"]["sampler"])

    @property
    def labels_whole_steps(self) -> bool:
        """Whether every rollout is labelled. People compare pairs, so they are never asked about all."""
        return self.share is not None and self.share >= 1.0 and not asks_people(self._source_facts)

    def _choose_share(self, batch: RolloutBatch) -> None:
        """At the first step: what was chosen before, else by what a label costs or, of judges and people, by need."""
        if self.share is not None:
            return
        cost = read_cost(self.run, self.source)
        if cost is None and self.live and len(batch) and not isinstance(self.source, FunctionSource):
            labels = GRADED_A_STEP if isinstance(self.source, RegradeSource) else LABELS_A_STEP
            cost = LabelCost(needed_share(len(batch), labels), 0.0, self.source.name, by_need=True)
            write_cost(self.run, self.source, cost)
        elif cost is None and self.live and batch.completion is not None and len(batch):
            rows = np.linspace(0, len(batch) - 1, min(TIMED, len(batch))).astype(int)
            requests = [row_request(batch, int(row), f"cost-{row}", "cost") for row in rows]
            to_time = [one for one in requests if one is not None]
            scores = [] if batch.reward is None else [float(batch.reward[row]) for row in rows]
            cost = time_source(
                self._worker, self.source, to_time, len(batch), in_hurry=self.in_hurry,
                rewards=scores if len(to_time) == len(rows) else (),
            )  # fmt: skip
            write_cost(self.run, self.source, cost)
        self._choice = cost
        self.share = GOLD_SHARE if cost is None else cost.share

    def take_choice(self) -> LabelCost | None:
        """The choice of the share, once."""
        choice, self._choice = self._choice, None
        return choice

    def set_share(self, share: float) -> None:
        """Set the share of rollouts to label. Requests that were drawn stay; labels saved under a lower share may be
        used now, and a bet's size never depends on the share."""
        self.share = share

    def rewind(self, attempt: int, step: int) -> None:
        self._changes.append(lambda: self._rewind_sampler(attempt, step))

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
        while self._pending and self._is_complete(self._pending[0]) and self._is_probed(self._pending[0]):
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
            item.requests = None
        item.durable = True

    def _ask(self, item: _OpenStep) -> None:
        """Ask for what has no answer yet, and store the answers that came."""
        if item.requests == {}:
            return
        if item.call is None:
            self._calls = [call for call in self._calls if not call.done()]
            if len(self._calls) >= MAX_CALLS:
                return
            by_number = read_labels(self.run, item.request)
            if item.requests is None:
                missing = [number for number, label in enumerate(by_number) if label is None]
                item.requests = self._requests(item.request, missing) if missing else {}
            item.requests = {number: request for number, request in item.requests.items() if by_number[number] is None}
            if not item.requests:
                return
            if isinstance(self.source, FunctionSource) and not self._is_started:
                # Loading its file takes no longer than it took this process, and is not what makes a source slow.
                wait([self._worker.submit(self.source.start)])
            self._is_started = True
            to_ask = [one for one in item.requests.values() if isinstance(one, CompletionToLabel)]
            item.call = self._worker.submit(partial(ask_source, self.source, to_ask))
            if not self.in_hurry:
                wait([item.call])
            elif self._source_is_quick and not self._calls:
                wait([item.call], STEP_SECONDS)
                self._source_is_quick = item.call.done()
            self._calls.append(item.call)
        if item.call.done():
            self._store_answers(item, item.call.result())

    def _store_answers(self, item: _OpenStep, reply: SourceReply) -> None:
        assert item.requests is not None
        item.call, self._source_is_quick = None, reply.seconds <= STEP_SECONDS
        labels = self._settled_labels(item.request, item.requests, reply)
        if item.request.has_column and len(labels) == len(item.request.rows):
            write_column(self.run, item.request, list(labels.values()), self.source.name)
            item.requests = {}
        elif not item.request.whole:
            for number, label in labels.items():
                write_label(self.run, item.request, number, label, self.source.name)
                del item.requests[number]

    def _is_complete(self, item: _OpenStep) -> bool:
        """Whether a step has all its labels. Raters' answers are read for the oldest step only: hundreds may wait."""
        people = self.source.people if isinstance(self.source, CorrectedJudge) else self.source
        if not isinstance(self.source, PeopleSource) and item.requests != {}:
            return False
        if not isinstance(people, PeopleSource):
            return True
        by = labelled_by(item.request)
        if item.unlabelled is None:
            labels = read_labels(self.run, item.request, by)
            item.unlabelled = []
            missing = [number for number in people_numbers(item.request) if labels[number] is None]
            for number, one in self._requests(item.request, missing).items():
                if isinstance(one, Label):
                    write_label(self.run, item.request, number, one, people.name, by)
                else:
                    item.unlabelled.append(number)
        item.unlabelled = collect_labels(self.run, item.request, item.unlabelled, people, self._began)
        return not item.unlabelled

    def _is_probed(self, item: _OpenStep) -> bool:
        """Whether what is asked about the source itself beside this step's labels is answered."""
        if item.probes is None:
            request = self._probes.request_for(item.request, self._batch)
            if request is None:
                return True
            item.probes = _OpenStep(request, durable=True)
        self._ask(item.probes)
        return self._is_complete(item.probes)

    def _settled_labels(
        self, request: LabelRequest, by_number: Mapping[int, CompletionToLabel | Label], reply: SourceReply
    ) -> dict[int, Label]:
        """The labels that are settled now, by number. A row that cannot be asked about has its label already."""
        labels = {number: item for number, item in by_number.items() if isinstance(item, Label)}
        numbers = [number for number, item in by_number.items() if isinstance(item, CompletionToLabel)]
        timed_out = time.time() > request.time + self.source.timeout
        for number, answer in zip(numbers, reply.answers, strict=True):
            if answer is not LATER:
                labels[number] = to_label(answer)
            elif timed_out:
                labels[number] = Label(None, f"no answer within {self.source.timeout:g} s")
        return dict(sorted(labels.items()))

    def _requests(self, request: LabelRequest, numbers: Iterable[int]) -> dict[int, CompletionToLabel | Label]:
        """The requests for these rows. A row without text cannot be labelled: its label is missing at once."""
        if request.part == PROBES:
            return probe_requests(self.run, request, numbers)
        purposes = {row: bet.purpose for bet in request.bets for row in (bet.up, bet.down)}
        requests: dict[int, CompletionToLabel | Label] = {}
        batches: dict[tuple[int, int], RolloutBatch | str] = {}
        if ONSET in purposes.values():
            batches = {row[:2]: batch for row, batch in request_texts(self.run, request).items()}
        for number in numbers:
            attempt, step, row = request.rows[number]
            if (attempt, step) not in batches:
                batches[attempt, step] = self._batch(attempt, step)
            batch, purpose = batches[attempt, step], purposes.get((attempt, step, row), "all")
            if isinstance(batch, str):
                requests[number] = Label(None, batch)
                continue
            to_ask = row_request(batch, row, request.label_id(number), purpose)
            requests[number] = to_ask or Label(None, "the completion's text was not stored")
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
                else read_step(self.run, attempt, step, request.ranks, REQUEST_COLUMNS)
            )
        except StoreError as error:
            return f"the rollout cannot be read: {error}"[:200]

    def _groups(self, attempt: int, step: int) -> tuple[Ints, list[str]] | None:
        """A stored step's groups, as they were when it was drawn: where each begins, and its prompt."""
        batch = self._batch(attempt, step)
        return None if isinstance(batch, str) else (batch.starts, prompt_keys(batch))

    def _stray_faults(self, request: LabelRequest) -> Iterator[Fault]:
        for name in stray_labels(self.run, request):
            yield from self._report_once(request.attempt, request.step, name)

    def _report_once(self, attempt: int, step: int, name: str) -> Iterator[Fault]:
        if name not in self.reported:
            yield Fault(attempt, step, "label", f"{name}: an answer without a request before it; not used")

    def ask_past(self, attempt: int, step: int, stored: Callable[[int], Sequence[StoredStep]]) -> bool:
        """After an alarm at this step: ask for labels of the past; whether they are complete.

        Nobody is asked where every rollout is labelled: its past is known.
        """
        if not self.live or self.labels_whole_steps:
            return False
        if self._past is None or self._past.key != (attempt, step):
            request = read_request(self.run, attempt, step, ONSET)
            if request is None:
                request = draw_rows(self._id, attempt, step, stored(step), self.source)
                if request is None:
                    return False
                write_request(self.run, request)
            self._past = _OpenStep(request, durable=True)
        if not isinstance(self.source, PeopleSource):
            self._ask(self._past)
        return self._is_complete(self._past)

    def leave_past(self) -> None:
        """The alarm is resolved: nobody needs to know when its loss began."""
        self._past = None

    @property
    def open_past(self) -> bool:
        """Whether labels of the past may still come soon. People are not waited for: the next monitor goes on."""
        return self._past is not None and not isinstance(self.source, PeopleSource)

    def settle_past(self, attempt: int, step: int) -> OnsetEstimated:
        """What the labels of the past say. Raises `StoreError` if the request or a label is gone."""
        request = read_request(self.run, attempt, step, ONSET)
        if request is None:
            raise StoreError(f"gold/requests has nothing about the past of step {step} of attempt {attempt}")
        labels = read_labels(self.run, request)
        if None in labels:
            raise StoreError(f"the past of step {step} of attempt {attempt}: label {labels.index(None)} is gone")
        self._past = None
        return estimate_onset(self.run, request, [label for label in labels if label is not None])

    def settle(self, attempt: int, step: int) -> SettledStep:
        """A step's bets, from its request and labels. Raises `StoreError` if a label is gone."""
        settled = self._settle_labels(attempt, step)
        return replace(settled, facts={**settled.facts, **probe_facts(self.run, attempt, step)})

    def _settle_labels(self, attempt: int, step: int) -> SettledStep:
        request = next((item.request for item in self._pending if item.key == (attempt, step)), None)
        if request is None or (self.live and self._pending[0].request is not request):
            raise StoreError(f"step {step} of attempt {attempt}: labels were closed that were not asked for")
        if not self.live:  # the choice on disk is what was asked, even if this version would have chosen otherwise
            request = read_request(self.run, attempt, step) or request
        labels = self._require_labels(request, range(len(request.rows)), "")
        settled = settle_bets(request, list(labels.values()))
        if self._probes.changed:  # as far as earlier steps say: a source with moods may move a step's labels together
            settled = replace(settled, against=SHARED_STEP)
        if not request.whole:
            people = self._people_labels(request)
            settled = with_groups(self.run, request, adjust_for_pairs(request, settled))
            return correct_step(request, settled, list(labels.values()), people)
        batch = self._batch(attempt, step)
        if isinstance(batch, str):
            return settled
        batch = with_gold(batch, settled.gold)
        return replace(settled, batch=batch, facts=with_source(settled.facts, count_source(batch)))

    def _people_labels(self, request: LabelRequest) -> dict[int, Label]:
        """By number, the labels that people gave beside a judge."""
        by = labelled_by(request)
        beside = by and asks_people(request.source)
        return self._require_labels(request, people_numbers(request), by) if beside else {}

    def _require_labels(self, request: LabelRequest, numbers: Iterable[int], by: str) -> dict[int, Label]:
        labels, required = read_labels(self.run, request, by), {}
        for number in numbers:
            label = labels[number]
            if label is None:
                raise StoreError(f"step {request.step} of attempt {request.attempt}: label {number} is gone")
            required[number] = label
        return required

    def close(self, attempt: int, step: int, readings: Iterable[Reading], facts: Mapping[str, Any]) -> dict[str, Any]:
        """A step's labels are complete: it is no longer open. Returns the facts, with the labels bought so far."""
        self._restored.pop((attempt, step), None)
        while self._pending:  # others are skipped where a replay has gold, and the monitor had none at that step
            if self._pending.popleft().key == (attempt, step):
                break
        if not self._pending:
            self._newest = None
        self.bought += facts["answered"]
        self._probes.count(attempt, step, facts)
        values = {reading.name: reading.values for reading in readings}
        slopes, duels = values.get("gold.slope", ()), values.get("gold.duel", ())
        self._changes.append(lambda: self._close_bets(attempt, step, slopes, duels))
        sampler_error = "" if self._drawn else self._update_sampler()
        share = self.bought / self.rollouts if self.rollouts else 0.0
        why = "; ".join(filter(None, (facts["why"], sampler_error)))
        return {**facts, "labels": self.bought, "rollouts": self.rollouts, "share": share, "why": why}

    def restore_draw(self, attempt: int, step: int, done: StepDone) -> None:
        """After a restart: this step was drawn."""
        self._restored[attempt, step] = None
        self.rollouts += done.rows
        self._drawn.append(_RestoredDraw((attempt, step), done, self._changes))
        self._changes = []

    def resume(self) -> None:
        """After a restart, once the journal was read: loads the open steps, and the sampler's state."""
        last = self._drawn.pop() if self._drawn else None
        if last is not None and self.share is None:  # chosen by cost, and reported, at the first step
            cost = read_cost(self.run, self.source)
            self.share = GOLD_SHARE if cost is None else cost.share
        since, self._changes = self._changes, []
        again = last is not None and last.key in self._restored and read_request(self.run, *last.key) is None
        if last is not None and again:
            # Killed between the event and the request file: the same draw again, from the same past.
            del self._restored[last.key]
            if self._drawn:
                self._restore_samplers(self._require_request(self._drawn.pop().key).state)
            self._changes = last.changes_before
        elif last is not None:
            self._restore_samplers(self._require_request(last.key).state)
        self._pending.extend(_OpenStep(self._require_request(key), durable=True) for key in self._restored)
        self._restored = {}
        self._drawn.clear()
        if last is not None and again:
            self.rollouts -= last.done.rows
            batch = read_step(self.run, *last.key, last.done.ranks, REQUEST_COLUMNS)
            again_as: dict[str, Any] = {"boost": bool(last.done.boost), "behind": bool(last.done.behind)}
            again_as["behaviours"] = last.done.behaviours or {}
            self.draw_requests(batch, expand_ranges(last.done.ranks), **again_as)
        self._changes += since
        self._update_sampler()

    def stop(self) -> None:
        """Ask nobody any more. What is being asked is asked again by the next monitor."""
        self._worker.close()

    def _update_sampler(self) -> str:
        """Bring the sampler up to date; returns the reason if it failed at the last change."""
        changes, self._changes, error = self._changes, [], ""
        for change in changes:
            error = change()
        return error

    def _rewind_sampler(self, attempt: int, step: int) -> str:
        self._sampler.rewind(attempt, step)
        self._level.rewind(attempt, step)
        return ""

    def _close_bets(self, attempt: int, step: int, slopes: Sequence[float], duels: Sequence[float]) -> str:
        """Give the sampler the values of a step's bets; returns the reason if it failed."""
        before, level_before = self._sampler.state(), self._level.state()
        try:
            self._sampler.close(slopes, duels)
            self._level.close(attempt, step)
            if self._pairs is not None and (request := read_request(self.run, attempt, step)):
                labels = self._require_labels(request, range(len(request.rows)), "")
                self._pairs.learn(request, list(labels.values()), self._people_labels(request))
        except Exception as error:  # noqa: BLE001  # the bets stand, whatever the sampler learns from them
            self._sampler.restore(before)
            self._level.restore(level_before)
            return f"the sampler failed: {type(error).__name__}: {str(error)[:200]}"
        return ""

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


def _plain_bet(bet: Bet, of_slice: str) -> Bet:
    """A bet as JSON holds it, with the slice of its prompt."""
    if bet.purpose not in ("slope", "duel") or not 0.0 <= bet.weight <= 1.0:
        raise ContractError(f"{bet} is no bet: its purpose is slope or duel, its weight lies in [0, 1]")
    rows = _plain_row(bet.up), _plain_row(bet.down)
    return Bet(bet.purpose, *rows, float(bet.weight), float(bet.chance), of_slice)


def _plain_row(row: Row) -> Row:
    return int(row[0]), int(row[1]), int(row[2])


def _reward_of(batch: RolloutBatch, row: Row) -> float | None:
    if row[:2] != (batch.attempt, batch.step) or batch.reward is None:
        return None
    reward = float(batch.reward[row[2]])
    return reward if np.isfinite(reward) else None
