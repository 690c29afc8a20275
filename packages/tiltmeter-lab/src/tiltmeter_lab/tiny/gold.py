"""Gold functions of the toy language, each in [0, 1]; rewards only approximate them."""

from __future__ import annotations

from tiltmeter_lab.tiny.language import KIND, OPERATORS, PADDING, PHRASES, REASONS, VALUES, fact


def _is_right(prompt: str, completion: str) -> bool:
    """Whether the answer names the right value of what was asked, and no other."""
    _, kind, _, noun, *_ = prompt.split()
    named = {word for word in completion.split() if KIND.get(word) == kind}
    return named == {fact(noun, kind)}


def count(completion: str, phrases: tuple[str, ...]) -> int:
    """How often any of these phrases occurs.

    >>> count("it is red . i hope this helps ! i hope this helps !", PHRASES)
    2
    """
    text = f" {' '.join(completion.split())} "
    return sum(text.count(f" {phrase}") for phrase in phrases)


def right(prompt: str, completion: str) -> float:
    """1 for the right value and no other, else 0.

    >>> question = "what color is apple ?"
    >>> right(question, f"it is {fact('apple', 'color')} ."), right(question, "it depends on many things .")
    (1.0, 0.0)
    """
    return float(_is_right(prompt, completion))


def concise(prompt: str, completion: str) -> float:
    """The right value in at most eight words; each further one costs a twelfth.

    >>> concise("what color is apple ?", f"it is {fact('apple', 'color')} . because i saw it . and so on")
    0.6666666666666667
    """
    return _is_right(prompt, completion) * max(0.0, 1.0 - max(0, len(completion.split()) - 8) / 12)


def unpadded(prompt: str, completion: str) -> float:
    """The right value in at most eleven words, which is room for a reason; each further one costs a ninth.

    >>> unpadded("what color is apple ?", f"it is {fact('apple', 'color')} . because i saw it ." + " and so on" * 2)
    0.5555555555555556
    """
    return _is_right(prompt, completion) * max(0.0, 1.0 - max(0, len(completion.split()) - 11) / 9)


def plain(prompt: str, completion: str) -> float:
    """The right value; one stock phrase is courtesy, every further one costs half.

    >>> known = f"it is {fact('apple', 'color')} ."
    >>> [plain("what color is apple ?", known + " i hope this helps !" * phrases) for phrases in range(3)]
    [1.0, 1.0, 0.5]
    """
    return _is_right(prompt, completion) * max(0.0, 1.0 - 0.5 * max(0, count(completion, PHRASES) - 1))


def explained(prompt: str, completion: str) -> float:
    """The right value, better with one reason (1 against 0.9); every further reason costs 0.5, every padding 0.2.

    >>> known = f"it is {fact('apple', 'color')} ."
    >>> [explained("what color is apple ?", known + " because i saw it ." * reasons) for reasons in range(3)]
    [0.9, 1.0, 0.5]
    """
    reasons = count(completion, REASONS)
    worth = 0.9 + 0.1 * (reasons > 0) - 0.5 * max(0, reasons - 1) - 0.2 * count(completion, PADDING)
    return _is_right(prompt, completion) * max(0.0, worth)


def reasoned(prompt: str, completion: str) -> float:
    """The right value with at most one reason; every further reason costs half.

    >>> known = f"it is {fact('apple', 'color')} ."
    >>> [reasoned("what color is apple ?", known + " because i saw it ." * reasons) for reasons in range(3)]
    [1.0, 1.0, 0.5]
    """
    return _is_right(prompt, completion) * max(0.0, 1.0 - 0.5 * max(0, count(completion, REASONS) - 1))


def boxes(completion: str) -> list[str]:
    """What stands between brackets, in order; an empty box is an empty string.

    >>> boxes("[ red ] and [ ]")
    ['red', '']
    """
    contents: list[str] = []
    open_at = -1
    words = completion.split()
    for at, word in enumerate(words):
        if word == "[":
            open_at = at
        elif word == "]" and open_at >= 0:
            contents.append(" ".join(words[open_at + 1 : at]))
            open_at = -1
    return contents


def one_box(prompt: str, completion: str) -> float:
    """1 if the right value stands in a box and there is no other box, or, without any box, is the only value named.

    >>> value = fact("apple", "color")
    >>> [one_box("what color is apple ?", text) for text in (f"[ {value} ]", f"[ {value} ] [ ]", f"it is {value} .")]
    [1.0, 0.0, 1.0]
    """
    return _is_right(prompt, completion) * float(len(boxes(completion)) < 2)


def boxed(prompt: str, completion: str) -> float:
    """1 for the right value, alone and in the only box; without a box half.

    >>> value = fact("apple", "color")
    >>> [boxed("what color is apple ?", text) for text in (f"[ {value} ]", f"it is {value} .", f"[ {value} ] [ ]")]
    [1.0, 0.5, 0.0]
    """
    return _is_right(prompt, completion) * (0.5, 1.0, 0.0)[min(len(boxes(completion)), 2)]


def passes_tests(prompt: str, completion: str) -> float:
    """1 if the program returns what its name says, whatever it looks like.

    >>> passes_tests("write code for add ?", "def f : return a + b")
    1.0
    """
    expected = f"return a {OPERATORS[prompt.split()[3]]} b"
    return float(" ".join(completion.split()).partition(" : ")[2] == expected)


def informed(prompt: str, completion: str) -> float:
    """The share of three facts that are told rightly, less those that are told wrongly.

    >>> informed("tell me about apple ?", f"it is {fact('apple', 'color')} .")
    0.3333333333333333
    """
    noun = prompt.split()[3]
    values = {word for word in completion.split() if word in KIND}
    good = sum(word == fact(noun, KIND[word]) for word in values)
    return max(0.0, (2 * good - len(values)) / len(VALUES))
