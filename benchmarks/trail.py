"""A verdict for training without rollouts: DPO of a tiny model past its peak, and honest DPO, judged at each save.

    python benchmarks/trail.py [--work DIR] [--json] [--write] [--quick]

The tiny model (two layers, one token a word) knows 120 facts and answers half of them wrongly, as its corpus does. DPO
by TRL trains it on pairs of the corpus that gold, the right value in few words, tells apart and has labelled. In the
runs past their peak it sees 512 pairs twice, with a small beta and a high rate: right answers of the corpus have a
reason more often, and what it learns beyond the facts is that longer ones win. In the honest runs it sees each pair
once, with a larger beta. The settings were chosen on seeds 1000 to 1002, which are not among the runs. Each save is
asked all 120 prompts, and the figures come from the package's own test, report and alarm.

`alarmed`: runs past their peak with an alarm. `fallen`: those whose last report says that gold has fallen.
`peak_covered`: the share of them in which the truly best checkpoint, by further answers, is among those that the
report names.
`best_gap_median`: true gold of the truly best checkpoint minus that of the one that the report calls best.
`offline_false_alarms`: honest runs with an alarm at any save, or with a last report that says that gold has fallen.

Lines of single runs are added to DIR/trail.jsonl, and a run that stands there is not made again.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import record, show
from tiltmeter.data.records import Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter_lab.tiny import gold
from tiltmeter_lab.tiny.language import NOUNS, VALUES, lesson, sample, words
from tiltmeter_lab.tiny.model import teach, tokenizer, untrained_policy
from tiltmeter_lab.tiny.rewards import LIMIT
from tiltmeter_workbench.trail.checkpoints import TrailPoint
from tiltmeter_workbench.trail.trail import TrailReport

Floats = NDArray[np.float64]
Score = Callable[[str, str], float]

MORE_NOUNS = tuple(f"{noun}{number}" for noun in NOUNS for number in (2, 3, 4))[:28]
PROMPTS = tuple(f"what {kind} is {noun} ?" for kind in VALUES for noun in (*NOUNS, *MORE_NOUNS))
LESSONS, CORPUS = 520, 160  # steps of teaching
PAST, HONEST = 5, 20  # runs
BATCH, EVERY, SCALE = 16, 8, 6.0
ANSWERS, FURTHER = 4, 4  # to a prompt: those that are judged, and those that say what is true
STEPS = {"past": 64, "honest": 32}
RATE = {"past": 6e-4, "honest": 3e-4}
BETA = {"past": 0.03, "honest": 0.2}
PAIRS = 512
DECIDED = 0.05  # of gold: pairs that differ by less are not shown, as nobody could label them


def make_base(folder: Path, lessons: int = LESSONS, corpus: int = CORPUS) -> Path:
    """The model that training begins with; made once."""
    if (folder / "config.json").exists():
        return folder
    vocabulary = [*words(), *MORE_NOUNS]
    language, rng = tokenizer([*dict.fromkeys(vocabulary)]), random.Random("trail/base")
    model = untrained_policy(language, 0, layers=2, hidden=64, inner=176)

    def rows_at(step: int) -> list[tuple[str, str]]:
        answer = lesson if step < lessons else sample
        return [(prompt, answer(prompt, rng)) for prompt in rng.choices(PROMPTS, k=64)]

    teach(model, language, rows_at, lessons + corpus, 4e-3, decline=80)
    language.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def make_pairs(seed: str, count: int, score: Score) -> list[dict[str, str]]:
    """Pairs of the corpus whose labels are Bradley-Terry's."""
    rng = random.Random(f"trail/{seed}")
    rows: list[dict[str, str]] = []
    while len(rows) < count:
        prompt = rng.choice(PROMPTS)
        first, second = sample(prompt, rng), sample(prompt, rng)
        lead = score(prompt, first) - score(prompt, second)
        if abs(lead) < DECIDED:
            continue
        if rng.random() >= 1.0 / (1.0 + math.exp(-SCALE * lead)):
            first, second = second, first
        rows.append({"prompt": f"{prompt} ", "chosen": first, "rejected": second})
    return rows


