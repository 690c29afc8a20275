"""Files as people have them, and as somebody who means harm has them: read as text, within bounds, never run."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.plan.lint.linter import lint_file
from tiltmeter_workbench.plan.settings.read_settings import read_runs
from tiltmeter_workbench.plan.settings.shell import commands
from tiltmeter_workbench.plan.settings.trainer_settings import UNREAD, TrainerSettings


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read_settings(path: Path, trainer: str | None = None, method: str | None = None) -> TrainerSettings:
    """The settings of the first run that a file starts."""
    return read_runs(path, trainer, method)[0]


def test_a_script_with_arrays_defaults_branches_and_sums_is_read_as_bash_would(tmp_path: Path) -> None:
    text = """
set -xeuo pipefail
# LR=1
LR=${ACTOR_LR:-3e-6}
tokens=$((1024 * 4))   # a comment
case "${DEVICE}" in
    gpu) n_devices=${N:-4} ;;
    npu)
        n_devices=16
        ROLLOUT+=(actor_rollout_ref.rollout.n=99)
        ;;
esac
if [ -z "$X" ]; then
    FIRST=2
else
    FIRST=3
fi
ROLLOUT=(
    # actor_rollout_ref.rollout.n=1
    actor_rollout_ref.rollout.n=$FIRST  # two
    data.train_files="['$HOME/a.parquet', 'b.parquet']"
)
LAUNCH=(uv run python3)
"${LAUNCH[@]}" -m verl.trainer.main_ppo algorithm.adv_estimator=rloo \\
    actor_rollout_ref.actor.optim.lr=${LR} \\
    # data.max_response_length=7 \\
    data.max_response_length=${tokens} \\
    "${ROLLOUT[@]}" trainer.n_gpus_per_node=${n_devices:-8} "$@"
