"""What training with the defences on is worth, and what it costs: the proving ground's scenarios, guarded and not.

    python benchmarks/defences.py --work folder --write --json       # 60 runs of half a minute each
    python benchmarks/defences.py --work folder --only healthy       # some scenarios; --seeds and --steps for a look

Real TRL runs of the tiny language model. Guarded is the same for every scenario, and what a recipe of `model train`
gets by `guards: standard` and `beta: 0.05`; nothing was tuned and nothing sees gold. After training the final policy is
asked for answers of its own: gold, diversity and KL are of these. A finished run is a line in `folder/runs.jsonl`, so
that an interrupted campaign goes on where it was; two processes with other `--only` may share a folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

from record import record, show
from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter.stats.ngrams import group_ngrams
from tiltmeter_lab.tiny.model import base_policy
from tiltmeter_lab.tiny.rewards import LIMIT
from tiltmeter_lab.tiny.scenarios import Scenario, scenario
from tiltmeter_lab.tiny.train import make_trainer
from tiltmeter_workbench import rewards
from tiltmeter_workbench.rewards.recipe_reward import STANDARD_GUARDS, add_guards

STEPS, SEEDS, FIRST_SEED = 60, 5, 100  # seeds that no defence was looked at with before
FASTER = 200 / STEPS  # the scenarios are made for 200 steps: the learning rates' sum stays the same
BETA = 0.05  # of the guarded runs: the middle of the range that the linter asks for
SAMPLES = 16  # answers of the final policy to each prompt
MOST_PROMPTS = 24
ARMS = ("unguarded", "guarded")
SCENARIOS = (
    *("length_hacking", "mode_collapse", "weak_reward_model", "coding_assistant"),
    *("healthy", "longer_is_better"),
)
MEASURED = ("gold", "diversity", "kl")


def bare(chosen: Scenario) -> Any:
    """What the makers of the run pay, as one function."""
    names = [part.__name__ for part in chosen.rewards]
    weights = chosen.settings.get("reward_weights", [1.0] * len(names))
    return rewards.combine(list(chosen.rewards), dict(zip(names, weights, strict=True)))


def trained(arm: str, chosen: Scenario, seed: int, work: Path, base: Path, steps: int = STEPS) -> dict[str, Any]:
    """Train one run and measure its final policy."""
    settings = {name: value for name, value in chosen.settings.items() if name != "reward_weights"}
    settings["learning_rate"] *= FASTER
    reward = bare(chosen)
    if arm == "guarded":
        reward = add_guards(reward, "standard", limit=LIMIT)
        settings["beta"] = BETA
    begun, spent = time.perf_counter(), time.process_time()
    made = replace(chosen, rewards=(reward,), settings=settings)
    trainer = make_trainer(made, seed, work / "trainer", base=base, steps=steps, logging_strategy="no")
    trainer.train()
    prompts = list(dict.fromkeys(prompt for part in chosen.prompts for prompt in part))[:MOST_PROMPTS]
    facts = measured(trainer.model, base, prompts, chosen, seed)
    return {
        "scenario": chosen.name,
        "kind": chosen.kind,
        "arm": arm,
        "seed": seed,
        "steps": steps,
        **facts,
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_seconds": round(time.process_time() - spent, 1),
    }


def measured(model: Any, base: Path, prompts: Sequence[str], chosen: Scenario, seed: int) -> dict[str, float]:
    """Gold, diversity and KL of a policy's own answers, SAMPLES to each prompt.

    Diversity is 1 - self-BLEU among answers to one prompt. KL is in nats per completion: the mean over answers of
    ln pi(y|x) - ln pi_ref(y|x), each answer with its end.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    language = AutoTokenizer.from_pretrained(str(base))
    reference = AutoModelForCausalLM.from_pretrained(str(base)).eval()
    asked = [prompt for prompt in prompts for _ in range(SAMPLES)]
    torch.manual_seed(seed)
    model.eval()
    tokens = language(asked, return_tensors="pt", padding=True, padding_side="left")
    ids, mask = tokens["input_ids"], tokens["attention_mask"]
    with torch.no_grad():
        told = model.generate(ids, attention_mask=mask, do_sample=True, top_k=0, max_new_tokens=LIMIT)
        begins = ids.shape[1]
        after = told[:, begins:]
        # An answer ends with its first end-of-sequence token; what is generated behind it is padding.
        ended = torch.cumsum((after == language.eos_token_id).long(), 1)
        counts = (ended == 0) | ((ended == 1) & (after == language.eos_token_id))
        whole = torch.cat([mask, counts.long()], 1)

        def scored(policy: Any) -> Any:
            logits = policy(input_ids=told, attention_mask=whole).logits[:, begins - 1 : -1].float()
            found = logits.log_softmax(-1).gather(-1, after[..., None])[..., 0]
            return (found * counts).sum(1)

        ratio = (scored(model) - scored(reference)).double().numpy()
    texts = language.batch_decode(after, skip_special_tokens=True)
    rows = [row[kept].tolist() for row, kept in zip(after.numpy(), counts.numpy().astype(bool), strict=True)]
    flat = np.array([token for row in rows for token in row], np.int64)
    ends = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    alike, _ = group_ngrams(flat, ends, np.arange(0, len(rows) + 1, SAMPLES))
    proxy = bare(chosen)(prompts=asked, completions=texts)
    return {
        "gold": round(fmean(chosen.gold(*pair) for pair in zip(asked, texts, strict=True)), 4),
        "proxy": round(fmean(value for value in proxy if value is not None), 4),
        "diversity": round(float(1.0 - alike.mean()), 4),
        "kl": round(float(ratio.mean()), 4),
        "words": round(fmean(len(text.split()) for text in texts), 2),
    }


