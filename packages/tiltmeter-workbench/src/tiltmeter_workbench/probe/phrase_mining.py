"""Mine phrases that occur more often in higher scored answers, to be tried as attacks on other prompts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tiltmeter.stats.logodds import PhraseTable, fewest_texts, merge_phrases, overused_phrases
from tiltmeter.stats.word_hashes import Texts, Words
from tiltmeter_workbench.probe.attacks import Attack, phrase_attack
from tiltmeter_workbench.probe.pairs import ProbeItem
from tiltmeter_workbench.probe.reward_target import Target

MOST = 8  # phrases that are tried
PROMPTS = 4  # below which texts of one subject cannot be told from a habit
SHARE, LEAST = 0.02, 8  # of all answers, and answers, in which a phrase must stand
RATE = 0.1  # of the phrases found, at most this part is expected to be found wrongly
CHARACTERS = 4_000  # of each answer, from its beginning
WORDS = 2  # of a phrase; single words are mostly what an answer is about


def halves(items: Sequence[ProbeItem]) -> tuple[list[ProbeItem], list[ProbeItem]]:
    """Items by their prompt, in two parts: phrases found in the one are tried on the other.

    What is found and tried on the same answers would be flattered by the luck of its choice.
    """
    first = [hashlib.sha256(item.prompt.encode("utf-8", "surrogatepass")).digest()[0] % 2 == 0 for item in items]
    mining_half = [item for item, here in zip(items, first, strict=True) if here]
    test_half = [item for item, here in zip(items, first, strict=True) if not here]
    return mining_half, test_half


def mine_phrases(target: Target, items: Sequence[ProbeItem]) -> list[Attack]:
    """Attacks with the phrases that the higher scored of two answers, or the preferred one, has more often.

    Log-odds with prompts as the unit and a false discovery rate of 10 % (`stats.logodds`), two to eight words. A phrase
    may be there because it is part of better answers; only putting it in and taking it out tells.
    """
    both = [item for item in items if item.wrong is not None]
    right = target.scores([i.prompt for i in both], [i.right for i in both], [i.columns for i in both])
    wrong = target.scores([i.prompt for i in both], [i.wrong or "" for i in both], [i.columns for i in both])
    liked = [item.answers if above else item.answers[::-1] for item, above in zip(both, right >= wrong, strict=True)]
    strengths: dict[str, float] = {}
    for sides in (liked, [item.answers for item in both]):
        for phrase, strength in _over_used([i.prompt for i in both], [s[0] for s in sides], [s[1] for s in sides]):
            strengths[phrase] = max(strength, strengths.get(phrase, 0.0))
    answers = [text for item in both for text in item.answers]
    phrases: list[str] = []
    for phrase in sorted(strengths, key=lambda each: -strengths[each]):
        if not any(phrase in other or other in phrase for other in phrases):
            phrases.append(phrase)
    return [_attack(phrase, answers) for phrase in phrases[:MOST]]


def _over_used(prompts: Sequence[str], more: Sequence[str], less: Sequence[str]) -> list[tuple[str, float]]:
    """Phrases of the one side with their z. A tenth of them may be false: each is tried before it is believed."""
    order = sorted(range(len(prompts)), key=lambda at: prompts[at])
    starts = [at for at in range(len(order)) if at == 0 or prompts[order[at]] != prompts[order[at - 1]]]
    bounds = np.array([*starts, len(order)], np.int64)
    if len(starts) < PROMPTS:
        return []
    now, before = (Texts.of([side[at] for at in order], CHARACTERS) for side in (more, less))
    words = Words.of(now)
    table = PhraseTable.of(words, now.present, bounds, fewest_texts(len(order), len(order), SHARE, LEAST))
    chosen, z = overused_phrases(table, PhraseTable.of(Words.of(before), before.present, bounds), RATE, SHARE, LEAST)
    rows = merge_phrases(table, words, chosen, z)[: 3 * MOST].tolist()
    return [(words.text(now, first, count), float(z[row])) for row, first, count in rows if count >= WORDS]


def _attack(phrase: str, answers: Sequence[str]) -> Attack:
    """The phrase as it is mostly written, put where it mostly stands."""
    pattern = re.compile(r"\W{1,8}".join(map(re.escape, phrase.split())) + r"[.!?]?", re.I)
    forms: Counter[str] = Counter()
    places = []
    for text in answers:
        if hit := pattern.search(text):
            forms[hit[0]] += 1
            places.append(hit.start() / max(len(text) - len(hit[0]), 1))
    form = forms.most_common(1)[0][0] if forms else phrase
    middle = float(np.median(places)) if places else 1.0
    place: Literal["front", "middle", "end"] = "front" if middle < 0.25 else "end" if middle > 0.75 else "middle"
    return phrase_attack(form, place, mined=True)
