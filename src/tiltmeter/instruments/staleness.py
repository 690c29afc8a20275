"""How much older than the newest policy of its batch a trajectory is."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.data.trajectories import staleness


class Staleness:
    """Policy versions between the oldest part of a trajectory and the newest policy of its batch (`oldest`), and how
    many versions wrote it (`span`, 0 for one).

    Trajectories that are older than the policy are off-policy: beyond a few versions importance weights no longer mend
    it. Innocent: long trajectories of an asynchronous trainer always span some.

    Formula: max over the batch of version_high - version_low of row i; version_high - version_low of row i
    Source: own; the oldest token decides, as in verl#7569

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0], version=[(5, 5), (2, 4)])
    >>> {name: values.tolist() for name, values in Staleness().measure(batch, None).items()}
    {'oldest': [0.0, 3.0], 'span': [0.0, 2.0]}
    """

    name = "policy.staleness"
    grain = "rollout"
    needs = ("version_low", "version_high")
    bounds = (None, None)
    by_env = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.version_low is not None and batch.version_high is not None
        return {"oldest": staleness(batch), "span": batch.version_high - batch.version_low}
