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
from typing import Any

from tiltmeter.errors import TiltmeterError
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.console import send_message
from tiltmeter.view.trackers.follow import SinkSpec, follow

KINDS = ("wandb", "trackio", "tensorboard", "mlflow")
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
    ended, gone = threading.Event(), threading.Event()
    awaited = {spec.sink for spec in specs} & AWAITED

    def finish_one(sink: str) -> None:
        awaited.discard(sink)
        if not awaited:
            send_message({"done": True})

    def listen() -> None:
        while (news := _next_message()) is not None:
            if news.get("end"):
                ended.set()
        gone.set()
        ended.set()

    threading.Thread(target=listen, name="tiltmeter-trainer", daemon=True).start()
    try:
        unsent = follow(
            run,
            specs,
            over=lambda: gone.is_set() and monitor_running(run) is not True,
            may_end=ended.is_set,
            on_skip=lambda why: send_message({"line": f"Not in the trainer's own run: {log_line(why, 300)}"}),
            on_finish=finish_one,
        )
    except TiltmeterError as error:
        send_message({"line": f"Nothing more is reported here: {log_line(str(error), 300)}"})
        return 2
    for sink, what in unsent.items():
        send_message({"line": f"{sink} did not get {log_line(what)}"})
    send_message({"done": True})
    return 0


def _next_message() -> dict[str, Any] | None:
    """The next message of the trainer; None: it has gone."""
    line = sys.stdin.readline()
    message = json.loads(line) if line.strip() else None
    return message if isinstance(message, dict) else None


if __name__ == "__main__":
    sys.exit(main())
