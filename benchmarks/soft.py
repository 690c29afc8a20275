"""Soft preference learning against plain DPO in the world of the small language model: diversity at equal reward.

    python benchmarks/soft.py [--json] [--seed N] [--quick] [--write] [--work FOLDER]

The policy is `lab.tiny.model.base_policy`; the prompts are the twelve questions of one kind. The reward is
`gold.unpadded`: any answer that names the right value in at most eleven words is worth 1, boxed or not, with or without
a reason, an opening or a closing phrase. A pair is two answers of the corpus, its label a coin with the chance that
Bradley-Terry gives to SCALE times the reward, so that pairs of equal worth are labelled by chance. Each seed draws
pairs of its own; all runs of a seed have the same pairs, in the same order, and the same number of steps.

Plain is TRL's DPO at each beta; soft has an `entropy_weight` of that value and a smaller beta, by each of RATIOS.
Every model is sampled at every temperature. Diversity at a reward is read off the line through a model's temperatures.
`levels` compares, at a reward, soft of one ratio with plain, each at the beta and temperature that give it most.
`against_temperature` compares each soft model at temperature 1 with plain of the same `entropy_weight`, sampled at the
temperature at which it has that reward. A ratio is the geometric mean over what a seed can compare; its interval
(95 %, Student's t of the logarithms) is over seeds. `optimum` is where training would end if it fitted Bradley-Terry
exactly, from samples of the base policy by their importance, soft over plain of equal reward. `MEASURE_ratio` is
`against_temperature` of the smallest of RATIOS. Sizes, weights and ratios were set on another base policy and other
pairs. With --work an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import record, show
from tiltmeter.stats.ngrams import group_ngrams
from tiltmeter_lab.tiny import gold
from tiltmeter_lab.tiny.language import QUESTIONS, sample
from tiltmeter_lab.tiny.rewards import LIMIT

Floats = NDArray[np.float64]

ASKED = tuple(prompt for prompt in QUESTIONS if " color " in prompt)
SCALE = 6.0
WEIGHTS = (1.0, 2.0)  # entropy_weight: beta of plain
RATIOS = (1.25, 1.5)  # of entropy_weight to beta
TEMPERATURES = (0.7, 1.0, 1.3)
LEVELS = (0.6, 0.7, 0.8)
SEEDS, STEPS, BATCH, RATE, SAMPLES = 5, 40, 16, 4e-4, 24
REFERENCE = 256  # samples of the base policy for each prompt, from which the optimum is computed
MEASURES = ("entropy", "distinct", "distinct_right", "dissimilar")
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # 97.5 % by degrees of freedom


@dataclass(frozen=True, slots=True)
class Point:
    """What a model's samples at one temperature are like.

    `entropy`: nats an answer. `distinct`, `distinct_right`: different answers of a prompt's samples, and of those worth
    1. `dissimilar`: 1 - self-BLEU inside a prompt.
    """

    ratio: float  # of entropy_weight to beta: 1 is plain; 0 the base policy
    weight: float
    temperature: float
    reward: float
    words: float
    entropy: float
    distinct: float
    distinct_right: float
    dissimilar: float


def pairs(seed: int, count: int) -> list[dict[str, str]]:
    """Preference pairs whose labels are Bradley-Terry's."""
    rng = random.Random(f"soft/{seed}")
    rows: list[dict[str, str]] = []
    while len(rows) < count:
        prompt = rng.choice(ASKED)
        first, second = sample(prompt, rng), sample(prompt, rng)
        if first == second:
            continue
        gap = SCALE * (gold.unpadded(prompt, first) - gold.unpadded(prompt, second))
        if rng.random() >= 1.0 / (1.0 + math.exp(-gap)):
            first, second = second, first
        rows.append({"prompt": f"{prompt} ", "chosen": first, "rejected": second})
    return rows


