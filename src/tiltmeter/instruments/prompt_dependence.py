"""Whether answers still depend on what was asked."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, Ints, RolloutBatch
from tiltmeter.stats.hash_sampling import Words, draw_rows, splitmix64, text_hashes
from tiltmeter.stats.near_duplicates import token_similarities
from tiltmeter.stats.ngrams import heads

CHOICE = 4  # tokens up to which an answer is a choice, such as a letter or a number, and not a text


class PromptDependence:
    """Share of comparisons in which an answer is more like another answer to its own prompt than like one to another
    prompt; a tie counts half.

    Mode collapse in its plain form: whatever is asked, the same is said, in one text or in a few. Then this share is a
    half. A policy that gets sure of its answers raises it, because answers to one prompt become alike and those to
    different prompts do not, so its fall has an [alarm](alarms.md#coverage-of-answers) of its own. Alike: the part of
    tokens and pairs of tokens that two answers share. An answer of one to four tokens is a choice (yes, B, 42) that is
    right for many prompts, and counts as one that depends on its prompt. A policy that comes apart falls to a half too.
    The innocent causes are prompts that became alike, and choices in a fixed form of more than four tokens of which one
    is nearly always right. Up to 64 answers of a step are compared, at most 8 of a prompt, the first 256 tokens of
    each. A step in which no prompt has two answers, or all have the same prompt, has no value.

    Formula: mean over answers a, others b of its prompt and c of another of 1[s_ab > s_ac] + 1[s_ab = s_ac] / 2, s the
    Jaccard similarity of the sets of tokens and of pairs of neighbouring tokens
    Source: own; across-input diversity is that of Kirk et al. 2023, arXiv 2310.06452

    >>> from tiltmeter.data.batches import from_columns
    >>> tokens = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [1, 2, 7, 8, 9], [1, 2, 7, 8, 9]]
    >>> PromptDependence().measure(from_columns(0, [0, 0, 1, 1], tokens=tokens), None).tolist()
    [1.0]
    >>> PromptDependence().measure(from_columns(0, [0, 0, 1, 1], tokens=[[1, 2, 3, 4, 5]] * 4), None).tolist()
    [0.5]
    """

    name = "diversity.prompt_dependence"
    grain = "batch"
    needs = ("tokens",)
    bounds = (0.0, 1.0)
    first = 256  # tokens
    most = 64  # answers of a step
    each = 8  # answers of a prompt

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.tokens is not None
        prompt = _prompt_numbers(batch)
        order = np.argsort(prompt, kind="stable")
        starts = np.searchsorted(prompt[order], np.arange(prompt.max(initial=-1) + 2))
        prompts = len(starts) - 1
        if prompts < 2:
            return np.full(1, np.nan)
        tokens, offsets = heads(batch.tokens.values, batch.tokens.offsets, self.first)
        words = np.asarray(tokens).astype(np.int64).view(np.uint64)
        content = _contents(words, offsets)
        each = max(2, min(self.each, self.most // prompts))
        rows = order[draw_rows(content[order], starts, each)]
        if len(rows) > self.most:  # whole prompts, drawn by what their answers are
            ends = np.searchsorted(prompt[rows], np.arange(prompts + 1))
            whose = draw_rows(np.add.reduceat(content[rows], ends[:-1]), np.array([0, prompts]), self.most // each)
            rows = rows[np.isin(prompt[rows], whose)]
        similar = token_similarities(*_take_rows(words, offsets, rows))
        lengths = np.diff(offsets)[rows]
        return _dependence(similar, prompt[rows], (lengths > 0) & (lengths <= CHOICE))


def _dependence(similar: Floats, prompt: Ints, is_choice: NDArray[np.bool_]) -> Floats:
    is_own = prompt[:, None] == prompt[None, :]
    own = is_own & ~np.eye(len(prompt), dtype=bool)
    compared = own[:, :, None] & ~is_own[:, None, :]  # answer, one to its own prompt, one to another
    wins = np.where(similar[:, :, None] > similar[:, None, :], 1.0, 0.5 * (similar[:, :, None] == similar[:, None, :]))
    counts = compared.sum(axis=(1, 2))
    if not counts.any():
        return np.full(1, np.nan)
    shares = np.where(compared, wins, 0.0).sum(axis=(1, 2))[counts > 0] / counts[counts > 0]
    return np.array([np.where(is_choice[counts > 0], 1.0, shares).mean()])


def _prompt_numbers(batch: RolloutBatch) -> Ints:
    """0, 1, ... for each row: its prompt, which several groups may have, or its group where no prompt is stored."""
    group = np.repeat(np.arange(len(batch.starts) - 1), np.diff(batch.starts))
    if batch.prompt is None or not len(group):
        return group
    firsts = [batch.prompt[row] for row in batch.starts[:-1]]
    hashes = text_hashes([(text or "").encode("utf-8", "surrogatepass") for text in firsts]).astype(np.int64)
    unknown = np.array([text is None for text in firsts])
    numbers = np.unique(np.where(unknown, -1 - np.arange(len(firsts)), hashes), return_inverse=True)[1]
    return np.asarray(numbers[group], np.int64)


def _contents(words: Words, offsets: Ints) -> Words:
    """A word for each row's tokens in their order, by which rows are drawn: how they came does not matter."""
    place = (np.arange(len(words)) - np.repeat(offsets[:-1], np.diff(offsets))).astype(np.uint64)
    sums = np.zeros(len(words) + 1, np.uint64)
    np.cumsum(splitmix64((words << np.uint64(32)) ^ place), out=sums[1:])
    return sums[offsets[1:]] - sums[offsets[:-1]]


def _take_rows(words: Words, offsets: Ints, rows: Ints) -> tuple[Words, Ints]:
    lengths = np.diff(offsets)[rows]
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return words[np.arange(ends[-1]) + np.repeat(offsets[rows] - ends[:-1], lengths)], ends
