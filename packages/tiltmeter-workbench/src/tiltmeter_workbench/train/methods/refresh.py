"""GRPO in cycles: after each cycle the reward model is retrained on labelled pairs of the current policy's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiltmeter.data.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.gold import GoldSource
from tiltmeter.gold.label_cost import GOLD_SHARE
from tiltmeter.monitor.parts import load_gold
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.common.table_files import Row, read_rows
from tiltmeter_workbench.train import distributed, references
from tiltmeter_workbench.train.data import read_checked_rows as checked_rows
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.methods import grpo, reward_model
from tiltmeter_workbench.train.methods.labelled_pairs import audited_rows, draw_pairs, label_pairs
from tiltmeter_workbench.train.methods.sampling import int_option, read_jsonl, rewrite_jsonl, run_once
from tiltmeter_workbench.train.recipe import Recipe, Stage, gold_settings
from tiltmeter_workbench.train.stage_results import read_result
from tiltmeter_workbench.train.trl_trainer import entropy_weight

OPTIONS = {
    "cycles": "GRPO cycles, with a retrained reward model between them; 2",
    "pairs_per_cycle": "pairs of the current policy's answers that are labelled after a cycle; 64",
    "labels": "who labels them: file.py:function or a judge's file.toml",
    "pairs": "the pairs that the reward model is trained on beside them; those of its own stage",
    "entropy_weight": "as in grpo",
}


@dataclass(frozen=True)
class RewardModelOrigin:
    """What a reward model is trained from: its stage, its start model and its pairs."""

    index: int  # which of the rewards it is
    stage: Stage
    model: Path
    pairs: Path


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for missing or unusable options."""
    where = f"stage {stage.name}:"
    int_option(stage, "cycles", 2, least=2)
    int_option(stage, "pairs_per_cycle", 64)
    entropy_weight(stage)
    if not isinstance(stage.options.get("labels"), str):
        raise AttachError(
            f"{where} say who labels present answers: options: {{labels: checks.py:right}}, or judge.toml"
        )
    if references.PEOPLE.match(stage.options["labels"]):
        raise AttachError(f"{where} options: labels: people cannot be waited for; name a function or a judge")
    _label_source(recipe, stage)
    if stage.watch is False:
        raise AttachError(f"{where} present answers are drawn from the watched run; leave watch: false out")
    if stage.gold is not None and gold_settings(stage).get("share", 0) == 1:
        raise AttachError(
            f"{where} watch: {{gold: {{share: 1}}}} labels every answer for the alarm, and what gold has seen is never "
            "drawn from: choose less, as 0.1"
        )
    _refreshed_reward(recipe, stage)
    pairs = stage.options.get("pairs")
    if pairs is not None and references.parse_reference(str(pairs)) is None:
        checked_rows(references.resolve_path(recipe, str(pairs)), "reward")


def train(context: Context) -> StageOutput:
    """The policy and the reward model after all cycles; each cycle has its own run, models and pairs in `cycle-K`."""
    cycles = int_option(context.stage, "cycles", 2, least=2)
    origin = _reward_model_origin(context)
    policy, rewards, models, facts, notes = context.model, list(context.rewards), [], [], []
    for number in range(1, cycles + 1):
        folder = context.folder / f"cycle-{number}"
        cycle_context = replace(
            context, folder=folder, model=policy, rewards=tuple(rewards), stage=_grpo_stage(context.stage)
        )
        summary = run_once(folder / "policy.json", lambda: grpo.train(cycle_context).facts)  # noqa: B023
        policy = folder / "model"
        notes += [f"Cycle {number}: {summary['stopped']}"] if summary.get("stopped") else []
        if number < cycles:
            fresh = run_once(
                folder / "refreshed.json",
                lambda: _refresh_reward_model(context, origin, folder, number, summary.get("run")),  # noqa: B023
            )
            summary = {**summary, **fresh}
            if fresh["models"]:
                models = [folder / name for name in fresh["models"]]
                rewards[origin.index] = _reward_entry(rewards[origin.index], models, fresh)
            notes += _notes(context.stage, number, fresh)
        facts.append({"cycle": number, **summary})
    files = tuple(sorted(context.folder.glob("cycle-*/labelled.jsonl")))
    last = {name: facts[-1].get(name) for name in ("reward", "verdict", "sentence", "run")}
    total = {name: sum(summary.get(name) or 0 for summary in facts) for name in ("steps", "seconds", "alarms")}
    details = {"cycles": facts, "reward_models": [str(one) for one in models]}
    return StageOutput((policy,), files, {**last, **total, **details}, tuple(notes))