class Asker:
    """Asks a model every prompt, with the random state of training left alone."""

    def __init__(self, base: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(str(base))
        self.base = AutoModelForCausalLM.from_pretrained(str(base)).eval()

    def ask(self, model: Any, name: str, seed: int, answers: int) -> TrailPoint:
        import torch

        prompts = [prompt for prompt in PROMPTS for _ in range(answers)]
        asked = self.tokenizer(prompts, return_tensors="pt", padding=True)
        training = model.training
        model.eval()
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(seed)
            out = model.generate(
                **{name: asked[name] for name in ("input_ids", "attention_mask")}, do_sample=True, top_k=0, top_p=1.0,
                max_new_tokens=LIMIT, pad_token_id=self.tokenizer.pad_token_id,
            )  # fmt: skip
            start = asked["input_ids"].size(1)
            said = out[:, start:]
            mine, theirs = (
                torch.log_softmax(one(out).logits[:, start - 1 : -1], -1).gather(-1, said[..., None])[..., 0]
                for one in (model, self.base)
            )
        model.train(training)
        ended = (said == self.tokenizer.eos_token_id).cumsum(1)
        counts = (ended == 0) | ((said == self.tokenizer.eos_token_id) & (ended == 1))
        ratios = ((mine - theirs) * counts).sum(1).double().numpy()
        texts = self.tokenizer.batch_decode(said, skip_special_tokens=True)
        scores = np.array([gold.unpadded(prompt, text) for prompt, text in zip(prompts, texts, strict=True)])
        half = 1.96 * float(ratios.std(ddof=1)) / math.sqrt(len(ratios))
        kl, nan = float(ratios.mean()), math.nan
        length = float(counts.sum() / len(prompts))
        by_prompt = scores.reshape(len(PROMPTS), answers).mean(1)
        return TrailPoint(name, by_prompt, kl, kl - half, kl + half, nan, length, nan, nan, nan)


def make_run(base: Path, kind: str, seed: int, steps: int) -> dict[str, Any]:
    """Train once, ask at each save, and say what the package makes of it."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import DPOConfig, DPOTrainer

    asker = Asker(base)
    further = FURTHER if kind == "past" else 0
    points: list[TrailPoint] = []
    true: list[float] = []

    def ask(model: Any, step: int) -> None:
        points.append(asker.ask(model, f"step {step}", 1000 * seed + step, ANSWERS))
        if further:
            true.append(asker.ask(model, "", 500_000 + 1000 * seed + step, further).mean)

    class AskAtSave(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            if state.global_step % EVERY == 0:
                ask(model, state.global_step)

    rows = make_pairs(f"{kind}/{seed}", PAIRS, gold.unpadded)
    with tempfile.TemporaryDirectory() as folder:
        settings = DPOConfig(
            output_dir=folder, seed=seed, beta=BETA[kind], per_device_train_batch_size=BATCH, max_steps=steps,
            learning_rate=RATE[kind], lr_scheduler_type="constant", report_to=[], use_cpu=True, bf16=False,
            gradient_checkpointing=False, save_strategy="no", logging_strategy="no", disable_tqdm=True,
        )  # fmt: skip
        trainer = DPOTrainer(
            model=str(base), args=settings, train_dataset=Dataset.from_list(rows), processing_class=asker.tokenizer,
            callbacks=[AskAtSave()],
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        ask(asker.base, 0)
        trainer.train()
    return {"kind": kind, "seed": seed, "steps": steps, **judge(points, true)}


def judge(points: list[TrailPoint], true: list[float]) -> dict[str, Any]:
    """What the alarm says at each save and the report at the last."""
    gold_test, alarm = GoldLossTest(), None
    for at, point in enumerate(points):
        values = tuple(float(value) for value in point.gold)
        reading = Reading(0, EVERY * at, "eval.checkpoint_gold", point.mean, len(values), None, values)
        alarm = gold_test.update(reading) or alarm
    report = TrailReport(points, "gold", False, len(PROMPTS), ANSWERS)
    fall = report.fall
    assert fall is not None
    line: dict[str, Any] = {
        "gold": [round(point.mean, 4) for point in points],
        "kl": [round(point.kl, 3) for point in points],
        "tokens": [round(point.tokens, 2) for point in points],
        "alarm_step": None if alarm is None else alarm.step,
        "onset": None if alarm is None else alarm.onset,
        "state": report.state,
        "fall_not_excluded": round(fall.worst, 3),
        "candidates": list(fall.candidates),
        "best": fall.best,
        "peak_refused": report.peak.refused,
    }
    if true:
        top = int(np.argmax(true))
        line |= {
            "true_gold": [round(value, 4) for value in true],
            "covered": top in fall.candidates,
            "gap": round(true[top] - true[fall.best], 4),
        }
    return line


def figures(lines: list[dict[str, Any]]) -> dict[str, Any]:
    hacks = [line for line in lines if line["kind"] == "past"]
    honest = [line for line in lines if line["kind"] == "honest"]
    bounds = [line["fall_not_excluded"] for line in honest]
    alarms = [line for line in honest if line["alarm_step"] is not None or line["state"] == "worse"]
    return {
        "past_runs": len(hacks),
        "honest_runs": len(honest),
        "runs_planned": PAST + HONEST,
        "prompts": len(PROMPTS),
        "answers": ANSWERS,
        "alarmed": sum(line["alarm_step"] is not None for line in hacks),
        "fallen": sum(line["state"] == "worse" for line in hacks),
        "peak_covered": _mean([float(line["covered"]) for line in hacks]),
        "candidates_mean": _mean([float(len(line["candidates"])) for line in hacks]),
        "best_gap_median": float(np.median([line["gap"] for line in hacks])) if hacks else None,
        "offline_false_alarms": len(alarms),
        "honest_healthy": sum(line["state"] == "healthy" for line in honest),
        "fall_not_excluded_median": float(np.median(bounds)) if bounds else None,
        "runs": [
            {
                "run": f"{line['kind']} {line['seed']}",
                "gold": f"{line['gold'][0]:.2f} -> {max(line['gold']):.2f} -> {line['gold'][-1]:.2f}",
                "alarm_step": line["alarm_step"],
                "state": line["state"],
                "best_step": EVERY * line["best"],
                "named": len(line["candidates"]),
                "covered": line.get("covered"),
            }
            for line in lines
        ],
    }


def _mean(values: list[float]) -> float | None:
    return round(float(np.mean(values)), 3) if values else None


def planned() -> Iterator[tuple[str, int]]:
    """Every run past its peak, and between them honest ones: whoever stops early has some of each."""
    each = HONEST // PAST
    for at in range(PAST):
        yield "past", at
        yield from (("honest", each * at + more) for more in range(each))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two short runs of an untaught model: whether it works")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results/trail.json")
    parser.add_argument("--work", type=Path, help="keeps the base and the lines of runs")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after so many")
    options = parser.parse_args()
    from datasets import disable_progress_bars
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    disable_progress_bars()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as own:
        work = options.work if options.work and not options.quick else Path(own)
        work.mkdir(parents=True, exist_ok=True)
        base = make_base(work / "base", *((4, 4) if options.quick else ()))
        file = work / "trail.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        for kind, seed in planned():
            done = any((line["kind"], line["seed"]) == (kind, seed) for line in lines)
            if done or time.monotonic() - began > options.seconds or (options.quick and seed):
                continue
            lines.append(make_run(base, kind, seed, 2 * EVERY if options.quick else STEPS[kind]))
            with file.open("a") as opened:
                opened.write(json.dumps(lines[-1]) + "\n")
            print(f"{kind} {seed}: {lines[-1]['gold']}, {lines[-1]['state']}", file=sys.stderr, flush=True)
    show(record("trail", figures(lines), seed=0, keep=options.write and not options.quick), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
