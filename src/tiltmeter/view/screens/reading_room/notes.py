"""Tags, notes and saved views of a run, as the page shows them, and how somebody adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from tiltmeter.rundir.reading_room.notes import NoteEntry, PersonEntryKind, write_entry
from tiltmeter.view.payloads.notes import NoteRow, RunNoteList, TagCount
from tiltmeter.view.screens.run_reader import RunReader

MOST_TAGS = 200  # that are listed
MOST_ROWS = 500  # the newest, of one answer
MOST_REFUSALS = 5  # that are named
KINDS: tuple[PersonEntryKind, ...] = get_args(PersonEntryKind)


def list_notes(reader: RunReader, target: str = "") -> RunNoteList:
    """What stands on a rollout, or without `target` on the run and its steps."""
    notes = reader.notes
    notes.poll()
    here = notes.of(target) | ({} if target else notes.of_steps())
    rows = _rows({id: entry for id, entry in here.items() if entry.kind != "view"})
    views = _rows({id: entry for id, entry in notes.of("").items() if entry.kind == "view"})
    refusals = [f"{name}: {why}" for name, why in sorted(notes.refusals.items())]
    more = len(refusals) - MOST_REFUSALS
    return RunNoteList(
        rows=rows[-MOST_ROWS:],
        views=sorted(views, key=lambda row: row.name.lower()),
        tags=[TagCount(tag=tag, count=count) for tag, count in list(notes.tag_counts().items())[:MOST_TAGS]],
        archived=notes.archived,
        unreadable=[*refusals[:MOST_REFUSALS], *([f"and {more} more"] if more > 0 else [])],
    )


def _rows(by_id: Mapping[str, NoteEntry]) -> list[NoteRow]:
    return [
        NoteRow(
            id=id,
            kind=entry.kind,
            target=entry.target,
            text=entry.text,
            name=entry.name,
            author=entry.author,
            time=entry.time,
        )
        for id, entry in sorted(by_id.items())
        if entry.kind != "remove"
    ]


def submit_entry(reader: RunReader, kind: PersonEntryKind, target: str, text: str, author: str = "") -> str:
    """Store an entry of `author`, or of this user, and return what was done. Of a view, `target` is the name.

    Raises `ValueError`, and `KeyError` for a step or a rollout that the run does not have.
    """
    name, target = (target, "") if kind == "view" else ("", target)
    if target and kind != "remove":
        _find_target(reader, target)
    write_entry(reader.run, kind, target, text, name=name, author=author)
    reader.notes.poll()
    return {
        "tag": "Tagged.",
        "note": "Noted.",
        "view": "Saved.",
        "archive": "Archived: lists of runs hide it, and nothing is deleted.",
        "remove": "Taken back. Its file stays in the run.",
    }[kind]


def _find_target(reader: RunReader, target: str) -> None:
    """Raise `KeyError` unless the run has this step or rollout."""
    parts = target.split("-")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise KeyError(target)
    attempt, step, *row = map(int, parts)
    files = reader.run.find(attempt, step) if attempt in reader.run.attempts() else []
    if not files or (row and row[0] >= sum(len(reader.run.read(file, ("group",))[0]) for file in files)):
        raise KeyError(target)
