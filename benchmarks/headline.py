"""Measures the headline figures anew: those that the README and the first pages show, listed in `headline.toml`.

    python benchmarks/headline.py [NAME ...] [--list]

Run it on a quiet machine, with nothing uncommitted: all figures then name one revision. A missed target is said, and
is no failure; a benchmark that ends in an error is.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import shlex
import subprocess
import sys
import time
import tomllib
from typing import Any

from record import RESULTS
from rooms import HERE, ROOT
from stale import age_of

SIGNS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq}


def headline() -> dict[str, dict[str, Any]]:
    """By the name of its result: the command, the minutes it takes, where it is shown, and its targets."""
    return tomllib.loads((HERE / "headline.toml").read_text())


def missed(entry: dict[str, Any], result: dict[str, Any]) -> list[str]:
    """Targets that a result does not reach."""
    found = []
    for figure, target in entry.get("target", {}).items():
        sign, bound = target.split()
        if not SIGNS[sign](result[figure], float(bound)):
            found.append(f"{figure} is {result[figure]}, not {target}")
    return found


def stale_names() -> list[str]:
    """Headline results whose revision is not in the history, or whose rooms have changed since."""
    files = ((name, RESULTS / f"{name}.json") for name in headline())
    return [name for name, file in files if not file.exists() or age_of(file).is_stale]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="without any: all")
    parser.add_argument("--list", action="store_true", help="only say what would run, and how old each result is")
    options = parser.parse_args()
    entries = headline()
    failed = []
    for name in options.names or entries:
        entry = entries[name]
        if options.list:
            age = age_of(RESULTS / f"{name}.json").text
            print(f"{name:16} {entry['minutes']:4} min  python {entry['command']}\n{'':27}{age}")
            continue
        began, load = time.monotonic(), os.getloadavg()[0]
        command = [sys.executable, *shlex.split(entry["command"])]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, env=environment)
        if done.returncode:
            failed.append(name)
        result = json.loads((RESULTS / f"{name}.json").read_text())
        shown = ", ".join(f"{figure} {result.get(figure)}" for figure in entry["figures"])
        state = f"exit {done.returncode}" if done.returncode else "; ".join(missed(entry, result)) or "ran"
        print(f"{name:16} {time.monotonic() - began:6.0f} s, load {load:.1f}  {shown}  {state}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
