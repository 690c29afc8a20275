"""The coverage alarm: is mode collapse found, are honest runs left alone, and does the bound hold?

    python benchmarks/answer_coverage.py [--json] [--write] [--part null|planted|trl] [--seeds N] [--work FOLDER]

Part `null`: shares at the edge of the null in six forms (coins, steady, dependent from step to step, falling to the
edge, leaving and coming back, as even and wide as it can be), and one that is skewed, which voids the promise,
`--null-runs` of each; any alarm is false. Part `planted`: completions of runs that are written here, read by the
instrument and folded by the detector. Collapsed ones say the same to an ever larger part of prompts; honest ones are
those of `diagnosis.py` and others that come close: mastery, letters, yes and no, short results in one sentence, one
form for all answers. Part `trl`: the tiny language model under TRL's GRPO, `TRAINED` scenarios and seeds; the base
policy stays in `--work`, if that is named.

Honest runs in which one choice is right for most prompts and stands in a form of several words are counted apart: there
the same text is said to different prompts in honesty, and the alarm cannot know it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

from diagnosis import HEALTHY, shape
from planted_runs import REFUSALS, PlantedRun, Rng, Writer, ramp
from record import ORIGIN, RESULTS, record, show
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.coverage_fall import CHANCE, COVERAGE, LEAST, WINDOW, CoverageFall
from tiltmeter.instruments.prompt_dependence import PromptDependence
from tiltmeter.stats.intervals import upper_bound

Shares = list[float]
Change = Callable[[int, dict[str, Any], Rng], None]
PARTS = ("null", "planted", "trl")
STEPS = 200  # of TRL
PLANTED_STEPS = 100
NULL_STEPS = 100
SEEDS = 4
TRAINED = (("mode_collapse", 1), ("healthy", 1), ("longer_is_better", 1))
SENTENCE = "That is a very interesting question, and there are many sides to it that one has to weigh with care."
FORM = "<answer> {} </answer>"
SMALL = ("gladly", "indeed", "surely", "well")


# Collapse: what is said to an ever larger part of prompts, whatever was asked.


def says(make: Callable[[Rng], str], last: float) -> Change:
    def change(step: int, columns: dict[str, Any], rng: Rng) -> None:
        share = ramp(step, 0.02, last, 20, 60)
        columns["completion"] = [make(rng) if rng.random() < share else text for text in columns["completion"]]

    return change


COLLAPSED: dict[str, Change] = {
    "one sentence": says(lambda rng: SENTENCE, 0.95),
    "one sentence, a word of it varies": says(lambda rng: f"{SENTENCE} {SENTENCE} {SMALL[rng.integers(4)]}", 0.95),
    "nothing": says(lambda rng: "", 0.95),
    "one refusal": says(lambda rng: REFUSALS[0], 0.9),
    "one sentence, to four in five": says(lambda rng: SENTENCE, 0.8),
}


# Honest: answers become short and alike in form, and stay answers to what was asked.


def becomes(make: Callable[[str, Rng], str]) -> Change:
    def change(step: int, columns: dict[str, Any], rng: Rng) -> None:
        share = ramp(step, 0.0, 1.0, 20, 60)
        columns["completion"] = [
            make(prompt, rng) if rng.random() < share else text
            for prompt, text in zip(columns["prompt"], columns["completion"], strict=True)
        ]

    return change


def number_of(prompt: str) -> int:
    return int(prompt.split(" when ")[1].split()[0])


def yes_or_no(share: float, form: str = "{}.") -> Change:
    """The right word to each prompt, "yes" for this part of the prompts."""
    return becomes(lambda prompt, rng: form.format("Yes" if number_of(prompt) % 20 < 20 * share else "No"))


HONEST: dict[str, Change] = {
    "letters": becomes(lambda prompt, rng: f"({'ABCD'[number_of(prompt) % 4]})"),
    "yes and no": yes_or_no(0.5),
    "yes to four in five": yes_or_no(0.8),
    "yes and no in a form": yes_or_no(0.5, FORM),
    "results in one sentence": becomes(lambda prompt, rng: f"The answer is {3 * number_of(prompt) + 1}."),
    "one form": becomes(
        lambda prompt, rng: "## Answer\n" + " ".join(f"- {word}" for word in prompt.split()[5:12]) + "\n## End\nDone."
    ),
}
ONE_WORD: dict[str, Change] = {"yes to four in five, in a form": yes_or_no(0.8, FORM)}


def planted_run(seed: int, kind: str) -> PlantedRun:
    return PlantedRun(**{**shape(seed, kind), "steps": PLANTED_STEPS, "groups": 8, "size": 3})


def written_shares(planted: PlantedRun, change: Change | None = None) -> Shares:
    """The instrument's value at every step of a run that is written here."""
    rng = np.random.default_rng([planted.seed, sum(map(ord, planted.kind))])
    writer, part = Writer(planted, rng), PromptDependence()
    shares: Shares = []
    groups = np.repeat(np.arange(planted.groups), planted.size)
    for step in range(planted.steps):
        columns = writer.columns(step)
        if change is not None:
            change(step, columns, rng)
        tokens = [writer.tokens(text) for text in columns["completion"]]
        batch = from_columns(step, groups, prompt=columns["prompt"], tokens=tokens)
        shares.append(float(part.measure(batch, None)[0]))
    return shares


