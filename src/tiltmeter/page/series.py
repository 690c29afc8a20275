"""Long series made short enough to send without losing what matters: extremes, gaps, ends, alarms and actions.

A sampler alone is not enough. It may drop the range's own minimum, it knows nothing of an alarm's step, and beside a
gap it keeps the gap. So missing values are left out before it picks, and what must be seen is added to what it picked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

from tiltmeter.page.book import Book, Readings
from tiltmeter.records import Floats, Ints

POINTS = 300  # of one line
WHOLE = 600  # steps that are all sent; above, a panel's lines share about so many
FEWEST = 12  # points of a line, however many lines share a panel
INTERVALS = 6  # lines that can show theirs without hiding each other
GAP = 1.5  # times the usual distance between two points, from which on nothing joins them
MOST_GAPS = 60  # shown of one line, the widest first: labels bought at random steps are all gaps
FEW_LABELS = 100  # steps with gold that are all kept
REACH = 1.959964  # standard errors of a 95 % interval

_PICKS: Any = MinMaxLTTBDownsampler  # untyped
Axis = Literal["left", "right"]
Role = Literal["proxy", "gold", "plain", "beta"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One line that a panel asks for, and how it is drawn."""

    name: str
    label: str = ""
    axis: Axis = "left"
    role: Role = "plain"
    interval: bool = False
    minus: float = 0.0  # taken off every value: a change is drawn from its base
    digits: int | None = None


@dataclass(frozen=True, slots=True)
class Sampled:
    """The steps that a panel shows, among them those that only mark a silence, and how many of how many have values."""

    steps: Ints
    shown: int
    of: int


@dataclass(frozen=True, slots=True)
class Range:
    """Steps from `low` to `high`, both included; None: without that bound.

    >>> Range(2, None).part(np.array([1, 2, 3]))
    slice(1, 3, None)
    """

    low: int | None = None
    high: int | None = None

    def part(self, steps: Ints) -> slice:
        first = 0 if self.low is None else int(np.searchsorted(steps, self.low))
        last = len(steps) if self.high is None else int(np.searchsorted(steps, self.high, "right"))
        return slice(first, last)

    def cut(self, line: Readings) -> Readings:
        if self.low is None and self.high is None:
            return line
        part = self.part(line.steps)
        return Readings(line.steps[part], line.values[part], line.n[part], line.stderr[part])


def series(
    book: Book, names: Sequence[str], low: int | None = None, high: int | None = None, points: int = POINTS
) -> dict[str, Any]:
    """Any readings by name over one x axis. Raises `KeyError` for a name that the run does not have."""
    known = set(book.columns.names())
    for name in names:
        if name not in known:
            raise KeyError(name)
    return drawn(book, [Wanted(name, interval=len(names) <= INTERVALS) for name in names], Range(low, high), points)


def drawn(book: Book, wanted: Sequence[Wanted], within: Range, points: int = POINTS) -> dict[str, Any]:
    """The lines over the steps that were picked for all of them together, with abandoned branches beside them."""
    lines = [within.cut(book.columns.line(one.name)) for one in wanted]
    for_each = share(len(lines), points)
    kept = sampled([(line.steps, line.values) for line in lines], forced(book, lines, wanted), for_each)
    return {
        "steps": kept.steps.tolist(),
        "lines": [told(one, line, kept.steps) for one, line in zip(wanted, lines, strict=True)],
        "branches": branches(book, wanted, within, for_each),
        "flagged": flagged(lines),
        "shown": kept.shown,
        "of": kept.of,
    }


