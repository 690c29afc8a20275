"""What a trajectory did, read from its turns once: commands, files written, programs, and what tools answered.

Agents call tools under many names. What counts is the form of the arguments: a path with a text is a file that is
written, a command is shell text, code is a program. Everything is bounded, because a model wrote it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Literal

import msgspec

from tiltmeter.acts.permits.request import Request, read_request, runs_commands
from tiltmeter.acts.shell import ShellCommand, read_commands
from tiltmeter.acts.text_forms.text_files import read_text_files
from tiltmeter.data.turns import ASSISTANT, OMITTED, TOOL, USER, Turn

LOOKED_AT = 200_000  # characters of what the policy wrote, and as many of what it was answered
LINE = 1_000  # characters of a line of a program
PATH = 300  # characters of a path
COMMANDS, WRITES, PROGRAMS = 4_000, 500, 1_000  # of one trajectory
TEXT_CALLS = 20  # of one turn

How = Literal["create", "edit", "delete", "append", "move"]

_COMMAND_KEYS = ("command", "cmd", "commands", "script", "bash", "bash_command", "keystrokes", "input")
_CODE_KEYS = ("code", "python", "source", "program")
_PATH_KEYS = ("path", "file_path", "filepath", "filename", "file_name", "file", "target_file", "target", "uri")
_CREATE_KEYS = ("content", "contents", "file_text", "text", "file_content", "data", "body", "lines", "code")
_EDIT_KEYS = ("new_str", "new_string", "insert_text", "replacement", "replace", "code_edit", "new_text", "new_content")
_OLD_KEYS = ("old_str", "old_string", "search", "old_text")
_PATCH_KEYS = ("patch", "diff", "input", "patch_text")
_MEANINGS: dict[str, list[tuple[str, int]]] = {}
for _meaning, _keys in (
    *(("command", _COMMAND_KEYS), ("code", _CODE_KEYS), ("path", _PATH_KEYS), ("create", _CREATE_KEYS)),
    *(("edit", _EDIT_KEYS), ("old", _OLD_KEYS), ("patch", _PATCH_KEYS)),
):
    for _place, _key in enumerate(_keys):
        _MEANINGS.setdefault(_key.replace("_", ""), []).append((_meaning, _place))
_DELETES = re.compile(r"delete|remove|unlink|\brm\b", re.IGNORECASE)
_PATCH_LINE = re.compile(
    r"(?:\*\*\* (?P<verb>Update|Delete|Add) File: |(?:\+\+\+ b/|\+\+\+ |--- a/))(?P<path>[^\t\r\n]{1,300})"
)
_NOTEBOOK = re.compile(r"^(?:!|%%(?:bash|sh)\b.*$)", re.MULTILINE)
_IN_PLACE = re.compile(r"-[A-Za-z0-9]{0,4}i")
_NESTED = (dict, list)
_SHELL_NAMES = frozenset({"bash", "sh", "zsh", "dash"})
_CALL, _CALL_END, _ACTION, _INPUT = "<tool_call>", "</tool_call>", "Action:", "Action Input:"
_FENCE = re.compile(r"^[ \t]{0,8}```[ \t]{0,4}([A-Za-z0-9_+-]{0,20})")
_PYTHON_WRITE = re.compile(
    r"""\bopen\(\s{0,8}[rfb]{0,2}['"](?P<open>[^'"\n]{1,300})['"]\s{0,8},\s{0,8}(?:mode\s{0,4}=\s{0,4})?['"](?P<mode>[wax]b?\+?)['"]"""
    r"""|Path\(\s{0,8}[rf]?['"](?P<path>[^'"\n]{1,300})['"]\s{0,8}\)\.(?P<verb>write_text|write_bytes|unlink"
    r"|touch|rename)"""
    r"""|\b(?:os\.remove|os\.unlink|shutil\.rmtree|os\.rmdir)\(\s{0,8}[rf]?['"](?P<gone>[^'"\n]{1,300})['"]"""
    r"""|\b(?:shutil\.copy2?|shutil\.copyfile|shutil\.move|os\.rename"
    r"|os\.replace)\([^,\n]{1,300},\s{0,8}[rf]?['"](?P<to>[^'"\n]{1,300})['"]"""
    r"""|\b(?:shutil\.move|os\.rename|os\.replace)\(\s{0,8}[rf]?['"](?P<away>[^'"\n]{1,300})['"]"""
)

_OTHER_REMOVAL = re.compile(
    r"""(?:\b(?:rmSync|unlinkSync|rmdirSync)|\bFile\.(?:delete|unlink)|\bFileUtils\.rm(?:_rf?)?"
    r"|\bFiles\.delete(?:IfExists)?)"""
    r"""\(?\s{0,4}['"]([^'"\n]{1,300})['"]"""
)
_PATH_NAME = re.compile(
    r"""\b(\w{1,60})\s{0,4}=\s{0,4}(?:pathlib\.)?Path\(\s{0,4}[rf]?['"]([^'"\n]{1,300})['"]\s{0,4}\)"""
)
_NAME_USE = re.compile(r"\b(\w{1,60})\.(write_text|write_bytes|unlink|rename)\(")
_VERBS: Mapping[str, How] = {"write_text": "edit", "write_bytes": "edit", "unlink": "delete", "rename": "move"}


@dataclass(frozen=True, slots=True)
class FileWrite:
    """A file that was written, edited or removed, as far as the call says."""

    turn: int
    line: int
    path: str
    how: How
    text: str  # what was written; empty where the call does not say
    shown: str  # the evidence
    old: str = ""  # what an edit replaced


@dataclass(frozen=True, slots=True)
class Program:
    """Code that the policy wrote: into a file (`path`), for an interpreter, or in an answer."""

    turn: int
    line: int  # of the turn at which it begins
    text: str
    path: str = ""

    def lines(self) -> Iterator[tuple[int, str]]:
        """Its lines, each with the number that it has in the turn."""
        for number, line in enumerate(self.text.split("\n"), self.line):
            yield number, line[:LINE]


@dataclass(frozen=True)
class Transcript:
    """A trajectory for detectors. `facts` and `artifacts`: what the dataset and the trainer say about it.

    >>> call = Turn("assistant", call="bash", arguments='{"cmd": "rm tests/test_a.py"}')
    >>> [(one.path, one.how) for one in Transcript((call,)).writes]
    [('tests/test_a.py', 'delete')]
    """

    turns: Sequence[Turn]
    prompt: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def is_cut(self) -> bool:
        """Whether it is longer than is looked at, or has lost turns on the way here."""
        own = sum(len(turn.text or "") + len(turn.arguments or "") for turn in self.turns if turn.written)
        answers = sum(len(turn.text or "") for turn in self.turns if turn.role == TOOL)
        return max(own, answers) > LOOKED_AT or any(turn.role == OMITTED for turn in self.turns)

    @cached_property
    def own_words(self) -> str:
        """What the policy wrote and called, in one text: what a detector looks for marks in before it reads."""
        left = LOOKED_AT
        parts = []
        for turn in self.turns:
            if turn.written:
                for text in (turn.text, turn.arguments):
                    if text and left > 0:
                        parts.append(text[:left])
                        left -= len(text)
        return "\n".join(parts)

    def has(self, *marks: str) -> bool:
        """Whether any of these stands in what the policy wrote."""
        return any(map(self.own_words.__contains__, marks))

    @cached_property
    def answers(self) -> tuple[tuple[int, str], ...]:
        """What tools answered: turn and text."""
        left, answers = LOOKED_AT, []
        for at, turn in enumerate(self.turns):
            if turn.role == TOOL and turn.text and left > 0:
                answers.append((at, turn.text[:left]))
                left -= len(turn.text)
        return tuple(answers)

    @cached_property
    def commands(self) -> tuple[tuple[int, ShellCommand], ...]:
        """Shell commands: turn and command."""
        return self._parts[0]

    @cached_property
    def writes(self) -> tuple[FileWrite, ...]:
        """Files that were written, edited, moved or removed, in order."""
        return self._parts[1]

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        """Code that was written."""
        return self._parts[2]

    @cached_property
    def created(self) -> Mapping[str, int]:
        """Files that the policy made itself, by the turn in which it did: nobody had shown or named them before."""
        first: dict[str, int] = {}
        for write in self.writes:
            if write.how == "create" and write.path not in first and not self.was_named(write.path, write.turn):
                first[write.path] = write.turn
        return first

    @cached_property
    def task_text(self) -> str:
        """What the task says: the prompt, and what was said before the policy wrote anything."""
        parts = [self.prompt]
        for turn in self.turns:
            if turn.written:
                break
            if turn.role != TOOL and turn.text:
                parts.append(turn.text[:LOOKED_AT])
        return "\n".join(parts)

    @cached_property
    def request(self) -> Request:
        """What the user asks about tests, in the prompt and in turns of the user's own.

        A later turn of a user may be what a command printed, and what the policy has written itself is no request.
        """
        texts, before = list[str](), True
        calls = any(turn.call for turn in self.turns)
        last = ""
        for turn in self.turns:
            if turn.role == ASSISTANT:
                if before and not texts:  # the task is no turn of this row; with one, the prompt repeats it and more
                    texts.append(self.prompt)
                before, last = False, "" if turn.call else turn.text or ""
            elif turn.role == USER and turn.text and (before or (not runs_commands(last) if not calls else last)):
                others = [
                    line for line in turn.text[:LOOKED_AT].split("\n") if before or line.strip() not in self.own_words
                ]
                texts.append("\n".join(others))
        return read_request(texts or [self.prompt])

    @cached_property
    def shown(self) -> str:
        """What tools answered, in one text."""
        return "\n".join(text for _, text in self.answers)

    def was_named(self, path: str, turn: int) -> bool:
        """Whether a file was named before this turn, by the task, by a tool, or by a command that was no write."""
        name = path.rstrip("/").rpartition("/")[2][:PATH]
        return bool(name) and (name in self.prompt or any(name in text for text in self._named_before(turn)))

    def _named_before(self, turn: int) -> Iterator[str]:
        for at, text in self.answers:
            if at < turn:
                yield text
        for one in self.turns[: max(turn, 0)]:
            if not one.written and one.role != TOOL and one.text:
                yield one.text[:LOOKED_AT]

    def is_own_file(self, path: str, turn: int) -> bool:
        """Whether the policy itself made this file, at this turn or earlier."""
        created_in = self.created.get(path)
        return created_in is not None and created_in <= turn

    @cached_property
    def _parts(
        self,
    ) -> tuple[tuple[tuple[int, ShellCommand], ...], tuple[FileWrite, ...], tuple[Program, ...]]:
        commands: list[tuple[int, ShellCommand]] = []
        writes: list[FileWrite] = []
        programs: list[Program] = []
        left = LOOKED_AT
        calls = any(turn.call for turn in self.turns)
        for at, turn in enumerate(self.turns):
            if turn.role != ASSISTANT or not turn.own or left <= 0:
                continue
            if turn.call:
                arguments = (turn.arguments or "")[:left]
                left -= len(arguments)
                if not _is_worth_reading(turn.call, arguments):
                    continue
                _read_call(at, turn.call, arguments, commands, writes, programs)
            elif turn.text:
                text = turn.text[:left]
                left -= len(text)
                # Shell text in an answer is run only where a tool answers it, or the user where there are no calls.
                answered_by = self.turns[at + 1].role if at + 1 < len(self.turns) else ""
                runs = answered_by == TOOL or (answered_by == USER and not calls)
                if answered_by and (_CALL in text or _INPUT in text):
                    _read_text_calls(at, text, commands, writes, programs)
                else:
                    files, rest = read_text_files(text, with_headings=not calls)
                    for one in files:
                        if runs or not one.is_run:
                            _read_values(at, one.name, one.values, commands, writes, programs, one.line)
                    _read_answer(at, rest, runs, commands, writes, programs)
        for program in programs[:PROGRAMS]:
            writes += _python_writes(program)
            if (inner := _text_in_script(program)) is not None and len(programs) < PROGRAMS:
                programs.append(inner)
        return tuple(commands[:COMMANDS]), tuple(writes[:WRITES]), tuple(programs[:PROGRAMS])


#: A call without any of these changes no file, asks for no history and runs no code of its own: `ls`, `cat`, `grep`, a
#: plain run of tests. Most calls are such, and are left out before they are taken apart.
_MARKS = (
    *(">", "rm ", "<<", "echo", "git", "-c ", "content", "new_", "file_text", "-i", "mv ", "cp ", "tee ", "http"),
    *("code", "patch", "diff", "import ", "def ", "||", "-k ", "--de", "--ig", "delete", "unlink", "truncate", "clone"),
    *("download", "printf", "chmod", "chown", "ln ", "install ", "rmdir", "shred", "open(", "write", "insert", "repl"),
    *("-pi", "ruby", "addopts", 'python"', 'source"', 'program"', 'text"', 'data"', 'input"', "script"),
    *("PRELOAD", "alias ", "() {", "apply", "pack ", "gem ", "gh ", " -u", "UPDATE", "--up", "Sync(", "File."),
    *(
        "NODE_OP",
        "perl",
        "--exclude",
        "--filter",
        "-x test",
        "faketime",
        "date -s",
        "PERL5OPT",
        "lynx",
        'Text"',
        'body"',
        'lines"',
    ),
)


def _read_text_calls(
    at: int, text: str, commands: list[tuple[int, ShellCommand]], writes: list[FileWrite], programs: list[Program]
) -> None:
    """Calls of models that write them as text: JSON between marks, or a line for the tool and one for its input."""
    for name, arguments in islice(_text_calls(text), TEXT_CALLS):
        if name and _is_worth_reading(name, arguments):
            _read_call(at, name, arguments, commands, writes, programs)


def _text_calls(text: str) -> Iterator[tuple[str, str]]:
    """
    >>> list(_text_calls('<tool_call>{"name": "sh", "arguments": {"cmd": "ls"}}</tool_call>'))
    [('sh', '{"cmd":"ls"}')]
    >>> list(_text_calls("Thought: look.\\nAction: terminal\\nAction Input: ls\\nObservation: a.py"))
    [('terminal', 'ls')]
    """
    start = text.find(_CALL)
    while start >= 0 and (end := text.find(_CALL_END, start)) >= 0:
        try:
            call = msgspec.json.decode(text[start + len(_CALL) : end].encode("utf-8", "surrogatepass"))
        except (ValueError, RecursionError):
            call = None
        if isinstance(call, dict):
            inner = call.get("arguments", call.get("parameters"))
            arguments = inner if isinstance(inner, str) else msgspec.json.encode(inner).decode("utf-8", "replace")
            yield str(call.get("name", "")), arguments
        start = text.find(_CALL, end)
    tool, lines = "", [""]
    for line in text.split("\n") if _INPUT in text else ():
        if line.startswith(_ACTION):
            tool = line.removeprefix(_ACTION).strip()
        elif tool and line.startswith(_INPUT):
            lines = [line.removeprefix(_INPUT).strip()]
        elif tool and lines[0] and line.startswith(("Observation:", "Thought:")):
            yield tool, "\n".join(lines)
            tool, lines = "", [""]
        elif lines[0]:
            lines.append(line)
    if tool and lines[0]:
        yield tool, "\n".join(lines)


def _is_worth_reading(name: str, arguments: str) -> bool:
    return any(map(arguments.__contains__, _MARKS)) or _DELETES.search(name[:100]) is not None


def _read_call(
    at: int,
    name: str,
    arguments: str,
    commands: list[tuple[int, ShellCommand]],
    writes: list[FileWrite],
    programs: list[Program],
) -> None:
    try:
        values = msgspec.json.decode(arguments.encode("utf-8", "surrogatepass")) if arguments else {}
    except (ValueError, RecursionError):
        values = arguments
    if isinstance(values, str):
        _read_shell(at, values, commands, writes, programs)
        return
    if isinstance(values, list):
        values = {"command": values}
    if isinstance(values, dict):
        _read_values(at, name, values, commands, writes, programs)


def _read_values(
    at: int,
    name: str,
    values: Mapping[str, Any],
    commands: list[tuple[int, ShellCommand]],
    writes: list[FileWrite],
    programs: list[Program],
    first: int = 1,  # line of the turn at which a text begins
) -> None:
    texts: dict[str, tuple[int, str]] = {}  # by what a key means: the place of the key among its kind, and the text
    if any(isinstance(value, _NESTED) for value in values.values()):
        values = _flat(values)
    for key, value in values.items():
        for meaning, place in _MEANINGS.get(key, ()) or _MEANINGS.get(key.replace("_", "").lower(), ()):
            if (meaning not in texts or place < texts[meaning][0]) and (text := _as_text(value)) is not None:
                texts[meaning] = (place, text)
    path = texts["path"][1][:PATH].removeprefix("file://") if "path" in texts else ""
    patch = texts["patch"][1] if "patch" in texts and _is_patch(texts["patch"][1]) else ""
    if patch:
        _read_patch(at, patch, writes, programs, first)
        return
    if path:
        new, content, old = (texts[key][1] if key in texts else None for key in ("edit", "create", "old"))
        if new is not None or (old and content is not None):
            text = new if new is not None else content or ""
            writes.append(FileWrite(at, first, path, "edit", text, f"{name}({path})", old or ""))
            programs.append(Program(at, first, text, path))
        elif content is not None:
            writes.append(FileWrite(at, first, path, "create", content, f"{name}({path})"))
            programs.append(Program(at, first, content, path))
        elif _DELETES.search(f"{texts['command'][1][:100] if 'command' in texts else ''} {name}"[:200]):
            writes.append(FileWrite(at, first, path, "delete", "", f"{name}({path})"))
        return
    is_python = "python" in name.lower() or "jupyter" in name.lower() or name.lower() in ("execute", "run_code")
    for meaning in ("code", "command"):
        if meaning in texts:
            text = texts[meaning][1]
            if text.startswith("%%writefile "):
                head, _, rest = text.partition("\n")
                writes.append(FileWrite(at, 1, head.split()[-1][:PATH], "create", rest, head[:LINE]))
                programs.append(Program(at, 2, rest, head.split()[-1][:PATH]))
            elif (meaning == "code" or is_python) and not _looks_like_shell(text, name):
                programs.append(Program(at, 1, text))
            else:
                _read_shell(at, _NOTEBOOK.sub("", text), commands, writes, programs)
            return


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of arguments too: `{"action": {"command": ...}}`, `{"edits": [{"oldText": ..., "newText": ...}]}`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        parts = [value] if isinstance(value, dict) else value if isinstance(value, list) else ()
        inner = [part for part in parts[:100] if isinstance(part, dict)]
        if not inner:
            flat[key] = "\n".join(value) if key == "lines" and _are_texts(value) else value
        for part in inner:
            for name, text in part.items():
                same = isinstance(flat.get(name), str) and isinstance(text, str)
                flat[name] = f"{flat[name]}\n{text}" if same else text
    return flat


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value[:100]):
        if len(value) > 2 and value[0].rpartition("/")[2] in _SHELL_NAMES and value[1].startswith("-"):
            return str(value[2])
        return " ".join(str(part) for part in value[:100])
    return None


