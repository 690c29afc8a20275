"""Edits of completions, scored by the user's reward, decide which of several findings comes first."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Finding, Reading
from tiltmeter.diagnosis import Diagnosis, experiment
from tiltmeter.diagnosis.cases import parse_series
from tiltmeter.diagnosis.experiments import drop_opening, edit_outcome, strip_form
from tiltmeter.errors import ContractError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory

SERIES = {
    "text.hedging": "0 x20, 0..0.8 x80 ~0.02",
    "length.mean": "40 x20 ~1, 40..90 x80 ~1",
    "length.slope": "1 x100 ~0.1",
    "length.gain_share": "none x30, 0.8 x70 ~0.05",
    "reward.mean": "0.3 x20 ~0.02, 0.3..0.9 x80 ~0.02",
}


def ranking(**edits: bool | None) -> list[Finding]:
    lines = {name: parse_series(notation, place) for place, (name, notation) in enumerate(SERIES.items())}
    diagnosis = Diagnosis()
    for step in range(100):
        if step == 80:
            for failure, is_paid in edits.items():
                diagnosis.add_experiment(failure, is_paid)
        found = [Reading(0, step, name, line[step], 64) for name, line in lines.items() if line[step] == line[step]]
        diagnosis.update(0, step, found, [])
    return list(diagnosis.standing)


def test_edits_decide_which_of_two_findings_comes_first() -> None:
    plain = ranking()
    assert [one.failure for one in plain] == ["hedging", "length_hacking"]
    for edits in ({"hedging": False, "length_hacking": True}, {"length_hacking": True}, {"hedging": False}):
        decided = ranking(**edits)
        assert [one.failure for one in decided] == ["length_hacking", "hedging"], edits
        assert all(one.confidence < 0.4 for one in decided), "an edit shows what is paid, not that it does harm"
    both = ranking(hedging=True, length_hacking=True)
    assert [one.failure for one in both] == ["hedging", "length_hacking"]
    assert both[0].confidence > plain[0].confidence
    assert [one.failure for one in ranking(hedging=None)] == ["hedging", "length_hacking"]


@pytest.mark.parametrize(
    ("facts", "is_paid"),
    [
        ({"reward": {"low": 0.2, "n": 4}}, True),
        ({"reward": {"low": -0.2, "n": 32}}, False),
        ({"reward": {"low": -0.2, "n": 4}}, None),  # too few pairs to speak against anything
        ({"reward": {"low": 0.2, "n": 32}, "gold": {"low": 0.1}}, False),
        ({"reward": {"low": 0.2, "n": 32}, "gold": {"low": float("nan")}}, True),
        ({"reward": {"low": None, "n": 32}}, None),
        ({"sentence": "the experiment failed: ValueError"}, None),
    ],
)
def test_an_outcome_is_paid_unpaid_or_open(facts: dict[str, object], is_paid: bool | None) -> None:
    assert edit_outcome(facts) is is_paid


def test_hedges_forms_and_openings_are_taken_out() -> None:
    prompts = [f"what is {number} ?" for number in range(20)]
    hedged = [f"Perhaps it might be {number}. It is {number}." for number in range(20)]
    paid = experiment(
        "drop_hedges",
        prompts,
        hedged,
        lambda p, c: [float("erhaps" in text) for text in c],
        phrases=["perhaps", "might"],
    )
    assert paid.confirmed and paid.sentence.startswith("taking the hedges out loses 1 [1, 1] of reward")
    with pytest.raises(ContractError, match="needs phrases="):
        experiment("drop_hedges", prompts, hedged, lambda p, c: [0.0] * len(c))
    marked = [f"## Sum\n- **it** is {number}" for number in range(20)]
    form = experiment("strip_form", prompts, marked, lambda p, c: [float("**" in text) for text in c])
    assert form.confirmed and "the reward pays for form" in form.sentence
    assert drop_opening("Only this.") == "Only this." and drop_opening("") == ""
    begun = time.process_time()
    for hostile in ("\n" * 100_000, "|" * 100_000, " " * 100_000 + "#", "*" * 100_000, "```" * 30_000):
        strip_form(hostile), drop_opening(hostile)
    assert time.process_time() - begun < 2.0


def pays_for_words(completion: str) -> float:
    return sum(word != "Perhaps" for word in completion.split()) / 20


def test_the_monitor_ranks_by_the_edits_and_remembers_it_after_a_restart(tmp_path: Path) -> None:
    pick, rng = random.Random(0), np.random.default_rng(0)
    words = [a + b for a in "bdfgklmnprst" for b in ("an", "el", "ir", "on", "us", "at")]
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="edits", ranks=1, resume_step=None)
    loop = MonitorLoop(run, Config.standard(), reward=FunctionSource("mine.py:pays_for_words", pays_for_words))
    for step in range(60):
        share, texts = float(np.interp(step, [15, 45], [0.0, 0.9])), []
        for _ in range(32):
            sentences = [" ".join(pick.choices(words, k=pick.randint(5, 11))) + "." for _ in range(3)]
            if rng.random() < share:
                sentences = ["Perhaps " + one for one in sentences] + [
                    " ".join(pick.choices(words, k=pick.randint(5, 11))) + "." for _ in range(4)
                ]
            texts.append(" ".join(sentences))
        columns = {"completion": texts, "prompt": [f"question {row // 4}" for row in range(32)]}
        reward = [pays_for_words(text) for text in texts]
        batch = from_columns(
            step, np.arange(32) // 4, attempt=0, reward=reward, length=[len(text.split()) for text in texts], **columns
        )
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": 0.0})
        loop.poll()
        time.sleep(0.02)  # an experiment runs in a thread of its own
    standing = loop.advisor.diagnosis.standing
    loop.close()
    assert [one.failure for one in standing][:2] == ["length_hacking", "hedging"]
    again = MonitorLoop(run, Config.standard())
    assert [(one.failure, one.confidence) for one in again.advisor.diagnosis.standing] == [
        (one.failure, one.confidence) for one in standing
    ]
    again.close()
