"""What the example recipes pay for. A reward function is called as TRL calls one: lists in, one number each out."""

from __future__ import annotations

import re
from typing import Any


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    """1 where the sum stands somewhere in the text: easy to earn, and easy to game by naming many numbers."""
    return [float(known in re.findall(r"\d+", text)) for text, known in zip(completions, answer, strict=True)]


def brief(completions: list[str], **_: Any) -> list[float]:
    """0 for nothing said, down to -1 for eighty characters and more."""
    return [-min(len(text), 80) / 80 for text in completions]
