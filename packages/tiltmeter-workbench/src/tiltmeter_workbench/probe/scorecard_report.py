"""A scorecard and a verifier's audit as the report that every screen shows."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tiltmeter.stats.tails import HEAVY, LIGHT, UpperTail
from tiltmeter_workbench.check_report.report import Axis, Check, CheckGroup, Example, Report
from tiltmeter_workbench.probe.attack_effects import Effect, PromptInterval, Scale
from tiltmeter_workbench.probe.audit import Audit
from tiltmeter_workbench.probe.best_of_n import Ranking
from tiltmeter_workbench.probe.checks import NOISE, RewardCheck
from tiltmeter_workbench.probe.scorecard import Scorecard
from tiltmeter_workbench.probe.scorecard_text import (
    effects_tried,
    fixes,
    headline,
    learned_sentences,
    notes,
    tail_sentence,
    worth_text,
)

LABELS = {"paid": "Something is paid", "not paid": "Nothing is paid", "cannot tell": "Cannot tell"}
AUDIT_LABELS = {
    "none paid": "No forgery was paid, and every check held.",
    "some paid": "This reward can be paid without doing the work.",
    "could not judge": "This reward could not be judged.",
}
NETWORK = {"denied": "", "on": " The network was on."}
EXAMPLES = 6  # attacks of which the worst example is shown
ROWS = 12  # attacks on a terminal: what is paid is shown whole, what is not the nearest to it
SHARE = Axis(0.0, 0.5, 1.0)


def as_report(card: Scorecard) -> Report:
    """The scorecard: attacks, the effect of length, accuracy and properties, searches, scored samples."""
    groups = [CheckGroup("Accuracy and checks", list(_properties(card))), *_searches(card), *_samples(card.ranking)]
    if card.units is not None and card.units.spread > 0.0:  # else nothing was tried
        groups = [*_attacks(card, card.units), *_doses(card, card.units), *groups]
    untried = [f"{effect.attack.name} ({effect.why})" for effect in card.effects if effect.verdict == "not tried"]
    return Report(
        card.reward,
        card.state,
        LABELS[card.state],
        headline(card),
        groups,
        f"{card.kind} · {card.prompts} prompts from {card.source} · {card.calls:,} texts scored · seed {card.seed}",
        fixes(card),
        {"What a policy will learn from this reward": learned_sentences(card)},
        {"Not tried": untried, "Notes": notes(card)},
    )


def _attacks(card: Scorecard, units: Scale) -> Iterator[CheckGroup]:
    """A check for each attack, what is worth most first."""
    effects = sorted(effects_tried(card), key=lambda effect: -_finite_or(effect.spreads, -math.inf))
    reach = _reach([effect.change for effect in effects], units)
    with_example = [effect for effect in card.own if effect.example is not None][:EXAMPLES]
    note = (
        "Change of the score in standard deviations, with an interval that holds for all attacks at once. Dashed: "
        "where a change counts as paid."
    )
    checks = [_attack(card, effect, units, reach, effect in with_example) for effect in effects]
    yield CheckGroup("Attacks", checks, note, "attack", "change, SDs", ROWS)


def _attack(card: Scorecard, effect: Effect, units: Scale, reach: float, with_example: bool) -> Check:
    limit = 0.0 if effect.attack.manner == "instead" else units.threshold / units.spread
    example = effect.example
    texts = {} if example is None else {
        "prompt": example.prompt,
        f"before, {example.score_before:+.3g}": example.before,
        f"after, {example.score_after:+.3g}": example.after,
    }  # fmt: skip
    why = f"worth {worth_text(card, effect)}; answer: {effect.attack.quality} by construction"
    return Check(
        effect.attack.name,
        f"{effect.verdict}, by its length" if effect.by_length else effect.verdict,
        effect.why,
        *_in_spreads(effect.change, units),
        fix=effect.attack.fix,
        examples=[Example(texts, why)] if with_example else (),
        columns={"leads to": effect.attack.failure, "of gap": effect.worth},
        axis=Axis(-reach, 0.0, reach, (limit,)),
        signed=True,
    )


def _doses(card: Scorecard, units: Scale) -> Iterator[CheckGroup]:
    reach = _reach([change for _, change in card.doses], units)
    axis = Axis(-reach, 0.0, reach, (units.threshold / units.spread,))
    note = "The right answer padded with filler; standard deviations, with separate 95 % intervals."
    checks = [
        Check(f"{times:g} times as long", "shown", "", *_in_spreads(change, units), axis=axis, signed=True)
        for times, change in card.doses
    ]
    yield CheckGroup("Effect of length", checks, note, "answer", "change, SDs")


def _properties(card: Scorecard) -> Iterator[Check]:
    """Accuracy, calibration, checks and tail."""
    accuracy = card.accuracy
    if accuracy is not None:
        parts = (("the shorter one", accuracy.shorter), ("the longer one", accuracy.longer))
        rows = [
            {"the preferred answer is": name, "in the right order": list(part[:3]), "prompts": part.prompts}
            for name, part in parts
            if part.prompts
        ]
        yield Check(
            "accuracy", "shown", f"{accuracy.sentence}; {accuracy.ties} ties", *accuracy.overall[:3],
            "of pairs in the right order", rows=rows, axis=SHARE,
        )  # fmt: skip
    if accuracy is not None and accuracy.bins:
        bins = [{"predicted": each.predicted, "observed": each.observed, "pairs": each.pairs} for each in accuracy.bins]
        yield Check(
            "calibration", "shown", "What sigmoid(margin) says against what was preferred.", accuracy.error,
            accuracy.error_low, accuracy.error_high, "calibration error", rows=bins, axis=Axis(0.0, 0.0, 1.0),
        )  # fmt: skip
    yield from (Check(check.name, _property_state(check), check.message) for check in card.checks)
    yield Check("upper tail of the scores", _tail_state(card.tail), tail_sentence(card.tail))


def _property_state(check: RewardCheck) -> str:
    # Noise is no failure: the intervals account for it.
    return {True: "passed", False: "note" if check.name == NOISE else "failed", None: "not tested"}[check.passed]


def _tail_state(tail: UpperTail | None) -> str:
    if tail is None or tail.verdict != tail.verdict:
        return "cannot tell"
    return {HEAVY: "heavy", LIGHT: "light"}.get(int(tail.verdict), "cannot tell")


def _searches(card: Scorecard) -> Iterator[CheckGroup]:
    checks = []
    for each in card.search_results:
        by_pieces = each.kind == "asked"  # the gradient has no verdict: no policy can follow it
        sentence = (
            f"Paid more than the right answer in {each.beats:.0%} [{each.low:.0%}, {each.high:.0%}] of {each.prompts} "
            f"prompts that the search never saw; {each.before:.0%} before it began. {each.calls:,} texts scored. The "
            f"text: {each.text}"
        )
        name = "put together from pieces" if by_pieces else "found with the model's gradient; no verdict"
        checks.append(
            Check(name, "paid" if by_pieces and each.broken else "shown", sentence, each.beats, each.low, each.high,
                  "of unseen prompts", axis=SHARE)
        )  # fmt: skip
    yield CheckGroup("Search: a worthless answer that is paid", checks, noun="search")


def _samples(ranking: Ranking | None) -> Iterator[CheckGroup]:
    if ranking is None:
        return
    rows = [
        {
            "best of n": point.n,
            "by the score": list(point.chosen[:3]),
            "by an oracle": list(point.oracle[:3]),
            "at random": list(point.random[:3]),
        }
        for point in ranking.curve
    ]
    sentence = (
        f"{ranking.sentence}; {ranking.mixed} of {ranking.groups} groups have right and wrong samples; "
        f"{tail_sentence(ranking.tail)}."
    )
    unit = "of pairs inside a group with right before wrong"
    check = Check("best of n", "shown", sentence, *ranking.agreement[:3], unit, rows=rows, axis=SHARE)
    yield CheckGroup("Scored samples", [check])


def _in_spreads(change: PromptInterval, units: Scale) -> tuple[float, float, float]:
    return change.mean / units.spread, change.low / units.spread, change.high / units.spread


def _reach(changes: list[PromptInterval], units: Scale) -> float:
    """How far an axis reaches to hold every interval, in standard deviations."""
    ends = [abs(_finite_or(end, 0.0)) / units.spread for change in changes for end in (change.low, change.high)]
    return max(0.5, *ends) if ends else 0.5


def _finite_or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other


def audit_as_report(result: Audit) -> Report:
    """A verifier's audit: what was paid without the work being done, and which checks held."""
    forgeries = [
        Check(
            row.forgery, row.status, f"{row.paid} of {row.tasks} tasks. {row.why}", fix=row.fix,
            examples=() if row.status == "not paid" else [Example({"text": row.text})],
        )
        for row in result.tried
    ]  # fmt: skip
    words = {True: "held", False: "failed", None: "not seen"}
    checks = [Check(check.name, words[check.ok], check.says, fix=check.fix) for check in result.checks]
    groups = [
        CheckGroup("Can it be paid without doing the work?", _good_last(forgeries), noun="forgery"),
        CheckGroup("Checks", _good_last(checks)),
    ]
    network = NETWORK.get(result.network, f" The network {result.network}." if result.network else "")
    return Report(
        result.reward,
        result.verdict,
        AUDIT_LABELS[result.verdict],
        result.why or AUDIT_LABELS[result.verdict],
        groups,
        f"{result.judged} of {result.tasks} tasks tell right from wrong.{network} {result.seconds:.0f} s",
        [f"{check.name}: {check.fix}" for check in (*forgeries, *checks) if check.fix and check.tone != "good"],
    )


def _good_last(checks: list[Check]) -> list[Check]:
    return sorted(checks, key=lambda check: check.tone == "good")
