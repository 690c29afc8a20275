"""The plots of the overview: proxy and gold, reward components, diversity, KL and length, each with a sentence."""

from __future__ import annotations

import numpy as np

from tiltmeter.verdict.gold_standing import SOURCES
from tiltmeter.view.payloads.plots import Panel, Plots, Series
from tiltmeter.view.screens.proxy_gold import truth_panel
from tiltmeter.view.screens.readings import explain_missing
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader
from tiltmeter.view.screens.series import POINTS, LineSpec, StepRange, build_lines, empty_panel

BASE = 5  # first and last steps whose means are compared
COMPONENTS = 8  # reward components drawn: those that changed most
COMPONENT = "reward.component."

OTHER_READINGS = (
    *("reward.mean", "gold.slope", "policy.kl_root", "training.beta", "training.checkpoint"),
    *("length.mean", "length.truncated_share"),
)

#: Each strip: the reading and its label with the unit.
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


def plots(reader: RunReader, low: int | None = None, high: int | None = None, points: int = POINTS) -> Plots:
    """All plots that are made from readings; those made from rollouts are in `geometry`."""
    with reader.lock:
        step_range = StepRange(low, high)
        reader.columns.gather(drawable_readings(reader))
        truth = truth_panel(reader, step_range, points)
        paid = paid_panel(reader, step_range, points)
        diversity = diversity_panel(reader, step_range, points)
        kl = kl_panel(reader, step_range, points)
        length = length_panel(reader, step_range, points)
    steps = [panel.steps for panel in (truth, paid, diversity, kl, length) if panel.steps]
    return Plots(
        low=min((panel_steps[0] for panel_steps in steps), default=0) if low is None else low,
        high=max((panel_steps[-1] for panel_steps in steps), default=0) if high is None else high,
        truth=truth,
        paid=paid,
        diversity=diversity,
        kl=kl,
        length=length,
    )


def drawable_readings(reader: RunReader) -> list[str]:
    """Every reading that one of the plots may draw, so that all are read at once."""
    names = [name for name in reader.columns.names() if name.startswith((COMPONENT, "eval."))]
    return [*OTHER_READINGS, *SOURCES, *(name for name, _ in (*STRIPS, *DISTANCES)), *names]


def paid_panel(reader: RunReader, step_range: StepRange, points: int = POINTS) -> Panel:
    """Which component the reward's gain comes from: the change of each since the first steps, the total first."""
    title = "Reward by component"
    total = reader.columns.lineage_series("reward.mean")
    if not len(total.steps):
        return empty_panel(title, explain_missing(reader, "reward.mean", "reward"))
    changes = {name: mean_change(reader.columns.lineage_series(name)) for name in components(reader)}
    largest = sorted(changes, key=lambda name: -abs(changes[name]))[:COMPONENTS]
    specs = [LineSpec("reward.mean", "total", offset=base_mean(total))]
    specs += [
        LineSpec(name, name.removeprefix(COMPONENT), offset=base_mean(reader.columns.lineage_series(name)))
        for name in largest
    ]
    changes_text = [f"{name.removeprefix(COMPONENT)} {changes[name]:+.3g}" for name in largest]
    sentence = f"Since the first {BASE} steps the reward changed by {mean_change(total):+.3g}"
    sentence += (
        f": {', '.join(changes_text)}." if changes_text else "; it has one component, so the change cannot be split."
    )
    if len(changes) > len(largest):
        sentence += f" {len(changes) - len(largest)} more that changed less are not drawn."
    return make_panel(
        title, sentence, build_lines(reader, specs, step_range, points), left="change of reward since the start"
    )


def diversity_panel(reader: RunReader, step_range: StepRange, points: int = POINTS) -> Panel:
    """Whether completions become alike: one strip for each measure, on a scale of its own."""
    title = "Entropy and diversity"
    present = [(name, label) for name, label in STRIPS if len(reader.columns.lineage_series(name).steps)]
    if not present:
        return empty_panel(title, explain_missing(reader, STRIPS[0][0], "entropy"))
    moves = [f"{label} {describe_move(reader.columns.lineage_series(name))}" for name, label in present]
    sentence = f"From the first {BASE} steps to the last {BASE}: {'; '.join(moves)}."
    specs = [LineSpec(name, label) for name, label in present]
    return make_panel(
        title, sentence, build_lines(reader, specs, step_range, points), left="each strip on its own scale"
    )