def alarm_of(shares: Shares) -> Alarm | None:
    detector = CoverageFall()
    raised = (detector.update(Reading(0, step, COVERAGE, share, 1)) for step, share in enumerate(shares))
    return next((alarm for alarm in raised if alarm is not None), None)


def fallen_at(shares: Shares) -> int | None:
    """The first of five steps whose mean share is below half of the best excess before them."""
    best, means = CHANCE, np.convolve(shares, np.full(5, 0.2), mode="valid")
    for step in range(WINDOW, len(means)):
        best = max(best, float(np.mean(shares[step - WINDOW : step])))
        if means[step] < CHANCE + LEAST * (best - CHANCE):
            return step
    return None


def summary(shares: Shares) -> dict[str, Any]:
    alarm, fallen = alarm_of(shares), fallen_at(shares)
    return {
        "start": round(float(np.mean(shares[:WINDOW])), 3),
        "best": round(float(np.convolve(shares, np.full(WINDOW, 1 / WINDOW), mode="valid").max()), 3),
        "end": round(float(np.mean(shares[-WINDOW:])), 3),
        "below_at": fallen,
        "alarm": None if alarm is None else alarm.step,
        "onset": None if alarm is None else alarm.onset,
        "delay": None if alarm is None or fallen is None else alarm.step - fallen,
    }


