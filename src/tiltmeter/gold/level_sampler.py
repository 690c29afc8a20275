"""Chooses answers to label for the level of gold: some of every step, and of an earlier window once gold seems lower.

Which window, how many and what the surrogate guesses is decided from earlier steps alone, and which answers by chance,
before any of these labels is seen. `stats.sampled_level` has the test and its proof.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from tiltmeter.data.records import Floats, Ints, Reading
from tiltmeter.gold.sampler import CLOSING_LABELS, CLOSING_STEPS, Row, is_closing
from tiltmeter.stats.bets_below import DECAY, LEAST_VARIANCE, PRIOR
from tiltmeter.stats.gold_surrogate import WIDTH, GoldSurrogate
from tiltmeter.stats.level_drop import window_length
from tiltmeter.stats.returning_prompts import STEPS, ReturningPrompts
from tiltmeter.stats.sampled_level import LOWEST_VALUE

SLOPE_SHARE = 0.02  # of rollouts: enough for the slope
QUIET = 0.5  # of the even rate, spent at every step
ADVANCE = 0.4  # of the planned budget that may be spent before it has accrued
UNPLANNED = 20  # steps' worth of labels that may be spent in advance when the run's length is not known
OPENING = 0.3  # of the planned budget, at most, for the labels of a window
LEAST_OPENING = 60  # labels below which a window is not opened
MOST_LABELS = 4096  # of a window or of a step: they must fit one line of the journal
MOST_WINDOWS = 3  # that are opened
SURE = 2.0  # standard errors by which the last steps have to look lower
GAP = 0.02  # of gold: a smaller fall is not worth a window's labels
RECENT = 8  # steps that "now" is
HORIZON = 20  # steps over which free labels are spent while gold seems lower
CLEAR = 0.04  # of gold: from this gap on they are spent in full
SHRINK = 4.0  # labels that a prompt's own mean must outweigh to stand for itself
KEEP = 0.98  # of what earlier prompts say of how hard those of late are, with each prompt more
HARDER = 0.03  # of gold by which the prompts of late were worth less by themselves than their reference values say
VARIANCE = 0.2  # of gold, for beliefs

Recall = Callable[[int, int], "tuple[Floats, Ints, Sequence[str]] | None"]  # of a stored step, as `draw` has them


class PromptValue(NamedTuple):
    """What a window's answers to a prompt are worth: to bet against, drawn towards the level, and by themselves."""

    reference: float
    own: float


@dataclass(frozen=True)
class LabelledGroup:
    """A group of which some answers are labelled, with what the surrogate guesses."""

    rows: tuple[int, ...]  # that are labelled
    guesses: tuple[float, ...]  # of them
    features: tuple[tuple[float, float], ...]  # of them
    mean_guess: float  # of all answers of the group
    value: float | None  # the reference value of its prompt; None: no bet


@dataclass(frozen=True)
class OpenedWindow:
    """A window whose answers are drawn for labels: by draw the answer, its prompt's number and its guess."""

    number: int
    attempt: int
    first: int
    last: int
    rows: tuple[Row, ...]
    prompt_of: tuple[int, ...]
    guesses: tuple[float, ...]
    features: tuple[tuple[float, float], ...]
    prompts: tuple[str, ...]
    mean_guesses: tuple[float, ...]  # of each prompt's answers
    noise: float  # v


@dataclass(frozen=True)
class LevelDraw:
    """What is labelled for the level at one step."""

    groups: tuple[LabelledGroup, ...] = ()
    window: int = -1  # that the groups are compared with; -1: none
    labelled: tuple[int, int] = (1, 1)  # answers of each group, of at most so many that it has
    opened: OpenedWindow | None = None
    come_back: bool | None = None  # whether prompts do; None: not known yet

    def rows(self, attempt: int, step: int) -> list[Row]:
        """Every answer to be labelled, once."""
        now = [(attempt, step, row) for group in self.groups for row in group.rows]
        return list(dict.fromkeys([*now, *(self.opened.rows if self.opened else ())]))


