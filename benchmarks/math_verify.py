"""Our verifier of mathematical answers beside the `math-verify` package: agreement, forgeries, hostile texts, time.

    python -m venv other && other/bin/pip install math-verify
    python benchmarks/math_verify.py --python other/bin/python

Each side gets a completion and a reference and says whether it would pay. The other package runs in a process of its
own, in its own environment: `verify(parse(reference), parse(completion))` with its defaults, the reference in a box.
Its own time limit is 5 s for each call; ours for a case is 20 s. Milliseconds are CPU time. Who is right was decided
beforehand, by the tests and by the data. The tests were written for our verifier, which passes them all; `algebra` are
cases that were written for the other, with ours as `maths(worked=False)`, which pays unfinished work too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from record import record, show
from tiltmeter.rewards import maths
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.forgeries import forgeries_for

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
sys.path.insert(0, str(ROOT))

from tests.gold.checks.test_maths import DIFFERENT, SAME, hostile  # noqa: E402

LIMIT = 20.0  # seconds for a case
#: A line of JSON in, a line out. A package that hangs is ended from outside.
OTHER = """
import json, logging, sys, time
logging.disable(logging.CRITICAL)
from math_verify import parse, verify
parse("$1$")
out = sys.stdout
for line in sys.stdin:
    case = json.loads(line)
    began = time.process_time()
    try:
        paid = bool(verify(parse("\\\\boxed{" + case["gold"] + "}"), parse(case["text"])))
    except Exception as error:
        paid = type(error).__name__
    out.write(json.dumps([paid, 1e3 * (time.process_time() - began)]) + "\\n")
    out.flush()
