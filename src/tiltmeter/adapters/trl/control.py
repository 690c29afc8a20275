"""Applies intervention requests in a TRL trainer at the end of a step, reads each change back and writes a receipt.

In mode `observe` nothing is changed. In `advise`, only what a person has approved, and only with one process: with
several, every rank must change the same knob at the same step, which needs one broadcast per step. Mode `act` does it.
"""

from __future__ import annotations

import logging
import re
import shutil
import threading
from pathlib import Path
from typing import Any, Protocol

from tiltmeter.adapters.arguments import Act, Limits
from tiltmeter.adapters.custom_loop import Run
from tiltmeter.adapters.trl.knobs import Knobs
from tiltmeter.adapters.trl.rollout_screen import RolloutScreen
from tiltmeter.errors import Boundary, describe_error
from tiltmeter.rundir import requests as files
from tiltmeter.rundir.checkpoints.hashes import checkpoint_problem, hash_checkpoint, write_manifest
from tiltmeter.rundir.receipts import ReceiptLog, answered_ids
from tiltmeter.rundir.requests import ControlRequest, Receipt, Refusal
from tiltmeter.rundir.signing import make_token, receipt_key

log = logging.getLogger("tiltmeter")
HASHING_SECONDS = 600.0  # that a rollback waits for a checkpoint that is still being hashed
NEEDS_ACT_MODE = "several ranks must change a knob together: attach with act='act'"


class Watcher(Protocol):
    """What this file needs of the callback that owns it."""

    run: Run | None
    act: Act
    strict: bool

    @property
    def gold_share(self) -> float | None: ...
    @property
    def screen(self) -> RolloutScreen | None: ...


