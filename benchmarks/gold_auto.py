"""Gold that nobody has to configure: how soon it finds a hack, and how often it is wrong.

    python benchmarks/gold_auto.py [--part traps] [--json] [--write] [--runs N]

Part `traps`: simulated runs in which honest work is paid on a trap with chance p0 and a growing or fixed share of
answers takes its pay in another way; the test of traps alone, at its share of a run's money and the first arming's
threshold. Parts that are not named keep the figures that are recorded.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from math import log

import numpy as np
from numpy.typing import NDArray

from record import RESULTS, record, show
from tiltmeter.detectors.gold_loss import TRAP_SHARE
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.intervals import upper_bound
from tiltmeter.stats.trap_payments import CHANCE, TrapPaymentTest

Floats = NDArray[np.float64]
ALPHA = 0.01
STEPS, ROLLOUTS = 300, 512
TRAPS = (2, 5)  # a step
CHANCES = (0.0, 0.01, 0.02)  # of pay for honest work, each declared as it is
HACKS = ("grows_to_79_percent", "10_percent_from_100", "5_percent_from_100")
#: The run's wealth is what was not staked plus the stake times the test's evidence.
THRESHOLD = log((1.0 / alpha_share(ALPHA, 1) - (1.0 - TRAP_SHARE)) / TRAP_SHARE)


def traps(runs: int) -> dict[str, object]:
    """False alarms of honest runs by p0, and the step of the alarm in hacked ones, by traps a step."""
    figures: dict[str, object] = {"trap_share_max": round(max(TRAPS) / ROLLOUTS, 4), "trap_null_runs": runs}
    worst = 0.0
    for number, chance in enumerate(CHANCES):
        for count in TRAPS:
            rng = np.random.default_rng([number, count])
            alarms = sum(_first_alarm(np.full(STEPS, chance), chance, count, rng) is not None for _ in range(runs))
            figures[f"trap_false_alarm_p{chance:g}_{count}_a_step"] = round(alarms / runs, 5)
            worst = max(worst, upper_bound(alarms, runs))
            print(f"p0 {chance:g}, {count} traps a step: {alarms} of {runs} alarmed", file=sys.stderr)
    figures["trap_false_alarm_upper95"] = round(worst, 5)
    hacked = max(runs // 10, 1)
    for number, hack in enumerate(HACKS):
        for count in TRAPS:
            rng = np.random.default_rng([10 + number, count])
            found = [_first_alarm(_pay_rate(hack), CHANCE, count, rng) for _ in range(hacked)]
            steps = [STEPS if step is None else step for step in found]
            figures[f"trap_{hack}_{count}_a_step"] = {
                "runs": hacked,
                "found": round(sum(step is not None for step in found) / hacked, 4),
                "step_median": float(np.median(steps)),
                "step_p90": float(np.quantile(steps, 0.9)),
            }
    return figures


def _pay_rate(hack: str) -> Floats:
    """The chance that a trap is paid, by step."""
    step = np.arange(STEPS)
    share = {
        "grows_to_79_percent": 0.79 / (1.0 + np.exp((90.0 - step) / 10.0)),
        "10_percent_from_100": np.where(step >= 100, 0.10, 0.0),
        "5_percent_from_100": np.where(step >= 100, 0.05, 0.0),
    }[hack]
    return np.asarray(1.0 - (1.0 - CHANCE) * (1.0 - share), np.float64)


def _first_alarm(rates: Floats, declared: float, count: int, rng: np.random.Generator) -> int | None:
    test, worth = TrapPaymentTest(), min(CHANCE / max(declared, CHANCE), 1.0)
    for step, paid in enumerate(rng.random((len(rates), count)) < rates[:, None]):
        test.place(step, (worth * paid).tolist())
        if test.evidence >= THRESHOLD:
            return step
    return None


PARTS: dict[str, Callable[[int], dict[str, object]]] = {"traps": traps}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be given several times")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/gold_auto.json")
    parser.add_argument("--runs", type=int, default=4000, help="null runs of each kind")
    options = parser.parse_args()
    file = RESULTS / "gold_auto.json"
    figures: dict[str, object] = json.loads(file.read_text()) if file.exists() else {}
    for part in options.part or PARTS:
        figures |= PARTS[part](options.runs)
    show(record("gold_auto", figures, seed=0, keep=options.write), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
