"""What people leave in a copy of a run on object storage: it reaches the run, once, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rundir.remote.stores import BUCKET, FaultyFolder, s3_server
from tests.rundir.remote.test_remote import run_of, start

from tiltmeter.gold.label_files import LabelRequest, write_request
from tiltmeter.gold.people import PeopleSource, RaterAnswers, store_answer, undo_answer
from tiltmeter.gold.sampler import Bet
from tiltmeter.rundir.owner_state import owner_folder
from tiltmeter.rundir.reading_room.notes import RunNotes, write_entry
from tiltmeter.rundir.remote import authors
from tiltmeter.rundir.remote.authors import sign_entry
from tiltmeter.rundir.remote.copy import fetch_copy
from tiltmeter.rundir.remote.inbox import Inbox, copied_address, leave_file
from tiltmeter.rundir.remote.objects import DiskFolder, ObjectFolder, open_objects
from tiltmeter.rundir.remote.upload import Uploader
from tiltmeter.rundir.requests import ControlRequest, Knob, publish_knobs, read_requests
from tiltmeter.rundir.requests import write_request as write_control_request
from tiltmeter.rundir.run_path import UnsafePathError, make_folder
from tiltmeter.rundir.signing import make_token
from tiltmeter.rundir.store import RunDirectory


class TwoMachines:
    """A run where it is written, its mirror, and a reader elsewhere who has a copy."""

    def __init__(self, place: Path, address: str) -> None:
        self.run = run_of(place / "run")
        self.address, self.folder = address, open_objects(address)
        self.writer = start(self.run, self.folder)
        self.writer.cycle()

    def copy(self) -> RunDirectory:
        return RunDirectory(fetch_copy(self.address))

    def inbox(self) -> list[str]:
        return [one.key for one in self.folder.list("inbox/")]


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TwoMachines:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return TwoMachines(tmp_path, f"file://{tmp_path}/store")


def ask_people(run: RunDirectory) -> LabelRequest:
    bets = (Bet("slope", (0, 1, 0), (0, 1, 1), 1.0, 1.0),)
    source = {"name": "people", "identity": PeopleSource().identity}
    request = LabelRequest(0, 1, ((0, 0),), "00", source, 0.02, {}, bets, (1.0, 0.0))
    write_request(run, request)
    return request


def test_an_answer_that_is_given_on_a_copy_reaches_the_run_and_can_be_undone(machines: TwoMachines) -> None:
    request = ask_people(machines.run)
    machines.writer.cycle()
    copy = machines.copy()
    answer = store_answer(copy, request, "ada", (0, 1), "a")
    assert [one.answer for one in RaterAnswers(copy, request).read_new().standing] == [
        "a"
    ]  # at once, where it was given
    assert RaterAnswers(machines.run, request).read_new().standing == []
    machines.writer.cycle()
    assert [one.rater for one in RaterAnswers(machines.run, request).read_new().standing] == ["ada"]
    assert machines.inbox() == []
    undo_answer(copy, request, answer)
    machines.writer.cycle()
    for run in (machines.run, machines.copy()):
        answers = RaterAnswers(run, request).read_new()
        assert answers.standing == [] and len(answers.history) == 1


def test_answers_on_a_copy_work_over_s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with s3_server():
        machines = TwoMachines(tmp_path, f"s3://{BUCKET}/{tmp_path.name}")
        write_entry(machines.copy(), "note", "", "looks odd from here", author="ada")
        assert len(machines.inbox()) == 1
        machines.writer.cycle()
        assert machines.inbox() == []
    notes = RunNotes(machines.run.path, ("run",))
    notes.poll()
    assert [one.text for one in notes.of("").values()] == ["looks odd from here"]


def test_a_request_to_act_counts_only_with_the_token_that_the_store_does_not_have(
    machines: TwoMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make_token(machines.run)
    publish_knobs(machines.run, 0, "advise", {"beta": Knob("beta", 0.04, 0.0, 1.0)})
    machines.writer.cycle()
    copy = machines.copy()
    facts = {"action": "0-1-beta", "attempt": 0, "knob": "beta", "value": 0.08, "kind": "approve", "who": "operator"}
    good = ControlRequest("0-1-beta.approve", **facts, expires_step=99)  # type: ignore[arg-type]
    forged = ControlRequest("0-2-beta.approve", **{**facts, "action": "0-2-beta"}, expires_step=99)  # type: ignore[arg-type]
    write_control_request(copy, good, token)
    write_control_request(copy, forged, b"f" * 64)
    machines.writer.cycle()
    followed, refused = read_requests(machines.run, set(), token, attempt=0, step=2)
    assert [one.id for one in followed] == ["0-1-beta.approve"]
    assert ["not signed" in one.why for one in refused] == [True]
    with pytest.raises(FileExistsError):
        write_control_request(copy, good, token)


def test_only_what_people_leave_is_taken_and_the_rest_stays_where_it_is(machines: TwoMachines) -> None:
    before = {path.relative_to(machines.run.path) for path in machines.run.path.rglob("*")}
    keys = [
        "gold/labels/0-000001/0.json", "run.json", "events/0.jsonl", "gold/people/../../run.json",
        "control/knobs-9.json",
        "notes/a/b/c/d.json", "notes/.hidden.json", "gold/people/0-000001/x.txt", "cache/monitor.lock", "notes",
        "control/receipts/x.json", "gold/requests/0-000009.jsonl",
    ]  # fmt: skip
    for key in keys:
        path = Path(str(machines.address).removeprefix("file://")) / "inbox" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.write_bytes(b"{}")
    machines.folder.create(f"inbox/notes/run/{note_name(1)}", b" " * (1 + (64 << 10)))
    machines.folder.create(f"inbox/notes/run/{note_name(2)}", b"{}")  # not signed
    there = machines.inbox()
    for _ in range(2):
        machines.writer.cycle()
    assert {path.relative_to(machines.run.path) for path in machines.run.path.rglob("*")} == before
    assert machines.inbox() == there and len(there) > 8


def note_name(number: int) -> str:
    return f"{1794994918793 + number}-{number:08x}.json"


def test_an_entry_counts_in_its_own_run_place_and_name_only(
    machines: TwoMachines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copy, facts = machines.copy(), {"kind": "note", "text": "fine", "author": "ada"}
    leave_file(copy, ("notes", "run"), note_name(0), facts)
    machines.writer.cycle()
    assert (machines.run.path / "notes" / "run" / note_name(0)).exists()
    place = f"notes/run/{note_name(1)}"
    elsewhere = sign_entry(copy, f"notes/run/{note_name(9)}", facts)
    changed = sign_entry(copy, place, facts) | {"text": "not what was signed"}
    monkeypatch.setenv("XDG_STATE_HOME", str(machines.run.path.parent / "mallory"))
    forged = sign_entry(copy, f"notes/run/{note_name(3)}", facts)
    monkeypatch.setenv("XDG_STATE_HOME", str(machines.run.path.parent / "state"))
    for key, entry in (
        (place, elsewhere),
        (f"notes/run/{note_name(2)}", changed),
        (f"notes/run/{note_name(3)}", forged),
    ):
        machines.folder.create(f"inbox/{key}", json.dumps(entry).encode())
    machines.writer.cycle()
    assert [path.name for path in (machines.run.path / "notes" / "run").iterdir()] == [note_name(0)]
    assert len(machines.inbox()) == 3
    assert "another run, place or content" in caplog.text and "ada signed with another key before" in caplog.text


def test_who_signs_in_ever_new_names_makes_nobody_forgotten_and_holds_up_no_mirror(
    machines: TwoMachines, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A book that is full takes no new name, since a second key for it could not be told from the first."""
    most = authors.MOST_AUTHORS
    monkeypatch.setattr(authors, "MOST_AUTHORS", 3)
    copy = machines.copy()
    names = ["ada", *(f"{number}{chr(0x1F600) * 80}" for number in range(4))]
    for number, name in enumerate(names):
        leave_file(copy, ("notes", "run"), note_name(number), {"kind": "note", "text": "", "author": name})
    machines.writer.cycle()
    taken = {json.loads(path.read_text())["author"] for path in (machines.run.path / "notes" / "run").iterdir()}
    assert taken == set(names[:3]) and len(machines.inbox()) == 2
    assert "3 authors left something already" in caplog.text
    leave_file(copy, ("notes", "run"), note_name(9), {"kind": "note", "text": "", "author": "ada"})
    _writer(machines, machines.folder).cycle()  # who reads the book again
    assert (machines.run.path / "notes" / "run" / note_name(9)).exists()
    assert len(json.dumps({names[1][:64]: "0" * 64})) * most < authors._BOOK_BYTES

    book = owner_folder("authors") / f"{machines.run.identity()['id']}.json"
    book.write_text("{")
    leave_file(copy, ("notes", "run"), note_name(10), {"kind": "note", "text": "", "author": "ada"})
    (machines.run.path / "traps.json").write_text("[]")
    _writer(machines, machines.folder).cycle()
    assert machines.folder.read("traps.json") is not None, "the run is mirrored still"
    assert any("inbox is not read" in why for why in machines.run.troubles(0).values())


