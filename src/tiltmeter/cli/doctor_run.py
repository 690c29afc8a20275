"""What `tiltmeter doctor` looks at in a run: can it be read, is it measured and judged, will it fit on the disk."""

from __future__ import annotations

import http.client
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from tiltmeter.adapters.tried_versions import version_note
from tiltmeter.cli.options import open_run
from tiltmeter.errors import TiltmeterError
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import RunWatcher, Verdict
from tiltmeter.view.screens import wording

Row = dict[str, str | bool]
FUTURE_SECONDS = 5.0  # by which a file may be newer than now
STEPS_OF_ROOM = 1_000  # that must fit on the disk while a run goes on
COLUMNS_NAMED = 3
PAGE_PORT = 8787  # where `tiltmeter view` listens if that is free
PAGE_SECONDS = 1.0


def row(what: str, detail: str, purpose: str, fix: str, *, ok: bool, needed: bool = False) -> Row:
    """One line of the screen: what was looked at, what was seen, what it is for, and the fix if it is not right."""
    return {"what": what, "found": detail, "for": purpose, "fix": "" if ok else fix, "ok": ok, "needed": needed}


def check_run(path: Path) -> Iterator[Row]:
    """Every check of a run; only the first if it cannot be opened."""
    try:
        run = open_run(path)
        watcher = RunWatcher(run)
        verdict = watcher.update()
        attempts = run.attempts()
    except (TiltmeterError, OSError) as error:
        fix = "see what is damaged: tiltmeter verify RUN; for files of a trainer: tiltmeter audit FOLDER"
        yield row("run", log_line(str(error), 200), "everything else", fix, ok=False, needed=True)
        return
    place = str(path)
    files = run.files(attempts[-1], []) if attempts else []
    summary = f"format {run.identity()['format']}, {len(attempts)} attempts, {len(files)} stored steps in the last"
    yield {**row("run", f"{run.path}: {summary}", "everything else", "", ok=True, needed=True), "path": str(run.path)}
    yield monitor_row(run, verdict, place)
    yield gold_row(watcher.run_facts, verdict)
    yield readings_row(watcher.run_facts)
    for name in ("fresh", "ranks", "kept", "scored", "detectors"):
        if name in verdict.checks and not verdict.checks[name].ok:
            fix = f"tiltmeter show {place} --more"
            yield row(name, verdict.checks[name].why, "a verdict that can be trusted", fix, ok=False, needed=True)
    yield room_row(run, attempts)
    yield clock_row(run, attempts)
    yield from package_rows(run, attempts)
    yield page_row(place)


def monitor_row(run: RunDirectory, verdict: Verdict, place: str) -> Row:
    """Whether somebody measures what is stored."""
    running, check = monitor_running(run), verdict.checks["monitor"]
    purpose, fix = "readings and alarms", f"tiltmeter watch {place}"
    if running:
        return row("monitor", f"it is measuring; {check.why.partition(';')[0]}", purpose, "", ok=True, needed=True)
    if running is None:
        detail = f"whether one is running cannot be seen from here; {check.why.partition(';')[0]}"
        return row("monitor", detail, purpose, fix, ok=check.ok, needed=True)
    return row("monitor", f"none is running; {check.why.partition(';')[0]}", purpose, fix, ok=check.ok, needed=True)


def gold_row(run_facts: RunFacts, verdict: Verdict) -> Row:
    """Who says what a completion is worth, and whether answers come. Nobody is asked anew: a run directory may name any
    server."""
    purpose = "saying whether the reward can be trusted"
    newest = f", newest at step {run_facts.last_label[1]}" if run_facts.last_label else ""
    if run_facts.gold is None:
        named = run_facts.labels or run_facts.evaluations or run_facts.traps
        detail = f"{run_facts.labels_text}{newest}, {len(run_facts.evaluations)} evaluations" if named else "none"
        fix = 'name a check of what you want: gold="checks.py:score" at attach, or label by hand: tiltmeter view'
        return row("gold", detail, purpose, fix, ok=bool(named), needed=True)
    failed = [check.why for name, check in verdict.checks.items() if name.startswith("gold") and not check.ok]
    detail = f"{log_line(str(run_facts.gold['identity']), 120)}: {run_facts.labels_text}{newest}"
    why = f"; {log_line(failed[0], 200)}" if failed else ""
    fix = "see why in monitor.log of the run; try it on some rows: tiltmeter gold try"
    return row("gold", detail + why, purpose, fix, ok=not failed, needed=True)


