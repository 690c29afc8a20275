"""Files of agents' trajectories, as the packages write them: what is read back, and what damaged ones do.

Every fixture holds the same two conversations. What a file must give back is counted in them, by rules of this file and
not by the readers': calls with their arguments, reasons, and words of the policy and of tools.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import shutil
import struct
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tiltmeter.audit.readers import BY_NAME, find_runs
from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import Turn, decode_turns
from tiltmeter.errors import StoreError
from tiltmeter.rundir.columns import to_table

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "tests" / "audit" / "readers" / "trajectories" / "fixtures"
SHARED = ROOT.parent / "shared" / "data"
SLOW_SECONDS = 20.0  # CPU; a small file that takes longer counts as a crash

CODEFORCES = {
    "step": "0",
    "reward": "metrics.public_reward",
    "gold": "metrics.private_reward",
    "env": "env_type",
    "trajectory": "id",
    "stop.sandbox": "metrics.docker_error",
}
SUBAGENT = (("bash", '{"cmd": "cat audit.log"}'), "No log is open.", "No.")

Act = tuple[str, str]  # a tool's name and its arguments as sorted JSON


@dataclass(frozen=True)
class Format:
    """One format, and what its fixture holds beside the two conversations."""

    folder: str
    reader: str
    subagent: bool = False
    reasons_in_text: bool = False  # the format has no field for reasoning
    texts: bool = True


FORMATS = (
    Format("verifiers-0.4", "verifiers", subagent=True),
    Format("inspect-0.3.285", "inspect"),
    Format("atif-1.8", "atif", subagent=True),
    Format("trl-1.16-tools", "trl"),
    Format("openenv-0.10", "openenv"),
    Format("art-0.5.18", "art", reasons_in_text=True),
    Format("opentelemetry-1.45/otlp", "otel"),
    Format("opentelemetry-1.45/console", "otel"),
    Format("tinker-cookbook-0.5.8", "tinker", texts=False),
)


@dataclass
class Losses:
    """What a file should have given back, and what it did not."""

    calls: int = 0
    calls_lost: int = 0
    reasons_lost: int = 0
    texts_lost: int = 0
    missing: list[str] = field(default_factory=list)


def read(path: Path, columns: Mapping[str, str] | None = None) -> list[RolloutBatch]:
    """Every batch of every run at a path."""
    runs = find_runs(path, ReadOptions(columns=columns or {}))
    return [batch for run in runs for piece in run.pieces for batch in BY_NAME[run.reader].read(run, piece)]


def readers(path: Path) -> set[str]:
    """The readers that recognise what is at a path."""
    return {run.reader for run in find_runs(path, ReadOptions())}


def conversations() -> dict[str, list[dict[str, Any]]]:
    talks: dict[str, list[dict[str, Any]]] = json.loads((FIXTURES / "conversations.json").read_text())
    return talks


def losses(one: Format) -> Losses:
    """What is missing in the first step of a format's fixture."""
    lost = Losses()
    (batch, *_) = read(FIXTURES / one.folder)
    if not one.texts or batch.turns is None:
        return lost
    rows = [decode_turns(text) for text in batch.turns if text is not None]
    for name, talk in conversations().items():
        acts = [_act(call["function"]) for message in talk for call in message.get("tool_calls", ())]
        reasons = [message["reasoning_content"] for message in talk if message.get("reasoning_content")]
        words = [message["content"] for message in talk if message["content"] and message["role"] == "assistant"]
        words += [message["content"] for message in talk if message["role"] == "tool"]
        if one.subagent and name == "tampering":
            acts, reasons, words = [*acts, _act_of(*SUBAGENT[0])], [*reasons, SUBAGENT[1]], [*words, SUBAGENT[2]]
        turns = max(rows, key=lambda row: sum((_acts(row) & Counter(acts)).values()))
        lost.calls += len(acts)
        lost.missing += [f"call {act}" for act in (Counter(acts) - _acts(turns)).elements()]
        lost.calls_lost += sum((Counter(acts) - _acts(turns)).values())
        told = Counter(turn.reasoning for turn in turns)
        whole = "\n".join(f"{turn.text}\n{turn.error}" for turn in turns)
        for reason in reasons:
            if not (reason in whole if one.reasons_in_text else told[reason]):
                lost.reasons_lost += 1
                lost.missing.append(f"reason {reason}")
        for text in words:
            if text not in whole:
                lost.texts_lost += 1
                lost.missing.append(f"text {text}")
    return lost


