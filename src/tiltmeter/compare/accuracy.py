"""Whether the reward still knows a better answer when the checkpoint wrote both: its accuracy on-policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tiltmeter.compare.asking import Duel
from tiltmeter.compare.difference import Difference, percent
from tiltmeter.compare.judging import Referee
from tiltmeter.compare.measure import Example, Measure
from tiltmeter.compare.samples import Material, Prompts, Which
from tiltmeter.errors import AttachError
from tiltmeter.rewards.described import described
from tiltmeter.stats.intervals import student

Floats = NDArray[np.float64]

NAME, TITLE, COST = "reward_accuracy", "Reward's accuracy", "reward_hacked"
MATTERS = 0.05  # less is no reason to retrain a reward model
FEWEST = 20  # prompts on each side with a pair that the judge tells apart
SHOWN = 3  # examples
FIX = (
    "The reward cannot rank what it is optimised on any more: retrain it on the checkpoint's own answers (a refresh "
    "stage in a recipe), and go back to a checkpoint where it could."
)


class Reward(Protocol):
    """A reward as TRL calls one."""

    def __call__(self, prompts: Any, completions: Any, **columns: Any) -> Sequence[float | None]: ...


class Ranked(NamedTuple):
    """Of one prompt: how many pairs the judge tells apart, and in how many the reward agrees; its ties count half."""

    agreed: float
    pairs: int


def open_reward(source: str) -> list[dict[str, Any]]:
    """A reward as a recipe describes it, of a folder with a reward model or of a function `file.py:name`."""
    if ".py:" in source:
        return [{"function": source}]
    if not (Path(source) / "config.json").exists():
        raise AttachError(f"{source!r} is no reward: give a reward model's folder or a function as rewards.py:helpful")
    return [{"model": str(source), **({} if _chats(source) else {"settings": {"ending": _ending(source)}})}]


def paying(rewards: Sequence[Mapping[str, Any]]) -> Reward:
    """What a recipe describes, asked as its trainer would: with messages where a reward model reads a chat template.

    A function of somebody's own gets plain text, and messages if it was written for them.
    """
    made = described(rewards)
    models = [name for entry in rewards for name in _names(entry.get("model", ()))]
    talks = any(_chats(name) for name in models)

    def paid(prompts: Any, completions: Any, **columns: Any) -> Sequence[float | None]:
        asked = [[{"role": "user", "content": prompt}] for prompt in prompts]
        said = [[{"role": "assistant", "content": text}] for text in completions]
        if talks:
            return made(prompts=asked, completions=said, **columns)
        try:
            return made(prompts=prompts, completions=completions, **columns)
        except TypeError as error:
            if "string indices" not in str(error):
                raise
            return made(prompts=asked, completions=said, **columns)

    return paid


def _names(models: Any) -> list[str]:
    return [models] if isinstance(models, str) else [str(name) for name in models]


def _chats(folder: str) -> bool:
    from tiltmeter.chat.local import LocalModel

    return LocalModel(folder).tokenizer.chat_template is not None


def _ending(folder: str) -> str:
    """As TRL's RewardTrainer ends plain text."""
    from tiltmeter.chat.local import LocalModel

    return LocalModel(folder).tokenizer.eos_token or ""


def measured(material: Material, prompts: Prompts, referee: Referee, reward: Reward, *, alpha: float) -> list[Measure]:
    """One measure: the reward's agreement with the judge on pairs of the checkpoint's answers, beside the base's."""
    base, _ = _ranked(material, "base", prompts, referee, reward)
    checkpoint, wrong = _ranked(material, "checkpoint", prompts, referee, reward)
    return [told(base, checkpoint, wrong, alpha=alpha, judged=referee.judged)]