def kl_panel(reader: RunReader, step_range: StepRange, points: int = POINTS) -> Panel:
    """KL of the policy from the reference, and the KL penalty beta."""
    title = "KL and beta"
    present = [(name, label) for name, label in DISTANCES if len(reader.columns.lineage_series(name).steps)]
    if not present:
        return empty_panel(title, explain_missing(reader, "policy.kl.k3", "ref_logprob"))
    moves = [f"{label} {describe_move(reader.columns.lineage_series(name))}" for name, label in present]
    specs = [LineSpec(name, label) for name, label in present]
    beta = reader.columns.lineage_series("training.beta")
    if len(beta.steps):
        specs.append(LineSpec("training.beta", "beta", "right", "beta"))
        moves.append(f"beta {float(beta.values[0]):.3g} to {float(beta.values[-1]):.3g}")
    if present[0][0] != "policy.kl.k3":
        moves.append(explain_missing(reader, "policy.kl.k3", "ref_logprob"))
    sentence = f"From the first {BASE} steps to the last {BASE}: {'; '.join(moves)}."
    right = "beta" if len(beta.steps) else ""
    return make_panel(
        title, sentence, build_lines(reader, specs, step_range, points), left="nats, logarithmic", right=right, log=True
    )


def length_panel(reader: RunReader, step_range: StepRange, points: int = POINTS) -> Panel:
    """The length of completions, and the share that is truncated."""
    title = "Length"
    series = reader.columns.lineage_series("length.mean")
    if not len(series.steps):
        return empty_panel(title, explain_missing(reader, "length.mean", "length"))
    specs = [LineSpec("length.mean", "mean length", interval=True)]
    sentence = f"Completions went from {early_mean(series):.4g} to {late_mean(series):.4g} tokens"
    truncated = reader.columns.lineage_series("length.truncated_share")
    if len(truncated.steps):
        specs.append(LineSpec("length.truncated_share", "share cut at the limit", "right"))
        sentence += f"; {late_mean(truncated):.0%} are cut at the limit, {early_mean(truncated):.0%} were"
    right = "share cut off" if len(truncated.steps) else ""
    return make_panel(title, f"{sentence}.", build_lines(reader, specs, step_range, points), left="tokens", right=right)


def make_panel(title: str, sentence: str, series: Series, *, left: str, right: str = "", log: bool = False) -> Panel:
    """Lines as a panel; one whose range holds no step says so."""
    return Panel(
        title=title,
        sentence=sentence,
        steps=series.steps,
        lines=series.lines,
        branches=series.branches,
        flagged=series.flagged,
        shown=series.shown,
        of=series.of,
        left=left,
        right=right,
        log=log,
        empty="" if series.steps else "No step of the chosen range has any of these readings; choose a wider range.",
    )


def components(reader: RunReader) -> list[str]:
    return [
        name
        for name in reader.columns.names()
        if name.startswith(COMPONENT) and len(reader.columns.lineage_series(name).steps)
    ]


def base_mean(series: ReadingSeries) -> float:
    """The mean of the first steps."""
    first_values = series.values[np.isfinite(series.values)][:BASE]
    return float(first_values.mean()) if len(first_values) else 0.0


def early_mean(series: ReadingSeries) -> float:
    return base_mean(series)


def late_mean(series: ReadingSeries) -> float:
    last_values = series.values[np.isfinite(series.values)][-BASE:]
    return float(last_values.mean()) if len(last_values) else float("nan")


def mean_change(series: ReadingSeries) -> float:
    return late_mean(series) - early_mean(series)


def describe_move(series: ReadingSeries) -> str:
    return f"{early_mean(series):.3g} to {late_mean(series):.3g}"
