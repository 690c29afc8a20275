"""`tiltmeter.attach` on two real processes whose prompt groups are split: what arrives, and that ranks act together."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.batches import join
from tiltmeter.rundir.evaluations import Evaluation, read_evaluations
from tiltmeter.rundir.receipts import read_receipts
from tiltmeter.rundir.requests import Receipt
from tiltmeter.rundir.step_files import read_step_files
from tiltmeter.rundir.store import RunDirectory

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
PROGRAM = Path(__file__).with_name("trl_ranks.py")
STEPS, ASKED_AT = 6, 2  # as in the program: asked after this step, heard at the end of the next
RANKS = (0, 1)


@dataclass
class Told:
    """What both ranks of every situation saw, and the folder with their run directories."""

    folder: Path
    ranks: list[dict[str, Any]]
    error: str

    def __getitem__(self, situation: str) -> list[dict[str, Any]]:
        lacking = [rank for rank in RANKS if situation not in self.ranks[rank]]
        assert not lacking, f"{situation}: ranks {lacking} did not come to its end\n{self.error}"
        return [self.ranks[rank][situation] for rank in RANKS]

    def run(self, situation: str) -> RunDirectory:
        return RunDirectory(self.folder / situation / "tiltmeter")

    def receipts(self, situation: str) -> list[Receipt]:
        run = self.run(situation)
        [token] = (self.folder / "tiltmeter").glob(f"{run.identity()['id']}.token")
        found, refused = read_receipts(run, set(), token.read_bytes())
        assert not refused
        return found


@pytest.fixture(scope="module")
def told(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """All situations in one start of two processes: importing TRL takes longer than training."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "checks.py").write_text("def score(prompt, completion): return int(prompt.split()[2]) / 16\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "XDG_STATE_HOME": str(folder)}
    program = subprocess.Popen(
        [*command, str(PROGRAM), str(tiny_model), str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        _, error = program.communicate(timeout=600)
    except subprocess.TimeoutExpired:
        # Ranks that wait for each other never end. What came before is judged all the same.
        program.terminate()  # it ends its ranks, which a kill would leave behind
        _, error = program.communicate()
    lacking = [rank for rank in RANKS if not (folder / f"{rank}.json").exists()]
    assert not lacking, f"ranks {lacking} wrote nothing\n{error[-3000:]}"
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in RANKS]
    return Told(folder, ranks, error[-3000:])


@pytest.mark.parametrize("situation", ["observe", "advise", "act"])
def test_two_ranks_train_as_if_unwatched(told: Told, situation: str) -> None:
    """In act mode too, as long as nobody asks for anything."""
    plain, watched = told["plain"], told[situation]
    assert plain[0]["parameters"] == plain[1]["parameters"]
    assert [rank["parameters"] for rank in watched] == [rank["parameters"] for rank in plain]
    assert [rank["counters"]["written"] for rank in watched] == [STEPS, STEPS]


def test_anchors_are_shared_out_over_ranks_and_training_is_the_same(told: Told) -> None:
    """Gold is a number in the prompt: each of the nine has its own, and two answers."""
    assert [rank["parameters"] for rank in told["anchors"]] == [rank["parameters"] for rank in told["plain"]]
    first, second = read_evaluations(told.run("anchors"), set())[0]
    assert isinstance(first, Evaluation) and isinstance(second, Evaluation)
    assert (first.step, first.n, first.unknown) == (1, 18, 0)
    assert (second.step, second.n, second.value) == (4, 18, first.value), "the same prompts"
    draw = np.random.default_rng(0).choice(16, 16, replace=False)[:9]
    assert first.value == pytest.approx(float(draw.mean()) / 16)


def test_a_group_that_is_split_over_ranks_is_whole_for_who_measures(told: Told) -> None:
    run = told.run("advise")
    files = run.files(0)
    assert sorted({file.step for file in files}) == list(range(1, STEPS + 1))
    for step in range(1, STEPS + 1):
        read = read_step_files(run, [file for file in files if file.step == step])
        assert [len(batch) for batch in read.batches] == [2, 2]
        batch = join(read.batches, shared_groups=read.shared)
        assert batch.group.tolist() == [0] * 4
        assert batch.prompt is not None and len(set(batch.prompt)) == 1
        assert batch.advantage is not None and batch.logprob is not None
        # An advantage is taken within the whole group; half of one would not sum to zero.
        np.testing.assert_allclose(batch.advantage.sum(), 0.0, atol=1e-4)


def test_the_parts_of_a_reward_stand_beside_their_own_rows_and_ranks_learn_the_same(told: Told) -> None:
    run = told.run("parts")
    files, multiplier = run.files(0), 0.0
    for step in range(1, STEPS + 1):
        read = read_step_files(run, [file for file in files if file.step == step])
        batch = join(read.batches, shared_groups=read.shared)
        assert batch.completion is not None and batch.reward is not None
        lengths = [len(text or "") / 50 for text in batch.completion]
        for part in ("objective", "long"):
            np.testing.assert_allclose(batch.rewards[part], lengths, rtol=1e-6)
        np.testing.assert_allclose(batch.reward, lengths, rtol=1e-5)
        multiplier = max(0.0, multiplier + 0.1 * (1.0 - float(np.mean(lengths))))  # of the rows of both
    states = [rank["state"]["rule"]["multipliers"]["long"] for rank in told["parts"]]
    assert states[0] == states[1] == pytest.approx(multiplier, rel=1e-5)


def test_only_act_mode_talks_and_once_per_step(told: Told) -> None:
    plain = [rank["collectives"] for rank in told["plain"]]
    for situation in ("observe", "advise"):
        assert [rank["collectives"] for rank in told[situation]] == plain
    for rank, alone in zip(told["act"], plain, strict=True):
        added = {name: n - alone.get(name, 0) for name, n in rank["collectives"].items() if n != alone.get(name, 0)}
        assert added == {"broadcast_object_list": STEPS}


def test_a_change_that_a_person_approved_is_refused_where_ranks_cannot_agree(told: Told) -> None:
    (receipt,) = told.receipts("advise")
    assert (receipt.state, receipt.rank, receipt.knob) == ("refused", 0, "beta")
    assert "act='act'" in receipt.why
    assert [rank["beta"] for rank in told["advise"]] == [0.04, 0.04]


def test_every_rank_changes_a_knob_at_the_same_step_and_says_so(told: Told) -> None:
    both = told["beta"]
    assert [rank["beta"] for rank in both] == [0.09, 0.09]
    assert both[0]["parameters"] == both[1]["parameters"] != told["plain"][0]["parameters"]
    found = told.receipts("beta")
    assert [(r.rank, r.state, r.step) for r in found] == [(0, "applied", 3), (1, "applied", 3)]
    assert all(r.before == 0.04 and r.after == 0.09 for r in found)


def test_a_stop_ends_every_rank_at_the_same_step(told: Told) -> None:
    assert [rank["steps"] for rank in told["stop"]] == [ASKED_AT + 1] * 2
    assert [(r.rank, r.state) for r in told.receipts("stop")] == [(0, "applied"), (1, "applied")]
    assert (told.folder / "stop" / f"checkpoint-{ASKED_AT + 1}").is_dir()


def test_a_receipt_that_one_rank_cannot_write_does_not_part_them(told: Told) -> None:
    both = told["lost receipt"]
    assert [rank["steps"] for rank in both] == [STEPS, STEPS]
    for knob in ("beta", "learning_rate"):
        assert both[0][knob] == both[1][knob]
    assert both[0]["parameters"] == both[1]["parameters"]


def test_requests_that_cannot_be_read_do_not_leave_the_others_waiting(told: Told) -> None:
    both = told["unreadable requests"]
    assert [rank["steps"] for rank in both] == [STEPS, STEPS]
    assert [rank["parameters"] for rank in both] == [rank["parameters"] for rank in told["plain"]]
