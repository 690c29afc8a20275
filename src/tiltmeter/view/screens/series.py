"""Downsampling of long series for plots that keeps extremes, gaps, ends, alarms and actions.

A downsampler alone is not enough: it may drop the minimum of the range, it does not know the steps of alarms, and NaN
values disturb it. So missing values are removed before it picks, and required steps are added to its choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray
from tsdownsample import MinMaxLTTBDownsampler

from tiltmeter.data.records import Floats, Ints
from tiltmeter.view.payloads.plots import Branch, Flagged, Line, LineRole, NonFinite, Panel, PlotAxis, Series
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader

POINTS = 300  # of one line
WHOLE = 600  # steps up to which all are sent; above, the lines of a panel share about so many
FEWEST = 12  # points of each line at least, however many lines a panel has
INTERVALS = 6  # lines up to which intervals are drawn
GAP = 1.5  # times the median distance between two points, above which the line is interrupted
MOST_GAPS = 60  # shown of one line, the widest first; labels at random steps are all gaps
FEW_LABELS = 100  # steps with gold that are all kept
REACH = 1.959964  # standard errors of a 95 % interval

_Downsampler: Any = MinMaxLTTBDownsampler  # untyped


@dataclass(frozen=True, slots=True)
class LineSpec:
    """One line of a panel: which reading, and how it is drawn."""

    name: str
    label: str = ""
    axis: PlotAxis = "left"
    role: LineRole = "plain"
    interval: bool = False
    offset: float = 0.0  # subtracted from every value, to draw a change
    digits: int | None = None


@dataclass(frozen=True, slots=True)
class StepSelection:
    """The steps that a panel shows, including those that only mark a gap, and how many of how many have values."""

    steps: Ints
    shown: int
    of: int


@dataclass(frozen=True, slots=True)
class StepRange:
    """Steps from `low` to `high`, both included; None: without that bound.

    >>> StepRange(2, None).slice_of(np.array([1, 2, 3]))
    slice(1, 3, None)
    """

    low: int | None = None
    high: int | None = None

    def slice_of(self, steps: Ints) -> slice:
        first = 0 if self.low is None else int(np.searchsorted(steps, self.low))
        last = len(steps) if self.high is None else int(np.searchsorted(steps, self.high, "right"))
        return slice(first, last)

    def cut_series(self, series: ReadingSeries) -> ReadingSeries:
        if self.low is None and self.high is None:
            return series
        rows = self.slice_of(series.steps)
        return ReadingSeries(series.steps[rows], series.values[rows], series.n[rows], series.stderr[rows])


def series(
    reader: RunReader, names: Sequence[str], low: int | None = None, high: int | None = None, points: int = POINTS
) -> Series:
    """Any readings by name over one x axis. Raises `KeyError` for a name that the run does not have."""
    present = set(reader.columns.names())
    for name in names:
        if name not in present:
            raise KeyError(name)
    return build_lines(
        reader, [LineSpec(name, interval=len(names) <= INTERVALS) for name in names], StepRange(low, high), points
    )


def build_lines(reader: RunReader, specs: Sequence[LineSpec], step_range: StepRange, points: int = POINTS) -> Series:
    """The lines over their common selection of steps, and the abandoned branches."""
    lines = [step_range.cut_series(reader.columns.lineage_series(spec.name)) for spec in specs]
    for_each = points_per_line(len(lines), points)
    selection = select_steps(
        [(reading_series.steps, reading_series.values) for reading_series in lines],
        required_steps(reader, lines, specs),
        for_each,
    )
    return Series(
        steps=selection.steps.tolist(),
        lines=[
            draw_line(spec, reading_series, selection.steps) for spec, reading_series in zip(specs, lines, strict=True)
        ],
        branches=abandoned_branches(reader, specs, step_range, for_each),
        flagged=non_finite_values(lines),
        shown=selection.shown,
        of=selection.of,
    )


def points_per_line(lines: int, points: int = POINTS) -> int:
    """How many points each line gets: up to two lines get all, more lines share the points of two.

    >>> points_per_line(1), points_per_line(2), points_per_line(6)
    (300, 300, 100)
    """
    return max(min(FEWEST, points), min(points, 2 * points // max(lines, 1)))


def select_steps(lines: Iterable[tuple[Ints, Floats]], required: Ints, points: int = POINTS) -> StepSelection:
    """The steps to show for all lines of a panel: all of them if they are few, else those selected for any line."""
    lines = list(lines)
    all_steps = merge_steps([steps for steps, _ in lines])
    gap_ends = [gap_steps(steps, values) for steps, values in lines]
    if len(all_steps) <= max(WHOLE, points):
        return StepSelection(merge_steps([all_steps, *gap_ends]), len(all_steps), len(all_steps))
    picked = [steps[select_points(values, points)] for steps, values in lines]
    nearest = np.clip(np.searchsorted(all_steps, required), 0, len(all_steps) - 1)
    chosen = merge_steps([*picked, *gap_ends, all_steps[nearest], all_steps[[0, -1]]])
    return StepSelection(chosen, int(np.isin(chosen, all_steps).sum()), len(all_steps))


def select_points(values: Floats, points: int) -> Ints:
    """Indices of the values that a line of so many points shows: downsampled ones, ends, extremes, and non-finite ones.

    >>> spike = np.where(np.arange(5000) == 4321, 9.0, np.sin(np.arange(5000)))
    >>> 4321 in select_points(spike, 60)
    True
    """
    if not len(values):
        return np.empty(0, np.int64)
    finite = np.isfinite(values)
    valid_rows = np.flatnonzero(finite)
    parts = [np.flatnonzero(~finite), np.array([0, len(values) - 1])]
    if len(valid_rows):
        valid_values = values[valid_rows]
        parts.append(valid_rows[[0, -1, int(np.argmin(valid_values)), int(np.argmax(valid_values))]])
        parts.append(valid_rows if len(valid_rows) <= points else valid_rows[_downsample(valid_values, points)])
    return merge_steps(parts)


def _downsample(values: Floats, points: int) -> NDArray[np.int64]:
    rows = _Downsampler().downsample(np.ascontiguousarray(values), n_out=max(points, 3))
    return np.asarray(rows, np.int64)


def gap_steps(steps: Ints, values: Floats) -> Ints:
    """Steps around the gaps of a line: the last before each gap, one inside it, the first after it.

    >>> gap_steps(np.array([0, 1, 2, 50, 51]), np.ones(5)).tolist()
    [2, 3, 50]
    """
    valid_steps = steps[np.isfinite(values)]
    if len(valid_steps) < 3:
        return np.empty(0, np.int64)
    distances = np.diff(valid_steps)
    wide = np.flatnonzero(distances > GAP * float(np.median(distances)))
    if len(wide) > MOST_GAPS:
        wide = wide[np.argsort(-distances[wide], kind="stable")[:MOST_GAPS]]
    return merge_steps([valid_steps[wide], valid_steps[wide] + 1, valid_steps[wide + 1]])


def required_steps(reader: RunReader, lines: Sequence[ReadingSeries], specs: Sequence[LineSpec]) -> Ints:
    """Steps that must be shown: alarms, onsets, actions, branch points, reward changes and rare gold."""
    run_facts = reader.run_facts
    steps = [alarm.step for records in run_facts.alarms.values() for _, _, alarm in records[:1]]
    steps += [alarm.onset for records in run_facts.alarms.values() for _, _, alarm in records[:1]]
    steps += [action.step for action in run_facts.actions.values()]
    steps += [int(limit) for limit in run_facts.spans().values() if np.isfinite(limit)]
    steps += [int(limit) - 1 for limit in run_facts.spans().values() if np.isfinite(limit)]
    steps += [step for _, step in run_facts.segments]
    gold = [line.steps for spec, line in zip(specs, lines, strict=True) if spec.role == "gold"]
    few = [gold_steps for gold_steps in gold if len(gold_steps) <= FEW_LABELS]
    return merge_steps([np.array(steps, np.int64), *few])


def draw_line(spec: LineSpec, series: ReadingSeries, steps: Ints) -> Line:
    """One line at the shown steps, null where it has no value."""
    values = values_at(series.steps, series.values, steps) - spec.offset
    bounds: tuple[list[float | None], list[float | None]] | None = None
    if spec.interval:
        error = values_at(series.steps, label_stderr(series) if spec.role == "gold" else series.stderr, steps)
        if np.isfinite(error).any():
            low, high = values - REACH * error, values + REACH * error
            if spec.role == "gold" and 0.0 <= np.nanmin(values) <= np.nanmax(values) <= 1.0:
                low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
            bounds = json_numbers(low, 4), json_numbers(high, 4)
    return Line(
        name=spec.name,
        label=spec.label or spec.name,
        values=json_numbers(values),
        axis=spec.axis,
        role=spec.role,
        low=UNSET if bounds is None else bounds[0],
        high=UNSET if bounds is None else bounds[1],
        digits=UNSET if spec.digits is None else spec.digits,
    )


def label_stderr(series: ReadingSeries) -> Floats:
    """Standard errors of means of labels in [0, 1]. Where it is 0 or missing, that of a mean with two more labels at
    either end (Agresti-Coull), because two right of two is not certain."""
    mean = (np.clip(series.values, 0.0, 1.0) * series.n + 2.0) / (series.n + 4.0)
    smoothed = np.sqrt(mean * (1.0 - mean) / (series.n + 4.0))
    return np.where(np.isfinite(series.stderr) & (series.stderr > 0.0), series.stderr, smoothed)


def abandoned_branches(
    reader: RunReader, specs: Sequence[LineSpec], step_range: StepRange, points: int
) -> list[Branch]:
    """The abandoned steps of earlier attempts, one entry for each attempt."""
    rows = []
    for attempt in reader.run_facts.attempts:
        lines = [step_range.cut_series(reader.columns.branch_series(attempt, spec.name)) for spec in specs]
        if attempt == reader.run_facts.attempt or not any(len(line.steps) for line in lines):
            continue
        selection = select_steps([(line.steps, line.values) for line in lines], np.empty(0, np.int64), points)
        values = [
            json_numbers(values_at(line.steps, line.values, selection.steps) - spec.offset)
            for spec, line in zip(specs, lines, strict=True)
        ]
        rows.append(Branch(attempt=attempt, steps=selection.steps.tolist(), values=values))
    return rows


def non_finite_values(lines: Sequence[ReadingSeries]) -> list[Flagged]:
    """Values that are not finite: line, step and which."""
    return [
        Flagged(index, int(line.steps[row]), non_finite_name(float(line.values[row])))
        for index, line in enumerate(lines)
        for row in np.flatnonzero(~np.isfinite(line.values))
    ]


def non_finite_name(value: float) -> NonFinite:
    return "nan" if np.isnan(value) else "+inf" if value > 0 else "-inf"


def values_at(steps: Ints, values: Floats, wanted_steps: Ints) -> Floats:
    """The values at some steps, NaN where there is none.

    >>> values_at(np.array([1, 3]), np.array([0.5, 0.7]), np.array([1, 2, 3])).tolist()
    [0.5, nan, 0.7]
    """
    result = np.full(len(wanted_steps), np.nan)
    if len(steps):
        positions = np.minimum(np.searchsorted(steps, wanted_steps), len(steps) - 1)
        same = steps[positions] == wanted_steps
        result[same] = values[positions[same]]
    return result


def json_numbers(values: Floats | Sequence[float], digits: int = 6) -> list[float | None]:
    """Numbers for JSON: so many significant digits, and None for whatever is not finite.

    >>> json_numbers(np.array([1 / 3, 123456789.0, float("nan"), 0.0, -2.5e-9]), 3)
    [0.333, 123000000.0, None, 0.0, -2.5e-09]
    """
    raw = np.asarray(values, np.float64)
    finite = np.isfinite(raw)
    clean = np.where(finite, raw, 0.0)
    with np.errstate(divide="ignore"):
        power = digits - 1 - np.floor(np.log10(np.abs(clean)))
    # Powers of ten up to 22 are exact, so dividing by one gives the float nearest to the rounded decimal.
    exact = np.abs(power) <= 22
    scale = 10.0 ** np.where(exact, np.abs(power), 0.0)
    small = np.rint(clean * scale) / scale
    rounded = np.where(power >= 0, small, np.rint(clean / scale) * scale)
    numbers = rounded.tolist()
    for row in np.flatnonzero(~exact & (clean != 0.0)):
        near = float(f"{clean[row]:.{digits}g}")
        numbers[row] = near if np.isfinite(near) else float(clean[row])  # the largest floats have nothing above them
    for row in np.flatnonzero(clean == 0.0):
        numbers[row] = 0.0
    for row in np.flatnonzero(~finite):
        numbers[row] = None
    return list(numbers)


def finite_numbers(values: Floats, digits: int = 6) -> list[float]:
    """The same for values that are finite. Raises `ValueError` if one is not."""
    numbers = json_numbers(values, digits)
    finite = [number for number in numbers if number is not None]
    if len(finite) < len(numbers):
        raise ValueError("a value that must be finite is not")
    return finite


def json_number(value: float, digits: int = 6) -> float | None:
    """One number for JSON."""
    return json_numbers(np.array([value]), digits)[0]


def merge_steps(parts: Sequence[Ints]) -> Ints:
    """The union of the parts, sorted."""
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts])).astype(np.int64)


def empty_panel(title: str, reason: str) -> Panel:
    """A panel that has nothing to draw and says why."""
    return Panel(
        title=title, sentence=reason, steps=[], lines=[], branches=[], flagged=[], shown=0, of=0, left="", right="",
        log=False, empty=reason,
    )  # fmt: skip
