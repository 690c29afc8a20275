"""Which method for what one has: rules of thumb as data, each with its reason and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Start = Literal["base", "instruct"]
Step = Literal["sft", "reward", "dpo", "iterative dpo", "rloo", "grpo", "ppo"]

#: Pairs under which a method that fits pairs mostly fits their noise, and pairs that are worth a reward model. Orders
#: of magnitude, rules of thumb of this package: published runs have 64,000 for DPO (Zephyr, arXiv 2310.16944) and
#: 33,000 prompts for a reward model (InstructGPT, arXiv 2203.02155).
FEW, MANY = 500, 10_000


@dataclass(frozen=True)
class Have:
    """What one has to train with: what tells good from bad, a model to start from, and whether sampling is affordable.

    `dense`: a reward for steps or tokens, not for whole answers. `sampling`: the policy can generate during training;
    that is most of the time of an online method.
    """

    pairs: int = 0
    reward_model: bool = False
    verifier: bool = False
    judge: bool = False
    dense: bool = False
    start: Start = "instruct"
    sampling: bool = True

    @property
    def something(self) -> bool:
        """Anything at all that tells good from bad."""
        return self.pairs > 0 or self.reward_model or self.verifier or self.judge


@dataclass(frozen=True)
class Rule:
    """When what applies, and why."""

    name: str
    when: Callable[[Have], bool]
    steps: tuple[Step, ...]
    because: str
    source: str


@dataclass(frozen=True)
class Choice:
    """The steps in their order, the reason, and remarks. The last step is the one that memory is planned for.

    >>> chosen(Have(pairs=20_000)).steps
    ('dpo',)
    >>> chosen(Have(verifier=True, pairs=20_000, start="base")).steps
    ('sft', 'dpo', 'grpo')
    """

    steps: tuple[Step, ...]
    rule: Rule
    remarks: tuple[Rule, ...]

    @property
    def method(self) -> str | None:
        """As `tiltmeter plan --method` calls the last step; None where there is nothing to train on."""
        return None if not self.steps else self.steps[-1].removeprefix("iterative ")


def _enough(have: Have) -> bool:
    return have.pairs >= FEW


#: The first that applies decides. Every set of means has exactly one.
RULES: tuple[Rule, ...] = (
    Rule(
        "a verifier and pairs",
        lambda have: have.verifier and have.sampling and not have.dense and _enough(have),
        ("dpo", "grpo"),
        "pairs first teach style and what people like, cheaply and offline; then the verifier is optimised itself",
        "Tülu 3, arXiv 2411.15124",
    ),
    Rule(
        "a reward for steps",
        lambda have: have.dense and have.sampling and (have.verifier or have.reward_model),
        ("ppo",),
        "only a value model spreads a reward over tokens; a group's mean gives every token of an answer the same",
        "arXiv 2203.02155; VAPO, arXiv 2504.05118",
    ),
    Rule(
        "a verifier",
        lambda have: have.verifier and have.sampling,
        ("grpo",),
        "right or wrong needs no value model: the group is the baseline, and there is no learned reward to hack",
        "GRPO, arXiv 2402.03300; DeepSeek-R1, arXiv 2501.12948",
    ),
    Rule(
        "a reward model and pairs",
        lambda have: have.reward_model and have.sampling and _enough(have),
        ("dpo", "rloo"),
        "pairs bring the policy near; samples of its own, scored, go further than fixed pairs can",
        "online against offline: arXiv 2405.08448, 2404.14367; RLOO, arXiv 2402.14740",
    ),
    Rule(
        "a reward model",
        lambda have: have.reward_model and have.sampling,
        ("rloo",),
        "a learned score has no right or wrong to normalise by: dividing by a group's spread makes noise of near ties",
        "RLOO, arXiv 2402.14740; on the spread: arXiv 2503.20783",
    ),
    Rule(
        "a judge",
        lambda have: have.judge and have.sampling,
        ("iterative dpo",),
        "the judge ranks samples of the current policy into pairs, round by round; a judge in the loop of every step "
        "costs more and is hacked sooner",
        "arXiv 2309.00267; iterative DPO, arXiv 2312.11456, 2401.10020",
    ),
    Rule(
        "many pairs",
        lambda have: have.pairs >= MANY and have.sampling,
        ("dpo",),
        "DPO needs two models and no sampling. With so many pairs a reward model, then RLOO, may go further",
        "DPO, arXiv 2305.18290; PPO against DPO, arXiv 2404.10719, 2406.09279",
    ),
    Rule(
        "pairs",
        _enough,
        ("dpo",),
        "pairs without a reward to ask and without sampling: DPO fits the policy to them directly",
        "DPO, arXiv 2305.18290",
    ),
    Rule(
        "a score but no sampling",
        lambda have: have.verifier or have.reward_model or have.judge,
        ("sft",),
        "sample once, keep the best of each prompt's answers, and fine-tune on them (best-of-n, rejection sampling)",
        "RAFT, arXiv 2304.06767",
    ),
    Rule(
        "few pairs",
        lambda have: have.pairs > 0,
        ("sft",),
        f"under {FEW} pairs a preference fit follows their noise: fine-tune on the chosen answers, collect more pairs",
        "rule of thumb of this package",
    ),
    Rule(
        "nothing that tells good from bad",
        lambda have: True,
        (),
        "no pairs, verifier, reward model or judge: there is nothing to optimise. Start with one of them",
        "",
    ),
)  # fmt: skip

#: Whatever applies is said.
REMARKS: tuple[Rule, ...] = (
    Rule(
        "SFT first",
        lambda have: have.start == "base",
        ("sft",),
        "a base model that was never shown an answer samples few good ones; a verifier alone can do without, at a cost "
        "in readability",
        "InstructGPT, arXiv 2203.02155; DeepSeek-R1-Zero, arXiv 2501.12948",
    ),
    Rule(
        "PPO is not in TRL",
        lambda have: have.dense and have.sampling,
        (),
        "TRL 1.16 has no PPO trainer: use veRL or OpenRLHF",
        "TRL 1.16.0, read",
    ),
    Rule(
        "the reward is learned",
        lambda have: have.reward_model and have.sampling and not have.verifier,
        (),
        "it will be over-optimised: keep beta above 0, probe it first (tiltmeter probe), keep gold labels for audits",
        "arXiv 2210.10760",
    ),
    Rule(
        "a judge is hacked too",
        lambda have: have.judge,
        (),
        "swap the order of answers, control for length, and keep labels by people for audits",
        "arXiv 2306.05685",
    ),
    Rule(
        "offline only",
        lambda have: not have.sampling and _enough(have),
        (),
        "pairs of another model's answers teach less than pairs of this one's: sample once and label if you can",
        "arXiv 2404.14367",
    ),
    Rule(
        "few pairs left aside",
        lambda have: 0 < have.pairs < FEW and (have.verifier or have.reward_model or have.judge),
        (),
        "too few pairs to train on: keep them to check the reward by (tiltmeter probe --pairs)",
        "rule of thumb of this package",
    ),
    Rule(
        "gold beside a verifier",
        lambda have: have.verifier and have.sampling,
        (),
        "a policy learns what the verifier checks, not what you meant: hidden tests or a stricter check as gold",
        "arXiv 2503.11926",
    ),
)  # fmt: skip


def chosen(have: Have) -> Choice:
    """The steps for what one has. These are rules of thumb: they say why, so that you can disagree."""
    if have.pairs < 0:
        raise ValueError("pairs cannot be fewer than 0")
    rule = next(rule for rule in RULES if rule.when(have))
    remarks = tuple(remark for remark in REMARKS if rule.steps and remark.when(have))
    steps = rule.steps
    if have.start == "base" and steps and steps[0] != "sft":
        steps = ("sft", *steps)
    return Choice(steps, rule, remarks)
