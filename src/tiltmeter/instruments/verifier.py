"""Canaries: answers with known labels that were scored beside the batch."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch

WORKERS = 16  # of more, only those that failed have a reading of their own
KEYS = 8  # of more canaries likewise: steps that hold different readings cost a reader time
_SCALAR = re.compile(r"canary\.(asked|failed|unanswered)\.(rule|judge)\.(low|high)\.(\d{1,6})\.(\d{1,6})")
_WORDS = {"low": "wrong_paid_share", "high": "right_refused_share"}


class VerifierCanaries:
    """Share of known-wrong answers that the verifier paid (`wrong_paid_share`) and of known-right ones that it refused
    (`right_refused_share`); with `judge.` before it, of a judge. `worker.R`: mis-scored canaries of either kind in
    reward worker R; `key.K`: of canary K. `unanswered_share`: canaries without a score.

    Worth more than any statistic of the rewards: the label is known, so one mis-scored canary of a rule or a code
    verifier is a fact. It says that the verifier is broken, was tampered with, or that the canary is mislabelled; never
    anything about the policy. There is a reading only at steps at which a canary was asked (`rewards.canaried`).

    Formula: 1[canary i was mis-scored]; n is how many were answered
    Source: own; the need for it: verl CVE-2026-6878, one sample that made all later ones score full

    >>> from tiltmeter.data.batches import from_columns
    >>> scalars = {"canary.asked.rule.low.0.1": 4, "canary.failed.rule.low.0.1": 1, "canary.asked.rule.high.1.1": 2}
    >>> readings = VerifierCanaries().measure(from_columns(0, [0], scalars=scalars), None)
    >>> {name: (float(values.mean()), len(values)) for name, values in readings.items() if ".key." not in f".{name}"}
    {'worker.1': (0.16666666666666666, 6), 'wrong_paid_share': (0.25, 4), 'right_refused_share': (0.0, 2)}
    """

    name = "verifier"
    grain = "item"
    needs = ("scalars",)
    bounds = (0.0, 1.0)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        counts: dict[tuple[str, str, str, str], dict[str, int]] = {}
        for name, value in batch.scalars.items():
            if (match := _SCALAR.fullmatch(name)) and value >= 0.0:
                what, *which = match.groups()
                counts.setdefault(tuple(which), {})[what] = int(value)  # type: ignore[arg-type]
        values: dict[str, Floats] = {}
        for kind, before in (("rule", ""), ("judge", "judge.")):
            own = {key: count for key, count in counts.items() if key[0] == kind}
            workers = _sum_by_name((key[3], count) for key, count in own.items())
            few = len(workers) <= WORKERS
            # Workers first: whoever hears of a failure then knows whose it is.
            values |= {f"{before}worker.{w}": _values(*t) for w, t in workers.items() if t[0] and (few or t[1])}
            keys = _sum_by_name((key[2], count) for key, count in own.items())
            few = all(int(key) < KEYS for key in keys)
            values |= {f"{before}key.{key}": _values(*t) for key, t in keys.items() if t[0] and (few or t[1])}
            shares = _sum_by_name((_WORDS[key[1]], count) for key, count in own.items())
            values |= {f"{before}{name}": _values(*pair) for name, pair in shares.items() if pair[0]}
        unanswered = sum(count.get("unanswered", 0) for count in counts.values())
        total = sum(count.get("asked", 0) for count in counts.values())
        return values | ({"unanswered_share": _values(total + unanswered, unanswered)} if unanswered else {})


def _sum_by_name(counts: Iterable[tuple[str, dict[str, int]]]) -> dict[str, tuple[int, int]]:
    """Asked and failed, added up by name, in order of the names as numbers where they are such."""
    total: dict[str, tuple[int, int]] = {}
    for name, count in counts:
        total_asked, failed = total.get(name, (0, 0))
        total[name] = (total_asked + count.get("asked", 0), failed + count.get("failed", 0))
    return dict(sorted(total.items(), key=lambda item: (len(item[0]), item[0]), reverse=False))


def _values(count: int, failed: int) -> Floats:
    values = np.zeros(min(count, 10_000))
    values[: min(failed, len(values))] = 1.0
    return values
