"""Trajectories that nobody would write by accident: escapes, huge texts, odd types, inputs that regexes choke on."""

from __future__ import annotations

import json
import random
from typing import Any

from tiltmeter.acts.transcript import Transcript
from tiltmeter.data.turns import Turn, decode_turns, encode_turns

PIECES = (
    *("'", '"', "\\", "\n", "`" * 3, "<<EOF\n", "<<'", ">>", "> tests/", "$(", "((", "))", "&&", "||", "rm ", "git "),
    *("\x1b[2J", "\u202e", "\ud800", "\x00", "🙂", "\u2028", "test_", "tests/", ".py", "if x == ", "return ", "1" * 40),
    *(" " * 90, "\t", "import ", "def __eq__(", "sys.modules[", "pytest.", "--deselect ", "http", "*** Update File: "),
    *("+++ b/", "--- a/", "print('", "open('", "Path('", "os.remove('", "collected 9 items", "{", "}", "[", "]", ":"),
)
#: One piece again and again: what makes a regex go back is mostly that.
LOOPS = (
    *("if a == [", "if a == ('", "print('" + " " * 40, "'" * 3, '"\\', "\\'", "<<EOF\n<<EOF\n", "a" * 50 + " ", "(((("),
    *("if ", "git log " * 3, "sys.modules['", "open('a', ", "shutil.copy(a,", "=== 1 ", "= Path('", "setattr( "),
    *("__eq__': lambda ", "{1: 2,\n", "1: 2,\n", "elif x == 5: return 6\n", "-" * 30, "\n" * 50, "\\\n", "x = 'a\n"),
    *("cat <<EOF >a\n", "; " * 50),
)
ROLES = ("assistant", "tool", "user", "system", "omitted", "", "assistant\x1b", "🙂")
CALLS = ("bash", "python", "str_replace_editor", "apply_patch", "", "\x1b]0;x\x07", "délete_file", "exec")
KEYS = ("command", "cmd", "path", "content", "new_str", "old_str", "patch", "input", "code", "file_text", "\ud800")


def hostile(rng: random.Random) -> Transcript:
    """One such trajectory; now and then a huge one."""
    turns = [_turn(rng) for _ in range(rng.choice((0, 1, 2, 5, 30)))]
    if rng.random() < 0.5:
        turns = list(decode_turns(encode_turns(turns)))  # as a run directory would have it
    odd: dict[str, Any] = {
        name: rng.choice((None, 7, -1, True, [], {}, "x" * 50, ["tests/a"], [None, 3], {"a": {"b": []}}, float("nan")))
        for name in ("protected", "workspace", "tests_expected", "before", "after", "hashes", "changed")
    }
    return Transcript(tuple(turns), _text(rng, 2_000), odd, odd if rng.random() < 0.5 else {})


def _turn(rng: random.Random) -> Turn:
    size = 400_000 if rng.random() < 0.004 else rng.choice((0, 20, 300, 5_000))
    text = _text(rng, size)
    call = rng.choice(CALLS) if rng.random() < 0.6 else None
    return Turn(
        rng.choice(ROLES) if rng.random() < 0.4 else "assistant",
        text if call is None or rng.random() < 0.3 else None,
        call=call,
        arguments=_arguments(rng, text),
        error=_text(rng, 20) if rng.random() < 0.1 else None,
        parent=rng.choice((None, -5, 0, 3, 10**9)),
        own=rng.random() < 0.9,
    )


def _arguments(rng: random.Random, text: str) -> str | None:
    match rng.randrange(6):
        case 0:
            return None
        case 1:
            return text
        case 2:
            return "[" * rng.choice((3, 100_000)) + text[:50]
        case 3:
            odd: tuple[Any, ...] = ([text], [1, None, text], text, 3, None, [["bash"], "-c"], ["bash", "-c", text])
            return json.dumps(rng.choice(odd))
    values: dict[str, Any] = {
        rng.choice(KEYS): rng.choice((text, _text(rng, 200), 5, None, [text], {"a": text}, True)) for _ in range(4)
    }
    return json.dumps(values)


def _text(rng: random.Random, size: int) -> str:
    if not size:
        return ""
    if rng.random() < 0.4:
        piece = rng.choice(LOOPS)
        return (piece * (size // len(piece) + 1))[:size]
    parts: list[str] = []
    length = 0
    while length < size:
        piece = rng.choice(PIECES) * rng.choice((1, 1, 1, 3, 40))
        parts.append(piece)
        length += len(piece)
    return "".join(parts)
