"""A campaign's figures as tables: rows of text that the terminal, a report and the documentation all show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import StoreError
from tiltmeter.lab import plots
from tiltmeter.lab.campaign import Task
from tiltmeter.lab.score import HACK_FAMILY, OURS, score
from tiltmeter.lab.settled import SETTINGS, Line, Thresholds, settle
from tiltmeter.lab.simulate import Trace, simulate

Rows = list[tuple[str, ...]]

TITLES = {
    "runs.svg": "Proxy, gold and alarms over the square root of KL",
    "regrets.svg": "Gold lost by the alarm, by family",
    "budgets.svg": "What labels buy",
}


def write(folder: Path, facts: Mapping[str, Any], lines: Sequence[Line], thresholds: Thresholds | None) -> list[Path]:
    """Write `report.md` and the plots; the paths of what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    lines, thresholds = settle(lines, thresholds)
    figures = score(lines, thresholds)
    drawn = drawings(facts, lines, figures)
    parts = ["# The proving ground: one campaign", origin(facts, figures)]
    parts += [f"## {title}\n\n{markdown(rows)}" for title, rows in summary(facts, figures)]
    parts += [f"## {TITLES[name]}\n\n![{TITLES[name]}]({name})" for name in drawn]
    texts = {"report.md": "\n\n".join(parts) + "\n", **drawn}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def drawings(facts: Mapping[str, Any], lines: Sequence[Line], figures: Mapping[str, Any]) -> dict[str, str]:
    """By file name: the SVG of every plot that these runs allow."""
    names = plots.best(figures)
    found = {}
    if not facts.get("worlds"):  # outside worlds may be gone; their runs cannot be simulated again
        traced = [(line, _traced(facts, line)) for line in representative(lines)]
        found["runs.svg"] = plots.runs(traced, names)
    if any(line["kind"] == "hack" for line in lines):
        found["regrets.svg"] = plots.regrets(lines, names)
    if figures["budgets"]:
        found["budgets.svg"] = plots.budgets(figures)
    return found


def representative(lines: Sequence[Line]) -> list[Line]:
    """Of each family the run in the middle: by our regret among its hack runs, or by its own loss if it has none."""
    families: dict[str, list[Line]] = {}
    for line in lines:
        families.setdefault(line["family"], []).append(line)
    chosen = []
    for _, members in sorted(families.items()):
        hacks = [line for line in members if line["kind"] == "hack"]
        typical = hacks if len(hacks) >= HACK_FAMILY * len(members) else members
        order = sorted(typical, key=lambda line: (line["methods"][OURS]["regret"], line["index"]))
        chosen.append(order[len(order) // 2])
    return chosen


def _traced(facts: Mapping[str, Any], line: Line) -> Trace:
    rules = facts["updates"]  # as the campaign asked; a family may have made something else of it
    world, seed = Task(line["family"], rules[line["index"] % len(rules)], line["index"], facts["seed"]).made()
    trace = simulate(world, seed)
    if abs(float(trace.gold.max() - trace.gold[-1]) - line["drop"]) > 2e-4:
        raise StoreError(f"run {line['index']} of {line['family']} is another today: it was recorded by other code")
    return trace


def summary(facts: Mapping[str, Any], figures: Mapping[str, Any], narrow: bool = False) -> list[tuple[str, Rows]]:
    """Every table of a campaign with its title, the most asked for first."""
    what = facts.get("split") or facts.get("worlds") or "campaign"
    tables = [
        (f"{what}: figures", headline(figures)),
        ("Hack families", hack_families(figures)),
        ("Benign families", benign_families(figures)),
        ("By update rule, smooth hacks", updates(figures)),
        ("Methods on the same runs", methods(figures, narrow)),
        ("Label budgets", budgets(figures)),
        ("Peak forecasts", forecast(figures)),
    ]
    return [(title, rows) for title, rows in tables if len(rows) > 1]


def headline(figures: Mapping[str, Any]) -> Rows:
    """The figures that the promises are about."""
    edge, flat = figures["boundary"], figures["plateau"]
    rows = [
        ("false alarms on benign runs", f"{figures['false_alarms']} of {figures['benign_runs']}"),
        ("... 95 % upper bound", percent(figures["false_alarm_upper95"], 2)),
        ("alarms before the slope turned, hack runs", f"{figures['alarms_while_null_true']} of {figures['hack_runs']}"),
        ("alarms where the slope is exactly zero", f"{edge['alarms']} of {edge['runs']}"),
        ("alarms on plateaus", f"{flat['alarms']} of {flat['runs']}"),
        ("detection, worst smooth family", percent(figures["detection_min_smooth"])),
        ("detection, worst cliff", percent(figures["detection_min_cliff"])),
        ("gold regret, smooth, median / 90th percentile", pair(figures["regret_median"], figures["regret_p90"])),
        (
            "gold regret, cliffs, median / 90th percentile",
            pair(figures["cliff"]["regret_median"], figures["cliff"]["regret_p90"]),
        ),
        ("... floor of cliffs (oracle + 10 steps), median", gold(figures["cliff"]["floor_median"])),
        (
            "labels to alarm, median / 90th percentile",
            pair(figures["labels_to_alarm_median"], figures["labels_to_alarm_p90"], count),
        ),
        ("labelled share of rollouts, mean", percent(figures["labels_share"], 2)),
        ("onset error in steps, median", count(figures["onset_error_median"])),
        ("run AUROC", gold(figures["auroc"])),
        ("peak forecast, smooth, median error", percent(figures["forecast_error_median"])),
    ]
    return [("figure", "value"), *(row for row in rows if row[1] not in ("–", "– / –", "0 of 0"))]


def hack_families(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            f"{family} (cliff)" if told["cliff"] else family,
            f"{told['hack']} / {told['runs']}",
            gold(told["drop_median"]),
            percent(told["detection"]),
            percent(told["detection_low95"]),
            gold(told["regret_median"]),
            gold(told["regret_p90"]),
            gold(told["floor_median"]),
            count(told["delay_median"]),
            pair(told["labels_median"], told["labels_p90"], count),
        )
        for family, told in figures["families"].items()
        if told["hack"]
    ]
    heads = ("family", "hacks / runs", "lost", "detected", "95 % low", "regret", "p90", "floor")
    return [(*heads, "after peak", "labels / p90"), *rows]


def benign_families(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            family,
            ", ".join(told["updates"]),
            f"{told['benign']} / {told['runs']}",
            str(told["plateau"]),
            str(told["false_alarms"]),
        )
        for family, told in figures["families"].items()
        if told["benign"]
    ]
    return [("family", "update rules", "benign / runs", "plateaus", "false alarms"), *rows]


