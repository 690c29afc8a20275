"""Tasks as a new user does them: from a clean environment, by the documentation alone.

    python benchmarks/new_user.py [--only NAME ...] [--work FOLDER] [--json] [--write]

The wheel of the last commit is installed into fresh environments, with a new HOME, in a folder outside of the checkout
and without PYTHONPATH. Every command and every program is taken from a page of `docs/`, as it stands there; where the
page says that a name is yours (`runs/tonight`, an address), `yours` of a task says what was put in its place. A task
succeeds if each command ends as its page says, and prints what its page shows. `--only` keeps what an earlier run
recorded of the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from record import RESULTS, record, show

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?[^\n]*\n(.*?)^```$", re.M | re.S)
HEADING = re.compile(r"^##+ (.+)$", re.M)
COMMAND_SECONDS = 900.0
WAITS = 60  # for a monitor that is still measuring, five seconds each
#: Runs what it is sent, block by block, as somebody does who pastes into a Python session.
SESSION = """
import sys, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    path = line.strip()
    try:
        exec(compile(open(path).read(), path, "exec"), space)
        print("\\0ok", flush=True)
    except BaseException:
        traceback.print_exc()
        print("\\0failed", flush=True)
"""


class StuckError(Exception):
    """A command of a page did not do what the page says."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, under its heading."""

    heading: str
    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = (DOCS / page).read_text("utf-8")
    headings = [(match.start(), match[1]) for match in HEADING.finditer(text)]
    found = []
    for match in FENCE.finditer(text):
        heading = [name for at, name in headings if at < match.start()][-1:] or [""]
        found.append(Block(heading[0], match[1], match[2] or "", match[3]))
    return found