def trained(base: Path, rows: list[dict[str, str]], seed: int, beta: float, weight: float, folder: str) -> Any:
    """The policy after one pass over the pairs."""
    from datasets import Dataset
    from transformers import AutoTokenizer, PrinterCallback
    from trl import DPOConfig

    from tiltmeter_workbench.train.methods.soft_trainers import SoftDPOTrainer

    settings = DPOConfig(
        output_dir=folder, seed=seed, beta=beta, per_device_train_batch_size=BATCH, max_steps=len(rows) // BATCH,
        learning_rate=RATE, lr_scheduler_type="cosine", warmup_steps=4, report_to=[], use_cpu=True, bf16=False,
        gradient_checkpointing=False, save_strategy="no", logging_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = SoftDPOTrainer(
        model=str(base), args=settings, train_dataset=Dataset.from_list(rows), entropy_weight=weight,
        processing_class=AutoTokenizer.from_pretrained(str(base)),
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)  # the figures alone are printed
    trainer.train()
    return trainer.model.eval()


@dataclass(frozen=True, slots=True)
class Drawn:
    """Samples of a policy, those of a prompt in a row: token ids, text, worth, and ln of their chance."""

    rows: list[list[int]]
    texts: list[str]
    worth: Floats
    logs: Floats


def drawn(model: Any, tokenizer: Any, temperature: float, seed: int, samples: int) -> Drawn:
    import torch

    torch.manual_seed(seed)
    prompts = [prompt for prompt in ASKED for _ in range(samples)]
    asked = tokenizer(prompts, return_tensors="pt", padding=True)
    with torch.no_grad():
        out = model.generate(
            input_ids=asked["input_ids"], attention_mask=asked["attention_mask"], do_sample=True, top_k=0, top_p=1.0,
            temperature=temperature, max_new_tokens=LIMIT, pad_token_id=tokenizer.pad_token_id,
        )  # fmt: skip
        start = asked["input_ids"].size(1)
        told = out[:, start:]
        logits = model(out).logits[:, start - 1 : -1] / temperature
    chances = torch.log_softmax(logits, -1).gather(-1, told[..., None])[..., 0]
    ended = (told == tokenizer.eos_token_id).cumsum(1)
    given = (ended == 0) | ((told == tokenizer.eos_token_id) & (ended == 1))
    rows = [row[over == 0].tolist() for row, over in zip(told, ended, strict=True)]
    texts = tokenizer.batch_decode(rows)
    worth = np.array([gold.unpadded(prompt, text) for prompt, text in zip(prompts, texts, strict=True)])
    return Drawn(rows, texts, worth, (chances * given).sum(1).double().numpy())


def measured(model: Any, tokenizer: Any, temperature: float, seed: int, samples: int) -> dict[str, float]:
    """Reward and diversity of samples of every prompt."""
    found = drawn(model, tokenizer, temperature, seed, samples)
    starts = np.arange(0, len(found.rows) + 1, samples)
    right = [text if value == 1.0 else "" for text, value in zip(found.texts, found.worth, strict=True)]
    ends = np.cumsum([0, *map(len, found.rows)])
    alike, _ = group_ngrams(np.array([word for row in found.rows for word in row]), ends, starts)
    return {
        "reward": float(found.worth.mean()),
        "words": float(np.mean([len(row) for row in found.rows])),
        "entropy": -float(found.logs.mean()),
        "distinct": float(np.mean([len(set(found.texts[at : at + samples])) for at in starts[:-1]])),
        "distinct_right": float(np.mean([len(set(right[at : at + samples]) - {""}) for at in starts[:-1]])),
        "dissimilar": 1.0 - float(np.nanmean(alike)),
    }


def tilt(logs: Floats, worth: Floats, power: float, scale: float) -> tuple[float, float]:
    """Reward and entropy of ref^power exp(scale worth), from samples of ref (a row a prompt) by their importance."""
    targets = power * logs + scale * worth
    weights = np.exp(targets - logs - (targets - logs).max(1, keepdims=True))
    total = np.log(np.mean(np.exp(targets - logs), axis=1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    return float((weights * worth).sum(1).mean()), -float((weights * (targets - total)).sum(1).mean())


def optimum(base: Path, seed: int, kinds: list[tuple[float, float]], samples: int) -> list[dict[str, float]]:
    """What training would end at if it fitted the pairs exactly: soft over plain of another beta and equal reward."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(str(base)).eval()
    found = drawn(model, AutoTokenizer.from_pretrained(str(base)), 1.0, seed, samples)
    logs, worth = found.logs.reshape(len(ASKED), samples), found.worth.reshape(len(ASKED), samples)
    told = []
    for ratio, weight in kinds:
        if ratio <= 1.0:
            continue
        reward, entropy = tilt(logs, worth, 1.0 / ratio, SCALE / weight)
        low, high = 0.0, 10.0 * SCALE
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if tilt(logs, worth, 1.0, middle)[0] < reward else (low, middle)
        equal = tilt(logs, worth, 1.0, low)[1]
        named = {"entropy_weight_over_beta": ratio, "entropy_weight": weight}
        told.append(named | {k: round(v, 3) for k, v in (("reward", reward), ("entropy_ratio", entropy / equal))})
    return told


def points(
    base: Path, seed: int, kinds: list[tuple[float, float]], steps: int, samples: int, kept: Path
) -> list[Point]:
    """Every model of a seed at every temperature, and the base policy; a model that was measured before is read."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(base))
    rows = pairs(seed, steps * BATCH)
    found: list[Point] = []
    for ratio, weight in [(0.0, 0.0), *kinds]:
        file = kept / f"soft-{seed}-{steps}-{samples}-{ratio:g}-{weight:g}.json"
        if not file.exists():
            if ratio:
                with tempfile.TemporaryDirectory() as folder:
                    model = trained(base, rows, seed, weight / ratio, weight, folder)
            else:
                model = AutoModelForCausalLM.from_pretrained(str(base)).eval()
            told = [
                Point(ratio, weight, temperature, **measured(model, tokenizer, temperature, seed, samples))
                for temperature in TEMPERATURES
            ]
            file.write_text(json.dumps([asdict(point) for point in told]))
        found += [Point(**one) for one in json.loads(file.read_text())]
    return found


def along(line: list[Point], reward: float, measure: str) -> float:
    """Diversity at a reward on the line through these points; NaN beyond its ends."""
    ordered = sorted(line, key=lambda point: point.reward)
    if len(ordered) < 2 or not ordered[0].reward <= reward <= ordered[-1].reward:
        return math.nan
    return float(np.interp(reward, [p.reward for p in ordered], [getattr(p, measure) for p in ordered]))


def model_of(found: list[Point], ratio: float, weight: float) -> list[Point]:
    return [point for point in found if (point.ratio, point.weight) == (ratio, weight)]


def best(found: list[Point], ratio: float, reward: float, measure: str) -> float:
    """The most that any model of this ratio has at this reward, at any temperature; NaN if none reaches it."""
    lines = (model_of(found, ratio, weight) for weight in {point.weight for point in found})
    reached = [value for value in (along(line, reward, measure) for line in lines) if not math.isnan(value)]
    return max(reached, default=math.nan)


def at_its_own_reward(found: list[Point], ratio: float, measure: str) -> list[float]:
    """Soft at temperature 1 over plain of the same entropy_weight, at the temperature that gives it that reward."""
    soft = [point for point in found if point.ratio == ratio and point.temperature == 1.0]
    return [getattr(p, measure) / along(model_of(found, 1.0, p.weight), p.reward, measure) for p in soft]


def averaged(by_seed: list[list[float]]) -> dict[str, Any]:
    """Geometric mean over seeds of their geometric means, with its interval; NaNs are what could not be compared."""
    logs = [[math.log(value) for value in one if not math.isnan(value)] for one in by_seed]
    means = [float(np.mean(one)) for one in logs if one]
    told: dict[str, Any] = {"ratio": None, "low": None, "high": None, "compared": sum(map(len, logs))}
    if means:
        middle = float(np.mean(means))
        told["ratio"] = round(math.exp(middle), 3)
    if len(means) > 1:
        half = STUDENT[len(means) - 1] * float(np.std(means, ddof=1)) / math.sqrt(len(means))
        told |= {"low": round(math.exp(middle - half), 3), "high": round(math.exp(middle + half), 3)}
    return told


def figures(seeds: list[list[Point]]) -> dict[str, Any]:
    """Ratios of diversity at equal reward, and what every model is like on average."""
    softer = sorted({point.ratio for point in seeds[0] if point.ratio > 1.0})
    against = [
        {"entropy_weight_over_beta": ratio, "measure": measure}
        | averaged([at_its_own_reward(found, ratio, measure) for found in seeds])
        for ratio in softer
        for measure in MEASURES
    ]
    levels = [
        {"reward": level, "entropy_weight_over_beta": ratio, "measure": measure}
        | averaged([[best(f, ratio, level, measure) / best(f, 1.0, level, measure)] for f in seeds])
        for level in LEVELS
        for ratio in softer
        for measure in MEASURES
    ]
    models = []
    for at, point in enumerate(seeds[0]):  # in the same order in every seed
        means = {name: float(np.mean([getattr(f[at], name) for f in seeds])) for name in ("reward", "words", *MEASURES)}
        named = {"entropy_weight_over_beta": point.ratio, "entropy_weight": point.weight}
        models.append(named | {"temperature": point.temperature} | {k: round(v, 3) for k, v in means.items()})
    first = against[: len(MEASURES)]
    gained = {f"{row['measure']}_{name}": row[name] for row in first for name in ("ratio", "low", "high")}
    return {**gained, "against_temperature": against, "levels": levels, "models": models}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="the base policy's; the pairs' seeds follow from it")
    parser.add_argument("--quick", action="store_true", help="one seed, two models, two steps: only whether it runs")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results/soft.json")
    parser.add_argument("--work", type=Path, help="keeps the base policy and what was measured")
    options = parser.parse_args()
    from transformers.utils import logging

    from tiltmeter_lab.tiny import model as tiny

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    began = time.process_time()
    kinds = [(ratio, weight) for weight in WEIGHTS for ratio in (1.0, *RATIOS)]
    count, steps, samples = SEEDS, STEPS, SAMPLES
    if options.quick:
        kinds, count, steps, samples = kinds[:2], 1, 2, 8
        tiny.LESSONS, tiny.STEPS = 6, 4
    with tempfile.TemporaryDirectory() as own:
        kept = options.work if options.work and not options.quick else Path(own)
        base = tiny.base_policy(kept, options.seed)
        seeds = []
        for at in range(count):
            seeds.append(points(base, 1000 * (options.seed + 1) + at, kinds, steps, samples, kept))
            print(f"seed {at + 1} of {count}, {time.process_time() - began:.0f} s of CPU", file=sys.stderr, flush=True)
        limit = optimum(base, options.seed, kinds, 16 if options.quick else REFERENCE)
    told = {"seeds": count, "pairs": steps * BATCH, **figures(seeds), "optimum": limit}
    show(record("soft", told, seed=options.seed, keep=options.write and not options.quick), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
