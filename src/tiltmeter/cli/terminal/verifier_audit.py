"""`tiltmeter probe REWARD --tasks FILE`: audit a reward with forged answers, in the terminal and as HTML."""

from __future__ import annotations

import html as html_module
import json as json_module
import sys
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from tiltmeter.errors import AttachError
from tiltmeter.rundir import verifier_audits as audits
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line, terminal, visible
from tiltmeter.workbench.probe.audit import Audit, audit
from tiltmeter.workbench.probe.forgeries import read_tasks

STYLES = {"paid": "bold red", "could not judge": "yellow"}
HELD = {False: Text("failed", "bold red"), None: Text("not seen", "yellow")}
NETWORK = {"denied": "", "on": " The network was on."}
WORDS = {
    "none paid": "No forgery was paid, and every check held.",
    "some paid": "This reward can be paid without doing the work.",
    "could not judge": "This reward could not be judged.",
}


def audit_reward(
    reward: str, tasks: Path | str, *, json: bool = False, html: Path | None = None, run: Path | None = None
) -> int:
    """Audit a reward, print the result, store it where requested, and return 0 none paid, 1 some paid, 2 cannot judge.

    `html`: a file to write; `run`: a run directory to keep the audit in, where the page shows it.
    """
    directory = None
    if run is not None:
        directory = RunDirectory(run)
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
            html.write_text(_page(result), "utf-8")
        except OSError as error:
            raise AttachError(f"{html} cannot be written: {error.strerror}") from error
    if json:
        sys.stdout.write(json_module.dumps(record, indent=1, allow_nan=False) + "\n")
    else:
        print_audit(result, Console(highlight=False, markup=False))
    return result.exit_code


def print_audit(result: Audit, console: Console) -> None:
    """The audit for a person: the sentence that sums it up, what was paid with its text and fix, then the rest."""
    summary = f"{result.judged} of {result.tasks} tasks tell right from wrong."
    network = NETWORK.get(result.network, f" The network {result.network}." if result.network else "")
    console.print(Text.assemble((WORDS[result.verdict], "bold"), f" {summary}{network} {result.seconds:.0f} s."))
    if result.why:
        console.print(terminal(result.why, 500))
    for row in result.tried:
        if row.status != "not paid":
            of = f", {row.paid} of {row.tasks}" if row.status == "paid" else ""
            console.print()
            console.print(Text.assemble((f"{row.status}{of}  ", STYLES[row.status]), terminal(row.forgery, 60)))
            console.print(_below("why", terminal(row.why)))
            console.print(_below("text", terminal(row.text, 300)))
            console.print(_below("fix", terminal(row.fix)))
    for check in result.checks:
        if check.ok is not True:
            console.print()
            console.print(Text.assemble(HELD[check.ok], "  ", terminal(check.name, 80)))
            console.print(_below("seen", terminal(check.says, 300)))
            if check.fix:
                console.print(_below("fix", terminal(check.fix)))
    good = [row.forgery for row in result.tried if row.status == "not paid"]
    for words, names in (("not paid", good), ("held", [check.name for check in result.checks if check.ok])):
        if names:
            console.print()
            console.print(Text.assemble((f"{words}  ", "green"), terminal("; ".join(names), 2000)))


def _below(name: str, text: Text) -> Padding:
    return Padding(Text.assemble((f"{name}: ", "bold"), text), (0, 0, 0, 2))


def audit_html(result: Audit) -> str:
    """The audit as a fragment of static HTML: tables of escaped text, no script, no style of its own."""
    rows = "".join(
        f'<tr class="{row.status.replace(" ", "-")}"><th scope="row">{_text(row.forgery)}</th><td>{row.status}</td>'
        f"<td>{row.paid} of {row.tasks}</td><td>{_text(row.why)}</td>"
        f"<td>{_text(row.fix) if row.status == 'paid' else ''}"
        + (f"<details><summary>text</summary><pre>{_text(row.text)}</pre></details>" if row.status == "paid" else "")
        + "</td></tr>"
        for row in result.tried
    )
    words = {True: "held", False: "failed", None: "not seen"}
    checks = "".join(
        f'<tr class="{words[check.ok].replace(" ", "-")}"><th scope="row">{_text(check.name)}</th>'
        f"<td>{words[check.ok]}</td><td>{_text(check.says)}</td><td>{_text(check.fix) if check.ok is False else ''}"
        "</td></tr>"
        for check in result.checks
    )
    return (
        f'<section class="audit"><h2>Can it be paid without doing the work?</h2><p><strong>{WORDS[result.verdict]}'
        f"</strong> {result.judged} of {result.tasks} tasks tell right from wrong. {_text(result.why)}</p>"
        "<table><thead><tr><th>Forgery</th><th>Result</th><th>Paid</th><th>Why</th><th>Fix</th></tr></thead>"
        f"<tbody>{rows}</tbody></table><table><thead><tr><th>Check</th><th>Result</th><th>Seen</th><th>Fix</th></tr>"
        f"</thead><tbody>{checks}</tbody></table></section>"
    )


def _page(result: Audit) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    style = "body{font:15px/1.4 sans-serif;max-width:70rem;margin:2rem auto}td,th{text-align:left;vertical-align:top;"
    style += "padding:.2rem .6rem}.paid td:nth-child(2),.failed td:nth-child(2){color:#b00020;font-weight:bold}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}"><title>Audit of {_text(result.reward)}</title><style>{style}</style></head>'
        f"<body><h1>{_text(result.reward)}</h1>{audit_html(result)}</body></html>\n"
    )


def _text(text: str) -> str:
    return html_module.escape(visible(text))
