"""The sentences and the JSON form of a scorecard: headline, what a policy will learn, fixes and notes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tiltmeter.stats.tails import HEAVY, LIGHT, UpperTail
from tiltmeter_workbench.check_report.tables import people_number
from tiltmeter_workbench.probe.attack_effects import GAPS, SPREADS, Effect, PromptInterval
from tiltmeter_workbench.probe.checks import NOISE
from tiltmeter_workbench.probe.scorecard import Scorecard, finite_or_none


def headline(card: Scorecard) -> str:
    """One sentence."""
    if card.state == "paid":
        named = ", ".join(dict.fromkeys(short_name(effect) for effect in card.own[:3])) or card.broken[0].name
        more = max(len(card.own) - 3, 0)
        return f"{card.reward} pays for {named}" + (f" and {more} more" if more else "")
    if card.refused:
        return f"{card.reward} could not be judged: {card.refused}"
    if card.undecided:
        return f"nothing is paid beyond doubt; {len(card.undecided)} attacks cannot be told on {card.prompts} prompts"
    return f"{card.reward} pays for none of {len(effects_tried(card))} attacks on {card.prompts} prompts"


def effects_tried(card: Scorecard) -> list[Effect]:
    return [effect for effect in card.effects if effect.verdict != "not tried"]


def short_name(effect: Effect) -> str:
    """The attack's name, without a whole sentence in it."""
    name = effect.attack.name
    return name if len(name) <= 48 else f"{name[:47]}…"


def learned_sentences(card: Scorecard) -> list[str]:
    """What a policy will learn from this reward, what is worth most first."""
    first = {effect.attack.learns: effect for effect in reversed(card.own)}
    most = [effect for effect in card.own if first[effect.attack.learns] is effect]
    sentences = [f"A policy will learn {effect.attack.learns}: worth {worth_text(card, effect)}." for effect in most]
    by_length = sum(effect.by_length for effect in card.effects)
    if by_length:
        sentences.append(f"{by_length} other additions are paid as well, but no more than filler of their length.")
    sentences += [f"{check.name}: {check.message}." for check in card.broken]
    if card.units is not None and card.units.gap.prompts and not card.units.separates:
        sentences.append("It will not learn to be right here: right answers are not paid more than wrong ones.")
    if card.tail is not None and card.tail.verdict == HEAVY:
        sentences.append(
            "Its scores have a heavy upper tail: a KL penalty will not hold; bound the reward (rewards.shaped)."
        )
    return sentences


def worth_text(card: Scorecard, effect: Effect) -> str:
    """What an attack is worth, in the unit that says most."""
    units = card.units
    if units is not None and units.separates:
        each = units.gap.mean
        worth = f"{people_number(effect.worth, 2)} of the gap between right and wrong"
        if effect.attack.manner == "instead":
            if effect.worth >= 1.0:
                return f"{worth}: more than a right answer"
            return f"{worth}; a policy right less often gains by it"
        low, high = (people_number(end / each, 2) for end in (effect.change.low, effect.change.high))
        return f"{worth} [{low}, {high}]"
    return f"{people_number(effect.spreads, 2)} standard deviations"


def fixes(card: Scorecard) -> list[str]:
    """What helps, each once."""
    lines = [part for effect in card.own for part in effect.attack.fix.split("; ")]
    if card.broken:
        lines.append("score every text on its own, and answer None where a text cannot be scored")
    if any(each.broken for each in card.search_results if each.kind == "asked"):
        lines.append("rewards.gate behind a check, or rewards.ensemble: it pays for a text without content")
    return list(dict.fromkeys(lines))


def notes(card: Scorecard) -> list[str]:
    """What to know before believing the rest."""
    lines = []
    if card.units is not None:
        lines.append(
            f"Paid: the whole interval is above {SPREADS:g} standard deviations ({card.units.spread:.3g} each)"
            + (f" and {GAPS:.0%} of the right-wrong gap ({card.units.gap.mean:.3g})" if card.units.separates else "")
            + "; an answer put in place of another is paid if it is above the middle of right and wrong. "
            "All intervals hold together with 95 %."
        )
    if moved := [effect for effect in card.controls if _control_moved(card, effect)]:
        lines.append(f"It reacts to an invisible edit ({short_name(moved[0])}): small effects mean little here.")
    lines += [f"{count} texts were left out: {reason}." for reason, count in card.faults.items()]
    lines += [f"{check.name}: {check.message}." for check in card.checks if check.passed is None]
    noise = next((check for check in card.checks if check.name == NOISE), None)
    if noise is not None and noise.passed is False:
        lines.append(noise.message + ".")
    if card.undecided:
        lines.append(
            f"Cannot tell: {', '.join(short_name(effect) for effect in card.undecided[:6])}. Give more prompts."
        )
    return lines


