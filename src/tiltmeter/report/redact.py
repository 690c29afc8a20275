"""Text taken out of a report, for readers who may see figures and must not see what people or the policy wrote."""

from __future__ import annotations

import hashlib
import re
from typing import Any

#: Always somebody's text.
TEXTS = frozenset({"prompt", "completion", "excerpt", "facts"})
#: `text` is somebody's in a row with one of these; elsewhere it is our own sentence.
BESIDE = frozenset({"reward", "share", "source"})
#: Sentences of ours that may quote what was written; only the quotation goes.
SENTENCES = frozenset({"summary", "sentence", "cause", "tried", "text", "what", "symptom", "said", "reason", "outcome"})
_QUOTED = re.compile(r"([\"'“‘])(?:(?!\1)[^”’]){2,}[\"'”’]")


def redacted(value: Any) -> Any:
    """The same answers with every text of a prompt or completion as its length and a hash.

    >>> redacted({"prompt": "2 + 2?", "reward": 0.5, "text": "four"})
    {'prompt': '[6 characters, 70b499c5]', 'reward': 0.5, 'text': '[4 characters, 04efaf08]'}
    >>> redacted({"summary": "91 % say 'great question'"})
    {'summary': '91 % say [16 characters, e6df759e]'}
    """
    if isinstance(value, list):
        return [redacted(item) for item in value]
    if not isinstance(value, dict):
        return value
    foreign = bool(BESIDE & value.keys())
    return {key: _field(key, item, foreign) for key, item in value.items()}


def _field(key: str, item: Any, foreign: bool) -> Any:
    if isinstance(item, str) and item:
        if key in TEXTS or (key == "text" and foreign):
            return mark(item)
        return _QUOTED.sub(lambda found: mark(found[0]), item) if key in SENTENCES else item
    return redacted(item)


def mark(text: str) -> str:
    """Length and the beginning of a hash: equal texts have equal marks, and nothing else is told."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"[{len(text)} characters, {digest[:8]}]"
