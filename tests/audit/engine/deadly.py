"""An instrument that ends the worker it runs in: once, if a file beside it says so, or always."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch

STEP = 20


class Deadly:
    """Ends its process at step 20, unless that is the one that `driver` names, or `spent` is there."""

    name = "test.deadly"
    grain = "batch"
    needs = ("reward",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        here = Path(__file__).parent
        if batch.step == STEP and str(os.getpid()) != (here / "driver").read_text():
            if not (here / "always").exists():
                if (here / "spent").exists():
                    return np.array([1.0])
                (here / "spent").touch()
            os._exit(9)
        return np.array([1.0])
