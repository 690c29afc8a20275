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

import sys

import numpy as np

from judged_bounds import measure_curricula, measure_slices
from judged_curves import measure_healthy_share, measure_onset
from judged_runs import count_own, count_troubles
from judged_surfaces import measure_surfaces
from record_parts import Part, run_parts
from tiltmeter_lab.tiny.run_files import load_packed
from tiltmeter_lab.tiny.score import SHARE, estimate_truth, to_trace
from tiltmeter_lab.watch_run import level_alarm, play


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


def main() -> int:
    return run_parts("judgement", __doc__ or "", PARTS, DEAR)


if __name__ == "__main__":
    sys.exit(main())
