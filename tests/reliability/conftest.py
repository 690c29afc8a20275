"""The harnesses are programs under `benchmarks/`: CI runs them small, a campaign runs them large, the code is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

Bench = Callable[..., dict[str, Any]]


@pytest.fixture
def bench() -> Bench:
    """Run one of them in a process of its own (it forks, or is killed by what it proves) and give its figures."""

    def run(name: str, *options: str) -> dict[str, Any]:
        # Warnings are errors there as they are here: a batch that makes numpy warn would print into a training log.
        done = subprocess.run(
            [sys.executable, "-W", "error", str(BENCHMARKS / f"{name}.py"), "--json", *options],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures

    return run
