"""The command line: one file per verb, grouped by when you need it. Exits 0 healthy, 1 an alarm, 2 cannot judge."""

from __future__ import annotations

import sys
import traceback

import typer

from tiltmeter.cli import (
    actions,
    audit,
    compare,
    constitution,
    demo,
    diff,
    doctor,
    forecast,
    lab,
    pack,
    phrases,
    pin,
    plan,
    preferences,
    probe,
    purge,
    replay,
    report,
    sandbox,
    show,
    tilt,
    track,
    train,
    verify,
    view,
    watch,
)
from tiltmeter.errors import TiltmeterError
from tiltmeter.safety.safe_text import log_line

app = typer.Typer(
    name="tiltmeter",
    help="Is the reward still telling the truth? Watch an RL post-training run and say since when not, and why.\n\n"
    "Exit codes: 0 healthy, 1 an alarm, 2 could not judge (no gold, stale, unreadable, wrong usage).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

BEFORE, DURING, AFTER, PROVE = "Before a run", "During a run", "After a run", "Prove it"

app.command("doctor", rich_help_panel=BEFORE)(doctor.doctor)
app.add_typer(sandbox.app, name="sandbox", rich_help_panel=BEFORE)
app.command("probe", rich_help_panel=BEFORE)(probe.probe)
app.command("preferences", rich_help_panel=BEFORE)(preferences.preferences)
app.command("constitution", rich_help_panel=BEFORE)(constitution.constitution)
app.command("plan", rich_help_panel=BEFORE)(plan.plan)
app.command("forecast", rich_help_panel=BEFORE)(forecast.forecast)
app.command("tilt", rich_help_panel=BEFORE)(tilt.tilt)
app.command("train", rich_help_panel=DURING)(train.train)
app.command("watch", rich_help_panel=DURING)(watch.watch)
app.command("show", rich_help_panel=DURING)(show.show)
app.command("view", rich_help_panel=DURING)(view.view)
app.command("track", rich_help_panel=DURING)(track.track)
app.command("phrases", rich_help_panel=DURING)(phrases.phrases)
app.command("alarms", rich_help_panel=DURING)(actions.alarms)
app.command("acknowledge", rich_help_panel=DURING)(actions.acknowledge)
app.command("dismiss", rich_help_panel=DURING)(actions.dismiss)
app.command("actions", rich_help_panel=DURING)(actions.actions)
app.command("approve", rich_help_panel=DURING)(actions.approve)
app.command("reject", rich_help_panel=DURING)(actions.reject)
app.command("undo", rich_help_panel=DURING)(actions.undo)
app.command("compare", rich_help_panel=AFTER)(compare.compare)
app.command("audit", rich_help_panel=AFTER)(audit.audit)
app.command("report", rich_help_panel=AFTER)(report.report)
app.command("diff", rich_help_panel=AFTER)(diff.diff)
app.command("pin", rich_help_panel=AFTER)(pin.pin)
app.command("replay", rich_help_panel=AFTER)(replay.replay)
app.command("verify", rich_help_panel=AFTER)(verify.verify)
app.command("pack", rich_help_panel=AFTER)(pack.pack)
app.command("purge", rich_help_panel=AFTER)(purge.purge)
app.command("demo", rich_help_panel=PROVE)(demo.demo)
app.add_typer(lab.app, name="lab", rich_help_panel=PROVE)


def main() -> None:
    try:
        app()
    except TiltmeterError as error:
        sys.stderr.write(f"tiltmeter: {log_line(str(error))}\n")
        raise SystemExit(2) from None
    except Exception:  # noqa: BLE001
        # A bug of ours must not exit with 1, which means "alarm".
        traceback.print_exc()
        raise SystemExit(2) from None
