"""The log of proposed actions: their states, and which messages move an action from one state to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tiltmeter.data.records import Action, Finding
from tiltmeter.interventions.roll_back import RollbackAction
from tiltmeter.rundir.requests import ControlRequest, Receipt

State = Literal["approved", "rejected", "expired", "applied", "refused", "reverted"]
OPEN = ("proposed", "approved")


@dataclass
class Entry:
    """One action, the finding that it answers, and its state."""

    action: Action
    finding: Finding
    part: str  # name of the intervention
    since: int | None = None  # step after which it holds, or held until it was undone
    attempt: int | None = None  # in which it holds; that of a rollback is the one that follows
    changed_step: int | None = None  # step of the last change of the knob
    value: float = 0.0  # as the knob was read back then
    verdict: str = ""  # of its outcome, once that is known
    receipts: dict[tuple[str, int], Receipt] = field(default_factory=dict)  # by kind and rank

    @property
    def is_open(self) -> bool:
        return self.action.state in OPEN

    def move(self, state: State, reason: str) -> Action:
        self.action = replace(self.action, state=state, reason=reason[:500])
        return self.action


class ActionLog:
    """Actions by id. Each goes from proposed to approved to applied or refused, and from applied to reverted; or it is
    rejected, or expires. A message that was seen before, or about an unknown action, changes nothing.

    >>> log = ActionLog()
    >>> beta = Action("0-9-beta", 0, 9, "kl_failure", "beta", 0.04, 0.08, "")
    >>> log.add(beta, Finding(0, 9, "kl_failure", 0.8, (), ("policy.kl.k3",)), "raise_beta")
    >>> log.apply_message(Receipt("0-9-beta.apply", 0, "applied", "beta", 0.04, 0.08, 12)).action.state
    'applied'
    >>> log.apply_message(Receipt("0-9-beta.undo", 0, "applied", "beta", 0.08, 0.04, 30)).action.state
    'reverted'
    """

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.entries: dict[str, Entry] = {}
        self._active: dict[str, Entry] = {}  # those that still matter: a controller makes thousands

    def __iter__(self) -> Iterator[Entry]:
        """Those that are open, and those that were applied and answer a finding."""
        return iter(list(self._active.values()))

    def add(self, action: Action, finding: Finding, part: str) -> None:
        self.entries[action.id] = self._active[action.id] = Entry(action, finding, part)

    def tidy(self, continuous: str) -> None:
        """Drop what no longer matters: actions without effect, and past changes of the part `continuous`."""
        for name, entry in list(self._active.items()):
            without_effect = entry.since is None and entry.action.state in ("expired", "refused", "rejected")
            if (without_effect and not isinstance(entry.action, RollbackAction)) or (
                entry.part == continuous and not entry.is_open
            ):
                del self._active[name]

    def open(self, attempt: int | None) -> list[Entry]:
        return [entry for entry in self if entry.is_open and entry.action.attempt == attempt]

    def in_force(self, knob: str, attempt: int | None) -> list[Entry]:
        """Actions of this attempt that turned this knob and were not undone."""
        return [
            entry
            for entry in self
            if entry.action.knob == knob and entry.action.state == "applied" and entry.attempt == attempt
        ]

    def apply_message(self, message: Receipt | ControlRequest) -> Entry | None:
        """The action whose state a receipt or a user's request has changed, or None.

        The trainer's receipt overrides the rest: what it has applied is applied, even if the proposal had expired
        here. On several ranks an action is applied when all of them have applied it: on fewer, a knob works at part
        strength and nobody notices.
        """
        name, _, kind = message.id.rpartition(".")
        entry = self.entries.get(name)
        if entry is None:
            return None
        state, reason = entry.action.state, entry.action.reason
        if isinstance(message, Receipt):
            if not self._add_receipt(entry, kind, message):
                return None
            self._active[name] = entry  # it may have been set aside as expired
            return entry
        if kind == "approve" and state == "proposed":
            entry.move("approved", reason)
        elif kind == "reject" and state in OPEN:
            entry.move("rejected", f"rejected by an operator; {reason}")
        else:
            return None
        return entry

    def restore(self, action: Action, step: int) -> Entry | None:
        """Restore the state that the journal has for a known action; `step` is that of the event."""
        entry = self.entries.get(action.id)
        if entry is None or action.state in ("proposed", entry.action.state):
            return None
        if action.state == "applied":
            _set_in_force(entry, step, action.after)
        elif action.state == "reverted":
            entry.changed_step, entry.value = step, action.before
        entry.action = replace(entry.action, state=action.state, reason=action.reason)
        return entry

    def _add_receipt(self, entry: Entry, kind: str, receipt: Receipt) -> bool:
        if (kind, receipt.rank) in entry.receipts:
            return False
        entry.receipts[kind, receipt.rank] = receipt
        state, reason = entry.action.state, entry.action.reason
        applied = [other for (what, _), other in entry.receipts.items() if what == kind and other.state == "applied"]
        all_ranks_applied = len(applied) >= self.ranks
        if kind == "undo" and state == "applied" and all_ranks_applied:
            entry.changed_step, entry.value = receipt.step, receipt.after
            entry.move("reverted", f"undone by an operator; {reason}")
        elif kind not in ("apply", "approve") or state in ("applied", "reverted"):
            return False
        elif receipt.state == "refused":
            entry.move("refused", f"rank {receipt.rank}: {receipt.why}")
        elif all_ranks_applied:
            _set_in_force(entry, receipt.step, receipt.after)
            if not isinstance(entry.action, RollbackAction):
                entry.action = replace(entry.action, before=receipt.before, after=receipt.after)
            entry.move("applied", reason)
        else:
            return False
        return True


def _set_in_force(entry: Entry, step: int, value: float) -> None:
    """From this step on the action is in force."""
    entry.since = entry.changed_step = step
    entry.value = value
    if not isinstance(entry.action, RollbackAction):
        entry.attempt = entry.action.attempt
