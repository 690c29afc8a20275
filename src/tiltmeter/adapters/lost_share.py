"""How much a screen of rollouts leaves out, and when that is too much."""

from __future__ import annotations

from collections import deque

from tiltmeter.errors import AttachError

ACTS = "acts"  # as `screen=`: any of the acts is a flag
MOST_LOST = 0.5  # of rollouts, that may be left out
WINDOW = 8  # batches over which that is counted


class LostShare:
    """Counts what is left out of the last batches. `least`: rollouts to see before anything is said.

    >>> lost = LostShare(0.5)
    >>> lost.why_too_much(4, 8), lost.why_too_much(6, 8)[:48]
    ('', 'it would have left out 62 % of the last rollouts')
    """

    def __init__(self, most: float, window: int = WINDOW, least: int = 1) -> None:
        if not 0.0 < most < 1.0:
            raise AttachError(f"most_lost={most}: choose a share of the rollouts between 0 and 1, as 0.5")
        self.most, self._least = most, least
        self._recent: deque[tuple[int, int]] = deque(maxlen=window)  # rollouts left out, and all

    def why_too_much(self, lost: int, rows: int) -> str:
        """Why the screen has to end now; empty if it may go on."""
        self._recent.append((lost, rows))
        seen = sum(count for _, count in self._recent)
        share = sum(one for one, _ in self._recent) / max(seen, 1)
        if seen < self._least or share <= self.most:
            return ""
        return (
            f"it would have left out {100 * share:.0f} % of the last rollouts and may at most {100 * self.most:.0f} %: "
            "there would be little left to learn from"
        )

    def clear(self) -> None:
        self._recent.clear()
