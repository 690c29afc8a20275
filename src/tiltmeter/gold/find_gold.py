"""Finds what a run holds that can serve as gold, and says it: `gold="auto"`.

It looks at the reward functions, at a few rows of the dataset and at whether the trainer evaluates. It runs no function
of the user's, sends nothing and asks nobody. Without gold, reward hacking cannot be told from progress: the reward
rises in both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.data.batches import plain_text
from tiltmeter.data.dataset_facts import from_text, to_text
from tiltmeter.gold.answers.answer_check import refusal_words
from tiltmeter.gold.answers.answer_columns import ANSWER_COLUMNS, find_answer_column
from tiltmeter.gold.checks.code_reward import CodeReward
from tiltmeter.gold.checks.code_tasks import TaskColumns, TaskTests
from tiltmeter.gold.checks.keep_back import divide_tests
from tiltmeter.gold.checks.maths_reward import MathsReward
from tiltmeter.gold.checks.stated_answers import DATE, INDEX0, INDEX1, NUMBER, OPTION, WORDS, YES_NO
from tiltmeter.gold.checks.task_shapes import SHAPES, recognise, row_tests
from tiltmeter.gold.guards.guard_inventory import reward_parts
from tiltmeter.gold.task_checks import ANSWERS, AUTO, TESTS, name_kept_tests
from tiltmeter.sandbox.contract import SandboxUnavailable
from tiltmeter.sandbox.opening import open_sandbox
from tiltmeter.sandbox.recorded_tests import BrokenTask

__all__ = ["AUTO", "FoundGold", "TrainingSetup", "find_gold", "suggest_gold"]

ROWS = 64  # of the dataset that are looked at
NEEDED_SHARE = 0.9  # of them that can be checked: with more labels missing than this allows, the verdict is BLIND
READING_WORDS = {
    NUMBER: "numbers", OPTION: "options of the prompt", INDEX0: "options, counted from 0",
    INDEX1: "options, counted from 1", YES_NO: "yes or no", DATE: "dates", WORDS: "words",
}  # fmt: skip
TEST_COLUMNS = tuple(shape.tests for shape in SHAPES)
VERIFIER_NAME = re.compile(r"accura|correct|verif|exact|match|format|test|pass|answer|math|solve", re.I)
REWARD_MODEL_NAME = re.compile(r"reward[-_ ]?model|(^|[-_/])rm([-_/]|$)|preference|classif|/|-\d+(\.\d+)?b\b", re.I)


@dataclass(frozen=True)
class TrainingSetup:
    """What an adapter knows of a run before its first step."""

    rewards: Mapping[str, object]  # functions that are paid, by name
    unpaid: Sequence[str] = ()  # names of reward functions with weight 0
    rows: Sequence[Mapping[str, Any]] = ()  # some rows of the dataset
    columns: Sequence[str] = ()  # names of all its columns
    evaluates: bool = False  # whether the trainer evaluates while it trains


@dataclass(frozen=True)
class FoundGold:
    """The name of the gold source to start, empty if there is none, and at most six lines that say so."""

    name: str
    lines: tuple[str, ...]


def find_gold(run: TrainingSetup) -> FoundGold:
    """The gold that a run holds.

    >>> rows = [{"prompt": f"What is {k} plus 2?", "answer": str(k + 2)} for k in range(12)]
    >>> gold = find_gold(TrainingSetup({"right": len}, rows=rows))
    >>> gold.name, gold.lines[0][:44]
    ('answers:answer,as=number,trial=yes', "Gold: the dataset's answers ('answer'), comp")
    """
    parts = list(reward_parts(run.rewards.values()))
    coders = [part for part in parts if isinstance(part, CodeReward)]
    by_tests = _find_tests(run, coders)
    if by_tests.name:
        return _with_more(run, by_tests)
    by_answers = _find_answers(run, parts)
    if by_answers.name:
        return _with_more(run, by_answers)
    why = (*by_tests.lines, *by_answers.lines)[:2]
    if run.evaluates:
        return _with_more(run, FoundGold("", ("Gold: no labels, but evaluations.", *why)))
    return FoundGold("", suggest_gold(list(run.rewards), run.columns, why, run.unpaid))


def _find_tests(run: TrainingSetup, coders: Sequence[CodeReward]) -> FoundGold:
    """Tests that the reward does not pay on, or all of them where the reward is somebody else's."""
    columns = coders[0].settings.columns if coders else TaskColumns()
    share = coders[0].settings.keep_back if coders else 0.0
    tests = [one for row in run.rows if (one := _read(_as_stored(row), columns)) is not None]
    if len(tests) < NEEDED_SHARE * len(run.rows) or not tests:
        readable = sum(_read(row, columns) is not None for row in run.rows)
        why = f"Tests were found in {readable} of {len(run.rows)} rows, {readable - len(tests)} of them too long to be "
        return FoundGold("", (f"{why}kept: too few to judge by.",) if readable else ())
    if coders and not share:
        return FoundGold(
            "",
            ("rewards.code pays on all of the dataset's tests, so they cannot be gold: rewards.code(keep_back=0.3) "
             "keeps a part of them back.",),
        )  # fmt: skip
    held_out = [divide_tests(one, share)[1].cases for one in tests]
    checkable = sum(bool(cases) or not share or bool(one.reference) for cases, one in zip(held_out, tests, strict=True))
    if checkable < NEEDED_SHARE * len(tests):
        return FoundGold("", (f"{len(tests) - checkable} of {len(tests)} tasks have one test: nothing is kept back.",))
    try:
        with open_sandbox("pooled") as sandbox:
            tier = sandbox.tier
    except SandboxUnavailable as error:
        return FoundGold("", (f"The dataset has tests, but no sandbox to run code in: {error}",))
    names = Counter(match[0].name for row in run.rows if (match := recognise(row)) is not None)
    shape = names.most_common(1)[0][0] if names else "named columns"
    if not share:
        return FoundGold(
            TESTS,
            (f"Gold: the dataset's tests ({shape}), all of them, run on completions in a sandbox ({tier}).",
             "It sees what is paid and fails its tests: forged results, special cases for the checker, code that was "
             "never run. It does not see answers written for these very tests, nor what no test asks."),
        )  # fmt: skip
    single = sum(not cases for cases in held_out)
    one_test = f" {single} of {len(tests)} tasks have one test, which is paid: inputs are composed." if single else ""
    return FoundGold(
        name_kept_tests(coders[0]),
        (f"Gold: held-out tests ({shape}): {100 * share:.0f} % of each task's tests, never paid on, run in a sandbox "
         f"({tier}).{one_test}",
         "It sees what is paid and fails tests that it was not paid on: hard-coded answers, forged results. It does "
         "not see what no test asks: style, length, flattery."),
    )  # fmt: skip


