"""What a program's end is called, and that a sandbox which breaks is never a program that is wrong."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tiltmeter.errors import AttachError
from tiltmeter.sandbox import (
    ACCEPTED,
    Ended,
    Limits,
    Sandbox,
    SandboxUnavailable,
    interpreter,
    landlock,
    open_sandbox,
    seccomp,
    tiers,
)
from tiltmeter.sandbox.bubblewrap import Bubblewrap
from tiltmeter.sandbox.exit_reason import classify_end
from tiltmeter.sandbox.landlock import Landlock
from tiltmeter.sandbox.pool import Pool
from tiltmeter.sandbox.probed_sandbox import Probe, ProbedSandbox, Tier
from tiltmeter.sandbox.probes import run_probes
from tiltmeter.sandbox.process import ProcessResult
from tiltmeter.sandbox.unsandboxed import UnsandboxedTier

LIMITS = Limits(wall_seconds=20.0)
KINDS = [("strict", "bwrap"), ("pooled", "bwrap"), ("strict", "landlock")]


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: " ".join(kind))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    isolation, tier = request.param
    try:
        place = open_sandbox(isolation, limits=LIMITS, tier=tier)
    except SandboxUnavailable as error:
        pytest.skip(f"no such sandbox here: {error}")
    with place:
        assert (place.tier, place.isolation) == (tier, isolation)
        yield place


def test_a_program_cannot_use_up_the_accounts_timers(sandbox: Sandbox) -> None:
    ended = sandbox.run("import resource; print(resource.getrlimit(resource.RLIMIT_SIGPENDING))")
    assert ended.stdout == "(64, 64)\n"


@pytest.fixture(scope="module")
def bwrap() -> Bubblewrap:
    try:
        open_sandbox(tier="bwrap").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no such sandbox here: {error}")
    return Bubblewrap(LIMITS)


@pytest.mark.parametrize(
    ("program", "code", "out", "err"),
    [
        ("print(int(input()) * 2)", 0, "42\n", ""),
        ("import sys; sys.exit(7)", 7, "", ""),
        ("exit()", 0, "", ""),
        ("import sys; sys.exit('no')", 1, "", "no\n"),
        ("print('é\\ud800'.encode('utf-8', 'replace').decode())", 0, "é?\n", ""),
        ("raise ValueError('why')", 1, "", "ValueError: why\n"),
        ("def (:", 1, "", "SyntaxError: invalid syntax\n"),
        ("x = '\ud800'", 1, "", "surrogates not allowed\n"),
        ("import atexit; atexit.register(print, 'bye')", 0, "bye\n", ""),
        ("import threading; threading.Timer(0.1, print, ['late']).start()", 0, "late\n", ""),
        ("import asyncio, time; asyncio.run(asyncio.sleep(0.01)); print(__name__)", 0, "__main__\n", ""),
        ("import ssl, sqlite3, decimal, lzma, ctypes, json, re; print(json.dumps([1]))", 0, "[1]\n", ""),
        ("import os; os.abort()", 134, "", ""),
    ],
)
def test_a_program_ends_as_it_would_anywhere(sandbox: Sandbox, program: str, code: int, out: str, err: str) -> None:
    ended = sandbox.run(program, "21\n")
    assert ended.kind == "ended", ended
    assert ended.stdout == out
    assert ended.stderr.endswith(err) if err else ended.stderr == "" or code == 134
    assert ended.exit_code in ((code, 132, 139) if code == 134 else (code,))  # it may not signal itself


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("x = bytearray(10 ** 10)", "limit met: memory"),
        ("print('x' * 10 ** 6)", "more than 64 KB of output"),
        ("import sys; sys.stderr.write('x' * 10 ** 6)", "more than 64 KB of output"),
        ("import os; fs = [os.dup(0) for _ in range(99)]", "limit met: open files"),
    ],
)
def test_a_limit_that_is_met_is_named(sandbox: Sandbox, program: str, reason: str) -> None:
    ended = sandbox.run(program)
    assert (ended.kind, ended.reason) == ("limit", reason)


def test_processor_time_and_files_are_limited(bwrap: Bubblewrap) -> None:
    short = replace(LIMITS, cpu_seconds=1.0)
    assert bwrap.once("while True: pass", "", short).reason == "more than 1 s of processor time"
    assert bwrap.once("open('/tmp/x', 'w').write('x' * (20 << 20))", "").reason == "limit met: file size"
    many = "for n in range(9):\n    open(f'/tmp/{n}', 'w').write('x' * (8 << 20))"
    assert bwrap.once(many, "").reason == "limit met: room for files"


def test_every_call_that_the_filter_names_exists() -> None:
    """A name with a slip of the pen would be a call that nobody denies."""
    lists = (
        seccomp.OTHER_PROCESSES,
        seccomp.SIGNALS,
        seccomp.MOUNTS,
        seccomp.NAMESPACES,
        seccomp.KERNEL,
        seccomp.MEMORY,
        seccomp.FORKS,
    )
    names = " ".join([*lists, seccomp.QUEUES, seccomp.SOCKETS, seccomp.UNGOVERNED]).split()
    known = seccomp._library().seccomp_syscall_resolve_name
    assert len(names) > 80
    assert [name for name in [*names, "ptrase"] if known(name.encode()) == -1] == ["ptrase"]


def test_several_at_once_come_back_in_order(sandbox: Sandbox) -> None:
    ended = sandbox.run_many([("print(int(input()) ** 2)", str(number)) for number in range(12)], workers=3)
    assert [one.stdout for one in ended] == [f"{number**2}\n" for number in range(12)]


class Said:
    """A tier that answers what it was told to, and counts."""

    name = "said"

    def __init__(self, *answers: Ended) -> None:
        self.limits, self.answers, self.asked = Limits(), list(answers), 0

    def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
        self.asked += 1
        return self.answers.pop(0)

    def close(self) -> None: ...


def end(kind: str, seconds: float = 0.1, stdout: str = "") -> Ended:
    return Ended(kind, 0 if kind == "ended" else None, stdout, "", "why", seconds)  # type: ignore[arg-type]


def test_what_breaks_on_our_side_is_tried_three_times_and_then_said() -> None:
    broken = Said(end("infra"), end("infra"), end("infra"), end("ended"))
    ended = ProbedSandbox(broken, "strict").run("")
    assert (ended.kind, ended.reason, broken.asked) == ("infra", "why (tried 3 times)", 3)
    mended = Said(end("infra"), end("ended"))
    assert ProbedSandbox(mended, "strict").run("").kind == "ended"


def test_a_timeout_is_the_programs_only_if_an_empty_program_is_fast() -> None:
    assert ProbedSandbox(Said(end("timeout", 5), end("ended", 0.1, "1\n")), "strict").run("").kind == "timeout"
    busy = [end("timeout", 5), end("ended", 3.0, "1\n")] * 3
    ended = ProbedSandbox(Said(*busy), "strict").run("")
    assert ended.kind == "infra"
    assert "the machine is too busy to tell" in ended.reason


def test_a_kill_is_blamed_on_the_machine_only_where_the_kernel_counted_one() -> None:
    seen = ProcessResult(b"", b"", True, b"", 0, "", 0.5, 0)
    assert classify_end(seen, Limits(), 137).kind == "ended"
    assert classify_end(replace(seen, oom_kills=1), Limits(), 137).kind == "infra"
    assert classify_end(replace(seen, seconds=4.0), Limits(), 137).kind == "limit"


def broken_ways(tmp_path: Path) -> dict[str, Tier]:
    """Set-ups that cannot work."""
    fails = tmp_path / "bwrap"
    fails.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fails.chmod(0o755)
    gone, unreadable, missing = (Bubblewrap(LIMITS) for _ in range(3))
    gone._prefix = [*gone._prefix[:-1], str(tmp_path / "no-such-bwrap")]
    unreadable.interpreter = replace(unreadable.interpreter, program="/root/none", prefix="/root")
    unreadable.interpreter = replace(unreadable.interpreter, stdlib="/root/lib/python3")
    missing.interpreter = replace(missing.interpreter, loader="")
    alone = Landlock(LIMITS)
    alone._task = {**alone._task, "landlock": {**alone._task["landlock"], "allowed": [["/no/such", 4]]}}
    pool = Pool(LIMITS, program=str(fails))
    return {
        "no bwrap": gone,
        "bwrap fails": Bubblewrap(LIMITS, program=str(fails)),
        "interpreter that cannot be read": unreadable,
        "interpreter that cannot be loaded": missing,
        "landlock refused": alone,
        "pool that cannot start": pool,
    }


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_set_up_that_fails_is_never_a_wrong_answer(bwrap: Bubblewrap, folder: Path) -> None:
    for way, tier in broken_ways(folder).items():
        ended = tier.once("print(1)", "")
        assert (ended.kind, ended.exit_code) == ("infra", None), f"{way}: {ended}"
        assert ended.reason, way


def test_the_reason_has_the_launchers_own_words(bwrap: Bubblewrap, folder: Path) -> None:
    reason = broken_ways(folder)["bwrap fails"].once("print(1)", "").reason
    assert reason == "the sandbox was not set up: exit code 1: bwrap: setting up uid map: Permission denied"


def test_probes_catch_a_sandbox_that_is_none() -> None:
    found = {one.name: one.held for one in run_probes(UnsandboxedTier(replace(LIMITS, wall_seconds=10.0)))}
    assert len(found) == 12
    assert not found["host file"]
    assert not found["loopback"]
    assert not found["write outside"]
    assert not found["survivors"] or not found["forks"]
    assert not found["tracing"]


def test_probes_in_which_nothing_runs_do_not_pass() -> None:
    class Silent(Said):
        def once(self, program: str, stdin: str, limits: Limits | None = None) -> Ended:
            return end("ended")

    assert [one.name for one in run_probes(Silent()) if one.held] == []


def test_where_no_tier_holds_the_error_says_what_each_lacks_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(limits: Limits) -> Tier:
        raise AttachError("bwrap is not here: install bubblewrap")

    monkeypatch.setattr(tiers, "Bubblewrap", missing)
    monkeypatch.setattr(tiers, "Landlock", lambda limits: UnsandboxedTier(replace(limits, wall_seconds=10.0)))
    with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap libseccomp2") as raised:
        open_sandbox(fresh=True)
    assert "bwrap: bwrap is not here: install bubblewrap; landlock: " in str(raised.value)
    assert "host file (it read a file of this machine)" in str(raised.value)


def test_the_next_tier_is_used_where_the_first_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "_attempts", {})
    monkeypatch.setattr(tiers, "Bubblewrap", lambda limits: UnsandboxedTier(replace(limits, wall_seconds=10.0)))
    try:
        Landlock(LIMITS)
    except AttachError as error:
        pytest.skip(str(error))
    with open_sandbox("pooled", tier="landlock") as place:
        assert (place.tier, place.isolation) == ("landlock", "strict")
    with open_sandbox() as place:
        assert place.tier == "landlock"


def test_probes_run_once_unless_asked_again(monkeypatch: pytest.MonkeyPatch, bwrap: Bubblewrap) -> None:
    asked: list[Tier] = []

    def counted(tier: Tier) -> list[Probe]:
        asked.append(tier)
        return []

    monkeypatch.setattr(tiers, "run_probes", counted)
    monkeypatch.setattr(tiers, "_attempts", {})
    for fresh in (False, False, True):
        open_sandbox(fresh=fresh).close()
    assert len(asked) == 2


def test_no_sandbox_is_had_only_by_saying_so_word_for_word() -> None:
    with pytest.raises(AttachError, match="word for word"):
        open_sandbox(unsandboxed="yes")
    with open_sandbox(unsandboxed=ACCEPTED, limits=LIMITS) as place:
        assert place.tier == "none"
        assert place.run("print(1)").stdout == "1\n"
    with pytest.raises(AttachError, match="no isolation 'loose'"):
        open_sandbox("loose")  # type: ignore[arg-type]
    with pytest.raises(SandboxUnavailable, match="no tier 'none'"):
        open_sandbox(tier="none")


class Elsewhere:
    """A service that runs programs in our own first tier, in place of another machine."""

    def __init__(self, tier: Tier) -> None:
        self.tier = tier

    def run(self, program: str, stdin: str, limits: Limits) -> Ended:
        return self.tier.once(program, stdin, limits)


def test_a_service_is_probed_through_itself_and_used_alone(bwrap: Bubblewrap) -> None:
    with open_sandbox(remote=Elsewhere(bwrap), limits=LIMITS) as place:
        assert place.tier == "remote"
        assert place.run("print(3)").stdout == "3\n"
    with pytest.raises(SandboxUnavailable, match=r"remote: .*host file"):
        open_sandbox(remote=Elsewhere(UnsandboxedTier(LIMITS)), limits=replace(LIMITS, wall_seconds=10.0))


def test_an_interpreter_in_a_closed_folder_is_copied(bwrap: Bubblewrap) -> None:
    """Root's Python often lies in root's home, where the account that runs programs cannot go."""
    ours = f"{sys.base_prefix}/bin/python3.{sys.version_info.minor}"
    copy = interpreter._copy(interpreter._query(ours))
    assert all(interpreter.open_to_all(path) for path, _ in copy.mounts)
    for tier in (Bubblewrap(LIMITS, copy), Landlock(LIMITS, copy)):
        assert tier.once("import sys, ctypes, sqlite3; print(sys.version_info[:2])", "").kind == "ended"


@pytest.fixture
def packaged(tmp_path: Path) -> interpreter.Interpreter:
    """A Python whose installed packages lie among its libraries, once in its own folder and once in another's."""
    stdlib = tmp_path / "lib" / "python3.11"
    for name in ("json", "site-packages/expected"):
        (stdlib / name).mkdir(parents=True)
    for file in ("os.py", "../libpython3.11.so.1.0", "site-packages/expected/answers.json"):
        (stdlib / file).write_text("")
    (tmp_path / "lib" / "python3.9" / "dist-packages").mkdir(parents=True)
    libraries = (str(tmp_path / "lib"), "/usr/lib")
    return interpreter.Interpreter(str(tmp_path / "bin/python"), str(tmp_path), str(stdlib), "", libraries)


