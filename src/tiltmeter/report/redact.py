"""Text taken out of a report, for readers who may see figures and must not see what people or the policy wrote."""

from __future__ import annotations

import hashlib
import re
import secrets
from typing import Any

from tiltmeter.page.history import SAID

#: Always somebody's text.
TEXTS = frozenset({"prompt", "completion", "excerpt", "facts"})
#: `text` is somebody's in a row with one of these; elsewhere it is our own sentence.
BESIDE = frozenset({"reward", "share", "source", "forgery", "expect"})
#: Sentences of ours that may quote what was written; only the quotation goes.
SENTENCES = frozenset({"summary", "sentence", "cause", "tried", "text", "what", "symptom", "reason", "outcome", "says"})
#: From the first mark to the last of its kind, since what is quoted may hold some too; a cut sentence has lost its end.
_QUOTED = re.compile(
    r"“.+(?:”|…$)|‘.+(?:’|…$)|«.+(?:»|…$)|\".+(?:\"|…$)|`.+(?:`|…$)|(?<!\w)'.+(?:'(?!\w)|…$)", re.DOTALL
)
_OPERATOR = "|".join(SAID.values())
#: Ours at the beginning, then an error that may show what it was about, or what an operator wrote; by field.
_FOREIGN = {
    "asides": re.compile(r"(Off: [^(]* \(|Not measured: \d+, the last: |The reference could not be read: )(.+)", re.S),
    "said": re.compile(rf"((?:{_OPERATOR})[^:]*: )(.+)", re.S | re.I),
    "text": re.compile(rf"((?:{_OPERATOR}): .+?: )(.+)", re.S | re.I),
    "fault": re.compile(r"(.+?: )(.+)", re.S),
}


def redacted(value: Any, key: bytes = b"") -> Any:
    """The same answers with every text of a prompt or completion as its length and a hash.

    The hash has a key of its own in each report, or whoever guesses a short text could see whether it was that.

    >>> redacted({"prompt": "2 + 2?", "reward": 0.5, "text": "four"}, b"key")
    {'prompt': '[6 characters, 497157b0]', 'reward': 0.5, 'text': '[4 characters, a9dca105]'}
    >>> redacted({"summary": "91 % say 'it's a great question'"}, b"key")
    {'summary': '91 % say [23 characters, 3ea23ad4]'}
    """
    return _redacted(value, key or secrets.token_bytes(16))


def _redacted(value: Any, key: bytes) -> Any:
    if isinstance(value, list):
        return [_redacted(item, key) for item in value]
    if not isinstance(value, dict):
        return value
    foreign = bool(BESIDE & value.keys())
    return {name: _field(name, item, value, foreign, key) for name, item in value.items()}


def _field(name: str, item: Any, row: dict[str, Any], foreign: bool, key: bytes) -> Any:
    if name == "asides":
        return [_after(name, line, key) for line in item]
    if not isinstance(item, str) or not item:
        return _redacted(item, key)
    if name in TEXTS or (name == "text" and foreign):
        return mark(item, key)
    if name == "text" and row.get("kind") == "fault":
        return _after("fault", item, key)
    item = _after(name, item, key) if name in _FOREIGN else item
    return _QUOTED.sub(lambda found: mark(found[0], key), item) if name in SENTENCES else item


def _after(name: str, text: str, key: bytes) -> str:
    """A line with all but its beginning marked, if that is somebody else's."""
    found = _FOREIGN[name].fullmatch(text)
    return text if found is None else found[1] + mark(found[2], key)


def mark(text: str, key: bytes) -> str:
    """Length and the beginning of a hash: equal texts of one report have equal marks, and nothing else is told."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=key).hexdigest()
    return f"[{len(text)} characters, {digest[:8]}]"
