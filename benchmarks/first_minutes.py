"""The first minutes of somebody who tries Tiltmeter: mistakes, the demo, the first verdict, the size of the install.

    python benchmarks/first_minutes.py [--part mistakes|demo|first_verdict|screens|trackers] [--json] [--write]

Part `mistakes`: `first_mistakes.py`, ways to give gold and rewards wrongly. Part `demo`: the package alone is installed
into an empty environment, `install_mb` is what that holds, and `demo_cpu_s` is what `tiltmeter demo` takes there at its
first use, compiled kernels included. Part `first_verdict`: the CPU seconds of the quickstart, its monitor and
`tiltmeter show`, from the start of Python to the first verdict that is printed, with nothing compiled before. CPU
seconds are of all processes that are started. Part `screens`: the most lines of `show` over the kinds of run in
docs/show.md. Part `trackers`: how many trackers have our readings in the trainer's own run, by the tests of each with
the real package; one that is not installed counts as not tried. Parts that are not named keep the figures that are
recorded.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from record import ORIGIN, RESULTS, record, show

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 900  # that a part may take
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER: a monitor outlives its trainer, and its seconds count


def mistakes() -> dict[str, Any]:
    command = [sys.executable, str(ROOT / "benchmarks" / "first_mistakes.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def demo() -> dict[str, Any]:
    """Install the package alone, and run the demo for the first time."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-first-") as folder:
        place = Path(folder) / "venv"
        subprocess.run(["uv", "venv", "-q", "--python", sys.executable, str(place)], check=True)
        install = ["uv", "pip", "install", "-q", "--link-mode", "copy", "--python", str(place / "bin" / "python")]
        subprocess.run([*install, str(ROOT)], check=True, timeout=SECONDS)
        listed = ["uv", "pip", "list", "-q", "--format", "json", "--python", str(place / "bin" / "python")]
        packages = json.loads(subprocess.run(listed, check=True, capture_output=True, text=True).stdout)
        size = sum(path.lstat().st_size for path in place.rglob("*") if path.is_file() and not path.is_symlink())
        seconds = cpu_seconds([str(place / "bin" / "tiltmeter"), "demo", "--plain"], folder)
    return {"demo_cpu_s": seconds, "install_mb": round(size / 2**20, 1), "install_packages": len(packages)}


def first_verdict() -> dict[str, Any]:
    """The quickstart as it stands, then its first screen."""
    with tempfile.TemporaryDirectory(prefix="tiltmeter-first-") as folder:
        command = [sys.executable, str(ROOT / "examples" / "trl_quickstart.py")]
        seconds = cpu_seconds(command, folder)
        screen = [sys.executable, "-m", "tiltmeter", "show", "quickstart/tiltmeter", "--plain"]
        seconds += cpu_seconds(screen, folder, codes=(0, 1, 2, 3))
        shown = subprocess.run(screen, cwd=folder, capture_output=True, text=True, check=False).stdout
    state = shown.split(maxsplit=1)[0]
    if state in ("BLIND", "STALE"):
        raise SystemExit(f"the quickstart has no verdict at its end:\n{shown}")
    return {"first_verdict_cpu_s": round(seconds, 1), "first_verdict": state}


def screens() -> dict[str, Any]:
    import show_runs

    with show_runs.made() as runs:
        found = show_runs.screens(runs)
    return {"show_kinds": len(found), "show_lines_max": max(map(len, found.values()))}


def trackers() -> dict[str, Any]:
    tests = ROOT / "tests" / "adapters" / "trl" / "test_own_trackers.py"
    with tempfile.TemporaryDirectory(prefix="tiltmeter-first-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests), "-k", "has_them_in_the"]
        done = subprocess.run(
            [*command, f"--junit-xml={report}"], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    outcomes = {
        str(case.get("name")).removeprefix("test_").partition("_has_")[0]: next((one.tag for one in case), "passed")
        for case in cases
    }
    if not outcomes or done.returncode not in (0, 1):
        raise SystemExit(done.stdout[-2000:])
    return {
        "same_run_trackers": sum(outcome == "passed" for outcome in outcomes.values()),
        "same_run_trackers_tried": sum(outcome != "skipped" for outcome in outcomes.values()),
        "same_run_trackers_by_name": outcomes,
    }


def cpu_seconds(command: list[str], folder: str, codes: tuple[int, ...] = (0,)) -> float:
    """What a command and all that it starts takes, with empty caches."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TILTMETER_", "NUMBA_"))}
    env |= {
        "NUMBA_CACHE_DIR": f"{folder}/kernels",
        "XDG_STATE_HOME": f"{folder}/state",
        "XDG_CACHE_HOME": f"{folder}/cache",
    }
    env |= {"PYTHONPYCACHEPREFIX": f"{folder}/bytecode", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    if command[0] != sys.executable:
        env.pop("PYTHONPATH", None)
    ctypes.CDLL(None).prctl(_ADOPT_ORPHANS, 1)
    before = _children()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:  # whoever was left behind is a child of this process now
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.2)
        except ChildProcessError:
            break
    return round(_children() - before, 1)


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "mistakes": mistakes,
    "demo": demo,
    "first_verdict": first_verdict,
    "screens": screens,
    "trackers": trackers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    parser.add_argument("--quick", action="store_true", help="only the screens")
    parser.add_argument("--seed", type=int, default=0, help="of the record; nothing here is drawn")
    options = parser.parse_args()
    if options.quick:
        options.part = ["screens"]
    recorded = RESULTS / "first_minutes.json"
    figures = json.loads(recorded.read_text()) if recorded.exists() and options.part else {}
    figures = {name: value for name, value in figures.items() if name not in ORIGIN}
    for part in options.part or PARTS:
        figures |= PARTS[part]()
    show(record("first_minutes", figures, seed=options.seed, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
