"""The chain over the journal: whatever is changed is named, by who may check what; what a crash leaves is not."""

from __future__ import annotations

import os
import re
import shutil
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from tiltmeter.rundir import journal_links
from tiltmeter.rundir.journal import Event, Journal, encode_commit, read_events
from tiltmeter.rundir.journal_chain import check_file
from tiltmeter.rundir.journal_chain.check import ChainCheck, JournalState
from tiltmeter.rundir.journal_chain.check_many import ChainChecks
from tiltmeter.rundir.journal_links import ChainEnd, file_seed, make_key, next_value, parse_link, run_name_in_chain
from tiltmeter.rundir.maintenance import verify
from tiltmeter.rundir.store import RunDirectory

STEPS = 4
Edit = Callable[[list[bytes], int], list[bytes]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "owner"))
    return tmp_path


@pytest.fixture
def run(home: Path) -> RunDirectory:
    """Two files of the journal, by two monitors."""
    made = RunDirectory.create(home / "run")
    write(made, 0)
    write(made, 1)
    return made


def open_journal(run: RunDirectory) -> Journal:
    chain = ChainEnd(run_name_in_chain(run), make_key(run))
    return Journal(run.path / "events", len(read_events(run.path / "events")), durable=False, chain=chain)


def write(run: RunDirectory, attempt: int, steps: range = range(STEPS)) -> None:
    journal = open_journal(run)
    for step in steps:
        journal.commit([note(attempt, step, "a"), done(attempt, step)])
    journal.close()


def note(attempt: int, step: int, name: str) -> Event:
    return Event("note", attempt, step, {"note": "x", "text": name}, f"note|{attempt}|{step}|{name}")


def done(attempt: int, step: int) -> Event:
    facts = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 2, "seen": 1, "lost": {}}
    return Event("step_done", attempt, step, facts, f"step_done|{attempt}|{step}|c")


def state(run: RunDirectory) -> JournalState:
    return ChainCheck(run).update()


def lines(run: RunDirectory, number: int = 0) -> list[bytes]:
    return (run.path / "events" / f"{number}.jsonl").read_bytes().splitlines(keepends=True)


def put(run: RunDirectory, content: list[bytes], number: int = 0) -> None:
    (run.path / "events" / f"{number}.jsonl").write_bytes(b"".join(content))


def with_checksum(body: bytes) -> bytes:
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(b"}", zlib.crc32(body)))


def changed(line: bytes) -> bytes:
    """A line with another number in it and a checksum that is right."""
    return with_checksum(line[:-19].replace(b'"rows":2', b'"rows":3'))


def computed_again(run: RunDirectory, contents: list[list[bytes]], *, signs: bool = True) -> list[list[bytes]]:
    """The files with all values computed as anybody can; signatures, which nobody else can make, stay."""
    value, result = b"", list[list[bytes]]()
    for number, content in enumerate(contents):
        value = file_seed(run_name_in_chain(run), f"{number}.jsonl", value)
        result.append([])
        for line in content:
            link = parse_link(line)
            assert link is not None
            value = next_value(value, link.text)
            sign = b',"sign":"%b%b"' % (link.signer.encode(), link.signature.encode()) if signs else b""
            result[-1].append(with_checksum(b'%b,"chain":"%b"%b' % (link.text, value.hex().encode(), sign)))
    return result


def as_somebody_else(monkeypatch: pytest.MonkeyPatch, home: Path, name: str = "reader") -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / name))


def change(content: list[bytes], at: int) -> list[bytes]:
    return [*content[:at], changed(content[at]), *content[at + 1 :]]


def damage(content: list[bytes], at: int) -> list[bytes]:
    return [*content[:at], content[at].replace(b'"rows":2', b'"rows":3'), *content[at + 1 :]]


def remove(content: list[bytes], at: int) -> list[bytes]:
    return content[:at] + content[at + 1 :]


def swap(content: list[bytes], at: int) -> list[bytes]:
    return [*content[:at], content[at + 1], content[at], *content[at + 2 :]]


def insert(content: list[bytes], at: int) -> list[bytes]:
    return [*content[:at], encode_commit([note(0, at, "new")], 90 + at), *content[at:]]


def repeat(content: list[bytes], at: int) -> list[bytes]:
    return [*content[: at + 1], content[at], *content[at + 1 :]]