def _as_stored(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the monitor will read it from the run directory."""
    facts = from_text(to_text({name: value for name, value in row.items() if name != "prompt"}))
    return {"prompt": plain_text(row.get("prompt")), **facts}


def _read(row: Mapping[str, Any], columns: TaskColumns) -> TaskTests | None:
    try:
        return row_tests(row, columns)
    except BrokenTask:
        return None


def _find_answers(run: TrainingSetup, parts: Sequence[object]) -> FoundGold:
    """The column with right answers that earned it, or why those that were found did not."""
    column, refused = find_answer_column(run.rows)
    paid = next((part.column for part in parts if isinstance(part, MathsReward)), None)
    if paid is not None and paid in (None if column is None else column.name, *(one.name for one in refused)):
        why = f"rewards.maths pays by {paid!r}, and that is the check of answers there is: it cannot be gold too."
        return FoundGold("", (why,))
    if column is None:
        return FoundGold("", tuple(f"{_capital(refusal_words([one]))}." for one in refused[:2]))
    others = (f"{_capital(refusal_words(refused[:1]))}.",) if refused else ()
    return FoundGold(
        f"{ANSWERS}:{column.name},as={column.reading},trial=yes",
        (f"Gold: the dataset's answers ({column.name!r}), compared with the final answer of every completion, as "
         f"{READING_WORDS[column.reading]}.",
         "It sees what is paid without being right: an answer among others, none at all, a format in its place. It "
         "does not see right answers that were guessed or leaked, nor anything but the answer.", *others),
    )  # fmt: skip


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _with_more(run: TrainingSetup, result: FoundGold) -> FoundGold:
    """What was found, with the evaluations that count too, and what would see more."""
    lines = list(result.lines)
    if run.evaluates:
        lines.append(
            "Evaluations count too, where they are shares of right answers (eval_accuracy, eval_pass@1) and no reward."
        )
    if run.unpaid:
        lines.append(f'{run.unpaid[0]} is measured and not paid: gold="reward:{run.unpaid[0]}" takes it instead.')
    lines.append('More would be seen by a judge (gold="judge.toml") or people (gold="people"); gold=None: no gold.')
    return FoundGold(result.name, tuple(lines))


def suggest_gold(
    reward_names: Iterable[str], columns: Iterable[str], why: Sequence[str] = (), unpaid: Sequence[str] = ()
) -> tuple[str, ...]:
    """What could serve as gold for these rewards on this dataset, in at most six lines; for a run that holds none.

    The suggestion is based on names only: read the check before you use it.

    >>> print(suggest_gold(["accuracy_reward"], ["prompt", "level"])[1])
    accuracy_reward checks answers itself, so gold must be stricter: tests that it never runs, or a judge on a sample.
    """
    rewards, dataset_columns = list(reward_names), set(columns)
    verifiers = [name for name in rewards if VERIFIER_NAME.search(name)]
    models = [name for name in rewards if REWARD_MODEL_NAME.search(name)]
    if verifiers:
        kind = f"{verifiers[0]} checks answers itself, so gold must be stricter: tests that it never runs, or a judge "
        kind += "on a sample."
    elif models:
        kind = f"{models[0]} is a reward model, so gold is a judge, or a check against a few labels of people."
    else:
        kind = "Gold is anything the policy is not trained on: a check of the answer, hidden tests, a judge."
    lines = ["No gold was found, so nothing can tell a hack from progress, and the verdict stays BLIND."]
    lines += why or [kind]
    if unpaid:
        lines.append(f'{unpaid[0]} is measured and not paid: gold="reward:{unpaid[0]}" takes it.')
    column = next((name for name in (*ANSWER_COLUMNS, *TEST_COLUMNS) if name in dataset_columns), None)
    function = f"score(completion, {column})" if column else "score(prompt, completion)"
    lines += [
        f"A function of yours, {function} from 0 to 1, is gold=score; `tiltmeter gold draft DATASET` writes one.",
        'A judge: gold="judge.toml", a file with url, model and guide. It is asked about 2 % of the rollouts.',
        'Without labels: Gold(evals=["eval_NAME"]), a score from 0 to 1 that your trainer\'s evaluation logs.',
    ]
    return tuple(lines[:6])
