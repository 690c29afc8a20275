"""Sends a run's readings, alerts and evidence into the trainer's own run in its trackers, and lines to its console.

    python -m tiltmeter.view.trackers.trainer_run RUN

Started by the trainer's process, which writes messages to its standard input, one JSON object a line: where the
trainer's own runs are, once they are open, then that training has ended. The answers, on standard output, are lines to
print and that everything is sent. Trackers are reached from here, never from the trainer's threads.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from contextlib import closing
from typing import Any

from tiltmeter.errors import TiltmeterError
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.console import send_message
from tiltmeter.view.trackers.follow import PATIENCE, SinkSpec, follow
from tiltmeter.view.trackers.position import BusyError, SinkPosition, state_folder

KINDS = ("wandb", "trackio", "tensorboard", "mlflow")
LONGEST_WAIT = 2 * PATIENCE
#: What the end of training waits for: W&B's run ends with the trainer, the other trackers take more after that.
AWAITED = frozenset({"wandb", "console"})


def main() -> int:
    sys.stdout = sys.stderr  # trackers print, and the pipe is for messages
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(message)s")
    run = RunDirectory(sys.argv[1])
    message = _next_message()
    if message is None:
        return 0
    # What a tracker's package finds its own process by; it is in the trainer's environment since its run is open.
    os.environ.update({str(name): str(value) for name, value in message.get("environment", {}).items()})
    specs = [
        SinkSpec(kind, str(target), if_free=True, join=True)
        for kind, target in message.get("trackers", {}).items()
        if kind in KINDS
    ]
    if where := message.get("console"):
        specs.append(SinkSpec("console", str(where), if_free=True))
    if not specs:
        send_message({"done": True})
        return 0
    ended, gone = threading.Event(), threading.Event()
    awaited = {spec.sink for spec in specs} & AWAITED

    def finish_one(sink: str) -> None:
        """Once: what the end of training waits for is done."""
        if sink in awaited:
            awaited.discard(sink)
            if not awaited:
                send_message({"done": True})

    def listen() -> None:
        while (news := _next_message()) is not None:
            if news.get("end"):
                ended.set()
                if not awaited:
                    send_message({"done": True})
        gone.set()
        ended.set()

    threading.Thread(target=listen, name="tiltmeter-trainer", daemon=True).start()
    attempt = max(run.attempts(), default=0)

    def over() -> bool:
        """The trainer has gone, or is at its next attempt, which has a process of its own."""
        return gone.is_set() and (monitor_running(run) is not True or max(run.attempts(), default=0) > attempt)

    def skip(why: str) -> None:
        send_message({"line": f"Not in the trainer's own run: {log_line(why, 300)}"})
        finish_one(why.partition(":")[0])

    try:
        with closing(_wait_for_place(run)):
            unsent = follow(run, specs, over=over, may_end=ended.is_set, on_skip=skip, on_finish=finish_one)
    except TiltmeterError as error:
        send_message({"line": f"Nothing more is reported here: {log_line(str(error), 300)}"})
        return 2
    for sink, what in unsent.items():
        send_message({"line": f"{sink} did not get {log_line(what)}"})
    send_message({"done": True})
    return 0


def _wait_for_place(run: RunDirectory) -> SinkPosition:
    """Wait for the process of an earlier attempt, which may still send: of two, one would find its sinks taken."""
    deadline = time.monotonic() + LONGEST_WAIT
    while True:
        try:
            return SinkPosition(state_folder(run), "trainer_run", "", "")
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def _next_message() -> dict[str, Any] | None:
    """The next message of the trainer; None: it has gone."""
    line = sys.stdin.readline()
    message = json.loads(line) if line.strip() else None
    return message if isinstance(message, dict) else None


if __name__ == "__main__":
    sys.exit(main())
