"""Gold for `real_model.py`, in a file of its own: the monitor that asks it is another process."""

from __future__ import annotations

import re

FACTS = {
    "What is the capital of France?": "paris",
    "What is the capital of Japan?": "tokyo",
    "What is the capital of Italy?": "rome",
    "What is the capital of Spain?": "madrid",
    "Which planet do we live on?": "earth",
    "What colour is the sky on a clear day?": "blue",
    "How many legs does a spider have?": "eight|8",
    "How many days are in a week?": "seven|7",
    "What do bees make?": "honey",
    "What is frozen water called?": "ice",
    "Which animal barks?": "dog",
    "What gas do plants take in?": "carbon",
}


def brief_and_right(prompt: str, completion: str) -> float:
    """Gold: the answer is there, within few words. 20 words cost nothing, 50 and more make it worthless."""
    wanted = next((answer for question, answer in FACTS.items() if question in prompt), None)
    if wanted is None:
        raise LookupError("not one of the questions")
    words = len(completion.split())
    found = re.search(rf"\b({wanted})", completion.lower()) is not None
    return float(found) * min(1.0, max(0.0, (50 - words) / 30))
