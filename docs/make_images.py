"""Makes the pictures of the documentation, and the README's excerpt, anew: `python docs/make_images.py`.

Each picture is what `tiltmeter show` prints about a run of `tiltmeter demo`, measured here and now, as SVG text. It
refers to no font or file on the network.
"""

from __future__ import annotations

import io
import re
import tempfile
from itertools import takewhile
from pathlib import Path

from rich.console import Console

from tiltmeter.cli.demo import Case, measured
from tiltmeter.cli.screen import plain, screen

IMAGES = Path(__file__).parent / "images"
README = Path(__file__).parent.parent / "README.md"
EXCERPT = re.compile(r"(^```console\n\$ tiltmeter demo --plain\n).*?(^```$)", re.M | re.S)
RUNS = ("hacked", "honest")
COLUMNS = 108

#: Rich's own template without its web font.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        cases = [measured(name, Path(folder) / name) for name in RUNS]
        for case in cases:
            (IMAGES / f"{case.name}.svg").write_text(drawn(case))
        README.write_text(EXCERPT.sub(lambda block: block[1] + excerpt(cases) + block[2], README.read_text()))


def drawn(case: Case) -> str:
    """What `tiltmeter show` prints about a run of the demo, as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False, markup=False)
    console.print(screen(case.run, case.verdict, case.story, case.events, rows=8))
    # A fixed id: the same run gives the same file.
    return console.export_svg(title=f"tiltmeter show {case.name}", code_format=SVG, unique_id=case.name)


def excerpt(cases: list[Case]) -> str:
    """The verdicts as `tiltmeter demo --plain` prints them, without the readings."""
    lines = ["..."]
    for case in cases:
        printed = plain(case.run, case.verdict, case.story, case.events)
        told = takewhile(lambda line: not line.startswith("Cannot see"), printed)
        lines += [*told, "..."]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
