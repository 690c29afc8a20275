"""The programs that run in the sandbox around a candidate, as text, and the parser of their output.

They write lines that begin with a random mark. A candidate that searches its process can find the mark and write values
itself, which is the same as returning them. It cannot learn the expected values, which never enter the sandbox. Nothing
here grades a value.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

#: Reads the job and defines `say`: everything needed later is bound before the candidate is loaded.
OPENING = '''
import io, json, os, sys

class Sink(io.TextIOBase):
    """Where a candidate's prints go."""
    def write(self, text):
        return len(text)

def read_job(read=os.read):
    parts = []
    while not parts or not parts[-1].endswith(b"\\n"):
        part = read(0, 1 << 16)
        if not part:
            break
        parts.append(part)
    return json.loads(b"".join(parts).decode("ascii"))

JOB = read_job()

def say(kind, told, mark=JOB["mark"], write=os.write, dumps=json.dumps):
    line = ("\\n" + mark + " " + dumps([kind, told]) + "\\n").encode("ascii")
    while line:
        line = line[write(1, line):]

def leave(leave=os._exit):
    leave(0)

def load(code, name):
    """The names of a program that was run as a module of that name."""
    module = type(sys)(name)
    sys.modules[name] = module
    exec(compile(code, "<" + name + ">", "exec"), module.__dict__)
    return module.__dict__

