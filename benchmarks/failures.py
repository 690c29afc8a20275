"""What each failure looks like: a planted run, its picture, what `tiltmeter show` says of it, the readings that moved.

    python benchmarks/failures.py [--only FAILURE] [--json] [--write]

The runs are those of `diagnosis.py`, with every completion labelled where there are completions. With `--write` the
pictures go to `docs/images/failures`, and the pages of the failures show them with the rest of what is recorded here.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from diagnosis import PLANTED, ranked
from planted_runs import measure_run
from record import record, show
from tiltmeter.data.records import Finding, Reading
from tiltmeter.diagnosis import builtin_rules
from tiltmeter.rundir.journal import JournalReader, readings_of
from tiltmeter.rundir.store import RunDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from tests.command_line import tiltmeter  # noqa: E402  in this process: another would cost two seconds

IMAGES = ROOT / "docs" / "images" / "failures"
SEED = 108  # 8 prompts of 8 completions, all of them labelled, and no trace of the trait at the start
ENDS = 10  # steps at either end
LARGEST = 13_000  # bytes of a picture
LIMIT = 8  # readings in a table

KINDS = {
    "alignment_tax": "alignment tax",
    "dead_groups": "dead groups, mastered",
    "engine_mismatch": "engine mismatch",
    "environment_fault": "containers fail",
    "format_hacking": "markdown",
    "heavy_tailed_reward": "heavy-tailed reward",
    "hedging": "hedging",
    "kl_failure": "KL without gain",
    "length_hacking": "length",
    "likelihood_displacement": "likelihood displacement",
    "mode_collapse": "mode collapse",
    "no_progress": "no progress",
    "phrase_gaming": "stock phrase",
    "refusal_hacking": "refusal",
    "retokenisation": "tokens drift between turns",
    "reward_hacking": "a hidden shortcut",
    "stale_policy": "the queue grows",
    "starved_tasks": "slow tasks starve",
    "sycophancy": "sycophancy",
    "tampering": "tests removed",
    "tool_loop": "a loop of calls",
    "unstable_training": "the policy comes apart",
    "verifier_fault": "the check is fooled",
}


def names_of(failure: str) -> list[str]:
    """The readings that rules of this failure read, in their order; gold last."""
    found = []
    for rule in builtin_rules().rules:
        if rule.failure == failure:
            found += [one.reading for one in (*rule.must, *rule.any, *rule.also)]
    return [name for name in dict.fromkeys([*found, "gold.mean"]) if name]


def rounded(values: list[float]) -> float:
    return float(f"{np.mean(values):.3g}")


def moved(readings: list[Reading], patterns: list[str]) -> list[dict[str, Any]]:
    """Means over the first and the last steps of these readings, of those that moved."""
    values: dict[str, list[float]] = {}
    for one in readings:
        if np.isfinite(one.value):
            values.setdefault(one.name, []).append(one.value)
    names = [name for pattern in patterns for name in fnmatch.filter(sorted(values), pattern)]
    ends = {
        name: [float(f"{np.mean(part):.3g}") for part in (values[name][:ENDS], values[name][-ENDS:])] for name in names
    }
    rows = [{"reading": name, "first": first, "last": last} for name, (first, last) in ends.items() if first != last]
    return [*rows[: LIMIT - 1], *(row for row in rows[LIMIT - 1 :] if row["reading"] == "gold.mean")]


def observe(failure: str, keep: bool) -> dict[str, Any]:
    place = Path("runs") / failure.replace("_", "-")
    run = RunDirectory.create(place)
    measure_run(PLANTED[KINDS[failure]](SEED), run)
    said = tiltmeter("show", place, "--plain")
    drawn = Path(f"{failure}.svg")
    tiltmeter("report", place, "--svg", drawn)
    size = drawn.stat().st_size if drawn.exists() else 0
    assert size <= LARGEST, f"{drawn.name} has {size} bytes"
    if keep and size:
        IMAGES.mkdir(parents=True, exist_ok=True)
        (IMAGES / drawn.name).write_text(drawn.read_text())
    events = list(JournalReader(run.path / "events").poll())
    readings = [one for event in events for part in ("measured", "derived") for one in readings_of(event, part)]
    named = ranked([payload for event in events if isinstance(payload := event.payload, Finding)])
    return {
        "kind": KINDS[failure],
        "named": named[:3],
        "exit_code": said.returncode,
        "show": said.stdout.strip().splitlines(),
        "readings": moved(readings, names_of(failure)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        names = [options.only] if options.only else KINDS
        failures = {name: observe(name, options.write) for name in names}
    figures = {"failures": failures, "right": sum(name in one["named"][:1] for name, one in failures.items())}
    keep = options.write and options.only is None
    show(record("failures", figures, seed=SEED, keep=keep), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
