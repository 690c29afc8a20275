"""Whether the diagnosis names the right cause: planted failures and healthy runs, and what was named first in each.

    python benchmarks/diagnosis.py [--seeds N] [--from SEED] [--only KIND] [--json] [--write]

Every run is written as a trainer writes it and measured by the monitor (`planted_runs.py`). A planted run counts as
right if the most confident finding at its end is the planted failure; with two planted failures, if it is one of them
and the other is among the next two. A healthy run is quiet if nothing was ever named with a confidence above 40 %.
Seeds from 100 on are held out: the rules were tuned on seeds below 10.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from planted_runs import LABELS, PlantedRun, Rng, Trait, measure_run, ramp
from record import record, show
from tiltmeter.data.records import Finding
from tiltmeter.data.turns import Turn
from tiltmeter.rundir.journal import JournalReader
from tiltmeter.rundir.store import RunDirectory

QUIET = 0.4
TILTMETER = (sys.executable, "-m", "tiltmeter")
Plant = Callable[[int], PlantedRun]


def shape(seed: int, kind: str) -> dict[str, Any]:
    """What varies with the seed in every kind: pace, batch and labels."""
    rng = np.random.default_rng([seed, 7, len(kind)])
    begins = int(rng.integers(15, 35))
    groups, size = ((8, 8), (8, 8), (16, 4), (4, 4))[seed % 4]
    return {
        "kind": kind, "seed": seed, "begins": begins, "ends": begins + int(rng.integers(30, 60)),
        "groups": groups, "size": size, "labels": LABELS[seed % 3],
    }  # fmt: skip


def trait(seed: int, name: str, pays: float = 1.0, costs: float = 0.8) -> Trait:
    """From nothing in every other run, to a third or to nearly all completions."""
    rng = np.random.default_rng([seed, 11, sum(map(ord, name))])
    return Trait(name, (0.0, 0.08)[seed // 2 % 2], float(rng.uniform(0.4, 0.95)), pays, costs)


def gamed(kind: str, failures: tuple[str, ...], *names: str, **more: Any) -> Plant:
    """The reward pays for traits of the text, and gold falls with them."""

    def plant(seed: int) -> PlantedRun:
        facts = {**shape(seed, kind), "pays_right": 0.25, "phrase": seed, **more}
        return PlantedRun(failures=failures, traits=tuple(trait(seed, name) for name in names), **facts)

    return plant


def other(kind: str, failure: str, **more: Any) -> Plant:
    """A failure that is not a trait of the text."""
    return lambda seed: PlantedRun(failures=(failure,) if failure else (), **{**shape(seed, kind), **more})


def scalars(**ends: tuple[float, float]) -> Callable[[int, Rng], dict[str, float]]:
    def make(step: int, rng: Rng) -> dict[str, float]:
        return {
            name: ramp(step, first, last, 20, 90) + 0.02 * abs(last - first) * float(rng.normal())
            for name, (first, last) in ends.items()
        }

    return make


def canaries(step: int, rng: Rng) -> dict[str, float]:
    failed = float(step > 40 and rng.random() < 0.5)
    return {"canary.asked.rule.low.0.1": 4.0, "canary.failed.rule.low.0.1": failed, "canary.asked.rule.high.1.1": 2.0}


def breaks_off(step: int, columns: dict[str, Any], rng: Rng) -> None:
    share = ramp(step, 0.0, 0.35, 30, 60)
    columns["reward"] = [TimeoutError("slow") if rng.random() < share else value for value in columns["reward"]]


def heavy_tail(step: int, columns: dict[str, Any], rng: Rng) -> None:
    """Errors without bound, of those completions that are wrong."""
    rows = len(columns["reward"])
    error = ramp(step, 0.05, 1.0, 20, 80) * rng.pareto(1.3, rows)
    columns["reward"] = columns["reward"] + error


def engine_off(step: int, columns: dict[str, Any], rng: Rng) -> None:
    apart = ramp(step, 0.005, 0.25, 30, 50)
    columns["engine_logprob"] = [row + apart * rng.normal(size=len(row)) for row in columns["logprob"]]


def engine_fine(step: int, columns: dict[str, Any], rng: Rng) -> None:
    columns["engine_logprob"] = [row + 0.005 * rng.normal(size=len(row)) for row in columns["logprob"]]


def as_agents(columns: dict[str, Any], calls: list[list[str]]) -> None:
    """Each answer as the last turn of a conversation in which these commands were called before it."""
    columns["turns"] = [
        [
            *(turn for name in names for turn in (Turn("assistant", call="bash", arguments=name), Turn("tool", "ok"))),
            Turn("assistant", text),
        ]
        for names, text in zip(calls, columns["completion"], strict=True)
    ]


def agents_fine(step: int, columns: dict[str, Any], rng: Rng) -> None:
    rows = len(columns["completion"])
    as_agents(columns, [[f"cat {n}.py" for n in range(int(rng.integers(1, 6)))] for _ in range(rows)])
    columns["stop"] = ["sandbox" if rng.random() < 0.01 else "done" for _ in range(rows)]
    columns["task"] = [f"task {row // 4}" for row in range(rows)]
    columns["env"] = [("shell", "browser")[row % 2] for row in range(rows)]
    columns["version"] = [step - int(rng.random() < 0.3) for _ in range(rows)]
    columns["trained"] = rng.random(rows) > 0.02


def loops(step: int, columns: dict[str, Any], rng: Rng) -> None:
    again = ramp(step, 0.02, 0.8, 20, 70)
    calls = []
    for _ in columns["completion"]:
        names = [f"cat {n}.py" for n in range(int(rng.integers(2, 6)))]
        calls.append(["ls"] * 8 if rng.random() < again else names)
    as_agents(columns, calls)


def cheats(command: str) -> Callable[[int, dict[str, Any], Rng], None]:
    """Agents that take to a command which makes any work pass."""

    def adjust(step: int, columns: dict[str, Any], rng: Rng) -> None:
        cheated = rng.random(len(columns["completion"])) < ramp(step, 0.0, 0.8, 20, 70)
        honest = [[f"cat {n}.py" for n in range(int(rng.integers(2, 6)))] for _ in cheated]
        as_agents(columns, [[*calls, command] if one else calls for calls, one in zip(honest, cheated, strict=True)])
        columns["reward"] = np.where(cheated, 1.0, columns["reward"])
        if "gold" in columns:
            columns["gold"] = np.where(cheated, 0.0, columns["gold"])

    return adjust


def containers_fail(step: int, columns: dict[str, Any], rng: Rng) -> None:
    agents_fine(step, columns, rng)
    share = ramp(step, 0.01, 0.35, 30, 60)
    columns["stop"] = ["sandbox" if rng.random() < share else "done" for _ in columns["stop"]]


def queue_grows(step: int, columns: dict[str, Any], rng: Rng) -> None:
    late = ramp(step, 0.0, 6.0, 20, 70)
    lag = [int(rng.random() * late + 0.5) for _ in columns["completion"]]
    columns["version"] = [step - one for one in lag]
    columns["engine_logprob"] = [
        row + (0.005 + 0.04 * one) * rng.normal(size=len(row)) for row, one in zip(columns["logprob"], lag, strict=True)
    ]


def tokens_drift(step: int, columns: dict[str, Any], rng: Rng) -> None:
    """A tool's tokens in the middle of each row; from some step on the second turn is tokenised otherwise."""
    apart = ramp(step, 0.005, 0.6, 30, 50)
    columns["own"] = [
        np.concatenate([np.ones(len(row) // 2), np.zeros(5), np.ones(len(row) - len(row) // 2)])
        for row in columns["logprob"]
    ]
    columns["engine_logprob"] = [
        row + np.where(np.arange(len(row)) < len(row) // 2, 0.003, apart) * rng.normal(size=len(row))
        for row in columns["logprob"]
    ]
    columns.pop("length", None)


def slow_tasks_starve(step: int, columns: dict[str, Any], rng: Rng) -> None:
    agents_fine(step, columns, rng)
    tasks = list(dict.fromkeys(columns["task"]))
    slow = set(tasks[: max(1, round(len(tasks) * 0.5))])
    share = ramp(step, 0.0, 1.0, 20, 60)
    columns["trained"] = [task not in slow or rng.random() > share for task in columns["task"]]


def paid_alike(step: int, columns: dict[str, Any], rng: Rng) -> None:
    """Nearly every prompt gets one reward for all its answers."""
    size = int(np.sum(np.asarray(columns["prompt"]) == columns["prompt"][0]))
    share = ramp(step, 0.2, 0.95, 20, 60)
    reward = np.asarray(columns["reward"]).copy()
    for start in range(0, len(reward), size):
        if rng.random() < share:
            reward[start : start + size] = 1.0
    columns["reward"] = reward


PLANTED: dict[str, Plant] = {
    "length": gamed("length", ("length_hacking",), "length"),
    "padding with stock sentences": gamed("padding with stock sentences", ("length_hacking",), "padding"),
    "hedging": gamed("hedging", ("hedging",), "hedging"),
    "markdown": gamed("markdown", ("format_hacking",), "markdown"),
    "comments in code": gamed("comments in code", ("format_hacking",), "comments"),
    "refusal": gamed("refusal", ("refusal_hacking",), "refusal"),
    "sycophancy": gamed("sycophancy", ("sycophancy",), "sycophancy"),
    "compliments": gamed("compliments", ("phrase_gaming",), "compliment"),
    "stock phrase": gamed("stock phrase", ("phrase_gaming",), "phrase"),
    "mode collapse": gamed("mode collapse", ("mode_collapse",), "alike", entropy=(1.2, 0.2)),
    "mode collapse within prompts": gamed(
        "mode collapse within prompts", ("mode_collapse",), "alike_within", entropy=(1.2, 0.2)
    ),
    "a hidden shortcut": gamed("a hidden shortcut", ("reward_hacking",), "shortcut", labels="all"),
    "the check is fooled": gamed("the check is fooled", ("verifier_fault",), "shortcut", binary=True, labels="all"),
    "a canary is paid": other("a canary is paid", "verifier_fault", scalars=canaries, right=(0.4, 0.7)),
    "the verifier breaks off": other("the verifier breaks off", "verifier_fault", adjust=breaks_off),
    "KL without gain": other("KL without gain", "kl_failure", kl=(0.0, 250.0), begins=50, ends=90),
    "heavy-tailed reward": other(
        "heavy-tailed reward", "heavy_tailed_reward", adjust=heavy_tail, right=(0.7, 0.2),
        groups=24, size=10, labels="all",
    ),
    "alignment tax": other("alignment tax", "alignment_tax", evaluation=(0.7, 0.4), right=(0.4, 0.75), labels="all"),
    "dead groups, mastered": other("dead groups, mastered", "dead_groups", binary=True, right=(0.5, 1.5)),
    "dead groups, too hard": other("dead groups, too hard", "dead_groups", binary=True, right=(0.1, -0.22)),
    "dead groups, paid alike": other("dead groups, paid alike", "dead_groups", adjust=paid_alike),
    "no progress": other("no progress", "no_progress", kl=(0.01, 0.02), entropy=(1.2, 1.2), steps=140),
    "KL explodes early": other(
        "KL explodes early", "unstable_training", kl=(0.0, 60.0), begins=3, ends=30, right=(0.5, 0.3),
        scalars=scalars(grad_norm=(1.0, 8.0), clip_share=(0.05, 0.5)),
    ),
    "the policy comes apart": gamed(
        "the policy comes apart", ("unstable_training",), "gibberish", entropy=(1.2, 3.5),
        scalars=scalars(grad_norm=(1.0, 12.0)),
    ),
    "numbers break": other(
        "numbers break", "unstable_training",
        scalars=lambda step, rng: {"loss": float("nan") if step > 60 and rng.random() < 0.6 else 0.1, "grad_norm": 1.0},
    ),
    "engine mismatch": other("engine mismatch", "engine_mismatch", adjust=engine_off, right=(0.4, 0.6)),
    "a loop of calls": other("a loop of calls", "tool_loop", adjust=loops, right=(0.4, 0.5)),
    "tests removed": other("tests removed", "tampering", adjust=cheats("rm -rf tests"), right=(0.4, 0.5)),
    "tests skipped": other(
        "tests skipped", "tampering", right=(0.4, 0.5),
        adjust=cheats("sed -i '1i import pytest; pytest.skip()' tests/test_a.py"),
    ),
    "containers fail": other("containers fail", "environment_fault", adjust=containers_fail, right=(0.4, 0.6)),
    "the queue grows": other("the queue grows", "stale_policy", adjust=queue_grows, right=(0.4, 0.6)),
    "tokens drift between turns": other(
        "tokens drift between turns", "retokenisation", adjust=tokens_drift, right=(0.4, 0.6)
    ),
    "slow tasks starve": other("slow tasks starve", "starved_tasks", adjust=slow_tasks_starve, right=(0.4, 0.6)),
    "likelihood displacement": other(
        "likelihood displacement", "likelihood_displacement", rows=False, labels="none",
        scalars=scalars(chosen_logprob=(-80.0, -140.0), margin=(0.0, 2.5), loss=(0.69, 0.2)),
    ),
}  # fmt: skip

PAIRS: dict[str, Plant] = {
    "length and hedging": gamed("length and hedging", ("length_hacking", "hedging"), "length", "hedging"),
    "length and markdown": gamed("length and markdown", ("length_hacking", "format_hacking"), "length", "markdown"),
    "hedging and markdown": gamed("hedging and markdown", ("hedging", "format_hacking"), "hedging", "markdown"),
    "refusal and phrase": gamed("refusal and phrase", ("refusal_hacking", "phrase_gaming"), "refusal", "phrase"),
    "sycophancy and length": gamed("sycophancy and length", ("sycophancy", "length_hacking"), "sycophancy", "length"),
    "hedging and engine mismatch": gamed(
        "hedging and engine mismatch", ("hedging", "engine_mismatch"), "hedging", adjust=engine_off
    ),
}

HEALTHY: dict[str, Plant] = {
    "flat, eighty steps": other("flat, eighty steps", "", steps=80),
    "learning": other("learning", "", right=(0.35, 0.75), kl=(0.0, 6.0), entropy=(1.2, 0.8), adjust=engine_fine),
    "longer because it helps": other("longer because it helps", "", right=(0.35, 0.75), sentences=(3.0, 7.0)),
    "agents that learn": other("agents that learn", "", right=(0.35, 0.7), adjust=agents_fine),
    "small batches": other("small batches", "", right=(0.35, 0.7), groups=4, size=4),
    "curriculum": other("curriculum", "", right=(0.5, 0.6), sentences=(3.0, 6.0), prompt_shift=True),
    "formatting that helps": lambda seed: PlantedRun(
        **shape(seed, "formatting that helps"), right=(0.35, 0.75), traits=(Trait("markdown", 0.05, 0.8, 0.3, 0.0),)
    ),
    "mastery": lambda seed: PlantedRun(
        **shape(seed, "mastery"),
        right=(0.4, 1.1),
        entropy=(1.2, 0.3),
        traits=(Trait("alike_within", 0.0, 0.9, 0.3, 0.0),),
    ),
    "0/1 reward, learning": other("0/1 reward, learning", "", binary=True, right=(0.3, 0.6)),
}


def two_curves(seeds: range, *, falls: bool, folder: Path) -> list[tuple[PlantedRun, list[Finding]]]:
    """A file of two logged curves for each seed, reward and gold, as `tiltmeter audit` reads it."""
    lines, planted = ["run,step,reward,gold"], []
    for seed in seeds:
        rng = np.random.default_rng([seed, 13])
        rise, fall, peak = rng.uniform(0.3, 1.5), rng.uniform(0.15, 0.4), int(rng.integers(40, 110))
        failures = ("reward_hacking",) if falls else ()
        planted.append(PlantedRun(f"two curves, gold {'falls' if falls else 'rises'}", seed, failures, labels="curve"))
        for step in range(200):
            gold = 0.5 + 0.1 * min(step, peak) / peak + (-fall if falls else 0.2) * max(0, step - peak) / (200 - peak)
            reward = rise * step / 200 + 0.05 * rng.normal()
            lines.append(f"run{seed},{step},{reward},{rng.binomial(200, gold) / 200}")
    path = folder / f"curves-{falls}.csv"
    path.write_text("\n".join(lines) + "\n")
    command = [
        "audit",
        str(path),
        "--map",
        "run=run",
        "--eval",
        "gold=200",
        "--json",
        "--keep",
        str(folder / path.stem),
    ]
    done = subprocess.run([*TILTMETER, *command], capture_output=True, text=True, timeout=1800)
    if done.returncode not in (0, 1, 2, 3) or not done.stdout:
        raise SystemExit(f"the audit failed:\n{done.stderr[-2000:]}")
    return [(one, findings_of(RunDirectory(folder / path.stem / f"run{one.seed}"))) for one in planted]


KINDS = {**PLANTED, **PAIRS, **HEALTHY}


def findings_of(run: RunDirectory) -> list[Finding]:
    events = JournalReader(run.path / "events").poll()
    return [payload for event in events if isinstance(payload := event.payload, Finding)]


def ranked(findings: list[Finding]) -> list[str]:
    """Those that stand at the end, the most confident first, as every screen orders them."""
    last = {finding.failure: finding for finding in findings}
    standing = [one for one in last.values() if one.confidence > 0.0]
    return [one.failure for one in sorted(standing, key=lambda one: (-one.confidence, one.failure))]


def is_right(planted: PlantedRun, findings: list[Finding]) -> bool:
    named = ranked(findings)
    return bool(named) and named[0] in planted.failures and set(planted.failures) <= set(named[:3])


def is_quiet(findings: list[Finding]) -> bool:
    return max((finding.confidence for finding in findings), default=0.0) <= QUIET


def measure_one(job: tuple[str, int]) -> list[Finding]:
    """What was ever named in one run; in a process of its own."""
    kind, seed = job
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(Path(folder) / "run")
        measure_run(KINDS[kind](seed), run)
        print(f"{kind}, seed {seed}", file=sys.stderr, flush=True)
        return findings_of(run)


def measured(kinds: Iterable[str], seeds: range, jobs: int) -> list[tuple[PlantedRun, list[Finding]]]:
    every = [(kind, seed) for kind in kinds for seed in seeds]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        findings = pool.map(measure_one, every, chunksize=1)
    return [(KINDS[kind](seed), found) for (kind, seed), found in zip(every, findings, strict=True)]


def counted(names: Iterable[str]) -> list[str]:
    return [f"{name} {count}" for name, count in Counter(names).most_common()]


def by_kind(rows: list[tuple[PlantedRun, list[Finding]]]) -> list[dict[str, Any]]:
    """A line of the matrix for each kind of run: what was named first, and how often."""
    lines = []
    for kind in dict.fromkeys(planted.kind for planted, _ in rows):
        runs = [(planted, findings) for planted, findings in rows if planted.kind == kind]
        planted = runs[0][0]
        lines.append({
            "kind": kind,
            "planted": list(planted.failures) or ["nothing"],
            "runs": len(runs),
            "right": sum(is_right(*run) if planted.failures else is_quiet(run[1]) for run in runs),
            "named_first": counted((ranked(findings) or ["nothing"])[0] for _, findings in runs),
        })  # fmt: skip
    return lines


def share(values: Iterable[bool]) -> float | None:
    values = list(values)
    return round(sum(values) / len(values), 4) if values else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/diagnosis.json")
    parser.add_argument("--only", metavar="KIND", help="only kinds whose name has this in it")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each planted kind; twice as many of healthy ones")
    parser.add_argument(
        "--from", type=int, default=101, dest="first", help="the first seed; below 10 are those of the tuning"
    )
    options = parser.parse_args()
    seeds, more = (range(options.first, options.first + n) for n in (options.seeds, 2 * options.seeds))

    def chosen(kinds: Iterable[str]) -> list[str]:
        return [kind for kind in kinds if options.only is None or options.only in kind]

    planted = measured(chosen([*PLANTED, *PAIRS]), seeds, options.jobs)
    healthy = measured(chosen(HEALTHY), more, options.jobs)
    if options.only is None or options.only in "two curves":
        with tempfile.TemporaryDirectory() as folder:
            planted += two_curves(more, falls=True, folder=Path(folder))
            healthy += two_curves(more, falls=False, folder=Path(folder))
    figures = {
        "planted": len(planted),
        "first_right_share": share(is_right(*run) for run in planted),
        "first_right_with_gold_share": share(is_right(*run) for run in planted if run[0].labels != "none"),
        "first_right_without_gold_share": share(is_right(*run) for run in planted if run[0].labels == "none"),
        "first_right_small_batches_share": share(is_right(*run) for run in planted if run[0].groups * run[0].size < 20),
        "healthy": len(healthy),
        "healthy_quiet_share": share(is_quiet(findings) for _, findings in healthy),
        "matrix": by_kind(planted),
        "healthy_matrix": by_kind(healthy),
    }
    show(record("diagnosis", figures, seed=options.first, keep=options.write), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