def _grpo_stage(stage: Stage) -> Stage:
    kept_options = {name: value for name, value in stage.options.items() if name == "entropy_weight"}
    if stage.gold is not None and stage.watch is not False:
        # Answers that gold has seen are not drawn from, so it must not see all of them.
        settings = stage.watch if isinstance(stage.watch, Mapping) else {}
        stage = replace(stage, watch={**settings, "gold": {"share": GOLD_SHARE, **gold_settings(stage)}})
    return replace(stage, method="grpo", options=kept_options)


def _refresh_reward_model(
    context: Context, origin: RewardModelOrigin, folder: Path, number: int, run: str | None
) -> dict[str, Any]:
    """Draw and label pairs, then retrain the reward model on its first pairs and all labelled ones."""
    if distributed.is_main_process():
        _draw_once(context, folder, number, run)
        source = _label_source(context.recipe, context.stage)
        rewrite_jsonl(folder / "labelled.jsonl", label_pairs(folder, source, context.progress))
        earlier = [
            row for at in range(1, number + 1) for row in read_jsonl(folder.with_name(f"cycle-{at}") / "labelled.jsonl")
        ]
        rewrite_jsonl(folder / "pairs.jsonl", _combine_pairs(read_rows(origin.pairs), earlier, context))
    distributed.wait_for_everyone()
    labels, new = read_jsonl(folder / "labels.jsonl"), read_jsonl(folder / "labelled.jsonl")
    summary: dict[str, Any] = {
        "audited": len(audited_rows(RunDirectory(run)))
        if run is not None
        else None,  # answers that were not drawn from
        "drawn": len(labels),
        "labelled": len(new),
        "ties": sum(None not in row["labels"] and len(set(row["labels"])) == 1 for row in labels),
        "unanswered": sum(None in row["labels"] for row in labels),
        "models": [],
    }
    if not new:
        return summary
    output = reward_model.train(
        replace(
            context, stage=origin.stage, folder=folder / "reward", model=origin.model, data=folder / "pairs.jsonl",
            eval=None, rewards=(),
        )
    )  # fmt: skip
    model_names = [str(path.relative_to(folder)) for path in output.folders]
    return {
        **summary,
        "models": model_names,
        "ending": output.facts.get("ending", ""),
        "pairs": output.facts.get("rows"),
    }


def _draw_once(context: Context, folder: Path, number: int, run: str | None) -> None:
    """Draw the pairs once and store them: an interruption does not change which pairs are labelled."""
    path = folder / "drawn.jsonl"
    if not path.exists():
        if run is None:
            raise AttachError("present answers are drawn from the watched run: unset TILTMETER_DISABLED")
        count = int_option(context.stage, "pairs_per_cycle", 64)
        rewrite_jsonl(path, draw_pairs(run, count, f"{context.recipe.seed}/{context.stage.name}/{number}"))


def _combine_pairs(first: Sequence[Row], new: Sequence[Row], context: Context) -> list[Row]:
    """The pairs of the reward model's stage and the new ones in the same form."""
    assert context.data is not None
    prompts = {plain_text(row["prompt"]): row["prompt"] for row in read_rows(context.data)}
    template = first[0]
    pairs: list[Row] = [{name: row[name] for name in ("prompt", "chosen", "rejected") if name in row} for row in first]
    return [*pairs, *(_pair_in_form(template, prompts.get(row["prompt"], row["prompt"]), row) for row in new)]


