"""`tiltmeter.read` and `tiltmeter report --to`: the tables hold what the files hold, and what is missing is null."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.command_line import tiltmeter as command

import tiltmeter
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Action, Alarm, Finding
from tiltmeter.errors import StoreError
from tiltmeter.gold.label_files import Label, LabelRequest, write_label, write_request
from tiltmeter.gold.sampler import Bet
from tiltmeter.rundir import journal
from tiltmeter.rundir.journal import Event, Journal
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.run_tables import ACTIONS, ALARMS, FINDINGS, LABELS, READINGS

SECRET = "the SECRET of the prompt"
ALARM = Alarm(0, "gold.slope", "gold_loss", "alarm", "down", 2, 2, 1, 0, 2, 5.1, 4.8, None, f"they say '{SECRET}'")
FINDING = Finding(0, 2, "length_hacking", 0.9, ("gold.slope",), ("length.mean",), ((0, 2, 1),), "length", "cut it", "x")
ACTION = Action("0-2-beta", 0, 2, "length_hacking", "beta", 0.04, 0.08, "why")


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Steps 0 to 2 of attempt 0, of which 2 was left behind by attempt 1; step 3 of attempt 1 is not measured."""
    run = RunDirectory.create(tmp_path / "run")
    for resume in (None, 2):
        run.open_attempt(launch="x", ranks=1, resume_step=resume)
    for attempt, step in ((0, 0), (0, 1), (0, 2), (1, 2), (1, 3)):
        run.write(_batch(attempt, step), 0, {})
    bets = (Bet("slope", (0, 1, 0), (0, 1, 1), 1.0, 0.5),)
    request = LabelRequest(0, 1, ((0, 0),), "ab", {"name": "judge", "identity": "i"}, 0.02, {}, bets, (1.0, 0.0))
    write_request(run, request)
    write_label(run, request, 0, Label(0.25), "judge")
    events = [_opened(0, None), *_measured(0, 0), *_measured(0, 1), *_measured(0, 2)]
    events += [journal.event(ALARM, 0, 2, "c"), journal.event(FINDING, 0, 2, "c")]
    events += [journal.event(replace(FINDING, confidence=0.95), 0, 2, "d"), journal.event(ACTION, 0, 2, "c")]
    events += [journal.event(replace(ACTION, state="applied", after=0.09), 0, 2, "c")]
    events += [_opened(1, 2), *_measured(1, 2)]
    book = Journal(run.path / "events")
    for event in events:
        book.commit([event])
    book.close()
    return run


def _batch(attempt: int, step: int) -> Any:
    gold: dict[str, Any] = {} if step == 1 else {"gold": [1.0, None]}
    batch = from_columns(
        step, [0, 0], reward=[1.0, None], rewards={"len": [1, 2]}, prompt=[SECRET] * 2, completion=["a", None],
        tokens=[[1, 2], [3]], **gold,
    )  # fmt: skip
    return replace(batch, attempt=attempt)


def _opened(attempt: int, resume: int | None) -> Event:
    source = {"name": "judge", "identity": "i"}
    facts: dict[str, Any] = {"parent": attempt - 1 if attempt else None, "resume_step": resume}
    data = {"state": "open", "facts": facts, "config": "c", "detectors": [], "gold": source}
    return Event("attempt", attempt, -1, data, f"attempt|{attempt}|open")


def _measured(attempt: int, step: int) -> list[Event]:
    readings = {"reward.mean": [0.5 + step, 2, None], "length.mean": [3.0, 2, 0.1]}
    done = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 2, "seen": 1, "lost": {}}
    return [
        Event("reading", attempt, step, {"measured": readings, "derived": {}}, f"reading|{attempt}|{step}"),
        Event("step_done", attempt, step, done, f"step_done|{attempt}|{step}"),
    ]


def test_readings_are_those_of_the_journal_and_abandoned_steps_say_so(run: RunDirectory) -> None:
    tables = tiltmeter.read(run.path)
    readings = tables.readings().to_pylist()
    assert [(row["attempt"], row["step"], row["current"]) for row in readings if row["name"] == "reward.mean"] == [
        (0, 0, True),
        (0, 1, True),
        (0, 2, False),
        (1, 2, True),
    ]
    first = {"attempt": 0, "step": 0, "current": True, "name": "length.mean", "value": 3.0, "n": 2, "stderr": 0.1}
    assert readings[0] == first
    assert readings[1]["stderr"] is None
    assert len(tables.readings(["length.mean", "no.such"])) == 4


def test_rollouts_are_those_of_the_files_with_bought_labels_as_gold(run: RunDirectory) -> None:
    rows = {row["id"]: row for row in tiltmeter.read(run.path).rollouts().to_pylist()}
    assert len(rows) == 10
    assert rows["0-1-0"]["gold"] == 0.25 and rows["0-1-1"]["gold"] is None and rows["0-0-0"]["gold"] == 1.0
    assert rows["0-0-1"]["reward"] is None and rows["0-0-1"]["reward_flag"] == "missing"
    assert rows["0-0-1"]["rewards.len"] == 2.0 and "tokens" not in rows["0-0-1"]
    assert not rows["1-3-0"]["measured"] and rows["1-2-0"]["measured"]
    assert rows["1-2-0"]["current"] and not rows["0-2-0"]["current"]
    few = tiltmeter.read(run.path).rollouts(steps=(1, 1), columns=["completion", "tokens"])
    assert few.arrow["tokens"].to_pylist() == [[1, 2], [3]] and few.arrow["completion"].to_pylist() == ["a", None]
    assert "prompt" not in few.columns
    with pytest.raises(ValueError, match="nonsense"):
        tiltmeter.read(run.path).rollouts(columns=["nonsense"])


