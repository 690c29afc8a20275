"""What the last whole run of `.ci/run` took: by stage, by test file, and how many tests had to be run twice.

    python benchmarks/ci_run.py FOLDER --seconds N --cpu N --load L [--json]    # `.ci/run` ends with it
    python benchmarks/ci_run.py --dearest 30                            # of the record

FOLDER has `stages`, a line for each (seconds and name), `left_out`, the packages whose tests did not run
(`.ci/packages_to_leave_out.py`; what their files cost is kept), and one `*.tests.json` for each call of pytest
(`tests/budget.py` writes them; `*.again.tests.json` is of those that failed and were run once more, alone). Written are
`benchmarks/results/ci.json`, the line of `AGENTS.md` that shows its seconds and, by test file, CPU seconds and seconds
of the clock, `tests/durations.json`. Whoever ran it commits them.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from record import RESULTS, record, revision, show

ROOT = Path(__file__).parent.parent
DURATIONS = ROOT / "tests" / "durations.json"
SHOWN = re.compile(r"(?<=Its last recorded whole run took )[\d,]+(?= s )")  # in AGENTS.md
AGAIN = ".again.tests.json"
Durations = Mapping[str, Sequence[float | None]]  # CPU seconds, and of the clock where they were taken


def stage_seconds(text: str) -> dict[str, int]:
    """Seconds by stage, as `.ci/run` notes them.

    >>> stage_seconds("    33 s  docs\\n   926 s  tests\\n")
    {'docs': 33, 'tests': 926}
    """
    return {name.strip(): int(seconds) for seconds, name in re.findall(r"^ *(\d+) s  (.+)$", text, re.M)}


def count_tests(records: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Of all calls of pytest together, by the name of its record: counts and what was retried; and seconds by file."""
    counts: Counter[str] = Counter()  # a test that passed alone has passed
    files: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for name, one in records.items():
        counts["passed"] += one["counts"].get("passed", 0)
        counts["skipped"] += 0 if name.endswith(AGAIN) else one["counts"].get("skipped", 0)
        for file, seconds in one["files"].items():
            files[file] = [round(old + new, 1) for old, new in zip(files[file], seconds, strict=True)]
    retried = sorted(test for name, one in records.items() if not name.endswith(AGAIN) for test in one["failed"])
    figures = {
        "tests": counts["passed"],
        "skipped": counts["skipped"],
        "retried": len(retried),
        "retried_tests": retried,
        "tests_cpu_seconds": round(sum(cpu for cpu, _ in files.values())),
    }
    return figures, dict(sorted(files.items(), key=lambda item: -item[1][0]))


def dearest(files: Durations, number: int) -> list[str]:
    """A line for each of the dearest test files: CPU seconds, seconds of the clock, name."""
    ranked = sorted(files.items(), key=lambda item: -(item[1][0] or 0.0))[:number]
    return [f"{cpu:8.1f} {'' if clock is None else f'{clock:.1f}':>8}  {name}" for name, (cpu, clock) in ranked]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seconds", type=int, help="that the run took")
    parser.add_argument("--cpu", type=int, help="CPU seconds of all its processes")
    parser.add_argument("--load", type=float, help="of the machine when it began")
    parser.add_argument("--dearest", type=int, metavar="N", help="print N test files of the record and end")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.dearest:
        print(*dearest(json.loads(DURATIONS.read_text()), options.dearest), sep="\n")
        return
    if options.folder is None or None in (options.seconds, options.cpu, options.load):
        parser.error("FOLDER, --seconds, --cpu and --load, or --dearest")
    left_out = (options.folder / "left_out").read_text().split()
    before = json.loads((RESULTS / "ci.json").read_text()) if (RESULTS / "ci.json").exists() else {}
    records = {path.name: json.loads(path.read_text()) for path in sorted(options.folder.glob("*.tests.json"))}
    figures, files = count_tests(records)
    stages = stage_seconds((options.folder / "stages").read_text())
    run: dict[str, Any] = {
        "ci_seconds": options.seconds,
        "ci_cpu_seconds": options.cpu,
        "load": options.load,
        "ci_stages": stages,
    }
    kept = {name: seconds for name, seconds in json.loads(DURATIONS.read_text()).items() if (ROOT / name).exists()}
    files = (kept if left_out else {}) | files
    run["left_out"] = [option.rpartition("/")[2] for option in left_out]
    run["whole_revision"] = before.get("whole_revision", "") if left_out else revision()
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(seconds)}" for name, seconds in sorted(files.items()))
    DURATIONS.write_text(f"{{\n{lines}\n}}\n")
    rules = ROOT / "AGENTS.md"
    rules.write_text(SHOWN.sub(f"{options.seconds:,}", rules.read_text()))
    show(record("ci", run | figures, seed=0, keep=RESULTS.exists()), as_json=options.json)


if __name__ == "__main__":
    main()
