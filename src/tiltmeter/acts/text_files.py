"""Files that an answer writes as text: tags with a path, a heading over a fence, SEARCH/REPLACE blocks, patches, JSON.

Each form becomes what a call of a tool would have been, a name and arguments, so that one reader knows what they mean.
What is looked at more than once is counted, so that the time is bounded, whatever comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from tiltmeter.acts.heading_paths import as_path, fence_path, heading_path, separator_path

MOST = 500  # files of one answer
WORK = 2_000_000  # characters that are looked at again, after which the rest of an answer is left as it is

_MARKS = ("```", "path", "file", "File", "FILE", "<<<<<", "name=", "*** ", "+++ ", "<write", "<edit", "<delete", "===")
_TAG = re.compile(r"<([A-Za-z_][\w.-]{0,40})((?:[\s=:][^<>]{0,600})?)>")
_ATTRIBUTE = re.compile(r"""([\w-]{1,40})\s{0,3}=\s{0,3}(?:"([^"]{0,300})"|'([^']{0,300})'|([^\s"'>]{1,300}))""")
_WRITERS = re.compile(
    r"file|write|create|edit|replace|patch|diff|delete|remove|update|insert|append|save|artifact|document|source|code"
    r"|action|overwrite|modify|invoke|function|command|execute|bash|shell",
    re.IGNORECASE,
)
_RUNS = re.compile(r"command|execute|bash|shell", re.IGNORECASE)
_DELETES = re.compile(r"delete|remove|unlink|^rm$", re.IGNORECASE)
_CHANGES = re.compile(r"edit|update|modify|replace|patch|insert|append|change", re.IGNORECASE)
_PATH_KEYS = ("path", "filepath", "filename", "file", "name", "target", "targetfile", "location", "title", "uri")
_ACTION_KEYS = ("action", "op", "operation", "mode", "type", "status", "change", "changetype", "delete", "deleted")
_CHILDREN = (
    *("path", "file_path", "filepath", "filename", "file", "name", "content", "contents", "file_text", "code", "body"),
    *("text", "old_str", "old_string", "old", "search", "find", "original", "new_str", "new_string", "new", "replace"),
    *("replacement", "updated", "diff", "patch", "command", "cmd", "action"),
)
_CHILD_MEANS = {
    **dict.fromkeys(("old", "find", "original"), "old_str"),
    **dict.fromkeys(("new", "updated", "replacement", "replace"), "new_str"),
    **dict.fromkeys(("file", "name"), "path"),
}
_PARAMETER = re.compile(r"""<parameter(?:\s{1,4}name)?\s{0,2}=\s{0,2}["']?([\w-]{1,40})["']?\s{0,4}>""")
_SEARCH = re.compile(r"^[ \t]{0,8}<{5,9}(?:[ \t]{0,4}[A-Za-z]{1,20})?[ \t]{0,8}$")
_MIDDLE = re.compile(r"^[ \t]{0,8}={5,9}[ \t]{0,8}$")
_REPLACE = re.compile(r"^[ \t]{0,8}>{5,9}(?:[ \t]{0,4}[A-Za-z]{1,20})?[ \t]{0,8}$")
_FENCE = re.compile(r"^[ \t]{0,8}(`{3,9}|~{3,9})([^`]{0,300})$")
_OUTPUTS = frozenset({"console", "text", "output", "log", "plaintext", "bash-session"})
_PATCHES = ("*** Begin Patch", "diff --git ", "--- a/", "+++ b/", "*** Update File: ", "*** Delete File: ")


class TextCall(NamedTuple):
    """A call that stands in an answer as text: what it is named, and its arguments."""

    line: int  # of the answer at which its text begins
    name: str
    values: Mapping[str, Any]
    is_run: bool = False  # whether it is a command, which only a harness that answers runs


@dataclass
class _Scan:
    """What is left of an answer and what was read from it."""

    text: str
    with_headings: bool
    lines: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # of each line
    calls: list[TextCall] = field(default_factory=list)
    endless: set[str] = field(default_factory=set)  # tags that never end
    closings: set[int] = field(default_factory=set)  # lines that close a fence whose inside is read
    work: int = 0  # characters that were looked at beside the walk over the lines
    path: str = ""  # the last that was named, for SEARCH blocks that name none


