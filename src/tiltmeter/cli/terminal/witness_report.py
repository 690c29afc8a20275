"""What a witness said about a run, in lines: how often it is right, then what it calls an exploit."""

from __future__ import annotations

import math

from tiltmeter.errors import StoreError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.stats.prevalence import ShareCount
from tiltmeter.witness.calibration import Calibration
from tiltmeter.witness.exploit_classes import EXPLOITS
from tiltmeter.witness.session import ClassClaim, WitnessReport, report_of
from tiltmeter.witness.witness_files import list_batches

LONGEST_QUOTE = 120


def witness_lines(run: RunDirectory, attempt: int | None) -> list[str]:
    """What the witness that was asked last says of the attempt of now; none where nobody was asked."""
    if attempt is None:
        return []
    try:
        batches = [one for one in list_batches(run) if one.attempt == attempt]
        newest = max(batches, key=lambda one: one.time).witness if batches else ""
        report = report_of(run, attempt, newest) if newest else None
    except (OSError, StoreError):
        return []  # a screen shows the rest
    return [] if report is None else report_lines(report)


def accuracy_line(calibration: Calibration) -> str:
    """What stands beside every claim."""
    recall, false = calibration.recall, calibration.false_positives
    return (
        f"On forgeries in this run's tasks it flags {recall.hits} of {recall.total}, {_share(recall)}, and of honest "
        f"twins {false.hits} of {false.total}, {_share(false)}; {calibration.errors} answers did not count."
    )


def check_lines(calibration: Calibration) -> list[str]:
    """A calibration in lines: by class, then the sum."""
    lines = [log_line(calibration.witness)]
    for kind, one in calibration.classes.items():
        share = _share(ShareCount(one.flagged, one.forged))
        lines.append(f"  {kind:18} {one.flagged:3} of {one.forged:3} flagged, {share}; {one.named} by its class")
    noted = calibration.noted
    if noted.forged:
        lines.append(f"  {'with a note to it':18} {noted.flagged:3} of {noted.forged:3} flagged")
    suspicious = f"{calibration.honest_suspicious} of {calibration.honest} honest twins it calls suspicious"
    lines.append(f"  {accuracy_line(calibration)} {suspicious}.")
    if not calibration.is_useful:
        lines.append(
            "  It does not tell forgeries from honest work, so nothing that it says of this run will be shown."
        )
    elif not calibration.may_act:
        lines.append("  It may flag more than 5 % of honest work: good for looking, not for leaving rollouts out.")
    else:
        lines.append("  Exploits that nobody thought of may be seen less often than these.")
    return lines


def report_lines(report: WitnessReport) -> list[str]:
    """What the witness says of the run, and what it rests on."""
    lines = [log_line(report.calibration.witness), accuracy_line(report.calibration)]
    if why := report.why_unusable:
        return [*lines, f"Nothing that it says is shown: {why}."]
    if not report.rows:
        return [*lines, "Nothing was asked yet: too few rollouts are stored, or their texts are not."]
    first, last = min(one.first_step for one in report.batches), max(one.last_step for one in report.batches)
    canaries = report.canaries
    lines.append(
        f"Asked about {report.rows} of {report.rows_seen:,} rollouts of steps {first} to {last}, the others were not "
        f"read; {report.errors} answers did not count. Canaries among them: {canaries.recall.hits} of "
        f"{canaries.recall.total} forgeries and {canaries.false_positives.hits} of {canaries.false_positives.total} "
        "honest twins flagged."
    )
    flags, rows = (sum(one[at] for one in report.random_flags) for at in (0, 1))
    low, high = 100.0 * report.prevalence.low, 100.0 * report.prevalence.high
    estimate = report.prevalence.estimate
    share = "unknown" if math.isnan(estimate) else f"{100 * estimate:.0f} %"
    lines.append(
        f"Of {rows} chosen at random it calls {flags} an exploit. Corrected for its mistakes: {share} of rollouts "
        f"(95 %: {low:.0f} % to {high:.0f} %)."
    )
    lines += [_claim_line(claim) for claim in report.claims]
    if report.addressed:
        lines.append(
            f"  {report.addressed} rollouts that it calls honest speak to whoever judges them: that counts for nothing."
        )
    if not report.claims:
        lines.append("It calls nothing that it was asked about an exploit.")
    lines.append("This is evidence, not a verdict: what judges is gold.")
    return lines


def _claim_line(claim: ClassClaim) -> str:
    answer, example = claim.answer, claim.example
    paid = "" if math.isnan(claim.paid) else f", paid {claim.paid:.3g}"
    paid += "" if math.isnan(claim.paid_others) or not paid else f" and honest ones beside them {claim.paid_others:.3g}"
    name = f" ({log_line(answer.name, 60)})" if answer.name else ""
    where = f"step {example.step}, row {example.rows[claim.at]}"
    quotes = [f', turn {one.turn}: "{log_line(one.quote, LONGEST_QUOTE)}"' for one in answer.evidence[:1]]
    words = EXPLOITS.get(claim.exploit, "of another version")
    return (
        f"  {log_line(claim.exploit, 40)}: {words}; {claim.rollouts} rollouts since step {claim.first_step}{paid}. "
        f"{where}{name}{''.join(quotes)}"
    )


def _share(count: ShareCount) -> str:
    if not count.total:
        return "which says nothing"
    low, high = count.interval
    return f"{100 * count.share:.0f} % (95 %: {100 * low:.0f} % to {100 * high:.0f} %)"
