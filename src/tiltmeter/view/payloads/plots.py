"""Plots over steps and of single rollouts, and lists of readings."""

from __future__ import annotations

from typing import Literal, NamedTuple

from msgspec import UNSET, Struct, UnsetType, field

from tiltmeter.view.payloads.overview import Number

PlotAxis = Literal["left", "right"]
LineRole = Literal["proxy", "gold", "plain", "beta"]
NonFinite = Literal["nan", "+inf", "-inf"]


class Line(Struct, frozen=True, kw_only=True):
    """A line over steps; `values` aligns with the panel's `steps`, null where there is nothing."""

    name: str  # reading
    label: str
    values: list[Number]
    axis: PlotAxis
    role: LineRole
    low: list[Number] | UnsetType = UNSET  # 95 % interval
    high: list[Number] | UnsetType = UNSET
    digits: int | UnsetType = UNSET


class Flagged(NamedTuple):
    """A value that is not finite, drawn as a mark at its step."""

    line: int
    step: int
    flag: NonFinite


class Branch(Struct, frozen=True, kw_only=True):
    """Steps of an attempt that a later one abandoned."""

    attempt: int
    steps: list[int]
    values: list[list[Number]]  # by line


class Series(Struct, frozen=True, kw_only=True):
    """GET /api/series?run&name=..&name=..&from&to&points"""

    steps: list[int]
    lines: list[Line]
    branches: list[Branch]
    flagged: list[Flagged]
    shown: int
    of: int


class Panel(Struct, frozen=True, kw_only=True):
    """A plot over steps."""

    title: str
    sentence: str  # what it shows, for people who cannot see it
    steps: list[int]
    lines: list[Line]
    branches: list[Branch]  # abandoned steps
    flagged: list[Flagged]
    shown: int  # points shown, of how many
    of: int
    left: str  # axis titles
    right: str
    log: bool  # left axis
    empty: str  # why there is nothing to draw; else ""


class GoldPeak(Struct, frozen=True, kw_only=True):
    """Where gold was highest."""

    step: int
    root_kl: Number
    gold: Number


class CheckpointGold(Struct, frozen=True, kw_only=True):
    """A saved model with the gold around it."""

    step: int
    root_kl: Number
    gold: Number
    best: bool


class PooledGold(Struct, frozen=True, kw_only=True):
    """Gold over stretches of enough labels, from every step of the range."""

    steps: list[int]
    root_kl: list[Number]
    gold: list[Number]
    low: list[Number]
    high: list[Number]
    labels: list[int]


class ForecastCurve(Struct, frozen=True, kw_only=True):
    """The distance at which gold will peak, with the curve up to it where one was fitted."""

    root_kl: list[Number]
    gold: list[Number]
    low: list[Number]
    high: list[Number]
    peak: Number
    sentence: str


class ProxyGoldPanel(Panel, frozen=True, kw_only=True):
    """P1. `root_kl` aligns with `steps`; the path over it is drawn in step order, since KL is not monotone."""

    root_kl: list[Number]
    peak: GoldPeak | None
    checkpoints: list[CheckpointGold]
    labels: list[int]  # labels behind each step
    forecast: ForecastCurve | None
    pooled: PooledGold | UnsetType = UNSET  # absent where steps have enough labels themselves


class Plots(Struct, frozen=True, kw_only=True):
    """GET /api/plots?run&from&to&points"""

    low: int = field(name="from")
    high: int = field(name="to")
    truth: ProxyGoldPanel
    paid: Panel  # P2: change from base by component, lines[0] is the total
    diversity: Panel  # P4: each line is a strip of its own
    kl: Panel  # P5
    length: Panel  # length over steps


class ScatterEra(Struct, frozen=True, kw_only=True):
    """The dots of one range of steps."""

    label: str
    x: list[float]
    y: list[float]
    ids: list[str]


class EraMedians(Struct, frozen=True, kw_only=True):
    """Medians of an era's dots over stretches of x."""

    era: int
    x: list[Number]
    y: list[Number]


class Scatter(Struct, frozen=True, kw_only=True):
    """P3"""

    title: str
    x: str
    y: str
    eras: list[ScatterEra]
    medians: list[EraMedians]
    sentence: str
    empty: str


class Heat(Struct, frozen=True, kw_only=True):
    """P6: `cells[row][column]` is the standard deviation of reward in groups, -1: all equal, null: no data."""

    title: str
    width: int  # steps a column
    sentence: str
    steps: list[int]  # first step of each column
    rows: list[str]  # labels, hardest prompts last
    cells: list[list[Number]]
    most: float
    empty: str


class Geometry(Struct, frozen=True, kw_only=True):
    """GET /api/geometry?run&from&to: what needs the rollouts themselves, so it comes after the rest."""

    scatter: Scatter
    gold_scatter: Scatter
    heat: Heat


class ReadingRow(Struct, frozen=True, kw_only=True):
    """A reading and its change."""

    name: str
    first: Number
    last: Number
    moved: Number  # in units of its noise
    spark: list[Number]


class AbsentReading(Struct, frozen=True, kw_only=True):
    """A reading that is absent, the columns it lacks, and how to provide them."""

    name: str
    lacks: str
    fix: str


class Readings(Struct, frozen=True, kw_only=True):
    """GET /api/readings?run"""

    readings: list[ReadingRow]
    absent: list[AbsentReading]
