"""`tiltmeter pin`: sample saved checkpoints on the same few prompts, to read the answers side by side."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from tiltmeter.cli.options import Json, Run, open_run
from tiltmeter.errors import AttachError, StoreError, TiltmeterError
from tiltmeter.rundir.pinned_prompts import (
    CHECKPOINT,
    PROMPTS,
    SnapshotFile,
    list_snapshots,
    make_snapshot,
    read_snapshot,
    write_snapshot,
)
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line, terminal
from tiltmeter.verdict.verdict import judge_run
from tiltmeter_workbench.common.checkpoint_samples import (
    PromptOrChat,
    checkpoint_step,
    generate_answers,
    has_chat_template,
    import_libraries,
    list_checkpoints,
)

SHOWN = 3  # prompts on the screen; the page shows them all
PROMPTS_BYTES = 16 << 20  # of a file of prompts

Models = Annotated[
    list[str] | None,
    typer.Option("--model", help="A saved model, as DIR or, if its name has no step, STEP=DIR.", metavar="FOLDER"),
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
Device = Annotated[str, typer.Option(help="Where models run; a GPU that trains may run out of memory.", metavar="NAME")]


@dataclass
class PinOutcome:
    """Which checkpoints were sampled now, which had been before, and which failed."""

    stored: list[SnapshotFile] = field(default_factory=list)
    there: list[SnapshotFile] = field(default_factory=list)  # were asked before
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
    directory = open_run(run)
    models = [parse_model(name) for name in model] if model else find_checkpoints(directory.path)
    questions = (read_prompts(prompts) if prompts else run_prompts(directory))[:most]
    if (
        chat is None
        and any(isinstance(prompt, str) for prompt in questions)
        and any(has_chat_template(f) for _, f in models)
    ):
        raise AttachError(
            "the tokenizer has a chat template, and a run stores prompts as plain text: add --chat if training gave "
            "them as a user's messages, else --no-chat"
        )
    outcome = ask_all(directory, models, questions, tokens=tokens, chat=bool(chat), device=device)
    if json:
        typer.echo(json_module.dumps(outcome_json(directory, outcome, questions), indent=1, allow_nan=False))
    else:
        print_outcome(directory, outcome)
    raise typer.Exit(2 if outcome.failed else 0)


def ask_all(
    run: RunDirectory,
    models: Sequence[tuple[int, Path]],
    prompts: Sequence[PromptOrChat],
    *,
    tokens: int,
    chat: bool,
    device: str,
) -> PinOutcome:
    """Ask one checkpoint after the other; a failure is recorded and the others go on."""
    outcome, spans = PinOutcome(), attempt_spans(run)
    prompt_texts = {row.prompt for row in make_snapshot(0, 0, CHECKPOINT, prompts, [""] * len(prompts)).rows}
    console = Console(stderr=True, highlight=False, markup=False)
    with console.status("asking checkpoints…") as status:
        for number, (step, folder) in enumerate(models, 1):
            attempt = attempt_of(step, spans)
            before = [at for at in list_snapshots(run) if at.checkpoint and (at.attempt, at.step) == (attempt, step)]
            status.update(Text(f"{log_line(folder.name, 60)} ({number} of {len(models)})"))
            if before:
                outcome.there += before
                outcome.other += _prompts_of(before[0]) != prompt_texts
                continue
            import_libraries()
            try:
                replies = generate_answers(folder, prompts, tokens=tokens, chat=chat, device=device)
                record = make_snapshot(attempt, step, f"{CHECKPOINT} {folder.name}", prompts, replies)
                outcome.stored.append(SnapshotFile(step, attempt, True, write_snapshot(run, record)))
            except (TiltmeterError, OSError, ValueError) as error:
                outcome.failed[str(folder)] = str(error)
            if not console.is_terminal:
                console.out(f"{number} of {len(models)} checkpoints")
    return outcome


def _prompts_of(place: SnapshotFile) -> set[str]:
    try:
        return {row.prompt for row in read_snapshot(place).rows}
    except StoreError:
        return set()


def parse_model(name: str) -> tuple[int, Path]:
    """A model named on the command line: the step it belongs to, and its folder."""
    before, sign, after = name.partition("=")
    prefix = before if sign and before.isascii() and before.isdecimal() else ""
    folder = Path(after if prefix else name)
    if not folder.is_dir():
        raise AttachError(f"{folder} is no folder: name a saved model on this machine")
    step = int(prefix) if prefix else checkpoint_step(folder.resolve())
    if step is None:
        raise AttachError(f"the step of {folder} is unknown: write --model STEP={folder}, with 0 for the start")
    return step, folder


def find_checkpoints(run: Path) -> list[tuple[int, Path]]:
    """The checkpoints in the output directory that the run directory lies in."""
    output = run.resolve().parent
    if not (checkpoints := list_checkpoints(output)):
        raise AttachError(f"there is no checkpoint-N beside {run.name} in {output}: name saved models with --model")
    return checkpoints


def run_prompts(run: RunDirectory) -> list[PromptOrChat]:
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


def read_prompts(path: Path) -> list[PromptOrChat]:
    """Prompts of a file: each line a text, or, where every line is JSON, a text, a chat or an object with a prompt."""
    try:
        with path.open("rb") as file:
            raw = file.read(PROMPTS_BYTES + 1)
        if len(raw) > PROMPTS_BYTES:
            raise ValueError(f"more than {PROMPTS_BYTES} bytes")
        lines = [line for line in raw.decode().splitlines() if line.strip()]
        if path.suffix not in (".json", ".jsonl"):
            items: list[Any] = list(lines)
        else:
            items = [json_module.loads(line) for line in lines] if path.suffix == ".jsonl" else json_module.loads(raw)
            items = [item["prompt"] if isinstance(item, dict) else item for item in items]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise AttachError(f"{path} cannot be read as prompts: {type(error).__name__}: {str(error)[:200]}") from error
    odd = [item for item in items if not (isinstance(item, str) or _is_chat(item))]
    if odd or not items:
        raise AttachError(f"{path} needs prompts: texts, or chats as lists of objects with role and content")
    return list({json_module.dumps(item): item for item in items}.values())


def _is_chat(item: Any) -> bool:
    return isinstance(item, list) and all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in item)


def attempt_spans(run: RunDirectory) -> dict[int, tuple[int, int]]:
    """First and last step of each attempt, from its files and its measured steps."""
    _, run_facts, _ = judge_run(run)
    spans = {}
    for attempt in run.attempts():
        steps = [file.step for file in run.files(attempt, [])]
        steps += [
            by_attempt[attempt] for by_attempt in (run_facts.first, run_facts.last_measured) if attempt in by_attempt
        ]
        if steps:
            spans[attempt] = (min(steps), max(steps))
    return spans


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


def outcome_json(run: RunDirectory, outcome: PinOutcome, prompts: Sequence[PromptOrChat]) -> dict[str, Any]:
    def rows(places: Sequence[SnapshotFile]) -> list[dict[str, Any]]:
        return [
            {"attempt": at.attempt, "step": at.step, "file": at.path.relative_to(run.path).as_posix()} for at in places
        ]

    return {
        "prompts": len(prompts),
        "stored": rows(outcome.stored),
        "there": rows(outcome.there),
        "other_prompts": outcome.other,
        "failed": outcome.failed,
    }


def print_outcome(run: RunDirectory, outcome: PinOutcome) -> None:
    """What was kept, and the first prompts with the oldest and the newest answer."""
    console = Console(highlight=False, markup=False)
    before = f", {len(outcome.there)} were asked before" if outcome.there else ""
    before += (
        f" ({outcome.other} with other prompts: to ask anew, delete their files in pinned/)" if outcome.other else ""
    )
    console.print(
        Text(f"{len(outcome.stored)} {'checkpoint' if len(outcome.stored) == 1 else 'checkpoints'} asked{before}")
    )
    for name, why in outcome.failed.items():
        console.print(Text(f"failed: {log_line(Path(name).name)}: {log_line(why)}", "red"))
    places = sorted([*outcome.stored, *outcome.there])
    if not places:
        return
    looks = [read_snapshot(place) for place in dict.fromkeys((places[0], places[-1]))]
    for row in looks[0].rows[:SHOWN]:
        console.print(Text("\n› ").append_text(terminal(row.prompt)))
        for one in looks:
            text = next((reply.completion for reply in one.rows if reply.prompt == row.prompt), None)
            if text is not None:
                console.print(Text(f"  step {one.step:<6} ", "dim").append_text(terminal(text)))
    console.print(Text("\nAll of them: Then and now, on the page of the run", "dim"))