def test_a_writer_that_is_killed_anywhere_takes_everything_once(machines: TwoMachines) -> None:
    for number in range(3):
        leave_file(machines.copy(), ("notes", "run"), note_name(number), {"number": number})
    calls = 0
    while True:
        faulty = FaultyFolder(machines.folder)
        faulty.fails = lambda number, last=calls: "after" if number > last else ""  # type: ignore[misc]
        try:
            writer = _writer(machines, faulty)
            writer.cycle()
            break
        except OSError:
            calls += 1
    assert machines.inbox() == [] and calls > 5
    stored = sorted((machines.run.path / "notes" / "run").glob("*.json"))
    assert [json.loads(path.read_text())["number"] for path in stored] == [0, 1, 2]
    mirrored = sorted(one.key for one in machines.folder.list("notes/"))
    assert mirrored == [f"notes/run/{note_name(number)}" for number in range(3)]  # and none of them a conflict


def _writer(machines: TwoMachines, folder: ObjectFolder) -> Uploader:
    """Another process of the same machine."""
    uploader = start(machines.run, machines.folder)
    uploader._folder, uploader._inbox = folder, Inbox(machines.run, folder)
    return uploader


def test_while_the_store_is_away_nothing_is_said_to_be_stored(
    machines: TwoMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = machines.copy()

    def away(*_: object) -> bool:
        raise OSError("connection refused")

    monkeypatch.setattr(DiskFolder, "create", away)
    with pytest.raises(OSError, match="connection refused"):
        leave_file(copy, ("notes", "run"), note_name(1), {})
    assert not (copy.path / "notes").exists()


def test_a_directory_that_only_says_it_is_a_copy_sends_nothing(machines: TwoMachines, tmp_path: Path) -> None:
    other = run_of(tmp_path / "other")
    (other.path / ".copy").write_text(machines.address)
    assert copied_address(other.path) is None
    with pytest.raises(UnsafePathError, match="copy of a run"):
        leave_file(other, ("notes", "run"), note_name(1), {})
    assert machines.inbox() == []
    with pytest.raises(UnsafePathError, match="copy of a run"):  # a copy takes nothing else
        make_folder(machines.copy().path, "gold", "labels")
