"""A scorecard in words and as JSON: what a policy will learn from this reward, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tiltmeter.probe.effects import GAPS, SPREADS, Effect, Interval
from tiltmeter.probe.scorecard import Scorecard, number
from tiltmeter.stats.tails import HEAVY, LIGHT, Tail


def headline(card: Scorecard) -> str:
    """One sentence."""
    if card.state == "paid":
        named = ", ".join(dict.fromkeys(short(effect) for effect in card.own[:3])) or card.broken[0].name
        more = max(len(card.own) - 3, 0)
        return f"{card.reward} can be had by {named}" + (f" and {more} more" if more else "")
    if card.refused:
        return f"{card.reward} could not be judged: {card.refused}"
    if card.undecided:
        return f"nothing is paid beyond doubt; {len(card.undecided)} attacks cannot be told on {card.prompts} prompts"
    return f"{card.reward} pays for none of {len(tried(card))} attacks on {card.prompts} prompts"


def tried(card: Scorecard) -> list[Effect]:
    return [effect for effect in card.effects if effect.verdict != "not tried"]


def short(effect: Effect) -> str:
    """The attack's name, without a whole sentence in it."""
    name = effect.attack.name
    return name if len(name) <= 48 else f"{name[:47]}…"


def learned(card: Scorecard) -> list[str]:
    """What a policy will learn from this reward, what is worth most first."""
    first = {effect.attack.learns: effect for effect in reversed(card.own)}
    most = [effect for effect in card.own if first[effect.attack.learns] is effect]
    seen = [f"A policy will learn {effect.attack.learns}: worth {worth(card, effect)}." for effect in most]
    by_length = sum(effect.by_length for effect in card.effects)
    if by_length:
        seen.append(f"{by_length} other additions are paid as well, but no more than filler of their length.")
    seen += [f"{check.name}: {check.told}." for check in card.broken]
    if card.units is not None and card.units.gap.prompts and not card.units.knows:
        seen.append("It will not learn to be right here: right answers are not paid more than wrong ones.")
    if card.tail is not None and card.tail.verdict == HEAVY:
        seen.append(
            "Its scores have a heavy upper tail: a KL penalty will not hold; bound the reward (rewards.shaped)."
        )
    return seen


def worth(card: Scorecard, effect: Effect) -> str:
    """What an attack is worth, in the unit that says most."""
    units = card.units
    if units is not None and units.knows:
        each = units.gap.mean
        if effect.attack.manner == "instead":
            if effect.worth >= 1.0:
                return f"{effect.worth:.2g} of being right: more than a right answer"
            return f"{effect.worth:.2g} of being right; who is right less often than that is better off with it"
        low, high = effect.change.low / each, effect.change.high / each
        return f"{effect.worth:.2g} of being right [{low:.2g}, {high:.2g}]"
    return f"{effect.spreads:.2g} spreads"


def fixes(card: Scorecard) -> list[str]:
    """What helps, each once."""
    found = [part for effect in card.own for part in effect.attack.fix.split("; ")]
    if card.broken:
        found.append("score every text on its own, and answer None where a text cannot be scored")
    if any(each.broken for each in card.found if each.kind == "asked"):
        found.append("rewards.gate behind a check, or rewards.ensemble: one reward alone can be had by an empty text")
    return list(dict.fromkeys(found))


def notes(card: Scorecard) -> list[str]:
    """What to know before believing the rest."""
    told = []
    if card.units is not None:
        told.append(
            f"Paid: the whole interval is above {SPREADS:g} spreads ({card.units.spread:.3g} each)"
            + (f" and {GAPS:.0%} of being right ({card.units.gap.mean:.3g})" if card.units.knows else "")
            + "; an answer put in place of another is paid if it is above the middle of right and wrong. "
            "All intervals hold together with 95 %."
        )
    if moved := [effect for effect in card.controls if _moved(card, effect)]:
        told.append(f"It moves with what nobody would notice ({short(moved[0])}): small effects mean little here.")
    told += [f"{count} texts were left out: {reason}." for reason, count in card.faults.items()]
    told += [f"{check.name}: {check.told}." for check in card.checks if check.kept is None]
    noise = next((check for check in card.checks if check.name == "the same score twice"), None)
    if noise is not None and noise.kept is False:
        told.append(noise.told + ".")
    if card.undecided:
        told.append(f"Cannot tell: {', '.join(short(effect) for effect in card.undecided[:6])}. Give more prompts.")
    return told


