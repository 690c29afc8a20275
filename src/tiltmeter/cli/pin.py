"""`tiltmeter pin`: saved checkpoints asked the same few prompts, to be read side by side."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tiltmeter.adapters.checkpoints import Prompt, answers, has_chat_template, libraries, saved, step_of
from tiltmeter.cli.show import Json, Run
from tiltmeter.encode import log_line, terminal
from tiltmeter.errors import AttachError, StoreError, TiltmeterError
from tiltmeter.pinned import CHECKPOINT, PROMPTS, Place, keep, listed, pins, read
from tiltmeter.store import RunDirectory
from tiltmeter.verdict import look

SHOWN = 3  # prompts on the screen; the page shows them all
PROMPTS_BYTES = 16 << 20  # of a file of prompts

Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="A saved model, as DIR or, if its name has no step, STEP=DIR.", metavar="DIR"),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        help="Prompts: lines of text, or JSON lines (texts, chats, or objects with a prompt).", metavar="FILE"
    ),
]
Most = Annotated[int, typer.Option(help="How many prompts.", min=1, max=PROMPTS, metavar="N")]
Tokens = Annotated[int, typer.Option(help="How long an answer may be.", min=1, max=4096, metavar="N")]
Chat = Annotated[
    bool | None,
    typer.Option("--chat/--no-chat", help="Whether each prompt is a user's message in the model's chat template."),
]
Device = Annotated[str, typer.Option(help="Where models run; a GPU that trains may run out of memory.")]


@dataclass
class Outcome:
    """What became of each checkpoint."""

    stored: list[Place] = field(default_factory=list)
    there: list[Place] = field(default_factory=list)  # were asked before
    other: int = 0  # of those, asked other prompts
    failed: dict[str, str] = field(default_factory=dict)  # why, by folder


def pin(
    run: Run,
    model: Models = None,
    prompts: Prompts = None,
    most: Most = 16,
    tokens: Tokens = 64,
    chat: Chat = None,
    device: Device = "cpu",
    json: Json = False,
) -> None:
    """Ask saved checkpoints the same few prompts and keep the answers, to see what the policy says then and now.

    Example: tiltmeter pin runs/tonight/tiltmeter --model 0=models/base --model runs/tonight/checkpoint-400

    Without --model: every checkpoint-N beside the run directory. Without --prompts: the first prompts of the run's
    first step. Answers are greedy. A checkpoint that was asked before is not asked again, and training is not touched.
    Exit code: 0 kept, 2 a checkpoint could not be asked.
    """
    directory = RunDirectory(run)
    directory.identity()
    models = [placed(name) for name in model] if model else beside(run)
    asked = (from_file(prompts) if prompts else from_run(directory))[:most]
    if (
        chat is None
        and any(isinstance(prompt, str) for prompt in asked)
        and any(has_chat_template(f) for _, f in models)
    ):
        raise AttachError(
            "the tokenizer has a chat template, and a run stores prompts as plain text: add --chat if training gave "
            "them as a user's messages, else --no-chat"
        )
    done = ask_all(directory, models, asked, tokens=tokens, chat=bool(chat), device=device)
    if json:
        typer.echo(json_module.dumps(facts(directory, done, asked), indent=1, allow_nan=False))
    else:
        show(directory, done)
    raise typer.Exit(2 if done.failed else 0)


def ask_all(
    run: RunDirectory,
    models: Sequence[tuple[int, Path]],
    prompts: Sequence[Prompt],
    *,
    tokens: int,
    chat: bool,
    device: str,
) -> Outcome:
    """Ask one checkpoint after the other; one that fails is said and the others go on."""
    done, spans = Outcome(), ranges(run)
    wanted = {row.prompt for row in pins(0, 0, CHECKPOINT, prompts, [""] * len(prompts)).rows}
    console = Console(stderr=True, highlight=False, markup=False)
    with console.status("asking checkpoints…") as status:
        for number, (step, folder) in enumerate(models, 1):
            attempt = attempt_of(step, spans)
            before = [at for at in listed(run) if at.checkpoint and (at.attempt, at.step) == (attempt, step)]
            status.update(Text(f"{log_line(folder.name, 60)} ({number} of {len(models)})"))
            if before:
                done.there += before
                done.other += _prompts_of(before[0]) != wanted
                continue
            libraries()
            try:
                said = answers(folder, prompts, tokens=tokens, chat=chat, device=device)
                made = pins(attempt, step, f"{CHECKPOINT} {folder.name}", prompts, said)
                done.stored.append(Place(step, attempt, True, keep(run, made)))
            except (TiltmeterError, OSError, ValueError) as error:
                done.failed[str(folder)] = str(error)
            if not console.is_terminal:
                console.out(f"{number} of {len(models)} checkpoints")
    return done


def _prompts_of(place: Place) -> set[str]:
    try:
        return {row.prompt for row in read(place).rows}
    except StoreError:
        return set()


def placed(name: str) -> tuple[int, Path]:
    """A model named on the command line: the step it belongs to, and its folder."""
    before, sign, after = name.partition("=")
    told = before if sign and before.isascii() and before.isdecimal() else ""
    folder = Path(after if told else name)
    if not folder.is_dir():
        raise AttachError(f"{folder} is no folder: name a saved model on this machine")
    step = int(told) if told else step_of(folder.resolve())
    if step is None:
        raise AttachError(f"nobody knows the step of {folder}: write --model STEP={folder}, with 0 for the start")
    return step, folder


def beside(run: Path) -> list[tuple[int, Path]]:
    """The checkpoints in the output directory that the run directory lies in."""
    output = run.resolve().parent
    if not (found := saved(output)):
        raise AttachError(f"there is no checkpoint-N beside {run.name} in {output}: name saved models with --model")
    return found


def from_run(run: RunDirectory) -> list[Prompt]:
    """The distinct prompts of the first stored step, in the order of their groups."""
    for attempt in run.attempts():
        first = min((file.step for file in run.files(attempt, [])), default=None)
        batches = (
            [run.read(file, ("group", "prompt"))[0] for file in run.find(attempt, first)] if first is not None else []
        )
        texts = [text for batch in batches for text in batch.prompt or () if text]
        if texts:
            return list(dict.fromkeys(texts))
    raise StoreError(f"{run.path} has no stored prompts to ask: give some with --prompts FILE")


def from_file(path: Path) -> list[Prompt]:
    """Prompts of a file: each line a text, or, where every line is JSON, a text, a chat or an object with a prompt."""
    try:
        with path.open("rb") as file:
            raw = file.read(PROMPTS_BYTES + 1)
        if len(raw) > PROMPTS_BYTES:
            raise ValueError(f"more than {PROMPTS_BYTES} bytes")
        lines = [line for line in raw.decode().splitlines() if line.strip()]
        if path.suffix not in (".json", ".jsonl"):
            found: list[Any] = list(lines)
        else:
            found = [json_module.loads(line) for line in lines] if path.suffix == ".jsonl" else json_module.loads(raw)
            found = [item["prompt"] if isinstance(item, dict) else item for item in found]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise AttachError(f"{path} cannot be read as prompts: {type(error).__name__}: {str(error)[:200]}") from error
    odd = [item for item in found if not (isinstance(item, str) or _is_chat(item))]
    if odd or not found:
        raise AttachError(f"{path} needs prompts: texts, or chats as lists of objects with role and content")
    return list({json_module.dumps(item): item for item in found}.values())


def _is_chat(item: Any) -> bool:
    return isinstance(item, list) and all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in item)


def ranges(run: RunDirectory) -> dict[int, tuple[int, int]]:
    """First and last step of each attempt, as far as anything is known of it: its files, or what was measured."""
    _, story, _ = look(run)
    found = {}
    for attempt in run.attempts():
        steps = [file.step for file in run.files(attempt, [])]
        steps += [known[attempt] for known in (story.first, story.done) if attempt in known]
        if steps:
            found[attempt] = (min(steps), max(steps))
    return found


def attempt_of(step: int, spans: dict[int, tuple[int, int]]) -> int:
    """The attempt that saved the checkpoint of a step: the newest that was there.

    >>> spans = {0: (1, 180), 1: (101, 120)}  # the second went back to the checkpoint of step 100
    >>> [attempt_of(step, spans) for step in (0, 100, 110, 150, 200)]
    [0, 0, 1, 0, 1]
    """
    there = [attempt for attempt, (first, last) in spans.items() if first <= step <= last]
    if there:
        return max(there)
    before = [attempt for attempt, (first, _) in spans.items() if first <= step]
    return max(before) if before else min(spans, default=0)


def facts(run: RunDirectory, done: Outcome, prompts: Sequence[Prompt]) -> dict[str, Any]:
    def rows(places: Sequence[Place]) -> list[dict[str, Any]]:
        return [
            {"attempt": at.attempt, "step": at.step, "file": at.path.relative_to(run.path).as_posix()} for at in places
        ]

    return {
        "prompts": len(prompts),
        "stored": rows(done.stored),
        "there": rows(done.there),
        "other_prompts": done.other,
        "failed": done.failed,
    }


def show(run: RunDirectory, done: Outcome) -> None:
    """What was kept, and the first prompts with the oldest and the newest answer."""
    console = Console(highlight=False, markup=False)
    before = f", {len(done.there)} were asked before" if done.there else ""
    before += f" ({done.other} with other prompts: to ask anew, delete their files in pinned/)" if done.other else ""
    console.print(Text(f"{len(done.stored)} {'checkpoint' if len(done.stored) == 1 else 'checkpoints'} asked{before}"))
    for name, why in done.failed.items():
        console.print(Text(f"failed: {log_line(Path(name).name)}: {log_line(why)}", "red"))
    places = sorted([*done.stored, *done.there])
    if not places:
        return
    looks = [read(place) for place in dict.fromkeys((places[0], places[-1]))]
    for row in looks[0].rows[:SHOWN]:
        console.print(Text("\n› ").append_text(terminal(row.prompt)))
        for one in looks:
            text = next((said.completion for said in one.rows if said.prompt == row.prompt), None)
            if text is not None:
                console.print(Text(f"  step {one.step:<6} ", "dim").append_text(terminal(text)))
    console.print(Text("\nAll of them: Then and now, on the page of the run", "dim"))
