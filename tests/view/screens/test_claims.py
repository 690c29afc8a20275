"""What was done, on the page, in the report and in `show`: the same claims, each beside its calibration."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from tests.view.as_sent import as_sent

from tiltmeter.cli.terminal.run_screen import advice_lines
from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.report.html import render_html
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.screens import summary as summary_screen
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter_workbench.witness.answer import EvidenceQuote, WitnessAnswer
from tiltmeter_workbench.witness.calibration import Calibration, ClassCount
from tiltmeter_workbench.witness.witness_files import AskedBatch, AskedGroup, store_batch, store_calibration

HOSTILE = "rm -r tests # <img src=x onerror=alert(1)>\x1b[31m‮"
NAME = "<script>alert(2)</script>"
summary = as_sent(summary_screen.summary)


def calibration(flagged: int = 60, honest_flagged: int = 1) -> Calibration:
    return Calibration(
        witness="scripted", classes={"tests.removal": ClassCount(64, flagged, flagged)}, honest=200,
        honest_flagged=honest_flagged, honest_suspicious=0, errors=0, honest_called_honest=199,
    )  # fmt: skip


def run_with(folder: Path, **counts: int) -> RunDirectory:
    """Two steps; in the second, rollouts remove tests. The witness was asked about one group of it."""
    run = RunDirectory.create(folder)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(2):
        call = {"function": {"name": "bash", "arguments": f'{{"cmd": "{"ls" if step == 0 else "rm -r tests"}"}}'}}
        rows = [[{"role": "user", "content": "Mend."}, {"role": "assistant", "content": "", "tool_calls": [call]}]] * 4
        run.write(from_columns(step, [0, 0, 1, 1], messages=rows, reward=np.array([1.0, 0.5, 1.0, 0.5])), 0, {})
    loop = MonitorLoop(run, Config.standard())
    while loop.poll():
        pass
    loop.close()
    classes = ("tests.removal", "judge.address")
    answers = [
        WitnessAnswer(says="exploit", exploit=kind, name=NAME, evidence=(EvidenceQuote(1, HOSTILE),))
        for kind in classes
    ]
    group = AskedGroup(step=1, purpose="random", chance=0.5, rows=(2, 3), rewards=(1.0, 0.5), answers=tuple(answers))
    store_calibration(run, calibration(**counts))
    none = Calibration(witness="scripted", classes={}, honest=0, honest_flagged=0, honest_suspicious=0, errors=0)
    batch = AskedBatch(
        witness="scripted", attempt=0, first_step=0, last_step=1, rows_seen=8, groups=(group,), canaries=none,
        time=time.time(),
    )  # fmt: skip
    store_batch(run, batch)
    return run


def test_each_claim_has_step_turn_quote_and_its_calibration_or_says_that_there_is_none(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    table = summary(RunReader(run))["claims"]
    act, first, second = table["claims"]
    assert (act["source"], act["says"], act["many"]) == ("act", "removed tests", "4 of 4 trajectories at step 1")
    assert (act["id"], act["turn"], act["accuracy"]) == ("0-1-0", 2, "")
    by_class = {one["says"].partition(":")[0]: one for one in (first, second)}
    removal, addressed = by_class["tests.removal"], by_class["judge.address"]
    assert removal["accuracy"] == (
        "of 64 forgeries of this class it flags 94 % (95 %: 85 % to 98 %); of 200 honest twins 0 % (95 %: 0 % to 3 %)"
    )
    assert (removal["step"], removal["turn"], removal["id"]) == (1, 2, "0-1-2") and not addressed["accuracy"]
    assert removal["own_words"] == NAME and removal["quote"].startswith("rm -r tests # <img")
    assert "64" in table["remarks"][0] and table["witness"] == "scripted"
    verdict, run_facts, _ = judge_run(run)
    lines = [log_line(line) for line in advice_lines(run, verdict, run_facts)]
    assert any(line.startswith("Removed tests: 4 of 4") and line.endswith("not calibrated.") for line in lines)
    (shown,) = [line for line in lines if "tests.removal" in line]
    assert removal["accuracy"] in shown and "turn 2" in shown
    assert not any("\x1b" in line or "‮" in line for line in lines)


def test_a_witness_that_tells_nothing_apart_makes_no_claim(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", flagged=3, honest_flagged=9)
    table = summary(RunReader(run))["claims"]
    assert [one["source"] for one in table["claims"]] == ["act"]
    assert any(line.startswith("Nothing that it says is shown: ") for line in table["remarks"])


def test_the_report_has_the_same_and_nothing_hostile_in_it(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run")
    whole, page = render_markdown(RunReader(run)), render_html(RunReader(run))
    assert "tests.removal: tests were deleted" in whole and "85 % to 98 %" in whole and "not calibrated" in whole
    assert "<script>alert(2)" not in page and "<img src=x" not in page
    assert whole.count("<img src=x") == whole.count(r"\<img src=x") == 2  # escaped, wherever it stands
    for text in (render_markdown(RunReader(run), redact=True), render_html(RunReader(run), redact=True)):
        assert "alert(" not in text and "rm -r tests" not in text and "tests were deleted" in text
