"""Reads veRL's dumps: rollouts and validations as one JSON lines file per step, and its file logger's metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

from tiltmeter.adapters.readers.foreign import Asked, Foreign, Maker, Piece, usable
from tiltmeter.adapters.readers.jsonl import (
    asked_for,
    blamed,
    filled,
    judged,
    peek,
    refuse_options,
    rows,
    scalars,
    step_of,
    wanting,
)
from tiltmeter.adapters.readers.places import Place, Stored, beside, bundled, called, listed, numbered, size_of, survey
from tiltmeter.adapters.readers.tables import Row
from tiltmeter.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation
from tiltmeter.records import RolloutBatch

_FILE = re.compile(r"(\d+)\.jsonl(?:\.gz)?")
_HELD_OUT = re.compile(r"(?:.*[^a-z])?(?:val|valid|validations?|evals?|evaluations?)(?:[^a-z].*)?", re.IGNORECASE)
_OWN = frozenset({"input", "output", "gts", "score", "step", "uid", "request_id"})
VALIDATIONS = 2_000  # files of held-out items that are read at once


class Verl:
    """veRL's own files: what `trainer.rollout_data_dir` and `trainer.validation_data_dir` fill, and the logger "file".

    Text and scores of every rollout, enough for most readings, and held-out scores that training never sees, which
    are worth as much as labels. Token ids, log-probabilities and advantages are not in them.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"input": "1 + 1 =", "output": "2", "gts": "2", "score": 1.0, "step": 5, "uid": "s0_0_0"}
    >>> _ = (folder / "5.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = Verl().find(folder, Asked())
    >>> [batch.step for piece in run.pieces for batch in Verl().read(run, piece)]
    [5]
    """

    name = "verl"
    title = "veRL: rollout and validation dumps (STEP.jsonl) and the file logger"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        places = survey(path)
        dumps, broken = _dumps(places)
        if path.is_dir() and len(dumps) == 1 and dumps[0].folder == path and not dumps[0].held_out:
            more, beyond = _siblings(path)
            dumps, broken = dumps + more, broken | beyond
        # What belongs to a training dump that cannot be used is no run of its own.
        lost = {Path(name).absolute().parent for name in broken if not _HELD_OUT.fullmatch(Path(name).name)}
        dumps = [dump for dump in dumps if not (dump.held_out and dump.folder.absolute().parent in lost)]
        loggers = [file for place in places for file in _loggers(place)]
        mixed = beside(places, self.name)
        makers: dict[str, Maker] = {}
        runs = _runs(dumps, path)
        alone = len(runs) == len(loggers) == 1
        for name, trained, held_out in runs:
            mine = _claimed(name, trained or held_out[0], loggers, alone=alone)
            loggers = [file for file in loggers if file not in mine]
            makers[str((trained or held_out[0]).folder)] = partial(_run, name, trained, held_out, mine, asked, mixed)
        # What no dump goes with is a run of numbers alone.
        for file in loggers:
            if not lost & set(file.absolute().parents):
                makers[str(file)] = partial(_run, file.stem, None, [], [file], asked, mixed)
        return usable(makers, broken)

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        for file in map(Path, piece.files):
            with blamed(file):
                made = _batch(file, run.settings)
            yield made


@dataclass(frozen=True)
class _Dump:
    """A folder of one file a step."""

    folder: Path
    files: Sequence[tuple[int, str]]
    first: Row
    held_out: bool
    said: tuple[str, ...] = ()

    @property
    def paths(self) -> list[tuple[int, Path]]:
        return [(step, self.folder / name) for step, name in self.files]


def _dumps(places: Sequence[Place]) -> tuple[list[_Dump], dict[str, StoreError]]:
    """The dumps among these folders, and those that cannot be used."""
    found: list[_Dump] = []
    broken: dict[str, StoreError] = {}
    for place in places:
        try:
            found += [dump] if (dump := _dump(place)) is not None else []
        except StoreError as error:
            broken[str(place.folder)] = error
    return found, broken


def _dump(place: Place) -> _Dump | None:
    if "areal" in place.tells or "verl" not in place.tells:
        return None
    known = next(name for name in place.files if _FILE.fullmatch(name))
    if (shown := peek(place.folder / known)) and not _is_dump(shown):
        return None
    files = numbered(place.folder, place.files, _FILE)
    said: tuple[str, ...] = ()
    if files and (why := wanting(place.folder / files[-1][1])):
        said = (f"{place.folder.name}/{files[-1][1]} {why}: that step is left out",)
        files = files[:-1]
    first = next((row for _, name in files[:3] if (row := peek(place.folder / name))), {})
    if not _is_dump(first):
        return None
    # Validation adds `reward` to what the reward function says; a name says it too.
    held_out = "reward" in first or bool(_HELD_OUT.fullmatch(place.folder.name))
    return _Dump(place.folder, files, first, held_out, said)


def _is_dump(row: Row) -> bool:
    return {"input", "output", "score"} <= row.keys()


def _siblings(folder: Path) -> tuple[list[_Dump], dict[str, StoreError]]:
    """Folders beside this one that hold its run's validations, by their name."""
    beside = folder.absolute().parent
    names = [name for name in listed(beside).folders if _HELD_OUT.fullmatch(name) and name != folder.name]
    found, broken = _dumps([listed(beside / name) for name in names[:20]])
    return [dump for dump in found if dump.held_out], broken


def _runs(dumps: Sequence[_Dump], root: Path) -> list[tuple[str, _Dump | None, list[_Dump]]]:
    """Dumps that lie in one folder are a run: one of training, any of validation."""
    homes: dict[Path, list[_Dump]] = {}
    for dump in dumps:
        homes.setdefault(dump.folder.absolute().parent, []).append(dump)
    top = root if root.is_dir() else root.parent
    found: list[tuple[str, _Dump | None, list[_Dump]]] = []
    for home, here in sorted(homes.items()):
        trained = [dump for dump in here if not dump.held_out]
        held_out = [dump for dump in here if dump.held_out]
        inside = home.is_relative_to(top.absolute())
        if len(trained) == 1 and inside:
            found.append((called(home, top), trained[0], held_out))
        elif trained:
            found += [(called(dump.folder, top), dump, held_out if len(trained) == 1 else []) for dump in trained]
        if held_out and len(trained) != 1:
            found.append((called(home if inside else held_out[0].folder, top) + "-validation", None, held_out))
    return found


def _loggers(place: Place) -> list[Path]:
    """Files of the logger "file": each line a step and its data."""
    names = [name for name in place.files if name.endswith((".jsonl", ".jsonl.gz")) and not _FILE.fullmatch(name)]
    first = {name: peek(place.folder / name) for name in names[:50]}
    return [place.folder / name for name, row in first.items() if row.keys() == {"step", "data"}]


def _claimed(name: str, dump: _Dump, loggers: Sequence[Path], *, alone: bool) -> list[Path]:
    home = dump.folder.absolute().parent
    mine = [file for file in loggers if file.stem == name or file.absolute().is_relative_to(home)]
    return (mine or list(loggers if alone else []))[:1]


def _run(
    name: str,
    trained: _Dump | None,
    held_out: Sequence[_Dump],
    loggers: Sequence[Path],
    asked: Asked,
    mixed: tuple[str, ...],
) -> Foreign:
    made = _Found()
    if trained is not None:
        _of_training(made, trained, asked)
    else:
        made.said.append("no rollouts of training: trainer.rollout_data_dir=DIR writes them")
    for at, dump in enumerate(held_out):
        _of_validation(made, dump, f"_{at + 1}" if at else "")
    logged = _logged(loggers[0]) if loggers else {}
    where = loggers[0] if loggers else f"{name} (no metrics file)"
    refuse_options(asked, {key for row in logged.values() for key in row}, where, stored="score")
    made.evaluations += asked_for(logged, asked, where)
    if loggers:
        made.said.append(f"metrics: {loggers[0].name}, steps {min(logged, default=0)} to {max(logged, default=0)}")
        if trained is not None and logged and min(logged) > trained.files[0][0]:
            made.said.append("the metrics begin later than the rollouts: a resume starts veRL's metrics file anew")
    else:
        made.said.append('no metrics: trainer.logger=["file"] writes them')
    numbers = scalars(logged, asked)
    if not any("kl_ref" in row for row in numbers.values()):
        made.said.append("no leash measured: veRL's KL terms are off unless asked for")
    unique = {(one.step, one.name): one for one in reversed(made.evaluations)}
    return Foreign(
        name=name,
        reader=Verl.name,
        pieces=made.pieces,
        said=(*made.said, *mixed),
        settings=made.settings,
        scalars=numbers,
        evaluations=tuple(sorted(unique.values())),
    )


@dataclass
class _Found:
    pieces: tuple[Piece, ...] = ()
    said: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)


