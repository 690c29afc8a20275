"""Polls the gold labels of a run for the rollout index; requests are read again only while answers are missing."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable

import pyarrow as pa

from tiltmeter.errors import StoreError
from tiltmeter.gold.label_files import LabelRequest, read_labels, read_request
from tiltmeter.rundir.run_path import entries, open_folder
from tiltmeter.rundir.store import RunDirectory

SCHEMA = pa.schema([("attempt", pa.int64()), ("step", pa.int64()), ("row", pa.int32()), ("value", pa.float64())])

LIMITS = (2**53, 2**53, 2**31)  # of attempt, step and row: the file is untrusted
FRESH_NS = 2_000_000_000

_REQUEST_FILE = re.compile(r"([0-9]{1,15})-([0-9]{1,15})\.jsonl")


class BoughtLabels:
    """The labels of a run. `poll` returns those that arrived since the last call."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._unanswered: dict[
            str, tuple[LabelRequest, set[int], int]
        ] = {}  # unanswered numbers, and the folder's mtime
        self._request_files_read: set[str] = set()  # request files that were read

    def poll(self) -> pa.Table:
        """A row per new label: attempt, step, row and value; a row number counts the joined batch."""
        for entry in sorted(entries(self.run.path / "gold" / "requests"), key=lambda entry: entry.name):
            match = _REQUEST_FILE.fullmatch(entry.name)
            if match is None or entry.name in self._request_files_read:
                continue
            self._request_files_read.add(entry.name)
            request = self._read_request(int(match[1]), int(match[2]))
            if request is not None and request.rows:
                self._unanswered[entry.name] = (request, set(range(len(request.rows))), -1)
        rows: list[tuple[int, int, int, float]] = []
        for name, (request, missing, mtime_seen) in list(self._unanswered.items()):
            mtime = self._answers_mtime(request)
            if mtime == mtime_seen:
                continue
            answers = _read_answers(self.run, request, missing)
            rows += [row for number, row in answers.items() if row is not None and number in missing]
            missing -= set(answers)
            if missing:
                self._unanswered[name] = (request, missing, mtime)
            else:
                del self._unanswered[name]
        return _label_table(rows)

    def labels_of_step(self, attempt: int, step: int) -> pa.Table:
        """The labels requested with one step; they do not count as polled."""
        request = self._read_request(attempt, step)
        answers = {} if request is None else _read_answers(self.run, request, range(len(request.rows)))
        return _label_table([row for row in answers.values() if row is not None])

    def _read_request(self, attempt: int, step: int) -> LabelRequest | None:
        try:
            return read_request(self.run, attempt, step)
        except StoreError:
            return None  # the monitor reports damage; a damaged request names no rows

    def _answers_mtime(self, request: LabelRequest) -> int:
        """When an answer was last added to a step: answers are files of one folder and are never replaced."""
        folder = self.run.path / "gold" / "labels" / f"{request.attempt}-{request.step:06d}"
        try:
            with open_folder(folder) as opened:
                mtime = os.fstat(opened).st_mtime_ns
        except OSError:
            return -1
        # A second answer within one clock tick leaves the same mtime, so a fresh folder is read again.
        return mtime if time.time_ns() - mtime > FRESH_NS else time.time_ns()


def _read_answers(
    run: RunDirectory, request: LabelRequest, numbers: Iterable[int]
) -> dict[int, tuple[int, int, int, float] | None]:
    """By number, each stored answer; None for an answer that gives a reason instead of a label."""
    stored_labels = read_labels(run, request)
    answers: dict[int, tuple[int, int, int, float] | None] = {}
    for number in numbers:
        label, row = stored_labels[number], request.rows[number]
        if label is not None:
            valid = len(row) == 3 and all(type(n) is int and 0 <= n < most for n, most in zip(row, LIMITS, strict=True))
            answers[number] = (*row, label.value) if valid and label.value is not None else None
    return answers


def _label_table(rows: list[tuple[int, int, int, float]]) -> pa.Table:
    distinct = {row[:3]: row for row in reversed(rows)}  # the first label of a row counts
    columns = zip(*distinct.values(), strict=True) if distinct else ([], [], [], [])
    return pa.table([pa.array(list(column), kind) for column, kind in zip(columns, SCHEMA.types, strict=True)],
                    schema=SCHEMA)  # fmt: skip
