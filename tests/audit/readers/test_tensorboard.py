"""TensorBoard's event files: real ones of a trainer, and ones made with TensorBoard's own writer."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.tensorboard import TensorBoardReader, count_records, event_files
from tiltmeter.errors import AttachError, StoreError

FIXTURE = Path(__file__).parents[4] / "shared" / "fixtures" / "trl-1.16" / "plain"
pytest.importorskip("tensorboard", reason="pip install 'tiltmeter[trackers]'")


def write(folder: Path, *steps: tuple[int, dict[str, float]], name: str = "events.out.tfevents.1.host.0") -> Path:
    """An event file, with TensorBoard's writer of records."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("wb") as stream:
        writer = RecordWriter(stream)
        writer.write(Event(file_version="brain.Event:2").SerializeToString())
        for step, scalars in steps:
            values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
            writer.write(Event(step=step, summary=Summary(value=values)).SerializeToString())
    return folder / name


def scalars(path: Path, **asked: Any) -> dict[str, dict[int, Any]]:
    return {run.name: dict(run.scalars) for run in TensorBoardReader().find(path, ReadOptions(**asked))}


@pytest.mark.skipif(not FIXTURE.exists(), reason="the recorded files of TRL are not on this machine")
def test_real_files_of_trl_are_read_under_our_names() -> None:
    (run,) = TensorBoardReader().find(FIXTURE / "runs", ReadOptions(evals={"train/rewards/correct_reward/mean": 8}))
    assert (run.name, run.reader, sorted(run.scalars)) == ("tiny", "tensorboard", [1, 2, 3, 4, 5])
    assert run.scalars[2]["kl_ref"] == pytest.approx(0.00039845, rel=1e-4)
    assert run.scalars[1]["reward"] == pytest.approx(0.63)
    assert {"entropy", "loss", "length_mean", "truncated_share", "train/my/charlen"} <= run.scalars[5].keys()
    assert "2 tags of text, images or histograms were left out" in run.notes
    assert [told.n for told in run.evaluations] == [8] * 5
    assert run.pieces == ()


def test_several_files_of_a_folder_are_one_run_in_step_order(tmp_path: Path) -> None:
    write(tmp_path, (3, {"train/loss": 3.0}), name="events.out.tfevents.20.host.0")
    write(tmp_path, (1, {"train/loss": 1.0}), (2, {"train/kl": 0.5}), name="events.out.tfevents.10.host.0")
    write(tmp_path, (1, {"eval/acc": 0.5}), name="events.out.tfevents.30.host.0")
    assert scalars(tmp_path) == {
        tmp_path.name: {1: {"loss": 1.0, "eval/acc": 0.5}, 2: {"kl_ref": 0.5}, 3: {"loss": 3.0}}
    }


def test_a_resumed_run_is_told_apart_and_folders_are_runs(tmp_path: Path) -> None:
    first = [(step, {"loss": float(step), "kl": 0.1}) for step in range(5)]
    again = [(step, {"loss": 10.0 + step, "kl": 0.2}) for step in range(3, 7)]
    write(tmp_path / "a", *first, name="events.out.tfevents.10.host.0")
    write(tmp_path / "a", *again, name="events.out.tfevents.11.host.0")
    write(tmp_path / "b" / "deep", *first)
    found = scalars(tmp_path)
    assert {name: sorted(steps) for name, steps in found.items()} == {
        "a/0": [0, 1, 2, 3, 4],
        "a/1": [3, 4, 5, 6],
        "b/deep": [0, 1, 2, 3, 4],
    }
    assert found["a/1"][3] == {"loss": 13.0, "kl_ref": pytest.approx(0.2)}