def _of_training(made: _Found, dump: _Dump, asked: Asked) -> None:
    paths = dump.paths
    made.pieces = bundled([Stored(step, (file,), size_of(file)) for step, file in paths])
    made.said += [f"rollouts: {dump.folder.name}/, steps {paths[0][0]} to {paths[-1][0]}", *dump.said]
    gold = asked.columns.get("gold", "")
    made.settings = {"group_size": asked.group_size or 0, "parts": [], "gold": gold}
    if gold and gold not in dump.first:
        raise StoreError(f"{paths[0][1]}: no key {gold!r} for gold; its rows have {', '.join(sorted(dump.first))}")
    if gold:
        made.said.append(f"gold: {gold}, as given{_paid(gold, _sample(paths[0][1]))}")
    if "uid" in dump.first and asked.group_size:
        raise StoreError(f"{paths[0][1]}: groups are stored (uid): leave --group-size out")
    if "uid" in dump.first:
        made.said += [
            "groups: by uid",
            "no parts of the reward: veRL's V1 trainer keeps the score alone",
        ]
    else:
        sample = _sample(paths[0][1])
        made.settings["parts"] = [key for key in dump.first if key not in {*_OWN, gold} and _is_part(key, sample)]
        sizes = _sizes(sample)
        span = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{max(sizes)}"
        if asked.group_size:
            made.said.append(f"groups: rows with equal prompts, {asked.group_size} to a group as given")
        else:
            made.said.append(f"groups: rows with equal prompts, inferred (no uid); {span} rows in the first step")
        if min(sizes) < max(sizes) and not asked.group_size:
            made.said.append(
                "groups of different size: a prompt that stands in two groups is taken for one; "
                "--group-size N (rollout.n) parts them"
            )
        parts = made.settings["parts"]
        made.said.append(f"kept as parts of the reward: {', '.join(parts[:20])}" if parts else "no parts of the reward")
    made.said.append("score is the reward before a KL penalty inside it; no token ids, log-probabilities or advantages")


