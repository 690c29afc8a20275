"""Code tasks as capability: a model's programs run in our sandbox against the tests of HumanEval, MBPP and the like.

lm-evaluation-harness runs such code in its own process, and refuses to unless it is told that this is safe. It is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.gold.checks.code_reward import code
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.compare.sampling import AnswerSampler, Which

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
PROMPTS = ("prompt", "text", "question")  # columns: HumanEval's, MBPP's, others'
REQUEST = "Write this in Python. Answer with the whole program in one code block.\n\n{task}"


def is_code_tasks(task: object) -> bool:
    """
    >>> is_code_tasks("arithmetic"), is_code_tasks("humaneval.jsonl.gz")
    (False, True)
    """
    return isinstance(task, (str, Path)) and str(task).endswith(ENDINGS)


def score_code(sampler: AnswerSampler, which: Which, path: str | Path, limit: int | None) -> dict[str, Any]:
    """By task of the file, 1 where the model's program passes every test, asked once at temperature 0.

    A program that could not be run has no score. Raises `AttachError` where no task could be graded.
    """
    rows = read_rows(path, '{"prompt": "def add(a, b):\\n", "test": "...", "entry_point": "add"}')[:limit]
    tasks = [_task_text(path, row) for row in rows]
    model = sampler.model(which)
    questions = [REQUEST.format(task=task) for task in tasks] if model.chats else tasks
    name = Path(path).name.partition(".")[0]
    answers = [group[0].text for group in sampler.answers(which, f"code-{name}", questions, 1, 0.0)]
    programs = answers if model.chats else [continue_function(*pair) for pair in zip(tasks, answers, strict=True)]
    reward = code(isolation="pooled")
    scores = reward(tasks, programs, **_columns(rows))
    values = {str(at): float(score) for at, score in enumerate(scores) if score is not None}
    if not values:
        raise AttachError(f"{path}: no program could be graded: {reward.outcomes[0].reason if rows else 'it is empty'}")
    return {name: {"values": values, "metric": "pass", "version": "", "harness": "sandbox"}}


def continue_function(prompt: str, completion: str) -> str:
    """The function that a prompt begins and a model went on with, up to where something else begins.

    >>> continue_function("def two():\\n", "    return 2\\n\\nprint(two())\\n")
    'def two():\\n    return 2\\n'
    """
    lines = completion.split("\n")
    end = next((at for at, line in enumerate(lines) if at and line[:1].strip() and line[0] not in ")]}"), len(lines))
    body = "\n".join(lines[:end]).rstrip()
    return f"{prompt}{body}\n"


def _task_text(path: str | Path, row: Mapping[str, Any]) -> str:
    text = next((row[name] for name in PROMPTS if isinstance(row.get(name), str) and row[name].strip()), None)
    if text is None:
        raise AttachError(f"{path}: a row has none of the columns {', '.join(PROMPTS)}: what a program is to do")
    return str(text)


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    names = dict.fromkeys(name for row in rows for name in row if name != "prompt")
    return {name: [row.get(name) for row in rows] for name in names}
