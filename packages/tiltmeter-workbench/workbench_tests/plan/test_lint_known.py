"""The table of settings that ships is what the trainers' own packages say, wherever they are installed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from tiltmeter_workbench.plan.lint.rules_broken import VERL_BUDGET
from tiltmeter_workbench.plan.settings import openrlhf as settings_openrlhf
from tiltmeter_workbench.plan.settings import trl as settings_trl
from tiltmeter_workbench.plan.settings import verl as settings_verl
from tiltmeter_workbench.plan.settings.trainer_settings import trainer_tables
from workbench_tests.plan.lint_tables import TABLES, package


@pytest.mark.parametrize("trainer", TABLES)
def test_the_table_is_what_the_installed_package_declares(trainer: str) -> None:
    if package(trainer) is None:
        pytest.skip(f"{trainer} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # trainers warn about themselves
        found = TABLES[trainer]()
    table: dict[str, Any] = {name: value for name, value in trainer_tables()[trainer].items() if name != "read"}
    if found["version"] != table["version"]:
        pytest.skip(f"{trainer} {found['version']} is here, the table is of {table['version']}")
    assert found == table


def test_every_key_that_a_rule_looks_at_exists() -> None:
    trl = trainer_tables()["trl"]
    fields = {*trl["shared"], *(key for own in trl["methods"].values() for key in own)}
    assert set(settings_trl.NAMES.values()) <= fields
    assert not set(settings_trl.GONE) & fields
    verl = trainer_tables()["verl"]["methods"]["main_ppo"]
    assert set(settings_verl.NAMES.values()) <= set(verl)
    assert verl["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == VERL_BUDGET
    openrlhf = trainer_tables()["openrlhf"]["methods"]
    assert set(settings_openrlhf.NAMES.values()) <= set(openrlhf["train_ppo_ray"])
    assert set(settings_openrlhf.PAIR_NAMES.values()) <= set(openrlhf["train_dpo"])
    assert set(settings_openrlhf.FLAT.values()) <= {key for own in openrlhf.values() for key in own}


def test_every_estimator_of_the_trainers_has_a_method() -> None:
    assert set(settings_openrlhf.METHODS) == set(trainer_tables()["openrlhf"]["choices"]["algo.advantage.estimator"])
    if package("verl") is None:
        return
    folder = package("verl")
    assert folder is not None
    text = (folder / "trainer" / "ppo" / "core_algos.py").read_text()
    listed = text.partition("class AdvantageEstimator")[2].partition("ADV_ESTIMATOR_REGISTRY")[0]
    names = {line.split('"')[1] for line in listed.splitlines() if ' = "' in line}
    assert names == set(settings_verl.METHODS)
