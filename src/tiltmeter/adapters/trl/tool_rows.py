"""What TRL knows of a row with tools or an environment: which tokens the policy wrote, where, and how it ended."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tiltmeter.data.batches import from_tensor
from tiltmeter.data.turns import Turn, turns_of_tokens


def end_tokens(trainer: Any) -> set[int]:
    """Tokens at which a completion ends. TRL has a list of them since 1.13; before that it has the tokenizer's one."""
    tokenizer = trainer._tokenizer
    return {*getattr(trainer, "eos_token_ids", (tokenizer.eos_token_id,)), tokenizer.pad_token_id}


def tokenizer_of(trainer: Any) -> Any:
    """The tokenizer of a trainer, also where it stands in a processor of text and images."""
    processor = vars(trainer).get("_tokenizer") or vars(trainer).get("processing_class")
    return getattr(processor, "tokenizer", processor)


class DecodedTurns:
    """The turns of rows of which TRL has tokens alone, as from its `rollout_func`. They are decoded where the column is
    read, off the training thread, by a tokenizer of our own: two threads that share one may raise in the trainer's."""

    def __init__(self, tokenizer: Any, tokens: Sequence[Sequence[int]], own: Sequence[Any]) -> None:
        self._tokenizer, self._tokens, self._own = tokenizer, tokens, own
        self.nbytes = 8 * sum(map(len, tokens))

    def __len__(self) -> int:
        return len(self._tokens)

    def __iter__(self) -> Iterator[list[Turn]]:
        for tokens, own in zip(self._tokens, self._own, strict=True):
            yield turns_of_tokens(tokens, own.tolist(), self._decode)

    @classmethod
    def joined(cls, parts: Sequence[DecodedTurns]) -> DecodedTurns:
        """Those of several batches, still to be decoded."""
        rows = [(tokens, own) for part in parts for tokens, own in zip(part._tokens, part._own, strict=True)]
        return cls(parts[0]._tokenizer, [tokens for tokens, _ in rows], [own for _, own in rows])

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


class ToolRows:
    """The columns of `observe` that are there only where a trainer has tools, environments or a rollout function."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        # Copied before training: of a large vocabulary it takes a second.
        own_loop = vars(trainer).get("rollout_func") is not None
        self._tokenizer: Any = copy.deepcopy(trainer._tokenizer) if own_loop else None

    def columns(
        self, output: Mapping[str, Any], completions: Sequence[Any], ids: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """For one generated batch; `ids` are all tokens after the prompt, a tool's among them."""
        columns: dict[str, Any] = {}
        if output.get("tool_mask") is not None:
            own = self._own(output, ids)
            columns["own"] = own
            if vars(self.trainer).get("tools"):
                columns["messages"] = completions  # also where nobody called a tool: there are turns, and no calls
            else:  # TRL's completions hold all tokens as if they were the policy's
                if self._tokenizer is None:
                    self._tokenizer = copy.deepcopy(self.trainer._tokenizer)
                columns["turns"] = DecodedTurns(self._tokenizer, ids, own)
            ends = end_tokens(self.trainer)
            most = getattr(self.trainer, "max_tool_calling_iterations", 0)
            columns["stop"] = [why_it_ended(*row, ends, most) for row in zip(ids, completions, strict=True)]
        environments = vars(self.trainer).get("environments")
        if environments is not None and len(environments) == len(ids):
            names = vars(self.trainer).get("_batch_environments") or [None] * len(ids)
            columns["env"] = [name or type(it).__name__ for name, it in zip(names, environments, strict=True)]
        return columns

    def _own(self, output: Mapping[str, Any], ids: Sequence[Sequence[int]]) -> list[Any]:
        mask = from_tensor(output["tool_mask"]) != 0
        rows = [mask[row, : len(tokens)].astype(np.uint8) for row, tokens in enumerate(ids)]
        if not getattr(self.trainer, "mask_truncated_completions", False):
            return rows
        # TRL blanks the mask of a completion that was cut. Its engine's log-probability is 0.0 at a tool's tokens.
        sampled = output.get("sampling_per_token_logps")
        scores = None if sampled is None else from_tensor(sampled)
        for row, tokens in enumerate(ids):
            if not rows[row].any():
                whole = np.ones(len(tokens), np.uint8)
                rows[row] = whole if scores is None else (scores[row, : len(tokens)] != 0.0).astype(np.uint8)
        return rows


def why_it_ended(tokens: Sequence[int], completion: Any, ends: Collection[int], most_calls: float) -> str:
    """The word of `stops` for a row of TRL: its tokens after the prompt, its messages or text.

    >>> call = {"role": "assistant", "tool_calls": [{"function": {"name": "bash"}}]}
    >>> [why_it_ended([5, 2], completion, {2}, 0) for completion in ("text", [call])], why_it_ended([5], "text", {2}, 0)
    (['done', 'tool_budget'], 'length')
    """
    calls = [] if isinstance(completion, str) else [bool(message.get("tool_calls")) for message in completion]
    if calls and calls[-1]:  # a call that nobody answered: one too many, or its answer would not have fitted
        return "tool_budget" if sum(calls) > most_calls else "length"
    return "done" if len(tokens) and tokens[-1] in ends else "length"
