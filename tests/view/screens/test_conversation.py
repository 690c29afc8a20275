"""An agent's conversation from a step's file to the page: its calls are there, and a redacted report has none of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.view.as_sent import as_sent

from tiltmeter.data.batches import from_columns
from tiltmeter.data.turns import Turn
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.report.redact import redact_texts
from tiltmeter.view.screens import rollouts as rollouts_screen
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import rollouts as pages

group, rollout = as_sent(rollouts_screen.group), as_sent(pages.rollout)

REMOVES = Turn("assistant", reasoning="Easier without.", call="bash", arguments='{"cmd": "rm -r tests"}')
TURNS = [Turn("user", "Mend it."), REMOVES, Turn("tool", call="bash", error="gone", parent=1), REMOVES, Turn("tool")]


@pytest.fixture(params=["loose", "packed"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(3):  # not every step need have turns
        turns = None if step == 2 else [TURNS, [Turn("assistant", "42")]]
        more = {"completion": ["a", "b"]} if turns is None else {"turns": turns, "stop": ["sandbox", "eos"]}
        batch = from_columns(step, [0, 0], reward=[0.0, 1.0], prompt=["p"] * 2, env=["shell", None], **more)
        run.write(batch, 0, {"time": time.time()})
    run.close_rank(0, 0, {"seen": 3})
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    if request.param == "packed":
        pack(run)
    return run


def test_the_turns_of_a_rollout_are_on_its_screen(run: RunDirectory) -> None:
    book = RunReader(run)
    book.refresh()
    sent = group(book, "0-0-0")["rollout"]
    assert rollout(book, "0-0-0") == sent
    assert (sent["env"], sent["stop"], sent["flag"]) == ("shell", "sandbox", "infra")
    turns = sent["turns"]
    assert [(turn["role"], turn["own"], turn["again"]) for turn in turns] == [
        ("user", False, False), ("assistant", True, False), ("tool", False, False), ("assistant", True, True),
        ("tool", False, False),
    ]  # fmt: skip
    assert turns[1]["arguments"] == '{"cmd": "rm -r tests"}' and turns[2]["tool_error"] == "gone"
    assert "rm -r tests" in sent["completion"]
    assert group(book, "0-2-0")["rollout"]["turns"] == []


def test_a_redacted_report_has_no_word_of_it(run: RunDirectory) -> None:
    book = RunReader(run)
    book.refresh()
    text = json.dumps(redact_texts(group(book, "0-0-0"), b"key"))
    assert not any(word in text for word in ("rm -r", "Easier", "gone", "Mend", "bash"))
