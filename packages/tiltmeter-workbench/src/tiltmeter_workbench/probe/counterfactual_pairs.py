"""Counterfactual preference pairs to retrain a reward model on, so that it loses a bias without inverting it.

Each pair that was given gets a twin: the same preference, with the advantage of length, or of the phrase, on the other
side. Pairs and twins together say nothing about it any more. Source: own; the idea of breaking a correlation by
counterfactual copies is that of Liu et al. 2024 (arXiv 2409.13156), who pair answers across prompts.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tiltmeter.diagnosis.experiments import remove_phrase
from tiltmeter_workbench.probe import attack_phrases
from tiltmeter_workbench.probe.attack_effects import Effect
from tiltmeter_workbench.probe.attacks import WRONG_BUT_FORMATTED, Attack, sentences
from tiltmeter_workbench.probe.pairs import ProbeItem

COMMON = 3  # prompts in whose answers a sentence must stand to count as one that belongs to no question
LONGEST = 40  # sentences that one twin may gain
ENOUGH = 20  # sentences of the data's own, below which filler has to do
SEEN, ONE_SIDED = 4, 0.25  # answers with a word, and how far its share on one side must be from the usual one

Pair = dict[str, Any]


def make_counterfactual_pairs(effects: Sequence[Effect], items: Sequence[ProbeItem], seed: int) -> list[Pair]:
    """Pairs in TRL's format against everything that is paid, in the order of what it is worth."""
    paid = sorted((effect for effect in effects if effect.paid), key=lambda effect: -effect.spreads)
    pairs = [item for item in items if item.wrong is not None]
    rng = random.Random(f"{seed}/twins")
    new_pairs: list[Pair] = []
    if any(effect.attack.length or effect.by_length for effect in paid):
        new_pairs += length_pairs(pairs, rng)
    for effect in paid:
        if effect.attack.length or effect.by_length:
            continue
        if effect.attack.phrase:
            new_pairs += phrase_pairs(pairs, effect.attack, rng)
        elif effect.attack.manner == "instead":
            new_pairs += worthless_pairs(pairs, effect.attack, rng)
        else:
            new_pairs += edit_pairs(pairs, effect.attack, rng)
    return new_pairs


def length_pairs(items: Sequence[ProbeItem], rng: random.Random) -> list[Pair]:
    """The same preference with the lengths changed over, and the same answer longer and shorter, each way once.

    The shorter side gains sentences of other answers until it is as long as the longer one was; the longer one loses
    sentences, at most half of them, until it is as short. Only sentences without a word that tells preferred from
    rejected answers are added or taken away, so what an answer says stays. Our own filler is used only where there are
    too few of those, and then on both sides: words that stand on one side only would be what the model learns.

    >>> said = "It is 4. And I like this one a lot. It was a fine day."
    >>> (twin, *flips) = length_pairs([ProbeItem("2 + 2?", said, "It is 5.")], random.Random(0))
    >>> len(twin["rejected"].split()) > len(twin["chosen"].split()), len(flips)
    (True, 2)
    """
    side_words = _one_sided_words(items)
    spare = sorted(
        {part for item in items for text in item.answers for part in sentences(text) if _is_neutral(part, side_words)}
    )
    own = len(spare) >= ENOUGH
    gaps = [abs(len(item.right.split()) - len((item.wrong or "").split())) for item in items]
    gaps = [gap for gap in gaps if gap] or [len(attack_phrases.FILLER[0].split())]
    new_pairs = []
    for item in items:
        right, wrong = item.right, item.wrong or ""
        more = len(right.split()) - len(wrong.split())
        long, short = (right, wrong) if more > 0 else (wrong, right)
        source = spare if own else list(attack_phrases.FILLER)
        if more:
            cut = _drop_sentences(long, len(long.split()) - abs(more), side_words)
            cut = cut if own else _add_sentences(cut, 1, source, rng)
            longer = _add_sentences(short, len(cut.split()) - len(short.split()) + abs(more), source, rng)
            new_pairs.append(_pair(item, cut, longer) if more > 0 else _pair(item, longer, cut))
        base = rng.choice((right, wrong))
        base = base if own else _add_sentences(base, 1, source, rng)
        longer = _add_sentences(base, rng.choice(gaps), source, rng)
        new_pairs += [_pair(item, base, longer), _pair(item, longer, base)]
    return new_pairs


def _one_sided_words(items: Sequence[ProbeItem]) -> set[str]:
    """Words that stand mostly on one side: an answer may hang on them. What length alone would do is taken off."""
    sides = [Counter(word for text in texts for word in set(_words(text))) for texts in _sides(items)]
    total = [sum(side.values()) for side in sides]
    usual = total[0] / max(sum(total), 1)
    counts = sides[0] + sides[1]
    return {word for word, count in counts.items() if count >= SEEN and abs(sides[0][word] / count - usual) > ONE_SIDED}


