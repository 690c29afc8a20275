"""Parses shell scripts: the commands they run, with the variables and arrays that they set themselves.

Nothing is run. A default (`${N:-8}`) counts as the value; of the branches of an `if` or `case` the first that sets a
variable counts; what comes from outside (`$HOME`, `$(date)`) stays as it is written.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import takewhile

MOST = 20_000  # words
LONGEST = 4_000  # characters of a word
DEEPEST = 12  # variables inside variables
LINES = 20_000

_DECLARES = r"^\s*(?:(?:export|local|readonly|declare|typeset)\s+(?:-\w+\s+)*)?([A-Za-z_]\w*)(\+?)="
_SETS = re.compile(rf"{_DECLARES}(.*)$", re.S)
_LIST = re.compile(rf"{_DECLARES}\(")
_HERE = re.compile(r"(?<!<)<<-?(?!<)\s*['\"]?([A-Za-z_]\w*)")
_FILLED = re.compile(r"^\s*([A-Za-z_]\w*)=\"?\$\(\s*cat\s*$")
_REDIRECTED = re.compile(r"^(?:\d*|&)>>?(.*)$", re.S)
_ARRAY = re.compile(r"^\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?$")
_PART = re.compile(r"\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)|\$\{(?P<long>[^{}]*)\}|\$(?P<name>[A-Za-z_]\w*)")
_OPENS = re.compile(r"^\s*(if|case|for|while|until)\b")
_CLOSES = re.compile(r"(?:^|;)\s*(fi|esac|done)\b")
_BETWEEN = ("&&", "||", "|", "|&", ";", "&")


def commands(text: str) -> list[tuple[str, ...]]:
    """Every command of a script, its words expanded.

    >>> commands('LR=${LR:-1e-6}\\nA=(--n 8)\\npython -m x --lr $LR "${A[@]}" "$@"')
    [('python', '-m', 'x', '--lr', '1e-6', '--n', '8')]
    """
    scalars: dict[str, str] = {}
    arrays: dict[str, list[str]] = {}
    result: list[tuple[str, ...]] = []
    inside = 0
    for line in _lines(text):
        if isinstance(line, tuple):
            name, body = line
            arrays[name] = _words(body)
            continue
        inside = max(0, inside + bool(_OPENS.match(line)) - bool(_CLOSES.search(line)))
        sets = _SETS.match(line)
        if sets is None:
            result += _split_commands(_expand_words(_words(line), scalars, arrays))
            continue
        name, more, value = sets.groups()
        if value.lstrip().startswith("("):
            if inside == 0 or (name not in arrays and not more):
                inner = _expand_words(_words(value.strip()[1:].rpartition(")")[0]), scalars, arrays)
                arrays[name] = [*(arrays.get(name, []) if more else []), *inner]
            continue
        words = [value.split("#")[0].strip()] if value.lstrip().startswith("$(") else _words(value)
        result += _split_commands(_expand_words(words[1:], scalars, arrays))
        if len(words) > 1 and not words[0].endswith(";"):  # A=1 command ...: the setting is the command's own
            continue
        if inside == 0 or name not in scalars:
            scalars[name] = expand_variables(words[0].removesuffix(";"), scalars) if words else ""
    return result


def _split_commands(words: list[str]) -> Iterator[tuple[str, ...]]:
    """The commands of a line, without redirections.

    >>> list(_split_commands(["trl", "sft", "--n", "8", "2>&1", "|", "tee", "log"]))
    [('trl', 'sft', '--n', '8'), ('tee', 'log')]
    """
    command: list[str] = []
    place = False
    for word in words:
        redirected = _REDIRECTED.match(word)
        if redirected is not None or place:
            place = redirected is not None and not redirected[1]
        elif word in _BETWEEN:
            if command:
                yield tuple(command)
            command = []
        else:
            command.append(word)
    if command:
        yield tuple(command)


def _lines(text: str) -> Iterator[str | tuple[str, str]]:
    """Logical lines: continued lines and arrays joined; `(name, body)` where a variable is set from a here-document."""
    rest = iter(text.replace("\r", "").split("\n")[:LINES])
    for first in rest:
        line = first
        if line.lstrip().startswith("#"):
            continue
        here = _HERE.search(line)
        if here is not None and "((" not in line[: here.start()]:
            body = list(takewhile(lambda inner, end=here[1]: inner.strip() != end, rest))  # type: ignore[misc]
            name = _heredoc_variable(line[: here.start()])
            if name:
                yield name, "\n".join(body).replace("\\\n", " ")
            else:
                yield line[: here.start()]
            continue
        parts = [line]
        if _LIST.match(line):
            brackets = _open_brackets(line)
            while brackets > 0:
                inner_line = next(rest, None)
                if inner_line is None:
                    break
                parts.append(inner_line)
                brackets += _open_brackets(inner_line)
            yield "\n".join(parts)
            continue
        while parts[-1].rstrip().endswith("\\"):
            following = next(rest, "")
            if following.lstrip().startswith("#"):  # a commented-out option among the others
                following = "\\"
            parts[-1] = parts[-1].rstrip()[:-1]
            parts.append(following)
        yield " ".join(parts)


def _heredoc_variable(before: str) -> str:
    """The variable that a here-document is read into, from the text before it; empty if there is none."""
    match = _FILLED.match(before)
    words = before.split()
    if match is not None:
        return match[1]
    return words[-1] if "read" in words[:-1] and words[-1].isidentifier() else ""


def _open_brackets(line: str) -> int:
    """Brackets of an array that are still open; those in comments do not count."""
    bare = re.sub(r"(^|\s)#.*", r"\1", line)
    return bare.count("(") - bare.count(")")


def _words(line: str) -> list[str]:
    """Words of a command, quotes taken off; a line that only a shell understands has none."""
    words: list[str] = []
    for part in line.split("\n"):
        try:
            words += shlex.split(part.rstrip().removesuffix("\\"), comments=True)
        except ValueError:
            words += [word.strip("'\"") for word in part.split()]
    return words[:MOST]


def _expand_words(words: list[str], scalars: Mapping[str, str], arrays: Mapping[str, list[str]]) -> list[str]:
    result: list[str] = []
    for raw in words:
        word = raw.removesuffix(";") or raw
        whole = _ARRAY.match(word)
        if word in ("$@", "${@}", "$*"):
            result += [";"] if word != raw else []
            continue
        if whole is not None and whole[1] in arrays:
            result += [expand_variables(one, scalars) for one in arrays[whole[1]]]
        else:
            result.append(expand_variables(word, scalars))
        result += [";"] if word != raw else []
        if len(result) > MOST:
            return result[:MOST]
    return result


def expand_variables(word: str, scalars: Mapping[str, str], depth: int = 0) -> str:
    """A word with the variables of the script in it; what is not known stays as written.

    >>> expand_variables("${N:-${M}}-$((2 * K))-$HOME", {"M": "4", "K": "3"})
    '4-6-$HOME'
    """
    if depth > DEEPEST or "$" not in word or len(word) > LONGEST:
        return word[:LONGEST]

    def part(match: re.Match[str]) -> str:
        if match["sum"] is not None:
            return _arithmetic(match["sum"], scalars, match[0])
        name, colon, default = (match["name"] or match["long"]).partition(":-")
        if name in scalars and (scalars[name] or not colon):
            return scalars[name]
        return default if colon else match[0]

    before = word
    after = _PART.sub(part, word)
    return after if after == before else expand_variables(after, scalars, depth + 1)


def _arithmetic(text: str, scalars: Mapping[str, str], fallback: str) -> str:
    """Whole-number arithmetic as a shell does it."""
    bare = (
        expand_variables(re.sub(r"\b(?<!\$)(?<!\{)([A-Za-z_]\w*)", r"${\1}", text), scalars, 1)
        if "$" not in text
        else text
    )
    bare = expand_variables(bare, scalars, 1)
    try:
        return str(_integer_value(ast.parse(bare.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return fallback


def _integer_value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 1 << 60:
        return node.value
    if isinstance(node, ast.BinOp):
        left, right = _integer_value(node.left), _integer_value(node.right)
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
    result: dict[str, list[str]] = {}
    values: list[str] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            key, equals, value = word[2:].partition("=")
            values = result[key] = [value] if equals else []
        else:
            values.append(word)
    return result
