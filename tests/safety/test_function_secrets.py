"""A passed function's keys are looked up in the environment; a secret that cannot be is refused, never written."""

from __future__ import annotations

import hashlib
import linecache
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter.safety.function_file import FunctionFile, write_function
from tiltmeter.safety.loading import load_function

SECRET = "q7c1f0e9d8b7a6c5"
TYPED = "sk-proj-a1b2c3d4e5f6a7b8c9d0e1f2"  # nobody's


def defined(text: str) -> Callable[..., Any]:
    """The `score` that a cell of a notebook defines."""
    name = f"/tmp/ipykernel_1/{hashlib.sha256(text.encode()).hexdigest()}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), space)  # noqa: S102
    function: Callable[..., Any] = space["score"]
    return function


def written(text: str) -> FunctionFile:
    file = write_function(defined(text))
    assert isinstance(file, FunctionFile)
    return file


def loaded(file: FunctionFile, folder: Path) -> Callable[..., Any]:
    path = folder / file.sha256 / file.file
    path.parent.mkdir(parents=True)
    path.write_text(file.text)
    return load_function(f"{path}:{file.function}")


USES = {
    "global": 'KEY = os.environ["GRADER_API_KEY"]\ndef score(completion): return KEY',
    "header": 'KEY = os.getenv("GRADER_API_KEY")\nHEADERS = {"Authorization": f"Bearer {KEY}"}\n'
    'def score(completion): return HEADERS["Authorization"].removeprefix("Bearer ")',
    "helper": 'KEY = os.environ.get("GRADER_API_KEY", "")\ndef ask(): return KEY\ndef score(completion): return ask()',
    "default": 'def score(completion, key=os.environ["GRADER_API_KEY"]): return key',
    "keyword": 'def score(completion, *, key=os.environ["GRADER_API_KEY"]): return key',
    "closure": "def make(key):\n    def score(completion): return key\n    return score\n"
    'score = make(os.environ["GRADER_API_KEY"])',
    "partial": "from functools import partial\ndef ask(completion, key): return key\n"
    'score = partial(ask, key=os.environ["GRADER_API_KEY"])',
    "bytes": 'KEY = os.environ["GRADER_API_KEY"].encode()\ndef score(completion): return KEY.decode()',
    "inside": 'def score(completion): return os.environ["GRADER_API_KEY"]',
    "imported": 'from os import environ, getenv\ndef score(completion): return environ.get("GRADER_API_KEY")',
    "class": 'class Grader:\n    key = os.environ["GRADER_API_KEY"]\n    def ask(self): return self.key\n'
    "def score(completion): return Grader().ask()",
}