def readings_row(run_facts: RunFacts) -> Row:
    """Readings that are missing, what they lack, and what provides it."""
    absent = wording.absent_by_column(run_facts)
    count = sum(len(names) for _, names in absent)
    if not count:
        return row("readings", "all that can be measured are there", "a full picture", "", ok=True)
    lacks = ", ".join(f"{lack.replace(', ', ' and ')} ({len(names)})" for lack, names in absent[:COLUMNS_NAMED])
    more = f" and {len(absent) - COLUMNS_NAMED} more" if len(absent) > COLUMNS_NAMED else ""
    fixes = (wording.column_fix(lack, imported=run_facts.imported) for lack, _ in absent[:COLUMNS_NAMED])
    fix = "; ".join(dict.fromkeys(filter(None, fixes))) or "these files do not have it"
    return row("readings", f"{count} are not measured, for want of {lacks}{more}", "a full picture", fix, ok=False)


def room_row(run: RunDirectory, attempts: list[int]) -> Row:
    """Whether the disk has room for the steps to come, by the size of those that are stored."""
    free = shutil.disk_usage(run.path).free
    sizes = [file.path.stat().st_size for file in run.files(attempts[-1], [])] if attempts else []
    each = sum(sizes) / len(sizes) if sizes else 0.0
    steps = f", room for {free / each:,.0f} steps of {each / 1e3:,.0f} kB" if each else ""
    over = bool(attempts) and run.ended(attempts[-1])
    ok = over or free > max(STEPS_OF_ROOM * each, 1e9)
    fix = "free space, or pack older steps: tiltmeter pack RUN"
    return row("room", f"{free / 1e9:.0f} GB free{steps}", "steps to come", fix, ok=ok, needed=True)


def clock_row(run: RunDirectory, attempts: list[int]) -> Row:
    """Whether files of the run are newer than now: then the clocks of two machines differ."""
    files = run.files(attempts[-1], []) if attempts else []
    newest = max((file.path.stat().st_mtime for file in files), default=0.0)
    ahead = newest - time.time()
    late = ahead > FUTURE_SECONDS
    detail = f"the newest step is {ahead:.0f} s in the future" if late else "no step is from the future"
    fix = "set the clocks of trainer, file server and this machine by the same time server"
    return row("clock", detail, "the order of rows, and how old they are", fix, ok=not late)


def package_rows(run: RunDirectory, attempts: list[int]) -> Iterator[Row]:
    """The trainer's package as the run was recorded with, where it was stored."""
    settings = run.attempt(attempts[-1]).get("settings") if attempts else None
    package = settings.get("package") if isinstance(settings, dict) else None
    if isinstance(package, str):
        name, _, version = package.partition(" ")
        note = log_line(version_note(name, version), 200)
        detail = note or f"{log_line(package, 60)}, which was tried"
        yield row(
            "trainer",
            detail,
            "recording all that can be recorded",
            "see its page in the documentation",
            ok=not note,
        )


def page_row(place: str) -> Row:
    """Whether a page answers on this machine."""
    url = f"http://127.0.0.1:{PAGE_PORT}/"
    connection = http.client.HTTPConnection("127.0.0.1", PAGE_PORT, timeout=PAGE_SECONDS)
    try:
        connection.request("GET", "/")
        server = connection.getresponse().getheader("Server", "") or ""
    except (OSError, http.client.HTTPException):
        where = os.environ.get("HOSTNAME", "this machine")
        detail = f"none answers at {url} on {where}"
        return row("page", detail, "looking at the run in a browser", f"tiltmeter view {place}", ok=False)
    finally:
        connection.close()
    return row("page", f"something answers at {url} {log_line(server, 40)}".strip(), "a browser", "", ok=True)
