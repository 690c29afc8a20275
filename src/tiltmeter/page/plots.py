"""The plots of a run's overview: truth, what paid, diversity, KL and length, each with the sentence that says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tiltmeter.advice import SOURCES
from tiltmeter.page.book import Book, Readings
from tiltmeter.page.readings import lacking
from tiltmeter.page.series import POINTS, Range, Wanted, drawn, empty_panel
from tiltmeter.page.truth import truth

BASE = 5  # steps whose mean a change is counted from
COMPONENTS = 8  # drawn: those that changed most
COMPONENT = "reward.component."

OTHERS = (
    *("reward.mean", "gold.slope", "policy.kl_root", "training.beta", "training.checkpoint"),
    *("length.mean", "length.truncated_share"),
)

#: Each strip: the reading and its name in plain words, with its unit.
STRIPS = (
    ("policy.entropy", "entropy (nats a token)"),
    ("diversity.distinct_3", "distinct 3-grams (share)"),
    ("diversity.self_bleu", "self-BLEU (0 to 1, high: alike)"),
    ("diversity.answer_classes.count", "different answers a group (count)"),
)
#: Three KLs that must not be mistaken for one another, and the largest gap of a single token.
DISTANCES = (
    ("policy.kl.k3", "KL to the reference, k3 (nats a completion)"),
    ("policy.kl_tokens.worst", "largest log-ratio of a token (nats)"),
    ("policy.kl_old", "KL old to new policy (nats a token)"),
    ("engine.gap.k3", "KL engine to trainer (nats a completion)"),
)


def plots(book: Book, low: int | None = None, high: int | None = None, points: int = POINTS) -> dict[str, Any]:
    """All plots that readings alone can draw; those of the rollouts themselves are in `geometry`."""
    with book.lock:
        within = Range(low, high)
        book.columns.gather(drawable(book))
        panels = {
            "truth": truth(book, within, points),
            "paid": paid(book, within, points),
            "diversity": diversity(book, within, points),
            "kl": distance(book, within, points),
            "length": length(book, within, points),
        }
    steps = [panel["steps"] for panel in panels.values() if panel["steps"]]
    return {
        "from": min((shown[0] for shown in steps), default=0) if low is None else low,
        "to": max((shown[-1] for shown in steps), default=0) if high is None else high,
        **panels,
    }


def drawable(book: Book) -> list[str]:
    """Every reading that one of the plots may draw, so that all are read at once."""
    names = [name for name in book.columns.names() if name.startswith((COMPONENT, "eval."))]
    return [*OTHERS, *SOURCES, *(name for name, _ in (*STRIPS, *DISTANCES)), *names]


def paid(book: Book, within: Range, points: int = POINTS) -> dict[str, Any]:
    """What the reward pays for: the change of each component since the first steps, the total first."""
    title = "What paid"
    total = book.columns.line("reward.mean")
    if not len(total.steps):
        return dict(empty_panel(title, lacking(book, "reward.mean", "reward")))
    changes = {name: change(book.columns.line(name)) for name in components(book)}
    most = sorted(changes, key=lambda name: -abs(changes[name]))[:COMPONENTS]
    wanted = [Wanted("reward.mean", "total", minus=base(total))]
    wanted += [Wanted(name, name.removeprefix(COMPONENT), minus=base(book.columns.line(name))) for name in most]
    told = [f"{name.removeprefix(COMPONENT)} {changes[name]:+.3g}" for name in most]
    sentence = f"Since the first {BASE} steps the reward changed by {change(total):+.3g}"
    sentence += f": {', '.join(told)}." if told else "; it has one part, so nothing says what paid."
    if len(changes) > len(most):
        sentence += f" {len(changes) - len(most)} more that changed less are not drawn."
    return panel(title, sentence, drawn(book, wanted, within, points), left="change of reward since the start")


def diversity(book: Book, within: Range, points: int = POINTS) -> dict[str, Any]:
    """Whether completions become alike: one strip for each measure, on a scale of its own."""
    title = "Entropy and diversity"
    found = [(name, label) for name, label in STRIPS if len(book.columns.line(name).steps)]
    if not found:
        return dict(empty_panel(title, lacking(book, STRIPS[0][0], "entropy")))
    told = [f"{label} {move(book.columns.line(name))}" for name, label in found]
    sentence = f"From the first {BASE} steps to the last {BASE}: {'; '.join(told)}."
    wanted = [Wanted(name, label) for name, label in found]
    return panel(title, sentence, drawn(book, wanted, within, points), left="each strip on its own scale")


def distance(book: Book, within: Range, points: int = POINTS) -> dict[str, Any]:
    """How far the policy has gone from the reference, and how hard it is held."""
    title = "KL and beta"
    found = [(name, label) for name, label in DISTANCES if len(book.columns.line(name).steps)]
    if not found:
        return dict(empty_panel(title, lacking(book, "policy.kl.k3", "ref_logprob")))
    told = [f"{label} {move(book.columns.line(name))}" for name, label in found]
    wanted = [Wanted(name, label) for name, label in found]
    beta = book.columns.line("training.beta")
    if len(beta.steps):
        wanted.append(Wanted("training.beta", "beta", "right", "beta"))
        told.append(f"beta {float(beta.values[0]):.3g} to {float(beta.values[-1]):.3g}")
    if found[0][0] != "policy.kl.k3":
        told.append(lacking(book, "policy.kl.k3", "ref_logprob"))
    sentence = f"From the first {BASE} steps to the last {BASE}: {'; '.join(told)}."
    right = "beta" if len(beta.steps) else ""
    return panel(title, sentence, drawn(book, wanted, within, points), left="nats, logarithmic", right=right, log=True)


def length(book: Book, within: Range, points: int = POINTS) -> dict[str, Any]:
    """How long completions are, and how many are cut off."""
    title = "Length"
    line = book.columns.line("length.mean")
    if not len(line.steps):
        return dict(empty_panel(title, lacking(book, "length.mean", "length")))
    wanted = [Wanted("length.mean", "mean length", interval=True)]
    sentence = f"Completions went from {early(line):.4g} to {late(line):.4g} tokens"
    cut = book.columns.line("length.truncated_share")
    if len(cut.steps):
        wanted.append(Wanted("length.truncated_share", "share cut at the limit", "right"))
        sentence += f"; {late(cut):.0%} are cut at the limit, {early(cut):.0%} were"
    right = "share cut off" if len(cut.steps) else ""
    return panel(title, f"{sentence}.", drawn(book, wanted, within, points), left="tokens", right=right)


def panel(
    title: str, sentence: str, lines: Mapping[str, Any], *, left: str, right: str = "", log: bool = False
) -> dict[str, Any]:
    """A panel of the contract. One whose range holds no step says so."""
    empty = "" if lines["steps"] else "No step of the chosen range has any of these readings; choose a wider range."
    return {"title": title, "sentence": sentence, **lines, "left": left, "right": right, "log": log, "empty": empty}


def components(book: Book) -> list[str]:
    return [name for name in book.columns.names() if name.startswith(COMPONENT) and len(book.columns.line(name).steps)]


def base(line: Readings) -> float:
    """The mean of the first steps."""
    found = line.values[np.isfinite(line.values)][:BASE]
    return float(found.mean()) if len(found) else 0.0


def early(line: Readings) -> float:
    return base(line)


def late(line: Readings) -> float:
    found = line.values[np.isfinite(line.values)][-BASE:]
    return float(found.mean()) if len(found) else float("nan")


def change(line: Readings) -> float:
    return late(line) - early(line)


def move(line: Readings) -> str:
    return f"{early(line):.3g} to {late(line):.3g}"