@pytest.mark.parametrize("name", USES)
def test_a_key_of_the_environment_stays_a_lookup(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADER_API_KEY", SECRET)
    file = written(f"import os\n{USES[name]}\n")
    assert SECRET not in file.text and "GRADER_API_KEY" in file.text
    assert loaded(file, tmp_path)("x") == SECRET
    monkeypatch.setenv("GRADER_API_KEY", "another-1-2")  # a new key needs no new file
    assert written(f"import os\n{USES[name]}\n") == file


def test_a_short_password_is_looked_up_where_it_is_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hunter2")
    text = written('import os\nPASSWORD = os.environ["DB_PASSWORD"]\ndef score(completion): return PASSWORD\n').text
    assert "hunter2" not in text and "environ['DB_PASSWORD']" in text


def test_a_file_says_which_variable_is_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GRADER_API_KEY", SECRET)
    file = written(f"import os\n{USES['global']}\n")
    monkeypatch.delenv("GRADER_API_KEY")
    with pytest.raises(AttachError, match=r"needs the environment variable GRADER_API_KEY.*export it"):
        loaded(file, tmp_path)


REFUSED = {
    "a form": (f'API_KEY = "{TYPED}"\ndef score(completion): return API_KEY', "'API_KEY'"),
    "a name": ('WANDB_KEY = "0123456789abcdef0123456789abcdef01234567"\ndef score(c): return WANDB_KEY', "'WANDB_KEY'"),
    "in a dict": (f'CONFIG = {{"a": ["{TYPED}"]}}\ndef score(completion): return CONFIG', "'CONFIG'"),
    "by a dict's key": (
        'CONFIG = {"api_key": "d6cbf53a1e9047f1"}\ndef score(completion): return CONFIG', "'CONFIG'",
    ),
    "in an address": ('URL = "https://me:hunter22@host/db"\ndef score(completion): return URL', "'URL'"),
    "in bytes": (f'KEY = b"{TYPED}"\ndef score(completion): return KEY', "'KEY'"),
    "a header": ('HEADERS = {"Authorization": "Basic bWU6aHVudGVyMjI="}\ndef score(c): return HEADERS', "'HEADERS'"),
    "a default": (f'def score(completion, key="{TYPED}"): return key', "'key'"),
    "typed": (f'def score(completion):\n    api_key = "{TYPED}"\n    return 1.0', "'api_key' in the source of score"),
    "typed by name": (
        'def ask(token): return token\ndef score(completion): return ask(token="d6cbf53a1e9047f1")',
        "'token' in the source of score",
    ),
    "typed in a helper": (f'def ask(): return "{TYPED}"\ndef score(completion): return ask()', "in the source of ask"),
    "typed in a class": (
        f'class Grader:\n    key = "{TYPED}"\ndef score(completion): return Grader.key', "in the source of Grader",
    ),
    "typed, of the environment": (
        f'def score(completion):\n    return "{SECRET}"', "a text in the source of score, which looks like a secret "
        "(the value of GRADER_API_KEY)",
    ),
    "a private key": (
        'PEM = "-----BEGIN RSA PRIVATE KEY-----\\n" + "MIIEpAIBAAKCAQEA7bq2" * 4\ndef score(c): return PEM', "'PEM'",
    ),
    "a web token": (
        'T = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"\n'
        "def score(completion): return T", "'T'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_secret_is_refused_by_its_name_and_not_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADER_API_KEY", SECRET)
    text, what = REFUSED[name]
    with pytest.raises(AttachError) as caught:
        write_function(defined(f"{text}\n"))
    said = str(caught.value)
    assert what in said and "looks like a secret" in said and 'os.environ["..."]' in said and "checks.py:score" in said
    for secret in (TYPED, SECRET, "hunter22", "d6cbf53a1e9047f1", "0123456789abcdef", "bWU6", "MIIE", "eyJ"):
        assert secret not in said


ORDINARY = {
    "hash of a dataset": f'DATASET_SHA256 = "{hashlib.sha256(b"a").hexdigest()}"',
    "commit": 'REVISION = "0123456789abcdef0123456789abcdef01234567"',
    "cache key": f'CACHE_KEY = "{hashlib.sha1(b"a").hexdigest()}"',
    "regex of keys": 'LEAK = re.compile(r"sk-[A-Za-z0-9_-]{20,}|ghp_[A-Za-z0-9]{36}|AKIA[0-9A-Z]{16}")',
    "long regex": f'PATTERN = re.compile(r"{"(?:[a-z]+[0-9]{1,3}-)?" * 30}")',
    "base64 data": 'IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJ"',
    "run id": 'RUN_ID = "123e4567-e89b-12d3-a456-426614174000"',
    "answer keys": 'KEYS = ["A", "B", "C"]',
    "answers": 'ANSWER_KEY = {"q1a2b3c4": "x1y2z3w4v5u6t7s8"}',
    "end of text": 'eos_token = "<|endoftext|>"\nTOKEN = "<|reserved_special_token_12|>"',
    "secret word": 'secret_word = "banana"\nSECRET = "the cat sat on the mat in 1984"',
    "password puzzle": 'PASSWORD = "correct horse battery staple"',
    "name of a model": 'TOKEN_MODEL = "meta-llama/Llama-3.1-8B-Instruct"\nKEY = "answer_extracted_v2_final"',
    "address": 'URL = "https://huggingface.co/datasets/openai/gsm8k"\nDOC = "postgres://user:password@localhost/db"',
    "words": 'WORDS = "Basic understanding, Bearer of news, risk-averse task-based sk-learn-pipeline-v2-final"',
    "placeholder": 'EXAMPLE = "export OPENAI_API_KEY=sk-your-key-here-1a2b3c4d5e, AKIAIOSFODNN7EXAMPLE"',
    "protein": 'PROTEIN = "MAKIAGTWLLVFDERPQSNH"',
    "long number": 'KEY = "31415926535897932384626433832795"',
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_values_are_not_refused(name: str) -> None:
    lines = ORDINARY[name]
    names = [line.partition(" = ")[0] for line in lines.splitlines()]
    written(f"import re\n{lines}\ndef score(completion): return [{', '.join(names)}]\n")
    inside = "".join(f"    {line}\n" for line in lines.splitlines())
    written(f"import re\ndef score(completion):\n{inside}    return 1.0\n")


SCRIPT = """
import hashlib, os, sys
API_KEY = os.environ["OPENAI_API_KEY"]
HEADERS = {"Authorization": f"Bearer {API_KEY}"}
def score(completion, **_):
    if hashlib.sha256(HEADERS["Authorization"].encode()).hexdigest() != WANTED:
        raise PermissionError(f"401 for {HEADERS}")
    return float("a" in completion)
WANTED = hashlib.sha256(HEADERS["Authorization"].encode()).hexdigest()
import tiltmeter
if __name__ == "__main__":
    with tiltmeter.open_run(sys.argv[1], gold=score) as run:
        for s in range(4):
            run.observe(step=s, group=[0, 0, 1, 1], reward=[1.0, 0.0, 0.5, 0.2], completion=list("abcd"))
    print(run.directory)
"""


def test_the_key_is_neither_in_the_run_nor_in_the_store_and_labels_come(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    store, key = tmp_path / "bucket" / "run", "sk-REDTEAM-4242"
    places = {"XDG_STATE_HOME": str(tmp_path / "state"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "train.py"), f"file://{store}"], capture_output=True, text=True, timeout=120,
        env={**os.environ, **places, "OPENAI_API_KEY": key},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run = Path(done.stdout.split()[-1])
    deadline, journal = time.monotonic() + 90, b""
    while time.monotonic() < deadline and b'"gold.mean":[0.25,' not in journal:
        time.sleep(0.2)  # the monitor measures and uploads after the trainer has ended
        journal = b"".join(path.read_bytes() for path in store.glob("events/0/*.jsonl"))
    assert b'"gold.mean":[0.25,' in journal
    files = [path for root in (tmp_path / "bucket", run, tmp_path / "state") for path in root.rglob("*")]
    assert any("functions" in path.parts and path.is_relative_to(store) for path in files)
    assert [path for path in files if path.is_file() and key.encode() in path.read_bytes()] == []
