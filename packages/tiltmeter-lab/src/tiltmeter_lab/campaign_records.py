"""Compact campaign records: the alarms of each run at every threshold setting, as gzipped JSON lines."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tiltmeter.errors import StoreError

Line = dict[str, Any]
Thresholds = dict[str, dict[str, float]]

RATES = ("0.01", "0.05")  # of benign runs that may alarm; the keys of stored thresholds
#: At most 1 % of all runs in which the null holds, those at its boundary included, where gold does not depend on the
#: reward. A threshold fitted only on good rewards says little about useless ones.
NULL = "null"
SETTINGS = ("published", *RATES, NULL)
RECORDED = Path(__file__).parent / "recorded"
_RUN_FIELDS = (
    *("family", "update", "seed", "index", "cliff", "kind", "peak", "onset", "first_negative", "drop"),
    *("steps", "rollouts", "floor", "level_floor", "level", "rollback_gap"),
)
_BUDGET_FIELDS = ("alarm", "regret", "labels", "share", "early")  # fields of the outcome at another label budget


def apply_thresholds(lines: Iterable[Line], thresholds: Thresholds | None = None) -> tuple[list[Line], Thresholds]:
    """Each run with its alarms at every threshold setting, without the scores; sorted.

    Lines that already have alarms by setting stay as they are.
    """
    lines = sorted(lines, key=lambda line: (line["family"], line["index"]))
    if thresholds is None:
        thresholds = fit_thresholds(lines)
    return [_decide_alarms(line, thresholds) for line in lines], thresholds


def fit_thresholds(lines: Iterable[Line]) -> Thresholds:
    """By baseline and rate: the score that at most this share of the benign runs ever exceeds.

    >>> runs = [{"family": "f", "kind": "benign", "methods": {"cusum": {"records": [[0, 1.0], [9, float(n)]]}}}
    ...         for n in range(100)]
    >>> fit_thresholds(runs)
    {'cusum': {'0.01': 98.0, '0.05': 94.0, 'null': 98.0}}
    """
    tops: dict[str, tuple[list[float], list[float]]] = {}  # benign runs, and those at the edge of the null
    for line in lines:
        if line["kind"] == "benign":
            for name, result in line["methods"].items():
                if "records" in result:
                    top = max((value for _, value in result["records"]), default=-math.inf)
                    tops.setdefault(name, ([], []))[is_boundary(line)].append(top)
    thresholds: Thresholds = {}
    for name, (benign, edge) in tops.items():
        chosen = {rate: _exceeded_by_share(benign, float(rate)) for rate in RATES} | {
            NULL: _exceeded_by_share(benign + edge, 0.01)
        }
        thresholds[name] = {rate: value for rate, value in chosen.items() if math.isfinite(value)}
    return thresholds


def _exceeded_by_share(values: list[float], rate: float) -> float:
    """What at most this share of the values exceeds; with few values that may be none of them."""
    return sorted(values, reverse=True)[math.floor(rate * len(values) + 1e-9)] if values else math.inf


def compact(
    lines: Iterable[Line], thresholds: Thresholds | None = None, facts: Mapping[str, Any] | None = None
) -> bytes:
    """A campaign as it is committed: alarm steps and regrets of each run, gzipped JSON lines, the same bytes each time.

    The first line has the facts and the thresholds.
    """
    runs, thresholds = apply_thresholds(lines, thresholds)
    head = {"facts": dict(facts or {}), "thresholds": thresholds}
    texts = [json.dumps(line, separators=(",", ":"), allow_nan=False) for line in [head, *map(_pack, runs)]]
    return gzip.compress(("\n".join(texts) + "\n").encode(), 9, mtime=0)


def expand(data: bytes) -> tuple[dict[str, Any], Thresholds, list[Line]]:
    """Facts, thresholds and lines of a compact campaign."""
    try:
        head, *lines = (json.loads(text) for text in gzip.decompress(data).decode().splitlines())
        return head["facts"], head["thresholds"], [_unpack(line) for line in lines]
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise StoreError(
            f"this is not a campaign record ({error}); make one with `tiltmeter lab run --record`"
        ) from error


def load_recorded(name: str) -> tuple[dict[str, Any], Thresholds, list[Line]]:
    """A campaign that comes with the package: heldout, calibration, dev, or empirical."""
    path = RECORDED / f"{name}.jsonl.gz"
    if not path.is_file():
        there = ", ".join(sorted(file.name.split(".")[0] for file in RECORDED.glob("*.jsonl.gz"))) or "none"
        raise StoreError(f"no campaign {name!r} is recorded; there are: {there}")
    return expand(path.read_bytes())


def round_numbers(value: Any, digits: int = 5) -> Any:
    """So many digits after the point, or six in all for large numbers: the runs do not determine more."""
    if isinstance(value, Mapping):
        return {key: round_numbers(part, digits) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_numbers(part, digits) for part in value]
    if isinstance(value, float):
        return round(value, digits) if abs(value) < 1 else float(f"{value:.6g}")
    return value


def is_boundary(line: Line) -> bool:
    """A run whose slope is exactly zero: the edge of the null, which counts for no rate."""
    return str(line["family"]).startswith("boundary")


def _decide_alarms(line: Line, thresholds: Thresholds) -> Line:
    record = {name: line[name] for name in _RUN_FIELDS if name in line}
    record["methods"] = {}
    for name, result in line["methods"].items():
        if "records" not in result:
            record["methods"][name] = result
            continue
        at = {"published": (result["alarm"], result["regret"])}
        for rate, limit in thresholds.get(name, {}).items():
            step = next((step for step, value in result["records"] if value > limit), None)
            at[rate] = (step, _regret(line, step))
        top = max((value for _, value in result["records"]), default=None)
        # To the digits that are committed, so that a record scores as the campaign did.
        record["methods"][name] = {
            "score": None if top is None else float(f"{top:.3g}"),
            "at": {rate: (step, line["drop"] if step is None else round(lost, 4)) for rate, (step, lost) in at.items()},
        }
    record["budgets"] = {
        budget: {name: result[name] for name in _BUDGET_FIELDS if name in result}
        for budget, result in (line.get("budgets") or {}).items()
    }
    record["forecast"] = line.get("forecast")
    return dict(round_numbers(record, 4))


def _regret(line: Line, step: int | None) -> float:
    return float(line["drop"] if step is None else max(line["gold"]) - line["gold"][step])


def _pack(line: Line) -> Line:
    """Of each baseline its highest score and, by setting, the step of the alarm and, in a run that lost something, the
    regret. What can be inferred is left out."""
    methods: dict[str, Any] = {}
    for name, result in line["methods"].items():
        if "at" not in result:
            methods[name] = result
            continue
        pairs = [result["at"].get(setting, (None, 0.0)) for setting in SETTINGS]
        row = [None if step is None else step if line["kind"] == "benign" else [step, lost] for step, lost in pairs]
        methods[name] = [result["score"], *row]
    return {**line, "methods": methods}


def _unpack(line: Line) -> Line:
    methods: dict[str, Any] = {}
    for name, result in line["methods"].items():
        if isinstance(result, Mapping):
            methods[name] = result
            continue
        at = {}
        for setting, pair in zip(SETTINGS, result[1:], strict=True):
            at[setting] = tuple(pair) if isinstance(pair, list) else (pair, line["drop"] if pair is None else None)
        methods[name] = {"score": result[0], "at": at}
    return {**line, "methods": methods}
