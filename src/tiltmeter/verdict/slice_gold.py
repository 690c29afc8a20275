"""What gold of single slices forbids: a run is not OK while one of its slices has lost gold.

Every slice has a curve (`stats.gold_curve`), whose chances are divided by the number of slices. Gold of a slice that is
lower than before by more than chance keeps the run from OK; where that is as sure as it must be of a whole run, and a
quarter is gone, the advice is to stop.
That a loss is excluded is asked only of slices whose labels suffice; how many there are without is said.

The mean of a run falls too where environments of lower gold join. No stop is advised for that: with the shares that
they had before, the environments that were there then have lost nothing that would be called a loss.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

from tiltmeter.data.slice_facts import FACT
from tiltmeter.data.slices import slice_words
from tiltmeter.stats.gold_curve import KEPT_Z, LEAST_FALL, SHARE, GoldCurve, Look, Stretch
from tiltmeter.verdict.gold_standing import PAIR_LEVEL
from tiltmeter.verdict.slices import SliceGold
from tiltmeter.verdict.stop_advice import Advice

LEAST = 8.0  # labels of an environment, then and now, to be compared
MOST_LABELS = 0.9  # of those of then, that must be of environments which are compared
SPREAD = 0.25  # variance of a label at most


def advise_on_slices(
    advice: Advice | None, gold: SliceGold, fallen: tuple[Stretch, Stretch] | None = None
) -> Advice | None:
    """The advice on the whole run, as far as its slices allow it. `fallen`: where gold was higher, and now, if that
    alone is why a stop is advised.

    >>> gold = SliceGold()
    >>> for step in range(60):
    ...     for name, mean in (("a", 0.5), ("b", 0.5 if step < 30 else 0.1)):
    ...         _ = gold.add(step, "gold.mean", name, mean, 32)
    >>> advice = advise_on_slices(Advice("continue", "", None, None, "gold.mean", 0.1, False, True), gold)
    >>> advice.word, advice.why
    ('stop', 'gold in environment b is lower than at steps 0 to 19, where it was 0.50: it is 0.10')
    """
    if advice is not None and advice.word == "stop" and fallen is not None and _is_mix(gold, *fallen):
        by_slices = advise_on_slices(replace(advice, word="continue", lower=False), gold)
        why = "gold of the run is lower because environments of lower gold joined; with the shares of before it is not"
        if by_slices is None or by_slices.word == "continue":
            doubt = "gold is lower since environments joined"
            return replace(advice, word="cannot tell", why=why, lower=False, excluded=False, doubt=doubt)
        return by_slices
    is_calm = advice is not None and (advice.word == "continue" or advice.as_of is not None)
    if advice is None or not is_calm or len(gold.tables) < 2:
        return advice
    many = len(gold.tables)
    latest = {name: GoldCurve(table, curves=many).last_look for name, table in gold.tables.items()}
    looks = {name: look for name, look in latest.items() if look is not None}
    lower = [name for name, look in looks.items() if look.is_lower]
    if lower:
        worst = max(lower, key=lambda name: (_is_lost(looks[name]), _gap(looks[name])))
        return _about_lower(advice, worst, looks[worst], by_pairs=gold.source == PAIR_LEVEL)
    able = [name for name, look in looks.items() if look.can_tell]
    for name in able:
        if looks[name].margins[1] > 0.0 and advice.word == "continue":
            return replace(advice, word="cannot tell", why=_missing(name, looks[name]), excluded=False)
    few = many - len(able)
    weak = f"{few} of {many} slices have too few labels to tell by themselves"
    return replace(advice, slices=weak if few else f"in each of {many} slices too")


def _is_mix(gold: SliceGold, was: Stretch, now: Stretch) -> bool:
    """Whether most of a fall of gold is due to the shares of environments, and with the shares of then it is excluded
    that as much is lost as counts as a loss.

    Only those that are still there are compared; they must have had nearly all labels of then.
    """
    changes, variance, weight, labels = 0.0, 0.0, 0.0, 0.0
    for name, table in gold.tables.items():
        if name.startswith(FACT):
            continue
        parts = [table.where((table.steps >= one.first) & (table.steps <= one.last)) for one in (was, now)]
        counts = [float(part.counts.sum()) for part in parts]
        labels += counts[0]
        if min(counts) < LEAST:
            continue
        before, after = (float(part.values @ part.counts) / count for part, count in zip(parts, counts, strict=True))
        weight += counts[0]
        changes += counts[0] * (after - before)
        variance += counts[0] ** 2 * sum(SPREAD / count for count in counts)
    if weight < MOST_LABELS * labels or not weight:
        return False
    change, most = changes / weight, max(SHARE * was.mean, LEAST_FALL)
    return change > 0.5 * (now.mean - was.mean) and change - KEPT_Z * sqrt(variance) / weight > -most


def _about_lower(advice: Advice, name: str, look: Look, *, by_pairs: bool) -> Advice:
    assert look.lower_than is not None
    part, lost = look.fallen_from or look.lower_than, _is_lost(look) and not by_pairs
    why = (
        f"gold {slice_words(name)} is lower than at steps {part.first} to {part.last}, where it was {part.mean:.2f}: "
        f"it is {look.now.mean:.2f}"
    )
    if by_pairs:
        why += " in audited pairs; either it has fallen, or solved prompts left the pairs"
    return replace(advice, word="stop" if lost else "cannot tell", why=why, lower=lost, excluded=False, as_of=None)


def _is_lost(look: Look) -> bool:
    """Whether gold has surely fallen, and as much as must be excluded is gone by what `now` shows."""
    return look.fallen_from is not None and look.fallen_from.mean - look.now.mean > look.allowed


def _gap(look: Look) -> float:
    return 0.0 if look.lower_than is None else look.lower_than.mean - look.now.mean


def _missing(name: str, look: Look) -> str:
    """Why a loss in a slice is not excluded, and what would tell."""
    best = look.best
    was = f"{slice_words(name)}, which was {best.mean:.2f} at steps {best.first} to {best.last}"
    if look.more_labels is None:
        return f"a loss of {look.allowed:.2f} of gold {was}, is likely: it is {look.now.mean:.2f}"
    more = f"about {look.more_labels} more labels would tell"
    return f"a loss of {look.allowed:.2f} of gold {was}, is not excluded; {more}"