def share(lines: int, points: int = POINTS) -> int:
    """How many points of each line are sampled: two lines have all they ask for, more share what two would have.

    >>> share(1), share(2), share(6)
    (300, 300, 100)
    """
    return max(min(FEWEST, points), min(points, 2 * points // max(lines, 1)))


def sampled(lines: Iterable[tuple[Ints, Floats]], forced: Ints, points: int = POINTS) -> Sampled:
    """The steps to show for all lines of a panel: all of them if they are few, else those picked for any line."""
    lines = list(lines)
    everywhere = merged([steps for steps, _ in lines])
    ends = [gaps(steps, values) for steps, values in lines]
    if len(everywhere) <= max(WHOLE, points):
        return Sampled(merged([everywhere, *ends]), len(everywhere), len(everywhere))
    picked = [steps[pick(values, points)] for steps, values in lines]
    near = np.clip(np.searchsorted(everywhere, forced), 0, len(everywhere) - 1)
    kept = merged([*picked, *ends, everywhere[near], everywhere[[0, -1]]])
    return Sampled(kept, int(np.isin(kept, everywhere).sum()), len(everywhere))


def pick(values: Floats, points: int) -> Ints:
    """Which values a line of so many points shows: those of the sampler, the ends, both extremes, what is not finite.

    >>> spike = np.where(np.arange(5000) == 4321, 9.0, np.sin(np.arange(5000)))
    >>> 4321 in pick(spike, 60)
    True
    """
    if not len(values):
        return np.empty(0, np.int64)
    finite = np.isfinite(values)
    at = np.flatnonzero(finite)
    found = [np.flatnonzero(~finite), np.array([0, len(values) - 1])]
    if len(at):
        plain = values[at]
        found.append(at[[0, -1, int(np.argmin(plain)), int(np.argmax(plain))]])
        found.append(at if len(at) <= points else at[_sampler(plain, points)])
    return merged(found)


def _sampler(values: Floats, points: int) -> NDArray[np.int64]:
    chosen = _PICKS().downsample(np.ascontiguousarray(values), n_out=max(points, 3))
    return np.asarray(chosen, np.int64)


def gaps(steps: Ints, values: Floats) -> Ints:
    """Steps that show where a line is silent: the last before the silence, one inside it, the first after it.

    >>> gaps(np.array([0, 1, 2, 50, 51]), np.ones(5)).tolist()
    [2, 3, 50]
    """
    known = steps[np.isfinite(values)]
    if len(known) < 3:
        return np.empty(0, np.int64)
    apart = np.diff(known)
    wide = np.flatnonzero(apart > GAP * float(np.median(apart)))
    if len(wide) > MOST_GAPS:
        wide = wide[np.argsort(-apart[wide], kind="stable")[:MOST_GAPS]]
    return merged([known[wide], known[wide] + 1, known[wide + 1]])


def forced(book: Book, lines: Sequence[Readings], wanted: Sequence[Wanted]) -> Ints:
    """Steps that must be shown whatever the lines do there."""
    story = book.story
    found = [alarm.step for told in story.alarms.values() for _, _, alarm in told[:1]]
    found += [alarm.onset for told in story.alarms.values() for _, _, alarm in told[:1]]
    found += [action.step for action in story.actions.values()]
    found += [int(limit) for limit in story.spans().values() if np.isfinite(limit)]
    found += [int(limit) - 1 for limit in story.spans().values() if np.isfinite(limit)]
    found += [step for _, step in story.segments]
    gold = [line.steps for one, line in zip(wanted, lines, strict=True) if one.role == "gold"]
    few = [steps for steps in gold if len(steps) <= FEW_LABELS]
    return merged([np.array(found, np.int64), *few])


def told(one: Wanted, line: Readings, steps: Ints) -> dict[str, Any]:
    """One line at the steps shown, null where it has no value."""
    values = at(line.steps, line.values, steps) - one.minus
    shown: dict[str, Any] = {
        "name": one.name,
        "label": one.label or one.name,
        "values": plain(values),
        "axis": one.axis,
        "role": one.role,
    }
    if one.interval:
        error = at(line.steps, errors(line) if one.role == "gold" else line.stderr, steps)
        if np.isfinite(error).any():
            low, high = values - REACH * error, values + REACH * error
            if one.role == "gold" and 0.0 <= np.nanmin(values) <= np.nanmax(values) <= 1.0:
                low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
            shown |= {"low": plain(low, 4), "high": plain(high, 4)}
    if one.digits is not None:
        shown["digits"] = one.digits
    return shown


def errors(line: Readings) -> Floats:
    """Standard errors of means of labels in [0, 1]. Where equal labels say 0, or too few say nothing, that of a mean
    with two more at either end: all right of two is not certain."""
    mean = (np.clip(line.values, 0.0, 1.0) * line.n + 2.0) / (line.n + 4.0)
    least = np.sqrt(mean * (1.0 - mean) / (line.n + 4.0))
    return np.where(np.isfinite(line.stderr) & (line.stderr > 0.0), line.stderr, least)


def branches(book: Book, wanted: Sequence[Wanted], within: Range, points: int) -> list[dict[str, Any]]:
    """The steps of earlier attempts that a later one has left, each attempt on its own."""
    found = []
    for attempt in book.story.attempts:
        lines = [within.cut(book.columns.branch(attempt, one.name)) for one in wanted]
        if attempt == book.story.attempt or not any(len(line.steps) for line in lines):
            continue
        kept = sampled([(line.steps, line.values) for line in lines], np.empty(0, np.int64), points)
        values = [
            plain(at(line.steps, line.values, kept.steps) - one.minus) for one, line in zip(wanted, lines, strict=True)
        ]
        found.append({"attempt": attempt, "steps": kept.steps.tolist(), "values": values})
    return found


def flagged(lines: Sequence[Readings]) -> list[tuple[int, int, str]]:
    """Values that are no numbers: line, step and which."""
    return [
        (index, int(line.steps[row]), flag(float(line.values[row])))
        for index, line in enumerate(lines)
        for row in np.flatnonzero(~np.isfinite(line.values))
    ]


def flag(value: float) -> str:
    return "nan" if np.isnan(value) else "+inf" if value > 0 else "-inf"


def at(steps: Ints, values: Floats, where: Ints) -> Floats:
    """The values at some steps, NaN where there is none.

    >>> at(np.array([1, 3]), np.array([0.5, 0.7]), np.array([1, 2, 3])).tolist()
    [0.5, nan, 0.7]
    """
    found = np.full(len(where), np.nan)
    if len(steps):
        place = np.minimum(np.searchsorted(steps, where), len(steps) - 1)
        same = steps[place] == where
        found[same] = values[place[same]]
    return found


def plain(values: Floats | Sequence[float], digits: int = 6) -> list[float | None]:
    """Numbers for JSON: so many significant digits, and None for whatever is not finite.

    >>> plain(np.array([1 / 3, 123456789.0, float("nan"), 0.0, -2.5e-9]), 3)
    [0.333, 123000000.0, None, 0.0, -2.5e-09]
    """
    given = np.asarray(values, np.float64)
    finite = np.isfinite(given)
    clean = np.where(finite, given, 0.0)
    with np.errstate(divide="ignore"):
        power = digits - 1 - np.floor(np.log10(np.abs(clean)))
    # Whole powers of ten up to 22 are exact, so what is divided by one is the float nearest to the short decimal.
    easy = np.abs(power) <= 22
    scale = 10.0 ** np.where(easy, np.abs(power), 0.0)
    small = np.rint(clean * scale) / scale
    short = np.where(power >= 0, small, np.rint(clean / scale) * scale)
    made = short.tolist()
    for row in np.flatnonzero(~easy & (clean != 0.0)):
        near = float(f"{clean[row]:.{digits}g}")
        made[row] = near if np.isfinite(near) else float(clean[row])  # the largest floats have nothing above them
    for row in np.flatnonzero(clean == 0.0):
        made[row] = 0.0
    for row in np.flatnonzero(~finite):
        made[row] = None
    return list(made)


def number(value: float, digits: int = 6) -> float | None:
    """One number for JSON."""
    return plain(np.array([value]), digits)[0]


def merged(parts: Sequence[Ints]) -> Ints:
    """All that stands in any of the parts, once, in order."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts])).astype(np.int64)


def empty_panel(title: str, why: str) -> Mapping[str, Any]:
    """A panel that has nothing to draw and says why."""
    return {
        "title": title, "sentence": why, "steps": [], "lines": [], "branches": [], "flagged": [], "left": "",
        "right": "", "log": False, "shown": 0, "of": 0, "empty": why,
    }  # fmt: skip