def cut(content: list[bytes], at: int) -> list[bytes]:
    return content[: at + 1]


def strip(content: list[bytes], at: int) -> list[bytes]:
    """From this line on as an older version writes them."""
    return [*content[:at], *(with_checksum(re.sub(rb',"chain.*', b"", line[:-1])) for line in content[at:])]


@pytest.mark.parametrize("edit", [change, damage, remove, swap, insert, repeat, cut, strip])
@pytest.mark.parametrize("at", range(STEPS - 1))
@pytest.mark.parametrize("number", [0, 1])
def test_a_reader_without_a_key_names_every_change_before_the_last_line(
    run: RunDirectory, home: Path, monkeypatch: pytest.MonkeyPatch, edit: Edit, at: int, number: int
) -> None:
    as_somebody_else(monkeypatch, home)
    put(run, edit(lines(run, number), at), number)
    named = state(run)
    if (edit is cut and number == 1) or (edit is strip and (at, number) == (0, 0)):
        # The end is gone, or the first file says nothing of a chain: nothing that is there contradicts it.
        assert named.level == "intact"
        return
    assert named.level == "broken" and "changed" in named.fault
    step = re.search(r"step (\d+)", named.fault)
    assert step is None or abs(int(step[1]) - at) <= 1 or (number == 0 and edit is cut and step[1] == "0")