def test_a_step_that_cannot_be_read_is_an_error_unless_it_may_be_left_out(run: RunDirectory) -> None:
    run.step_path(0, 1, 0).write_bytes(b"torn")
    tables = tiltmeter.read(run.path)
    with pytest.raises(StoreError, match="skip_unreadable"):
        tables.rollouts()
    assert len(tables.rollouts(skip_unreadable=True)) == 8


def test_alarms_findings_labels_and_actions(run: RunDirectory) -> None:
    tables = tiltmeter.read(run.path)
    (alarm,) = tables.alarms().to_pylist()
    assert (alarm["name"], alarm["open"], alarm["resolved"]) == ("gold.slope", True, None)
    assert [(row["confidence"], row["rollouts"]) for row in tables.findings().to_pylist()] == [
        (0.9, ["0-2-1"]),
        (0.95, ["0-2-1"]),
    ]
    labels = [(row["id"], row["value"], row["state"], row["source"]) for row in tables.labels().to_pylist()]
    assert labels == [("0-1-0", 0.25, "answered", "judge"), ("0-1-1", None, "asked", "judge")]
    assert [(row["state"], row["after"]) for row in tables.actions().to_pylist()] == [
        ("proposed", 0.08),
        ("applied", 0.09),
    ]


def test_tables_of_an_empty_run_have_their_columns(tmp_path: Path) -> None:
    tables = tiltmeter.read(RunDirectory.create(tmp_path / "run").path)
    schemas = {"readings": READINGS, "alarms": ALARMS, "findings": FINDINGS, "labels": LABELS, "actions": ACTIONS}
    for name, schema in schemas.items():
        assert getattr(tables, name)().arrow.schema == schema
    assert len(tables.rollouts()) == 0 and "id" in tables.rollouts().columns


def test_data_frames_and_the_arrow_protocol(run: RunDirectory) -> None:
    table = tiltmeter.read(run.path).readings()
    assert pa.table(table).equals(table.arrow)
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    assert isinstance(table.to_polars(), polars.DataFrame) and table.to_polars().height == 8
    assert isinstance(table.to_pandas(), pandas.DataFrame)


def test_a_refresh_reads_what_was_added(run: RunDirectory) -> None:
    tables = tiltmeter.read(run.path)
    book = Journal(run.path / "events", seq=100)
    book.commit(_measured(1, 3))
    book.close()
    assert len(tables.readings()) == 8
    tables.refresh()
    assert len(tables.readings()) == 10


def test_importing_tiltmeter_loads_neither_the_tables_nor_data_frames() -> None:
    code = "import sys, tiltmeter; print({'pyarrow', 'pandas', 'polars', 'mcp', 'obstore'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_a_bundle_has_the_report_and_its_tables_with_their_hashes(run: RunDirectory, tmp_path: Path) -> None:
    target = tmp_path / "site" / "run"
    done = command("report", run.path, "--to", target, "--all-rollouts")
    assert done.returncode == 1, done.stderr  # its alarm is open
    manifest = json.loads((target / "bundle.json").read_text())
    assert {path.name for path in target.iterdir()} == {*manifest["files"], "bundle.json"}
    for name, facts in manifest["files"].items():
        assert hashlib.sha256((target / name).read_bytes()).hexdigest() == facts["sha256"]
    page = (target / "index.html").read_text()
    assert '<a href="readings.parquet">' in page and "default-src 'none'" in page
    assert pq.read_table(target / "rollouts.parquet").num_rows == 10
    assert pq.read_table(target / "readings.parquet").num_rows == 8
    assert not [path for path in target.parent.iterdir() if path.name.startswith(".")]


def test_a_redacted_bundle_holds_no_text_of_the_run_in_any_file(run: RunDirectory, tmp_path: Path) -> None:
    for name, redact in (("plain", []), ("redacted", ["--redact-text"])):
        command("report", run.path, "--to", tmp_path / name, "--all-rollouts", *redact)
        texts = (tmp_path / name / "index.html").read_text()
        for file in sorted((tmp_path / name).glob("*.parquet")):
            texts += json.dumps(pq.read_table(file).to_pylist(), default=str)
        assert ("SECRET" in texts) == (name == "plain")
    rows = pq.read_table(tmp_path / "redacted" / "rollouts.parquet").to_pylist()
    assert rows[0]["prompt"].startswith(f"[{len(SECRET)} characters, ") and rows[0]["reward"] == 1.0


def test_nothing_but_an_older_bundle_is_replaced(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years")
    refused = command("report", run.path, "--to", tmp_path / "mine", "--replace")
    assert refused.returncode == 2 and "no bundle" in refused.stderr
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years"
    codes = [command("report", run.path, "--to", tmp_path / "b", *more).returncode for more in ([], [], ["--replace"])]
    assert codes == [1, 2, 1]