def test_scalars_stored_as_tensors_count_and_text_does_not(tmp_path: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.record_writer import RecordWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    def value(tag: str, held: Any, plugin: str) -> Any:
        about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
        return Summary.Value(tag=tag, tensor=make_tensor_proto(held), metadata=about)

    values = [value("entropy", 1.5, "scalars"), value("note", "hello", "text"), value("hist", [1.0, 2.0], "scalars")]
    with (tmp_path / "events.out.tfevents.1.x").open("wb") as stream:
        RecordWriter(stream).write(Event(step=4, summary=Summary(value=values)).SerializeToString())
    (run,) = TensorBoardReader().find(tmp_path, ReadOptions())
    assert run.scalars == {4: {"entropy": 1.5}}
    assert "2 tags of text, images or histograms were left out" in run.notes


def test_a_file_that_is_cut_short_or_damaged_says_how_much_was_read(tmp_path: Path) -> None:
    path = write(tmp_path, *((step, {"loss": float(step)}) for step in range(10)))
    whole = path.read_bytes()
    assert count_records(path) == 11
    path.write_bytes(whole[:-7])
    (run,) = TensorBoardReader().find(tmp_path, ReadOptions())
    assert sorted(run.scalars) == list(range(9))
    assert any("damaged or cut short: 10 of 11 records were read" in told for told in run.notes)
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    path.write_bytes(bytes(broken))
    (run,) = TensorBoardReader().find(tmp_path, ReadOptions())
    assert 0 < len(run.scalars) < 9
    assert any("damaged" in told for told in run.notes)


@pytest.mark.parametrize("data", [b"", b"hello, this is not an event file " * 20, b"\xff" * 64])
def test_a_file_without_a_single_scalar_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "events.out.tfevents.1.x").write_bytes(data)
    with pytest.raises(StoreError, match="scalar"):
        TensorBoardReader().find(tmp_path, ReadOptions())


def test_a_negative_step_and_a_hostile_tag_do_no_harm(tmp_path: Path) -> None:
    write(tmp_path / "a", (0, {"\x1b[2J\u202etag": 1.0}))
    (run,) = TensorBoardReader().find(tmp_path / "a", ReadOptions(columns={"reward": "\x1b[2J\u202etag"}))
    assert run.scalars == {0: {"reward": 1.0}}
    assert not {"\x1b", "\u202e"} & set(" ".join(run.notes))
    write(tmp_path / "b", (-1, {"\x1b[2Jtag": 1.0}))
    with pytest.raises(StoreError, match="a step is a whole number") as refused:
        TensorBoardReader().find(tmp_path / "b", ReadOptions())
    assert "\x1b" not in str(refused.value)


def test_without_the_package_the_fix_is_named_and_other_folders_are_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "metrics.csv").write_text("step,loss\n")
    assert event_files(tmp_path) == []
    assert TensorBoardReader().find(tmp_path, ReadOptions()) == []
    write(tmp_path, (0, {"loss": 1.0}))
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "tensorboard" else found(name))
    with pytest.raises(AttachError, match=r"pip install 'tiltmeter\[trackers\]'"):
        TensorBoardReader().find(tmp_path, ReadOptions())


@pytest.mark.parametrize("ours", ["run", "step"])
def test_a_log_is_one_run_with_steps_of_its_own(tmp_path: Path, ours: str) -> None:
    write(tmp_path, (0, {"loss": 1.0}))
    with pytest.raises(StoreError, match=f"leave --map {ours}= out"):
        TensorBoardReader().find(tmp_path, ReadOptions(columns={ours: "loss"}))


def test_a_folder_without_scalars_is_no_run_and_a_damaged_one_is_said_by_the_others(tmp_path: Path) -> None:
    write(tmp_path / "a", (1, {"train/loss": 1.0}))
    write(tmp_path / "a" / "1669.1")  # as transformers leaves its hyperparameters
    (tmp_path / "a" / "._events.out.tfevents.1.host.0").write_bytes(b"\x00\x05\x16\x07")
    (run,) = TensorBoardReader().find(tmp_path, ReadOptions())
    assert run.name == "a" and not any("1669.1" in told for told in run.notes)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "events.out.tfevents.1.host.0").write_bytes(b"no event file at all")
    (run,) = TensorBoardReader().find(tmp_path, ReadOptions())
    assert any("b was left out: " in told for told in run.notes)
    for alone in ("b", "a/1669.1"):
        with pytest.raises(StoreError, match="no scalar"):
            TensorBoardReader().find(tmp_path / alone, ReadOptions())
