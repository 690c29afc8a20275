"""A benchmark of several parts with one record: each part keeps its figures, with its own revision, until it is run."""

from __future__ import annotations

import argparse
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from record import ORIGIN, RESULTS, record, revision, show


class Part(NamedTuple):
    """`measure(runs, seed, small)`, with `names` where single kinds can be chosen."""

    measure: Callable[..., Mapping[str, object]]
    runs: int
    least: int  # runs of the smallest size


def run_parts(name: str, about: str, parts: Mapping[str, Part], dear: Sequence[str] = ()) -> int:
    """The command line of a benchmark of this name. `dear`: parts that are run only where they are named."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", help="names with commas between; default: all but the dear ones")
    parser.add_argument("--names", default="", help="kinds of a part, with commas between")
    parser.add_argument("--runs", type=int, help="of each part; default: its own size")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help=f"record in benchmarks/results/{name}.json")
    options = parser.parse_args()
    chosen = options.part.split(",") if options.part else [one for one in parts if one not in dear]
    if unknown := set(chosen) - set(parts):
        parser.error(f"unknown part {', '.join(sorted(unknown))}; choose from {', '.join(parts)}")
    if options.write and (options.names or options.quick):
        parser.error("a record has every kind at full size: leave out --write, or --names and --quick")
    kinds = [kind for kind in options.names.split(",") if kind]
    measured, sizes = dict[str, Mapping[str, object]](), dict[str, int]()
    for one in chosen:
        part = parts[one]
        sizes[one] = options.runs or (part.least if options.quick else part.runs)
        more = {"names": kinds} if "names" in inspect.signature(part.measure).parameters else {}
        measured[one] = part.measure(sizes[one], options.seed, options.quick, **more)
    figures: dict[str, Any] = _recorded(name) if options.write else {}
    for one, found in measured.items():
        origin = {"revision": revision(), "runs": sizes[one], "seed": options.seed}
        figures = merge(figures, {one: found}, origin)
    show(record(name, figures, seed=options.seed, keep=options.write), as_json=options.json)
    return 0


def _recorded(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
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
