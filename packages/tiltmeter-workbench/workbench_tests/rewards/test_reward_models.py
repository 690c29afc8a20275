"""Reward models in folders: as reward functions, averaged, and taught to a smaller one. All of them tiny and random."""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.errors import AttachError
from tiltmeter_lab.tiny.language import QUESTIONS, sample
from tiltmeter_lab.tiny.model import tokenizer as toy_tokenizer
from tiltmeter_workbench.rewards import Reward, distil, model, warm
from tiltmeter_workbench.rewards.distillation import BAR, HELD_OUT, NOTE, StudentCheck, _checks, _PromptRows
from tiltmeter_workbench.rewards.reward_model import RewardModel

torch = pytest.importorskip("torch", reason="reward models are read by transformers")
transformers = pytest.importorskip("transformers", reason="reward models are read by transformers")

PROMPTS = ["what color is apple ?", "what size is bean ?"] * 3
ANSWERS = [
    "it is red .",
    "it is huge . because i saw it .",
    "[ red ]",
    "it is tiny .",
    "it depends on many things .",
    "",
]
TEMPLATE = "{% for message in messages %}{{ message.role }} {{ message.content }} {% endfor %}"


def saved(folder: Path, seed: int = 0, layers: int = 2, labels: int = 1, template: str = "", loud: float = 1.0) -> Path:
    """A random reward model of the toy language."""
    language = toy_tokenizer()
    if template:
        language.chat_template = template
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = transformers.LlamaForSequenceClassification(
            transformers.LlamaConfig(
                vocab_size=len(language),
                hidden_size=32,
                intermediate_size=48,
                num_hidden_layers=layers,
                num_attention_heads=2,
                max_position_embeddings=64,
                pad_token_id=language.pad_token_id,
                eos_token_id=language.eos_token_id,
                bos_token_id=None,
                num_labels=labels,
            )
        )
        with torch.no_grad():
            made.score.weight.mul_(10.0 * loud)
            made.model.embed_tokens.weight.mul_(10.0)
    made.save_pretrained(folder)
    language.save_pretrained(folder)
    return folder


def by_hand(folder: Path, text: str) -> float:
    made = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    with torch.no_grad():
        return float(made(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).logits[0, 0])


def weights_of(folder: Path) -> dict[str, Any]:
    return dict(transformers.AutoModelForSequenceClassification.from_pretrained(folder).state_dict())


# -- as a reward function ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_each_score_is_what_the_model_says_of_that_text_alone(tmp_path: Path, batch: int) -> None:
    reward = model(saved(tmp_path / "rm"), batch=batch, between=" ", ending=" <eos>")
    scores = reward(prompts=PROMPTS, completions=ANSWERS)
    alone = [
        by_hand(tmp_path / "rm", f"{prompt} {answer} <eos>") for prompt, answer in zip(PROMPTS, ANSWERS, strict=True)
    ]
    assert scores == pytest.approx(alone, abs=1e-5)
    assert len(set(np.round(alone, 3))) == len(alone)  # else a mixed-up order would pass
    assert reward.infra == [False] * len(ANSWERS)
    assert reward.formatting == "plain text"
    assert isinstance(reward, Reward)


def test_the_same_scores_come_again_bit_for_bit(tmp_path: Path) -> None:
    folder = saved(tmp_path / "rm")
    first = model(folder)(prompts=PROMPTS, completions=ANSWERS)
    torch.manual_seed(99)
    assert model(folder)(prompts=PROMPTS, completions=ANSWERS) == first


def test_loading_waits_for_the_first_score_and_leaves_random_numbers_and_threads_alone(tmp_path: Path) -> None:
    reward = model(saved(tmp_path / "rm"))
    assert not reward.loaded
    np.random.seed(3)  # noqa: NPY002  # the one that loading might use up
    torch.manual_seed(3)
    random.seed(3)
    threads = torch.get_num_threads()
    expected = [torch.rand(1).item(), random.random(), np.random.rand()]  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    random.seed(3)
    reward(prompts=PROMPTS, completions=ANSWERS)
    assert [torch.rand(1).item(), random.random(), np.random.rand()] == expected  # noqa: NPY002
    assert torch.get_num_threads() == threads
    assert reward.loaded
    assert not reward.model.training
    assert not any(value.requires_grad for value in reward.model.parameters())


def test_a_gradient_of_the_input_can_be_asked_for(tmp_path: Path) -> None:
    reward = model(saved(tmp_path / "rm"))
    reward(prompts=PROMPTS, completions=ANSWERS)  # scoring must not leave the model unable to
    ids = reward.tokenizer("it is red .", return_tensors="pt")["input_ids"]
    inputs = reward.model.get_input_embeddings()(ids).detach().requires_grad_()
    reward.model(inputs_embeds=inputs, attention_mask=torch.ones_like(ids)).logits.sum().backward()
    assert inputs.grad.abs().sum() > 0


