"""Shell scripts word by word: the commands they run, with the variables and arrays that they set themselves.

Nothing is run. A default (`${N:-8}`) counts as the value; of the branches of an `if` or `case` the first that sets a
variable counts; what comes from outside (`$HOME`, `$(date)`) stays as it is written.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping

MOST = 20_000  # words
LONGEST = 4_000  # characters of a word
DEEPEST = 12  # variables inside variables
LINES = 20_000

_SETS = re.compile(r"^\s*(?:export\s+|local\s+|readonly\s+)?([A-Za-z_]\w*)(\+?)=(.*)$", re.S)
_HERE = re.compile(r"\b(?:read\b.*?|cat\b.*?)?(?:\b([A-Za-z_]\w*)\s*)?<<-?\s*['\"]?(\w+)['\"]?\s*$")
_ARRAY = re.compile(r"^\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?$")
_PART = re.compile(r"\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\{(?P<long>[^{}]*)\}|\$(?P<name>[A-Za-z_]\w*)")
_OPENS = re.compile(r"^\s*(if|case|for|while|until)\b")
_CLOSES = re.compile(r"^\s*(fi|esac|done)\b")


def commands(text: str) -> list[tuple[str, ...]]:
    """Every command of a script, its words expanded.

    >>> commands('LR=${LR:-1e-6}\\nA=(--n 8)\\npython -m x --lr $LR "${A[@]}" "$@"')
    [('python', '-m', 'x', '--lr', '1e-6', '--n', '8')]
    """
    scalars: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    found: list[tuple[str, ...]] = []
    inside = 0
    for line in _lines(text):
        if isinstance(line, tuple):
            name, body = line
            arrays[name] = _words(body)
            continue
        inside = max(0, inside + bool(_OPENS.match(line)) - bool(_CLOSES.match(line)))
        sets = _SETS.match(line)
        if sets is None:
            found.append(tuple(_expanded(_words(line), scalars, arrays)))
            continue
        name, more, value = sets.groups()
        if value.lstrip().startswith("("):
            if inside == 0 or (name not in arrays and not more):
                inner = _expanded(_words(value.strip()[1:].rpartition(")")[0]), scalars, arrays)
                arrays[name] = [*(arrays.get(name, []) if more else []), *inner]
            continue
        words = [value.split("#")[0].strip()] if value.lstrip().startswith("$(") else _words(value)
        if len(words) > 1:  # A=1 command ...: the setting is the command's own
            found.append(tuple(_expanded(words[1:], scalars, arrays)))
        elif inside == 0 or name not in scalars:
            scalars[name] = expanded(words[0], scalars) if words else ""
    return [words for words in found if words]


def _lines(text: str) -> Iterator[str | tuple[str, str]]:
    """Whole commands: continued lines joined, arrays gathered; `(name, body)` where a variable is read from a text."""
    rest = iter(text.replace("\r", "").split("\n")[:LINES])
    for first in rest:
        line = first
        if line.lstrip().startswith("#"):
            continue
        here = _HERE.search(line)
        if here is not None:
            body = []
            for inner in rest:
                if inner.strip() == here[2]:
                    break
                body.append(inner)
            if here[1]:
                yield here[1], "\n".join(body).replace("\\\n", " ")
            continue
        if re.match(r"^\s*[A-Za-z_]\w*\+?=\(", line):
            while _open(line) > 0:
                inner_line = next(rest, None)
                if inner_line is None:
                    break
                line += "\n" + inner_line
        else:
            while line.rstrip().endswith("\\") and len(line) < 1 << 20:
                following = next(rest, "")
                if following.lstrip().startswith("#"):  # a commented-out option among the others
                    following = "\\"
                line = line.rstrip()[:-1] + " " + following
        yield line


def _open(line: str) -> int:
    """Brackets of an array that are still open; those in comments do not count."""
    bare = re.sub(r"(^|\s)#.*", r"\1", line)
    return bare.count("(") - bare.count(")")


def _words(line: str) -> list[str]:
    """Words of a command, quotes taken off; a line that only a shell understands has none."""
    found: list[str] = []
    for part in line.split("\n"):
        try:
            found += shlex.split(part.rstrip().removesuffix("\\"), comments=True)
        except ValueError:
            found += [word.strip("'\"") for word in part.split()]
    return found[:MOST]


def _expanded(words: list[str], scalars: Mapping[str, str], arrays: Mapping[str, list[str]]) -> list[str]:
    found: list[str] = []
    for word in words:
        whole = _ARRAY.match(word)
        if word in ("$@", "${@}", "$*", "&&", ";"):
            continue
        if whole is not None and whole[1] in arrays:
            found += [expanded(one, scalars) for one in arrays[whole[1]]]
        else:
            found.append(expanded(word, scalars))
        if len(found) > MOST:
            return found[:MOST]
    return found


def expanded(word: str, scalars: Mapping[str, str], depth: int = 0) -> str:
    """A word with the variables of the script in it; what is not known stays as written.

    >>> expanded("${N:-${M}}-$((2 * K))-$HOME", {"M": "4", "K": "3"})
    '4-6-$HOME'
    """
    if depth > DEEPEST or "$" not in word or len(word) > LONGEST:
        return word[:LONGEST]

    def part(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            return _sum(match["sum"], scalars, match[0])
        name, colon, default = (match["name"] or match["long"]).partition(":-")
        if name in scalars and (scalars[name] or not colon):
            return scalars[name]
        return default if colon else match[0]

    before = word
    after = _PART.sub(part, word)
    return after if after == before else expanded(after, scalars, depth + 1)


def _sum(text: str, scalars: Mapping[str, str], written: str) -> str:
    """Whole-number arithmetic as a shell does it."""
    bare = expanded(re.sub(r"\b(?<!\$)(?<!\{)([A-Za-z_]\w*)", r"${\1}", text), scalars, 1) if "$" not in text else text
    bare = expanded(bare, scalars, 1)
    try:
        return str(_whole(ast.parse(bare.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return written


def _whole(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 1 << 60:
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _whole(node.left), _whole(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult) and abs(left * right) < 1 << 60:
            return left * right
        if isinstance(node.op, (ast.Div, ast.FloorDiv)):
            return left // right
    raise ValueError("no whole-number sum")


def options(words: tuple[str, ...]) -> dict[str, list[str]]:
    """`--key value ...` and `--key=value` as an argument parser takes them; a flag has no value.

    >>> options(("--lr", "1e-6", "--range", "0", "1", "--bf16", "--n=8"))
    {'lr': ['1e-6'], 'range': ['0', '1'], 'bf16': [], 'n': ['8']}
    """
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            values = found[key] = [value] if equals else []
        else:
            values.append(word)
    return found
