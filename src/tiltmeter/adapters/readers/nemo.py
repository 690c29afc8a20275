"""Reads NeMo-RL's train_data_stepN.jsonl and val_data_stepN.jsonl. Written from the description of the format only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.adapters.readers.foreign import Asked, Foreign, Piece, usable
from tiltmeter.adapters.readers.jsonl import blamed, compact, filled, judged, peek, rows, unused, wanting
from tiltmeter.adapters.readers.places import Place, Stored, beside, bundled, called, numbered, size_of, survey
from tiltmeter.adapters.readers.tables import Row
from tiltmeter.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation
from tiltmeter.records import RolloutBatch

_TRAIN = re.compile(r"train_data_step(\d+)\.jsonl(?:\.gz)?")
_HELD_OUT = re.compile(r"val_data_step(\d+)\.jsonl(?:\.gz)?")
#: Their per-token columns and ours: the engine that sampled, and the trainer before the update.
_TOKENS = {"token_ids": "tokens", "generation_logprobs": "engine_logprob", "prev_logprobs": "logprob"}


class Nemo:
    """NeMo-RL's log folder, where engine and trainer log-probabilities stand side by side for every token.

    So the gap between the two, which makes updates off-policy in silence, can be seen with its tails. No prompt and no
    group id are stored. Written from the description of the format: no recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"content": ["1 + 1 = 2"], "rewards": [1.0], "idx": 0}
    >>> _ = (folder / "train_data_step5.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = Nemo().find(folder, Asked())
    >>> [batch.step for piece in run.pieces for batch in Nemo().read(run, piece)]
    [5]
    """

    name = "nemo"
    title = "NeMo-RL: train_data_stepN.jsonl (from the format's description only, not run)"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        places = survey(path)
        mixed = beside(places, self.name)
        return usable({str(place.folder): partial(_of_place, place, path, asked, mixed) for place in places})

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        for file in map(Path, piece.files):
            match = _TRAIN.fullmatch(file.name)
            with blamed(file):
                read = filled(file, list(map(_flat, rows(file))))
                made = _batch(int(match[1]) if match else -1, read, run.settings, file)
            yield made


def _of_place(place: Place, path: Path, asked: Asked, mixed: tuple[str, ...]) -> Foreign | None:
    trained = [(step, place.folder / name) for step, name in numbered(place.folder, place.files, _TRAIN)]
    held_out = [(step, place.folder / name) for step, name in numbered(place.folder, place.files, _HELD_OUT)]
    name = called(place.folder, path if path.is_dir() else place.folder)
    return _run(name, trained, held_out, asked, mixed) if trained or held_out else None


def _run(
    name: str,
    trained: list[tuple[int, Path]],
    held_out: Sequence[tuple[int, Path]],
    asked: Asked,
    mixed: tuple[str, ...],
) -> Foreign:
    said = ["read by the format's description: no file of a real run was at hand to check it against"]
    if trained and (why := wanting(trained[-1][1])):
        said.append(f"{trained.pop()[1].name} {why}: that step is left out")
    first = peek(trained[0][1]) if trained else {}
    if trained and "rewards" not in first:
        raise StoreError(
            f"{trained[0][1]}: no rewards in its rows, as NeMo-RL's distillation writes them; nothing to judge"
        )
    if asked.group_size:
        said.append(f"groups: {asked.group_size} rows in a row, as given")
    elif "token_ids" in first and "token_loss_mask" in first:
        said.append("groups: neighbouring rows whose prompt tokens agree, inferred (the files hold no group id)")
    elif trained:
        said.append("no groups: neither ids nor prompt tokens are stored; --group-size N (num_generations_per_prompt)")
    if trained:
        said.append("the text is prompt and answer in one, as stored: readings of the text see both")
    if "filtered_rewards" in first:
        said.append("the reward is filtered_rewards, which was trained on; rewards before filtering are kept as a part")
    evaluations: list[Evaluation] = []
    for step, file in held_out:
        try:
            with blamed(file):
                scores = [_flat(row) for row in rows(file, growing=file is held_out[-1][1])]
        except StoreError as error:
            said.append(f"not read: {error}")
            continue
        one, why = judged(step, "validation", ((at, row.get("rewards")) for at, row in enumerate(scores)))
        evaluations += [one] if one else []
        said += [] if one else [f"{file.name} is no evaluation: {why}"]
    said += unused(asked)
    said.append("no metrics in these files: --format tensorboard or wandb reads those")
    return Foreign(
        name=name,
        reader=Nemo.name,
        pieces=bundled([Stored(step, (file,), size_of(file)) for step, file in trained]),
        said=(*said, *mixed),
        settings={"group_size": asked.group_size or 0},
        evaluations=tuple(evaluations),
    )


def _flat(row: Row) -> Row:
    """A row without the batch of one that each value may stand in, and its numbers as arrays."""
    plain = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in row.items()}
    lists = (key for key in (*_TOKENS, "token_loss_mask", "advantages") if isinstance(plain.get(key), (list, int)))
    return plain | {key: np.atleast_1d(compact(plain[key])) for key in lists}


def _batch(step: int, read: Sequence[Row], settings: Mapping[str, Any], file: Path) -> RolloutBatch:
    masks = [row.get("token_loss_mask") for row in read]
    columns: dict[str, Any] = {}
    for theirs, ours in _TOKENS.items():
        values = [row.get(theirs) for row in read]
        if read and all(map(_fits, values, masks)):
            columns[ours] = [_sampled(one, mask) for one, mask in zip(values, masks, strict=True)]
    advantages = [row.get("advantages") for row in read]
    columns["advantage"] = [_at_answer(one, mask) for one, mask in zip(advantages, masks, strict=True)]
    if all(one is None for one in columns["advantage"]):
        del columns["advantage"]
    if any("filtered_rewards" in row for row in read):
        columns["rewards"] = {"unfiltered": [row.get("rewards") for row in read]}
        columns["reward"] = [row.get("filtered_rewards") for row in read]
    else:
        columns["reward"] = [row.get("rewards") for row in read]
    trained = [row.get("sample_loss_mask") for row in read]
    if any(mask is not None for mask in trained):
        columns["facts"] = [{"trained": bool(mask)} for mask in trained]
    return from_columns(
        step, _groups(read, settings["group_size"], file), completion=[row.get("content") for row in read], **columns
    )


def _fits(values: object, mask: object) -> bool:
    return isinstance(values, np.ndarray) and isinstance(mask, np.ndarray) and values.shape == mask.shape


def _sampled(values: Any, mask: Any) -> NDArray[Any]:
    return np.asarray(values[mask.astype(bool)])


def _at_answer(values: object, mask: object) -> object:
    """A row's advantage: stored for every token, the same at each that was sampled."""
    if not isinstance(values, np.ndarray):
        return values
    if values.size == 1:
        return values.item()
    return next(iter(_sampled(values, mask).tolist()), None) if _fits(values, mask) else None


def _groups(read: Sequence[Row], size: int, file: Path) -> list[int]:
    if size:
        prompts = [_prompt(row) for row in read]
        if len(read) % size or any(prompts[at] != prompts[at - at % size] for at in range(len(read))):
            raise StoreError(
                f"{file}: {len(read)} rows are not groups of {size} with one prompt each; pass another --group-size"
            )
        return [at // size for at in range(len(read))]
    group = -1
    ids, before = [], None
    for row in read:
        prompt = _prompt(row)
        group += prompt is None or prompt != before
        before = prompt
        ids.append(group)
    return ids


def _prompt(row: Row) -> bytes | None:
    """The tokens before the first that was sampled."""
    tokens, mask = row.get("token_ids"), row.get("token_loss_mask")
    if not isinstance(tokens, np.ndarray) or not isinstance(mask, np.ndarray):
        return None
    own = np.flatnonzero(mask)
    return bytes(tokens[: own[0] if len(own) else len(tokens)].tobytes())