def test_messages_go_through_the_template_if_there_is_one_and_it_is_said(tmp_path: Path) -> None:
    asked = [[{"role": "user", "content": "what color is apple ?"}]]
    told = [[{"role": "assistant", "content": "it is red ."}]]
    with_it = model(saved(tmp_path / "with", template=TEMPLATE))
    without = model(saved(tmp_path / "without"), between=" ")
    assert with_it.format_texts(asked, told) == ["user what color is apple ? assistant it is red . "]
    assert with_it.formatting == "chat template"
    assert without.format_texts(asked, told) == ["what color is apple ? it is red ."]
    assert without.formatting == "plain text"
    assert with_it.format_texts(["what color is apple ?"], ["it is red ."]) == ["what color is apple ?it is red ."]
    assert with_it.formatting == "plain text"
    assert with_it(prompts=asked, completions=told) == pytest.approx(
        [by_hand(tmp_path / "with", "user what color is apple ? assistant it is red .")], abs=1e-5
    )


def test_a_text_beyond_the_limit_is_cut_and_named_and_one_that_just_fits_is_not(tmp_path: Path) -> None:
    reward = model(saved(tmp_path / "rm"), max_length=4)
    reward(completions=["it is red .", "it is red . and", "it is"])
    assert reward.cut == [False, True, False]


def test_a_model_that_gives_no_number_is_broken_and_pays_nothing(tmp_path: Path) -> None:
    reward = model(saved(tmp_path / "rm"))
    with torch.no_grad():
        reward.model.score.weight.fill_(float("nan"))
    assert reward(completions=["it is red .", ""]) == [None, None]
    assert reward.infra == [True, True]


def test_other_weights_are_another_reward(tmp_path: Path) -> None:
    one, same, other = (saved(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1)))
    assert model(one).identity == model(same).identity != model(other).identity
    assert fingerprint([model(one, name="rm")]) != fingerprint([model(other, name="rm")])


