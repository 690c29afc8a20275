"""`states.css` beside this file, written from the table of states: `make types` runs this module.

A class with the name of a state sets `--state` and `--state-ground`; the other style sheets use these two.
"""

from __future__ import annotations

import sys

from tiltmeter.verdict.states import STATES, TONES

HEAD = "/* The colours of the states, written from `verdict/states.py` by `make types`: edit them there. */"


def render() -> str:
    """The whole file."""
    light = [f"--{tone}: {one.light}; --{tone}-ground: {one.light_ground};" for tone, one in TONES.items()]
    dark = [f"--{tone}: {one.dark}; --{tone}-ground: {one.dark_ground};" for tone, one in TONES.items()]
    rules = [
        f".{state.lower()}:is(.state, .head, .tile) {{ "
        f"--state: var(--{one.tone}); --state-ground: var(--{one.tone}-ground); }}"
        for state, one in STATES.items()
    ]
    scheme = "@media screen and (prefers-color-scheme: dark) {"
    root = [":root {", *_indented(light, 1), "}"]
    in_the_dark = [scheme, "  :root:not(.paper) {", *_indented(dark, 2), "  }", "}"]
    return "\n".join([HEAD, *root, *in_the_dark, *rules, ""])


def _indented(lines: list[str], depth: int) -> list[str]:
    return [f"{'  ' * depth}{line}" for line in lines]


if __name__ == "__main__":
    sys.stdout.write(render())
