"""Forecasts against the truth: on families of the proving ground, whose tables give gold exactly, and on a real judge.

    python benchmarks/before_forecast.py [--json] [--seed N] [--quick] [--split dev]

A run is a world of `tiltmeter_lab` (update `tilt`): 64 prompts drawn from it with replacement, 64, 128 or 256 samples
of the reference for each, the proxy as score without noise, four labels a prompt (coins or values, as the world says),
half drawn evenly and half towards the best of 16. The forecast sees nothing else. The truth is the tables' exact tilt
and best of n over all prompts of the world. Rules were set on the families of the split "dev" (and looked at on
"calibration"); "heldout" is what is reported. One rule (`curves.outweighed`) came after "heldout" had been opened once,
for the heavy tails that had passed there; its threshold is from "dev" and "calibration".
"""

from __future__ import annotations

import argparse
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import show
from tiltmeter_lab.worlds.families import FAMILIES, WorldFamily, split
from tiltmeter_lab.worlds.world import World
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.forecast.estimate import GoldForecast, forecast_gold
from tiltmeter_workbench.forecast.samples import choose_samples
from tiltmeter_workbench.stats.reweighting import SampleTable
from tiltmeter_workbench.stats.tilting import best_of_n, best_of_n_mean, kl, tilted

Floats = NDArray[np.float64]

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "judge_goodhart" / "best_of_n.jsonl.gz"
PROMPTS, SIZES, LABELS = 64, (64, 128, 256), 4
RUNS, QUICK = 12, 2  # of each family and size
FELL = 0.005  # of gold: a loss inside the reach that counts as a peak there
HEAVY = ("heavy_pareto", "heavy_t2", "heavy_lognormal")
UNSEEN = ("rare_exploit", "phase_switch")  # what ruins these runs is hardly, or not at all, among the samples


def sampled(world: World, size: int, rng: np.random.Generator) -> SampleTable:
    """Samples of the reference with scores and a few labels."""
    prompts = rng.integers(0, len(world.reference), PROMPTS)
    cumulative = np.cumsum(world.reference[prompts], axis=1)
    at = np.stack([np.searchsorted(row / row[-1], rng.random(size)) for row in cumulative])
    cells = (prompts[:, None], at.clip(0, world.reference.shape[1] - 1))
    gold = world.gold[cells]
    labels = gold if world.labels == "value" else (rng.random(gold.shape) < gold).astype(np.float64)
    blank = SampleTable(world.proxy[cells], np.full(gold.shape, np.nan), np.ones(gold.shape))
    asked, chances = choose_samples(blank, LABELS * PROMPTS, int(rng.integers(1 << 31)))
    return SampleTable(blank.score, np.where(asked, labels, np.nan), chances)


def exact(world: World, at: float, how: str) -> tuple[float, float, float]:
    """Gold, KL and proxy by summation."""
    rule = tilted if how == "tilt" else lambda reference, reward, n: best_of_n(reference, reward, int(n))
    told = []
    for reference, proxy, gold in zip(world.reference, world.proxy, world.gold, strict=True):
        given = reference > 0.0
        policy = rule(reference[given], proxy[given], at)
        told.append((policy @ gold[given], kl(policy, reference[given]), policy @ proxy[given]))
    gold_mean, nats, paid = np.mean(told, axis=0).tolist()
    return gold_mean, nats, paid


def judged(world: World, found: GoldForecast) -> dict[str, Any]:
    """One forecast against its world."""
    told: dict[str, Any] = {
        "refused": not found.tilt.points,
        "all": bool(found.refused),
        "why": found.refused or found.tilt.ended,
    }
    for how, curve in (("tilt", found.tilt), ("best", found.best)):
        true = [exact(world, point.at, how) for point in curve.points]
        start = exact(world, np.inf, "tilt")[0]
        for name, k, base in (("gold", 0, 0.0), ("kl", 1, 0.0), ("proxy", 2, 0.0), ("gain", 0, start)):
            told[f"{how}_{name}"] = [
                bool(getattr(p, name).low <= t[k] - base <= getattr(p, name).high)
                for p, t in zip(curve.points[1:], true[1:], strict=True)
            ]
        told[f"{how}_width"] = [p.gold.high - p.gold.low for p in curve.points[1:]]
        told[f"{how}_reach"] = curve.reach if curve.points else None
        gold = np.array([t[0] for t in true])
        told[f"{how}_peaks"] = bool(len(gold) and gold.max() - gold[-1] > FELL)
        told[f"{how}_claimed"] = curve.peak is not None
        told[f"{how}_ended"] = curve.ended
        if curve.peak is not None:
            top = int(gold.argmax())
            told[f"{how}_falls"] = bool(gold[curve.peak] > gold[-1])
            told[f"{how}_inside"] = bool(curve.near <= top <= curve.far)
            told[f"{how}_error"] = abs(np.sqrt(true[top][1]) - np.sqrt(max(curve.points[curve.peak].kl.mean, 0.0)))
            told[f"{how}_regret"] = float(gold.max() - gold[curve.peak])
    return told


