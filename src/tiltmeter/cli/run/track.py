"""`tiltmeter track`: export a run to experiment trackers, and its alerts to a webhook."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.options import Run, open_run
from tiltmeter.monitor.alerts import WEBHOOK_VARIABLE
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.follow import SinkSpec, follow, parent_gone
from tiltmeter.view.trackers.otlp import TEXTS

Wandb = Annotated[
    str | None, typer.Option("--wandb", help="Weights & Biases: PROJECT or ENTITY/PROJECT.", metavar="PROJECT")
]
TensorBoard = Annotated[
    Path | None, typer.Option("--tensorboard", help="A TensorBoard log directory.", metavar="FOLDER")
]
Mlflow = Annotated[
    str | None, typer.Option("--mlflow", help="MLflow: sqlite:////PATH/mlflow.db, or a server.", metavar="URI")
]
Trackio = Annotated[str | None, typer.Option("--trackio", help="Trackio, on this machine.", metavar="PROJECT")]
Prometheus = Annotated[
    str | None, typer.Option("--prometheus", help="Serve /metrics here; ADDRESS:PORT for others.", metavar="PORT")
]
Webhook = Annotated[
    str | None,
    typer.Option("--webhook", help=f"POST alerts, to Slack and Discord too; or to {WEBHOOK_VARIABLE}.", metavar="URL"),
]
Otlp = Annotated[
    str | None,
    typer.Option("--otlp", help="OpenTelemetry: the address of a collector, for OTLP over HTTP.", metavar="URL"),
]
OtlpTexts = Annotated[
    bool, typer.Option("--otlp-texts", help="Send the completions that show an alarm to the collector too.")
]
State = Annotated[
    Path | None,
    typer.Option("--state", help="Where to keep each sink's position; in RUN if not given.", metavar="FOLDER"),
]
Once = Annotated[bool, typer.Option("--once", help="Send what is there now and exit.")]


def track(
    run: Run,
    wandb: Wandb = None,
    tensorboard: TensorBoard = None,
    mlflow: Mlflow = None,
    trackio: Trackio = None,
    prometheus: Prometheus = None,
    webhook: Webhook = None,
    otlp: Otlp = None,
    otlp_texts: OtlpTexts = False,
    state: State = None,
    once: Once = False,
    attached: Annotated[int | None, typer.Option("--attached", hidden=True, metavar="PID")] = None,
) -> None:
    """Send a run's readings, alarms and verdict to trackers, and its alerts to a webhook, until the run has ended.

    Example: tiltmeter track runs/tonight --wandb my-project --webhook https://hooks.example.org/T0/B0/x

    Reads the run directory as the page does, in a process of its own; training never waits for it. Restartable at any
    time: each tracker goes on where it was. Exit code: 0 everything was sent, 2 something could not be.
    """
    directory = open_run(run)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    targets = {"wandb": wandb, "tensorboard": tensorboard and str(tensorboard.resolve()), "mlflow": mlflow}
    targets |= {"trackio": trackio, "prometheus": prometheus, "webhook": webhook}
    targets["otlp"] = f"{TEXTS}{otlp}" if otlp and otlp_texts else otlp
    wishes = [SinkSpec(sink, target) for sink, target in targets.items() if target]
    if not webhook and (address := os.environ.get(WEBHOOK_VARIABLE)):
        # A monitor may already be sending to it.
        wishes.append(SinkSpec("webhook", address, if_free=True))
    if not wishes:
        raise typer.BadParameter("name at least one place: --wandb, --tensorboard, --webhook, ...")
    if once and prometheus:
        raise typer.BadParameter("--prometheus is asked again and again: leave out --once")
    over = (lambda: parent_gone(attached)) if attached is not None else None
    unsent = follow(directory, wishes, state=state, once=once, over=over)
    for sink, what in unsent.items():
        sys.stderr.write(
            f"tiltmeter: {sink} did not get {log_line(what)}; the same command continues where this one stopped\n"
        )
    raise typer.Exit(2 if unsent else 0)