"""
    found = read_settings(written(tmp_path, "run.sh", text))
    assert (found.trainer, found.method) == ("verl", "rloo")
    assert found.number("lr") == 3e-6
    assert found.number("group") == 2
    assert found.number("max_response") == 4096
    assert found.explicit["data.train_files"] is UNREAD  # it has $HOME in it


def test_a_text_that_a_variable_is_read_from_is_a_command(tmp_path: Path) -> None:
    text = "read -r -d '' training_commands <<EOF\nopenrlhf.cli.train_dpo \\\n  --model.beta 0.3 --adam.lr 4e-7\nEOF\n"
    found = read_settings(written(tmp_path, "run.sh", text + "    # --ipo\ndeepspeed --module $training_commands\n"))
    assert (found.trainer, found.method, found.number("beta"), found.number("lr")) == ("openrlhf", "dpo", 0.3, 4e-7)


def test_an_argument_parser_takes_the_beginning_of_a_name(tmp_path: Path) -> None:
    text = (
        "python3 -m openrlhf.cli.train_ppo_ray --rollout.n_samples 4 --algo.advantage.est rloo --reward.remote r.py\n"
    )
    found = read_settings(written(tmp_path, "run.sh", text))
    assert (found.method, found.number("group"), found.unknown) == ("rloo", 4, ())


def test_python_is_read_and_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"""
import os
open({str(mark)!r}, "w").write("ran")
SIZE = 4
again = 1
again = 2
more = {{"beta": -0.5, "seed": os.getpid()}}
args = trl.GRPOConfig(num_generations=2 * SIZE, **more, learning_rate=float(os.environ["LR"]), epsilon=again)
trainer = trl.GRPOTrainer(args=args, peft_config=LoraConfig(r=8))
"""
    found = read_settings(written(tmp_path, "train.py", text))
    assert not mark.exists()
    assert (found.trainer, found.method, found.number("group"), found.on("lora")) == ("trl", "grpo", 8, True)
    assert found.number("lr") is None and found.number("clip_low") is None
    assert {one.rule for one in lint_file(tmp_path / "train.py").errors} == {"beta-negative"}


def test_numbers_written_as_text_are_numbers(tmp_path: Path) -> None:
    found = read_settings(
        written(tmp_path, "grpo.yaml", "learning_rate: 1e-6\nnum_generations: '8'\nuse_peft: 'True'\n")
    )
    assert (found.number("lr"), found.number("group"), found.on("lora")) == (1e-6, 8, True)


def test_the_method_comes_from_the_command_the_name_a_comment_or_the_keys(tmp_path: Path) -> None:
    plain = "learning_rate: 1.0e-6\nmax_length: 512\n"
    assert read_settings(written(tmp_path, "my-dpo.yaml", plain)).method == "dpo"
    assert read_settings(written(tmp_path, "a.yaml", f"# trl kto --config a.yaml\n{plain}")).method == "kto"
    assert read_settings(written(tmp_path, "b.yaml", plain), method="reward").method == "reward"
    assert read_settings(written(tmp_path, "c.yaml", f"{plain}center_rewards_coefficient: 0.1\n")).method == "reward"
    with pytest.raises(AttachError, match="--method"):
        read_settings(written(tmp_path, "d.yaml", "learning_rate: 1.0e-6\nseed: 1\n"))


def test_what_is_not_known_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="--trainer"):
        read_settings(written(tmp_path, "a.yaml", "services:\n  web: 1\n"))
    with pytest.raises(AttachError, match="choose one of trl"):
        read_settings(written(tmp_path, "grpo.yaml", "num_generations: 8\n"), trainer="skyrl")
    with pytest.raises(AttachError, match="such an ending"):
        read_settings(written(tmp_path, "a.ini", "x=1"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("training_args.bin", b"\x80\x04.", "a pickle runs code"),
        ("args.yaml", b"\x80\x04cos\nsystem\n", "not text"),
        ("a.yaml", "x: !!python/object/apply:os.system [id]\n", "not YAML"),
        ("a.yaml", "a: [1, 2\n", "not YAML"),
        ("a.yaml", "- 1\n- 2\n", "no settings by name"),
        ("a.json", '{"a": ', "not JSON"),
        ("a.json", "[" * 100_000, "nested deeper"),
        ("a.toml", "a = = 1", "not TOML"),
        ("a.py", "def (", "not Python"),
        ("a.yaml", "x: " + "[" * 500 + "]" * 500, "nested too deep"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    with pytest.raises(AttachError, match=message):
        read_settings(written(tmp_path, name, text))


def test_a_yaml_bomb_is_refused_before_it_goes_off(tmp_path: Path) -> None:
    lines = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(AttachError, match="aliases"):
        read_settings(written(tmp_path, "a.yaml", "\n".join(lines)))


@pytest.mark.parametrize(
    "text",
    [
        "num_generations: &a [*a]\nbeta: 1\n",
        "num_generations: &a {x: *a}\nbeta: 1\n",
        f"num_generations: {'9' * 400}\nbeta: 1\n",
        f"num_generations: {'9' * 5000}\nbeta: 1\n",
        "num_generations: .inf\nbeta: .nan\nlearning_rate: 1e999\n",
        "num_generations: 2001-01-01\nbeta: !!binary aGVsbG8=\n1: 2\nnull: 3\n[1, 2]: 4\n",
    ],
)
def test_odd_values_are_judged_or_refused(tmp_path: Path, text: str) -> None:
    path = written(tmp_path, "grpo.yaml", text + "reward_funcs: [a]\n")
    try:
        found = lint_file(path)
    except AttachError:
        return
    json.dumps([found.settings, [one.value for one in found.complaints]], allow_nan=False)


def test_a_script_that_python_would_warn_about_is_read_in_silence(tmp_path: Path) -> None:
    text = "import re\nx = re.compile('\\d')\nargs = GRPOConfig(num_generations=1)\n"
    assert {one.rule for one in lint_file(written(tmp_path, "t.py", text)).errors} == {"group-of-one"}


def test_a_few_aliases_are_fine(tmp_path: Path) -> None:
    text = (
        "base: &base {lr: 1.0e-6}\nactor_rollout_ref:\n  actor:\n    optim: *base\nalgorithm:\n  adv_estimator: gae\n"
    )
    assert read_settings(written(tmp_path, "a.yaml", text)).number("lr") == 1e-6


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="no configuration has"):
        read_settings(written(tmp_path, "a.yaml", b"#" * ((1 << 20) + 1)))
    with pytest.raises(AttachError, match="name the file"):
        read_settings(tmp_path)
    with pytest.raises(AttachError, match="cannot be read"):
        read_settings(tmp_path / "absent.yaml")


def test_a_shell_bomb_stays_small() -> None:
    lines = ["A=xxxxxxxxxx"] + [f"A{n}=${{A{n - 1}}}${{A{n - 1}}}${{A{n - 1}}}" for n in range(1, 40)]
    lines[1] = "A1=$A$A"
    found = commands("\n".join([*lines, "echo $A39 " * 10]))
    assert sum(len(word) for words in found for word in words) < 10_000_000
    loop = commands("A=$B\nB=$A\npython x.py $A $((9**9**9)) $((1/0))")
    assert loop[0][-1] == "$((1/0))"


def test_what_a_stranger_wrote_does_not_act_in_a_sentence(tmp_path: Path) -> None:
    text = json.dumps({"num_generations": 8, "reward_funcs": ["a"], "loss_type": "dapo\x1b[2J\nx", "bet\x1b[2Ja": 1})
    for one in lint_file(written(tmp_path, "grpo.json", text)).complaints:
        assert "\x1b" not in one.sentence + one.fix + one.key and "\n" not in one.sentence


def test_yaml_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(AttachError, match=r"tiltmeter\[workbench\]"):
        read_settings(written(tmp_path, "grpo.yaml", "num_generations: 8\n"))


TRL = "trl grpo --model_name_or_path a --reward_funcs accuracy_reward --learning_rate 1e-6 --num_generations 1"


@pytest.mark.parametrize(
    "text",
    [
        f"{TRL} 2>&1 | tee run.log",
        f"{TRL} > run.log 2>&1 &",
        f'read -r WORD <<< "hello"\n{TRL}',
        f"echo $((1 << N))\n{TRL}",
        f"cat <<EOF > other.sh\ntrl sft --learning_rate 1\nEOF\n{TRL}",
        f'declare -a ARGS=(\n  --num_generations 1  # one\n)\n{TRL.rpartition("--")[0]} "${{ARGS[@]}}"; echo done',
        f"if true; then N=2; fi\nN=1; echo $N\n{TRL[:-1]}$N",
    ],
    ids=["pipe", "background", "here-string", "shift", "here-document", "declared", "one-line if"],
)
def test_what_a_shell_puts_around_a_command_does_not_hide_its_settings(tmp_path: Path, text: str) -> None:
    found = lint_file(written(tmp_path, "run.sh", text))
    assert found.method == "grpo" and [one.rule for one in found.errors] == ["group-of-one"]


PYTHON = """
COMMON = dict(bf16=True)
RATE: float = 2e-5
first = SFTConfig(learning_rate=RATE, max_length=2048, **COMMON)
SFTTrainer(args=first, peft_config=LoraConfig()).train()
GRPOTrainer(args=GRPOConfig(learning_rate=1e-6, num_generations=1)).train()
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("two.sh", f"trl sft --learning_rate 2e-5 --dataset_name b --max_length 2048 && {TRL}"),
        ("two.sh", f"trl sft --learning_rate 2e-5 --dataset_name b --max_length 2048\n{TRL}"),
        ("two.py", PYTHON),
    ],
)
def test_every_run_that_a_script_starts_is_judged_by_itself(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, name, text)
    found = lint_file(path)
    assert found.method == "sft, grpo" and [one.rule for one in found.errors] == ["group-of-one"]
    assert found.errors[0].sentence.startswith("run 2 of 2, grpo: ")
    assert not {"lr-range", "other-key"} & {one.rule for one in found.complaints}
    assert found.settings["lr"] == 2e-5
    assert (lint_file(path, method="grpo").method, lint_file(path, method="sft").errors) == ("grpo", ())


def test_an_argument_of_a_constants_name_is_not_the_constant(tmp_path: Path) -> None:
    text = "rate = 1.0\ndef main(rate):\n    GRPOConfig(learning_rate=rate, num_generations=8)\n"
    assert lint_file(written(tmp_path, "run.py", text)).errors == ()


@pytest.mark.parametrize(
    "text", ["trl grpo --a " + "cat " * 100_000 + "<<", "a=(" + "(" * 300_000 + "\n" * 19_000, "a \\\n" * 19_000]
)
def test_a_script_made_to_take_long_does_not(text: str) -> None:
    begun = time.process_time()
    commands(text)
    assert time.process_time() - begun < 10.0


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.json", '{"num_generations": 1, "learning_rate": 1e-6}'), ("a.py", "GRPOConfig(num_generations=1)\r\n")],
)
def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path, name, b"\xef\xbb\xbf" + text.encode())
    assert [one.rule for one in lint_file(path, method="grpo").errors] == ["group-of-one"]
