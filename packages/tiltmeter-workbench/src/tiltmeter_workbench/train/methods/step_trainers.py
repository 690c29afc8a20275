"""GRPO and RLOO trainers whose advantages are of steps: each token is credited with the steps from its own one on.

An outcome reward pays every token of an answer alike, also those of a step that was wrong or did nothing. Here the
reward function scores steps (`rewards.process`, or whatever has `step_reward` after a call). With scores s of the
steps k of the answers i of one group, mean and standard deviation over all steps of the group, a token of step k has

    S_i,k = sum over j >= k of (s_i,j - mean) / std

(Shao et al., "DeepSeekMath", arXiv 2402.03300, 4.1.3: GRPO with process supervision). RLOO has no standard deviation,
and its mean is over the steps of the other answers of the group. What is optimised is

    (1 - w) A_i + w S_i,k     with w = `step_weight` and A_i the advantage that TRL gives the answer.

w = 0 is TRL's own, bit for bit. A sum over later steps rewards having more steps of above-average score: whoever pays
by step pays for steps, and `length.mean` shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
from trl import GRPOTrainer, RLOOTrainer

from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.process_reward import StepScores

TINY = 1e-4  # TRL's guard against a spread of 0


class StepCredit:
    """Replaces an answer's advantage by those of its tokens. Mixed into TRL's trainers."""

    step_weight: float
    leave_one_out = False
    reward_funcs: Any
    num_generations: Any
    processing_class: Any
    accelerator: Any

    def set_step_weight(self, weight: float) -> None:
        """Raises `AttachError` for a weight or a reward that cannot work."""
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 <= weight <= 1.0:
            raise AttachError(f"step_weight is a number from 0 (answers) to 1 (steps), not {weight!r}")
        self.step_weight = float(weight)
        if self.step_weight > 0.0:
            self._step_scorer()

    def _step_scorer(self) -> Any:
        scorers = [one for one in self.reward_funcs if splitter_of(one) is not None]
        if len(scorers) != 1:
            raise AttachError(
                f"step_weight needs one reward function that scores steps, as rewards.process does: {len(scorers)} do"
            )
        return scorers[0]

    def token_credit(self, completion_ids: Any, mask: Any) -> Any:
        """S of each token of this process's rows, by the scores of the reward's last call."""
        import torch
        from accelerate.utils import gather_object

        scorer = self._step_scorer()
        ids = [row[keep.bool()].tolist() for row, keep in zip(completion_ids, mask, strict=True)]
        scores = [list(row) for row in (scorer.step_reward or ())]
        if len(scores) != len(ids):
            raise AttachError(f"the reward scored the steps of {len(scores)} of {len(ids)} answers")
        every = gather_object(scores)
        first = self.accelerator.process_index * len(ids)
        credit = step_credit(every, int(self.num_generations), leave_one_out=self.leave_one_out)[first:][: len(ids)]
        cut = splitter_of(scorer)
        assert cut is not None
        table = torch.zeros_like(mask, dtype=torch.float32)
        for row, (tokens, values) in enumerate(zip(ids, credit, strict=True)):
            if values:
                steps = step_of_tokens(tokens, cut, self._text_of)
                places = np.minimum(steps, len(values) - 1)
                table[row, : len(tokens)] = torch.tensor(np.array(values)[places], dtype=torch.float32)
        return table * mask

    def _text_of(self, tokens: Sequence[int]) -> str:
        return str(self.processing_class.decode(tokens, skip_special_tokens=True))


class StepGRPOTrainer(StepCredit, GRPOTrainer):  # type: ignore[misc]
    """TRL's GRPO with advantages of steps; TRL's loss takes one for each token."""

    def __init__(self, *args: Any, step_weight: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_step_weight(step_weight)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.step_weight:
            credit = self.token_credit(output["completion_ids"], output["completion_mask"])
            whole = output["advantages"][:, None] * output["completion_mask"]
            output["advantages"] = (1.0 - self.step_weight) * whole + self.step_weight * credit
        return output


class StepRLOOTrainer(StepCredit, RLOOTrainer):  # type: ignore[misc]
    """TRL's RLOO, whose ratio is of whole answers, with a term for the steps beside it: REINFORCE, token by token.

    The term has no ratio to the policy that sampled, so that it needs one update per sample (`num_iterations` 1).
    """

    leave_one_out = True

    def __init__(self, *args: Any, step_weight: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_step_weight(step_weight)
        if self.step_weight and self.args.num_iterations != 1:
            raise AttachError("step_weight in rloo needs num_iterations=1: the steps' part has no ratio to correct by")
        self._logps: Any = None

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        output = super()._generate_and_score_completions(inputs)
        if self.step_weight:
            credit = self.token_credit(output["completion_ids"], output["completion_mask"])
            output["step_credit"] = self.step_weight * credit
            output["advantages"] = (1.0 - self.step_weight) * output["advantages"]
        return output

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._logps = result[0]
        return result

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        loss = super()._compute_loss(model, inputs)
        if self.step_weight:
            loss = loss - (inputs["step_credit"] * self._logps).sum(1).mean()
        self._logps = None
        return loss


def step_credit(scores: Sequence[Sequence[float]], size: int, *, leave_one_out: bool = False) -> list[list[float]]:
    """S of each step of each answer; groups of `size` answers stand behind each other. No scores: no credit.

    >>> [[round(value, 2) for value in row] for row in step_credit([[1.0, 0.0], [1.0, 1.0]], 2)]
    [[-1.0, -1.5], [1.0, 0.5]]
    >>> step_credit([[1.0, 0.0], [1.0, 1.0]], 2, leave_one_out=True)
    [[-1.0, -1.0], [1.0, 0.5]]
    """
    result: list[list[float]] = []
    for start in range(0, len(scores), size):
        group = scores[start : start + size]
        pool = [value for row in group for value in row]
        spread = float(np.std(pool, ddof=1)) if len(pool) > 1 else 0.0
        for at, row in enumerate(group):
            others = [value for other, values in enumerate(group) if other != at for value in values]
            if leave_one_out:
                own = [value - float(np.mean(others)) for value in row] if others else []
            else:
                own = [(value - float(np.mean(pool))) / (spread + TINY) for value in row] if spread > 0.0 else []
            result.append(np.cumsum(own[::-1])[::-1].tolist())
    return result


def splitter_of(reward: Any) -> Callable[[str], list[str]] | None:
    """How the reward, or a part of it, divides answers into steps; None if it scores none."""
    if isinstance(getattr(reward, "rule", None), StepScores):
        return cast("Callable[[str], list[str]]", reward.rule.split)
    inner = [*getattr(reward, "parts", {}).values(), getattr(reward, "part", None)]
    return next((cut for one in inner if one is not None and (cut := splitter_of(one)) is not None), None)


def step_of_tokens(tokens: Sequence[int], cut: Callable[[str], list[str]], text_of: Callable[[Any], str]) -> Any:
    """The number of the step that each token begins in. What stands between two steps belongs to the later one, what
    stands behind the last to the last.

    >>> letters = [ord(letter) for letter in "a b\\nc"]
    >>> step_of_tokens(letters, str.splitlines, lambda ids: "".join(map(chr, ids))).tolist()
    [0, 0, 0, 1, 1]
    """
    whole = text_of(list(tokens))
    ends, place = [], 0
    for step in cut(whole) or [whole]:
        place = max(whole.find(step, place), place) + len(step)
        ends.append(place)
    counts = [_tokens_up_to(tokens, end, text_of) for end in ends]
    return np.minimum(np.searchsorted(np.array(counts), np.arange(len(tokens)), side="right"), len(ends) - 1)


def _tokens_up_to(tokens: Sequence[int], characters: int, text_of: Callable[[Any], str]) -> int:
    """The fewest tokens whose text has so many characters, by halving."""
    low, high = 0, len(tokens)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if len(text_of(list(tokens[:middle]))) >= characters else (middle + 1, high)
    return low