def campaign(family: WorldFamily, seed: int, runs: int) -> list[dict[str, Any]]:
    made = []
    for size in SIZES:
        for run in range(runs):
            world = family.world(seed, run + 1000 * SIZES.index(size), "tilt")
            rng = np.random.default_rng([seed, zlib.crc32(family.name.encode()), size, run])
            made.append({"size": size, **judged(world, forecast_gold(sampled(world, size, rng), seed=run))})
    return made


def share(values: list[bool]) -> float | None:
    return round(float(np.mean(values)), 3) if values else None


def pooled(made: list[dict[str, Any]], key: str) -> list[Any]:
    return [value for run in made for value in run[key]]


def line(family: str, made: list[dict[str, Any]]) -> dict[str, Any]:
    """A family in a row."""
    spoke = [run for run in made if not run["refused"]]
    reach = [run["tilt_reach"] for run in spoke]
    return {
        "family": family,
        "forecasts": len(made),
        "refused": share([run["refused"] for run in made]),
        "reach, nats": round(float(np.mean(reach)), 2) if reach else None,
        "gold in interval, tilt": share(pooled(spoke, "tilt_gold")),
        "gold in interval, best of n": share(pooled(made, "best_gold")),
        "gain in interval, tilt": share(pooled(spoke, "tilt_gain")),
        "kl in interval, tilt": share(pooled(spoke, "tilt_kl")),
        "width": round(float(np.mean(pooled(spoke, "tilt_width"))), 3) if spoke else None,
        "gold peaks in reach": share([run["tilt_peaks"] for run in spoke]),
        "peak foretold": share([run["tilt_claimed"] for run in spoke]),
        "peak foretold, and gold falls": share([run["tilt_falls"] for run in spoke if run["tilt_claimed"]]),
    }


