"""The picture of a run as one SVG file: no script, nothing fetched, light, dark and on paper."""

from __future__ import annotations

from html import escape

from msgspec import UNSET

from tiltmeter.verdict.states import TONES
from tiltmeter.view.payloads.picture import PictureColour, PicturePath, PictureText, RunPicture

#: The page's tokens, light and dark (view/shell/).
COLOURS: dict[PictureColour, tuple[str, str]] = {
    **{tone: (one.light, one.dark) for tone, one in TONES.items()},
    "text": ("#17202a", "#e6eaf0"),
    "faint": ("#55606e", "#a3aebb"),
    "line": ("#d5d9e0", "#343d49"),
    "ground": ("#ffffff", "#12161c"),
    "proxy": ("#0b5cad", "#7db8ff"),
    "gold": ("#9a6200", "#f0b54a"),
    "grey": ("#8a93a0", "#77818e"),
}
FONT = 'system-ui,"Segoe UI","DejaVu Sans",sans-serif'


def render_svg(picture: RunPicture, *, dark: bool = True) -> str:
    """The whole file. Light colours are attributes, so that a policy that forbids styles leaves a picture that can be
    read; dark ones are a style, on screens alone."""
    used = dict.fromkeys([*(path.colour for path in picture.paths), *(words.colour for words in picture.words)])
    rules = "".join(f".f{name}{{fill:{COLOURS[name][1]}}}.s{name}{{stroke:{COLOURS[name][1]}}}" for name in used)
    style = f"<style>@media screen and (prefers-color-scheme:dark){{{rules}}}</style>" if dark else ""
    shapes = "".join([*map(_path, picture.paths), *map(_text, picture.words)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {picture.width} {picture.height}" '
        f'width="{picture.width}" height="{picture.height}" role="img" font-family="{escape(FONT)}">'
        f"<title>{escape(picture.sentence)}</title>"
        f"{style}{shapes}</svg>"
    )


def _path(shape: PicturePath) -> str:
    light = COLOURS[shape.colour][0]
    opacity = "" if shape.opacity is UNSET else f' opacity="{shape.opacity:g}"'
    if shape.fill is not UNSET:
        return f'<path d="{shape.d}" class="f{shape.colour}" fill="{light}"{opacity}/>'
    dash = "" if shape.dash is UNSET else f' stroke-dasharray="{shape.dash}"'
    width = 1.0 if shape.width is UNSET else shape.width
    return (
        f'<path d="{shape.d}" class="s{shape.colour}" fill="none" stroke="{light}" stroke-width="{width:g}" '
        f'stroke-linejoin="round"{dash}{opacity}/>'
    )


def _text(shape: PictureText) -> str:
    anchor = "" if shape.anchor is UNSET else f' text-anchor="{shape.anchor}"'
    weight = ' font-weight="600"' if shape.bold is not UNSET else ""
    return (
        f'<text x="{shape.x:g}" y="{shape.y:g}" class="f{shape.colour}" fill="{COLOURS[shape.colour][0]}" '
        f'font-size="{shape.size:g}"{weight}{anchor}>{escape(shape.text)}</text>'
    )
