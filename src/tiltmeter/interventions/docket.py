"""Every action that was proposed and what became of it: the states, and who may move an action from one to the next."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tiltmeter.control import Receipt, Request
from tiltmeter.interventions.roll_back import Rollback
from tiltmeter.records import Action, Finding

State = Literal["approved", "rejected", "expired", "applied", "refused", "reverted"]
OPEN = ("proposed", "approved")


@dataclass
class Entry:
    """One action, what it answers, and how it stands."""

    action: Action
    finding: Finding
    part: str  # name of the intervention
    since: int | None = None  # step after which it holds, or held until it was undone
    attempt: int | None = None  # in which it holds; that of a rollback is the one that follows
    moved: int | None = None  # step of the last change of the knob
    value: float = 0.0  # as the knob was read back then
    verdict: str = ""  # of its outcome, once that is known
    receipts: dict[tuple[str, int], Receipt] = field(default_factory=dict)  # by kind and rank

    @property
    def is_open(self) -> bool:
        return self.action.state in OPEN

    def move(self, state: State, reason: str) -> Action:
        self.action = replace(self.action, state=state, reason=reason[:500])
        return self.action


class Docket:
    """Actions by id. Each goes from proposed to approved to applied or refused, and from applied to reverted; or it is
    rejected, or expires. A word that was heard before, or about an unknown action, moves nothing.

    >>> docket = Docket()
    >>> beta = Action("0-9-beta", 0, 9, "kl_failure", "beta", 0.04, 0.08, "")
    >>> docket.add(beta, Finding(0, 9, "kl_failure", 0.8, (), ("policy.kl.k3",)), "raise_beta")
    >>> docket.hear(Receipt("0-9-beta.apply", 0, "applied", "beta", 0.04, 0.08, 12)).action.state
    'applied'
    >>> docket.hear(Receipt("0-9-beta.undo", 0, "applied", "beta", 0.08, 0.04, 30)).action.state
    'reverted'
    """

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.entries: dict[str, Entry] = {}
        self._kept: dict[str, Entry] = {}  # those that still matter: a controller makes thousands

    def __iter__(self) -> Iterator[Entry]:
        """Those that are open, and those that were applied and answer a finding."""
        return iter(list(self._kept.values()))

    def add(self, action: Action, finding: Finding, part: str) -> None:
        self.entries[action.id] = self._kept[action.id] = Entry(action, finding, part)

    def tidy(self, continuous: str) -> None:
        """Set aside what can no longer matter: what came to nothing, and past changes of the part that makes many."""
        for name, entry in list(self._kept.items()):
            nothing = entry.since is None and entry.action.state in ("expired", "refused", "rejected")
            if (nothing and not isinstance(entry.action, Rollback)) or (entry.part == continuous and not entry.is_open):
                del self._kept[name]

    def open(self, attempt: int | None) -> list[Entry]:
        return [entry for entry in self if entry.is_open and entry.action.attempt == attempt]

    def hear(self, told: Receipt | Request) -> Entry | None:
        """The action that a receipt or an operator's word has moved, if it has.

        The trainer's word counts over everything else: what it has applied is applied, even if the proposal had expired
        here. On several ranks an action is applied when all of them have applied it: on fewer, a knob works at part
        strength and nobody notices.
        """
        name, _, kind = told.id.rpartition(".")
        entry = self.entries.get(name)
        if entry is None:
            return None
        state, reason = entry.action.state, entry.action.reason
        if isinstance(told, Receipt):
            if not self._receive(entry, kind, told):
                return None
            self._kept[name] = entry  # it may have been set aside as expired
            return entry
        if kind == "approve" and state == "proposed":
            entry.move("approved", reason)
        elif kind == "reject" and state in OPEN:
            entry.move("rejected", f"rejected by an operator; {reason}")
        else:
            return None
        return entry

    def recall(self, action: Action, step: int) -> Entry | None:
        """Take over what a journal says of an action that is known here; `step` is where it says so."""
        entry = self.entries.get(action.id)
        if entry is None or action.state in ("proposed", entry.action.state):
            return None
        if action.state == "applied":
            _hold(entry, step, action.after)
        elif action.state == "reverted":
            entry.moved, entry.value = step, action.before
        entry.action = replace(entry.action, state=action.state, reason=action.reason)
        return entry

    def _receive(self, entry: Entry, kind: str, receipt: Receipt) -> bool:
        if (kind, receipt.rank) in entry.receipts:
            return False
        entry.receipts[kind, receipt.rank] = receipt
        state, reason = entry.action.state, entry.action.reason
        done = [known for (what, _), known in entry.receipts.items() if what == kind and known.state == "applied"]
        agreed = len(done) >= self.ranks
        if kind == "undo" and state == "applied" and agreed:
            entry.moved, entry.value = receipt.step, receipt.after
            entry.move("reverted", f"undone by an operator; {reason}")
        elif kind not in ("apply", "approve") or state in ("applied", "reverted"):
            return False
        elif receipt.state == "refused":
            entry.move("refused", f"rank {receipt.rank}: {receipt.why}")
        elif agreed:
            _hold(entry, receipt.step, receipt.after)
            if not isinstance(entry.action, Rollback):
                entry.action = replace(entry.action, before=receipt.before, after=receipt.after)
            entry.move("applied", reason)
        else:
            return False
        return True


def _hold(entry: Entry, step: int, value: float) -> None:
    """From this step on the action is in force."""
    entry.since = entry.moved = step
    entry.value = value
    if not isinstance(entry.action, Rollback):
        entry.attempt = entry.action.attempt
