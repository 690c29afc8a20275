"""Signs of life of the monitor, for the trainer's process, which kills a monitor that gives none.

They go through a pipe and not through a file: no disk, clock or file system can lose, delay or forge them.
"""

from __future__ import annotations

import os
import threading

BEAT_SECONDS = 1.0
ALIVE, PROGRESS = b".", b"+"


class Heartbeat:
    """Writes a byte a second to a pipe, from a thread of its own: `PROGRESS` if the loop has moved on, else `ALIVE`."""

    def __init__(self, handle: int) -> None:
        self._handle, self._moved = handle, True
        os.set_blocking(handle, False)
        os.set_inheritable(handle, False)
        threading.Thread(target=self._beat, name="tiltmeter-heartbeat", daemon=True).start()

    def progress(self) -> None:
        """The loop has moved on."""
        self._moved = True

    def _beat(self) -> None:
        pause = threading.Event()
        while True:
            moved, self._moved = self._moved, False
            try:
                os.write(self._handle, PROGRESS if moved else ALIVE)
            except BlockingIOError:
                self._moved |= moved  # nobody has read for long
            except OSError:
                return  # the trainer's process is gone
            pause.wait(BEAT_SECONDS)
