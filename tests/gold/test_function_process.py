"""A gold function in a child process: whatever a text does to it, the monitor lives and one label is missing."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gold.test_gold import batch, directory, lean, of

from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldAnswer, function_process
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.function_process import FunctionProcess, _Child
from tiltmeter.gold.label_cost import time_source
from tiltmeter.gold.label_files import to_label
from tiltmeter.gold.label_worker import LabelWorker
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import load_gold, reject_reward_as_gold
from tiltmeter.monitor.replay import replay as replay_run
from tiltmeter.rundir import journal
from tiltmeter.safety.loading import load_function

#: A function whose first word does something that a gold function might do to its process.
CHECKS = r"""
import ctypes, os, re, sys, time
from pathlib import Path

HERE = Path(__file__).parent

def score(prompt, completion, columns):
    word, number = completion.split()
    with open(HERE / "calls.log", "a", errors="replace") as file:
        file.write(f"{os.getpid()} {word}\n")
    match word:
        case "regex":
            re.search(r"^(\s*\w+\s*)*=\s*42$", "word " * 30 + "!")
        case "segfault":
            ctypes.string_at(0)
        case "fork":  # a child of its own holds everything open
            if os.fork() == 0:
                time.sleep(60)
            os._exit(1)
        case "killed_once":
            if not (HERE / "killed").exists():
                (HERE / "killed").touch()
                os.kill(os.getpid(), 9)
        case "raise":
            raise KeyError("unparsable")
        case "leave":
            sys.exit(3)
        case "print":
            print("[0, 0.0]", flush=True)
            os.write(1, b'[0, 0.0]\n"ready"\n')
        case "weight":
            return columns["weight"]
    return {"huge": 10**30, "text": "1", "above": 1.5, "nan": float("nan"), "none": None}.get(word, float(number))

def all_of_them(completions, columns):
    return [score("", text, facts) for text, facts in zip(completions, columns)]

def patient(completion):
    return 1.0

patient.timeout = 300

def first_is_slow(completion, state=[]):
    if not state:
        time.sleep(1.0)
    state.append(1)
    return 1.0
