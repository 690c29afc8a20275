"""What is known before a run: planted biases found again, memory against a profiler, the linter, forecasts and truth.

    python benchmarks/before.py [--json] [--seed 2026] [--quick] [--only preferences,memory,lint,forecast] [--write]

Each part is a script of its own, `before_NAME.py`, and says there what it measures. The public data sets that some of
them read are not part of this repository; what needs them is left out, and said, where they are absent.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys

from record import RESULTS, record, show

PARTS = ("preferences", "memory", "lint", "forecast")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    parser.add_argument("--only", default=",".join(PARTS), help="names, with commas")
    parser.add_argument("--write", action="store_true", help="the parts made now take the place of those on record")
    options = parser.parse_args()
    asked = [name for name in options.only.split(",") if name]
    if unknown := set(asked) - set(PARTS):
        parser.error(f"no part called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    found: dict[str, object] = {}
    if options.write and asked != list(PARTS) and (RESULTS / "before.json").exists():
        found = json.loads((RESULTS / "before.json").read_text())
    for name in asked:
        print(f"before_{name}", file=sys.stderr, flush=True)
        found |= importlib.import_module(f"before_{name}").figures(options.seed, options.quick)
    show(record("before", found, seed=options.seed, keep=options.write and not options.quick), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
