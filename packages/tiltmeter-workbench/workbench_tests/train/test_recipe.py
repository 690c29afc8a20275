"""A recipe is checked before anything is trained: each mistake is named with its fix; what is TRL's is untouched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter_workbench.train.checks import check_recipe
from tiltmeter_workbench.train.data import COLUMNS, read_checked_rows
from tiltmeter_workbench.train.method_interface import Context
from tiltmeter_workbench.train.recipe import RECIPE_FIELDS, STAGE_FIELDS, Method, Recipe, Stage, read_recipe
from tiltmeter_workbench.train.registry import METHODS, SPECS, config_of, options_of, trainer_of
from tiltmeter_workbench.train.trl_trainer import lora_config, make_config

from .conftest import Write

SFT = {"method": "sft", "data": "answers.jsonl"}
RM = {"method": "reward", "name": "rm", "data": "pairs.jsonl"}
DPO = {"method": "dpo", "data": "pairs.jsonl"}
RL = {"method": "grpo", "name": "rl", "data": "prompts.jsonl", "rewards": [{"function": "rewards.py:long"}]}


def refused(path: Path) -> str:
    with pytest.raises(AttachError) as caught:
        check_recipe(read_recipe(path))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model: x\nmodel: y\nstages: []\n", ["line 2", "model stands there already, in line 1"]),
        ("model: x\nstages:\n  - method: sft\n    trl: {seed: 1, seed: 2}\n", ["line 4", "seed stands there already"]),
        ("model: x\nstages: []\n", ["has no stages; write stages:"]),
        ("stages:\n  - method: sft\n", ["names no model; write model: FOLDER"]),
        ("model: x\nstage:\n  - method: sft\n", ["there is no field stage; did you mean stages?"]),
        ("model: x\nseed: one\nstages: [{method: sft}]\n", ["seed is a whole number, not 'one'"]),
        ("model: x\nseed: true\nstages: [{method: sft}]\n", ["seed is a whole number, not True"]),
        ("model: x\nseed: -1\nstages: [{method: sft}]\n", ["below 0; use 0 or more"]),
        ("model: x\nstages: [sft]\n", ["stage 1 is no list of fields; write - method: sft"]),
        ("model: x\nstages: [{data: y}]\n", ["stage 1 names no method; there are constitution, dpo"]),
        ("model: x\nstages: [{method: grop}]\n", ["nobody knows, grop; did you mean grpo?"]),
        ("model: x\nstages: [{method: sft, date: y}]\n", ["stage sft: there is no field date; did you mean data?"]),
        ("model: x\nstages: [{method: sft, trl: 3}]\n", ["trl is settings by name, not 3"]),
        ("model: x\nstages: [{method: sft, name: a/b}]\n", ["use letters, digits, - and _ only"]),
        ("model: x\nstages: [{method: sft}, {method: sft}]\n", ["two stages are called sft; give each a name:"]),
        ("model: [\n", ["is not YAML"]),
        ("model: x\nstages:\n  - method: sft\n   data: y\n", ["recipe.yaml, line 4, is not YAML: expected <block"]),
        ("- 1\n", ["is no recipe"]),
        ("model: !!python/object/apply:os.system [true]\n", ["is not YAML", "could not determine a constructor"]),
        ("1: x\n", ["line 1: 1 is no name"]),
        ("a: " + "[" * 50 + "]" * 50, ["nested too deep"]),
        ("a: &a [1]\nb: [" + ", ".join(["*a"] * 101) + "]", ["more than 100 aliases"]),
    ],
)
def test_a_file_that_is_no_recipe_is_refused_with_its_fix(tmp_path: Path, text: str, said: list[str]) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(AttachError) as caught:
        read_recipe(path)
    for part in said:
        assert part in str(caught.value)


def test_a_recipe_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match=r"nowhere\.yaml cannot be read: No such file"):
        read_recipe(tmp_path / "nowhere.yaml")


def test_numbers_with_an_exponent_are_numbers(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "model: x\nstages:\n  - {method: sft, trl: {a: 1e-6, b: 5E3, c: 1.5e-6, d: -2e+1, e: '1e-6', f: 1e}}\n"
    )
    assert read_recipe(path).stages[0].trl == {"a": 1e-6, "b": 5e3, "c": 1.5e-6, "d": -20.0, "e": "1e-6", "f": "1e"}


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([{"method": "sft"}], "stage sft: sft needs data; write data: FILE"),
        ([{**RL, "rewards": None}], "stage rl: grpo needs rewards; write rewards: - function: rewards.py:helpful"),
        ([{**SFT, "rewards": [{"function": "rewards.py:long"}]}], "rewards has no meaning for sft: it learns from its"),
        ([{**DPO, "guards": "standard"}], "guards has no meaning for dpo: there is no reward"),
        ([{**DPO, "gold": "people"}], "stage dpo: gold: people cannot judge checkpoints; name a function or a judge"),
        ([{**DPO, "gold": "rewards.py:short", "trl": {"save_strategy": "no"}}], "judges what it saves, and it saves"),
        ([{**SFT, "data": "texts.jsonl", "gold": "rewards.py:short"}], "write watch: {gold: {prompts: FILE.jsonl}}"),
        (
            [{**DPO, "watch": {"gold": {"prompts": "prompts.jsonl"}}}],
            "watch: gold: prompts is about checkpoints that gold judges",
        ),
        (
            [{**RL, "gold": "rewards.py:short", "watch": {"gold": {"sampling": {"answers": 1}}}}],
            "sampling is about checkpoints",
        ),
        (
            [{**DPO, "gold": "rewards.py:short", "watch": {"gold": {"prompts": "gone.jsonl"}}}],
            "watch: gold: prompts: there is no",
        ),
        (
            [{**DPO, "gold": "rewards.py:short", "watch": {"gold": {"sampling": {"answer": 1}}}}],
            "it may have prompts, answers",
        ),
        (
            [{**DPO, "gold": "rewards.py:short", "watch": {"gold": {"sampling": 3}}}],
            "sampling is settings by name, not 3",
        ),
        ([{**RL, "method": "ppo", "trl": {"beta": 1}}], "trl has no meaning for ppo: TRL has no trainer for it"),
        ([{**SFT, "data": "gone.jsonl"}], "gone.jsonl; paths are relative to the recipe"),
        ([{**SFT, "model": "gone"}], "stage sft: gone: there is no model in"),
        ([{**SFT, "model": "Qwen/Qwen3-0.6B"}], "a model of the hub is written hf:Qwen/Qwen3-0.6B"),
        ([{**SFT, "model": "hf:Qwen3"}], "write a model of the hub as hf:OWNER/NAME"),
        ([{**SFT, "model": "@rm"}, RM], "rm stands later; move it before this one"),
        ([RM, {**SFT, "model": "@mr"}], "mr is no stage; there are rm"),
        ([RM, {**SFT, "model": "@rm"}], "a reward stage leaves a reward model, and a policy is meant here"),
        ([SFT, {**DPO, "data": "@sft"}], "a sft stage leaves a policy, and a file is meant here"),
        ([SFT, {**DPO, "data": "@sft/../../x.jsonl"}], "name a file inside the stage's folder"),
        ([SFT, {**RL, "rewards": [{"model": "@sft"}]}], "leaves a policy, and a reward model is meant here"),
        ([RM, {**RL, "rewards": [{"model": "@rm", "judge": "x"}]}], "number 1 needs exactly one of function, judge"),
        ([{**RL, "rewards": [{"functoin": "rewards.py:long"}]}], "functoin means nothing here; there are function"),
        ([{**RL, "rewards": [{"function": "rewards.py:none"}]}], "rewards.py defines no none"),
        ([{**RL, "guards": "strict"}], "guards: 'strict' is no set of guards; write \"standard\""),
        ([{**RL, "guards": ["clip"]}], "there is no 'clip'; there are clipped,"),
        ([{**RL, "gold": "rewards.py:none"}], "stage rl: gold:"),
        ([{**RL, "gold": "rewards.py:long"}], "gold is the reward function 'long' itself"),
        ([{**SFT, "options": {"merg": False}}], "options: there is no merg; did you mean merge?"),
        ([{**SFT, "lora": {"r": 4}, "options": {"merge": False}}, DPO], "leave options: {merge: false} out there"),
        ([{**RM, "options": {"combine": "warn"}}], "combine: warn is not one of single, ensemble, warm"),
        ([{**RM, "options": {"combine": "single", "members": 3}}], "3 members are no single model; write combine:"),
        ([{**RM, "options": {"combine": "warm", "members": 1}}], "one member makes no warm; write members: 4"),
        ([{**RM, "options": {"members": 2, "share": 0}}], "share is above 0 and at most 1, not 0"),
        ([{**RM, "options": {"members": 2, "merge": False}}], "leave merge: false out"),
        ([{**RM, "options": {"members": 2}}, {**RM, "name": "more", "model": "@rm"}], "name @rm/member-1"),
        ([{**DPO, "method": "ipo", "trl": {"loss_type": "sigmoid"}}], "sigmoid is not the loss of ipo; leave it out"),
        ([{**DPO, "method": "ipo", "options": {"entropy_weight": 0.1}}], "entropy_weight is for dpo"),
        ([{**DPO, "options": {"entropy_weight": "much"}}], "entropy_weight is a number above 0, not 'much'"),
        ([{**RL, "options": {"entropy_weight": 0}}], "entropy_weight is a number above 0, not 0"),
        ([{**RL, "gold": "rewards.py:short", "watch": False}], "gold is asked by the monitor, and watch is false"),
        ([{**RM, "lora": {"r": 4}, "options": {"merge": False}}, {**RL, "rewards": [{"model": "@rm"}]}],
         "rm keeps its adapter apart, and a whole model scores; leave options: {merge: false} out there"),
        ([RM, {**RL, "rewards": [{"model": "@rm"}, {"model": "@rm/trainer"}]}], "number 1 is one of 2 models without"),
        ([RM, {**RL, "rewards": [{"model": "@rm", "wieght": 2}]}], "stage rl: rewards: wieght means nothing here"),
        ([RM, {**RL, "rewards": [{"model": "@rm", "weight": "2"}]}], "the weight of number 1 is a number, not '2'"),
        ([RM, {**RL, "rewards": [{"model": "@rm", "settings": {"max_lenght": 9}}]}], "argument 'max_lenght'"),
        ([{**SFT, "trl": {"learning_rat": 1}}], "trl: SFTConfig has no learning_rat; did you mean learning_rate?"),
        ([{**SFT, "trl": {"beta": 1}}], "trl: SFTConfig has no beta"),
        ([{**RL, "trl": {"max_prompt_length": 9}}], "GRPOConfig has no max_prompt_length: prompts are no longer cut"),
        ([{**SFT, "trl": {"output_dir": "x"}}], "trl: leave output_dir out: each stage has its own folder"),
        ([{**SFT, "trl": {"resume_from_checkpoint": True}}], "the same command, run again, goes on by itself"),
        ([{**SFT, "lora": {"rank": 8}}], "lora: LoraConfig has no rank"),
        ([{**SFT, "lora": {"lora_alpa": 8}}], "did you mean lora_alpha?"),
        ([{**RL, "watch": {"acts": "act"}}], "watch: there is no acts; did you mean act?"),
        ([{**RL, "watch": {"act": "acting"}}], "mode='acting': choose \"observe\", \"advise\" or \"act\""),
        ([{**RL, "watch": {"gold": "people"}}], "who gives gold is a field of the stage itself; write it beside watch"),
    ],
)  # fmt: skip
def test_what_a_recipe_names_wrongly_is_refused_with_its_fix(
    recipe: Write, stages: list[dict[str, Any]], said: str
) -> None:
    assert said in refused(recipe(*stages))


def test_a_recipe_of_every_kind_of_stage_is_accepted(recipe: Write) -> None:
    """The control: nothing of what is refused above is refused for another reason than its own."""
    named = {"model": "@rm", "name": "helpful", "weight": 0.5}
    check_recipe(
        read_recipe(
            recipe(
                {**SFT, "eval": "answers.jsonl", "lora": {"r": 4}, "watch": False, "trl": {"learning_rate": 1e-5}},
                {**RM, "options": {"combine": "warm", "members": 3}},
                {**DPO, "options": {"entropy_weight": 0.05, "merge": True}},
                {**DPO, "method": "ipo", "trl": {"loss_type": "ipo"}, "gold": "rewards.py:short"},
                {"method": "kto", "data": "marked.jsonl", "gold": "rewards.py:short",
                 "watch": {"gold": {"prompts": "prompts.jsonl", "sampling": {"answers": 1, "tokens": 8}}}},
                {**SFT, "name": "texts", "data": "texts.jsonl", "gold": "rewards.py:short",
                 "watch": {"gold": {"prompts": ["what is 1 plus 2"]}}},
                {**RL, "rewards": [named, {"function": "rewards.py:long"}], "guards": ["repetition"],
                 "gold": "rewards.py:short", "watch": {"act": {"limits": {"beta": [0.0, 1.0]}}}},
                {**RL, "method": "rloo", "name": "rl2", "model": "@sft", "rewards": [{"model": ["@rm", "@rm/start"]}]},
            )
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("method", "row", "said"),
    [
        ("sft", {"question": "a"}, 'it has the columns question; a row looks like {"prompt": "2 and 2?"'),
        ("dpo", {"prompt": "a", "chosen": "b"}, '"rejected": " 5"}'),
        ("ipo", {"prompt": "a", "chosen": "b", "rejected": 3}, "row 1: rejected must be text or a list of messages"),
        ("reward", {"chosen": "b", "rejected": None}, "row 1: rejected must be text"),
        (
            "dpo",
            {
                "prompt": "a",
                "chosen": [{"role": "assistant", "content": "b"}],
                "rejected": [{"role": "assistant", "content": "c"}],
            },
            "chosen is a list of messages, prompt is text, rejected is a list of messages; write all",
        ),
        ("kto", {"prompt": "a", "completion": "b", "label": "good"}, "row 1: label must be true or false"),
        ("grpo", {"question": "a"}, '{"prompt": "2 and 2?"}'),
        ("rloo", {"prompt": [{"content": "a"}]}, "row 1: prompt must be text or a list of messages"),
    ],
)
def test_rows_that_a_method_cannot_read_are_refused_with_a_row_as_it_should_be(
    tmp_path: Path, method: Method, row: dict[str, Any], said: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(AttachError) as caught:
        read_checked_rows(path, method)
    assert said in str(caught.value)


def test_a_prompt_stands_in_every_pair_or_in_none(tmp_path: Path) -> None:
    path, pair = tmp_path / "rows.jsonl", {"chosen": "b", "rejected": "c"}
    path.write_text("".join(json.dumps(row) + "\n" for row in ({"prompt": "a", **pair}, pair)))
    with pytest.raises(AttachError, match="row 2: prompt must be text"):
        read_checked_rows(path, "dpo")
    path.write_text(f"{json.dumps(pair)}\n" * 2)
    assert read_checked_rows(path, "dpo") == [pair, pair]


def test_a_column_of_text_and_of_conversations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": [{"role": "user", "content": "a"}]}\n')
    with pytest.raises(AttachError, match="prompt is text in some rows and a list of messages in others"):
        read_checked_rows(path, "grpo")


def test_the_example_rows_of_the_errors_can_be_trained_on(tmp_path: Path) -> None:
    for method, (_, example) in COLUMNS.items():
        path = tmp_path / f"{method}.jsonl"
        path.write_text(example.partition("}, {")[0].rstrip("}") + "}\n")
        assert read_checked_rows(path, method)  # type: ignore[arg-type]  # methods by name


#: Of the settings that others' tools read, one each, as people write them.
THEIRS: dict[str, Any] = {
    "deepspeed": "zero3.json", "fsdp": "full_shard auto_wrap", "fsdp_config": {"min_num_params": 7},
    "accelerator_config": {"split_batches": True}, "use_vllm": True, "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.31, "report_to": "wandb", "seed": 41, "learning_rate": 3.1e-7, "beta": 0.037,
    "torch_compile": True, "model_init_kwargs": {"attn_implementation": "flash_attention_2", "dtype": "bfloat16"},
}  # fmt: skip


def test_values_reach_trl_untouched(tmp_path: Path) -> None:
    """The class is asked itself which values it was given: no accelerator is needed to see that."""
    given: dict[str, Any] = {}

    class Config:
        def __init__(self, **values: Any) -> None:
            given.update(values)

    stage = Stage(method="grpo", name="rl", trl=THEIRS)
    recipe = Recipe(path=tmp_path / "r.yaml", output=tmp_path, model="m", stages=(stage,), seed=7)
    context = Context(recipe, stage, tmp_path / "01-rl", tmp_path, None, None, (), lambda *_: None)
    make_config(context, Config)
    assert {name: given[name] for name in THEIRS} == THEIRS
    assert {name: given[name] for name in set(given) - set(THEIRS)} == {
        "output_dir": str(tmp_path / "01-rl" / "trainer"), "disable_tqdm": True,
    }  # fmt: skip


def test_trls_own_class_holds_what_the_recipe_says(recipe: Write) -> None:
    """Through YAML, our checks and TRL's class; what this machine cannot do is not asked of it."""
    theirs = {
        "vllm_mode": "colocate", "vllm_gpu_memory_utilization": 0.31, "use_vllm": True, "use_cpu": True, "bf16": False,
        "learning_rate": 3.1e-7, "beta": 0.037, "report_to": ["tensorboard"], "num_generations": 4,
        "fsdp_config": {"min_num_params": 7}, "model_init_kwargs": {"attn_implementation": "sdpa"}, "seed": 41,
    }  # fmt: skip
    made = read_recipe(recipe({**RL, "trl": theirs, "lora": {"r": 5, "use_dora": True}}), model=None)
    check_recipe(made)
    (stage,) = made.stages
    context = Context(made, stage, made.output / "01-rl", Path(), None, None, (), lambda *_: None)
    config = config_of("grpo")
    assert config is not None
    args, adapter = make_config(context, config), lora_config(context)
    assert {name: getattr(args, name) for name in theirs if name != "fsdp_config"} == {
        name: value for name, value in theirs.items() if name != "fsdp_config"
    }
    assert args.fsdp_config["min_num_params"] == 7
    assert adapter is not None
    assert (adapter.r, adapter.use_dora, adapter.task_type) == (5, True, "CAUSAL_LM")


