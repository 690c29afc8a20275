"""The audit finds a planted hole in each toy verifier and nothing in verifiers without one."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path

import pytest
from rich.console import Console

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir import verifier_audits as audits
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.sandbox import SandboxUnavailable, open_sandbox
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.probe import audit_session as desk_module
from tiltmeter_workbench.probe.audit import Audit, audit
from tiltmeter_workbench.probe.audit_session import ForgeryResult, ProbeSession, ScoredTask
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.reward_process import CompletionRow, RewardProcess, RewardProcessError
from tiltmeter_workbench.probe.scorecard_report import audit_as_report
from tiltmeter_workbench.terminal import verifier_audit
from tiltmeter_workbench.terminal.check_report import render_report

TOYS = Path(__file__).parent / "toys.py"
MATHS = [
    AuditTask(f"Double {n}", f"It is \\boxed{{{2 * n}}}.", f"\\boxed{{{2 * n + 1}}}", {"answer": str(2 * n)}, "math")
    for n in (11, 17)
]
CODE = [
    AuditTask(
        "Write add(a, b).",
        "```python\ndef add(a, b):\n    return a + b\n```",
        "```python\ndef add(a, b):\n    return a - b\n```",
        {"tests": "assert add(2, 3) == 5"},
        "code",
    )
]


@cache
def looked_at(name: str, kind: str) -> Audit:
    return audit(f"{TOYS}:{name}", CODE if kind == "code" else MATHS)


@pytest.mark.parametrize(
    ("name", "kind", "hole"),
    [
        ("exit_code", "code", "sys.exit(0)"),
        ("asserts", "code", "equal to everything"),
        ("program_exit_code", "code", "os._exit(0)"),
        ("printed", "code", "prints a verdict"),
        ("evaluates", "math", "code in the answer"),
        ("empty_box", "math", "format without content"),
        ("number_anywhere", "math", "every candidate, each in its own place"),
        ("substring", "math", "every candidate in one place"),
        ("pays_length", "math", "very long"),
        ("infra_as_zero", "math", "an outage is no wrong answer: without programs to call"),
        ("remembers", "math", "one sample does not change the next"),
        ("ranks", "math", "neighbours do not matter"),
        ("moody", "math", "same answer, same score"),
    ],
)
def test_a_planted_hole_is_found(name: str, kind: str, hole: str) -> None:
    found = looked_at(name, kind)
    assert hole in found.holes, found.record()
    assert (found.verdict, found.exit_code) == ("some paid", 1)


@pytest.mark.parametrize("name", ["strict", "strict_chat"])
def test_a_verifier_without_a_hole_comes_out_clean(name: str) -> None:
    found = looked_at(name, "math")
    assert found.holes == [], found.record()
    assert (found.verdict, found.exit_code, found.judged) == ("none paid", 0, 2)
    assert {row.status for row in found.tried} == {"not paid"}


def test_our_verifier_of_code_gives_values_out_and_comes_out_clean() -> None:
    try:
        open_sandbox().close()
    except SandboxUnavailable as why:
        pytest.skip(f"needs a sandbox: {why}")
    columns = {
        "tests": "assert add(2, 3) == 5",
        "entry_point": "add",
        "reference": "def add(a, b):\n    return a + b\n",
    }
    task = AuditTask(CODE[0].prompt, CODE[0].right, CODE[0].wrong, columns, "code")
    found = audit(f"{TOYS.parent / 'clean_code.py'}:values_out", [task])
    assert found.holes == [] and found.exit_code == 0, found.record()
    assert {row.status for row in found.tried} == {"not paid"} and len(found.tried) >= 19
    assert any(row.forgery == "os._exit(0)" for row in found.tried) and any(
        "hard-coded" in row.forgery for row in found.tried
    )


def test_our_verifier_of_answers_comes_out_clean() -> None:
    found = audit(f"{TOYS.parent / 'clean_maths.py'}:answers", MATHS)
    assert found.holes == [] and found.exit_code == 0, found.record()


@pytest.mark.parametrize("name", ["pays_all", "pays_none"])
def test_where_right_and_wrong_are_paid_alike_nothing_is_judged(name: str) -> None:
    found = looked_at(name, "math")
    assert (found.verdict, found.exit_code, found.judged, found.tried) == ("could not judge", 2, 0, ())
    assert "the honest answer gets" in found.why


def test_a_row_that_is_left_out_is_neither_paid_nor_refused() -> None:
    found = looked_at("absent", "math")
    empty = next(row for row in found.tried if row.forgery == "empty answer")
    assert (empty.status, empty.score, empty.unjudged) == ("could not judge", None, 2)
    assert found.exit_code == 2


def test_a_verifier_that_runs_code_itself_is_told_so() -> None:
    found = looked_at("exit_code", "code")
    own = next(check for check in found.checks if "does not run in the verifier" in check.name)
    assert own.ok is False and "ran the model's code in its own process" in own.says
    assert next(check for check in found.checks if check.name == "secrets stay secret").ok is False


def test_the_process_of_a_reward_may_die_and_is_asked_no_more() -> None:
    with RewardProcess(f"{TOYS}:exit_code") as child:
        with pytest.raises(RewardProcessError) as died:
            child.score([CompletionRow("", "import os\nos._exit(0)", {"tests": ""})])
        assert died.value.kind == "died"
        with pytest.raises(RewardProcessError):
            child.score([CompletionRow("", "x = 1", {"tests": ""})])


def test_an_answer_in_the_name_of_another_is_noticed(tmp_path: Path) -> None:
    forger = tmp_path / "forger.py"
    forger.write_text(
        "import json, os, sys\n"
        "def score(prompt, completion):\n"
        "    os.write(int(sys.argv[2]), json.dumps({'scores': [1.0], 'mark': 'guessed'}).encode() + b'\\n')\n"
        "    return 0.0\n"
    )
    with RewardProcess(f"{forger}:score") as child, pytest.raises(RewardProcessError) as error:
        child.score([CompletionRow("", "", {})])
    assert error.value.kind == "forged"


def test_a_reward_that_hangs_is_ended(tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text("import time\ndef score(prompt, completion):\n    time.sleep(60)\n")
    with RewardProcess(f"{slow}:score", seconds=0.5) as child:
        with pytest.raises(RewardProcessError) as error:
            child.score([CompletionRow("", "", {})])
        process = child.process
    assert error.value.kind == "late" and process.poll() is not None


def test_a_reward_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no weights')")
    with pytest.raises(AttachError, match="no weights"):
        audit(f"{broken}:score", MATHS)


def test_a_reward_that_could_not_be_started_has_not_said_that_the_machine_is_at_fault(
    tmp_path: Path,
) -> None:
    """Nothing was broken yet, so nothing was seen; and what is kept names no folder of this machine."""
    desk = ProbeSession(f"{tmp_path / 'gone.py'}:score", 5.0, network=False)
    desk.check_outage(ScoredTask(MATHS[0], 1.0, 0.0), "path")
    (check,) = desk.checks
    assert check.ok is None and "gone.py" in check.says and str(tmp_path) not in check.says


def test_a_reward_that_was_started_before_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that fails once in a hundred starts must not end an audit that makes a hundred."""
    flaky = tmp_path / "flaky.py"
    flaky.write_text(
        "from pathlib import Path\n"
        "tries = Path(__file__).with_name('tries')\n"
        "tries.write_text(tries.read_text() + 'x' if tries.exists() else 'x')\n"
        "if len(tries.read_text()) == 2:\n    raise OSError('the machine is busy')\n"
        "def score(prompt, completion):\n    return 1.0\n"
    )
    monkeypatch.setattr(desk_module, "PAUSE_SECONDS", 0.0)
    desk = ProbeSession(f"{flaky}:score", 5.0, network=False)
    for _ in range(2):
        assert desk.process().score([CompletionRow("", "", {})]) == [1.0]
        desk.close()
    assert (tmp_path / "tries").read_text() == "xxx"


