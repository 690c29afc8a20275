"""Labels for the level of gold in a run directory: what is drawn, what was answered, and how it is restored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tiltmeter.data.records import Floats, Ints, Reading, RolloutBatch
from tiltmeter.data.slices import means_by_slice
from tiltmeter.errors import StoreError
from tiltmeter.gold import INDEPENDENT
from tiltmeter.gold.label_files import Label, LabelRequest, read_labels, read_request
from tiltmeter.gold.level_sampler import LevelDraw, LevelSampler, PromptValue, window_level
from tiltmeter.gold.row_features import COLUMNS, prompt_keys, row_features
from tiltmeter.gold.sampler import Bet, Row
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory

#: Begin the identity of a source that gives the same label whenever it is asked.
CODE = ("the function ", INDEPENDENT)
LEVEL, REFERENCE = "level", "reference"  # purposes of labels


def gives_same_label_again(identity: str) -> bool:
    """Whether a source of this identity labels an answer alike whenever it is asked: code does, opinions may change."""
    return identity.startswith(CODE)


class LevelLabels:
    """The level's sampler, with the stored steps of its run."""

    def __init__(self, run: RunDirectory, steps: int | None) -> None:
        self.run = run
        self._sampler = LevelSampler(0.0, steps, self._stored_answers)

    def draw(self, share: float, batch: RolloutBatch, prompts: Sequence[str], rng: np.random.Generator) -> LevelDraw:
        """What to label of a step for its level, with this share of rollouts."""
        self._sampler.share = share
        return self._sampler.draw(batch.attempt, batch.step, row_features(batch), batch.starts, prompts, rng)

    def state(self) -> dict[str, Any]:
        return self._sampler.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """As it was when a request was written. Raises `StoreError` if the labels of an opened window are gone."""
        self._sampler.restore(state, self._window_values)

    def rewind(self, attempt: int, step: int) -> None:
        self._sampler.rewind(attempt, step)

    def close(self, attempt: int, step: int) -> None:
        """A step's labels are complete: learn from them. Nothing to do for a step that has none for its level."""
        request = read_request(self.run, attempt, step)
        draw = None if request is None else level_draw(request)
        if request is not None and draw is not None:
            self._sampler.close(attempt, step, draw, gold_by_row(request, read_labels(self.run, request)))

    def _window_values(self, attempt: int, step: int) -> dict[str, PromptValue]:
        """The values of the prompts of the window that was opened at a step."""
        request = read_request(self.run, attempt, step)
        draw = None if request is None else level_draw(request)
        if request is None or draw is None or draw.opened is None:
            raise StoreError(f"gold/requests: step {step} of attempt {attempt} does not have the window it opened")
        return window_level(draw.opened, gold_by_row(request, read_labels(self.run, request)))[1]

    def _stored_answers(self, attempt: int, step: int) -> tuple[Floats, Ints, Sequence[str]] | None:
        """Features, group starts and prompts of a stored step; None if it cannot be read any more."""
        try:
            request = read_request(self.run, attempt, step)
            if request is None:
                return None
            batch = read_step(self.run, attempt, step, request.ranks, COLUMNS)
        except StoreError:
            return None
        return row_features(batch), batch.starts, prompt_keys(batch)


def level_bets(draw: LevelDraw, attempt: int, step: int, slices: Sequence[str] | None = None) -> list[Bet]:
    """What is asked for the level, in the form of a request: nothing is won or lost with one label. `slices`: of each
    row of the step."""
    now = {(attempt, step, row) for group in draw.groups for row in group.rows}
    rows = draw.rows(attempt, step)
    of = {row: slices[row[2]] for row in now} if slices else {}
    return [Bet(LEVEL if row in now else REFERENCE, row, row, 0.0, 0.0, of.get(row, "")) for row in rows]


def answers_by_slice(request: LabelRequest, gold: Mapping[Row, float]) -> Reading | None:
    """Mean gold of the answers that were drawn for the level, by slice; None where they have none."""
    bets = [bet for bet in request.bets if bet.purpose == LEVEL and bet.up in gold]
    of_all = Reading(request.attempt, request.step, "gold.answers", 0.0, len(bets))
    return means_by_slice(of_all, np.array([gold[bet.up] for bet in bets]), [bet.slice for bet in bets], None)


def level_draw(request: LabelRequest) -> LevelDraw | None:
    """What a request asks for the level; None if nothing."""
    stored = request.state.get("level")
    try:
        return None if stored is None else msgspec.convert(stored["draw"], LevelDraw)
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise StoreError(f"the request of step {request.step} does not say what it asks for the level") from error


def gold_by_row(request: LabelRequest, labels: Sequence[Label | None]) -> dict[Row, float]:
    """Gold of the rows that have a label."""
    pairs = zip(request.rows, labels, strict=True)
    return {row: label.value for row, label in pairs if label is not None and label.value is not None}
