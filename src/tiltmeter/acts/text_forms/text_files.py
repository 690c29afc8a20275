"""Files that an answer writes as text: tags with a path, a heading over a fence, SEARCH/REPLACE blocks, patches, JSON.

Each form becomes what a call of a tool would have been, a name and arguments, so that one reader knows what they mean.
What is looked at more than once is counted, so that the time is bounded, whatever comes.
"""

from __future__ import annotations

import re

from tiltmeter.acts.text_forms.heading_paths import as_path, fence_path, heading_path, separator_path
from tiltmeter.acts.text_forms.json_files import json_files
from tiltmeter.acts.text_forms.tags import has_tag, read_tag
from tiltmeter.acts.text_forms.text_scan import (
    MOST,
    SEARCH,
    WORK,
    TextCall,
    TextScan,
    add_file,
    line_above,
    path_above,
    read_search_block,
)

_MARKS = (
    *("```", "</", "path", "file", "File", "FILE", "<<<<<", "name=", "*** ", "+++ ", "<write", "<edit"),
    *("<delete", "==="),
)
_FENCE = re.compile(r"^[ \t]{0,8}(`{3,9}|~{3,9})([^`]{0,300})$")
_OUTPUTS = frozenset({"console", "text", "output", "log", "plaintext", "bash-session"})
_PATCHES = ("*** Begin Patch", "diff --git ", "--- a/", "+++ b/", "*** Update File: ", "*** Delete File: ")


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
    scan = TextScan(text, with_headings, text.split("\n"))
    at = 0
    for line in scan.lines:
        scan.starts.append(at)
        at += len(line) + 1
    unread = list(scan.lines)
    number = 0
    while number < len(scan.lines) and len(scan.calls) < MOST and scan.work < WORK:
        count = len(scan.calls)
        first, number = number, max(_read_at(scan, number) or 0, number + 1)
        if len(scan.calls) > count:
            unread[first:number] = [""] * (number - first)
    scan.calls += json_files(scan.text, 1) if not scan.calls and text.lstrip()[:1] in ("{", "[") else ()
    return scan.calls[:MOST], "\n".join(unread)


def _read_at(scan: TextScan, number: int) -> int | None:
    """Read what begins at a line; the line to go on with, None for the next."""
    line = scan.lines[number]
    if "<" in line:
        if SEARCH.match(line):
            return read_search_block(scan, number, len(scan.lines), path_above(scan, number))
        if (end := read_tag(scan, number)) is not None:
            return end
    if line.startswith(("*** Begin Patch", "diff --git ")):
        return _patch(scan, number)
    if scan.with_headings and (path := separator_path(line)):
        return _separated(scan, number, path)
    is_fence = ("```" in line or "~~~" in line) and number not in scan.closings
    return _fence(scan, number) if is_fence else None


def _fence(scan: TextScan, number: int) -> int | None:
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
    above, language = path_above(scan, number), info.partition(" ")[0].lower()
    if "<<<<<" in text and any(map(SEARCH.match, block)):
        scan.path = above or fence_path(info) or scan.path
        at = number + 1
        while at < end:
            at = (
                (read_search_block(scan, at, end, as_path(block[0])) or at + 1)
                if SEARCH.match(scan.lines[at])
                else at + 1
            )
        return end + 1
    if any(has_tag(line) for line in block[:3]):
        scan.closings.add(end)
        return None  # the tags inside are read next
    if language in ("json", "") and text.lstrip()[:1] in ("{", "[") and (calls := json_files(text, number + 2)):
        scan.calls += calls
        return end + 1
    if text.startswith("%%writefile "):
        path = as_path(block[0].split()[-1])
        add_file(scan, number + 3, path, "\n".join(block[1:]), "%%writefile")
        return end + 1
    inside = heading_path(block[0], comment=True) if block else None
    above_it = heading_path(line_above(scan, number))
    named = (fence_path(info), "file") if fence_path(info) else above_it or inside
    if not scan.with_headings or named is None or language in _OUTPUTS:
        return end + 1
    path, verb = named
    if language == "diff" or _is_bare_diff(text):
        scan.calls.append(TextCall(number + 2, "patch", {"patch": f"--- a/{path}\n+++ b/{path}\n{text}"}))
        return end + 1
    add_file(scan, number + 2, path, text, verb)
    return end + 1


def _closes(line: str, mark: str) -> bool:
    words = line.strip()
    return words.startswith(mark) and not words.strip(mark[0])


def _separated(scan: TextScan, number: int, path: str) -> int | None:
    """A file between two lines of `=== path ===`; under a fence of its own it is read with that."""
    end = number + 1
    while end < len(scan.lines) and not separator_path(scan.lines[end]) and "END" not in scan.lines[end][:60]:
        if "```" in scan.lines[end]:
            return None
        end += 1
    add_file(scan, number + 2, path, "\n".join(scan.lines[number + 1 : end]), "file")
    return end


def _patch(scan: TextScan, number: int) -> int:
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
