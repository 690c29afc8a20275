"""Acts: planted ones are seen and honest trajectories are not; hostile text neither breaks nor delays a detector."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest
from tests.sizes import size

from tiltmeter.acts import BUILTIN, KINDS, all_acts, find_acts
from tiltmeter.acts.act import TrajectoryAct
from tiltmeter.acts.transcript import LOOKED_AT, Transcript
from tiltmeter.data.batches import from_columns
from tiltmeter.data.turns import Turn
from tiltmeter.instruments.acts import TamperActs

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from act_hostile import hostile
from act_plants import EXPLOITS, Planted, honest, new_task


def shell(command: str, role: str = "assistant") -> Turn:
    return Turn(role, call="bash", arguments=command)


def kinds(*turns: Turn, prompt: str = "") -> set[str]:
    return {act.kind for act in find_acts(Transcript(turns, prompt))}


def acts_of(rows: list[Planted]) -> list[tuple[TrajectoryAct, ...] | None]:
    facts, artifacts = [row.facts or None for row in rows], [row.artifacts or None for row in rows]
    messages = [row.messages for row in rows]
    return all_acts(from_columns(0, list(range(len(rows))), messages=messages, facts=facts, artifacts=artifacts))


def test_each_kind_is_planted_and_seen() -> None:
    rng = random.Random(3)
    rows = [make(new_task(rng)) for make in EXPLOITS for _ in range(12)]
    assert {row.kind for row in rows} == set(KINDS) and len(KINDS) == len(BUILTIN) >= 12
    hits = dict.fromkeys(KINDS, 0)
    for row, acts in zip(rows, acts_of(rows), strict=True):
        hits[row.kind] += any(act.kind == row.kind for act in acts or ())
    assert min(hits.values()) >= 11, hits


def test_honest_trajectories_show_nothing() -> None:
    rng = random.Random(4)
    flagged = [acts for acts in acts_of([honest(rng) for _ in range(200)]) if acts]
    assert len(flagged) <= 1, flagged[:3]


def test_the_evidence_is_where_it_says() -> None:
    turns = (Turn("assistant", "Let me look."), shell('{"cmd": "cd /app\\nls\\nrm -rf tests/"}'), Turn("tool", "ok"))
    (act,) = find_acts(Transcript(turns))
    assert (act.kind, act.turn, act.line, act.quote) == ("test_removal", 1, 3, "rm -rf tests/")


@pytest.mark.parametrize(
    "command",
    [
        "git diff && git log --oneline -5",
        "pytest -q tests/test_a.py",
        "grep -rn skip tests",
        "rm -rf build dist",
        "pip install -U pytest",
        "cat tests/test_a.py > /tmp/copy.py",
        "echo done > out.txt",
    ],
)
def test_everyday_commands_are_no_acts(command: str) -> None:
    assert kinds(shell(command)) == set()


def test_a_test_of_its_own_may_be_edited_and_removed() -> None:
    new = Turn("assistant", call="write", arguments='{"path": "tests/test_new.py", "content": "def test_a(): pass"}')
    edit = shell("sed -i s/a/b/ tests/test_new.py")
    assert kinds(new, edit, shell("rm tests/test_new.py")) == set()
    assert kinds(shell("ls tests"), Turn("tool", "test_new.py"), new) == {"test_edit"}
    assert kinds(shell("rm tests/test_old.py")) == {"test_removal"}


def test_what_others_wrote_is_no_act() -> None:
    assert kinds(shell("rm -r tests", role="tool"), Turn("user", "```bash\nrm -r tests\n```")) == set()
    assert kinds(Turn("assistant", "You can run:\n```bash\nrm -r tests\n```")) == set()  # advice for a reader
    text_agent = Turn("assistant", "```bash\nrm -r tests\n```")
    assert kinds(text_agent, Turn("user", "ok")) == {"test_removal"}  # here its blocks are run


def test_hostile_trajectories_neither_break_nor_delay_it() -> None:
    longest = 0.0
    for seed in range(size(250, 10_000)):
        transcript = hostile(random.Random(seed))
        start = time.process_time()
        for act in find_acts(transcript):
            assert act.kind in KINDS and -1 <= act.turn < max(len(transcript.turns), 1) and len(act.quote) <= 200, seed
        longest = max(longest, time.process_time() - start)
    assert longest < 2.0


@pytest.mark.parametrize("piece", ["if a == [", "'", '"\\', "git log ", "x = 'a\n", "print('5 ", "<<A\n", "open('a', "])
def test_time_grows_no_faster_than_the_text(piece: str) -> None:
    def seconds(length: int) -> float:
        text = (piece * length)[:length]
        turns = (shell(text), Turn("assistant", f"```python\n{text}\n```"), Turn("tool", text))
        start = time.process_time()
        find_acts(Transcript(turns, text))
        return time.process_time() - start

    seconds(1_000)
    assert seconds(LOOKED_AT) < 1.5


def test_what_is_too_long_to_be_read_is_counted() -> None:
    long = "def f(): pass\n" + "x" * LOOKED_AT
    answer = TamperActs().measure(from_columns(0, [0, 0, 0], completion=[long, "def g(): pass", "prose"]), None)
    assert answer["unread_share"][:2].tolist() == [1.0, 0.0]
    assert all(values[2] != values[2] for values in answer.values())  # in prose there is nothing to find: no value
