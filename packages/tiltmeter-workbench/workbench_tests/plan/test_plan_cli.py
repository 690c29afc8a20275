"""`tiltmeter model plan` from the command line: published figures, the answer, its exit code, the files it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter_workbench.verbs.model.plan import METHODS


def run(*words: str, code: int = 0) -> str:
    verb = ["lint", *words[1:]] if words[:1] == ("lint",) else ["model", "plan", *words]
    found = CliRunner().invoke(app, verb)
    if isinstance(found.exception, AttachError):
        raise found.exception
    assert found.exit_code == code, found.output
    return found.stdout


def told(*words: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json", code=code))
    return found


def test_the_published_figures_exactly() -> None:
    found = told("--model", "7B", "--published")["published"]
    assert {name: each["total_gb"] for name, each in found["methods"].items()} == {"ppo": 124, "dpo": 64, "grpo": 82}
    assert found["includes_gradients"] is False and "our reconstruction" in found["note"]
    assert "124" in run("--model", "7B", "--published")


def test_the_default_counts_gradients_and_says_so() -> None:
    (found,) = told("--model", "7B", "--method", "dpo")["memory"]
    assert found["includes_gradients"] is True and found["items_gb"]["gradients"] > 13
    assert "gradients are counted" in " ".join(found["assumes"])
    assert "Gradients are counted" in run("--model", "7B")


def test_without_anything_said_all_methods_are_compared() -> None:
    found = told("--model", "1B")
    assert [each["method"] for each in found["memory"]] == list(METHODS[1:])
    assert found["method"] is None and found["groups"] is None and found["published"] is None


def test_what_one_has_chooses_the_method() -> None:
    found = told("--model", "1B", "--verifier", "--pair-count", "9000", "--untuned", "--gpu-memory", "80")
    assert found["method"]["steps"] == ["sft", "dpo", "grpo"]
    assert found["memory"][0]["method"] == "grpo" and found["memory"][0]["fits"] is True
    assert "arXiv" in found["method"]["source"]
    shown = run("--model", "1B", "--has-judge")
    assert "iterative DPO" in shown and "Rules of thumb" in shown


def test_what_does_not_fit_leaves_with_1_and_the_cheapest_change() -> None:
    (found,) = told("--model", "8B", "--method", "grpo", "--gpu-memory", "40", code=1)["memory"]
    assert found["fits"] is False and found["changes"][-1]["fits"] is True
    assert found["gpus_needed"] > 1
    shown = run("--model", "8B", "--method", "grpo", "--gpu-memory", "40", code=1)
    assert "does not fit" in shown and found["changes"][-1]["name"] in shown and "┃" in shown
    assert "does not fit as it is on 64" in run("--model", "70B", "--method", "ppo", "--gpu-memory", "4", code=1)


def test_vllm_needs_room_for_the_weights() -> None:
    words = ("--model", "8B", "--lora", "16", "--method", "grpo", "--gpu-memory", "80", "--vllm", "colocate")
    assert "a cache of" in run(*words)
    assert "does not hold the weights" in run(*words, "--vllm-share", "0.1", code=1)
    (found,) = told(*words, "--vllm-sleep")["memory"]
    assert "vLLM" not in found["items_gb"] or found["largest_at"] == "generation"


def test_a_folder_is_a_model_too(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 128, "vocab_size": 300}))
    found = told("--model", str(tmp_path), "--method", "sft")
    assert found["model"]["parameters"] == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64 + 2 * 300 * 64
    with pytest.raises(AttachError, match="neither a folder"):
        run("--model", "no-such")


def test_groups_from_a_rate_and_from_a_file(tmp_path: Path) -> None:
    found = told("--method", "grpo", "--model", "135M", "--pass-rate", "0.5", "--group", "12")["groups"]
    assert found["size"] == 8 and {row["size"] for row in found["sizes"]} >= {2, 8, 12, 64}
    file = tmp_path / "samples.jsonl"
    rows = [{"q": f"{at % 5}", "right": at % 3 == 0} for at in range(60)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("--model", "135M", "--method", "grpo", "--samples", str(file), "--group-column", "q")
    assert told(*words, "--correct-column", "right")["groups"]["prompts"] == 5
    shown = run(*words, "--correct-column", "right")
    assert "rollouts per live group" in shown and "extrapolated" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("--method", "magic"),
        ("--precision", "int3"),
        ("--sharding", "zero9"),
        ("--optimiser", "lion"),
        ("--vllm", "colocate"),
        ("--logits", "half"),
        ("--lora", "8", "--targets", "q_prog"),
        ("--pass-rate", "0.5", "--samples", "x.jsonl"),
        ("--out", "x.yaml"),
        ("--method", "kto"),
        ("--gpu-memory", "inf"),
        ("--group", "100000", "--pass-rate", "0.5"),
    ],
)
def test_a_wrong_word_is_usage(words: tuple[str, ...]) -> None:
    run("--model", "135M", *words, code=2)


def test_the_linter_takes_every_method_that_it_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("learning_rate: 5e-7\noutput_dir: out\nbeta: 0.1\n")
    assert told("lint", str(path), "--method", "kto")["method"] == "kto"


def test_what_a_start_does_not_carry_is_said(tmp_path: Path) -> None:
    words = ("--method", "grpo", "--out", str(tmp_path / "run.sh"), "--trainer", "verl", "--reward-model", "7B")
    done = CliRunner().invoke(
        app, ["model", "plan", "--model", "135M", *words, "--optimiser", "sgd"], catch_exceptions=False
    )
    assert "planned, but not in the file: " in done.stderr and "the optimiser (sgd)" in done.stderr
    assert "reward.reward_model.model_path=your/reward-model" in (tmp_path / "run.sh").read_text()


def test_lint_leaves_with_1_for_an_error_and_0_for_none(tmp_path: Path) -> None:
    bad, good = tmp_path / "bad.json", tmp_path / "good.yaml"
    bad.write_text('{"num_generations": 1, "learning_rate": 2e-6, "reward_funcs": ["accuracy_reward"]}')
    found = told("lint", str(bad), code=1)
    (error,) = [each for each in found["complaints"] if each["level"] == "error"]
    assert error["rule"] == "group-of-one" and error["source"] and error["date"] and error["fix"]
    shown = run("lint", str(bad), code=1)
    assert "error" in shown and "What to do" in shown and error["date"] in shown
    assert f"{error['key']}: {error['fix']}" in " ".join(shown.split())
    run("--model", "135M", "--verifier", "--trainer", "trl", "--out", str(good))
    assert told("lint", str(good))["complaints"] == []


@pytest.mark.parametrize("trainer", ["trl", "verl", "openrlhf"])
def test_a_start_is_written_for_each_trainer(trainer: str, tmp_path: Path) -> None:
    file = tmp_path / "start"
    run("--model", "0.5B", "--verifier", "--gpus", "2", "--trainer", trainer, "--out", str(file))
    assert "Qwen/Qwen2.5-0.5B" in file.read_text()
    run("--model", "0.5B", "--verifier", "--out", str(tmp_path / "no" / "folder"), code=2)


def test_hostile_names_are_shown_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[31mred"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "vocab_size": 300}
        | {"num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128}))  # fmt: skip
    assert "\x1b[31mred" not in run("--model", str(folder), "--method", "sft")