def named(error):
    """Its class; where that is not Python's own, also the first of its bases that is."""
    kinds = [kind.__name__[:80] for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    name = type(error).__name__[:80]
    return name if name == kinds[0] else name + " (" + kinds[0] + ")"

say("started", list(sys.version_info[:2]))
sys.stdin, sys.stdout, sys.stderr = io.StringIO(), Sink(), Sink()
'''

#: Calls the candidate's function with each input and writes what it returned.
CALLING = '''
def literals(code):
    """The plain values that stand in a program, found before it is run."""
    found, waiting, documents = [], [compile(code, "<candidate>", "exec", 0x400)], set()
    while waiting and len(found) < 400:
        node = waiting.pop()
        if type(node).__name__ == "Expr":
            documents.add(id(node.value))
        if id(node) not in documents and type(node).__name__ in ("Constant", "List", "Tuple", "Set", "Dict", "UnaryOp"):
            try:
                found.append(clipped(encode(literal(node))))
            except (ValueError, TypeError, RecursionError):
                pass
        for field in node._fields:
            below = getattr(node, field, None)
            waiting += [one for one in (below if isinstance(below, list) else [below]) if hasattr(one, "_fields")]
    return sorted(set(found))

def literal(node, depth=20):
    kind = type(node).__name__
    if depth == 0:
        raise ValueError
    if kind == "Constant":
        return node.value
    if kind in ("List", "Tuple", "Set"):
        return {"List": list, "Tuple": tuple, "Set": set}[kind](literal(one, depth - 1) for one in node.elts)
    if kind == "Dict":
        return {literal(key, depth - 1): literal(one, depth - 1) for key, one in zip(node.keys, node.values)}
    if kind == "UnaryOp" and type(node.op).__name__ == "USub":
        return -literal(node.operand, depth - 1)
    raise ValueError

def main(encode=encode, decode=decode, say=say):
    inputs = JOB.pop("inputs")
    if JOB.pop("literals"):
        try:
            say("literals", literals(JOB["code"]))
        except BaseException as error:
            say("literals", [])
    try:
        function = load(JOB["code"], "candidate").get(JOB["function"])
    except BaseException as error:
        say("broken", named(error) + ": " + str(error)[:160].encode("ascii", "replace").decode())
        return
    if not callable(function):
        say("missing", JOB["function"])
        return
    for number, told in enumerate(inputs):
        args, kwargs = decode(told)
        try:
            value = function(*args, **kwargs)
        except BaseException as error:
            say("raised", [number, named(error)])
            continue
        try:
            say("value", [number, encode(value)])
        except BaseException as error:
            say("unencodable", [number, str(error)[:80].encode("ascii", "replace").decode() or named(error)])

try:
    main()
finally:
    leave()
'''


#: Runs the tests against the reference and writes each call with its result.
RECORDING = """
def main():
    names = load(JOB["reference"], "candidate")
    function, inside = names[JOB["function"]], []
    def recorder(*args, **kwargs):
        if inside:
            return function(*args, **kwargs)
        asked = encode((args, kwargs))
        inside.append(1)
        try:
            value = function(*args, **kwargs)
        except Exception as error:
            say("asked", [asked, "raised", named(error)])
            raise
        finally:
            inside.pop()
        say("asked", [asked, "value", encode(value)])
        return value
    run_tests(names, recorder)

try:
    main()
    say("held", None)
except NotPlain as error:
    say("unencodable", str(error)[:80])
except BaseException as error:
    say("broke", named(error) + ": " + str(error)[:160].encode("ascii", "replace").decode())
finally:
    leave()
"""

#: Runs the tests against a stub that replays what the candidate returned in another sandbox.
REPLAYING = """
import builtins

class Unseen(BaseException):
    pass

ENDS = (StopIteration, StopAsyncIteration)

def raised(told, names):
    # Of the class that was named, or of its base.
    name, _, base = told.partition(" (")
    for kind in (getattr(builtins, name, None), names.get(name), getattr(builtins, base[:-1], None)):
        # The end of an iteration would end a loop of the tests, and with it the tests.
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, ENDS):
            return kind.__new__(kind)  # whatever its own __init__ asks for
    return RuntimeError(told)

def main():
    names = load(JOB["reference"], "candidate")
    answers = {}
    for asked, kind, told in JOB["answers"]:
        answers.setdefault(canonical(asked), []).append((kind, told))
    def replayer(*args, **kwargs):
        asked = encode((args, kwargs))
        kept = answers.get(canonical(asked))
        if not kept:
            say("unseen", asked)  # at once: tests that catch everything would hide it
            raise Unseen()
        kind, told = kept.pop(0) if len(kept) > 1 else kept[0]
        if kind == "value":
            return decode(told)
        raise raised(told, names)
    run_tests(names, replayer)

try:
    main()
    say("held", None)
except BaseException as error:
    say("broke", named(error))
finally:
    leave()
"""

#: Runs the test program; if it defines `check`, calls it, as HumanEval does.
TESTING = """
import random

def run_tests(names, candidate):
    names = {**names, JOB["function"]: candidate, "candidate": candidate, "__name__": "tests"}
    random.seed(JOB["seed"])
    exec(compile(JOB["tests"], "<tests>", "exec"), names)
    if callable(names.get("check")):
        names["check"](candidate)
"""


@cache
def _values_source() -> str:
    # Annotations are not evaluated; without the import a fresh interpreter starts some milliseconds sooner.
    return (resources.files("tiltmeter.sandbox") / "values.py").read_text().replace("from typing import Any\n", "")


@cache
def calling_program() -> str:
    return _values_source() + OPENING + CALLING


@cache
def recording_program() -> str:
    return _values_source() + OPENING + TESTING + RECORDING


@cache
def replaying_program() -> str:
    return _values_source() + OPENING + TESTING + REPLAYING


def job_line(facts: Mapping[str, Any]) -> tuple[str, str]:
    """A fresh mark, and the line that a program reads from its standard input."""
    mark = secrets.token_hex(16)
    return mark, json.dumps({**facts, "mark": mark}) + "\n"


def parse_messages(stdout: str, mark: str) -> list[tuple[str, Any]]:
    """The messages of a program: (kind, payload) of each line that begins with its mark; other lines are ignored.

    >>> parse_messages('hello\\nm1 ["value", [0, 42]]\\nm2 ["value", [0, 43]]\\nm1 [[[', "m1")
    [('value', [0, 42])]
    """
    messages = []
    for line in stdout.split("\n"):
        if not line.startswith(f"{mark} "):
            continue
        try:
            kind, payload = json.loads(line[len(mark) + 1 :])
        except (ValueError, TypeError, RecursionError):
            continue
        if isinstance(kind, str):
            messages.append((kind, payload))
    return messages
