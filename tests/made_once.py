"""What takes seconds to make and is only read afterwards: made by one process of a test run, read by all of them."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder of that name, which `make` has filled: here, or in another worker of pytest-xdist.

    `make` is handed a path that does not exist yet. If it fails, the next worker that needs it tries again.
    """
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    place = root / name
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / f"{name}.made").exists():
            shutil.rmtree(place, ignore_errors=True)
            make(place)
            (root / f"{name}.made").touch()
    return place