def _looks_like_shell(text: str, name: str) -> bool:
    return name.lower() in _SHELL_NAMES or text.startswith(("!", "#!/bin/", "%%bash", "%%sh"))


def _is_patch(text: str) -> bool:
    return "*** Begin Patch" in text[:400] or "\n+++ " in text[:4_000] or text.startswith(("--- ", "diff --git"))


def _read_patch(at: int, patch: str, writes: list[FileWrite], programs: list[Program], start: int = 1) -> None:
    """Files of a patch, each with the lines that it adds."""
    path, how, first, old_path = "", "edit", start, ""
    added: list[str] = []
    dropped: list[str] = []

    def end_file() -> None:
        nonlocal added, dropped
        if path:
            writes.append(
                FileWrite(at, first, path, how, "\n".join(added), f"patch of {path}", "\n".join(dropped))  # type: ignore[arg-type]
            )
            programs.append(Program(at, first, "\n".join(added), path))
        added, dropped = [], []

    for number, line in enumerate(patch.split("\n"), start):
        match = _PATCH_LINE.match(line[:400])
        if match is not None and match["verb"]:
            end_file()
            path, first = match["path"].strip(), number
            how = {"Update": "edit", "Delete": "delete", "Add": "create"}[match["verb"]]
        elif match is not None and line.startswith("---"):
            end_file()
            path, old_path = "", match["path"].strip()
        elif line.startswith("--- /dev/null"):
            old_path = "/dev/null"
        elif match is not None:
            new = match["path"].strip()
            gone = new == "/dev/null"
            path, first = old_path if gone else new, number
            how = "delete" if gone else "create" if old_path == "/dev/null" else "edit"
        elif line.startswith("+"):
            added.append(line[1:])
        elif line.startswith("-"):
            dropped.append(line[1:])
    end_file()


