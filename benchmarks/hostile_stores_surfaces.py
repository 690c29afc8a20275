"""What meets a hostile store: each surface of `hostile_stores_cases.toml`, in a process that tells what it touches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tiltmeter
from hostile_stores_plants import Place
from hostile_stores_servers import free_port
from tiltmeter import cli
from tiltmeter.cli.options import local_roots
from tiltmeter.errors import TiltmeterError
from tiltmeter.view.screens.reading_room.notes import list_notes, submit_entry
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.server.run_list import RunList, list_run

#: Secrets of the environment. Each must turn up nowhere.
SECRETS = {
    "OPENAI_API_KEY": "sk-canary-openai-91ce44", "ANTHROPIC_API_KEY": "sk-ant-canary-3d07aa",
    "HF_TOKEN": "hf_canary7c1e09", "WANDB_API_KEY": "canary-wandb-e2b6", "TILTMETER_JUDGE_KEY": "canary-judge-a410",
}  # fmt: skip
#: Surfaces that write to the store.
WRITERS = ("writer", "resume", "upload", "leave", "watch")
#: Surfaces on a machine that has the spool of the run.
WITH_SPOOL = ("resume", "upload", "watch")
#: Surfaces that may change the run directory that was received.
LOCAL_WRITERS = ("local_watch", "local_open", "local_upload", "local_track")
UNTIL_INTERRUPTED = ("view", "serve")
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.symlink", "os.link", "os.truncate", "shutil.rmtree")


def run_cli(*words: str) -> int:
    """The exit code that a shell would see."""
    before = sys.argv
    sys.argv = ["tiltmeter", *words]
    try:
        cli.main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    finally:
        sys.argv = before
    return 0


def open_and_write(directory: str) -> int:
    """What a trainer does: two steps of a run, without a monitor."""
    with tiltmeter.open_run(directory, monitor=False) as run:
        for step in range(20, 22):
            observe(run, step)
    return 0


def observe(run: Any, step: int) -> None:
    texts = [f"answer {step} {row}" for row in range(4)]
    rewards = [1.0, 0.0, 0.5, 0.2]
    run.observe(step=step, group=[0, 0, 1, 1], reward=rewards, completion=texts, prompt=["what?"] * 4)


def write_and_upload(address: str) -> int:
    open_and_write(address)
    run_cli("upload", address, "--minutes", "0.1")
    return 0


def watch(address: str, spool: Path) -> int:
    code = run_cli("watch", address, "--once")
    for run in spool.glob("*/*/run.json"):
        run_cli("watch", str(run.parent), "--once")
    return code


def read_tables(path: str) -> int:
    run = tiltmeter.read(path)
    for table in (run.readings, run.alarms, run.findings, run.labels, run.actions):
        table()
    run.rollouts(skip_unreadable=True)
    print(run.name, run.state, run.sentence)
    return 0


def show_page(address: str) -> int:
    runs = RunList(local_roots([Path(address)]))
    runs.rows(list_run)
    for reader in map(runs.reader, runs.ids()):
        reader.refresh()
        summary(reader)
        list_notes(reader)
    return 0


def leave_note(address: str) -> int:
    runs = RunList(local_roots([Path(address)]))
    for reader in map(runs.reader, runs.ids()):
        reader.refresh()
        print(submit_entry(reader, "note", "", "from a copy", "ann"))
    return 0


def run_elsewhere(run: Path) -> int:
    """A fresh interpreter that stands in the directory, as a console script does."""
    program = "import sys; sys.argv = ['tiltmeter', 'show', '.']; from tiltmeter.cli import main; main()"
    return subprocess.run([sys.executable, "-P", "-c", program], cwd=run, check=False).returncode


def surfaces(address: str, above: str, place: Place) -> dict[str, Callable[[], int]]:
    run, report = str(place.received), str(place.scratch / "report.html")
    state = str(place.scratch / "server")
    return {
        "show": lambda: run_cli("show", address),
        "json": lambda: run_cli("show", address, "--json", "--more"),
        "report": lambda: run_cli("report", address, "--html", report),
        "verify": lambda: run_cli("verify", address, "--untrusted"),
        "fetch": lambda: run_cli("rollouts", address, "--phrases"),
        "read": lambda: read_tables(address),
        "watch": lambda: watch(address, place.state / "tiltmeter" / "spool"),
        "upload": lambda: run_cli("upload", address, "--minutes", "0.1"),
        "writer": lambda: write_and_upload(address),
        "resume": lambda: write_and_upload(address),
        "leave": lambda: leave_note(address),
        "page": lambda: show_page(address),
        "view": lambda: run_cli("view", address, "--port", str(free_port()), "--json"),
        "serve": lambda: run_cli("serve", above, "--port", str(free_port()), "--state", state, "--json"),
        "local_show": lambda: run_cli("show", run),
        "local_verify": lambda: run_cli("verify", run, "--untrusted"),
        "local_watch": lambda: run_cli("watch", run, "--once"),
        "local_upload": lambda: run_cli("upload", run, "--minutes", "0.1"),
        "local_report": lambda: run_cli("report", run, "--html", report),
        "local_open": lambda: open_and_write(run),
        "local_track": lambda: run_cli("track", run, "--once", "--tensorboard", str(place.scratch / "tb")),
        "local_read": lambda: read_tables(run),
        "local_python": lambda: run_elsewhere(place.received),
    }


# -- in the forked process -------------------------------------------------------------------------------------------


def enter(place: Place, setting: dict[str, str]) -> None:
    """Become a person's process: a home of its own, secrets in the environment, output to a file."""
    os.setsid()
    output = os.open(place.scratch / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for name in [name for name in os.environ if name.startswith(("AWS_", "TILTMETER_", "XDG_"))]:
        del os.environ[name]
    (place.scratch / "tmp").mkdir(exist_ok=True)
    os.environ |= {
        **SECRETS, **setting, "HOME": str(place.home), "XDG_STATE_HOME": str(place.state),
        "XDG_CACHE_HOME": str(place.cache), "XDG_CONFIG_HOME": str(place.home / ".config"),
        "TMPDIR": str(place.scratch / "tmp"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    sys.dont_write_bytecode = True
    tempfile.tempdir = None  # asked again, in this environment
    os.chdir(place.scratch)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def tell_what_is_touched(place: Place, allowed: Sequence[Path]) -> None:
    """Write down every change by an absolute path elsewhere, and code of the attack that is run.

    Names relative to an open folder are not seen here: the comparison of the folders afterwards sees those.
    """
    log = os.open(place.scratch / "touched", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    package = Path(tiltmeter.__file__).parent  # compiled code of its own
    inside = tuple(str(folder) for folder in (*allowed, place.scratch, package))
    ours, project = str(place.root), str(place.root / "project")  # a person's own code, of the single cases

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & WRITE_FLAGS:
                tell("written", path)
        elif event in CHANGES:
            for path in arguments[1:2] if event in ("os.symlink", "os.link") else arguments[:2]:
                tell("written", path)
        elif event == "exec":
            file = getattr(arguments[0], "co_filename", "")
            if file.startswith(ours) and not file.startswith(project) and not is_trial(file):
                os.write(log, f"code {file!r}\n".encode())

    def is_trial(file: str) -> bool:  # of a gold function that its user handed over, in the reader's own scratch folder
        return file.startswith(str(place.scratch)) and "/gold/functions/" in file

    def tell(kind: str, path: object) -> None:
        text = os.fsdecode(path) if isinstance(path, (str, bytes)) else ""
        if not text.startswith("/") or text.startswith(("/dev/null", "/dev/tty", "/proc/self", "/dev/shm/sem.")):
            return
        if not os.path.realpath(os.path.dirname(text)).startswith(inside) and not text.startswith(inside):  # noqa: PTH120
            os.write(log, f"{kind} {text!r}\n".encode())

    sys.addaudithook(heard)


def child(surface: Callable[[], int], place: Place, setting: dict[str, str], allowed: Sequence[Path]) -> None:
    """Never returns."""
    code = 70
    try:
        enter(place, setting)
        tell_what_is_touched(place, allowed)
        code = surface()
    except (TiltmeterError, ValueError, KeyError, OSError) as error:
        sys.stderr.write(f"refused: {type(error).__name__}: {error!r}\n")
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - whatever it is, a person would see it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def is_running(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def browse(pid: int, place: Place) -> None:
    """What a browser does, until the page had time to read its runs; then Ctrl-C."""
    url = ""
    until = time.monotonic() + 12
    while not url and time.monotonic() < until and is_running(pid):
        time.sleep(0.05)
        for line in (place.scratch / "output").read_text(errors="replace").splitlines():
            if line.startswith("{") and "url" in line:
                url = str(json.loads(line)["url"])
    if url:
        for path in ("", "/api/runs", "/metrics"):
            try:
                urllib.request.urlopen(url.split("#")[0].split("?")[0].rstrip("/") + path, timeout=5).read(1000)
            except OSError:
                continue
        time.sleep(1.0)
    if is_running(pid):
        os.kill(pid, signal.SIGINT)