class Trap:
    """Unpickled, it leaves a file behind."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (open, (self.path, "w"))


def test_pickled_weights_are_refused_with_the_fix_and_never_opened(tmp_path: Path) -> None:
    folder = saved(tmp_path / "rm")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(str(tmp_path / "sprung"))))
    model(folder)(completions=["it is red ."])  # beside safetensors it is not looked at
    (folder / "model.safetensors").unlink()
    with pytest.raises(AttachError, match=r"pytorch_model\.bin.*save_pretrained"):
        model(folder)
    assert not (tmp_path / "sprung").exists()


def test_what_is_no_reward_model_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="is no folder"):
        model(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(AttachError, match="no config"):
        model(tmp_path / "empty")
    adapter = saved(tmp_path / "adapter")
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(AttachError, match="merge_and_unload"):
        model(adapter)
    with pytest.raises(AttachError, match="gives 3 numbers"):
        model(saved(tmp_path / "three", labels=3))(completions=["it is red ."])
    policy = tmp_path / "policy"
    whole = transformers.AutoModelForSequenceClassification.from_pretrained(saved(tmp_path / "rm"))
    transformers.LlamaForCausalLM(whole.config).save_pretrained(policy)
    toy_tokenizer().save_pretrained(policy)
    with pytest.raises(AttachError, match="not trained as a reward model"):
        model(policy)(completions=["it is red ."])


def test_a_model_with_code_of_its_own_is_not_run(tmp_path: Path) -> None:
    folder = saved(tmp_path / "rm")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mystery", "auto_map": {"AutoModelForSequenceClassification": "code.Mystery"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(AttachError, match="could not be loaded"):
        model(folder)(completions=["it is red ."])
    assert not (tmp_path / "ran").exists()


def test_nothing_heavy_is_imported_before_a_score_is_asked_for() -> None:
    code = "import sys, tiltmeter.rewards as r; r.warm, r.distil, r.model; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- averaged ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [2, 3, 7])
def test_the_average_of_a_model_with_itself_is_itself_bit_for_bit(tmp_path: Path, copies: int) -> None:
    folder = saved(tmp_path / "rm", seed=copies)
    average = weights_of(warm([folder] * copies, tmp_path / "out"))
    assert all(torch.equal(value, average[name]) for name, value in weights_of(folder).items())
    assert set(average) == set(weights_of(folder))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_average_of_two_is_their_mean(tmp_path: Path, seed: int) -> None:
    one, other = saved(tmp_path / "a", seed), saved(tmp_path / "b", seed + 10)
    out = warm([one, other], tmp_path / "out")
    first, second, average = weights_of(one), weights_of(other), weights_of(out)
    for name in first:
        torch.testing.assert_close(average[name], (first[name] + second[name]) / 2, rtol=0, atol=1e-7)
        assert not torch.equal(average[name], first[name]) or torch.equal(first[name], second[name])
    assert model(out)(completions=["it is red ."])[0] is not None


def test_the_note_names_the_members_and_says_what_was_assumed(tmp_path: Path) -> None:
    members = [saved(tmp_path / "a", 1), saved(tmp_path / "b", 2)]
    note = json.loads((warm(members, tmp_path / "out") / "tiltmeter-warm.json").read_text())
    assert [member["name"] for member in note["members"]] == ["a", "b"]
    assert [member["sha256"] for member in note["members"]] == [model(folder).identity[0] for folder in members]
    assert "same initial weights" in note["assumed"]
    assert str(tmp_path) not in json.dumps(note)


def test_members_that_do_not_fit_together_are_refused_with_the_reason(tmp_path: Path) -> None:
    folder = saved(tmp_path / "a")
    with pytest.raises(AttachError, match="num_hidden_layers is 2 and 3"):
        warm([folder, saved(tmp_path / "deeper", layers=3)], tmp_path / "out")
    with pytest.raises(AttachError, match="member itself"):
        warm([folder, saved(tmp_path / "b")], folder)
    other = saved(tmp_path / "words", 4)
    written = json.loads((other / "tokenizer.json").read_text())
    vocabulary = written["model"]["vocab"]
    vocabulary["red"], vocabulary["green"] = vocabulary["green"], vocabulary["red"]
    (other / "tokenizer.json").write_text(json.dumps(written))
    with pytest.raises(AttachError, match="tokenizers differ in 2 tokens"):
        warm([folder, other], tmp_path / "out")
    joined = saved(tmp_path / "joined", 5)
    written = json.loads((joined / "tokenizer.json").read_text())
    written["normalizer"] = {"type": "Lowercase"}
    (joined / "tokenizer.json").write_text(json.dumps(written))
    with pytest.raises(AttachError, match="split text differently"):
        warm([folder, joined], tmp_path / "out")
    broken = saved(tmp_path / "broken", loud=float("nan"))
    with pytest.raises(AttachError, match="not finite"):
        warm([folder, broken], tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- a student --------------------------------------------------------------------------------------------------------


def answers(count: int, each: int, seed: int = 0) -> tuple[list[str], list[str]]:
    rng = random.Random(seed)
    prompts = [prompt for prompt in QUESTIONS[:count] for _ in range(each)]
    return prompts, [sample(prompt, rng) for prompt in prompts]


PADS: dict[str, Callable[[str], str]] = {
    "padded": lambda text: f"{text} and so on",
    "repeated": lambda text: f"{text} {text}",
}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four layers, of which the first says almost everything: half of what a student needs is to be found there."""
    folder = saved(tmp_path_factory.mktemp("teacher") / "rm", seed=5, layers=4)
    made = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        for layer in made.model.layers[1:]:
            layer.self_attn.o_proj.weight.mul_(0.05)
            layer.mlp.down_proj.weight.mul_(0.05)
    made.save_pretrained(folder)
    return folder


def test_a_student_is_checked_on_prompts_it_has_not_seen_and_saved_as_a_reward_model(
    tmp_path: Path, teacher: Path
) -> None:
    before = torch.get_rng_state()
    judge = model(teacher, between=" ", ending=" <eos>")
    prompts, told = answers(36, 6)
    found = distil(judge, prompts, told, tmp_path / "student", edits=PADS, epochs=8, rate=2e-3, bar=0.6)
    assert torch.equal(torch.get_rng_state(), before)
    assert found.usable
    assert [check.name for check in found.checks] == [HELD_OUT, "padded", "repeated"]
    held = found.checks[0]
    assert held.prompts == 9
    assert held.low <= held.agreement <= held.high
    assert held.agreement > 0.8 and held.spearman > 0.7 and held.r2 > 0.4
    assert 0.0 < found.size_ratio < 1.0 and found.speed_ratio > 0.0
    small = model(tmp_path / "student", between=" ", ending=" <eos>")
    assert small.model.config.num_hidden_layers == 1
    wanted = (np.array(judge(prompts=prompts, completions=told), float) - found.mean) / found.std
    assert np.corrcoef(wanted, np.array(small(prompts=prompts, completions=told), float))[0, 1] > 0.7
    note = json.loads((tmp_path / "student" / NOTE).read_text())
    assert note["teacher"] == judge.identity[0] and note["why"] == []


