"""What is killed, dies or lives on: servers of a pool, launchers, and the trainer itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tiltmeter.sandbox import Ended, Limits, SandboxUnavailable, open_sandbox
from tiltmeter.sandbox.bubblewrap import Bubblewrap
from tiltmeter.sandbox.pool import Pool
from tiltmeter.sandbox.probed_sandbox import ProbedSandbox

LIMITS = Limits(wall_seconds=20.0)
SLEEP = "import ctypes, time\nctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\nprint(1, flush=True)\ntime.sleep(15)"


@pytest.fixture(scope="module")
def bwrap() -> Bubblewrap:
    try:
        open_sandbox(tier="bwrap").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no such sandbox here: {error}")
    return Bubblewrap(LIMITS)


def processes(name: str) -> list[Path]:
    """Those that go by a name, whatever namespace they are in."""

    def named(process: Path) -> bool:
        try:
            return (process / "comm").read_text().strip() == name
        except OSError:
            return False

    return [process for process in Path("/proc").iterdir() if process.name.isdigit() and named(process)]


def awaited(name: str, there: bool) -> list[Path]:
    until = time.monotonic() + 15
    while bool(found := processes(name)) != there:
        assert time.monotonic() < until, f"{name} is {'not ' if there else ''}there"
        time.sleep(0.02)
    return found


def parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])


def test_a_pool_whose_server_is_killed_starts_another(bwrap: Bubblewrap) -> None:
    pool = Pool(LIMITS)
    with ProbedSandbox(pool, "pooled") as place:
        assert place.run("print(1)").stdout == "1\n"
        pool._idle[0].process.kill()
        pool._idle[0].process.wait()
        assert place.run("print(2)").stdout == "2\n"
        assert pool.servers_started == 2


def test_a_server_whose_canary_comes_back_wrong_is_not_used_again(
    bwrap: Bubblewrap, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = Pool(LIMITS)
    with ProbedSandbox(pool, "pooled") as place:
        assert place.run("print(1)").stdout == "1\n"
        forged = {"stdout": "forged", "stderr": "", "ready": True, "status": 0, "cut": "", "seconds": 0.0}
        monkeypatch.setattr(pool._idle[0], "_reply", lambda name: forged)
        pool._idle[0].requests = 100  # it is time for its canary
        assert place.run("print(2)").stdout == "2\n"
        assert pool.servers_started == 2


def test_a_pool_outlives_the_thread_that_first_used_it(bwrap: Bubblewrap) -> None:
    """The kernel ends a child with the thread that started it, if asked to end it with its parent."""
    pool = Pool(LIMITS)
    with ProbedSandbox(pool, "pooled") as place:
        for _ in range(3):
            thread = threading.Thread(target=place.run, args=("print(1)",))
            thread.start()
            thread.join()
        assert pool.servers_started == 1


def test_a_copy_of_this_process_does_not_use_our_servers(bwrap: Bubblewrap) -> None:
    pool = Pool(LIMITS)
    with ProbedSandbox(pool, "pooled") as place:
        place.run("print(1)")
        server = pool._idle[0]
        server.owner += 1  # as a fork of ours would find it
        assert place.run("print(2)").stdout == "2\n"
        assert pool.servers_started == 2
        server.owner, server.process.returncode = os.getpid(), None
        server.process.kill()
        server.process.wait()


def test_nothing_of_one_program_is_there_for_the_next(bwrap: Bubblewrap) -> None:
    with ProbedSandbox(Pool(LIMITS), "pooled") as place:
        place.run(
            "import json, os\njson.dumps = None\nos.makedirs('/tmp/a/b')\nopen('/dev/shm/c', 'w').write('x')\nx = 1"
        )
        look = "import json, os\nprint(os.listdir('/tmp'), os.listdir('/dev/shm'), json.dumps(1), 'x' in globals())"
        ended = place.run(look)
        assert ended.stdout == "[] [] 1 False\n"


#: What a server that runs as the same account cannot remove; it notices only after many other files.
STUBBORN = """
import os, time
os.makedirs('/tmp/a'), os.makedirs('/tmp/b/c')
for number in range(2000):
    open(f'/tmp/a/{number}', 'w').close()
