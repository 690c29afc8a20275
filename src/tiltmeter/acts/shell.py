"""Reads shell text: simple commands with their words and redirections, and files that are written from the text itself.

No shell is run and none is imitated: what a hostile text makes of this is at worst an act that is missed. Every
function is linear in its input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

COMMAND = 8_000  # characters of one command that are read
WORDS = 400  # of one command

_TOKEN = re.compile(
    r"(?P<space>[ \t]+)|(?P<single>'[^']*')|(?P<double>\"(?:[^\"\\]|\\.)*\")|(?P<escape>\\.)"
    r"|(?P<operator>&&|\|\||>>|>\||&>|[;|&<>()])|(?P<plain>[^\s'\"\\;|&<>()]+)|(?P<other>.)",
    re.DOTALL,
)
_SPECIAL = re.compile(r"['\"\\;|&<>()\n]")
_HERE = re.compile(r"<<-?[ \t]{0,4}(['\"]?)([A-Za-z_][A-Za-z0-9_]{0,40})\1")
_WRITES = (">", ">>", ">|", "&>")
_PREFIXES = frozenset({"sudo", "time", "nohup", "env", "command", "exec", "then", "do", "else", "{", "!"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,60}=")


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One simple command: its words without quotes, what it is redirected to, and where it stands."""

    line: int  # of the text, from 1
    words: tuple[str, ...]
    targets: tuple[tuple[str, str], ...]  # operator and file
    text: str  # the line
    name: str  # of the program, without its folder
    body: str = ""  # of a here-document

    @property
    def plain(self) -> tuple[str, ...]:
        """The words after the program that are no options.

        >>> one = next(read_commands("sudo /bin/rm -rf tests"))
        >>> one.name, one.plain
        ('rm', ('tests',))
        """
        return tuple([word for word in self.words[1:] if word[:1] != "-"])


def read_commands(text: str) -> Iterator[ShellCommand]:
    """The simple commands of a shell text, here-documents with the command that reads them.

    >>> [(one.words, one.targets) for one in read_commands("cd /app && echo 'a b' > out.txt")]
    [(('cd', '/app'), ()), (('echo', 'a b'), (('>', 'out.txt'),))]
    >>> next(read_commands("cat > a.py <<'EOF'\\nx = 1\\nEOF")).body
    'x = 1'
    """
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        first, line = at, lines[at]
        at += 1
        while line.endswith("\\") and at < len(lines) and len(line) < COMMAND:
            line = f"{line[:-1]} {lines[at]}"
            at += 1
        if line.count("'") % 2 or line.count('"') % 2:  # a quote that goes on, as of python -c "..."
            mark = "'" if line.count("'") % 2 else '"'
            size = len(line)
            parts = [line]
            while at < len(lines) and size < COMMAND:
                parts.append(lines[at])
                size += len(lines[at]) + 1
                at += 1
                if mark in parts[-1]:
                    break
            line = "\n".join(parts)
        body = ""
        if (here := _HERE.search(line[:COMMAND])) is not None:
            stop = at
            while stop < len(lines) and lines[stop].strip() != here[2]:
                stop += 1
            body = "\n".join(lines[at:stop])
            at = stop + 1
        yield from _split(line[:COMMAND], first + 1, body)


def _split(line: str, number: int, body: str) -> Iterator[ShellCommand]:
    if line.lstrip().startswith("#"):
        return
    shown = line.strip()
    if not body and not _SPECIAL.search(shown):
        plain_words = shown.split()[:WORDS]
        if plain_words and plain_words[0] not in _PREFIXES and "=" not in plain_words[0]:
            yield ShellCommand(number, tuple(plain_words), (), shown, plain_words[0].rpartition("/")[2])
            return
    words: list[str] = []
    targets: list[tuple[str, str]] = []
    pending, is_open, redirect = "", False, ""
    commands: list[ShellCommand] = []

    def end_word() -> None:
        nonlocal pending, is_open, redirect
        if is_open:
            if redirect in _WRITES:
                targets.append((redirect, pending))
            elif not redirect and len(words) < WORDS:
                words.append(pending)
            redirect = ""
        pending, is_open = "", False

    def end_command() -> None:
        nonlocal words, targets, redirect
        end_word()
        while words and (words[0] in _PREFIXES or _ASSIGNMENT.match(words[0])):
            words.pop(0)
        if words or targets:
            name = words[0].rpartition("/")[2] if words else ""
            commands.append(ShellCommand(number, tuple(words), tuple(targets), shown, name))
        words, targets, redirect = [], [], ""

    for match in _TOKEN.finditer(line):
        kind, token = match.lastgroup, match[0]
        if kind == "space":
            end_word()
        elif kind == "operator":
            if token in _WRITES or token == "<":
                if pending.isdigit():  # of 2>file
                    pending, is_open = "", False
                end_word()
                redirect = token
            elif token == "&" and redirect:  # of >&1
                pending, is_open = "&", True
            else:
                end_command()
        elif kind in ("single", "double"):
            pending, is_open = pending + token[1:-1], True
        elif kind == "escape":
            pending, is_open = pending + token[1:], True
        elif token != "\n":
            pending, is_open = pending + token, True
        else:
            end_command()
    end_command()
    if body and commands:
        readers = [at for at, one in enumerate(commands) if one.targets or one.name in ("python", "python3", "tee")]
        at = readers[0] if readers else 0
        one = commands[at]
        commands[at] = replace(one, text=one.text.split("\n")[0], body=body)
    yield from commands
