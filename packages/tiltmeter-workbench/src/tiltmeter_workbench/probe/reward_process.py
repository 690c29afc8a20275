"""Run a reward in its own process, over JSON lines on pipes, so that a forged answer cannot harm the auditor.

A verifier that runs the model's code in its own process can be ended by that code (`os._exit`), patched by it, or made
to answer in its name. So the audit never shares a process with it. Every request carries a random mark that the reply
must repeat; a reply without it was forged. The file has both ends: `RewardProcess` sends requests, and this module run
with `python -m` answers them.
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
from tiltmeter.safety.loading import load_function
from tiltmeter_workbench import rewards

#: Outages that can be simulated in the process of a running reward.
Outage = Literal["network", "path", "disk", "descriptors"]
OUTAGES: dict[Outage, str] = {
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
class CompletionRow:
    """One completion to be scored, with the columns of its row in the dataset."""

    prompt: str
    completion: str
    columns: Mapping[str, Any]


class RewardProcessError(Exception):
    """The reward gave no scores, and why. `kind`: it "died", was "late", answered in another's name ("forged"), let a
    `SystemExit` of somebody else's pass ("exit"), or "raised"."""

    def __init__(self, kind: Literal["died", "late", "forged", "exit", "raised"], why: str) -> None:
        super().__init__(why)
        self.kind = kind


class RewardProcess:
    """A reward in its own process, with a planted secret and, where the machine allows, no network.

    `reward` is `file.py:function` (called as TRL does, or with one prompt and one completion), the folder of a reward
    model, or a judge's `file.toml`. `offline` says whether the network is off.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "reward.py"
    >>> _ = file.write_text("def score(prompt, completion, answer): return float(answer in completion)")
    >>> rows = [CompletionRow("2 + 2?", f"It is {number}", {"answer": "4"}) for number in (4, 5)]
    >>> with RewardProcess(f"{file}:score") as child:
    ...     child.score(rows)
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
        request_end, self._request_fd = os.pipe()
        self._reply_fd, reply_end = os.pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the child
        start = [] if network else offline_command()
        command = [*start, sys.executable, "-m", __name__, str(request_end), str(reply_end), reward]
        command += ["on"] if network else ["off"] if start else []
        # A session of its own: whatever it starts can be ended with it.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            pass_fds=(request_end, reply_end),
            start_new_session=True,
            env={**os.environ, "TMPDIR": self._home.name, SECRET: self.secret, FILE: str(self.file)},
        )
        os.close(request_end)
        os.close(reply_end)
        self._buffer = b""
        try:
            reply = self._ask({"ask": "open"}, LOAD_SECONDS)
        except RewardProcessError as error:
            printed = self.output_tail()
            self.close()
            raise AttachError(
                f"{reward} cannot be asked: {error}{f'; it printed: {printed}' if printed else ''}"
            ) from None
        self.offline, self.batched = bool(reply["offline"]), bool(reply["together"])

    def score(self, rows: Sequence[CompletionRow]) -> list[float | None]:
        """What it says of these rows, in one call if it takes batches; NaN stays NaN. Raises `RewardProcessError`."""
        questions = [{"prompt": row.prompt, "completion": row.completion, "columns": dict(row.columns)} for row in rows]
        reply = self._ask({"ask": "score", "rows": questions, "chat": self.chat}, self.seconds * len(rows))
        scores = reply.get("scores")
        if not isinstance(scores, list) or len(scores) != len(rows):
            raise RewardProcessError("forged", "the answer to one question was an answer to another")
        return scores

    def damage(self, what: Outage) -> bool:
        """Simulate an outage in the running process; whether that was possible."""
        return bool(self._ask({"ask": "break", "what": what}, self.seconds)["done"])

    def output_tail(self) -> str:
        """The end of what the process printed."""
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - 400))
        return self._output.read().decode("utf-8", "replace").strip().rpartition("\n")[2]

    def close(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # nothing of it is left
        self.process.wait()
        for handle in (self._request_fd, self._reply_fd):
            os.close(handle)
        self._output.close()
        self._home.cleanup()

    def __enter__(self) -> RewardProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        mark = secrets.token_hex(16)
        try:
            _write(self._request_fd, {**question, "mark": mark})
        except BrokenPipeError:
            raise RewardProcessError("died", self._ending()) from None
        line = self._read_line(time.monotonic() + seconds, seconds)
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict) or reply.get("mark") != mark:
            raise RewardProcessError("forged", "somebody else answered in the verifier's name")
        if "error" in reply:
            raise RewardProcessError("exit" if reply.get("exit") else "raised", str(reply["error"]))
        return reply

    def _read_line(self, until: float, seconds: float) -> bytes:
        while b"\n" not in self._buffer:
            if not select.select([self._reply_fd], [], [], max(0.0, until - time.monotonic()))[0]:
                raise RewardProcessError("late", f"no answer within {seconds:g} s")
            piece = os.read(self._reply_fd, 1 << 16)
            if not piece:
                raise RewardProcessError("died", self._ending())
            self._buffer += piece
            if len(self._buffer) > REPLY_BYTES:
                raise RewardProcessError("forged", f"it answered with more than {REPLY_BYTES} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
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
    request_fd, reply_fd, reward = int(arguments[0]), int(arguments[1]), arguments[2]
    for handle in (request_fd, reply_fd):
        os.set_inheritable(handle, False)  # what the verifier starts has no part in this conversation
    offline = arguments[3:] == ["off"] or (not arguments[3:] and leave_network())
    caller: RewardCaller | None = None
    with os.fdopen(request_fd, "r", encoding="utf-8") as questions:
        for line in questions:
            question = json.loads(line)
            reply: dict[str, Any]
            try:
                if question["ask"] == "open":
                    caller = RewardCaller(open_reward(reward))
                    reply = {"offline": offline, "together": caller.batched}
                elif question["ask"] == "break":
                    reply = {"done": cause_outage(question["what"])}
                else:
                    assert caller is not None
                    reply = {"scores": caller(question["rows"], chat=question["chat"])}
            except SystemExit as error:
                reply = {"error": f"SystemExit: {error.code}", "exit": True}
            except Exception as error:  # noqa: BLE001  # the other end decides what it means
                reply = {"error": f"{type(error).__name__}: {str(error)[:300]}"}
            _write(reply_fd, {**reply, "mark": question["mark"]})


def _write(
    handle: int,
    message: Mapping[str, Any],
    dumps: Callable[..., str] = json.dumps,
    write: Callable[..., int] = os.write,
) -> None:
    # Bound when this file was loaded: the model's code may have patched these functions since.
    rest = memoryview(dumps(message).encode() + b"\n")
    while len(rest):
        rest = rest[write(handle, rest) :]


class RewardCaller:
    """A reward function, called with batches or with single completions, by its signature."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        takes = inspect.signature(function).parameters
        self.everything = any(part.kind is part.VAR_KEYWORD for part in takes.values())
        self.names = [name for name, part in takes.items() if part.kind not in (part.VAR_KEYWORD, part.VAR_POSITIONAL)]
        self.batched = "completions" in self.names or (self.everything and "completion" not in self.names)

    def __call__(self, rows: Sequence[Mapping[str, Any]], *, chat: bool) -> list[float | None]:
        prompts = [_chat("user", row["prompt"]) if chat else row["prompt"] for row in rows]
        completions = [_chat("assistant", row["completion"]) if chat else row["completion"] for row in rows]
        if not self.batched:
            one = zip(rows, prompts, completions, strict=True)
            return [_number(_await_result(self._alone(row, prompt, text))) for row, prompt, text in one]
        columns = dict.fromkeys(name for row in rows for name in row["columns"])
        arguments = {name: [row["columns"].get(name) for row in rows] for name in columns if self._wants(name)}
        texts = {"prompts": prompts, "completions": completions}
        arguments |= {name: values for name, values in texts.items() if self._wants(name)}
        scores = list(_await_result(self.function(**arguments)))
        if len(scores) != len(rows):
            raise ValueError(f"{len(scores)} scores for {len(rows)} completions")
        return [_number(score) for score in scores]

    def _wants(self, name: str) -> bool:
        return self.everything or name in self.names

    def _alone(self, row: Mapping[str, Any], prompt: Any, text: Any) -> Any:
        if "completion" not in self.names:
            return self.function(prompt, text)
        columns = {name: value for name, value in row["columns"].items() if self._wants(name)}
        return self.function(**columns, **({"prompt": prompt} if self._wants("prompt") else {}), completion=text)


