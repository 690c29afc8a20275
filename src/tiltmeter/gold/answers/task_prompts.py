"""What a prompt asks for, by its words: a number, a date, words, yes or no, a text, any of many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tiltmeter.data.batches import plain_text

PROMPT_COLUMNS = ("prompt", "question", "problem", "query", "input", "instruction")
LONGEST = 4_000  # characters at the end of a prompt that are looked at

_START = r"(?:^|[.!?:;\n]\s*|\b(?:please|to|can you|could you|would you|will you|and|then|help me|task is to)\s+)"
_COUNTED = r"(?:words?|sentences?|lines?|paragraphs?|characters|tokens|bullet|points|stanzas|verses|pages)"
WRITES = re.compile(
    _START
    + r"(?:write(?!\s+(?:\$|\\|-?\d[\d/.,]*(?!\s*-?\s*"
    + _COUNTED
    + r")(?:\s|$)|(?:the|your)\s+(?:\w+\s+)?(?:number|"
    r"fraction|equation|expression|decimal|value|ratio|answer|result)|down the (?:number|answer)|[a-z] as\b))"
    r"|compose|summari[sz]e|rewrite|re-write|paraphrase|rephrase|describe|discuss|draft|reply|respond|continue|"
    r"generate|"
    r"explain|brainstorm|advise|recommend|suggest|imagine|pretend|role-?play|chat|edit|proofread|polish|improve|"
    r"elaborate|"
    r"outline|design|plan|invent|make up|narrate|argue|persuade|comment|reflect|pitch|create|craft|tell|caption|"
    r"title|"
    r"critique|review|condense|shorten|expand on|prepare|produce a|transcribe|"
    r"annotate)\b(?!\s+(?:the\s+)?equation|\s*#?\d*\s*[:.])",
    re.I,
)
_TRANSLATES = re.compile(_START + r"translate\b", re.I)
_ANY = re.compile(
    r"\b(?:give|name|find|state|provide|suggest|propose|think of|come up with|list|mention|produce|construct|"
    r"pick|choose|"
    r"write|show|tell|supply|report|say|offer|return|output|identify)\s+(?:me |us |down )?(?:any(?:thing|one)?|an? "
    r"(?:possible |valid |single |random |different |specific |famous |\w+ )?(?:example|instance|synonym|"
    r"antonym|rhyme|word|way|reason|prime|"
    r"number|integer|divisor|factor|multiple|country|city|animal|fruit|colou?r|book|film|movie|song|name|"
    r"counterexample|"
    r"person|food|river|planet|element|solution|pair|triple|value|permutation|path|subset|string|sequence|"
    r"name)\b|one\b(?! of the "
    r"following)|some\b|two\b|three\b|several\b|a few\b|at least)"
    r"|\bany (?:one |valid |correct |possible |such )?(?:\w+ )?(?:that|which|with|larger|smaller|greater|less|"
    r"of your|answer|one)\b"
    r"|\bmany (?:valid|possible|correct|right) answers|\bone possible|\bfor example, what|\bmay be any|"
    r"\bfor any (?:one )?valid"
    r"|\bwhat(?: is|'s| are| would be) (?:one|an? (?:\w+ )?(?:example|instance|synonym|antonym|rhyme|word|way|"
    r"reason|name|possible|good|valid|"
    r"nice|fun|famous|popular))\b|\ban example of\b|\bof your choice\b|\brhymes? with\b|\bother than\b|"
    r"\bwords? (?:that|which) (?:starts?|ends?|rhymes?|begins?|means?)\b"
    r"|\b(?:name|give|find|what is) (?:an?|one) [a-z]+ (?:that|which|with|whose|in|from|of|larger|smaller|"
    r"greater|between|starting|ending|beginning)\b(?! the sum| the product)"
    r"|\bexample of an?\b|\bnot necessarily unique|\bnot unique|\bone of the (?:possible|many|valid)",
    re.I,
)
_OPINION = re.compile(
    r"\bhow (?:do|can|should|could|would|might|to|does one|are you)\b|\bwhy\b|\bwhat do you think|"
    r"\byour opinion|\bwhat should|"
    r"\bwhat are (?:some|the (?:pros|benefits|advantages|best|main|key))|\bwhat would you|\bwhat's the best way|"
    r"\bdo you (?:like|prefer|think)|"
    r"\btell me about|\bany (?:tips|advice|ideas)|\bshould i\b|\bcan i\b|\bwhat can i\b|\bwhat makes\b|"
    r"\bwhat happens if",
    re.I,
)
_COUNTS = re.compile(
    r"\bhow (?:many|much|old|far|long|tall|fast|high|deep|wide|heavy|large|big|often|few)\b|\bnumber of\b|"
    r"\bcount\b|\bremainder\b|"
    r"\bmod(?:ulo)?\b|\bdigits?\b|\bwhat (?:number|integer|fraction|percent|percentage|year|age|time)\b|\b(?:in|"
    r"of|which) (?:what|which) year\b|"
    r"\bwhich (?:number|integer|year)\b|\bpercent(?:age)?\b|\bprobability\b|\btotal\b|\baverage\b|"
    r"\bwhat score\b|\bwhat amount\b|"
    r"\bin (?:dollars|cents|metres|meters|kilometers|kilometres|hours|minutes|seconds|km|cm|kg|grams)\b",
    re.I,
)
_MATHS = re.compile(
    r"\\(?:frac|sqrt|sum|int|cdot|times|log|sin|cos|pi|angle|boxed|triangle|overline|begin)|\$[^$]{1,400}\$|"
    r"\d\s*,\s*-?\d+\s*,|\d\s*[-+*/^×÷−]\s*[\d(a-z]|[a-z]\s*[-+*/^=×÷]\s*\d|=\s*\?|\?\s*=|"
    r"\b\d[\d,.]*\s+(?:plus|minus|times|divided by|multiplied by|squared|cubed|to the power|mod(?:ulo)?)\b|"
    r"\b(?:sum|product|difference|quotient|square|cube|root|factorial|gcd|lcm|greatest common|least common|"
    r"value|area|perimeter|volume|"
    r"circumference|radius|diameter|derivative|integral|solve|evaluate|compute|calculate|simplify|factor|half|"
    r"double|twice|triple|next number|"
    r"fibonacci|prime|convert|hexadecimal|binary|decimal|median|mean|range|interest|speed|distance|cost|price|"
    r"change|pay|earn|"
    r"larger|largest|smallest|smaller|greater|greatest|maximum|minimum)\b",
    re.I,
)
_ASKS = re.compile(
    r"\?|\b(?:find|compute|calculate|evaluate|solve|simplify|determine|what|which|work out|add|subtract|"
    r"multiply|divide|convert|"
    r"count|round|express|factor|how|answer|estimate|complete|write|integrate|differentiate|enter|give the|"
    r"state the|prove)\b|=\s*$",
    re.I,
)
_WHEN = re.compile(
    r"\bwhen\b|\b(?:what|which|exact|on what|on which|due|birth|release|publication|opening|closing|start|end|"
    r"launch)[- ]?(?:was |is )?(?:the )?(?:full )?"
    r"(?:date|day)\b|\bdate (?:of|on|that|when|is|was|in)\b|\bdeadline\b|\bdays? (?:after|before|later|from)\b|"
    r"\bdate\?",
    re.I,
)
_YES_NO = re.compile(
    r"\byes\b.{0,12}\bno\b|\btrue\b.{0,12}\bfalse\b|(?:^|[.!?:\n]\s*)(?:is|are|was|were|do|does|did|can|could|"
    r"has|have|had|will|would|"
    r"should|isn't|aren't|doesn't|may|must)\s[^?\n]{3,400}\?",
    re.I,
)
_FACT = re.compile(
    r"\b(?:who|whom|whose|which|what|where|when|what's|who's)\b|\bname the\b|\bgive the\b|\bstate the\b|"
    r"\bfind the\b|\bidentify\b|"
    r"\b(?:capital|author|plural|opposite|past tense|currency|symbol|anagram|language|antonym|"
    r"chemical formula) (?:of|for|city)\b|\bunscramble|"
    r"\breverse the\b|\bspell\b|\bsort the\b|"
    r"\bfill in\b|_{2,}|\bcomplete the\b|\bsolve\b|\bclassify\b|\bextract\b|\bdetermine\b|\bconvert\b|"
    r"\bdecode\b|\bencode\b|\bhow (?:do you|is) .{0,40}(?:called|spelled)|\bat which\b|\?\s*$",
    re.I,
)


_SENTENCES = re.compile(r"(?<=[.!?:])\s|\n")
#: Of a sentence about how to answer.
_MANNER = re.compile(
    r"\byour\s+(?:\w+\s+)?(?:reasoning|answer|thoughts?|thinking|work|working|solution|response|steps?|output|choice)\b|"
    r"\b(?:the|a) (?:final|correct|reasoning|single|thinking)\b|step[- ]by[- ]step|<\w+>|\\boxed|\bformat\b|\btags?\b|"
    r"\bonly\b|\bletter\b|\bsteps\b|\bconcise|\bbriefly\b|\bexactly as\b|\bin one word\b|\bone of\b",
    re.I,
)


def prompt_of(row: Mapping[str, Any]) -> str:
    """What a row's prompt asks: of a conversation, what the user said last; empty if there is none."""
    for name in PROMPT_COLUMNS:
        value = row.get(name)
        if isinstance(value, (list, tuple)):
            messages = [one for one in value if isinstance(one, Mapping) and one.get("role") == "user"]
            value = value if not messages else messages[-1:]
        if text := plain_text(value):
            return str(text)[-LONGEST:]
    return ""


