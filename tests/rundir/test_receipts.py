"""Receipts count only with the run's signature, and one that is removed between others shows."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tiltmeter.rundir.maintenance import verify
from tiltmeter.rundir.receipts import ReceiptLog, answered_ids, chain_problems, read_receipts
from tiltmeter.rundir.requests import Receipt, publish_knobs
from tiltmeter.rundir.run_path import UnsafePathError
from tiltmeter.rundir.signing import make_token, receipt_key, signature
from tiltmeter.rundir.store import RunDirectory

DONE = Receipt("2-1-beta.apply", 0, "applied", "beta", 0.04, 0.08, 500)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return RunDirectory.create(tmp_path / "run")


def test_receipts_come_once_and_rubbish_is_told_from_them(run: RunDirectory) -> None:
    seen: set[str] = set()
    token = make_token(run)
    refused_one = replace(DONE, rank=1, state="refused", before=math.nan, why="no")
    log = ReceiptLog(run, receipt_key(token))
    log.append(2, refused_one)
    log.append(2, replace(refused_one, state="applied"))  # a second answer: the first stands
    folder = run.path / "control" / "receipts"
    (folder / "2-1-beta.apply-3.json").write_bytes((folder / refused_one.file).read_bytes())
    (folder / "x.json").write_text('{"id": "x"}')
    good, refused = read_receipts(run, seen, token)
    assert [(r.id, r.state, r.rank, math.isnan(r.before)) for r in good] == [(DONE.id, "refused", 1, True)]
    assert len(refused) == 2 and read_receipts(run, seen, token) == ([], [])


@pytest.mark.parametrize("edit", ["no signature", "another key", "the request's key", "edited", "flat"])
def test_a_receipt_that_the_trainer_did_not_sign_is_not_followed(run: RunDirectory, edit: str) -> None:
    token = make_token(run)
    ReceiptLog(run, receipt_key(token)).append(2, DONE)
    path = run.path / "control" / "receipts" / DONE.file
    facts = json.loads(path.read_text())
    claimed = facts.pop("signature")
    match edit:
        case "no signature":
            path.write_text(json.dumps(facts))
        case "another key":
            path.write_text(json.dumps({**facts, "signature": signature(facts, receipt_key(b"x" * 64))}))
        case "the request's key":  # a token signs requests alone, and the key of receipts no request
            path.write_text(json.dumps({**facts, "signature": signature(facts, token)}))
        case "edited":
            path.write_text(json.dumps({**facts, "after": 0.5, "signature": claimed}))
        case "flat":
            path.write_text(json.dumps({**facts, "signature": None}))
    good, refused = read_receipts(run, set(), token)
    assert good == [] and "not signed" in str(refused[0])
    assert "not signed" in " ".join(chain_problems(run, token))


def test_a_receipt_that_was_removed_shows_in_the_next_one(run: RunDirectory) -> None:
    token = make_token(run)
    log = ReceiptLog(run, receipt_key(token))
    names = [replace(DONE, id=f"2-{number}-beta.apply", step=500 + number) for number in range(4)]
    for receipt in names:
        log.append(2, receipt)
    log.append(3, replace(DONE, id="3-1-beta.apply"))  # each attempt has its own chain
    assert list(chain_problems(run, token)) == [] and verify(run) == []
    (run.path / "control" / "receipts" / names[1].file).unlink()
    [problem] = verify(run)
    assert names[2].file in problem and "number 1 of rank 0, is gone" in problem
    (run.path / "control" / "receipts" / names[2].file).unlink()
    assert len(verify(run)) == 1


def test_a_failed_write_leaves_no_gap(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    token = make_token(run)
    log = ReceiptLog(run, receipt_key(token))
    log.append(2, DONE)
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="No space"):
            log.append(2, replace(DONE, id="2-2-beta.apply"))
    log.append(2, replace(DONE, id="2-3-beta.apply"))
    assert list(chain_problems(run, token)) == []
    assert answered_ids(run) == {"2-1-beta.apply", "2-3-beta.apply"}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to somebody else")
@pytest.mark.parametrize("inner", ["", "receipts"])
def test_a_control_folder_that_somebody_else_made_is_refused_at_attach(run: RunDirectory, inner: str) -> None:
    folder = run.path / "control" / inner
    folder.mkdir(parents=True)
    os.chown(folder, 65534, 65534)
    with pytest.raises(UnsafePathError, match="belongs to user 65534"):
        publish_knobs(run, 0, "advise", {})
        ReceiptLog(run, b"x").append(0, DONE)
