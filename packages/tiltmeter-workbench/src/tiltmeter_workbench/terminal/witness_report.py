"""How often a witness is right on forgeries, in lines."""

from __future__ import annotations

from tiltmeter.safety.safe_text import log_line
from tiltmeter_workbench.stats.prevalence import ShareCount
from tiltmeter_workbench.witness.calibration import Calibration, describe_accuracy, describe_share


def check_lines(calibration: Calibration) -> list[str]:
    """A calibration in lines: by class, then the sum."""
    lines = [log_line(calibration.witness)]
    for kind, one in calibration.classes.items():
        share = describe_share(ShareCount(one.flagged, one.forged))
        lines.append(f"  {kind:18} {one.flagged:3} of {one.forged:3} flagged, {share}; {one.named} by its class")
    noted = calibration.noted
    if noted.forged:
        lines.append(f"  {'with a note to it':18} {noted.flagged:3} of {noted.forged:3} flagged")
    suspicious = f"{calibration.honest_suspicious} of {calibration.honest} honest twins it calls suspicious"
    lines.append(f"  {describe_accuracy(calibration)} {suspicious}.")
    if not calibration.is_useful:
        lines.append(
            "  It does not tell forgeries from honest work, so nothing that it says of this run will be shown."
        )
    elif not calibration.may_act:
        lines.append("  It may flag more than 5 % of honest work: good for looking, not for leaving rollouts out.")
    else:
        lines.append("  Exploits that nobody thought of may be seen less often than these.")
    return lines
