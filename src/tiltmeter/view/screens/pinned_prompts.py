"""The pinned-prompts screen: the policy's completions of the same prompts over training."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

import numpy as np
from msgspec import UNSET, UnsetType

from tiltmeter.errors import StoreError
from tiltmeter.rundir.pinned_prompts import PROMPTS, SnapshotFile, list_snapshots, read_snapshot, shorten
from tiltmeter.view.payloads.rollouts import Pinned, PinnedPrompt, PromptAnswer
from tiltmeter.view.screens.excerpts import OFTEN, fold_repeats, render_folded
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import MeasuredStep, gold_of, measured_steps, read_rollouts
from tiltmeter.view.screens.wording import finite_or_none

STEPS = 8  # steps shown: the first, the newest, and six between
START_STEPS = 4  # first training steps; without pinned prompts, theirs are searched in the newest steps
BACK_STEPS = 64  # newest steps that are searched
TRAINED_PROMPTS = 16
NAMED_FILES = 3  # unreadable files that are listed by name

HOW = (
    'With TRL, give the trainer an eval_dataset and eval_strategy="steps", with eval_on_start=True for the very start. '
    "In a loop of your own: run.pinned(step, prompts, completions). From saved checkpoints: tiltmeter pin RUN"
)
KINDS = {
    False: "evaluations: the first completion of each of their prompts, sampled as the trainer evaluates",
    True: "saved checkpoints, each asked the same prompts by tiltmeter pin, decoded greedily",
}


def pinned(reader: RunReader) -> Pinned:
    """The pinned prompts of the current branch; where nothing was pinned, prompts that training itself repeated."""
    _ = reader.verdict  # reads the run if it was just opened
    with reader.lock:
        spans, trained = reader.run_facts.spans(), measured_steps(reader)
    samples = [
        sample for sample in list_snapshots(reader.run) if not spans or sample.step < spans.get(sample.attempt, -1)
    ]
    prompts, source = _stored_samples(samples)
    if prompts:
        return Pinned(source=source, prompts=prompts, empty="")
    prompts = _repeated_prompts(reader, trained)
    why = " ".join(part for part in ("nothing was pinned.", source) if part)
    if prompts:
        source_text = f"training rollouts, because {why} These prompts came in the first steps and again later. {HOW}"
        return Pinned(source=source_text, prompts=prompts, empty="")
    empty = f"{why[:1].upper()}{why[1:]} No prompt of the first steps came again in the newest. {HOW}"
    return Pinned(source="", prompts=[], empty=empty)


def _stored_samples(files: Sequence[SnapshotFile]) -> tuple[list[PinnedPrompt], str]:
    """The stored prompts with their completions over steps, and a sentence on where those come from."""
    answers: dict[bool, dict[str, list[PromptAnswer]]] = {}
    steps: dict[bool, int] = {}
    damaged: list[str] = []
    for kind in KINDS:
        # Of two samples of one step, that of the later attempt counts.
        of_kind = list({file.step: file for file in files if file.checkpoint is kind}.values())
        steps[kind] = len(of_kind)
        for file in _evenly_spaced(of_kind):
            try:
                sample = read_snapshot(file)
            except StoreError:
                damaged.append(file.path.name)
                continue
            for row in sample.rows:
                answer = PromptAnswer(
                    step=sample.step,
                    text=row.completion,
                    reward=row.reward,
                    gold=row.gold,
                    id="",
                    folded=_fold(row.completion),
                )
                answers.setdefault(kind, {}).setdefault(row.prompt, []).append(answer)
    kind_by_prompt: dict[str, bool] = {}
    for kind in (True, False):
        for prompt, prompt_answers in answers.get(kind, {}).items():
            # Never mix the kinds: one is sampled, the other greedy, so they would differ anyway.
            if prompt not in kind_by_prompt or len(prompt_answers) > len(answers[kind_by_prompt[prompt]][prompt]):
                kind_by_prompt[prompt] = kind
    prompts = sorted(kind_by_prompt, key=lambda prompt: len(answers[kind_by_prompt[prompt]][prompt]) < 2)[:PROMPTS]
    kinds = [kind for kind in KINDS if any(kind_by_prompt[prompt] is kind for prompt in prompts)]
    sources = [f"{KINDS[kind]} ({_step_count(steps[kind])})" for kind in kinds]
    names = ", ".join(damaged[:NAMED_FILES])
    sources += [f"{len(damaged)} of the files in pinned/ cannot be read ({names}): delete them."] if damaged else []
    shown_prompts = [PinnedPrompt(prompt=prompt, answers=answers[kind_by_prompt[prompt]][prompt]) for prompt in prompts]
    return shown_prompts, "; ".join(sources)


def _fold(text: str) -> str | UnsetType:
    """The text with repeated passages once, where that leaves something out."""
    pieces = fold_repeats(text)
    return render_folded(pieces) if any(piece.times >= OFTEN for piece in pieces) else UNSET


def _step_count(steps: int) -> str:
    return f"{STEPS} of {steps} steps" if steps > STEPS else "1 step" if steps == 1 else f"{steps} steps"


def _evenly_spaced(files: Sequence[SnapshotFile]) -> list[SnapshotFile]:
    """The first, the newest and some evenly between."""
    return [files[at] for at in np.unique(np.linspace(0, len(files) - 1, STEPS).round().astype(int))] if files else []


def _repeated_prompts(reader: RunReader, trained: Sequence[MeasuredStep]) -> list[PinnedPrompt]:
    """Prompts of the first training steps that came again, as late as possible, with both completions."""
    first: dict[str, PromptAnswer] = {}
    now: dict[str, PromptAnswer] = {}
    for at in trained[:START_STEPS]:
        for prompt, answer in _first_completions(reader, at, None):
            first.setdefault(prompt, answer)
    for at in reversed(trained[START_STEPS:][-BACK_STEPS:]):
        if len(now) >= TRAINED_PROMPTS or len(now) == len(first):
            break
        for prompt, answer in _first_completions(reader, at, first):
            now.setdefault(prompt, answer)
    both = list(now)[:TRAINED_PROMPTS]
    return [PinnedPrompt(prompt=shorten(prompt), answers=[first[prompt], now[prompt]]) for prompt in both]


def _first_completions(
    reader: RunReader, at: MeasuredStep, wanted: Container[str] | None
) -> Iterator[tuple[str, PromptAnswer]]:
    """The prompts of a step, among those `wanted`, each with its first completion; none if it cannot be read."""
    batch = read_rollouts(reader, at, ("group", "prompt", "completion", "reward", "gold"))
    if batch is None or batch.prompt is None or batch.completion is None:
        return  # deleted, or damaged, which the monitor screen reports
    gold = gold_of(reader, at, batch)
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    for row in map(int, batch.starts[:-1]):
        prompt, text = batch.prompt[row], batch.completion[row]
        if prompt is not None and text is not None and (wanted is None or prompt in wanted):
            yield (
                prompt,
                PromptAnswer(
                    step=at.step,
                    text=shorten(text),
                    reward=finite_or_none(float(reward[row])),
                    gold=finite_or_none(float(gold[row])),
                    id=at.rollout_id(row),
                    folded=_fold(shorten(text)),
                ),
            )
