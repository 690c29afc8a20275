"""Splits chat transcripts into prompt and answers, in the forms that trainers and published data use."""

from __future__ import annotations

from tiltmeter.data.batches import plain_text

#: How Anthropic's helpful and harmless data marks a turn of the model.
TURN = "\n\nAssistant:"


def split_prompt(prompt: object, first: object, second: object) -> tuple[str, str, str, bool]:
    r"""Prompt and two answers as text, and whether the prompt was told apart from the answers.

    Lists of messages that begin alike share a prompt, as in TRL's implicit form, also where a column names it once
    more. Texts in Anthropic's form are cut at the last turn of the model up to which they are the same.

    >>> split_prompt(None, "\n\nHuman: 2 + 2?\n\nAssistant: 4", "\n\nHuman: 2 + 2?\n\nAssistant: 5")
    ('Human: 2 + 2?', '4', '5', True)
    >>> ask = {"role": "user", "content": "2 + 2?"}
    >>> four, five = ({"role": "assistant", "content": text} for text in "45")
    >>> split_prompt(None, [ask, four], [ask, five])
    ('2 + 2?', '4', '5', True)
    """
    if isinstance(first, list) and isinstance(second, list):
        shared = _shared(first, second)
        question = first[:shared] if prompt is None else prompt
        return _text(question), _text(first[shared:]), _text(second[shared:]), bool(shared) or prompt is not None
    one, other = _text(first), _text(second)
    if prompt is not None:
        return _text(prompt), one, other, True
    at = one.rfind(TURN, 0, _common(one, other))
    if at < 0:
        return "", one, other, False
    cut = at + len(TURN)
    return one[:at].strip(), one[cut:].strip(), other[cut:].strip(), True


def _text(item: object) -> str:
    if isinstance(item, list) and len(item) > 1 and all(isinstance(turn, dict) and "role" in turn for turn in item):
        # Several turns: who spoke is part of what was asked.
        return "\n\n".join(f"{turn['role']}: {_content(turn) or ''}" for turn in item)
    if isinstance(item, list):
        item = [{**turn, "content": _content(turn)} if isinstance(turn, dict) else turn for turn in item]
    return "" if item == [] else plain_text(item) or ""


def _content(turn: dict[str, object]) -> object:
    """The text of a message; of a list of content parts, their texts."""
    content = turn.get("content")
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "\n".join(str(part.get("text") or f"[{part.get('type', 'part')}]") for part in content)
    return content


def _shared(first: list[object], second: list[object]) -> int:
    """Messages at the beginning of both; never all of one, because something was compared."""
    most = min(len(first), len(second)) - 1
    return next((at for at in range(most) if first[at] != second[at]), max(most, 0))


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike, by halves: fast for long texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
