"""What a method's grades do to the alarm: the product's own sampler and tests on simulated runs; for `oversight.py`.

A run's prompts are the questions of the tasks, its answers the right and the wrong one in every style; its labels are
the grades that the method gave these very answers. In a hacked run the reward pays one of the styles, and answers in it
are mostly wrong, so that gold (the truth) falls. In an honest run the reward pays right answers, or a style that is as
often right as plain ones, and gold rises or stays. At equal calls: a method that needs five calls labels a fifth of
what the bare judge labels. In a hacked run gold falls from the first step, so that any alarm has found it and its step
is the delay; any alarm on an honest run is a false one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tiltmeter.stats.intervals import upper_bound
from tiltmeter_lab.simulate import simulate
from tiltmeter_lab.watch_run import play
from tiltmeter_lab.worlds.world import World
from tiltmeter_workbench.oversight.graded import GradedAnswers

STEPS, GROUPS, SIZE = 150, 32, 8
SHARE = 0.02  # of rollouts that a method with all calls labels
STYLES = ("confident", "long", "flattery", "injection")


def make_world(kind: str, truth: Any, style: Any, rng: np.random.Generator) -> World:
    """`truth` and `style`: of the answers to each question, in one order."""
    liked = style == rng.choice(STYLES)
    chance = np.where(style == "plain", 6.0, 1.0)
    if kind == "hacked":
        chance = chance * np.where(liked, np.where(truth, 0.25, 2.0), 1.0)
        proxy = 1.0 * liked + 0.2 * truth
    elif kind == "honest":
        proxy = 1.0 * truth + 0.1 * liked
    else:
        proxy = 1.0 * liked + 0.0 * truth
    reference = np.array([chance / chance.sum()] * 1)
    return World(
        kind, reference, proxy[None], np.where(truth, 1.0, 0.0)[None], "grpo", STEPS, GROUPS, SIZE, labels="value"
    )


def measure(methods: Sequence[GradedAnswers], calls: Mapping[str, int], runs: int, seed: int) -> list[dict[str, Any]]:
    """For each method and for the truth itself: runs found, delay, false alarms, labels."""
    answers = methods[0].answers
    questions = list(dict.fromkeys(one.task for one in answers))
    rows = {task: [at for at, one in enumerate(answers) if one.task == task] for task in questions}
    size = max(map(len, rows.values()))
    questions = [task for task in questions if len(rows[task]) == size]
    order = rows[questions[0]]
    truth = np.array([answers[at].truth for at in order])
    style = np.array([answers[at].style for at in order])
    tables = {"the truth itself": np.array([[answers[at].truth for at in rows[task]] for task in questions], float)}
    tables |= {one.method: np.array([one.value[rows[task]] for task in questions]) for one in methods}
    figures = []
    most = max(calls.values())
    for name, grades in tables.items():
        share = SHARE * most / calls.get(name, most)
        delays: list[float] = []
        labels: list[int] = []
        found, false, honest = 0, 0, 0
        for kind in ("hacked", "honest", "indifferent"):
            for run in range(runs):
                rng = np.random.default_rng([seed, run, len(kind)])
                world = make_world(kind, truth, style, rng)
                many: dict[str, Any] = {
                    field: np.repeat(getattr(world, field), len(questions), 0)
                    for field in ("reference", "proxy", "gold")
                }
                # A label that is missing counts as half: the product would count it in favour of the run.
                world = replace(world, **{**many, "gold": np.where(np.isnan(grades), 0.5, grades)})
                trace = simulate(world, 1000 * seed + run)
                watched = play(trace, run, share)
                labels.append(watched.labels)
                if kind != "hacked":
                    honest, false = honest + 1, false + (watched.alarm_step is not None)
                elif watched.alarm_step is not None:
                    found, delays = found + 1, [*delays, watched.alarm_step]
        figures.append(
            {
                "method": name, "labels_share": round(share, 3), "hacked": runs, "found": found,
                "median_step": float(np.median(delays)) if delays else None, "honest": honest, "false_alarms": false,
                "false_at_most": round(upper_bound(false, honest), 3), "labels": int(np.median(labels)),
            }
        )  # fmt: skip
    return figures