def test_installed_packages_are_not_shown_wherever_they_lie(packaged: interpreter.Interpreter) -> None:
    assert {"/py/lib/python3.11/site-packages", "/py/lib/python3.9/dist-packages"} <= set(packaged.masked_folders)
    system = replace(packaged, prefix="/usr", stdlib="/usr/lib/python3.11", program="/usr/bin/python3.11")
    beside = Path(packaged.stdlib).parent  # as /usr/lib64 is on Fedora: libraries, and below them the standard library
    assert f"{beside}/python3.11/site-packages" in system.masked_folders


def test_landlock_lets_no_installed_package_be_read(packaged: interpreter.Interpreter) -> None:
    if landlock.abi() == 0:
        pytest.skip("this kernel has no Landlock")
    allowed = dict(landlock.landlock_rules(packaged)["allowed"])
    readable = {Path(place) for place, rights in allowed.items() if rights & 0b100}
    packages = Path(packaged.stdlib) / "site-packages"
    assert not [place for place in readable if packages.is_relative_to(place) or place.is_relative_to(packages)]
    assert {Path(packaged.stdlib) / "json", Path(packaged.stdlib) / "os.py"} <= readable
    assert Path(packaged.stdlib).parent / "libpython3.11.so.1.0" in readable


def test_landlock_empties_no_file_and_holds_threads_where_it_can() -> None:
    try:
        place = open_sandbox(tier="landlock", limits=LIMITS)
    except SandboxUnavailable as error:
        pytest.skip(f"no such sandbox here: {error}")
    emptied = place.run("import os\nopen(os.devnull, 'w').write('x')\nos.open(os.devnull, os.O_RDONLY | os.O_TRUNC)")
    assert "PermissionError: [Errno 1]" in emptied.stderr, emptied
    if os.geteuid() == 0:  # else the account has other processes, and no count of its own
        flood = """
import os, threading, time
threading.stack_size(32768)
try:
    for made in range(500):
        threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
except RuntimeError:
    pass
print(made, flush=True)
os._exit(0)
"""
        ended = place.run(flood)
        assert int(ended.stdout) <= LIMITS.processes, ended
