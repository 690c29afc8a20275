"""Trains under another prompt than rollouts were sampled under."""

from __future__ import annotations

from collections.abc import Mapping

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.proposal import GAMED, proposal
from tiltmeter.rundir.requests import Knob


class InoculatePrompt:
    """Put the user's words, as "Take any way to pass the tests.", before prompts when training on what was sampled
    without them: what is learned is then tied to being allowed it.

    It changes what is learned and not how much, and the words are the user's: only a person may decide it.

    >>> finding = Finding(0, 120, "tampering", 0.8, ("gold.slope",), ())
    >>> InoculatePrompt().propose(finding, {"inoculate": Knob("inoculate", 0.0, 0.0, 1.0)}).after
    1.0
    """

    name = "inoculate_prompt"
    knob = "inoculate"
    answers = (*GAMED, "verifier_fault")
    reversible = True
    conservative = False

    def propose(self, finding: Finding, knobs: Mapping[str, Knob]) -> Action | None:
        reason = f"{finding.failure}: what is learned is tied to words that allow it"
        return proposal(finding, knobs.get(self.knob), 1.0, reason)
