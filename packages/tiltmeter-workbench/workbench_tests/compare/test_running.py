"""One comparison: what is kept survives a kill, the shares of the error add up, and identical models are healthy."""

from __future__ import annotations

import copy
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.comparison import (
    PARTS,
    SHARE,
    TESTED,
    ComparisonRequest,
    compare_models,
    open_models,
    open_prompts,
)
from tiltmeter_workbench.compare.measures.measure import ALPHA
from tiltmeter_workbench.compare.referees import open_referee
from tiltmeter_workbench.compare.sampling import CHUNK, JsonlCache, Prompts, read_prompts
from workbench_tests.compare.scripted import Scripted, material

ASKED = [f"question {at}" for at in range(80)]


def said(prompt: str, rng: random.Random) -> str:
    return f"{prompt.split()[-1]} {rng.random()}"


class Counted(Scripted):
    """A model that counts the questions it was asked, and dies at one of them."""

    asked = 0
    dies_at: int | None = None

    def answers(self, asked, **settings):  # type: ignore[no-untyped-def]
        self.asked += len(asked)
        if self.dies_at is not None and self.asked > self.dies_at:
            raise KeyboardInterrupt
        return super().answers(asked, **settings)


def test_an_interrupted_comparison_goes_on_and_says_what_an_uninterrupted_one_says(tmp_path: Path) -> None:
    whole = material(tmp_path / "whole", said, said, samples=2).answers("checkpoint", "prompts", ASKED, 2)
    model = Counted(tmp_path / "checkpoint", said)
    model.dies_at = 20
    with pytest.raises(KeyboardInterrupt):
        material(tmp_path, said, model).answers("checkpoint", "prompts", ASKED, 2)
    before = model.asked - CHUNK // 2  # what was being asked is lost, and nothing else
    model.dies_at, model.asked = None, 0
    held = material(tmp_path, said, model)
    assert held.answers("checkpoint", "prompts", ASKED, 2) == whole
    assert model.asked == len(ASKED) - before
    model.asked = 0
    assert material(tmp_path, said, model).answers("checkpoint", "prompts", ASKED, 2) == whole
    assert model.asked == 0


