"""Temperatures of a tiny language model at equal gold: does the sweep name one, and is the claim right?

    python benchmarks/sampling_sweep.py [--json] [--write] [--seeds N] [--work FOLDER]

The base policy of the toy language answers its questions with padding, reasons and mistakes. Gold is the right value
and no other. What `sweep_sampling` claims from `SAMPLES` answers to each question is compared with the gold of
`TRUE_SAMPLES` further ones: a claim is wrong if the setting that it names loses more than the margin there.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

from record import record, show
from tiltmeter_lab.tiny.language import QUESTIONS
from tiltmeter_lab.tiny.model import base_policy
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.referees import ScoringReferee, open_referee
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts
from tiltmeter_workbench.diversity.sweep import SweepReport, sweep_sampling

TEMPERATURES, SAMPLES, TRUE_SAMPLES, WORDS, MARGIN = (0.5, 0.7, 0.85, 1.2, 1.5), 4, 32, 20, 0.05
CHECKS = """
from tiltmeter_lab.tiny import gold


def score(prompt, completion):
    return gold.right(prompt, completion)
"""


def sweep(model: LocalModel, samples: int, seed: int, work: Path) -> SweepReport:
    work.mkdir(parents=True)
    (work / "checks.py").write_text(CHECKS)
    referee = open_referee(f"{work}/checks.py:score", work, scored=True)
    assert isinstance(referee, ScoringReferee)
    prompts = Prompts("questions", [f"{one} " for one in QUESTIONS], [{} for _ in QUESTIONS])
    sampler = AnswerSampler(model, model, work, seed=seed, limit=WORDS, samples=samples)
    return sweep_sampling(sampler, TEMPERATURES, prompts, referee, margin=MARGIN)


def measure(seeds: int, base: Path, folder: Path) -> dict[str, Any]:
    model = LocalModel(base)
    model.plain = True
    truth = sweep(model, TRUE_SAMPLES, 1000, folder / "truth")
    loss = {point.name: -truth.gold_difference(point).mean for point in truth.points}
    runs = [sweep(model, SAMPLES, seed, folder / str(seed)) for seed in range(seeds)]
    claims = [run.best.name for run in runs if run.best is not None]
    return {
        "seeds": seeds, "prompts": len(QUESTIONS), "answers": SAMPLES, "margin": MARGIN,
        "claims": len(claims), "wrong_claims": sum(loss[name] > MARGIN for name in claims),
        "settings": [
            {
                "setting": point.name, "gold": round(float(point.gold.mean()), 3),
                "diversity": round(float(np.mean(point.diversity)), 3),
                "named": claims.count(point.name),
                "called_as_good": sum(run.is_as_good(run.points[at]) for run in runs) if at else None,
            }
            for at, point in enumerate(truth.points)
        ],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--work", type=Path, help="where the base policy is, or is to be left")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(options.seeds, base_policy(options.work or folder), Path(folder) / "sweeps")
    show(record("sampling_sweep", figures, seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