def read_text_files(text: str, *, with_headings: bool = True) -> tuple[list[TextCall], str]:
    """The files that an answer writes, and the answer with those lines empty.

    >>> calls, rest = read_text_files('Here:\\n<file path="tests/test_a.py">\\nassert True\\n</file>\\nDone.')
    >>> calls[0].line, calls[0].name, calls[0].values, rest
    (3, 'file', {'path': 'tests/test_a.py', 'content': 'assert True'}, 'Here:\\n\\n\\n\\nDone.')
    >>> read_text_files("### a.py\\n```\\nx = 1\\n```")[0][0].values
    {'path': 'a.py', 'content': 'x = 1'}

    `with_headings`: whether code under a heading is a file; where a model has tools it is an explanation.
    """
    if not any(map(text.__contains__, _MARKS)):
        return [], text
    scan = _Scan(text, with_headings, text.split("\n"))
    at = 0
    for line in scan.lines:
        scan.starts.append(at)
        at += len(line) + 1
    kept = list(scan.lines)
    number = 0
    while number < len(scan.lines) and len(scan.calls) < MOST and scan.work < WORK:
        count = len(scan.calls)
        first, number = number, max(_read_at(scan, number) or 0, number + 1)
        if len(scan.calls) > count:
            kept[first:number] = [""] * (number - first)
    scan.calls += _json_files(scan.text, 1) if not scan.calls and text.lstrip()[:1] in ("{", "[") else ()
    return scan.calls[:MOST], "\n".join(kept)


def _read_at(scan: _Scan, number: int) -> int | None:
    """Read what begins at a line; the line to go on with, None for the next."""
    line = scan.lines[number]
    if "<" in line:
        if _SEARCH.match(line):
            return _search_block(scan, number, len(scan.lines), _path_above(scan, number))
        if (end := _tag(scan, number)) is not None:
            return end
    if line.startswith(("*** Begin Patch", "diff --git ")):
        return _patch(scan, number)
    if scan.with_headings and (path := separator_path(line)):
        return _separated(scan, number, path)
    is_fence = ("```" in line or "~~~" in line) and number not in scan.closings
    return _fence(scan, number) if is_fence else None


# -- fences ------------------------------------------------------------------------------------------------------------


def _fence(scan: _Scan, number: int) -> int | None:
    opening = _FENCE.match(scan.lines[number])
    if opening is None:
        return None
    mark, info = opening[1], opening[2].strip()
    end = number + 1
    while end < len(scan.lines) and not _closes(scan.lines[end], mark):
        end += 1
    block = scan.lines[number + 1 : end]
    text = "\n".join(block)
    scan.work += len(text)
    if any(map(text.__contains__, _PATCHES)) and _has_patch(text):
        scan.calls.append(TextCall(number + 2, "patch", {"patch": text}))
        return end + 1
    above, language = _path_above(scan, number), info.partition(" ")[0].lower()
    if "<<<<<" in text and any(map(_SEARCH.match, block)):
        scan.path = above or fence_path(info) or scan.path
        at = number + 1
        while at < end:
            at = (_search_block(scan, at, end, as_path(block[0])) or at + 1) if _SEARCH.match(scan.lines[at]) else at + 1
        return end + 1
    if any(_has_tag(line) for line in block[:3]):
        scan.closings.add(end)
        return None  # the tags inside are read next
    if language in ("json", "") and text.lstrip()[:1] in ("{", "[") and (calls := _json_files(text, number + 2)):
        scan.calls += calls
        return end + 1
    if text.startswith("%%writefile "):
        path = as_path(block[0].split()[-1])
        _add_file(scan, number + 3, path, "\n".join(block[1:]), "%%writefile")
        return end + 1
    inside = heading_path(block[0], comment=True) if block else None
    above_it = heading_path(_line_above(scan, number))
    named = (fence_path(info), "file") if fence_path(info) else above_it or inside
    if not scan.with_headings or named is None or language in _OUTPUTS:
        return end + 1
    path, verb = named
    if language == "diff" or _is_bare_diff(text):
        scan.calls.append(TextCall(number + 2, "patch", {"patch": f"--- a/{path}\n+++ b/{path}\n{text}"}))
        return end + 1
    _add_file(scan, number + 2, path, text, verb)
    return end + 1


def _closes(line: str, mark: str) -> bool:
    words = line.strip()
    return words.startswith(mark) and not words.strip(mark[0])


def _line_above(scan: _Scan, number: int) -> str:
    """The last line above that is not empty, if it is near."""
    for line in reversed(scan.lines[max(number - 3, 0) : number]):
        if line.strip():
            return line
    return ""


def _path_above(scan: _Scan, number: int) -> str:
    named = heading_path(_line_above(scan, number))
    return "" if named is None else named[0]


def _add_file(scan: _Scan, line: int, path: str, text: str, verb: str) -> bool:
    if not path:
        return False
    scan.path = path
    key = "new_str" if _CHANGES.search(verb) else "content"
    scan.calls.append(TextCall(line, verb, {"path": path, key: text}))
    return True


