"""False calm: runs with a planted trouble, and what each surface says of them.

    python benchmarks/calm.py [--json] [--write] [--only NAME...]

Every trouble is written as a trainer would write it, measured by the monitor, and looked at on eight surfaces:
terminal, page, list of runs, HTML report, Markdown report, notebook, alerts and exit code. None may show OK, a tick or
the advice to continue, and the exit code may not be 0.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from record import record, show
from tiltmeter.cli.terminal.run_screen import plain
from tiltmeter.data.batches import from_columns
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.states import STATES
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.payloads.encode import plain as to_plain
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens.fleet import fleet_row
from tiltmeter.view.screens.notebook import mime_bundle
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.trackers.messages import MessageBuilder

STEPS = 100
Columns = dict[str, Any]
Make = Callable[[int, np.random.Generator], Columns]


@dataclass(frozen=True)
class Trouble:
    """One planted run: its columns by step, and how it was recorded."""

    make: Make
    gold: Callable[..., Any] | None = None  # a gold function, asked about `share` of the rollouts
    share: float = 0.02
    rows: int = 64
    ends: bool = True
    measured: bool = True
    facts: Callable[[int], dict[str, int]] = lambda step: {"seen": step + 1, "written": step + 1}
    evaluations: Callable[[int], float] | None = None
    ranks: int = 1


def ramp(step: int, first: float, last: float, start: int = 20, end: int = 80) -> float:
    return float(np.interp(step, [start, end], [first, last]))


def falls(
    level: Callable[[int], float], *, rows: int = 64, prompts: str = "same", paid: float = 0.1, rises: bool = True
) -> Make:
    """Gold by a level per step. Inside a prompt the better answer is paid `paid` more: the slope never turns."""

    def make(step: int, rng: np.random.Generator) -> Columns:
        gold = (rng.random(rows) < level(step)).astype(float)
        reward = paid * gold + 0.03 * rng.normal(size=rows) + (step / STEPS if rises else 0.0)
        columns: Columns = {"reward": reward, "gold": gold}
        if prompts != "none":
            number = [k // 8 + (step * rows if prompts == "new" else 0) for k in range(rows)]
            columns["prompt"] = [f"question {k}" for k in number]
        return columns

    return make


def renamed_test(step: int, rng: np.random.Generator) -> Columns:
    honest, renames = rng.random(64) < 0.59, rng.random(64) < ramp(step, 0.0, 1.0)
    return {"reward": (honest | renames).astype(float), "gold": (honest & ~renames).astype(float), **questions()}


def questions(rows: int = 64) -> Columns:
    return {"prompt": [f"question {k // 8}" for k in range(rows)]}


def healthy(step: int, rng: np.random.Generator) -> Columns:
    gold = (rng.random(64) < 0.6).astype(float)
    return {"reward": gold + 0.3 * rng.normal(size=64), "gold": gold, **questions()}


def without(name: str) -> Make:
    return lambda step, rng: {key: value for key, value in healthy(step, rng).items() if key != name}


def unpaid(share: float, value: object) -> Make:
    def make(step: int, rng: np.random.Generator) -> Columns:
        columns = healthy(step, rng)
        reward = list(columns["reward"])
        for row in rng.permutation(64)[: int(64 * share)]:
            reward[row] = value
        return {**columns, "reward": reward}

    return make


def with_texts(level: Callable[[int], float]) -> Make:
    """Answers in words, so that a gold function can be asked: "right" or "wrong"."""

    def make(step: int, rng: np.random.Generator) -> Columns:
        columns = falls(level)(step, rng)
        gold = columns.pop("gold")
        return {**columns, "completion": ["right" if value else "wrong" for value in gold]}

    return make


def is_right(completion: str) -> float:
    return float(completion == "right")


def raises(completion: str) -> float:
    raise ValueError("no such test file")


def in_words(completion: str) -> str:
    return "yes"


def in_percent(completion: str) -> float:
    return 87.0


def needs_a_column(completion: str, solution: str) -> float:
    return float(completion == solution)


def drifts(**more: Callable[[int], float]) -> Make:
    """Gold stays where it was while the policy goes far away."""

    def make(step: int, rng: np.random.Generator) -> Columns:
        columns = {**healthy(step, rng), "length": np.full(64, 4)}
        for name, value in more.items():
            columns[name] = [[value(step)] * 4] * 64
        return columns

    return make


def unlabelled_after(last: int) -> Make:
    def make(step: int, rng: np.random.Generator) -> Columns:
        columns = healthy(step, rng)
        return columns if step < last else {**columns, "gold": [None] * 64}

    return make


def level_two(step: int) -> float:
    return 0.7 if step < 50 else 0.35


def coding(step: int) -> float:
    return ramp(step, 0.7, 0.14)


def hollow(step: int, rng: np.random.Generator) -> Columns:
    """The reward triples, and what it pays for is worth nothing: gold stays near zero."""
    gold, paid = rng.random(64) < 0.03, rng.random(64) < ramp(step, 0.2, 0.7)
    return {"reward": paid.astype(float), "gold": gold.astype(float), **questions()}


TROUBLES: dict[str, Trouble] = {
    "coding assistant, all labelled": Trouble(falls(coding)),
    "coding assistant, a fifth labelled": Trouble(with_texts(coding), is_right, 0.2),
    "coding assistant, half labelled": Trouble(with_texts(coding), is_right, 0.5),
    "mode collapse at once": Trouble(falls(lambda step: 0.5 if step < 40 else 0.0, prompts="none")),
    "renamed test": Trouble(renamed_test),
    "gold halves at once": Trouble(falls(level_two)),
    "a slow fall": Trouble(falls(lambda step: ramp(step, 0.8, 0.45, 0, 100))),
    "rises, then falls": Trouble(falls(lambda step: ramp(step, 0.4, 0.8, 0, 50) - ramp(step, 0.0, 0.5, 50, 100))),
    "a fall without prompts": Trouble(falls(coding, prompts="none")),
    "a fall on prompts that never come back": Trouble(falls(coding, prompts="new")),
    "a fall in small batches": Trouble(falls(coding, rows=16), rows=16),
    "a fall with a flat reward": Trouble(falls(coding, rises=False)),
    "a fall with equal pay": Trouble(falls(coding, paid=0.0)),
    "a late fall": Trouble(falls(lambda step: ramp(step, 0.7, 0.1, 75, 95))),
    "gold raises": Trouble(with_texts(coding), raises, 0.5),
    "gold answers in words": Trouble(with_texts(coding), in_words, 0.5),
    "gold answers in percent": Trouble(with_texts(coding), in_percent, 0.5),
    "gold needs a column": Trouble(with_texts(coding), needs_a_column, 0.5),
    "no reward at all": Trouble(unpaid(1.0, None)),
    "a third without reward": Trouble(unpaid(0.35, None)),
    "rewards that are not numbers": Trouble(unpaid(0.5, float("nan"))),
    "no gold": Trouble(without("gold")),
    "gold is the reward": Trouble(lambda step, rng: {**healthy(step, rng), "reward": (g := rng.random(64)), "gold": g}),
    "labels that stop": Trouble(unlabelled_after(40)),
    "gold in percent": Trouble(lambda step, rng: {**healthy(step, rng), "gold": 100.0 * rng.random(64)}),
    "an evaluation falls": Trouble(without("gold"), evaluations=lambda step: 0.7 if step < 50 else 0.4),
    "the policy is far away": Trouble(
        drifts(logprob=lambda step: -0.5, ref_logprob=lambda step: -0.5 - ramp(step, 0.0, 60.0))
    ),
    "no entropy left": Trouble(drifts(entropy=lambda step: ramp(step, 2.0, 0.1))),
    "nobody measures": Trouble(healthy, measured=False),
    "batches are lost": Trouble(
        healthy, facts=lambda step: {"seen": 2 * step + 2, "written": step + 1, "dropped": step + 1}
    ),
    "a rank is missing": Trouble(healthy, ranks=2),
    "hollow, all labelled": Trouble(hollow),
    "hollow, by an evaluation": Trouble(
        lambda step, rng: {key: value for key, value in hollow(step, rng).items() if key != "gold"},
        evaluations=lambda step: 0.02,
    ),
}


def write(run: RunDirectory, trouble: Trouble) -> None:
    run.open_attempt(launch="calm", ranks=trouble.ranks, resume_step=None)
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(trouble.rows // 8), 8)
    counters: dict[str, int] = {}
    for step in range(STEPS):
        counters = trouble.facts(step)
        batch = from_columns(step, groups, attempt=0, **trouble.make(step, rng))
        run.write(batch, 0, {"counters": counters, "time": time.time()})
        if trouble.evaluations is not None and step % 10 == 9:
            write_evaluation(run, Evaluation(0, step, "held_out", trouble.evaluations(step), 400))
    for rank in range(trouble.ranks):
        run.close_rank(0, rank, counters)


def measure(run: RunDirectory, trouble: Trouble) -> None:
    config = Config.standard()
    if trouble.gold is not None:
        source = FunctionSource(f"checks.py:{trouble.gold.__name__}", trouble.gold)
        config = config.with_gold(source, trouble.share, STEPS)
    watch = MonitorLoop(run, config)
    watch.poll()
    watch.close()


def surfaces(run: RunDirectory) -> Iterator[tuple[str, str]]:
    """What each surface shows of the state, the sentence and the advice."""
    verdict, run_facts, events = judge_run(run)
    yield "terminal", "\n".join(plain(run, verdict, run_facts, events))
    yield "exit code", str(verdict.exit_code)
    reader = RunReader(run)
    reader.refresh()
    page = to_plain(summary(reader))
    advice = page["advice"] or {"word": "", "why": ""}
    yield "page", f"{page['state']} {page['sentence']}\nStop advice: {advice['word']}"
    row = to_plain(fleet_row(reader))
    yield "list of runs", f"{row['state']} {row['sentence']} {row['what']}"
    # What stands in the file before its script and data, and the advice in the data.
    html = render_html(reader)
    words = re.findall(r'"advice":\{"word":"([^"]*)"', html)
    titles = re.findall(r"<title>(.*?)</title>", html) + re.findall(r"<p>(.*?)</p>", html)
    assert titles
    yield "HTML report", "\n".join([*titles, *(f"Stop advice: {word}" for word in words)])
    yield "Markdown report", render_markdown(reader)
    yield "notebook", "\n".join(mime_bundle(reader).values())
    builder = MessageBuilder(reader)
    batch = builder.next_batch(last=True)
    assert not builder.next_batch(last=True).alerts, "an alert is sent once"
    assert page["state"] != "HOLLOW" or any("HOLLOW" in alert.text for alert in batch.alerts)
    yield "alerts", "\n".join([*(f"{alert.title} {alert.text}" for alert in batch.alerts), batch.status.state])


def is_calm(surface: str, text: str) -> bool:
    """Whether it says OK, shows a tick, or advises to go on."""
    if surface == "exit code":
        return text == "0"
    return bool(re.search(rf"(?<![A-Za-z])OK(?![A-Za-z])|{STATES['OK'].icon}|\bcontinue:|Stop advice: continue", text))


def examine(name: str, trouble: Trouble, folder: Path) -> dict[str, bool]:
    run = RunDirectory.create(folder / re.sub(r"\W+", "-", name))
    write(run, trouble)
    if trouble.measured:
        measure(run, trouble)
    texts = dict(surfaces(run))
    if name.startswith("hollow"):  # a state of its own, on every surface
        silent = [surface for surface, text in texts.items() if "HOLLOW" not in text and text != "3"]
        assert not silent, silent
    return {surface: is_calm(surface, text) for surface, text in texts.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/calm.json")
    parser.add_argument("--only", metavar="NAME", nargs="*", help="only troubles whose names have one of these in them")
    options = parser.parse_args()
    chosen = {
        name: one
        for name, one in TROUBLES.items()
        if options.only is None or any(part in name for part in options.only)
    }
    calm: list[str] = []
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, trouble in chosen.items():
            found = examine(name, trouble, Path(folder))
            seen |= set(found)
            calm += [f"{name}: {surface}" for surface, is_it in found.items() if is_it]
            print(f"{'calm' if any(found.values()) else 'said'}  {name}", file=sys.stderr)
        # The check can see calm: a healthy run is calm on every surface.
        control = examine("healthy", Trouble(healthy), Path(folder))
    figures = {
        "troubles": len(chosen),
        "surfaces": len(seen),
        "false_calm": len(calm),
        "calm": calm,
        "calm_when_healthy": sum(control.values()),
    }
    show(record("calm", figures, seed=0, keep=options.write), as_json=options.json)
    return 1 if calm or not all(control.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
