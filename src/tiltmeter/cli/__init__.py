"""The command line: one file per verb, grouped by when you need it. Exits 0 healthy, 1 an alarm, 2 cannot judge."""

from __future__ import annotations

import importlib
import sys
import traceback
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from tiltmeter.errors import TiltmeterError
from tiltmeter.safety.safe_text import log_line, visible

BEFORE, DURING, AFTER, PROVE = "Before a run", "During a run", "After a run", "Prove it"


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb's function stands, and under which heading `--help` lists it."""

    panel: str
    file: str
    function: str = ""  # if it is not the file's name; `app` where the verb has verbs of its own


VERBS = {
    "doctor": Verb(BEFORE, "doctor"),
    "sandbox": Verb(BEFORE, "sandbox", "app"),
    "probe": Verb(BEFORE, "probe"),
    "traps": Verb(BEFORE, "traps"),
    "preferences": Verb(BEFORE, "preferences"),
    "constitution": Verb(BEFORE, "constitution"),
    "plan": Verb(BEFORE, "plan"),
    "forecast": Verb(BEFORE, "forecast"),
    "tilt": Verb(BEFORE, "tilt"),
    "train": Verb(DURING, "train"),
    "watch": Verb(DURING, "watch"),
    "show": Verb(DURING, "show"),
    "view": Verb(DURING, "view"),
    "track": Verb(DURING, "track"),
    "phrases": Verb(DURING, "report", "phrases"),
    "onset": Verb(DURING, "onset"),
    "alarms": Verb(DURING, "actions", "alarms"),
    "acknowledge": Verb(DURING, "actions", "acknowledge"),
    "dismiss": Verb(DURING, "actions", "dismiss"),
    "actions": Verb(DURING, "actions", "actions"),
    "approve": Verb(DURING, "actions", "approve"),
    "reject": Verb(DURING, "actions", "reject"),
    "undo": Verb(DURING, "actions", "undo"),
    "compare": Verb(AFTER, "compare"),
    "audit": Verb(AFTER, "audit"),
    "report": Verb(AFTER, "report"),
    "diff": Verb(AFTER, "diff"),
    "pin": Verb(AFTER, "pin"),
    "replay": Verb(AFTER, "maintenance", "replay"),
    "verify": Verb(AFTER, "maintenance", "verify"),
    "pack": Verb(AFTER, "maintenance", "pack"),
    "purge": Verb(AFTER, "maintenance", "purge"),
    "demo": Verb(PROVE, "demo"),
    "lab": Verb(PROVE, "lab", "app"),
}


class LazyVerbs(TyperGroup):
    """Loads a verb's file when the verb is used: the others cost nothing. Only `--help` loads them all."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            return None
        verb = VERBS[cmd_name]
        part = getattr(importlib.import_module(f"tiltmeter.cli.{verb.file}"), verb.function or verb.file)
        if not isinstance(part, typer.Typer):
            single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
            single.command(cmd_name)(part)
            part = single
        command: Any = typer.main.get_command(part)
        command.name, command.rich_help_panel = cmd_name, verb.panel
        return command


app = typer.Typer(
    name="tiltmeter",
    cls=LazyVerbs,
    help="Is the reward still telling the truth? Watch an RL post-training run and say since when not, and why.\n\n"
    "Exit codes: 0 healthy, 1 an alarm or the advice to stop, 2 could not judge (no gold, stale, unreadable), "
    "3 hollow: the reward has gained and gold has not.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def verbs() -> None:
    """A Typer without commands of its own needs this to be a group; its help is the one above."""


def main() -> None:
    try:
        app()
    except TiltmeterError as error:
        sys.stderr.write(f"tiltmeter: {log_line(str(error))}\n")
        raise SystemExit(2) from None
    except Exception:  # noqa: BLE001
        # Our own mistake must not leave with 1, which means "alarm". Its text may hold what a model wrote.
        sys.stderr.write(visible(traceback.format_exc()))
        raise SystemExit(2) from None