def test_the_owner_reads_that_it_is_signed_and_others_that_they_cannot_tell(
    run: RunDirectory, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state(run) == ("signed", "signed and intact")
    as_somebody_else(monkeypatch, home)
    assert state(run).level == "intact" and "cannot be checked here" in state(run).text


@pytest.mark.parametrize("signs", [True, False])
def test_the_owner_names_a_chain_that_was_computed_again(run: RunDirectory, home: Path, signs: bool) -> None:
    shutil.rmtree(home / "owner" / "tiltmeter" / "journals", ignore_errors=True)  # by the key alone
    first, second = computed_again(run, [change(lines(run), 1), lines(run, 1)], signs=signs)
    put(run, first)
    put(run, second, 1)
    if signs:
        assert "step 1 (events/0.jsonl, line 2), whose signature is wrong" in state(run).fault
    else:
        assert state(run) == ("intact", "intact; not signed since step 0")


def test_a_reader_names_what_it_saw_before_though_all_values_were_computed_again(
    run: RunDirectory, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_somebody_else(monkeypatch, home)
    assert state(run).level == "intact"
    first, second = computed_again(run, [change(lines(run), 1), lines(run, 1)])
    put(run, first)
    put(run, second, 1)
    assert "it is not what was read here before" in state(run).fault
    assert "it is not what was read here before" in state(run).fault  # and it stays so
    as_somebody_else(monkeypatch, home, "third")
    assert state(run).level == "intact"  # who never saw it cannot know


def test_a_cut_at_the_end_is_named_by_who_saw_more(run: RunDirectory) -> None:
    assert state(run).level == "signed"
    whole = lines(run, 1)
    put(run, whole[:2], 1)
    assert "had 3 lines when it was read here before" in state(run).fault
    put(run, whole, 1)
    assert state(run).level == "signed"  # put back
    (run.path / "events" / "1.jsonl").unlink()
    assert "events/1.jsonl was read here before, and is gone" in state(run).fault


def test_a_power_cut_that_takes_the_last_line_is_no_change(run: RunDirectory) -> None:
    """What the monitor did not wait for may be lost; what it waited for has a line after it."""
    assert state(run).level == "signed"
    put(run, lines(run, 1)[:-1], 1)
    assert state(run).level == "signed"
    write(run, 1, range(STEPS - 1, STEPS + 2))
    assert state(run).level == "signed"


def test_a_line_that_is_old_is_taken_to_be_on_the_disk(run: RunDirectory) -> None:
    path, old = run.path / "events" / "1.jsonl", time.time() - 2 * check_file.KEPT_SECONDS
    os.utime(path, (old, old))
    assert state(run).level == "signed"
    put(run, lines(run, 1)[:-1], 1)
    assert "had 4 lines" in state(run).fault


def test_a_torn_line_and_the_monitor_that_goes_on_after_it_are_no_change(run: RunDirectory) -> None:
    with (run.path / "events" / "1.jsonl").open("ab") as file:
        file.write(lines(run, 1)[-1][:100])
    assert state(run).level == "signed"
    write(run, 1, range(STEPS, STEPS + 2))
    assert state(run).level == "signed" and len(read_events(run.path / "events")) == 4 * STEPS + 4


def test_what_an_older_version_wrote_is_covered_by_the_first_line_of_a_newer_one(run: RunDirectory) -> None:
    put(run, [re.sub(rb"_", b"_", line) for line in strip(lines(run), 0)])
    (run.path / "events" / "1.jsonl").unlink()
    shutil.rmtree(Path(os.environ["XDG_STATE_HOME"]))
    assert state(run) == ("none", "no chain: it was written by an older version")
    write(run, 0, range(STEPS, STEPS + 2))
    write(run, 1)
    assert state(run).level == "signed" and "an older version wrote what comes before step 4" in state(run).text
    put(run, change(lines(run), 0))
    assert "at or just before step 4 (events/0.jsonl, line 5)" in state(run).fault


def test_another_machine_that_goes_on_is_named(run: RunDirectory, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_somebody_else(monkeypatch, home)
    write(run, 2)
    assert state(run) == ("intact", "intact; signed by this machine since step 0, not before")
    as_somebody_else(monkeypatch, home, "owner")
    write(run, 1, range(STEPS, STEPS + 1))  # goes to the newest file
    assert state(run).text == "intact; signed by this machine since step 4, not before"
    as_somebody_else(monkeypatch, home)
    assert state(run).text == "intact; signed by another machine since step 4"


def test_a_file_that_no_monitor_named_is_a_change(run: RunDirectory) -> None:
    (run.path / "events" / "x.jsonl").write_bytes(encode_commit([note(0, 7, "planted")], 99))
    assert "the lines of events/x.jsonl state no chain" in state(run).fault


def test_attempts_are_in_the_order_of_their_numbers(home: Path) -> None:
    run = RunDirectory.create(home / "many")
    for attempt in range(12):
        write(run, attempt, range(1))
    assert state(run).level == "signed"


def test_a_live_journal_is_followed_and_checked_as_a_whole_from_time_to_time(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = ChainCheck(run)
    assert live.update().level == "signed"
    whole, journal = lines(run, 1), open_journal(run)
    put(run, change(whole, 0), 1)
    journal.commit([note(1, STEPS, "b")])
    assert live.update().level == "signed"  # only what is new was hashed
    monkeypatch.setattr(live, "_repeat_at", 0.0)
    assert "step 0 (events/1.jsonl, line 1)" in live.update().fault


def test_a_check_takes_as_long_as_it_may_and_goes_on_then(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_file, "SLICE_BYTES", 1)
    slow, states = ChainCheck(run), list[JournalState]()
    while len(states) < 50 and (not states or states[-1].level == "unchecked"):
        states.append(slow.update(0.0))
    assert len(states) > 2 * STEPS and states[-1].level == "signed"


def test_what_has_not_changed_is_not_read_again_and_verify_reads_all(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_file, "SETTLE_SECONDS", -1.0)
    assert state(run).level == "signed"
    read: list[str] = []
    whole = journal_links.whole_lines

    def counted(file: BinaryIO) -> Iterator[bytes]:
        read.append(file.name)
        return whole(file)

    monkeypatch.setattr(check_file, "whole_lines", counted)
    assert state(run).level == "signed" and read == []
    assert verify(run) == [] and len(read) == 2
    put(run, change(lines(run), 1))
    assert state(run).level == "broken" and len(read) == 3


def test_many_journals_are_checked_in_turn(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = {}
    for name in ("a", "b", "c"):
        write(RunDirectory.create(home / name), 0)
        paths[name] = str(home / name)
    many = ChainChecks()
    assert {many.state(name).level for name in paths} == {"unchecked"}
    many.look(paths, 0.0)
    assert {many.state(name).level for name in paths} == {"unchecked"}
    many.look(paths, 5.0)
    assert {many.state(name).level for name in paths} == {"signed"}
    early = RunDirectory(home / "b")
    put(early, change(lines(early), 0))
    many.look(paths, 5.0)
    assert [many.state(name).level for name in paths] == ["signed", "broken", "signed"]
    many.look({"a": paths["a"]}, 5.0)
    assert many.state("b").level == "unchecked"
