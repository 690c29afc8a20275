"""`attach(gold=...)` on trainers without rollouts: what they save is asked by another process and judged."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import tiltmeter as command_line

import tiltmeter
from tiltmeter.errors import AttachError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.checkpoints.sampling import is_sampling, read_sampling
from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]
SAVES = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
PATIENCE = 900.0  # seconds: a process that gives way to all others is slow on a busy machine
QUESTIONS = [f"what is {at} plus 3" for at in range(48)]


def tell(prompt: str, completion: str) -> float:
    return min(len(completion), 20) / 20


def watched(trainer: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        return tiltmeter.attach(trainer, gold=tiltmeter.Gold(tell, **options), options=tiltmeter.Options(strict=True))


def weights(trainer: Any) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.usefixtures("unmeasured")
def test_dpo_is_judged_at_each_save_and_trains_as_it_would_without(make_trainer: Make) -> None:
    plain = make_trainer("DPO", name="plain", **SAVES)
    plain.train()
    trainer = make_trainer("DPO", **SAVES)
    attached = watched(trainer, prompts=QUESTIONS, sampling={"prompts": 40, "tokens": 6})
    process = attached._callback.sampler._process.pid
    # Ctrl-C does not reach it, and it is nicer than training where the cores are shared by session.
    assert os.getpgid(process) == process and os.getsid(process) == os.getsid(0)
    trainer.train()
    run = RunDirectory(attached.directory)
    assert weights(trainer) == weights(plain)
    deadline = time.monotonic() + PATIENCE
    while is_sampling(run):
        assert time.monotonic() < deadline, (run.path / "monitor.log").read_text()
        time.sleep(0.2)
    assert [path.name for path in sorted((run.path / "evals").iterdir())] == [
        f"0-{step:06d}-checkpoint_gold.json" for step in (0, 2, 4)
    ]
    loop = MonitorLoop(run, Config.standard(), strict=True)
    while loop.poll():
        pass
    loop.close()
    verdict, run_facts, _ = judge_run(run)
    assert verdict.state == "OK", verdict.sentence
    assert "3 checkpoints asked the same 40 questions, judged by the function tell" in verdict.sentence
    assert run_facts.checkpoints.missed == 0
    assert [name for name in strange_files(run) if "control/checkpoints" not in name and "pieces" not in name] == []
    assert len(list((run.path / "pinned").iterdir())) == 3  # for the page: what each says
    shown = command_line("model", "trail", str(trainer.args.output_dir), "--json")
    told = json.loads(shown.stdout)
    assert [one["name"] for one in told["checkpoints"]] == ["base", "checkpoint-2", "checkpoint-4"]
    means = [float(np.nanmean(point.gold)) for point in run_facts.checkpoints.points]
    assert [one["mean"] for one in told["checkpoints"]] == pytest.approx(means)  # the same answers, not new ones


@pytest.mark.parametrize("kind", ["DPO", "IPO", "KTO", "SFT", "Reward"])
def test_every_trainer_without_rollouts_has_a_verdict(make_trainer: Make, kind: str) -> None:
    loss = {"loss_type": "ipo"} if kind == "IPO" else {}
    trainer = make_trainer(kind.replace("IPO", "DPO"), **SAVES, **loss)
    more = {} if kind == "Reward" else {"prompts": QUESTIONS}
    attached = watched(trainer, sampling={"tokens": 6, "prompts": 40}, **more)
    trainer.train()
    verdict = attached.verdict(PATIENCE)
    if kind == "Reward":  # two checkpoints, and the trainer's sixteen pairs
        assert "2 checkpoints asked the same 16 questions" in verdict.checks["gold"].why, verdict.sentence
    else:
        assert verdict.state == "OK", verdict.sentence


def test_a_checkpoint_that_is_deleted_at_once_is_counted(make_trainer: Make) -> None:
    trainer = make_trainer("DPO", **{**SAVES, "max_steps": 8, "save_total_limit": 1})
    attached = watched(trainer, prompts=QUESTIONS, sampling={"prompts": 40, "tokens": 4})
    trainer.train()
    verdict = attached.verdict(PATIENCE)
    _, run_facts, _ = judge_run(RunDirectory(attached.directory))
    assert len(run_facts.checkpoints.points) + run_facts.checkpoints.missed == 5  # four saves, and the base
    assert run_facts.checkpoints.missed == 3, verdict.sentence  # only the last was there when it looked


@pytest.mark.usefixtures("unmeasured", "unsampled")
def test_what_is_asked_comes_from_the_dataset_or_the_user_and_a_resumed_run_goes_on_with_it(make_trainer: Make) -> None:
    trainer = make_trainer("DPO", **SAVES)
    first = RunDirectory(watched(trainer).directory)
    sampling = read_sampling(first, 0)
    assert len(sampling.rows) == 16 and sampling.source == "that are trained on" and sampling.plain
    assert {"prompt", "chosen", "rejected"} == set(sampling.rows[0])
    assert Path(sampling.base).is_dir() and sampling.gold.endswith(".py:tell")
    trainer.train()
    same = watched(make_trainer("DPO", **SAVES))
    assert read_sampling(RunDirectory(same.directory), 1).name == "checkpoint_gold"
    same.close()
    other = make_trainer("DPO", **SAVES)
    later = read_sampling(RunDirectory(watched(other, prompts=QUESTIONS).directory), 2)
    assert later.name == "checkpoint_gold_2" and {row["prompt"] for row in later.rows} == set(QUESTIONS)


@pytest.fixture
def unsampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what is left for the process: it is not started."""
    monkeypatch.setattr("tiltmeter.adapters.trl.checkpoint_sampling.CheckpointSampler._start", lambda self: None)


@pytest.mark.usefixtures("unmeasured", "unsampled")
def test_what_cannot_be_judged_is_refused_with_the_fix(make_trainer: Make, tmp_path: Path) -> None:
    with pytest.raises(AttachError, match='saves nothing: set save_strategy="steps"'):
        watched(make_trainer("DPO"))
    with pytest.raises(AttachError, match=r"nothing says what to ask: the rows have .*text"):
        watched(make_trainer("SFT", **SAVES))
    with pytest.raises(AttachError, match="it may have prompts, answers, tokens, device, seed"):
        watched(make_trainer("DPO", name="second", **SAVES), sampling={"temperature": 1})
    with pytest.raises(AttachError, match="cannot judge checkpoints"):
        tiltmeter.attach(make_trainer("DPO", name="third", **SAVES), gold="people")
    with pytest.raises(AttachError, match="is for gold on a trainer that makes no rollouts"):
        tiltmeter.attach(make_trainer("DPO", name="fourth", **SAVES), gold=tiltmeter.Gold(prompts=QUESTIONS))
    assert not (tmp_path / "out" / "tiltmeter").exists()
