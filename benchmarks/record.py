"""Every published figure comes from a file that a command wrote: `benchmarks/results/NAME.json`, with its origin."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import tiltmeter
from rooms import rooms_of

#: The smoke sizes (`smoke.py`) write and read a copy.
RESULTS = Path(os.environ.get("TILTMETER_BENCHMARK_RESULTS", Path(__file__).parent / "results"))
#: What is added to the figures: how they were made.
ORIGIN = ("command", "seed", "version", "revision", "rooms", "python", "cpu", "cores", "load_1min")
#: Names recorded by this process, whether written or not.
RECORDED: list[str] = []


def record(name: str, figures: Mapping[str, object], *, seed: int, keep: bool = True) -> dict[str, object]:
    """The figures with the command, seed and machine that made them; written unless `keep` is False (small sizes)."""
    result: dict[str, object] = {
        **figures,
        "command": shlex.join(["python", *_relative(sys.argv)]),
        "seed": seed,
        "version": tiltmeter.__version__,
        "revision": revision(),
        "rooms": rooms_of(Path(sys.argv[0])),
        "python": platform.python_version(),
        "cpu": _cpu(),
        "cores": os.cpu_count() or 0,
        "load_1min": round(os.getloadavg()[0], 2),
    }
    RECORDED.append(name)
    if keep:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    return result


def show(result: Mapping[str, object], *, as_json: bool) -> None:
    """Print the figures: one line of JSON for a machine, or a line each."""
    if as_json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:40} {value}")


def _relative(argv: list[str]) -> list[str]:
    root = Path(__file__).parent.parent
    script = Path(argv[0]).resolve()
    # Where on its machine somebody kept a folder is nobody's business.
    options = [Path(option).name if option.startswith("/") else option for option in argv[1:]]
    return [str(script.relative_to(root)) if script.is_relative_to(root) else script.name, *options]


def revision() -> str:
    """The commit that is checked out."""
    asked = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=RESULTS.parent)
    return asked.stdout.strip() or "unknown"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
