"""How foreign text is put into Markdown: no link, no mention, no HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tiltmeter.safety.safe_text import log_line

LONGEST = 600  # characters of one text
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~@#!&]|:(?=//))")  # a colon only where it would make an address


def escape_line(text: str) -> str:
    r"""One line of foreign text, escaped for Markdown: no link, no mention, no HTML.

    >>> print(escape_line("<b>[x](y)\nmail @me: http://x"))
    \<b\>\[x\](y)\\u{a}mail \@me: http\://x
    """
    return _SPECIAL.sub(r"\\\1", log_line(text))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with an empty one after them; none where there are no rows."""
    if not rows:
        return []
    head = [f"| {' | '.join(map(escape_line, heads))} |", f"|{'---|' * len(heads)}"]
    return [*head, *(f"| {' | '.join(map(escape_line, row))} |" for row in rows), ""]
