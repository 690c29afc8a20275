"""The newest TRL on the index: do our tests pass there, or, where it is untested, does training end all the same?

    python benchmarks/newest_trl.py --json

Where the installed TRL is the newest, this environment is used; else a fresh one is made, torch first, so that no
resolver chooses it. A version that the adapter was tested with must pass the tests of the adapter. With any other,
`attach` must say so once and train on: that is the only failure here, because what TRL changed is news and not a fault.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import tempfile
import time
import venv
import warnings
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TORCH = "torch==2.13.0"  # on this index the CPU build
PACKAGES = ("trl", "transformers", "accelerate", "datasets", "peft", "pytest")
SUITE = "tests/adapters/trl/test_attach.py"
STEPS = 6

Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the result as one line of JSON")
    parser.add_argument("--fresh", action="store_true", help="make an environment even if this one has the newest")
    parser.add_argument("--again", action="store_true", help="run the tests even where the newest is what is here")
    parser.add_argument("--here", action="store_true", help="only try training in this environment")
    parser.add_argument("--pretend", metavar="VERSION", help="take the TRL that is there for this version")
    options = parser.parse_args()
    started = time.monotonic()
    result = (
        try_training(options.pretend)
        if options.here
        else try_newest(options.fresh, options.pretend, again=options.again)
    )
    result["seconds"] = round(time.monotonic() - started, 1)
    print(json.dumps(result, indent=None if options.json else 1))
    return 0 if result["training"] == "ended" else 1


def try_newest(fresh: bool, pretend: str | None, *, again: bool) -> Figures:
    installed, newest = installed_version("trl"), newest_on_index("trl")
    with tempfile.TemporaryDirectory(prefix="tiltmeter-newest-") as folder:
        python, made = Path(sys.executable), False
        if fresh or (newest is not None and newest != installed):
            python, made = environment(Path(folder) / "venv"), True
        result = {"newest": newest or "the index did not answer", "installed": installed, "fresh": made}
        command = [str(python), str(Path(__file__).resolve()), "--here", "--json"]
        done = run([*command, *(["--pretend", pretend] if pretend else [])], Path(folder))
        result |= json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else _failed(done)
        result["suite"] = "not run: this version is not one the adapter was tested with"
        if result.get("tested") and not made and not again:
            result["suite"] = "not run again: this is the version that all tests here run with"
        elif result.get("tested"):
            suite = run([str(python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", SUITE], Path(folder))
            result["suite"] = "passed" if suite.returncode == 0 else f"failed: {suite.stdout[-1500:]}"
    return result


def try_training(pretend: str | None) -> Figures:
    """Train twice in this environment, once watched: it must end, the parameters equal, after one warning or none."""
    import tiltmeter
    from trl_model import SMALL, long, make_model, make_trainer, parameters, quiet

    trl: Any = import_module("trl")
    adapter = import_module("tiltmeter.adapters.trl.attach")
    if pretend:
        trl.__version__ = pretend
    figures: Figures = {
        "versions": {name: installed_version(name) for name in ("torch", *PACKAGES[:-1])},
        "trl": trl.__version__,
        "tested": trl.__version__.rpartition(".")[0] in adapter.TRL,
    }
    with tempfile.TemporaryDirectory(prefix="tiltmeter-newest-") as folder:
        home = Path(folder)
        os.environ["XDG_STATE_HOME"] = folder
        model = make_model(home / "model", SMALL)
        plain = make_trainer(model, home / "plain", SMALL, steps=STEPS, rewards=[long])
        with quiet():
            plain.train()
        watched = make_trainer(model, home / "watched", SMALL, steps=STEPS, rewards=[long])
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = tiltmeter.attach(watched)
        figures["warned"] = sum("not one this adapter was tested with" in str(one.message) for one in said)
        with quiet():
            watched.train()
        verdict = run.verdict(60.0)
        figures |= {
            "steps": watched.state.global_step,
            "stored": run.counters["written"],
            "verdict": verdict.state,
            "unchanged": parameters(plain) == parameters(watched),
        }
    expected = 0 if figures["tested"] else 1
    sound = figures["steps"] == STEPS and figures["unchanged"] and figures["warned"] == expected
    return {**figures, "training": "ended" if sound else "not as it should"}


def environment(folder: Path) -> Path:
    """A fresh virtual environment with the newest of everything but torch."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraint = folder / "constraints.txt"
    constraint.write_text(f"{TORCH}\n")
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    for packages in ([TORCH], [*PACKAGES, "-c", str(constraint)], ["-e", str(ROOT)]):
        subprocess.run([*pip, *packages], check=True, stdout=sys.stderr)
    return python


def newest_on_index(name: str) -> str | None:
    """The version that pip would install now; None if the index does not answer."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", "-q"]
    done = subprocess.run([*command, "--report", "-", name], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return None
    return str(json.loads(done.stdout)["install"][0]["metadata"]["version"])


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    settings = {"HF_HUB_OFFLINE": "1", "XDG_STATE_HOME": str(folder)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **settings})


def _failed(done: subprocess.CompletedProcess[str]) -> Figures:
    return {"training": "failed", "error": (done.stdout + done.stderr)[-2000:]}


if __name__ == "__main__":
    sys.exit(main())