def unseen(seed: int, runs: int, made: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Families whose loss the samples do not hold: what was said of them, and where gold really turns."""
    rows = []
    for name in UNSEEN:
        forecasts = made.get(name) or campaign(FAMILIES[name], seed, runs)
        peaks = []
        for run in range(runs):
            world = FAMILIES[name].world(seed, run, "tilt")
            world = world if world.later is None else replace(world, proxy=world.later[1])
            true = [exact(world, world.scale / far, "tilt") for far in np.linspace(0.05, 12.0, 40)]
            top = int(np.argmax([gold for gold, _, _ in true]))
            peaks.append(true[top][1])
        spoke = [run for run in forecasts if not run["refused"]]
        rows.append(
            {
                "family": name,
                "forecasts": len(forecasts),
                "refused": share([run["refused"] for run in forecasts]),
                "no peak in reach, none claimed beyond": share(
                    [not run["refused"] and not run["tilt_claimed"] for run in forecasts]
                ),
                "peak foretold": share([not run["refused"] and run["tilt_claimed"] for run in forecasts]),
                "reach, nats": round(float(np.median([run["tilt_reach"] for run in spoke])), 2) if spoke else None,
                "gold really peaks at, nats": round(float(np.median(peaks)), 2),
                "gold in interval, inside the reach": share(pooled(spoke, "tilt_gold")),
            }
        )
    return rows


def figures(seed: int, quick: bool, part: str = "heldout") -> dict[str, object]:
    """The families of one split, and the real judge."""
    made: dict[str, list[dict[str, Any]]] = {}
    runs = QUICK if quick else RUNS
    for family in split(part)[0]:
        made[family.name] = campaign(family, seed, runs)
    every = [run for runs in made.values() for run in runs]
    spoke = [run for run in every if not run["refused"]]
    claims = [run for run in spoke if run["tilt_claimed"]]
    return {
        "forecast_coverage": share(pooled(spoke, "tilt_gold")),
        "forecast_coverage_best_of_n": share(pooled(every, "best_gold")),
        "forecast_coverage_gain": share(pooled(spoke, "tilt_gain")),
        "forecast_coverage_kl": share(pooled(spoke, "tilt_kl")),
        "forecast_coverage_proxy": share(pooled(spoke, "tilt_proxy")),
        "forecast_runs": len(every),
        "forecast_refused": share([run["refused"] for run in every]),
        "forecast_peaks_foretold": len(claims),
        "forecast_peaks_that_fall": share([run["tilt_falls"] for run in claims]),
        "forecast_peak_in_interval": share([run["tilt_inside"] for run in claims]),
        "forecast_peak_error": round(float(np.median([run["tilt_error"] for run in claims])), 3) if claims else None,
        "forecast_peak_regret": round(float(np.max([run["tilt_regret"] for run in claims])), 4) if claims else None,
        "forecast_peaks_seen": share([run["tilt_claimed"] for run in spoke if run["tilt_peaks"]]),
        "forecast_families": [line(name, runs) for name, runs in made.items()],
        "forecast_heavy_refused": share([run["refused"] for name in HEAVY for run in made.get(name, [])]),
        "forecast_unseen": unseen(seed, runs, made),
        **judge(seed, quick),
    }


def judge_table() -> tuple[Floats, Floats]:
    """Scores and gold of the judge's tasks, tasks x 24; rows without a score or a verdict are NaN."""
    rows = [row for row in read_rows(DATA) if row["judge_score"] is not None and row["correct"] is not None]
    names = sorted({str(row["task_id"]) for row in rows})
    score, gold = np.full((2, len(names), 24), np.nan)
    filled = dict.fromkeys(names, 0)
    for row in sorted(rows, key=lambda row: (str(row["task_id"]), int(row["sample"]))):
        name = str(row["task_id"])
        cell = (names.index(name), filled[name])
        score[cell], gold[cell] = float(row["judge_score"]), float(row["correct"])
        filled[name] += 1
    return score, gold


def judge(seed: int, quick: bool) -> dict[str, object]:
    """Half of the tasks with few labels foretell the other half's best-of-n curve, which has all of its labels."""
    if not DATA.exists():
        return {"forecast_judge_goodhart": "the public data set judge_goodhart is not here"}
    score, gold = judge_table()
    rng = np.random.default_rng(seed)
    agreed: list[bool] = []
    table: list[dict[str, object]] = []
    for turn in range(4 if quick else 40):
        order = rng.permutation(len(score))
        half, other = order[: len(order) // 2], order[len(order) // 2 :]
        blank = SampleTable(score[half], np.full(score[half].shape, np.nan), np.ones(score[half].shape))
        asked, chances = choose_samples(blank, LABELS * len(half), int(rng.integers(1 << 31)))
        found = forecast_gold(SampleTable(score[half], np.where(asked, gold[half], np.nan), chances), seed=turn)
        points = {int(point.at): point for point in found.best.points}
        real = SampleTable(score[other], gold[other], np.ones(score[other].shape))
        for n in (1, 2, 3, 4, 6, 8, 12, 16, 24):
            full = real.sizes >= n
            each = [
                best_of_n_mean(s[:size], g[:size], n)
                for s, g, size in zip(real.score[full], real.gold[full], real.sizes[full].tolist(), strict=True)
            ]
            mean, wide = float(np.mean(each)), 1.2816 * float(np.std(each, ddof=1)) / np.sqrt(len(each))
            row: dict[str, object] = {
                "n": n,
                "foretold": "not foretold",
                "real, other tasks": f"{mean:.3f} ± {wide:.3f}",
            }
            if n in points:
                told = points[n].gold
                agreed.append(abs(told.mean - mean) <= np.hypot(wide, 0.5 * (told.high - told.low)))
                row["foretold"] = f"{told.mean:.3f} [{told.low:.3f}, {told.high:.3f}]"
            table += [row] if turn == 0 else []
    return {"forecast_judge_goodhart": table, "forecast_judge_agrees": share(agreed)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--split", default="heldout")
    given = parser.parse_args()
    told = figures(given.seed, given.quick, given.split)
    print(json.dumps(told)) if given.json else show(told, as_json=False)