def _chat(role: str, text: str) -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def _await_result(result: Any) -> Any:
    if not inspect.isawaitable(result):
        return result
    import asyncio  # slow to import, and few need it

    async def wait() -> Any:
        return await result

    return asyncio.run(wait())


def _number(score: Any) -> float | None:
    if score is None:
        return None
    if isinstance(score, (str, bytes)):
        raise TypeError(f"a score is a number or None, not {score!r}")
    return float(score)


def open_reward(name: str) -> Callable[..., Any]:
    """The reward function that a file, a model's folder or a judge's description stands for."""
    if Path(name).is_dir():
        return rewards.model(name)
    if name.endswith(".toml"):
        return rewards.judge(name, every=0)  # the forgeries hold its canaries
    return load_function(name)


@cache
def offline_command() -> tuple[str, ...]:
    """The `unshare` prefix that starts a command without a network; empty where that does not work."""
    for start in (("unshare", "--net", "--"), ("unshare", "--map-current-user", "--net", "--")):
        try:
            done = subprocess.run([*start, "true"], capture_output=True, timeout=10.0, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return start
    return ()


def leave_network() -> bool:
    """Leave the network for good, as root or through a user namespace; whether the kernel allowed it.

    A process with threads, which a library may have started, gets no user namespace: hence `offline_command`.
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


def cause_outage(what: Outage) -> bool:
    """Simulate an outage in this process; whether that was possible."""
    if what == "network":
        return leave_network()
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
