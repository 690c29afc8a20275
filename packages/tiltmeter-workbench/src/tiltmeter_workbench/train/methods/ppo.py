"""PPO, which TRL 1.16 lacks: write start scripts for veRL and OpenRLHF with the monitor attached; train nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import Row, read_rows, write_rows
from tiltmeter_workbench.plan.starter import starter
from tiltmeter_workbench.plan.starter_choices import BETA, number
from tiltmeter_workbench.rewards.recipe_reward import read_guards, reward_from_recipe
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.recipe import Recipe, Stage

TRAINERS = ("verl", "openrlhf")
#: Guards that learn from groups of answers: both trainers score answers one by one, in several processes.
GROUP_GUARDS = ("constrained", "length_debiased")
LABEL = "answer"  # the column with the right answer, unless the recipe names another
OPTIONS = {
    "beta": "coefficient of the KL penalty in the reward",
    "label": f"the column with the right answer; {LABEL} without it",
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
    """Raises `AttachError` for what neither of the two trainers supports."""
    if recipe.stages[-1].name != stage.name:
        raise AttachError(
            f"stage {stage.name}: ppo writes start scripts and trains nothing, so no stage can follow it; make it the "
            "last, and put what follows into a recipe of its own that starts from the checkpoint"
        )
    if "beta" in stage.options and not isinstance(stage.options["beta"], (int, float)):
        raise AttachError(f"stage {stage.name}: options: beta is a number, not {stage.options['beta']!r}")
    if late := [name for name, _ in read_guards(stage.guards or ()) if name in GROUP_GUARDS]:
        raise AttachError(
            f"stage {stage.name}: {', '.join(late)} learns from groups of answers, and veRL and OpenRLHF ask about "
            "answers one by one: name the other guards alone, or use grpo"
        )
    _guards_in_words(stage.guards)


def train(context: Context) -> StageOutput:
    """Write the scripts, the data and the reward in each trainer's format; the notes say what to run."""
    check(context.recipe, context.stage)
    context = replace(context, folder=context.folder.resolve())  # the scripts are started from anywhere
    folder, stage = context.folder, context.stage
    folder.mkdir(parents=True, exist_ok=True)
    assert context.data is not None
    rows = read_rows(context.data)
    label = str(stage.options.get("label", LABEL))
    if not any(label in row for row in rows):
        label = ""
    model = _single_reward_model(context)
    if model is None:
        reward_from_recipe(
            context.rewards, _guards_in_words(stage.guards), folder=context.recipe.path.parent
        )  # fail here
        for trainer in TRAINERS:
            (folder / f"{trainer}_reward.py").write_text(_reward_module(context, trainer, label), "utf-8")
    _write_parquet(folder / "train.parquet", rows, label)
    write_rows(folder / "prompts.jsonl", [_prompt_row(row, label) for row in rows])
    held_out = read_rows(context.eval) if context.eval is not None else rows[: max(1, len(rows) // 10)]
    _write_parquet(folder / "test.parquet", held_out, label)
    beta = float(stage.options.get("beta", BETA))
    scripts = {
        "verl": _verl_script(_start_script(context, "verl", "train.parquet", model), context, beta),
        "openrlhf": _openrlhf_script(_start_script(context, "openrlhf", "prompts.jsonl", model), context, beta),
    }
    for name, text in scripts.items():
        (folder / f"{name}.sh").write_text(text, "utf-8")
    files = tuple(sorted(part for part in folder.iterdir() if part.suffix in (".sh", ".py", ".parquet", ".jsonl")))
    return StageOutput(
        files=files,
        facts={"rows": len(rows), "trained": False, "beta": beta},
        notes=(
            "Nothing was trained: TRL 1.16 has no PPO.",
            f"Run one of these where its trainer is installed: bash {folder / 'verl.sh'} (veRL 0.9) or "
            f"bash {folder / 'openrlhf.sh'} (OpenRLHF 0.11). Tiltmeter watches either; the run is in the folder "
            "tiltmeter of its output.",
            *(("A reward model is called by the trainer itself: OpenRLHF's rollouts are not seen.",) if model else ()),
        ),
    )


def _guards_in_words(guards: Any) -> list[dict[str, Any]]:
    """Penalties on length count words: neither trainer shows a reward the tokens."""
    entries = []
    for name, values in read_guards(guards or ()):
        settings = dict(values)
        if name == "overlong" and (settings.setdefault("unit", "words") == "tokens" or "limit" not in settings):
            raise AttachError("overlong: veRL and OpenRLHF show a reward no tokens: write {unit: words, limit: 300}")
        entries.append({name: settings})
    return entries


def _single_reward_model(context: Context) -> str | None:
    """The folder of a reward model that is the whole reward, which the trainer then calls itself."""
    if len(context.rewards) != 1 or "model" not in context.rewards[0] or context.stage.guards:
        return None
    model = context.rewards[0]["model"]
    return str(model) if isinstance(model, (str, Path)) else str(model[0]) if len(model) == 1 else None


def _start_script(context: Context, trainer: Any, data: str, model: str | None) -> str:
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


def _verl_script(text: str, context: Context, beta: float) -> str:
    text = _replace_once(text, f"kl_ctrl.kl_coef={number(BETA)}", f"kl_ctrl.kl_coef={number(beta)}")
    text = _replace_once(text, f"The KL penalty, {BETA},", f"The KL penalty, {number(beta)},")
    text = _replace_once(text, "data.val_files=data/test.parquet", f"data.val_files={context.folder / 'test.parquet'}")
    more = [f"+trainer.tiltmeter.{name}={value}" for name, value in _watch_settings(context).items()]
    return _replace_once(text, '"$@"', " \\\n    ".join([*more, '"$@"']))


def _openrlhf_script(text: str, context: Context, beta: float) -> str:
    text = _replace_once(text, f"--algo.kl.init_coef {number(BETA)}", f"--algo.kl.init_coef {number(beta)}")
    text = _replace_once(text, f"The KL penalty, {BETA},", f"The KL penalty, {number(beta)},")
    text = _replace_once(text, "cat > train.py", f"cd {context.folder}\ncat > train.py")
    arguments = "".join(f", {name}={value!r}" for name, value in _watch_settings(context).items())
    install_call = f'install("{context.folder / "openrlhf"}/tiltmeter"'
    return _replace_once(text, f"{install_call})", f"{install_call}{arguments})")


def _watch_settings(context: Context) -> dict[str, str]:
    """Monitor settings that both trainers' adapters take: the gold source and the mode."""
    watch = context.stage.watch if isinstance(context.stage.watch, Mapping) else {}
    act = watch.get("act")
    mode = act.get("mode", "act") if isinstance(act, Mapping) else act
    settings = {"gold": context.stage.gold, "act": mode}
    return {name: str(value) for name, value in settings.items() if value is not None}


def _replace_once(text: str, old: str, new: str) -> str:
    """Replace `old`, which must occur once in the script; otherwise the script is of another version."""
    if text.count(old) != 1:
        raise AssertionError(f"the start has {old!r} {text.count(old)} times")
    return text.replace(old, new)


def _prompt_row(row: Row, label: str) -> dict[str, Any]:
    fields = {"prompt": row["prompt"]}
    return {**fields, "label": str(row[label])} if label and row.get(label) is not None else fields


def _write_parquet(path: Path, rows: Sequence[Row], label: str) -> None:
    """Rows in veRL's columns: messages, the right answer, and every other column in `extra_info`."""
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
        for number, row in enumerate(rows)
    ]
    parquet.write_table(pa.Table.from_pylist(table), path)


def _reward_module(context: Context, trainer: str, label: str) -> str:
    """The recipe's reward as veRL calls one (`compute_score`), or as OpenRLHF does (`reward_func`)."""
    rewards = json.dumps([dict(entry) for entry in context.rewards], default=str)
    guards = json.dumps(_guards_in_words(context.stage.guards))
    head = REWARD_MODULE.format(
        rewards=repr(rewards), guards=repr(guards), folder=repr(str(context.recipe.path.parent.resolve()))
    )
    if trainer == "verl":
        return head + VERL_FUNCTION
    return head + OPENRLHF_FUNCTION.format(
        label=repr(label), place=repr(str(context.folder / "openrlhf" / "tiltmeter"))
    )


REWARD_MODULE = '''"""The recipe's reward and guards. A row that cannot be scored stops training: it is not 0."""

import json

from tiltmeter.rewards import InfraError
from tiltmeter_workbench.rewards.recipe_reward import reward_from_recipe

REWARD = reward_from_recipe(json.loads({rewards}), json.loads({guards}), folder={folder})


def scored(prompts, completions, columns):
    told = REWARD(prompts=prompts, completions=completions, **columns)
    if None in told:
        raise InfraError("a completion could not be scored")
    return told
'''
VERL_FUNCTION = """

def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    columns = {name: [value] for name, value in json.loads((extra_info or {}).get("columns", "{}")).items()}
    (score,) = scored(columns.pop("prompt", [""]), [solution_str], columns)
    return {"score": score, **{name: part[0] for name, part in REWARD.told.items()}}
"""
OPENRLHF_FUNCTION = """
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
