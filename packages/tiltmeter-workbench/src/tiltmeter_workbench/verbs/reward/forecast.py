"""`tiltmeter reward forecast`: before any run, how far a reward can be optimised until gold falls."""

from __future__ import annotations

import json as json_module
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.options import Json, Seed
from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import terminal
from tiltmeter_workbench.common.table_files import write_rows
from tiltmeter_workbench.forecast.curves import Curve, CurvePoint, ForecastInterval
from tiltmeter_workbench.forecast.estimate import GoldForecast, forecast_gold
from tiltmeter_workbench.forecast.render import UNSEEN, as_json, sentence
from tiltmeter_workbench.forecast.samples import choose_samples, read_sheet
from tiltmeter_workbench.terminal.check_report import render_lists

Floats = NDArray[np.float64]

HIGH, WIDE = 11, 56  # characters of the picture
ROWS = 8  # of the tilt, among them its first, its peak and its last
STYLES = {0: ("NO PEAK IN REACH", "green"), 1: ("GOLD PEAKS", "bold red"), 2: ("REFUSED", "yellow")}

Samples = Annotated[
    Path, typer.Argument(help="Samples of the reference policy, scored; a file or a folder.", metavar="SAMPLES")
]
Group = Annotated[str, typer.Option(help="Column that tells the prompts apart.", metavar="NAME")]
Score = Annotated[str, typer.Option(help="Column with the score that a run would optimise.", metavar="NAME")]
Gold = Annotated[str, typer.Option(help="Column with the gold label; empty where there is none.", metavar="NAME")]
Chance = Annotated[str, typer.Option(help="Column with each label's sampling probability.", metavar="NAME")]
Choose = Annotated[
    Path | None, typer.Option(help="Write the samples with those to label marked, and stop.", metavar="FILE")
]
Labels = Annotated[int, typer.Option(help="With --choose: about how many labels.", metavar="N", min=1)]


