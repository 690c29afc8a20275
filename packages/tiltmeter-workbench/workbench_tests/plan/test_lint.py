"""The linter on whole configurations: thirty bad ones, the trainers' own shipped ones, and files that mean harm."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pages import ROOT, render_page

from macros.tables import escape
from tiltmeter_workbench.plan.lint.all_rules import every_rule
from tiltmeter_workbench.plan.lint.linter import LintReport, lint_file
from workbench_tests.plan.lint_tables import VERL_FILES, package

sys.path.insert(0, str(ROOT / "benchmarks"))  # the figures for the record are made of the same files
try:
    from before_lint import figures, put_back, shipped
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

CONFIGS = Path(__file__).parent / "configs"
BAD: dict[str, str] = json.loads((CONFIGS / "bad.json").read_text())
#: A second mistake that follows from the first: one answer to a prompt is what an unread group size leaves.
ALSO = {"openrlhf_misspelt.sh": {"mini-batch-over-batch"}}
SHIPPED = shipped()


def rules(found: LintReport, level: str = "error") -> set[str]:
    return {one.rule for one in found.complaints if one.level == level}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_there_are_ten_bad_configurations_of_each_trainer_and_twenty_shipped_ones() -> None:
    assert sorted(BAD) == sorted(path.name for path in (CONFIGS / "bad").iterdir())
    for trainer in ("trl", "verl", "openrlhf"):
        assert sum(name.startswith(f"{trainer}_") for name in BAD) == 10
        assert sum(one["trainer"] == trainer for one in SHIPPED) >= 6
    assert len(SHIPPED) >= 20


@pytest.mark.parametrize("name", BAD)
def test_a_bad_configuration_trips_its_rule_and_no_other_error(name: str) -> None:
    found = lint_file(CONFIGS / "bad" / name)
    assert found.trainer == name.partition("_")[0]
    assert rules(found) == {BAD[name]} | ALSO.get(name, set())


@pytest.mark.parametrize("name", BAD)
def test_a_complaint_says_where_why_what_to_do_and_on_whose_word(name: str) -> None:
    for one in lint_file(CONFIGS / "bad" / name).complaints:
        assert one.key and len(one.sentence) > 20 and one.fix and len(one.source) > 5
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", one.date)


@pytest.mark.parametrize("example", SHIPPED, ids=lambda one: f"{one['trainer']}-{one['name']}")
def test_a_shipped_example_is_read_as_its_trainers_and_gives_no_error(example: Any, tmp_path: Path) -> None:
    found = lint_file(put_back(example, tmp_path))
    assert found.trainer == example["trainer"]
    assert [one.sentence for one in found.errors] == []
    assert found.settings["lr"] == next(
        (float(value) for key, _, value in (one.partition("=") for one in example["settings"]) if key.endswith(RATES)),
        1e-6,
    )


RATES = ("learning_rate", "actor.optim.lr", "adam.lr")


def test_what_a_broken_shipped_example_says_shows_that_silence_means_something(tmp_path: Path) -> None:
    """The same files with one setting ruined: every one of them is caught."""
    ruined = 0
    for example in SHIPPED:
        settings = [re.sub(r"((?:learning_rate|\blr)=).*", r"\g<1>5.0", one) for one in example["settings"]]
        if settings != example["settings"]:
            found = lint_file(put_back({**example, "settings": settings}, tmp_path))
            assert "lr-too-high" in rules(found), example["name"]
            ruined += 1
    assert ruined >= 25


def test_trls_own_scripts_as_installed_give_no_error(tmp_path: Path) -> None:
    folder = package("trl")
    if folder is None:
        pytest.skip("TRL is not installed")
    read = 0
    for script in sorted((folder / "scripts").glob("*.py")):
        blocks = re.findall(r"```bash\n(.*?)```", script.read_text(), re.S)
        for number, block in enumerate(one for one in blocks if "trl/scripts/" in one):
            found = lint_file(written(tmp_path, f"{script.stem}{number}.sh", block))
            assert (found.trainer, found.method) == ("trl", script.stem)
            assert rules(found) == set(), (script.name, found.errors)
            read += 1
    assert read >= 6


@pytest.mark.parametrize("engine", VERL_FILES)
def test_verls_own_configurations_as_installed_give_no_error(engine: str) -> None:
    folder = package("verl")
    if folder is None:
        pytest.skip("veRL is not installed: see docs/other-trainers.md")
    found = lint_file(folder / "trainer" / "config" / f"_generated_ppo{engine}_trainer.yaml")
    assert (found.trainer, found.method, rules(found)) == ("verl", "ppo", set())


def test_figures_for_the_record_are_those_of_the_tests() -> None:
    found = figures()
    assert (found["lint_bad"], found["lint_caught"], found["lint_false"]) == (30, 30, 0)
    assert found["lint_shipped"] == len(SHIPPED)


def test_rules_have_names_of_their_own_and_every_bad_file_names_one() -> None:
    names = [rule.id for rule in every_rule()]
    assert len(names) == len(set(names))
    assert set(BAD.values()) <= set(names)
    assert {rule.level for rule in every_rule()} == {"error", "note"}


GRPO = {
    "reward_funcs": ["accuracy_reward"],
    "learning_rate": 2e-6,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.05,
    "per_device_train_batch_size": 32,
    "gradient_accumulation_steps": 4,
    "num_generations": 8,
    "beta": 0.02,
    "entropy_coef": 0.001,
}


def complaints(folder: Path, **changed: object) -> set[str]:
    text = json.dumps({name: value for name, value in {**GRPO, **changed}.items() if value is not None})
    return {one.rule for one in lint_file(written(folder, "grpo.json", text)).complaints}


def test_a_good_configuration_gives_nothing(tmp_path: Path) -> None:
    assert complaints(tmp_path) == set()


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        ({"learning_rate": 1e-5}, "lr-range"),
        ({"learning_rate": 1e-4, "use_peft": True}, "lr-range"),
        ({"learning_rate": 1.1e-4}, "lr-too-high"),
        ({"learning_rate": 1.1e-3, "use_peft": True}, "lr-too-high"),
        ({"learning_rate": 0}, "lr-not-positive"),
        ({"warmup_steps": 0.3}, "warmup-range"),
        ({"warmup_steps": 500, "max_steps": 400}, "warmup-never-ends"),
        ({"lr_scheduler_type": "linear"}, "schedule"),
        ({"gradient_accumulation_steps": 1}, "batch-small"),
        ({"beta": 0.001}, "beta-range"),
        ({"beta": 5.0}, "beta-too-high"),
        ({"beta": 0.0}, "leash-off"),
        ({"num_generations": 2}, "group-small"),
        ({"num_generations": 7}, "group-not-divisible"),
        ({"entropy_coef": 0.0}, "entropy-off"),
        ({"top_p": 0.9}, "cut-sampling"),
        ({"top_p": 0.0}, "top-p-zero"),
        ({"save_strategy": "no"}, "no-checkpoints"),
        ({"reward_funcs": None}, "trl-no-reward"),
        ({"importance_sampling_level": "sequence"}, "sequence-ratios"),
        ({"fp16": True}, "fp16"),
        ({"fp16": True, "bf16": True}, "half-twice"),
        ({"use_bias_correction_kl": False}, "kl-k3-as-loss"),
        ({"scale_rewards": "groups"}, "bad-choice"),
        ({"max_completion_length": 0}, "length-zero"),
        ({"vllm_max_model_length": 512, "max_completion_length": 1024}, "no-room"),
        ({"epsilon": 0.0}, "clip-not-positive"),
        ({"auto_find_batch_size": True}, "auto-batch"),
        ({"generation_batch_size": 128, "steps_per_generation": 4}, "generation-sizes"),
        ({"reward_weights": [1.0, 0.5]}, "reward-weights"),
        ({"my_own_key": 1}, "other-key"),
        ({"model_name_or_path": "a/70B", "reward_model_name_or_path": "b/0.5B"}, "reward-model-small"),
    ],
)
def test_one_setting_changed_trips_its_rule(tmp_path: Path, changed: dict[str, object], rule: str) -> None:
    assert rule in complaints(tmp_path, **changed)


def test_ten_times_the_rate_is_fine_with_lora_and_no_error_without(tmp_path: Path) -> None:
    assert complaints(tmp_path, learning_rate=2e-5, use_peft=True) == set()
    assert complaints(tmp_path, learning_rate=2e-5) == {"lr-range"}


def test_the_number_of_processes_decides_whether_groups_come_out_even(tmp_path: Path) -> None:
    sizes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16, "num_generations": 64}
    assert "group-not-divisible" not in complaints(tmp_path, **sizes)
    assert "group-not-divisible" in complaints(tmp_path, **sizes, num_processes=2)
    assert "group-not-divisible" not in complaints(tmp_path, **sizes, num_processes=4)


def test_a_group_note_has_the_dead_share_the_signal_and_the_cost(tmp_path: Path) -> None:
    text = json.dumps({**GRPO, "num_generations": 2})
    note = next(one for one in lint_file(written(tmp_path, "a.json", text)).complaints if one.rule == "group-small")
    assert (
        "50%" in note.sentence and "82%" in note.sentence and "0.25" in note.sentence and "4.0 times" in note.sentence
    )


def test_rules_of_the_other_trainers(tmp_path: Path) -> None:
    verl = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.rollout.n=8 "
    uneven = verl + "data.train_batch_size=127 trainer.n_gpus_per_node=16 trainer.nnodes=3"
    assert "batch-not-divisible" in rules(lint_file(written(tmp_path, "a.sh", uneven)))
    filtered = verl + "algorithm.filter_groups.enable=True algorithm.filter_groups.metric=seq_reward"
    assert "filter-on-reward" in rules(lint_file(written(tmp_path, "b.sh", filtered)), "note")
    assert "filter-on-reward" not in rules(
        lint_file(written(tmp_path, "b.sh", filtered.replace("seq_reward", "acc"))), "note"
    )
    openrlhf = "python3 -m openrlhf.cli.train_ppo_ray --reward.remote_url r.py --algo.advantage.estimator rloo "
    more = openrlhf + "--rollout.n_samples_per_prompt 8 --algo.kl.estimator k3 --algo.kl.target 6"
    assert {"kl-reward-estimator", "adaptive-kl"} <= rules(lint_file(written(tmp_path, "c.sh", more)), "note")
    partial = more + " --train.partial_rollout_enable"
    assert "async-sleep" in rules(lint_file(written(tmp_path, "d.sh", partial)))
    slip = verl.replace("=grpo", "=grop")
    assert rules(lint_file(written(tmp_path, "f.sh", slip))) == {"bad-estimator"}
    own = verl.replace("=grpo", "=my_estimator_of_advantages")
    assert rules(lint_file(written(tmp_path, "f.sh", own))) == set()
    critic = verl.replace("=grpo", "=gae") + "critic.optim.lr=1e-1"
    assert rules(lint_file(written(tmp_path, "g.sh", critic))) == {"critic-too-high"}
    same = verl + "data.train_files=a.parquet data.val_files=a.parquet"
    assert "same-files" in rules(lint_file(written(tmp_path, "e.sh", same)), "note")


def test_the_page_has_every_rule_with_its_source_and_the_versions() -> None:
    page = render_page("lint.md")
    for rule in every_rule():
        assert f"| `{rule.id}` |" in page and escape(rule.source) in page
    assert "TRL 1.16.0 (read 2026-" in page and "<!--" not in page


def test_what_is_found_can_be_written_as_json(tmp_path: Path) -> None:
    text = 'verl="python3 -m verl.trainer.main_ppo"\npython3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo '
    path = written(
        tmp_path, "a.sh", text + "data.train_files=$HOME/a data.val_files=$HOME/b actor_rollout_ref.actor.lrr=$X\n"
    )
    found = lint_file(path)
    json.dumps([found.settings, [one.value for one in found.complaints]], allow_nan=False)


def test_adapters_count_only_where_they_are_turned_on(tmp_path: Path) -> None:
    plain = "reward_funcs: [accuracy_reward]\nnum_generations: 8\nlearning_rate: 5e-4\nlora_r: 16\n"
    off = lint_file(written(tmp_path, "a.yaml", plain))
    assert "lr-too-high" in rules(off) and "adapters-off" in rules(off, "note")
    assert "adapters-off" not in rules(lint_file(written(tmp_path, "b.yaml", plain + "use_peft: true\n")), "note")


def test_the_limit_of_a_rate_is_not_beyond_itself(tmp_path: Path) -> None:
    text = "# trl dpo\nuse_peft: true\nbeta: 0.1\nlearning_rate: {}\n"
    assert rules(lint_file(written(tmp_path, "dpo.yaml", text.format("1e-4")))) == set()
    found = lint_file(written(tmp_path, "dpo.yaml", text.format("2e-4"))).errors
    assert "is 40 times the top of DPO's range with LoRA" in found[0].sentence


def test_a_setting_that_is_no_number_is_an_error(tmp_path: Path) -> None:
    text = "num_generations: 8\nlearning_rate: .nan\nreward_funcs: [a]\n"
    assert rules(lint_file(written(tmp_path, "a.yaml", text))) == {"not-finite"}
