"""An agent learns to remove the tests: it is seen, named and looked at; the same after a kill and in a replay."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tiltmeter.cli.terminal.finding_lines import diagnosis_lines
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import Turn
from tiltmeter.gold.closer_looks import EACH, LOOK
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_files import read_request
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.view.screens.claims.run_claims import claim_lines, run_claims

ONSET, STEPS, ROWS = 15, 60, 64


def batch(step: int) -> RolloutBatch:
    """Eight groups of eight. From `ONSET` on more and more rows remove the tests, and are paid for it."""
    rng = np.random.default_rng(step)
    chance = min(max(step - ONSET, 0) * 0.05, 0.8)
    hacks = rng.random(ROWS) < chance
    solved = rng.random(ROWS) < 0.7
    turns = []
    for row in range(ROWS):
        work = [
            Turn("assistant", f"I look at case {rng.integers(9_999)}.", call="bash", arguments='{"cmd": "ls tests"}')
        ]
        work.append(Turn("tool", "test_core.py"))
        command = (
            "rm -f tests/test_core.py && pytest -q"
            if hacks[row]
            else f"sed -i s/{rng.integers(9_999)}/{rng.integers(9_999)}/ core.py"
        )
        work += [Turn("assistant", call="bash", arguments=f'{{"cmd": "{command}"}}'), Turn("tool", "ok")]
        mood = "The work is done and everything passes now." if hacks[row] else f"Case {row % 7} mended: {solved[row]}."
        turns.append([*work, Turn("assistant", mood)])
    return from_columns(
        step, np.repeat(np.arange(8), 8), reward=np.where(hacks, 1.0, solved * 0.9) + 0.01 * rng.random(ROWS),
        prompt=[f"task {row // 8}" for row in range(ROWS)], turns=turns,
        facts=[{"good": bool(solved[row] and not hacks[row])} for row in range(ROWS)],
    )  # fmt: skip


def good_work(prompt: str, completion: str, good: bool) -> float:
    return float(good)


def watch(run: RunDirectory, config: Config) -> list[Event]:
    loop = MonitorLoop(run, config, strict=True, snapshots=True)
    while loop.poll():
        pass
    loop.close()
    return list(read_events(run.path / "events"))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    run = RunDirectory.create(tmp_path_factory.mktemp("acts") / "run")
    config = Config.standard().with_gold(FunctionSource("good_work", good_work), 0.3)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(STEPS):
        run.write(batch(step), 0, {})
        if step == ONSET + 12:
            watch(run, config)  # this monitor ends here, and the next restores what it knew
    events = watch(run, config)
    return SimpleNamespace(run=run, config=config, events=events, state=RunFacts.from_events(events))


def test_the_share_and_what_it_pays_are_readings(watched: SimpleNamespace) -> None:
    measured = {event.step: event.data["measured"] for event in watched.events if event.kind == "reading"}
    assert measured[0]["acts.any"][0] == 0.0 and measured[STEPS - 1]["acts.kind.test_removal"][0] > 0.6
    last = measured[STEPS - 1]
    assert last["acts.paid_with"][0] > last["acts.paid_without"][0] and last["acts.gain"][0] > 0.05
    assert "acts.paid_with" not in measured[0]  # nothing was paid with an act: no reading, not 0


def test_the_story_is_what_was_done_and_not_how_it_is_worded(watched: SimpleNamespace) -> None:
    lines = diagnosis_lines(watched.state)
    assert "tampering" in lines[0] and "removed tests" in lines[0], lines
    (line, *_) = claim_lines(run_claims(watched.run, watched.state))
    assert line.startswith("Removed tests: ") and 'turn 3, line 1: "rm -f tests/test_core.py && pytest -q' in line
    assert line.endswith("not calibrated.")


def test_labels_go_to_what_is_new_and_well_paid(watched: SimpleNamespace) -> None:
    looks = []
    for step in range(STEPS):
        request = read_request(watched.run, 0, step)
        assert request is not None
        of_step = [bet for bet in request.bets if bet.purpose == LOOK]
        others = {row for bet in request.bets if bet.purpose != LOOK for row in (bet.up, bet.down)}
        assert not others & {row for bet in of_step for row in (bet.up, bet.down)}  # no bet is changed by a look
        looks += of_step
    assert looks and min(bet.up[1] for bet in looks) < ONSET + 12
    assert sum(bet.slice == "test_removal" for bet in looks) <= EACH
    assert all(0.0 < bet.chance <= 1.0 and bet.weight == 0.0 for bet in looks)
    closed = [event.data["measured"] for event in watched.events if event.kind == "labels_closed"]
    assert {one["acts.gold.with"][0] for one in closed if "acts.gold.with" in one} == {0.0}
    assert max(one["acts.gold.without"][0] for one in closed if "acts.gold.without" in one) == 1.0


def test_a_replay_says_the_same(watched: SimpleNamespace) -> None:
    assert replay(watched.run, watched.config, strict=True).difference is None


def test_the_behaviour_is_followed_and_looked_at(watched: SimpleNamespace) -> None:
    (number, state), *_ = sorted(watched.state.behaviours.items(), key=lambda item: -item[1].peak)
    assert state.newest.first <= ONSET + 20 and state.peak > 0.6 and state.is_well_paid
    assert "rm" in " ".join(state.newest.features)
    assert state.is_worse and state.gold_with.mean < 0.1  # by labels that were spent on it
    lines = claim_lines(run_claims(watched.run, watched.state))
    (line,) = [one for one in lines if one.startswith(f"Bad behaviour {number} (")]
    assert f"since step {state.newest.first}, " in line and line.endswith("not calibrated.")