def forecast(
    samples: Samples,
    group_column: Group = "prompt",
    score_column: Score = "score",
    gold_column: Gold = "gold",
    chance_column: Chance = "gold_chance",
    choose: Choose = None,
    labels: Labels = 256,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Forecast proxy, KL and gold as the reward is optimised, and where gold peaks; or refuse and say why.

    Example: tiltmeter reward forecast samples.jsonl --choose to_label.jsonl

    Label the samples that --choose marks and give the file again. It needs 20 prompts or more with 64 samples of the
    reference each, and 60 labels or more. It cannot see what the reference never samples.
    Exit code: 0 no peak in reach, 1 gold peaks in reach, 2 could not judge.
    """
    names = {"prompt": group_column, "score": score_column, "gold": gold_column, "chance": chance_column}
    table, rows, notes = read_sheet(samples, names)
    if choose is not None:
        if table.labels:
            # A label that these chances did not draw would count for as many samples as if they had.
            raise AttachError(
                f"{samples} has {table.labels} labels already, and --choose draws all labels itself: take the column "
                f"{gold_column!r} out, or forecast it as it is"
            )
        to_label, chances = choose_samples(table, labels, seed)
        marks = zip(rows, to_label[table.sampled].tolist(), chances[table.sampled].tolist(), strict=True)
        write_rows(choose, [{**row, chance_column: chance, "to_label": label} for row, label, chance in marks])
        sys.stderr.write(
            f"{choose}: {len(rows)} samples, {int(to_label.sum())} of them to label: "
            f"fill {gold_column!r} where to_label\n"
        )
        return
    outlook = forecast_gold(table, notes=notes, seed=seed)
    if json:
        sys.stdout.write(json_module.dumps(as_json(outlook), allow_nan=False) + "\n")
    else:
        _print_outlook(outlook)
    raise typer.Exit(outlook.exit_code)


def _print_outlook(outlook: GoldForecast) -> None:
    console = Console()
    name, style = STYLES[outlook.exit_code]
    console.print(Text(name, style=style), terminal(sentence(outlook), 900))
    if outlook.tilt.points:
        console.print(Text("\nFollowing the reward less beta KL, exactly", style="bold"))
        console.print(forecast_chart(outlook.tilt.points, outlook.tilt.peak))
        console.print(_table(outlook.tilt, "beta", _pick_rows(outlook.tilt)))
    if outlook.best.points:
        console.print(Text("\nPicking the best of n", style="bold"))
        console.print(_table(outlook.best, "n", range(len(outlook.best.points))))
    facts = f"{outlook.prompts} prompts, {outlook.samples} samples, {outlook.labels} labels; intervals are for 80 %"
    ends = [f"{what} ends because {curve.ended}" for what, curve in _ended_curves(outlook)]
    for part in render_lists({"Before you believe it": (UNSEEN, facts, *ends, *outlook.notes)}):
        console.print(part)


def _ended_curves(outlook: GoldForecast) -> list[tuple[str, Curve]]:
    if outlook.refused:
        return []
    curves = (("the tilt", outlook.tilt), ("best of n", outlook.best))
    return [(what, curve) for what, curve in curves if not curve.whole]


def _pick_rows(curve: Curve) -> list[int]:
    """The rows to show: even in sqrt(KL), and the peak."""
    even = np.linspace(0, len(curve.points) - 1, ROWS).round().astype(int).tolist()
    return sorted({*even, *([] if curve.peak is None else [curve.peak])})


def _table(curve: Curve, axis: str, rows: Sequence[int]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in (axis, "KL", "proxy", "gold", "gain of gold"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        point = curve.points[row]
        style = "bold red" if row == curve.peak else "dim" if curve.peak is not None and row > curve.peak else ""
        at = "∞" if math.isinf(point.at) else f"{point.at:.3g}"
        figures = (
            f"{point.kl.mean:.2f}",
            f"{point.proxy.mean:.3g}",
            _format_interval(point.gold),
            _format_interval(point.gain, "+"),
        )
        table.add_row(at, *figures, style=style)
    return table


def _format_interval(interval: ForecastInterval, sign: str = "") -> str:
    return f"{interval.mean:{sign}.3f} [{interval.low:{sign}.3f}, {interval.high:{sign}.3f}]"


def forecast_chart(points: Sequence[CurvePoint], peak: int | None) -> Text:
    """Gold with its band, and the proxy drawn to the same height, against sqrt(KL).

    The proxy has an axis of its own, at the right: what matters is that it goes on rising where gold turns.
    """
    distance = np.sqrt(np.maximum([point.kl.mean for point in points], 0.0))
    at = np.linspace(0.0, float(distance[-1]), WIDE)
    gold, low, high = (np.interp(at, distance, [point.gold[k] for point in points]) for k in range(3))
    proxy = np.interp(at, distance, [point.proxy.mean for point in points])
    floor, ceiling = float(low.min()), float(high.max())
    span = (ceiling - floor) or 1.0
    proxy_height = (proxy - proxy.min()) / (float(np.ptp(proxy)) or 1.0)

    def row(share: Floats) -> list[int]:
        return [int(v) for v in np.rint((HIGH - 1) * (1.0 - share.clip(0.0, 1.0)))]

    lines, tops, bottoms = row((gold - floor) / span), row((high - floor) / span), row((low - floor) / span)
    heights = row(proxy_height)
    turn = None if peak is None else int(np.abs(at - distance[peak]).argmin())
    chart = Text()
    for y in range(HIGH):
        left = ceiling - span * y / (HIGH - 1)
        chart.append(f"{left:7.3f} ┤" if y % 5 == 0 else "        │", "dim")
        for x in range(WIDE):
            if y == lines[x]:
                chart.append("◆" if x == turn else "━", "bold red" if turn is not None and x >= turn else "bold green")
            elif y == heights[x]:
                chart.append("∙", "yellow")
            else:
                chart.append("░" if tops[x] <= y <= bottoms[x] else " ", "dim")
        right = float(proxy.max()) - float(np.ptp(proxy)) * y / (HIGH - 1)
        chart.append(f"├ {right:.3g}\n" if y % 5 == 0 else "│\n", "dim")
    chart.append(f"{'0':>9}{'sqrt(KL)':^{WIDE}}{distance[-1]:.2f}\n", "dim")
    chart.append("         ").append("━ gold ", "bold green").append("░ 80 % ", "dim").append(
        "∙ proxy (right)", "yellow"
    )
    return chart
