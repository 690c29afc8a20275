"""Labels that examine the source of gold itself: answers asked about again, and answers whose worth is known.

The same stored answer should get the same label again, and a right answer more than a wrong one. Nothing is bet on
these labels, and no level of gold is made of them. They are asked for when a step's own labels have come, in a call of
their own, so that they change no other label; their request is a file like any other, and a replay asks nobody.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert

from tiltmeter.data.dataset_facts import from_text
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.gold import CompletionToLabel, GoldSource
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.judge import BETTER_OF_TWO
from tiltmeter.gold.known_answers import (
    COMPLETION_COLUMNS,
    MEASURED,
    columns_of_text,
    other_answer,
    own_answer,
    written_answers,
)
from tiltmeter.gold.label_files import (
    AGAIN,
    EMPTY,
    PROBE_PURPOSES,
    PROBES,
    RIGHT,
    WRONG,
    Label,
    LabelRequest,
    asks_people,
    draw_generator,
    read_labels,
    read_request,
    write_request,
)
from tiltmeter.gold.level_labels import gold_by_row
from tiltmeter.gold.onset_labels import request_texts
from tiltmeter.gold.row_request import row_request
from tiltmeter.gold.sampler import Bet, Row
from tiltmeter.gold.task_checks import TaskChecks
from tiltmeter.rundir.store import RunDirectory

FIRST = 24  # answers asked about again, and prompts with known answers, that a function's run begins with
AGAIN_SHARE, PROMPT_SHARE = 0.0075, 0.0005  # of all labels: with five texts a prompt 1 % in all
MOST_AGAIN = 4  # at a step
PAST = 100  # labelled steps before a step, at most, whose answers are asked about again
PATIENCE = 4  # labelled steps between two prompts, where a step has few labels
BARE, WRITTEN = "bare", "written"  # the forms of a known answer, in the order of `written_answers`

Share01 = Annotated[float, Meta(ge=0.0, le=1.0)]
ReadBatch = Callable[[int, int], RolloutBatch | str]


class ProbeState(Struct, frozen=True):
    """What a request for such labels knows."""

    steps: list[Any]  # as `stored_steps` reads them
    first: list[Share01]  # the labels that answers got when they were asked about first
    reads: bool  # the function names the column of the known answer
    unprobed: str = ""  # why no known answer can be asked about


class SourceProbes:
    """Chooses these labels for one run, from what the journal says of it."""

    def __init__(self, run: RunDirectory, run_id: str, source: GoldSource) -> None:
        self.run, self.source, self._id = run, source, run_id
        identity = {"name": source.name, "identity": source.identity}
        self.can_ask = not asks_people(identity) and BETTER_OF_TWO not in source.identity
        self._is_function = isinstance(source, FunctionSource)
        self._closed: deque[tuple[int, int]] = deque(maxlen=PAST)  # labelled steps of this attempt
        self._closed_before = 0  # how many there were of them
        self._steps = self._labels = self._again = self._prompts = 0
        self._said = False
        self.changed = False  # an answer that was asked about again got another label

    def count(self, attempt: int, step: int, facts: Mapping[str, Any]) -> None:
        """A step's labels are complete; `facts` as in its event."""
        if self._closed and self._closed[-1][0] != attempt:
            self._closed.clear()  # an attempt may go on from a step before these
            self._closed_before = 0
        if facts["answered"]:
            self._closed.append((attempt, step))
            self._closed_before += 1
            self._steps += 1
        self._labels += facts["answered"]
        again = facts.get("again", ())
        self._again += len(again)
        self.changed |= any(now is not None and now != first for first, now in again)
        self._prompts += len(facts.get("probes", ()))
        self._said |= "unprobed" in facts

    def request_for(self, request: LabelRequest, read_batch: ReadBatch) -> LabelRequest | None:
        """What is asked beside a step's labels, which are all there; None if nothing. It is on disk already."""
        if not (self.can_ask and request.rows):
            return None
        stored = read_request(self.run, request.attempt, request.step, PROBES)
        if stored is not None:
            return stored
        probes = self._draw(request, read_batch)
        if probes is not None:
            write_request(self.run, probes)
        return probes

    def _draw(self, request: LabelRequest, read_batch: ReadBatch) -> LabelRequest | None:
        attempt, step = request.attempt, request.step
        seed, rng = draw_generator(f"{self._id}/{PROBES}", attempt, step)
        past, rows, first = self._past_answers(rng)
        bets = [Bet(AGAIN, row, row, 0.0, 1.0) for row in rows]
        row, why = self._known_answer(request, read_batch, rng)
        if row is not None:
            at: Row = (attempt, step, row[0])
            forms = (BARE, WRITTEN)[: row[1]]
            bets += [Bet(purpose, at, at, 0.0, 1.0, form) for purpose in (RIGHT, WRONG) for form in forms]
            bets.append(Bet(EMPTY, at, at, 0.0, 1.0))
        if not bets:
            return None
        reason = {"unprobed": why} if why and not self._prompts else {}
        steps = [[one.attempt, one.step, 1, list(map(list, one.ranks))] for one in (past, request) if one is not None]
        state = {"steps": steps, "first": first, "reads": row is not None and row[2], **reason}
        return LabelRequest(
            attempt, step, request.ranks, seed, request.source, 0.0, state, tuple(bets), (None,) * len(bets),
            time.time(),
        )  # fmt: skip

    def _past_answers(self, rng: np.random.Generator) -> tuple[LabelRequest | None, list[Row], list[float]]:
        """Answers of one earlier step to ask about again, with the labels that they got."""
        due = int(FIRST * self._is_function + AGAIN_SHARE * self._labels) - self._again
        if due <= 0 or not self._closed:
            return None, [], []
        # From far back: of labels since a source has changed none would change again. And no step's more than twice,
        # because labels of a step may share a mood.
        newest = self._closed_before
        past = read_request(self.run, *self._closed[max(newest // 2, newest - PAST) - newest])
        if past is None:
            return None, [], []
        at = past.attempt, past.step  # it may ask about rows of earlier steps too
        answers = [(row, gold) for row, gold in gold_by_row(past, read_labels(self.run, past)).items() if row[:2] == at]
        # Spread over the run: what changes with time shows over time, and labels of a step are one vote.
        count = min(1 + due // FIRST, MOST_AGAIN, len(answers))
        chosen = [answers[at] for at in rng.choice(len(answers), count, replace=False)] if count else []
        return past, [row for row, _ in chosen], [value for _, value in chosen]

    def _known_answer(
        self, request: LabelRequest, read_batch: ReadBatch, rng: np.random.Generator
    ) -> tuple[tuple[int, int, bool] | None, str]:
        """A row of this step whose right answer is known, in how many forms, and whether the function names its
        column; or why there is none."""
        due = FIRST + PROMPT_SHARE * self._labels > self._prompts
        often = len(request.rows) >= 2 * PATIENCE or self._steps % PATIENCE == 0
        if not self._is_function or self._said or not (due and often):
            return None, ""
        batch = read_batch(request.attempt, request.step)
        if isinstance(batch, str):
            return None, ""
        facts = _facts(batch)
        answers = list(map(own_answer, facts))
        rows = [row for row in range(len(batch)) if answers[row] and other_answer(answers, row)]
        if not rows:
            return None, "no rows with right answers that differ"
        row = rows[int(rng.integers(len(rows)))]
        assert isinstance(self.source, FunctionSource)
        if lacking := [name for name in self.source.required_columns if name not in (*facts[row], *MEASURED)]:
            return None, f"{self.source.name} needs {lacking[0]!r}, which no written answer has"
        reads = isinstance(self.source, TaskChecks) or any(
            name in facts[row] and self.source.names_column(name) for name in COMPLETION_COLUMNS
        )
        return (row, len(_forms(answers, row)[0]), reads), ""


def probe_requests(
    run: RunDirectory, request: LabelRequest, numbers: Iterable[int]
) -> dict[int, CompletionToLabel | Label]:
    """What the source is asked, by number. A text that cannot be had is a label that is missing at once."""
    batches = request_texts(run, request)
    requests: dict[int, CompletionToLabel | Label] = {}
    for number in numbers:
        bet, batch = request.bets[number], batches[request.rows[number]]
        if isinstance(batch, str) or bet.up[2] >= len(batch):
            requests[number] = Label(None, batch if isinstance(batch, str) else "the rollout is gone")
        elif bet.purpose == AGAIN:
            to_ask = row_request(batch, bet.up[2], request.label_id(number), AGAIN)
            requests[number] = to_ask or Label(None, "the completion's text was not stored")
        else:
            requests[number] = _ask_known(batch, bet, request.label_id(number))
    return requests


def probe_facts(run: RunDirectory, attempt: int, step: int) -> dict[str, Any]:
    """What these labels say, for the event that closes a step. Raises `StoreError` if one is gone."""
    request = read_request(run, attempt, step, PROBES)
    if request is None:
        return {}
    values: list[float | None] = []
    for number, label in enumerate(read_labels(run, request)):
        if label is None:
            raise StoreError(f"step {step} of attempt {attempt}: label {number} about the source is gone")
        values.append(label.value)
    try:
        state = convert(dict(request.state), ProbeState)
    except ValidationError as error:
        raise StoreError(f"the request about the source at step {step} does not say what it asks") from error
    by_purpose: dict[str, list[float | None]] = {purpose: [] for purpose in PROBE_PURPOSES}
    for bet, value in zip(request.bets, values, strict=True):
        by_purpose[bet.purpose].append(value)
    facts: dict[str, Any] = {}
    if by_purpose[AGAIN]:
        facts["again"] = [list(pair) for pair in zip(state.first, by_purpose[AGAIN], strict=False)]
    if by_purpose[RIGHT]:
        of_prompt = {purpose: by_purpose[purpose] for purpose in (RIGHT, WRONG, EMPTY)}
        facts["probes"] = [{**of_prompt, "reads": state.reads}]
    return facts | ({"unprobed": state.unprobed} if state.unprobed else {})


def _ask_known(batch: RolloutBatch, bet: Bet, key: str) -> CompletionToLabel | Label:
    row, facts = bet.up[2], _facts(batch)
    right, wrong = _forms(list(map(own_answer, facts)), row)
    texts = {RIGHT: right, WRONG: wrong, EMPTY: ("",)}.get(bet.purpose, ())
    form = int(bet.slice == WRITTEN)
    if form >= len(texts):
        return Label(None, "the row has no such answer")
    prompt = None if batch.prompt is None else batch.prompt[row]
    columns = columns_of_text(texts[form], facts[row])
    return CompletionToLabel(key, batch.attempt, batch.step, row, bet.purpose, prompt, texts[form], columns)


def _forms(answers: Sequence[str], row: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The right answer of a row and a wrong one, in as many forms each."""
    pairs = zip(written_answers(answers[row]), written_answers(other_answer(answers, row)), strict=False)
    right, wrong = zip(*pairs, strict=True)
    return right, wrong


def _facts(batch: RolloutBatch) -> list[dict[str, Any]]:
    facts: list[dict[str, Any]] = []
    for text in batch.facts if batch.facts is not None else [None] * len(batch):
        try:
            facts.append(from_text(text))
        except ValueError:
            facts.append({})
    return facts
