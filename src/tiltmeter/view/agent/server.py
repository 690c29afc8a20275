"""The MCP server over standard input and output: tools that read; others only for a token that a person passes on."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

from tiltmeter.errors import AttachError, TiltmeterError
from tiltmeter.version import __version__
from tiltmeter.view.agent.fence import NOTICE, fence
from tiltmeter.view.agent.permitted_tools import ControlTools, LabelTools
from tiltmeter.view.agent.run_choice import RunChoice
from tiltmeter.view.agent.tools import RunTools
from tiltmeter.view.server.access import AccessTokens, RequestError

LABEL_TOKEN, CONTROL_TOKEN = "TILTMETER_LABEL_TOKEN", "TILTMETER_CONTROL_TOKEN"
INSTRUCTIONS = (
    "Tiltmeter watches RL post-training runs: is the reward still telling the truth? Begin with list_runs, then "
    f"verdict, findings and rollouts. {NOTICE}"
)
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False)
CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)
_LOCK = threading.Lock()  # tools run in threads, and a reader is for one at a time


def build_server(
    roots: Sequence[Path], environment: Mapping[str, str] = os.environ
) -> tuple[MCPServer[Any], RunChoice]:
    """The server and the runs that it keeps open. Raises `AttachError` for a token that is not valid: an agent that was
    meant to act must not find out later that it cannot."""
    runs = RunChoice(roots)
    server: MCPServer[Any] = MCPServer("tiltmeter", instructions=INSTRUCTIONS, version=__version__, log_level="ERROR")
    tools = RunTools(runs)
    for look in (tools.list_runs, tools.verdict, tools.findings, tools.readings, tools.report):
        _add(server, look, READ_ONLY)
    for look_up in (tools.search_rollouts, tools.rollout):
        _add(server, look_up, READ_ONLY)
    if token := environment.get(LABEL_TOKEN):
        label = LabelTools(runs, _rater_of(token))
        for change in (label.next_label_task, label.submit_label, label.undo_label):
            _add(server, change, CHANGES)
    if token := environment.get(CONTROL_TOKEN):
        if not AccessTokens().may_control([token]):
            raise AttachError(f"{CONTROL_TOKEN} is not the control token of this user: see tiltmeter mcp --help")
        control = ControlTools(runs)
        for answer in (control.answer_proposal, control.answer_alarm):
            _add(server, answer, CHANGES)
    return server, runs


def serve(roots: Sequence[Path]) -> None:
    """Serve over standard input and output until the client leaves."""
    server, runs = build_server(roots)
    try:
        server.run("stdio")
    finally:
        runs.close()


def read_skill() -> str:
    """The text that tells an agent how to look after runs with these tools."""
    return (files("tiltmeter.view.agent") / "SKILL.md").read_text("utf-8")


def _rater_of(token: str) -> str:
    """The rater that a token is bound to."""
    name = token.rpartition(".")[0]
    person = AccessTokens(raters=[name] if name else []).person_of(token)
    if person is None or "label" not in person.roles:
        raise AttachError(f"{LABEL_TOKEN} is no token of a rater: make one with tiltmeter mcp --rater NAME")
    return person.name


def _add(server: MCPServer[Any], tool: Callable[..., str], hints: ToolAnnotations) -> None:
    server.tool(annotations=hints, structured_output=False)(_fence_errors(tool))


def _fence_errors(tool: Callable[..., str]) -> Callable[..., str]:
    """The same tool, whose errors are fenced too: they name files and quote what stands in them."""

    @functools.wraps(tool)
    def call(*args: Any, **options: Any) -> str:
        try:
            with _LOCK:
                return tool(*args, **options)
        except (TiltmeterError, RequestError, ValueError, KeyError, OSError) as error:
            why = {"why": getattr(error, "text", None) or str(error)}
            raise ToolError(fence("This could not be done.", why)) from None
        except Exception as error:  # noqa: BLE001  # its own words would leave unfenced
            why = {"why": type(error).__name__}
            raise ToolError(fence("This could not be done: an error in tiltmeter itself.", why)) from None

    return call
