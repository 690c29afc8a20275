"""Constitutional AI as a recipe stage: from prompts to revised answers (SFT data) and AI-labelled pairs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.models.chat.endpoint import ChatError
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.common.chat_model import ChatModel, Progress
from tiltmeter_workbench.common.open_chat import open_model
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.constitution.mixing import read_human_pairs
from tiltmeter_workbench.constitution.principles import read_constitution
from tiltmeter_workbench.constitution.prompts import read_prompts
from tiltmeter_workbench.constitution.run import ConstitutionSettings, run_steps
from tiltmeter_workbench.constitution.training_files import VOTES, ConstitutionFiles, HumanPairs, write_files
from tiltmeter_workbench.preferences.reading.reader import read_preferences
from tiltmeter_workbench.preferences.render import as_json, as_report, headline
from tiltmeter_workbench.preferences.report import PreferenceReport, check_pairs
from tiltmeter_workbench.train import references
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.recipe import Recipe, Stage

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
class ConstitutionJob:
    """All inputs of one Constitutional AI job, from a recipe or the command line."""

    prompts: Path
    model: ChatModel
    judge: ChatModel
    folder: Path
    settings: ConstitutionSettings
    constitution: Path | None = None
    human: HumanPairs | None = None
    form: str = "auto"
    first: int | None = None  # only so many prompts


def run_constitution_job(job: ConstitutionJob, progress: Progress) -> tuple[ConstitutionFiles, PreferenceReport | None]:
    """The output files, and the `tiltmeter data preferences` report on the labels; None where there are no labels."""
    prompts, duplicates = read_prompts(job.prompts)
    prompts = prompts[: job.first]
    constitution = read_constitution(job.constitution)
    if job.form not in FORMS:
        raise AttachError(f"form is {job.form!r}: it is one of {', '.join(FORMS)}")
    chats = job.form == "messages" or (
        job.form == "auto"
        and (getattr(job.model, "chats", True) or any(not isinstance(prompt.content, str) for prompt in prompts))
    )
    if job.human is not None:
        _check_mixable(job.human, job.settings, chats)
    steps = run_steps(prompts, job.model, job.judge, constitution, job.folder, job.settings, progress)
    output = write_files(job.folder, prompts, steps, job.settings, job.judge.name, chats, job.human)
    report = _measure_label_bias(job.folder, job.settings, progress) if output.counts.get("compared") else None
    notes = [
        *output.notes,
        *([f"{duplicates} prompts stood there more than once and are asked once"] if duplicates else []),
    ]
    counts = {**output.counts, "failed_steps": len(steps.failed)}
    return ConstitutionFiles(output.files, counts, tuple(notes)), report


def _check_mixable(human: HumanPairs, settings: ConstitutionSettings, chats: bool) -> None:
    """Refuse human pairs that cannot be mixed in, before any model is called."""
    if not settings.samples:
        raise AttachError("human pairs are mixed with AI pairs: with samples 0 there are none")
    if not 0.0 <= human.share <= 1.0:
        raise AttachError(f"the share of human pairs is {human.share:g}: give one from 0 to 1")
    read_human_pairs(human.path, chats)


def _measure_label_bias(folder: Path, settings: ConstitutionSettings, progress: Progress) -> PreferenceReport | None:
    votes = folder / VOTES
    if all(row["winner_unswapped"] is row["winner_swapped"] is None for row in read_rows(votes)):
        return None  # no reply of the judge was a vote, which the counts say
    preferences = read_preferences(votes)
    report = check_pairs(
        preferences.pairs,
        seed=settings.seed,
        progress=progress,
        source=VOTES,
        input_notes=preferences.input_notes,
        left_out=preferences.left_out,
    )
    (folder / "bias.json").write_text(json.dumps(as_json(report), indent=1, allow_nan=False) + "\n", "utf-8")
    (folder / "bias.html").write_text(render_html(as_report(report)), "utf-8")
    return report


def check(recipe: Recipe, stage: Stage) -> None:
    """What can be refused before a recipe begins."""
    options = stage.options
    for name, value in options.items():
        kinds = TYPES.get(name, (object,))
        odd = isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value))
        if odd or not isinstance(value, kinds):
            raise AttachError(f"stage {stage.name}: options: {name} cannot be {value!r}: {OPTIONS.get(name, '')}")
    if str(options.get("judge", "")).startswith("@"):
        raise AttachError(f"stage {stage.name}: options: judge is a folder or a file.toml, not what a stage left")
    if options.get("form", "auto") not in FORMS:
        raise AttachError(f"stage {stage.name}: options: form is one of {', '.join(FORMS)}")
    settings = settings_from(options, recipe.seed)
    read_constitution(_optional_path(recipe, options.get("constitution")))
    judge = _optional_path(recipe, options.get("judge"))
    if judge is not None:
        open_model(judge)
    human = _optional_path(recipe, options.get("human"))
    if human is not None:
        _check_mixable(HumanPairs(human, options.get("human_share", 0.5)), settings, chats=True)


def settings_from(options: Any, seed: int) -> ConstitutionSettings:
    return ConstitutionSettings(**{name: options[name] for name in NUMBERS if name in options}, seed=seed)


def _optional_path(recipe: Recipe, name: str | None) -> Path | None:
    return None if name is None else references.resolve_path(recipe, name)


def train(context: Context) -> StageOutput:
    """Nothing is trained here: the stage makes what later stages train on."""
    assert context.data is not None
    recipe, options = context.recipe, context.stage.options
    model = open_model(context.model)
    judge, human = _optional_path(recipe, options.get("judge")), _optional_path(recipe, options.get("human"))
    job = ConstitutionJob(
        context.data,
        model,
        model if judge is None else open_model(judge),
        context.folder,
        settings_from(options, recipe.seed),
        _optional_path(recipe, options.get("constitution")),
        None if human is None else HumanPairs(human, options.get("human_share", 0.5)),
        options.get("form", "auto"),
        context.steps,
    )
    output, report = run_constitution_job(job, context.progress)
    if output.counts["failed_steps"]:
        raise ChatError(f"stage {context.stage.name} is not finished: {output.notes[0]}; run it again, and it goes on")
    notes = [*output.notes, *([f"the labels: {headline(report)}"] if report is not None else [])]
    bias_files = [path for path in (context.folder / "bias.json", context.folder / "bias.html") if path.exists()]
    facts = {**output.counts, "labels": report.state if report is not None else None}
    return StageOutput(files=(*output.files, *bias_files), facts=facts, notes=tuple(notes))
