"""Square root of the KL, the x-axis of over-optimisation curves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tiltmeter.data.records import Reading


@dataclass
class KlRoot:
    """Square root of the KL to the reference, d = sqrt(KL) by `k3`, in root nats.

    Against d, proxy and gold of a run follow simple curves: gold rises, bends and falls as d (α - β ln d) under
    reinforcement learning and d (α - β d) under best-of-n, while the proxy goes on rising. So distances of two runs are
    compared on this scale. It grows in every run that learns: a level alone says nothing. The standard error is carried
    over to first order.

    Formula: sqrt(policy.kl.k3); stderr = stderr(KL) / (2 sqrt(KL))
    Source: Gao, Schulman and Hilton 2022, arXiv 2210.10760

    >>> root = KlRoot().fold(Reading(0, 3, "policy.kl.k3", 4.0, 8, 0.4))
    >>> root.name, root.value, root.stderr
    ('policy.kl_root', 2.0, 0.1)
    """

    name: str = field(default="policy.kl_root", init=False)
    watches: tuple[str, ...] = field(default=("policy.kl.k3",), init=False)

    def fold(self, reading: Reading) -> Reading | None:
        if reading.value < 0.0:
            return None
        root = math.sqrt(reading.value)
        stderr = reading.stderr / (2.0 * root) if reading.stderr is not None and root > 0.0 else None
        return replace(reading, name=self.name, value=root, stderr=stderr, values=())
