"""For the page about detectors: recorded campaigns, runs of the tiny language model, and runs that were watched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, reduce
from pathlib import Path
from statistics import median
from typing import Any

from tiltmeter_lab import campaign_records, report
from tiltmeter_lab.score import score
from tiltmeter_lab.score_network import score_network
from tiltmeter_lab.worlds.families import NETWORK

from .registry import NotMeasuredError, ResultFiles, macro
from .tables import ORIGIN, Record, number, table, walked

PLOTS = Path(__file__).parents[1] / "detectors"


@macro
def lab(_: ResultFiles, name: str, what: str) -> str:
    """One table or plot of a recorded campaign, or how it was made."""
    facts, figures = campaign(name, campaign_records.RECORDED)
    if what.endswith(".svg"):
        if not (PLOTS / what).exists():
            raise NotMeasuredError(what)
        return f"![{report.TITLES[what]}](detectors/{what})"
    if what == "origin":
        return report.origin(facts, figures)
    rows = report.TABLES[what](figures)
    return report.markdown(rows) if len(rows) > 1 else "*no such runs*"


@macro
def lab_figure(_: ResultFiles, name: str, key: str) -> str:
    return in_its_unit(campaign(name, campaign_records.RECORDED)[1], key)


@cache
def campaign(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Facts and figures of a recorded campaign. To score one takes seconds, and the page shows many of its figures."""
    if not (folder / f"{name}.jsonl.gz").exists():
        raise NotMeasuredError(f"{name}.jsonl.gz")
    facts, limits, lines = campaign_records.load_recorded(name)
    figures = score(lines, limits)
    return facts, {**figures, NETWORK: score_network(lines)} if name == NETWORK else figures


def in_its_unit(figures: Record, name: str) -> str:
    """One figure by its name in the JSON of `tiltmeter lab score`, in the unit that its name implies."""
    value = dict(walked(figures))[name]
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    last = name.rpartition(".")[2].removeprefix("level_")
    if last.startswith(("detection", "false_alarm_", "forecast_error", "labels_share", "coverage", "refused", "error")):
        return report.percent(value, 2 if "upper95" in last or "labels_share" in last else 0)
    return (
        report.gold(value)
        if last.startswith(("regret", "floor", "over_floor", "rollback_gap", "auroc"))
        else report.count(value)
    )


# -- the tiny language model ------------------------------------------------------------------------------------------


@macro
def tiny_figure(read: ResultFiles, key: str) -> str:
    return number(reduce(lambda value, name: value[name], key.split("."), read("tiny_suite")))


@macro
def tiny_all(read: ResultFiles) -> str:
    suite = {key: value for key, value in read("tiny_suite").items() if key not in ORIGIN}
    rows = [(f"`{key}`", value) for key, value in suite.items() if not isinstance(value, (dict, list))]
    return table("figure | value", [*rows, *((f"`redraws.{key}`", value) for key, value in suite["redraws"].items())])


@macro
def tiny_table(read: ResultFiles, name: str) -> str:
    """One table of the suite; an onset below 0 is none."""
    rows = read("tiny_suite")[name]
    heads = [head for head, value in next(iter(rows.values())).items() if not isinstance(value, list)]
    filled = [
        (f"`{key}`", *(None if head == "onset" and row[head] < 0 else row[head] for head in heads))
        for key, row in rows.items()
    ]
    return table(" | ".join(["", *heads]).replace("_", " "), filled)


# -- scenarios that were trained with Tiltmeter attached ---------------------------------------------------------------


def by_scenario(runs: Sequence[Record]) -> list[tuple[str, list[Record]]]:
    """Runs in mode advise."""
    advised = [run for run in runs if run["mode"] == "advise"]
    names = dict.fromkeys(run["scenario"] for run in advised)
    return [(name, [run for run in advised if run["scenario"] == name]) for name in names]


def middle(runs: Iterable[Record], key: str) -> float:
    return float(median(run[key] for run in runs))


def count(names: Iterable[str], form: str) -> str:
    return ", ".join(form.format(name, n) for name, n in Counter(names).most_common()) or "–"


@macro
def watched_scenarios(read: ResultFiles) -> str:
    """By scenario: what happened to gold, and what was said."""
    rows = []
    for name, own in by_scenario(read("tiny_watched")["runs"]):
        alarms = [run["alarm"] for run in own if run["alarm"]]
        expected = own[0]["expected"]
        right = sum(expected in {finding[2] for finding in run["findings"]} for run in own)
        gold = [number(middle(own, key)) for key in ("gold_start", "gold_peak", "gold_end")]
        proxy = [number(middle(own, key)) for key in ("proxy_start", "proxy_end")]
        alarmed = f"{len(alarms)}, step {number(middle(alarms, 'step'))}" if alarms else "0"
        diagnosis = f"`{expected}` in {right}" if expected else "none is right"
        last = count((finding for run in own for finding in run["last_findings"]), "`{}` {}")
        course = (" → ".join(gold), " → ".join(proxy), alarmed, diagnosis, last)
        rows.append((f"`{name}`", own[0]["kind"], len(own), *course))
    heads = "scenario | meant as | runs | gold at start → peak → end | reward | alarms | diagnosis | at the end"
    return table(heads, rows)


@macro
def watched_advice(read: ResultFiles) -> str:
    """Gold of the checkpoint that was advised, against the last, the one that was paid best, and the best there was."""
    keys, rows, everything = ("advised", "last", "best_proxy", "best"), [], []
    for name, own in by_scenario(read("tiny_watched")["runs"]):
        words = count((run["advice"]["word"] for run in own if run["advice"]), "{} {}")
        gold = [run["kept"] for run in own]
        rows.append((f"`{name}`", len(own), words, *(middle(gold, key) for key in keys)))
        everything += gold
    if rows:
        means = [sum(gold[key] for gold in everything) / len(everything) for key in keys]
        rows.append(("mean of all runs", len(everything), "", *means))
    return table("scenario | runs | advice at the end | advised | last | paid best | best there was", rows)


@macro
def watched_act(read: ResultFiles) -> str:
    """Each run in mode act, beside the same seed that nobody touched."""
    runs = read("tiny_watched")["runs"]
    alone = {(run["scenario"], run["seed"]): run["gold_end"] for run in runs if run["mode"] == "advise"}
    rows = []
    for run in (run for run in runs if run["mode"] == "act"):
        applied = [action for action in run["actions"] if action[5] == "applied"]
        changes = "; ".join(f"{knob} {number(old)} → {number(new)}" for _, _, knob, old, new, *_ in applied)
        outcomes = ", ".join(outcome[1] for outcome in run["outcomes"])
        gold = (run["gold_peak"], run["gold_end"], alone.get((run["scenario"], run["seed"])))
        rows.append((f"`{run['scenario']}`", run["seed"], changes or "–", outcomes or "–", *gold))
    return table("scenario | seed | changed | outcome | peak of gold | gold at the end | unattended", rows)


@macro
def watched_benign(read: ResultFiles) -> str:
    """False alarms, warnings and findings of benign runs, and in how many of them."""
    own = [run for run in read("tiny_watched")["runs"] if run["kind"] == "benign" and run["mode"] == "advise"]
    warnings = Counter(name for run in own for name in run["warnings"])
    findings = Counter(name for run in own for name in {finding[2] for finding in run["findings"]})
    rows = [("an alarm", sum(run["alarm"] is not None for run in own), len(own))]
    rows += [(f"a warning of `{name}`", n, len(own)) for name, n in warnings.most_common()]
    rows += [(f"a finding `{name}`", n, len(own)) for name, n in findings.most_common()]
    return table("said | in runs | of", rows)
