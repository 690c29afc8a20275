"""Acts: what a trajectory did that a task does not ask for, with turn, line and quote as evidence.

Each kind has a file of its own. An act is evidence and a reason to look, never a verdict: tests are edited for good
reasons too. Everything is a pure function of a row and linear in its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from tiltmeter.acts.act import ActDetector, TrajectoryAct
from tiltmeter.acts.configure_tests import ConfigureTests
from tiltmeter.acts.early_exit import EarlyExit
from tiltmeter.acts.edit_tests import EditTests
from tiltmeter.acts.equality_override import EqualityOverride
from tiltmeter.acts.fewer_tests import FewerTests
from tiltmeter.acts.grader_patch import GraderPatch
from tiltmeter.acts.hash_change import HashChange
from tiltmeter.acts.history_read import HistoryRead
from tiltmeter.acts.literal_branch import LiteralBranch
from tiltmeter.acts.look_up_tests import LookUpTests
from tiltmeter.acts.monkeypatch import Monkeypatch
from tiltmeter.acts.outside_workspace import OutsideWorkspace
from tiltmeter.acts.protected_path import ProtectedPath
from tiltmeter.acts.remove_tests import RemoveTests
from tiltmeter.acts.repository_fetch import RepositoryFetch
from tiltmeter.acts.result_spoof import ResultSpoof
from tiltmeter.acts.skip_tests import SkipTests
from tiltmeter.acts.transcript import Transcript
from tiltmeter.data.memo import shared
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import ASSISTANT, Turn, row_turns

MOST = 8  # acts of one kind in one trajectory: the first tell enough
PART = 32  # one prompt group in so many is read at a step, and at least one

BUILTIN: tuple[ActDetector, ...] = (
    RemoveTests(),
    EditTests(),
    ConfigureTests(),
    SkipTests(),
    FewerTests(),
    HashChange(),
    GraderPatch(),
    ProtectedPath(),
    OutsideWorkspace(),
    EarlyExit(),
    EqualityOverride(),
    Monkeypatch(),
    ResultSpoof(),
    LiteralBranch(),
    LookUpTests(),
    HistoryRead(),
    RepositoryFetch(),
)
#: What can be seen where nothing was written or run that is worth reading: in answers, and in records of files.
OF_RECORDS = tuple(detector for detector in BUILTIN if detector.kind in ("fewer_tests", "hash_change"))
KINDS = tuple(detector.kind for detector in BUILTIN)
SAYS: Mapping[str, str] = {detector.kind: detector.says for detector in BUILTIN}

#: Without one of these there is no code, no call and no file in an answer, and nothing to look for.
_CODE_MARKS = ("```", "def ", "import ", "class ", "<file", "path=", "name=", "</", "<<<<<", "*** ", "+++ ", '"path"')


def find_acts(transcript: Transcript) -> tuple[TrajectoryAct, ...]:
    """The acts of a trajectory, kind by kind.

    >>> turns = (Turn("assistant", call="bash", arguments='{"cmd": "rm -r tests && pytest || true"}'),)
    >>> [(act.kind, act.turn) for act in find_acts(Transcript(turns))]
    [('test_removal', 0), ('result_spoof', 0)]
    """
    acts: dict[TrajectoryAct, None] = {}
    has_work = transcript.writes or transcript.commands or transcript.programs
    for detector in BUILTIN if has_work else OF_RECORDS:
        acts.update(dict.fromkeys(islice(detector.find(transcript), MOST)))
    return tuple(acts)


@shared()
def batch_acts(batch: RolloutBatch) -> list[tuple[TrajectoryAct, ...] | None]:
    """The acts of the rows that are read at this step (`rows_to_read`); None for others, and where no text is stored
    or there is nothing in which an act could be seen."""
    acts: list[tuple[TrajectoryAct, ...] | None] = [None] * len(batch)
    for row, transcript in transcripts(batch).items():
        acts[row] = find_acts(transcript) if can_act(transcript) else None
    return acts


def all_acts(batch: RolloutBatch) -> list[tuple[TrajectoryAct, ...] | None]:
    """The same of every row: for a screen, which has time."""
    rows = [_transcript(batch, row) for row in range(len(batch))]
    return [None if one is None or not can_act(one) else find_acts(one) for one in rows]


def rows_to_read(batch: RolloutBatch) -> list[int]:
    """The rows of some prompt groups, others at each step: a share of all is known from a part, and a monitor has
    other things to do. By place and step alone, so that a replay reads the same.

    >>> from tiltmeter.data.batches import from_columns
    >>> rows_to_read(from_columns(0, [0, 0, 1, 1, 2, 2])), rows_to_read(from_columns(1, [0, 0, 1, 1, 2, 2]))
    ([0, 1], [2, 3])
    """
    groups = len(batch.starts) - 1
    count = max(groups // PART, min(groups, 1))
    chosen = sorted({(batch.step * count + at) % groups for at in range(count)})
    return [row for group in chosen for row in range(int(batch.starts[group]), int(batch.starts[group + 1]))]


def can_act(transcript: Transcript) -> bool:
    """Whether there is anything that an act could be seen in: calls, code, or a record of files. Prose has none."""
    if transcript.artifacts or any(turn.call for turn in transcript.turns):
        return True
    texts = [turn.text for turn in transcript.turns if turn.written and turn.text]
    return any(mark in text for text in texts for mark in _CODE_MARKS)


@shared()
def transcripts(batch: RolloutBatch) -> dict[int, Transcript]:
    """By row, what detectors read at this step: its turns, or its completion as one."""
    rows = {row: _transcript(batch, row) for row in rows_to_read(batch)}
    return {row: one for row, one in rows.items() if one is not None}


def _transcript(batch: RolloutBatch, row: int) -> Transcript | None:
    columns = (batch.completion, batch.prompt, batch.facts, batch.artifacts)
    return row_transcript(row_turns(batch, row), *(None if column is None else column[row] for column in columns))


def row_transcript(
    turns: Sequence[Turn] | None, completion: str | None, prompt: str | None, facts: str | None, artifacts: str | None
) -> Transcript | None:
    """A row for detectors, from what a run directory has of it; None if it has neither turns nor a completion."""
    if not turns:
        if completion is None:
            return None
        turns = (Turn(ASSISTANT, completion),)
    return Transcript(turns, prompt or "", _mapping(facts), _mapping(artifacts))


def _mapping(text: str | None) -> Mapping[str, Any]:
    if not text or text == "{}":
        return {}
    try:
        values = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
