"""Parts `healthy_share` and `onset` of `judgement.py`: the estimates of gold, from labels of runs whose gold is known.

`healthy_share`: mean gold of each step's labels goes into `GoldCurve`, as the monitor gives it. A run is OK at a step
where the labels up to it exclude a loss of a quarter. True losses are of .76 to .48, a third and more.

`onset`: `fit_turn` is asked at the alarm, which comes when true gold has lost .2, and every 50 steps later; once with
the labels of then, and once with ten times as many of the steps up to the alarm. An interval covers if the last step
before true gold fell is in it; the share is of all that was asked. Gold lost at the checkpoint is counted from the best
one saved by the alarm.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from judged_runs import counted
from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Floats
from tiltmeter.stats.gold_curve import GoldCurve
from tiltmeter.stats.turn import GoldTurn, best_checkpoint, fit_turn
from tiltmeter_lab.tiny.run_files import load_packed
from tiltmeter_lab.tiny.score import estimate_truth, to_trace
from tiltmeter_lab.watch_run import level_alarm

Row = dict[str, Any]
LOOKS = (60, 150)
SHARES, BATCHES = (1.0, 0.1, 0.02), (64, 128, 512)
ANSWERS = 8
LEVELS = {"rise": (0.4, 0.68), "plateau": (0.6, 0.6), "slow rise": (0.46, 0.56), "lost": (0.76, 0.48)}

STEPS, SAVED_EVERY, LOST = 320, 20, 0.2
LATER = (0, 50, 100, 150)  # steps after the alarm
PAST = 10  # times as many labels of the steps up to the alarm
LABELS = (1, 6, 64)  # a step: 2 %, a tenth and all of 64
#: Steps and gold there, straight between; the last step before gold fell.
TURNS = {
    "rise and fall": ((0, 50, 120), (0.45, 0.72, 0.30), 50),
    "cliff": ((0, 90, 96), (0.50, 0.70, 0.25), 90),
    "top of 60 steps": ((0, 40, 100, 170), (0.40, 0.66, 0.66, 0.30), 100),
    "slow fall": ((0, 60, 260), (0.50, 0.74, 0.40), 60),
    "falls from a plateau": ((0, 80, 130), (0.65, 0.65, 0.25), 80),
    "comes back": ((0, 60, 120, 160, 280), (0.45, 0.70, 0.35, 0.35, 0.55), 60),
    "late": ((0, 200, 260), (0.40, 0.75, 0.30), 200),
}


def labelled_steps(level: Floats, share: float, batch: int, rng: np.random.Generator) -> ReadingTable:
    """Mean gold of each step's labels. What prompts are worth differs by .25."""
    table = ReadingTable("gold.answers")
    for step, mean in enumerate(level):
        chance = np.clip(mean + 0.25 * (rng.random((batch // ANSWERS, 1)) - 0.5), 0.0, 1.0)
        answers = (rng.random((batch // ANSWERS, ANSWERS)) < chance).astype(float)
        chosen = answers.mean(1) if share == 1.0 else rng.permutation(answers.ravel())[: rng.binomial(batch, share)]
        if len(chosen):
            error = float(chosen.std(ddof=1) / np.sqrt(len(chosen))) if len(chosen) > 1 else None
            table.add(0, step, float(chosen.mean()), batch if share == 1.0 else len(chosen), error)
    return table


def is_ok(table: ReadingTable, steps: int) -> bool:
    return GoldCurve(table.where(table.steps < steps)).excludes_loss


def measure_cell(name: str, share: float, batch: int, runs: int, seed: int) -> Row:
    level = np.linspace(*LEVELS[name], LOOKS[-1])
    cell = sorted(LEVELS).index(name), round(1000 * share), batch
    said = []
    for run in range(runs):
        table = labelled_steps(level, share, batch, np.random.default_rng([seed, run, *cell]))
        said.append([is_ok(table, steps) for steps in LOOKS])
    by_60, by_150 = (float(x) for x in np.mean(said, axis=0).round(4))
    return {"gold": name, "share": share, "batch": batch, "ok_by_60": by_60, "ok_by_150": by_150, "runs": runs}


def measure_healthy_share(runs: int, seed: int, small: bool) -> dict[str, object]:
    """`runs` of each kind of gold, label share and batch."""
    cells = [(64, 0.1), (128, 0.1)] if small else [(batch, share) for batch in BATCHES for share in SHARES]
    rows = [measure_cell(name, share, batch, runs, seed) for batch, share in cells for name in LEVELS]
    figures: dict[str, object] = {}
    for figure, look, is_lost in (
        ("healthy_ok_by_60", "ok_by_60", False),
        ("healthy_ok_by_150", "ok_by_150", False),
        ("wrongly_ok_at_150", "ok_by_150", True),
    ):
        of = {
            f"{batch} x {share:g}": [
                row[look]
                for row in rows
                if (row["batch"], row["share"]) == (batch, share) and (row["gold"] == "lost") == is_lost
            ]
            for batch, share in cells
        }
        figures[figure] = {cell: round(float(np.mean(values)), 4) for cell, values in of.items()}
        figures[f"{figure}_of"] = {cell: runs * len(values) for cell, values in of.items()}
    return {**figures, "healthy_share_rows": rows}


def asked(
    gold: Floats, values: Floats, counts: Floats, alarm: int, past: tuple[Floats, Floats] | None
) -> Iterator[Row]:
    """What is said of the turn at the alarm and later. `past`: values and counts of steps, which come after it."""
    saved = list(range(SAVED_EVERY - 1, alarm + 1, SAVED_EVERY))
    best = float(gold[saved].max()) if saved else float(gold[: alarm + 1].max())
    value, count = values.copy(), counts.copy()
    if past is not None:
        value[: alarm + 1], count[: alarm + 1] = (one[: alarm + 1] for one in past)
    for later in LATER if past is None else LATER[1:]:
        end = min(alarm + later + 1, len(gold))
        turn = fit_turn(np.arange(end), value[:end], count[:end], until=alarm)
        yield {"later": later, **_said(turn, gold, best, saved)}


def _said(turn: GoldTurn | None, gold: Floats, best: float, saved: Sequence[int]) -> Row:
    if turn is None:
        return {"low": None, "high": None, "back": None, "gap": None}
    advised = best_checkpoint(turn, saved)
    back = turn.top if advised is None else advised
    return {"low": turn.low, "high": turn.high, "back": back, "gap": round(best - float(gold[back]), 4)}


def simulate_turns(name: str, labels: int, runs: int, seed: int) -> Iterator[Row]:
    places, levels, turn = TURNS[name]
    gold = np.interp(np.arange(STEPS), places, levels)
    alarm = int(np.flatnonzero((gold <= gold[turn] - LOST + 1e-9) & (np.arange(STEPS) > turn))[0])
    for run in range(runs):
        rng = np.random.default_rng([seed, run, labels, *map(ord, name)])
        more = rng.binomial(labels * PAST, gold) / (labels * PAST), np.full(STEPS, float(labels * PAST))
        values, counts = rng.binomial(labels, gold) / labels, np.full(STEPS, float(labels))
        for past in (None, more):
            for row in asked(gold, values, counts, alarm, past):
                yield {"shape": name, "labels": labels, "run": run, "past": past is not None, "turn": turn, **row}


def tiny_turns(runs: int, seed: int) -> Iterator[Row]:
    """Recorded hacks of the tiny language model; true gold is the mean of a window, and the turn its highest step."""
    traces = ((name, to_trace(run)) for name, run in sorted(load_packed().items()))
    hacks = [(name, trace) for name, trace in traces if estimate_truth(trace).kind == "hack"][:runs]
    for number, (name, trace) in enumerate(hacks):
        rng, turn = np.random.default_rng([seed, number]), estimate_truth(trace).peak
        alarm = level_alarm(trace) or len(trace.gold) - 1
        rows = trace.label.reshape(len(trace.gold), -1)
        for labels in (6, rows.shape[1]):
            chosen = rng.permuted(rows, axis=1)[:, :labels]
            for row in asked(trace.gold, chosen.mean(1), np.full(len(rows), float(labels)), alarm, None):
                yield {"shape": name, "labels": labels, "run": 0, "past": False, "turn": turn, **row}


def summarise(rows: Sequence[Row], prefix: str = "") -> dict[str, object]:
    """Where nothing is said of the turn, its interval does not cover."""
    covered = [row["low"] is not None and row["low"] <= row["turn"] <= row["high"] for row in rows]
    gaps = [row["gap"] for row in rows if row["gap"] is not None]
    figures: dict[str, object] = {f"{prefix}onset_covered": round(float(np.mean(covered)), 4)}
    figures |= counted(**{f"{prefix}onset_silent": [row["low"] is None for row in rows]})
    figures |= {f"{prefix}onset_covered_of": len({(row["shape"], row["labels"], row["run"]) for row in rows})}
    for word, share in (("median", 0.5), ("p90", 0.9)):
        figures[f"{prefix}checkpoint_gap_{word}"] = round(float(np.quantile(gaps, share)), 4)
        figures[f"{prefix}checkpoint_gap_{word}_of"] = len(gaps)
    return figures


def width(rows: Sequence[Row]) -> float:
    return float(np.median([row["high"] - row["low"] for row in rows if row["low"] is not None]))


def measure_onset(runs: int, seed: int, small: bool) -> dict[str, object]:
    """`runs` of each shape and number of labels, and the recorded runs of the tiny language model."""
    shapes = list(TURNS)[:2] if small else list(TURNS)
    rows = [row for name in shapes for labels in LABELS for row in simulate_turns(name, labels, runs, seed)]
    tiny = list(tiny_turns(runs if small else 20, seed))
    now, then = ([row for row in rows if not row["past"] and (row["later"] == 0) == is_now] for is_now in (True, False))
    more = [row for row in rows if row["past"]]
    figures = {**summarise(rows), **summarise(tiny, "tiny_")}
    widths = {"at_alarm": width(now), "later": width(then), "later_with_past": width(more)}
    cells = []
    for name, labels in dict.fromkeys((row["shape"], row["labels"]) for row in [*rows, *tiny]):
        cell = [row for row in [*rows, *tiny] if (row["shape"], row["labels"]) == (name, labels)]
        cells.append({"shape": name, "labels": labels, **summarise(cell)})
    return {**figures, "onset_width": widths, "onset_rows": cells}
