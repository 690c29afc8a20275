"""The score of the recorded runs of the tiny language model, as `tiltmeter lab score --suite tiny-lm` gives it.

    python benchmarks/tiny_suite.py [--held-out] [--json] [--check] [--quick]

`--held-out`: the second suite, `tiny-lm-2`, and beside the score each run with a tenth of the labels and with all.

It takes most of a minute, so the page about detectors shows the recorded figures. `--check` compares them with a new
score, and its exit code is 1 where they differ; the campaign runs that.
"""

from __future__ import annotations

import argparse
import json
import sys

from power import watch_whole
from record import RESULTS, record, show
from tiltmeter_lab.tiny.run_files import HELD_OUT_RECORDED, RECORDED, load_packed
from tiltmeter_lab.tiny.score import SHARE, estimate_truth, figures, to_trace
from tiltmeter_lab.watch_run import play


def by_run() -> list[dict[str, object]]:
    """Each held-out run: what became of gold, and the alarm with a tenth of the labels and with a gold column."""
    rows: list[dict[str, object]] = []
    for seed, (name, run) in enumerate(sorted(load_packed(HELD_OUT_RECORDED).items())):
        trace = to_trace(run)
        truth = estimate_truth(trace)
        start, peak, end = (round(float(trace.gold[at]), 3) for at in (0, truth.peak, -1))
        row: dict[str, object] = {"run": name, "kind": truth.kind, "gold_start": start, "gold_peak": peak}
        row |= {"gold_end": end, "peak_step": truth.peak}
        for title, alarm in ((str(SHARE), play(trace, seed, SHARE).alarm_step), ("all", watch_whole(trace))):
            row |= {f"alarm_{title}": alarm, f"lost_{title}": round(truth.regret(trace.gold, alarm), 3)}
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--held-out", action="store_true", help="the second suite")
    parser.add_argument("--check", action="store_true", help="compare with the recorded figures; write nothing")
    parser.add_argument("--quick", action="store_true", help="labels are chosen once; nothing is written")
    options = parser.parse_args()
    name = "tiny_suite_2" if options.held_out else "tiny_suite"
    scores = figures(HELD_OUT_RECORDED if options.held_out else RECORDED, *((1, 1) if options.quick else ()))
    if options.held_out:
        scores["by_run"] = by_run()
    now = json.loads(json.dumps(scores, allow_nan=False))
    if options.check:
        recorded = json.loads((RESULTS / f"{name}.json").read_text())
        different = [key for key in now if recorded.get(key) != now[key]]
        print(f"different: {', '.join(different)}" if different else "as recorded")
        return 1 if different else 0
    show(record(name, now, seed=0, keep=not options.quick), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
