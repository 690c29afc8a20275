"""Confirmation by experiment: change what is suspected in some completions, and ask the reward again."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from tiltmeter.errors import ContractError
from tiltmeter.stats.intervals import student

Score = Callable[[list[str], list[str]], Sequence[float | None]]

CONFIDENCE = 0.95
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class Change:
    """Mean of original minus edited over pairs, with a 95 % interval; NaN ends where fewer than two prompts answered.

    A Student interval over prompts, each the mean of its completions, since those of one prompt resemble each other.
    Void where a few prompts of very large differences decide it: fewer than ten, or heavy tails.
    """

    mean: float
    low: float
    high: float
    n: int  # pairs that were scored on both sides
    missing: int  # pairs without an answer on one side, left out

    @property
    def differs(self) -> bool:
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an experiment showed: the loss of reward, the loss of gold where it was asked, and a sentence."""

    kind: str
    reward: Change
    gold: Change | None
    unchanged: int  # completions in which there was nothing to edit
    sentence: str

    @property
    def confirmed(self) -> bool:
        """The reward pays for what was taken away and, where gold was asked, gold does not."""
        return self.reward.low > 0.0 and (self.gold is None or not self.gold.low > 0.0)


def experiment(
    kind: str,
    prompts: Sequence[str],
    completions: Sequence[str],
    reward: Score,
    *,
    phrase: str | None = None,
    gold: Score | None = None,
    limit: int = 32,
) -> Outcome:
    """Edit up to `limit` completions, score originals and edits with the same functions, and compare in pairs.

    `cut_padding` shortens to half the words, `drop_phrase` takes `phrase` out. Correlation on the run's own rollouts
    cannot say what the reward pays for; the same answer with and without it can. An edit may take away something that
    was worth its pay, which is what `gold` on the same edits shows. `reward` and `gold` are called twice each with
    lists of equal length, as in the training loop; an answer of None or NaN is left out and counted.

    >>> said = [f"It is {n}. You see. You see. You see. You see. You see." for n in range(6)]
    >>> asked = [f"What is {n}?" for n in range(6)]
    >>> found = experiment("cut_padding", asked, said, lambda p, c: [len(text.split()) / 10 for text in c])
    >>> found.sentence
    'cutting the answers to half loses 0.8 [0.8, 0.8] of reward: the reward pays for length'
    """
    if kind not in EDITS:
        raise ContractError(f"no experiment is called {kind!r}; they are {', '.join(EDITS)}")
    if kind == "drop_phrase" and not (phrase or "").strip():
        raise ContractError("drop_phrase needs phrase=, the words to be taken out")
    if len(prompts) != len(completions):
        raise ContractError(f"{len(prompts)} prompts and {len(completions)} completions: pass one prompt for each")
    edited = [EDITS[kind](text, phrase or "") for text in completions]
    rows = [row for row, text in enumerate(completions) if edited[row] != text]
    unchanged = len(completions) - len(rows)
    rows = [rows[place * len(rows) // limit] for place in range(limit)] if len(rows) > limit else rows
    asked, before, after = ([side[row] for row in rows] for side in (prompts, completions, edited))
    paid = _change(asked, before, after, reward, "the reward function")
    worth = None if gold is None else _change(asked, before, after, gold, "gold")
    return Outcome(kind, paid, worth, unchanged, _sentence(kind, paid, worth))


def shortened(text: str) -> str:
    """The text in about half its words, keeping what is said rather than how often.

    Words and sentences that were said before go first, and if that takes a quarter away it is enough. Else the last
    sentence is kept, since conclusions stand there, with as many of the first ones as fit into half; of a single
    sentence its beginning is kept.

    >>> shortened("It is red. It is so. It is so. It is so. Answer: red.")
    'It is red. It is so. Answer: red.'
    >>> shortened("red um um um um um um"), shortened("one two three four")
    ('red um', 'one two')
    """
    words = len(text.split())
    room = words // 2
    said = list(dict.fromkeys(" ".join(_once(part.split())) for part in _SENTENCE.split(text) if part.strip()))
    sizes = [len(sentence.split()) for sentence in said]
    if room < 1 or sum(sizes) <= 0.75 * words:
        return " ".join(said) if room else text
    if sizes[0] + sizes[-1] > 0.75 * words or len(said) == 1:
        return " ".join(" ".join(said).split()[:room])
    kept, used = 1, sizes[0] + sizes[-1]
    while kept < len(said) - 1 and used + sizes[kept] <= room:
        used += sizes[kept]
        kept += 1
    return " ".join([*said[:kept], said[-1]])


def without(text: str, phrase: str) -> str:
    """The text without a phrase, wherever it stands as whole words, in upper or lower case.

    Over-used phrases are told without the marks between their words, which are therefore passed over.

    >>> without("Great question! It is red. I hope this helps.", "great question it")
    'is red. I hope this helps.'
    """
    words = r"\W{1,8}".join(re.escape(word) for word in phrase.split())
    cut = re.sub(rf"(?<!\w){words}(?!\w)\s*[.!?,;:]?", " ", text, flags=re.IGNORECASE)
    return text if cut == text else " ".join(cut.split())


EDITS: dict[str, Callable[[str, str], str]] = {
    "cut_padding": lambda text, _: shortened(text),
    "drop_phrase": without,
}
_WORDS = {
    "cut_padding": ("cutting the answers to half", "length"),
    "drop_phrase": ("taking the phrase out", "the phrase"),
}


def _once(words: list[str]) -> list[str]:
    """Without words that repeat the one before."""
    return [word for at, word in enumerate(words) if not at or word != words[at - 1]]


def _change(prompts: list[str], before: list[str], after: list[str], score: Score, who: str) -> Change:
    sides = []
    for texts in (before, after):
        answers = list(score(list(prompts), list(texts))) if texts else []
        if len(answers) != len(texts):
            raise ContractError(f"{who} answered {len(answers)} times for {len(texts)} completions; one each is needed")
        sides.append([math.nan if answer is None else float(answer) for answer in answers])
    by_prompt: dict[str, list[float]] = {}
    for prompt, old, new in zip(prompts, *sides, strict=True):
        if math.isfinite(old) and math.isfinite(new):
            by_prompt.setdefault(prompt, []).append(old - new)
    n = sum(map(len, by_prompt.values()))
    means = [fmean(found) for found in by_prompt.values()]
    if len(means) < 2:
        return Change(means[0] if means else math.nan, math.nan, math.nan, n, len(prompts) - n)
    centre = fmean(means)
    reach = student(len(means) - 1, CONFIDENCE) * stdev(means) / math.sqrt(len(means))
    return Change(centre, centre - reach, centre + reach, n, len(prompts) - n)


def _sentence(kind: str, paid: Change, worth: Change | None) -> str:
    edit, what = _WORDS[kind]
    if not paid.n:
        return f"{edit} could not be tried: no completion could be edited and scored"
    if not math.isfinite(paid.low):
        return f"{edit} loses {paid.mean:.2g} of reward, on too few prompts to tell"
    told = f"{edit} loses {_interval(paid)} of reward: "
    if paid.low > 0.0:
        told += f"the reward pays for {what}"
    elif paid.high < 0.0:
        told += f"the reward pays less with {what}"
    else:
        told += f"no sign that the reward pays for {what}"
    if worth is not None and math.isfinite(worth.low):
        cares = (
            "gold cares too" if worth.low > 0.0 else "gold is better off" if worth.high < 0.0 else "gold does not care"
        )
        told += f"; it loses {_interval(worth)} of gold: {cares}"
    return f"{told} ({paid.missing} pairs without an answer left out)" if paid.missing else told


def _interval(change: Change) -> str:
    low, mean, high = (f"{value + 0.0:.2g}" for value in (change.low, change.mean, change.high))
    return f"{mean} [{low}, {high}]"
