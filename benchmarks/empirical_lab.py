"""Worlds of real answers for the proving ground: each is tilted exactly by its own reward, as far as a drawn η.

    tiltmeter lab run --worlds benchmarks/empirical_lab.py:WORLDS --runs 40 --record \
        packages/tiltmeter-lab/src/tiltmeter_lab/recorded/empirical.jsonl.gz

The language model's answers and their rewards come with the package; judge-goodhart's are read from
`../shared/data/judge_goodhart` beside the repository, and left out where that is absent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter_lab.worlds.empirical import judge_goodhart, names, smollm

DATA = Path(__file__).parents[2] / "shared" / "data" / "judge_goodhart" / "best_of_n.jsonl.gz"


def tilted(made: Callable[[], dict[str, Any]], rng: np.random.Generator) -> dict[str, Any]:
    """A world of real answers, with its length, its groups and how far it goes drawn at random."""
    steps, size = int(rng.choice([200, 240, 300])), int(rng.choice([4, 8, 8, 16]))
    return {
        **made(),
        "update": "tilt",
        "steps": steps,
        "rate": float(rng.uniform(4.0, 8.0)) / steps,
        "groups": 512 // size,
        "group_size": size,
        "labels": "value",  # gold is programmatic: asking twice gives the same answer
    }


WORLDS = {f"smollm_{name}": partial(tilted, partial(smollm, name)) for name in names()}
if DATA.exists():
    WORLDS["judge_goodhart"] = partial(tilted, partial(judge_goodhart, DATA))