"""


@pytest.fixture(autouse=True)
def _short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_SECONDS", 0.05), ("LOAD_SECONDS", 1.0), ("CALL_SECONDS", 0.7)):
        monkeypatch.setattr(function_process, name, seconds)


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    path = tmp_path / "checks.py"
    path.write_text(CHECKS)
    return path


def named(checks: Path, function: str = "score", **options: Any) -> FunctionProcess:
    return FunctionProcess(f"{checks}:{function}", load_function(f"{checks}:{function}"), **options)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FunctionProcess]:
    """One child for tests that do it no harm: starting one takes longer than they do."""
    path = tmp_path_factory.mktemp("shared") / "checks.py"
    path.write_text(CHECKS)
    source = named(path, call_timeout=30.0)
    yield source
    source.close()


def rows(*texts: str, columns: dict[str, Any] | None = None) -> list[CompletionToLabel]:
    return [CompletionToLabel(f"0-0-{k}", 0, 0, k, "slope", "p", text, columns or {}) for k, text in enumerate(texts)]


def values(answers: Sequence[GoldAnswer]) -> list[float | None]:
    return [to_label(answer).value for answer in answers]


def test_only_rows_that_hang_or_kill_the_function_are_lost(checks: Path) -> None:
    source = named(checks)
    answers = source.label(rows("a 0.25", "regex 1", "b 0.5", "segfault 1", "c 0.75", "fork 1", "d 1"))
    assert values(answers) == [0.25, None, 0.5, None, 0.75, None, 1.0]
    assert [to_label(answers[at]).why for at in (1, 3, 5)] == [
        "TimeoutError: no answer within 0.7 s",
        "FunctionProcessError: its process ended with signal 11",
        "FunctionProcessError: its process ended with exit code 1",
    ]
    words = [line.split()[1] for line in (checks.parent / "calls.log").read_text().splitlines()]
    assert words == ["a", "regex", "b", "segfault", "segfault", "c", "fork", "fork", "d"], (
        "no answer is asked for twice"
    )
    assert values(source.label(rows("e 0.5"))) == [0.5], "the next call finds a child that works"
    source.close()


def test_of_a_call_for_many_rows_at_once_only_the_row_that_hangs_is_lost(checks: Path) -> None:
    source = named(checks, "all_of_them")
    assert values(source.label(rows("a 0.25", "regex 1", "b 0.5"))) == [0.25, None, 0.5]
    source.close()


def test_a_child_that_the_system_killed_once_is_no_fault_of_the_row(checks: Path) -> None:
    source = named(checks)
    assert values(source.label(rows("killed_once 1"))) == [1.0]
    source.close()


def test_a_step_of_rows_that_all_hang_ends_when_its_time_is_over(checks: Path) -> None:
    source = named(checks, timeout=3.0)
    began = time.monotonic()
    answers = source.label(rows(*["regex 1.0"] * 64))
    assert values(answers) == [None] * 64
    assert time.monotonic() - began < 20.0
    assert to_label(answers[-1]).why == "TimeoutError: no answer within 3 s"
    source.close()


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("raise", "KeyError: 'unparsable'"),
        ("leave", "SystemExit: 3"),
        ("above", "1.5 is not a number from 0 to 1"),
        ("nan", "nan is not a number from 0 to 1"),
        ("none", "no answer"),
        ("text", "TypeError: str is not a number from 0 to 1"),
        ("huge", "TypeError: int is not a number from 0 to 1"),
    ],
)
def test_a_missing_label_has_its_reason(shared: FunctionProcess, word: str, why: str) -> None:
    (answer,) = shared.label(rows(f"{word} 1.0"))
    assert (to_label(answer).value, to_label(answer).why) == (None, why)


def test_a_reason_does_not_quote_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_API_KEY", "q7c1f0e9d8b7a6c5")
    (tmp_path / "keyed.py").write_text(
        "import os\n"
        "def score(completion):\n"  # cut short, it would be a part of the key, which is not recognised any more
        "    raise PermissionError('x' * 163 + f\"401 for Bearer {os.environ['GRADER_API_KEY']}\")\n"
    )
    name = f"{tmp_path / 'keyed.py'}:score"
    child = FunctionProcess(name, load_function(name))
    for source in (child, FunctionSource(name, load_function(name))):
        (answer,) = source.label(rows("a"))
        why = to_label(answer).why
        assert why.startswith("PermissionError: xxx") and "q7c" not in why, why
    child.close()


def test_what_the_function_prints_is_no_answer(checks: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = named(checks)
    assert values(source.label(rows("a 0.25", "print 0.5"))) == [0.25, 0.5]
    source.close()
    assert capfd.readouterr().out.count("[0, 0.0]") == 2, "and it goes where it always went"


def test_it_answers_as_the_function_in_this_process_does(shared: FunctionProcess) -> None:
    requests = rows("a 0.25", "\ud800\x00 1.0", "raise 1", "none 1", "nan 1", "above 1", "b 1e-300", "c 0.1", "unsplit")
    requests += rows("weight 1", columns={"weight": 0.125, "\u2028": ["\ud800", None, {"x": 1}]})
    here = FunctionSource(f"{shared.file}:score", shared.function)
    assert (shared.name, shared.identity, shared.judged) == (here.name, here.identity, here.judged)
    answers = list(map(to_label, shared.label(requests)))
    assert answers == list(map(to_label, here.label(requests)))
    assert [label.value for label in answers] == [0.25, 1.0, None, None, None, None, 1e-300, 0.1, None, 0.125]


def test_a_fact_that_is_no_json_is_a_missing_label(shared: FunctionProcess) -> None:
    answers = shared.label([*rows("a 0.5"), *rows("a 0.5", columns={"answer": {1, 2}})])
    assert values(answers) == [0.5, None]
    assert "set is not JSON serializable" in to_label(answers[1]).why


def test_an_empty_call_starts_nothing(checks: Path) -> None:
    source = named(checks)
    assert source.label([]) == []
    assert source._child is None


def test_a_child_goes_with_the_thread_that_started_it_and_the_next_call_starts_another(checks: Path) -> None:
    """The kernel's signal at the parent's death is at the death of a thread: it must not cost a label."""
    source, answers = named(checks), list[GoldAnswer]()
    thread = threading.Thread(target=lambda: answers.extend(source.label(rows("a 0.25"))))
    thread.start()
    thread.join()
    answers += source.label(rows("b 0.5"))
    assert values(answers) == [0.25, 0.5]
    source.close()


def test_a_file_that_has_changed_is_another_source(checks: Path) -> None:
    source = named(checks)
    source.start()
    checks.write_text(CHECKS.replace("float(number)", "1.0"))
    assert values(source.label(rows("a 0.25"))) == [0.25], "what was loaded goes on"
    source.close()
    (answer,) = source.label(rows("a 0.25"))
    assert "checks.py has changed since the monitor was started" in to_label(answer).why
    checks.unlink()
    assert "could not load it: FileNotFoundError" in to_label(source.label(rows("a 0.25"))[0]).why


def test_starting_the_child_is_not_timed_and_nothing_is_left_of_it_when_nobody_has_the_source(checks: Path) -> None:
    source = named(checks)
    worker = LabelWorker()
    cost = time_source(worker, source, rows("a 0.5", "b 0.5"), 64, in_hurry=False)
    assert cost.seconds < 0.02
    assert cost.share == 1.0
    assert isinstance(source._child, _Child)
    pid = source._child.process.pid
    assert _lives(pid)
    worker.close()
    del source
    gc.collect()
    assert _ends(pid)


def test_the_first_call_may_take_longer_than_others(checks: Path) -> None:
    source = named(checks, "first_is_slow")
    assert values(source.label(rows("a", "b"))) == [1.0, 1.0]
    source.close()


def test_a_file_says_how_long_a_call_may_take(checks: Path) -> None:
    assert named(checks).call_timeout == 0.7
    assert named(checks, "patient").call_timeout == 300.0
    for wrong in ("'60'", "0", "-1", "float('nan')", "True"):
        checks.write_text(CHECKS + f"\npatient.timeout = {wrong}\n")
        with pytest.raises(AttachError, match="seconds of one call"):
            named(checks, "patient")


def test_a_named_function_is_called_in_a_process_and_a_second_instance_is_the_same_source(checks: Path) -> None:
    source = load_gold(f"{checks}:score")
    assert isinstance(source, FunctionProcess)
    other = replace(source)
    assert (other.identity, other.file, other.call_timeout) == (source.identity, source.file, source.call_timeout)
    assert other._function_name == source._function_name == "score"
    with pytest.raises(AttachError, match="never fire"):
        reject_reward_as_gold(source, [source.function])


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def _ends(pid: int) -> bool:
    for _ in range(200):
        if not _lives(pid):
            return True
        time.sleep(0.05)
    return False


def test_a_child_inside_a_regex_ends_with_a_monitor_that_is_killed(checks: Path) -> None:
    program = (
        "from tiltmeter.gold import CompletionToLabel\n"
        "from tiltmeter.gold.function_process import FunctionProcess, load_function\n"
        f"source = FunctionProcess({f'{checks}:score'!r}, load_function({f'{checks}:score'!r}), call_timeout=60)\n"
        "source.start(); print(source._child.process.pid, flush=True)\n"
        "source.label([CompletionToLabel('', 0, 0, 0, '', '', 'regex 1')])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as monitor:
        assert monitor.stdout is not None
        child = int(monitor.stdout.readline())
        while not (checks.parent / "calls.log").exists():
            time.sleep(0.02)
        assert _lives(child)
        monitor.kill()
        monitor.wait()
    assert _ends(child)


def test_a_process_that_was_forked_does_not_end_the_child(shared: FunctionProcess) -> None:
    shared.start()
    child = shared._child
    assert child is not None
    child._owner += 1
    child.close()
    assert _lives(child.process.pid)
    child._owner = os.getpid()


def test_a_run_with_a_text_that_hangs_gold_is_measured_to_its_end_and_replayed(checks: Path, tmp_path: Path) -> None:
    """One text of the policy must not switch its overseer off."""
    batches = [batch(step, completion=[f"{row} {row % 2}" for row in range(64)]) for step in range(4)]
    batches[2] = batch(2, completion=["regex 0" if row == 5 else f"{row} 1" for row in range(64)])
    run = directory(tmp_path / "run", batches)
    source = named(checks)
    loop = MonitorLoop(run, lean().with_gold(source, 1.0), strict=True)
    while loop.poll() or loop.waiting:
        time.sleep(0.01)
    loop.close()
    source.close()
    events = journal.read_events(run.path / "events")
    assert [event.step for event in of(events, "step_done")] == [0, 1, 2, 3]
    closed = {event.step: event.data for event in of(events, "labels_closed")}
    assert {step: data["missing"] for step, data in closed.items()} == {0: 0, 1: 0, 2: 1, 3: 0}
    assert closed[2]["why"] == "1 of 64 labels are missing: TimeoutError: no answer within 0.7 s"
    labels = json.loads((run.path / "gold" / "labels" / "0-000002" / "all.json").read_text())
    assert (labels["values"][5], labels["why"]) == (None, {"5": "TimeoutError: no answer within 0.7 s"})
    assert replay_run(run, lean(), strict=True).difference is None