def asks_for_text(prompt: str) -> bool:
    """Whether a prompt asks for a text of which many are good, or for an opinion; how to answer is another matter.

    >>> asks_for_text("Write a story of 50 words"), asks_for_text("Write 3/4 as a decimal."), asks_for_text("6 x 7?")
    (True, False, False)
    >>> asks_for_text("What is 6 x 7? Explain your reasoning. Respond in this format: <answer></answer>")
    False
    """
    task = "\n".join(part for part in _SENTENCES.split(prompt[-LONGEST:]) if not _MANNER.search(part))
    return bool(WRITES.search(task) or (_OPINION.search(task) and not _COUNTS.search(task)))


def translates(prompt: str) -> bool:
    return _TRANSLATES.search(prompt[-LONGEST:]) is not None


def allows_any(prompt: str) -> bool:
    """Whether a prompt says that one of many answers is right.

    >>> allows_any("Give any prime larger than 7."), allows_any("Find a + b."), allows_any("Name the largest prime.")
    (True, False, False)
    """
    return _ANY.search(prompt[-LONGEST:]) is not None


def asks_for_number(prompt: str) -> bool:
    """Whether a prompt asks for a number or a term.

    >>> [asks_for_number(text) for text in ("How many are left?", "What is 3 plus 4?", "The capital of Peru?")]
    [True, True, False]
    """
    text = prompt[-LONGEST:]
    return bool(counts(text) or (_MATHS.search(text) and _ASKS.search(text)))


def counts(prompt: str) -> bool:
    return _COUNTS.search(prompt[-LONGEST:]) is not None


def asks_for_date(prompt: str) -> bool:
    return _WHEN.search(prompt[-LONGEST:]) is not None


def asks_yes_or_no(prompt: str) -> bool:
    return _YES_NO.search(prompt[-LONGEST:]) is not None


def asks_for_fact(prompt: str) -> bool:
    """Whether a prompt asks who, what, which or where, or for a word that it determines."""
    return _FACT.search(prompt[-LONGEST:]) is not None
