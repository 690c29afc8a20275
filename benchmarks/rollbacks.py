"""What a rollback would still lose in the recorded held-out runs of tables: added to the record, run by run.

    python benchmarks/rollbacks.py [--split heldout] [--runs N]

The smooth hacks of the record are simulated again and compared with it. After the recorded alarm labels are bought over
the stored past, as `tiltmeter lab run` does in new campaigns; nothing else of the record changes. Runs that have the
figure are left alone, so that it can be stopped and called again.
"""

from __future__ import annotations

import argparse
import sys

from tiltmeter_lab.campaign_records import RECORDED, compact, load_recorded
from tiltmeter_lab.evaluate_run import rollback_gap
from tiltmeter_lab.floor import floor_regret
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.report import simulate_again
from tiltmeter_lab.score import OURS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", default="heldout")
    parser.add_argument("--runs", type=int, default=40, help="of each family, the first ones")
    options = parser.parse_args()
    facts, thresholds, lines = load_recorded(options.split)
    chosen = [
        line
        for line in lines
        if line["kind"] == "hack" and not line["cliff"] and line["index"] < options.runs and "rollback_gap" not in line
    ]
    for number, line in enumerate(chosen):
        trace = simulate_again(facts, line)
        truth = GroundTruth.of(trace.gold, trace.slope)
        line["rollback_gap"] = rollback_gap(trace, truth, line["methods"][OURS]["alarm"], line["seed"])
        line["level_floor"] = floor_regret(trace, truth, 1.0)
        if number % 50 == 0:
            print(f"{number} of {len(chosen)} runs", file=sys.stderr)
    facts["commands"] = list(
        dict.fromkeys([*facts["commands"], f"python benchmarks/rollbacks.py --runs {options.runs}"])
    )
    (RECORDED / f"{options.split}.jsonl.gz").write_bytes(compact(lines, thresholds, facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
