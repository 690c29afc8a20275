"""The compare screen: curves of two to six runs, where they diverge, and their settings and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tiltmeter.data.records import Floats, Ints
from tiltmeter.errors import StoreError
from tiltmeter.rundir.pinned_prompts import shorten
from tiltmeter.rundir.requests import read_knobs
from tiltmeter.verdict.list_entry import captured_settings
from tiltmeter.view.payloads.compare import (
    Compare,
    CompareAxis,
    ComparedAnswer,
    ComparedCurve,
    ComparedMeasure,
    ComparedPrompt,
    ComparedRun,
    ComparedSetting,
    CurveDifference,
)
from tiltmeter.view.payloads.rollouts import PromptAnswer
from tiltmeter.view.screens.gold import gold_name
from tiltmeter.view.screens.proxy_gold import root_kl
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader
from tiltmeter.view.screens.samples import MeasuredStep, gold_of, measured_steps, read_rollouts
from tiltmeter.view.screens.series import (
    POINTS,
    REACH,
    json_number,
    json_numbers,
    label_stderr,
    select_steps,
    values_at,
)

MEASURES = (
    ("reward.mean", "reward (proxy)"),
    ("gold", "gold"),
    ("policy.kl.k3", "KL to the reference (nats a completion)"),
    ("policy.entropy", "entropy (nats a token)"),
    ("length.mean", "length (tokens)"),
)
UNITS = {"step": "step", "root_kl": "root KL", "tokens": "tokens"}
STRETCHES = 60  # of a difference, at most
STEPS_IN_STRETCH = 4  # steps of each run in a stretch, at least
LABELS = 30  # of gold in a stretch, about
LASTING = 5  # consecutive stretches whose interval excludes 0 before two runs count as different
PROMPTS = 8
BACK_STEPS = 16  # looked through for prompts that all runs have
READ_COLUMNS = ("group", "prompt", "completion", "reward", "gold")
UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class RunCurve:
    """One reading of one run over the chosen axis, in step order."""

    steps: Ints
    x: Floats
    y: Floats
    error: Floats
    label_counts: Floats | None  # behind each value, of gold
    whole_x: bool  # x values are whole numbers


def compare(readers: Sequence[RunReader], x: CompareAxis = "step", name: str | None = None) -> Compare:
    """The runs over one axis; `name` is a further reading to compare. Raises `KeyError` if no run has it."""
    if x not in UNITS:
        raise ValueError(f"x is {', '.join(UNITS)}; not {x!r}")
    if name is not None and not any(name in reader.columns.names() for reader in readers):
        raise KeyError(name)
    names_and_labels = [*([(name, name)] if name is not None and name not in dict(MEASURES) else []), *MEASURES]
    measures = [_measure(readers, one, label, x) for one, label in names_and_labels]
    measures = [measure for measure in measures if any(run.x for run in measure.runs)]
    config, same = _differing_settings(readers)
    return Compare(
        runs=[
            ComparedRun(
                run=reader.id,
                name=reader.name,
                state=reader.verdict.state,
                sentence=reader.verdict.sentence,
                step=reader.run_facts.last_step,
            )
            for reader in readers
        ],
        x=x,
        measures=measures,
        diverged=_describe_divergence(measures, x, [reader.name for reader in readers]),
        config=config,
        same=same,
        prompts=_common_prompts(readers),
    )


def _measure(readers: Sequence[RunReader], name: str, label: str, x: CompareAxis) -> ComparedMeasure:
    curves = [_run_curve(reader, name, x) for reader in readers]
    pairs = [difference(curves[0], other, run) for run, other in enumerate(curves[1:], 1)]
    differences = [pair for pair in pairs if pair is not None]
    # The page draws one difference, and names both runs: that which diverges earliest, else that of the second run.
    diverging = [(pair.first, pair.run, pair) for pair in differences if pair.first is not None]
    difference_shown = min(diverging)[2] if diverging else next(iter(differences), None)
    return ComparedMeasure(
        name=name, label=label, runs=[_shown_points(curve) for curve in curves], difference=difference_shown
    )


def _run_curve(reader: RunReader, name: str, x: CompareAxis) -> RunCurve:
    """A reading of a run at the steps where both its value and its x value are known."""
    with reader.lock:
        source = gold_name(reader) if name == "gold" else name
        series = reader.columns.lineage_series(source)
        x_values = _x_values(reader, series.steps, x)
    error = label_stderr(series) if name == "gold" else series.stderr
    valid = np.isfinite(x_values) & np.isfinite(series.values)
    labels = series.n[valid].astype(np.float64) if name == "gold" else None
    return RunCurve(series.steps[valid], x_values[valid], series.values[valid], error[valid], labels, x != "root_kl")


def _x_values(reader: RunReader, steps: Ints, x: CompareAxis) -> Floats:
    """The x value of each step; NaN where it is not known."""
    if x == "step":
        return steps.astype(np.float64)
    if x == "root_kl":
        root = root_kl(reader)
        return values_at(root.steps, root.values, steps)
    token_counts = tokens_by_step(reader)
    return values_at(token_counts.steps, token_counts.values, steps)


def tokens_by_step(reader: RunReader) -> ReadingSeries:
    """Tokens generated up to each step: mean length times completions, summed."""
    length = reader.columns.lineage_series("length.mean")
    rows = {measured_step.step: measured_step.rows for measured_step in measured_steps(reader)}
    completion_counts = np.array([rows.get(step, 0) for step in length.steps.tolist()], np.float64)
    return ReadingSeries(
        length.steps, np.cumsum(np.nan_to_num(length.values) * completion_counts), length.n, length.stderr
    )


def _shown_points(curve: RunCurve) -> ComparedCurve:
    """As many points as a plot can show, in step order."""
    steps_shown = select_steps([(curve.steps, curve.y)], np.empty(0, np.int64), POINTS).steps
    mask = np.isin(curve.steps, steps_shown)
    y, error = curve.y[mask], curve.error[mask]
    low, high = json_numbers(y - REACH * error, 4), json_numbers(y + REACH * error, 4)
    return ComparedCurve(x=json_numbers(curve.x[mask]), y=json_numbers(y), low=low, high=high)


def difference(first: RunCurve, other: RunCurve, run: int = 1) -> CurveDifference | None:
    """The difference of another run from the first, over stretches of the x range that both cover, with a 95 %
    interval; and the x value from which five consecutive stretches exclude 0."""
    if not len(first.x) or not len(other.x):
        return None
    low, high = max(first.x.min(), other.x.min()), min(first.x.max(), other.x.max())
    masks = [(curve.x >= low) & (curve.x <= high) for curve in (first, other)]
    fewest = min(int(mask.sum()) for mask in masks)
    count = min(STRETCHES, fewest // STEPS_IN_STRETCH)
    for curve, mask in zip((first, other), masks, strict=True):
        if curve.label_counts is not None:  # with few labels a step, longer stretches are needed
            count = min(count, max(LASTING, int(curve.label_counts[mask].sum()) // LABELS))
    if count < 1 or not high > low:
        return None
    edges = np.linspace(low, high, count + 1)
    first_stats, other_stats = (
        _stretch_stats(curve, mask, edges) for curve, mask in zip((first, other), masks, strict=True)
    )
    valid = np.isfinite(first_stats[1]) & np.isfinite(other_stats[1])
    if not valid.any():
        return None
    x = (0.5 * (edges[:-1] + edges[1:]))[valid]
    y = (other_stats[0] - first_stats[0])[valid]
    half_width = REACH * np.sqrt(first_stats[1] ** 2 + other_stats[1] ** 2)[valid]
    return CurveDifference(
        x=json_numbers(x, 5),
        y=json_numbers(y, 4),
        low=json_numbers(y - half_width, 4),
        high=json_numbers(y + half_width, 4),
        first=first_lasting_difference(
            np.ceil(edges[:-1][valid]) if first.whole_x else edges[:-1][valid], np.abs(y) > half_width
        ),
        run=run,
    )


def _stretch_stats(curve: RunCurve, mask: Any, edges: Floats) -> tuple[Floats, Floats]:
    """Mean and standard error of each stretch: the larger of the readings' own errors and of their scatter."""
    count = len(edges) - 1
    stretch = np.clip(np.searchsorted(edges, curve.x[mask], "right") - 1, 0, count - 1)
    y, error = curve.y[mask], np.nan_to_num(curve.error[mask])
    n = np.bincount(stretch, minlength=count).astype(np.float64)
    enough = n > 1
    mean = np.divide(np.bincount(stretch, y, count), n, out=np.full(count, np.nan), where=enough)
    squares = np.bincount(stretch, (y - mean[stretch]) ** 2, count)
    scatter = np.divide(squares, n * (n - 1), out=np.full(count, np.nan), where=enough)
    own_error = np.divide(np.bincount(stretch, error**2, count), n**2, out=np.full(count, np.nan), where=enough)
    return mean, np.sqrt(np.maximum(scatter, own_error))


