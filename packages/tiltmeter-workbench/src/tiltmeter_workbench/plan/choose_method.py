"""Choice of the training method (SFT, DPO, RLOO, GRPO, PPO) from the data at hand: rules of thumb with sources."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

StartModel = Literal["base", "instruct"]
TrainingStage = Literal["sft", "reward", "dpo", "iterative dpo", "rloo", "grpo", "ppo"]

#: Pairs under which a method that fits pairs mostly fits their noise, and pairs that are worth a reward model. Orders
#: of magnitude, rules of thumb of this package: published runs have 64,000 for DPO (Zephyr, arXiv 2310.16944) and
#: 33,000 prompts for a reward model (InstructGPT, arXiv 2203.02155).
FEW, MANY = 500, 10_000


@dataclass(frozen=True)
class AvailableInputs:
    """What is available for training: preference pairs, rewards, a start model, and whether sampling is affordable.

    `dense`: a reward for steps or tokens, not for whole answers. `sampling`: the policy can generate during training;
    that is most of the time of an online method.
    """

    pairs: int = 0
    reward_model: bool = False
    verifier: bool = False
    judge: bool = False
    dense: bool = False
    start: StartModel = "instruct"
    sampling: bool = True

    @property
    def has_signal(self) -> bool:
        """Whether there is any preference or reward signal."""
        return self.pairs > 0 or self.reward_model or self.verifier or self.judge


@dataclass(frozen=True)
class MethodRule:
    """A condition, the training steps it leads to, the reason and its source."""

    name: str
    when: Callable[[AvailableInputs], bool]
    steps: tuple[TrainingStage, ...]
    because: str
    source: str


@dataclass(frozen=True)
class MethodChoice:
    """The steps in their order, the reason, and remarks. The last step is the one that memory is planned for.

    >>> choose_method(AvailableInputs(pairs=20_000)).steps
    ('dpo',)
    >>> choose_method(AvailableInputs(verifier=True, pairs=20_000, start="base")).steps
    ('sft', 'dpo', 'grpo')
    """

    steps: tuple[TrainingStage, ...]
    rule: MethodRule
    remarks: tuple[MethodRule, ...]

    @property
    def method(self) -> str | None:
        """As `tiltmeter model plan --method` calls the last step; None where there is nothing to train on."""
        return None if not self.steps else self.steps[-1].removeprefix("iterative ")


def _enough_pairs(have: AvailableInputs) -> bool:
    return have.pairs >= FEW


#: The first rule that applies decides; the last one always applies.
RULES: tuple[MethodRule, ...] = (
    MethodRule(
        "a verifier and pairs",
        lambda have: have.verifier and have.sampling and not have.dense and _enough_pairs(have),
        ("dpo", "grpo"),
        "pairs first teach style and what people like, cheaply and offline; then the verifier is optimised itself",
        "Tülu 3, arXiv 2411.15124",
    ),
    MethodRule(
        "a reward for steps",
        lambda have: have.dense and have.sampling and (have.verifier or have.reward_model),
        ("ppo",),
        "only a value model spreads a reward over tokens; a group's mean gives every token of an answer the same",
        "arXiv 2203.02155; VAPO, arXiv 2504.05118",
    ),
    MethodRule(
        "a verifier",
        lambda have: have.verifier and have.sampling,
        ("grpo",),
        "right or wrong needs no value model: the group is the baseline, and there is no learned reward to hack",
        "GRPO, arXiv 2402.03300; DeepSeek-R1, arXiv 2501.12948",
    ),
    MethodRule(
        "a reward model and pairs",
        lambda have: have.reward_model and have.sampling and _enough_pairs(have),
        ("dpo", "rloo"),
        "pairs bring the policy near; samples of its own, scored, go further than fixed pairs can",
        "online against offline: arXiv 2405.08448, 2404.14367; RLOO, arXiv 2402.14740",
    ),
    MethodRule(
        "a reward model",
        lambda have: have.reward_model and have.sampling,
        ("rloo",),
        "a learned score has no right or wrong to normalise by: dividing by a group's spread makes noise of near ties",
        "RLOO, arXiv 2402.14740; on the spread: arXiv 2503.20783",
    ),
    MethodRule(
        "a judge",
        lambda have: have.judge and have.sampling,
        ("iterative dpo",),
        "the judge ranks samples of the current policy into pairs, round by round; a judge in the loop of every step "
        "costs more and is hacked sooner",
        "arXiv 2309.00267; iterative DPO, arXiv 2312.11456, 2401.10020",
    ),
    MethodRule(
        "many pairs",
        lambda have: have.pairs >= MANY and have.sampling,
        ("dpo",),
        "DPO needs two models and no sampling. With so many pairs a reward model, then RLOO, may go further",
        "DPO, arXiv 2305.18290; PPO against DPO, arXiv 2404.10719, 2406.09279",
    ),
    MethodRule(
        "pairs",
        _enough_pairs,
        ("dpo",),
        "pairs without a reward to ask and without sampling: DPO fits the policy to them directly",
        "DPO, arXiv 2305.18290",
    ),
    MethodRule(
        "a score but no sampling",
        lambda have: have.verifier or have.reward_model or have.judge,
        ("sft",),
        "sample once, keep the best of each prompt's answers, and fine-tune on them (best-of-n, rejection sampling)",
        "RAFT, arXiv 2304.06767",
    ),
    MethodRule(
        "few pairs",
        lambda have: have.pairs > 0,
        ("sft",),
        f"under {FEW} pairs a preference fit follows their noise: fine-tune on the chosen answers, collect more pairs",
        "rule of thumb of this package",
    ),
    MethodRule(
        "nothing that tells good from bad",
        lambda have: True,
        (),
        "no pairs, verifier, reward model or judge: there is nothing to optimise. Start with one of them",
        "",
    ),
)  # fmt: skip

#: Every remark that applies is shown.
REMARKS: tuple[MethodRule, ...] = (
    MethodRule(
        "SFT first",
        lambda have: have.start == "base",
        ("sft",),
        "a base model that was never shown an answer samples few good ones; a verifier alone can do without, at a cost "
        "in readability",
        "InstructGPT, arXiv 2203.02155; DeepSeek-R1-Zero, arXiv 2501.12948",
    ),
    MethodRule(
        "PPO is not in TRL",
        lambda have: have.dense and have.sampling,
        (),
        "TRL 1.16 has no PPO trainer: use veRL or OpenRLHF",
        "TRL 1.16.0, read",
    ),
    MethodRule(
        "the reward is learned",
        lambda have: have.reward_model and have.sampling and not have.verifier,
        (),
        "it will be over-optimised: keep beta above 0, probe it first (tiltmeter probe), keep gold labels for audits",
        "arXiv 2210.10760",
    ),
    MethodRule(
        "a judge is hacked too",
        lambda have: have.judge,
        (),
        "swap the order of answers, control for length, and keep labels by people for audits",
        "arXiv 2306.05685",
    ),
    MethodRule(
        "offline only",
        lambda have: not have.sampling and _enough_pairs(have),
        (),
        "pairs of another model's answers teach less than pairs of this one's: sample once and label if you can",
        "arXiv 2404.14367",
    ),
    MethodRule(
        "few pairs left aside",
        lambda have: 0 < have.pairs < FEW and (have.verifier or have.reward_model or have.judge),
        (),
        "too few pairs to train on: keep them to check the reward by (tiltmeter probe --pairs)",
        "rule of thumb of this package",
    ),
    MethodRule(
        "gold beside a verifier",
        lambda have: have.verifier and have.sampling,
        (),
        "a policy learns what the verifier checks, not what you meant: hidden tests or a stricter check as gold",
        "arXiv 2503.11926",
    ),
)  # fmt: skip


def choose_method(have: AvailableInputs) -> MethodChoice:
    """The training steps for the available inputs. These are rules of thumb, each with its reason."""
    if have.pairs < 0:
        raise ValueError("pairs cannot be fewer than 0")
    rule = next(rule for rule in RULES if rule.when(have))
    remarks = tuple(remark for remark in REMARKS if rule.steps and remark.when(have))
    steps = rule.steps
    if have.start == "base" and steps and steps[0] != "sft":
        steps = ("sft", *steps)
    return MethodChoice(steps, rule, remarks)
