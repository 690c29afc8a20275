"""The picture of a run as the page draws it: lines, areas and words with their places."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

#: What a colour stands for; the page's style sheet has the same names.
PictureColour = Literal[
    "text", "faint", "line", "ground", "proxy", "gold", "act", "watch", "blind", "stale", "ok", "grey"
]
TextAnchor = Literal["start", "middle", "end"]


class PicturePath(Struct, frozen=True, kw_only=True):
    """A line, or with `fill` an area. `d` has only absolute moves, lines and ends: M, L and Z."""

    d: str
    colour: PictureColour
    fill: bool | UnsetType = UNSET
    width: float | UnsetType = UNSET  # of the line
    opacity: float | UnsetType = UNSET
    dash: str | UnsetType = UNSET


class PictureText(Struct, frozen=True, kw_only=True):
    """Words; x and y are the anchor on their base line."""

    x: float
    y: float
    text: str
    colour: PictureColour
    size: float
    bold: bool | UnsetType = UNSET
    anchor: TextAnchor | UnsetType = UNSET


class RunPicture(Struct, frozen=True, kw_only=True):
    """Proxy and gold of a run at one size. Paths lie below words."""

    width: int
    height: int
    left: float  # of the first step
    right: float  # of the last step
    first: int  # step
    last: int
    sentence: str  # what it shows, for people who cannot see it
    paths: list[PicturePath]
    words: list[PictureText]
