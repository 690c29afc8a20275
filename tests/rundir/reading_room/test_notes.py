"""Tags, notes and saved views: what people wrote stands, what is not understood is named, nothing is deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.reading_room import notes as module
from tiltmeter.rundir.reading_room.notes import RunNotes, user_name, write_entry
from tiltmeter.rundir.store import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def read(run: RunDirectory) -> RunNotes:
    notes = RunNotes(run.path)
    notes.poll()
    return notes


def test_what_people_write_stands_with_its_author_until_it_is_taken_back(run: RunDirectory) -> None:
    tag = write_entry(run, "tag", "0-12-3", " Prüfung/2 ", author="ann")
    write_entry(run, "note", "0-12", "turned here\u202e <b>", author="bob")
    view = write_entry(run, "view", "", "#/rollouts?find=gold%3C0.3", name="low gold")
    notes = read(run)
    assert notes.tags_of("0-12-3") == ["Prüfung/2"] and notes.of("0-12-3")[tag].author == "ann"
    assert [entry.text for entry in notes.of_steps().values()] == ["turned here\u202e <b>"]
    assert notes.of("")[view].author == user_name() and notes.note_count("0-12") == 1
    write_entry(run, "remove", "0-12-3", tag)
    notes.poll()
    assert notes.tags_of("0-12-3") == [] and notes.tag_counts() == {} and read(run).tags_of("0-12-3") == []
    assert len(list((run.path / "notes" / "rollouts").iterdir())) == 2, "both files are there"
    assert strange_files(run) == [] and notes.refusals == {}


def test_a_run_is_archived_and_taken_out_again(run: RunDirectory) -> None:
    assert not read(run).archived
    id = write_entry(run, "archive", "", "")
    assert read(run).archived
    with pytest.raises(ValueError, match="archived already"):
        write_entry(run, "archive", "", "again")
    write_entry(run, "remove", "", id)
    assert not read(run).archived
    write_entry(run, "archive", "", "once more")
    assert read(run).archived


@pytest.mark.parametrize(
    ("kind", "target", "text", "name"),
    [
        ("tag", "", "two words", ""), ("tag", "", "", ""), ("tag", "", "x" * 41, ""), ("tag", "", "a\u202eb", ""),
        ("tag", "../x", "odd", ""), ("tag", "0-1-2-3", "odd", ""), ("tag", "-1-2", "odd", ""),
        ("note", "", "  ", ""), ("note", "", "x" * 2001, ""), ("view", "", "javascript:alert(1)", "mine"),
        ("view", "", "#/rollouts", " "), ("view", "", "#/rollouts", "n" * 81), ("view", "0-1", "#/rollouts", "mine"),
        ("archive", "0-1", "", ""), ("remove", "", "nothing", ""), ("remove", "", "1800000000000-00000000", ""),
    ],
)  # fmt: skip
def test_what_is_not_valid_is_not_written(run: RunDirectory, kind: Any, target: str, text: str, name: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        write_entry(run, kind, target, text, name=name)
    assert not (run.path / "notes").exists()


def plant(run: RunDirectory, place: str, **changes: Any) -> Path:
    entry = {"kind": "tag", "target": "", "text": "odd", "author": "ann", "time": 1.0, "name": ""} | changes
    path = run.path / "notes" / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entry))
    return path


def test_a_file_that_is_not_understood_is_named_and_the_others_stand(run: RunDirectory, tmp_path: Path) -> None:
    plant(run, "run/1800000000000-00000000.json")
    wrong = [
        plant(run, "run/1800000000000-00000001.json", text="two words"),
        plant(run, "run/1800000000000-00000002.json", target="0-1"),  # of a step, among those of the run
        plant(run, "run/1800000000000-00000003.json", kind="evil"),
        plant(run, "run/1800000000000-00000004.json", time=float("inf")),
        plant(run, "run/1800000000000-00000005.json", author="x" * 65),
        plant(run, "rollouts/1800000000000-00000006.json", kind="archive", target="0-1-2"),
    ]
    link = run.path / "notes" / "run" / "1800000000000-00000007.json"
    outside = tmp_path / "outside.json"
    outside.write_text(json.dumps({"kind": "archive", "target": "", "text": "", "author": "ann", "time": 1.0}))
    link.symlink_to(outside)
    large = plant(run, "run/1800000000000-00000008.json", more="x" * module.FILE_BYTES)
    os.mkfifo(run.path / "notes" / "run" / "1800000000000-00000009.json")
    plant(run, "run/another.json")  # a name that is none is not read at all
    notes = read(run)
    assert notes.tags_of("") == ["odd"] and not notes.archived, "what cannot be read hides nothing"
    names = {str(path.relative_to(run.path)) for path in (*wrong, link, large)}
    assert set(notes.refusals) == names | {"notes/run/1800000000000-00000009.json"}
    assert "a symbolic link" in notes.refusals[str(link.relative_to(run.path))]
    assert all(why.isascii() and len(why) <= 300 for why in notes.refusals.values())


def test_a_folder_that_is_a_link_is_neither_read_nor_written(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "run").mkdir(parents=True)
    (run.path / "notes").symlink_to(tmp_path / "elsewhere")
    notes = read(run)
    assert notes.refusals and notes.tags_of("") == []
    with pytest.raises((OSError, ValueError)):
        write_entry(run, "tag", "", "odd")
    assert list((tmp_path / "elsewhere" / "run").iterdir()) == []


def test_there_is_an_end_to_what_can_be_written_and_read(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 3)
    ids = [write_entry(run, "tag", "", f"tag{number}") for number in range(3)]
    with pytest.raises(ValueError, match="already"):
        write_entry(run, "note", "", "one more")
    write_entry(run, "remove", "", ids[0])  # there is room to take something back
    for number in range(10):
        plant(run, f"run/19000000000{number:02d}-00000000.json", text=f"more{number}")
    assert len(read(run).tags_of("")) < 6, "what somebody planted is not read without end"