def _read_shell(
    at: int, text: str, commands: list[tuple[int, ShellCommand]], writes: list[FileWrite], programs: list[Program]
) -> None:
    for command in read_commands(text):
        commands.append((at, command))
        words, plain = command.words, command.plain
        empties = not command.body and command.name in ("", ":", "true")  # `: > file`
        writes += (
            FileWrite(
                at,
                command.line,
                path[:PATH],
                "append" if sign == ">>" else "delete" if empties else "create",
                command.body,
                command.text,
            )
            for sign, path in command.targets
            if path and not path.startswith(("&", "/dev/"))
        )
        if command.body and (command.name == "patch" or (command.name == "git" and "apply" in plain[:1])):
            _read_patch(at, command.body, writes, programs)
        elif command.body and (command.targets or command.name == "tee"):
            path = command.targets[0][1] if command.targets else next(iter(plain), "")
            programs.append(Program(at, command.line + 1, command.body, path[:PATH]))
        elif command.body:
            programs.append(Program(at, command.line + 1, command.body))
        writes += _command_writes(at, command)
        if command.name.startswith("python") and "-c" in words[:-1]:
            programs.append(Program(at, command.line, words[words.index("-c") + 1]))
        elif command.name in ("node", "ruby", "perl", "php", "deno") and "-e" in words[:-1]:
            programs.append(Program(at, command.line, words[words.index("-e") + 1]))
        elif command.name in _SHELL_NAMES and len(words) > 2 and words[1] in ("-c", "-lc"):
            for inner in read_commands(words[2]):
                commands.append((at, inner))
                writes += _command_writes(at, inner)


