"""Experiments that confirm a finding: edit some completions, and score originals and edits again."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from tiltmeter.errors import ContractError
from tiltmeter.stats.intervals import student_t_quantile

Score = Callable[[list[str], list[str]], Sequence[float | None]]

CONFIDENCE = 0.95
FEWEST_PAIRS = 16  # scored, from which an edit that loses nothing speaks against a finding
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_MARKS = re.compile(r"^[ \t]*(?:#{1,6}[ \t]|[-*+][ \t]|\d{1,3}[.)][ \t]|\|)|\*\*|\|$", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:#|//).*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PairedChange:
    """Mean of original minus edited over pairs, with a 95 % interval; NaN ends where fewer than two prompts answered.

    A Student interval over prompts, each the mean of its completions, since those of one prompt resemble each other.
    Void where a few prompts of very large differences decide it: fewer than ten, or heavy tails.
    """

    mean: float
    low: float
    high: float
    n: int  # pairs that were scored on both sides
    missing: int  # pairs without an answer on one side, left out


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """What an experiment showed: the loss of reward, the loss of gold where it was asked, and a sentence.

    Example:

        result = experiment("cut_padding", prompts, completions, reward, gold=gold)
        print(result.confirmed, result.sentence)
    """

    kind: str
    reward: PairedChange
    gold: PairedChange | None
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
    phrases: Sequence[str] = (),
    gold: Score | None = None,
    limit: int = 32,
) -> ExperimentResult:
    """Edit up to `limit` completions, score originals and edits with the same functions, and compare in pairs.

    `cut_padding` shortens to half the words, `drop_phrase` takes `phrase` out, `drop_hedges` all of `phrases`,
    `drop_opening` the first sentence, `strip_form` the marks of Markdown and the comments in code. Correlation on the
    run's own rollouts cannot say what the reward pays for; the same answer with and without it can. An edit may remove
    something that deserves its reward, which is what `gold` on the same edits shows. `reward` and `gold` are called
    twice each with lists of equal length, as in the training loop; an answer of None or NaN is left out and counted.

    >>> completions = [f"It is {n}. You see. You see. You see. You see. You see." for n in range(6)]
    >>> prompts = [f"What is {n}?" for n in range(6)]
    >>> result = experiment("cut_padding", prompts, completions, lambda p, c: [len(text.split()) / 10 for text in c])
    >>> result.sentence
    'cutting the answers to half loses 0.8 [0.8, 0.8] of reward: the reward pays for length'
    """
    if kind not in EDITS:
        raise ContractError(f"no experiment is called {kind!r}; they are {', '.join(EDITS)}")
    if kind == "drop_phrase" and not (phrase or "").strip():
        raise ContractError("drop_phrase needs phrase=, the words to be taken out")
    if kind == "drop_hedges" and not phrases:
        raise ContractError("drop_hedges needs phrases=, the hedges to be taken out")
    if len(prompts) != len(completions):
        raise ContractError(f"{len(prompts)} prompts and {len(completions)} completions: pass one prompt for each")
    words = (phrase,) if phrase else tuple(phrases)
    edited = [EDITS[kind](text, words) for text in completions]
    rows = [row for row, text in enumerate(completions) if edited[row] != text]
    unchanged = len(completions) - len(rows)
    rows = [rows[place * len(rows) // limit] for place in range(limit)] if len(rows) > limit else rows
    row_prompts, before, after = ([side[row] for row in rows] for side in (prompts, completions, edited))
    reward_change = _paired_change(row_prompts, before, after, reward, "the reward function")
    gold_change = None if gold is None else _paired_change(row_prompts, before, after, gold, "gold")
    return ExperimentResult(kind, reward_change, gold_change, unchanged, _sentence(kind, reward_change, gold_change))


def shorten(text: str) -> str:
    """The text in about half its words, keeping what is said rather than how often.

    Words and sentences that were said before go first, and if that takes a quarter away it is enough. Else the last
    sentence is kept, since conclusions stand there, with as many of the first ones as fit into half; of a single
    sentence its beginning is kept.

    >>> shorten("It is red. It is so. It is so. It is so. Answer: red.")
    'It is red. It is so. Answer: red.'
    >>> shorten("red um um um um um um"), shorten("one two three four")
    ('red um', 'one two')
    """
    words = len(text.split())
    room = words // 2
    sentences = list(
        dict.fromkeys(" ".join(_drop_repeats(part.split())) for part in _SENTENCE.split(text) if part.strip())
    )
    sizes = [len(sentence.split()) for sentence in sentences]
    if room < 1 or sum(sizes) <= 0.75 * words:
        return " ".join(sentences) if room else text
    if sizes[0] + sizes[-1] > 0.75 * words or len(sentences) == 1:
        return " ".join(" ".join(sentences).split()[:room])
    head_count, used = 1, sizes[0] + sizes[-1]
    while head_count < len(sentences) - 1 and used + sizes[head_count] <= room:
        used += sizes[head_count]
        head_count += 1
    return " ".join([*sentences[:head_count], sentences[-1]])


def remove_phrase(text: str, phrase: str) -> str:
    """The text without a phrase, wherever it stands as whole words, in upper or lower case.

    Over-used phrases come without the punctuation between their words, which is therefore skipped.

    >>> remove_phrase("Great question! It is red. I hope this helps.", "great question it")
    'is red. I hope this helps.'
    """
    words = r"\W{1,8}".join(re.escape(word) for word in phrase.split())
    shorter = re.sub(rf"(?<!\w){words}(?!\w)\s*[.!?,;:]?", " ", text, flags=re.IGNORECASE)
    return text if shorter == text else " ".join(shorter.split())


def remove_phrases(text: str, phrases: Sequence[str]) -> str:
    """The text without any of the phrases."""
    for phrase in phrases:
        text = remove_phrase(text, phrase)
    return text


def drop_opening(text: str) -> str:
    """The text without its first sentence; one of a single sentence stays as it is.

    >>> drop_opening("Yes, you are right. It is red. Answer: red.")
    'It is red. Answer: red.'
    """
    return _SENTENCE.split(text.strip(), maxsplit=1)[-1]


def strip_form(text: str) -> str:
    """The text without headings, list marks, bold and table bars, and its code without lines of comment.

    >>> strip_form("## Plan\\n- **first** this\\n```\\n# adds one\\nx += 1\\n```")
    'Plan\\nfirst this\\n\\nx += 1\\n'
    """
    parts = text.split("```")
    return "".join(_COMMENT.sub("", part) if place % 2 else _MARKS.sub("", part) for place, part in enumerate(parts))


EDITS: dict[str, Callable[[str, Sequence[str]], str]] = {
    "cut_padding": lambda text, _: shorten(text),
    "drop_phrase": remove_phrases,
    "drop_hedges": remove_phrases,
    "drop_opening": lambda text, _: drop_opening(text),
    "strip_form": lambda text, _: strip_form(text),
}
_WORDS = {
    "cut_padding": ("cutting the answers to half", "length"),
    "drop_phrase": ("taking the phrase out", "the phrase"),
    "drop_hedges": ("taking the hedges out", "hedges"),
    "drop_opening": ("taking the first sentence out", "the opening"),
    "strip_form": ("taking marks and comments out", "form"),
}


def edit_outcome(facts: Mapping[str, Any]) -> bool | None:
    """What a recorded experiment says of its finding: it is paid, it is not, or (None) too little was scored.

    >>> edit_outcome({"reward": {"low": 0.3, "n": 32}, "gold": None}), edit_outcome({"sentence": "it failed"})
    (True, None)
    >>> edit_outcome({"reward": {"low": -0.1, "n": 32}})
    False
    """
    reward, gold = facts.get("reward"), facts.get("gold")
    low = reward.get("low") if isinstance(reward, Mapping) else None
    if not isinstance(low, (int, float)) or not math.isfinite(low):
        return None
    gold_low = gold.get("low") if isinstance(gold, Mapping) else None
    if isinstance(gold_low, (int, float)) and gold_low > 0.0:
        return False  # what was taken away deserved its reward
    if low > 0.0:
        return True
    count = reward.get("n") if isinstance(reward, Mapping) else None
    return False if isinstance(count, int) and count >= FEWEST_PAIRS else None


def _drop_repeats(words: list[str]) -> list[str]:
    """Without words that repeat the one before."""
    return [word for at, word in enumerate(words) if not at or word != words[at - 1]]


def _paired_change(prompts: list[str], before: list[str], after: list[str], score: Score, who: str) -> PairedChange:
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
    means = [fmean(differences) for differences in by_prompt.values()]
    if len(means) < 2:
        return PairedChange(means[0] if means else math.nan, math.nan, math.nan, n, len(prompts) - n)
    centre = fmean(means)
    reach = student_t_quantile(len(means) - 1, CONFIDENCE) * stdev(means) / math.sqrt(len(means))
    return PairedChange(centre, centre - reach, centre + reach, n, len(prompts) - n)


def _sentence(kind: str, reward_change: PairedChange, gold_change: PairedChange | None) -> str:
    edit, what = _WORDS[kind]
    if not reward_change.n:
        return f"{edit} could not be tried: no completion could be edited and scored"
    if not math.isfinite(reward_change.low):
        return f"{edit} loses {reward_change.mean:.2g} of reward, on too few prompts to tell"
    text = f"{edit} loses {_format_interval(reward_change)} of reward: "
    if reward_change.low > 0.0:
        text += f"the reward pays for {what}"
    elif reward_change.high < 0.0:
        text += f"the reward pays less with {what}"
    else:
        text += f"no sign that the reward pays for {what}"
    if gold_change is not None and math.isfinite(gold_change.low):
        cares = (
            "gold cares too"
            if gold_change.low > 0.0
            else "gold is better off"
            if gold_change.high < 0.0
            else "gold does not care"
        )
        text += f"; it loses {_format_interval(gold_change)} of gold: {cares}"
    return f"{text} ({reward_change.missing} pairs without an answer left out)" if reward_change.missing else text


def _format_interval(change: PairedChange) -> str:
    low, mean, high = (f"{value + 0.0:.2g}" for value in (change.low, change.mean, change.high))
    return f"{mean} [{low}, {high}]"
