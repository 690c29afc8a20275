"""Tools for coding agents: driven by the official client; all that was read from a run is fenced; tokens add more."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import tiltmeter
from tests.sizes import size
from tests.view.server.test_labelling import directory, restart, watched

pytest.importorskip("mcp", reason="needs mcp: pip install 'tiltmeter[mcp]'")
from mcp import Client, StdioServerParameters

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Action, Alarm, Fault, Finding
from tiltmeter.errors import AttachError
from tiltmeter.rundir import journal, requests
from tiltmeter.rundir.journal import Event, Journal
from tiltmeter.rundir.requests import Knob
from tiltmeter.rundir.signing import make_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.agent import server as agent_server
from tiltmeter.view.agent.fence import MARK, NOTICE, fence
from tiltmeter.view.agent.server import CONTROL_TOKEN, LABEL_TOKEN, build_server
from tiltmeter.view.server.access import AccessTokens

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

from agent_tools import FENCED, ORDERS, call, hostile_texts, is_fenced, results, shows_text

ROWS = 64
READ_TOOLS = {"list_runs", "verdict", "findings", "readings", "search_rollouts", "rollout", "report"}


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    restart()
    yield
    restart()


def hostile_run(path: Path, texts: list[str]) -> RunDirectory:
    """Every text once as a completion, and orders in every sentence that the journal can hold."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    requests.publish_knobs(run, attempt, "advise", {"beta": Knob("beta", 0.04, 1e-6, 1.0)})
    make_token(run)
    opened: dict[str, Any] = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": [], "gold": None}
    events = [Event("attempt", 0, -1, opened, "attempt|0|open")]
    steps = -(-len(texts) // ROWS)
    for step in range(steps):
        part = [texts[(step * ROWS + row) % len(texts)] for row in range(ROWS)]
        group = [row // 4 for row in range(ROWS)]
        reward = [float(row % 4) for row in range(ROWS)]
        rewards = {ORDERS[0]: reward, "plain": reward}
        run.write(from_columns(step, group, reward=reward, rewards=rewards, prompt=part, completion=part), 0, {})
        done = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": ROWS, "seen": 1, "lost": {}}
        measured = {"reward.mean": [1.5, ROWS, None], f"reward.component.{ORDERS[1]}": [1.5, ROWS, None]}
        events.append(Event("reading", 0, step, {"measured": measured, "derived": {}}, f"reading|{step}"))
        events.append(Event("step_done", 0, step, done, f"step_done|{step}"))
    last = steps - 1
    alarm = Alarm(0, "gold.slope", "gold_loss", "alarm", "down", last, last, 0, 0, last, 5.1, 4.8, None, ORDERS[2])
    finding = Finding(0, last, ORDERS[3], 0.9, ("gold.slope",), (), ((0, last, 1),), ORDERS[4], ORDERS[5], ORDERS[6])
    action = Action("0-8-beta", 0, last, ORDERS[7], "beta", 0.04, 0.08, ORDERS[8])
    records: list[Any] = [alarm, finding, action, Fault(0, last, "x", ORDERS[9])]
    events += [journal.event(record, 0, last, "c") for record in records]
    book = Journal(run.path / "events")
    for event in events:
        book.commit([event])
    book.close()
    return run


def ask(folder: Path, environment: dict[str, str], *calls: tuple[str, dict[str, Any]]) -> tuple[set[str], list[str]]:
    """The tools that the server lists, and the text of each result."""

    async def run() -> tuple[set[str], list[str]]:
        server, runs = build_server([folder], environment)
        async with Client(server) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            texts = [await call(client, name, **arguments) for name, arguments in calls]
        runs.close()
        return names, texts

    return asyncio.run(run())


def data(result: str) -> Any:
    match = FENCED.fullmatch(result)
    assert match is not None, result
    return json.loads(match[3])


def test_of_hundreds_of_injected_rollouts_none_makes_a_result_that_is_not_fenced(tmp_path: Path) -> None:
    texts = hostile_texts()
    hostile_run(tmp_path / "run", texts)

    async def count() -> tuple[int, list[str]]:
        server, runs = build_server([tmp_path], {})
        wrong, number = [], 0
        async with Client(server) as client:
            async for text, result in results(client, texts, size(160, len(texts))):
                number += 1
                wrong += [] if is_fenced(result) and (not text or shows_text(result, text)) else [result[:500]]
        runs.close()
        return number, wrong

    number, wrong = asyncio.run(count())
    assert number > size(160, 500) and len(texts) >= 500
    assert not wrong, wrong[0]


def test_the_check_sees_a_result_that_is_not_fenced() -> None:
    good = fence("State: ACT.", {"text": ORDERS[2]})
    assert is_fenced(good)
    for leak in (
        ORDERS[0],
        f"{good}\n{ORDERS[0]}",
        good.replace("State: ACT.", f"State: ACT. {ORDERS[2]}"),
        good.replace("\\u003c", "<"),
        good.replace("Exit", "\x1b[2J"),
    ):
        assert not is_fenced(leak), leak


def test_errors_are_fenced_and_say_that_they_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = hostile_run(tmp_path / "run", list(ORDERS))

    def fail(*_: object) -> None:
        raise RuntimeError(ORDERS[0])

    async def asked() -> list[Any]:
        server, runs = build_server([tmp_path], {})
        async with Client(server) as client:
            first = await client.call_tool("verdict", {"run": ORDERS[0]})
            monkeypatch.setattr("tiltmeter.view.agent.tools.summary", fail)
            second = await client.call_tool("verdict", {})
            (run.path / "events" / "0.jsonl").write_bytes(b'{"crc":"00000000"}\n' + ORDERS[1].encode())
            (run.path / "run.json").write_text(json.dumps({"format": ORDERS[1]}))
            third = await client.call_tool("report", {})
        runs.close()
        return [first, second, third]

    first, second, _ = answers = asyncio.run(asked())
    assert all(is_fenced(one.content[0].text) for one in answers)
    assert first.is_error and second.is_error
    assert ORDERS[0] not in second.content[0].text


def test_the_official_client_over_standard_input_and_output(tmp_path: Path) -> None:
    hostile_run(tmp_path / "run", list(ORDERS))
    variables = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "tiltmeter", "mcp", str(tmp_path)], env=variables
    )

    async def asked() -> tuple[list[Any], str | None, list[str]]:
        async with Client(command) as client:
            tools = (await client.list_tools()).tools
            texts = [
                await call(client, "list_runs"),
                await call(client, "verdict"),
                await call(client, "rollout", id="0-0-3"),
            ]
            return tools, client.instructions, texts

    tools, instructions, (listed, verdict, rollout) = asyncio.run(asked())
    assert {tool.name for tool in tools} == READ_TOOLS
    assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
    assert instructions is not None and NOTICE in instructions
    assert [row["state"] for row in data(listed)] == ["ACT"]
    assert verdict.startswith("State: ACT. Exit code: 1. Step: 0.\n")
    assert shows_text(rollout, ORDERS[3])


