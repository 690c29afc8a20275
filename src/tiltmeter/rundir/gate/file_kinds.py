"""The files that a run has: their names, how large and how many they may be, and where each may come from.

One table for directories, stores and inboxes. A file whose name is in no row is not fetched, uploaded or taken, and
`verify --untrusted` names it. `docs/run-directory.md` lists the same names.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tiltmeter.rundir.store import FACTS_BYTES, STEP_BYTES

LONGEST_KEY = 512  # characters of a path in a run
LOCAL_BYTES = 4 << 30  # of a journal, a log or a cache
MOST_OBJECTS = 1_000_000  # of a run; 100,000 steps with labels have some 300,000

_KB, _MB = 1 << 10, 1 << 20
_N, _STEP, _NAME = "[0-9]{1,9}", "[0-9]{1,15}", r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,190}"


class FileKind(NamedTuple):
    """One kind of file, by the pattern of its path in the run."""

    pattern: str
    most_bytes: int  # of one file
    most: int = MOST_OBJECTS  # files of a run
    is_mirrored: bool = True  # the rest belongs to one machine
    is_left_by_people: bool = False  # and may come from an inbox


KINDS = (
    FileKind(rf"rollouts/{_N}/(?:{_STEP}-{_N}(?:\.conflict-[0-9a-f]+)?|packed/{_STEP}-{_STEP})\.parquet", STEP_BYTES),
    FileKind(rf"rollouts/{_N}/(?:attempt|{_N}\.(?:rank|counters)|[a-z0-9-]{{1,64}}\.trouble)\.json", FACTS_BYTES),
    FileKind(rf"rollouts/{_N}/purged-{_STEP}-[0-9a-f]{{1,64}}\.json", FACTS_BYTES),
    FileKind(r"run\.json", FACTS_BYTES, 1),
    FileKind(r"traps\.json|guide\.(?:md|txt)", FACTS_BYTES, 3),
    FileKind(r"reference\.parquet", STEP_BYTES, 1),
    FileKind(rf"pieces/{_N}\.parquet", 64 * _MB),
    FileKind(rf"evals/{_N}-{_STEP}-[a-z][a-z0-9_]{{0,63}}(?:\.[A-Za-z0-9_.-]{{1,120}})?\.json", _MB),
    FileKind(rf"pinned/{_N}-{_STEP}(?:-checkpoint)?\.json", 8 * _MB),
    FileKind(rf"audits/(?:{_STEP}-[0-9a-f]{{1,64}}|attempt-{_N})\.json", 4 * _MB),
    FileKind(rf"checkpoints/{_N}(?:-{_STEP})?\.json", 64 * _MB),
    FileKind(rf"gold/requests/{_N}-{_STEP}(?:\.onset|\.probes)?\.jsonl", 64 * _MB),
    FileKind(rf"gold/labels/{_NAME}/{_NAME}\.json", 64 * _MB),
    FileKind(rf"gold/functions/[0-9a-f]{{64}}/{_NAME}\.py", 4 * _MB),
    FileKind(r"gold/regrade/[0-9a-f]{64}\.regrade\.json|workspaces/[0-9a-f]{64}\.json", 16 * _MB),
    FileKind(rf"gold/share-{_NAME}\.json", _MB),
    FileKind(rf"witness/(?:calibration|asked-{_N}-{_STEP})-[0-9a-f]{{1,64}}\.json", FACTS_BYTES),
    FileKind(rf"gold/people/{_NAME}/{_NAME}\.json", 64 * _KB, is_left_by_people=True),
    FileKind(rf"gold/picked/{_NAME}\.json", 64 * _KB, 20_000, is_left_by_people=True),
    FileKind(rf"gold/spot/{_NAME}\.json", 64 * _KB, 20_000, is_left_by_people=True),
    FileKind(r"notes/(?:run|steps|rollouts)/[0-9]{13}-[0-9a-f]{8}\.json", 64 * _KB, 20_000, is_left_by_people=True),
    FileKind(rf"control/requests/{_NAME}\.json", 64 * _KB, 100_000, is_left_by_people=True),
    FileKind(rf"control/(?:knobs-{_N}|receipts/{_NAME}|checkpoints/{_NAME})\.json", FACTS_BYTES),
    FileKind(rf"rollouts/{_N}/unplaced/[0-9a-f]{{12}}-{_STEP}\.parquet", STEP_BYTES, is_mirrored=False),
    FileKind(rf"rollouts/{_N}/unplaced/[0-9a-f]{{12}}\.(?:worker|counters)\.json", FACTS_BYTES, is_mirrored=False),
    FileKind(rf"rollouts/{_N}/unplaced/(?:capture|driver|inferred|{_STEP}\.step)\.json", _MB, is_mirrored=False),
    FileKind(rf"events/{_N}\.jsonl|monitor\.log", LOCAL_BYTES, is_mirrored=False),
    FileKind(rf"cache/trackers/{_NAME}\.(?:json|lock)", _MB, is_mirrored=False),
    FileKind(rf"cache/(?:opener-{_N}|capture|sampling|monitor|trainer)\.lock", _MB, is_mirrored=False),
    FileKind(r"cache/monitor\.lease", _MB, is_mirrored=False),
    FileKind(r"cache/(?:measuring|list_entry|upload)\.json", LOCAL_BYTES, is_mirrored=False),
    FileKind(r"cache/(?:page|restart)_snapshot", LOCAL_BYTES, is_mirrored=False),
    FileKind(rf"cache/(?:readings/{_STEP}|checkpoints/(?:{_NAME}/)?{_NAME}\.jsonl)", LOCAL_BYTES, is_mirrored=False),
)  # fmt: skip

_ANY = re.compile("|".join(f"(?P<k{number}>{kind.pattern})" for number, kind in enumerate(KINDS)), re.ASCII)


def file_kind(key: str) -> FileKind | None:
    """The kind of file that has this path in a run; None for a path that a run does not have.

    >>> file_kind("rollouts/0/000001-0.parquet").is_mirrored, file_kind("../x"), file_kind("/etc/passwd")
    (True, None, None)
    """
    match = _ANY.fullmatch(key) if len(key) <= LONGEST_KEY else None
    return None if match is None or match.lastgroup is None else KINDS[int(match.lastgroup[1:])]
