"""`tiltmeter picture`: proxy and gold of a run, where they parted, the alarm and the checkpoint to go back to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tiltmeter.cli.options import Plain, Run, file_stem, open_run, write_report
from tiltmeter.cli.terminal.picture import picture_lines
from tiltmeter.view.screens.picture.curves import caption, read_curves
from tiltmeter.view.screens.picture.layout import draw_run
from tiltmeter.view.screens.picture.png import render_png
from tiltmeter.view.screens.picture.svg import render_svg
from tiltmeter.view.screens.run_reader import RunReader

Png = Annotated[Path | None, typer.Option("--png", help="Write it here, for chats and slides.", metavar="FILE")]
Svg = Annotated[
    Path | None, typer.Option("--svg", help="Write it here, sharp at any size; - prints it.", metavar="FILE")
]


def picture(run: Run, png: Png = None, svg: Svg = None, plain: Plain = False) -> None:
    """Draw a run: reward and gold, the gap, where it turned, the alarm, the last good checkpoint, what was changed.

    Example: tiltmeter picture runs/tonight --png tonight.png

    Without an option it is drawn in the terminal. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    reader = RunReader(open_run(run, steps=0))
    verdict = reader.refresh()
    curves = read_curves(reader)
    name = f"{file_stem(reader.name)}-picture"
    if svg is not None:
        write_report(render_svg(draw_run(curves)) + "\n", svg, f"{name}.svg", "--svg")
    if png is not None:
        write_report(render_png(draw_run(curves), 2.0), png, f"{name}.png", "--png")
    if svg is None and png is None:
        console = Console(highlight=False, markup=False, soft_wrap=plain, no_color=plain or None)
        if plain:
            for line in caption(curves):
                console.out(line.replace("→", "->").encode("ascii", "backslashreplace").decode())
        else:
            for text in picture_lines(curves, min(console.width, 100), 12):
                console.print(text)
    raise typer.Exit(verdict.exit_code)