"""
#: Cases of the tests that are the right value and are refused because work is left to the reader, or by convention.
POLICY = {
    *("17+25", "6 \\cdot 7", "84/2", "2^{10}", "\\sqrt{16}", "5!", "2/4", "|{-3}|", "3x+2x", "(x+1)(x+2)"),
    *("ab+2a+5b+10", "\\ln(e^{42})", "42\\cos 0", "\\arctan 1", "\\frac{\\pi}{\\pi}42", "i^2", "\\sqrt{-4}"),
    *("\\sqrt{180}", "\\sqrt{2}\\sqrt{3}"),
}

#: The same value in two forms, for a computer algebra system to see.
ALGEBRA = [
    ("\\frac{x^2-1}{x-1}", "x+1"), ("\\sin^2 x+\\cos^2 x", "1"), ("2\\sin x\\cos x", "\\sin(2x)"),
    ("3\\ln 2", "\\ln 8"), ("\\log_2 8", "3"), ("\\binom{5}{2}", "10"), ("\\sum_{k=1}^{4} k", "10"),
    ("\\int_0^1 2x dx", "1"), ("(x+1)^3", "x^3+3x^2+3x+1"), ("\\sqrt{3+2\\sqrt{2}}", "1+\\sqrt{2}"),
    ("e^{\\ln x + 1}", "ex"), ("\\frac{1}{\\sqrt{3}-\\sqrt{2}}", "\\sqrt{3}+\\sqrt{2}"),
    ("\\{x : x > 3\\}", "(3,\\infty)"), ("x \\neq 3", "x\\ne 3"), ("\\lim_{x \\to 0} \\frac{\\sin x}{x}", "1"),
    ("(3,\\infty) \\cup (-\\infty, 2)", "(-\\infty,2)\\cup(3,\\infty)"),
]  # fmt: skip

Case = tuple[str, str, str, bool]  # set, completion, reference, whether it should be paid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, required=True, help="an interpreter that has math-verify")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--most", type=int, default=500, help="cases of each set of public data")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    cases, skipped = collect_cases(options.most, options.seed)
    ours, theirs = [score_ours(case) for case in cases], score_theirs(options.python, cases)
    sets = {}
    for name in dict.fromkeys(case[0] for case in cases):
        where = [at for at, case in enumerate(cases) if case[0] == name]
        sets[name] = figures_of(
            name, [cases[at] for at in where], [ours[at] for at in where], [theirs[at] for at in where]
        )
    version = "import importlib.metadata as m; print(m.version('math-verify'))"
    other = subprocess.run(
        [str(options.python), "-c", version], capture_output=True, text=True, check=True
    ).stdout.strip()
    result = record("math_verify", {"math_verify": other, "skipped": skipped, "sets": sets}, seed=options.seed)
    show(result, as_json=options.json)


def collect_cases(most: int, seed: int) -> tuple[list[Case], list[str]]:
    """All cases, and which public data are not on this machine."""
    cases: list[Case] = [("same_value", f"so \\boxed{{{text}}}.", gold, True) for text, gold in SAME]
    for text, gold in DIFFERENT:
        kind = "unfinished_work" if text in POLICY else "other_value_or_hedge"
        cases.append((kind, f"so \\boxed{{{text}}}.", gold, False))
    for gold in ("42", "\\frac{1}{2}", "3\\sqrt{13}", "(6,31,-1)", "1,-2", "p-q"):
        for form in ("\\boxed{%s}", "Answer: %s"):
            task = AuditTask("?", form % gold, form % "977", {"answer": gold}, "math")
            cases.append(("honest_forms", task.right, gold, True))
            cases += [("forgeries", forgery.make(task), gold, False) for forgery in forgeries_for(task)]
    cases += [
        ("hostile", text, "42", False) for long in hostile() for text in (long[:100_000], f"\\boxed{{{long[:500]}}}")
    ]
    cases += [("algebra", f"so \\boxed{{{text}}}.", gold, True) for text, gold in ALGEBRA]
    skipped = []
    draw = random.Random(seed)
    for name, file in (("math500", "math500/math500.jsonl.gz"), ("samples", "math_group_samples_rm/samples.jsonl.gz")):
        if not (DATA / file).exists():
            skipped.append(f"{name}: not on this machine")
            continue
        with gzip.open(DATA / file, "rt", encoding="utf-8") as lines:
            rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        chosen = draw.sample(rows, min(most, len(rows)))
        if name == "math500":
            cases += [("math500_solutions", row["solution"], row["answer"], True) for row in chosen]
        else:
            cases += [("model_samples", row["response"], row["gold"], bool(row["correct"])) for row in chosen]
    return cases, skipped


def score_ours(case: Case) -> tuple[object, float]:
    began = time.process_time()
    paid = maths(worked=case[0] != "algebra").score(case[1], case[2]) == 1.0
    return paid, 1e3 * (time.process_time() - began)


def score_theirs(python: Path, cases: Sequence[Case]) -> list[tuple[object, float]]:
    """Whether they would pay each case, or the name of what went wrong; and CPU milliseconds."""
    answers: list[tuple[object, float]] = []
    while len(answers) < len(cases):
        lines = "".join(json.dumps({"text": text, "gold": gold}) + "\n" for _, text, gold, _ in cases[len(answers) :])
        answers += _run_until_stuck(python, lines)
        if len(answers) < len(cases):
            answers.append(("no answer", 1e3 * LIMIT))
    return answers


def _run_until_stuck(python: Path, lines: str) -> list[tuple[object, float]]:
    with subprocess.Popen(
        [str(python), "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        answers: list[tuple[object, float]] = []
        for line in lines.splitlines():
            watch = subprocess.Popen(["sh", "-c", f"sleep {LIMIT}; kill -9 {process.pid}"])
            try:
                process.stdin.write(line + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = ""
            finally:
                watch.terminate()
                watch.wait()
            if not answer:
                break
            paid, took = json.loads(answer)
            answers.append((paid, took))
        process.kill()
    return answers


def figures_of(
    name: str, cases: Sequence[Case], ours: Sequence[tuple[object, float]], theirs: Sequence[tuple[object, float]]
) -> dict[str, object]:
    right = [case[3] for case in cases]
    differ = [at for at in range(len(cases)) if ours[at][0] != theirs[at][0]]
    return {
        "cases": len(cases),
        "to_be_paid": sum(right),
        "agree": len(cases) - len(differ),
        "ours": _side(right, ours),
        "theirs": _side(right, theirs),
        "disagreements": [
            {
                "completion": cases[at][1][-120:],
                "reference": cases[at][2],
                "ours": ours[at][0],
                "theirs": theirs[at][0],
                "right": "policy" if name == "unfinished_work" else "ours" if ours[at][0] == right[at] else "theirs",
            }
            for at in differ[:40]
        ],
    }


def _side(right: Sequence[bool], answers: Sequence[tuple[object, float]]) -> dict[str, object]:
    pairs = list(zip(right, (paid for paid, _ in answers), strict=True))
    times = np.array([took for _, took in answers])
    return {
        "correct": sum(paid is truth for truth, paid in pairs),
        "wrongly_paid": sum(paid is True and not truth for truth, paid in pairs),
        "wrongly_refused": sum(paid is False and truth for truth, paid in pairs),
        "errors": dict(Counter(str(paid) for _, paid in pairs if not isinstance(paid, bool))),
        "ms_median": round(float(np.median(times)), 3),
        "ms_max": round(float(times.max()), 1),
    }


if __name__ == "__main__":
    main()
