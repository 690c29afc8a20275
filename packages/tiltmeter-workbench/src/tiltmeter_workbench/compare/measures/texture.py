"""Measures of style: diversity of answers, their length, hedging, and how often they are cut off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.instruments.answer_classes import AnswerClasses
from tiltmeter.instruments.expected_distinct import ExpectedDistinct
from tiltmeter.instruments.hedging import Hedging
from tiltmeter.instruments.prompt_diversity import PromptDiversity
from tiltmeter.stats.word_hashes import Texts, Words
from tiltmeter_workbench.check_report.report import Example
from tiltmeter_workbench.common.chat_model import ChatAnswer
from tiltmeter_workbench.compare.measures.difference import Difference, means, percent, shares
from tiltmeter_workbench.compare.measures.measure import Measure, State, example_answers
from tiltmeter_workbench.compare.sampling import AnswerSampler, Which
from tiltmeter_workbench.compare.suite import Suite, read_suite

Floats = NDArray[np.float64]
Answers = Sequence[Sequence[ChatAnswer]]
Groups = Sequence[Sequence[Sequence[int]]]

#: A tenth of the scale of 1 - self-BLEU. Training sharpens a policy somewhat in any case.
LESS_DIVERSE = 0.1
#: Answers that are a quarter longer are noticed by people who read them, and paid for by those who serve them.
LONGER = 1.25
#: A hedge in every tenth sentence more than before.
HEDGED = 0.1
SHORTEST = 8  # tokens that are compared at least, however short the other model's answers are
MANY_CUT = 0.1  # of the answers; from there on a ratio of lengths says more about the limit than about the models
MOST_CUT = 0.5
EXAMPLES = 3
WHICH: tuple[Which, Which] = ("base", "checkpoint")


def measure(
    sampler: AnswerSampler,
    suite: str | Path | Suite = "general",
    *,
    samples: int | None = None,
    temperature: float = 1.0,
    most: int | None = None,
    alpha: float,
) -> list[Measure]:
    """Diversity, length and hedging on a suite by name or path, each judged at a third of `alpha`.

    `samples` answers to each prompt, those of the material unless given; diversity needs two.
    """
    subset = (suite if isinstance(suite, Suite) else read_suite(suite)).first(most)
    count = sampler.samples if samples is None else samples
    answers = {which: sampler.answers(which, subset.name, subset.texts, count, temperature) for which in WHICH}
    return [
        diversity(subset, answers["base"], answers["checkpoint"], alpha / 3.0),
        length(subset, answers["base"], answers["checkpoint"], alpha / 3.0),
        hedging(subset, answers["base"], answers["checkpoint"], alpha / 3.0),
    ]


def diversity(suite: Suite, base: Answers, checkpoint: Answers, alpha: float) -> Measure:
    """1 - self-BLEU of the answers to a prompt, both models' cut to the length of the shorter one's.

    Uncut, answers that are only longer would share more words and look less diverse.
    """
    rows = _tokens(base, checkpoint)
    most = [max(SHORTEST, math.ceil(min(pair))) for pair in zip(*map(_sizes, rows), strict=True)]
    batches = [
        _batch([[row[:limit] for row in group] for group, limit in zip(groups, most, strict=True)], side)
        for groups, side in zip(rows, (base, checkpoint), strict=True)
    ]
    differ = [1.0 - PromptDiversity().measure(batch, None)["self_bleu"] for batch in batches]
    difference = means(differ[0], differ[1], alpha)
    start = Baseline(batches[0])
    distinct = [ExpectedDistinct().measure(batch, start) for batch in batches]
    classes = [AnswerClasses().measure(batch, None)["count"] for batch in batches]
    sentence = (
        f"Answers to one prompt differ by {difference.checkpoint:.2f} (1 - self-BLEU at equal length), "
        f"the base's by {difference.base:.2f}, over {difference.n} prompts."
    )
    return _measure(
        ("diversity", "Diversity of answers", "diversity_lost", "1 - self-BLEU"),
        difference,
        difference.state(LESS_DIVERSE, more_is_worse=False),
        sentence if difference.n else "Diversity needs two answers to a prompt: ask for more samples.",
        [
            _row("1 - self-BLEU", difference),
            _row("distinct tokens against expectation", means(distinct[0], distinct[1], alpha)),
            _row("different answers among the samples", means(classes[0], classes[1], alpha)),
        ],
        _examples(suite, base, checkpoint, differ[0] - differ[1], "answers alike"),
        "Sample at a higher temperature in training, add an entropy bonus, or weigh entropy apart (soft preferences).",
    )


def length(suite: Suite, base: Answers, checkpoint: Answers, alpha: float) -> Measure:
    """How much longer answers are: the mean over prompts of the logarithm of the ratio of their tokens."""
    sizes = [_sizes(rows) for rows in _tokens(base, checkpoint)]
    logs = [np.log(np.maximum(size, 1.0)) for size in sizes]
    log_ratio = means(logs[0], logs[1], alpha)
    cut_shares = [
        np.array([np.mean([not one.ended for one in answers]) for answers in side]) for side in (base, checkpoint)
    ]
    ends = shares(cut_shares[0], cut_shares[1], alpha)
    ratio = math.exp(log_ratio.value)
    sentence = (
        f"Answers are {ratio:.2f} times as long as the base's: {sizes[1].mean():.0f} tokens against "
        f"{sizes[0].mean():.0f}, over {log_ratio.n} prompts."
    )
    if max(ends.base, ends.checkpoint) > MANY_CUT:
        sentence += (
            f" The limit cut off {percent(ends.checkpoint)} of them and {percent(ends.base)} of the base's, "
            "so the true ratio is not known."
        )
    state = log_ratio.state(math.log(LONGER), more_is_worse=True)
    if state == "same" and min(ends.base, ends.checkpoint) > MOST_CUT:
        state = "cannot tell"  # both are as long as they were allowed to be
    return _measure(
        ("length", "Length of answers", "verbosity", "of the base's length"),
        Difference(1.0, ratio, ratio - 1.0, math.exp(log_ratio.low) - 1.0, math.exp(log_ratio.high) - 1.0, log_ratio.n),
        "shown" if state == "better" else state,  # shorter is neither good nor bad by itself
        sentence,
        [_row("tokens", means(sizes[0], sizes[1], alpha)), _row("cut off at the limit", ends)],
        _examples(suite, base, checkpoint, logs[1] - logs[0], "longer"),
        "Debias the reward for length, penalise above a target, balance the pairs by length, or raise beta.",
    )


def hedging(suite: Suite, base: Answers, checkpoint: Answers, alpha: float) -> Measure:
    """Hedges per sentence, at most one counted, averaged over the answers to a prompt."""
    rates = []
    for side in (base, checkpoint):
        texts = [answer.text for answers in side for answer in answers]
        values = Hedging().measure(from_columns(0, range(len(texts)), completion=texts), None)
        ends = np.cumsum([len(answers) for answers in side])[:-1]
        rates.append(np.array([_mean(np.minimum(part, 1.0)) for part in np.split(values, ends)]))
    difference = shares(rates[0], rates[1], alpha)
    return _measure(
        ("hedging", "Hedges in answers", "hedging", "per sentence"),
        difference,
        difference.state(HEDGED, more_is_worse=True),
        f"The checkpoint hedges {difference.checkpoint:.2f} times a sentence, the base {difference.base:.2f} times, "
        f"over {difference.n} prompts.",
        (),
        _examples(suite, base, checkpoint, rates[1] - rates[0], "more hedges"),
        "Add pairs in which the plain answer is the better one; look whether the reward pays for caveats.",
    )


def _measure(
    names: tuple[str, str, str, str],
    difference: Difference,
    state: State,
    sentence: str,
    rows: Sequence[dict[str, object]],
    examples: Sequence[Example],
    fix: str,
) -> Measure:
    name, title, cost, unit = names
    return Measure(
        name, title, state, sentence, cost, unit, difference.base, difference.checkpoint, difference.value,
        difference.low, difference.high, difference.n, rows, examples, fix,
    )  # fmt: skip


def _row(what: str, difference: Difference) -> dict[str, object]:
    return {"what": what, **difference._asdict()}


def _examples(suite: Suite, base: Answers, checkpoint: Answers, more: Floats, why: str) -> list[Example]:
    order = np.argsort(-np.nan_to_num(more, nan=-math.inf), kind="stable").tolist()
    return [
        example_answers(suite.prompts[at].text, base[at][0].text, checkpoint[at][0].text, why)
        for at in order[:EXAMPLES]
        if more[at] > 0.0
    ]


def _tokens(base: Answers, checkpoint: Answers) -> tuple[Groups, Groups]:
    """The tokens of each answer; words as numbers where a model does not tell its tokens, and then of both."""
    has_tokens = all(
        answer.tokens for side in (base, checkpoint) for answers in side for answer in answers if answer.text
    )
    return (_rows(base, has_tokens), _rows(checkpoint, has_tokens))


def _rows(side: Answers, has_tokens: bool) -> Groups:
    if has_tokens:
        return [[answer.tokens for answer in answers] for answers in side]
    words = Words.of(Texts.of([answer.text for answers in side for answer in answers]))
    numbers = (words.hashes & np.uint64(0x7FFFFFFF)).astype(np.int64).tolist()
    rows = iter([numbers[begin:end] for begin, end in pairwise(words.offsets.tolist())])
    return [[next(rows) for _ in answers] for answers in side]


def _sizes(groups: Groups) -> Floats:
    return np.array([_mean(np.array([len(row) for row in rows], np.float64)) for rows in groups])


def _batch(groups: Groups, side: Answers) -> RolloutBatch:
    group = [at for at, rows in enumerate(groups) for _ in rows]
    texts = [answer.text for answers in side for answer in answers]
    return from_columns(0, group, tokens=[row for rows in groups for row in rows], completion=texts)


def _mean(values: Floats) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else math.nan
