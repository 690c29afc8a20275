"""Every way of asking a judge, by name."""

from __future__ import annotations

from tiltmeter.models.oversight.bare import Bare
from tiltmeter.models.oversight.critique import Critique
from tiltmeter.models.oversight.debate import Debate
from tiltmeter.models.oversight.decomposition import Decomposition
from tiltmeter.models.oversight.ensemble import Ensemble
from tiltmeter.models.oversight.method import OversightMethod
from tiltmeter.models.oversight.self_consistency import SelfConsistency
from tiltmeter.models.oversight.step_checks import StepChecks
from tiltmeter.models.oversight.weak_labels import WeakLabels

_ALL: tuple[OversightMethod, ...] = (
    Bare(),
    SelfConsistency(),
    Critique(),
    Debate(),
    Decomposition(),
    StepChecks(),
    Ensemble(),
    WeakLabels(),
)
METHODS = {method.name: method for method in _ALL}
MOST_CALLS = 32  # about one answer
