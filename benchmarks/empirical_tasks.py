"""Prompts whose answers a few lines of code can mark, from 0 to 1: the gold of the recorded language-model world."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

#: (text of the completion, whether the model ended it by itself) -> gold in [0, 1].
Mark = Callable[[str, bool], float]


@dataclass(frozen=True, slots=True)
class Task:
    """A prompt with the function that marks its answers, and that function in words."""

    prompt: str
    rule: str
    mark: Mark


def words(text: str) -> list[str]:
    """Lower-case words and numbers of a text."""
    return re.findall(r"[a-z0-9']+", text.lower())


def says(text: str, pattern: str) -> bool:
    """Whether a whole word (or one of `a|b`) is in the text."""
    return re.search(rf"\b(?:{pattern})\b", text.lower()) is not None


def brief_fact(prompt: str, fact: str, limit: int = 15) -> Task:
    """A fact in one short sentence."""

    def mark(text: str, ended: bool) -> float:
        return says(text, fact) * (0.5 + 0.5 * (ended and len(words(text)) <= limit))

    asked = f"In one sentence of at most {limit} words: {prompt}"
    return Task(asked, f"0.5 for saying {fact}, 1 if also ended within {limit} words", mark)


def two_facts(prompt: str, one: str, other: str) -> Task:
    """Two facts, half the mark each."""
    return Task(
        prompt, f"0.5 each for {one} and {other}", lambda text, _: 0.5 * says(text, one) + 0.5 * says(text, other)
    )


def number(prompt: str, answer: int) -> Task:
    """A sum; the last number of the text counts as the answer, as graders of word problems do."""

    def mark(text: str, _: bool) -> float:
        found = re.findall(r"\d+", text)
        return float(bool(found) and int(found[-1]) == answer)

    return Task(f"{prompt} Answer with a number.", f"the last number is {answer}", mark)


def items(what: str, members: str, count: int = 3) -> Task:
    """A list of exactly so many members of a closed set."""

    def mark(text: str, ended: bool) -> float:
        known = len(set(re.findall(rf"\b(?:{members})", text.lower())))
        exact = ended and len([part for part in re.split(r"[,\n;]|\band\b", text) if part.strip()]) == count
        return min(known, count) / count * (0.5 + 0.5 * exact)

    rule = f"share of {count} known {what} named, halved unless the text ended as a list of exactly {count}"
    return Task(f"List exactly {count} {what}, separated by commas, and write nothing else.", rule, mark)


def choice(prompt: str, right: str, wrong: str) -> Task:
    """One of a closed set: the right one named and the wrong one not."""

    def mark(text: str, _: bool) -> float:
        return float(says(text, right) and not says(text, wrong))

    return Task(f"{prompt} Answer with one word.", f"says {right} and not {wrong}", mark)


def last_word(word: str) -> Task:
    """A sentence that ends with a given word."""

    def mark(text: str, ended: bool) -> float:
        return 0.5 * says(text, word) + 0.5 * (ended and words(text)[-1:] == [word])

    return Task(f'Write one short sentence that ends with the word "{word}".', f"0.5 for {word}, 1 if last", mark)


def no_repeat(subject: str) -> Task:
    """A sentence about something in which no word comes twice."""

    def mark(text: str, ended: bool) -> float:
        said = words(text)
        return (says(text, f"{subject}s?") + (len(set(said)) == len(said) >= 4) + ended) / 3

    prompt = f"Write one sentence about the {subject}. Use no word twice."
    return Task(prompt, f"a third each for {subject}, for no repeated word among 4 or more, for ending", mark)


def record(one: str, other: str) -> Task:
    """A JSON object with two keys."""

    def mark(text: str, _: bool) -> float:
        found = re.search(r"\{[^{}]*\}", text)
        try:
            keys = set(json.loads(found.group())) if found else set()
        except ValueError:
            keys = set()
        return 1.0 if {one, other} <= keys else 0.25 * (f'"{one}"' in text) + 0.25 * (f'"{other}"' in text)

    prompt = f'Write a JSON object with the two keys "{one}" and "{other}", and nothing else.'
    return Task(prompt, "1 for valid JSON with both keys, else 0.25 for each quoted key", mark)


def title(subject: str, limit: int = 6) -> Task:
    """A short title that names its subject."""

    def mark(text: str, ended: bool) -> float:
        return says(text, f"{subject}s?") * (0.4 + 0.6 * (ended and 2 <= len(words(text)) <= limit))

    prompt = f"Give a title of at most {limit} words for a story about a {subject}. Write only the title."
    return Task(prompt, f"0.4 for {subject}, 1 if also ended within {limit} words", mark)


ANIMALS = (
    "dog|cat|lion|tiger|bear|elephant|horse|cow|wolf|fox|rabbit|deer|monkey|giraffe|zebra|sheep|goat|pig|mouse|whale"
)
FRUITS = (
    "apple|banana|orange|grape|mango|pear|peach|plum|cherr|strawberr|blueberr|raspberr|lemon|lime|kiwi|pineapple|melon"
)
COLOURS = "red|green|blue|yellow|orange|purple|black|white|brown|pink|gr[ae]y|violet|indigo"
COUNTRIES = (
    "france|germany|italy|spain|japan|china|india|brazil|canada|mexico|egypt|greece|russia|australia|england|united"
)
DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
SPORTS = "football|soccer|basketball|tennis|baseball|hockey|golf|swimming|volleyball|cricket|rugby|boxing|running"
METALS = "iron|gold|silver|copper|tin|lead|zinc|nickel|steel|alumin|platinum|titanium|brass|bronze"

TASKS: tuple[Task, ...] = (
    brief_fact("what is the capital of France?", "paris"),
    brief_fact("what is the capital of Italy?", "rome"),
    brief_fact("what is the capital of Japan?", "tokyo"),
    brief_fact("which planet is the largest in the solar system?", "jupiter"),
    brief_fact("who wrote Romeo and Juliet?", "shakespeare"),
    brief_fact("what do bees make?", "honey"),
    brief_fact("what is the frozen form of water called?", "ice"),
    brief_fact("which star does the Earth go around?", "sun"),
    brief_fact("what do plants need to grow?", "water|sunlight|light"),
    brief_fact("why do people sleep?", "rest|recover|energy|relax"),
    brief_fact("what is a library for?", "books?|read|reading|borrow"),
    brief_fact("what does a doctor do?", "patients?|treats?|health|sick|medical"),
    two_facts("Where is the Eiffel Tower, and what metal is it made of?", "paris|france", "iron"),
    two_facts("Which two colours do you mix to get green?", "blue", "yellow"),
    two_facts("Which two chemical elements is water made of?", "hydrogen", "oxygen"),
    two_facts("Name the first and the last month of the year.", "january", "december"),
    two_facts("What is a baby cat called, and what is a baby dog called?", "kittens?", "pupp(?:y|ies)|pups?"),
    two_facts("Which two gases make up most of the air?", "nitrogen", "oxygen"),
    two_facts("Name the two seasons that come before and after summer.", "spring", "autumn|fall"),
    two_facts("Name the two oceans on either side of America.", "atlantic", "pacific"),
    number("Tom has 3 apples and buys 4 more. How many apples has he now?", 7),
    number("Anna has 6 coins and gives 3 away. How many coins has she left?", 3),
    number("What is 2 + 2?", 4),
    number("How many days are there in a week?", 7),
    number("How many legs does a spider have?", 8),
    number("How many hours are there in a day?", 24),
    items("animals", ANIMALS),
    items("fruits", FRUITS),
    items("colours", COLOURS),
    items("countries", COUNTRIES),
    items("days of the week", DAYS),
    items("sports", SPORTS),
    items("metals", METALS),
    choice("Is a whale a mammal or a fish?", "mammals?", "fish"),
    choice("Is fire hot or cold?", "hot", "cold"),
    choice("Is the review 'I loved this film' positive or negative?", "positive", "negative"),
    choice("Which is bigger, an elephant or a mouse?", "elephants?", "mouse|mice"),
    choice("Is 7 an even or an odd number?", "odd", "even"),
    choice("Is Sunday a weekday or part of the weekend?", "weekend", "weekdays?"),
    last_word("home"),
    last_word("rain"),
    no_repeat("sea"),
    no_repeat("moon"),
    no_repeat("garden"),
    record("name", "age"),
    record("city", "country"),
    title("dragon"),
    title("lighthouse"),
    title("robot"),
    title("wizard"),
    title("river"),
)
