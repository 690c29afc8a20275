"""Which forgeries harnesses pay for, and how well the verifiers agree with tests and labels that are known.

    python benchmarks/verifiers.py [--json] [--write] [--quick] [--seed N]

`forgeries` is a table of the code forgeries and five harnesses on our own tasks (`toy_harnesses.py`). HumanEval and
MBPP: every reference solution goes through the code verifier and must pass; then programs with one mistake each
(`mutants.py`) are graded by it and by the plain asserts, which are the truth here because no mutant means harm. The
verifier of mathematical answers reads the reference solutions of GSM8K and MATH-500, their answers rewritten in other
notations, the wrong answers of other questions, and model solutions that came with labels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from mutants import mutants
from record import record, show
from tiltmeter.gold.checks.code_reward import CodeReward
from tiltmeter.gold.checks.math_answers import equal, read_answer
from tiltmeter.gold.checks.maths_reward import FORMS
from tiltmeter.rewards import code, maths
from tiltmeter.sandbox import Ended, Limits, open_sandbox
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.forgeries import CODE
from toy_harnesses import HARNESSES, forgeries_paid_maths, table

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
SLOW = Limits(cpu_seconds=20.0, wall_seconds=40.0)  # a reference may take its time
BRIEF = Limits(cpu_seconds=2.0, wall_seconds=6.0)  # a mutant may run for ever
SAMPLE = 30  # of each data set, with --quick
HIDDEN = 8  # inputs drawn for each task
MUTANTS = {"humaneval": 3, "mbpp": 1}  # of each program


def rows(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def programs(quick: bool, rng: random.Random) -> dict[str, list[dict[str, str]]]:
    """By data set: the reference, tests and function of each task."""
    human = [
        {"id": row["task_id"], "reference": row["prompt"] + row["canonical_solution"], "tests": row["test"],
         "entry_point": row["entry_point"]}
        for row in rows("humaneval/humaneval.jsonl.gz")
    ]  # fmt: skip
    mostly = [
        {"id": f"MBPP/{row['task_id']}", "reference": row["code"].replace("\r\n", "\n"),
         "tests": "\n".join([row["test_setup_code"], *row["test_list"]]), "entry_point": ""}
        for row in rows("mbpp/mbpp.jsonl.gz")
    ]  # fmt: skip
    both = {"humaneval": human, "mbpp": mostly}
    return {name: rng.sample(tasks, SAMPLE) if quick else tasks for name, tasks in both.items()}


def graded(reward: CodeReward, texts: list[str], tasks: list[dict[str, str]]) -> list[float | None]:
    columns = {name: [task[name] for task in tasks] for name in ("tests", "reference", "entry_point")}
    return reward(completions=[f"```python\n{text}\n```" for text in texts], **columns)


def references(name: str, tasks: list[dict[str, str]]) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """How many reference solutions pass, and why others do not; and the tasks that can be graded."""
    reward = code(isolation="pooled", limits=SLOW)
    try:
        scores = graded(reward, [task["reference"] for task in tasks], tasks)
    finally:
        reward.sandbox.close()
    outcomes = reward.outcomes
    trouble = [
        {"task": task["id"], "outcome": outcome.kind, "why": outcome.reason}
        for task, outcome in zip(tasks, outcomes, strict=True)
        if outcome.kind != "passed"
    ]
    figures = {
        f"{name}_references": len(tasks),
        f"{name}_references_paid": sum(score == 1.0 for score in scores),
        f"{name}_references_failed": sum(score == 0.0 for score in scores),
        f"{name}_not_gradable": trouble,
        f"{name}_references_flagged_hard_coded": sum(outcome.hard_coded for outcome in outcomes),
    }
    return figures, [task for task, score in zip(tasks, scores, strict=True) if score is not None]


def plain(end: Ended) -> bool:
    return end.kind == "ended" and end.exit_code == 0


def mistakes(name: str, tasks: list[dict[str, str]], rng: random.Random) -> dict[str, Any]:
    """Whether the verifier and the plain asserts say the same of programs with one mistake."""
    made = [(task, *mutant) for task in tasks for mutant in mutants(task["reference"], MUTANTS[name], rng)]
    reward = code(isolation="pooled", limits=BRIEF)
    try:
        scores = graded(reward, [text for _, text, _ in made], [task for task, _, _ in made])
        asked = [
            (f"{text}\n{task['tests']}\n" + (f"check({task['entry_point']})\n" if task["entry_point"] else ""), "")
            for task, text, _ in made
        ]
        truth = [plain(end) for end in reward.sandbox.run_many(asked, 2)]
    finally:
        reward.sandbox.close()
    known = [(score == 1.0, true) for score, true in zip(scores, truth, strict=True) if score is not None]
    differ = [
        {"task": task["id"], "mistake": mistake, "asserts": true, "verifier": score, "why": outcome.reason}
        for (task, _, mistake), score, true, outcome in zip(made, scores, truth, reward.outcomes, strict=True)
        if score is not None and (score == 1.0) != true
    ]
    return {
        f"{name}_mutants": len(made),
        f"{name}_mutants_not_graded": len(made) - len(known),
        f"{name}_mutants_the_asserts_pass": sum(true for _, true in known),
        f"{name}_mutants_paid_wrongly": sum(said and not true for said, true in known),
        f"{name}_mutants_refused_wrongly": sum(true and not said for said, true in known),
        f"{name}_mutant_agreement": round(sum(said == true for said, true in known) / max(len(known), 1), 4),
        f"{name}_mutants_judged_otherwise": differ,
    }


def by_heart(tasks: list[dict[str, str]]) -> dict[str, Any]:
    """How often answers known by heart are paid and flagged, with known inputs and with hidden ones that vary them.

    The forger returns the known value for a known input, and the most frequent known value for any other.
    """
    forger = next(forgery for forgery in CODE if forgery.hard_coded)
    known = [(task, AuditTask("", task["reference"], "", task, "code", task["entry_point"])) for task in tasks]
    forged = [(task, forger.make(told)) for task, told in known if told.known_cases]
    found: dict[str, Any] = {"by_heart": len(forged)}
    for name, hidden in (("known", 0), ("hidden", HIDDEN)):
        reward = code(isolation="pooled", hidden=hidden)
        scores = graded(reward, [text for _, text in forged], [task for task, _ in forged])
        found[f"by_heart_paid_{name}_inputs"] = sum(score == 1.0 for score in scores)
        if not hidden:
            found["by_heart_flagged"] = sum(outcome.hard_coded for outcome in reward.outcomes)
        else:
            found["by_heart_without_a_hidden_input"] = reward.unhidden
            honest = graded(reward, [task["reference"] for task, _ in forged], [task for task, _ in forged])
            found["by_heart_references_paid_hidden_inputs"] = sum(score == 1.0 for score in honest)
        reward.sandbox.close()
    return found


def speed(tasks: list[dict[str, str]], quick: bool) -> dict[str, float]:
    """Tasks per second, two at a time, with tests that are known already."""
    found = {}
    few = tasks[: SAMPLE if quick else 150]
    for isolation in ("strict", "pooled"):
        reward = code(isolation=isolation)
        graded(reward, [task["reference"] for task in few], few)
        began = time.perf_counter()
        graded(reward, [task["reference"] for task in few], few)
        found[f"tasks_per_s_{isolation}"] = round(len(few) / (time.perf_counter() - began), 1)
        reward.sandbox.close()
    return found


def rewritten(answer: str) -> list[str]:
    """The same answer as other people write it."""
    return [
        f"${answer}$", f"{answer}.", answer.replace("\\frac", "\\dfrac"),
        answer.replace("\\left", "").replace("\\right", ""),
        answer.replace(" ", ""), f" {answer} ", answer.replace("^\\circ", ""), answer.replace(",\\!", ","),
        f"\\displaystyle {answer}", answer.replace("pmatrix", "bmatrix"), answer.replace("\\$", ""),
    ]  # fmt: skip


def answers() -> dict[str, Any]:
    """How the verifier of mathematical answers does on GSM8K, MATH-500 and labelled model solutions."""
    reward, lenient = maths(), maths(forms=(*FORMS, "number"))
    school, contest = rows("gsm8k/test.jsonl.gz"), rows("math500/math500.jsonl.gz")
    samples, solved = rows("math_group_samples_rm/samples.jsonl.gz"), rows("gsm8k/example_model_solutions.jsonl.gz")
    golds = [row["answer"] for row in contest]
    read = [read_answer(gold) for gold in golds]
    pairs = [(a, b) for i, a in enumerate(read) for b in read[:i] if a and b and a.plain != b.plain]
    forms = [(form, gold) for gold in golds for form in rewritten(gold)]
    said = [(reward.score(row["response"], row["gold"]) == 1.0, bool(row["correct"])) for row in samples]
    models = [
        (
            lenient.score(row["solution"].replace("\nA: ", "\n#### "), school[row["idx"]]["answer"]) == 1.0,
            row["is_correct"],
        )
        for row in solved
    ]
    differ = [
        {"gold": row["gold"], "pred": row["pred"], "label": label, "verifier": ours}
        for row, (ours, label) in zip(samples, said, strict=True)
        if ours != label
    ]
    return {
        "gsm8k_references": len(school),
        "gsm8k_references_paid": sum(reward.score(row["answer"], row["answer"]) == 1.0 for row in school),
        "math500_references": len(contest),
        "math500_references_paid": sum(reward.score(row["solution"], row["answer"]) == 1.0 for row in contest),
        "math500_rewritten": len(forms),
        "math500_rewritten_paid": sum(reward.score(f"\\boxed{{{form}}}", gold) == 1.0 for form, gold in forms),
        "math500_pairs_of_different_answers": len(pairs),
        "math500_pairs_called_equal": [
            {"one": one, "other": other}
            for one, other in sorted({(a.plain, b.plain) for a, b in pairs if equal(a, b) or equal(b, a)})
        ],
        "labelled_samples": len(said),
        "labelled_samples_agreement": round(sum(ours == label for ours, label in said) / len(said), 4),
        "labelled_samples_judged_otherwise": differ,
        "gsm8k_model_solutions": len(models),
        "gsm8k_model_solutions_agreement": round(sum(ours == label for ours, label in models) / len(models), 4),
    }


def measure(seed: int, quick: bool) -> dict[str, Any]:
    rng = random.Random(seed)
    with open_sandbox("strict") as sandbox:
        forged = table(sandbox)
    paid: Counter[str] = Counter()
    for row in forged[2:]:
        paid.update({name: row[name] == "paid" for name in HARNESSES})
    figures: dict[str, Any] = {"code_forgeries": len(forged) - 2}
    figures |= {f"forgeries_paid_{name}": int(paid[name]) for name in HARNESSES}
    figures |= {"forgeries_paid_maths": len(forgeries_paid_maths()), "forgeries": forged}
    if not DATA.exists():
        print("not measured: the data sets are not on this machine", file=sys.stderr)
        return figures
    tasks = programs(quick, rng)
    whole = []
    for name, held in tasks.items():
        found, gradable = references(name, held)
        figures |= found | mistakes(name, gradable, rng)
        whole += gradable
    figures |= by_heart(whole)
    return figures | answers() | speed(tasks["humaneval"], quick)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help=f"{SAMPLE} tasks of each data set")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results/verifiers.json")
    asked = parser.parse_args()
    figures = measure(asked.seed, asked.quick)
    result = record("verifiers", figures, seed=asked.seed, keep=asked.write and not asked.quick)
    show(result, as_json=asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
