"""A function that was passed is the same in another process: from a script, a cell, a closure; or the fix is said."""

from __future__ import annotations

import hashlib
import json
import linecache
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter.safety.function_file import FunctionFile, write_function
from tiltmeter.safety.loading import load_function

#: A script with functions as people write them. It is run as one: what `__main__` holds is nobody's module.
SCRIPT = '''
import functools, json, math, re, sqlite3, sys, threading
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from beside import double
from tiltmeter.errors import AttachError
from tiltmeter.safety.function_file import write_function

NUMBER = re.compile(r"-?\\d+", re.I)
LIMIT, WORDS, TABLE = 3, {"yes", "no"}, {"a": [1.5, float("inf")], ("b",): None}
WEIGHTS = np.array([0.5, 0.25], np.float32)
HERE = Path(__file__).parent
OPEN = open(__file__)
FACTOR = 0.5

@dataclass
class Box:
    value: float = LIMIT
    def half(self) -> float: return self.value * FACTOR

def last(text): return NUMBER.findall(text)[-1:]
@functools.cache
def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)

def plain(completion, answer, *, most=LIMIT):
    """A check's docstring."""
    return float(last(completion) == [answer]) / most
plain.timeout = 30
def everything(completion):
    assert fibonacci(60) == 1548008755920 and even(10) and double(2) == 4 and math.floor(2.5) == 2
    return float(Box().half() == 1.5 and WEIGHTS.sum() == 0.75 and TABLE["a"][1] > 1e300
                 and (HERE / "beside.py").exists() and "yes" in WORDS and Fraction(1, 2) == 0.5)
def maker(limit, also):
    def closure(completion): return min(1.0, len(completion) / limit) * also(completion)
    return closure
def outer(limit):
    def inner(completion): return limit if len(completion) < 2 else inner(completion[1:])
    return inner
def decorate(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs): return 1.0 - function(*args, **kwargs)
    return wrapper
@decorate
def decorated(completion, answer): return float(answer in completion)
first, second = lambda completion: 0.25, lambda completion: LIMIT / 4
later = lambda completion: undefined(completion)
def of_file(completion): return OPEN.read()
class Checker:
    def __call__(self, completion): return 1.0
    def score(self, completion): return 1.0
big = list(range(300_000))
def heavy(completion): return big[0]

FUNCTIONS = {
    "plain": plain, "everything": everything, "closure": maker(10, lambda text: 0.5), "self": outer(0.75),
    "decorated": decorated, "first": first, "second": second, "partial": functools.partial(plain, answer="4", most=4),
    "module": double, "later": later, "file": of_file, "lock": maker(1, threading.Lock()), "object": Checker(),
    "method": Checker().score, "class": Checker, "builtin": len, "no_source": eval("lambda completion: 1.0"),
    "rows": maker(1, iter([1])), "big": heavy, "connection": maker(1, sqlite3.connect(":memory:")),
}
said = {}
for name, function in FUNCTIONS.items():
    try:
        file = write_function(function)
        parts = ("function", "file", "text")
        said[name] = {"name": file} if isinstance(file, str) else {part: getattr(file, part) for part in parts}
    except AttachError as error:
        said[name] = {"error": str(error)}
json.dump(said, sys.stdout)
'''  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "beside.py").write_text("def double(n): return 2 * n\n")
    done = subprocess.run([sys.executable, str(folder / "train.py")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, str]] = json.loads(done.stdout)
    return result


def elsewhere(text: str, function: str, folder: Path, file: str = "train.py") -> Callable[..., Any]:
    """The function, loaded from a file whose folder is named by its hash, as the monitor does."""
    path = folder / hashlib.sha256(text.encode()).hexdigest() / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return load_function(f"{path}:{function}")


@pytest.mark.parametrize(
    ("name", "arguments", "value"),
    [
        ("plain", {"completion": "it is 4", "answer": "4"}, 1 / 3),
        ("everything", {"completion": ""}, 1.0),
        ("closure", {"completion": "12345"}, 0.25),
        ("self", {"completion": "12345"}, 0.75),
        ("decorated", {"completion": "it is 4", "answer": "4"}, 0.0),
        ("first", {"completion": ""}, 0.25),
        ("second", {"completion": ""}, 0.75),
        ("partial", {"completion": "it is 4"}, 0.25),
    ],
)
def test_a_function_of_a_script_does_the_same_elsewhere(
    said: dict[str, dict[str, str]], name: str, arguments: dict[str, str], value: float, tmp_path: Path
) -> None:
    written = said[name]
    assert "error" not in written and written["file"] == "train.py"
    function = elsewhere(written["text"], written["function"], tmp_path)
    assert function(**arguments) == pytest.approx(value)
    if name == "plain":
        assert vars(function)["timeout"] == 30 and function.__doc__ == "A check's docstring."


