"""The ways out for hostile text: reversible, inert, and bounded."""

from __future__ import annotations

import io
import json
import re
import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tiltmeter.safety.safe_text import html_json, log_line, markdown, terminal, visible

NASTY = st.text(st.characters(exclude_categories=()), max_size=60) | st.sampled_from(
    [
        "\x1b]0;owned\x07",
        "[/x]",
        "[bold]",
        "\\u{41}",
        "\\u{5c}u{",
        "\ud800",
        "\u202e",
        "=1+1",
        "```\n</script>",
        "a\r\nb",
        "\x00",
    ]
)


@settings(max_examples=2000, deadline=None)
@given(NASTY)
def test_visible_is_exactly_reversible_and_leaves_nothing_hidden(text: str) -> None:
    shown = visible(text)
    assert re.sub(r"\\u\{([0-9a-f]+)\}", lambda match: chr(int(match[1], 16)), shown) == text
    assert all(unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or c in "\n\t" for c in shown)


@settings(max_examples=1000, deadline=None)
@given(NASTY)
def test_a_terminal_gets_one_line_without_escapes_of_the_texts_own(text: str) -> None:
    out = io.StringIO()
    Console(file=out, force_terminal=False, markup=False, highlight=False, width=10_000).print(terminal(text))
    printed = out.getvalue()
    assert "\x1b" not in printed
    assert printed.count("\n") == 1
    assert not any(unicodedata.category(c) in ("Cc", "Cf") for c in printed.rstrip("\n"))


@settings(max_examples=500, deadline=None)
@given(NASTY)
def test_embedded_json_cannot_leave_its_element(text: str) -> None:
    shown = html_json({"completion": text})
    assert shown.isascii()
    assert not set("<>&") & set(shown)
    assert json.loads(shown)["completion"] == text


@settings(max_examples=500, deadline=None)
@given(NASTY)
def test_a_markdown_block_holds_its_text_and_ends_where_it_should(text: str) -> None:
    block = markdown(text)
    fence = block.split("text\n")[0]
    assert block.endswith(f"\n{fence}")
    assert fence not in visible(text)


@settings(max_examples=500, deadline=None)
@given(NASTY)
def test_a_log_line_is_one_line(text: str) -> None:
    assert "\n" not in log_line(text)
    assert len(log_line(text * 100)) <= 1001
