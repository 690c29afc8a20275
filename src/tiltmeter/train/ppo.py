"""PPO, which TRL 1.16 does not have: start scripts for veRL and OpenRLHF, watched. Nothing is trained here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.plan.starter import BETA, number, starter
from tiltmeter.rewards.described import described, listed
from tiltmeter.rows import Row, read_rows, write_rows
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.recipe import Recipe, Stage

TRAINERS = ("verl", "openrlhf")
#: Guards that learn from groups of answers: both trainers ask about answers one by one, in several processes.
GROUPED = ("constrained", "length_debiased")
LABEL = "answer"  # the column with what is right, unless the recipe names another
OPTIONS = {
    "beta": "the leash, in the reward",
    "label": f"the column that holds what is right; {LABEL} without it",
    "gpus": "devices in all",
    "batch": "answers on a device at once",
    "length": "tokens of a prompt and its answer",
    "accumulate": "batches per update",
    "precision": "bf16 only",
    "optimiser": "of the trainer's own",
    "sharding": "zero1, zero2, zero3 (OpenRLHF) or fsdp (veRL)",
    "checkpointing": "false keeps all activations",
    "vllm_share": "of a device's memory for sampling",
}


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for what neither of the two trainers could be given."""
    if recipe.stages[-1].name != stage.name:
        raise AttachError(
            f"stage {stage.name}: ppo writes start scripts and trains nothing, so no stage can follow it; make it the "
            "last, and put what follows into a recipe of its own that starts from the checkpoint"
        )
    if "beta" in stage.options and not isinstance(stage.options["beta"], (int, float)):
        raise AttachError(f"stage {stage.name}: options: beta is a number, not {stage.options['beta']!r}")
    if late := [name for name, _ in listed(stage.guards or ()) if name in GROUPED]:
        raise AttachError(
            f"stage {stage.name}: {', '.join(late)} learns from groups of answers, and veRL and OpenRLHF ask about "
            "answers one by one: name the other guards alone, or use grpo"
        )
    _worded(stage.guards)


