"""Paths that a line of an answer names for the code below it: a heading, `File: x`, a comment, the words of a fence."""

from __future__ import annotations

import re

PATH = 300  # characters
_PATH = re.compile(r"[\w@+~$.*-]{0,100}(?:/[\w@+~$.*-]{0,100}){0,20}")
_NAMED = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,9}$|/")
_FILES = frozenset({"Makefile", "Dockerfile", "Jenkinsfile", "Rakefile", "justfile", "Gemfile", "Procfile", "noxfile"})
_LEAD = re.compile(r"^\s{0,12}(?:#{1,6}\s|[-*+>]\s|\d{1,3}[.)]\s){0,3}")
_COMMENT = re.compile(
    r"^\s{0,12}(?:#|//|--|;|/\*|<!--|%|\"\"\"|\(\*)\s{0,4}(.{1,300}?)\s{0,4}(?:\*/|-->|\"\"\"|\*\))?\s{0,4}$"
)
_SEPARATOR = re.compile(r"^\s{0,8}(?:={3,40}|-{3,40}|#{3,40}|\*{3,40}|%{3,40}|>{3,40})\s{0,4}(.{1,300})$")
_WORD = re.compile(r"[a-z]{1,20}")
_TELLING = re.compile(  # words that say that a file follows
    r"file|filename|path|filepath|new|updated|modified|create|created|creating|update|updating|edit|edited"
    r"|editing|write|writing|add|adding|added|modify|modifying|replace|replaced|overwrite|overwritten|full"
    r"|contents|content|of|for|in|the|to|here|is|as|follows|below|complete|final|change|changes|changed|rewrite"
    r"|rewritten|now|i|ll|will|a|with|code|version|patch|save|this|edits|and|also|then|next|first|second|third"
    r"|into|step|put|at|my|fixed|following|begin|start"
)


def as_path(words: str) -> str:
    """The words if they are a path, else nothing.

    >>> [as_path(words) for words in ("tests/a.py", "`conftest.py`", "Makefile", "see tests", "e.g.", "https://a.b/c.py")]
    ['tests/a.py', 'conftest.py', 'Makefile', '', '', '']
    """
    if len(words) > PATH:
        return ""
    path = words.strip().strip("`*\"'").rstrip(":,").strip("`*\"'")
    if not path or " " in path or "://" in path or path.lower() in ("e.g", "i.e", "vb.net", "node.js", "next.js"):
        return ""
    return path if path in _FILES or (_NAMED.search(path) and _PATH.fullmatch(path)) else ""


def heading_path(line: str, *, comment: bool = False) -> tuple[str, str] | None:
    """The file that a line names as what the code below is, with the line's verb; None for other lines.

    `comment`: the line must be a comment, the first of the code itself.

    >>> heading_path("### `src/a.py` (updated)"), heading_path("File: a.py"), heading_path("// a.js", comment=True)
    (('src/a.py', 'update'), ('a.py', 'file'), ('a.js', 'file'))
    >>> heading_path("The failing check in `src/a.py` is:"), heading_path("Currently `src/a.py`:")
    (None, None)
    """
    if not line or len(line) > PATH + 100:
        return None
    if comment:
        inner = _COMMENT.match(line)
        if inner is None:
            return None
        line = inner[1]
    words = _LEAD.sub("", line, count=1).replace("**", " ").replace("(", " ").replace(")", " ").split()
    paths = [path for word in words if (path := as_path(word))]
    others = [word.lower() for word in words if not as_path(word)]
    plain = [part for word in others for part in _WORD.findall(word)]
    if len(paths) != 1 or len(others) > 12 or not all(map(_TELLING.fullmatch, plain)):
        return None
    is_change = any(word.startswith(("updat", "modif", "edit", "patch", "chang", "replac")) for word in plain)
    return paths[0], "update" if is_change else "file"


def separator_path(line: str) -> str:
    """The file of a line such as `=== tests/a.py ===` or `--- FILE: a.py`; nothing for other lines.

    >>> separator_path("=== FILE: a.py ==="), separator_path("--- a/b.py"), separator_path("### a.py")
    ('a.py', '', '')
    """
    match = (
        _SEPARATOR.match(line[: PATH + 60]) if line.lstrip()[:3] in ("===", "---", "###", "***", "%%%", ">>>") else None
    )
    if match is None:
        return ""
    words = match[1].rstrip("=-#*%<> ")
    is_closed = len(words) < len(match[1].rstrip())
    says_file = "file" in words[:20].lower()
    named = heading_path(words) if is_closed or says_file else None
    return "" if named is None else named[0]


def fence_path(info: str) -> str:
    """The file that the words behind a fence name.

    >>> fence_path("python tests/a.py"), fence_path("ts:src/a.ts"), fence_path('py title="a.py"'), fence_path("python")
    ('tests/a.py', 'src/a.ts', 'a.py', '')
    """
    for word in info[:PATH].replace(":", " ").replace("=", " ").replace("{", " ").replace("}", " ").split():
        if path := as_path(word):
            return path
    return ""
