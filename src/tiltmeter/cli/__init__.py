"""The command line: plain verbs, five on top; packages add nouns. Exits 0 healthy, 1 an alarm, 2 cannot judge."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tiltmeter.cli.extras import how_to_install
from tiltmeter.cli.verb_table import CORE, FIRST, MissingVerb, all_verbs, missing_verbs, names_below, summary
from tiltmeter.errors import AttachError, TiltmeterError
from tiltmeter.safety.safe_text import log_line, visible
from tiltmeter.version import __version__

FIRST_STEPS = "Watch a TRL run: tiltmeter.attach(trainer) before trainer.train(). Then, in any terminal:\n"
STYLE: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
}


class LazyVerbs(TyperGroup):
    """Loads a verb's file when the verb is used. Lists are made of docstrings: no verb is loaded for them."""

    only_lists = False

    def list_commands(self, ctx: Any) -> list[str]:
        return names_below(self.name if self.name and self.name in all_verbs().nouns else "")

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        nouns, verbs = all_verbs().nouns, all_verbs().verbs
        spelling = f"{self.name} {cmd_name}" if self.name in nouns else cmd_name
        if spelling in nouns:
            noun = typer.Typer(cls=LazyVerbs, help=nouns[spelling].help, no_args_is_help=True, **STYLE)
            noun.callback()(_group)
            command: Any = typer.main.get_command(noun)
            command.name, command.rich_help_panel = spelling, nouns[spelling].panel
            return command
        if spelling not in verbs:
            missing = missing_verbs().get(spelling)
            return None if missing is None else _missing_command(cmd_name, spelling, missing)
        verb = verbs[spelling]
        if self.only_lists:
            return TyperCommand(cmd_name, help=summary(verb), rich_help_panel=verb.panel)
        single = typer.Typer(**STYLE)
        single.command(cmd_name)(getattr(importlib.import_module(verb.module), verb.name))
        command = typer.main.get_command(single)
        command.name, command.rich_help_panel = cmd_name, verb.panel
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        names: dict[str, Any] = dict.fromkeys(self.list_commands(ctx))
        self.commands = names  # for "Did you mean", which looks at nothing else
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.only_lists = True
        super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        self.only_lists = True
        return super().shell_complete(ctx, incomplete)


def _missing_command(name: str, spelling: str, missing: MissingVerb) -> TyperCommand:
    """A verb that is listed, dim, and says what to install when it is used."""

    def say_how_to_install() -> None:
        raise AttachError(f"tiltmeter {spelling} is in a package of its own: {missing.fix}")

    any_arguments = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    text = f"[dim]{missing.help} {missing.fix.replace('[', chr(92) + '[')}[/dim]"
    return TyperCommand(
        name, callback=say_how_to_install, help=text, rich_markup_mode="rich", rich_help_panel=missing.panel,
        context_settings=any_arguments,
    )  # fmt: skip


app = typer.Typer(
    name="tiltmeter",
    cls=LazyVerbs,
    help="Is the reward still telling the truth? Watch an RL post-training run and say since when not, and why.\n\n"
    "Exit codes: 0 healthy, 1 an alarm or the advice to stop, 2 could not judge (no gold, stale, unreadable), "
    "3 hollow: the reward has gained and gold has not.",
    invoke_without_command=True,
    **(STYLE | {"add_completion": True}),
)


def _group() -> None:
    """A Typer without commands of its own needs this to be a group; its help is the noun's."""


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"tiltmeter {__version__}\n")
        raise typer.Exit


def _print_first_steps() -> None:
    """What `tiltmeter` alone says: the verbs that matter, and how to see the others."""
    first = [name for name, verb in CORE.verbs.items() if verb.panel == FIRST]
    lines = [f"  tiltmeter {name:<8}{summary(CORE.verbs[name])}" for name in first]
    sys.stdout.write("\n".join([FIRST_STEPS, *lines, "", "All verbs: tiltmeter --help\n"]))


@app.callback()
def verbs(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """The options of `tiltmeter` itself; its help is the one above."""
    if ctx.invoked_subcommand is None:
        _print_first_steps()


def main() -> None:
    try:
        app()
    except TiltmeterError as error:
        sys.stderr.write(f"tiltmeter: {log_line(str(error))}\n")
        raise SystemExit(2) from None
    except Exception as error:  # noqa: BLE001
        if isinstance(error, ModuleNotFoundError) and (fix := how_to_install(error.name or "", tuple(sys.argv[1:3]))):
            sys.stderr.write(f"tiltmeter: {fix}\n")
            raise SystemExit(2) from None
        # Our own mistake must not leave with 1, which means "alarm". Its text may hold what a model wrote.
        sys.stderr.write(visible(traceback.format_exc()))
        raise SystemExit(2) from None
