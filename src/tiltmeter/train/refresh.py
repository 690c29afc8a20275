"""GRPO in cycles: after each, the reward model is trained again on pairs of the policy's present answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiltmeter.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.gold import GoldSource
from tiltmeter.rows import Row, read_rows
from tiltmeter.store import RunDirectory
from tiltmeter.train import online, places, processes
from tiltmeter.train.data import checked as checked_rows
from tiltmeter.train.drawing import audited, draw, labelled
from tiltmeter.train.finished import finished
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.recipe import Recipe, Stage
from tiltmeter.train.sampling import kept, once, replaced, whole
from tiltmeter.train.settings import entropy_weight

OPTIONS = {
    "cycles": "stretches of GRPO, with a fresh reward model between two of them; 2",
    "pairs_per_cycle": "pairs of present answers that are labelled after a cycle; 64",
    "labels": "who labels them: file.py:function or a judge's file.toml",
    "pairs": "the pairs that the reward model is trained on beside them; those of its own stage",
    "entropy_weight": "as in grpo",
}


@dataclass(frozen=True)
class Begun:
    """Where a reward model comes from: its stage, the model it starts from and its pairs."""

    at: int  # which of the rewards it is
    stage: Stage
    model: Path
    pairs: Path


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for what a loop cannot do without."""
    where = f"stage {stage.name}:"
    whole(stage, "cycles", 2, least=2)
    whole(stage, "pairs_per_cycle", 64)
    entropy_weight(stage)
    if not isinstance(stage.options.get("labels"), str):
        raise AttachError(
            f"{where} say who labels present answers: options: {{labels: checks.py:right}}, or judge.toml"
        )
    if places.PEOPLE.match(stage.options["labels"]):
        raise AttachError(f"{where} options: labels: people cannot be waited for; name a function or a judge")
    _source(recipe, stage)
    if stage.watch is False:
        raise AttachError(f"{where} present answers are drawn from the watched run; leave watch: false out")
    _refreshed(recipe, stage)
    pairs = stage.options.get("pairs")
    if pairs is not None and places.reference(str(pairs)) is None:
        checked_rows(places.beside(recipe, str(pairs)), "reward")


def train(context: Context) -> Trained:
    """The policy and the reward model after all cycles; each cycle has its own run, models and pairs in `cycle-K`."""
    cycles = whole(context.stage, "cycles", 2, least=2)
    begun = _begun(context)
    policy, rewards, models, facts, told = context.model, list(context.rewards), [], [], []
    for number in range(1, cycles + 1):
        folder = context.folder / f"cycle-{number}"
        here = replace(context, folder=folder, model=policy, rewards=tuple(rewards), stage=_grpo(context.stage))
        said = once(folder / "policy.json", lambda: online.train(here).facts)  # noqa: B023
        policy = folder / "model"
        told += [f"Cycle {number}: {said['stopped']}"] if said.get("stopped") else []
        if number < cycles:
            fresh = once(folder / "refreshed.json", lambda: _refresh(context, begun, folder, number, said.get("run")))  # noqa: B023
            said = {**said, **fresh}
            if fresh["models"]:
                models = [folder / name for name in fresh["models"]]
                rewards[begun.at] = _entry(rewards[begun.at], models, fresh)
            told += _sentences(context.stage, number, fresh)
        facts.append({"cycle": number, **said})
    files = tuple(sorted(context.folder.glob("cycle-*/labelled.jsonl")))
    last = {name: facts[-1].get(name) for name in ("reward", "verdict", "sentence", "run")}
    total = {name: sum(said.get(name) or 0 for said in facts) for name in ("steps", "seconds", "alarms")}
    left = {"cycles": facts, "reward_models": [str(one) for one in models]}
    return Trained((policy,), files, {**last, **total, **left}, tuple(told))


def _grpo(stage: Stage) -> Stage:
    kept_options = {name: value for name, value in stage.options.items() if name == "entropy_weight"}
    return replace(stage, method="grpo", options=kept_options)


def _refresh(context: Context, begun: Begun, folder: Path, number: int, run: str | None) -> dict[str, Any]:
    """Draw, label, and train the reward model from where it began, on its first pairs and all that were labelled."""
    if processes.main():
        _drawn(context, folder, number, run)
        source = _source(context.recipe, context.stage)
        replaced(folder / "labelled.jsonl", labelled(folder, source, context.progress))
        earlier = [
            row for at in range(1, number + 1) for row in kept(folder.with_name(f"cycle-{at}") / "labelled.jsonl")
        ]
        replaced(folder / "pairs.jsonl", _together(read_rows(begun.pairs), earlier, context))
    processes.wait()
    labels, new = kept(folder / "labels.jsonl"), kept(folder / "labelled.jsonl")
    said: dict[str, Any] = {
        "audited": len(audited(RunDirectory(run))) if run is not None else None,  # answers that were not drawn from
        "drawn": len(labels),
        "labelled": len(new),
        "ties": sum(None not in row["labels"] and len(set(row["labels"])) == 1 for row in labels),
        "unanswered": sum(None in row["labels"] for row in labels),
        "models": [],
    }
    if not new:
        return said
    from tiltmeter.train import reward

    made = reward.train(
        replace(
            context, stage=begun.stage, folder=folder / "reward", model=begun.model, data=folder / "pairs.jsonl",
            eval=None, rewards=(),
        )
    )  # fmt: skip
    left = [str(path.relative_to(folder)) for path in made.folders]
    return {**said, "models": left, "ending": made.facts.get("ending", ""), "pairs": made.facts.get("rows")}


