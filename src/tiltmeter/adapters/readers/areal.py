"""Reads AReaL's dumped rollouts, rollout/VERSION/TASK.jsonl. Written from the description of the format only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tiltmeter.adapters.readers.foreign import Asked, Foreign, Piece, usable
from tiltmeter.adapters.readers.jsonl import blamed, filled, judged, peek, rows, unused
from tiltmeter.adapters.readers.places import Place, Stored, beside, bundled, called, listed, numbered, size_of, survey
from tiltmeter.adapters.readers.tables import Row, refuse_copies
from tiltmeter.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation
from tiltmeter.records import RolloutBatch

_VERSION = re.compile(r"(\d+)")
_KINDS = ("rollout", "eval-rollout")


class AReaL:
    """AReaL's rollouts, as `rollout.dump_to_file=true` writes them: text, reward and the versions that sampled it.

    Samples with an empty answer are not in them, so a policy that collapses into silence looks healthy: what is read
    here is what survived. Written from the description of the format: no recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "rollout" / "5").mkdir(parents=True)
    >>> row = {"task_id": "7", "prompt": "1 + 1 =", "completion": "2", "reward": 1.0}
    >>> _ = (folder / "rollout" / "5" / "7.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = AReaL().find(folder, Asked())
    >>> [batch.step for piece in run.pieces for batch in AReaL().read(run, piece)]
    [5]
    """

    name = "areal"
    title = "AReaL: rollout/VERSION/TASK.jsonl (from the format's description only, not run)"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        places = survey(path)
        mixed = beside(places, self.name)
        homes: dict[Path, dict[str, Place]] = {}
        for place in places:
            if place.folder.name in _KINDS and numbered(place.folder, place.folders, _VERSION):
                homes.setdefault(place.folder.absolute().parent, {})[place.folder.name] = place
        return usable(
            {str(home): partial(_run, home, kinds, path, asked, mixed) for home, kinds in sorted(homes.items())}
        )

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        newest = run.settings["newest"]
        for version, files in groupby(map(Path, piece.files), key=lambda file: int(file.parent.name)):
            read = [row for file in files for row in rows(file, growing=version == newest)]
            if not read and version == newest:
                continue
            filled(Path(piece.files[0]).parent.parent / str(version), read)
            with blamed(Path(piece.files[0]).parent.parent / str(version)):
                made = _batch(version, read)
            yield made


def _run(home: Path, kinds: dict[str, Place], root: Path, asked: Asked, mixed: tuple[str, ...]) -> Foreign | None:
    trained = list(_versions(kinds["rollout"])) if "rollout" in kinds else []
    held_out = list(_versions(kinds["eval-rollout"])) if "eval-rollout" in kinds else []
    first = next((row for one in (trained + held_out)[:3] if (row := peek(one.files[0]))), {})
    if not {"task_id", "reward", "completion"} <= first.keys():
        return None
    said = [
        "read by the format's description: no file of a real run was at hand to check it against",
        "only what survived: samples with an empty answer are not written, so a collapse into silence is not seen",
        "a step is the version of the policy that finished the sample; groups by task",
        "where a prompt ends is inferred by AReaL, and wrong with several turns",
        "no metrics in these files: --format tensorboard or wandb reads those",
    ]
    said += unused(asked, grouped=True)
    evaluations: list[Evaluation] = []
    for one in held_out:
        try:
            scores = [(str(row.get("task_id")), row.get("reward")) for file in one.files for row in rows(file)]
        except StoreError as error:
            said.append(f"not read: {error}")
            continue
        made, why = judged(one.step, "evaluation", scores)
        evaluations += [made] if made else []
        said += [] if made else [f"eval-rollout/{one.step} is no evaluation: {why}"]
    return Foreign(
        name=called(home, root),
        reader=AReaL.name,
        pieces=bundled(trained),
        said=(*said, *mixed),
        settings={"newest": trained[-1].step if trained else -1},
        evaluations=tuple(evaluations),
    )


def _versions(place: Place) -> Iterator[Stored]:
    for version, name in numbered(place.folder, place.folders, _VERSION):
        folder = place.folder / name
        files = tuple(folder / one for one in listed(folder).files if one.endswith((".jsonl", ".jsonl.gz")))
        refuse_copies(files)
        if files:
            yield Stored(version, files, sum(map(size_of, files)))


def _batch(version: int, read: Sequence[Row]) -> RolloutBatch:
    columns: dict[str, Any] = {}
    if any("original_reward" in row for row in read):
        columns["rewards"] = {"original": [row.get("original_reward") for row in read]}
    lengths = [_length(row) for row in read]
    return from_columns(
        version,
        [str(row.get("task_id")) for row in read],
        reward=[row.get("reward") for row in read],
        prompt=[row.get("prompt") for row in read],
        completion=[row.get("completion") for row in read],
        length=None if None in lengths else lengths,
        facts=[{"policy_start": row.get("head_version")} for row in read],
        **columns,
    )


def _length(row: Row) -> int | None:
    whole, prompt = row.get("seqlen"), row.get("prompt_len")
    return whole - prompt if isinstance(whole, int) and isinstance(prompt, int) and whole >= prompt else None
