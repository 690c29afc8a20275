"""Starting configurations: accepted by each trainer's own parser, and nothing against them in the linter.

The parts for veRL and OpenRLHF run where those are installed (docs/other-trainers.md), and are skipped elsewhere.
"""

from __future__ import annotations

import ast
import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.plan.lint.linter import lint_file
from tiltmeter_workbench.plan.settings.shell import commands
from tiltmeter_workbench.plan.starter import METHODS, starter, unsupported_choices
from workbench_tests.plan.lint_tables import main_of, openrlhf_parser, package

CHOICES: dict[str, dict[str, object]] = {
    "plain": {},
    "one device": {"gpus": 1, "batch": 1, "lora": 32, "vllm": "none"},
    "two nodes": {
        "gpus": 16,
        "group": 16,
        "reward_model": "org/Reward-1.5B",
        "checkpointing": False,
        "vllm_sleep": True,
    },
    "sharded": {"gpus": 8, "sharding": "zero3", "optimiser": "adamw-8bit", "vllm": "server"},
    "odd": {"gpus": 6, "group": 6, "batch": 5, "length": 1000, "accumulate": 3, "model": "7B"},
}
EVERY = [(trainer, method, name) for trainer, methods in METHODS.items() for method in methods for name in CHOICES]


def written(folder: Path, trainer: str, method: str, name: str) -> Path:
    path = folder / (f"{method}.yaml" if trainer == "trl" else "run.sh")
    path.write_text(starter(trainer, method, CHOICES[name]))  # type: ignore[arg-type]
    return path


def started(path: Path) -> tuple[str, ...]:
    """The words of the command that trains."""
    return max(commands(path.read_text()), key=len)


@pytest.mark.parametrize(("trainer", "method", "name"), EVERY)
def test_a_start_has_nothing_against_it(trainer: str, method: str, name: str, tmp_path: Path) -> None:
    found = lint_file(written(tmp_path, trainer, method, name))
    assert found.trainer == trainer
    assert found.method == {"reinforce": "reinforce_baseline"}.get(method, method)
    assert [one.sentence for one in found.complaints] == []


@pytest.mark.parametrize("trainer", METHODS)
def test_a_start_that_samples_attaches_tiltmeter(trainer: str) -> None:
    text = starter(trainer, "grpo", {})  # type: ignore[arg-type]
    line = {"trl": "tiltmeter.attach(trainer)", "verl": "export TILTMETER_VERL=1", "openrlhf": "install("}[trainer]
    assert line in text


def test_choices_are_in_the_file() -> None:
    text = starter("trl", "grpo", {"model": "me/mine", "group": 4, "gpus": 2, "batch": 8, "lora": 64, "output": "out"})
    for line in (
        "model_name_or_path: me/mine",
        "num_generations: 4",
        "num_processes: 2",
        "lora_r: 64",
        "output_dir: out",
    ):
        assert line in text
    assert "learning_rate: 2.0e-05" in text  # ten times, with LoRA


def test_what_was_planned_is_in_the_file_or_said_to_be_left_out() -> None:
    planned = {"gpus": 8, "sharding": "zero3", "optimiser": "adamw-8bit", "vllm": "server"}
    text = starter("trl", "grpo", planned)
    for line in ("accelerate_config: zero3", "optim: adamw_bnb_8bit", "vllm_mode: server"):
        assert line in text
    assert "vllm_gpu_memory_utilization" not in text and unsupported_choices("trl", "grpo", planned) == []
    assert "--ds.zero_stage 2" in starter("openrlhf", "grpo", {**planned, "sharding": "zero2"})
    assert [what.split()[1] for what in unsupported_choices("verl", "grpo", planned)] == [
        "sharding",
        "optimiser",
        "place",
    ]
    with pytest.raises(AttachError, match="share of a GPU"):
        starter("trl", "grpo", {"vllm_share": 0})


def test_groups_do_not_make_the_batches_of_a_method_without_them() -> None:
    assert "gradient_accumulation_steps: 4" in starter("trl", "dpo", {"gpus": 4, "batch": 4, "group": 32})


def test_what_cannot_be_started_says_what_can() -> None:
    with pytest.raises(AttachError, match="veRL and OpenRLHF have"):
        starter("trl", "ppo", {})
    with pytest.raises(AttachError, match="ppo, grpo, rloo"):
        starter("verl", "dpo", {})
    with pytest.raises(AttachError, match="no choice colour"):
        starter("trl", "grpo", {"colour": "red"})
    with pytest.raises(AttachError, match="teaches nothing"):
        starter("trl", "grpo", {"group": 1})
    with pytest.raises(AttachError, match="at least 1"):
        starter("trl", "grpo", {"batch": 0})


