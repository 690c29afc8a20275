"""What people put on a run, its steps and rollouts: tags, notes, saved views, and whether it is archived."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class NoteRow(Struct, frozen=True, kw_only=True):
    """One entry."""

    id: str
    kind: Literal["tag", "note", "view", "archive"]
    target: str  # empty: the run; attempt-step: a step; attempt-step-row: a rollout
    text: str  # the tag, the note, the reason for archiving, or of a view its address within the run
    name: str  # of a view
    author: str
    time: float  # seconds since 1970


class TagCount(Struct, frozen=True, kw_only=True):
    """On how many things of the run a tag stands."""

    tag: str
    count: int


class RunNoteList(Struct, frozen=True, kw_only=True):
    """GET /api/notes?run&target: the entries of a rollout; without target those of the run and its steps."""

    rows: list[NoteRow]  # oldest first
    views: list[NoteRow]  # of the run, by name
    tags: list[TagCount]  # anywhere in the run, the most frequent first
    archived: bool
    unreadable: list[str]  # files that are not understood, at most 5, and how many more there are
