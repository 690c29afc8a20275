"""Slices side by side: the worst first, at most twelve, names encoded; the same in the terminal and on the page."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tiltmeter.cli.terminal.run_screen import as_json, plain, screen
from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.payloads.encode import plain as as_plain
from tiltmeter.view.screens.alarms import alarm, alarms
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.slices import slice_tables
from tiltmeter.view.screens.summary import summary

HOSTILE = "\x1b]0;x\x07<script>\u202e"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Sixteen environments, of which one pays for what gold does not want; a task that is paid for from step 20 on."""
    run = RunDirectory.create(tmp_path_factory.mktemp("slices") / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    names = [HOSTILE, "bad", *(f"env{number}" for number in range(14))]
    for step in range(26):
        rng = np.random.default_rng(step)
        gold = np.tile([0.0, 1.0, 0.0, 1.0], 20)
        group = np.arange(80) // 4
        env = [names[1] if number >= 16 else names[number] for number in group]
        reward = np.where(np.array(env) == "bad", 1.0 - gold, gold) * rng.choice([0.9, 1.0], 80)
        task = [f"{HOSTILE} {number}" if number < 2 else None for number in group]
        reward[:4] = 0.0 if step < 20 else 1.0
        run.write(from_columns(step, group, reward=reward, gold=gold, env=env, task=task), 0, {})
    config = Config.standard()
    few = tuple(part for part in config.instruments if part.name in ("reward.mean", "gold.mean", "gold.slope"))
    loop = MonitorLoop(run, Config(few, (), config.detectors[:1]), strict=True)
    loop.poll()
    loop.close()
    return run


def test_the_page_lists_the_named_slice_first_and_no_more_than_twelve(run: RunDirectory) -> None:
    reader = RunReader(run)
    tables = summary(reader).slices
    assert (tables.slices[0].name, tables.slices[0].rollouts, len(tables.slices)) == ("bad", 520, 12)
    assert tables.slices[0].since == 0 and tables.slices[1].since is None
    assert tables.slices_left_out == 4
    evidence = [row.evidence for row in tables.slices]
    assert None not in evidence and evidence == sorted(evidence, key=lambda odds: -(odds or 0.0))
    assert [(row.step, row.share) for row in tables.solved] == [(20, 1.0)]
    json.dumps(as_plain(tables), allow_nan=False)


def test_its_alarm_has_a_curve_that_ends_above_the_threshold_and_the_reading_of_the_slice(run: RunDirectory) -> None:
    reader = RunReader(run)
    (row,) = [one for one in alarms(reader).rows if one.name == "env.bad.gold.slope"]
    detail = alarm(reader, row.id)
    assert detail is not None and detail.evidence.odds[-1] >= detail.evidence.threshold
    assert detail.readings.lines and row.status == "open"


def test_the_terminal_shows_the_same_and_nothing_that_acts_on_it(run: RunDirectory) -> None:
    verdict, run_facts, events = judge_run(run)
    tables = summary(RunReader(run)).slices
    shown = json.loads(as_json(run, verdict, run_facts, events))["slices"]
    assert shown["slices"] == as_plain(tables)["slices"]
    console = Console(width=100, record=True, file=StringIO())
    console.print(screen(run, verdict, run_facts, events))
    for text in (console.export_text(), "\n".join(plain(run, verdict, run_facts, events))):
        assert "bad" in text and "and 4 others" in text and "solvable overnight" in text
        assert "\x1b]" not in text and "<script>" not in text and "\u202e" not in text
    assert "Alarm: in environment bad the reward pushes gold down" in verdict.sentence


def test_a_name_in_a_foreign_journal_is_encoded_too(run: RunDirectory) -> None:
    run_facts = RunFacts()
    row = [0.5, 2, None, [0.5, 0.5], "", [4, 4], [[HOSTILE, 1], ["b" * 500, 1]]]
    run_facts.slices.add(0, 0, {"slices.reward.mean": row})
    tables = slice_tables(run_facts, {})
    assert [row.evidence for row in tables.slices] == [None, None] and len(tables.slices[1].name) < 130
    lines = list(plain(run, judge_run(run)[0], run_facts, []))
    assert not [line for line in lines if "\x1b" in line or "\u202e" in line]


def test_one_slice_is_no_table(tmp_path: Path) -> None:
    run_facts = RunFacts()
    run_facts.slices.add(0, 0, {"slices.reward.mean": [0.5, 1, None, [0.5], "", [4], [["only", 1]]]})
    assert slice_tables(run_facts, {}).slices == []