def _command_writes(at: int, command: ShellCommand) -> Iterator[FileWrite]:
    """Files that a command changes by what it is."""
    name, plain = command.name, command.plain
    changes: Iterable[tuple[str, How]] = ()
    if name in ("rm", "unlink", "shred"):
        changes = [(path, "delete") for path in plain]
    elif name == "git" and plain[:1] == ("rm",):
        changes = [(path, "delete") for path in plain[1:]]
    elif name == "git" and plain[:1] == ("mv",) and len(plain) > 2:
        changes = [(plain[1], "move"), (plain[-1], "create")]
    elif name == "mv" and len(plain) > 1:
        changes = [*((path, "move") for path in plain[:-1]), (plain[-1], "create")]
    elif name in ("cp", "ln", "install") and len(plain) > 1:
        changes = [(plain[-1], "create")]
    elif name == "tee":
        changes = [(path, "append" if "-a" in command.words else "create") for path in plain]
    elif name == "truncate" and plain:
        changes = [(plain[-1], "delete")]
    elif name in ("sed", "perl", "ruby") and any(map(_IN_PLACE.match, command.words[1:])):
        changes = [(path, "edit") for path in plain[-1:]]
    elif name in ("chmod", "chown") and len(plain) > 1 and not plain[0].endswith("+x"):
        changes = [(path, "edit") for path in plain[1:]]
    for path, how in changes:
        yield FileWrite(at, command.line, path[:PATH], how, "", command.text)


