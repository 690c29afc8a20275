"""The verifier screen: audits with forgeries, canaries by worker, and completions without a score."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.verifier_audits import list_audits, read_audit, read_guards
from tiltmeter.view.payloads.monitor import (
    AuditCheckRow,
    AuditRow,
    CanaryRow,
    ForgeryRow,
    SandboxRow,
    UnscoredCounts,
    Verifier,
    WorkerRow,
)
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.wording import truncate

AUDITS = 5  # shown, the newest
CELLS = 60  # of a worker's strip
WORKERS = 64
TEXT = 2000  # characters of a forgery's text
_READING = re.compile(r"verifier\.(judge\.)?(worker|key)\.(\d{1,6})")


def verifier(reader: RunReader) -> Verifier:
    """What is known about the verifier of a run. Nothing here is a verdict; a mis-scored canary raises an alarm."""
    _ = reader.verdict  # reads the run if it was just opened
    with reader.lock:
        run_facts, errors = reader.run_facts, reader.get_fold("verifier errors", _ErrorCounts)
        names = [name for name in reader.columns.names() if _READING.fullmatch(name)]
        reader.columns.gather(names)
        attempts = sorted(run_facts.attempts, reverse=True)
        facts = next(
            (found_facts for attempt in attempts if (found_facts := read_guards(reader.run, attempt)) is not None), None
        )
        workers = [_worker_row(reader, name, run_facts.last_step) for name in names if ".worker." in name]
        keys = _canary_rows(reader, [name for name in names if ".key." in name], facts)
        share = reader.columns.lineage_series("verifier.unanswered_share")
    audits, damaged = _audit_rows(reader)
    workers.sort(key=lambda row: (not row.failed, row.kind == "judge", row.worker))
    sandboxes = [] if facts is None else facts["sandboxes"]
    return Verifier(
        sandboxes=[SandboxRow(reward=row["reward"], tier=row["tier"], isolation=row["isolation"]) for row in sandboxes],
        attached=None if facts is None else facts["time"],
        errors=UnscoredCounts(rows=errors.rows, infra=errors.infra, unscored=errors.unscored),
        audits=audits,
        damaged=damaged,
        workers=workers[:WORKERS],
        workers_left_out=max(0, len(workers) - WORKERS),
        unanswered=round(float((share.values * share.n).sum())),
        canaries=keys,
    )


class _ErrorCounts:
    """Counts of completions, and of those without a reward by reason."""

    def __init__(self) -> None:
        self.rows = self.infra = self.unscored = 0

    def add(self, event: Event) -> None:
        if event.kind != "step_done":
            return
        self.rows += int(event.data["rows"])
        reasons_by_column = event.data.get("unscored", {})
        flags: Counter[str] = Counter(reasons_by_column.get("reward", {}))
        # One failed component leaves the whole row without a reward, if all are one function.
        parts = [reasons.get("infra", 0) for name, reasons in reasons_by_column.items() if name.startswith("reward")]
        self.infra += max(parts, default=0)
        self.unscored += sum(flags.values()) - flags.get("infra", 0)


def _worker_row(reader: RunReader, name: str, last: int) -> WorkerRow:
    """One reward worker over the run: the count of mis-scored canaries in equal spans of steps."""
    match = _READING.fullmatch(name)
    assert match is not None
    line = reader.columns.lineage_series(name)
    failed = (line.values * line.n).round().astype(int)
    width = max(1, -(-(last + 1) // CELLS))
    cells: list[int | None] = [None] * min(CELLS, max(1, -(-(last + 1) // width)))
    for step, count in zip((line.steps // width).tolist(), failed.tolist(), strict=True):
        if step < len(cells):
            cells[step] = (cells[step] or 0) + count
    wrong = line.steps[failed > 0]
    return WorkerRow(
        worker=int(match[3]),
        kind="judge" if match[1] else "rule",
        canaries=int(line.n.sum()),
        failed=int(failed.sum()),
        first=int(wrong[0]) if len(wrong) else None,
        width=width,
        cells=cells,
    )


def _canary_rows(reader: RunReader, names: list[str], facts: Mapping[str, Any] | None) -> list[CanaryRow]:
    """Each canary with its text, if the run recorded it, and how often it was mis-scored."""
    canaries = {} if facts is None else dict(enumerate(facts["canaries"]))
    rows = []
    for name in names:
        match = _READING.fullmatch(name)
        assert match is not None
        line, canary = reader.columns.lineage_series(name), canaries.get(int(match[3]), {})
        rows.append(
            CanaryRow(
                number=int(match[3]),
                kind="judge" if match[1] else "rule",
                expect=canary.get("expect", ""),
                text=truncate(canary.get("text", ""), 200),
                named=bool(canary),
                scorings=int(line.n.sum()),
                failed=round(float((line.values * line.n).sum())),
            )
        )
    return sorted(rows, key=lambda row: (-row.failed, row.number))


def _audit_rows(reader: RunReader) -> tuple[list[AuditRow], int]:
    """The newest audits, and how many files could not be read."""
    rows: list[AuditRow] = []
    damaged = 0
    for path in list_audits(reader.run)[:AUDITS]:
        try:
            audit = reader.cache_lru("audit", path.name, lambda path=path: read_audit(path), AUDITS)  # type: ignore[misc]
        except StoreError:
            damaged += 1
        else:
            rows.append(_audit_row(audit))
    return rows, damaged


def _audit_row(audit: Mapping[str, Any]) -> AuditRow:
    """One audit, forgeries that were paid first."""
    order = {"paid": 0, "could not judge": 1, "not paid": 2}
    return AuditRow(
        reward=audit["reward"],
        time=audit["time"],
        seconds=audit["seconds"],
        tasks=audit["tasks"],
        judged=audit["judged"],
        network=audit["network"],
        verdict=audit["verdict"],
        summary=audit["why"],  # here and below: the redaction of reports recognizes quoting sentences by these fields
        tried=[
            ForgeryRow(
                forgery=row["forgery"],
                status=row["status"],
                paid=row["paid"],
                tasks=row["tasks"],
                unjudged=row["unjudged"],
                score=row["score"],
                text=truncate(row["text"], TEXT),
                cause=row["why"],
                fix=row["fix"],
            )
            for row in sorted(audit["tried"], key=lambda row: order[row["status"]])
        ],
        checks=[
            AuditCheckRow(ok=row["ok"], name=row["name"], says=row["says"], fix=row["fix"]) for row in audit["checks"]
        ],
    )