def _separated(scan: _Scan, number: int, path: str) -> int | None:
    """A file between two lines of `=== path ===`; under a fence of its own it is read with that."""
    end = number + 1
    while end < len(scan.lines) and not separator_path(scan.lines[end]) and "END" not in scan.lines[end][:60]:
        if "```" in scan.lines[end]:
            return None
        end += 1
    _add_file(scan, number + 2, path, "\n".join(scan.lines[number + 1 : end]), "file")
    return end


# -- edits and patches -------------------------------------------------------------------------------------------------


def _search_block(scan: _Scan, number: int, stop: int, path: str) -> int | None:
    """One block of SEARCH and REPLACE."""
    middle = end = 0
    for at in range(number + 1, stop):
        line = scan.lines[at]
        if not middle and _MIDDLE.match(line):
            middle = at
        elif middle and _REPLACE.match(line):
            end = at
            break
        elif _SEARCH.match(line):
            break
    scan.path = path or scan.path
    if not end or not scan.path:
        return None
    old, new = ("\n".join(scan.lines[first:last]) for first, last in ((number + 1, middle), (middle + 1, end)))
    scan.calls.append(TextCall(middle + 2, "edit", {"path": scan.path, "old_str": old, "new_str": new}))
    return end + 1


def _patch(scan: _Scan, number: int) -> int:
    """A patch without a fence: to its mark of the end, or to a line that no patch has."""
    end = number + 1
    marked = scan.lines[number].startswith("***")
    while end < len(scan.lines):
        line = scan.lines[end]
        if marked and line.startswith("*** End Patch"):
            end += 1
            break
        if not marked and line and line[0] not in "+- @\\" and not line.startswith(_HEADERS):
            break
        end += 1
    scan.calls.append(TextCall(number + 1, "patch", {"patch": "\n".join(scan.lines[number:end])}))
    return end


_HEADERS = ("diff ", "index ", "new file", "deleted file", "similarity", "rename ", "old mode", "new mode")


def _has_patch(text: str) -> bool:
    return text.lstrip().startswith(("*** ", "diff --git ", "--- ", "+++ ", "Index: ")) or "\n+++ " in text[:4_000]


def _is_bare_diff(text: str) -> bool:
    return text.startswith("@@ ") or "\n@@ " in text[:2_000]


# -- tags --------------------------------------------------------------------------------------------------------------


def _has_tag(line: str) -> bool:
    return "<" in line and any(_WRITERS.search(tag[1]) for tag in _TAG.finditer(line[:2_000]))


def _tag(scan: _Scan, number: int) -> int | None:
    """A file, an edit or a call between tags; the first on a line that is one."""
    line = scan.lines[number]
    for opening in _TAG.finditer(line[:2_000]):
        name, rest = opening[1], opening[2].strip().rstrip("/").strip()
        if not _WRITERS.search(name):
            continue
        attributes = {
            one[1].replace("-", "").replace("_", "").lower(): one[2] or one[3] or one[4] or ""
            for one in _ATTRIBUTE.finditer(rest)
        }
        path = next((named for key in _PATH_KEYS if (named := as_path(attributes.get(key, "")))), "")
        path = path or as_path(rest.lstrip("=: ").strip("\"'"))
        verb = " ".join(filter(None, [name, *(attributes.get(key) for key in _ACTION_KEYS), *_bare(rest)]))
        if opening[2].rstrip().endswith("/"):
            if path and _DELETES.search(verb):
                scan.calls.append(TextCall(number + 1, "delete", {"path": path}))
                return number + 1
            continue
        start = scan.starts[number] + opening.end()
        end = -1 if name in scan.endless else scan.text.find(f"</{name}", start)
        scan.work += (end if end >= 0 else len(scan.text)) - start
        if end < 0:
            scan.endless.add(name)
            if not path or line[opening.end() :].strip() or line[: opening.start()].strip():
                continue
            end = len(scan.text)  # an answer that was cut
        called = attributes.get("name") or rest.lstrip("=") if name in ("function", "invoke") else name
        if _read_element(scan, number, called, verb, path, start, end):
            return number + scan.text.count("\n", scan.starts[number], end) + 1
    return None


def _bare(rest: str) -> list[str]:
    return [word for word in rest.split()[-1:] if word.isalpha()]