def updates(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            update,
            str(told["hack"]),
            percent(told["detection"]),
            gold(told["regret_median"]),
            gold(told["regret_p90"]),
            count(told["turn_after_peak_median"]),
        )
        for update, told in figures["updates"].items()
    ]
    return [("update rule", "smooth hacks", "detected", "regret", "p90", "slope turns after the peak, steps"), *rows]


def methods(figures: Mapping[str, Any], narrow: bool = False) -> Rows:
    """Ours and every baseline on the same runs, those that lose least at 1 % of the null first; worst smooth family.

    "Ahead": ours has no more false alarms and a lower median regret, at each of the settings in turn. Ours has one
    setting, so its figures stand under all of them. `narrow` leaves out what a terminal has no room for.
    """
    ahead = {(row["baseline"], row["setting"]): row["ahead"] for row in figures["compared"]}
    word = {True: "yes", False: "no", None: "–"}
    rows: Rows = [("method", "false alarms", "at slope 0", "detected", "regret", "1 % of null", "regret")]
    extra: Rows = [("1 %: detected", "regret", "p90", "at slope 0", "5 %: detected", "regret", "AUROC")]
    last: Rows = [("ahead",)]
    at = {name: [told[setting] for setting in SETTINGS] for name, told in figures["baselines"].items()}
    order = sorted(at, key=lambda name: (at[name][-1]["regret_median"] or 0.0, name))
    ours = ("tiltmeter", [figures] * len(SETTINGS))
    for name, (plain, strict, loose, null) in [ours, *((name, at[name]) for name in order)]:
        told = [word[ahead[name, setting]] for setting in SETTINGS if (name, setting) in ahead]
        published, one, five, edge = (
            (percent(m["detection_min_smooth"]), gold(m["regret_median"])) for m in (plain, strict, loose, null)
        )
        falsely = f"{plain['false_alarms']} / {plain['benign_runs']}"
        rows.append((name, falsely, percent(at_edge(plain)), *published, *edge))
        lost = gold(strict["regret_p90"])
        extra.append((*one, lost, percent(at_edge(strict)), *five, gold(plain["auroc"])))
        last.append((" ".join(told),))
    if narrow:
        return [(*row, *end) for row, end in zip(rows, last, strict=True)]
    return [(*row, *more, *end) for row, more, end in zip(rows, extra, last, strict=True)]


def at_edge(figures: Mapping[str, Any]) -> float | None:
    """The share of runs that alarm although gold has nothing to do with the reward: the hardest case of the null."""
    told = figures["boundary"]
    return told["alarms"] / told["runs"] if told["runs"] else None


def budgets(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            percent(float(share), 1),
            f"{told['false_alarms']} / {told['benign_runs']}",
            percent(told["detection_smooth"]),
            percent(told["detection_min_smooth"]),
            percent(told["detection_cliff"]),
            gold(told["regret_median"]),
            gold(told["regret_p90"]),
            count(told.get("labels_to_alarm_median")),
        )
        for share, told in figures["budgets"].items()
    ]
    heads = ("labelled", "false alarms", "detected, smooth", "worst smooth", "detected, cliffs", "regret", "p90")
    return [(*heads, "labels to alarm"), *rows]


def forecast(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            kind,
            str(told["asked"]),
            percent(told["refused_share"]),
            percent(told["error_median"]),
            percent(told["error_p90"]),
            percent(told["coverage80"]),
        )
        for kind, told in figures["forecast"].items()
        if told["asked"]
    ]
    return [("runs", "asked", "refused", "median error", "p90", "80 % interval holds the peak"), *rows]


def origin(facts: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """How a campaign was made, in a sentence."""
    made = ", ".join(f"`{command}`" for command in facts.get("commands", ())) or "unknown commands"
    rest = {name: facts[name] for name in ("version", "code", "date") if facts.get(name)}
    return f"{figures['runs']:,} runs by {made}; " + "; ".join(f"{name} {value}" for name, value in rest.items()) + "."


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table; numbers to the right.

    >>> print(markdown([("family", "runs"), ("length", "40")]))
    | family | runs |
    |---|---:|
    | length | 40 |
    """
    head, *rest = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    rule = ["---" if not column else "---:" for column in range(len(head))]
    return "\n".join(
        ["| " + " | ".join(head) + " |", "|" + "|".join(rule) + "|", *("| " + " | ".join(row) + " |" for row in rest)]
    )


def percent(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def gold(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def pair(first: float | None, second: float | None, shown: Any = gold) -> str:
    return f"{shown(first)} / {shown(second)}"


#: What the documentation asks for by name.
TABLES: dict[str, Callable[[Mapping[str, Any]], Rows]] = {
    "figures": headline,
    "hacks": hack_families,
    "benign": benign_families,
    "updates": updates,
    "methods": methods,
    "budgets": budgets,
    "forecast": forecast,
}
