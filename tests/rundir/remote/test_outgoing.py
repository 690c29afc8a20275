"""Nothing with a secret of this process is uploaded: it stays here, is named and counted, and the rest goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.command_line import tiltmeter as command
from tests.rundir.remote.stores import disk

from tiltmeter.data.batches import from_columns
from tiltmeter.rundir.journal import Event, Journal, read_events
from tiltmeter.rundir.remote.mirror import read_mirror, write_mirror
from tiltmeter.rundir.remote.objects import ObjectFolder
from tiltmeter.rundir.remote.outgoing import secrets_in_object
from tiltmeter.rundir.remote.upload import Uploader
from tiltmeter.rundir.remote.upload_thread import UploadThread
from tiltmeter.rundir.remote.writer_lease import WriterLease
from tiltmeter.rundir.store import RunDirectory

SECRET = "q7c1f0e9d8b7a6c5"
FOREIGN = "sk-proj-a1b2c3d4e5f6a7b8c9d0e1f2"  # a form of a key, and no key of ours


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GRADER_API_KEY", SECRET)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    return run


def add_step(run: RunDirectory, step: int, completion: str, facts: str | None = None) -> None:
    batch = from_columns(step, [0, 0], reward=[1.0, 0.0], completion=[completion, "b"], facts=facts and [facts, facts])
    run.write(replace(batch, attempt=0), 0, {})


def uploaded(run: RunDirectory, folder: ObjectFolder) -> tuple[Uploader, dict[str, bytes]]:
    lease = WriterLease(folder, "me")
    lease.take()
    uploader = Uploader(run, folder, lease)
    for _ in range(2):  # the second finds nothing new
        uploader.cycle()
    objects = {one.key: folder.read(one.key) for one in folder.list()}
    return uploader, {key: data[0] for key, data in objects.items() if data is not None}


def test_a_step_that_quotes_a_secret_stays_here_and_the_others_go(
    run: RunDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_step(run, 0, f"the key seems to be {FOREIGN}")  # a model's own words hold nothing up
    add_step(run, 1, f"$ env\nGRADER_API_KEY={SECRET}\n")
    add_step(run, 2, "plain", json.dumps({"header": f'"{SECRET}"'}))
    uploader, objects = uploaded(run, disk(tmp_path))
    assert uploader.withheld == {"rollouts/0/000001-0.parquet", "rollouts/0/000002-0.parquet"}
    assert "rollouts/0/000000-0.parquet" in objects and uploader.waiting == 0
    assert not uploader.withheld & objects.keys()
    assert (run.path / "rollouts/0/000001-0.parquet").is_file()  # nothing is removed here
    (why,) = run.troubles(0).values()
    assert "000001-0.parquet is not uploaded" in why and "GRADER_API_KEY" in why
    assert SECRET not in why and SECRET not in caplog.text
    assert caplog.text.count("is not uploaded") == 2


def test_code_and_settings_with_a_known_form_of_a_key_stay_here(run: RunDirectory, tmp_path: Path) -> None:
    code, answer = f"gold/functions/{'0' * 64}/a.py", "gold/spot/b.json"
    for name, text in ((code, f'KEY = "{FOREIGN}"\n'), (answer, json.dumps({"why": f"it said {FOREIGN}"}))):
        (run.path / name).parent.mkdir(parents=True)
        (run.path / name).write_text(text)
    uploader, objects = uploaded(run, disk(tmp_path))
    assert uploader.withheld == {code}
    assert answer in objects and "run.json" in objects


def test_a_journal_that_quotes_a_secret_ends_before_that_line(run: RunDirectory, tmp_path: Path) -> None:
    book = Journal(run.path / "events")
    book.commit([Event("note", 0, 0, {"text": "fine"}, "note|0")])
    uploader, objects = uploaded(run, disk(tmp_path))
    before = sum(len(data) for key, data in objects.items() if key.startswith("events/"))
    assert before > 0
    book.commit([Event("note", 0, 1, {"text": f"401 for {SECRET}"}, "note|1")])
    book.close()
    uploader.cycle()
    folder = disk(tmp_path)
    assert all(SECRET.encode() not in (folder.read(one.key) or (b"", ""))[0] for one in folder.list())
    assert uploader.withheld == {"events/0.jsonl"}
    assert "0-secret-events.trouble.json" in run.troubles(0)
    assert len(read_events(run.path / "events")) == 2


def test_the_command_says_what_stayed_here(run: RunDirectory, tmp_path: Path) -> None:
    add_step(run, 0, SECRET)
    write_mirror(run.path, f"file://{tmp_path}/store", "me")
    mirror = read_mirror(run.path)
    assert mirror is not None
    thread = UploadThread(run, mirror)
    thread.start()
    assert thread.finish(30.0) and thread.state.withheld == 1
    result = command("upload", run.path)
    assert result.returncode == 2 and "1 files hold a secret" in result.stdout + result.stderr


@pytest.mark.parametrize(
    "value", ['pa"ss\\w0rd/1', "p&ss<w0rd>1", "pässw0rd1", "abc+/=d1ef2", "with a-1 space-2"], ids=str
)
def test_a_secret_is_found_however_json_writes_it(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_API_KEY", value)
    found = [secrets_in_object("a.json", json.dumps({"why": f"x{value}y"}).encode()) for _ in range(2)]
    found += [secrets_in_object("a.json", json.dumps(f"x{value}y", ensure_ascii=False).encode())]
    assert found == [[] if " " in value else ["GRADER_API_KEY"]] * 3


def test_a_damaged_step_is_no_reason_to_stop(run: RunDirectory, tmp_path: Path) -> None:
    add_step(run, 0, "plain")
    path = run.path / "rollouts/0/000000-0.parquet"
    path.write_bytes(path.read_bytes()[:-40])
    uploader, objects = uploaded(run, disk(tmp_path))
    assert "rollouts/0/000000-0.parquet" in objects and not uploader.withheld
