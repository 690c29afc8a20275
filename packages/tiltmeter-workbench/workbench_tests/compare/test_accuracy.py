"""The reward's accuracy on-policy: whether it still ranks the checkpoint's own answers as the judge does."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.compare.measures import accuracy
from tiltmeter_workbench.compare.measures.accuracy import PairAgreement, compare_accuracy
from tiltmeter_workbench.compare.referees import open_referee
from tiltmeter_workbench.compare.sampling import Prompts
from workbench_tests.compare.scripted import material

PROMPTS = Prompts("prompts", [f"question {at}" for at in range(60)], [{}] * 60)
JUDGE = "def score(prompt, completion):\n    return float('right' in completion)\n"
#: Pays for being right, and for a phrase that a checkpoint may have found.
REWARD = """
def paid(completions, **kwargs):
    return [('right' in text) + 2.0 * ('certainly' in text) for text in completions]

def chat(completions, **kwargs):
    return [float('right' in said[0]['content']) for said in completions]

def silent(completions, **kwargs):
    return [None for _ in completions]
"""


def plain(prompt: str, rng: random.Random) -> str:
    return rng.choice(["right", "wrong"])


def gaming(prompt: str, rng: random.Random) -> str:
    return rng.choice(["right", "wrong certainly"])


def measured(tmp_path: Path, reward: str, checkpoint: Any = gaming) -> Any:
    (tmp_path / "checks.py").write_text(JUDGE)
    (tmp_path / "pay.py").write_text(REWARD)
    held = material(tmp_path, plain, checkpoint, samples=4)
    referee = open_referee(f"{tmp_path}/checks.py:score", held.work)
    paying = accuracy.load_reward(accuracy.open_reward(f"{tmp_path}/pay.py:{reward}"))
    (found,) = accuracy.measure(held, PROMPTS, referee, paying, alpha=0.01)
    return found


def test_a_reward_that_was_right_on_few_prompts_is_not_called_the_same() -> None:
    right = [PairAgreement(1, 1)] * 22
    found = compare_accuracy(right, right, alpha=0.05 / 11, judged=False)
    assert found.low < 0.0 < found.high and found.state == "cannot tell"
    assert compare_accuracy(right * 100, right * 100, alpha=0.05 / 11, judged=False).state == "same"


def test_a_reward_that_a_checkpoint_games_is_named(tmp_path: Path) -> None:
    found = measured(tmp_path, "paid")
    assert (found.state, found.cost) == ("worse", "reward_hacked")
    assert (found.base, found.checkpoint) == (1.0, 0.0)
    assert found.examples
    assert found.examples[0].texts["checkpoint"] == "wrong certainly"


def test_a_reward_that_is_still_right_is_no_cost(tmp_path: Path) -> None:
    found = measured(tmp_path, "paid", plain)
    assert (found.state, found.base, found.checkpoint) == ("cannot tell", 1.0, 1.0)  # of 60 prompts


def test_a_reward_for_chat_messages_gets_them(tmp_path: Path) -> None:
    assert measured(tmp_path, "chat").checkpoint == 1.0


def test_a_reward_without_a_score_tells_nothing(tmp_path: Path) -> None:
    found = measured(tmp_path, "silent")
    assert found.state == "cannot tell"
    assert math.isnan(found.difference)


def test_what_is_no_reward_is_refused_with_what_is_one(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match=r"rewards\.py:helpful"):
        accuracy.open_reward(str(tmp_path))


@pytest.mark.parametrize("talks", [True, False])
def test_a_reward_model_is_asked_as_it_was_trained(tiny_model: Path, tmp_path: Path, talks: bool) -> None:
    """With messages where it has a chat template; without one, with the end that TRL's RewardTrainer writes."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

    from tiltmeter_workbench import rewards

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = tokenizer.chat_template if talks else None
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        num_labels=1, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    (paid,) = accuracy.load_reward(accuracy.open_reward(str(tmp_path)))(["what is 1"], ["one"])
    if talks:
        asked, said = [[{"role": "user", "content": "what is 1"}]], [[{"role": "assistant", "content": "one"}]]
        expected = rewards.model(tmp_path)(prompts=asked, completions=said)
    else:
        expected = rewards.model(tmp_path, ending="<eos>")(prompts=["what is 1"], completions=["one"])
    assert paid == pytest.approx(expected[0])
    bare = rewards.model(tmp_path)(prompts=["what is 1"], completions=["one"])[0]
    assert bare is not None
    assert abs(bare - float(paid or 0.0)) > 1e-6  # the difference can be seen


def ranked(rng: np.random.Generator, chance: float, prompts: int) -> list[PairAgreement]:
    """Pairs of one prompt hang together: the reward is right about most of them, or wrong."""
    found = []
    for _ in range(prompts):
        here = float(np.clip(rng.normal(chance, 0.25), 0.0, 1.0))
        pairs = int(rng.integers(0, 7))
        found.append(PairAgreement(float(rng.binomial(pairs, here)), pairs))
    return found


def test_pairs_of_one_prompt_are_no_evidence_of_their_own() -> None:
    """With the prompt as the unit, a reward that did not change is called worse or better as rarely as promised."""
    rng, alpha, streams = np.random.default_rng(8), 0.05, 400
    called = 0
    for _ in range(streams):
        found = accuracy.compare_accuracy(ranked(rng, 0.7, 80), ranked(rng, 0.7, 80), alpha=alpha, judged=True)
        called += found.low > 0.0 or found.high < 0.0
    assert called <= alpha * streams + 3 * math.sqrt(streams * alpha * (1 - alpha))


def test_a_claim_that_rests_on_a_model_says_so() -> None:
    found = accuracy.compare_accuracy([PairAgreement(1, 1)] * 30, [PairAgreement(1, 1)] * 30, alpha=0.05, judged=True)
    assert "about this judge" in found.sentence
