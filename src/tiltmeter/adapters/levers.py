"""What may be changed in a trainer that has one driver process: checked, done, read back and answered, after a step.

The machinery of `control` for trainers other than TRL. A lever that cannot be moved while training runs is offered with
the reason, so that a proposal to move it is refused with that reason and not in silence.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tiltmeter import control as files
from tiltmeter.control import Knob, Mode, Receipt, Request
from tiltmeter.errors import AttachError
from tiltmeter.signing import make_token
from tiltmeter.store import RunDirectory

log = logging.getLogger("tiltmeter")
Limits = Mapping[str, tuple[float, float]]
KL_FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class Lever:
    """One number of a trainer: how it is read, how it is set, how far, or why it is not.

    >>> box = {"kl": 0.04}
    >>> lever = Lever("beta", lambda: box["kl"], lambda value: box.update(kl=value), 1e-6, 1.0)
    >>> lever.write(0.08); lever.knob()
    Knob(name='beta', value=0.08, floor=1e-06, ceiling=1.0, why='')
    """

    name: str
    read: Callable[[], float]
    write: Callable[[float], Any]
    floor: float
    ceiling: float
    why: str = ""

    def knob(self) -> Knob:
        return Knob(self.name, float(self.read()), self.floor, self.ceiling, self.why)


def fixed(name: str, value: float, why: str) -> Lever:
    """A number that stands where it stands."""
    return Lever(name, lambda: value, lambda _: None, min(0.0, value), max(0.0, value), why)


def in_reward_kl(controller: Any, why: str = "") -> Lever:
    """The coefficient of a KL penalty that a controller object holds as `value` and that is read at every step."""
    if not why and type(controller).__name__ == "AdaptiveKLController":
        why = "the trainer's own adaptive KL controller moves it: restart with the fixed one"
    return Lever(
        "beta",
        lambda: float(controller.value),
        lambda value: setattr(controller, "value", value),
        KL_FLOOR,
        max(1.0, float(controller.value)),
        why,
    )


class Levers:
    """Requests in, receipts out, for one driver. Floors and ceilings are fixed here, and nobody can ask past them."""

    def __init__(
        self,
        store: RunDirectory,
        attempt: int,
        levers: list[Lever],
        mode: Mode = "advise",
        limits: Limits | None = None,
    ) -> None:
        if mode not in files.HEARD:
            raise AttachError(f'mode={mode!r}: choose "observe", "advise" or "act"')
        named = {lever.name: lever for lever in levers}
        if unknown := sorted(set(limits or {}) - set(named)):
            raise AttachError(f"limits= names {unknown}; this trainer has {sorted(named)}")
        for name, (floor, ceiling) in (limits or {}).items():
            lever = named[name]
            named[name] = Lever(name, lever.read, lever.write, floor, ceiling, lever.why)
        self.store, self.attempt, self.mode = store, attempt, mode
        self._levers = named
        self._token = make_token(store)  # loud here: without a token anybody could sign
        self._known = files.answered(store)
        files.publish_knobs(store, attempt, mode, self.knobs)

    @property
    def knobs(self) -> dict[str, Knob]:
        """Every knob with its value as it is now."""
        return {name: lever.knob() for name, lever in self._levers.items()}

    def poll(self, step: int) -> None:
        """At the end of a step: what is asked now."""
        if self.mode == "observe":
            return
        asked, refused = files.requests(
            self.store, self._known, self._token, attempt=self.attempt, step=step, mode=self.mode, knobs=self.knobs
        )
        for refusal in refused:
            log.warning("a request was not followed: %s", refusal)
            if refusal.request is not None:
                self._answer(refusal.request, step, "refused", math.nan, math.nan, refusal.why)
        for request in asked:
            self._follow(request, step)

    def _follow(self, request: Request, step: int) -> None:
        lever = self._levers[request.knob]
        before = float(lever.read())
        lever.write(request.value)
        after = float(lever.read())
        if abs(after - request.value) > 1e-6 * max(abs(request.value), 1e-12):
            why = f"{request.knob} was set to {request.value:g} and reads {after:g}"
            self._answer(request, step, "refused", before, after, why)
        else:
            self._answer(request, step, "applied", before, after, f"{request.knob} reads {after:g}")

    def _answer(self, request: Request, step: int, state: Any, before: float, after: float, why: str) -> None:
        try:
            files.receive(self.store, Receipt(request.id, 0, state, request.knob, before, after, step, why))
        except OSError as error:  # what else was asked must be done all the same
            log.warning("what was done about %s could not be written down: %s", request.id, error)
