"""What the checks of preference data share: their states, their error rate, and a comparison as an example."""

from __future__ import annotations

from typing import Literal

from tiltmeter_workbench.check_report.report import Example

#: found: significant and large enough to matter. clear: too small to matter. known: an estimate without a verdict.
State = Literal["found", "clear", "cannot tell", "known", "not asked"]

#: Chance that any of the checks of a report calls something a bias that is not there; each check takes its share of it.
ALPHA = 0.05


def example_pair(row: int, prompt: str, chosen: str, rejected: str, why: str = "") -> Example:
    """A comparison that shows what was found; `row` as in `Comparisons.rows`."""
    return Example({"prompt": prompt, "chosen": chosen, "rejected": rejected}, why, row)