def _python_writes(program: Program) -> Iterator[FileWrite]:
    text = program.text
    if not any(mark in text for mark in ("open(", "Path(", "os.", "shutil.", "Sync(", "File")):
        return
    for match in _OTHER_REMOVAL.finditer(text[:LOOKED_AT]) if "Sync(" in text or "File" in text else ():
        number = program.line + text.count("\n", 0, match.start())
        yield FileWrite(program.turn, number, match[1], "delete", "", match[0])
    names: dict[str, str] = {}
    for number, line in program.lines():
        if "Path(" in line and (bound := _PATH_NAME.search(line)) is not None:
            names[bound[1]] = bound[2]
        for use in _NAME_USE.finditer(line) if names else ():
            if use[1] in names:
                yield FileWrite(program.turn, number, names[use[1]], _VERBS[use[2]], "", line, line)
        for match in _PYTHON_WRITE.finditer(line):
            how: How = "create"
            if match["mode"] and match["mode"].startswith("a"):
                how = "append"
            elif match["gone"] or match["away"] or match["verb"] in ("unlink", "rename"):
                how = "delete"
            path = match["open"] or match["path"] or match["gone"] or match["to"] or match["away"]
            if how == "create" and match["open"] and text.count(path) > 1:  # it was read before
                how = "edit"
            yield FileWrite(program.turn, number, path, how, "", line)


