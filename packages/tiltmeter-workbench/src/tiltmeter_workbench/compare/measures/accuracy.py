"""Measure: on-policy accuracy of the reward, its agreement with the judge on pairs of the checkpoint's answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError
from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_workbench.check_report.report import Example
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.judge_prompt import AnswerPair
from tiltmeter_workbench.compare.measures.difference import Difference, percent
from tiltmeter_workbench.compare.measures.measure import Measure, example_answers
from tiltmeter_workbench.compare.referees import Referee
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts, Which
from tiltmeter_workbench.rewards.recipe_reward import reward_from_recipe

Floats = NDArray[np.float64]

NAME, TITLE, COST = "reward_accuracy", "Reward's accuracy", "reward_hacked"
MATTERS = 0.05  # less is no reason to retrain a reward model
FEWEST = 20  # prompts on each side with a pair that the judge tells apart
SHOWN = 3  # examples
FIX = (
    "The reward cannot rank what it is optimised on any more: retrain it on the checkpoint's own answers (a refresh "
    "stage in a recipe), and go back to a checkpoint where it could."
)


class TrlReward(Protocol):
    """A reward as TRL calls one."""

    def __call__(self, prompts: Any, completions: Any, **columns: Any) -> Sequence[float | None]: ...


class PairAgreement(NamedTuple):
    """Of one prompt: how many pairs the judge tells apart, and in how many the reward agrees; its ties count half."""

    agreed: float
    pairs: int


def open_reward(source: str) -> list[dict[str, Any]]:
    """A reward as a recipe describes it, of a folder with a reward model or of a function `file.py:name`."""
    if ".py:" in source:
        return [{"function": source}]
    if not (Path(source) / "config.json").exists():
        raise AttachError(f"{source!r} is no reward: give a reward model's folder or a function as rewards.py:helpful")
    return [
        {"model": str(source), **({} if _has_chat_template(source) else {"settings": {"ending": _eos_token(source)}})}
    ]


def load_reward(rewards: Sequence[Mapping[str, Any]]) -> TrlReward:
    """The reward of a recipe, called as its trainer would: with messages where a reward model has a chat template.

    A user's function gets plain text, and messages if it fails on text.
    """
    reward = reward_from_recipe(rewards)
    models = [name for entry in rewards for name in _names(entry.get("model", ()))]
    talks = any(_has_chat_template(name) for name in models)

    def score(prompts: Any, completions: Any, **columns: Any) -> Sequence[float | None]:
        prompt_messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
        completion_messages = [[{"role": "assistant", "content": text}] for text in completions]
        if talks:
            return reward(prompts=prompt_messages, completions=completion_messages, **columns)
        try:
            return reward(prompts=prompts, completions=completions, **columns)
        except TypeError as error:
            if "string indices" not in str(error):
                raise
            return reward(prompts=prompt_messages, completions=completion_messages, **columns)

    return score


def _names(models: Any) -> list[str]:
    return [models] if isinstance(models, str) else [str(name) for name in models]


def _has_chat_template(folder: str) -> bool:
    return LocalModel(folder).tokenizer.chat_template is not None


def _eos_token(folder: str) -> str:
    """As TRL's RewardTrainer ends plain text."""
    return LocalModel(folder).tokenizer.eos_token or ""


def measure(
    sampler: AnswerSampler, prompts: Prompts, referee: Referee, reward: TrlReward, *, alpha: float
) -> list[Measure]:
    """One measure: the reward's agreement with the judge on pairs of the checkpoint's answers, beside the base's."""
    base, _ = _rank_pairs(sampler, "base", prompts, referee, reward)
    checkpoint, wrong = _rank_pairs(sampler, "checkpoint", prompts, referee, reward)
    return [compare_accuracy(base, checkpoint, wrong, alpha=alpha, judged=referee.judged)]


