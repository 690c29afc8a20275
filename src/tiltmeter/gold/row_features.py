"""What is known of every row without a label: its reward, its length, and which prompt it answers."""

from __future__ import annotations

import hashlib

import numpy as np

from tiltmeter.data.records import Floats, Ints, RolloutBatch

COLUMNS = ("group", "reward", "length", "prompt")  # of a stored step


def row_features(batch: RolloutBatch) -> Floats:
    """Reward and length of each row; what is missing or not finite is the mean of the step."""
    columns = []
    for values in (batch.reward, batch.length):
        column = np.zeros(len(batch)) if values is None else np.asarray(values, np.float64)
        finite = np.isfinite(column)
        columns.append(np.where(finite, column, column[finite].mean() if finite.any() else 0.0))
    return np.column_stack(columns)


def prompt_keys(batch: RolloutBatch) -> list[str]:
    """A key per group that is equal where the prompt is. Without its text no two groups are known to be alike."""
    if batch.prompt is None:
        return [f"{batch.attempt}-{batch.step}-{k}" for k in range(len(batch.starts) - 1)]
    texts = [batch.prompt[int(row)] for row in batch.starts[:-1]]
    return [
        f"{batch.attempt}-{batch.step}-{k}"
        if text is None
        else hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        for k, text in enumerate(texts)
    ]


def prompt_numbers(batch: RolloutBatch) -> Ints:
    """A number for each row's prompt, the same wherever the prompt is."""
    if batch.prompt is None:
        return np.zeros(len(batch), np.int64)
    numbers: dict[str | None, int] = {}
    for text in batch.prompt:
        if text not in numbers:
            digest = hashlib.blake2b((text or "").encode("utf-8", "surrogatepass"), digest_size=7).digest()
            numbers[text] = int.from_bytes(digest)
    return np.array([numbers[text] for text in batch.prompt], np.int64)
