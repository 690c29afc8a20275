"""Reading a run needs nothing that only Linux has: no /proc, no processor affinity; only the sandbox may."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.store import RunDirectory

SRC = Path(__file__).parents[2] / "src" / "tiltmeter"
#: Files that name /proc, each where its absence is handled: what they learn there is then not known.
MAY_LOOK = {
    *("monitor/lease.py", "adapters/monitor_process.py", "workbench/probe/reward_process.py"),
    "adapters/trainer_lock.py",  # without it, a process is known by its number alone
    "rundir/atomic_write.py",  # which mounts there are; without it, none is known to be a bucket's
}

ELSEWHERE = """
import builtins, io, os, sys
real = io.open
def open_(file, *rest, **more):
    if isinstance(file, (str, bytes, os.PathLike)) and os.fsdecode(file).startswith("/proc"):
        raise FileNotFoundError(2, "no such file", file)
    return real(file, *rest, **more)
builtins.open = io.open = open_
for name in ("sched_getaffinity", "sched_setaffinity"):
    delattr(os, name)
sys.argv = ["tiltmeter", *sys.argv[1:]]
from tiltmeter.cli import main
main()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run")
    store.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(70):
        rng = np.random.default_rng(step)
        gold = rng.integers(0, 2, 32).astype(float)
        reward, texts = gold + rng.random(32), [f"answer {g:g}" for g in gold]
        batch = from_columns(step, np.repeat(np.arange(4), 8), reward=reward, gold=gold, completion=texts)
        store.write(batch, 0, {"counters": {"seen": step + 1}})
    store.close_rank(0, 0, {"seen": 70})
    loop = MonitorLoop(store, Config.standard())
    loop.poll()
    loop.close()
    assert pack(store)
    return store.path


@pytest.mark.parametrize(
    "words",
    ["show RUN", "show RUN --more", "report RUN --md -", "verify RUN", "audit RUN --plain", "alarms RUN"],
)
def test_a_reading_verb_works_without_what_only_linux_has(run: Path, words: str) -> None:
    command = [sys.executable, "-c", ELSEWHERE, *words.replace("RUN", str(run)).split()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


def test_the_harness_notices_a_file_of_proc() -> None:
    code = ELSEWHERE.partition("sys.argv =")[0] + "open('/proc/self/stat')"
    assert "FileNotFoundError" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr


def test_only_the_sandbox_and_what_handles_its_absence_names_proc() -> None:
    found = {
        path.relative_to(SRC).as_posix() for path in SRC.rglob("*.py") if re.search(r"[\"']/proc/", path.read_text())
    }
    assert {name for name in found if not name.startswith("sandbox/")} <= MAY_LOOK
