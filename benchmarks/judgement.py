"""The judgement as a whole: is it calm over trouble, loud over health, and do its numbers agree?

    python benchmarks/judgement.py [--part NAME,NAME] [--names KIND,KIND] [--runs N] [--seed N] [--quick] [--json]
                                   [--write]

Measured against the truth of each simulated run, which no instrument sees: `troubles` plays 25 troubled and 15 healthy
kinds through the public API, and counts exit code 0 over a trouble and ACT or WATCH over health; `own` does so with the
sealed kinds; `healthy_share` how soon labels exclude a loss in healthy runs, and how often wrongly; `slices` whether a
hacked environment of twelve is named, and healthy ones never; `curricula` false alarms where prompts change; `onset`
whether the interval has the true turn, and gold at the checkpoint to go back to; `surfaces` how many numbers of gold,
onset, checkpoint and odds differ from the verdict's; `tiny` the tiny language model. `NAME_of` is the number of runs
that NAME stands on. `--runs` is the size of each part named, `--quick` the smallest. `--write` puts these parts into
the record and keeps the others as they were measured, each with its revision; a part never run has no figure.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from judged_bounds import measure_curricula, measure_slices
from judged_curves import measure_healthy_share, measure_onset
from judged_runs import count_own, count_troubles
from judged_surfaces import measure_surfaces
from record import ORIGIN, RESULTS, record, revision, show
from tiltmeter_lab.tiny.run_files import load_packed
from tiltmeter_lab.tiny.score import SHARE, estimate_truth, to_trace
from tiltmeter_lab.watch_run import level_alarm, play


class Part(NamedTuple):
    measure: Callable[..., Mapping[str, object]]
    runs: int
    least: int  # runs of the smallest size


def measure_tiny(runs: int, seed: int, small: bool) -> dict[str, object]:
    """Gold lost at the alarm in recorded hacks of the tiny language model, as `level.py` and `tiny_suite.py` have it:
    by the level alone with every answer labelled, and by the whole alarm with a tenth."""
    packed = sorted(load_packed().items())
    traces = [(number, to_trace(run)) for number, (_, run) in enumerate(packed)]
    hacks = [(number, trace) for number, trace in traces if estimate_truth(trace).kind == "hack"][:runs]
    whole, tenth = list[float](), list[float]()
    for number, trace in hacks:
        truth = estimate_truth(trace)
        whole.append(truth.regret(trace.gold, level_alarm(trace)))
        tenth.append(truth.regret(trace.gold, play(trace, seed + number, SHARE).alarm_step))
    figures = {
        "tiny_all_regret": float(np.median(whole)),
        "tiny_tenth_regret": float(np.median(tenth)),
        "tiny_tenth_regret_p90": float(np.quantile(tenth, 0.9)),
    }
    sizes = {f"{name}_of": len(hacks) for name in figures}
    return {**{name: round(value, 3) for name, value in figures.items()}, **sizes}


#: In the order in which they are measured: what each does, its size, and its smallest.
PARTS = {
    "troubles": Part(count_troubles, 3, 1),
    "own": Part(count_own, 1, 1),
    "slices": Part(measure_slices, 1000, 1),
    "curricula": Part(measure_curricula, 2000, 16),
    "onset": Part(measure_onset, 20, 1),
    "surfaces": Part(measure_surfaces, 20, 1),
    "healthy_share": Part(measure_healthy_share, 100, 1),
    "tiny": Part(measure_tiny, 20, 1),
}
DEAR = ("tiny",)  # only where it is named


def recorded() -> dict[str, Any]:
    path = RESULTS / "judgement.json"
    return json.loads(path.read_text()) if path.exists() else {}


def merge(old: Mapping[str, Any], new: Mapping[str, Mapping[str, object]], origin: Mapping[str, object]) -> Any:
    """The old figures without those of the parts measured anew, and these."""
    parts = dict(old.get("parts", {}))
    gone = {figure for name in new for figure in parts.get(name, {}).get("figures", ())}
    figures = {key: value for key, value in old.items() if key not in {*ORIGIN, "parts", *gone}}
    for name, measured in new.items():
        figures |= measured
        parts[name] = {**origin, "figures": list(measured)}
    return {**figures, "parts": parts}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", help="names with commas between; default: all but the dear ones")
    parser.add_argument("--names", default="", help="kinds of the parts `troubles` and `own`, with commas between")
    parser.add_argument("--runs", type=int, help="of each part; default: its own size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record in benchmarks/results/judgement.json")
    options = parser.parse_args()
    chosen = options.part.split(",") if options.part else [name for name in PARTS if name not in DEAR]
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(PARTS)}")
    if options.write and (options.names or options.quick):
        parser.error("a record has every kind at full size: leave out --write, or --names and --quick")
    names = [name for name in options.names.split(",") if name]
    measured, sizes = dict[str, Mapping[str, object]](), dict[str, int]()
    for name in chosen:
        part = PARTS[name]
        sizes[name] = options.runs or (part.least if options.quick else part.runs)
        more = {"names": names} if "names" in inspect.signature(part.measure).parameters else {}
        measured[name] = part.measure(sizes[name], options.seed, options.quick, **more)
    figures: dict[str, Any] = recorded() if options.write else {}
    for name, one in measured.items():
        origin = {"revision": revision(), "runs": sizes[name], "seed": options.seed}
        figures = merge(figures, {name: one}, origin)
    show(record("judgement", figures, seed=options.seed, keep=options.write), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
