"""`tiltmeter mcp`: runs for a coding agent, over the Model Context Protocol."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.options import local_roots
from tiltmeter.view.agent.server import read_skill, serve
from tiltmeter.view.server.access import AccessTokens


def mcp(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(help="Run directories, folders that hold some, or addresses of runs.", metavar="RUNS"),
    ] = None,
    skill: Annotated[bool, typer.Option("--skill", help="Print the SKILL.md for agents that look after runs.")] = False,
    rater: Annotated[
        str, typer.Option("--rater", help="Print the token with which an agent labels under this name.", metavar="NAME")
    ] = "",
) -> None:
    """Let a coding agent ask about runs: verdict, findings, readings, rollouts, search and report.

    Example: tiltmeter mcp runs

    For Claude Code: claude mcp add tiltmeter -- tiltmeter mcp runs

    Speaks MCP over standard input and output, until the agent leaves. Read-only: no tool changes anything unless you
    pass on a token of yours in the environment. TILTMETER_LABEL_TOKEN (from --rater NAME) adds labelling under that
    name; TILTMETER_CONTROL_TOKEN (the content of the file that `tiltmeter view --control` names) adds answers to
    proposals and alarms. Everything read from a run is fenced and marked as data.
    """
    if skill:
        sys.stdout.write(read_skill())
    elif rater:
        sys.stdout.write(f"{AccessTokens(raters=[rater]).rater_token(rater)}\n")
    else:
        serve(local_roots(runs))
