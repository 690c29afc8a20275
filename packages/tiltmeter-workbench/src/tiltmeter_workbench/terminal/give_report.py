"""A report to whoever asked for it: files where they are named, and one thing on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from tiltmeter.cli.options import write_report
from tiltmeter.errors import AttachError
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.check_report.markdown import render_markdown
from tiltmeter_workbench.check_report.report import Report
from tiltmeter_workbench.terminal.check_report import print_report


def check_places(html: Path | None, md: Path | None, *, as_json: bool) -> None:
    """Raise what is wrong with `--html`, `--md` and `--json` before hours of work."""
    for option, path in (("--html", html), ("--md", md)):
        if path is not None and not path.parent.is_dir():
            raise AttachError(f"{path} cannot be written: {option} needs a file in a folder that is there")
    if as_json and str(md) == "-":
        raise typer.BadParameter("one of --json and --md - can be printed: name a file after --md")


def give_report(
    report: Report, facts: Mapping[str, Any], name: str, html: Path | None, md: Path | None, *, as_json: bool
) -> None:
    """Write the report to the files that were named, and print it, or `facts` for a machine."""
    if html is not None:
        write_report(render_html(report), html, f"{name}.html", "--html")
    if md is not None:
        write_report(render_markdown(report), md, f"{name}.md", "--md")
    if as_json:
        sys.stdout.write(json.dumps(facts, allow_nan=False) + "\n")
    elif str(md) != "-":
        print_report(report)
