"""Renders what a large audit costs and what a frontier run would need, while mkdocs builds. No figure is typed in.

`<!-- scale: sizes -->` becomes the table of measured sizes of `benchmarks/results/audit_scale.json`, `<!-- scale: plan
-->` the plan for 10^9 rollouts, computed from its constants.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shown import PENDING, RESULTS, measured

_MARK = re.compile(r"<!-- scale: (sizes|plan) -->")
ROLLOUTS, STEPS, PACKED = 10**9, 10**5, 10**9  # of the plan; bytes in a packed file
LENGTHS = (20, 400, 4_000)  # tokens a rollout
DAY_HOURS = 24.0
RANKS = 1_024  # that write a file each at every step, if each writes its own
ALLOCATED = 16  # bytes a token in memory: ids, two log-probabilities, text


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(text, RESULTS) if _MARK.search(text) else text


def rendered(text: str, results: Path) -> str:
    """The page with its tables filled in."""
    found = measured(results / "audit_scale.json")
    if found is None:
        return _MARK.sub(PENDING, text)
    return _MARK.sub(lambda mark: sizes(found) if mark[1] == "sizes" else plan(found), text)


def sizes(found: Mapping[str, Any]) -> str:
    lines = [
        "| engine | rollouts | CPU, whole tree | CPU a rollout | largest worker | driver |",
        "|---|---|---|---|---|---|",
    ]
    for engine, by_rows in found["sizes"].items():
        for rows, one in by_rows.items():
            each = 1e6 * one["cpu_s"] / int(rows)
            lines.append(
                f"| {engine} | {int(rows):,} | {one['cpu_s']:.1f} s | {each:.1f} µs | {one['worker_mb']:.0f} MB | "
                f"{one['driver_mb']:.0f} MB |"
            )
    return "\n".join(lines)


def plan(found: Mapping[str, Any]) -> str:
    """Linear in tokens between the two lengths that were measured, and beyond them, which is a guess."""
    short, long = found["tokens_a_row"], found["long_tokens"]
    largest = str(max(map(int, found["sizes"]["processes"])))
    cpu = 1e6 * found["sizes"]["processes"][largest]["cpu_s"] / int(largest)
    slope = (found["long_us_a_row"] - cpu) / (long - short)
    size = found["bytes"][largest] / int(largest)
    bytes_slope = (found["long_bytes_a_row"] - size) / (long - short)
    heads = [f"{length:,} tokens" for length in LENGTHS]
    rows: dict[str, list[str]] = {
        "CPU a rollout": [], "core-hours": [], "workers for one day": [], "bytes": [], "files of 1 GB": [],
        "read, all workers": [], "a step in one worker": [],
    }  # fmt: skip
    for length in LENGTHS:
        each = cpu + slope * (length - short)
        hours = ROLLOUTS * each / 1e6 / 3600
        stored = ROLLOUTS * (size + bytes_slope * (length - short))
        rows["CPU a rollout"].append(f"{each:,.0f} µs")
        rows["core-hours"].append(f"{hours:,.0f}")
        rows["workers for one day"].append(f"{max(1, round(hours / DAY_HOURS)):,}")
        rows["bytes"].append(f"{stored / 1e12:,.2f} TB")
        rows["files of 1 GB"].append(f"{max(1, round(stored / PACKED)):,}")
        rows["read, all workers"].append(f"{stored / DAY_HOURS / 3600 / 1e6:,.0f} MB/s")
        rows["a step in one worker"].append(f"{ROLLOUTS / STEPS * length * ALLOCATED / 1e9:,.2f} GB")
    lines = [f"| 10^9 rollouts in 10^5 steps | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    lines += [f"| {name} | {' | '.join(values)} |" for name, values in rows.items()]
    driver = STEPS * found["driver_ms_a_step"] / 1e3 / 3600
    journal = STEPS * found["journal_bytes_a_step"] / 1e6
    lines += [
        "",
        f"The driver folds steps one by one: at most {driver:.2f} hours for all. The journal has {journal:,.0f} MB. "
        f"Unpacked there would be {STEPS:,} files with one writer, and {STEPS * RANKS:,} with {RANKS:,} ranks.",
    ]
    return "\n".join(lines)
