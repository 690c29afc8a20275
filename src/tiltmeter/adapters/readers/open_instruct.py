"""Reads open-instruct's saved traces, RUN_rollouts_NNNNNN.jsonl. Written from the description of the format only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tiltmeter.adapters.readers.foreign import Asked, Foreign, Piece, usable
from tiltmeter.adapters.readers.jsonl import TAIL, blamed, compact, peek, rows, step_of, unfinished, unused
from tiltmeter.adapters.readers.places import beside, called, size_of, survey
from tiltmeter.adapters.readers.tables import Row, parsed, refuse_copies
from tiltmeter.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.records import RolloutBatch

_SHARD = re.compile(r"(.+)_rollouts_(\d{6})\.jsonl(?:\.gz)?")

_KEPT = ("prompt_idx", "response_tokens", "reward", "advantage", "finish_reason", "dataset", "ground_truth", "logprobs")


class OpenInstruct:
    """open-instruct's rollouts, as `--save_traces` writes them: tokens, rewards, advantages and how each one ended.

    Token ids and no text, so what a completion says is not seen. Written from the description of the format: no
    recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"step": 5, "prompt_idx": 0, "response_tokens": [7], "reward": 1.0, "finish_reason": "stop"}
    >>> _ = (folder / "run_rollouts_000000.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = OpenInstruct().find(folder, Asked())
    >>> [batch.step for piece in run.pieces for batch in OpenInstruct().read(run, piece)]
    [5]
    """

    name = "open_instruct"
    title = "open-instruct: RUN_rollouts_NNNNNN.jsonl (from the format's description only, not run)"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        places = survey(path)
        mixed = beside(places, self.name)
        makers: dict[str, Callable[[], Foreign]] = {}
        for place in places:
            shards: dict[str, list[Path]] = {}
            for name in place.files:
                if match := _SHARD.fullmatch(name):
                    shards.setdefault(match[1], []).append(place.folder / name)
            top = called(place.folder, path if path.is_dir() else place.folder)
            for run, files in shards.items():
                name = run if len(shards) > 1 or place.folder == path else f"{top}-{run}"
                makers[str(place.folder / run)] = partial(_run, name, files, asked, mixed)
        return usable(makers)

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        last = -1
        file = Path(piece.files[0])
        for step, mine in groupby(_rows(piece, run.settings["newest"]), key=lambda one: one[0]):
            if step <= last:
                raise StoreError(
                    f"{file}: step {step} comes again after step {last}: a resumed run was appended to the same "
                    "files; split them where it begins and read each part alone"
                )
            last = step
            with blamed(file):
                made = _batch(step, [row for _, row in mine])
            yield made


def _rows(piece: Piece, newest: str) -> Iterator[tuple[int, Row]]:
    for file in map(Path, piece.files):
        for row in rows(file, growing=str(file) == newest):
            kept = {key: row[key] for key in _KEPT if key in row}
            for key in ("response_tokens", "logprobs"):
                if isinstance(kept.get(key), list):
                    with blamed(file):
                        kept[key] = compact(kept[key])
            yield step_of(row, file), kept


def _run(name: str, files: Sequence[Path], asked: Asked, mixed: tuple[str, ...]) -> Foreign:
    said = [
        "read by the format's description: no file of a real run was at hand to check it against",
        "groups: by prompt_idx within a step",
        "token ids and no text: readings of what is said are absent, unless somebody decodes them with the tokenizer",
    ]
    first = peek(files[0])
    if first and not {"step", "prompt_idx", "reward"} <= first.keys():
        raise StoreError(f"{files[0]}: its rows have no step, prompt_idx and reward; this is no trace of open-instruct")
    refuse_copies(files)
    try:
        if unfinished(files[-1]):
            said.append(f"{files[-1].name} is still being written: its whole lines count, the last does not yet")
    except StoreError as error:  # `read` loses that piece, and says it
        said.append(f"not read: {error}")
    said += unused(asked, grouped=True)
    newest = str(files[-1].absolute())
    return Foreign(name, OpenInstruct.name, tuple(_pieces(files)), (*said, *mixed), {"newest": newest})


def _pieces(files: Sequence[Path]) -> Iterator[Piece]:
    """Shards with no step in common; those that share one stay together."""
    taken: list[Path] = []
    for file in files:
        first, last = _first(file), _last(taken[-1]) if taken else None
        if isinstance(first, int) and isinstance(last, int) and first > last:
            yield _piece(taken)
            taken = []
        taken.append(file)
    yield _piece(taken)


def _piece(files: Sequence[Path]) -> Piece:
    """Steps are known without reading where the first row and the last are of the same one."""
    first, last = _first(files[0]), _last(files[-1])
    steps = (first,) if isinstance(first, int) and first == last else ()
    return Piece(tuple(str(one.absolute()) for one in files), sum(map(size_of, files)), steps)


def _first(file: Path) -> object:
    return peek(file).get("step")


def _last(file: Path) -> object:
    """The step of the last whole line; of a packed file the whole would have to be read, so it stays with the next."""
    if file.suffix == ".gz":
        return None
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - TAIL))
            lines = stream.read().splitlines()
    except OSError:  # it went away: `read` names it
        return None
    found = (parsed(line) for line in reversed(lines) if line.strip())
    return next((row.get("step") for row in found if isinstance(row, dict)), None)


def _batch(step: int, read: Sequence[Row]) -> RolloutBatch:
    tokens = [row.get("response_tokens") for row in read]
    columns: dict[str, Any] = {}
    if all(one is not None for one in tokens):
        columns["tokens"] = tokens
        logprobs = [row.get("logprobs") for row in read]
        pairs = zip(logprobs, tokens, strict=True)
        if all(one is not None and two is not None and len(one) == len(two) for one, two in pairs):
            columns["engine_logprob"] = logprobs
    keys = ("dataset", "ground_truth")
    return from_columns(
        step,
        [str(row.get("prompt_idx")) for row in read],
        reward=[row.get("reward") for row in read],
        advantage=[row.get("advantage") for row in read],
        truncated=[row.get("finish_reason") != "stop" for row in read],
        facts=[{key: row[key] for key in keys if row.get(key) is not None} for row in read],
        **columns,
    )
