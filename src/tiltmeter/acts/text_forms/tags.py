"""Files, edits and commands between tags: with attributes, with elements inside, or with parameters."""

from __future__ import annotations

import re

from tiltmeter.acts.text_forms.heading_paths import as_path
from tiltmeter.acts.text_forms.json_files import PATH_KEYS
from tiltmeter.acts.text_forms.text_scan import CHANGES, TextCall, TextScan, add_file, read_search_blocks

_TAG = re.compile(r"<([A-Za-z_][\w.-]{0,40})((?:[\s=:][^<>]{0,600})?)>")
_ATTRIBUTE = re.compile(r"""([\w-]{1,40})\s{0,3}=\s{0,3}(?:"([^"]{0,300})"|'([^']{0,300})'|([^\s"'>]{1,300}))""")
_WRITERS = re.compile(
    r"file|write|create|edit|replace|patch|diff|delete|remove|update|insert|append|save|artifact|document|source|code"
    r"|action|overwrite|modify|invoke|function|command|execute|bash|shell",
    re.IGNORECASE,
)
_RUNS = re.compile(r"command|execute|bash|shell", re.IGNORECASE)
_DELETES = re.compile(r"delete|remove|unlink|^rm$", re.IGNORECASE)
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


def has_tag(line: str) -> bool:
    return "<" in line and any(_WRITERS.search(tag[1]) for tag in _TAG.finditer(line[:2_000]))


def read_tag(scan: TextScan, number: int) -> int | None:
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
        path = next((named for key in PATH_KEYS if (named := as_path(attributes.get(key, "")))), "")
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


def _read_element(scan: TextScan, number: int, name: str, verb: str, path: str, start: int, end: int) -> bool:
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
            return read_search_blocks(scan, number, start, end, path)
        values = {**children, "path": path}
        if any(
            key in values for key in ("content", "contents", "file_text", "code", "body", "text", "new_str", "patch")
        ):
            scan.calls.append(TextCall(line, name, {key: _bare_text(one) for key, one in values.items()}))
            return True
    if "<<<<<" in body and read_search_blocks(scan, number, start, end, path):
        return True
    text = _bare_text(body)
    if text.startswith(("--- ", "@@ ", "diff --git ")) or ("\n@@ " in text[:2_000] and CHANGES.search(verb)):
        head = "" if "+++ " in text[:2_000] else f"--- a/{path}\n+++ b/{path}\n"
        scan.calls.append(TextCall(line, name, {"patch": head + text}))
        return True
    return add_file(scan, line, path, text, verb)


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
