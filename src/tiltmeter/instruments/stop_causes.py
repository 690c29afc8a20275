"""Why trajectories ended, and whether their reward says anything."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.data.stops import STOPS, is_trusted


class StopCauses:
    """Share of trajectories by why they ended (`done`, `length`, `turns`, `wall_clock`, ...); those whose reward says
    nothing about an answer (`untrusted`: a container, a verifier, an engine or a clock failed); and the share that was
    trained on all the same (`untrusted_trained`).

    A failed container that is paid 0 teaches the policy that its answer was wrong. Such rewards are counted nowhere
    else: they are `infra`. The trap: a policy can cause time-outs, and a discarded one is an exit it can learn.

    Formula: 1[stop of row i = cause]; 1[its reward cannot be trusted]; and 1[that and advantage not 0]
    Source: own; rllm#710 found 76 of 178 wall-clock cuts reported as a normal end

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0], stop=["done", "sandbox"], reward=[1.0, 0.0], advantage=[0.5, -0.5])
    >>> answer = StopCauses().measure(batch, None)
    >>> [answer[name].tolist() for name in ("done", "sandbox", "untrusted", "untrusted_trained")]
    [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]
    """

    name = "stop"
    grain = "rollout"
    needs = ("stop",)
    bounds = (0.0, 1.0)
    local = True
    by_env = ("untrusted", "untrusted_trained")

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.stop is not None
        words = np.array([word or "" for word in batch.stop], dtype=object)
        unknown = words == ""

        def share(hits: np.ndarray) -> Floats:
            return np.where(unknown, np.nan, hits.astype(np.float64))

        untrusted = np.array([not is_trusted(word) for word in batch.stop], bool)
        shares = {name: share(words == name) for name in STOPS}
        shares["untrusted"] = share(untrusted)
        if batch.advantage is not None:
            used = np.nan_to_num(batch.advantage) != 0.0
            if batch.trained is not None:
                used &= batch.trained
            shares["untrusted_trained"] = share(untrusted & used)
        return shares