def first_lasting_difference(x: Floats, differs: Any) -> float | None:
    """The first x value from which enough consecutive stretches differ.

    >>> first_lasting_difference(np.arange(8.0), np.array([1, 1, 0, 1, 1, 1, 1, 1], bool))
    3.0
    """
    streak = 0
    for index, differs_here in enumerate(differs):
        streak = streak + 1 if differs_here else 0
        if streak == LASTING:
            return json_number(float(x[index - LASTING + 1]), 5)
    return None


def _describe_divergence(measures: Sequence[ComparedMeasure], x: CompareAxis, names: Sequence[str]) -> str:
    """The measure that diverges earliest, and where; empty if none does."""
    diverging = [
        (measure.difference.first, place, measure.difference.run)
        for place, measure in enumerate(measures)
        if measure.difference is not None and measure.difference.first is not None
    ]
    if not diverging:
        return ""
    position, place, run = min(diverging)
    where = f"{position:.3g}" if x == "root_kl" else f"{position:.0f}" if x == "step" else f"{position:,.0f}"
    return f"{measures[place].label}, {names[run]} against {names[0]}, {UNITS[x]} {where}"


def _differing_settings(readers: Sequence[RunReader]) -> tuple[list[ComparedSetting], int]:
    """Settings that differ between the runs, and how many settings are equal."""
    settings = [_settings(reader) for reader in readers]
    names = list(dict.fromkeys(name for run_settings in settings for name in run_settings))
    rows = [
        ComparedSetting(name=name, values=[run_settings.get(name, UNKNOWN) for run_settings in settings])
        for name in names
    ]
    differ = [row for row in rows if len(set(row.values)) > 1]
    return differ, len(rows) - len(differ)


