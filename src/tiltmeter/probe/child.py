"""A reward in a process of its own: what it is asked goes in as JSON lines, what it says comes out, and it may die.

A verifier that runs the model's code in its own process can be ended by that code (`os._exit`), patched by it, or made
to answer in its name. So nobody who audits one shares a process with it. Every question carries a random mark that the
answer must repeat; an answer without it was written by somebody else. The file is both ends: `Child` asks, and
`python -m tiltmeter.probe.child` answers.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import resource
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from tiltmeter.errors import AttachError

#: What can be taken away from a reward that runs, as it may happen to a machine.
Broken = Literal["network", "path", "disk", "descriptors"]
BREAKS: dict[Broken, str] = {
    "network": "without a network",
    "path": "without programs to call",
    "disk": "on a full disk",
    "descriptors": "without free file descriptors",
}
SECRET, FILE = "TILTMETER_AUDIT_SECRET", "TILTMETER_AUDIT_FILE"  # environment variables: a canary and where one lies
LOAD_SECONDS = 180.0  # a reward model is read from disk
REPLY_BYTES = 1 << 20
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # of unshare(2)


@dataclass(frozen=True, slots=True)
class Row:
    """One completion to be scored, with the columns of its row in the dataset."""

    prompt: str
    completion: str
    columns: Mapping[str, Any]


class ChildError(Exception):
    """The reward gave no scores, and why. `kind`: it "died", was "late", answered in another's name ("forged"), let a
    `SystemExit` of somebody else's pass ("exit"), or "raised"."""

    def __init__(self, kind: Literal["died", "late", "forged", "exit", "raised"], why: str) -> None:
        super().__init__(why)
        self.kind = kind


class Child:
    """A reward in a process of its own, with a secret to steal and, where the machine allows, no network.

    `reward` is `file.py:function` (called as TRL does, or with one prompt and one completion), the folder of a reward
    model, or a judge's `file.toml`. `offline` says whether the network is off.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "reward.py"
    >>> _ = file.write_text("def score(prompt, completion, answer): return float(answer in completion)")
    >>> with Child(f"{file}:score") as child:
    ...     child.score([Row("2 + 2?", "It is 4", {"answer": "4"}), Row("2 + 2?", "It is 5", {"answer": "4"})])
    [1.0, 0.0]
    """

    def __init__(self, reward: str, *, network: bool = False, seconds: float = 30.0, chat: bool = False) -> None:
        self.reward, self.seconds, self.chat = reward, seconds, chat
        # Its temporary files go there too: it is killed, and could not remove them.
        self._home = tempfile.TemporaryDirectory(prefix="tiltmeter-audit-", ignore_cleanup_errors=True)
        Path(self._home.name).chmod(0o755)  # as a home directory: open to other accounts, which a sandbox may use
        self.secret = secrets.token_hex(16)
        self.file = Path(self._home.name) / "secret.txt"
        self.file.write_text(secrets.token_hex(16), "utf-8")
        asks, self._asks = os.pipe()
        self._hears, says = os.pipe()
        self._noise = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the child
        start = [] if network else fenced()
        command = [*start, sys.executable, "-m", "tiltmeter.probe.child", str(asks), str(says), reward]
        command += ["on"] if network else ["off"] if start else []
        # A session of its own: whatever it starts can be ended with it.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._noise,
            stderr=self._noise,
            pass_fds=(asks, says),
            start_new_session=True,
            env={**os.environ, "TMPDIR": self._home.name, SECRET: self.secret, FILE: str(self.file)},
        )
        os.close(asks)
        os.close(says)
        self._rest = b""
        try:
            told = self._ask({"ask": "open"}, LOAD_SECONDS)
        except ChildError as error:
            said = self.noise()
            self.close()
            raise AttachError(f"{reward} cannot be asked: {error}{f'; it printed: {said}' if said else ''}") from None
        self.offline, self.together = bool(told["offline"]), bool(told["together"])

    def score(self, rows: Sequence[Row]) -> list[float | None]:
        """What it says of these rows, in one call if it takes batches; NaN stays NaN. Raises `ChildError`."""
        asked = [{"prompt": row.prompt, "completion": row.completion, "columns": dict(row.columns)} for row in rows]
        told = self._ask({"ask": "score", "rows": asked, "chat": self.chat}, self.seconds * len(rows))
        scores = told.get("scores")
        if not isinstance(scores, list) or len(scores) != len(rows):
            raise ChildError("forged", "the answer to one question was an answer to another")
        return scores

    def damage(self, what: Broken) -> bool:
        """Take something away from the running process; whether that was possible."""
        return bool(self._ask({"ask": "break", "what": what}, self.seconds)["done"])

    def noise(self) -> str:
        """The end of what the process printed."""
        size = self._noise.seek(0, os.SEEK_END)
        self._noise.seek(max(0, size - 400))
        return self._noise.read().decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing of it is left
        self.process.wait()
        for handle in (self._asks, self._hears):
            os.close(handle)
        self._noise.close()
        self._home.cleanup()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        mark = secrets.token_hex(16)
        try:
            _write(self._asks, {**question, "mark": mark})
        except BrokenPipeError:
            raise ChildError("died", self._ending()) from None
        line = self._line(time.monotonic() + seconds, seconds)
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict) or told.get("mark") != mark:
            raise ChildError("forged", "somebody else answered in the verifier's name")
        if "error" in told:
            raise ChildError("exit" if told.get("exit") else "raised", str(told["error"]))
        return told

    def _line(self, until: float, seconds: float) -> bytes:
        while b"\n" not in self._rest:
            if not select.select([self._hears], [], [], max(0.0, until - time.monotonic()))[0]:
                raise ChildError("late", f"no answer within {seconds:g} s")
            piece = os.read(self._hears, 1 << 16)
            if not piece:
                raise ChildError("died", self._ending())
            self._rest += piece
            if len(self._rest) > REPLY_BYTES:
                raise ChildError("forged", f"it answered with more than {REPLY_BYTES} bytes")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ending(self) -> str:
        try:
            code = self.process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return "its pipe was closed"
        return f"the process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