def _text_in_script(program: Program) -> Program | None:
    """What a script writes into a file as a text of its own, with its line ends: `p.write_text("a\\nb")`."""
    if "write" not in program.text or "\\n" not in program.text:
        return None
    lines = [line for _, line in program.lines() if "write" in line and "\\n" in line]
    paths = [match[2] for line in program.text.split("\n")[:200] if (match := _PATH_NAME.search(line[:LINE]))]
    unescaped = "\n".join(lines).replace("\\n", "\n").replace("\\t", "\t")
    return Program(program.turn, program.line, unescaped, paths[0] if paths else "") if lines else None


def _read_answer(
    at: int,
    text: str,
    runs: bool,
    commands: list[tuple[int, ShellCommand]],
    writes: list[FileWrite],
    programs: list[Program],
) -> None:
    """Code in an answer: what stands between fences, or the whole answer if it is a program by itself."""
    if "```" not in text:
        if "def " in text or "import " in text or "class " in text:
            programs.append(Program(at, 1, text))
        return
    lines = text.split("\n")
    start, language = -1, ""
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if start < 0:
            start, language = number + 1, fence[1].lower()
            continue
        block = "\n".join(lines[start:number])
        if language in ("bash", "sh", "shell", "console", "zsh"):
            if runs:
                _read_shell(at, block, commands, writes, programs)
        else:
            programs.append(Program(at, start + 1, block))
        start = -1
    if start >= 0:
        programs.append(Program(at, start + 1, "\n".join(lines[start:])))