def test_a_function_of_a_module_is_named_by_its_file(said: dict[str, dict[str, str]]) -> None:
    assert said["module"]["name"].endswith("/beside.py:double")
    assert load_function(said["module"]["name"])(4) == 8


@pytest.mark.parametrize(
    ("name", "cause", "fix"),
    [
        ("later", "uses 'undefined', which is not defined", "define it before"),
        ("file", "uses 'OPEN', an open TextIOWrapper", "open it in a function with @functools.cache"),
        ("lock", "uses 'also', an open lock", "@functools.cache"),
        ("connection", "uses 'also', an open Connection", "@functools.cache"),
        ("object", "is an object of class Checker", "write a function that makes the Checker"),
        ("method", "is a method of an object of class Checker", "write a function that makes the object"),
        ("class", "is a class", "write a function that uses it"),
        ("builtin", "is a function in C", "def score(completion)"),
        ("no_source", "has no source text", "define it in a script, a notebook's cell or a file"),
        ("rows", "uses 'also', a list_iterator that is partly used", "make a list of it"),
        ("big", "uses values of ", "keep them in a file"),
    ],
)
def test_what_cannot_be_written_down_is_refused_with_the_fix(
    said: dict[str, dict[str, str]], name: str, cause: str, fix: str
) -> None:
    error = said[name]["error"]
    assert error.startswith("gold=") and cause in error and fix in error


def cell(text: str, number: int, space: dict[str, Any]) -> None:
    """Run a notebook's cell as Jupyter does: its text is kept where Python looks for lines of source."""
    name = f"/tmp/ipykernel_1/{number}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), space)  # noqa: S102


def test_a_function_of_a_cell_uses_what_other_cells_define(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    cell("from dataclasses import dataclass\nLIMIT = 2\n@dataclass\nclass Pair:\n    a: int = LIMIT\n", 1, space)
    cell("def score(completion):\n    return float(len(completion) == Pair().a)\n", 2, space)
    file = write_function(space["score"])
    assert isinstance(file, FunctionFile) and file.file == "notebook.py"
    assert elsewhere(file.text, "score", tmp_path, file.file)("ab") == 1.0
    cell("def score(completion):\n    return 0.5\n", 2, {})  # the cell was edited and not run again
    with pytest.raises(AttachError, match=r"is not what notebook\.py says now.*run the file or the cell again"):
        write_function(space["score"])


def test_a_file_that_does_not_have_the_hash_of_its_folder_is_not_run(tmp_path: Path) -> None:
    text = "def score(completion): return 1.0\n"
    path = tmp_path / hashlib.sha256(text.encode()).hexdigest() / "train.py"
    path.parent.mkdir()
    path.write_text(f"{text}open({str(tmp_path / 'was_run')!r}, 'w')\n")
    with pytest.raises(AttachError, match="has changed since it was written"):
        load_function(f"{path}:score")
    assert not (tmp_path / "was_run").exists()
    # Neither a module nor bytecode beside it is used: others may write into a run directory.
    path.write_text(text)
    planted = path.parent / "planted_beside.py"
    planted.write_text("")
    load_function(f"{path}:score")
    assert str(path.parent) not in sys.path and not (path.parent / "__pycache__").exists()


def test_two_closures_with_values_of_one_name_stay_apart(tmp_path: Path) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    text = (
        "def maker(limit, then):\n"
        "    def score(completion): return limit + (then(completion) if then else 0.0)\n"
        "    return score\n"
        "score = maker(0.25, maker(0.5, None))\n"
    )
    cell(text, 3, space)
    file = write_function(space["score"])
    assert isinstance(file, FunctionFile)
    assert elsewhere(file.text, file.function, tmp_path)("x") == 0.75


def test_a_model_is_refused_by_its_kind() -> None:
    model = types.new_class("Tokenizer", (), {}, lambda body: body.update(__module__="transformers.tokenization"))
    space: dict[str, Any] = {"__name__": "__main__", "tokenizer": model()}
    cell("def score(completion): return tokenizer(completion)\n", 4, space)
    with pytest.raises(
        AttachError, match="uses 'tokenizer', a Tokenizer, which cannot be handed to another process: load"
    ):
        write_function(space["score"])
