"""Reads what TRL leaves in its output folder, and Unsloth with it: completions Parquet files, trainer_state.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiltmeter.adapters.readers.foreign import Asked, Foreign, Piece, usable
from tiltmeter.adapters.readers.jsonl import asked_for, blamed, refuse_options, scalars
from tiltmeter.adapters.readers.places import Place, Stored, beside, bundled, called, numbered, survey
from tiltmeter.adapters.readers.trl_rows import FILE, batch_of, load, same, settings_of, steps_in_words
from tiltmeter.adapters.readers.trl_state import State, by_part, state_files, state_of, told_of
from tiltmeter.errors import StoreError
from tiltmeter.records import RolloutBatch

LOOKED_AT = 16  # files that are opened to see what they hold


class Trl:
    """TRL's files: the completions that `log_completions=True` leaves behind, and the log inside a checkpoint.

    They hold what was sampled and each reward function's answer, which is enough to ask whether the reward still
    means what it meant. Group ids, the total, lengths and log-probabilities are not in them.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> state = {"global_step": 5, "log_history": [{"step": 5, "kl": 0.02, "rewards/correct/mean": 0.5}]}
    >>> _ = (folder / "trainer_state.json").write_text(json.dumps(state))
    >>> (run,) = Trl().find(folder, Asked())
    >>> run.scalars
    {5: {'kl_ref': 0.02, 'rewards/correct': 0.5}}
    """

    name = "trl"
    title = "TRL and Unsloth: completions_*.parquet and trainer_state.json"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        places = survey(path)
        homes: dict[Path, Place] = {}  # of completions, by the run's folder
        for place in places:
            if any(FILE.fullmatch(name) for name in place.files):
                folder = place.folder.absolute()
                homes[folder.parent if folder.name == "completions" else folder] = place
        for place in places:
            if state_files(place.folder, place) and place.folder.absolute() not in homes:
                homes[place.folder.absolute()] = Place(place.folder, (), ())
        mixed = beside(places, self.name)
        return usable(
            {str(folder): partial(_run, folder, place, path, asked, mixed) for folder, place in sorted(homes.items())}
        )

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        before: pa.Table | None = None
        for file in map(Path, piece.files):
            table = load(file)
            if run.settings["repeats"] and before is not None and same(before, table):
                continue
            before = table
            with blamed(file):
                made = batch_of(file, table, run.settings)
            yield made


def _run(folder: Path, place: Place, root: Path, asked: Asked, mixed: tuple[str, ...]) -> Foreign | None:
    state = state_of(folder)
    steps, said = _stored(place, state)
    if not steps and (state is None or not state.trained):
        if place.files:
            raise StoreError(f"{place.folder}: {'; '.join(said)}")
        return None
    settings: dict[str, Any] = {"repeats": False, "group": 0, "rewards": {}, "extras": [], "total": True}
    pieces: tuple[Piece, ...] = ()
    if steps:
        looked = _looked(steps)
        with blamed(place.folder):
            settings, told = settings_of(place.folder, looked, state, asked)
        said += told
        pieces = _apart(steps) if settings["repeats"] else bundled(steps)
    else:
        said.append("no completions, so only what the trainer logged: log_completions=True writes them")
        if asked.weights or asked.group_size is not None or "gold" in asked.columns:
            said.append("--weight, --group-size and --map gold= are not used: they are about completions")
    said += told_of(state, [one.step for one in steps])
    logged = {} if state is None else {step: by_part(row) for step, row in state.trained.items()}
    refuse_options(asked, {key for row in logged.values() for key in row}, folder)
    evaluations = asked_for({} if state is None else _every_row(state), asked, folder)
    return Foreign(
        name=called(folder, root if root.is_dir() else folder),
        reader=Trl.name,
        pieces=pieces,
        said=(*said, *mixed),
        settings=settings,
        scalars=scalars(logged, asked),
        evaluations=tuple(evaluations),
    )


def _every_row(state: State) -> dict[int, dict[str, Any]]:
    """What was logged at each step, of training and of evaluation."""
    steps = sorted({*state.trained, *state.evaluated})
    return {step: {**state.trained.get(step, {}), **state.evaluated.get(step, {})} for step in steps}


def _stored(place: Place, state: State | None) -> tuple[list[Stored], list[str]]:
    """The steps whose training rows are there, and what is said of the files that do not count."""
    said: list[str] = []
    kept: list[Stored] = []
    times: list[tuple[int, float]] = []
    files = numbered(place.folder, place.files, FILE)
    overwritten = [step for step, _ in files if state is not None and step in state.evaluated]
    for step, name in files:
        file = place.folder / name
        try:
            facts = file.stat()
        except OSError as error:  # it went away, or is a link to nothing
            said.append(f"{name} cannot be read ({error.strerror}): left out")
            continue
        if step in overwritten:
            continue
        kept.append(Stored(step, (file,), facts.st_size))
        times.append((step, facts.st_mtime))
    if kept and not _whole(kept[-1].files[0]):
        said.append(f"{kept.pop().files[0].name} is not whole yet, or cannot be read: left out")
    if overwritten:
        said.append(
            f"the evaluation at {steps_in_words(overwritten)} overwrote that step's file with its own rows: left out, "
            "the training rows are gone"
        )
    older = [step for (_, one), (step, two) in pairwise(times) if two < one - 1.0]
    if older:
        said.append(
            f"files from {steps_in_words(older)} on are older than those before: file times say that the run was "
            "resumed from an earlier step; if that is so, they belong to an earlier attempt: move them away to judge "
            "the new one alone. A copy that did not keep the times looks the same"
        )
    gaps = {two.step - one.step for one, two in pairwise(kept)}
    if gaps and min(gaps) > 1:
        said.append(f"one file for every {min(gaps)} steps (logging_steps): the other steps' completions were not kept")
    return kept, said


def _whole(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - 4))
            return size >= 12 and stream.read() == b"PAR1"
    except OSError:
        return False


def _looked(steps: Sequence[Stored]) -> list[tuple[int, pa.Table]]:
    """The first and the last files, opened. A damaged one is left to `read`, which names it."""
    half = LOOKED_AT // 2
    chosen = steps if len(steps) <= LOOKED_AT else [*steps[:half], *steps[-half:]]
    opened: list[tuple[int, pa.Table]] = []
    broken: StoreError | None = None
    for one in chosen:
        try:
            opened.append((one.step, load(one.files[0])))
        except StoreError as error:
            broken = broken or error
    if not opened and broken is not None:
        raise broken
    return opened


def _apart(steps: Sequence[Stored]) -> tuple[Piece, ...]:
    """Pieces whose first file does not repeat the last one before it, and which therefore need not know each other."""
    cut: list[Stored] = []
    pieces: list[Piece] = []
    start = 0
    for piece in bundled(steps):
        mine = list(steps[start : start + len(piece.files)])
        start += len(mine)
        while cut and mine and _repeats(cut[-1], mine[0]):
            cut.append(mine.pop(0))
        if cut and mine:
            pieces.append(_piece(cut))
            cut = []
        cut += mine
    return (*pieces, _piece(cut))


def _repeats(one: Stored, two: Stored) -> bool:
    """Whether two steps hold the same rollouts; a damaged file, which `read` will name, repeats none."""
    try:
        return same(load(one.files[0]), load(two.files[0]))
    except StoreError:
        return False


def _piece(steps: Sequence[Stored]) -> Piece:
    """Which of these steps hold rows of their own is known when they are read."""
    return Piece(tuple(str(one.files[0].absolute()) for one in steps), sum(one.size for one in steps))
