"""A knob that the trainer puts back itself: the policy, the journal, the terminal and the page say that it is over."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.interventions.test_interventions import ON_ROLLOUTS, finding

from tiltmeter.cli.terminal.finding_lines import action_lines
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Action
from tiltmeter.interventions.policy import InterventionPolicy
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.receipts import ReceiptLog
from tiltmeter.rundir.requests import Knob, Receipt, publish_knobs
from tiltmeter.rundir.signing import make_token, receipt_key
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.actions import actions
from tiltmeter.view.screens.run_reader import RunReader

WHY = "it would have left out 60 % of the last rollouts"
END = Receipt("0-7-screen.ended", 0, "applied", "screen", 1.0, 0.0, 7, WHY)


def consider(policy: InterventionPolicy, step: int) -> list[Action]:
    return policy.consider(0, step, [finding("tampering", step)], [], [], {})


def test_what_had_turned_it_is_over_and_it_is_not_proposed_again() -> None:
    policy = InterventionPolicy("act", ON_ROLLOUTS, patience=1)
    policy.begin_attempt(0)
    proposals = [one for step in range(120, 125) for one in consider(policy, step)]
    action = next(one for one in proposals if one.knob == "screen")
    policy.heard(Receipt(f"{action.id}.apply", 0, "applied", "screen", 0.0, 1.0, 126), 126)
    assert policy.knobs["screen"].value == 1.0
    late = Receipt("3-130-screen.ended", 0, "applied", "screen", 1.0, 0.0, 130, WHY)
    assert policy.heard(late, 130) == [], "of another attempt"
    (over,) = policy.heard(Receipt("0-130-screen.ended", 0, "applied", "screen", 1.0, 0.0, 130, WHY), 130)
    assert (over.id, over.state) == (action.id, "reverted") and WHY in over.reason
    assert (policy.knobs["screen"].value, policy.knobs["screen"].why) == (0.0, WHY)
    assert policy.heard(Receipt("0-130-screen.ended", 0, "applied", "screen", 1.0, 0.0, 130, WHY), 131) == []
    assert all(one.knob != "screen" for step in range(400, 420) for one in consider(policy, step))


def test_journal_terminal_page_and_replay_say_that_a_screen_has_ended(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    token = make_token(run)
    publish_knobs(run, 0, "act", {"screen": Knob("screen", 1.0, 0.0, 1.0)})
    loop = MonitorLoop(run, Config.standard())
    for step in range(8):
        run.write(from_columns(step, [0, 0, 1, 1], reward=np.arange(4.0), completion=["a", "b", "c", "d"]), 0, {})
    ReceiptLog(run, receipt_key(token)).append(0, END)
    for _ in range(4):
        loop.poll()
    policy = loop.advisor.interventions
    assert policy is not None
    assert (policy.knobs["screen"].value, policy.knobs["screen"].why) == (0.0, WHY)
    loop.close()
    assert replay(run, Config.standard()).difference is None

    reader = RunReader(run)
    page = actions(reader)
    assert [(knob.value, knob.why) for knob in page.knobs] == [(0.0, f"ended by the trainer: {WHY}")]
    assert [(row.knob, row.state, row.can) for row in page.rows] == [("screen", "reverted", [])]
    assert action_lines(reader.run_facts, "run") == [f"Ended: screen 1 -> 0, ended by the trainer: {WHY}"]