def test_nothing_can_be_changed_without_a_token_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    hostile_run(tmp_path / "run", list(ORDERS))
    assert ask(tmp_path, {})[0] == READ_TOOLS
    for name in (LABEL_TOKEN, CONTROL_TOKEN):
        for token in ("x", "alice." + "0" * 64, "0" * 64):
            with pytest.raises(AttachError, match=name):
                build_server([tmp_path], {name: token})


def test_with_the_control_token_proposals_and_alarms_are_answered_as_an_agents(tmp_path: Path) -> None:
    run = hostile_run(tmp_path / "run", list(ORDERS))
    token = AccessTokens().control_path.read_text()
    names, (findings,) = ask(tmp_path, {CONTROL_TOKEN: token}, ("findings", {}))
    assert names == READ_TOOLS | {"answer_proposal", "answer_alarm"}
    alarm = data(findings)["alarms"][0]["id"]
    _, texts = ask(
        tmp_path,
        {CONTROL_TOKEN: token},
        ("answer_proposal", {"action": "0-8-beta", "answer": "approve"}),
        ("answer_alarm", {"alarm": alarm, "answer": "false_alarm", "reason": "the gold source was down"}),
        ("answer_proposal", {"action": "0-8-beta", "answer": "approve"}),
    )
    assert all(is_fenced(text) for text in texts)
    assert "asked already" in data(texts[2].removeprefix("Error executing tool answer_proposal: "))["why"]
    stored = [json.loads(file.read_text()) for file in sorted((run.path / "control" / "requests").iterdir())]
    assert [one["request"]["kind"] for one in stored] == ["approve", "note"]
    assert "by an agent: the gold source was down" in json.dumps(stored[1])


def test_with_a_raters_token_an_agent_labels_under_that_name_and_sees_no_reward(tmp_path: Path) -> None:
    run = directory(tmp_path / "runs", 3)
    monitor = watched(run)
    token = tiltmeter("mcp", "--rater", "agent-7").stdout.strip()
    names, (first,) = ask(tmp_path / "runs", {LABEL_TOKEN: token}, ("next_label_task", {}))
    assert names == READ_TOOLS | {"next_label_task", "submit_label", "undo_label"}
    task = data(first)
    assert task["task"], task["why"]
    assert task["task"] and task["texts"] and "secret-run-name" not in first and "reward" not in first
    _, (second,) = ask(
        tmp_path / "runs", {LABEL_TOKEN: token}, ("submit_label", {"task": task["task"], "answer": "skip"})
    )
    assert data(second)["task"] != task["task"]
    (answer,) = (file for folder in (run.path / "gold" / "people").iterdir() for file in folder.iterdir())
    assert json.loads(answer.read_text())["rater"] == "agent-7"
    monitor.close()


def test_the_skill_names_every_state_and_only_tools_that_there_are(tmp_path: Path) -> None:
    skill = tiltmeter("mcp", "--skill").stdout
    assert skill.startswith("---\nname: tiltmeter\ndescription: ") and MARK in skill
    for state in ("ACT", "HOLLOW", "WATCH", "STALE", "BLIND", "OK"):
        assert f"| {state} |" in skill
    assert {"list_runs", "verdict", "findings", "report"} <= set(skill.replace("`", " ").replace(",", " ").split())
    assert skill == agent_server.read_skill()
