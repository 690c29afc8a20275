"""A scorecard as one HTML file: no script, nothing asked of anybody, everything a model wrote shown and inert."""

from __future__ import annotations

import math

from tiltmeter.probe.bestofn import Ranking
from tiltmeter.probe.effects import Effect, Interval
from tiltmeter.probe.scorecard import Scorecard
from tiltmeter.probe.telling import fixes, headline, learned, notes, tail_sentence, tried, worth
from tiltmeter.sheet import bar as drawn
from tiltmeter.sheet import framed, listed, text, wide

WORDS = {"paid": "Something is paid", "not paid": "Nothing is paid", "cannot tell": "Cannot tell"}
EXAMPLES = 6


def page(card: Scorecard) -> str:
    """The whole file."""
    parts = [_head(card), _learned(card), _attacks(card), _examples(card), _doses(card), _knows(card), _search(card)]
    if card.ranking is not None:
        parts.append(_samples(card.ranking))
    body = "\n".join(part for part in (*parts, listed("Before you believe it", notes(card))) if part)
    return framed(f"{WORDS[card.state]} - {card.reward}", body, "probe/scorecard.css")


def _head(card: Scorecard) -> str:
    kind = card.state.replace(" ", "-")
    where = f"{card.kind} · {card.prompts} prompts from {card.source} · {card.calls:,} texts scored · seed {card.seed}"
    return (
        f'<header><p class="state {kind}">{WORDS[card.state]}</p><h1>{text(card.reward)}</h1>'
        f'<p class="lead">{text(headline(card))}</p><p class="small">{text(where)}</p></header>'
    )


def _learned(card: Scorecard) -> str:
    told = learned(card)
    first = listed("What a policy will learn from this reward", told, "ol") if told else ""
    return first + listed("What helps", fixes(card))


def _attacks(card: Scorecard) -> str:
    """A row and a bar for each attack, what is worth most first."""
    shown = sorted(tried(card), key=lambda effect: -_or(effect.spreads, -math.inf))
    if not shown or card.units is None:
        return ""
    each = card.units.spread
    reach = max(0.5, *(max(abs(_or(e.change.low, 0.0)), abs(_or(e.change.high, 0.0))) / each for e in shown))
    rows = "".join(_row(card, effect, reach) for effect in shown)
    untried = [effect for effect in card.effects if effect.verdict == "not tried"]
    left = f'<p class="small">Not tried: {text("; ".join(f"{e.attack.name} ({e.why})" for e in untried))}.</p>'
    table = (
        "<table><thead><tr><th>attack</th><th>leads to</th><th>change in spreads</th><th></th>"
        f"<th>worth</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table>"
    )
    return (
        "<section><h2>Attacks</h2><p class=small>Change of the score in units of its own spread, with an interval that "
        "holds for all attacks at once. The dashed line is where a change counts as paid.</p>"
        f"{wide(table, 'Attacks')}{left if untried else ''}</section>"
    )


def _row(card: Scorecard, effect: Effect, reach: float) -> str:
    units = card.units
    assert units is not None  # asked by _attacks
    limit = 0.0 if effect.attack.manner == "instead" else units.threshold / units.spread
    said = f"{effect.verdict}, by its length" if effect.by_length else effect.verdict
    kind = effect.verdict.replace(" ", "-")
    return (
        f"<tr><td>{text(effect.attack.name, 60)}</td><td>{text(effect.attack.failure)}</td>"
        f"<td>{bar(effect.change, units.spread, reach, limit, kind)}</td>"
        f'<td class="number">{effect.spreads:+.2f}</td>'
        f'<td class="number">{"–" if math.isnan(effect.worth) else f"{effect.worth:+.2f}"}</td>'
        f'<td><span class="chip {kind}">{text(said)}</span></td></tr>'
    )


def bar(change: Interval, unit: float, reach: float, limit: float, kind: str) -> str:
    """An interval on a line with its zero and its threshold."""
    mean = change.mean / unit
    low, high = (_or(end / unit, mean) for end in (change.low, change.high))
    told = f"{mean:+.2f} spreads"
    return drawn(mean, low, high, ends=(-reach, reach), zero=0.0, limits=(limit,), kind=kind, told=told)


