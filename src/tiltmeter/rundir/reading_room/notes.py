"""Tags, notes and saved views that people put on a run, its steps and rollouts, and whether it is archived.

One small JSON file each in `notes/`, written once. Nothing is deleted: an entry is taken back by another one, which
names it. Whoever reads them treats each word as hostile, and a file that is not understood is named, not passed over.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import threading
import time
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from msgspec import Meta, Struct, to_builtins

from tiltmeter.errors import StoreError
from tiltmeter.rundir.remote.inbox import leave_file
from tiltmeter.rundir.run_path import entries
from tiltmeter.rundir.sidecar import list_sidecars, reason
from tiltmeter.rundir.store import RunDirectory

FOLDER = "notes"
FILE_BYTES = 16 << 10
MOST_ENTRIES = 2000  # of each kind of target
TAG_CHARACTERS = 40
NAME_CHARACTERS = 80
TEXT_CHARACTERS = 2000

NoteTarget: TypeAlias = Literal["run", "steps", "rollouts"]
PersonEntryKind: TypeAlias = Literal["tag", "note", "view", "archive", "remove"]
#: What can be put on a run, on one of its steps, and on a rollout.
KINDS_BY_TARGET: dict[NoteTarget, tuple[PersonEntryKind, ...]] = {
    "run": ("tag", "note", "view", "archive", "remove"),
    "steps": ("tag", "note", "remove"),
    "rollouts": ("tag", "note", "remove"),
}

_ID = re.compile(r"[0-9]{13}-[0-9a-f]{8}")
_FILE = re.compile(rf"{_ID.pattern}\.json")
_TARGET = re.compile(r"[0-9]{1,9}-[0-9]{1,16}(-[0-9]{1,10})?")
_TAG = re.compile(rf"[\w.:/+-]{{1,{TAG_CHARACTERS}}}")


class NoteEntry(Struct, frozen=True, kw_only=True):
    """What one person put on a run (target: nothing), a step (attempt-step) or a rollout (attempt-step-row).

    `text` is the tag, the note, the address of the view, the reason for archiving, or the id of the entry to remove.

    >>> NoteEntry(kind="tag", target="0-12-3", text="cheats", author="ann", time=0.0).target_kind
    'rollouts'
    >>> NoteEntry(kind="tag", target="", text="two words", author="ann", time=0.0)
    Traceback (most recent call last):
    ...
    ValueError: a tag is 1 to 40 letters, digits and . : / + - _, without blanks
    """

    kind: PersonEntryKind
    target: Annotated[str, Meta(max_length=40)]
    text: Annotated[str, Meta(max_length=TEXT_CHARACTERS)]
    author: Annotated[str, Meta(max_length=64)]
    time: Annotated[float, Meta(ge=0.0, le=1e11)]  # seconds since 1970
    name: Annotated[str, Meta(max_length=NAME_CHARACTERS)] = ""  # of a view

    def __post_init__(self) -> None:
        if self.target and not _TARGET.fullmatch(self.target):
            raise ValueError("a step is named attempt-step, a rollout attempt-step-row")
        if self.kind not in KINDS_BY_TARGET[self.target_kind]:
            raise ValueError(f"a {self.kind} belongs to a run, and not to one of its {self.target_kind}")
        if self.kind == "tag" and not _TAG.fullmatch(self.text):
            raise ValueError(f"a tag is 1 to {TAG_CHARACTERS} letters, digits and . : / + - _, without blanks")
        if self.kind == "remove" and not _ID.fullmatch(self.text):
            raise ValueError("what is removed is named by its id")
        if self.kind in ("note", "view") and not self.text.strip():
            raise ValueError(f"a {self.kind} without a text")
        if self.kind == "view" and not (self.name.strip() and self.text.startswith("#/")):
            raise ValueError("a view has a name, and an address of the page, which begins with #/")

    @property
    def target_kind(self) -> NoteTarget:
        return "run" if not self.target else "rollouts" if self.target.count("-") == 2 else "steps"


class RunNotes:
    """The entries of a run that stand, by id and oldest first. Files never change, so each is read once.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = RunDirectory.create(f"{folder}/tonight")
    ...     id = write_entry(run, "tag", "0-12-3", "cheats")
    ...     notes = RunNotes(run.path)
    ...     notes.poll()
    ...     notes.tags_of("0-12-3"), notes.targets_with_tag("cheats")
    (['cheats'], ['0-12-3'])
    """

    def __init__(self, path: Path, targets: Sequence[NoteTarget] = get_args(NoteTarget)) -> None:
        self._path, self._targets = path, tuple(targets)
        self._lock = threading.Lock()
        self._files: dict[str, NoteEntry] = {}
        self._by_target: dict[str, dict[str, NoteEntry]] = {}
        self.refusals: dict[str, str] = {}  # by file, why it cannot be read

    def poll(self) -> None:
        """Read what was added. A folder that cannot be read is among the refusals, and is tried again."""
        with self._lock:
            before = len(self._files)
            for target in self._targets:
                self._read_folder(target)
            if len(self._files) != before or not self._by_target:
                gone = {entry.text for entry in self._files.values() if entry.kind == "remove"}
                self._by_target = {}
                for id, entry in sorted(self._files.items()):
                    if entry.kind != "remove" and id not in gone:
                        self._by_target.setdefault(entry.target, {})[id] = entry

    def _read_folder(self, target: NoteTarget) -> None:
        place = f"{FOLDER}/{target}"
        seen = {*self._files, *self.refusals}
        read = sum(entry.target_kind == target for entry in self._files.values())
        self.refusals.pop(place, None)
        try:
            values, refusals = list_sidecars(
                self._path / FOLDER / target,
                lambda name: _FILE.fullmatch(name) and name[:-5] not in seen and f"{place}/{name}" not in seen,
                NoteEntry,
                FILE_BYTES,
                most=max(0, 2 * MOST_ENTRIES - read - len(self.refusals)),
            )
        except (OSError, StoreError) as error:
            self.refusals[place] = reason(error)
            return
        for name, entry in values.items():
            if entry.target_kind != target:
                refusals[name] = f"it is not about one of the {target}"
            else:
                self._files[name[:-5]] = entry
        self.refusals |= {f"{place}/{name}": why for name, why in refusals.items()}

    def of(self, target: str) -> dict[str, NoteEntry]:
        """What stands on a run, step or rollout, by id, oldest first."""
        return dict(self._by_target.get(target, {}))

    def of_steps(self) -> dict[str, NoteEntry]:
        """What stands on any step, by id."""
        return {
            id: entry
            for target, by_id in self._by_target.items()
            if target.count("-") == 1
            for id, entry in by_id.items()
        }

    def tags_of(self, target: str) -> list[str]:
        texts = (entry.text for entry in self._by_target.get(target, {}).values() if entry.kind == "tag")
        return list(dict.fromkeys(texts))

    def note_count(self, target: str) -> int:
        return sum(entry.kind == "note" for entry in self._by_target.get(target, {}).values())

    def targets_with_tag(self, tag: str) -> list[str]:
        """The run, steps and rollouts that have a tag."""
        return [target for target in self._by_target if tag in self.tags_of(target)]

    def tag_counts(self) -> dict[str, int]:
        """On how many things each tag stands, the most frequent first."""
        counts: dict[str, int] = {}
        for target in self._by_target:
            for tag in self.tags_of(target):
                counts[tag] = counts.get(tag, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    @property
    def archived(self) -> bool:
        return any(entry.kind == "archive" for entry in self._by_target.get("", {}).values())


def write_entry(
    run: RunDirectory, kind: PersonEntryKind, target: str, text: str, *, name: str = "", author: str = ""
) -> str:
    """Store an entry and return its id. Raises `ValueError` for one that is not valid, or that changes nothing."""
    text = unicodedata.normalize("NFC", text.strip()) if kind == "tag" else text.strip()
    entry = NoteEntry(
        kind=kind, target=target, text=text, author=(author or user_name())[:64], time=time.time(), name=name.strip()
    )
    if len(text) > TEXT_CHARACTERS or len(entry.name) > NAME_CHARACTERS:
        raise ValueError(f"a text has at most {TEXT_CHARACTERS} characters, a name {NAME_CHARACTERS}")
    notes = RunNotes(run.path, (entry.target_kind,))
    notes.poll()
    _refuse_repeated(entry, notes.of(target).items())
    folder = run.path / FOLDER / entry.target_kind
    # What takes something back must have room, however many entries there are.
    if sum(1 for _ in entries(folder)) >= (2 * MOST_ENTRIES if kind == "remove" else MOST_ENTRIES):
        raise ValueError(f"there are {MOST_ENTRIES:,} entries on {entry.target_kind} already")
    id = f"{int(1000 * entry.time):013d}-{secrets.token_hex(4)}"
    leave_file(run, (FOLDER, entry.target_kind), f"{id}.json", to_builtins(entry))
    return id


def _refuse_repeated(entry: NoteEntry, present: Iterable[tuple[str, NoteEntry]]) -> None:
    present = list(present)
    if entry.kind == "remove":
        if entry.text not in dict(present):
            raise ValueError("there is no such entry, or it was removed before")
    elif entry.kind == "view":
        if any(other.kind == "view" and other.name == entry.name for _, other in present):
            raise ValueError("there is a view of this name: remove it first, or choose another name")
    elif entry.kind in ("tag", "archive") and any(
        other.kind == entry.kind and (entry.kind == "archive" or other.text == entry.text) for _, other in present
    ):
        raise ValueError("this tag is there already" if entry.kind == "tag" else "this run is archived already")


def user_name() -> str:
    """The name of the user who runs this process, by the system and not by what the environment says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"