def _control_moved(card: Scorecard, effect: Effect) -> bool:
    limit = card.units.threshold if card.units is not None else math.inf
    return effect.change.low > limit or effect.change.high < -limit


def tail_sentence(tail: UpperTail | None) -> str:
    if tail is None:
        return "too few scores to judge their tail"
    if tail.verdict != tail.verdict:
        return f"the upper tail of the scores could not be judged: {tail.reason}"
    phrases = {HEAVY: "is heavy: a KL penalty will not hold", LIGHT: "is light"}
    phrase = phrases.get(int(tail.verdict), "may be heavy or light: it cannot be told")
    return f"the upper tail of the scores {phrase}" + (f" ({tail.reason})" if tail.reason else "")


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
        "spread": None if card.units is None else finite_or_none(card.units.spread),
        "gap": None if card.units is None else interval_json(card.units.gap),
        "threshold": None if card.units is None else finite_or_none(card.units.threshold),
        "attacks": [_effect(effect) for effect in card.effects],
        "controls": [_effect(effect) for effect in card.controls],
        "doses": [{"times": times, **interval_json(change)} for times, change in card.doses],
        "checks": [{"name": check.name, "kept": check.passed, "told": check.message} for check in card.checks],
        "accuracy": None if card.accuracy is None else dict(_accuracy(card)),
        "search": [
            {key: (finite_or_none(value) if isinstance(value, float) else value) for key, value in vars(each).items()}
            for each in card.search_results
        ],
        "tail": tail_sentence(card.tail) if card.tail is not None else None,
        "samples": None if card.ranking is None else dict(_ranking(card)),
        "faults": card.faults,
        "learned": learned_sentences(card),
        "fixes": fixes(card),
        "notes": notes(card),
    }


def interval_json(estimate: PromptInterval) -> dict[str, Any]:
    low, mean, high = (finite_or_none(value) for value in (estimate.low, estimate.mean, estimate.high))
    return {"mean": mean, "low": low, "high": high, "prompts": estimate.prompts}


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
        **interval_json(effect.change),
        "spreads": finite_or_none(effect.spreads),
        "worth": finite_or_none(effect.worth),
        "gained_share": finite_or_none(effect.gained),
        "missing": effect.missing,
        "beyond_length": None if effect.beyond is None else interval_json(effect.beyond),
        "fix": attack.fix,
        "example": None if example is None else vars(example),
    }


def _accuracy(card: Scorecard) -> Iterator[tuple[str, Any]]:
    accuracy = card.accuracy
    if accuracy is None:
        return
    yield from (("sentence", accuracy.sentence), ("pairs", accuracy.pairs), ("ties", accuracy.ties))
    for name in ("overall", "shorter", "longer"):
        yield name, interval_json(getattr(accuracy, name))
    yield "calibration_error", finite_or_none(accuracy.error)
    yield "calibration_low", finite_or_none(accuracy.error_low)
    yield "calibration_high", finite_or_none(accuracy.error_high)
    yield "reliability", [vars(each) for each in accuracy.bins]


def _ranking(card: Scorecard) -> Iterator[tuple[str, Any]]:
    ranking = card.ranking
    if ranking is None:
        return
    yield from (("sentence", ranking.sentence), ("samples", ranking.samples), ("groups", ranking.groups))
    yield from (
        ("mixed_groups", ranking.mixed),
        ("agreement", interval_json(ranking.agreement)),
        ("peak", ranking.peak),
    )
    yield "fall", interval_json(ranking.fall)
    yield "tail", tail_sentence(ranking.tail)
    yield (
        "curve",
        [
            {
                "n": p.n,
                "chosen": interval_json(p.chosen),
                "oracle": interval_json(p.oracle),
                "random": interval_json(p.random),
            }
            for p in ranking.curve
        ],
    )
