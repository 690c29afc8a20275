"""The trace stream of newer prime-rl, written as its source writes it: chunks, packed chunks, and annotations."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tiltmeter import cli
from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.audit.readers.verifiers import VerifiersReader
from tiltmeter.audit.readers.verl import VerlReader
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError


def episode(name: str, score: float, arrival: int, kind: str = "train") -> dict[str, Any]:
    """Field by field as verifiers 0.4.0 has it, with the stamps that prime-rl adds when an episode comes back."""
    first = {"message": {"role": "user", "content": "q"}, "sampled": False, "token_ids": [0], "mask": [False]}
    reply = {"message": {"role": "assistant", "content": name}, "sampled": True, "parent": 0}
    reply |= {"token_ids": [1, 2], "mask": [True, True], "logprobs": [-0.5, -0.25]}
    info = {"kind": kind, "dispatch": {"step": arrival, "time": 1.0}, "arrival": {"step": arrival, "time": 2.0}}
    trace = {"id": f"t-{name}", "agent": {"name": "a", "trainable": True}, "nodes": [first, reply], "info": info}
    trace |= {"rewards": {"correct": {"score": score, "weight": 1.0}}, "errors": []}
    task = {"type": "T", "data": {"prompt": "q"}, "key": name[:1]}
    whole = {"id": name, "env": {"id": "sums", "name": "sums"}, "task": task, "group": {"id": name[:1]}, "errors": []}
    return {**whole, "traces": [trace]}


def shipped(name: str, step: int) -> dict[str, Any]:
    """What the orchestrator adds when an episode is trained on; streams are as long as the branch has tokens."""
    info = {"effective": True, "ship": {"step": step, "time": 3.0}, "advantage": 0.5}
    return {
        "version": 1,
        "trace_id": f"t-{name}",
        "info": info,
        "branches": [{"index": 0, "advantages": [None, 0.5, 0.5]}],
    }


def measured(name: str) -> dict[str, Any]:
    """What the trainer adds later."""
    streams = {"index": 0, "trainer_logprobs": [None, -0.4, -0.2], "entropies": [None, 1.0, 2.0]}
    return {"version": 1, "trace_id": f"t-{name}", "info": {}, "branches": [streams]}


def plain(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def packed(rows: list[dict[str, Any]]) -> bytes:
    """Two frames, and a table of frames in one that is skipped, as seekable zstd has it."""
    data, codec = plain(rows), pa.Codec("zstd")
    half = len(data) // 2
    table = struct.pack("<II", 0x184D2A5E, 9) + b"\0" * 9
    return b"".join(codec.compress(part, asbytes=True) for part in (data[:half], data[half:])) + table


def write(home: Path) -> Path:
    stream, notes = home / "traces" / "stream", home / "traces" / "annotations"
    for folder in (stream, notes / "orch", notes / "trainer"):
        folder.mkdir(parents=True)
    (stream / "00000.jsonl.zst").write_bytes(packed([episode("a1", 1.0, 3), episode("a2", 0.0, 3)]))
    rest = [episode("b1", 0.0, 4), episode("b2", 1.0, 4), episode("e1", 1.0, 4, "eval"), episode("e2", 0.0, 4, "eval")]
    (stream / "00001.jsonl").write_bytes(plain(rest) + b'{"id": "torn')
    (stream / "index.jsonl").write_text('{"line": 1, "chunk": 0, "offset": 0}\n')
    (notes / "orch" / "00000.jsonl").write_bytes(plain([shipped("a1", 4), shipped("a2", 4), shipped("b1", 5)]))
    (notes / "trainer" / "00000.jsonl").write_bytes(plain([measured("a1"), measured("a2")]))
    (home / "metrics.jsonl").write_text('{"step": 4, "time": 1.0, "train/agg/all/reward/mean": 0.5}\n')
    return home


def one(path: Path, **options: Any) -> ExternalRun:
    (run,) = VerifiersReader().find(path, ReadOptions(**options))
    return run


def batches(run: ExternalRun) -> dict[int, RolloutBatch]:
    return {batch.step: batch for piece in run.pieces for batch in VerifiersReader().read(run, piece)}


@pytest.mark.parametrize("inside", ["", "traces", "traces/stream"])
def test_a_stream_is_read_by_steps_however_it_is_named(tmp_path: Path, inside: str) -> None:
    run = one(write(tmp_path / "out") / inside)
    steps = batches(run)
    # What was shipped counts at the step that trains on it; what was not, at the step at which it came back.
    assert {step: batch.completion for step, batch in steps.items()} == {4: ("a1", "a2", "b2"), 5: ("b1",)}
    assert steps[4].trained is not None and steps[4].trained.tolist() == [1, 1, 0]
    assert steps[4].reward is not None and steps[4].reward.tolist() == [1.0, 0.0, 1.0]
    assert [(item.step, item.n, item.value) for item in run.evaluations] == [(4, 1, 0.5)]  # one task, twice
    assert run.scalars[4]["reward"] == 0.5 and not VerlReader().find(tmp_path / "out", ReadOptions())


def test_what_was_learnt_later_is_put_at_its_tokens(tmp_path: Path) -> None:
    home = write(tmp_path / "out")
    for name in ("b1", "b2"):  # every row of the step needs them, or there is no column
        with (home / "traces" / "annotations" / "trainer" / "00000.jsonl").open("ab") as file:
            file.write(plain([measured(name)]))
    batch = batches(one(home))[4]
    assert batch.logprob is not None and batch.entropy is not None and batch.engine_logprob is not None
    assert np.allclose(batch.logprob.values[:2], [-0.4, -0.2]) and np.allclose(batch.entropy.values[:2], [1.0, 2.0])
    assert np.allclose(batch.engine_logprob.values[:2], [-0.5, -0.25])
    assert batch.advantage is not None and batch.advantage[:2].tolist() == [0.5, 0.5]


def test_without_annotations_nobody_knows_what_was_trained_on(tmp_path: Path) -> None:
    home = write(tmp_path / "out")
    for file in (home / "traces" / "annotations").rglob("*.jsonl"):
        file.unlink()
    for folder in sorted((home / "traces" / "annotations").rglob("*"), reverse=True):
        folder.rmdir()
    run = one(home)
    steps = batches(run)
    assert set(steps) == {3, 4} and steps[3].trained is None
    assert any("no annotations" in note for note in run.notes)


def test_damage_is_named_with_its_file(tmp_path: Path) -> None:
    home = write(tmp_path / "out")
    chunk = home / "traces" / "stream" / "00000.jsonl.zst"
    chunk.write_bytes(chunk.read_bytes()[:40])
    with pytest.raises(StoreError, match="00000"):
        one(home)
    chunk.write_bytes(pa.Codec("zstd").compress(b"[1]\n", asbytes=True))
    with pytest.raises(StoreError, match="no JSON object"):
        one(home)


def test_an_audit_takes_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["audit", str(write(tmp_path / "out")), "--json"])
    assert result.exit_code in (0, 1, 2, 3), result.output
    assert "2 steps, 4 rollouts" in result.stdout and "a trace stream of 2 chunks" in result.stdout