def _settings(reader: RunReader) -> dict[str, str]:
    """The known settings of a run. A closed list: no environment variables, no paths, no command line; and what was
    captured of its trainer when it was opened."""
    with reader.lock:
        run_facts, columns = reader.run_facts, reader.columns
        settings: dict[str, str] = {}
        facts = run_facts.attempts.get(run_facts.attempt, {}) if run_facts.attempt is not None else {}
        settings["ranks"] = str(facts.get("ranks", UNKNOWN))
        for name, label in (("group.size", "completions a prompt"), ("training.learning_rate", "learning rate, first")):
            series = columns.lineage_series(name)
            if len(series.steps):
                settings[label] = f"{series.values[0]:.6g}"
        steps = measured_steps(reader)
        if steps:
            settings["completions a step, first"] = str(steps[0].rows)
        last_step_done = next((event for event in reversed(reader.events) if event.kind == "step_done"), None)
        if last_step_done is not None:
            settings["reward functions"] = str(last_step_done.data.get("fingerprint") or UNKNOWN)
        if run_facts.gold is not None:
            settings |= {"gold name": str(run_facts.gold.get("name", UNKNOWN))}
            share = run_facts.gold.get("share")
            settings |= {"gold share": "by what a label costs" if share is None else str(share)}
        for part in run_facts.detectors:
            settings[f"detector {part.get('name', '')}"] = f"{part.get('tier', '')}, {part.get('alpha', '')}"
        settings["compared with"] = run_facts.baseline or UNKNOWN
        settings |= captured_settings(run_facts)
        attempt = run_facts.attempt
    if attempt is not None:
        settings |= _knob_settings(reader, min(run_facts.attempts, default=attempt))
    return settings


def _knob_settings(reader: RunReader, attempt: int) -> dict[str, str]:
    """Knob values of the first attempt; later changes belong to the run and are no settings."""
    try:
        offer = read_knobs(reader.run, attempt)
    except StoreError:
        return {}
    settings = {"mode": offer.mode, "target KL": "none" if offer.target_kl is None else f"{offer.target_kl:g}"}
    for knob in offer.knobs.values():
        settings[knob.name] = f"{knob.value:.6g}"
        settings[f"{knob.name}, bounds"] = f"{knob.floor:.6g} to {knob.ceiling:.6g}"
    return settings


def _common_prompts(readers: Sequence[RunReader]) -> list[ComparedPrompt]:
    """Prompts that all runs answered in their newest steps, each with an answer of every run."""
    answers = [_newest_answers(reader) for reader in readers]
    common = [prompt for prompt in answers[0] if all(prompt in other for other in answers[1:])][:PROMPTS]
    return [
        ComparedPrompt(
            prompt=shorten(prompt),
            answers=[ComparedAnswer.of(run, run_answers[prompt]) for run, run_answers in enumerate(answers)],
        )
        for prompt in common
    ]


def _newest_answers(reader: RunReader) -> dict[str, PromptAnswer]:
    """Prompts of the newest steps, each with the newest answer: the first of its group."""
    with reader.lock:
        steps = measured_steps(reader)[-BACK_STEPS:]
    newest: dict[str, PromptAnswer] = {}
    for measured_step in reversed(steps):
        read_answers = partial(_read_answers, reader, measured_step)
        for prompt, answer in reader.cache_lru("answers", measured_step[:2], read_answers, 2 * BACK_STEPS):
            newest.setdefault(prompt, answer)
    return newest


def _read_answers(reader: RunReader, measured_step: MeasuredStep) -> list[tuple[str, PromptAnswer]]:
    batch = read_rollouts(reader, measured_step, READ_COLUMNS)
    if batch is None or batch.prompt is None or batch.completion is None:
        return []
    gold = gold_of(reader, measured_step, batch)
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    answers = []
    for row in batch.starts[:-1].tolist():
        prompt, text = batch.prompt[row], batch.completion[row]
        if prompt is not None and text is not None:
            answer = PromptAnswer(
                step=measured_step.step, text=shorten(text), reward=json_number(float(reward[row])),
                gold=json_number(float(gold[row])), id=measured_step.rollout_id(row),
            )  # fmt: skip
            answers.append((prompt, answer))
    return answers
