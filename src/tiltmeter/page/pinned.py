"""Then and now: what the policy says to the same prompts at the start, on the way and at the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tiltmeter.errors import StoreError
from tiltmeter.page.book import Book
from tiltmeter.page.samples import At, gold_of, measured, rollouts
from tiltmeter.page.words import finite
from tiltmeter.pinned import PROMPTS, Place, cut, listed, read

STEPS = 8  # shown: the first, the newest, and six between
START_STEPS = 4  # of training, where nothing was pinned: the prompts they had are looked for in the newest ones
BACK_STEPS = 64  # that are looked through, newest first
TRAINED_PROMPTS = 16
TOLD_FILES = 3  # that could not be read, by name

HOW = (
    'With TRL, give the trainer an eval_dataset and eval_strategy="steps", with eval_on_start=True for the very start. '
    "In a loop of your own: run.pinned(step, prompts, completions). From saved checkpoints: tiltmeter pin RUN"
)
KINDS = {
    False: "evaluations: the first completion of each of their prompts, sampled as the trainer evaluates",
    True: "saved checkpoints, each asked the same prompts by tiltmeter pin, decoded greedily",
}


def pinned(book: Book) -> dict[str, Any]:
    """The pinned prompts of the current branch; where nothing was pinned, prompts that training itself repeated."""
    _ = book.verdict  # the first look of a book that nobody has opened yet
    with book.lock:
        spans, trained = book.story.spans(), measured(book)
    places = [place for place in listed(book.run) if not spans or place.step < spans.get(place.attempt, -1)]
    prompts, source = _looks(places)
    if prompts:
        return {"source": source, "prompts": prompts, "empty": ""}
    prompts = _repeated(book, trained)
    why = " ".join(part for part in ("nothing was pinned.", source) if part)
    if prompts:
        told = f"training rollouts, because {why} These prompts came in the first steps and again later. {HOW}"
        return {"source": told, "prompts": prompts, "empty": ""}
    return {
        "source": "",
        "prompts": [],
        "empty": f"{why[:1].upper()}{why[1:]} No prompt of the first steps came again in the newest. {HOW}",
    }


def _looks(places: Sequence[Place]) -> tuple[list[dict[str, Any]], str]:
    """The prompts of the stored looks with what was said to each, and where that comes from, in words."""
    said: dict[bool, dict[str, list[dict[str, Any]]]] = {}
    steps: dict[bool, int] = {}
    damaged: list[str] = []
    for kind in KINDS:
        # Of two looks at one step, that of the later attempt is the run as it now is.
        mine = list({place.step: place for place in places if place.checkpoint is kind}.values())
        steps[kind] = len(mine)
        for place in _spread(mine):
            try:
                look = read(place)
            except StoreError:
                damaged.append(place.path.name)
                continue
            for row in look.rows:
                answer = {"step": look.step, "text": row.completion, "reward": row.reward, "gold": row.gold, "id": ""}
                said.setdefault(kind, {}).setdefault(row.prompt, []).append(answer)
    shown: dict[str, bool] = {}
    for kind in (True, False):
        for prompt, answers in said.get(kind, {}).items():
            # Never both side by side: one is sampled and the other greedy, and that alone makes them differ.
            if prompt not in shown or len(answers) > len(said[shown[prompt]][prompt]):
                shown[prompt] = kind
    often = sorted(shown, key=lambda prompt: len(said[shown[prompt]][prompt]) < 2)[:PROMPTS]
    kinds = [kind for kind in KINDS if any(shown[prompt] is kind for prompt in often)]
    told = [f"{KINDS[kind]} ({_shown(steps[kind])})" for kind in kinds]
    names = ", ".join(damaged[:TOLD_FILES])
    told += [f"{len(damaged)} of the files in pinned/ cannot be read ({names}): delete them."] if damaged else []
    return [{"prompt": prompt, "said": said[shown[prompt]][prompt]} for prompt in often], "; ".join(told)


def _shown(steps: int) -> str:
    return f"{STEPS} of {steps} steps" if steps > STEPS else "1 step" if steps == 1 else f"{steps} steps"


def _spread(places: Sequence[Place]) -> list[Place]:
    """The first, the newest and some evenly between."""
    return (
        [places[at] for at in np.unique(np.linspace(0, len(places) - 1, STEPS).round().astype(int))] if places else []
    )


def _repeated(book: Book, trained: Sequence[At]) -> list[dict[str, Any]]:
    """Prompts of the first training steps that came again, as late as possible: what was said then and now."""
    first: dict[str, dict[str, Any]] = {}
    now: dict[str, dict[str, Any]] = {}
    for at in trained[:START_STEPS]:
        for prompt, answer in _firsts(book, at, None):
            first.setdefault(prompt, answer)
    for at in reversed(trained[START_STEPS:][-BACK_STEPS:]):
        if len(now) >= TRAINED_PROMPTS or len(now) == len(first):
            break
        for prompt, answer in _firsts(book, at, first):
            now.setdefault(prompt, answer)
    both = list(now)[:TRAINED_PROMPTS]
    return [{"prompt": cut(prompt), "said": [first[prompt], now[prompt]]} for prompt in both]


def _firsts(book: Book, at: At, wanted: Mapping[str, Any] | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """The prompts of a step, among those `wanted`, each with its first completion; none if it cannot be read."""
    batch = rollouts(book, at, ("group", "prompt", "completion", "reward", "gold"))
    if batch is None or batch.prompt is None or batch.completion is None:
        return  # deleted, or damaged, which the monitor's screen says
    gold = gold_of(book, at, batch)
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    for row in map(int, batch.starts[:-1]):
        prompt, text = batch.prompt[row], batch.completion[row]
        if prompt is not None and text is not None and (wanted is None or prompt in wanted):
            worth = {"reward": finite(float(reward[row])), "gold": finite(float(gold[row]))}
            yield prompt, {"step": at.step, "text": cut(text), **worth, "id": at.id(row)}
