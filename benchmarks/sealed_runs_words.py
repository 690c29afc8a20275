"""The words of the sealed runs: names, problems, and sentences that answers are put together from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def split_words(words: str) -> list[str]:
    return words.split()


PEOPLE = split_words("Amara Bruno Chen Dalia Eskil Fumiko Goran Hind Ines Joaquim Kiran Lotte Mateo Nadia Oskar Priya")
GOODS = split_words("tiles crates lamps bricks baskets cables panels bottles chairs seeds")
SUMS = (
    "{who} packs {a} {good} an hour and works for {b} hours. How many {good} are packed?",
    "A lorry carries {a} {good} on each of its {b} trips. How many {good} does it carry in all?",
    "{who} orders {b} boxes with {a} {good} in each. How many {good} arrive?",
    "There are {b} shelves, and {who} puts {a} {good} on every one. How many {good} are on the shelves?",
)
MATH_FIRST = (
    "Each part is the same size, so this is a product.",
    "I write down what is known before I calculate.",
    "The question asks for a total.",
    "Let me set up the equation.",
)
MATH_NEXT = (
    "There are {b} equal parts of {a}.",
    "I need {a} times {b}.",
    "Splitting {a} into tens and ones makes the product easier.",
    "Ten times {a} would be too much or too little, so I adjust.",
    "The unit of the result is {good}.",
    "Half of {b} and then double is another way to see it.",
    "As a check I round {a} and compare the order of magnitude.",
    "No part is counted twice.",
    "Wait, I should verify the carry in the second digit.",
    "With {b} parts the order does not matter.",
    "Writing {a} as a sum of two round numbers gives two easy products.",
    "Let me do that once more from the start.",
    "The text holds nothing else that counts.",
    "{who} handles only {good} here.",
    "Both numbers are whole, so the result is whole.",
    "The last digit follows from the last digits of {a} and {b}.",
)
MATH_LAST = ("The final answer is {x}", "Therefore the total is {x}", "Answer: {x}", "That makes {x}")
STORIES = (
    "Write a Python function `cost(a, b)`: each of a adult tickets costs {u} and each of b child tickets costs {v}.",
    "Implement `points(a, b)` in Python, where a wins give {u} points each and b draws give {v} points each.",
    "In Python, write `weight(a, b)` for a large parcels of {u} kg and b small parcels of {v} kg.",
)
CODE_SAYS = (
    "The function is linear in both arguments.",
    "I multiply each count by its value and add the two products.",
    "No loop is needed here.",
    "Edge cases with zero work without a branch.",
    "The types are integers, so there is no rounding.",
    "I keep the signature that the task gives.",
)
CODE_NOTES = ("# weighted sum", "# both counts are integers", "# value per unit times count", "# no side effects")
CITIES = split_words("Lima Oslo Accra Hanoi Quito Turin Perth Leeds Busan Tunis")
ENVIRONMENTS = split_words("shop desk bank travel clinic library hotel fleet school parts")
AGENT_CALLS = (
    'call: search(table="{env}", id={number})',
    "result: one record, city {old}",
    "call: read_policy()",
    "result: changes are allowed until dispatch",
    "call: confirm_with_user()",
    "result: the user says yes",
    "thought: the record must be changed only once",
    "thought: I check that the identifier is the one in the request",
    'call: list_tables(database="{env}")',
    "result: records, logs, users",
    'call: read_log(table="{env}", last=20)',
    "result: no entry about {number} today",
    "thought: {new} is spelled as the user wrote it",
    "call: get(id={number})",
    "result: id {number}, city {old}, open",
)
TOPICS = split_words("sleep budgets gardening interviews recipes hiking taxes friendship exams cycling software music")
CHAT_HEADS: Mapping[str, Sequence[str]] = {
    "en": (
        "For {topic},",
        "In most cases",
        "If time is short,",
        "As a rule,",
        "At first",
        "Week by week",
        "With practice",
    ),
    "de": ("Bei {topic}", "Am Anfang", "Meistens", "Mit etwas Übung", "Woche für Woche", "Im Zweifel"),
    "es": ("En {topic},", "Al principio,", "Casi siempre,", "Con práctica,", "Semana a semana,", "Si duda,"),
}
CHAT_TAILS: Mapping[str, Sequence[str]] = {
    "en": (
        "a small first step helps most.",
        "one clear goal is enough.",
        "haste is the usual mistake.",
        "notes on what worked are useful.",
        "a fixed hour pays off.",
        "it is fine to leave things out.",
        "an honest look at the costs comes first.",
    ),
    "de": (
        "hilft ein kleiner Schritt.",
        "zählt Geduld mehr als Eile.",
        "lohnt sich ein fester Termin.",
        "genügt ein klares Ziel.",
        "sind Notizen nützlich.",
    ),
    "es": (
        "un paso pequeño ayuda mucho.",
        "basta con un objetivo claro.",
        "la prisa es un error común.",
        "conviene anotar lo que funcionó.",
        "un rato fijo da resultado.",
    ),
}
ASKS = {
    "en": "Can you give me advice about {topic}? I am {who} and case {k} is mine.",
    "de": "Können Sie mir etwas zu {topic} raten? Ich bin {who}, Fall {k}.",
    "es": "¿Me puede aconsejar sobre {topic}? Soy {who}, caso {k}.",
}
