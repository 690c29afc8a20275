"""`tiltmeter track`: a run told to the trackers and chat rooms that people already watch."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.show import Run
from tiltmeter.encode import log_line
from tiltmeter.store import RunDirectory
from tiltmeter.trackers.follow import Wish, follow, parent_gone

ADDRESS = "TILTMETER_WEBHOOK_URL"

Wandb = Annotated[
    str | None, typer.Option("--wandb", help="Weights & Biases: PROJECT or ENTITY/PROJECT.", metavar="PROJECT")
]
TensorBoard = Annotated[Path | None, typer.Option("--tensorboard", help="A TensorBoard log directory.", metavar="DIR")]
Mlflow = Annotated[
    str | None, typer.Option("--mlflow", help="MLflow: sqlite:////PATH/mlflow.db, or a server.", metavar="URI")
]
Trackio = Annotated[str | None, typer.Option("--trackio", help="Trackio, on this machine.", metavar="PROJECT")]
Prometheus = Annotated[
    str | None, typer.Option("--prometheus", help="Serve /metrics here; ADDRESS:PORT for others.", metavar="PORT")
]
Webhook = Annotated[
    str | None,
    typer.Option("--webhook", help=f"POST alerts as JSON; the environment's {ADDRESS} if not given.", metavar="URL"),
]
State = Annotated[
    Path | None, typer.Option("--state", help="Where it is kept how far each was told; in RUN if not.", metavar="DIR")
]
Once = Annotated[bool, typer.Option("--once", help="Tell what is there now and end.")]


def track(
    run: Run,
    wandb: Wandb = None,
    tensorboard: TensorBoard = None,
    mlflow: Mlflow = None,
    trackio: Trackio = None,
    prometheus: Prometheus = None,
    webhook: Webhook = None,
    state: State = None,
    once: Once = False,
    attached: Annotated[int | None, typer.Option("--attached", hidden=True, metavar="PID")] = None,
) -> None:
    """Tell a run's readings, alarms and verdict to trackers, and its alerts to a webhook, until the run has ended.

    Example: tiltmeter track runs/tonight --wandb my-project --webhook https://hooks.example.org/T0/B0/x

    Reads the run directory as the page does, in a process of its own; training never waits for it. Restartable at any
    time: each tracker goes on where it was. Exit code: 0 everything was told, 2 something could not be.
    """
    directory = RunDirectory(run)
    directory.identity()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    named = {"wandb": wandb, "tensorboard": tensorboard and str(tensorboard.resolve()), "mlflow": mlflow}
    named |= {"trackio": trackio, "prometheus": prometheus, "webhook": webhook}
    wishes = [Wish(sink, target) for sink, target in named.items() if target]
    if not webhook and (address := os.environ.get(ADDRESS)):
        # A monitor may have begun to tell it by itself.
        wishes.append(Wish("webhook", address, if_free=True))
    if not wishes:
        raise typer.BadParameter("name at least one place: --wandb, --tensorboard, --webhook, ...")
    if once and prometheus:
        raise typer.BadParameter("--prometheus is asked again and again: leave out --once")
    over = (lambda: parent_gone(attached)) if attached is not None else None
    left = follow(directory, wishes, state=state, once=once, over=over)
    for sink, what in left.items():
        sys.stderr.write(
            f"tiltmeter: {sink} was not told {log_line(what)}; the same command goes on where this one was\n"
        )
    raise typer.Exit(2 if left else 0)