def real_losses() -> Iterator[tuple[str, Losses]]:
    """The same for real files, where they are: messages and calls are counted in the raw files."""
    logs = SHARED / "inspect_eval_logs"
    for file in sorted(logs.glob("*.eval")) if logs.is_dir() else ():
        with zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if name.startswith("samples/")]
            samples = [json.loads(archive.read(name)) for name in names]
        if samples:
            yield file.name, _compare([sample["messages"] for sample in samples], read(file))
    rollouts = SHARED / "agentic_codeforces_rollouts" / "rollouts.jsonl.gz"
    if rollouts.is_file():
        with gzip.open(rollouts) as stream:
            talks = [json.loads(line)["messages"] for line in stream]
        yield rollouts.parent.name, _compare(talks, read(rollouts, CODEFORCES))


def _compare(talks: list[list[dict[str, Any]]], batches: list[RolloutBatch]) -> Losses:
    lost = Losses()
    turns = [turn for batch in batches for text in batch.turns or () for turn in decode_turns(text)]
    acts = Counter(_act(call["function"]) for talk in talks for one in talk for call in one.get("tool_calls") or ())
    lost.calls, lost.calls_lost = sum(acts.values()), sum((acts - _acts(turns)).values())
    told: Counter[tuple[str, Any]] = Counter((turn.role, turn.text) for turn in turns)
    said = (one for talk in talks for one in talk if isinstance(one["content"], str))
    words: Counter[tuple[str, Any]] = Counter((one["role"], one["content"]) for one in said)
    lost.texts_lost = sum(count for pair, count in (words - told).items() if pair[1])
    return lost


def _act(function: Mapping[str, Any]) -> Act:
    arguments = function["arguments"]
    return _act_of(function["name"], arguments if isinstance(arguments, str) else json.dumps(arguments))


def _act_of(name: str, arguments: str | None) -> Act:
    try:
        return name, json.dumps(json.loads(arguments or "{}"), sort_keys=True)
    except ValueError:
        return name, str(arguments)


def _acts(turns: Any) -> Counter[Act]:
    calls: list[Turn] = [turn for turn in turns if turn.call and turn.role == "assistant"]
    return Counter(_act_of(str(turn.call), turn.arguments) for turn in calls)


# -- damaged files -----------------------------------------------------------------------------------------------------

DEEP = '{"a":' * 3_000 + "1" + "}" * 3_000
NASTY: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63, 10**30, 1e308, float("nan"), float("inf"), -float("inf")),
    *("", "x", "\ud800", "\x1b[2J", "attachment://x", "-1", "NaN", "1e999", "é" * 50, "a" * 5_000),
    *([], {}, [[]], [None], [{}], {"": None}, [1, "a", None], {"role": 7, "content": {"type": 3}}, [0] * 1_000),
    *({"node": -1, "type": "compaction"}, [[0, 10**9]], {"value": {"value": {}}}, "\0", [[[[[[[[[[1]]]]]]]]]]),
)