@dataclass
class _Stretch:
    """Sums over some steps: of all answers, and of the labelled ones."""

    attempt: int
    first: int
    last: int
    rows: float = 0.0
    terms: Floats = field(default_factory=lambda: np.zeros(WIDTH))
    labels: float = 0.0
    labelled_terms: Floats = field(default_factory=lambda: np.zeros(WIDTH))
    gold: float = 0.0

    def state(self) -> list[Any]:
        sums = [self.rows, self.labels, self.gold, *self.terms.tolist(), *self.labelled_terms.tolist()]
        return [self.attempt, self.first, self.last, *(float(f"{value:.9g}") for value in sums)]

    @classmethod
    def restore(cls, state: Sequence[Any]) -> _Stretch:
        attempt, first, last, rows, labels, gold, *terms = state
        return cls(
            attempt, first, last, rows, np.array(terms[:WIDTH]), labels, np.array(terms[WIDTH:]), gold
        )  # fmt: skip

    def holds(self, attempt: int, step: int) -> bool:
        return self.attempt == attempt and self.first <= step <= self.last


class LevelSampler:
    """Spends a share of all rollouts on labels for the level of gold.

    In quiet times half of the even rate, spread over groups; the rest is saved. When the last steps look lower than the
    best window so far, answers of that window are labelled; and while gold then stays below it, what was saved goes to
    the answers of now.
    """

    def __init__(self, share: float, steps: int | None = None, recall: Recall | None = None) -> None:
        self.share, self.steps, self.recall = share, steps, recall
        self._surrogate = GoldSurrogate()
        self._windows: list[_Stretch] = []  # that ended; the position is the number
        self._ended: list[int] = []  # numbers that a rewind has ended
        self._current: _Stretch | None = None
        self._recent: list[_Stretch] = []
        self._opened: dict[int, float] = {}  # level by window, once its labels are there
        self._values: dict[int, Mapping[str, PromptValue]] = {}
        self._requests: dict[int, tuple[int, int]] = {}  # by window that was drawn, attempt and step of its request
        self._belief = [0.0, 0.0, 0.0]  # groups against the window in use, sum of -u, sum of u²; decayed
        self._harder = [0.0, 0.0, 0.0]  # prompts of late, sum of gaps of reference and own value, of squares; decayed
        self._come_back: bool | None = None  # whether prompts do, by the first steps
        self._numbers = [0.0, 0.0, 0.0, 0.0]  # rows, labels drawn, steps, parts of labels

    def draw(
        self,
        attempt: int,
        step: int,
        features: Floats,
        starts: Ints,
        prompts: Sequence[str],
        rng: np.random.Generator,
    ) -> LevelDraw:
        """What to label of a step and of the past. `features`: reward and length of each row, finite."""
        self._surrogate.forget()
        terms = self._surrogate.expand(features)
        self._numbers[0] += len(features)
        self._numbers[2] += 1
        opened = self._open(attempt, step, len(features), prompts, rng)
        active = max(self._opened, key=lambda number: self._opened[number], default=-1)
        groups, most = len(starts) - 1, int(np.diff(starts).max(initial=1))
        labels = min(self._affordable(len(features)), len(features), MOST_LABELS)
        size = min(max(1, labels // max(groups, 1)), int(np.diff(starts).min(initial=most)))
        guesses = self._surrogate.predict(terms)
        values = self._references(active, prompts)
        groups_of_now = []
        for k in rng.permutation(groups)[: labels // size]:
            first, end = int(starts[k]), int(starts[k + 1])
            rows = first + rng.permutation(end - first)[:size]
            near = [(float(reward), float(length)) for reward, length in features[rows]]
            groups_of_now.append(
                LabelledGroup(
                    tuple(rows.tolist()), tuple(guesses[rows].tolist()), tuple(near), float(guesses[first:end].mean()),
                    values.get(prompts[k]),
                )
            )  # fmt: skip
        if self._come_back is None and self._numbers[2] >= STEPS and self.recall is not None:
            self._come_back = self._look_for_prompts(attempt, step)
        draw = LevelDraw(tuple(groups_of_now), active, (size, most), opened, self._come_back)
        self._numbers[1] += len(draw.rows(attempt, step))
        self._remember(attempt, step, terms)
        return draw

    def _look_for_prompts(self, attempt: int, step: int) -> bool | None:
        """Whether prompts came back in the last steps; None: not all of these can be read."""
        prompts = ReturningPrompts()
        for one in range(step - STEPS, step):
            stored = self.recall(attempt, one) if self.recall else None
            if stored is not None:
                prompts.add(stored[2])
        return prompts.come_back

    def _references(self, window: int, prompts: Sequence[str]) -> dict[str, float]:
        """The reference values of a step's prompts; none while those of late are harder by themselves than these say.

        References are drawn towards the level. Where a curriculum chooses hard prompts they are too high together, and
        gold that is as it was would look lower. Prompts and earlier labels decide it, before any label of the step.
        """
        of_window = self._values.get(window, {})
        values = {prompt: of_window[prompt] for prompt in prompts if prompt in of_window}
        for value in values.values():
            gap = value.reference - value.own
            count, total, square = (KEEP * one for one in self._harder)
            self._harder = [count + 1.0, total + gap, square + gap**2]
        count, total, square = self._harder
        mean = total / max(count, 1.0)
        error = sqrt(max(square / max(count, 1.0) - mean**2, 0.0) / max(count, 1.0))
        return {} if mean > HARDER + error else {prompt: value.reference for prompt, value in values.items()}

    def close(self, attempt: int, step: int, draw: LevelDraw, gold: Mapping[Row, float]) -> None:
        """The labels of a step, by row, without those that are missing; called in the order steps were closed."""
        own = [(near, gold.get((attempt, step, row)))
               for group in draw.groups for row, near in zip(group.rows, group.features, strict=True)]  # fmt: skip
        with_gold = [(near, value) for near, value in own if value is not None]
        terms = self._surrogate.expand(np.array([near for near, _ in with_gold]).reshape(-1, 2)) if with_gold else None
        values = np.array([value for _, value in with_gold])
        if terms is not None:
            for stretch in (*self._windows, *self._recent, *([self._current] if self._current else [])):
                if stretch.holds(attempt, step):
                    stretch.labels += len(values)
                    stretch.labelled_terms = stretch.labelled_terms + terms.sum(0)
                    stretch.gold += float(values.sum())
        us = np.array(group_changes(draw, attempt, step, gold))
        if len(us):
            count, gap, square = self._belief
            self._belief = [
                DECAY * count + len(us),
                DECAY * gap - float(us.sum()),
                DECAY * square + float((us**2).sum()),
            ]
        if draw.opened is not None and draw.opened.number not in self._ended:
            level, by_prompt, _ = window_level(draw.opened, gold)
            if not self._opened or level > max(self._opened.values()):
                self._belief = [HORIZON, HORIZON * max(level - self._level(self._recent)[0], 0.0), HORIZON * VARIANCE]
            self._opened[draw.opened.number] = level
            self._values[draw.opened.number] = by_prompt
        if terms is not None:
            self._surrogate.learn(terms, values)

    def rewind(self, attempt: int, step: int) -> None:
        """A new attempt begins at this step: later windows are no reference for it."""
        for number, window in enumerate(self._windows):
            if window.last >= step and number not in self._ended:
                self._ended.append(number)
                self._opened.pop(number, None)
                self._values.pop(number, None)
        self._current, self._recent, self._belief = None, [], [0.0, 0.0, 0.0]

    def _remember(self, attempt: int, step: int, terms: Floats) -> None:
        """Add a step's answers; a window that is long enough ends."""
        if self._current is None or self._current.attempt != attempt:
            self._current = _Stretch(attempt, step, step)
        self._recent = [*self._recent, _Stretch(attempt, step, step)][-RECENT:]
        for stretch in (self._current, self._recent[-1]):
            stretch.last = step
            stretch.rows += len(terms)
            stretch.terms = stretch.terms + terms.sum(0)
        if self._current.last - self._current.first + 1 >= window_length(int(self._numbers[2])):
            self._windows.append(self._current)
            self._current = None

    def _level(self, stretches: Sequence[_Stretch]) -> tuple[float, float]:
        """A belief about mean gold of some steps, and its variance."""
        weights, r2 = self._surrogate.weights, self._surrogate.r2
        rows, labels = sum(one.rows for one in stretches), sum(one.labels for one in stretches)
        guess = float(sum((one.terms for one in stretches), np.zeros(WIDTH)) @ weights) / max(rows, 1.0)
        variance = VARIANCE * (1.0 - r2) / max(labels, 1.0) + VARIANCE * r2 / max(rows, 1.0)
        error = sum(one.gold - float(one.labelled_terms @ weights) for one in stretches)
        return guess + error / (labels + 1.0), variance

    def _open(
        self,
        attempt: int,
        step: int,
        rows: int,
        prompts: Sequence[str],
        rng: np.random.Generator,
    ) -> OpenedWindow | None:
        """The best window so far, if the last steps look lower and its labels can be paid for."""
        finished = [number for number in range(len(self._windows)) if number not in self._ended]
        if not finished or not self._recent or len(self._requests) >= MOST_WINDOWS or self.recall is None:
            return None
        levels = {number: self._level([self._windows[number]]) for number in finished}
        best = max(finished, key=lambda number: levels[number][0] - 0.5 * sqrt(levels[number][1]))
        now, noise = self._level(self._recent)
        gap = levels[best][0] - now
        labels = int(min(0.5 * self._free(rows), OPENING * self._planned(rows), MOST_LABELS))
        if best in self._requests or labels < LEAST_OPENING or gap < max(GAP, SURE * sqrt(levels[best][1] + noise)):
            return None
        window = self._draw_window(best, labels, rng)
        if window is None or not set(window.prompts).intersection(prompts):
            return None  # deleted since, or its prompts do not come back: then nothing could be compared with it
        self._requests[best] = attempt, step
        return window

    def _draw_window(self, number: int, labels: int, rng: np.random.Generator) -> OpenedWindow | None:
        window = self._windows[number]
        answers: dict[str, list[tuple[Row, float, tuple[float, float]]]] = {}
        for step in range(window.first, window.last + 1):
            stored = self.recall(window.attempt, step) if self.recall else None
            if stored is None:
                continue
            features, starts, prompts = stored
            guesses = self._surrogate.predict(self._surrogate.expand(features))
            for k, prompt in enumerate(prompts):
                for row in range(int(starts[k]), int(starts[k + 1])):
                    near = (float(features[row, 0]), float(features[row, 1]))
                    answers.setdefault(prompt, []).append(((window.attempt, step, row), float(guesses[row]), near))
        if not answers:
            return None
        names = sorted(answers)
        prompt_of = rng.integers(0, len(names), labels)
        picks = [answers[names[p]][int(rng.integers(0, len(answers[names[p]])))] for p in prompt_of]
        return OpenedWindow(
            number,
            window.attempt,
            window.first,
            window.last,
            rows=tuple(row for row, _, _ in picks),
            prompt_of=tuple(prompt_of.tolist()),
            guesses=tuple(guess for _, guess, _ in picks),
            features=tuple(near for _, _, near in picks),
            prompts=tuple(names),
            mean_guesses=tuple(float(np.mean([guess for _, guess, _ in answers[name]])) for name in names),
            noise=sum(1.0 / len(answers[name]) for name in names) / (4.0 * len(names) ** 2),
        )

    def _planned(self, rows: int) -> float:
        return self.share * rows * self.steps if self.steps else np.inf

    def _free(self, rows: int) -> float:
        """Labels that could be spent now."""
        even, (seen, drawn, steps, _) = self.share * rows, self._numbers
        accrued = self.share * seen - drawn
        if not self.steps:
            return float(accrued + UNPLANNED * even)
        total = even * self.steps
        remaining = total - drawn - 0.3 * QUIET * even * max(self.steps - steps, 0)
        return float(min(accrued + ADVANCE * total, remaining))

    def _affordable(self, rows: int) -> int:
        """Labels of this step's answers: more while gold seems to be below the window in use."""
        free, want = self._free(rows), QUIET * self.share * rows
        count, gap, square = self._belief
        if count > 0.0:
            mean = gap / count
            variance = max(square / count - mean**2, LEAST_VARIANCE)
            fall = mean / (1.0 + variance / (count * PRIOR**2))
            want = max(want, min(max(fall, 0.0) / CLEAR, 1.0) * free / HORIZON)
        if is_closing(int(self._numbers[2]), self.steps):
            want = max(want, CLOSING_LABELS / CLOSING_STEPS)
        self._numbers[3] += max(min(want, free), 0.0)
        labels = int(self._numbers[3])
        self._numbers[3] -= labels
        return labels

    def state(self) -> dict[str, Any]:
        """Everything remembered but the values of opened windows, which are in the request that opened them."""
        return {
            "surrogate": self._surrogate.state(),
            "windows": [window.state() for window in self._windows],
            "ended": self._ended,
            "current": None if self._current is None else self._current.state(),
            "recent": [stretch.state() for stretch in self._recent],
            "opened": sorted(self._opened.items()),
            "requests": [[number, *place] for number, place in self._requests.items()],
            "belief": self._belief,
            "harder": self._harder,
            "come_back": self._come_back,
            "numbers": self._numbers,
        }

    def restore(self, state: Mapping[str, Any], values: Callable[[int, int], Mapping[str, PromptValue]]) -> None:
        """As it was when `state` was taken. `values`: of the prompts of a window, by the place of its request."""
        self._surrogate = GoldSurrogate.restore(state["surrogate"])
        self._windows = [_Stretch.restore(window) for window in state["windows"]]
        self._ended = list(state["ended"])
        self._requests = {number: (attempt, step) for number, attempt, step in state["requests"]}
        self._current = None if state["current"] is None else _Stretch.restore(state["current"])
        self._recent = [_Stretch.restore(stretch) for stretch in state["recent"]]
        self._opened = dict(state["opened"])
        self._values = {
            number: self._values.get(number) or dict(values(*self._requests[number])) for number in self._opened
        }
        self._belief, self._numbers = list(state["belief"]), list(state["numbers"])
        self._harder, self._come_back = list(state.get("harder", self._harder)), state.get("come_back")


def split_share(share: float) -> tuple[float, float]:
    """Of the share of rollouts that are labelled: the slope's part, and the level's.

    The slope sees a turn with few labels. The level sees nothing with few, so it has none of them until a quarter of
    all is enough for the slope.

    >>> split_share(0.05), split_share(0.1)
    ((0.05, 0.0), (0.025, 0.07500000000000001))
    """
    return (share / 4.0, share - share / 4.0) if share >= 4.0 * SLOPE_SHARE else (share, 0.0)


def level_readings(draw: LevelDraw, attempt: int, step: int, gold: Mapping[Row, float]) -> list[Reading]:
    """`gold.answers`, mean gold of the answers that were drawn, whose key is whether prompts come back;
    `gold.reference`, of a window that was opened; and `gold.change`, what groups of now are worth against such a one,
    whose keys say which."""
    readings = []
    values = [gold[row] for group in draw.groups for row in ((attempt, step, one) for one in group.rows) if row in gold]
    if values:
        error = float(np.std(values, ddof=1)) / sqrt(len(values)) if len(values) > 1 else None
        come_back = () if draw.come_back is None else (int(draw.come_back),)
        mean = float(np.mean(values))
        readings.append(Reading(attempt, step, "gold.answers", mean, len(values), error, keys=come_back))
    if us := group_changes(draw, attempt, step, gold):
        keys: tuple[int, ...] = (draw.window, *draw.labelled)
        in_window = [group for group in draw.groups if group.value is not None]
        whole = sum(all((attempt, step, row) in gold for row in group.rows) for group in in_window)
        readings.append(Reading(attempt, step, "gold.change", float(np.mean(us)), whole, None, tuple(us), keys=keys))
    if draw.opened is not None:
        level, _, residuals = window_level(draw.opened, gold)
        keys = draw.opened.number, draw.opened.attempt, draw.opened.first, draw.opened.last
        noise = sqrt(draw.opened.noise)
        readings.append(
            Reading(attempt, step, "gold.reference", level, len(residuals), noise, tuple(residuals.tolist()), keys=keys)
        )
    return readings


def window_level(window: OpenedWindow, gold: Mapping[Row, float]) -> tuple[float, dict[str, PromptValue], Floats]:
    """θ, the values of each prompt, and e of each draw. A label that is missing is 0: that favours the null."""
    residuals = np.array([gold.get(row, 0.0) for row in window.rows]) - np.array(window.guesses)
    guesses, of = np.array(window.mean_guesses), np.array(window.prompt_of)
    level = float(guesses.mean() + residuals.mean())
    drawn = np.bincount(of, minlength=len(guesses))
    errors = np.bincount(of, residuals - residuals.mean(), len(guesses))
    apart = guesses - guesses.mean() + errors / (drawn + SHRINK)
    apart -= apart.mean()
    apart *= min(1.0, LOWEST_VALUE / max(-float(apart.min()), 1e-9))  # the mean stays, none is far below
    own = np.where(drawn > 0.0, guesses - level + errors / np.maximum(drawn, 1.0), apart)
    values = map(PromptValue, (level + apart).tolist(), (level + own - own.mean()).tolist())
    return level, dict(zip(window.prompts, values, strict=True)), residuals


def group_changes(draw: LevelDraw, attempt: int, step: int, gold: Mapping[Row, float]) -> list[float]:
    """u of each group that is compared with the window in use. A label that is missing is 1: that favours the null."""
    us = []
    for group in draw.groups:
        if group.value is not None:
            labels = [gold.get((attempt, step, row), 1.0) for row in group.rows]
            us.append(group.mean_guess + float(np.mean(labels)) - float(np.mean(group.guesses)) - group.value)
    return us