def train(context: Context) -> Trained:
    """The scripts, the data as each trainer reads it and the reward as each calls it; what to run is told."""
    check(context.recipe, context.stage)
    context = replace(context, folder=context.folder.resolve())  # the scripts are started from anywhere
    folder, stage = context.folder, context.stage
    folder.mkdir(parents=True, exist_ok=True)
    assert context.data is not None
    found = read_rows(context.data)
    label = str(stage.options.get("label", LABEL))
    if not any(label in row for row in found):
        label = ""
    model = _only_model(context)
    if model is None:
        described(context.rewards, _worded(stage.guards), folder=context.recipe.path.parent)  # loud here, not there
        for trainer in TRAINERS:
            (folder / f"{trainer}_reward.py").write_text(_bridge(context, trainer, label), "utf-8")
    _parquet(folder / "train.parquet", found, label)
    write_rows(folder / "prompts.jsonl", [_prompt(row, label) for row in found])
    held_out = read_rows(context.eval) if context.eval is not None else found[: max(1, len(found) // 10)]
    _parquet(folder / "test.parquet", held_out, label)
    beta = float(stage.options.get("beta", BETA))
    scripts = {
        "verl": _verl(_started(context, "verl", "train.parquet", model), context, beta),
        "openrlhf": _openrlhf(_started(context, "openrlhf", "prompts.jsonl", model), context, beta),
    }
    for name, text in scripts.items():
        (folder / f"{name}.sh").write_text(text, "utf-8")
    files = tuple(sorted(part for part in folder.iterdir() if part.suffix in (".sh", ".py", ".parquet", ".jsonl")))
    return Trained(
        files=files,
        facts={"rows": len(found), "trained": False, "beta": beta},
        told=(
            "Nothing was trained: TRL 1.16 has no PPO.",
            f"Run one of these where its trainer is installed: bash {folder / 'verl.sh'} (veRL 0.9) or "
            f"bash {folder / 'openrlhf.sh'} (OpenRLHF 0.11). Tiltmeter watches either; the run is in the folder "
            "tiltmeter of its output.",
            *(("A reward model is called by the trainer itself: OpenRLHF's rollouts are not seen.",) if model else ()),
        ),
    )


def _worded(guards: Any) -> list[dict[str, Any]]:
    """Penalties on length count words: neither trainer shows a reward the tokens."""
    told = []
    for name, given in listed(guards or ()):
        settings = dict(given)
        if name == "overlong" and (settings.setdefault("unit", "words") == "tokens" or "limit" not in settings):
            raise AttachError("overlong: veRL and OpenRLHF show a reward no tokens: write {unit: words, limit: 300}")
        told.append({name: settings})
    return told


def _only_model(context: Context) -> str | None:
    """The folder of a reward model that is the whole reward, which the trainer then calls itself."""
    if len(context.rewards) != 1 or "model" not in context.rewards[0] or context.stage.guards:
        return None
    model = context.rewards[0]["model"]
    return str(model) if isinstance(model, (str, Path)) else str(model[0]) if len(model) == 1 else None


def _started(context: Context, trainer: Any, data: str, model: str | None) -> str:
    lora = (context.stage.lora or {}).get("r")
    own = {name: value for name, value in context.stage.options.items() if name not in ("beta", "label")}
    function = "compute_score" if trainer == "verl" else "reward_func"
    choices: dict[str, object] = {
        "lora": lora,
        **own,
        "model": context.model,
        "dataset": context.folder / data,
        "reward": f"{context.folder / f'{trainer}_reward'}.{function}",
        "reward_model": model,
        "output": context.folder / trainer,
    }
    return starter(trainer, "ppo", choices)


def _verl(text: str, context: Context, beta: float) -> str:
    text = _changed(text, f"kl_ctrl.kl_coef={number(BETA)}", f"kl_ctrl.kl_coef={number(beta)}")
    text = _changed(text, f"The leash, {BETA},", f"The leash, {number(beta)},")
    text = _changed(text, "data.val_files=data/test.parquet", f"data.val_files={context.folder / 'test.parquet'}")
    more = [f"+trainer.tiltmeter.{name}={value}" for name, value in _watched(context).items()]
    return _changed(text, '"$@"', " \\\n    ".join([*more, '"$@"']))


def _openrlhf(text: str, context: Context, beta: float) -> str:
    text = _changed(text, f"--algo.kl.init_coef {number(BETA)}", f"--algo.kl.init_coef {number(beta)}")
    text = _changed(text, f"The leash, {BETA},", f"The leash, {number(beta)},")
    text = _changed(text, "cat > train.py", f"cd {context.folder}\ncat > train.py")
    given = "".join(f", {name}={value!r}" for name, value in _watched(context).items())
    place = f'install("{context.folder / "openrlhf"}/tiltmeter"'
    return _changed(text, f"{place})", f"{place}{given})")


def _watched(context: Context) -> dict[str, str]:
    """What the adapters of both trainers can be told: who says what is good, and how far they may go."""
    watch = context.stage.watch if isinstance(context.stage.watch, Mapping) else {}
    told = {"gold": context.stage.gold, "mode": watch.get("mode")}
    return {name: str(value) for name, value in told.items() if value is not None}


def _changed(text: str, old: str, new: str) -> str:
    """One place of a start, changed; a start that has no such place is another version's."""
    if text.count(old) != 1:
        raise AssertionError(f"the start has {old!r} {text.count(old)} times")
    return text.replace(old, new)


def _prompt(row: Row, label: str) -> dict[str, Any]:
    told = {"prompt": row["prompt"]}
    return {**told, "label": str(row[label])} if label and row.get(label) is not None else told


def _parquet(path: Path, found: Sequence[Row], label: str) -> None:
    """veRL's columns: a conversation, what is right, and every further column of the row beside it."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    table = [
        {
            "data_source": "recipe",
            "prompt": row["prompt"]
            if isinstance(row["prompt"], list)
            else [{"role": "user", "content": str(row["prompt"])}],
            "reward_model": {"style": "rule", "ground_truth": str(row.get(label, ""))},
            "extra_info": {"row": number, "columns": json.dumps(row)},
        }
        for number, row in enumerate(found)
    ]
    parquet.write_table(pa.Table.from_pylist(table), path)


def _bridge(context: Context, trainer: str, label: str) -> str:
    """The recipe's reward as veRL calls one (`compute_score`), or as OpenRLHF does (`reward_func`)."""
    rewards = json.dumps([dict(entry) for entry in context.rewards], default=str)
    guards = json.dumps(_worded(context.stage.guards))
    head = BRIDGE.format(
        rewards=repr(rewards), guards=repr(guards), folder=repr(str(context.recipe.path.parent.resolve()))
    )
    if trainer == "verl":
        return head + VERL
    return head + OPENRLHF.format(label=repr(label), place=repr(str(context.folder / "openrlhf" / "tiltmeter")))


BRIDGE = '''"""The recipe's reward and guards. A row that cannot be scored stops training: it is not 0."""

import json

from tiltmeter.rewards import InfraError
from tiltmeter.rewards.described import described

REWARD = described(json.loads({rewards}), json.loads({guards}), folder={folder})


def scored(prompts, completions, columns):
    told = REWARD(prompts=prompts, completions=completions, **columns)
    if None in told:
        raise InfraError("a completion could not be scored")
    return told
'''
VERL = """

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    columns = {name: [value] for name, value in json.loads((extra_info or {}).get("columns", "{}")).items()}
    (score,) = scored(columns.pop("prompt", [""]), [solution_str], columns)
    return {"score": score, **{name: part[0] for name, part in REWARD.told.items()}}
"""
OPENRLHF = """
import tiltmeter

LABEL = {label}  # the column that holds what is right, as the reward's functions know it


def reward_func(queries, prompts, labels, **_):
    import torch

    answers = [query[len(prompt) :] for query, prompt in zip(queries, prompts)]
    scores = torch.tensor(scored(list(prompts), answers, {{LABEL: list(labels)}} if LABEL else {{}}))
    parts = {{name: torch.tensor(part) for name, part in REWARD.told.items()}}
    return {{"rewards": scores, "scores": scores, "extra_logs": parts}}


reward_func = tiltmeter.capture(reward_func, {place})
"""
