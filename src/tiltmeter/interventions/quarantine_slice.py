"""Puts an environment, a task source or a value of a column into quarantine."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.data.slices import slice_of
from tiltmeter.interventions.proposal import GAMED, proposal
from tiltmeter.rundir.requests import QUARANTINE, Knob


class QuarantineSlice:
    """Learn nothing from the slice that an alarm names, until it is mended.

    >>> finding = Finding(0, 120, "verifier_fault", 0.8, ("env.swe.gold.slope",), ())
    >>> knobs = {f"quarantine.{name}": Knob(f"quarantine.{name}", 0.0, 0.0, 1.0) for name in ("maths", "swe")}
    >>> QuarantineSlice().propose(finding, knobs).knob
    'quarantine.swe'
    """

    name = "quarantine_slice"
    knob = "quarantine"
    answers = (*GAMED, "verifier_fault")
    reversible = True
    conservative = False

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        for name in filter(None, map(slice_of, finding.alarms)):
            knob = knobs.get(f"{QUARANTINE}{name}")
            reason = f"{finding.failure}: {name} is the slice that loses gold, and nothing is learned from it"
            if (action := proposal(finding, knob, 1.0, reason)) is not None:
                return action
        return None
