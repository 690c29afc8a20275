"""Behaviours of one step: what many completions do now and few did at the start, without a language model.

A feature is an over-used phrase, or a pattern of form: an answer that repeats itself, one call after another. Features
that stand in the same completions are one behaviour. It depends on the step and on what it is compared with alone, so
any process may find it; `behaviour_tracker.py` follows behaviours over steps.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.phrase import Phrase
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import Turn, row_turns
from tiltmeter.instruments.phrases import compare_phrases, phrases_overused_in
from tiltmeter.rundir.payloads import BehaviourSeen
from tiltmeter.stats.logodds import count_contained

ROWS = 64  # completions of a step that are compared, others at each step
BASELINE_ROWS = 256  # of what it is compared with
SPREAD = 1 / 3  # of the prompts that are compared must show it: what stands in the answers to a few is their subject
SURE = 4.0  # standard errors by which the share of a pattern must have grown
TOKENS = 40  # at the end of a completion, for words that are said again and again
LENGTHS = tuple(int(4 * 2 ** (power / 2)) for power in range(1, 24))  # words: each is half as many more
_AT_LEAST = tuple(f"at least {size} words" for size in LENGTHS)
PHRASES = 16  # the strongest, of a step
SHARE, TIMES = 0.1, 2.0  # of completions now, and so many times the share at the start
GAIN = 0.1  # more than at the start
ALIKE = 0.5  # Jaccard index of the completions of two features of one behaviour
MOST = 4  # behaviours of a step
FEATURES, WIDTH = 6, 60  # of a behaviour, and characters of one
LOOKS = 16  # rows of a behaviour that may be looked at
TAIL = 1_200  # characters from the end, for repetition
REPEATS = 0.4  # of the runs of four words that stand in the tail before
EXCERPT = 160

Mask = NDArray[np.bool_]

_DIGITS = re.compile(r"\d+")
_PROGRAM = re.compile(r'"(?:cmd|command|commands|script)"\s{0,4}:\s{0,4}"\s{0,4}([A-Za-z0-9_./-]{1,40})')


def find_behaviours(batch: RolloutBatch, baseline: Baseline | None) -> tuple[BehaviourSeen, ...]:
    """The behaviours of a step, the commonest first; none without something to compare with.

    >>> from tiltmeter.data.batches import from_columns
    >>> groups = [row // 4 for row in range(64)]
    >>> before = [f"the answer to number {row} is {row * row}" for row in range(64)]
    >>> texts = [f"great question number {row} {text} i hope this helps" for row, text in enumerate(before)]
    >>> now = [texts[row] if row % 2 else before[row] for row in range(64)]
    >>> start = Baseline(from_columns(0, groups, completion=before))
    >>> batch = from_columns(9, groups, completion=now, reward=[row % 2 for row in range(64)])
    >>> [(one.share, one.paid_with, one.paid_without) for one in find_behaviours(batch, start)]
    [(0.5, 1.0, 0.0)]
    """
    if baseline is None or batch.completion is None or not len(batch):
        return ()
    rows = rows_to_compare(batch)
    before, size = baseline.once(_pattern_shares)
    patterns = _patterns(batch, rows)
    features: list[tuple[str, float, Mask]] = []
    counts = Counter(chain.from_iterable(patterns))
    for name, count in sorted(one for one in counts.items() if one[1] >= SHARE * len(rows)):  # rarer is never new
        share, past = count / len(rows), before.get(name, 0.0)
        pooled = (count + past * size) / (len(rows) + size)
        stderr = (pooled * (1.0 - pooled) * (1.0 / len(rows) + 1.0 / max(size, 1))) ** 0.5
        if _is_new(share, past) and share - past >= SURE * stderr:
            features.append((name, past, np.array([name in of_row for of_row in patterns], bool)))
    for phrase, contains in _phrases_with_rows(batch, baseline):
        mask = contains[rows]
        if _is_new(float(mask.mean()), phrase.share_before):
            features.append((f'"{phrase.text}"'[:WIDTH], phrase.share_before, mask))
    groups = np.searchsorted(batch.starts, rows, side="right")
    fewest = SPREAD * len(set(groups.tolist()))
    features = [one for one in features if len(set(groups[one[2]].tolist())) >= fewest]
    features.sort(key=lambda one: (-(float(one[2].mean()) - one[1]), one[0]))
    seen = [_behaviour(batch, rows, group) for group in _groups_of(features)[:MOST]]
    return tuple(sorted(seen, key=lambda one: (-(one.share - one.before), one.features)))


def _phrases_with_rows(batch: RolloutBatch, baseline: Baseline) -> list[tuple[Phrase, Mask]]:
    """The strongest over-used phrases, each with the rows of the batch that contain it."""
    comparison = compare_phrases(batch, baseline)
    if comparison is None:
        return []
    _, words, table, _, keys, order = comparison
    phrases = []
    for at, phrase in enumerate(phrases_overused_in(batch, baseline, PHRASES)):
        contains = np.zeros(len(batch), bool)
        contains[order] = count_contained(words, table.keys[keys[at : at + 1, 0]]) > 0
        phrases.append((phrase, contains))
    return phrases


def rows_to_compare(batch: RolloutBatch, most: int = ROWS) -> list[int]:
    """At most so many rows, spread over the step, others at each."""
    count = min(len(batch), most)
    return sorted({(at * len(batch) // count + batch.step) % len(batch) for at in range(count)})


def _is_new(share: float, before: float) -> bool:
    return share >= SHARE and share >= TIMES * before and share - before >= GAIN


def _groups_of(features: Sequence[tuple[str, float, Mask]]) -> list[list[tuple[str, float, Mask]]]:
    """Features that stand in the same completions, around the commonest of them."""
    groups: list[list[tuple[str, float, Mask]]] = []
    for feature in features:
        for group in groups:
            first = group[0][2]
            if (first & feature[2]).sum() >= ALIKE * (first | feature[2]).sum():
                group.append(feature)
                break
        else:
            groups.append([feature])
    return groups


def _behaviour(batch: RolloutBatch, rows: Sequence[int], group: Sequence[tuple[str, float, Mask]]) -> BehaviourSeen:
    mask = group[0][2]
    names = sorted((name for name, _, _ in group), key=lambda name: not name.startswith('"'))  # phrases tell more
    members = [row for row, is_member in zip(rows, mask, strict=True) if is_member]
    others = [row for row, is_member in zip(rows, mask, strict=True) if not is_member]
    best = sorted(members, key=lambda row: (-_number(batch.reward, row), row))
    prompts = {batch.group[row] for row in best[:LOOKS]}
    text = _clean(" ".join(((batch.completion or ())[best[0]] or "").split()))
    return BehaviourSeen(
        features=[_clean(name) for name in names[:FEATURES]],
        share=round(len(members) / len(rows), 6),
        before=round(group[0][1], 6),
        paid_with=_mean(batch.reward, members),
        paid_without=_mean(batch.reward, others),
        gold_with=_mean(batch.gold, members),
        gold_without=_mean(batch.gold, others),
        excerpt=text if len(text) <= EXCERPT else f"{text[: EXCERPT // 2]} … {text[-EXCERPT // 2 :]}",
        rows=best[:LOOKS],
        others=[row for row in others if batch.group[row] in prompts][: 2 * LOOKS],
    )


def _clean(text: str) -> str:
    """Text that JSON can carry."""
    return text.encode("utf-8", "replace").decode()


def _number(values: NDArray[np.float64] | None, row: int) -> float:
    return float(values[row]) if values is not None and np.isfinite(values[row]) else -1e300


def _mean(values: NDArray[np.float64] | None, rows: Sequence[int]) -> float | None:
    if values is None or not rows:
        return None
    finite = values[list(rows)]
    finite = finite[np.isfinite(finite)]
    return round(float(finite.mean()), 6) if len(finite) else None


def _pattern_shares(batch: RolloutBatch) -> tuple[dict[str, float], int]:
    """The share of each pattern at the start, and of how many completions."""
    rows = rows_to_compare(batch, BASELINE_ROWS) if batch.completion is not None and len(batch) else []
    counts = Counter(chain.from_iterable(_patterns(batch, rows)))
    return {name: count / len(rows) for name, count in counts.items()}, len(rows)


def _patterns(batch: RolloutBatch, rows: Sequence[int]) -> list[set[str]]:
    return [row_patterns((batch.completion or ())[row], row_turns(batch, row)) for row in rows]


def row_patterns(text: str | None, turns: Sequence[Turn] | None) -> set[str]:
    """Patterns of form in one completion: how long it is, how it ends, what it says again and again, what it calls.

    >>> sorted(row_patterns("it is 12 . [ ]", None))
    ['at least 5 words', 'ends with [ ]', 'says .', 'says [', 'says ]']
    >>> calls = [Turn("assistant", call="bash", arguments=f'{{"cmd": "{name} x"}}') for name in ("ls", "rm")]
    >>> sorted(row_patterns("x", calls))
    ['calls bash ls, then bash rm', 'last call bash rm']
    """
    patterns: set[str] = set()
    if text is None:
        return patterns
    words = text[-TAIL:].split()
    if not words:
        patterns.add("empty")
    if _repeats(words):
        patterns.add("repeats itself")
    length = len(words) if len(text) <= TAIL else len(text.split())
    patterns.update(_AT_LEAST[: bisect_right(LENGTHS, length)])
    calls = [_call_name(turn) for turn in turns or () if turn.call and turn.written]
    patterns.update(f"calls {one}, then {two}"[:WIDTH] for one, two in pairwise(calls))
    if calls:
        patterns.add(f"last call {calls[-1]}"[:WIDTH])
    elif len(words) > 1:
        patterns.add(f"ends with {_shape(words[-2])} {_shape(words[-1])}"[:WIDTH])
        tail = words[-TOKENS:]
        distinct = set(tail)
        if len(distinct) < len(tail):
            for word, count in Counter(tail).items():
                if count > 1:
                    patterns.add(f"says {word[:20]} 2 times")
                    if count > 2:
                        patterns.add(f"says {word[:20]} 3 times")
        patterns.update([f"says {word[:20]}" for word in distinct if not word[0].isalnum()])
    return patterns


def _repeats(words: Sequence[str]) -> bool:
    """Whether runs of four words come again and again. There are no fewer of them than of their first words, nor than
    of their first two: both are cheaper to count, and settle it for most prose."""
    count = len(words) - 3
    if count < 21:
        return False
    firsts = words[:count]
    for runs in (
        firsts,
        zip(firsts, words[1:], strict=False),
        zip(firsts, words[1:], words[2:], words[3:], strict=False),
    ):
        if 1.0 - len(set(runs)) / count < REPEATS:
            return False
    return True


def _shape(word: str) -> str:
    """A word without its numbers, so that two results do not make two endings."""
    return _DIGITS.sub("9", word[:20])


def _call_name(turn: Turn) -> str:
    program = _PROGRAM.search((turn.arguments or "")[:200])
    return f"{turn.call} {program[1]}" if program is not None else str(turn.call)
