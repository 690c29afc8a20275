"""What a judge will cost a run, in calls, tokens and money: said before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from tiltmeter.models.judge import Judge
from tiltmeter.models.judge_prompts import PAIRS
from tiltmeter.models.oversight.method import LONGEST_TEXT

CANARY_SHARE = 0.05  # of the calls, beside labels
CHARACTERS = 4.0  # a token of English text, about
REPLY_TOKENS = 8  # {"score": 7}
METHOD_TOKENS = LONGEST_TEXT / CHARACTERS  # of a critique or an argument, at most: each is a reply, and read once more


@dataclass(frozen=True, slots=True)
class JudgeCost:
    r"""What a judge is asked in a run. None: the run's length is not known, or the judge's file names no price.

    >>> judge = Judge("http://localhost:8000/v1", "small-judge", "It is right.", price_in=0.15, price_out=0.6)
    >>> said = str(judge_cost(judge, rollouts=512, share=0.02, steps=400, prompt_tokens=100, completion_tokens=512))
    >>> print(said.replace(", at most", "\n  at most"))
    the judge small-judge at localhost:8000: 11 calls a step, 4,301 in 400 steps
      at most 3.3 M tokens sent and 0.034 M received: 0.52 by the prices in its file
    """

    judge: str
    calls: float  # a step
    steps: int | None
    tokens_in: float  # a call, at most
    money: float | None  # a call
    tokens_out: float = REPLY_TOKENS  # a call, at most

    def __str__(self) -> str:
        text = f"the judge {self.judge}: {self.calls:.0f} calls a step"
        steps = 1 if self.steps is None else self.steps
        total = self.calls * steps
        sent, received = self.tokens_in * total / 1e6, self.tokens_out * total / 1e6
        text += "" if self.steps is None else f", {total:,.0f} in {steps} steps"
        text += f", at most {sent:.2g} M tokens sent and {received:.2g} M received"
        if self.money is None:
            return f"{text}; with price_in and price_out in its file, what that costs is said here"
        return f"{text}: {total * self.money:.2g} by the prices in its file"


def judge_cost(
    judge: Judge, *, rollouts: int, share: float, steps: int | None, prompt_tokens: float, completion_tokens: float
) -> JudgeCost:
    """`completion_tokens`: the most that a completion may have."""
    calls = rollouts * share * (1.0 + CANARY_SHARE) * judge.calls
    system = len(PAIRS if judge.pairs else judge.request_body("", "")["messages"][0]["content"]) / CHARACTERS
    tokens_in = system + prompt_tokens + completion_tokens * (2.0 if judge.pairs else 1.0)
    tokens_out: float = REPLY_TOKENS
    if judge.method != "bare":
        tokens_in, tokens_out = tokens_in + METHOD_TOKENS, METHOD_TOKENS
    priced = judge.price_in or judge.price_out
    money = (judge.price_in * tokens_in + judge.price_out * tokens_out) / 1e6 if priced else None
    return JudgeCost(f"{judge.model} at {judge.host}", calls, steps, tokens_in, money, tokens_out)
