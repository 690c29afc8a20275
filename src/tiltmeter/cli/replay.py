"""`tiltmeter replay`: measure a recorded run again and compare with its journal."""

from __future__ import annotations

import typer
from rich.console import Console

from tiltmeter.cli.show import Json, Plain, Run
from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.cli.watch import Plugins
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay as replay_run
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.run_state import RunState
from tiltmeter.verdict.verdict import ages, verdict_of


def replay(run: Run, plugin: Plugins = None, json: Json = False, plain: Plain = False) -> None:
    """Measure and judge a recorded run again from its files, and say whether the record reproduces.

    Example: tiltmeter replay runs/tonight

    Changes nothing in the run. With --plugin, or after an upgrade, settings differ and only the verdict is compared.
    Exit code: that of the verdict, or 2 if the record does not reproduce.
    """
    directory = RunDirectory(run)
    directory.identity()
    config = Config.standard(plugin or ())
    result = replay_run(directory, config)
    run_state = RunState.from_events(result.events)
    verdict = verdict_of(run_state, ages(directory, run_state))
    note = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    configs = {event.data["config"] for event in result.recorded if "config" in event.data}
    reproduced = True
    if not result.recorded:
        note.out("This run had no record: measured for the first time, nothing to compare.")
    elif configs != {result.digest}:
        note.out("Recorded with other settings: events are not compared, the verdict below is of these settings.")
    elif result.difference is None:
        note.out(f"Reproduced: {len(result.events)} events, each as recorded.")
    else:
        reproduced = False
        old, new = result.difference
        at = old or new
        assert at is not None
        note.out(f"NOT reproduced: the first difference is a {at.kind} at attempt {at.attempt}, step {at.step}.")
        note.out(f"  recorded: {log_line(str(dict(old.data)) if old else 'nothing', 300)}")
        note.out(f"  now:      {log_line(str(dict(new.data)) if new else 'nothing', 300)}")
    emit(directory, verdict, run_state, result.events, json_=json, plain_=plain)
    raise typer.Exit(verdict.exit_code if reproduced else 2)
