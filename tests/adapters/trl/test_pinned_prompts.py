"""Pinned prompts of real TRL evaluations and of saved checkpoints: what is kept, and that training does not change."""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from tests.view.as_sent import as_sent
from typer.testing import CliRunner

import tiltmeter
from tiltmeter.errors import AttachError
from tiltmeter.rundir.pinned_prompts import PinnedSnapshot, list_snapshots, read_snapshot
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens import pinned_prompts as pinned_prompts_screen
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter_workbench.verbs.run.pin import pin

pinned = as_sent(pinned_prompts_screen.pinned)

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]
EVALUATED: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}


def long(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 50 for text in completions]


def attached(trainer: Any, **options: Any) -> Any:
    """Attach where what is said about missing gold is not the point."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        return tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True), **options)


def looks(run: Any) -> list[PinnedSnapshot]:
    directory = run if isinstance(run, Path) else run.directory
    return [read_snapshot(place) for place in list_snapshots(RunDirectory(directory))]


def heard(trainer: Any) -> list[tuple[bool, int, str, str]]:
    """What TRL hands to its reward functions, as they see it: evaluating or not, step, prompt, completion."""
    told: list[tuple[bool, int, str, str]] = []
    inner = trainer._calculate_rewards

    def calculate(inputs: Any, prompts: Any, completions: Any, ids: Any) -> Any:
        rows = zip(prompts, completions, strict=True)
        told.extend((not trainer.model.training, trainer.state.global_step, p, c) for p, c in rows)
        return inner(inputs, prompts, completions, ids)

    trainer._calculate_rewards = calculate
    return told


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_each_evaluation_leaves_the_first_completion_of_each_of_its_prompts(make_trainer: Make, kind: str) -> None:
    trainer = make_trainer(kind, rewards=[long], eval_on_start=True, **EVALUATED)
    told = heard(trainer)
    run = attached(trainer)
    trainer.train()
    found = looks(run)
    assert [(look.attempt, look.step, look.source) for look in found] == [
        (0, 0, "evaluation"), (0, 2, "evaluation"), (0, 4, "evaluation"),
    ]  # fmt: skip
    for look in found:
        first: dict[str, str] = {}
        for evaluating, step, prompt, completion in told:
            if evaluating and step == look.step:
                first.setdefault(prompt, completion)
        assert {row.prompt: row.completion for row in look.rows} == first and len(first) == 4
        for row in look.rows:
            assert row.reward == pytest.approx(len(row.completion) / 50, rel=1e-6) and row.gold is None
    stored = RunDirectory(run.directory)
    assert [len(stored.read(file)[0]) for file in stored.files(0)] == [8, 8, 8, 8]


@pytest.mark.usefixtures("unmeasured")
def test_no_more_than_sixteen_prompts_are_kept_and_always_the_same(make_trainer: Make) -> None:
    from datasets import Dataset

    trainer = make_trainer(
        dataloader_persistent_workers=True, dataloader_num_workers=1, num_generations_eval=1, **EVALUATED
    )
    trainer.eval_dataset = Dataset.from_list([{"prompt": f"what is {i} plus 1", "answer": "0"} for i in range(24)])
    told = heard(trainer)
    run = attached(trainer)
    trainer.train()
    first, second = looks(run)
    orders = [[p for evaluating, at, p, _ in told if evaluating and at == step] for step in (2, 4)]
    assert orders[0] != orders[1], "a loader that lives on shuffles anew; else this test shows nothing"
    assert [row.prompt for row in first.rows] == orders[0][:16]
    assert {row.prompt for row in second.rows} == set(orders[0][:16])


@pytest.mark.usefixtures("unmeasured")
def test_of_several_evaluation_datasets_the_first_is_kept(make_trainer: Make) -> None:
    from datasets import Dataset

    trainer = make_trainer(**EVALUATED)
    rows = [{"prompt": f"what is {i} plus 1", "answer": "0"} for i in range(4)]
    trainer.eval_dataset = {"a": Dataset.from_list(rows[:2]), "b": Dataset.from_list(rows[2:])}
    run = attached(trainer)
    trainer.train()
    assert [sorted(row.prompt for row in look.rows) for look in looks(run)] == [
        ["what is 0 plus 1", "what is 1 plus 1"]
    ] * 2


@pytest.mark.usefixtures("unmeasured")
def test_chats_are_kept_as_what_was_said(make_trainer: Make) -> None:
    from datasets import Dataset

    trainer = make_trainer(max_steps=2, rewards=[lambda completions, **_: [1.0] * len(completions)], **EVALUATED)
    chats = [{"prompt": [{"role": "user", "content": f"what is {i}"}], "answer": "0"} for i in range(4)]
    trainer.eval_dataset = Dataset.from_list(chats)
    run = attached(trainer)
    trainer.train()
    (look,) = looks(run)
    assert sorted(row.prompt for row in look.rows) == [f"what is {i}" for i in range(4)]
    assert not any(row.completion.startswith("[{") for row in look.rows)


@pytest.mark.usefixtures("unmeasured")
def test_an_unknown_version_of_trl_leaves_them_too(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import trl

    async def later(completions: list[str], **_: Any) -> list[float]:
        return [0.5] * len(completions)

    monkeypatch.setattr(trl, "__version__", "9.9.0")
    trainer = make_trainer(rewards=[long, later], **EVALUATED)
    run = attached(trainer)
    trainer.train()
    assert [look.step for look in looks(run)] == [2, 4]
    for row in looks(run)[0].rows:
        assert row.reward == pytest.approx(len(row.completion) / 50 + 0.5)


@pytest.mark.usefixtures("unmeasured")
def test_training_does_not_change_by_a_bit_when_evaluations_are_kept(make_trainer: Make) -> None:
    digests = []
    for name in ("plain", "watched"):
        trainer = make_trainer(max_steps=12, name=name, **{**EVALUATED, "eval_steps": 3})
        run = attached(trainer) if name == "watched" else None
        trainer.train()
        digest = hashlib.sha256()
        for key, value in sorted(trainer.model.state_dict().items()):
            digest.update(key.encode() + value.detach().cpu().numpy().tobytes())
        digests.append((digest.hexdigest(), [entry.get("eval_reward") for entry in trainer.state.log_history]))
    assert digests[0] == digests[1]
    assert [look.step for look in looks(run)] == [3, 6, 9, 12]


@pytest.mark.usefixtures("unmeasured")
def test_what_cannot_be_stored_is_said_in_the_run_and_training_goes_on(make_trainer: Make) -> None:
    trainer = make_trainer(**EVALUATED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tiltmeter.attach(trainer)
    assert run.directory is not None
    (run.directory / "pinned").write_text("a file where the folder should be")
    trainer.train()
    assert trainer.state.global_step == 4 and run.counters["dropped"] == 0
    (why,) = RunDirectory(run.directory).troubles(0).values()
    assert "pinned prompts at step 2 were not stored" in why


def test_the_page_shows_the_start_beside_the_newest_evaluation(make_trainer: Make) -> None:
    trainer = make_trainer(eval_on_start=True, **EVALUATED)
    run = attached(trainer)
    trainer.train()
    run.verdict()
    assert run.directory is not None
    shown = pinned(RunReader(RunDirectory(run.directory)))
    assert shown["empty"] == "" and len(shown["prompts"]) == 4 and "evaluation" in shown["source"]
    by_step = {look.step: {row.prompt: row.completion for row in look.rows} for look in looks(run)}
    for item in shown["prompts"]:
        assert [(said["step"], said["text"]) for said in item["said"]] == [
            (step, by_step[step][item["prompt"]]) for step in (0, 2, 4)
        ]


def test_a_run_that_went_back_shows_the_branch_it_is_on(make_trainer: Make) -> None:
    options = {"save_strategy": "steps", "save_steps": 2, **EVALUATED}
    first = make_trainer(max_steps=4, **options)
    attached(first)
    first.train()
    second = make_trainer(max_steps=6, **options)
    run = attached(second)
    second.train(resume_from_checkpoint=str(Path(second.args.output_dir) / "checkpoint-2"))
    run.verdict()
    assert [(look.step, look.attempt) for look in looks(run)] == [(2, 0), (4, 0), (4, 1), (6, 1)]
    now = {row.prompt: row.completion for row in looks(run)[2].rows}
    assert run.directory is not None
    for item in pinned(RunReader(RunDirectory(run.directory)))["prompts"]:
        assert [said["step"] for said in item["said"]] == [2, 4, 6]
        assert item["said"][1]["text"] == now[item["prompt"]]


# -- saved checkpoints ----------------------------------------------------------------------------------------------

PROMPTS = ["what is 1 plus 2", "what is 2 plus 2 because", "the answer"]


def asked(*arguments: object) -> Any:
    """`tiltmeter pin`, as far as the verb itself goes."""
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(pin)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def saved_run(tiny_model: Path, tmp_path: Path, their_warnings: None) -> Path:
    """An output directory as a trainer leaves it: two checkpoints that differ, and the run between them."""
    from transformers import AutoModelForCausalLM

    shutil.copytree(tiny_model, tmp_path / "checkpoint-10")
    shutil.copytree(tiny_model, tmp_path / "checkpoint-2")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-10")
    for value in model.parameters():
        value.data.mul_(1.5)
    model.save_pretrained(tmp_path / "checkpoint-10")
    with tiltmeter.open_run(tmp_path / "tiltmeter", monitor=False, options=tiltmeter.Options(strict=True)) as opened:
        for step in range(1, 11):
            texts = [PROMPTS[0], PROMPTS[0], PROMPTS[1], PROMPTS[1], PROMPTS[2], PROMPTS[2]]
            opened.observe(
                step=step, group=np.repeat(np.arange(3), 2), reward=np.zeros(6), prompt=texts, completion=texts
            )
    return tmp_path / "tiltmeter"


def greedy(folder: Path, prompt: str, tokens: int) -> str:
    """The same, one token after the other, by the definition."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = tokenizer(prompt)["input_ids"]
    start = len(ids)
    while len(ids) < start + tokens:
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == model.generation_config.eos_token_id:
            break
    return str(tokenizer.decode(ids[start:], skip_special_tokens=True))


