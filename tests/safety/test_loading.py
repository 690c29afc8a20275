"""What an operator names is loaded as it would be imported."""

from __future__ import annotations

from pathlib import Path

from tiltmeter.safety.loading import load_function

FILE = """
from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Known:
    answer: str


def right(prompt: str, completion: str) -> float:
    return float(completion == Known("4").answer)
"""


def test_a_named_file_may_define_dataclasses(tmp_path: Path) -> None:
    (tmp_path / "checks_with_classes.py").write_text(FILE)
    right = load_function(f"{tmp_path / 'checks_with_classes.py'}:right")
    assert [right("2 + 2?", "4"), right("2 + 2?", "5")] == [1.0, 0.0]