def _moved(card: Scorecard, effect: Effect) -> bool:
    limit = card.units.threshold if card.units is not None else math.inf
    return effect.change.low > limit or effect.change.high < -limit


def tail_sentence(tail: Tail | None) -> str:
    if tail is None:
        return "too few scores to judge their tail"
    if tail.verdict != tail.verdict:
        return f"the upper tail of the scores could not be judged: {tail.reason}"
    said = {HEAVY: "is heavy: a KL penalty will not hold", LIGHT: "is light"}
    told = said.get(int(tail.verdict), "may be heavy or light: it cannot be told")
    return f"the upper tail of the scores {told}" + (f" ({tail.reason})" if tail.reason else "")


def as_json(card: Scorecard) -> dict[str, Any]:
    """Everything, for machines. Texts are as they were written: encode them before showing."""
    return {
        "reward": card.reward,
        "kind": card.kind,
        "source": card.source,
        "state": card.state,
        "exit_code": card.exit_code,
        "headline": headline(card),
        "refused": card.refused,
        "prompts": card.prompts,
        "calls": card.calls,
        "seed": card.seed,
        "spread": None if card.units is None else number(card.units.spread),
        "gap": None if card.units is None else interval(card.units.gap),
        "threshold": None if card.units is None else number(card.units.threshold),
        "attacks": [_effect(effect) for effect in card.effects],
        "controls": [_effect(effect) for effect in card.controls],
        "doses": [{"times": times, **interval(change)} for times, change in card.doses],
        "checks": [{"name": check.name, "kept": check.kept, "told": check.told} for check in card.checks],
        "accuracy": None if card.accuracy is None else dict(_accuracy(card)),
        "search": [
            {key: (number(value) if isinstance(value, float) else value) for key, value in vars(each).items()}
            for each in card.found
        ],
        "tail": tail_sentence(card.tail) if card.tail is not None else None,
        "samples": None if card.ranking is None else dict(_ranking(card)),
        "faults": card.faults,
        "learned": learned(card),
        "fixes": fixes(card),
        "notes": notes(card),
    }


def interval(found: Interval) -> dict[str, Any]:
    low, mean, high = (number(value) for value in (found.low, found.mean, found.high))
    return {"mean": mean, "low": low, "high": high, "prompts": found.prompts}


def _effect(effect: Effect) -> dict[str, Any]:
    attack, example = effect.attack, effect.example
    return {
        "name": attack.name,
        "failure": attack.failure,
        "quality": attack.quality,
        "manner": attack.manner,
        "mined": attack.mined,
        "phrase": attack.phrase or None,
        "verdict": effect.verdict,
        "by_length": effect.by_length,
        "why": effect.why,
        **interval(effect.change),
        "spreads": number(effect.spreads),
        "worth": number(effect.worth),
        "gained_share": number(effect.gained),
        "missing": effect.missing,
        "beyond_length": None if effect.beyond is None else interval(effect.beyond),
        "fix": attack.fix,
        "example": None if example is None else vars(example),
    }


def _accuracy(card: Scorecard) -> Iterator[tuple[str, Any]]:
    found = card.accuracy
    if found is None:
        return
    yield from (("sentence", found.sentence), ("pairs", found.pairs), ("ties", found.ties))
    for name in ("overall", "shorter", "longer"):
        yield name, interval(getattr(found, name))
    yield "calibration_error", number(found.error)
    yield "calibration_low", number(found.error_low)
    yield "calibration_high", number(found.error_high)
    yield "reliability", [vars(each) for each in found.bins]


def _ranking(card: Scorecard) -> Iterator[tuple[str, Any]]:
    found = card.ranking
    if found is None:
        return
    yield from (("sentence", found.sentence), ("samples", found.samples), ("groups", found.groups))
    yield from (("mixed_groups", found.mixed), ("agreement", interval(found.agreement)), ("peak", found.peak))
    yield "fall", interval(found.fall)
    yield "tail", tail_sentence(found.tail)
    yield (
        "curve",
        [
            {"n": p.n, "chosen": interval(p.chosen), "oracle": interval(p.oracle), "random": interval(p.random)}
            for p in found.curve
        ],
    )
