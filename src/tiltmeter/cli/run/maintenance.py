"""`tiltmeter pack`, `verify`, `replay`, `purge`: merge a run's files, check, measure again, delete them."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer
from rich.console import Console

from tiltmeter.cli.options import Json, More, Plain, Run, Trust, open_run, open_to_change
from tiltmeter.cli.run.watch import Plugins
from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay as replay_run
from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.journal_chain.check import ChainCheck
from tiltmeter.rundir.maintenance import pack as pack_run
from tiltmeter.rundir.maintenance import purge as purge_run
from tiltmeter.rundir.maintenance import verify as verify_run
from tiltmeter.rundir.remote.inbox import copied_address
from tiltmeter.rundir.remote.mirror import read_mirror
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import ages, verdict_of

Untrusted = Annotated[bool, typer.Option("--untrusted", help="Also name links, foreign files and unknown names.")]


def pack(run: Run, trust: Trust = False) -> None:
    """Merge the small files of a run into large ones, which every command reads the same way.

    Example: tiltmeter pack runs/tonight

    Safe at any time, also while the run is written: the newest 64 steps of a live run are left alone, and originals go
    only after the packed copy was checked against each of them.
    """
    directory = open_to_change(run, trust)
    with Console(stderr=True).status("packing…") as status:
        merged = pack_run(directory, progress=lambda text: status.update(text))
    Console(highlight=False, markup=False).out(f"{merged} files merged" if merged else "nothing to merge")


def verify(run: Run, untrusted: Untrusted = False, json: Json = False) -> None:
    """Read every stored byte again and check it against its checksums and the hashes recorded when it was measured.

    Example: tiltmeter verify runs/tonight

    With --untrusted, for a directory from somebody else, also whatever no version of Tiltmeter puts there. Exit code: 0
    intact, 1 damage found, 2 not a run directory.
    """
    directory = open_run(run)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    with Console(stderr=True).status("checking…") as status:
        is_copy = copied_address(directory.path) is not None
        problems = strange_files(directory, is_copy=is_copy) if untrusted else []
        problems += verify_run(directory, progress=lambda text: status.update(f"checking {text}"))
        journal = ChainCheck(directory).update()
    if json:
        console.out(
            json_module.dumps(
                {
                    "run": directory.path.name,
                    "intact": not problems,
                    "problems": problems,
                    "journal": {"level": journal.level, "text": journal.text},
                },
                indent=1,
            )
        )
    else:
        for problem in problems:
            console.out(log_line(problem))
        console.out(f"journal: {log_line(journal.text)}")
        console.out("intact" if not problems else f"{len(problems)} problems")
    raise typer.Exit(1 if problems else 0)


def purge(
    run: Run,
    before: Annotated[int | None, typer.Option(help="Only steps below this one.", metavar="STEP")] = None,
    days: Annotated[
        float | None, typer.Option(help="Only files written more than this many days ago.", metavar="N")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    trust: Trust = False,
) -> None:
    """Delete stored rollouts: prompts, completions, tokens and rewards. Readings, alarms and verdicts stay.

    Example: tiltmeter purge runs/tonight --days 30

    What is deleted cannot be replayed or shown again.
    """
    directory = open_to_change(run, trust)
    if not yes and not typer.confirm(f"Delete stored rollouts of {log_line(str(directory.path))}?"):
        raise typer.Exit(2)
    deleted = purge_run(directory, before=before, days=days)
    Console(highlight=False, markup=False).out(f"{deleted} files deleted")
    if (mirror := read_mirror(directory.path)) is not None:
        Console(stderr=True, highlight=False, markup=False, soft_wrap=True).out(
            f"Those that were uploaded are still at {log_line(mirror.address)}: delete them there too."
        )


def replay(run: Run, plugin: Plugins = None, more: More = False, json: Json = False, plain: Plain = False) -> None:
    """Measure and judge a recorded run again from its files, and say whether the record reproduces.

    Example: tiltmeter replay runs/tonight

    Changes nothing in the run. With --plugin, or after an upgrade, settings differ and only the verdict is compared.
    Exit code: that of the verdict, or 2 if the record does not reproduce.
    """
    directory = open_run(run)
    config = Config.standard(plugin or ())
    result = replay_run(directory, config)
    run_facts = RunFacts.from_events(result.events)
    verdict = verdict_of(run_facts, ages(directory, run_facts))
    note = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
    configs = {str(event.data["config"]) for event in result.recorded if "config" in event.data}
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
    emit(directory, verdict, run_facts, result.events, json_=json, plain_=plain, more=more, place=str(run))
    raise typer.Exit(verdict.exit_code if reproduced else 2)
