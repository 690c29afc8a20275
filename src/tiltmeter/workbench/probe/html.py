"""Render a scorecard as one HTML file: no script, no network requests, all model text escaped."""

from __future__ import annotations

import math

from tiltmeter.workbench.common.html_report import bar as draw_interval
from tiltmeter.workbench.common.html_report import html_page, list_section, scroll_region, text
from tiltmeter.workbench.probe.attack_effects import Effect, PromptInterval
from tiltmeter.workbench.probe.best_of_n import Ranking
from tiltmeter.workbench.probe.scorecard import Scorecard
from tiltmeter.workbench.probe.scorecard_text import (
    effects_tried,
    fixes,
    headline,
    learned_sentences,
    notes,
    tail_sentence,
    worth_text,
)

WORDS = {"paid": "Something is paid", "not paid": "Nothing is paid", "cannot tell": "Cannot tell"}
EXAMPLES = 6


def render_html(card: Scorecard) -> str:
    """The whole file."""
    parts = [
        _head(card),
        _learned(card),
        _attacks(card),
        _examples(card),
        _doses(card),
        _known_facts(card),
        _search(card),
    ]
    if card.ranking is not None:
        parts.append(_samples(card.ranking))
    body = "\n".join(part for part in (*parts, list_section("Notes", notes(card))) if part)
    return html_page(f"{WORDS[card.state]} - {card.reward}", body, "probe/scorecard.css")


def _head(card: Scorecard) -> str:
    kind = card.state.replace(" ", "-")
    where = f"{card.kind} · {card.prompts} prompts from {card.source} · {card.calls:,} texts scored · seed {card.seed}"
    return (
        f'<header><p class="state {kind}">{WORDS[card.state]}</p><h1>{text(card.reward)}</h1>'
        f'<p class="lead">{text(headline(card))}</p><p class="small">{text(where)}</p></header>'
    )


def _learned(card: Scorecard) -> str:
    sentences = learned_sentences(card)
    first = list_section("What a policy will learn from this reward", sentences, "ol") if sentences else ""
    return first + list_section("What helps", fixes(card))


def _attacks(card: Scorecard) -> str:
    """A row and a bar for each attack, what is worth most first."""
    effects = sorted(effects_tried(card), key=lambda effect: -_finite_or(effect.spreads, -math.inf))
    if not effects or card.units is None:
        return ""
    each = card.units.spread
    reach = max(
        0.5, *(max(abs(_finite_or(e.change.low, 0.0)), abs(_finite_or(e.change.high, 0.0))) / each for e in effects)
    )
    rows = "".join(_row(card, effect, reach) for effect in effects)
    untried = [effect for effect in card.effects if effect.verdict == "not tried"]
    untried_note = f'<p class="small">Not tried: {text("; ".join(f"{e.attack.name} ({e.why})" for e in untried))}.</p>'
    table = (
        "<table><thead><tr><th>attack</th><th>leads to</th><th>change in standard deviations</th><th></th>"
        f"<th>worth</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table>"
    )
    return (
        "<section><h2>Attacks</h2><p class=small>Change of the score in standard deviations, with an interval that "
        "holds for all attacks at once. The dashed line is where a change counts as paid.</p>"
        f"{scroll_region(table, 'Attacks')}{untried_note if untried else ''}</section>"
    )


def _row(card: Scorecard, effect: Effect, reach: float) -> str:
    units = card.units
    assert units is not None  # asked by _attacks
    limit = 0.0 if effect.attack.manner == "instead" else units.threshold / units.spread
    verdict = f"{effect.verdict}, by its length" if effect.by_length else effect.verdict
    kind = effect.verdict.replace(" ", "-")
    return (
        f"<tr><td>{text(effect.attack.name, 60)}</td><td>{text(effect.attack.failure)}</td>"
        f"<td>{interval_bar(effect.change, units.spread, reach, limit, kind)}</td>"
        f'<td class="number">{effect.spreads:+.2f}</td>'
        f'<td class="number">{"–" if math.isnan(effect.worth) else f"{effect.worth:+.2f}"}</td>'
        f'<td><span class="chip {kind}">{text(verdict)}</span></td></tr>'
    )


def interval_bar(change: PromptInterval, unit: float, reach: float, limit: float, kind: str) -> str:
    """An interval on a line with its zero and its threshold."""
    mean = change.mean / unit
    low, high = (_finite_or(end / unit, mean) for end in (change.low, change.high))
    label = f"{mean:+.2f} standard deviations"
    return draw_interval(mean, low, high, ends=(-reach, reach), zero=0.0, limits=(limit,), kind=kind, label=label)