def _drawn(context: Context, folder: Path, number: int, run: str | None) -> None:
    """The draw is made once, and kept: what is labelled does not depend on how often the work was interrupted."""
    path = folder / "drawn.jsonl"
    if not path.exists():
        if run is None:
            raise AttachError("present answers are drawn from the watched run: unset TILTMETER_DISABLED")
        count = whole(context.stage, "pairs_per_cycle", 64)
        replaced(path, draw(run, count, f"{context.recipe.seed}/{context.stage.name}/{number}"))


def _together(first: Sequence[Row], new: Sequence[Row], context: Context) -> list[Row]:
    """The pairs of the reward model's stage and the new ones in the same form."""
    assert context.data is not None
    prompts = {plain_text(row["prompt"]): row["prompt"] for row in read_rows(context.data)}
    like = first[0]
    whole_rows: list[Row] = [
        {name: row[name] for name in ("prompt", "chosen", "rejected") if name in row} for row in first
    ]
    return [*whole_rows, *(_like(like, prompts.get(row["prompt"], row["prompt"]), row) for row in new)]


def _like(like: Row, prompt: Any, row: Row) -> Row:
    """A new pair in the form of one that is there: text or conversation, with its prompt apart or inside."""
    asked = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
    made: Row = {}
    for side in ("chosen", "rejected"):
        turn = [{"role": "assistant", "content": row[side]}]
        if not isinstance(like[side], list):
            made[side] = row[side] if "prompt" in like else f"{plain_text(prompt)}{row[side]}"
        else:
            made[side] = turn if isinstance(like.get("prompt"), list) else [*asked, *turn]
    if "prompt" in like:
        made["prompt"] = asked if isinstance(like["prompt"], list) else plain_text(prompt)
    return made


def _entry(entry: Mapping[str, Any], models: Sequence[Path], fresh: Mapping[str, Any]) -> dict[str, Any]:
    """The reward that a recipe names, with the fresh model in place of the one before."""
    settings = {**(entry.get("settings") or {}), "ending": fresh["ending"]}
    return {**entry, "model": [str(one) for one in models] if len(models) > 1 else str(models[0]), "settings": settings}


def _source(recipe: Recipe, stage: Stage) -> GoldSource:
    from tiltmeter.config import load_gold

    try:
        return load_gold(places.function(recipe, str(stage.options["labels"])))
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: options: labels: {error}") from error


def _refreshed(recipe: Recipe, stage: Stage) -> tuple[int, Stage]:
    """Which of the rewards is the model that is trained again, and the stage that made it."""
    named = [(at, entry["model"]) for at, entry in enumerate(stage.rewards) if "model" in entry]
    if len(named) == 1 and isinstance(named[0][1], str):
        at, name = named[0]
        found = places.reference(name)
        if found is not None and not found.file and any(one.name == found.stage for one in recipe.stages):
            return at, recipe.stage(found.stage)
    raise AttachError(
        f"stage {stage.name}: one of its rewards is the reward model that is trained again, made by a stage of this "
        "recipe: write - model: '@reward', once"
    )


def _begun(context: Context) -> Begun:
    at, stage = _refreshed(context.recipe, context.stage)
    start = places.start_of(context.recipe, stage)
    if (found := places.reference(start)) is None:
        model = places.model_folder(context.recipe, f"stage {stage.name}", start)
    else:
        model = _left(context, found, "folders")
    name = str(context.stage.options.get("pairs") or stage.data)
    found = places.reference(name)
    pairs = places.beside(context.recipe, name) if found is None else _left(context, found, "files")
    return Begun(at, stage, model, pairs)


def _left(context: Context, found: places.Reference, what: str) -> Path:
    """What an earlier stage left, by its name."""
    names = [stage.name for stage in context.recipe.stages]
    folder = context.folder.parent / f"{names.index(found.stage) + 1:02d}-{found.stage}"
    if found.file:
        return folder / found.file
    result = finished(folder)
    assert result is not None  # it stands before this one
    path: Path = getattr(result.trained, what)[0]
    return path


def _sentences(stage: Stage, number: int, fresh: Mapping[str, Any]) -> list[str]:
    told = []
    if not fresh["models"]:
        told.append(f"Cycle {number}: no pair was labelled, so the reward model stayed as it was.")
    if fresh["unanswered"]:
        told.append(f"Cycle {number}: {fresh['unanswered']} of {fresh['drawn']} pairs got no label.")
    if number == 1 and stage.gold is not None and Path(stage.gold).name == Path(str(stage.options["labels"])).name:
        told.append(
            "Labels and gold are one source. The alarm's own labels are never trained on, but what this source cannot "
            "see, neither the reward model nor the alarm will."
        )
    return told
