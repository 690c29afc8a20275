"""The score of the recorded runs of the tiny language model, as `tiltmeter lab score --suite tiny-lm` gives it.

    python benchmarks/tiny_suite.py [--json] [--check]

It takes most of a minute, so the page about detectors shows the recorded figures. `--check` compares them with a new
score, and its exit code is 1 where they differ; the campaign runs that.
"""

from __future__ import annotations

import argparse
import json
import sys

from record import RESULTS, record, show
from tiltmeter.lab.tiny.score import figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="compare with the recorded figures; write nothing")
    options = parser.parse_args()
    now = json.loads(json.dumps(figures(), allow_nan=False))
    if options.check:
        recorded = json.loads((RESULTS / "tiny_suite.json").read_text())
        different = [name for name in now if recorded.get(name) != now[name]]
        print(f"different: {', '.join(different)}" if different else "as recorded")
        return 1 if different else 0
    show(record("tiny_suite", now, seed=0), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