def test_checkpoints_beside_the_run_are_asked_its_first_prompts_greedily(saved_run: Path) -> None:
    done = asked(saved_run, "--no-chat", "--tokens", 12, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["prompts"] == 3 and told["failed"] == {}
    assert [row["file"] for row in told["stored"]] == [
        "pinned/0-000002-checkpoint.json",
        "pinned/0-000010-checkpoint.json",
    ]
    first, last = looks(saved_run)
    assert (first.source, last.source) == ("checkpoint checkpoint-2", "checkpoint checkpoint-10")
    for look in (first, last):
        folder = saved_run.parent / look.source.removeprefix("checkpoint ")
        assert {row.prompt: row.completion for row in look.rows} == {p: greedy(folder, p, 12) for p in PROMPTS}
    assert first.rows != last.rows
    shown = pinned(RunReader(RunDirectory(saved_run)))
    assert "checkpoints" in shown["source"]
    assert [[said["step"] for said in item["said"]] for item in shown["prompts"]] == [[2, 10]] * 3


def test_a_checkpoint_that_was_asked_is_not_asked_again_and_other_prompts_are_noticed(
    saved_run: Path, tmp_path: Path
) -> None:
    assert asked(saved_run, "--no-chat", "--tokens", 4, "--most", 2).exit_code == 0
    before = {path.name: path.read_bytes() for path in (saved_run / "pinned").iterdir()}
    (tmp_path / "prompts.txt").write_text("something else\n")
    done = asked(saved_run, "--no-chat", "--tokens", 4, "--prompts", tmp_path / "prompts.txt")
    assert done.exit_code == 0 and "0 checkpoints asked, 2 were asked before (2 with other prompts" in done.stdout
    assert {path.name: path.read_bytes() for path in (saved_run / "pinned").iterdir()} == before
    assert "step 2 " in done.stdout and "step 10 " in done.stdout


def test_a_base_model_is_step_0_and_a_damaged_one_is_said_while_the_others_go_on(
    saved_run: Path, tiny_model: Path
) -> None:
    (saved_run.parent / "checkpoint-2" / "model.safetensors").write_bytes(b"nonsense")
    models = [f"0={tiny_model}", saved_run.parent / "checkpoint-2", saved_run.parent / "checkpoint-10"]
    done = asked(saved_run, "--no-chat", "--tokens", 4, "--json", *[part for m in models for part in ("--model", m)])
    told = json.loads(done.stdout)
    assert done.exit_code == 2 and [row["step"] for row in told["stored"]] == [0, 10]
    ((name, why),) = told["failed"].items()
    assert name.endswith("checkpoint-2") and "cannot be loaded" in why


def test_where_prompts_might_be_chats_it_asks_which_and_chats_use_the_template(saved_run: Path, tmp_path: Path) -> None:
    unsure = asked(saved_run)
    assert isinstance(unsure.exception, AttachError) and "add --chat" in str(unsure.exception)
    assert not (saved_run / "pinned").exists()
    (tmp_path / "chats.jsonl").write_text(json.dumps({"prompt": [{"role": "user", "content": PROMPTS[0]}]}))
    assert asked(saved_run, "--tokens", 6, "--prompts", tmp_path / "chats.jsonl").exit_code == 0
    chats = [row.completion for look in looks(saved_run) for row in look.rows]
    shutil.rmtree(saved_run / "pinned")
    assert asked(saved_run, "--tokens", 6, "--chat", "--most", 1).exit_code == 0
    users = [row.completion for look in looks(saved_run) for row in look.rows]
    assert chats == users == [greedy(saved_run.parent / f"checkpoint-{n}", f"user: {PROMPTS[0]}\n", 6) for n in (2, 10)]


def test_code_that_comes_with_a_model_is_not_run(saved_run: Path) -> None:
    folder = saved_run.parent / "checkpoint-2"
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text(f"open({str(saved_run / 'was_run')!r}, 'w')\nclass Config: ...\nclass Model: ...\n")
    done = asked(saved_run, "--no-chat", "--tokens", 4, "--model", folder, "--json")
    assert done.exit_code == 2 and list(json.loads(done.stdout)["failed"]) == [str(folder)]
    assert not (saved_run / "was_run").exists()