def _read_element(scan: _Scan, number: int, name: str, verb: str, path: str, start: int, end: int) -> bool:
    """What stands in an element: a file, an edit, a command; whether it was one of these."""
    body = scan.text[start:end]
    line = number + 1 + (1 if body.startswith("\n") else 0)
    children = _parameters(body) if "<parameter" in body else _child_texts(body)
    path = path or as_path(children.get("path", ""))
    if _DELETES.search(verb):
        path = path or as_path(body.strip())
        if path:
            scan.calls.append(TextCall(number + 1, "delete", {"path": path}))
        return bool(path)
    if not path:
        command = children.get("command") or (body.strip() if _RUNS.search(name) and len(body) < 8_000 else "")
        if command and (_RUNS.search(name) or "<parameter" in body):
            scan.calls.append(TextCall(line, name, {"command": command}, is_run=True))
        return bool(command)
    if children and ("<parameter" in body or len(children) > ("path" in children)):
        if "diff" in children and "<<<<<" in children["diff"]:
            return _blocks_of(scan, number, start, end, path)
        values = {**children, "path": path}
        if any(key in values for key in ("content", "contents", "file_text", "code", "body", "text", "new_str", "patch")):
            scan.calls.append(TextCall(line, name, {key: _bare_text(one) for key, one in values.items()}))
            return True
    if "<<<<<" in body and _blocks_of(scan, number, start, end, path):
        return True
    text = _bare_text(body)
    if text.startswith(("--- ", "@@ ", "diff --git ")) or ("\n@@ " in text[:2_000] and _CHANGES.search(verb)):
        head = "" if "+++ " in text[:2_000] else f"--- a/{path}\n+++ b/{path}\n"
        scan.calls.append(TextCall(line, name, {"patch": head + text}))
        return True
    return _add_file(scan, line, path, text, verb)


def _blocks_of(scan: _Scan, number: int, start: int, end: int, path: str) -> bool:
    """Blocks of SEARCH and REPLACE inside of an element."""
    stop = number + scan.text.count("\n", scan.starts[number], end) + 1
    count, at = len(scan.calls), number
    while at < stop:
        at = (_search_block(scan, at, stop, path) or at + 1) if _SEARCH.match(scan.lines[at]) else at + 1
    return len(scan.calls) > count


def _bare_text(text: str) -> str:
    """The text of an element, without what wraps it: line ends, CDATA, a fence."""
    words = text.removeprefix("\n").removesuffix("\n")
    if words.lstrip().startswith("<![CDATA["):
        words = words.strip().removeprefix("<![CDATA[").removesuffix("]]>").removeprefix("\n")
    if words.lstrip().startswith(("```", "~~~")) and words.rstrip().endswith(("```", "~~~")):
        words = "\n".join(words.strip().split("\n")[1:-1])
    return words


def _child_texts(body: str) -> dict[str, str]:
    """
    >>> _child_texts("<path>a.py</path><content>x</content>")
    {'path': 'a.py', 'content': 'x'}
    """
    texts: dict[str, str] = {}
    for key in _CHILDREN if "</" in body else ():
        start = body.find(f"<{key}>")
        while start >= 0 and (end := body.find(f"</{key}>", start)) >= 0:
            name = _CHILD_MEANS.get(key, key)
            text = body[start + len(key) + 2 : end].strip("\n")
            texts[name] = f"{texts[name]}\n{text}" if name in texts else text
            start = body.find(f"<{key}>", end)
    return texts


def _parameters(body: str) -> dict[str, str]:
    openings = list(_PARAMETER.finditer(body))[:20]
    ends = [one.start() for one in openings[1:]] + [len(body)]
    return {
        _CHILD_MEANS.get(one[1], one[1]): body[one.end() : end].partition("</parameter>")[0].strip("\n")
        for one, end in zip(openings, ends, strict=True)
    }


# -- JSON --------------------------------------------------------------------------------------------------------------


def _json_files(text: str, line: int) -> Iterator[TextCall] | list[TextCall]:
    """`{"files": [{"path": ..., "content": ...}]}`, a list of such, or `{"files": {path: content}}`."""
    if '"' not in text or not any(map(text.__contains__, ("path", "file", "name"))):
        return []
    try:
        value = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return []
    rows = [value, *value.values()] if isinstance(value, dict) else [value]
    found: list[TextCall] = []
    for row in rows[:MOST]:
        if isinstance(row, list):
            found += [TextCall(line, "file", one) for one in row[:MOST] if isinstance(one, dict) and _names_file(one)]
        elif isinstance(row, dict) and _names_file(row):
            found.append(TextCall(line, "file", row))
        elif isinstance(row, dict) and row and all(isinstance(one, str) and as_path(name) for name, one in row.items()):
            found += [TextCall(line, "file", {"path": name, "content": one}) for name, one in row.items()]
    return found


def _names_file(row: Mapping[str, Any]) -> bool:
    keys = [key for key in row if isinstance(key, str) and key.replace("_", "").lower() in _PATH_KEYS]
    return len(row) > 1 and any(isinstance(row[key], str) and as_path(row[key]) for key in keys)
