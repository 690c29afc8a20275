"""`python -m tiltmeter.monitor RUN --attached PID`: the monitor that an adapter starts beside a trainer.

It loads the loop and nothing that draws on a terminal. `tiltmeter watch RUN` is the same for a person.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

from tiltmeter.errors import TiltmeterError
from tiltmeter.gold.function_process import FunctionProcess
from tiltmeter.monitor.alerts import AlertProcess
from tiltmeter.monitor.heartbeat import Heartbeat
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.loading import load_function


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tiltmeter.monitor", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("--attached", type=int, required=True, metavar="PID", help="the trainer's process")
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE:CLASS")
    parser.add_argument("--gold", metavar="GOLD")
    parser.add_argument("--gold-share", type=float, default=None, metavar="SHARE")
    parser.add_argument("--gold-steps", type=int, metavar="N")
    parser.add_argument("--experiment", metavar="FILE:FUNCTION")
    parser.add_argument("--heartbeat", type=int, metavar="DESCRIPTOR", help="a pipe for signs of life")
    options = parser.parse_args()
    heartbeat = None if options.heartbeat is None else Heartbeat(options.heartbeat)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # asked to end: no step is to blame
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
    try:
        directory = RunDirectory(options.run)
        directory.identity()
        config = Config.standard(
            options.plugin, gold=options.gold, gold_share=options.gold_share, gold_steps=options.gold_steps
        )
        reward = None
        if options.experiment is not None:
            reward = FunctionProcess(options.experiment, load_function(options.experiment))
        alerts = AlertProcess(directory)
        run_monitor(
            directory,
            config,
            reward=reward,
            parent=options.attached,
            on_poll=alerts.check,
            on_progress=(lambda: None) if heartbeat is None else heartbeat.progress,
        )
    except TiltmeterError as error:
        sys.stderr.write(f"tiltmeter: {str(error)!r}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