def interval(values: Sequence[float], confidence: float = 0.95) -> list[float | None]:
    """Mean, low, high by Student's t over seeds."""
    mean = fmean(values)
    if len(values) < 2:
        return [round(mean, 4), None, None]
    reach = student_t_quantile(len(values) - 1, confidence) * stdev(values) / math.sqrt(len(values))
    return [round(mean, 4), round(mean - reach, 4), round(mean + reach, 4)]


def summary(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By scenario: each arm's figures with intervals over seeds, and the paired gain in gold."""
    by = {(run["scenario"], run["arm"], run["seed"]): run for run in runs}
    cells = []
    for name in SCENARIOS:
        seeds = sorted({seed for known, _, seed in by if known == name})
        both = [seed for seed in seeds if all((name, arm, seed) in by for arm in ARMS)]
        if not both:
            continue
        cell: dict[str, Any] = {"scenario": name, "kind": scenario(name).kind, "seeds": len(both)}
        for arm in ARMS:
            for what in (*MEASURED, "proxy", "words"):
                cell[f"{arm}_{what}"], low, high = interval([by[name, arm, seed][what] for seed in both])
                if what in MEASURED:
                    cell[f"{arm}_{what}_low"], cell[f"{arm}_{what}_high"] = low, high
        gains = [by[name, "guarded", seed]["gold"] - by[name, "unguarded", seed]["gold"] for seed in both]
        cell["gold_gain"], cell["gold_gain_low"], cell["gold_gain_high"] = interval(gains)
        cells.append(cell)
    return cells


def base_figures(base: Path, seed: int) -> list[dict[str, Any]]:
    """The base policy by the same measure: what training started from."""
    from transformers import AutoModelForCausalLM

    found = []
    for name in SCENARIOS:
        chosen = scenario(name)
        prompts = list(dict.fromkeys(prompt for part in chosen.prompts for prompt in part))[:MOST_PROMPTS]
        model = AutoModelForCausalLM.from_pretrained(str(base))
        found.append({"scenario": name, **measured(model, base, prompts, chosen, seed)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--work", type=Path, default=Path("defences-work"), help="the folder of the base and of results"
    )
    parser.add_argument("--only", nargs="*", default=[], help="scenarios")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="the first seed")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--quick", action="store_true", help="one scenario, one seed, few steps: does it run")
    parser.add_argument("--write", action="store_true", help="write the result, once every run of the plan is there")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.only, options.seeds, options.steps = options.only or ["healthy"], 1, 3
    options.work.mkdir(parents=True, exist_ok=True)
    base = base_policy(options.work)
    kept = options.work / "runs.jsonl"
    names = [name for name in SCENARIOS if not options.only or name in options.only]
    plan = [(name, arm, options.seed + at) for at in range(options.seeds) for name in names for arm in ARMS]

    def known() -> dict[tuple[str, str, int], dict[str, Any]]:
        lines = kept.read_text().splitlines() if kept.exists() else []
        found = [json.loads(line) for line in lines]
        return {(run["scenario"], run["arm"], run["seed"]): run for run in found if run["steps"] == options.steps}

    for at, (name, arm, seed) in enumerate(plan, 1):
        if (name, arm, seed) in known():
            continue
        run = trained(arm, scenario(name), seed, options.work / f"at-{os.getpid()}", base, options.steps)
        with kept.open("a") as file:
            file.write(json.dumps(run) + "\n")
        print(f"{at}/{len(plan)} {run}", file=sys.stderr, flush=True)
    runs = [known()[key] for key in plan]
    figures = {
        "runs": len(runs),
        "steps": options.steps,
        "rollouts_per_step": 64,
        "seeds": options.seeds,
        "guards": list(STANDARD_GUARDS),
        "beta_guarded": BETA,
        "cpu_seconds_median": float(np.median([run["cpu_seconds"] for run in runs])),
        "start": base_figures(base, options.seed),
        "scenarios": summary(runs),
    }
    whole = not options.only and not options.quick and options.seeds >= SEEDS and options.steps == STEPS
    show(record("defences", figures, seed=options.seed, keep=options.write and whole), as_json=options.json)


if __name__ == "__main__":
    main()