@dataclass
class Desk:
    """One user's folder, environment and notes."""

    folder: Path
    env: dict[str, str]
    yours: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    _waits: int = 0
    _session: subprocess.Popen[str] | None = None

    def fill(self, text: str) -> str:
        for theirs, own in self.yours.items():
            text = text.replace(theirs, own)
        return text

    def run(self, command: str, *, expect: int | tuple[int, ...] | None = 0, before: int = 0) -> tuple[int, str]:
        """One line, as it stands on the page. `expect`: exit codes that it may have; None: any."""
        line = self.fill(command)
        self.commands.append(line)
        done = subprocess.run(
            ["bash", "-c", f"(exit {before}); {line}"],
            cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=COMMAND_SECONDS,
        )  # fmt: skip
        if "wait, and ask again" in done.stdout + done.stderr and self._waits < WAITS:  # as the command says
            self._waits += 1
            time.sleep(5)
            return self.run(command, expect=expect, before=before)
        codes = (expect,) if isinstance(expect, int) else expect
        if codes is not None and done.returncode not in codes:
            raise StuckError(f"{line}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-1500:]}")
        return done.returncode, done.stdout + done.stderr

    def console(self, block: Block) -> None:
        """Every `$` line of a block; what it prints must have the lines that the page shows, in their order."""
        code = 0
        parts = re.split(r"^\$ ", block.text, flags=re.M)[1:]
        for at, part in enumerate(parts):
            command, _, shown = part.partition("\n")
            named = at + 1 < len(parts) and parts[at + 1].startswith("echo $?")
            code, output = self.run(command, expect=None if named else 0, before=code)
            rest = iter(line.rstrip() for line in output.splitlines())
            for line in filter(None, map(str.rstrip, shown.splitlines())):
                if line != "..." and line not in rest:
                    raise StuckError(f"{command}: the page shows {line!r}, and this was printed:\n{output[-1500:]}")

    def python(self, block: Block) -> None:
        """A block with a title becomes that file; any other is pasted into one session."""
        if block.title:
            (self.folder / block.title).write_text(self.fill(block.text))
            return
        if self._session is None:
            self._session = subprocess.Popen(
                ["python", "-c", SESSION], cwd=self.folder, env=self.env, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self.commands.append("python")
        path = self.folder / f".pasted-{len(self.commands)}-{time.monotonic_ns()}.py"
        path.write_text(self.fill(block.text))
        assert self._session.stdin is not None and self._session.stdout is not None
        self._session.stdin.write(f"{path}\n")
        self._session.stdin.flush()
        output: list[str] = []
        for line in self._session.stdout:
            if line.startswith("\0"):
                if line.strip() != "\0ok":
                    raise StuckError(f"pasted under {block.heading!r}: {''.join(output)[-1500:]}")
                return
            output.append(line)
        raise StuckError(f"the session ended under {block.heading!r}: {''.join(output)[-1500:]}")

    def follow(self, page: str, *headings: str) -> None:
        """A page from top to bottom: its Python and its `$` lines; with headings, those parts alone."""
        for block in blocks(page):
            if headings and block.heading not in headings:
                continue
            if block.language == "python":
                self.python(block)
            elif block.language == "console":
                self.console(block)

    def shell(self, page: str, heading: str, starts: str, **options: Any) -> tuple[int, str]:
        """The line of a shell block that begins so."""
        lines = [line for block in blocks(page) if block.heading == heading for line in block.text.splitlines()]
        line = next((line for line in lines if line.startswith(starts)), None)
        if line is None:
            raise StuckError(f"{page} has no line {starts!r} under {heading!r}")
        return self.run(line, **options)

    def close(self) -> None:
        if self._session is not None and self._session.stdin is not None:
            self._session.stdin.close()
            self._session.wait(60)
            if self._session.stdout is not None:
                self._session.stdout.close()


@contextlib.contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An address on this machine that takes alerts, and what came."""
    alerts: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            alerts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", alerts
        server.shutdown()


# -- the tasks -------------------------------------------------------------------------------------------------------


def install_and_demo(desk: Desk) -> None:
    desk.follow("start.md", "Install")


def own_loop(desk: Desk) -> None:
    wanted = dict.fromkeys(block.heading for block in blocks("start.md") if block.heading != "Install")
    desk.follow("start.md", *wanted)


def first_trl_run(desk: Desk) -> None:
    _, output = desk.shell("cli.md", "quickstart", "tiltmeter quickstart")
    script, look = (line.strip() for line in output.splitlines() if line.startswith("  "))
    desk.run(script)
    code, output = desk.run(look, expect=(0, 1, 2))
    if code == 2:
        raise StuckError(f"no verdict: {output}")


def audit_a_log(desk: Desk) -> None:
    desk.follow("tutorials/audit.md")


def agent_run(desk: Desk) -> None:
    desk.follow("tutorials/agent-run.md")


def probe_a_reward(desk: Desk) -> None:
    desk.follow("probe.md", "Try it")
    if "padding" not in (desk.folder / "scorecard.html").read_text():
        raise StuckError("the scorecard does not name padding")


def check_preferences(desk: Desk) -> None:
    desk.follow("preferences.md", "Try it")
    if "length" not in (desk.folder / "report.html").read_text():
        raise StuckError("the report does not name length")


def write_a_gold_function(desk: Desk) -> None:
    for block in blocks("gold.md"):
        if (
            block.heading == "Draft a check and test it"
            and block.language == "python"
            and "tiltmeter" not in block.text
        ):
            desk.python(block)
    desk.shell("gold.md", "Draft a check and test it", "tiltmeter gold draft")
    _, output = desk.shell("gold.md", "Draft a check and test it", "tiltmeter gold try", expect=(0, 1))
    if not (desk.folder / "checks.py").is_file() or not output.strip():
        raise StuckError("no check was drafted, or trying it says nothing")


def publish_a_run(desk: Desk) -> None:
    desk.run("tiltmeter demo --keep demo-runs")
    desk.shell("cli.md", "report", "tiltmeter report runs/tonight --to", expect=(0, 1))
    bundle = json.loads((desk.folder / "public" / "tonight" / "bundle.json").read_text())
    if not bundle or not (desk.folder / "public" / "tonight" / "index.html").is_file():
        raise StuckError("no bundle")


#: The official client, started as the page's configuration says.
ASK = """
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = json.load(open("mcp.json"))["mcpServers"]["tiltmeter"]
    async with stdio_client(StdioServerParameters(command=server["command"], args=server["args"])) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            listed = await session.call_tool("list_runs", {})
            text = listed.content[0].text
            run = json.loads(next(line for line in text.splitlines() if line.startswith("[")))[0]["run"]
            print((await session.call_tool("verdict", {"run": run})).content[0].text)

asyncio.run(main())
"""


def ask_by_mcp(desk: Desk) -> None:
    desk.run("tiltmeter demo --keep runs")
    (block,) = [block for block in blocks("mcp.md") if block.language == "json" and "mcpServers" in block.text]
    (desk.folder / "mcp.json").write_text(block.text)
    (desk.folder / "ask.py").write_text(ASK)
    _, output = desk.run("python ask.py")
    if not output.startswith("State: "):
        raise StuckError(output)


def alert_to_a_webhook(desk: Desk) -> None:
    desk.run("tiltmeter demo --keep demo-runs")
    with receiver() as (url, alerts):
        desk.yours["https://hooks.example.org/T0/B0/x"] = url
        desk.yours[" --wandb my-project"] = ""
        starts = "tiltmeter track"
        desk.shell("trackers.md", next(b.heading for b in blocks("trackers.md") if starts in b.text), starts)
    if not any(alert["level"] == "ERROR" and "gold" in alert["title"] for alert in alerts):
        raise StuckError(f"no alarm arrived: {alerts}")


@dataclass(frozen=True)
class Task:
    """What somebody wants, the page that says how, what it needs beside the core, and what is theirs on the page."""

    title: str
    page: str
    do: Callable[[Desk], None]
    extras: str = ""
    yours: tuple[tuple[str, str], ...] = ()


DEMO = (("runs/tonight", "demo-runs/hacked"),)
TASKS = {
    "demo": Task("install it, check the machine, see an alarm", "start.md", install_and_demo),
    "loop": Task("watch a loop of one's own, to a verdict", "start.md", own_loop),
    "trl": Task("a first TRL run, to a verdict", "cli.md", first_trl_run, "trl"),
    "audit": Task("audit the log of a finished run", "tutorials/audit.md", audit_a_log),
    "agents": Task("find a hack in an agent run", "tutorials/agent-run.md", agent_run, "dashboard"),
    "probe": Task("probe a reward before training", "probe.md", probe_a_reward, "workbench"),
    "preferences": Task("check preference data", "preferences.md", check_preferences, "workbench"),
    "gold": Task("draft a gold function and try it", "gold.md", write_a_gold_function, "workbench"),
    "publish": Task("publish a run as a folder", "cli.md", publish_a_run, yours=DEMO),
    "mcp": Task("let a coding agent ask about runs", "mcp.md", ask_by_mcp, "mcp"),
    "webhook": Task("have alerts sent to a webhook", "trackers.md", alert_to_a_webhook, yours=DEMO),
}


# -- the environment -------------------------------------------------------------------------------------------------


def build_wheel(folder: Path) -> Path:
    """The core's wheel of the last commit, beside those of the packages; that of an earlier run, if environments with
    it are kept in the folder."""
    if wheels := list((folder / "dist").glob("tiltmeter-*.whl")):
        return wheels[0]
    subprocess.run(["git", "clone", "-q", ROOT, folder / "clone"], check=True)
    command = [sys.executable, "-m", "build", "-q", "--wheel", "--installer", "uv", "--outdir", folder / "dist"]
    for source in (folder / "clone", *sorted((folder / "clone" / "packages").iterdir())):
        subprocess.run([*map(str, command), str(source)], check=True, timeout=600)
    (wheel,) = (folder / "dist").glob("tiltmeter-*.whl")
    return wheel


def clean_environment(folder: Path, wheel: Path, extras: str) -> tuple[dict[str, str], float]:
    """An environment with the wheel and what it needs, as `pip install` makes it, and how long that took."""
    place = folder / f"venv-{extras or 'core'}"
    start = time.monotonic()
    if not place.exists():
        links = [str(wheel.parent), os.environ.get("UV_FIND_LINKS") or os.environ.get("PIP_FIND_LINKS", "")]
        uv = {**os.environ, "UV_FIND_LINKS": ",".join(filter(None, links))}
        subprocess.run(["uv", "venv", "-q", "--python", sys.executable, str(place)], check=True, env=uv)
        what = f"{wheel}[{extras}]" if extras else str(wheel)
        pins = folder / "pins.txt"
        cpu = (ROOT / ".ci" / "requirements.lock").read_text()
        torch = re.search(r"^torch==[0-9.]+", cpu, re.M)
        pins.write_text(f"{torch[0]}\n" if torch else "")  # the build without a GPU that CI uses
        subprocess.run(
            ["uv", "pip", "install", "-q", "--python", str(place / "bin" / "python"), "-c", str(pins), what],
            check=True, env=uv, timeout=1800,
        )  # fmt: skip
    home = folder / f"home-{extras or 'core'}"
    home.mkdir(exist_ok=True)
    env = {
        "PATH": f"{place / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "COLUMNS": "200",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",  # nothing may be fetched
    }
    return env, time.monotonic() - start


def perform(task: Task, folder: Path, wheel: Path) -> dict[str, Any]:
    env, install = clean_environment(folder, wheel, task.extras)
    place = folder / f"work-{task.do.__name__}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    desk = Desk(place, env, dict(task.yours))
    before, start, stuck = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), ""
    try:
        task.do(desk)
    except (StuckError, subprocess.TimeoutExpired, OSError, KeyError, IndexError, ValueError) as error:
        stuck = f"{type(error).__name__}: {error}"
    finally:
        desk.close()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "title": task.title,
        "page": task.page,
        "extras": task.extras,
        "ok": not stuck,
        "stuck": stuck[-2000:].replace(str(folder), "FOLDER"),
        "install_s": round(install, 1),
        "seconds": round(time.monotonic() - start, 1),
        "cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "commands": [command.replace(str(folder), "FOLDER") for command in desk.commands],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(TASKS), help="these tasks alone")
    parser.add_argument("--work", type=Path, help="a folder for environments, kept; a temporary one if not given")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/new_user.json")
    options = parser.parse_args()
    earlier = json.loads(file.read_text()) if (file := RESULTS / "new_user.json").exists() and options.only else {}
    tasks: dict[str, Any] = dict(earlier.get("by_task", {}))
    with contextlib.ExitStack() as stack:
        folder = options.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        wheel = build_wheel(folder.resolve())
        commit = ["git", "-C", str(folder.resolve() / "clone"), "rev-parse", "--short", "HEAD"]
        wheel_revision = subprocess.run(commit, capture_output=True, text=True, check=True).stdout.strip()
        for name in options.only or TASKS:
            tasks[name] = perform(TASKS[name], folder.resolve(), wheel)
            state = "ok" if tasks[name]["ok"] else tasks[name]["stuck"]
            print(f"{name}: {tasks[name]['seconds']} s, {state}", file=sys.stderr, flush=True)
            # After each task: a run that is cut off keeps what it has done.
            figures = {
                "tasks": len(tasks),
                "tasks_done": sum(task["ok"] for task in tasks.values()),
                "wheel_revision": wheel_revision,
                "by_task": {name: tasks[name] for name in TASKS if name in tasks},
            }
            result = record("new_user", figures, seed=0, keep=options.write)
    show(result, as_json=options.json)
    return 0 if result["tasks_done"] == result["tasks"] else 1


if __name__ == "__main__":
    sys.exit(main())