KILLED = """
import os, signal, sys
from pathlib import Path
from tiltmeter_workbench.compare.sampling import JsonlCache
kept = JsonlCache(Path(sys.argv[1]))
for number in range(100):
    kept.put({f"key {number}": {"text": "x" * 1000}})
    print(number, flush=True)
    if number == 7:
        with open(sys.argv[1], "ab") as file:  # a write that the kill cuts in two
            file.write(b'{"key": "torn", "val')
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], capture_output=True, check=False, text=True)
    assert done.returncode == -signal.SIGKILL
    kept = JsonlCache(file)
    assert [number for number in range(100) if f"key {number}" in kept] == list(range(8))
    assert "torn" not in kept
    kept.put({"torn": 1})
    again = JsonlCache(file)
    assert again.get("torn") == 1
    assert again.get("key 7") == {"text": "x" * 1000}


def test_an_answer_is_found_again_only_for_the_same_question_settings_and_weights(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"1")
    model = Counted(tmp_path / "checkpoint", said)

    def asked(**settings: int) -> int:
        model.asked = 0
        material(tmp_path, said, model, **settings).answers("checkpoint", "prompts", ASKED[:4])
        return model.asked

    assert [asked(), asked(), asked(seed=1), asked(limit=7), asked()] == [4, 0, 4, 4, 0]
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"22")
    assert asked() == 4


def test_the_two_models_are_sampled_apart_and_a_question_asked_twice_is_two_draws(tmp_path: Path) -> None:
    held = material(tmp_path, said, said)
    base, checkpoint = (held.answers(which, "prompts", ASKED) for which in ("base", "checkpoint"))
    assert all(one[0].text != other[0].text for one, other in zip(base, checkpoint, strict=True))
    twice = held.answers("base", "twice", ["same", "same"])
    assert twice[0][0].text != twice[1][0].text


def test_more_prompts_later_are_the_same_prompts_first(tmp_path: Path) -> None:
    prompts = Prompts("prompts", ASKED, [{}] * 80)
    few, more = prompts.draw(3, 20), prompts.draw(3, 40)
    assert list(more.turns[:20]) == list(few.turns)
    model = Counted(tmp_path / "checkpoint", said)
    held = material(tmp_path, said, model)
    first = held.answers("checkpoint", "prompts", few.turns, 3)
    model.asked = 0
    assert held.answers("checkpoint", "prompts", more.turns, 3)[:20] == first
    assert model.asked == 20


def test_the_shares_of_the_error_add_up_to_it() -> None:
    assert SHARE * sum(TESTED.values()) == pytest.approx(ALPHA)


def test_prompts_are_texts_messages_or_a_suite_by_name(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3 + 3?"}]
    rows = [{"prompt": "2 + 2?", "answer": "4"}, {"prompt": chat}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_prompts(file)
    assert list(found.turns) == ["2 + 2?", chat]
    assert found.texts[0] == "2 + 2?" and "3 + 3?" in found.texts[1]
    assert found.columns[0] == {"answer": "4"}
    assert len(open_prompts(None)) == len(open_prompts("general")) > 50
    file.write_text('{"prompt": 7}\n')
    with pytest.raises(AttachError, match="a prompt is a int"):
        read_prompts(file)
    file.write_text('{"question": "2 + 2?"}\n')
    with pytest.raises(AttachError, match="no column 'prompt'"):
        read_prompts(file)


def test_a_prompt_that_stands_twice_is_asked_once_and_a_single_turn_is_a_text(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    turn = [{"role": "user", "content": "2 + 2?"}]
    rows = [{"prompt": turn, "id": 1}, {"prompt": "3 + 3?", "id": 2}, {"prompt": "2 + 2?", "id": 3}]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_prompts(file)
    assert (list(found.turns), list(found.columns), found.repeated) == (["2 + 2?", "3 + 3?"], [{"id": 1}, {"id": 2}], 1)
    told = compare_models(material(tmp_path, said, said), ComparisonRequest(found, leave_out=PARTS)).input_notes
    assert "prompts: 1 rows ask what another asks, and are left out" in told
    file.write_text('{"prompt": ""}\n')
    with pytest.raises(AttachError, match="every prompt is empty"):
        read_prompts(file)


def test_of_many_reasons_for_no_judgement_the_most_frequent_are_told(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def score(prompt, completion):\n    raise ValueError(completion)\n")
    held = material(tmp_path, said, said, samples=1)
    referee = open_referee(f"{tmp_path}/checks.py:score", held.work)
    left = [part for part in PARTS if part != "wins"]
    told = compare_models(
        held, ComparisonRequest(Prompts("prompts", ASKED[:50], [{}] * 50), referee=referee, leave_out=left)
    ).input_notes
    assert [line.startswith("not judged") for line in told].count(True) == 4
    assert told[-1] == "not judged, 97 times: 97 other reasons"


def test_a_task_that_is_not_there_is_named_before_anything_is_sampled(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'tiltmeter[compare]'")
    model = Counted(tmp_path / "checkpoint", said)
    with pytest.raises(AttachError, match="'hellaswagg' is no task"):
        compare_models(
            material(tmp_path, said, model), ComparisonRequest(Prompts("p", ASKED, [{}] * 80), tasks=("hellaswagg",))
        )
    assert model.asked == 0


def test_a_real_adapter_is_compared_as_what_it_makes_of_its_base(tiny_model: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="needs PEFT")
    import torch

    base = LocalModel(tiny_model)
    settings = peft.LoraConfig(r=2, target_modules=["q_proj", "gate_proj"], init_lora_weights=False)
    torch.manual_seed(0)
    trained = peft.get_peft_model(copy.deepcopy(base.model), settings).eval()
    trained.save_pretrained(tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_config.json"
    for named in (str(tiny_model), "somebody/model"):  # where it was trained, and on another machine
        file.write_text(json.dumps(json.loads(file.read_text()) | {"base_model_name_or_path": named}))
        _, checkpoint = open_models(tiny_model, tmp_path / "adapter")
        tokens = [base.tokenizer("the answer is 3")["input_ids"]]
        (own,), (ref,) = (model.log_likelihoods(["what is 1 plus 2"], tokens) for model in (checkpoint, base))
        given = LocalModel(tiny_model, model=trained, tokenizer=base.tokenizer)
        assert own == pytest.approx(given.log_likelihoods(["what is 1 plus 2"], tokens)[0], abs=1e-4)
        assert abs(own - ref).max() > 1e-3


def test_an_adapter_whose_base_is_elsewhere_is_put_on_the_base_that_is_named(tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder in (base, adapter):
        folder.mkdir()
    (base / "config.json").write_text("{}")
    told = adapter / "adapter_config.json"
    told.write_text('{"base_model_name_or_path": "somebody/model"}')
    assert open_models(base, adapter)[1].base == base
    told.write_text(json.dumps({"base_model_name_or_path": str(base)}))
    assert open_models(base, adapter)[1].base is None
    with pytest.raises(AttachError, match="no model's folder"):
        open_models(base, tmp_path)


LEFT_OUT = ("kl", "sycophancy", "refusal", "capability", "speed")


def test_what_is_left_out_or_not_asked_says_so_and_the_rest_is_one_report(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def score(prompt, completion):\n    return float(completion.split()[-1])\n")
    held = material(tmp_path, said, said, samples=2)
    prompts = Prompts("prompts", ASKED, [{}] * 80)
    bare = compare_models(held, ComparisonRequest(prompts, leave_out=LEFT_OUT))
    assert bare.verdict.state == "cannot tell"
    assert {measure.name for measure in bare.not_asked} >= {"win_rate", "win_rate_ood", "reward_accuracy", *LEFT_OUT}
    referee = open_referee(f"{tmp_path}/checks.py:score", held.work)
    other = Prompts("ood", [f"another {at}" for at in range(30)], [{}] * 30)
    full = compare_models(held, ComparisonRequest(prompts, other, referee, leave_out=LEFT_OUT))
    assert (full.verdict.state, full.costs) == ("healthy", [])
    by_name = {measure.name: measure for measure in full.measures}
    assert (by_name["win_rate"].n, by_name["win_rate_ood"].n) == (80, 30)
    assert "checks.py" in full.judge
    with pytest.raises(AttachError, match="no measure 'luck'"):
        compare_models(held, ComparisonRequest(prompts, leave_out=("luck",)))
