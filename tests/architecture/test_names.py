"""Names can be read off: a class name stands for one thing, and bare participles as names only get fewer."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "tiltmeter"
sys.path.insert(0, str(ROOT / "benchmarks"))

import house  # noqa: E402

#: Only ever lowered: a name says what it holds or does.
MOST_PARTICIPLES = 80
#: Words that stood for things before they had plain names; none comes back as a file.
METAPHORS = {
    *("beside", "borrowed", "counsel", "desk", "docket", "leash", "levers", "piles", "purse", "sheet", "shelf"),
    *("steward", "story", "telling", "unplaced", "upkeep"),
}


def test_participles_as_names_only_get_fewer() -> None:
    assert house.participle_names(SRC) <= MOST_PARTICIPLES


def test_a_class_name_stands_for_one_thing() -> None:
    assert house.shared_class_names(SRC) == {}


def test_no_file_is_named_by_a_metaphor() -> None:
    assert not {path.stem for path in SRC.rglob("*.py")} & METAPHORS


def test_the_counts_see_what_is_planted(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class Same:\n    def told(self, found):\n        return found.made\n")
    (tmp_path / "two.py").write_text("class Same: ...\n")
    assert house.participle_names(tmp_path) == 4
    assert house.shared_class_names(tmp_path) == {"Same": ["one.py", "two.py"]}
