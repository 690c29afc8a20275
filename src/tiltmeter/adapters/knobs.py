"""Live knobs of a trainer with one driver process (veRL, OpenRLHF): requests are checked and applied after a step.

The counterpart of `control` for trainers other than TRL. Each change is read back and answered with a receipt. A knob
that cannot be changed while training runs is listed with the reason, and a request for it is refused with that reason.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tiltmeter.adapters.arguments import Limits
from tiltmeter.errors import AttachError
from tiltmeter.rundir import requests as files
from tiltmeter.rundir.receipts import ReceiptLog, answered_ids
from tiltmeter.rundir.requests import ControlRequest, Knob, Mode, Receipt
from tiltmeter.rundir.signing import make_token, receipt_key
from tiltmeter.rundir.store import RunDirectory

log = logging.getLogger("tiltmeter")
KL_FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class LiveKnob:
    """One number of a trainer: how to read and write it, its floor and ceiling, and why it cannot change, if so.

    >>> box = {"kl": 0.04}
    >>> beta = LiveKnob("beta", lambda: box["kl"], lambda value: box.update(kl=value), 1e-6, 1.0)
    >>> beta.write(0.08); beta.knob()
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


def fixed_knob(name: str, value: float, why: str) -> LiveKnob:
    """A knob that cannot be changed live, with the reason."""
    return LiveKnob(name, lambda: value, lambda _: None, min(0.0, value), max(0.0, value), why)


def reward_kl_knob(controller: Any, why: str = "") -> LiveKnob:
    """The KL coefficient that a controller object holds as `value` and the trainer reads at every step."""
    if not why and type(controller).__name__ == "AdaptiveKLController":
        why = "the trainer's own adaptive KL controller moves it: restart with the fixed one"
    return LiveKnob(
        "beta",
        lambda: float(controller.value),
        lambda value: setattr(controller, "value", value),
        KL_FLOOR,
        max(1.0, float(controller.value)),
        why,
    )


class KnobControl:
    """Reads requests, applies them and writes receipts, for one driver. Floors and ceilings are fixed."""

    def __init__(
        self,
        store: RunDirectory,
        attempt: int,
        live_knobs: list[LiveKnob],
        mode: Mode = "advise",
        limits: Limits | None = None,
    ) -> None:
        if mode not in files.ALLOWED_KINDS:
            raise AttachError(f'mode={mode!r}: choose "observe", "advise" or "act"')
        by_name = {live_knob.name: live_knob for live_knob in live_knobs}
        if unknown := sorted(set(limits or {}) - set(by_name)):
            raise AttachError(f"limits= names {unknown}; this trainer has {sorted(by_name)}")
        for name, (floor, ceiling) in (limits or {}).items():
            live_knob = by_name[name]
            by_name[name] = LiveKnob(name, live_knob.read, live_knob.write, floor, ceiling, live_knob.why)
        self.store, self.attempt, self.mode = store, attempt, mode
        self._live_knobs = by_name
        self._token = make_token(store)  # raises here: without a token anybody could sign
        self._receipts = ReceiptLog(store, receipt_key(self._token))
        self._answered = answered_ids(store)
        files.publish_knobs(store, attempt, mode, self.knobs)

    @property
    def knobs(self) -> dict[str, Knob]:
        """Every knob with its value as it is now."""
        return {name: live_knob.knob() for name, live_knob in self._live_knobs.items()}

    def poll(self, step: int) -> None:
        """At the end of a step: read and apply the pending requests."""
        if self.mode == "observe":
            return
        requests, refusals = files.read_requests(
            self.store, self._answered, self._token, attempt=self.attempt, step=step, mode=self.mode, knobs=self.knobs
        )
        for refusal in refusals:
            log.warning("a request was not followed: %s", refusal)
            if refusal.request is not None:
                self._answer(refusal.request, step, "refused", math.nan, math.nan, refusal.why)
        for request in requests:
            self._apply_request(request, step)

    def tell_ended(self, name: str, before: float, step: int, why: str) -> None:
        """A knob has put itself back: a receipt says so, and it cannot be turned any more."""
        live_knob = self._live_knobs[name] = replace(self._live_knobs[name], why=why)
        receipt = f"{self.attempt}-{step}-{name}.{files.ENDED}"
        self._write_receipt(Receipt(receipt, 0, "applied", name, before, float(live_knob.read()), step, why))

    def _apply_request(self, request: ControlRequest, step: int) -> None:
        live_knob = self._live_knobs[request.knob]
        before = float(live_knob.read())
        live_knob.write(request.value)
        after = float(live_knob.read())
        if abs(after - request.value) > 1e-6 * max(abs(request.value), 1e-12):
            why = f"{request.knob} was set to {request.value:g} and reads {after:g}"
            self._answer(request, step, "refused", before, after, why)
        else:
            self._answer(request, step, "applied", before, after, f"{request.knob} reads {after:g}")

    def _answer(self, request: ControlRequest, step: int, state: Any, before: float, after: float, why: str) -> None:
        self._write_receipt(Receipt(request.id, 0, state, request.knob, before, after, step, why))

    def _write_receipt(self, receipt: Receipt) -> None:
        try:
            self._receipts.append(self.attempt, receipt)
        except OSError as error:  # the remaining requests must still be applied
            log.warning("the receipt for %s could not be written: %s", receipt.id, error)
