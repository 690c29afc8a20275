"""Every benchmark, one after the other, and one table of what they found: `make bench` runs this.

    python benchmarks/all.py [--quick] [--only handoff,store]

A missed target is said, and is no failure: time on a shared machine must not stop a commit. A benchmark that ends in
an error (its oracle disagreed, data was lost) is a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from record import ORIGIN

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of a benchmark and what it must reach; without a bound it is only shown."""

    script: str
    figure: str
    sign: Literal["<=", ">=", "==", ""] = ""
    bound: float = 0.0
    full_only: bool = False  # the ratio grows with the size of the store: at a small one it says nothing

    def met(self, value: float) -> bool:
        if self.sign == "<=":
            return value <= self.bound
        return value >= self.bound if self.sign == ">=" else value == self.bound


TARGETS = (
    Target("handoff", "p95_ms", "<=", 0.1),
    Target("handoff", "p95_copy_ms", "<=", 0.6),
    Target("handoff", "p95_vs_copy", "<=", 1.0),
    Target("handoff", "full_queue_p99_ms", "<=", 2.0),
    Target("handoff", "full_queue_max_ms", "<=", 50.0),
    Target("handoff", "work_ratio"),
    Target("handoff", "work_extra_ms"),
    Target("handoff", "work_cpu_ratio"),
    Target("handoff", "writer_cpu_ms"),
    Target("handoff", "other_cores"),
    Target("dashboard", "first_paint_ms", "<=", 1000.0),
    Target("dashboard", "plots_drawn_ms", "<=", 2500.0),
    Target("dashboard", "js_css_gzip_kb", "<=", 120.0),
    Target("dashboard", "first_chunk_gzip_kb", "<=", 40.0),
    Target("dashboard", "rollout_query_ms", "<=", 300.0),
    Target("dashboard", "live_delay_s", "<=", 2.0),
    Target("dashboard", "xss_payloads", ">=", 500.0),
    Target("dashboard", "xss_executed", "==", 0.0),
    Target("dashboard", "axe_serious", "==", 0.0),
    Target("first_minutes", "demo_cpu_s", "<=", 10.0),
    Target("first_minutes", "first_verdict_cpu_s", "<=", 60.0),
    Target("first_minutes", "install_mb"),
    Target("first_minutes", "show_lines_max", "<=", 5.0),
    Target("first_minutes", "same_run_trackers"),
    Target("audit_scale", "cpu_per_row_growth", "<=", 1.2),
    Target("audit_scale", "memory_growth", "<=", 1.1, full_only=True),
    Target("audit_scale", "ray_vs_bare_ray", "<=", 1.25, full_only=True),
    Target("audit_scale", "processes_vs_bare", "<=", 1.15, full_only=True),
    Target("audit_scale", "duckdb_ratio"),
    Target("audit_scale", "polars_ratio"),
    Target("audit_scale", "rows_per_core_s"),
    Target("sandbox", "attacks", ">=", 30.0),
    Target("sandbox", "blocked"),
    Target("sandbox", "strict_vs_bare", "<=", 4.0),
    Target("sandbox", "pooled_vs_bare", "<=", 1.0),
    Target("sandbox", "forgeries_paid_values_out", "==", 0.0),
    Target("verifiers", "forgeries_paid_values_out_hidden", "==", 0.0),
    Target("verifiers", "forgeries_paid_maths", "==", 0.0),
    Target("verifiers", "humaneval_mutants_paid_wrongly", "==", 0.0),
    Target("verifiers", "mbpp_mutants_paid_wrongly", "==", 0.0),
    Target("audit", "holes"),
    Target("audit", "holes_found"),
    Target("audit", "clean_findings", "==", 0.0),
    Target("audit", "takeovers_seen"),
    Target("audit", "healthy_alarms", "==", 0.0),
    Target("probe", "planted"),
    Target("probe", "planted_found"),
    Target("probe", "clean"),
    Target("probe", "clean_cleared"),
    Target("probe", "bias_reduction", ">=", 0.7),
    Target("before", "planted"),
    Target("before", "planted_recovered"),
    Target("before", "shuffled_false_share", "<=", 0.05, full_only=True),
    Target("before", "memory_error_max", "<=", 0.1),
    Target("before", "lint_caught", ">=", 30.0),
    Target("before", "lint_false", "==", 0.0),
    Target("before", "forecast_coverage", ">=", 0.8, full_only=True),
    Target("compare", "planted"),
    Target("compare", "planted_named"),
    Target("compare", "healthy"),
    Target("compare", "healthy_passed"),
    Target("soft", "entropy_ratio"),
    Target("soft", "distinct_ratio"),
    Target("soft", "distinct_right_ratio"),
    Target("soft", "distinct_right_low", ">=", 1.0, full_only=True),
    Target("store", "worst20_cpu_ms", "<=", 5.0),
    Target("store", "worst20_packed_cpu_ms", "<=", 5.0),
    Target("store", "worst20_vs_jsonl", ">=", 100.0, full_only=True),
    Target("store", "size_vs_jsonl", ">=", 5.0),
    Target("store", "size_vs_jsonl_softmax"),
    Target("store", "size_vs_jsonl_shortest"),
    Target("store", "bytes_per_token"),
    Target("store", "size_vs_arrow", ">=", 1 / 0.6),
    Target("store", "default_bytes_vs_ours", ">=", 1.3),
    Target("store", "default_cpu_vs_ours", ">=", 1.5),
    Target("store", "write_us_per_token"),
    Target("store", "pack_us_per_token"),
    Target("store", "other_cores"),
    Target("instruments", "self_bleu_vs_nltk_g8", ">=", 200.0),
    Target("instruments", "self_bleu_vs_nltk_g64", ">=", 1000.0),
    Target("instruments", "distinct_vs_diversity", ">=", 30.0),
    Target("instruments", "panel_mtok_per_core_s", ">=", 2.0),
    Target("instruments", "group_growth_8_to_512", "<=", 2.0),
    Target("instruments", "length_growth_100_to_4000", "<=", 1.5),
    Target("instruments", "panel_mtok_per_core_s_best"),
    Target("instruments", "python_loop_ms"),
    Target("instruments", "panel_readings"),
    Target("instruments", "share"),
    Target("instruments", "other_cores"),
    Target("refusal", "f1", ">=", 0.95),
    Target("refusal", "precision"),
    Target("refusal", "recall"),
    Target("refusal", "string_match_f1"),
    Target("required_nulls", "purse_worst", "<=", 0.01, full_only=True),
    Target("required_nulls", "pair_worst_upper95", "<=", 0.01, full_only=True),
    Target("required_nulls", "weighted_worst_upper95", "<=", 0.01, full_only=True),
    Target("required_nulls", "uncentred_worst", ">=", 0.5, full_only=True),
    Target("required_nulls", "peeked_z_least", ">=", 0.05),
    Target("bound", "worst_share", "<=", 0.01, full_only=True),
    Target("power", "found_0.02", ">=", 0.9, full_only=True),
    Target("power", "worst_family_0.02", ">=", 0.8, full_only=True),
    Target("power", "found_0.1"),
    Target("power", "found_all"),
    Target("power", "false_0.02", "==", 0.0),
    Target("entropy_fall", "healthy_runs"),
    Target("entropy_fall", "healthy_warned"),
    Target("overhead_trl", "cpu_ratio_trainer", "<=", 1.01),
    Target("overhead_trl", "wall_ratio_low", "<=", 1.01),
    Target("overhead_trl", "wall_ratio_high"),
    Target("overhead_trl", "monitor_cpu_s_per_mtok"),
    Target("monitor", "cpu_ms_a_step"),
    Target("monitor", "catch_up_steps_a_second"),
    Target("monitor", "restart_ms_a_thousand_steps"),
    Target("crash", "cycles"),
    Target("crash", "lost", "==", 0),
    Target("crash", "torn_reads", "==", 0),
    Target("crash", "events_lost", "==", 0),
    Target("crash", "events_changed", "==", 0),
    Target("fuzz", "batches"),
    Target("fuzz", "crashes", "==", 0),
    Target("fuzz", "differences", "==", 0),
    Target("fuzz", "non_finite_readings", "==", 0),
    Target("bitflips", "flips"),
    Target("bitflips", "silent", "==", 0),
    Target("bitflips", "other_errors", "==", 0),
    Target("bitflips", "verify_crashed", "==", 0),
    Target("bitflips", "journal_silent"),
)
SCRIPTS = (
    *("handoff", "store", "instruments", "refusal", "required_nulls", "bound", "power", "entropy_fall"),
    *("overhead_trl", "monitor"),
    *("dashboard", "sandbox", "verifiers", "audit", "audit_scale", "before", "soft", "compare"),
    *("crash", "fuzz", "bitflips"),
)
ALWAYS_QUICK = ("crash", "fuzz", "bitflips")  # their full size is a campaign of its own, `make campaign`


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the rows of the table as JSON")
    parser.add_argument("--quick", action="store_true", help="small sizes, about a minute")
    parser.add_argument("--only", default=",".join(SCRIPTS), help="names, with commas")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    failed = []
    for script in options.only.split(","):
        if not (HERE / f"{script}.py").exists():
            print(f"{script}: not there, left out", file=sys.stderr)
            continue
        quick = options.quick or script in ALWAYS_QUICK
        print(f"{script}{' --quick' if quick else ''}, load {os.getloadavg()[0]:.2f}", file=sys.stderr, flush=True)
        result = _run(script, quick=quick, seed=options.seed)
        if result is None:
            failed.append(script)
        else:
            rows += _rows(script, result, quick=quick)
    print(json.dumps(rows) if options.json else _table(rows))
    missed = [f"{row['name']}.{row['figure']}" for row in rows if row["pass"] == "MISSED"]
    if missed:
        print(f"\nmissed: {', '.join(missed)}", file=sys.stderr)
    if failed:
        print(f"\nended in an error: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(script: str, *, quick: bool, seed: int) -> dict[str, object] | None:
    command = [
        sys.executable,
        str(HERE / f"{script}.py"),
        "--json",
        "--seed",
        str(seed),
        *(["--quick"] if quick else []),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        return None
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def _rows(script: str, result: dict[str, object], *, quick: bool) -> list[dict[str, object]]:
    """The figures that have a line above; of a script that has none, every number it reports."""
    listed = [target for target in TARGETS if target.script == script and target.figure in result]
    if not any(target.script == script for target in TARGETS):
        numbers = (name for name, value in result.items() if isinstance(value, (int, float)) and name not in ORIGIN)
        listed = [Target(script, name) for name in numbers]
    rows: list[dict[str, object]] = []
    for target in listed:
        value = result[target.figure]
        if isinstance(value, dict):  # one figure per part
            rows += [
                {"name": script, "figure": f"{target.figure}.{part}", "value": share, "target": "", "pass": ""}
                for part, share in value.items()
            ]
            continue
        verdict, bound = "", f"{target.sign} {target.bound:.4g}" if target.sign else ""
        if target.full_only and quick:
            bound += ", full size"
        elif target.sign:
            verdict = "not measured"
            if isinstance(value, (int, float)):
                verdict = "yes" if target.met(value) else "MISSED"
        rows.append({"name": script, "figure": target.figure, "value": value, "target": bound, "pass": verdict})
    return rows


def _table(rows: list[dict[str, object]]) -> str:
    heads = ("name", "figure", "value", "target", "pass")
    cells = [heads, *(tuple(str(row[head]) for head in heads) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if head == "value" else cell.ljust(width)
            for head, cell, width in zip(heads, line, widths, strict=True)
        ).rstrip()
        for line in cells
    )


if __name__ == "__main__":
    sys.exit(main())