# -- the other end ---------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> None:
    """Answer questions until there are no more."""
    hears, says, reward = int(arguments[0]), int(arguments[1]), arguments[2]
    for handle in (hears, says):
        os.set_inheritable(handle, False)  # what the verifier starts has no part in this conversation
    offline = arguments[3:] == ["off"] or (not arguments[3:] and without_network())
    called: Called | None = None
    with os.fdopen(hears, "r", encoding="utf-8") as questions:
        for line in questions:
            question = json.loads(line)
            told: dict[str, Any]
            try:
                if question["ask"] == "open":
                    called = Called(open_reward(reward))
                    told = {"offline": offline, "together": called.together}
                elif question["ask"] == "break":
                    told = {"done": take_away(question["what"])}
                else:
                    assert called is not None
                    told = {"scores": called(question["rows"], chat=question["chat"])}
            except SystemExit as error:
                told = {"error": f"SystemExit: {error.code}", "exit": True}
            except Exception as error:  # noqa: BLE001  # the other end decides what it means
                told = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            _write(says, {**told, "mark": question["mark"]})


def _write(
    handle: int,
    message: Mapping[str, Any],
    dumps: Callable[..., str] = json.dumps,
    write: Callable[..., int] = os.write,
) -> None:
    # What it needs was taken when this file was loaded: the model's code may have patched it since.
    rest = memoryview(dumps(message).encode() + b"\n")
    while len(rest):
        rest = rest[write(handle, rest) :]


class Called:
    """A reward function, asked in whichever of the two ways it is written for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        takes = inspect.signature(function).parameters
        self.everything = any(part.kind is part.VAR_KEYWORD for part in takes.values())
        self.names = [name for name, part in takes.items() if part.kind not in (part.VAR_KEYWORD, part.VAR_POSITIONAL)]
        self.together = "completions" in self.names or (self.everything and "completion" not in self.names)

    def __call__(self, rows: Sequence[Mapping[str, Any]], *, chat: bool) -> list[float | None]:
        prompts = [_chat("user", row["prompt"]) if chat else row["prompt"] for row in rows]
        said = [_chat("assistant", row["completion"]) if chat else row["completion"] for row in rows]
        if not self.together:
            one = zip(rows, prompts, said, strict=True)
            return [_number(_awaited(self._alone(row, prompt, text))) for row, prompt, text in one]
        columns = dict.fromkeys(name for row in rows for name in row["columns"])
        given = {name: [row["columns"].get(name) for row in rows] for name in columns if self._wants(name)}
        texts = {"prompts": prompts, "completions": said}
        given |= {name: values for name, values in texts.items() if self._wants(name)}
        told = list(_awaited(self.function(**given)))
        if len(told) != len(rows):
            raise ValueError(f"{len(told)} scores for {len(rows)} completions")
        return [_number(score) for score in told]

    def _wants(self, name: str) -> bool:
        return self.everything or name in self.names

    def _alone(self, row: Mapping[str, Any], prompt: Any, text: Any) -> Any:
        if "completion" not in self.names:
            return self.function(prompt, text)
        columns = {name: value for name, value in row["columns"].items() if self._wants(name)}
        return self.function(**columns, **({"prompt": prompt} if self._wants("prompt") else {}), completion=text)


def _chat(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def _awaited(told: Any) -> Any:
    if not inspect.isawaitable(told):
        return told
    import asyncio  # slow to import, and few need it

    async def waited() -> Any:
        return await told

    return asyncio.run(waited())


def _number(score: Any) -> float | None:
    if score is None:
        return None
    if isinstance(score, (str, bytes)):
        raise TypeError(f"a score is a number or None, not {score!r}")
    return float(score)


def open_reward(name: str) -> Callable[..., Any]:
    """The reward function that a file, a model's folder or a judge's description stands for."""
    from tiltmeter import rewards
    from tiltmeter.loading import load_function

    if Path(name).is_dir():
        return rewards.model(name)
    if name.endswith(".toml"):
        return rewards.judge(name, every=0)  # the forgeries hold its canaries
    return load_function(name)


@cache
def fenced() -> tuple[str, ...]:
    """What to write before a command so that it starts without a network; nothing where that does not work."""
    for start in (("unshare", "--net", "--"), ("unshare", "--map-current-user", "--net", "--")):
        try:
            done = subprocess.run([*start, "true"], capture_output=True, timeout=10.0, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return start
    return ()


def without_network() -> bool:
    """Leave the network for good, as root or through a user namespace; whether the kernel allowed it.

    A process with threads, which a library may have started, gets no user namespace: hence `fenced`.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK) == 0:
        return True
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
        return False
    for file, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        try:
            Path(f"/proc/self/{file}").write_text(text, "ascii")
        except OSError:
            return True  # as nobody, then; the network is off all the same
    return True


def take_away(what: Broken) -> bool:
    """Break this process's surroundings as a machine may break them; whether that was possible."""
    if what == "network":
        return without_network()
    if what == "path":
        os.environ.update(PATH="", HOME="/nonexistent")
        return True
    if what == "disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        return True
    lowest = os.open(os.devnull, os.O_RDONLY)  # the number that the next file would get
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return True


if __name__ == "__main__":
    main(sys.argv[1:])
