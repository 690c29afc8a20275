"""Verbalised sampling: one reply that lists several answers with their probabilities (arXiv 2510.01171)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tiltmeter_workbench.common.chat_model import Turns

WORDS = (
    "\n\nGive {count} different answers to this, as different as you are unsure, each with the probability that you "
    'would give it. Reply with one JSON object and nothing else: {{"answers": [{{"text": "...", "probability": 0.1}}]}}'
)


def ask_for_list(turns: Turns, count: int) -> Turns:
    """The same prompt, with the wish for several answers behind its last turn.

    >>> ask_for_list("Name a colour.", 3).startswith("Name a colour.\\n\\nGive 3 different answers")
    True
    """
    words = WORDS.format(count=count)
    if isinstance(turns, str):
        return turns + words
    *before, last = (dict(turn) for turn in turns)
    return [*before, {**last, "content": f"{last['content']}{words}"}]


def read_list(reply: str, count: int) -> list[str]:
    """The first `count` texts of a reply; fewer, or none, where it has not so many. A model wrote it: nothing in it is
    trusted, and what is no list of texts is nothing.

    >>> read_list('Sure: {"answers": [{"text": "red", "probability": 0.6}, {"text": "blue"}, "green"]} ok?', 3)
    ['red', 'blue', 'green']
    >>> read_list("red, blue", 2), read_list('{"answers": [{"text": 1}]}', 1), read_list("{" * 10_000, 1)
    ([], [], [])
    """
    begin, end = reply.find("{"), reply.rfind("}")
    try:
        content = json.loads(reply[begin : end + 1]) if 0 <= begin < end else None
    except (ValueError, RecursionError):
        return []
    rows = content.get("answers") if isinstance(content, Mapping) else None
    if not isinstance(rows, Sequence) or isinstance(rows, str):
        return []
    texts = [row.get("text") if isinstance(row, Mapping) else row for row in rows]
    return [text for text in texts if isinstance(text, str)][:count]
