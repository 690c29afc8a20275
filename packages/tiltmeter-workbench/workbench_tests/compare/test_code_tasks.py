"""Programs of a model are run in the sandbox against the tests of real datasets, and nowhere else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.chat_model import ChatAnswer
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.measures.capability import check_tasks, measure
from tiltmeter_workbench.compare.measures.code_tasks import score_code
from tiltmeter_workbench.compare.sampling import AnswerSampler

HUMANEVAL = Path(__file__).parents[5] / "shared" / "data" / "humaneval" / "humaneval.jsonl.gz"
TASKS = [
    {"prompt": "def add(a, b):\n", "test": "assert add(1, 2) == 3\nassert add(0, 0) == 0", "entry_point": "add"},
    {"prompt": "def twice(a):\n", "test": "assert twice(2) == 4\nassert twice(5) == 10", "entry_point": "twice"},
]


class Writes:
    """A model that writes what a test says, its lines unchanged."""

    batch = 8

    def __init__(self, folder: Path, says: Callable[[str], str], chats: bool) -> None:
        self.folder, self.says, self.chats = folder, says, chats

    def answers(self, questions: Sequence[str], **_: Any) -> Iterator[tuple[int, list[ChatAnswer]]]:
        for at, question in enumerate(questions):
            yield at, [ChatAnswer(self.says(question), (1,), True)]


def sampler(folder: Path, says: Callable[[str], str], *, chats: bool) -> AnswerSampler:
    model = cast(LocalModel, Writes(folder / "model", says, chats))
    return AnswerSampler(model, model, folder / "work")


def table(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_program_counts_by_its_tests_and_one_that_cheats_does_not(tmp_path: Path) -> None:
    def says(question: str) -> str:
        if "add" in question:
            return "Sure:\n```python\ndef add(a, b):\n    return a + b\n```"
        return "```python\nimport os\nclass Any:\n    __eq__ = lambda *_: True\ndef twice(a):\n    return Any()\n```"

    told = score_code(sampler(tmp_path, says, chats=True), "base", table(tmp_path, TASKS), None)
    assert told["tasks"]["values"] == {"0": 1.0, "1": 0.0}


def test_nothing_runs_here(tmp_path: Path) -> None:
    mark = tmp_path / "written"
    written = f"```python\nopen({str(mark)!r}, 'w').write('out')\ndef add(a, b):\n    return a + b\n```"
    told = score_code(sampler(tmp_path, lambda _: written, chats=True), "base", table(tmp_path, TASKS[:1]), None)
    assert told["tasks"]["values"] == {"0": 0.0} and not mark.exists()


def test_what_cannot_be_asked_is_said_before_anything_is_sampled(tmp_path: Path) -> None:
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'tiltmeter[compare]'")
    with pytest.raises(AttachError, match="is not there"):
        check_tasks([str(tmp_path / "nothing.jsonl")])
    with pytest.raises(AttachError, match="what a program is to do"):
        score_code(sampler(tmp_path, str, chats=True), "base", table(tmp_path, [{"test": "assert 1"}]), None)


def test_humaneval_is_graded_in_the_sandbox(tmp_path: Path) -> None:
    """Solutions of the dataset pass, for a model that goes on with the prompt as for one that chats; others fail."""
    pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'tiltmeter[compare]'")
    if not HUMANEVAL.exists():
        pytest.skip("HumanEval is not here: shared/data/humaneval")
    rows = [json.loads(line) for line in gzip.decompress(HUMANEVAL.read_bytes()).splitlines()[:12]]
    solutions = {row["prompt"]: row["canonical_solution"] for row in rows}

    def goes_on(prompt: str) -> str:
        return f"{solutions[prompt]}\n\nprint('done')\n"

    def wrong(_: str) -> str:
        return "    return None\n"

    for name, says, share in (("right", goes_on, 1.0), ("wrong", wrong, 0.0)):
        material = sampler(tmp_path / name, says, chats=False)
        told = score_code(material, "base", HUMANEVAL, 12)["humaneval"]["values"]
        assert len(told) == 12 and sum(told.values()) / 12 == pytest.approx(share, abs=0.1)
    both = AnswerSampler(
        cast(LocalModel, Writes(tmp_path / "a", goes_on, False)),
        cast(LocalModel, Writes(tmp_path / "b", wrong, False)),
        tmp_path / "both",
    )
    [told_measure] = measure(both, [str(HUMANEVAL)], limit=12, alpha=0.05)
    assert told_measure.state == "worse" and told_measure.rows[0]["harness"] == "sandbox"
