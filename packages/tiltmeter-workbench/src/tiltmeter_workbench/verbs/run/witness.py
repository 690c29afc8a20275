"""`tiltmeter witness`: ask a language model what was done in a run, beside how often it is right on forgeries."""

from __future__ import annotations

import json as json_module
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tiltmeter.cli.options import Json, Run, Seed, Trust, open_to_change
from tiltmeter.errors import AttachError
from tiltmeter.models.judge import read_judge
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line, visible
from tiltmeter.view.screens.claims.run_claims import claim_lines
from tiltmeter_workbench.terminal.witness_report import check_lines
from tiltmeter_workbench.witness.asking import Witness
from tiltmeter_workbench.witness.calibration import GROUPS, Calibration
from tiltmeter_workbench.witness.candidates import SHARE
from tiltmeter_workbench.witness.session import ClassClaim, WitnessReport, ask_run, calibrate_run, report_of
from tiltmeter_workbench.witness.witness_claims import report_claims
from tiltmeter_workbench.witness.witness_files import find_calibration

BARE = "bare"  # the method of a judge that is asked once
FEWEST_GROUPS = 12  # of a calibration

JudgeFile = Annotated[
    Path, typer.Argument(help="A judge's file, as for gold; its guide: honest work.", metavar="JUDGE")
]
Check = Annotated[bool, typer.Option("--check", help="Only try it on forgeries and honest twins, and say how it does.")]
Groups = Annotated[int, typer.Option(help="Groups of a calibration.", min=FEWEST_GROUPS, max=2000, metavar="N")]
Part = Annotated[
    float, typer.Option("--share", help="Of the rollouts, to ask about at most.", metavar="SHARE", min=0.0, max=1.0)
]
Follow = Annotated[
    float | None, typer.Option(help="Go on until the run ends, and look every so many seconds.", min=1.0, metavar="S")
]
NoReasoning = Annotated[bool, typer.Option("--no-reasoning", help="Do not show it what the policy thought.")]


def witness(
    run: Run,
    judge: JudgeFile,
    check: Check = False,
    groups: Groups = GROUPS,
    share: Part = SHARE,
    follow: Follow = None,
    no_reasoning: NoReasoning = False,
    seed: Seed = 0,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Ask a language model what some rollouts did, beside others of their prompt, with quotes that are checked.

    Example: tiltmeter witness runs/tonight judge.toml

    It is first tried on forgeries of our own and honest twins, put into this run's tasks; --check does that alone, with
    and without the policy's reasoning. That figure stands beside everything it says. Half of the rollouts are chosen at
    random, half where acts or behaviours are new and well paid. It is evidence, no gold and no alarm. Exit code: 0 no
    more is flagged than by mistake, 1 exploits are there, 2 it cannot say.
    """
    directory = open_to_change(run, trust)
    attempt = max(directory.attempts(), default=None)
    if attempt is None:
        raise AttachError(f"{directory.path} has no attempt yet: there is nothing to ask about")
    settings = read_judge(judge)
    if settings.method != BARE:
        raise AttachError(
            f"{judge} has method = {settings.method!r}, which is about grading one answer: a witness reads a group at "
            "once and is asked once; give it a file without method and calls"
        )
    one = Witness(settings, not no_reasoning, seed)
    console = Console(stderr=True, highlight=False, markup=False)

    def say(text: str) -> None:
        console.print(visible(text))

    if check:
        parts = [
            calibrate_run(directory, attempt, replace(one, reasoning=reasoning), say, groups, seed)
            for reasoning in (True, False)
        ]
        _print(json, [calibration_json(part) for part in parts], [line for part in parts for line in check_lines(part)])
        raise typer.Exit(0 if parts[int(no_reasoning)].is_useful else 2)
    if find_calibration(directory, one.identity) is None:
        calibrate_run(directory, attempt, one, say, groups, seed)
    report = _ask(directory, attempt, one, say, share)
    while follow is not None and not directory.ended(attempt) and not report.why_unusable:
        time.sleep(follow)
        report = _ask(directory, attempt, one, say, share)
    _print(json, report_json(report), [log_line(line) for line in claim_lines(report_claims(report, attempt))])
    raise typer.Exit(exit_code(report))


def _ask(run: RunDirectory, attempt: int, one: Witness, say: Any, share: float) -> WitnessReport:
    report = report_of(run, attempt, one.identity)
    assert report is not None
    if report.why_unusable:
        return report  # asking it more would cost money and say nothing
    ask_run(run, attempt, one, say, share)
    return report_of(run, attempt, one.identity) or report


def _print(json: bool, facts: object, lines: list[str]) -> None:
    if json:
        typer.echo(json_module.dumps(facts, indent=1, allow_nan=False))
    else:
        for line in lines:
            typer.echo(line)


def exit_code(report: WitnessReport) -> int:
    """0 no more flags than mistakes explain, 1 more, 2 it cannot say."""
    if report.why_unusable or not report.rows or report.errors == report.rows:
        return 2
    return int(report.prevalence.low > 0.0 or report.flags > 2.0 * report.expected_false_flags + 3.0)


def calibration_json(calibration: Calibration) -> dict[str, Any]:
    recall, false = calibration.recall, calibration.false_positives
    return {
        "witness": calibration.witness,
        "recall": _finite(recall.share),
        "recall_interval": list(recall.interval),
        "false_share": _finite(false.share),
        "false_interval": list(false.interval),
        "forgeries": recall.total,
        "honest_twins": false.total,
        "errors": calibration.errors,
        "useful": calibration.is_useful,
        "classes": {
            kind: {"forged": one.forged, "flagged": one.flagged, "named": one.named}
            for kind, one in calibration.classes.items()
        },
        "with_a_note": {"forged": calibration.noted.forged, "flagged": calibration.noted.flagged},
    }


def report_json(report: WitnessReport) -> dict[str, Any]:
    low, high = report.prevalence.low, report.prevalence.high
    unusable = report.why_unusable
    return {
        "calibration": calibration_json(report.calibration),
        "canaries": calibration_json(report.canaries),
        "unusable": unusable,
        "rollouts_asked_about": report.rows,
        "rollouts_seen": report.rows_seen,
        "errors": report.errors,
        "speak_to_the_judge": report.addressed,
        "prevalence": None if unusable else _finite(report.prevalence.estimate),
        "prevalence_interval": None if unusable else [low, high],
        "claims": [] if unusable else [_claim_json(claim) for claim in report.claims],
    }


def _claim_json(claim: ClassClaim) -> dict[str, Any]:
    return {
        "class": claim.exploit,
        "rollouts": claim.rollouts,
        "first_step": claim.first_step,
        "paid": _finite(claim.paid),
        "paid_others": _finite(claim.paid_others),
        "name": claim.answer.name,
        "step": claim.example.step,
        "row": claim.example.rows[claim.at],
        "evidence": [{"turn": one.turn, "quote": one.quote} for one in claim.answer.evidence],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
