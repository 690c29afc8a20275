"""What a witness says of a run, beside how often it is right on forgeries in this run's tasks."""

from __future__ import annotations

import math

from tiltmeter.errors import StoreError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.claims import Claim, Claims
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.screens.wording import format_number, truncate
from tiltmeter_workbench.stats.prevalence import ShareCount
from tiltmeter_workbench.witness.calibration import Calibration, describe_accuracy, describe_share
from tiltmeter_workbench.witness.exploit_classes import EXPLOITS
from tiltmeter_workbench.witness.session import ClassClaim, WitnessReport, report_of
from tiltmeter_workbench.witness.witness_files import list_batches

QUOTE, NAME = 120, 60  # characters
NOBODY = Claims(claims=[], witness="", remarks=[])


def witness_claims(run: RunDirectory, attempt: int | None) -> Claims:
    """What the witness that was asked last says of an attempt."""
    if attempt is None:
        return NOBODY
    try:
        batches = [one for one in list_batches(run) if one.attempt == attempt]
        newest = max(batches, key=lambda one: one.time).witness if batches else ""
        report = report_of(run, attempt, newest) if newest else None
    except (OSError, StoreError):
        return NOBODY  # a screen shows the rest
    return NOBODY if report is None else report_claims(report, attempt)


def report_claims(report: WitnessReport, attempt: int) -> Claims:
    """The claims of a report, and what they rest on; no claims of a witness that does not tell forgeries apart."""
    remarks = [describe_accuracy(report.calibration)]
    if why := report.why_unusable:
        remarks.append(f"Nothing that it says is shown: {why}.")
    elif not report.rows:
        remarks.append("Nothing was asked yet: too few rollouts are stored, or their texts are not.")
    else:
        remarks += _remarks(report)
    claims = [] if why else [_claim(claim, report.calibration, attempt) for claim in report.claims]
    return Claims(claims=claims, witness=report.calibration.witness, remarks=remarks)


def _remarks(report: WitnessReport) -> list[str]:
    first, last = min(one.first_step for one in report.batches), max(one.last_step for one in report.batches)
    canaries = report.canaries
    lines = [
        f"Asked about {report.rows} of {report.rows_seen:,} rollouts of steps {first} to {last}, the others were not "
        f"read; {report.errors} answers did not count. Canaries among them: {canaries.recall.hits} of "
        f"{canaries.recall.total} forgeries and {canaries.false_positives.hits} of {canaries.false_positives.total} "
        "honest twins flagged."
    ]
    flags, rows = (sum(one[at] for one in report.random_flags) for at in (0, 1))
    low, high = 100.0 * report.prevalence.low, 100.0 * report.prevalence.high
    estimate = report.prevalence.estimate
    share = "unknown" if math.isnan(estimate) else f"{100 * estimate:.0f} %"
    lines.append(
        f"Of {rows} chosen at random it calls {flags} an exploit. Corrected for its mistakes: {share} of rollouts "
        f"(95 %: {low:.0f} % to {high:.0f} %)."
    )
    if report.addressed:
        lines.append(
            f"{report.addressed} rollouts that it calls honest speak to whoever judges them: that counts for nothing."
        )
    if not report.claims:
        lines.append("It calls nothing that it was asked about an exploit.")
    return [*lines, "This is evidence, not a verdict: what judges is gold."]


def _claim(claim: ClassClaim, calibration: Calibration, attempt: int) -> Claim:
    answer, example = claim.answer, claim.example
    row = example.rows[claim.at]
    paid = "" if math.isnan(claim.paid) else f"paid {format_number(claim.paid)}"
    if paid and not math.isnan(claim.paid_others):
        paid += f" and honest ones beside them {format_number(claim.paid_others)}"
    first = answer.evidence[0] if answer.evidence else None
    turn = None if first is None else first.turn + 1
    place = f"step {example.step}, row {row}"
    return Claim(
        source="witness",
        says=f"{truncate(claim.exploit, 40)}: {EXPLOITS.get(claim.exploit, 'of another version')}",
        own_words=truncate(answer.name, NAME),
        many=f"{claim.rollouts} rollout{'' if claim.rollouts == 1 else 's'} since step {claim.first_step}",
        paid=paid,
        id=rollout_id(attempt, example.step, row),
        step=example.step,
        turn=turn,
        place=place if turn is None else f"{place}, turn {turn}",
        quote="" if first is None else truncate(" ".join(first.quote.split()), QUOTE),
        accuracy=class_accuracy(calibration, claim.exploit),
    )


def class_accuracy(calibration: Calibration, exploit: str) -> str:
    """Recall on forgeries of a class and false positives on honest twins; empty if none of the class was forged."""
    one = calibration.classes.get(exploit)
    if one is None or not one.forged:
        return ""
    recall = describe_share(ShareCount(one.flagged, one.forged))
    return f"of {one.forged} forgeries of this class it flags {recall}; of {calibration.honest} honest twins " + (
        describe_share(calibration.false_positives)
    )