def test_a_student_that_learnt_nothing_is_refused_or_marked(tmp_path: Path, teacher: Path) -> None:
    judge = model(teacher, between=" ", ending=" <eos>")
    stranger = saved(tmp_path / "stranger", seed=8, layers=1)
    with pytest.raises(AttachError, match="not its teacher"):
        distil(judge, *answers(36, 4), tmp_path / "out", student=stranger, edits={}, epochs=0)
    assert not (tmp_path / "out").exists()
    marked = distil(judge, *answers(36, 4), tmp_path / "out", student=stranger, edits={}, epochs=0, refuse=False)
    assert not marked.usable and HELD_OUT in marked.why[0]
    assert json.loads((tmp_path / "out" / NOTE).read_text())["why"]


def test_a_student_of_the_same_weights_agrees_in_everything(tmp_path: Path, teacher: Path) -> None:
    judge = model(teacher, between=" ", ending=" <eos>")
    found = distil(judge, *answers(32, 4), tmp_path / "out", student=teacher, edits=PADS, epochs=0)
    # Its scores are on the teacher's scale and not standardised, so only order can agree.
    assert all(check.agreement == 1.0 for check in found.checks)
    assert found.usable


class Says:
    """A stand-in for a reward model."""

    def __init__(self, score: Callable[[str], float]) -> None:
        self.score, self.infra, self.__name__ = score, [False], "says"

    def __call__(self, prompts: Any, completions: list[str]) -> list[float]:
        return [self.score(text) for text in completions]


def test_a_student_that_likes_what_its_teacher_does_not_is_caught_by_the_edits() -> None:
    prompts = [f"p{at}" for at in range(10) for _ in range(3)]
    told = [f"{'x' * (at % 3 + 1)}" for at in range(30)]
    rows = _PromptRows.of(prompts, told)
    teacher = Says(lambda text: float(text.count("x")))
    faithful, fond = Says(teacher.score), Says(lambda text: text.count("x") + 2.0 * text.count("!"))
    edits = {"stock": lambda text: f"{text} !", "double": lambda text: f"{text} {text}"}
    good = _checks(teacher, faithful, rows, np.arange(30), (0.0, 1.0), edits)  # type: ignore[arg-type]
    bad = _checks(teacher, fond, rows, np.arange(30), (0.0, 1.0), edits)  # type: ignore[arg-type]
    assert all(check.passes(BAR) for check in good)
    assert [check.pairs for check in good] == [30, 0, 30]  # "!" is nothing to the teacher
    assert [check.passes(BAR) for check in bad] == [True, False, True]
    assert bad[1].gap == pytest.approx(2.0)
    assert "liked better" in bad[1].missing_reason(BAR)
    contrary = _checks(teacher, Says(lambda text: -text.count("x")), rows, np.arange(30), (0.0, 1.0), edits)  # type: ignore[arg-type]
    assert [check.agreement for check in contrary] == pytest.approx([0.0, float("nan"), 0.0], nan_ok=True)
    assert not contrary[0].passes(BAR)


def test_agreement_is_the_mean_over_prompts_with_an_interval_over_prompts() -> None:
    rows = _PromptRows.of([f"p{at}" for at in range(4) for _ in range(2)], ["a", "b"] * 4)
    wanted = iter([[0.0, 1.0] * 4])
    said = iter([[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0]])

    class Scripted(Says):
        def __call__(self, prompts: Any, completions: list[str]) -> list[float]:
            return next(self.lines)

        def __init__(self, lines: Any) -> None:
            super().__init__(lambda text: 0.0)
            self.lines = lines

    (check,) = _checks(Scripted(wanted), Scripted(said), rows, np.arange(8), (0.0, 1.0), {})  # type: ignore[arg-type]
    # Prompts agree 1, 1, 1, 0: mean 0.75, standard error 0.25, t(3) = 3.18.
    assert (check.agreement, check.pairs, check.prompts) == (0.75, 4, 4)
    assert check.low == 0.0 and check.high == 1.0
    assert check.r2 == pytest.approx(1.0 - 0.25 / 0.25)
    assert isinstance(check, StudentCheck) and not check.passes(BAR)


def test_too_few_prompts_or_a_teacher_without_an_opinion_are_refused(tmp_path: Path, teacher: Path) -> None:
    judge = RewardModel(teacher, between=" ")
    with pytest.raises(AttachError, match="different prompts"):
        distil(judge, *answers(12, 2), tmp_path / "out")
    silent = model(saved(tmp_path / "silent", loud=0.0))
    with pytest.raises(AttachError, match="same score"):
        distil(silent, *answers(36, 2), tmp_path / "out")
    with pytest.raises(AttachError, match="1 prompts and 2 completions"):
        distil(judge, ["a"], ["b", "c"], tmp_path / "out")
    with pytest.raises(AttachError, match="has fewer, not 4"):
        distil(judge, *answers(36, 2), tmp_path / "out", layers=4)