os.chmod('/tmp/b', 0)
"""


def test_what_a_program_leaves_does_not_make_its_own_timeout_vanish(bwrap: Bubblewrap) -> None:
    """Whoever could call for `infra` would never be wrong again."""
    with ProbedSandbox(Pool(Limits(wall_seconds=1.5)), "pooled") as place:
        ended = place.run(STUBBORN + "time.sleep(60)")
        assert ended.kind == "timeout", ended


def test_what_programs_leave_is_not_the_next_ones_trouble(bwrap: Bubblewrap) -> None:
    pool = Pool(LIMITS)
    with ProbedSandbox(pool, "pooled") as place:
        for ended in place.run_many([(STUBBORN + "time.sleep(1)", "")] * 3, workers=3):
            assert ended.kind == "ended", ended
        assert pool.once("print(2)", "").stdout == "2\n"  # at the first try


def test_a_program_cannot_end_the_server_that_runs_it(bwrap: Bubblewrap) -> None:
    signal_by_pipe = """
import fcntl, os
reader, writer = os.pipe()
try:
    fcntl.fcntl(reader, 8, os.getppid())
    fcntl.fcntl(reader, 10, 9)
    fcntl.fcntl(reader, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writer, b"x")
except OSError as error:
    print(error.errno)
"""
    pool = Pool(LIMITS)
    with ProbedSandbox(pool, "pooled") as place:
        assert (place.run(signal_by_pipe).stdout, pool.servers_started) == ("1\n", 1)


def test_a_launcher_that_is_killed_is_not_the_programs_doing(bwrap: Bubblewrap) -> None:
    ends: list[Ended] = []
    name = f"victim{os.getpid()}"
    thread = threading.Thread(target=lambda: ends.append(bwrap.once(SLEEP.format(name=name), "")))
    thread.start()
    inner = int(awaited(name, there=True)[0].name)
    os.kill(parent(parent(inner)), signal.SIGKILL)
    thread.join()
    assert (ends[0].kind, ends[0].stdout) == ("infra", "1\n"), ends[0]
    assert not processes(name)


@pytest.mark.parametrize(("tier", "isolation"), [("bwrap", "strict"), ("bwrap", "pooled"), ("landlock", "strict")])
def test_no_program_outlives_a_trainer_that_is_killed(tier: str, isolation: str) -> None:
    name = f"orphan{os.getpid()}"
    code = f"""
from tiltmeter.sandbox import Limits, open_sandbox
open_sandbox({isolation!r}, tier={tier!r}, limits=Limits(wall_seconds=60.0)).run({SLEEP.format(name=name)!r})
"""
    trainer = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        while not processes(name):
            if trainer.poll() is not None:
                told = trainer.communicate()[1]
                assert "SandboxUnavailable" in told, told
                pytest.skip("no such sandbox here")
            time.sleep(0.02)
    finally:
        trainer.kill()
        trainer.communicate()
    awaited(name, there=False)


def test_a_trainer_that_is_process_1_keeps_no_dead_processes(bwrap: Bubblewrap) -> None:
    """In a container the orphans of bubblewrap become the trainer's; here, those of a process that asks for them."""
    program = """
import ctypes, os, time
from pathlib import Path
from tiltmeter.sandbox import Limits
from tiltmeter.sandbox.bubblewrap import Bubblewrap
from tiltmeter.sandbox.probed_sandbox import ProbedSandbox
from tiltmeter.sandbox.pool import Pool

assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # the orphans of whatever I start are mine
strict, pool = Bubblewrap(Limits(wall_seconds=20.0)), Pool(Limits(wall_seconds=20.0))
for _ in range(3):
    assert strict.once("print(1)", "").kind == "ended"
    assert pool.once("print(1)", "").kind == "ended"
strict.once("import time; time.sleep(9)", "", Limits(wall_seconds=1.0))
pool.close()
children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
deadline = time.monotonic() + 20.0  # a process that was killed takes a moment to die on a busy machine
while children.read_text() and time.monotonic() < deadline:
    strict.once("print(1)", "")  # each use collects the dead of those before
print(children.read_text().split())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