def damage(folder: Path, draw: random.Random) -> str:
    """Damages one file of a folder; returns what was done."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    file = draw.choice(files)
    data = file.read_bytes()
    kind = draw.choice(("bytes", "cut", "splice", "values", "values", "values", "values"))
    if kind == "bytes":
        changed = bytearray(data)
        for _ in range(draw.choice((1, 3, 20))):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        data = bytes(changed)
    elif kind == "cut":
        data = data[: draw.randrange(len(data))]
    elif kind == "splice":
        start, length = draw.randrange(len(data)), draw.randrange(1, 200)
        other = draw.choice((b"", data[start : start + length] * 2, DEEP.encode(), b"\xff\xfe", b"[" * 5_000, b'"'))
        data = data[:start] + other + data[start + length :]
    elif file.suffix == ".parquet":
        data = _damage_parquet(data, draw)
    elif file.suffix == ".eval":
        data = _damage_zip(data, draw)
    else:
        data = _damage_json(data, draw)
    file.write_bytes(data)
    return f"{kind} in {file.name}"


def _damage_json(data: bytes, draw: random.Random) -> bytes:
    lines = data.decode("utf-8", "replace").splitlines() if data.count(b"\n{") else [data.decode("utf-8", "replace")]
    at = draw.randrange(len(lines))
    try:
        document = json.loads(lines[at])
    except ValueError:
        return data
    for _ in range(draw.choice((1, 1, 3))):
        document = _damage_value(document, draw)
    lines[at] = json.dumps(document)
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


def _damage_value(document: Any, draw: random.Random) -> Any:
    """One value somewhere in a document replaced, removed or repeated."""
    places: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            places += [(value, key) for key in value]
            waiting += value.values()
        elif isinstance(value, list):
            places += [(value, key) for key in range(len(value))]
            waiting += value
    if not places:
        return deepcopy(draw.choice(NASTY))
    inside, key = draw.choice(places)
    kind = draw.choice(("replace", "replace", "remove", "repeat", "text"))
    if kind == "remove":
        del inside[key]
    elif kind == "repeat":
        inside[key] = [deepcopy(inside[key]) for _ in range(draw.choice((2, 30)))]
    elif kind == "text" and isinstance(inside[key], (dict, list)):
        inside[key] = json.dumps(inside[key])
    else:
        inside[key] = deepcopy(draw.choice(NASTY))
    return document


def _damage_zip(data: bytes, draw: random.Random) -> bytes:
    """A zip file whose members are not packed, one of them damaged, or with sizes that lie."""
    packed = FIXTURES / "inspect-0.3.285" / "mend.eval"
    members = dict(_zip_members(packed))
    name = draw.choice(sorted(members))
    kind = draw.choice(("value", "value", "value", "remove", "bomb", "rename"))
    if kind == "value":
        members[name] = _damage_json(members[name], draw)
    elif kind == "remove":
        del members[name]
    elif kind == "rename":
        members[draw.choice(("samples/x_epoch_1.json", "../../x", "samples/\x1b_epoch_9.json"))] = members.pop(name)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
    whole = made.getvalue()
    if kind == "bomb":  # the directory says 4 GB
        at = whole.rindex(b"PK\x01\x02")
        whole = whole[: at + 24] + struct.pack("<I", 0xFFFFFFF0) + whole[at + 28 :]
    return whole


def _zip_members(path: Path) -> Iterator[tuple[str, bytes]]:
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name, more = struct.unpack_from("<HH", data, info.header_offset + 26)
            start = info.header_offset + 30 + name + more
            raw = data[start : start + info.compress_size]
            with pa.CompressedInputStream(pa.BufferReader(raw), "zstd") as stream:
                yield info.filename, bytes(stream.read())


def _damage_parquet(data: bytes, draw: random.Random) -> bytes:
    """The same table with a column of other values, removed, or under another name."""
    table = pq.read_table(io.BytesIO(data))
    at = draw.randrange(table.num_columns)
    kind = draw.choice(("nulls", "numbers", "texts", "remove", "rename", "empty", "lists"))
    name, rows = table.column_names[at], table.num_rows
    if kind == "remove":
        table = table.remove_column(at)
    elif kind == "rename":
        table = table.rename_columns([f"{one}_" if one == name else one for one in table.column_names])
    elif kind == "empty":
        table = table.slice(0, 0)
    else:
        texts = draw.choice(("", "[", '{"a": 1}', '[{"function": 3}]', "NaN", DEEP))
        lists = draw.choice(
            ([None], [{"role": None, "tool_calls": "["}], [{"role": "assistant", "content": "x"}] * 300)
        )
        values = {"nulls": [None], "numbers": [draw.choice((2**62, -1, 0))], "texts": [texts], "lists": [lists]}[kind]
        table = table.set_column(at, name, pa.array(values * rows))
    made = io.BytesIO()
    pq.write_table(table, made)
    return made.getvalue()


def try_mutant(number: int, seed: int, place: Path) -> str:
    """Reads one damaged copy of a fixture; empty if all went well, else what went wrong."""
    draw = random.Random(f"{seed} {number}")
    one = FORMATS[number % len(FORMATS)]
    folder = place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FIXTURES / one.folder, folder)
    done = damage(folder, draw)
    before = time.process_time()
    try:
        for batch in read(folder):
            pq.write_table(to_table(batch)[0], io.BytesIO())  # what cannot be stored would be lost later
    except StoreError as error:
        if str(place) not in str(error) and "no rollouts or metrics" not in str(error):
            return f"mutant {number} ({one.folder}, {done}): the error does not name its file: {error}"
    except Exception as error:  # noqa: BLE001  # what no reader may let out
        return f"mutant {number} ({one.folder}, {done}): {type(error).__name__}: {error}"[:500]
    seconds = time.process_time() - before
    return f"mutant {number} ({one.folder}, {done}): {seconds:.0f} s" if seconds > SLOW_SECONDS else ""


def checksum() -> int:
    """Of the fixtures: the figures are of these files."""
    files = sorted(file for file in FIXTURES.rglob("*") if file.is_file())
    return zlib.crc32(b"".join(file.read_bytes() for file in files))
