"""Datasets whose columns answer their prompts, and datasets whose columns look like it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

Row = dict[str, Any]
N = 64
CITIES = [
    "Paris",
    "Rome",
    "Madrid",
    "Berlin",
    "Vienna",
    "Oslo",
    "Lisbon",
    "Athens",
    "Warsaw",
    "Prague",
    "Dublin",
    "Helsinki",
    "Budapest",
    "Lima",
    "Quito",
    "Cairo",
    "Tokyo",
    "Seoul",
    "Hanoi",
    "Delhi",
]
LANDS = [
    "France",
    "Italy",
    "Spain",
    "Germany",
    "Austria",
    "Norway",
    "Portugal",
    "Greece",
    "Poland",
    "Czechia",
    "Ireland",
    "Finland",
    "Hungary",
    "Peru",
    "Ecuador",
    "Egypt",
    "Japan",
    "Korea",
    "Vietnam",
    "India",
]
WORDS = [
    "river",
    "stone",
    "cloud",
    "garden",
    "window",
    "bottle",
    "market",
    "forest",
    "silver",
    "copper",
    "travel",
    "number",
    "letter",
    "summer",
    "winter",
    "bridge",
]
TOPICS = ["tea", "mountains", "the sea", "trains", "old maps", "gardens", "bread", "bicycles"]


def _rows(make: Callable[[int, random.Random], Row]) -> list[Row]:
    rng = random.Random(7)
    return [make(k, rng) for k in range(N)]


def _arc(k: int, rng: random.Random, *, labels: str, key: Callable[[int], Any], form: str = "{}. {}") -> Row:
    shown = rng.sample(WORDS, len(labels))
    options = "\n".join(form.format(*pair) for pair in zip(labels, shown, strict=True))
    return {
        "prompt": f"Which of these do people use on day {k}?\n{options}\nAnswer:",
        "answer": key(k % len(labels)),
        "texts": shown,
    }


def _chat(text: str, answer: Any, name: str = "answer") -> Row:
    system = {"role": "system", "content": "You are a helpful assistant. Put the final answer in <answer> tags."}
    return {"prompt": [system, {"role": "user", "content": text}], name: answer}


def _arc_text(k: int, rng: random.Random) -> Row:
    row = _arc(k, rng, labels="ABCD", key=int)
    return row | {"answer": row["texts"][k % 4]}


GOOD: dict[str, list[Row]] = {
    "letters, a line each": _rows(lambda k, r: _arc(k, r, labels="ABCDE", key=lambda at: "ABCDE"[at])),
    "letters in brackets": _rows(
        lambda k, r: _arc(k, r, labels="ABCD", key=lambda at: f"({'ABCD'[at]})", form="({}) {}")
    ),
    "numbered from 1": _rows(lambda k, r: _arc(k, r, labels="1234", key=lambda at: at + 1, form="{}) {}")),
    "index of letters": _rows(lambda k, r: _arc(k, r, labels="ABCD", key=int)),
    "index of letters from 1": _rows(lambda k, r: _arc(k, r, labels="ABCD", key=lambda at: at + 1)),
    "option text": _rows(_arc_text),
    "arithmetic chat": _rows(lambda k, r: _chat(f"Calculate {k + 3} * {k % 7 + 2}.", (k + 3) * (k % 7 + 2))),
    "countdown": _rows(lambda k, r: _chat(f"Using 3, {k} and 5, what is 3 + {k} - 5?", str(k - 2), "target")),
    "word problem": _rows(
        lambda k, r: {
            "prompt": f"Ann has {k + 4} pens, gives away 3 and buys {k % 5}. How many has she now?",
            "final_answer": str(k + 1 + k % 5),
        }
    ),
    "latex": _rows(
        lambda k, r: {
            "prompt": f"Find the value of $\\frac{{{k + 1}}}{{{k + 2}}} \\cdot 2$.",
            "solution": f"We get $\\boxed{{\\frac{{{2 * k + 2}}}{{{k + 2}}}}}$.",
        }
    ),
    "verl": _rows(
        lambda k, r: {
            "prompt": [{"role": "user", "content": f"Solve for x: x + {k} = {3 * k + 1}."}],
            "reward_model": {"style": "rule", "ground_truth": str(2 * k + 1)},
        }
    ),
    "units": _rows(
        lambda k, r: {
            "prompt": f"A train runs {k + 10} km in an hour. How far does it get in 3 hours?",
            "answer": f"{3 * (k + 10)} km",
        }
    ),
    "dollars": _rows(
        lambda k, r: {"prompt": f"A cap costs ${k + 2} and a scarf $9. How much are both?", "answer": f"${k + 11}"}
    ),
    "capitals": _rows(
        lambda k, r: {"prompt": f"What is the capital of {LANDS[k % 20]}? ({k})", "answer": CITIES[k % 20]}
    ),
    "capitals, aliases": _rows(
        lambda k, r: {
            "prompt": f"Name the capital of {LANDS[k % 20]} ({k}).",
            "answers": [CITIES[k % 20], CITIES[k % 20] + " City"],
        }
    ),
    "yes or no": _rows(
        lambda k, r: {
            "prompt": f"Is {2 * k + 1} divisible by 3? Answer yes or no.",
            "answer": "yes" if (2 * k + 1) % 3 == 0 else "no",
        }
    ),
    "boolq": _rows(
        lambda k, r: {
            "prompt": f"The {WORDS[k % 16]} lies in town {k}.\nis the {WORDS[k % 16]} in a town?",
            "answer": k % 3 == 0,
        }
    ),
    "dates": _rows(
        lambda k, r: {
            "prompt": f"When was treaty {k} signed?",
            "answer": f"{1900 + k}-{k % 12 + 1:02d}-{k % 28 + 1:02d}",
        }
    ),
    "date words": _rows(
        lambda k, r: {"prompt": f"On what date was ship {k} launched?", "answer": f"May {k % 28 + 1}, {1900 + k}"}
    ),
    "years": _rows(lambda k, r: {"prompt": f"In which year was town {k * 37} founded?", "answer": str(1800 + k)}),
    "sentiment, named": _rows(
        lambda k, r: {
            "prompt": f"Review {k}: nice. Is the sentiment positive or negative?",
            "label": ("positive", "negative")[k % 2],
        }
    ),
    "count letters": _rows(
        lambda k, r: {
            "prompt": f"How many times does the letter e occur in '{WORDS[k % 16]}' ({k})?",
            "answer": WORDS[k % 16].count("e"),
        }
    ),
    "unscramble": _rows(
        lambda k, r: {
            "prompt": f"Unscramble the letters: {''.join(sorted(WORDS[k % 16]))} ({k})",
            "answer": WORDS[k % 16],
        }
    ),
    "percent": _rows(lambda k, r: {"prompt": f"What percentage of 200 is {2 * k}?", "answer": f"{k}%"}),
    "continents": _rows(
        lambda k, r: {
            "prompt": f"Which continent is {LANDS[k % 20]} in? ({k})",
            "answer": (["Europe"] * 13 + ["South America"] * 2 + ["Africa"] + ["Asia"] * 4)[k % 20],
        }
    ),
    "decimal": _rows(lambda k, r: {"prompt": f"Write {k + 1}/8 as a decimal.", "answer": (k + 1) / 8}),
    "next number": _rows(lambda k, r: {"prompt": f"What comes next: {k}, {k + 3}, {k + 6}, ...?", "answer": k + 9}),
    "plain question": _rows(
        lambda k, r: {
            "question": f"Who wrote book {k}?",
            "prompt": f"Who wrote book {k}?",
            "answer": f"{WORDS[k % 16].title()} {WORDS[(k * 3) % 16].title()}",
        }
    ),
}

#: `True`: attach refuses it. `False`: only the run's labels can show it.
MISLEADING: dict[str, tuple[bool, list[Row]]] = {
    "index against numbers": (True, _rows(lambda k, r: _arc(k, r, labels="1234", key=int, form="{}) {}"))),
    "index of shuffled choices": (
        True,
        [row | {"choices": row["texts"][::-1]} for row in _rows(lambda k, r: _arc(k, r, labels="ABCD", key=int))],
    ),
    "index that leaves both ways open": (
        True,
        _rows(lambda k, r: _arc(k, r, labels="ABCD", key=lambda at: 1 + at % 3)),
    ),
    "length": (True, _rows(lambda k, r: {"prompt": f"Describe {TOPICS[k % 8]} in {20 + k} words.", "target": 20 + k})),
    "sentences": (
        True,
        _rows(
            lambda k, r: {"prompt": f"Explain {TOPICS[k % 8]} in exactly {k % 7 + 2} sentences.", "answer": k % 7 + 2}
        ),
    ),
    "budget": (
        True,
        _rows(lambda k, r: {"prompt": f"What do you think about {TOPICS[k % 8]} ({k})?", "target": 64 * (k % 9)}),
    ),
    "stars": (
        True,
        _rows(
            lambda k, r: {
                "prompt": f"A customer asks: how do I clean my {WORDS[k % 16]}? Help them.",
                "answer": 1 + k % 5,
            }
        ),
    ),
    "upvotes": (
        True,
        _rows(
            lambda k, r: {
                "prompt": f"What's the best way to cook {WORDS[k % 16]} number {k}?",
                "target": r.randrange(900),
            }
        ),
    ),
    "toxicity": (
        True,
        _rows(lambda k, r: {"prompt": f"Comment {k}: you there. Answer it kindly.", "target": r.random()}),
    ),
    "score of an essay": (
        True,
        _rows(lambda k, r: {"prompt": f"Essay prompt {k}: should children work?", "label": r.randrange(1, 7)}),
    ),
    "date of an article": (
        True,
        _rows(
            lambda k, r: {
                "prompt": f"Summarize the article: {WORDS[k % 16]} {k}.",
                "answer": f"2023-0{k % 9 + 1}-1{k % 10}",
            }
        ),
    ),
    "date of a question": (
        True,
        _rows(lambda k, r: {"prompt": f"Who owns {WORDS[k % 16]} {k}?", "answer": f"2023-0{k % 9 + 1}-1{k % 10}"}),
    ),
    "row numbers": (
        True,
        _rows(lambda k, r: {"prompt": f"What is the main idea of the text about {TOPICS[k % 8]}?", "answer": k}),
    ),
    "ids": (True, _rows(lambda k, r: {"prompt": f"What is {k} + 1?", "answer": f"train-{k:05d}"})),
    "hashes": (True, _rows(lambda k, r: {"prompt": f"Who wrote book {k}?", "answer": f"{r.getrandbits(64):016x}"})),
    "any synonym": (
        True,
        _rows(lambda k, r: {"prompt": f"Give a synonym of {WORDS[k % 16]} ({k}).", "answer": WORDS[(k + 5) % 16]}),
    ),
    "name a country": (
        True,
        _rows(lambda k, r: {"prompt": f"Name a country with the letter {'abcdefgh'[k % 8]}.", "answer": LANDS[k % 20]}),
    ),
    "find any divisor": (
        True,
        _rows(lambda k, r: {"prompt": f"Find a divisor of {6 * k + 12} other than 1.", "answer": str(3 + k % 2 * 3)}),
    ),
    "example": (
        True,
        _rows(lambda k, r: {"prompt": f"What is an example of a number larger than {k}?", "answer": k + 3}),
    ),
    "difficulty words": (
        True,
        _rows(lambda k, r: {"prompt": f"What is {k} + {k}?", "target": ("easy", "medium", "hard")[k % 3]}),
    ),
    "difficulty": (True, _rows(lambda k, r: {"prompt": f"What is {k} + {k}?", "target": 1 + k % 5})),
    "language": (True, _rows(lambda k, r: {"prompt": f"Who wrote book {k}?", "label": ("en", "de", "fr")[k % 3]})),
    "classes by number": (
        True,
        _rows(lambda k, r: {"prompt": f"Premise {k}: it rains. Does it follow that it is wet?", "label": k % 3}),
    ),
    "translation": (
        True,
        _rows(
            lambda k, r: {"prompt": f"Translate to German: the {WORDS[k % 16]} {k}", "target": WORDS[k % 16].title()}
        ),
    ),
    "minus one": (True, _rows(lambda k, r: {"prompt": f"What is {k} + 1?", "answer": -1})),
    "nearly constant": (True, _rows(lambda k, r: {"prompt": f"What is {k} + 1?", "answer": 0 if k % 16 else k})),
    "half missing": (True, _rows(lambda k, r: {"prompt": f"What is {k} + 1?", "answer": k + 1 if k % 2 else None})),
    "long texts": (
        True,
        _rows(lambda k, r: {"prompt": f"What is {k} + 1?", "answer": "We add one to it and see. " * 8}),
    ),
    "which was better": (
        True,
        _rows(lambda k, r: {"prompt": f"Write a poem about {WORDS[k % 16]} {k}.", "label": k % 2}),
    ),
    "title": (
        True,
        _rows(lambda k, r: {"prompt": f"Suggest a title for story {k}.", "answer": f"The {WORDS[k % 16].title()}"}),
    ),
    "temperature": (
        True,
        _rows(lambda k, r: {"prompt": f"Continue the story: {WORDS[k % 16]} {k}", "target": round(0.1 * (k % 10), 1)}),
    ),
    "time stamp": (
        True,
        _rows(lambda k, r: {"prompt": f"Reply to this mail: {WORDS[k % 16]} {k}", "answer": 1_690_000_000 + k}),
    ),
    "the next row's answer": (False, _rows(lambda k, r: {"prompt": f"What is {k} + 2?", "answer": (k + 1) % 64 + 2})),
    "another problem's answers": (
        False,
        _rows(lambda k, r: {"prompt": f"What is {k} times 7?", "answer": str(5 * k + 90)}),
    ),
    "year of a problem": (False, _rows(lambda k, r: {"prompt": f"What is {k} times 7?", "target": 1990 + k % 30})),
    "steps of a solution": (
        False,
        _rows(lambda k, r: {"prompt": f"How many pens are {k} boxes of 12?", "target": 2 + k % 7}),
    ),
}
