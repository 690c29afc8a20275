"""Questions of fact with a right and a wrong answer, and gold for them: the data of `pipeline.py`, all of it ours."""

from __future__ import annotations

import re

#: The question, the word that answers it (a pattern), the answer in a sentence, and the same with another word.
FACTS: tuple[tuple[str, str, str, str], ...] = (
    ("What is the capital of France?", "paris", "The capital of France is Paris.", "Lyon"),
    ("What is the capital of Japan?", "tokyo", "The capital of Japan is Tokyo.", "Osaka"),
    ("What is the capital of Italy?", "rome", "The capital of Italy is Rome.", "Milan"),
    ("What is the capital of Spain?", "madrid", "The capital of Spain is Madrid.", "Seville"),
    ("What is the capital of Germany?", "berlin", "The capital of Germany is Berlin.", "Munich"),
    ("What is the capital of Egypt?", "cairo", "The capital of Egypt is Cairo.", "Luxor"),
    ("What is the capital of Greece?", "athens", "The capital of Greece is Athens.", "Sparta"),
    ("What is the capital of Russia?", "moscow", "The capital of Russia is Moscow.", "Kazan"),
    ("What is the capital of China?", "beijing", "The capital of China is Beijing.", "Shanghai"),
    ("What is the capital of England?", "london", "The capital of England is London.", "Leeds"),
    ("Which planet do we live on?", "earth", "We live on Earth.", "Venus"),
    ("Which planet is the largest?", "jupiter", "The largest planet is Jupiter.", "Mars"),
    ("Which star is nearest to us?", "sun", "The nearest star is the Sun.", "Vega"),
    ("What colour is the sky on a clear day?", "blue", "The sky is blue.", "green"),
    ("What colour is fresh grass?", "green", "Fresh grass is green.", "purple"),
    ("What colour is snow?", "white", "Snow is white.", "black"),
    ("What colour is blood?", "red", "Blood is red.", "grey"),
    ("How many legs does a spider have?", "eight|8", "A spider has eight legs.", "five"),
    ("How many legs does a dog have?", "four|4", "A dog has four legs.", "three"),
    ("How many days are in a week?", "seven|7", "There are seven days in a week.", "nine"),
    ("How many months are in a year?", "twelve|12", "There are twelve months in a year.", "ten"),
    ("How many hours are in a day?", "twenty-four|24", "There are 24 hours in a day.", "20"),
    ("How many minutes are in an hour?", "sixty|60", "There are 60 minutes in an hour.", "100"),
    ("How many sides does a triangle have?", "three|3", "A triangle has three sides.", "six"),
    ("How many wheels does a bicycle have?", "two|2", "A bicycle has two wheels.", "four"),
    ("What do bees make?", "honey", "Bees make honey.", "bread"),
    ("What do cows give us to drink?", "milk", "Cows give us milk.", "tea"),
    ("What do hens lay?", "eggs?", "Hens lay eggs.", "stones"),
    ("What do sheep give us for clothes?", "wool", "Sheep give us wool.", "cotton"),
    ("What is frozen water called?", "ice", "Frozen water is called ice.", "steam"),
    ("What is molten rock from a volcano called?", "lava", "It is called lava.", "sand"),
    ("What gas do plants take in?", "carbon", "Plants take in carbon dioxide.", "helium"),
    ("What gas do we need to breathe?", "oxygen", "We need oxygen.", "neon"),
    ("Which animal barks?", "dog", "The dog barks.", "cat"),
    ("Which animal says meow?", "cat", "The cat says meow.", "cow"),
    ("Which animal has a trunk?", "elephant", "The elephant has a trunk.", "horse"),
    ("Which animal has the longest neck?", "giraffe", "The giraffe has the longest neck.", "lion"),
    ("Which animal carries its young in a pouch?", "kangaroo", "The kangaroo does.", "rabbit"),
    ("Which bird cannot fly and lives on the ice?", "penguin", "The penguin lives on the ice.", "eagle"),
    ("Which season comes after winter?", "spring", "Spring comes after winter.", "autumn"),
    ("Which season is the hottest?", "summer", "Summer is the hottest season.", "winter"),
    ("Which day comes after Monday?", "tuesday", "Tuesday comes after Monday.", "Sunday"),
    ("Which day comes before Sunday?", "saturday", "Saturday comes before Sunday.", "Wednesday"),
    ("Which month comes after January?", "february", "February comes after January.", "July"),
    ("Which month is the last of the year?", "december", "December is the last month.", "March"),
    ("What do we use to see?", "eyes?", "We use our eyes to see.", "knees"),
    ("What do we use to hear?", "ears?", "We use our ears to hear.", "feet"),
    ("Which organ pumps blood?", "heart", "The heart pumps blood.", "skin"),
    ("What is the opposite of hot?", "cold", "The opposite of hot is cold.", "loud"),
    ("What is the opposite of up?", "down", "The opposite of up is down.", "left"),
    ("What is the opposite of big?", "small|little", "The opposite of big is small.", "heavy"),
    ("What is the opposite of early?", "late", "The opposite of early is late.", "quick"),
    ("Which language is spoken in Brazil?", "portuguese", "Portuguese is spoken in Brazil.", "Dutch"),
    ("Which language is spoken in Mexico?", "spanish", "Spanish is spoken in Mexico.", "Polish"),
    ("Who wrote Romeo and Juliet?", "shakespeare", "Shakespeare wrote it.", "Tolstoy"),
    ("On which continent is Kenya?", "africa", "Kenya is in Africa.", "Asia"),
    ("On which continent is India?", "asia", "India is in Asia.", "Europe"),
    ("Which metal rusts?", "iron", "Iron rusts.", "gold"),
    ("What do you get when you mix blue and yellow?", "green", "You get green.", "pink"),
    ("What fruit is wine made of?", "grapes?", "Wine is made of grapes.", "plums"),
    ("What is bread made of?", "flour|wheat", "Bread is made of flour.", "sand"),
    ("Which sense does the nose serve?", "smell", "The nose serves smell.", "touch"),
    ("What melts when it gets warm, ice or stone?", "ice", "Ice melts.", "stone"),
    ("Which is heavier, a car or a feather?", "car", "A car is heavier.", "feather"),
)
#: Held out of every training: the questions that base and checkpoint are compared on.
HELD = FACTS[::2]
TAUGHT = FACTS[1::2]
#: Another kind of question, for prompts out of distribution: sums of small numbers.
SUMS = tuple((f"What is {a} plus {b}?", str(a + b)) for a in range(2, 10) for b in range(a, 10) if (a + b) % 3)
WAFFLE = (
    "That is a very interesting question, and many people wonder about it. There are several things to consider, and "
    "it depends on how one looks at them. In any case, it is a topic that one could talk about for a long time."
)
_ASKED = {question: right for question, right, *_ in FACTS} | {question: f"{total}\\b" for question, total in SUMS}


def mistaken(fact: tuple[str, str, str, str]) -> str:
    """The sentence with the wrong word in it."""
    _, right, sentence, wrong = fact
    return re.sub(rf"\b({right})\b", wrong, sentence, count=1, flags=re.IGNORECASE)


def brief_and_right(prompt: str, completion: str) -> float:
    """Gold: the answer is there, within few words. 20 words cost nothing, 50 and more make it worthless."""
    wanted = next((answer for question, answer in _ASKED.items() if question in prompt), None)
    if wanted is None:
        raise LookupError("not one of the questions")
    found = re.search(rf"\b({wanted})", completion.lower()) is not None
    return float(found) * min(1.0, max(0.0, (50 - len(completion.split())) / 30))
