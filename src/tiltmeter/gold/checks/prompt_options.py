"""The options of a multiple-choice prompt, as it shows them: `A) red B) green`, `(1) red (2) green`, a line each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

LONGEST_PROMPT = 8_000  # characters at the end of a prompt in which options are looked for
MOST_MARKS = 200
MOST_OPTIONS = 26

_MARK = re.compile(r"(?:^|(?<=[\s,;|?:]))[(\[]?([A-Za-z]|\d{1,2})(?:[)\]]\s{0,4}|[.:]\s{1,4})(?=\S)")
_END = re.compile(r"\n|(?<=[\w)\]\"'])[.?!;](?:\s|$)")


def read_options(prompt: str) -> dict[str, str]:
    """The labels of a prompt's options, in their order, and their texts; empty if it shows none.

    >>> read_options("Which is a colour? (A) red (B) seven. Reply with a letter.")
    {'A': 'red', 'B': 'seven'}
    >>> read_options("Pick 0) red 1) green"), read_options("What is 2 + 2?")
    ({'0': 'red', '1': 'green'}, {})
    """
    marks = [(match[1], match.start(), match.end()) for match in _MARK.finditer(prompt[-LONGEST_PROMPT:])][-MOST_MARKS:]
    runs = (_run_from(marks, at) for at, (label, _, _) in enumerate(marks) if label in ("A", "a", "0", "1"))
    best = max(reversed(list(runs)), key=len, default=[])  # the last of those that are as long: examples come before
    if len(best) < 2:
        return {}
    text = prompt[-LONGEST_PROMPT:]
    ends = [start for _, start, _ in best[1:]]
    options = {label: text[end:stop].strip(" \n,;|") for (label, _, end), stop in zip(best, ends, strict=False)}
    label, _, end = best[-1]
    return options | {label: _END.split(text[end : end + 400], maxsplit=1)[0].strip(" \n,;|")}


def _run_from(marks: Sequence[tuple[str, int, int]], at: int) -> list[tuple[str, int, int]]:
    """The marks from here whose labels count up without a gap."""
    run = [marks[at]]
    for mark in marks[at + 1 :]:
        if mark[0] == _next_label(run[-1][0]) and len(run) < MOST_OPTIONS:
            run.append(mark)
    return run


def _next_label(label: str) -> str:
    return str(int(label) + 1) if label.isdigit() else chr(ord(label) + 1)


def option_named(value: object, options: Mapping[str, str]) -> str | None:
    """The label that a value names: by the label or by the option's own text; None if it names none or several.

    >>> option_named("(b)", {"A": "red", "B": "green"}), option_named("Green", {"A": "red", "B": "green"})
    ('B', 'B')
    """
    text = plain_option(str(value))
    labels = [label for label in options if label.casefold() == text.strip("()[].: ")]
    labels = labels or [label for label, shown in options.items() if plain_option(shown) == text]
    if not labels and (match := re.match(r"[(\[]?(\w{1,2})[)\].:]\s*(\S.{0,400})$", text, re.S)):
        both = [label for label in options if label.casefold() == match[1]]
        labels = [one for one in both if plain_option(options[one]) == match[2].strip()]
    return labels[0] if len(labels) == 1 else None


def plain_option(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("*", "").replace("$", "")).strip().rstrip(".").casefold()
