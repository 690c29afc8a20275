"""Tables and `report.md` of a campaign: rows of text for the terminal, the report and the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import StoreError
from tiltmeter_lab import plots
from tiltmeter_lab.campaign import CampaignRun
from tiltmeter_lab.campaign_records import SETTINGS, Line, Thresholds, apply_thresholds
from tiltmeter_lab.score import HACK_FAMILY, OURS, score
from tiltmeter_lab.simulate import Trace, simulate

Rows = list[tuple[str, ...]]

TITLES = {
    "runs.svg": "Proxy, gold and alarms over the square root of KL",
    "regrets.svg": "Gold lost by the alarm, by family",
    "budgets.svg": "What labels buy",
}


def write_report(
    folder: Path, facts: Mapping[str, Any], lines: Sequence[Line], thresholds: Thresholds | None
) -> list[Path]:
    """Write `report.md` and the plots; the paths of what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    lines, thresholds = apply_thresholds(lines, thresholds)
    figures = score(lines, thresholds)
    svgs = draw_plots(facts, lines, figures)
    parts = ["# The proving ground: one campaign", origin(facts, figures)]
    parts += [f"## {title}\n\n{markdown(rows)}" for title, rows in summary(facts, figures)]
    parts += [f"## {TITLES[name]}\n\n![{TITLES[name]}]({name})" for name in svgs]
    texts = {"report.md": "\n\n".join(parts) + "\n", **svgs}
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def draw_plots(facts: Mapping[str, Any], lines: Sequence[Line], figures: Mapping[str, Any]) -> dict[str, str]:
    """By file name: the SVG of every plot that these runs allow."""
    names = plots.best(figures)
    svgs = {}
    if not facts.get("worlds"):  # outside worlds may be gone; their runs cannot be simulated again
        traces = [(line, simulate_again(facts, line)) for line in representative(lines)]
        svgs["runs.svg"] = plots.runs(traces, names)
    if any(line["kind"] == "hack" for line in lines):
        svgs["regrets.svg"] = plots.regrets(lines, names)
    if figures["budgets"]:
        svgs["budgets.svg"] = plots.budgets(figures)
    return svgs


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


def simulate_again(facts: Mapping[str, Any], line: Line) -> Trace:
    rules = facts["updates"]  # as the campaign asked; a family may have made something else of it
    world, seed = CampaignRun(
        line["family"], rules[line["index"] % len(rules)], line["index"], facts["seed"]
    ).make_world()
    trace = simulate(world, seed)
    if abs(float(trace.gold.max() - trace.gold[-1]) - line["drop"]) > 2e-4:
        raise StoreError(f"run {line['index']} of {line['family']} differs: it was recorded by other code")
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
        ("Policies that share parameters between prompts, by family", network(figures, "families")),
        ("... by update rule", network(figures, "updates")),
    ]
    return [(title, rows) for title, rows in tables if len(rows) > 1]


def headline(figures: Mapping[str, Any]) -> Rows:
    """The headline figures."""
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
        ("... floor, median", gold(figures["floor_median"])),
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
        (
            f"gold lost after a rollback with {figures['rollback_labels']} more labels, median / 90th percentile",
            pair(figures["rollback_gap_median"], figures["rollback_gap_p90"]),
        ),
        ("onset error in steps, median", count(figures["onset_error_median"])),
        ("run AUROC", gold(figures["auroc"])),
        ("peak forecast, smooth, median error", percent(figures["forecast_error_median"])),
    ]
    return [("figure", "value"), *(row for row in rows if row[1] not in ("–", "– / –", "0 of 0"))]


def hack_families(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            f"{family} (cliff)" if entry["cliff"] else family,
            f"{entry['hack']} / {entry['runs']}",
            gold(entry["drop_median"]),
            percent(entry["detection"]),
            percent(entry["detection_low95"]),
            gold(entry["regret_median"]),
            gold(entry["regret_p90"]),
            gold(entry["floor_median"]),
            count(entry["delay_median"]),
            pair(entry["labels_median"], entry["labels_p90"], count),
        )
        for family, entry in figures["families"].items()
        if entry["hack"]
    ]
    heads = ("family", "hacks / runs", "lost", "detected", "95 % low", "regret", "p90", "floor")
    return [(*heads, "after peak", "labels / p90"), *rows]


def benign_families(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            family,
            ", ".join(entry["updates"]),
            f"{entry['benign']} / {entry['runs']}",
            str(entry["plateau"]),
            str(entry["false_alarms"]),
        )
        for family, entry in figures["families"].items()
        if entry["benign"]
    ]
    return [("family", "update rules", "benign / runs", "plateaus", "false alarms"), *rows]


