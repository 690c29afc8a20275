"""Posts to the webhook that the monitor is off: the monitor, which posts all other alerts, cannot.

    python -m tiltmeter.view.trackers.monitor_off RUN REASON

Started by the trainer's process, which must not wait for a network. The address is read from the environment.
"""

from __future__ import annotations

import os
import sys
import time

from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.sink import Alert, RetryLaterError, RunIdentity, alert_identity
from tiltmeter.view.trackers.webhook import WebhookSink
from tiltmeter.view.without_secrets import without_secrets

TRIES, PAUSE = 5, 20.0  # seconds between two tries


def monitor_off_alert(run: RunDirectory, why: str, now: float) -> Alert:
    identity = RunIdentity(str(run.identity().get("id", "")), log_line(run.path.name, 100))
    attempt = max(run.attempts(), default=0)
    step = max((file.step for file in run.files(attempt)), default=0)
    event = f"monitor-off-{attempt}-{int(now)}"
    text = (
        f"The monitor of {identity.name} is off: {log_line(why, 200)}. Training goes on and nothing is measured until "
    )
    text += "it starts again; to measure by hand, where the run is: tiltmeter watch RUN"
    return Alert(
        identity=alert_identity(identity, event),
        event=event,
        title=f"Monitor off: {identity.name}",
        text=text,
        level="ERROR",
        attempt=attempt,
        step=step,
        onset=step,
        onset_low=step,
        onset_high=step,
        detector="monitor",
        reading="monitor",
        run=identity,
        time=now,
    )


def main() -> int:
    run, why = RunDirectory(sys.argv[1]), sys.argv[2]
    sink, alert = (
        WebhookSink(os.environ["TILTMETER_WEBHOOK_URL"]),
        without_secrets(monitor_off_alert(run, why, time.time())),
    )
    for attempt in range(TRIES):
        try:
            sink.send_alert(alert)
            return 0
        except RetryLaterError:
            time.sleep(PAUSE if attempt + 1 < TRIES else 0.0)
    return 2


if __name__ == "__main__":
    sys.exit(main())
