"""The journal: a commit is there whole or not at all, and only the newest file is written to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tiltmeter.data.records import Alarm, Fault
from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal import Event, Journal, JournalReader, encode_commit, parse, read_events
from tiltmeter.rundir.payloads import AbsentColumns, parse_payload


def note(attempt: int, step: int, name: str) -> Event:
    return Event("note", attempt, step, {"note": "absent", "absent": {name: "x"}}, name)


def test_a_commit_that_is_cut_anywhere_never_happened(tmp_path: Path) -> None:
    first, second = encode_commit([note(0, 0, "a")], 0), encode_commit([note(0, 1, name) for name in "bcd"], 1)
    path = tmp_path / "0.jsonl"
    for stop in range(len(second) + 1):
        path.write_bytes(first + second[:stop])
        read = [event.id for event in read_events(tmp_path)]
        assert read == (["a", "b", "c", "d"] if stop == len(second) else ["a"])
        journal = Journal(tmp_path, seq=4, durable=False)
        journal.commit([note(0, 2, "e")])
        journal.close()
        assert [event.id for event in read_events(tmp_path)] == [*read, "e"], f"cut after {stop} bytes"


def test_a_flipped_bit_loses_its_commit_and_no_other(tmp_path: Path) -> None:
    lines = [encode_commit([note(0, step, f"{step}{name}") for name in "ab"], 2 * step) for step in range(3)]
    for place in range(len(lines[1]) - 1):
        damaged = bytearray(lines[1])
        damaged[place] ^= 1
        (tmp_path / "0.jsonl").write_bytes(lines[0] + bytes(damaged) + lines[2])
        reader = JournalReader(tmp_path)
        assert [event.id for event in reader.poll()] == ["0a", "0b", "2a", "2b"]
        assert reader.skipped >= 1


def test_events_know_their_commit(tmp_path: Path) -> None:
    lines = encode_commit([note(0, 0, "first")], 0, 3.0) + encode_commit([note(0, 1, "a"), note(0, 1, "b")], 1, 4.0)
    (tmp_path / "0.jsonl").write_bytes(lines)
    read = read_events(tmp_path)
    assert [(event.id, event.seq, event.commit, event.time) for event in read] == [
        ("first", 0, 0, 3.0),
        ("a", 1, 1, 4.0),
        ("b", 2, 1, 4.0),
    ]


def test_only_the_newest_file_is_written_to_also_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.commit([note(0, 0, "a")])
    journal.commit([note(1, 0, "b")])
    sealed = (tmp_path / "0.jsonl").read_bytes()
    journal.commit([note(0, 1, "late")])
    journal.close()
    journal = Journal(tmp_path, journal.seq)
    journal.commit([note(0, 2, "later")])
    journal.close()
    assert (tmp_path / "0.jsonl").read_bytes() == sealed
    assert [event.id for event in read_events(tmp_path)] == ["a", "b", "late", "later"]


def test_what_is_not_a_number_or_too_long_is_refused_before_a_byte_is_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.commit([note(0, 0, "a")])
    before = (tmp_path / "0.jsonl").read_bytes()
    for data in ({"value": float("nan")}, {"text": "x" * (5 << 20)}):
        with pytest.raises(ValueError):
            journal.commit([note(0, 1, "b"), Event("note", 0, 1, data, "c")])
    assert (tmp_path / "0.jsonl").read_bytes() == before
    journal.close()


def test_payloads_have_types_and_what_a_kind_does_not_allow_is_an_error() -> None:
    assert parse_payload("note", {"note": "absent", "absent": {"a": "b"}, "newer": 1}) == AbsentColumns(
        absent={"a": "b"}
    )
    assert parse_payload("fault", {"attempt": 0, "step": 1, "part": "x", "error": "y"}) == Fault(0, 1, "x", "y")
    assert parse_payload("prophecy", {}) is None and parse_payload("note", {"note": "prophecy"}) is None
    for kind, data in (("step_done", {"rows": "x"}), ("alarm", {"attempt": 0}), ("note", {"note": "absent"})):
        with pytest.raises(ValueError, match=kind):
            parse_payload(kind, data)


@pytest.mark.parametrize("line", [b"", b"{}", b"[1]", b'{"events":[{}],"crc":"00000000"}', b"\xff\xfe"])
def test_what_is_no_line_has_no_events(line: bytes) -> None:
    assert parse(line) == []
    assert parse(line + b"\n") == []


def test_an_alarm_comes_back_as_it_was() -> None:
    from tiltmeter.rundir.journal import event

    alarm = Alarm(0, "gold.slope", "gold_loss", "alarm", "down", 120, 118, 90, 80, 100, 130.0, 125.0)
    [read] = parse(encode_commit([event(alarm, 0, 120, "c")]))
    assert read.payload == alarm


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("note", {"note": [1]}), ("alarm", {"attempt": 0}), ("reading", {"measured": {"reward.mean": [1.0, "x"]}}),
        ("attempt", {"state": "open", "facts": {"ranks": 10**12}}), ("step_done", {"rows": "x"}),
    ],
)  # fmt: skip
def test_an_event_of_other_types_than_its_kind_has_is_refused_with_the_file(
    kind: str, data: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "0.jsonl").write_bytes(Event(kind, 0, 0, data, "x", seq=7).line())
    with pytest.raises(StoreError, match=r"0\.jsonl cannot be read: event 7"):
        read_events(tmp_path)


def test_a_journal_of_absurd_size_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "0.jsonl").open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(StoreError, match=r"0\.jsonl cannot be read: has 21474836480 bytes"):
        read_events(tmp_path)
