"""Gold that has earned its trust: which sources are believed, what agents did is graded again, and what that costs.

    python benchmarks/trusted_gold.py [--part NAME,NAME] [--runs N] [--seed N] [--quick] [--json] [--write]

`columns`: which answer columns `gold="auto"` takes, of known datasets and of the sealed ones; `honest`: honest runs
under real TRL with columns that look like answers; `void`: runs whose gold says nothing, and whether any ends OK;
`refusals`: good gold that the audit refuses; `judge`: false alarms of a judge behind a function; `regrade`: hacked and
honest workspaces graded again; `acts`: transcripts that write files as text, and edits of tests that were asked for.
The sealed sets (`sealed_gold.sha256`) were written before the rules by eyes that had not seen them. `--write` puts the
parts that are named into the record and keeps the others as they were measured, each with its revision.
"""

from __future__ import annotations

import sys

from record_parts import Part, run_parts
from trusted_acts import measure_acts
from trusted_columns import measure_columns
from trusted_live import measure_honest
from trusted_regrade import measure_regrade
from trusted_runs import measure_function_judge, measure_refusals, measure_void_gold

#: In the order in which they are measured: what each does, its size, and its smallest.
PARTS = {
    "columns": Part(measure_columns, 1, 1),
    "acts": Part(measure_acts, 1000, 12),
    "void": Part(measure_void_gold, 1, 1),
    "refusals": Part(measure_refusals, 500, 2),
    "judge": Part(measure_function_judge, 4000, 20),
    "regrade": Part(measure_regrade, 1000, 5),
    "honest": Part(measure_honest, 100, 4),
}
DEAR = ("honest",)  # trains models: only where it is named


if __name__ == "__main__":
    sys.exit(run_parts("trusted_gold", __doc__ or "", PARTS, DEAR))
