"""Constitutional AI as a stage of a recipe: prompts in, revisions and AI-labelled pairs out."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.chat import ChatError, Progress, Speaker, speaker
from tiltmeter.constitution.files import VOTES, Human, Made, written
from tiltmeter.constitution.mixing import human_pairs
from tiltmeter.constitution.principles import read_constitution
from tiltmeter.constitution.prompts import read_prompts
from tiltmeter.constitution.run import Settings, carried_out
from tiltmeter.errors import AttachError
from tiltmeter.preferences import html
from tiltmeter.preferences.reading import read
from tiltmeter.preferences.report import Report, examined
from tiltmeter.preferences.telling import as_json, headline
from tiltmeter.rows import read_rows
from tiltmeter.train import places
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.recipe import Recipe, Stage

OPTIONS = {
    "constitution": "the file with the principles; ours without it",
    "judge": "who compares: a model's folder or a server's file.toml; the stage's model without it",
    "rounds": "of critique and revision (1); 0 makes no sft.jsonl",
    "samples": "answers per prompt that are compared two by two (2); 0 makes no pairs.jsonl",
    "limit": "tokens of one answer (256)",
    "temperature": "of answers, critiques, revisions and samples (1.0)",
    "margin": "nats within which a local judge has no opinion (0)",
    "human": "pairs of people, to be mixed with the AI's into mixed.jsonl",
    "human_share": "of human pairs in mixed.jsonl (0.5)",
    "form": "auto, messages or text: how prompts and answers stand in the files",
}
FORMS = ("auto", "messages", "text")
TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("rounds", "samples", "limit"), (int,)),
    **dict.fromkeys(("temperature", "margin", "human_share"), (int, float)),
    **dict.fromkeys(("constitution", "judge", "human", "form"), (str,)),
}
NUMBERS = ("rounds", "samples", "limit", "temperature", "margin")


@dataclass(frozen=True)
class Order:
    """Everything that is asked for at once, by whoever asks."""

    prompts: Path
    model: Speaker
    judge: Speaker
    folder: Path
    settings: Settings
    constitution: Path | None = None
    human: Human | None = None
    form: str = "auto"
    first: int | None = None  # only so many prompts


def constituted(order: Order, progress: Progress) -> tuple[Made, Report | None]:
    """The files, and what `tiltmeter preferences` says of the labels; None where there are none to look at."""
    prompts, twice = read_prompts(order.prompts)
    prompts = prompts[: order.first]
    constitution = read_constitution(order.constitution)
    if order.form not in FORMS:
        raise AttachError(f"form is {order.form!r}: it is one of {', '.join(FORMS)}")
    chats = order.form == "messages" or (
        order.form == "auto"
        and (getattr(order.model, "chats", True) or any(not isinstance(prompt.given, str) for prompt in prompts))
    )
    if order.human is not None:
        _mixable(order.human, order.settings, chats)
    steps = carried_out(prompts, order.model, order.judge, constitution, order.folder, order.settings, progress)
    made = written(order.folder, prompts, steps, order.settings, order.judge.name, chats, order.human)
    report = _biases(order.folder, order.settings, progress) if made.counts.get("compared") else None
    told = [*made.told, *([f"{twice} prompts stood there more than once and are asked once"] if twice else [])]
    counts = {**made.counts, "failed_steps": len(steps.failed)}
    return Made(made.files, counts, tuple(told)), report


def _mixable(human: Human, settings: Settings, chats: bool) -> None:
    """Refuse before any work what could not be mixed after it."""
    if not settings.samples:
        raise AttachError("human pairs are mixed with AI pairs: with samples 0 there are none")
    if not 0.0 <= human.share <= 1.0:
        raise AttachError(f"the share of human pairs is {human.share:g}: give one from 0 to 1")
    human_pairs(human.path, chats)


def _biases(folder: Path, settings: Settings, progress: Progress) -> Report | None:
    votes = folder / VOTES
    if all(row["winner_unswapped"] is row["winner_swapped"] is None for row in read_rows(votes)):
        return None  # no reply of the judge was a vote, which the counts say
    found = read(votes)
    report = examined(
        found.pairs, seed=settings.seed, progress=progress, source=VOTES, told=found.told, left_out=found.left_out
    )
    (folder / "bias.json").write_text(json.dumps(as_json(report), indent=1, allow_nan=False) + "\n", "utf-8")
    (folder / "bias.html").write_text(html.page(report), "utf-8")
    return report


def check(recipe: Recipe, stage: Stage) -> None:
    """What can be refused before a recipe begins."""
    given = stage.options
    for name, value in given.items():
        kinds = TYPES.get(name, (object,))
        odd = isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value))
        if odd or not isinstance(value, kinds):
            raise AttachError(f"stage {stage.name}: options: {name} cannot be {value!r}: {OPTIONS.get(name, '')}")
    if str(given.get("judge", "")).startswith("@"):
        raise AttachError(f"stage {stage.name}: options: judge is a folder or a file.toml, not what a stage left")
    if given.get("form", "auto") not in FORMS:
        raise AttachError(f"stage {stage.name}: options: form is one of {', '.join(FORMS)}")
    settings = settings_of(given, recipe.seed)
    read_constitution(_beside(recipe, given.get("constitution")))
    judge = _beside(recipe, given.get("judge"))
    if judge is not None:
        speaker(judge)
    human = _beside(recipe, given.get("human"))
    if human is not None:
        _mixable(Human(human, given.get("human_share", 0.5)), settings, chats=True)


def settings_of(given: Any, seed: int) -> Settings:
    return Settings(**{name: given[name] for name in NUMBERS if name in given}, seed=seed)


def _beside(recipe: Recipe, name: str | None) -> Path | None:
    return None if name is None else places.beside(recipe, name)


def train(context: Context) -> Trained:
    """Nothing is trained here: the stage makes what later stages train on."""
    assert context.data is not None
    recipe, given = context.recipe, context.stage.options
    model = speaker(context.model)
    judge, human = _beside(recipe, given.get("judge")), _beside(recipe, given.get("human"))
    order = Order(
        context.data,
        model,
        model if judge is None else speaker(judge),
        context.folder,
        settings_of(given, recipe.seed),
        _beside(recipe, given.get("constitution")),
        None if human is None else Human(human, given.get("human_share", 0.5)),
        given.get("form", "auto"),
        context.steps,
    )
    made, report = constituted(order, context.progress)
    if made.counts["failed_steps"]:
        raise ChatError(f"stage {context.stage.name} is not finished: {made.told[0]}; run it again, and it goes on")
    told = [*made.told, *([f"the labels: {headline(report)}"] if report is not None else [])]
    beside = [path for path in (context.folder / "bias.json", context.folder / "bias.html") if path.exists()]
    facts = {**made.counts, "labels": report.state if report is not None else None}
    return Trained(files=(*made.files, *beside), facts=facts, told=tuple(told))
