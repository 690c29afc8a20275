"""Gold for runs on mathematics: the last number of the answer is the right one. Training never sees it."""

import re

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def solved(completion: str, ground_truth: str) -> float | None:
    """1 or 0; None where the row has no answer to compare with."""
    said, right = (NUMBER.findall(str(text).replace(",", "")) for text in (completion, ground_truth))
    return float(said[-1:] == right[-1:]) if right else None
