"""The states of a run, in one table: terminal, page, reports, pictures, trackers and documentation take them from here.

`make types` writes it for the page: the words into `web/src/types.ts`, the colours into `view/shell/states.css`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ACT", "HOLLOW", "STALE", "BLIND", "WATCH", "OK"]  # the worst first
Tone = Literal["act", "stale", "blind", "watch", "ok"]


@dataclass(frozen=True, slots=True)
class StateColour:
    """A colour and the ground behind it, each in the light and in the dark scheme; and what a terminal has for it."""

    light: str
    dark: str
    light_ground: str
    dark_ground: str
    terminal: str


@dataclass(frozen=True, slots=True)
class StateWord:
    """One state: its mark beside the word, its colour, its exit code and what it means."""

    icon: str
    tone: Tone
    exit_code: int  # an open alarm or the advice to stop makes it 1, and "cannot tell" makes a 0 a 2
    meaning: str

    @property
    def colour(self) -> StateColour:
        return TONES[self.tone]


TONES: dict[Tone, StateColour] = {
    "act": StateColour("#b42318", "#ff8f85", "#fdecea", "#3a1a18", "bold red"),
    "watch": StateColour("#8a5300", "#f2b65a", "#fdf3e0", "#35280f", "yellow"),
    "blind": StateColour("#6b3fa0", "#c9a5f5", "#f3ecfb", "#2b1f3d", "magenta"),
    "stale": StateColour("#55606e", "#a3aebb", "#eef0f3", "#242b34", "bold"),
    "ok": StateColour("#14693a", "#72d198", "#e6f4ea", "#14301f", "bold green"),
}

STATES: dict[State, StateWord] = {
    "ACT": StateWord(
        "▲", "act", 1, "An alarm is open: by gold, answers are getting worse while the reward is followed; "
        "or different prompts get the same answers. Stop, and go back.",
    ),
    "HOLLOW": StateWord("◇", "act", 3, "The reward has gained, and the answers are not better for it."),
    "STALE": StateWord(
        "⊘", "stale", 2, "Nothing new is measured: the monitor is behind, or the trainer has fallen silent.",
    ),
    "BLIND": StateWord(
        "○", "blind", 2, "Nobody can tell: there is no gold, too little, or too old; or a part of the run is missing.",
    ),
    "WATCH": StateWord("◐", "watch", 0, "No alarm, but a warning, a strong finding, or the advice to stop."),
    "OK": StateWord("✓", "ok", 0, "Healthy so far, with evidence on all nine checks."),
}  # fmt: skip
