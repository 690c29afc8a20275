"""Redaction of a report: texts of prompts, completions and people are replaced by length and hash."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tiltmeter.view.screens.history import NOTE_WORDS

#: Fields that always hold foreign text.
TEXT_FIELDS = frozenset(
    {
        "prompt",
        "completion",
        "excerpt",
        "folded",
        "facts",
        "reasoning",
        "call",
        "arguments",
        "tool_error",
        "task",
        "quote",
        "own_words",
    }
)
#: In a row with one of these fields `text` is foreign; elsewhere it is our own sentence.
FOREIGN_TEXT_MARKERS = frozenset({"reward", "share", "source", "forgery", "expect", "author"})
#: Our own sentences that may quote foreign text; only the quotation is redacted.
SENTENCE_FIELDS = frozenset(
    {"summary", "sentence", "cause", "tried", "text", "what", "symptom", "reason", "outcome", "says"}
)
#: From the first quotation mark to the last of its kind; a shortened sentence may have lost the closing one.
_QUOTED = re.compile(
    r"“.+(?:”|…$)|‘.+(?:’|…$)|«.+(?:»|…$)|\".+(?:\"|…$)|`.+(?:`|…$)|(?<!\w)'.+(?:'(?!\w)|…$)", re.DOTALL
)
_OPERATOR = "|".join(NOTE_WORDS.values())
#: By field: our own prefix, then foreign text (an error message, or the words of an operator).
_FOREIGN = {
    "asides": re.compile(r"(Off: [^(]* \(|Not measured: \d+, the last: |The reference could not be read: )(.+)", re.S),
    "said": re.compile(rf"((?:{_OPERATOR})[^:]*: )(.+)", re.S | re.I),
    "text": re.compile(rf"((?:{_OPERATOR}): .+?: )(.+)", re.S | re.I),
    "fault": re.compile(r"(.+?: )(.+)", re.S),
}


def redact_texts(value: Any, key: bytes = b"") -> Any:
    """The same answers with every text of a prompt or completion as its length and a hash.

    Each report has its own hash key, so that short texts cannot be guessed from their hash.

    >>> redact_texts({"prompt": "2 + 2?", "reward": 0.5, "text": "four"}, b"key")
    {'prompt': '[6 characters, 497157b0]', 'reward': 0.5, 'text': '[4 characters, a9dca105]'}
    >>> redact_texts({"summary": "91 % say 'it's a great question'"}, b"key")
    {'summary': '91 % say [23 characters, 3ea23ad4]'}
    """
    return _redact(value, key or secrets.token_bytes(16))


def _redact(value: Any, key: bytes) -> Any:
    if isinstance(value, list):
        return [_redact(item, key) for item in value]
    if isinstance(value, Struct):
        row = _by_json_key(value)
        redacted = _redact(row, key).values()
        return replace(value, **dict(zip(value.__struct_fields__, redacted, strict=True)))
    if not isinstance(value, dict):
        return value
    foreign = bool(FOREIGN_TEXT_MARKERS & value.keys())
    return {name: _redact_field(name, item, value, foreign, key) for name, item in value.items()}


def _by_json_key(payload: Struct) -> dict[str, Any]:
    """The fields by the keys of the JSON, by which foreign text is recognized."""
    fields = zip(payload.__struct_encode_fields__, payload.__struct_fields__, strict=True)
    return {key: getattr(payload, field) for key, field in fields}


def _redact_field(name: str, item: Any, row: dict[str, Any], foreign: bool, key: bytes) -> Any:
    if name == "asides":
        return [_mark_after_prefix(name, line, key) for line in item]
    if not isinstance(item, str) or not item:
        return _redact(item, key)
    if name in TEXT_FIELDS or (name == "text" and foreign):
        return mark_text(item, key)
    if name == "text" and row.get("kind") == "fault":
        return _mark_after_prefix("fault", item, key)
    item = _mark_after_prefix(name, item, key) if name in _FOREIGN else item
    return _QUOTED.sub(lambda match: mark_text(match[0], key), item) if name in SENTENCE_FIELDS else item


def _mark_after_prefix(name: str, text: str, key: bytes) -> str:
    """A line with its foreign part replaced, if it has one."""
    match = _FOREIGN[name].fullmatch(text)
    return text if match is None else match[1] + mark_text(match[2], key)


def mark_text(text: str, key: bytes) -> str:
    """Length and the beginning of a keyed hash: equal texts of one report have equal marks."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key).hexdigest()
    return f"[{len(text)} characters, {digest[:8]}]"