def _paid(gold: str, sample: Sequence[Row]) -> str:
    """What is said of a gold that is what the policy is paid."""
    if not sample or any(row.get(gold) != row.get("score") for row in sample):
        return ""
    equal = "" if gold == "score" else " (in the first step it equals score)"
    return f", and it is paid as well{equal}: what a policy is paid for is no independent truth"


def _sample(file: Path) -> list[Row]:
    """The rows of a file; none where it is damaged, which `read` will say."""
    try:
        return list(rows(file))
    except StoreError:
        return []


def _is_part(key: str, sample: Sequence[Row]) -> bool:
    values = [row[key] for row in sample if row.get(key) is not None]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)


def _sizes(sample: Sequence[Row]) -> list[int]:
    counts: dict[object, int] = {}
    for row in sample:
        counts[str(row.get("input"))] = counts.get(str(row.get("input")), 0) + 1
    return list(counts.values()) or [0]


def _of_validation(made: _Found, dump: _Dump, number: str) -> None:
    """One evaluation a step, from the scores, and one from `acc`, where the reward function says it.

    `number`: after the names of a second folder's evaluations, which are of other questions.
    """
    made.said += dump.said
    why: dict[str, int] = {}
    kept = 0
    for step, file in dump.paths[:VALIDATIONS]:
        try:
            named = [(_item(str(row["uid"])) if "uid" in row else str(row.get("input")), row) for row in rows(file)]
        except StoreError as error:
            made.said.append(f"not read: {error}")
            continue
        for name, key in ((f"validation{number}", "score"), (f"validation_acc{number}", "acc")):
            if key == "acc" and not any("acc" in row for _, row in named):
                continue
            one, reason = judged(step, name, ((item, row.get(key)) for item, row in named))
            if one is not None:
                made.evaluations.append(one)
                kept += 1
            elif key == "score":
                why[reason] = why.get(reason, 0) + 1
    how = "their rows carry `reward`" if "reward" in dump.first else "by the folder's name"
    told = f"validations: {dump.folder.name}/ ({how}), {kept} evaluations of {len(dump.files)} steps"
    made.said.append(told + (f", as validation{number}" if number else ""))
    made.said += [f"{count} validations are no evaluation: {reason}" for reason, count in why.items()]
    if len(dump.files) > VALIDATIONS:
        made.said.append(f"only the first {VALIDATIONS} validations are read")


def _item(uid: str) -> str:
    return uid.rsplit("_", 2)[0]


def _logged(file: Path) -> dict[int, dict[str, Any]]:
    logged: dict[int, dict[str, Any]] = {}
    for row in rows(file, growing=True):
        if not isinstance(row.get("data"), dict):
            raise StoreError(f"{file}: a line without data is not veRL's; move that line away")
        # Only numbers are logged, and orjson writes one that is not finite as null.
        data = {key: nan if value is None else value for key, value in row["data"].items()}
        logged.setdefault(step_of(row, file), {}).update(data)
    return logged


def _batch(file: Path, settings: Mapping[str, Any]) -> RolloutBatch:
    match = _FILE.fullmatch(file.name)
    read = filled(file, list(rows(file)))
    step = int(match[1]) if match else step_of(read[0], file)
    if any(row.get("step", step) != step for row in read):
        raise StoreError(f"{file}: its rows are of another step; it was renamed or joined: name it back")
    parts: dict[str, list[object]] = {name: [row.get(name) for row in read] for name in settings["parts"]}
    return from_columns(
        step,
        _groups(read, settings["group_size"]),
        reward=[row.get("score") for row in read],
        gold=[row.get(settings["gold"]) for row in read] if settings["gold"] else None,
        rewards=parts,
        prompt=[row.get("input") for row in read],
        completion=[row.get("output") for row in read],
        facts=[_facts(row, settings["parts"]) for row in read],
    )


def _groups(read: Sequence[Row], size: int) -> list[str]:
    if read and all("uid" in row for row in read):
        return [_item(str(row["uid"])) for row in read]
    seen: dict[str, int] = {}
    ids = []
    for row in read:
        prompt = str(row.get("input"))
        count = seen[prompt] = seen.get(prompt, -1) + 1
        ids.append(f"{count // size if size else 0} {prompt}")
    return ids


def _facts(row: Row, parts: Sequence[str]) -> dict[str, Any]:
    extra = {key: value for key, value in row.items() if key not in _OWN and key not in parts}
    return extra | ({"ground_truth": row["gts"]} if row.get("gts") is not None else {})
