"""One bad part among good ones costs that part alone and is said; an option that would change nothing is an error."""

from __future__ import annotations

import gzip
import json
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tiltmeter.audit import readers
from tiltmeter.audit.readers import generic
from tiltmeter.audit.readers.described import AREAL, NEMO, OPEN_INSTRUCT, SKYRL
from tiltmeter.audit.readers.external_run import ExternalRun, FormatReader, ReadOptions
from tiltmeter.audit.readers.generic import GenericReader
from tiltmeter.audit.readers.jsonl import unfinished
from tiltmeter.audit.readers.scalars import ScalarsReader
from tiltmeter.audit.readers.trl import TrlReader
from tiltmeter.audit.readers.verifiers import VerifiersReader
from tiltmeter.audit.readers.verl import VerlReader
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError


def lines(path: Path, rows: Sequence[dict[str, Any]], tail: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return path


def packed(path: Path) -> Path:
    copy = path.with_name(f"{path.name}.gz")
    copy.write_bytes(gzip.compress(path.read_bytes()))
    return copy


def rollout(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "prompt": "p", "completion": "c", "reward": 1.0, **more}


def of_verl(folder: Path, steps: Sequence[int] = (1, 2), **more: Any) -> Path:
    for step in steps:
        row = {"input": "q", "output": "a", "gts": "a", "score": 1.0, "step": step, **more}
        lines(folder / f"{step}.jsonl", [row, row])
    return folder


def of_trl(folder: Path, steps: Sequence[int] = (1, 2), log: Sequence[dict[str, Any]] = ()) -> Path:
    (folder / "completions").mkdir(parents=True, exist_ok=True)
    for step in steps:
        row = {"step": step, "prompt": "p", "completion": f"{step}", "good": 0.5, "advantage": 0.0}
        pq.write_table(pa.Table.from_pylist([row, row]), folder / "completions" / f"completions_{step}.parquet")
    if log:
        state = {"global_step": max(row["step"] for row in log), "log_history": list(log), "logging_steps": 1}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def episode(env: str, item: str, score: float) -> dict[str, Any]:
    node = {"sampled": True, "message": {"content": "x"}, "token_ids": [1], "mask": [True]}
    trace = {"rewards": {"a": {"score": score, "weight": 1.0}}, "metrics": {"m": 1.0}, "nodes": [node]}
    return {"id": item, "env": {"name": env}, "task": {"key": item}, "group": {"id": item}, "traces": [trace]}


def of_prime(home: Path, steps: Sequence[int] = (1, 2), kinds: Sequence[str] = ("train/all",)) -> Path:
    for step in steps:
        for kind in kinds:
            rows = [episode("数学", "a", 1.0), episode("推理", "b", 0.0)]
            lines(home / f"rollouts/step_{step}/{kind}/traces.jsonl", rows)
    lines(home / "metrics.jsonl", [{"step": step, "optim/lr": 1e-6, "acc": 0.5, "pct": 50.0} for step in steps])
    return home


def read(reader: FormatReader, run: ExternalRun) -> list[RolloutBatch]:
    return [batch for piece in run.pieces for batch in reader.read(run, piece)]


def one(reader: FormatReader, path: Path, **asked: Any) -> ExternalRun:
    (run,) = reader.find(path, ReadOptions(**asked))
    return run


def says(run: ExternalRun, *words: str) -> bool:
    return any(all(word in line for word in words) for line in run.notes)


# --- the same rows twice


@pytest.mark.parametrize(
    ("reader", "name", "row"),
    [
        (GenericReader(), "r.jsonl", rollout(1)),
        (ScalarsReader(), "m.jsonl", {"step": 1, "reward": 1.0}),
        (OPEN_INSTRUCT, "x_rollouts_000000.jsonl", {"step": 1, "prompt_idx": 0, "reward": 1.0}),
        (AREAL, "rollout/5/7.jsonl", {"task_id": "7", "prompt": "p", "completion": "c", "reward": 1.0}),
        (AREAL, "eval-rollout/5/7.jsonl", {"task_id": "7", "prompt": "p", "completion": "c", "reward": 1.0}),
    ],
)
def test_a_file_beside_its_packed_copy_is_refused(tmp_path: Path, reader: FormatReader, name: str, row: Any) -> None:
    file = lines(tmp_path / name, [row])
    one(reader, tmp_path)
    packed(file)
    with pytest.raises(StoreError, match=rf"{file.name} and {file.name}\.gz hold the same rows twice: move one away"):
        reader.find(tmp_path, ReadOptions())
    one(reader, tmp_path / name if reader.name in ("generic", "scalars") else _without(file))


def _without(file: Path) -> Path:
    """The packed copy alone is no copy."""
    file.unlink()
    return next(parent for parent in file.parents if not {"rollout", "eval-rollout"} & set(parent.parts))


def test_the_labels_that_judge_a_run_are_none_of_its_rollouts_or_metrics(tmp_path: Path) -> None:
    lines(tmp_path / "rollouts.jsonl", [rollout(1)] * 4)
    labels = tmp_path / "labels.csv"
    labels.write_text("step,prompt,completion,gold\n1,p,c,1\n")
    link = tmp_path / "link.csv"
    link.symlink_to(labels)
    assert sum(map(len, read(GenericReader(), one(GenericReader(), tmp_path)))) == 6
    run = one(GenericReader(), tmp_path, excluded=(str(labels),))
    assert sum(map(len, read(GenericReader(), run))) == 4
    (tmp_path / "rollouts.jsonl").unlink()
    assert GenericReader().find(tmp_path, ReadOptions(excluded=(str(labels),))) == []
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2\n")
    assert [run.name for run in ScalarsReader().find(tmp_path, ReadOptions(excluded=(str(labels),)))] == ["metrics"]


# --- one bad part among good ones


def test_a_stray_file_beside_rollouts_or_metrics_is_said_and_refused_where_it_is_named(tmp_path: Path) -> None:
    lines(tmp_path / "r.jsonl", [rollout(1), rollout(2)])
    (tmp_path / "notes.csv").write_text("a,b\nthis, is, no table\n")
    (tmp_path / "data.jsonl").write_text("[1, 2]\n")
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    (tmp_path / "._r.jsonl").write_bytes(b"\x00\x05\x16\x07\n")
    run = one(GenericReader(), tmp_path)
    assert [batch.step for batch in read(GenericReader(), run)] == [1, 2]
    assert all(says(run, f"{name} was left out") for name in ("notes.csv", "data.jsonl", "t.parquet"))
    assert not says(run, "._r.jsonl")
    for name in ("notes.csv", "data.jsonl", "t.parquet"):
        with pytest.raises(StoreError, match=name):
            GenericReader().find(tmp_path / name, ReadOptions())
    (tmp_path / "r.jsonl").write_text('{"step": 1, "loss": 1}\n')
    (found,) = readers.find_runs(tmp_path, ReadOptions())
    assert found.reader == "scalars" and says(found, "notes.csv was left out")
    (tmp_path / "r.jsonl").unlink()
    for asked in (ReadOptions(), ReadOptions(format="generic"), ReadOptions(format="scalars")):
        with pytest.raises(StoreError, match=r"data\.jsonl|notes\.csv"):
            readers.find_runs(tmp_path, asked)


def test_a_damaged_file_among_rollouts_of_other_steps_is_left_out_and_said(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [rollout(1)])
    lines(tmp_path / "b.jsonl", [rollout(2)] * 30, tail="damage\n")
    run = one(GenericReader(), tmp_path)
    assert [batch.step for batch in read(GenericReader(), run)] == [1] and says(run, "b.jsonl was left out", "31")
    with pytest.raises(StoreError, match=r"b\.jsonl:31"):
        GenericReader().find(tmp_path / "b.jsonl", ReadOptions())


def test_one_metrics_file_without_the_column_that_was_asked_for_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("step,acc\n1,0.5\n")
    (tmp_path / "b.csv").write_text("step,loss\n1,0.5\n")
    run = one(ScalarsReader(), tmp_path, evals={"acc": 10})
    assert run.name == "a" and says(run, "b.csv was left out", "acc")
    with pytest.raises(StoreError, match="acc"):
        ScalarsReader().find(tmp_path / "b.csv", ReadOptions(evals={"acc": 10}))


def test_a_damaged_run_of_a_sweep_is_said_by_the_others_and_refused_alone(tmp_path: Path) -> None:
    for name in "abc":
        of_trl(tmp_path / name)
    for file in (tmp_path / "b" / "completions").iterdir():
        file.write_bytes(b"PAR1garbage PAR1")
    runs = TrlReader().find(tmp_path, ReadOptions())
    assert [run.name for run in runs] == ["a", "c"]
    assert all(says(run, "b was left out", "not a whole Parquet file") for run in runs)
    with pytest.raises(StoreError, match="not a whole Parquet file"):
        TrlReader().find(tmp_path / "b", ReadOptions())
    # The same across trainers: what one of them cannot use does not cost the other's run.
    mixed = tmp_path / "mixed"
    (tmp_path / "b").rename(mixed)
    of_verl(mixed / "dump")
    (run,) = readers.find_runs(mixed, ReadOptions())
    assert run.reader == "verl" and says(run, "what trl wrote was left out")


@pytest.mark.parametrize(
    ("reader", "good", "bad"),
    [
        (VerlReader(), ["5.jsonl"], ["5.jsonl", "05.jsonl"]),
        (NEMO, ["train_data_step5.jsonl"], ["train_data_step5.jsonl", "train_data_step05.jsonl"]),
        (OPEN_INSTRUCT, ["x_rollouts_000000.jsonl"], ["y_rollouts_000000.jsonl"]),
        (VerifiersReader(), ["traces.jsonl"], ["rollouts/step_1/train/all/traces.jsonl"]),
    ],
)
def test_one_unusable_folder_does_not_cost_the_others(
    tmp_path: Path, reader: FormatReader, good: list[str], bad: list[str]
) -> None:
    whole: dict[str, Any] = {"input": "q", "output": "a", "score": 1.0, "content": ["x"], "rewards": [1.0]}
    whole |= {"step": 5, "prompt_idx": 0, "reward": 1.0} | episode("e", "a", 1.0)
    for name in good:
        lines(tmp_path / "good" / "run" / name, [whole])
    for name in bad:
        lines(tmp_path / "bad" / "run" / name, [whole if len(bad) > 1 else {"other": 1}])
    run = one(reader, tmp_path)
    assert says(run, "bad", "was left out")
    with pytest.raises(StoreError):
        reader.find(tmp_path / "bad", ReadOptions())


def test_a_validation_that_belongs_to_a_broken_dump_is_no_run_of_its_own(tmp_path: Path) -> None:
    of_verl(tmp_path / "rollouts")
    packed(tmp_path / "rollouts" / "1.jsonl")
    of_verl(tmp_path / "validation", reward=1.0)
    lines(tmp_path / "log.jsonl", [{"step": 1, "data": {"actor/entropy": 1.0}}])
    with pytest.raises(StoreError, match="are the same step"):
        VerlReader().find(tmp_path, ReadOptions())


def test_runs_in_numbered_folders_are_found_and_versions_of_areal_are_not_walked(tmp_path: Path) -> None:
    for number in range(2):
        of_trl(tmp_path / "sweep" / str(number))
    assert [run.name for run in TrlReader().find(tmp_path / "sweep", ReadOptions())] == ["0", "1"]
    for version in range(3):
        row = {"task_id": "7", "prompt": "p", "completion": "c", "reward": 1.0}
        lines(tmp_path / "areal" / "rollout" / str(version) / "7.jsonl", [row])
    (run,) = readers.find_runs(tmp_path / "areal", ReadOptions())
    assert run.reader == "areal" and [batch.step for batch in read(AREAL, run)] == [0, 1, 2]


# --- options that would change nothing

LOG = [{"step": 1, "kl": 0.1}, {"step": 1, "eval_accuracy": 0.5, "eval_percent": 50.0, "eval_n": 20}]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"evals": {"eval_acuracy": 100}}, "'eval_acuracy' was not logged; there is eval_accuracy"),
        ({"evals": {"eval_accuracy": "eval_m"}}, "'eval_m' was not logged"),
        ({"evals": {"eval_percent": 100}}, "50 at step 1.*from 0 to 1.*a percentage by 100"),
        ({"evals": {"eval_accuracy": 0}}, "at least 1"),
        ({"columns": {"rewrad": "kl"}}, "--map rewrad=.*choose one of gold.*kl_ref"),
        ({"columns": {"kl_ref": "kll"}}, "'kll' was not logged; there is kl"),
        ({"weights": {"godo": 1.0}}, "no reward column 'godo' to weigh: the columns are good"),
    ],
)
def test_trl_refuses_an_option_that_names_nothing(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    of_trl(tmp_path, steps=(2, 3), log=LOG)
    assert (
        one(TrlReader(), tmp_path, evals={"eval_accuracy": "eval_n"}, columns={"kl_ref": "kl"}).evaluations[0].n == 20
    )
    with pytest.raises(StoreError, match=told):
        TrlReader().find(tmp_path, ReadOptions(**asked))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"evals": {"acu": 100}}, "'acu' was not logged; there is acc"),
        ({"evals": {"pct": 100}}, "a percentage by 100"),
        ({"columns": {"rewrad": "acc"}}, "choose one of gold"),
        ({"columns": {"kl_ref": "kll"}}, "'kll' was not logged; there is acc"),
        ({"weights": {"a": 2.0}}, "the total is stored.*leave --weight out"),
        ({"group_size": 2}, "groups are stored.*leave --group-size out"),
    ],
)
def test_verl_and_verifiers_refuse_an_option_that_changes_nothing(
    tmp_path: Path, asked: dict[str, Any], told: str
) -> None:
    of_verl(tmp_path / "verl" / "rollouts", uid="s_0_0")
    lines(tmp_path / "verl" / "log.jsonl", [{"step": 1, "data": {"acc": 0.5, "pct": 50.0}}])
    of_prime(tmp_path / "prime")
    for reader, name in ((VerlReader(), "verl"), (VerifiersReader(), "prime")):
        assert len(one(reader, tmp_path / name, evals={"acc": 5}, columns={"accuracy": "acc"}).evaluations) > 0
        with pytest.raises(StoreError, match=told):
            reader.find(tmp_path / name, ReadOptions(**asked))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"weights": {"zz": 3.0}}, "no part 'zz' of the reward to weigh; the parts are fmt"),
        ({"weights": {"fmt": 3.0}}, r"the total is stored \(reward\): leave --weight out"),
        ({"columns": {"rewrad": "reward"}}, "'rewrad' is no column of rollouts: choose one of step"),
        ({"group_size": 2}, r"groups are stored \(group\)"),
    ],
)
def test_generic_refuses_an_option_that_changes_nothing(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    path = lines(tmp_path / "r.jsonl", [rollout(1, group="g", rewards={"fmt": 1.0})] * 4)
    one(GenericReader(), path)
    with pytest.raises(StoreError, match=told):
        GenericReader().find(path, ReadOptions(**asked))


def test_formats_without_such_columns_say_which_options_they_do_not_use(tmp_path: Path) -> None:
    lines(tmp_path / "x_rollouts_000000.jsonl", [{"step": 1, "prompt_idx": 0, "reward": 1.0}])
    run = one(OPEN_INSTRUCT, tmp_path, columns={"kl_ref": "kl"}, weights={"a": 1.0}, group_size=2, evals={"a": 1})
    options = ("--map kl_ref=", "--weight", "--group-size", "--eval")
    assert all(says(run, f"{option} ", "not used") for option in options)


def test_a_gold_that_is_paid_as_well_is_said(tmp_path: Path) -> None:
    of_verl(tmp_path / "verl" / "rollouts", acc=1.0, true=0.0)
    of_prime(tmp_path / "prime")
    lines(tmp_path / "g" / "r.jsonl", [rollout(1, true=0.0, rewards={"fmt": 1.0})] * 2)
    cases: list[tuple[FormatReader, str, list[str], str]] = [
        (VerlReader(), "verl", ["score", "acc"], "true"),
        (VerifiersReader(), "prime", ["a"], "m"),
        (GenericReader(), "g", ["reward", "rewards.fmt"], "true"),
    ]
    for reader, name, paid, apart in cases:
        for gold in paid:
            run = one(reader, tmp_path / name, columns={"gold": gold})
            assert says(run, gold, "paid as well", "what a policy is paid for is no independent truth")
            batch = read(reader, run)[0]
            assert batch.gold is not None and batch.reward is not None
        assert not says(one(reader, tmp_path / name, columns={"gold": apart}), "paid as well")


# --- names of evaluations


def test_evaluations_whose_names_become_the_same_are_numbered(tmp_path: Path) -> None:
    run = one(VerifiersReader(), of_prime(tmp_path / "prime", kinds=("train/all", "eval/all")))
    assert {(told.name, told.value) for told in run.evaluations} == {("eval", 1.0), ("eval_2", 0.0)}
    assert len(run.evaluations) == 4 and says(run, "eval_2 is eval 推理")
    for name, score in (("数学", 1.0), ("推理", 0.0)):
        row = {"input_prompt": "q", "output_response": "a", "score": score}
        lines(tmp_path / "sky" / "global_step_5_evals" / f"{name}.jsonl", [row])
    assert [(told.name, told.value) for told in one(SKYRL, tmp_path / "sky").evaluations] == [
        ("eval", 0.0),  # by the names of the files
        ("eval_2", 1.0),
    ]


def test_two_folders_of_validations_are_two_evaluations(tmp_path: Path) -> None:
    of_verl(tmp_path / "rollouts")
    of_verl(tmp_path / "val_gsm", reward=1.0, acc=1.0)
    for step in (1, 2):
        row = {"input": "other", "output": "a", "score": 0.0, "acc": 0.0, "reward": 0.0, "step": step}
        lines(tmp_path / "val_math" / f"{step}.jsonl", [row])
    run = one(VerlReader(), tmp_path)
    values = {told.name: told.value for told in run.evaluations}
    assert values == {"validation": 1.0, "validation_acc": 1.0, "validation_2": 0.0, "validation_acc_2": 0.0}
    assert len(run.evaluations) == 8 and says(run, "val_math/", "as validation_2")


# --- pieces, files that go away, lines that are cut


def test_the_steps_of_a_piece_are_told_where_they_are_known(tmp_path: Path) -> None:
    prime = of_prime(tmp_path / "prime", steps=(1, 2, 5), kinds=("train/all", "train/effective"))
    assert [piece.steps for piece in one(VerifiersReader(), prime).pieces] == [(1, 2, 5)]
    for version in (1, 2):
        for task in "78":
            row = {"task_id": task, "prompt": "p", "completion": "c", "reward": 1.0}
            lines(tmp_path / "areal" / "rollout" / str(version) / f"{task}.jsonl", [row])
    assert [piece.steps for piece in one(AREAL, tmp_path / "areal").pieces] == [(1, 2)]
    for shard, steps in enumerate([(1,), (2, 2), (3, 4)]):
        rows = [{"step": step, "prompt_idx": 0, "reward": 1.0} for step in steps]
        lines(tmp_path / "oi" / f"x_rollouts_{shard:06d}.jsonl", rows)
    assert [piece.steps for piece in one(OPEN_INSTRUCT, tmp_path / "oi").pieces] == [(1,), (2,), ()]
    lines(tmp_path / "g" / "r.jsonl", [rollout(step) for step in (1, 2, 5)])
    assert one(GenericReader(), tmp_path / "g").pieces[0].steps == (1, 2, 5)


def test_a_link_to_nothing_is_left_out_or_named_and_never_ends_the_audit(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        unfinished(tmp_path / "absent.jsonl")
    run = of_verl(tmp_path / "verl" / "rollouts")
    (run / "3.jsonl").symlink_to(tmp_path / "absent")
    found = one(VerlReader(), tmp_path / "verl")
    assert [batch.step for batch in read(VerlReader(), found)] == [1, 2] and says(found, "3.jsonl cannot be read")
    trl = of_trl(tmp_path / "trl", steps=(1, 3))
    for step in (2, 4):
        (trl / "completions" / f"completions_{step}.parquet").symlink_to(tmp_path / "absent")
    found = one(TrlReader(), trl)
    assert [batch.step for batch in read(TrlReader(), found)] == [1, 3]
    assert says(found, "completions_2.parquet cannot be read") and says(found, "completions_4.parquet cannot be read")
    lines(tmp_path / "oi" / "x_rollouts_000000.jsonl", [{"step": 1, "prompt_idx": 0, "reward": 1.0}])
    for shard in (1, 2):
        (tmp_path / "oi" / f"x_rollouts_{shard:06d}.jsonl").symlink_to(tmp_path / "absent")
    assert says(one(OPEN_INSTRUCT, tmp_path / "oi"), "x_rollouts_000002.jsonl", "cannot be read")
    lines(tmp_path / "nemo" / "train_data_step1.jsonl", [{"content": ["x"], "rewards": [1.0]}])
    (tmp_path / "nemo" / "train_data_step2.jsonl").symlink_to(tmp_path / "absent")
    assert says(one(NEMO, tmp_path / "nemo"), "train_data_step2.jsonl cannot be read")


def test_hundreds_of_files_that_share_steps_need_no_more_than_a_few_open_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in range(300):
        lines(tmp_path / f"rank_{rank}.jsonl", [rollout(1), rollout(2)])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        run = one(GenericReader(), tmp_path)
        assert [(batch.step, len(batch)) for batch in read(GenericReader(), run)] == [(1, 300), (2, 300)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    monkeypatch.setattr(generic, "SORT_LIMIT", 1000)
    with pytest.raises(StoreError, match=r"300 files share steps.*too much to sort.*one file a step"):
        GenericReader().find(tmp_path, ReadOptions())


@pytest.mark.parametrize("row", [rollout(1), {key: value for key, value in rollout(1).items() if key != "step"}])
def test_a_torn_last_line_of_rollouts_is_said(tmp_path: Path, row: dict[str, Any]) -> None:
    path = lines(tmp_path / "r_1.jsonl", [row])
    assert not says(one(GenericReader(), path), "cut short")
    lines(path, [row], tail='{"step": 1, "pro')
    run = one(GenericReader(), path)
    assert (
        says(run, "the last line of r_1.jsonl is cut short and was left out")
        and len(read(GenericReader(), run)[0]) == 1
    )


def test_a_torn_last_line_of_csv_is_said(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("step,prompt,completion,reward\n1,p,c,1\n1,p")
    assert says(one(GenericReader(), path), "the last line of r.csv is cut short and was left out")


def test_file_times_alone_do_not_say_for_certain_that_a_run_was_resumed(tmp_path: Path) -> None:
    of_trl(tmp_path, steps=(1, 2, 3))
    for step, seconds in ((1, 1000), (2, 2000), (3, 500)):
        os.utime(tmp_path / "completions" / f"completions_{step}.parquet", (seconds, seconds))
    assert says(one(TrlReader(), tmp_path), "step 3", "file times say", "if that is so")


def test_runs_whose_names_are_alike_are_all_found(tmp_path: Path) -> None:
    for name in ("a-b", "a/b"):
        of_verl(tmp_path / name / "rollouts")
        lines(tmp_path / "areal" / name / "rollout/1/7.jsonl", [{"task_id": "7", "completion": "c", "reward": 1.0}])
    assert len(VerlReader().find(tmp_path, ReadOptions())) == len(AREAL.find(tmp_path / "areal", ReadOptions())) == 2
    for ending in "xy":
        (tmp_path / f"{'long' * 25}{ending}.csv").write_text("step,loss\n1,2\n")
    assert len(ScalarsReader().find(tmp_path, ReadOptions())) == 2