def _pair_in_form(template: Row, prompt: Any, row: Row) -> Row:
    """A new pair in the format of an existing one: text or messages, with a separate prompt or an implicit one."""
    messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    pair: Row = {}
    for side in ("chosen", "rejected"):
        turn = [{"role": "assistant", "content": row[side]}]
        if not isinstance(template[side], list):
            pair[side] = row[side] if "prompt" in template else f"{plain_text(prompt)}{row[side]}"
        else:
            pair[side] = turn if isinstance(template.get("prompt"), list) else [*messages, *turn]
    if "prompt" in template:
        pair["prompt"] = messages if isinstance(template["prompt"], list) else plain_text(prompt)
    return pair


def _reward_entry(entry: Mapping[str, Any], models: Sequence[Path], fresh: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe's reward entry with the retrained model in place of the previous one."""
    settings = {**(entry.get("settings") or {}), "ending": fresh["ending"]}
    return {**entry, "model": [str(one) for one in models] if len(models) > 1 else str(models[0]), "settings": settings}


def _label_source(recipe: Recipe, stage: Stage) -> GoldSource:
    try:
        return load_gold(references.resolve_function(recipe, str(stage.options["labels"])))
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: options: labels: {error}") from error


def _refreshed_reward(recipe: Recipe, stage: Stage) -> tuple[int, Stage]:
    """Index of the reward entry whose model is retrained, and the stage that trained it."""
    models = [(at, entry["model"]) for at, entry in enumerate(stage.rewards) if "model" in entry]
    if len(models) == 1 and isinstance(models[0][1], str):
        at, name = models[0]
        ref = references.parse_reference(name)
        if ref is not None and not ref.file and any(one.name == ref.stage for one in recipe.stages):
            return at, recipe.stage(ref.stage)
    raise AttachError(
        f"stage {stage.name}: one of its rewards is the reward model that is trained again, made by a stage of this "
        "recipe: write - model: '@reward', once"
    )


def _reward_model_origin(context: Context) -> RewardModelOrigin:
    at, stage = _refreshed_reward(context.recipe, context.stage)
    start = references.start_model(context.recipe, stage)
    if (ref := references.parse_reference(start)) is None:
        model = references.model_folder(context.recipe, f"stage {stage.name}", start)
    else:
        model = _stage_output_path(context, ref, "folders")
    name = str(context.stage.options.get("pairs") or stage.data)
    ref = references.parse_reference(name)
    pairs = references.resolve_path(context.recipe, name) if ref is None else _stage_output_path(context, ref, "files")
    return RewardModelOrigin(at, stage, model, pairs)


def _stage_output_path(context: Context, ref: references.StageReference, what: str) -> Path:
    """Path of an earlier stage's output that a reference names."""
    names = [stage.name for stage in context.recipe.stages]
    folder = context.folder.parent / f"{names.index(ref.stage) + 1:02d}-{ref.stage}"
    if ref.file:
        return folder / ref.file
    result = read_result(folder)
    assert result is not None  # it stands before this one
    path: Path = getattr(result.trained, what)[0]
    return path


def _notes(stage: Stage, number: int, fresh: Mapping[str, Any]) -> list[str]:
    notes = []
    if not fresh["models"]:
        notes.append(f"Cycle {number}: no pair was labelled, so the reward model stayed as it was.")
    if fresh["unanswered"]:
        notes.append(f"Cycle {number}: {fresh['unanswered']} of {fresh['drawn']} pairs got no label.")
    if number == 1 and stage.gold is not None and Path(stage.gold).name == Path(str(stage.options["labels"])).name:
        notes.append(
            "Labels and gold are one source. The alarm's own labels are never trained on, but what this source cannot "
            "see, neither the reward model nor the alarm will."
        )
    return notes
