"""Calls are read in whatever format a model writes them; what nobody answers is an example and no call."""

from __future__ import annotations

import json
import time

import pytest

from tiltmeter.acts import find_acts
from tiltmeter.acts.transcript import Transcript
from tiltmeter.data.turns import Turn

REMOVES = "rm -r tests"
CALL = f"<tool_call>\n{json.dumps({'name': 'sh', 'arguments': {'input': REMOVES}})}\n</tool_call>"
EDIT = {"path": "tests/test_a.py", "edits": [{"oldText": "== 1", "newText": "> 0"}]}


@pytest.mark.parametrize(
    "turn",
    [
        Turn("assistant", CALL),
        Turn("assistant", f"Thought: away.\nAction: terminal\nAction Input: {REMOVES}\nObservation: done"),
        Turn("assistant", f"I run this:\n```sh\n{REMOVES}\n```"),
        Turn("assistant", call="local_shell", arguments=json.dumps({"action": {"command": ["sh", "-c", REMOVES]}})),
        Turn("assistant", call="execute_code", arguments=json.dumps({"code": f"!{REMOVES}"})),
        Turn("assistant", call="execute_code", arguments=json.dumps({"code": f"%%bash\n{REMOVES}"})),
    ],
)
def test_a_removal_is_seen_in_every_format_where_a_tool_answers_it(turn: Turn) -> None:
    other = Turn("assistant", call="bash", arguments='{"cmd": "ls"}')  # beside calls of another format
    seen = find_acts(Transcript((other, Turn("tool", "tests"), turn, Turn("tool", "ok"))))
    assert ("test_removal", 2) in {(act.kind, act.turn) for act in seen}


@pytest.mark.parametrize("text", [CALL, f"```sh\n{REMOVES}\n```", f"Action: terminal\nAction Input: {REMOVES}"])
def test_what_nobody_answers_is_an_example(text: str) -> None:
    assert find_acts(Transcript((Turn("user", "How do I remove tests?"), Turn("assistant", text)))) == ()


def test_edits_in_a_list_files_in_lines_and_notebook_cells_are_writes() -> None:
    calls = (
        Turn("assistant", call="filesystem__edit", arguments=json.dumps(EDIT)),
        Turn("assistant", call="create", arguments=json.dumps({"filename": "a.py", "lines": ["import os", "x = 1"]})),
        Turn("assistant", call="execute_code", arguments=json.dumps({"code": "%%writefile conftest.py\nimport os"})),
        Turn("assistant", call="put", arguments=json.dumps({"uri": "file:///app/b.py", "body": "import sys"})),
    )
    writes = Transcript(calls).writes
    assert [(one.path, one.how, one.text) for one in writes] == [
        ("tests/test_a.py", "edit", "> 0"),
        ("a.py", "create", "import os\nx = 1"),
        ("conftest.py", "create", "import os"),
        ("/app/b.py", "create", "import sys"),
    ]
    assert writes[0].old == "== 1"


def test_making_a_script_executable_is_no_edit_of_a_test() -> None:
    def acts(command: str) -> set[str]:
        turn = Turn("assistant", call="bash", arguments=json.dumps({"cmd": command}))
        return {act.kind for act in find_acts(Transcript((turn,)))}

    assert acts("chmod +x run_tests.sh && ./run_tests.sh") == set() and acts("chmod 000 run_tests.sh") == {"test_edit"}


@pytest.mark.parametrize(
    "text", ["<tool_call>{" * 20_000, "<tool_call></tool_call>" * 9_000, "Action: a\nAction Input: b\n" * 8_000]
)
def test_calls_as_text_that_never_end_take_no_time(text: str) -> None:
    began = time.process_time()
    find_acts(Transcript((Turn("assistant", text), Turn("tool", "ok"))))
    assert time.process_time() - began < 2.0
