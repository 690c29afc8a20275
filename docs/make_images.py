"""Makes the pictures of the documentation, and the README's excerpt, anew.

    python docs/make_images.py          # the two runs of `tiltmeter demo`, measured here and now
    python docs/make_images.py --trl    # the run of examples/trl_quickstart.py, trained here and now; needs TRL

Each picture is what `tiltmeter show --more` prints about a run, as SVG text. It refers to no font or file on the
network. The demo's runs are recorded, so its pictures come out the same everywhere. Training does not: numbers and
completions of the other picture differ from machine to machine, and the tests compare only what every run of the
quickstart says.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console, RenderableType

from tiltmeter.cli.demo import DemoRun, measure_demo_run
from tiltmeter.cli.terminal.run_screen import message_lines, screen
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

IMAGES = Path(__file__).parent / "images"
README = Path(__file__).parent.parent / "README.md"
QUICKSTART = Path(__file__).parent.parent / "examples" / "trl_quickstart.py"
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trl", action="store_true", help="the picture of the TRL quickstart instead")
    with tempfile.TemporaryDirectory() as folder:
        if parser.parse_args().trl:
            (IMAGES / "trl_default.svg").write_text(quickstart(Path(folder)))
            return
        cases = [measure_demo_run(name, Path(folder) / name) for name in RUNS]
        for case in cases:
            shown = screen(case.run, case.verdict, case.run_facts, case.events, rows=8)
            (IMAGES / f"{case.name}.svg").write_text(drawn(shown, case.name))
        README.write_text(EXCERPT.sub(lambda block: block[1] + excerpt(cases) + block[2], README.read_text()))


def quickstart(folder: Path) -> str:
    """The picture of the quickstart with the settings it has: it is trained, and the monitor is waited for."""
    subprocess.run([sys.executable, str(QUICKSTART)], cwd=folder, check=True, timeout=600)
    watch = [sys.executable, "-m", "tiltmeter", "watch", "quickstart/tiltmeter", "--gold", "answers"]
    subprocess.run(watch, cwd=folder, timeout=600)
    run = RunDirectory(folder / "quickstart" / "tiltmeter")
    return drawn(screen(run, *judge_run(run)), "quickstart/tiltmeter")


def drawn(shown: RenderableType, name: str) -> str:
    """What `tiltmeter show` prints, as a picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), highlight=False, markup=False)
    console.print(shown)
    # A fixed id: the same run gives the same file.
    return console.export_svg(title=f"tiltmeter show {name} --more", code_format=SVG, unique_id=name.partition("/")[0])


def excerpt(cases: list[DemoRun]) -> str:
    """The five lines of each run as `tiltmeter demo --plain` prints them, but for where to look."""
    lines = ["..."]
    for case in cases:
        lines += [*list(message_lines(case.run, case.verdict, case.run_facts, case.events))[:4], "..."]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