def told(
    base: Sequence[Ranked], checkpoint: Sequence[Ranked], wrong: Sequence[Example] = (), *, alpha: float, judged: bool
) -> Measure:
    """The measure of two lists of prompts, in the same order.

    >>> kept = told([Ranked(1, 1)] * 40, [Ranked(1, 1), Ranked(0, 1)] * 20, alpha=0.05, judged=False)
    >>> kept.state, kept.cost, kept.difference
    ('worse', 'reward_hacked', -0.5)
    """
    counts = [sum(each.pairs > 0 for each in side) for side in (base, checkpoint)]
    if min(counts) < FEWEST:
        why = (
            f"The judge told answers apart on {counts[0]} prompts of the base and {counts[1]} of the checkpoint; "
            f"{FEWEST} of each are needed: give more prompts or --samples."
        )
        return Measure(NAME, TITLE, "cannot tell", why, COST, n=min(counts))
    (old, spread_old), (new, spread_new) = _share(base), _share(checkpoint)
    difference = new - old
    each = spread_new - spread_old  # by prompt: what both share falls out
    # Two prompts more, one that changed each way, as for all shares: where the reward is always right it is no point.
    n = min(counts)
    spread = (float(np.square(each).sum()) * n**2 + 2.0) / (n + 2) ** 2
    reach = student(n + 1, 1.0 - alpha) * math.sqrt(spread)
    low, high = difference - reach, difference + reach
    found = Difference(old, new, difference, low, high, counts[1])
    state = found.state(MATTERS, more_is_worse=False)
    about = " (about this judge)" if judged else ""
    pairs = sum(each.pairs for each in checkpoint)
    return Measure(
        NAME, TITLE, state,
        f"The reward ranks {percent(new)} of {pairs} pairs of the checkpoint's answers as the judge does, "
        f"{percent(old)} of the base's{about}; a coin gets 50 %.",
        COST, "share of pairs", old, new, difference, low, high, counts[1],
        ({"model": "base", "pairs": sum(each.pairs for each in base), "agreed": old},
         {"model": "checkpoint", "pairs": pairs, "agreed": new}),
        tuple(wrong[:SHOWN]) if state == "worse" else (), FIX if state == "worse" else "",
    )  # fmt: skip


def _share(ranked: Sequence[Ranked]) -> tuple[float, Floats]:
    """Agreement over all pairs, and what each prompt adds to its error: the prompt is the unit drawn."""
    agreed = np.array([each.agreed for each in ranked], np.float64)
    pairs = np.array([each.pairs for each in ranked], np.float64)
    share = float(agreed.sum() / pairs.sum())
    return share, (agreed - share * pairs) / pairs.sum()


def _ranked(
    material: Material, which: Which, prompts: Prompts, referee: Referee, reward: Reward
) -> tuple[list[Ranked], list[Example]]:
    given = material.answers(which, prompts.name, prompts.turns, material.samples)
    duels: list[Duel] = []
    owner: list[int] = []
    for at, (prompt, answers, columns) in enumerate(zip(prompts.texts, given, prompts.columns, strict=True)):
        said = [answer.text for answer in answers]
        # Each pair of answers where the judge scored them anyway; each answer once where a pair costs calls of its own.
        chosen = zip(said[::2], said[1::2], strict=False) if referee.dear else combinations(said, 2)
        different = [Duel(prompt, one, other, columns) for one, other in chosen if one != other]
        duels += different
        owner += [at] * len(different)
    outcomes = referee.outcomes(duels, material.progress)
    leads = _leads(reward, duels)
    ranked, wrong = [Ranked(0.0, 0)] * len(prompts), []
    for at, duel, outcome, lead in zip(owner, duels, outcomes.tolist(), leads, strict=True):
        if outcome not in (0.0, 1.0) or not math.isfinite(lead):
            continue
        agreed = 0.5 if lead == 0.0 else float((lead > 0.0) == (outcome == 1.0))
        ranked[at] = Ranked(ranked[at].agreed + agreed, ranked[at].pairs + 1)
        if not agreed:
            better, worse = (duel.first, duel.second) if outcome == 1.0 else (duel.second, duel.first)
            wrong.append(Example(duel.prompt, better, worse, f"both by the {which}: the reward pays the second more"))
    return ranked, wrong


def _leads(reward: Reward, duels: Sequence[Duel]) -> list[float]:
    """How much more the reward pays for the first; NaN where it gave no number."""
    texts: dict[tuple[str, str], Mapping[str, Any]] = {
        (duel.prompt, text): duel.columns for duel in duels for text in (duel.first, duel.second)
    }
    if not texts:
        return []
    names = dict.fromkeys(name for columns in texts.values() for name in columns)
    facts = {name: [columns.get(name) for columns in texts.values()] for name in names}
    paid = reward(prompts=[prompt for prompt, _ in texts], completions=[text for _, text in texts], **facts)
    scores = dict(zip(texts, (math.nan if score is None else float(score) for score in paid), strict=True))
    return [scores[duel.prompt, duel.first] - scores[duel.prompt, duel.second] for duel in duels]
