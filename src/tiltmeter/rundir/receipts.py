"""The trainer's receipts: what each rank did about a request, signed, and each naming the one before it.

A receipt decides what the monitor takes for done, so it counts only with a signature; and one that was removed between
two others shows, because the next one names it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Literal

from msgspec import Struct, convert

from tiltmeter.errors import StoreError
from tiltmeter.rundir.requests import Receipt, Refusal, refuse_control_file
from tiltmeter.rundir.run_path import entries
from tiltmeter.rundir.sidecar import Count, list_sidecars, reason, write_sidecar
from tiltmeter.rundir.signing import (
    MAX_FILE_BYTES,
    is_signed,
    make_control_folder,
    read_new_files,
    receipt_key,
    signature,
)
from tiltmeter.rundir.store import RunDirectory

MAX_WHY = 1000  # characters of a reason, so that the file stays within its limit


class StoredReceipt(Struct, frozen=True):
    """`control/receipts/ID-RANK.json`; a value that could not be read is null."""

    id: str
    rank: Count
    state: Literal["applied", "refused"]
    knob: str
    before: float | None
    after: float | None
    step: int
    why: str
    attempt: Count  # that the rank was in; each has a chain of its own
    number: Count  # of the receipt in this chain
    previous: str  # signature of the receipt before it
    signature: str

    def receipt(self) -> Receipt:
        before, after = (math.nan if value is None else value for value in (self.before, self.after))
        return Receipt(self.id, self.rank, self.state, self.knob, before, after, self.step, self.why)


class ReceiptLog:
    """Writes the receipts of one rank. `key` is that of `receipt_key`."""

    def __init__(self, run: RunDirectory, key: bytes) -> None:
        self.run, self.key = run, key
        self._attempt, self._number, self._previous = -1, 0, ""

    def append(self, attempt: int, receipt: Receipt) -> None:
        """Store a receipt. The first for a request wins; raises OSError if it cannot be stored."""
        if attempt != self._attempt:
            self._attempt, self._number, self._previous = attempt, 0, ""
        facts = asdict(receipt) | {"why": receipt.why[:MAX_WHY]}
        facts |= {name: float(facts[name]) if math.isfinite(facts[name]) else None for name in ("before", "after")}
        facts |= {"attempt": attempt, "number": self._number, "previous": self._previous}
        signed = signature(facts, self.key)
        try:
            write_sidecar(make_control_folder(self.run, "receipts") / receipt.file, {**facts, "signature": signed})
        except FileExistsError:
            return
        self._number, self._previous = self._number + 1, signed


def read_receipts(run: RunDirectory, seen_names: set[str], token: bytes) -> tuple[list[Receipt], list[Refusal]]:
    """New receipts, by step, and files that are not receipts. Adds names to `seen_names`, as `read_requests` does."""
    files, unreadable = read_new_files(run.path, "receipts", dict[str, Any], seen_names)
    seen_names |= {name.removesuffix(".json") for name in files}
    good, refused = _check_files(files, token)
    refusals = [refuse_control_file(name, why, seen_names) for name, why in (unreadable | refused).items()]
    receipts = (stored.receipt() for stored in good.values())
    return sorted(receipts, key=lambda receipt: (receipt.step, receipt.id, receipt.rank)), refusals


def has_receipts(run: RunDirectory) -> bool:
    return next(entries(run.path / "control" / "receipts"), None) is not None


def answered_ids(run: RunDirectory) -> set[str]:
    """Ids of all requests that some rank has answered; a restarted trainer skips them."""
    own = (
        entry.name.removesuffix(".json")
        for entry in entries(run.path / "control" / "receipts")
        if entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    )
    return {name.rpartition("-")[0] for name in own}


def chain_problems(run: RunDirectory, token: bytes) -> Iterator[str]:
    """Receipts that are not signed, and places where one is gone. What was removed at a chain's end does not show."""
    folder = run.path / "control" / "receipts"
    try:
        files, unreadable = list_sidecars(folder, lambda name: name.endswith(".json"), dict[str, Any], MAX_FILE_BYTES)
    except StoreError as error:
        yield str(error)
        return
    good, refused = _check_files(files, token)
    for name, why in (unreadable | refused).items():
        yield f"control/receipts/{refuse_control_file(name, why, set())}"
    signatures = {(one.attempt, one.rank, one.number, one.signature) for one in good.values()}
    for name, one in good.items():
        if one.number and (one.attempt, one.rank, one.number - 1, one.previous) not in signatures:
            yield f"control/receipts/{name}: the receipt before it, number {one.number - 1} of rank {one.rank}, is gone"


def _check_files(files: Mapping[str, dict[str, Any]], token: bytes) -> tuple[dict[str, StoredReceipt], dict[str, str]]:
    """Receipts by file, and why others are none."""
    key, good, refused = receipt_key(token), dict[str, StoredReceipt](), dict[str, str]()
    for name, facts in files.items():
        try:
            good[name] = _parse_signed(name, facts, key)
        except ValueError as error:
            refused[name] = reason(error)
    return good, refused


def _parse_signed(name: str, facts: dict[str, Any], key: bytes) -> StoredReceipt:
    claimed = str(facts.pop("signature", ""))
    if not is_signed(facts, claimed, key):
        raise ValueError("not signed with this run's token")
    stored = convert({**facts, "signature": claimed}, StoredReceipt)
    if stored.state == "applied" and (stored.before is None or stored.after is None):
        raise ValueError("it says that a change was made, and not to what")
    if stored.receipt().file != name:
        raise ValueError("it holds another receipt than its name says")
    return stored