@pytest.mark.parametrize("name", ["a; rm -rf /", "$(id)", "a\nb: c", "`id`", "a'b", "x: {y}"])
@pytest.mark.parametrize("trainer", METHODS)
def test_a_name_that_would_act_in_the_file_is_refused(trainer: str, name: str) -> None:
    with pytest.raises(AttachError, match="no name"):
        starter(trainer, "grpo", {"model": name})  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS["trl"])
@pytest.mark.parametrize("name", CHOICES)
def test_trls_own_command_line_takes_it(
    method: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package("trl") is None:
        pytest.skip("TRL is not installed")
    monkeypatch.setenv("WORLD_SIZE", "1")
    text = starter("trl", method, CHOICES[name])
    processes = int(text.partition("num_processes: ")[2].split()[0])
    # A configuration counts the processes there are; here is one, which does the work of all.
    path = tmp_path / "config.yaml"
    per_device = int(text.partition("per_device_train_batch_size: ")[2].split()[0])
    path.write_text(
        text.replace(f"_batch_size: {per_device}", f"_batch_size: {per_device * processes}") + "use_cpu: true\n"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parser = importlib.import_module(f"trl.scripts.{method}").make_parser(prog=f"trl {method}")
        *read, launcher, rest = parser.parse_args_and_config(
            ["--config", str(path)], return_remaining_strings=True, separate_remaining_strings=True
        )
    sharded = ["--accelerate_config", "zero3"] if name == "sharded" else []
    assert launcher == ["--num_processes", str(processes), *sharded] and rest == []
    config = next(one for one in read if hasattr(one, "learning_rate"))
    assert config.learning_rate == lint_file(path).settings["lr"]
    assert config.lr_scheduler_type == "cosine" and config.warmup_steps == 0.05
    if method in ("grpo", "rloo"):
        assert config.generation_batch_size % config.num_generations == 0 and config.beta == 0.02


@pytest.mark.parametrize("method", METHODS["verl"])
@pytest.mark.parametrize("name", CHOICES)
def test_verls_own_configuration_takes_it(method: str, name: str, tmp_path: Path) -> None:
    folder = package("verl")
    if folder is None or package("hydra") is None:
        pytest.skip("needs veRL: see docs/other-trainers.md")
    words = started(written(tmp_path, "verl", method, name))
    overrides = list(words[words.index("verl.trainer.main_ppo") + 1 :])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hydra: Any = importlib.import_module("hydra")
        utils: Any = importlib.import_module("verl.trainer.ppo.utils")
        checks: Any = importlib.import_module("verl.utils.config")
        with hydra.initialize_config_dir(str(folder / "trainer" / "config"), version_base=None):
            config = hydra.compose("ppo_trainer", overrides=overrides)
        if config.actor_rollout_ref.model.lora_rank:  # that check asks vLLM, which is not here
            config.actor_rollout_ref.rollout.name = "sglang"
        # Its check of a critic opens the model, so of the critic only the keys are checked, by Hydra.
        checks.validate_config(config, utils.need_reference_policy(config), False)
        critic = utils.need_critic(config)
    assert config.actor_rollout_ref.actor.optim.lr == pytest.approx(2e-5 if "lora" in CHOICES[name] else 2e-6)
    assert critic is (method == "ppo")
    assert utils.need_reference_policy(config)


@pytest.mark.parametrize("method", METHODS["openrlhf"])
@pytest.mark.parametrize("name", CHOICES)
def test_openrlhfs_own_parser_and_checks_take_it(method: str, name: str, tmp_path: Path) -> None:
    if package("openrlhf") is None:
        pytest.skip("needs OpenRLHF: see docs/other-trainers.md")
    words = started(written(tmp_path, "openrlhf", method, name))
    command = "train_dpo" if method == "dpo" else "train_ppo_ray"
    at = next(n for n, word in enumerate(words) if word in ("train.py", "openrlhf.cli.train_dpo"))
    args = openrlhf_parser(command).parse_args(list(words[at + 1 :]))
    _, checks = main_of(command)
    place: dict[str, Any] = {"args": args}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Its own assertions, up to where it would train.
        exec(compile(ast.Module(checks, []), command, "exec"), place)  # noqa: S102
    nested = place["args"]
    assert (nested.adam.lr if method == "dpo" else nested.actor.adam.lr) == lint_file(tmp_path / "run.sh").settings[
        "lr"
    ]
