"""Reads the trace stream of newer prime-rl: every episode once, in chunks, and what was learnt of it later beside it.

    STREAM/00000.jsonl.zst, 00001.jsonl      episodes of verifiers, in the order in which they came back
    annotations/PRODUCER/00000.jsonl ...     updates: `{trace_id, info, branches}`, the newest wins

Established from prime-rl's source of autumn 2026 (`monitors/file`: the writer of chunks, the updates, the stamps of the
orchestrator); it is on no package index, and no recorded file was at hand. A trace that was shipped to the trainer has
`info.effective` and `info.ship.step`; one that was not keeps the step at which it came back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiltmeter.audit.readers.folders import FolderListing
from tiltmeter.audit.readers.jsonl import read_rows, step_of
from tiltmeter.audit.readers.table_files import LINE_LIMIT, TableRow
from tiltmeter.data.rows import as_object
from tiltmeter.errors import StoreError

STREAM_LIMIT = 8 << 30  # bytes of one stream after unpacking: its episodes are put into the order of steps in memory
CHUNK = re.compile(r"(\d{5,})\.jsonl(\.zst)?")
TOKEN_FIELDS = ("advantages", "trainer_logprobs", "entropies")  # of an update, for every token of a branch
_PIECE = 1 << 20


def is_stream(listing: FolderListing) -> bool:
    """Whether the files of a folder are chunks of a stream: numbered with five digits from 0 on. veRL's have none."""
    return "00000.jsonl" in listing.files or "00000.jsonl.zst" in listing.files


def chunk_files(folder: Path, names: Iterable[str]) -> list[Path]:
    """Its chunks in order. One that is there plain and packed is being packed: the plain one is whole."""
    by_number: dict[int, Path] = {}
    for name in sorted(names, reverse=True):  # the plain name last
        if match := CHUNK.fullmatch(name):
            by_number[int(match[1])] = folder / name
    return [by_number[number] for number in sorted(by_number)]


def read_chunks(files: Sequence[Path]) -> Iterator[TableRow]:
    """The rows of a stream. Only the last chunk may end in the middle of a line."""
    room = STREAM_LIMIT
    for file in files:
        last = file == files[-1]
        for row, size in _packed_rows(file) if file.suffix == ".zst" else _plain_rows(file, growing=last):
            room -= size
            if room < 0:
                raise StoreError(f"{file}: more than {STREAM_LIMIT >> 30} GB of episodes: move later chunks away")
            yield row


def _plain_rows(file: Path, *, growing: bool) -> Iterator[tuple[TableRow, int]]:
    each = max(1, file.stat().st_size // 1_000)  # of a line, roughly: what is limited is the whole
    for row in read_rows(file, growing=growing):
        yield row, each


def _packed_rows(file: Path) -> Iterator[tuple[TableRow, int]]:
    """Lines of a packed chunk: frames of zstd, one after the other, and a table of them that unpacking skips."""
    rest = b""
    try:
        with pa.CompressedInputStream(pa.OSFile(str(file)), "zstd") as stream:
            while piece := stream.read(_PIECE):
                *lines, rest = (rest + piece).split(b"\n")
                if len(rest) > LINE_LIMIT:
                    raise StoreError(f"{file}: a line of more than {LINE_LIMIT >> 20} MB; copy it again")
                for line in filter(None, lines):
                    yield _parse(file, line), len(line)
    except OSError as error:
        raise StoreError(f"{file}: it cannot be unpacked ({error}); copy it again") from error
    if rest:
        yield _parse(file, rest), len(rest)


def _parse(file: Path, line: bytes) -> TableRow:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise StoreError(f"{file}: a line that is not JSON ({error}); copy it again") from error
    if not isinstance(row, dict):
        raise StoreError(f"{file}: a line that is no JSON object; copy it again")
    return row


def annotation_folders(stream: Path) -> list[Path]:
    """Where producers wrote their updates: in the folder of the stream, or beside it."""
    places = (stream / "annotations", stream.parent / "annotations")
    return sorted(folder for place in places if place.is_dir() for folder in place.iterdir() if folder.is_dir())


def read_updates(stream: Path) -> dict[str, list[TableRow]]:
    """The updates of each trace, in the order in which they were written."""
    updates: dict[str, list[TableRow]] = {}
    for folder in annotation_folders(stream):
        for row in read_chunks(chunk_files(folder, (path.name for path in folder.iterdir()))):
            if isinstance(row.get("trace_id"), str):
                updates.setdefault(row["trace_id"], []).append(row)
    return updates


def apply_updates(trace: TableRow, updates: Sequence[TableRow]) -> None:
    """Put what was learnt later into a trace: facts into its `info`, numbers of tokens into its nodes."""
    nodes: list[TableRow] = [node if isinstance(node, dict) else {} for node in trace.get("nodes") or []]
    paths = _branches(nodes)
    for update in updates:
        trace["info"] = {**as_object(trace.get("info")), **as_object(update.get("info"))}
        for branch in update.get("branches") or []:
            index = as_object(branch).get("index")
            if isinstance(index, int) and 0 <= index < len(paths):
                for name in TOKEN_FIELDS:
                    _place(nodes, paths[index], name, branch.get(name) or [])


def _place(nodes: Sequence[TableRow], path: Sequence[int], name: str, values: Sequence[Any]) -> None:
    """Values along a branch, one for each token, onto its nodes: those at sampled tokens, where none is missing."""
    at = 0
    for node in (nodes[index] for index in path):
        width, mask = len(node.get("token_ids") or []), node.get("mask") or []
        own = [value for value, sampled in zip(values[at : at + width], mask, strict=False) if sampled]
        if at + width <= len(values) and own and None not in own:
            node[name] = own
        at += width


def _branches(nodes: Sequence[TableRow]) -> list[list[int]]:
    """The nodes of each branch, from the first message to its leaf, in the order of leaves.

    >>> _branches([{}, {"parent": 0}, {"parent": 1}, {"parent": 0}])
    [[0, 1, 2], [0, 3]]
    """
    parents = [node.get("parent") for node in nodes]
    inner = {parent for parent in parents if isinstance(parent, int)}
    paths = []
    for leaf in range(len(nodes)):
        if leaf in inner:
            continue
        path: list[int] = []
        at = leaf
        while len(path) <= len(nodes):
            path.append(at)
            above = parents[at]
            if not isinstance(above, int) or not 0 <= above < len(nodes):
                break
            at = above
        paths.append(path[::-1])
    return paths


def place_of(episode: TableRow, file: Path) -> tuple[str, int, bool]:
    """Of an episode with its updates: train or eval, its step, and whether it was trained on.

    >>> place_of({"traces": [{"info": {"kind": "train", "arrival": {"step": 4}, "ship": {"step": 5},
    ...           "effective": True}}]}, Path("x"))
    ('train', 5, True)
    """
    infos = [as_object(as_object(trace).get("info")) for trace in episode.get("traces") or []]
    run = as_object(episode.get("run"))
    work = as_object(run.get("work"))
    kinds = [info["kind"] for info in infos if info.get("kind") in ("train", "eval")]
    kind = kinds[0] if kinds else "eval" if "eval" in (work.get("type"), run.get("type")) else "train"
    for name in ("ship", "arrival", "dispatch"):
        for info in infos:
            if "step" in (stamp := as_object(info.get(name))):
                return kind, step_of(stamp, file), any(info.get("effective") is True for info in infos)
    return kind, step_of(work, file) if "step" in work else 0, False
