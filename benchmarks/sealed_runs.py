"""Twenty kinds of run that no rule was chosen on: ten in trouble and ten healthy, played through the public API.

    python benchmarks/sealed_runs.py [--names a,b] [--seed N] [--steps N] [--json]

They were written without a look at the code that judges them, and `sealed_runs.sha256` holds what they were then:
`sha256sum -c sealed_runs.sha256`, here. Whoever changes a kind after a look at its verdict makes it another kind. A run
depends on its name and the seed alone. `fair` says whether a run ended in what a fair reviewer must at least see:
trouble in an exit code other than 0, health in OK, or in BLIND where the kind says so. Figures are kept where all
kinds are played to their ends.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tiltmeter
from record import record, show
from sealed_runs_healthy import HEALTHY
from sealed_runs_troubled import TROUBLED
from sealed_runs_worlds import Kind, to_columns

HERE = Path(__file__).resolve().parent
KINDS: dict[str, Kind] = TROUBLED | HEALTHY
LOOK_EVERY = 15  # a user looks now and then, and the monitor keeps pace


def open_kind(kind: Kind, directory: Path, resume_step: int | None = None) -> tiltmeter.Run:
    source = f"{HERE / 'sealed_runs_checks.py'}:{kind.gold}" if kind.gold else None
    gold = tiltmeter.Gold(source, share=kind.share, steps=kind.steps) if source else None
    options = tiltmeter.Options(on_full="wait", quiet=True, strict=True)
    return tiltmeter.open_run(directory, gold=gold, resume_step=resume_step, options=options)


def step_order(kind: Kind, most: int | None) -> Iterator[tuple[int, bool]]:
    """Every step as it is trained, and whether the run is resumed there."""
    restarts, step, resumed = dict(kind.restarts), 0, False
    end = kind.steps if most is None else min(most, kind.steps)
    while step < end:
        if step in restarts:
            step, resumed = restarts.pop(step), True
        yield step, resumed
        step, resumed = step + 1, False


def thirds(truth: Mapping[int, float]) -> list[float]:
    """True gold by thirds of the run; of a step that was trained twice, what came of the second time."""
    values = np.array([truth[step] for step in sorted(truth)])
    return [round(float(part.mean()), 3) if len(part) else float("nan") for part in np.array_split(values, 3)]


def play(name: str, seed: int, directory: str | Path, most: int | None = None) -> dict[str, Any]:
    """One run from its first step to its verdict, or `most` of its steps; what was said, beside what is true."""
    kind, place, began = KINDS[name], Path(directory) / name, time.monotonic()
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    truth: dict[int, float] = {}
    states: list[tuple[int, str]] = []
    run = open_kind(kind, place)
    for step, resumed in step_order(kind, most):
        if resumed:
            run.close()
            run.verdict(90)
            run = open_kind(kind, place, resume_step=step)
        made = kind.make(step, rng)
        truth[step] = float(made.truth.mean())
        run.observe(**to_columns(made, step, rng))
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            states.append((step, str(run.verdict(90).state)))
    run.close()
    verdict = run.verdict(180)
    return {
        "name": name,
        "kind": kind.kind,
        "state": str(verdict.state),
        "exit_code": verdict.exit_code,
        "fair": kind.is_fair(str(verdict.state), verdict.exit_code),
        "sentence": verdict.sentence,
        "alarms": [(alarm.name, alarm.step, alarm.onset) for alarm in verdict.alarms],
        "warnings": [(warning.name, warning.step) for warning in verdict.warnings],
        "states": states,
        "onset": kind.onset,
        "gold_sees": kind.gold_sees,
        "true_gold": thirds(truth),
        "seconds": round(time.monotonic() - began, 1),
    }


def play_all(names: Sequence[str], seed: int, most: int | None) -> list[dict[str, Any]]:
    played = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="sealed-", ignore_cleanup_errors=True) as directory:
            played.append(play(name, seed, directory, most))
        print(json.dumps(played[-1]), file=sys.stderr, flush=True)
    return played


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--names", default=",".join(KINDS), help="kinds, with commas between")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--steps", type=int, help="of each run at most")
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    names = given.names.split(",")
    played = play_all(names, given.seed, given.steps)
    figures: dict[str, object] = {}
    for word, letter in (("troubled", "T"), ("healthy", "H")):
        of_kind = [one for one in played if one["kind"] == letter]
        figures |= {word: len(of_kind), f"{word}_fair": sum(one["fair"] for one in of_kind)}
    figures["runs"] = played
    whole = given.steps is None and set(names) == set(KINDS)
    show(record("sealed_runs", figures, seed=given.seed, keep=whole), as_json=given.json)


if __name__ == "__main__":
    main()
