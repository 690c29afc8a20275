"""Record the two runs that `tiltmeter demo` replays: the toy loop and its honest twin, from one seed.

    python examples/record_demo.py  # writes src/tiltmeter/cli/demo_runs/hacked and src/tiltmeter/cli/demo_runs/honest

Each is trained and judged for real. What is shipped is then made small: log-probabilities in half precision, no tokens
and no entropy, one packed file per run. Events are left out, so that the demo has everything to measure.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import tiltmeter
from tiltmeter.rundir.maintenance import pack, verify
from tiltmeter.rundir.store import RunDirectory

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ROOT / "src" / "tiltmeter" / "demo"
STEPS, SEED = 84, 1  # of eight seeds, a middling one in how far gold has fallen when the alarm rings
RUNS = {"hacked": ([], 1), "honest": (["--honest"], 0)}  # flags of the toy loop, and the exit code it must end with


def record(name: str, flags: list[str], exit_code: int, scratch: Path) -> None:
    whole, small = scratch / f"{name}-whole", scratch / name
    command = [sys.executable, str(ROOT / "examples" / "toy_loop.py"), "--out", str(whole), *flags]
    ended = subprocess.run([*command, "--steps", str(STEPS), "--seed", str(SEED)])
    if ended.returncode != exit_code:
        sys.exit(f"the {name} run ended with exit code {ended.returncode}, not {exit_code}: nothing was replaced")

    source = RunDirectory(whole)
    run = tiltmeter.open_run(small, options=tiltmeter.Options(logprobs="fp16", on_full="wait"), monitor=False)
    for file in source.files(0):
        batch, _, _ = source.read(file)
        run.observe(replace(batch, tokens=None, entropy=None))
    run.close()
    pack(RunDirectory(small))
    if problems := verify(RunDirectory(small)):
        sys.exit(f"the {name} run is damaged: {problems}")

    shutil.rmtree(SHIPPED / name, ignore_errors=True)
    for path in sorted(small.rglob("*")):
        if path.is_file():
            target = SHIPPED / name / path.relative_to(small)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)  # without the owner-only mode that a run's files have
    size = sum(path.stat().st_size for path in (SHIPPED / name).rglob("*") if path.is_file())
    print(f"{SHIPPED / name}: {size / 1000:.0f} kB")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for name, (flags, exit_code) in RUNS.items():
            record(name, flags, exit_code, Path(scratch))


if __name__ == "__main__":
    main()