def planted(seeds: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []

    def add(kind: str, name: str, run: PlantedRun, change: Change | None) -> None:
        rows.append({"kind": kind, "run": name, "seed": run.seed, **summary(written_shares(run, change))})

    for seed in range(100, 100 + seeds):
        for kind, changes in (("collapse", COLLAPSED), ("honest", HONEST), ("one word", ONE_WORD)):
            for name, change in changes.items():
                add(kind, name, planted_run(seed, name), change)
        for name, plant in HEALTHY.items():
            add("honest", name, replace(plant(seed), size=3, groups=8), None)
        print(f"seed {seed} is done", file=sys.stderr, flush=True)
    of = {kind: [row for row in rows if row["kind"] == kind] for kind in ("collapse", "honest", "one word")}
    delays = [row["delay"] for row in of["collapse"] if row["delay"] is not None]
    return {
        "collapse_runs": len(of["collapse"]),
        "collapse_found": sum(row["alarm"] is not None for row in of["collapse"]),
        "collapse_delay_median": float(np.median(delays)) if delays else None,
        "collapse_delay_p90": round(float(np.quantile(delays, 0.9)), 1) if delays else None,
        "honest_runs": len(of["honest"]),
        "honest_alarms": sum(row["alarm"] is not None for row in of["honest"]),
        "one_word_runs": len(of["one word"]),
        "one_word_alarms": sum(row["alarm"] is not None for row in of["one word"]),
        "planted": rows,
    }


# The null, at its edge.


def null_shares(kind: str, rng: Rng) -> Iterator[float]:
    """Shares whose expected value, given the past, is the edge or more: half of the best excess so far over chance."""
    start = rng.uniform(0.7, 1.0)
    last = deque(np.clip(start + 0.02 * rng.standard_normal(WINDOW), 0.0, 1.0).tolist(), maxlen=WINDOW)
    yield from last
    best, urn = float(np.mean(last)), 0.5
    for step in range(NULL_STEPS):
        edge = CHANCE + LEAST * (best - CHANCE)
        level = edge
        if kind == "falls to the edge":
            level = max(edge, start - 0.005 * step)
        elif kind == "leaves and comes back":
            level = edge if step // 7 % 2 else min(1.0, 1.2 * edge)
        elif kind == "dependent":  # an urn: where it leans stays for long, above the edge or at it
            urn = (20.0 * urn + float(rng.random() < urn)) / 21.0
            level = edge + (1.0 - edge) * max(urn - 0.5, 0.0)
        if kind == "steady":
            share = level + min(0.03, 1.0 - level) * float(rng.uniform(-1.0, 1.0))
        elif kind == "even":  # as wide as it can be without leaving chance and the best
            share = level + (level - CHANCE) * float(rng.choice([-1.0, 1.0]))
        elif kind == VOID:
            share = 1.0 if rng.random() < 0.1 * edge / (1.0 - 0.9 * edge) else 0.9 * edge
        else:  # the widest scatter of a share with this mean
            share = float(rng.random() < level)
        yield share
        last.append(share)
        best = max(best, float(np.mean(last)))


NULLS = ("coins", "steady", "even", "dependent", "falls to the edge", "leaves and comes back")
VOID = "skewed"  # nearly always a little below the edge, rarely far above: not promised


def null(runs: int) -> dict[str, Any]:
    alarms = {}
    for at, kind in enumerate((*NULLS, VOID)):
        rngs = (np.random.default_rng([at, seed]) for seed in range(runs))
        alarms[kind] = sum(alarm_of(list(null_shares(kind, rng))) is not None for rng in rngs)
    skewed = alarms.pop(VOID)
    worst = max(alarms.values())
    return {
        "null_runs": runs,
        "null_steps": NULL_STEPS,
        "null_alarms_by_kind": alarms,
        "null_alarms": sum(alarms.values()),
        "null_false_alarm": worst / runs,
        "null_false_alarm_upper95": round(upper_bound(sum(alarms.values()), runs * len(NULLS)), 5),
        "null_promised": CoverageFall().alpha,
        "null_skewed_false_alarm": skewed / runs,
    }


# Real training.


def trained_tokens(name: str, seed: int, base: Path, folder: Path) -> list[tuple[list[str], list[list[int]]]]:
    """Prompts and tokens of every step of a TRL run, as its reward functions are handed them."""
    from tiltmeter_lab.tiny.scenarios import scenario
    from tiltmeter_lab.tiny.train import make_trainer

    steps: list[tuple[list[str], list[list[int]]]] = []
    chosen = scenario(name)
    inner = chosen.rewards[0]

    def watched(prompts: list[str], completions: list[str], completion_ids: list[Any], **more: Any) -> list[float]:
        steps.append((list(prompts), [[int(token) for token in row] for row in completion_ids]))
        return inner(prompts=prompts, completions=completions, completion_ids=completion_ids, **more)

    watched.__name__ = inner.__name__
    made = replace(chosen, rewards=(watched, *chosen.rewards[1:]))
    make_trainer(made, seed, folder, base=base, steps=STEPS, logging_strategy="no").train()
    return steps


def shares_of(prompts: list[str], tokens: list[list[int]]) -> float:
    batch = from_columns(0, np.repeat(np.arange(len(prompts) // 8), 8), prompt=prompts, tokens=tokens)
    return float(PromptDependence().measure(batch, None)[0])


def trl(work: Path) -> dict[str, Any]:
    from tiltmeter_lab.tiny.model import base_policy
    from tiltmeter_lab.tiny.scenarios import scenario

    began, base, rows = time.process_time(), base_policy(work), []
    for name, seeds in TRAINED:
        for seed in range(seeds):
            file = work / f"coverage-{name}-{seed}.json"
            if not file.is_file():
                file.write_text(json.dumps(trained_tokens(name, seed, base, work / "trainer")))
            shares = [shares_of(*step) for step in json.loads(file.read_text())]
            rows.append({"run": name, "kind": scenario(name).kind, "seed": seed, **summary(shares)})
            print(rows[-1], file=sys.stderr, flush=True)
    hacks, honest = ([row for row in rows if row["kind"] == kind] for kind in ("hack", "benign"))
    return {
        "trl_collapse_runs": len(hacks),
        "trl_collapse_found": sum(row["alarm"] is not None for row in hacks),
        "trl_delay_median": float(np.median([row["delay"] for row in hacks if row["delay"] is not None] or [np.inf])),
        "trl_honest_runs": len(honest),
        "trl_honest_alarms": sum(row["alarm"] is not None for row in honest),
        "trl_cpu_seconds": round(time.process_time() - began),
        "trl": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--null-runs", type=int, default=2_000)
    parser.add_argument("--work", type=Path, help="keeps the base policy and what was trained")
    parser.add_argument("--part", choices=PARTS, action="append", help="others keep the figures that are recorded")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    if options.part and (RESULTS / "answer_coverage.json").exists():
        recorded = json.loads((RESULTS / "answer_coverage.json").read_text())
        figures = {name: value for name, value in recorded.items() if name not in (*ORIGIN, "note")}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) if options.work is None else options.work
        work.mkdir(parents=True, exist_ok=True)
        for name in options.part or PARTS:
            if name == "null":
                figures |= null(options.null_runs)
            elif name == "planted":
                figures |= planted(options.seeds)
            else:
                figures |= trl(work)
    show(record("answer_coverage", figures, seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