def _examples(card: Scorecard) -> str:
    """The answers that gained most by what is paid for itself."""
    effects = [effect for effect in card.own if effect.example is not None][:EXAMPLES]
    parts = []
    for effect in effects:
        example = effect.example
        assert example is not None  # just filtered
        parts.append(
            f"<article><h3>{text(effect.attack.name, 90)}</h3>"
            f'<p class="small">worth {text(worth_text(card, effect))}; '
            f"answer: {effect.attack.quality} by construction</p>"
            f"<dl><dt>prompt</dt><dd>{text(example.prompt)}</dd>"
            f"<dt>{example.score_before:+.3g}</dt><dd>{text(example.before)}</dd>"
            f'<dt class="gain">{example.score_after:+.3g}</dt><dd>{text(example.after)}</dd></dl></article>'
        )
    return f"<section><h2>Worst examples</h2>{''.join(parts)}</section>" if parts else ""


def _doses(card: Scorecard) -> str:
    if not card.doses or card.units is None:
        return ""
    unit = card.units.spread
    reach = max(0.5, *(max(abs(_finite_or(c.low, 0.0)), abs(_finite_or(c.high, 0.0))) / unit for _, c in card.doses))
    limit = card.units.threshold / unit
    rows = "".join(
        f"<tr><td>{times:g} times as long</td><td>{interval_bar(change, unit, reach, limit, 'plain')}</td>"
        f'<td class="number">{change.mean / unit:+.2f} [{change.low / unit:+.2f}, {change.high / unit:+.2f}]</td></tr>'
        for times, change in card.doses
    )
    return (
        '<section><h2>Effect of length</h2><p class="small">The right answer padded with filler; standard '
        f"deviations, with separate 95 % intervals.</p><table><tbody>{rows}</tbody></table></section>"
    )


def _known_facts(card: Scorecard) -> str:
    """Accuracy, calibration, checks and tail."""
    lines = []
    accuracy = card.accuracy
    if accuracy is not None:
        lines.append(
            f"{accuracy.sentence} [{accuracy.overall.low:.1%}, {accuracy.overall.high:.1%}]; {accuracy.ties} ties"
        )
        for name, part in (("shorter", accuracy.shorter), ("longer", accuracy.longer)):
            if part.prompts:
                lines.append(f"{part.mean:.1%} where the preferred answer is the {name} one ({part.prompts} prompts)")
    lines += [f"{check.name}: {check.message}" for check in card.checks]
    lines.append(tail_sentence(card.tail))
    table = ""
    if accuracy is not None and accuracy.bins:
        rows = "".join(
            f'<tr><td class="number">{each.predicted:.1%}</td><td class="number">{each.observed:.1%}</td>'
            f'<td class="number">{each.pairs}</td></tr>'
            for each in accuracy.bins
        )
        table = (
            f"<p>Calibration error {accuracy.error:.3f} [{accuracy.error_low:.3f}, {accuracy.error_high:.3f}]: what "
            "sigmoid(margin) says against what was preferred.</p><table class=narrow>"
            "<thead><tr><th>predicted</th><th>observed</th>"
            f"<th>pairs</th></tr></thead><tbody>{rows}</tbody></table>"
        )
    return list_section("Accuracy and checks", lines).replace("</section>", f"{table}</section>")


def _search(card: Scorecard) -> str:
    parts = []
    for each in card.search_results:
        how = "put together from pieces" if each.kind == "asked" else "found with the model's gradient; no verdict"
        parts.append(
            f"<article><h3>{text(how)}</h3><p>Paid more than the right answer in {each.beats:.0%} "
            f"[{each.low:.0%}, {each.high:.0%}] of {each.prompts} prompts that the search never saw; {each.before:.0%} "
            f"before it began. {each.calls:,} texts scored.</p><pre>{text(each.text)}</pre></article>"
        )
    return f"<section><h2>Search: a worthless answer that is paid</h2>{''.join(parts)}</section>" if parts else ""


def _samples(ranking: Ranking) -> str:
    rows = "".join(
        f'<tr><td class="number">{point.n}</td>'
        + "".join(
            f'<td class="number">{part.mean:.3f} [{part.low:.3f}, {part.high:.3f}]</td>'
            for part in (point.chosen, point.oracle, point.random)
        )
        + "</tr>"
        for point in ranking.curve
    )
    agree = ranking.agreement
    table = (
        "<table><thead><tr><th>best of n</th><th>by the score</th><th>by an oracle</th><th>at random</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    return (
        f"<section><h2>Scored samples</h2><p>{text(ranking.sentence)}. Right before wrong in {agree.mean:.3f} "
        f"[{agree.low:.3f}, {agree.high:.3f}] of the pairs inside a group; {ranking.mixed} of {ranking.groups} groups "
        f"have both. {text(tail_sentence(ranking.tail))}.</p>{scroll_region(table, 'Scored samples')}</section>"
    )


def _finite_or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
