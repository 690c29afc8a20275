"""Train a scenario by TRL with Tiltmeter attached, and summarise its alarms against gold on every rollout."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tiltmeter.adapters.arguments import Gold, Options
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import advise_on_run
from tiltmeter_lab.advice_score import score_advice
from tiltmeter_lab.tiny import gold as gold_file
from tiltmeter_lab.tiny import rewards as rewards_file
from tiltmeter_lab.tiny.run_files import ARRAY_TYPES, Run
from tiltmeter_lab.tiny.scenarios import Scenario
from tiltmeter_lab.tiny.train import make_trainer

SHARE = 0.10  # of rollouts that gold is asked about
SAVE_EVERY = 10  # steps between checkpoints
WINDOW = 10  # steps that a level of gold is the mean of


def train_watched(
    chosen: Scenario,
    seed: int,
    folder: Path,
    *,
    base: Path,
    mode: Literal["observe", "advise", "act"] = "advise",
    share: float = SHARE,
    **changes: Any,
) -> tuple[Run, dict[str, Any]]:
    """Train one run; the arrays of `run_files.ARRAY_TYPES` of the run as it ended, and the facts of `summary`.

    `changes` as in `make_trainer`. In mode advise the run is bit for bit the one that nobody watches.
    """
    from tiltmeter.adapters.trl.attach import attach

    settings = {"save_strategy": "steps", "save_steps": SAVE_EVERY, **changes}
    trainer = make_trainer(chosen, seed, folder, base=base, **settings)
    reward_name = chosen.rewards[-1].__name__
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what attach says about these rewards is on purpose
        run = attach(
            trainer,
            gold=Gold(f"{gold_file.__file__}:{chosen.gold.__name__}", share=share),
            act=mode,
            options=Options(
                experiment=f"{rewards_file.__file__}:{reward_name}" if hasattr(rewards_file, reward_name) else None
            ),
        )
    started = time.perf_counter()
    run.train()
    seconds = time.perf_counter() - started
    verdict = run.verdict(120.0)
    assert run.directory is not None
    arrays, steps = rollouts(run.directory, chosen)
    facts = {"scenario": chosen.name, "kind": chosen.kind, "expected": chosen.expected, "seed": seed, "mode": mode}
    facts |= summary(read_events(run.directory / "events"), arrays, steps)
    return arrays, facts | {"seconds": round(seconds, 1), "state": verdict.state, "counters": run.counters}


def rollouts(directory: Path, chosen: Scenario) -> tuple[Run, list[int]]:
    """What the run directory holds of the run as it ended, with gold for every rollout; and the step of each row."""
    run = RunDirectory(directory)
    spans = RunFacts.from_events(read_events(directory / "events")).spans()
    prompt_ids = {prompt: at for at, prompt in enumerate(dict.fromkeys(p for part in chosen.prompts for p in part))}
    rows: dict[str, list[Any]] = {name: [] for name in ARRAY_TYPES}
    steps = []
    for attempt in run.attempts():
        for file in run.files(attempt):
            if file.step >= spans.get(attempt, -1):
                continue
            batch, _, _ = run.read(file)
            assert batch.prompt is not None and batch.completion is not None
            pairs = list(zip(batch.prompt, batch.completion, strict=True))
            steps.append(file.step)
            rows["prompt"].append([prompt_ids[str(prompt)] for prompt, _ in pairs])
            rows["gold"].append([chosen.gold(str(prompt), str(text)) for prompt, text in pairs])
            for name in ("reward", "advantage", "length"):
                rows[name].append(getattr(batch, name))
            rows["kl"].append(batch.scalars.get("kl_ref", np.nan))
            rows["entropy"].append(batch.scalars.get("entropy", np.nan))
    return {name: np.array(values, ARRAY_TYPES[name]) for name, values in rows.items()}, steps


def summary(events: Sequence[Event], arrays: Mapping[str, NDArray[Any]], steps: Sequence[int]) -> dict[str, Any]:
    """One run in figures: gold, alarms, findings and actions, and the gold of the advised checkpoint."""
    story = RunFacts.from_events(events)
    gold, proxy = arrays["gold"].astype(float).mean(1), arrays["reward"].astype(float).mean(1)
    level = np.convolve(gold, np.full(WINDOW, 1 / WINDOW), mode="valid")
    raised = [record for entry in story.alarms.values() for _, _, record in entry if record.resolved is None]
    alarms = sorted((record for record in raised if record.tier == "alarm"), key=lambda alarm: alarm.step)
    findings = [event for event in events if event.kind == "finding" and event.data["confidence"] > 0.0]
    advice = advise_on_run(story)
    saved = sorted({step for step in steps if step % SAVE_EVERY == 0})
    checkpoint_gold = score_advice(
        advice.best.step if advice is not None and advice.best is not None else None,
        saved,
        dict(zip(steps, _around(gold), strict=True)),
        dict(zip(steps, _around(proxy), strict=True)),
    )
    return {
        "steps": len(steps),
        "rollouts": int(arrays["gold"].shape[1]),
        "gold": [round(float(value), 4) for value in gold],
        "gold_start": round(float(level[0]), 4),
        "gold_peak": round(float(level.max()), 4),
        "peak_step": int(steps[int(np.argmax(level)) + WINDOW // 2]),
        "gold_end": round(float(level[-1]), 4),
        "proxy_start": round(float(proxy[:WINDOW].mean()), 4),
        "proxy_end": round(float(proxy[-WINDOW:].mean()), 4),
        "labels": story.labels,
        "label_share": round(story.labels / max(story.audited, 1), 4),
        "alarm": None if not alarms else {"step": alarms[0].step, "onset": alarms[0].onset, "name": alarms[0].name},
        "warnings": sorted({record.name for record in raised if record.tier == "warning"}),
        "findings": [[e.attempt, e.step, e.data["failure"], e.data["confidence"], e.data["alarms"]] for e in findings],
        "last_findings": {finding.failure: finding.confidence for finding in story.findings.values()},
        "actions": [
            [a.attempt, a.step, a.knob, a.before, a.after, a.state, a.reason[:160]] for a in story.actions.values()
        ],
        "outcomes": [[entry["action"], entry["verdict"], entry["sentence"]] for entry in story.outcomes],
        "experiments": {failure: entry["sentence"] for failure, entry in story.experiments.items()},
        "attempts": len(story.attempts),
        "advice": None if advice is None else {"word": advice.word, "best": advice.best and asdict(advice.best)},
        "kept": {name: round(getattr(checkpoint_gold, name), 4) for name in ("advised", "last", "best_proxy", "best")},
        "faults": sorted({fault.part for fault in story.faults}),
    }


def _around(values: Any) -> list[float]:
    """Each step's mean over the window around it, so that a checkpoint's gold is not one noisy batch."""
    return [float(values[max(0, at - WINDOW // 2) : at + WINDOW // 2 + 1].mean()) for at in range(len(values))]
