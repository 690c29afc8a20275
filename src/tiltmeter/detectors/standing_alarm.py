"""An alarm that stands until the run is rolled back to its onset or before, or until an operator calls it false."""

from __future__ import annotations

from dataclasses import replace

from tiltmeter.data.records import Alarm


class StandingAlarm:
    """What a detector with one such alarm has: it keeps the alarm in `_open`, and says in `_rearm` what begins anew."""

    _open: Alarm | None

    @property
    def standing(self) -> Alarm | None:
        """The alarm that is open."""
        return self._open

    def rewind(self, attempt: int, step: int) -> Alarm | None:
        """A new attempt begins at this step: an open alarm whose onset lies there or later is resolved."""
        if self._open is None or attempt == self._open.attempt or step > self._open.onset:
            return None
        return self._resolve(step)

    def dismiss(self, step: int) -> Alarm | None:
        """An operator calls the open alarm false: it is resolved at this step."""
        return None if self._open is None else self._resolve(step)

    def _resolve(self, step: int) -> Alarm:
        assert self._open is not None
        resolved = replace(self._open, resolved=step)
        self._open = None
        self._rearm()
        return resolved

    def _rearm(self) -> None:
        """An alarm was resolved; the next may come."""
