"""Escape untrusted text (whatever a model wrote) for terminal, log, HTML and Markdown; nothing else prints it.

Everything starts from `visible`, which makes control, format, surrogate, private and unassigned characters readable
and can be reversed exactly. The text stays readable and cannot act as markup or escape sequence.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PLAIN = re.compile(r"[\x20-\x7e\n\t]*")


def visible(text: str) -> str:
    r"""Every character that is not plainly printable as `\u{hex}`; newline and tab stay.

    >>> visible("ok\x1b[2J\u202e") == "ok\\u{1b}[2J\\u{202e}"
    True
    """
    if _PLAIN.fullmatch(text) and "\\u{" not in text:
        return text
    text = text.replace("\\u{", "\\u{5c}u{")
    return "".join(
        f"\\u{{{ord(char):x}}}" if char not in "\n\t" and unicodedata.category(char) in _HIDDEN else char
        for char in text
    )


def terminal(text: str, limit: int = 200) -> Text:
    """One line for a terminal: no markup is read in it, no escape passes, and a long text says how much is left out."""
    from rich.text import Text  # a trainer and a monitor write logs and no terminal: they do not load it

    line = visible(text).replace("\n", "⏎").replace("\t", "⇥")
    if len(line) > limit:
        line = f"{line[:limit]}… (+{len(line) - limit})"
    return Text(line, overflow="fold")


def log_line(text: str, limit: int = 1000) -> str:
    """One record of a log: no line break, no escape, bounded."""
    line = visible(text).replace("\n", "\\u{a}").replace("\t", "\\u{9}")
    return line if len(line) <= limit else f"{line[:limit]}…"


def html_json(value: object) -> str:
    """JSON to embed in an HTML page: ASCII, and no character that could end a script element."""
    text = json.dumps(value, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def markdown(text: str) -> str:
    """A fenced block that the text cannot close."""
    body = visible(text)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", body)), default=0))
    return f"{fence}text\n{body}\n{fence}"
