"""`tiltmeter probe REWARD --tasks FILE`: audit a reward with forged answers, in the terminal and as HTML."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path

from rich.console import Console

from tiltmeter.errors import AttachError
from tiltmeter.rundir import verifier_audits as audits
from tiltmeter.rundir.locate_run import locate_run
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.probe.audit import audit
from tiltmeter_workbench.probe.forgeries import read_tasks
from tiltmeter_workbench.probe.scorecard_report import audit_as_report
from tiltmeter_workbench.terminal.check_report import print_report


def audit_reward(
    reward: str, tasks: Path | str, *, json: bool = False, html: Path | None = None, run: Path | None = None
) -> int:
    """Audit a reward, print the result, store it where requested, and return 0 none paid, 1 some paid, 2 cannot judge.

    `html`: a file to write; `run`: a run directory to keep the audit in, where the page shows it.
    """
    directory = None
    if run is not None:
        directory = RunDirectory(locate_run(run))
        directory.identity()
    task_list = read_tasks(tasks)
    console = Console(stderr=True, highlight=False, markup=False)
    with console.status(f"auditing {log_line(reward, 60)} …"):
        result = audit(reward, task_list)
    record = result.record()
    if directory is not None:
        audits.write_audit(directory, record)
    if html is not None:
        try:
            html.write_text(render_html(audit_as_report(result)), "utf-8")
        except OSError as error:
            raise AttachError(f"{html} cannot be written: {error.strerror}") from error
    if json:
        sys.stdout.write(json_module.dumps(record, indent=1, allow_nan=False) + "\n")
    else:
        print_report(audit_as_report(result))
    return result.exit_code
