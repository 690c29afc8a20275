"""Parts of a monitor that fail on order: instruments, a detector and a gold function for `trl_faults.py`.

The folder named by `TILTMETER_SABOTAGE` holds `orders.json`: by step, which part is to fail, and for gold a list of
ways to fail, one every few calls. Each is carried out once, whatever is started again, and leaves a file that says so.
"""

from __future__ import annotations

import errno
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tiltmeter.monitor.process
import tiltmeter.rundir.atomic_write
import tiltmeter.rundir.journal
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Alarm, Floats, Reading, RolloutBatch, Tier

HANG_SECONDS = 1.0
GOLD_EVERY = 3  # calls

HERE = Path(os.environ.get("TILTMETER_SABOTAGE", "."))
# Attaching tries every part once in the trainer's process, where nothing may fail. Gold has a process of its own.
MONITOR = "--attached" in sys.argv or Path(sys.argv[0]).name == "function_process.py"
ORDERS: dict[str, Any] = json.loads((HERE / "orders.json").read_text()) if MONITOR else {"steps": {}, "gold": []}

if MONITOR:
    tiltmeter.monitor.process.RETRY_SECONDS = 0.2  # the pause is for real disks


def done(kind: str, number: int) -> bool:
    """Whether this was carried out before; it counts as carried out from now on."""
    try:
        os.close(os.open(HERE / "done" / f"{kind}.{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return True
    return False


def due(kind: str, step: int) -> bool:
    return ORDERS["steps"].get(str(step)) == kind and not done(kind, step)


class Part:
    """An instrument that measures the number of rows, unless it was told to fail at this step."""

    grain = "batch"
    needs = ("reward",)
    bounds: tuple[float | None, float | None] = (0.0, None)
    kind = ""

    @property
    def name(self) -> str:
        return f"sabotage.{self.kind}"

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats | Mapping[str, Floats]:
        if due(self.kind, batch.step):
            answer: Any = self.fail(batch.step)
            return answer  # type: ignore[no-any-return]
        return np.array([float(len(batch))])

    def fail(self, step: int) -> Any:
        raise NotImplementedError


class Raises(Part):
    kind = "instrument_raises"

    def fail(self, step: int) -> Any:
        raise (RuntimeError, MemoryError, RecursionError, SystemExit)[step % 4]("on order")


class Hangs(Part):
    kind = "instrument_hangs"

    def fail(self, step: int) -> Any:
        time.sleep(HANG_SECONDS)
        return np.zeros(1)


class Nonsense(Part):
    kind = "instrument_answers_nonsense"

    def fail(self, step: int) -> Any:
        answers: tuple[Any, ...] = (None, "1.0", np.zeros(7), {"a/b\n": np.zeros(1)}, {1: object()}, [[]], b"\xff")
        return answers[step % len(answers)]


class FullDisk(Part):
    """From here on three calls of the monitor's storage fail, as when its disk is full."""

    kind = "monitor_disk_full"

    def fail(self, step: int) -> Any:
        full = _FullOs()
        tiltmeter.rundir.atomic_write.os = tiltmeter.rundir.journal.os = full  # type: ignore[assignment, attr-defined]
        return np.zeros(1)


class _FullOs:
    def __init__(self) -> None:
        self._left = 3

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return self._refuse if name in ("write", "link", "fsync") and self._left > 0 else real

    def _refuse(self, *args: Any) -> Any:
        self._left -= 1
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class BrokenDetector:
    """A detector that raises on order, and otherwise never speaks. Promise: none."""

    name = "sabotage"
    tier: Tier = "warning"
    alpha = 0.01
    watches = ("reward.mean",)

    def __repr__(self) -> str:
        return "BrokenDetector()"

    def update(self, reading: Reading) -> Alarm | None:
        if due("detector_raises", reading.step):
            raise ZeroDivisionError("on order")
        return None


_calls = 0
_next = 0


def score(prompt: str, completion: str) -> Any:
    """Gold that fails in every way a function can, one call in `GOLD_EVERY`.

    Not while it is tried at attach: there a wrong gold is refused loudly, and no run begins.
    """
    global _calls, _next
    _calls += 1
    if _calls % GOLD_EVERY or not MONITOR or not (HERE / "attached").exists():
        return float(len(completion) % 2)
    while _next < len(ORDERS["gold"]):
        number, kind = _next, ORDERS["gold"][_next]
        _next += 1
        if not done(kind, number):
            return _misbehave(kind, number)
    return 0.5


def _misbehave(kind: str, number: int) -> Any:
    if kind == "gold_raises":
        raise (ValueError, KeyError, MemoryError, RecursionError, SystemExit)[number % 5]("on order")
    if kind == "gold_hangs":
        time.sleep(HANG_SECONDS)
        return 1.0
    if kind == "gold_hangs_for_good":
        time.sleep(86_400)
    if kind == "gold_exits":
        os._exit(3)
    nonsense = (math.nan, math.inf, "0.5", 7.0, -1, None, [0.5], {"score": 1}, object(), b"1", 1 + 2j, 10**400)
    return nonsense[number % len(nonsense)]
