"""The forgeries are texts that fit their task; a file of tasks is read, or refused with the fix."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter.gold.checks.code_tasks import extract_code
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.forgeries import CODE, FORGERIES, forgeries_for, read_tasks

FENCED = "Here:\n```python\ndef add(a, b):\n    return a + b\n```\n"
KNOWN = {"cases": [{"args": [1, 2], "expected": 3}]}
TASKS = [
    AuditTask("Write add.", FENCED, "```python\ndef add(a, b):\n    return 0\n```", KNOWN, "code", "add", (3,)),
    AuditTask("Write add.", "def add(a, b):\n    return a + b\n", "def add(a, b): return 0", {}, "code"),
    AuditTask(
        "Write it.",
        "```\nadd = lambda a, b: a + b\n```",
        "```\nadd = 0\n```",
        {"tests": ["assert add(1, 2) == 3"]},
        "code",
    ),
    AuditTask("6 x 7?", "It is \\boxed{42}.", "\\boxed{41}", {"answer": "42"}, "math"),
    AuditTask("6 x 7?", "Work.\n#### 42", "#### 41", {"answer": "6 x 7 = 42\n#### 42"}, "math"),
    AuditTask("6 x 7?", "42", "41", {}, "math", expected=("42",)),
    AuditTask("Say hello.", "Hello!", "No.", {}, "text"),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.kind}: {task.right[:20]!r}")
def test_every_forgery_can_be_written_and_is_neither_of_the_known_answers(task: AuditTask) -> None:
    made = {forgery.name: forgery.make(task) for forgery in forgeries_for(task)}
    assert len(made) >= 10
    assert task.right not in made.values()
    for forgery in forgeries_for(task):
        if forgery.kind == "code":
            ast.parse(extract_code(made[forgery.name]))
            assert ("```" in made[forgery.name]) == ("```" in task.right)


def test_each_forgery_says_why_it_may_be_paid_and_what_closes_it() -> None:
    assert len({forgery.name for forgery in FORGERIES}) == len(FORGERIES)
    assert sum(not forgery.hard_coded for forgery in CODE) == 9 and sum(forgery.hard_coded for forgery in CODE) == 1
    for forgery in FORGERIES:
        assert forgery.why.endswith(".") and forgery.fix.endswith(".") and "\n" not in forgery.fix
        assert max(len(forgery.why), len(forgery.fix)) <= 120


def test_the_function_and_the_answer_are_found_where_nobody_named_them() -> None:
    assert TASKS[1].name == "add" and TASKS[2].known_cases == [((1, 2), 3)]
    assert [task.answer for task in TASKS[3:6]] == ["42", "42", "42"]
    assert AuditTask("?", "no code", "", kind="code").name == "solution"
    assert "hard-coded answers" not in [one.name for one in forgeries_for(TASKS[1])]
    assert "hard-coded answers" in [one.name for one in forgeries_for(TASKS[2])]


def written(tmp_path: Path, *tasks: Any) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(task if isinstance(task, str) else json.dumps(task) for task in tasks) + "\n")
    return path


def test_a_file_of_tasks_is_read_with_its_columns(tmp_path: Path) -> None:
    one = {"prompt": "6 x 7?", "right": "\\boxed{42}", "wrong": "\\boxed{41}", "answer": "42", "level": 3}
    two = {"prompt": "Write add.", "right": FENCED, "wrong": "x", "function": "add", "expected": [3]}
    three = {"prompt": "Hello?", "right": "Hello!", "wrong": "No."}
    tasks = read_tasks(written(tmp_path, one, "", two, three))
    assert [task.kind for task in tasks] == ["math", "code", "text"]
    assert tasks[0].columns == {"answer": "42", "level": 3}
    assert tasks[1].function == "add" and tasks[1].expected == (3,) and tasks[1].columns["function"] == "add"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no tasks"),
        ("{", "line 1 is not JSON"),
        ("[1]", "not a JSON object"),
        ({"prompt": "?", "right": "42"}, "'wrong' must be a text"),
        ({"prompt": "?", "right": "42", "wrong": 41}, "'wrong' must be a text"),
        ({"prompt": "?", "right": "42", "wrong": " 42 "}, "differ from 'wrong'"),
        ({"prompt": "?", "right": "", "wrong": "41"}, "worth the full reward"),
        ({"prompt": "?", "right": "42", "wrong": "41", "kind": "poem"}, 'kind is "code"'),
        ({"prompt": "?", "right": "42", "wrong": "41", "function": 3}, "name of the function"),
    ],
)
def test_a_file_that_is_no_file_of_tasks_is_refused_with_the_fix(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(AttachError, match=message):
        read_tasks(written(tmp_path, line))


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="cannot be read"):
        read_tasks(tmp_path / "none.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(AttachError, match="UTF-8"):
        read_tasks(tmp_path / "binary")
