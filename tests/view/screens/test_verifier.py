"""The verifier's page: audits, canaries by worker, and what could not be graded, from the run directory alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.view.as_sent import as_sent

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir import verifier_audits as audits
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens import verifier as verifier_screen
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.verifier import CELLS

verifier = as_sent(verifier_screen.verifier)

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))


def test_a_run_without_canaries_audits_or_steps_says_nothing(tmp_path: Path) -> None:
    told = verifier(RunReader(RunDirectory.create(tmp_path / "run")))
    assert (told["audits"], told["workers"], told["canaries"], told["sandboxes"], told["attached"]) == (
        [],
        [],
        [],
        [],
        None,
    )
    assert told["errors"] == {"rows": 0, "infra": 0, "unscored": 0}


def test_workers_canaries_and_errors_are_counted(tmp_path: Path) -> None:
    from page_runs import fooled

    told = verifier(RunReader(fooled(tmp_path / "run")))
    first = told["workers"][0]
    assert (first["worker"], first["kind"], first["asked"], first["failed"], first["first"]) == (1, "rule", 180, 28, 62)
    assert len(first["cells"]) <= CELLS and sum(cell or 0 for cell in first["cells"]) == 28
    assert [row["failed"] for row in told["workers"][1:]] == [0, 0, 0]
    assert (told["canaries"][0]["text"], told["canaries"][0]["failed"], told["canaries"][0]["asked"]) == (
        "\\boxed{5}",
        28,
        270,
    )
    assert told["errors"] == {"rows": 2880, "infra": 13, "unscored": 13}
    assert told["sandboxes"] == [{"reward": "code", "tier": "bwrap", "isolation": "strict"}]
    assert [row["status"] for row in told["audits"][0]["tried"][:3]] == ["paid", "paid", "could not judge"]
    json.dumps(told, allow_nan=False)


def test_a_damaged_audit_is_counted_and_hides_no_other(tmp_path: Path) -> None:
    from page_runs import fooled

    run = fooled(tmp_path / "run", steps=3)
    (run.path / "audits" / "1700000000-00000000.json").write_text("{")
    told = verifier(RunReader(run))
    assert (len(told["audits"]), told["damaged"]) == (1, 1)


@pytest.mark.parametrize("text", ['{"schema": 1}', "[]", '{"schema": 1, "time": 1, "canaries": [3], "sandboxes": []}'])
def test_a_planted_note_of_the_start_is_not_believed(tmp_path: Path, text: str) -> None:
    run = RunDirectory.create(tmp_path / "run")
    (run.path / "audits").mkdir()
    (run.path / "audits" / "attempt-0.json").write_text(text)
    assert audits.read_guards(run, 0) is None


def test_a_rewound_attempt_does_not_count(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    for attempt, (steps, failed) in enumerate(((range(6), 1.0), (range(3, 6), 0.0))):
        run.open_attempt(launch=str(attempt), ranks=1, resume_step=3 if attempt else None)
        for step in steps:
            told = {"canary.asked.rule.low.0.0": 1.0, "canary.failed.rule.low.0.0": failed if step >= 3 else 0.0}
            run.write(from_columns(step, [0, 0], attempt=attempt, reward=[1, 0], scalars=told), 0, {})
    watch = MonitorLoop(run, Config.standard(), strict=True)
    while watch.poll():
        pass
    watch.close()
    book = RunReader(run)
    (row,) = verifier(book)["workers"]
    assert (row["asked"], row["failed"], row["first"]) == (6, 0, None)
    assert book.verdict.alarms == ()  # it was resolved by going back to its onset


def test_a_redacted_report_keeps_no_text_of_audits_and_canaries(tmp_path: Path) -> None:
    from page_runs import fooled
    from tiltmeter.view.report.answers import collect_answers

    run = fooled(tmp_path / "run", steps=4)
    plain, hidden = (
        json.dumps(as_sent(collect_answers)(RunReader(run), redact=redact)["answers"]["/api/verifier"])
        for redact in (False, True)
    )
    for text in ("import sys", "print('PASSED')", "boxed{5}"):
        assert text in plain and text not in hidden
    assert '"paid": 9' in hidden and "sys.exit(0)" in hidden  # the forgery's name is ours


def test_purging_a_run_takes_its_audits_along(tmp_path: Path) -> None:
    from page_runs import fooled
    from tiltmeter.rundir.maintenance import purge

    run = fooled(tmp_path / "run", steps=2)
    purge(run, before=1)
    assert audits.list_audits(run)
    purge(run)
    assert not audits.list_audits(run) and audits.read_guards(run, 0) is None
