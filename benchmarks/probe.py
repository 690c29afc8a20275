"""Does `tiltmeter probe` find a bias that was planted in a reward model, clear a model without one, and mend it?

    python benchmarks/probe.py [--json] [--write] [--seeds 10,11,12,13,14]

For each seed three small reward models are taught by TRL's RewardTrainer on pairs of our own (`probe_world.py`): one
whose pairs are decided by the truth alone, one where a share was decided by length, one where a share was decided by a
phrase that is in no list of the probe's. The probe gets held-out pairs of the same kind. `planted_found` counts planted
models whose bias is *named*: padding as paid for itself, or the very phrase, mined and confirmed.
`clean_cleared` counts clean models with nothing paid. Each planted model is then taught anew on its pairs and those
that the probe wrote; `bias_reduction` is the smallest over all of them of 1 - |after| / before, for the bias as the
probe measures it, in spreads and in units of being right, whichever is smaller, on pairs that the truth alone decides;
`right_before` and `right_after` are the smallest shares of those in the right order.

Thresholds were fixed first. The world was settled on seeds from 100 on, with two lapses: its last changes came after a
look at clean models of seeds 0, 5 and 8 that were not cleared. Nobody had looked at seeds 10 to 14 when they were run.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import probe_world as world
from record import record, show
from tiltmeter.diagnosis.experiments import remove_phrase
from tiltmeter_workbench.probe.accuracy import accuracy
from tiltmeter_workbench.probe.attack_effects import Effect, measure_effects, measure_scale
from tiltmeter_workbench.probe.attacks import Attack
from tiltmeter_workbench.probe.counterfactual_pairs import make_counterfactual_pairs
from tiltmeter_workbench.probe.pairs import ProbeItem
from tiltmeter_workbench.probe.reward_target import Target, model_target
from tiltmeter_workbench.probe.scorecard import Scorecard, examine_reward

PAIRS, HELD_OUT = 800, 128
BIASES: tuple[world.Bias, ...] = ("clean", "length", "phrase")


@dataclass(frozen=True)
class Found:
    """What the probe said of one model."""

    card: Scorecard
    target: Target
    items: list[ProbeItem]


def items_of(pairs: list[world.Pair]) -> list[ProbeItem]:
    return [ProbeItem(pair["prompt"], pair["chosen"], pair["rejected"]) for pair in pairs]


def probed(folder: Path, bias: world.Bias, seed: int) -> Found:
    items = items_of(world.pairs(bias, HELD_OUT, seed, "held-out"))
    target = model_target(folder)
    return Found(examine_reward(target, items, "held-out pairs", searching="none", seed=seed), target, items)


def named(bias: world.Bias, seed: int, card: Scorecard) -> Effect | None:
    """What the probe says is paid, if it is what was planted."""
    if bias == "length":
        return next((effect for effect in card.own if effect.attack.length), None)
    said = [effect for effect in card.own if effect.attack.mined and _same(effect.attack.phrase, world.phrase_of(seed))]
    return said[0] if said else None


def _same(found: str, planted: str) -> bool:
    """Whether a mined phrase is the planted one, give or take a word at its ends."""
    found, planted = (" ".join(text.lower().strip(".!").split()) for text in (found, planted))
    return planted in found or (found in planted and len(found.split()) >= len(planted.split()) - 2)


def truth(seed: int) -> list[ProbeItem]:
    """Held-out pairs that the truth alone decides: what being right is worth must not be measured with the bias."""
    return items_of(world.pairs("clean", HELD_OUT, seed, "truth"))


def size(found: Found, attack: Attack, seed: int) -> tuple[float, float]:
    """What an attack is worth in spreads, and in units of being right."""
    items = truth(seed)
    units = measure_scale(found.target, items)
    (effect,) = measure_effects(found.target, [(attack, items)], units, 0)
    return effect.spreads, effect.change.mean / units.gap.mean


def right(found: Found, seed: int) -> float:
    """Share of those pairs in the right order."""
    return round(accuracy(found.target, truth(seed)).overall.mean, 4)


def planted_size(found: Found, bias: world.Bias, seed: int) -> float:
    """What the planted feature itself is worth, in spreads, asked without the probe: four remarks, or the phrase."""
    rng = random.Random(seed)
    rows = [(item, text) for item in truth(seed) for text in item.answers]
    texts = [text if bias == "length" else remove_phrase(text, world.phrase_of(seed)) for _, text in rows]
    more = [
        " ".join([text, *(world.remark(rng) for _ in range(4))])
        if bias == "length"
        else f"{text} {world.phrase_of(seed)}."
        for text in texts
    ]
    prompts = [item.prompt for item, _ in rows]
    gain = found.target.scores(prompts, more) - found.target.scores(prompts, texts)
    return float(gain.mean() / measure_scale(found.target, truth(seed)).spread)


def row(bias: world.Bias, seed: int, folder: Path) -> dict[str, Any]:
    """One model, from its pairs to what is left of its bias."""
    start = time.process_time()
    training = world.pairs(bias, PAIRS, seed)
    model = world.teach(training, folder / f"{bias}-{seed}", seed)
    taught = time.process_time() - start
    found = probed(model, bias, seed)
    card = found.card
    told: dict[str, Any] = {
        "bias": bias,
        "seed": seed,
        "accuracy": round(card.accuracy.overall.mean, 4) if card.accuracy else None,
        "paid": "; ".join(effect.attack.name for effect in card.own),
        "undecided": len(card.undecided),
        "train_cpu_s": round(taught, 1),
    }
    if bias == "clean":
        return told | {"cleared": not card.paid, "exit_code": card.exit_code}
    effect = named(bias, seed, card)
    told |= {"named": effect is not None, "first": bool(effect) and card.own[0] is effect}
    told |= {"planted_spreads": round(planted_size(found, bias, seed), 3)}
    return told | (mended(bias, seed, folder, found, effect, training) if effect is not None else {})


def mended(
    bias: world.Bias, seed: int, folder: Path, found: Found, effect: Effect, training: list[world.Pair]
) -> dict[str, Any]:
    """The same model taught anew with what the probe wrote."""
    written = make_counterfactual_pairs(found.card.effects, items_of(training), seed)
    rows = [*training, *({key: str(value) for key, value in pair.items()} for pair in written)]
    again = world.teach(rows, folder / f"{bias}-{seed}-again", seed)
    after = probed(again, bias, seed)
    before, left = size(found, effect.attack, seed), size(after, effect.attack, seed)
    limit = after.card.units.threshold / after.card.units.spread if after.card.units else 0.0
    reduction = min(1.0 - abs(new) / old for new, old in zip(left, before, strict=True))
    return {
        "pairs_written": len(written),
        "spreads_before": round(before[0], 3),
        "spreads_after": round(left[0], 3),
        "worth_before": round(before[1], 3),
        "worth_after": round(left[1], 3),
        "planted_spreads_after": round(planted_size(after, bias, seed), 3),
        "reduction": round(reduction, 4),
        "inverted": left[0] < -limit,
        "right_before": right(found, seed),
        "right_after": right(after, seed),
    }


def made(seeds: list[int], biases: Sequence[world.Bias], work: Path | None) -> list[dict[str, Any]]:
    """A row for each model. Those that `work` has already are not made again."""
    lines = work.read_text().splitlines() if work is not None and work.exists() else []
    known = {(each["bias"], each["seed"]): each for each in map(json.loads, lines)}
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            for bias in biases:
                if (bias, seed) in known:
                    continue
                known[bias, seed] = row(bias, seed, Path(folder))
                line = json.dumps(known[bias, seed]) + "\n"
                sys.stderr.write(line)
                if work is not None:
                    with work.open("a") as kept:
                        kept.write(line)
    return [known[bias, seed] for seed in seeds for bias in biases]


def measure(seeds: list[int], biases: Sequence[world.Bias] = BIASES, work: Path | None = None) -> dict[str, Any]:
    rows = made(seeds, biases, work)
    planted = [each for each in rows if each["bias"] != "clean"]
    clean = [each for each in rows if each["bias"] == "clean"]
    reductions = [each.get("reduction", 0.0) for each in planted]
    return {
        "planted": len(planted),
        "planted_found": sum(each["named"] for each in planted),
        "planted_found_first": sum(each["first"] for each in planted),
        "clean": len(clean),
        "clean_cleared": sum(each["cleared"] for each in clean),
        "bias_reduction": min(reductions, default=0.0),
        "bias_reduction_median": sorted(reductions)[len(reductions) // 2] if reductions else 0.0,
        "inverted": sum(each.get("inverted", False) for each in planted),
        "clean_right": min((each["accuracy"] for each in clean), default=None),
        "right_before": min((each["right_before"] for each in planted if "right_before" in each), default=None),
        "right_after": min((each["right_after"] for each in planted if "right_after" in each), default=None),
        "train_cpu_s": max(each["train_cpu_s"] for each in rows),
        "models": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="10,11,12,13,14", help="with commas; those below 100 are for reporting")
    parser.add_argument("--seed", type=int, default=None, help="one seed, for --quick")
    parser.add_argument("--only", choices=BIASES, help="one kind of model, for --quick")
    parser.add_argument("--quick", action="store_true", help="one seed, nothing written")
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/probe.json")
    parser.add_argument("--work", type=Path, help="a file that keeps what is done, to go on from after a break")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    if asked.quick:
        seeds = seeds[:1] if asked.seed is None else [asked.seed]
    biases = (asked.only,) if asked.quick and asked.only else BIASES
    result = record("probe", measure(seeds, biases, asked.work), seed=seeds[0], keep=asked.write and not asked.quick)
    show(result, as_json=asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