def test_what_trl_itself_refuses_is_said_with_the_stage(recipe: Write) -> None:
    made = read_recipe(recipe({**RL, "trl": {"use_cpu": True, "bf16": False, "num_generations": 1}}))
    context = Context(made, made.stages[0], made.output, Path(), None, None, (), lambda *_: None)
    config = config_of("grpo")
    assert config is not None
    with pytest.raises(AttachError, match=r"stage rl: trl: GRPOConfig refuses its settings: .*at least 2 generations"):
        make_config(context, config)


def test_every_method_has_its_place_in_the_tables() -> None:
    assert set(METHODS) == set(SPECS) == set(get_args(Method))
    for method in METHODS:
        assert callable(trainer_of(method))
        assert all(isinstance(sentence, str) for sentence in options_of(method).values())


def test_check_trains_nothing_and_says_what_it_would_do(recipe: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = recipe({**SFT, "trl": {"learning_rate": 0.5}}, DPO)
    told = CliRunner().invoke(app, ["model", "train", str(path), "--check"], env={"COLUMNS": "200"})
    assert told.exit_code == 0, told.output
    assert "Nothing was trained" in told.stdout
    assert "output_dir, seed, report_to, disable_tqdm" in told.stdout
    assert "learning_rate" in told.stdout  # a rule of `plan --lint`
    told = CliRunner().invoke(app, ["model", "train", str(path), "--check", "--json"])
    stages = json.loads(told.stdout)["stages"]
    assert [(one["name"], one["model"], one["rows"], one["state"]) for one in stages][1:] == [
        ("dpo", "@sft", 16, "to do")
    ]
    assert not (path.parent / "out").exists()


def test_a_wrong_recipe_leaves_with_2(recipe: Write) -> None:
    told = CliRunner().invoke(app, ["model", "train", str(recipe({"method": "sft"})), "--check"])
    assert isinstance(told.exception, AttachError)  # which the program's main turns into 2
    assert CliRunner().invoke(app, ["model", "train"]).exit_code == 2


@pytest.mark.parametrize("method", get_args(Method))
def test_fields_names_every_field_of_a_method(method: Method) -> None:
    told = CliRunner().invoke(app, ["model", "train", "--fields", method, "--json"])
    assert told.exit_code == 0, told.output
    said = json.loads(told.stdout)
    assert set(said["recipe"]) == set(RECIPE_FIELDS)
    assert set(said["stage"]) <= set(STAGE_FIELDS)
    assert set(said["options"]) == set(options_of(method))
    shown = CliRunner().invoke(app, ["model", "train", "--fields", method], env={"COLUMNS": "200"}).stdout
    assert all(name in shown for name in (*said["recipe"], *said["stage"], *said["options"]))


def test_the_documentation_has_every_field() -> None:
    page = (Path(__file__).parents[4] / "docs" / "train.md").read_text()
    for table in (RECIPE_FIELDS, STAGE_FIELDS, METHODS):
        for name in table:
            assert f"| `{name}` |" in page, name
    for method in METHODS:
        for name in options_of(method):
            assert f"`{name}`" in page, f"{method}: {name}"