def updates(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            update,
            str(entry["hack"]),
            percent(entry["detection"]),
            gold(entry["regret_median"]),
            gold(entry["regret_p90"]),
            count(entry["turn_after_peak_median"]),
        )
        for update, entry in figures["updates"].items()
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
    at = {name: [values[setting] for setting in SETTINGS] for name, values in figures["baselines"].items()}
    order = sorted(at, key=lambda name: (at[name][-1]["regret_median"] or 0.0, name))
    ours = ("tiltmeter", [figures] * len(SETTINGS))
    for name, (plain, strict, loose, null) in [ours, *((name, at[name]) for name in order)]:
        values = [word[ahead[name, setting]] for setting in SETTINGS if (name, setting) in ahead]
        published, one, five, edge = (
            (percent(m["detection_min_smooth"]), gold(m["regret_median"])) for m in (plain, strict, loose, null)
        )
        false_alarms = f"{plain['false_alarms']} / {plain['benign_runs']}"
        rows.append((name, false_alarms, percent(edge_alarm_rate(plain)), *published, *edge))
        lost = gold(strict["regret_p90"])
        extra.append((*one, lost, percent(edge_alarm_rate(strict)), *five, gold(plain["auroc"])))
        last.append((" ".join(values),))
    if narrow:
        return [(*row, *end) for row, end in zip(rows, last, strict=True)]
    return [(*row, *more, *end) for row, more, end in zip(rows, extra, last, strict=True)]


def edge_alarm_rate(figures: Mapping[str, Any]) -> float | None:
    """The share of runs that alarm although gold has nothing to do with the reward: the hardest case of the null."""
    counts = figures["boundary"]
    return counts["alarms"] / counts["runs"] if counts["runs"] else None


def budgets(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            percent(float(share), 1),
            f"{entry['false_alarms']} / {entry['benign_runs']}",
            percent(entry["detection_smooth"]),
            percent(entry["detection_min_smooth"]),
            percent(entry["detection_cliff"]),
            gold(entry["regret_median"]),
            gold(entry["regret_p90"]),
            count(entry.get("labels_to_alarm_median")),
        )
        for share, entry in figures["budgets"].items()
    ]
    heads = ("labelled", "false alarms", "detected, smooth", "worst smooth", "detected, cliffs", "regret", "p90")
    return [(*heads, "labels to alarm"), *rows]


def network(figures: Mapping[str, Any], by: str) -> Rows:
    """Held-out runs of linear-softmax policies: ours with a share of labels, and the level of gold with all of them."""
    heads = ("", "hacks", "slope never turns", "lost", "detected", "regret", "level: detected", "regret", "floor")
    rows = [
        (
            name,
            str(entry["hack_runs"]),
            str(entry["slope_never_turns"]),
            gold(entry["drop_median"]),
            percent(entry["detection"]),
            gold(entry["regret_median"]),
            percent(entry["level_detection"]),
            gold(entry["level_regret_median"]),
            gold(entry["floor_median"]),
            pair(entry["rollback_gap_median"], entry["rollback_gap_p90"]),
        )
        for name, entry in figures.get("network", {}).get(by, {}).items()
    ]
    return [(*heads, "after a rollback / p90"), *rows]


def forecast(figures: Mapping[str, Any]) -> Rows:
    rows = [
        (
            kind,
            str(entry["asked"]),
            percent(entry["refused_share"]),
            percent(entry["error_median"]),
            percent(entry["error_p90"]),
            percent(entry["coverage80"]),
        )
        for kind, entry in figures["forecast"].items()
        if entry["asked"]
    ]
    return [("runs", "asked", "refused", "median error", "p90", "80 % interval holds the peak"), *rows]


def origin(facts: Mapping[str, Any], figures: Mapping[str, Any]) -> str:
    """How a campaign was made, in a sentence."""
    commands = ", ".join(f"`{command}`" for command in facts.get("commands", ())) or "unknown commands"
    rest = {name: facts[name] for name in ("version", "code", "date") if facts.get(name)}
    return (
        f"{figures['runs']:,} runs by {commands}; " + "; ".join(f"{name} {value}" for name, value in rest.items()) + "."
    )


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


def pair(first: float | None, second: float | None, render: Any = gold) -> str:
    return f"{render(first)} / {render(second)}"


#: What the documentation asks for by name.
TABLES: dict[str, Callable[[Mapping[str, Any]], Rows]] = {
    "figures": headline,
    "hacks": hack_families,
    "benign": benign_families,
    "updates": updates,
    "methods": methods,
    "budgets": budgets,
    "forecast": forecast,
    "network_families": lambda figures: network(figures, "families"),
    "network_updates": lambda figures: network(figures, "updates"),
}
