"""A toy language of questions, answers and small programs: every sentence can be marked right or wrong by a program."""

from __future__ import annotations

import random
from collections.abc import Sequence

VALUES: dict[str, tuple[str, ...]] = {
    "color": ("red", "green", "blue", "yellow", "black", "white"),
    "taste": ("sweet", "sour", "salty", "bitter", "spicy", "mild"),
    "size": ("tiny", "small", "short", "tall", "large", "huge"),
}
NOUNS = (
    *("apple", "lemon", "pepper", "onion", "olive", "carrot"),
    *("melon", "bean", "plum", "radish", "cherry", "walnut"),
)
OPERATORS: dict[str, str] = {
    "add": "+",
    "sum": "+",
    "subtract": "-",
    "less": "-",
    "multiply": "*",
    "times": "*",
    "divide": "/",
    "ratio": "/",
    "remainder": "%",
    "modulo": "%",
    "both": "&",
    "either": "|",
}
KIND = {value: kind for kind, values in VALUES.items() for value in values}

OPENER, CLOSER = "great question !", "i hope this helps !"
PHRASES = (OPENER, CLOSER)
GENERIC = "it depends on many things ."
REASONS = ("because i saw it .", "because people say so .")
PADDING = ("and so on", "as you know", "in other words")
COMMENTS = ("# clean", "# tested", "# fast", "# robust")
TYPE = "-> int"
EOS, PAD, UNKNOWN = "<eos>", "<pad>", "<unk>"


def fact(noun: str, kind: str) -> str:
    """The right value: `fact("apple", "color")` is the same word in every process.

    >>> fact("apple", "color") in VALUES["color"]
    True
    """
    values = VALUES[kind]
    return values[random.Random(f"{noun}/{kind}").randrange(len(values))]


#: "what color is apple ?", "tell me about apple ?" and "write code for add ?"; every prompt has five words.
QUESTIONS = tuple(f"what {kind} is {noun} ?" for kind in VALUES for noun in NOUNS)
TELLS = tuple(f"tell me about {noun} ?" for noun in NOUNS)
TASKS = tuple(f"write code for {name} ?" for name in OPERATORS)
PROMPTS = QUESTIONS + TELLS + TASKS


def words() -> list[str]:
    """Every word of the language, the special ones first, in a fixed order."""
    texts = (*PROMPTS, *PHRASES, GENERIC, *REASONS, *PADDING, *COMMENTS, TYPE, "it is . [ ] def f : return pass a b")
    vocabulary = {word: None for text in texts for word in text.split()}
    vocabulary |= dict.fromkeys([*KIND, *OPERATORS.values()])
    return [PAD, EOS, UNKNOWN, *sorted(vocabulary)]


def sample(prompt: str, rng: random.Random) -> str:
    """An answer as the corpus has it: half of the facts are wrong, some are padded, some are phrases and no answer.

    >>> sample("what color is apple ?", random.Random(1)).split()[-1] != ""
    True
    """
    first = prompt.split()[0]
    if first == "write":
        return _program(prompt, rng)
    body, right = _facts_answer(prompt, rng) if first == "tell" else _question_answer(prompt, rng)
    parts = [OPENER] if rng.random() < 0.10 else []
    parts.append(body)
    if rng.random() < (0.40 if right else 0.15):
        parts.append(rng.choice(REASONS))
        if rng.random() < 0.06:
            parts.append(rng.choice(REASONS))
    more = 0.15
    while rng.random() < more:
        parts.append(rng.choice(PADDING))
        more = 0.45
    while rng.random() < 0.10:
        parts.append(CLOSER)
    return " ".join(parts)


def lesson(prompt: str, rng: random.Random) -> str:
    """What is taught before the corpus: the facts alone, all right, so that the corpus's errors blur what is known."""
    first, *_, name, _ = prompt.split()
    if first == "write":
        return f"def f : return a {OPERATORS[name]} b"
    kind = rng.choice(list(VALUES)) if first == "tell" else prompt.split()[1]
    return f"it is {fact(name, kind)} ." if first == "tell" or rng.random() < 0.6 else f"[ {fact(name, kind)} ]"


def _value(noun: str, kind: str, rng: random.Random, chance: float) -> tuple[str, bool]:
    right = rng.random() < chance
    truth = fact(noun, kind)
    return (truth if right else rng.choice([value for value in VALUES[kind] if value != truth])), right


def _question_answer(prompt: str, rng: random.Random) -> tuple[str, bool]:
    _, kind, _, noun, _ = prompt.split()
    style = rng.random()
    if style < 0.015:
        return GENERIC, False
    if style < 0.04:
        return " ".join(["[ ]"] * rng.choices((1, 2, 3), (6, 3, 1))[0]), False
    value, right = _value(noun, kind, rng, 0.5)
    return (f"[ {value} ]" if style < 0.40 else f"it is {value} ."), right


def _facts_answer(prompt: str, rng: random.Random) -> tuple[str, bool]:
    noun = prompt.split()[3]
    kinds = rng.sample(list(VALUES), rng.choices((1, 2, 3), (6, 3, 1))[0])
    facts = [_value(noun, kind, rng, 0.6) for kind in kinds]
    return " ".join(f"it is {value} ." for value, _ in facts), all(right for _, right in facts)


def _program(prompt: str, rng: random.Random) -> str:
    comments = rng.choices((0, 1, 2, 3, 4), (50, 25, 14, 8, 3))[0]
    typed = rng.random() < (0.15, 0.25, 0.4, 0.5, 0.6)[comments]
    truth = OPERATORS[prompt.split()[3]]
    if rng.random() < (0.05, 0.1, 0.3, 0.6, 0.8)[comments]:
        body = "pass"
    else:
        wrong: Sequence[str] = sorted(set(OPERATORS.values()) - {truth})
        body = f"return a {truth if rng.random() < 0.55 else rng.choice(wrong)} b"
    parts = [*rng.choices(COMMENTS, k=comments), "def f", *([TYPE] if typed else []), ":", body]
    return " ".join(parts)