def compare_accuracy(
    base: Sequence[PairAgreement],
    checkpoint: Sequence[PairAgreement],
    wrong: Sequence[Example] = (),
    *,
    alpha: float,
    judged: bool,
) -> Measure:
    """The measure of two lists of prompts, in the same order.

    >>> base, checkpoint = [PairAgreement(1, 1)] * 40, [PairAgreement(1, 1), PairAgreement(0, 1)] * 20
    >>> result = compare_accuracy(base, checkpoint, alpha=0.05, judged=False)
    >>> result.state, result.cost, result.difference
    ('worse', 'reward_hacked', -0.5)
    """
    counts = [sum(each.pairs > 0 for each in side) for side in (base, checkpoint)]
    if min(counts) < FEWEST:
        why = (
            f"The judge told answers apart on {counts[0]} prompts of the base and {counts[1]} of the checkpoint; "
            f"{FEWEST} of each are needed: give more prompts or --answers."
        )
        return Measure(NAME, TITLE, "cannot tell", why, COST, n=min(counts))
    (old, spread_old), (new, spread_new) = _share(base), _share(checkpoint)
    difference = new - old
    each = spread_new - spread_old  # by prompt, so that what both models share cancels
    # Two prompts more, one that changed each way, as for all shares: where the reward is always right it is no point.
    n = min(counts)
    spread = (float(np.square(each).sum()) * n**2 + 2.0) / (n + 2) ** 2
    reach = student_t_quantile(n + 1, 1.0 - alpha) * math.sqrt(spread)
    low, high = difference - reach, difference + reach
    interval = Difference(old, new, difference, low, high, counts[1])
    state = interval.state(MATTERS, more_is_worse=False)
    about = " (about this judge)" if judged else ""
    pairs = sum(each.pairs for each in checkpoint)
    return Measure(
        NAME, TITLE, state,
        f"The reward ranks {percent(new)} of {pairs} pairs of the checkpoint's answers as the judge does, "
        f"{percent(old)} of the base's{about}; a coin gets 50 %.",
        COST, "share of pairs", old, new, difference, low, high, counts[1],
        ({"model": "base", "pairs": sum(each.pairs for each in base), "agreed": old},
         {"model": "checkpoint", "pairs": pairs, "agreed": new}),
        tuple(wrong[:SHOWN]) if state == "worse" else (), FIX if state == "worse" else "",
    )  # fmt: skip


def _share(ranked: Sequence[PairAgreement]) -> tuple[float, Floats]:
    """Agreement over all pairs, and each prompt's residual: prompts are the independent units."""
    agreed = np.array([each.agreed for each in ranked], np.float64)
    pairs = np.array([each.pairs for each in ranked], np.float64)
    share = float(agreed.sum() / pairs.sum())
    return share, (agreed - share * pairs) / pairs.sum()


def _rank_pairs(
    sampler: AnswerSampler, which: Which, prompts: Prompts, referee: Referee, reward: TrlReward
) -> tuple[list[PairAgreement], list[Example]]:
    all_answers = sampler.answers(which, prompts.name, prompts.turns, sampler.samples)
    pairs: list[AnswerPair] = []
    owner: list[int] = []
    for at, (prompt, answers, columns) in enumerate(zip(prompts.texts, all_answers, prompts.columns, strict=True)):
        texts = [answer.text for answer in answers]
        # Each pair of answers where the judge scored them anyway; each answer once where a pair costs calls of its own.
        chosen = zip(texts[::2], texts[1::2], strict=False) if referee.costly else combinations(texts, 2)
        different = [AnswerPair(prompt, one, other, columns) for one, other in chosen if one != other]
        pairs += different
        owner += [at] * len(different)
    outcomes = referee.outcomes(pairs, sampler.progress)
    leads = _reward_leads(reward, pairs)
    ranked, wrong = [PairAgreement(0.0, 0)] * len(prompts), []
    for at, pair, outcome, lead in zip(owner, pairs, outcomes.tolist(), leads, strict=True):
        if outcome not in (0.0, 1.0) or not math.isfinite(lead):
            continue
        agreed = 0.5 if lead == 0.0 else float((lead > 0.0) == (outcome == 1.0))
        ranked[at] = PairAgreement(ranked[at].agreed + agreed, ranked[at].pairs + 1)
        if not agreed:
            better, worse = (pair.first, pair.second) if outcome == 1.0 else (pair.second, pair.first)
            wrong.append(
                example_answers(pair.prompt, better, worse, f"both by the {which}: the reward pays the second more")
            )
    return ranked, wrong


def _reward_leads(reward: TrlReward, pairs: Sequence[AnswerPair]) -> list[float]:
    """How much more the reward pays for the first; NaN where it gave no number."""
    texts: dict[tuple[str, str], Mapping[str, Any]] = {
        (pair.prompt, text): pair.columns for pair in pairs for text in (pair.first, pair.second)
    }
    if not texts:
        return []
    names = dict.fromkeys(name for columns in texts.values() for name in columns)
    facts = {name: [columns.get(name) for columns in texts.values()] for name in names}
    rewards = reward(prompts=[prompt for prompt, _ in texts], completions=[text for _, text in texts], **facts)
    scores = dict(zip(texts, (math.nan if score is None else float(score) for score in rewards), strict=True))
    return [scores[pair.prompt, pair.first] - scores[pair.prompt, pair.second] for pair in pairs]
