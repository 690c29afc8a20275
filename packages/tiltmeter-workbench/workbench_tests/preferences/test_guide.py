"""The guidelines that are shipped: one text for whoever prints it and whoever labels by it."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import pairwise

from tiltmeter.gold.people import PAIR
from tiltmeter.view.server.labelling import GUIDE, KEYS, LONGEST_GUIDE

WHOLE = (files("tiltmeter.gold") / "guide.md").read_text("utf-8")


def test_the_labelling_screen_shows_the_part_that_is_for_raters_and_only_that() -> None:
    shown = GUIDE.removesuffix(f"\n{KEYS}")
    assert shown != GUIDE and shown in WHOLE
    for word in ("Harmless", "Honest", "Helpful", "Coherent", "Tie:", "Both bad:", "Skip:"):
        assert word in shown
    assert "Calibration" not in shown and "Who." not in shown and len(GUIDE.encode()) < LONGEST_GUIDE
    # It has a word for every answer that can be given beside one of the two.
    assert set(PAIR) - {"a", "b"} == {"tie", "both_bad", "skip"}


def test_the_screen_shows_plain_text_so_there_are_no_marks_in_it() -> None:
    assert not re.search(r"[*_`#<>]", GUIDE)


def test_a_line_of_the_raters_part_is_full_or_ends_on_purpose() -> None:
    """The page joins a line to the next where the next word would not have fitted, and nowhere else."""
    lines = GUIDE.splitlines()
    width = max(map(len, lines))
    assert 60 <= width <= 120
    for line, after in pairwise(lines):
        first = after.split()[0]
        if len(line) + 1 + len(first) <= width:  # the page starts a paragraph here
            assert line.endswith(".") and (first == "-" or first[0].isupper())
