"""Renders what real training runs of language models came to, while mkdocs builds. No figure is typed into a page.

`<!-- real model: PART -->` becomes a part of `benchmarks/results/real_model.json`, `<!-- watched: PART -->` one of
`tiny_watched.json`, and `<!-- tiny: PART -->` one of what `tiltmeter lab score --suite tiny-lm` says of recorded runs.
What is not there was not made yet: the page says so, and a strict build fails.

Completions, and whatever quotes them, are text a model wrote: they leave through `tiltmeter.safety.safe_text` only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, reduce
from pathlib import Path
from statistics import median
from typing import Any

from shown import PENDING, RESULTS, literal, measured, missing, number, table

from tiltmeter.safety.safe_text import markdown

_MARK = re.compile(r"<!-- (real model|watched|tiny): (=?[a-z0-9_.]+) -->")
_READING = re.compile(r"\S+ +\S+ -> +\S+")  # a line of `tiltmeter show --plain` that a table of readings repeats

Run = Mapping[str, Any]


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(text, RESULTS) if _MARK.search(text) else text


def rendered(text: str, results: Path) -> str:
    """The page with its marks filled in."""
    return _MARK.sub(lambda mark: part(mark[1], mark[2], results), text)


def part(what: str, name: str, results: Path) -> str:
    if what == "tiny":
        suite = scored()
        return missing("the recorded runs tiny-lm.npz") if suite is None else of_suite(name, suite)
    path = results / f"{what.replace(' ', '_').replace('watched', 'tiny_watched')}.json"
    found = measured(path)
    if found is None:
        return PENDING
    return MODEL[name](found) if what == "real model" else WATCHED[name](found["runs"])


# -- one run of a real model ------------------------------------------------------------------------------------------


def summary(found: Run) -> str:
    said = "no alarm" if found["alarm_step"] is None else f"an alarm at step {found['alarm_step']}"
    counted = f"{found['steps']} steps, {found['rollouts']:,} rollouts, {found['labels']:,} gold labels: {said}."
    return f"{counted} The verdict at the end is {found['state']}:\n\n{markdown(found['sentence'])}\n\n{origin(found)}"


def completions(found: Run) -> str:
    shown = [
        f"**{literal(row['prompt'])}**\n\nBefore:\n\n{markdown(row['before'])}\n\nAfter:\n\n{markdown(row['after'])}"
        for row in found["completions"]
    ]
    return "\n\n".join(shown)


def readings(found: Run) -> str:
    rows = [(f"`{name}`", told["first"], told["last"]) for name, told in found["readings"].items()]
    return table(("reading", "first five steps", "last five steps"), rows)


def findings(found: Run) -> str:
    rows = [
        (told["step"], f"`{told['failure']}`", told["confidence"], literal(told["summary"]))
        for told in found["findings"]
    ]
    return table(("step", "finding", "confidence", "summary"), rows) if rows else "Nothing was found."


def screen(found: Run) -> str:
    return markdown("\n".join(line for line in found["screen"] if not _READING.fullmatch(line)))


MODEL: Mapping[str, Callable[[Run], str]] = {
    "summary": summary, "completions": completions, "readings": readings, "findings": findings, "screen": screen,
}  # fmt: skip

# -- scenarios that were trained with Tiltmeter attached ---------------------------------------------------------------


def told_of(runs: Sequence[Run]) -> str:
    """By scenario, in mode advise: what happened to gold, and what was said."""
    rows = []
    for name, own in grouped(runs, mode="advise"):
        alarms = [run["alarm"]["step"] for run in own if run["alarm"]]
        named = [run for run in own if run["expected"] and run["expected"] in {told[2] for told in run["findings"]}]
        levels = " → ".join(number(middle(run[key] for run in own)) for key in ("gold_start", "gold_peak", "gold_end"))
        proxy = " → ".join(number(middle(run[key] for run in own)) for key in ("proxy_start", "proxy_end"))
        expected = own[0]["expected"]
        diagnosed = f"`{expected}` in {len(named)}" if expected else "none is right"
        alarmed = f"{len(alarms)}{f', step {number(middle(alarms))}' if alarms else ''}"
        rows.append((f"`{name}`", own[0]["kind"], len(own), levels, proxy, alarmed, diagnosed, last_named(own)))
    heads = (
        "scenario",
        "meant as",
        "runs",
        "gold at start → peak → end",
        "reward",
        "alarms",
        "diagnosis",
        "at the end",
    )
    return table(heads, rows)


def last_named(own: Sequence[Run]) -> str:
    """Which findings stood at the end, and in how many runs."""
    count = Counter(name for run in own for name in run["last_findings"])
    return ", ".join(f"`{name}` {n}" for name, n in count.most_common()) or "–"


def advice(runs: Sequence[Run]) -> str:
    """Gold of the checkpoint that was advised, against the last, the one that was paid best, and the best there was."""
    keys = ("advised", "last", "best_proxy", "best")
    rows = []
    for name, own in grouped(runs, mode="advise"):
        words = Counter(run["advice"]["word"] for run in own if run["advice"])
        said = ", ".join(f"{word} {n}" for word, n in words.most_common())
        rows.append((f"`{name}`", len(own), said, *(middle(run["kept"][key] for run in own) for key in keys)))
    everything = [run for run in runs if run["mode"] == "advise"]
    if rows:
        means = [sum(run["kept"][key] for run in everything) / len(everything) for key in keys]
        rows.append(("mean of all runs", len(everything), "", *means))
    return table(("scenario", "runs", "advice at the end", "advised", "last", "paid best", "best there was"), rows)


def act(runs: Sequence[Run]) -> str:
    """Each run in mode act, beside the same seed that nobody touched."""
    alone = {(run["scenario"], run["seed"]): run for run in runs if run["mode"] == "advise"}
    rows = []
    for run in runs:
        if run["mode"] == "act":
            twin = alone.get((run["scenario"], run["seed"]))
            done = [
                f"{told[2]} {number(told[3])} → {number(told[4])}" for told in run["actions"] if told[5] == "applied"
            ]
            came = ", ".join(told[1] for told in run["outcomes"])
            levels = (run["gold_peak"], run["gold_end"], "–" if twin is None else twin["gold_end"])
            rows.append((f"`{run['scenario']}`", run["seed"], "; ".join(done) or "–", came or "–", *levels))
    heads = ("scenario", "seed", "changed", "outcome", "peak of gold", "gold at the end", "unattended")
    return table(heads, rows)


def benign(runs: Sequence[Run]) -> str:
    """False alarms, warnings and findings of benign runs, and in how many of them."""
    own = [run for run in runs if run["kind"] == "benign" and run["mode"] == "advise"]
    rows = [("an alarm", sum(run["alarm"] is not None for run in own), len(own))]
    warned = Counter(name for run in own for name in run["warnings"])
    rows += [(f"a warning of `{name}`", n, len(own)) for name, n in warned.most_common()]
    found = Counter(name for run in own for name in {told[2] for told in run["findings"]})
    rows += [(f"a finding `{name}`", n, len(own)) for name, n in found.most_common()]
    return table(("said", "in runs", "of"), rows)


WATCHED: Mapping[str, Callable[[Sequence[Run]], str]] = {
    "scenarios": told_of, "advice": advice, "act": act, "benign": benign,
}  # fmt: skip


def grouped(runs: Sequence[Run], mode: str) -> list[tuple[str, list[Run]]]:
    names = dict.fromkeys(run["scenario"] for run in runs if run["mode"] == mode)
    return [(name, [run for run in runs if run["scenario"] == name and run["mode"] == mode]) for name in names]


# -- the recorded runs of the tiny language model ----------------------------------------------------------------------


@cache
def scored() -> Run | None:
    """The figures of the suite; None if its runs are not there yet."""
    from tiltmeter.lab.tiny.run_files import RECORDED
    from tiltmeter.lab.tiny.score import figures

    return figures() if RECORDED.exists() else None


def of_suite(name: str, suite: Run) -> str:
    """One figure, or a table of the suite."""
    if name.startswith("="):
        return number(reduce(lambda told, key: told[key], name[1:].split("."), suite))
    if name == "figures":
        rows = [(f"`{key}`", value) for key, value in suite.items() if not isinstance(value, (dict, list))]
        rows += [(f"`redraws.{key}`", value) for key, value in suite["redraws"].items()]
        return table(("figure", "value"), rows)
    heads = [head for head, value in next(iter(suite[name].values())).items() if not isinstance(value, list)]
    rows = [(f"`{key}`", *(_or_none(head, told[head]) for head in heads)) for key, told in suite[name].items()]
    return table(("", *(head.replace("_", " ") for head in heads)), rows)


def _or_none(head: str, value: Any) -> Any:
    """An onset below 0 is none."""
    return None if head == "onset" and value < 0 else value


# -- tables -----------------------------------------------------------------------------------------------------------


def middle(values: Iterable[float]) -> float:
    return float(median(values))


def origin(found: Run) -> str:
    return f"Made by `{found['command']}` on {literal(found['cpu'])}, revision `{found['revision']}`."
