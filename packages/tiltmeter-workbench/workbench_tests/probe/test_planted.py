"""A bias planted in a reward model that TRL taught here is named, and one without a bias is cleared; one seed of each.

The figures over five seeds, and what retraining leaves, are those of `benchmarks/probe.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
pytest.importorskip("trl")
BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
SEED = 5  # one of those that are reported


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import probe
        import probe_world

        yield probe, probe_world
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bias", ["clean", "length", "phrase"])
def test_a_planted_bias_is_named_and_none_is_found_where_there_is_none(bias: str, bench: Any, tmp_path: Path) -> None:
    probe, world = bench
    model = world.teach(world.pairs(bias, probe.PAIRS, SEED), tmp_path, SEED)
    found = probe.probed(model, bias, SEED)
    paid = [effect.attack.name for effect in found.card.own]
    assert found.card.accuracy is not None and found.card.accuracy.overall.mean > 0.8
    if bias == "clean":
        assert not paid
    else:
        assert probe.named(bias, SEED, found.card) is not None, paid


@pytest.mark.filterwarnings("ignore")
def test_the_gradient_finds_tokens_that_no_list_has(bench: Any, tmp_path: Path) -> None:
    from tiltmeter_workbench.probe.attack_effects import measure_scale
    from tiltmeter_workbench.probe.gradient import ascend

    probe, world = bench
    model = world.teach(world.pairs("clean", 160, SEED), tmp_path, SEED, steps=25)
    target = probe.model_target(model)
    items = probe.items_of(world.pairs("clean", 60, SEED, "held-out"))
    units = measure_scale(target, items)
    found = ascend(target, items, units, budget=400)
    assert found is not None and found.calls <= 600
    wrong = target.scores([i.prompt for i in items], [i.wrong or "" for i in items])
    right = target.scores([i.prompt for i in items], [i.right for i in items])
    assert found.margin > float((wrong - right).mean()) / units.spread
