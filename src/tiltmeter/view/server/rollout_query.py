r"""The query line for rollouts, the same in the page's address, on the command line and in the API.

    step:100..200 reward>0.9 gold<0.3 tag:cheats "let us verify" text~/exit\(\d\)/i sort:gap

A word or a text in quotes stands in the prompt or the completion; `text` and `prompt` name one of the two, `~/.../` is
a regular expression of RE2, and `i` after it, or after the quotes, ignores case. All conditions must hold.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any

from tiltmeter.view.server.text_match import TextMatch, Where

LONGEST = 500  # characters of a query
MOST_TERMS = 16

_WHERE: dict[str, Where] = {"": "both", "text": "completion", "prompt": "prompt"}
_FLAGS = ("labelled", "truncated", "flagged", "disagree")
_NUMBERS = ("reward", "gold", "length")
_BOUNDS = {">": "above", ">=": "min", "<": "below", "<=": "max"}
_TERM = re.compile(
    r"""\s*(?:
      (?P<name>text|prompt)?(?P<kind>:|~)?(?P<quote>"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)*/)(?P<case>i?)(?=\s|$)
    | (?P<number>reward|gold|length)(?P<bound>>=|<=|>|<)(?P<value>[-+.\w]+)(?=\s|$)
    | step:(?P<low>\d*)(?P<dots>\.\.)?(?P<high>\d*)(?=\s|$)
    | attempt:(?P<attempt>\d+)(?=\s|$)
    | (?P<flag>labelled|truncated|flagged|disagree):(?P<yes>yes|no)(?=\s|$)
    | tag:(?P<tag>[\w.:/+-]+)(?=\s|$)
    | sort:(?P<sort>[a-z]+)(?:\.(?P<order>up|down))?(?=\s|$)
    | (?P<word>[^\s"/][^\s]*)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class RolloutQuery:
    """A query as filters of the table, texts to find, and an order."""

    filters: dict[str, Any] = field(default_factory=dict)
    texts: tuple[TextMatch, ...] = ()
    sort: str | None = None
    order: str | None = None
    tags: tuple[str, ...] = ()  # each on the rollout, or on its step


def parse_query(query: str) -> RolloutQuery:
    """Read a query. Raises `ValueError`, with the place that is not understood.

    >>> parse_query('step:3.. gold<0.3 sort:gap')
    RolloutQuery(filters={'from': 3, 'gold_below': 0.3}, texts=(), sort='gap', order=None, tags=())
    >>> parse_query('text~/exit/i "two words"').texts[0]
    TextMatch(text='exit', regex=True, ignore_case=True, where='completion')
    """
    if len(query) > LONGEST:
        raise ValueError(f"a query has at most {LONGEST} characters")
    filters: dict[str, Any] = {}
    texts: list[TextMatch] = []
    tags: list[str] = []
    sort = order = None
    at, terms = 0, 0
    query = query.rstrip()
    while at < len(query):
        match = _TERM.match(query, at)
        if match is None:
            raise ValueError(f"not understood from here on: {query[at : at + 60].strip()}")
        at, terms, part = match.end(), terms + 1, match.groupdict()
        if terms > MOST_TERMS:
            raise ValueError(f"a query has at most {MOST_TERMS} terms")
        if part["quote"] is not None:
            texts.append(_text(part))
        elif part["number"] is not None:
            _set(filters, f"{part['number']}_{_BOUNDS[part['bound']]}", _number(part["value"]))
        elif part["low"] is not None:
            _set_steps(filters, part)
        elif part["attempt"] is not None:
            _set(filters, "attempt", int(part["attempt"][:17]))
        elif part["flag"] is not None:
            _set(filters, part["flag"], int(part["yes"] == "yes"))
        elif part["tag"] is not None:
            tags.append(unicodedata.normalize("NFC", part["tag"]))
        elif part["sort"] is not None:
            sort, order = part["sort"], part["order"]
        else:
            texts.append(TextMatch.of(_plain_word(part["word"])))
    return RolloutQuery(filters, tuple(texts), sort, order, tuple(tags))


def _text(part: dict[str, Any]) -> TextMatch:
    quote, kind = part["quote"], part["kind"]
    regex = quote[0] == "/"
    if (kind or "") != (("~" if regex else ":") if part["name"] else ""):
        raise ValueError('a text is "words", text:"words", prompt:"words", or text~/expression/')
    inner = quote[1:-1].replace("\\/", "/") if regex else re.sub(r"\\(.)", r"\1", quote[1:-1])
    return TextMatch.of(inner, regex=regex, ignore_case=bool(part["case"]), where=_WHERE[part["name"] or ""])


def _plain_word(word: str) -> str:
    """A word to find; one that looks like a condition is a mistake in it, and not a text."""
    names = ("step", "attempt", "sort", "tag", "text", "prompt", *_FLAGS, *_NUMBERS)
    if re.match(rf"({'|'.join(names)})[:~<>=]", word):
        raise ValueError(f'not understood: {word[:60]}; to find it as a text, put it in quotes: "{word[:60]}"')
    return word


def _set(filters: dict[str, Any], name: str, value: float) -> None:
    if name in filters:
        raise ValueError(f"{name.partition('_')[0]} is bounded twice from the same side")
    filters[name] = value


def _set_steps(filters: dict[str, Any], part: dict[str, Any]) -> None:
    low, dots, high = part["low"], part["dots"], part["high"]
    if not (low or high):
        raise ValueError("step:100..200, step:100.., step:..200 or step:100")
    if low:
        _set(filters, "from", int(low[:17]))
    if high or not dots:
        _set(filters, "to", int((high or low)[:17]))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text[:40]} is no number") from None
    return int(number) if number.is_integer() else number
