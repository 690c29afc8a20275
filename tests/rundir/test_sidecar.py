"""Small files are read in one way: whatever stands in place of one is refused with its name and a short reason."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from tiltmeter.errors import StoreError
from tiltmeter.rundir import sidecar
from tiltmeter.rundir.run_path import make_folder
from tiltmeter.rundir.sidecar import Count, find_sidecar, list_sidecars, read_sidecar, write_sidecar

LIMIT = 4096
is_answer = re.compile(r"[0-9]+\.json").fullmatch


class Answer(Struct, frozen=True):
    number: Count
    value: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    text: Annotated[str, Meta(max_length=20)] = ""


def link(path: Path) -> None:
    target = path.with_name("target")
    target.write_text('{"number": 1}')
    path.symlink_to(target)


def write(content: str | bytes) -> Callable[[Path], int]:
    return lambda path: path.write_bytes(content if isinstance(content, bytes) else content.encode())


#: What stands in place of a file, with what its refusal must say.
HOSTILE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "symbolic link": (link, "a symbolic link"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "a symbolic link"),
    "pipe": (os.mkfifo, "not a plain file"),
    "folder": (Path.mkdir, "not a plain file"),
    "too large": (write(" " * LIMIT + '{"number": 1}'), "4109 bytes, more than 4096"),
    "deep": (write("[" * 3000), "nested too deeply"),
    "deep and closed": (write('{"number": 1, "x": ' + "[" * 1500 + "]" * 1500 + "}"), "nested too deeply"),
    "NaN": (write('{"number": 1, "value": NaN}'), "NaN is no finite number"),
    "infinity": (write('{"number": 1, "unknown": -Infinity}'), "-Infinity is no finite number"),
    "a float too large": (write('{"number": 1, "value": 1e999}'), "1e999 is no finite number"),
    "a whole number too large": (write(f'{{"number": 1, "value": {10**400}}}'), "out of range"),
    "a count too large": (write(f'{{"number": {2**63}}}'), "Expected `int` <= 9223372036854775807"),
    "out of range": (write('{"number": 1, "value": 1.5}'), "Expected `float` <= 1.0 - at `$.value`"),
    "wrong type": (write('{"number": "1"}'), "Expected `int`, got `str` - at `$.number`"),
    "true is no number": (write('{"number": true}'), "Expected `int`, got `bool`"),
    "no object": (write("[1]"), "Expected `object`, got `array`"),
    "a key is missing": (write("{}"), "missing required field `number`"),
    "a long text": (write(f'{{"number": 1, "text": "{"a" * 21}"}}'), "Expected `str` of length <= 20"),
    "a key twice": (write('{"number": 1, "number": 2}'), "a key stands twice"),
    "an unknown key twice, inside": (write('{"number": 1, "x": [{"a": 1, "a": 2}]}'), "a key stands twice"),
    "invalid UTF-8": (write(b'{"number": 1, "text": "\xff"}'), "not UTF-8"),
    "UTF-16": (write('{"number": 1}'.encode("utf-16")), "not UTF-8"),
    "a surrogate as bytes": (write(b'{"number": 1, "text": "\xed\xa0\x80"}'), "not UTF-8"),
    "empty": (write(""), "not JSON: Expecting value"),
    "cut off": (write('{"number": 1'), "not JSON"),
    "more after it": (write('{"number": 1} {"number": 2}'), "not JSON: Extra data"),
    "a key that is none": (write('{"\\ud800": 1, "number": 1}'), "surrogates not allowed"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_such_file_is_refused_in_the_one_way(tmp_path: Path, case: str) -> None:
    put, why = HOSTILE[case]
    path = tmp_path / "7.json"
    put(path)
    for read in (read_sidecar, find_sidecar):
        with pytest.raises(StoreError) as refused:
            read(path, Answer, LIMIT)
        assert str(refused.value).startswith(f"{path} cannot be read: ") and why in str(refused.value)
    values, refusals = list_sidecars(tmp_path, is_answer, Answer, LIMIT)
    assert values == {} and list(refusals) == ["7.json"] and why in refusals["7.json"]
    assert refusals["7.json"].isascii() and len(refusals["7.json"]) <= sidecar.REASON


def test_a_whole_file_is_read_and_keys_of_a_newer_version_are_ignored(tmp_path: Path) -> None:
    facts = {"number": 1, "value": 1, "text": "lone \ud800 <\x1b[2J>", "of a newer version": [None]}
    assert write_sidecar(tmp_path / "1.json", facts)
    answer = read_sidecar(tmp_path / "1.json", Answer, LIMIT)
    assert answer == find_sidecar(tmp_path / "1.json", Answer) == Answer(1, 1.0, "lone \ud800 <\x1b[2J>")
    with pytest.raises(FileExistsError):
        write_sidecar(tmp_path / "1.json", {})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_sidecar(tmp_path / "2.json", {"number": math.nan})
    assert [path.name for path in tmp_path.iterdir()] == ["1.json"]


def test_no_file_is_no_answer_and_not_a_refusal(tmp_path: Path) -> None:
    assert find_sidecar(tmp_path / "1.json", Answer) is None
    assert list_sidecars(tmp_path / "none", is_answer, Answer) == ({}, {})
    with pytest.raises(StoreError, match="No such file") as refused:
        read_sidecar(tmp_path / "1.json", Answer)
    assert isinstance(refused.value.__cause__, FileNotFoundError)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        list_sidecars(tmp_path / "file", is_answer, Answer)


def test_a_list_has_new_names_in_order_and_hides_no_refusal(tmp_path: Path) -> None:
    for number in (1, 2, 3, 10):
        write_sidecar(tmp_path / f"{number}.json", {"number": number})
    for name in (".4.json.ab12", "4.json.late", "x.json", "5.jsonl"):
        (tmp_path / name).write_text("{")
    (tmp_path / "6.json").write_text("{")
    values, refusals = list_sidecars(tmp_path, lambda name: name != "2.json" and is_answer(name), Answer)
    assert list(values) == ["1.json", "10.json", "3.json"] and list(refusals) == ["6.json"]
    assert list(list_sidecars(tmp_path, is_answer, Answer, most=2)[0]) == ["1.json", "10.json"]
    values, refusals = list_sidecars(tmp_path, is_answer, Answer, owner=os.geteuid() + 1)
    assert values == {} and len(refusals) == 5 and f"belongs to user {os.geteuid()}" in refusals["1.json"]


def test_a_refusal_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J\n.json"
    path.write_text('{"number": 1, "value": 1e999}')
    with pytest.raises(StoreError) as refused:
        read_sidecar(path, Answer)
    assert str(refused.value).isprintable() and "\\u{1b}[2J\\u{a}.json" in str(refused.value)
    assert sidecar.reason(ValueError("\u202e\x1b" + "a" * 1000))[:14] == "\\u{202e}\\u{1b}"


def test_a_file_that_grows_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "1.json"
    path.write_text('{"number": 1}')
    whole = path.stat()
    path.write_text('{"number": 1}' + " " * 100_000)
    monkeypatch.setattr(os, "fstat", lambda handle: whole)
    with pytest.raises(StoreError, match="changed while it was read"):
        read_sidecar(path, Answer, LIMIT)


def test_an_error_that_may_go_away_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1.json").write_text('{"number": 1}')
    error = OSError(errno.EIO, "Input/output error")
    monkeypatch.setattr(os, "read", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(OSError, match="Input/output error"):
        list_sidecars(tmp_path, is_answer, Answer)
    with pytest.raises(OSError, match="Input/output error"):
        find_sidecar(tmp_path / "1.json", Answer)
    with pytest.raises(StoreError, match="Input/output error") as refused:
        read_sidecar(tmp_path / "1.json", Answer)
    assert refused.value.__cause__ is error


def test_a_socket_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "1.json"))
        assert list_sidecars(tmp_path, is_answer, Answer)[1] == {"1.json": "No such device or address"}


def test_a_device_is_not_read() -> None:
    with pytest.raises(StoreError, match="/dev/zero cannot be read: not a plain file"):
        read_sidecar(Path("/dev/zero"), Answer)


def test_folders_are_made_once_and_with_their_mode(tmp_path: Path) -> None:
    for _ in range(2):
        assert make_folder(tmp_path, "a", "b", mode=0o700) == tmp_path / "a" / "b"
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")} == {0o700}
    with pytest.raises(FileNotFoundError):  # a run directory that was removed is not made again
        make_folder(tmp_path / "gone", "a")


def any_json() -> st.SearchStrategy[Any]:
    leaf = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=30)
    keys = st.sampled_from(["number", "value", "text"]) | st.text(st.characters(), max_size=5)
    return st.recursive(leaf, lambda inner: st.lists(inner) | st.dictionaries(keys, inner), max_leaves=8)


@given(st.binary(max_size=200) | any_json().map(lambda value: json.dumps(value).encode()))
def test_random_bytes_are_a_value_or_a_refusal_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.json"
    path.write_bytes(content)
    for kind in (Answer, dict[str, Any], Any):
        try:
            value = read_sidecar(path, kind, LIMIT)
        except StoreError as error:
            assert str(error).startswith(f"{path} cannot be read: ") and str(error).isprintable()
        else:
            assert kind is not Answer or isinstance(value, Answer)
            json.dumps(value if kind is not Answer else None, allow_nan=False)