def test_what_a_reward_leaves_in_its_temporary_folder_goes_with_it(tmp_path: Path) -> None:
    messy = tmp_path / "messy.py"
    messy.write_text(
        "import tempfile\nfrom pathlib import Path\n"
        "left = tempfile.mkdtemp()\nPath(__file__).with_name('where').write_text(left)\n"
        "def score(prompt, completion):\n    return 1.0\n"
    )
    with RewardProcess(f"{messy}:score"):
        left = Path((tmp_path / "where").read_text())
        assert left.is_dir()
    assert not left.exists()


def test_the_command_tells_keeps_and_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = tmp_path / "tasks.jsonl"
    hostile = {"prompt": "\x1b[2J What is 4 + 4?", "right": "\\boxed{8}", "wrong": "<script>\\boxed{9}", "answer": "8"}
    tasks.write_text(json.dumps(hostile))
    run = RunDirectory.create(tmp_path / "run")
    page = tmp_path / "audit.html"
    code = verifier_audit.audit_reward(f"{TOYS}:substring", tasks, json=True, html=page, run=run.path)
    told = json.loads(capsys.readouterr().out)
    assert (code, told["exit_code"], told["verdict"], told["schema"]) == (1, 1, "some paid", 1)
    (kept,) = audits.list_audits(run)
    assert audits.read_audit(kept)["tried"][0]["forgery"] == told["tried"][0]["forgery"]
    assert str(tmp_path) not in kept.read_text()
    assert "<script>" not in page.read_text()


def test_hostile_text_acts_on_no_surface() -> None:
    text = "\x1b[2J\u202e<img src=x onerror=alert(1)>"
    row = ForgeryResult(text, "paid", 1, 1, 0, text, 1.0, text, text)
    found = Audit(text, 1, 1, (row,), (), why=text)
    out = io.StringIO()
    console = Console(file=out, force_terminal=False, width=200)
    for part in render_report(audit_as_report(found)):
        console.print(part)
    fragment = render_html(audit_as_report(found))
    for shown in (out.getvalue(), fragment):
        assert "\x1b" not in shown and "\u202e" not in shown
    assert "<img" not in fragment and "&lt;img" in fragment


def test_a_stored_audit_from_elsewhere_is_read_with_suspicion(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    record = Audit("checks.py:score", 1, 1, (ForgeryResult("a", "paid", 1, 1, 0, "t", 1.0, "w", "f"),), ()).record()
    good = audits.write_audit(run, record)
    assert audits.read_audit(good)["verdict"] == "some paid"
    for place, broken in enumerate(
        ({**record, "schema": 2}, {**record, "verdict": "fine"}, {**record, "tried": {}}, {**record, "time": None}, [])
    ):
        path = run.path / "audits" / f"17000000{place:02d}-00000000.json"
        path.write_text(json.dumps(broken))
        with pytest.raises(StoreError):
            audits.read_audit(path)
    (run.path / "audits" / "1800000000-00000000.json").symlink_to("/etc/passwd")
    assert len(audits.list_audits(run)) == 6
