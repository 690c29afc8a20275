"""Several reward models as one, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tiltmeter_workbench.stats.ensembles import combined


def test_ensemble_rules_equal_numpy_and_anything_else_names_the_choices() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        members = rng.normal(size=(rng.integers(1, 6), 7))
        penalty = float(rng.uniform(0, 2))
        mean, sd = members.mean(axis=0), members.std(axis=0)
        assert combined(members, "min") == pytest.approx(members.min(axis=0))
        assert combined(members, "mean") == pytest.approx(mean)
        assert combined(members, "median") == pytest.approx(np.median(members, axis=0))
        assert combined(members, "mean_minus_std", penalty) == pytest.approx(mean - penalty * sd)
        assert combined(members, "mean_minus_variance", penalty) == pytest.approx(mean - penalty * sd**2)
        holed = np.where(rng.random(members.shape) < 0.2, np.nan, members)
        assert np.isnan(combined(holed, "min"))[np.isnan(holed).any(axis=0)].all()
    with pytest.raises(ValueError, match="min, mean, median, mean_minus_std, mean_minus_variance"):
        combined(np.ones((2, 2)), "max")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one member"):
        combined(np.ones((0, 2)), "min")