def _examples(card: Scorecard) -> str:
    """The answers that gained most by what is paid for itself."""
    shown = [effect for effect in card.own if effect.example is not None][:EXAMPLES]
    parts = []
    for effect in shown:
        example = effect.example
        assert example is not None  # just filtered
        parts.append(
            f"<article><h3>{text(effect.attack.name, 90)}</h3>"
            f'<p class="small">worth {text(worth(card, effect))}; answer: {effect.attack.quality} by construction</p>'
            f"<dl><dt>prompt</dt><dd>{text(example.prompt)}</dd>"
            f"<dt>{example.score_before:+.3g}</dt><dd>{text(example.before)}</dd>"
            f'<dt class="gain">{example.score_after:+.3g}</dt><dd>{text(example.after)}</dd></dl></article>'
        )
    return f"<section><h2>Worst examples</h2>{''.join(parts)}</section>" if parts else ""


def _doses(card: Scorecard) -> str:
    if not card.doses or card.units is None:
        return ""
    unit = card.units.spread
    reach = max(0.5, *(max(abs(_or(c.low, 0.0)), abs(_or(c.high, 0.0))) / unit for _, c in card.doses))
    limit = card.units.threshold / unit
    rows = "".join(
        f"<tr><td>{times:g} times as long</td><td>{bar(change, unit, reach, limit, 'plain')}</td>"
        f'<td class="number">{change.mean / unit:+.2f} [{change.low / unit:+.2f}, {change.high / unit:+.2f}]</td></tr>'
        for times, change in card.doses
    )
    return (
        '<section><h2>Length, dose by dose</h2><p class="small">The right answer padded with filler; spreads, with '
        f"95 % intervals of their own.</p><table><tbody>{rows}</tbody></table></section>"
    )


def _knows(card: Scorecard) -> str:
    """Accuracy, calibration, what it owes, tail."""
    lines = []
    found = card.accuracy
    if found is not None:
        lines.append(f"{found.sentence} [{found.overall.low:.1%}, {found.overall.high:.1%}]; {found.ties} ties")
        for name, part in (("shorter", found.shorter), ("longer", found.longer)):
            if part.prompts:
                lines.append(f"{part.mean:.1%} where the preferred answer is the {name} one ({part.prompts} prompts)")
    lines += [f"{check.name}: {check.told}" for check in card.checks]
    lines.append(tail_sentence(card.tail))
    table = ""
    if found is not None and found.bins:
        rows = "".join(
            f'<tr><td class="number">{each.predicted:.1%}</td><td class="number">{each.observed:.1%}</td>'
            f'<td class="number">{each.pairs}</td></tr>'
            for each in found.bins
        )
        table = (
            f"<p>Calibration error {found.error:.3f} [{found.error_low:.3f}, {found.error_high:.3f}]: what "
            "sigmoid(margin) says against what was preferred.</p><table class=narrow>"
            "<thead><tr><th>predicted</th><th>observed</th>"
            f"<th>pairs</th></tr></thead><tbody>{rows}</tbody></table>"
        )
    return listed("What it knows and owes", lines).replace("</section>", f"{table}</section>")


def _search(card: Scorecard) -> str:
    parts = []
    for each in card.found:
        how = "put together from pieces" if each.kind == "asked" else "found with the model's gradient; no verdict"
        parts.append(
            f"<article><h3>{text(how)}</h3><p>Paid more than the right answer in {each.beats:.0%} "
            f"[{each.low:.0%}, {each.high:.0%}] of {each.prompts} prompts that the search never saw; {each.before:.0%} "
            f"before it began. {each.calls:,} texts scored.</p><pre>{text(each.text)}</pre></article>"
        )
    return f"<section><h2>Searched for: a worthless answer that pays</h2>{''.join(parts)}</section>" if parts else ""


def _samples(found: Ranking) -> str:
    rows = "".join(
        f'<tr><td class="number">{point.n}</td>'
        + "".join(
            f'<td class="number">{part.mean:.3f} [{part.low:.3f}, {part.high:.3f}]</td>'
            for part in (point.chosen, point.oracle, point.random)
        )
        + "</tr>"
        for point in found.curve
    )
    agree = found.agreement
    table = (
        "<table><thead><tr><th>best of n</th><th>by the score</th><th>by an oracle</th><th>at random</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
    return (
        f"<section><h2>Scored samples</h2><p>{text(found.sentence)}. Right before wrong in {agree.mean:.3f} "
        f"[{agree.low:.3f}, {agree.high:.3f}] of the pairs inside a group; {found.mixed} of {found.groups} groups have "
        f"both. {text(tail_sentence(found.tail))}.</p>{wide(table, 'Scored samples')}</section>"
    )


def _or(value: float, other: float) -> float:
    return value if math.isfinite(value) else other
