"""What is captured of a run's settings: what is on the list, and nothing that may tell more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tiltmeter import Launch, open_run
from tiltmeter.adapters.settings import capture_settings, git_commit, trainer_settings
from tiltmeter.rundir.store import RunDirectory


def test_only_arguments_on_the_list_are_taken_and_of_paths_the_last_name() -> None:
    args = SimpleNamespace(learning_rate=1e-6, beta=0.0, hub_token="hf_secret", output_dir="/home/ann/x", seed=7)
    config = SimpleNamespace(_name_or_path="/home/ann/models/small")
    data = SimpleNamespace(info=SimpleNamespace(dataset_name="org/maths"), _fingerprint="ab12")
    trainer = SimpleNamespace(model=SimpleNamespace(config=config), train_dataset=data)
    settings = capture_settings(trainer_settings(trainer, args))
    assert settings | {"commit": ""} == {
        "commit": "", "trainer": "SimpleNamespace", "model": "small", "data": "org/maths", "data fingerprint": "ab12",
        "learning_rate": "1e-06", "beta": "0", "seed": "7",
    }  # fmt: skip
    assert "secret" not in str(settings) and "ann" not in str(settings)


def test_a_trainer_that_has_nothing_of_it_gives_nothing() -> None:
    assert trainer_settings(object(), object()) == {"trainer": "object"} and trainer_settings(None, None) == {}


def test_settings_of_a_loop_are_in_its_attempt_as_short_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {
        "learning_rate": 0.1 + 0.2,
        "note": "x" * 5000,
        "\x1b[2J": "\x1b]0;t\x07",
        **{f"k{n}": n for n in range(99)},
    }
    open_run(tmp_path / "run", settings=given, monitor=False).close()
    kept = RunDirectory(tmp_path / "run").attempt(0)["settings"]
    assert kept["learning_rate"] == "0.3" and len(kept["note"]) == 200 and len(kept) == 40
    assert "\x1b" not in str(kept)


def test_the_commit_is_read_from_the_repository_around(tmp_path: Path) -> None:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    assert git_commit(tmp_path) is None
    (tmp_path / ".git" / "packed-refs").write_text(f"# pack\n{'b' * 40} refs/heads/main\n")
    assert git_commit(tmp_path) == "b" * 40
    (tmp_path / ".git" / "refs" / "heads" / "main").write_text("a" * 40 + "\n")
    (tmp_path / "code").mkdir()
    assert git_commit(tmp_path / "code") == "a" * 40
    (tmp_path / ".git" / "HEAD").write_text("ref: refs/../../secret\n")
    assert git_commit(tmp_path) is None


def test_a_setting_or_launch_that_looks_like_a_secret_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADER_API_KEY", "q7c1f0e9d8b7a6c5")
    settings = {
        "wandb_key": "0123456789abcdef0123456789abcdef01234567",
        "judge": "https://me:hunter22@host/v1",
        "header": "Bearer q7c1f0e9d8b7a6c5",
        "eos_token": "<|end_1a2b3c4d|>",
        "seed": 7,
    }
    open_run(tmp_path / "run", settings=settings, launch=Launch(name="job-q7c1f0e9d8b7a6c5"), monitor=False).close()
    facts = RunDirectory(tmp_path / "run").attempt(0)
    assert facts["launch"] == "job-[secret GRADER_API_KEY]"
    assert {name: facts["settings"][name] for name in settings} == {
        "wandb_key": "[secret wandb_key]", "judge": "[secret judge]", "header": "[secret header]",
        "eos_token": "<|end_1a2b3c4d|>", "seed": "7",
    }  # fmt: skip