class TrlControl:
    """Reads requests, applies them and writes receipts, for one TRL trainer."""

    def __init__(self, owner: Watcher, trainer: Any, limits: Limits | None) -> None:
        self.owner, self.trainer = owner, trainer
        self.knobs = Knobs(trainer, limits, owner.gold_share, owner.screen)
        self.reentrant = False  # `run.train()` was called, so going back is possible
        self._ranks = int(trainer.accelerator.num_processes)
        self._rank = int(trainer.accelerator.process_index)
        self._answered: set[str] = set()
        self._rollback: ControlRequest | None = None
        self._resuming: ControlRequest | None = None
        self._left: Path | None = None  # the checkpoint of the state that a rollback abandons
        self._save_limit: int | None = None  # the trainer's own, while it is set aside
        self.stepped = False  # a step was taken since the checkpoint was loaded
        self._hashing: dict[int, threading.Thread] = {}
        # Made at attach, where it may raise: without a token anybody could sign.
        run = owner.run
        self._token = make_token(run.store) if self._rank == 0 and run is not None and run.store is not None else b""
        self._receipts: ReceiptLog | None = None
        self._receipt_key = receipt_key(self._token) if self._token else b""  # other ranks get it with the requests

    def begin(self, step: int) -> None:
        """A new attempt: publish the knobs, and apply the change that a rollback asked for."""
        run = self.owner.run
        if run is None or run.store is None:
            return
        if self._resuming is not None:
            request, self._resuming = self._resuming, None
            self._apply(request, step, str(request.with_knob), float(request.with_value or 0.0))
        if self._rank == 0:
            self._answered |= answered_ids(run.store)
            files.publish_knobs(
                run.store, run.attempt, self.owner.act.mode, self.knobs.read(), self.owner.act.target_kl
            )

    def poll(self, step: int, control: Any) -> None:
        """At the end of a step: apply pending requests. Every rank calls this; only act mode communicates."""
        run = self.owner.run
        if run is None or run.store is None or self.owner.act.mode == "observe":
            return
        self._tell_ended(step)
        requests = self._read_requests(step) if self._rank == 0 else []
        if self._ranks > 1 and self.owner.act.mode == "act":
            requests = self._broadcast_requests(requests)
        for request in requests:
            if self._ranks > 1 and self.owner.act.mode != "act":
                self._answer(request, step, "refused", request.value, request.value, NEEDS_ACT_MODE)
            else:
                self._apply_request(request, step, control)

    def _tell_ended(self, step: int) -> None:
        """A receipt for each knob that ended itself. One rank writes it: all decide the same from the same counts."""
        screen, run = self.owner.screen, self.owner.run
        if screen is None or run is None or self._rank != 0:
            return
        for knob, before in screen.take_ended().items():
            name = f"{run.attempt}-{step}-{re.sub('[^A-Za-z0-9_.-]', '_', knob)[:80]}.{files.ENDED}"
            self._write_receipt(Receipt(name, self._rank, "applied", knob, before, 0.0, step, screen.why[knob]))

    def _read_requests(self, step: int) -> list[ControlRequest]:
        """The requests to apply now. It returns whatever goes wrong: the other ranks wait for the broadcast."""
        run = self.owner.run
        assert run is not None and run.store is not None
        requests: list[ControlRequest] = []
        refusals: list[Refusal] = []
        with Boundary(_log_unread, strict=self.owner.strict and self._ranks == 1):
            requests, refusals = files.read_requests(
                run.store, self._answered, self._token,
                attempt=run.attempt, step=step, mode=self.owner.act.mode, knobs=self.knobs.read(),
            )  # fmt: skip
        for refusal in refusals:
            log.warning("a request was not followed: %s", refusal)
            if refusal.request is not None:
                value = refusal.request.value
                self._answer(refusal.request, step, "refused", value, value, refusal.why)
        accepted = []
        for request in requests:
            # Checked on rank 0 only: other ranks may not see this disk, and all must do the same.
            if request.knob == "rollback" and (why := self._rollback_problem(request)):
                self._answer(request, step, "refused", request.value, request.value, why)
            else:
                accepted.append(request)
        return accepted

    def _rollback_problem(self, request: ControlRequest) -> str:
        """Why training cannot go back to a checkpoint; empty if it is whole and the present state can be saved."""
        errors: list[BaseException] = []
        with Boundary(errors.append):
            return self._check_rollback(request)
        return f"the checkpoint cannot be checked: {describe_error(errors[0])}"

    def _check_rollback(self, request: ControlRequest) -> str:
        run, folder = self.owner.run, self._checkpoint(int(request.value))
        assert run is not None and run.store is not None
        if (hashing := self._hashing.get(int(request.value))) is not None:
            hashing.join(HASHING_SECONDS)
        if why := checkpoint_problem(run.store, int(request.value), folder, self._token):
            return why
        if not self.reentrant:
            return ""
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if (free := shutil.disk_usage(folder).free) < 2 * size:
            return f"{free:,} bytes are free, too few to save the present state, which a failed rollback returns to"
        return ""

    def record_checkpoint(self, step: int) -> None:
        """Hash a checkpoint that the trainer has written, on a thread: training does not wait for it."""
        run = self.owner.run
        if self._rank != 0 or run is None or run.store is None or self.owner.act.mode == "observe":
            return
        store, attempt = run.store, run.attempt

        def not_hashed(error: BaseException) -> None:
            if self._checkpoint(step).exists():  # the trainer deletes old ones, and nobody goes back to those
                run.record_problem(f"the checkpoint of step {step} was not hashed: {describe_error(error)}")

        def hash_now() -> None:
            with Boundary(not_hashed, own_thread=True):
                write_manifest(store, attempt, step, hash_checkpoint(self._checkpoint(step)), self._token)

        self._hashing = {at: thread for at, thread in self._hashing.items() if thread.is_alive()}
        self._hashing[step] = threading.Thread(target=hash_now, name="tiltmeter-checkpoint", daemon=True)
        self._hashing[step].start()

    @property
    def goes_back(self) -> bool:
        """Training will go on from an earlier checkpoint."""
        return self._rollback is not None

    def take_rollback(self) -> str | None:
        """The checkpoint that training should go on from, if a rollback was asked for."""
        request, self._rollback = self._rollback, None
        if request is None:
            return None
        self._resuming, self.stepped = request, False
        self._left = self._checkpoint(int(self.trainer.state.global_step))
        self.trainer.args.save_total_limit = self._save_limit
        self._discard_buffer()
        return str(self._checkpoint(int(request.value)))

    def take_failed_rollback(self, error: BaseException) -> str | None:
        """Loading raised: the checkpoint of the state that was left, or None if there is no way back to it."""
        request, left = self._resuming, self._left
        if request is None or left is None or self._ranks > 1 or not (left / "trainer_state.json").is_file():
            return None
        self._resuming = self._left = None
        step, why = int(left.name.rpartition("-")[2]), describe_error(error)
        why = f"the checkpoint could not be loaded, training went on from step {step}: {why}"
        log.warning("not gone back to step %g: %s", request.value, why)
        self._answer(request, step, "refused", request.value, request.value, why)
        self._discard_buffer()
        return str(left)

    def _discard_buffer(self) -> None:
        """Buffered generations belong to the policy that is being abandoned."""
        self.trainer._buffered_inputs, self.trainer._step = None, 0

    def _apply_request(self, request: ControlRequest, step: int, control: Any) -> None:
        if request.knob == "stop":
            control.should_save = control.should_training_stop = True
            self._answer(request, step, "applied", 0.0, 1.0, "stopped and saved")
        elif request.knob == "rollback":
            self._go_back(request, step, control)
        else:
            self._apply(request, step, request.knob, request.value)

    def _apply(self, request: ControlRequest, step: int, knob: str, value: float) -> None:
        try:
            before, after = self.knobs.set(knob, value)
        except ValueError as error:
            self._answer(request, step, "refused", value, value, str(error))
            return
        if abs(after - value) > 1e-6 * max(abs(value), 1e-12):
            self._answer(request, step, "refused", before, after, f"{knob} was set to {value:g} and reads {after:g}")
        else:
            self._answer(request, step, "applied", before, after, f"{knob} reads {after:g}")

    def _go_back(self, request: ControlRequest, step: int, control: Any) -> None:
        folder = self._checkpoint(int(request.value))
        if request.with_knob is None or request.with_value is None:
            why = "going back without a change repeats the same steps bit for bit: name a setting to change"
        elif (knob := self.knobs.read().get(request.with_knob)) is None or knob.why:
            why = f"{request.with_knob} cannot be changed{': ' + knob.why if knob else ''}"
        else:
            control.should_training_stop = True
            if self.reentrant:
                # The present state is saved too, in case the other cannot be loaded; saving must not delete that one.
                control.should_save, self._save_limit = True, self.trainer.args.save_total_limit
                self.trainer.args.save_total_limit = None
                self._rollback = request
                return  # answered when the setting was changed and read back, after the checkpoint is loaded
            control.should_save = True
            command = f"trainer.train(resume_from_checkpoint={str(folder)!r})"
            log.warning(
                "stopped, to go back to step %d: set %s to %g, then %s; with `run = tiltmeter.attach(trainer); "
                "run.train()` this happens by itself",
                int(request.value), request.with_knob, request.with_value, command,
            )  # fmt: skip
            why = f"stopped and saved; to go back: set {request.with_knob} to {request.with_value:g}, then {command}"
        self._answer(request, step, "refused", request.value, request.value, why)

    def _checkpoint(self, step: int) -> Path:
        return Path(self.trainer.args.output_dir).absolute() / f"checkpoint-{step}"

    def _answer(self, request: ControlRequest, step: int, state: Any, before: float, after: float, why: str) -> None:
        self._write_receipt(Receipt(request.id, self._rank, state, request.knob, before, after, step, why))

    def _write_receipt(self, receipt: Receipt) -> None:
        run = self.owner.run
        assert run is not None and run.store is not None
        try:
            if self._receipts is None:
                self._receipts = ReceiptLog(run.store, self._receipt_key)
            self._receipts.append(run.attempt, receipt)
        except OSError as error:  # the remaining requests must still be applied, as on the other ranks
            log.warning("the receipt for %s could not be written: %s", receipt.id, error)

    def _broadcast_requests(self, requests: list[ControlRequest]) -> list[ControlRequest]:
        from torch.distributed import broadcast_object_list

        payload: list[Any] = [requests, self._receipt_key]
        broadcast_object_list(payload, src=0)
        received: list[ControlRequest] = payload[0]
        self._receipt_key = payload[1]
        return received


def _log_unread(error: BaseException) -> None:
    log.warning("requests could not be read: %s", describe_error(error))