def _sides(items: Sequence[ProbeItem]) -> tuple[list[str], list[str]]:
    return [item.right for item in items], [item.wrong or "" for item in items]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _is_neutral(sentence: str, side_words: set[str]) -> bool:
    """Whether a sentence may be added or taken away without changing what an answer says."""
    words = _words(sentence)
    return len(words) > 2 and "`" not in sentence and not side_words.intersection(words)


def _drop_sentences(text: str, words: int, side_words: set[str]) -> str:
    """The text without some plain sentences, the last ones first: about so many words, at least half the sentences."""
    parts = sentences(text)
    if "```" in text or "\n" in text:
        return text
    for _ in range(len(parts) // 2):
        at = next((n for n in range(len(parts) - 1, 0, -1) if _is_neutral(parts[n], side_words)), None)
        if at is None or sum(len(part.split()) for part in parts) - len(parts[at].split()) < words:
            break
        del parts[at]
    return " ".join(parts)


def phrase_pairs(items: Sequence[ProbeItem], attack: Attack, rng: random.Random) -> list[Pair]:
    """The same preference with the phrase on the other side; where neither has it, one pair with it on each side."""
    new_pairs = []
    for item in items:
        right, wrong = item.right, item.wrong or ""
        here, there = (remove_phrase(text, attack.phrase) != text for text in (right, wrong))
        with_right, with_wrong = (attack.edit(text, item, rng) or text for text in (right, wrong))
        if here and there:
            continue
        if here:
            new_pairs.append(_pair(item, remove_phrase(right, attack.phrase), with_wrong))
        elif there:
            new_pairs.append(_pair(item, with_right, remove_phrase(wrong, attack.phrase)))
        else:
            new_pairs += [_pair(item, with_right, wrong), _pair(item, right, with_wrong)]
    return new_pairs


def edit_pairs(items: Sequence[ProbeItem], attack: Attack, rng: random.Random) -> list[Pair]:
    """Two pairs for each: the edit on either side of the preference, or an answer against its own edit, each way once.

    The first say that the edit does not change which answer is better, the second that it is worth nothing.
    """
    new_pairs = []
    for item in items:
        right, wrong = item.right, item.wrong or ""
        new_right, new_wrong = (attack.edit(text, item, rng) for text in (right, wrong))
        if new_right is not None and new_wrong is not None and rng.random() < 0.5:
            new_pairs += [_pair(item, new_right, wrong), _pair(item, right, new_wrong)]
            continue
        old, new = rng.choice(((right, new_right), (wrong, new_wrong)))
        if new is not None:
            new_pairs += [_pair(item, old, new), _pair(item, new, old)]
    return new_pairs


def worthless_pairs(items: Sequence[ProbeItem], attack: Attack, rng: random.Random) -> list[Pair]:
    """The right answer above the worthless one. Where that is the wrong answer dressed up, also the right one dressed
    up above the plain wrong one: formatting must not become a fault. Half of the items: one text is soon learnt."""
    new_pairs = []
    for item in rng.sample(list(items), (len(items) + 1) // 2):
        bad = attack.edit(item.right, item, rng)
        good = attack.edit(item.right, replace(item, wrong=item.right), rng)
        if bad is not None:
            new_pairs.append(_pair(item, item.right, bad))
        if attack.name == WRONG_BUT_FORMATTED and good is not None:
            new_pairs.append(_pair(item, good, item.wrong or ""))
    return new_pairs


def common_sentences(items: Sequence[ProbeItem]) -> list[str]:
    """Sentences of these answers that stand in answers to several prompts."""
    prompt_counts: Counter[str] = Counter()
    for prompt_sentences in _by_prompt(items).values():
        prompt_counts.update(prompt_sentences)
    return sorted(
        sentence for sentence, prompts in prompt_counts.items() if prompts >= COMMON and len(sentence.split()) > 2
    )


def _by_prompt(items: Sequence[ProbeItem]) -> dict[str, set[str]]:
    sentences_by_prompt: dict[str, set[str]] = {}
    for item in items:
        for text in item.answers:
            sentences_by_prompt.setdefault(item.prompt, set()).update(sentences(text))
    return sentences_by_prompt


def _add_sentences(text: str, words: int, source: Sequence[str], rng: random.Random) -> str:
    """The text with about so many words more."""
    parts, added = [text] if text else [], 0
    while added < words and len(parts) <= LONGEST:
        parts.append(rng.choice(source))
        added += len(parts[-1].split())
    return " ".join(parts)


def _pair(item: ProbeItem, chosen: str, rejected: str) -> Pair:
    return {"prompt": item.prompt, "chosen": chosen, "rejected": rejected}
