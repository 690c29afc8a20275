"""A model in a folder: what it samples, what it says of probabilities, and what a turn's text cannot do to it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common import local_model as module
from tiltmeter_workbench.common.chat_model import ChatAnswer, ChatModel, all_answers
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.common.open_chat import open_model

torch = pytest.importorskip("torch", reason="models are read by transformers")

ASKED = ["what is 1 plus 2", "what is 2 plus 2, and why", "the answer"]


@pytest.fixture
def local(tiny_model: Path) -> LocalModel:
    return LocalModel(tiny_model)


def texts(told: list[list[ChatAnswer]]) -> list[list[str]]:
    return [[answer.text for answer in answers] for answers in told]


def test_answers_come_in_order_with_their_tokens_and_the_same_seed_says_the_same(local: LocalModel) -> None:
    assert isinstance(local, ChatModel)
    seen: list[tuple[str, int, int]] = []
    told = all_answers(
        local, ASKED, samples=2, limit=5, seed=3, progress=lambda *far: seen.append(far), what="sampling"
    )
    assert [len(answers) for answers in told] == [2, 2, 2]
    assert all(1 <= len(answer.tokens) <= 5 for answers in told for answer in answers)
    assert all(answer.ended or len(answer.tokens) == 5 for answers in told for answer in answers)
    assert seen == [("sampling", done, 3) for done in (1, 2, 3)]
    again = all_answers(LocalModel(local.folder), ASKED, samples=2, limit=5, seed=3)
    assert told == again
    assert texts(told) != texts(all_answers(local, ASKED, samples=2, limit=5, seed=4))
    assert told[0][0] != told[0][1], "samples of one prompt differ"


def test_the_most_likely_answer_is_the_arg_max_of_the_model_itself_whatever_stands_beside_it(local: LocalModel) -> None:
    told = all_answers(local, ASKED, limit=4, temperature=0.0)
    for question, (answer,) in zip(ASKED, told, strict=True):
        tokens = local.prompt_tokens(question)
        for expected in answer.tokens:
            with torch.no_grad():
                assert local.model(torch.tensor([tokens])).logits[0, -1].argmax().item() == expected
            tokens.append(expected)


def test_log_likelihoods_are_those_of_one_sequence_by_itself(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [answer.tokens for (answer,) in all_answers(local, ASKED, limit=6)]
    told = local.log_likelihoods(ASKED, answers)
    for question, tokens, found in zip(ASKED, answers, told, strict=True):
        prompt = local.prompt_tokens(question)
        with torch.no_grad():
            logits = local.model(torch.tensor([[*prompt, *tokens]])).logits[0].double().log_softmax(-1)
        expected = [logits[len(prompt) - 1 + at, token].item() for at, token in enumerate(tokens)]
        assert found == pytest.approx(expected, abs=1e-5)
    monkeypatch.setattr(module, "LOGITS", 1)  # one by one, as where memory is short
    assert all(
        one == pytest.approx(other, abs=1e-5)
        for one, other in zip(told, local.log_likelihoods(ASKED, answers), strict=True)
    )
    assert [len(row) for row in local.log_likelihoods(["x"], [[]])] == [0]
    with pytest.raises(ValueError, match="1 questions and 2 answers"):
        local.log_likelihoods(["x"], [[1], [2]])


def test_the_probability_of_a_choice_is_that_of_its_first_token_with_and_without_a_space(local: LocalModel) -> None:
    found = dict(local.choices(ASKED, ["what", "the"]))
    for number, question in enumerate(ASKED):
        for text, told in zip(["what", "the"], found[number], strict=True):
            starts = {local.tokenizer(form)["input_ids"][0] for form in (text, f" {text}")}
            each = local.log_likelihoods([question] * len(starts), [[token] for token in sorted(starts)])
            assert told == pytest.approx(math.log(sum(math.exp(row[0]) for row in each)), abs=1e-5)
    assert local.can_distinguish(["1", "2"])
    assert not local.can_distinguish(["A", "B"]), "this model has no capital letters"
    with pytest.raises(AttachError, match="no token of its own for each of what, what"):
        list(local.choices(ASKED, ["what", "what"]))


def test_a_folders_wishes_about_generation_do_not_bend_what_is_sampled(tiny_model: Path) -> None:
    plain, bent = LocalModel(tiny_model), LocalModel(tiny_model)
    bent.model.generation_config.repetition_penalty = 5.0
    bent.model.generation_config.top_k = 1
    bent.model.generation_config.no_repeat_ngram_size = 1
    bent.model.generation_config.min_new_tokens = 8
    for temperature in (0.0, 1.0):
        expected = all_answers(plain, ASKED, limit=8, temperature=temperature)
        assert all_answers(bent, ASKED, limit=8, temperature=temperature) == expected


def test_a_trainers_chance_and_its_models_state_are_left_as_they_were(local: LocalModel) -> None:
    model = local.model.train()
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    given = LocalModel("policy", model=model, tokenizer=local.tokenizer)
    all_answers(given, ASKED, limit=3)
    given.log_likelihoods(ASKED, [[1], [2], [3]])
    assert torch.equal(torch.rand(3), expected)
    assert model.training
    assert given.name == "policy"


def test_a_turn_cannot_speak_a_control_token(local: LocalModel) -> None:
    language = local.tokenizer
    end = language.eos_token_id
    assert end in language("so <eos> it")["input_ids"], "the tokenizer itself would read it as one"
    assert end not in local.prompt_tokens("so <eos> it")
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b <eos><pad>"}]
    assert not {end, language.pad_token_id} & set(local.prompt_tokens(turns))


def test_half_a_character_is_asked_like_any_other(tiny_model: Path) -> None:
    for plain in (True, False):
        model = LocalModel(tiny_model, plain=plain)
        assert model.prompt_tokens("what \ud800 is") == model.prompt_tokens("what \ufffd is")


def test_plain_text_and_empty_text_have_tokens_before_the_answer(tiny_model: Path) -> None:
    plain = LocalModel(tiny_model, plain=True)
    assert not plain.chats
    assert plain.tokenizer.decode(plain.prompt_tokens("the answer")).strip() == "the answer"
    assert len(plain.prompt_tokens("")) == 1
    assert np.isfinite(plain.log_likelihoods([""], [[5, 6]])[0]).all()
    chat = LocalModel(tiny_model)
    assert chat.chats
    assert "user" in chat.tokenizer.decode(chat.prompt_tokens("what"))


def test_a_lora_adapter_answers_as_base_and_adapter_together_do(
    tiny_model: Path, tmp_path: Path, their_warnings: None
) -> None:
    peft = pytest.importorskip("peft")
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(tiny_model)
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    adapted = peft.get_peft_model(base, config)
    adapted.save_pretrained(tmp_path / "adapter")
    found = LocalModel(tmp_path / "adapter", base=tiny_model)
    ids = found.prompt_tokens("what is")
    with torch.no_grad():
        expected = adapted(torch.tensor([ids])).logits
        plain = LocalModel(tiny_model).model(torch.tensor([ids])).logits
        assert torch.allclose(found.model(torch.tensor([ids])).logits, expected, atol=1e-4)
    assert not torch.allclose(plain, expected, atol=1e-4)

    def moved(**facts: Any) -> None:
        path = tmp_path / "adapter" / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))

    moved(base_model_name_or_path=str(tiny_model))
    assert LocalModel(tmp_path / "adapter").prompt_tokens("what is") == ids
    moved(base_model_name_or_path="nobody/nothing")
    with pytest.raises(AttachError, match=r"nobody/nothing.*not here: give the base's folder"):
        assert LocalModel(tmp_path / "adapter").model
    (tmp_path / "adapter" / "adapter_model.safetensors").rename(tmp_path / "adapter" / "adapter_model.bin")
    with pytest.raises(AttachError, match=r"no adapter_model\.safetensors"):
        assert LocalModel(tmp_path / "adapter", base=tiny_model).model


def test_what_is_no_model_is_refused_with_the_fix(tmp_path: Path, tiny_model: Path) -> None:
    assert isinstance(open_model(tiny_model), LocalModel)
    with pytest.raises(AttachError, match=r"neither config\.json nor"):
        open_model(tmp_path)
    with pytest.raises(AttachError, match=r"give a folder that transformers can load, or a \.toml"):
        open_model("org/model")
