"""Logged numbers in a table: found, named, ordered, told apart; and what the loop makes of a run without rollouts."""

from __future__ import annotations

import gzip
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.adapters.metric_names import ALIASES, STEP_COLUMNS, step_column, translation
from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.audit.readers.metric_series import NO_KL, NO_ROLLOUTS, MetricSeries
from tiltmeter.audit.readers.scalars import ScalarsReader
from tiltmeter.audit.readers.table_files import TableFile, flatten, list_tables, number
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.instruments.training import SCALARS
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.evaluations import write_evaluation
from tiltmeter.rundir.journal import readings_of
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import Verdict, judge_run

DATA = Path(__file__).parents[4] / "shared" / "data"
HOSTILE = "\x1b[2Jname\u202e</script>,=cmd()"


def csv(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def jsonl(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def find(path: Path, **asked: Any) -> list[ExternalRun]:
    return ScalarsReader().find(path, ReadOptions(**asked))


def imported(run: ExternalRun, folder: Path) -> tuple[Verdict, list[Any]]:
    """A run as `tiltmeter audit` imports it: a batch without rows a step, scalars and evaluations, then the loop."""
    store = RunDirectory.create(folder)
    attempt = store.open_attempt(launch="audit", ranks=1, resume_step=None)
    counters = {"seen": 0, "written": 0, "thinned": 0, "dropped": 0}
    for count, (step, scalars) in enumerate(run.scalars.items(), 1):
        counters |= {"seen": count, "written": count}
        batch = replace(from_columns(step, []), scalars=scalars)
        store.write(batch, 0, {"time": time.time(), "groups": "rank", "counters": counters})
    for told in run.evaluations:
        write_evaluation(store, told)
    store.close_rank(attempt, 0, counters)
    watch = MonitorLoop(store, Config.standard(), strict=True)
    try:
        while watch.poll():
            pass
    finally:
        watch.close()
    verdict, _, events = judge_run(store)
    return verdict, events


# -- which step, which name -------------------------------------------------------------------------------------------


def test_every_known_name_of_a_step_is_found_and_the_asked_one_goes_before_it(tmp_path: Path) -> None:
    for name in STEP_COLUMNS:
        (run,) = find(csv(tmp_path / "a.csv", f"{name},loss", "3,0.5", "4,0.4"))
        assert run.scalars == {3: {"loss": 0.5}, 4: {"loss": 0.4}}
    path = csv(tmp_path / "b.csv", "step,mine,loss", "9,1,0.5")
    (run,) = find(path, columns={"step": "mine"})
    assert list(run.scalars) == [1]
    with pytest.raises(StoreError, match="no column 'other' to be the step; it has step, mine, loss"):
        find(path, columns={"step": "other"})


def test_a_table_without_steps_is_refused_with_the_fix_and_left_out_of_a_folder(tmp_path: Path) -> None:
    csv(tmp_path / "config.csv", "run,seed", "a,1")
    with pytest.raises(StoreError, match=r"--map step=COLUMN\. It has run, seed"):
        find(tmp_path / "config.csv")
    assert find(tmp_path) == []
    csv(tmp_path / "metrics.csv", "step,loss", "0,1")
    (run,) = find(tmp_path)
    assert run.name == "metrics"
    assert "config.csv has no column of steps and was left out" in run.notes


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("train/kl", "kl_ref"),  # TRL in a tracker
        ("kl", "kl_ref"),  # TRL in its own file
        ("actor/entropy", "entropy"),  # veRL
        ("actor/ppo_kl", "kl_old_new"),  # not the leash
        ("actor/kl_loss", "kl_ref"),
        ("train/ppo_kl", "kl_old_new"),  # OpenRLHF, slime
        ("train/vllm_kl", "kl_engine_trainer"),
        ("train/entropy_loss", "entropy"),  # no loss, in spite of its name
        ("policy/policy_entropy", "entropy"),  # SkyRL
        ("train/gen_kl_error", "kl_engine_trainer"),  # NeMo-RL
        ("objective/kl2_avg", "kl_ref"),  # open-instruct: the index is not the estimator's
        ("train/frac_reward_zero_std", "dead_group_share"),
        ("train/completions/mean_length", "length_mean"),
        ("ref_kl", "ref_kl"),  # prime-rl: the other sign
        ("eval/reward", "eval/reward"),  # an evaluation's reward is not the training's
        ("my/own", "my/own"),
    ],
)
def test_trainers_names_become_ours_and_others_pass(theirs: str, ours: str) -> None:
    assert translation([theirs], {}) == {theirs: ours}


def test_each_of_our_names_is_given_once_and_what_the_user_says_stands() -> None:
    told = translation(["kl", "actor/kl_loss", "reward", "proxy"], {"reward": "proxy"})
    assert told == {"kl": "kl_ref", "actor/kl_loss": "actor/kl_loss", "reward": "file.reward", "proxy": "reward"}
    assert len({name for names in ALIASES.values() for name in names}) == sum(map(len, ALIASES.values()))
    assert step_column(["_step", "global_step"]) == "global_step"


def test_every_name_of_the_vocabulary_becomes_a_reading() -> None:
    assert set(ALIASES) - {"kl_old_new"} <= set(SCALARS)  # which has an instrument of its own


def test_a_map_that_names_nothing_is_refused(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", "step,proxy", "0,1", "1,2")
    with pytest.raises(StoreError, match="'rewrad' is no scalar of ours: choose one of step, run"):
        find(path, columns={"rewrad": "proxy"})
    with pytest.raises(StoreError, match="there is no column 'prox' with a number; it has proxy"):
        find(path, columns={"reward": "prox"})
    with pytest.raises(StoreError, match="there is no column 'score'"):
        find(path, evals={"score": 10})


# -- cells ------------------------------------------------------------------------------------------------------------


def test_an_empty_cell_is_absent_and_a_logged_nan_is_not(tmp_path: Path) -> None:
    (run,) = find(csv(tmp_path / "a.csv", "step,loss,kl", "0,,1e-3", "1,nan,", "2,inf, 2 "))
    assert run.scalars[0] == {"kl_ref": 0.001}
    assert list(run.scalars[1]) == ["loss"]
    assert run.scalars[1]["loss"] != run.scalars[1]["loss"]
    assert run.scalars[2] == {"kl_ref": 2.0, "loss": float("inf")}
    (run,) = find(jsonl(tmp_path / "a.jsonl", {"step": 0, "loss": None, "kl": 1}))
    assert run.scalars == {0: {"kl_ref": 1.0}}


@pytest.mark.parametrize("cell", ["12_000", "１２", "0x10", "1,5", "True!", "--1", "1e", "nano", "1 2"])
def test_what_only_looks_like_a_number_is_none(cell: str) -> None:
    assert number(cell) is None


def test_words_are_left_out_and_said_and_huge_numbers_do_not_break_the_file(tmp_path: Path) -> None:
    rows = [{"step": step, "note": "x", "loss": 10**400, "n": {"a": {"b": step}}} for step in range(2)]
    path = jsonl(tmp_path / "a.jsonl", *rows)
    path.write_text(path.read_text() + '{"step": 2, "loss": ' + "9" * 5000 + "}\n")
    (run,) = find(path)
    assert "columns that hold no numbers were left out: note" in run.notes
    assert run.scalars[1] == {"loss": float("inf"), "n/a/b": 1.0}
    assert run.scalars[2] == {"loss": float("inf")}


def test_verl_rows_with_their_data_apart_are_read(tmp_path: Path) -> None:
    (run,) = find(jsonl(tmp_path / "exp.jsonl", {"step": 1, "data": {"actor/entropy": 1.5, "actor/ppo_kl": 0.0}}))
    assert run.scalars == {1: {"entropy": 1.5, "kl_old_new": 0.0}}
    assert flatten({"a": {"b": [1]}}) == {"a/b": [1]}


@pytest.mark.parametrize("step", ["-1", "1.5", "nan", "1e300", "x", str(2**60)])
def test_a_step_that_is_none_is_refused_with_its_line(tmp_path: Path, step: str) -> None:
    with pytest.raises(StoreError, match=r"a\.csv:3: a step is a whole number"):
        find(csv(tmp_path / "a.csv", "step,loss", "0,1", f"{step},1"))


def test_rows_without_a_step_are_left_out_and_counted(tmp_path: Path) -> None:
    (run,) = find(jsonl(tmp_path / "a.jsonl", {"step": 1, "loss": 1}, {"train_runtime": 9.0}, {"step": 2.0, "loss": 2}))
    assert list(run.scalars) == [1, 2]
    assert "1 rows without a step were left out" in run.notes


# -- damaged files ----------------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_left_out_and_said_and_a_damaged_one_before_it_is_refused(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"step": 0, "loss": 1})
    path.write_text(path.read_text() + '{"step": 1, "lo')
    (run,) = find(path)
    assert list(run.scalars) == [0]
    assert "the last line is cut short and was left out" in run.notes
    path.write_text('{"step": 0, "loss": 1}\n{"step": 1, "lo\n{"step": 2, "loss": 1}\n')
    with pytest.raises(StoreError, match=r"a\.jsonl:2: not a JSON object"):
        find(path)
    torn = csv(tmp_path / "b.csv", "step,loss,kl", "0,1,2")
    torn.write_text(torn.read_text() + "1,0.")
    (run,) = find(torn)
    assert list(run.scalars) == [0]
    torn.write_text(torn.read_text() + "\n2,1,2\n")
    with pytest.raises(StoreError, match=r"b\.csv:3: 2 cells, the header has 3"):
        find(torn)


@pytest.mark.parametrize("line", ["[1, 2]", "7", '"text"', "null", "[" * 100_000, "{'step': 1}"])
def test_a_line_that_is_no_object_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 0, "loss": 1}\n' + line + "\n")
    with pytest.raises(StoreError, match=r"a\.jsonl:2: not a JSON object"):
        find(path)


def test_files_that_are_not_what_their_name_says_are_refused_with_the_fix(tmp_path: Path) -> None:
    packed = gzip.compress(b"step,loss\n0,1\n" + b"1,0.5\n" * 9000)
    for name, data, told in (
        ("a.csv.gz", packed[:-20], "damaged or cut short"),
        ("b.csv.gz", b"step,loss\n0,1\n", "damaged or cut short"),
        ("c.csv", b"step,lo\xff\xfess\n0,1\n", "not UTF-8"),
        ("d.csv", b"step,loss,loss\n0,1,2\n", "two columns are called 'loss'"),
        ("e.csv", b'step,loss\n0,"' + b"x" * 140_000 + b'"\n', "not CSV"),
        ("f.pkl", b"\x80\x04.", "loading one runs code"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(StoreError, match=told):
            find(tmp_path / name)
    assert list_tables(tmp_path / "nowhere", ("csv",)) == []
    with pytest.raises(StoreError, match="it has no rows"):
        find(csv(tmp_path / "empty.csv", "step,loss"))


def test_a_byte_order_mark_and_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbfstep,loss\r\n0,1\r\n")
    (run,) = find(tmp_path / "a.csv")
    assert run.scalars == {0: {"loss": 1.0}}


def test_hostile_names_of_columns_and_runs_cannot_reach_a_terminal(tmp_path: Path) -> None:
    quoted = HOSTILE.replace('"', '""')
    path = csv(tmp_path / "a.csv", f'step,run,"{quoted}","{quoted}2"', f'0,"{quoted}",0.5,word')
    (run,) = find(path, columns={"run": "run", "reward": HOSTILE}, evals={HOSTILE: 10})
    shown = " ".join([run.name, *run.notes])
    assert not {"\x1b", "\u202e"} & set(shown)
    assert run.scalars == {0: {"reward": 0.5}}
    assert [told.name for told in run.evaluations] == ["eval_2jname_script_cmd"]


# -- order, restarts, several runs ------------------------------------------------------------------------------------


def test_a_restart_is_noticed_and_each_part_is_a_run(tmp_path: Path) -> None:
    steps = [0, 1, 2, 3, 2, 3, 4, 0, 1]
    path = csv(tmp_path / "a.csv", "step,loss", *(f"{step},{line}" for line, step in enumerate(steps)))
    runs = find(path)
    assert [(run.name, list(run.scalars)) for run in runs] == [
        ("a/0", [0, 1, 2, 3]),
        ("a/1", [2, 3, 4]),
        ("a/2", [0, 1]),
    ]
    assert runs[1].scalars[3] == {"loss": 5.0}
    assert "the step goes back 2 times (resumed): this is part 1" in runs[1].notes


def test_rows_that_come_late_or_twice_are_put_in_their_place(tmp_path: Path) -> None:
    late = jsonl(
        tmp_path / "a.jsonl",
        {"step": 1, "loss": 1, "time": 1},
        {"step": 2, "loss": 2, "time": 2},
        {"step": 1, "score": 0.5, "time": 3},  # an evaluation that took its time
        {"step": 2, "loss": 2, "time": 4},
        {"step": 3, "loss": 3, "time": 5},
    )
    (run,) = find(late, evals={"score": 20})
    assert run.scalars[1]["loss"] == 1
    assert [(told.step, told.value) for told in run.evaluations] == [(1, 0.5)]
    assert "1 rows came after later steps and were put in their place" in run.notes
    assert "1 rows repeat their step and were counted once" in run.notes
    (run,) = find(csv(tmp_path / "b.csv", "step,loss", "3,3", "1,1", "2,2"))
    assert list(run.scalars) == [1, 2, 3]


def test_a_contradicted_step_is_said_and_a_file_of_contradictions_refused(tmp_path: Path) -> None:
    (run,) = find(csv(tmp_path / "a.csv", "step,loss", "0,1", "0,2", "1,3", "2,4"))
    assert run.scalars[0] == {"loss": 2.0}
    assert any("the last one stands" in told for told in run.notes)
    many = csv(tmp_path / "b.csv", "step,seed,loss", *(f"{s},{seed},{s + seed}" for s in range(9) for seed in (1, 2)))
    with pytest.raises(StoreError, match=r"most steps have several rows that differ.*--map run=COLUMN"):
        find(many)
    assert [run.name for run in find(many, columns={"run": "seed"})] == ["1", "2"]
    mixed = csv(tmp_path / "c.csv", "step,loss", *(f"{s},{k}" for k in range(20) for s in (5, 1)))
    with pytest.raises(StoreError, match="steps go back 19 times in 40 rows"):
        find(mixed)


def test_runs_of_one_file_are_told_apart_by_the_columns_that_are_named(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", "a,b,step,loss,kl", "x,0,0,1,", "y/0,,0,2,", "x,1,0,3,0.5", "x,0,1,4,")
    runs = find(path, columns={"run": "a+b"})
    assert [(run.name, run.scalars) for run in runs] == [
        ("x/0", {0: {"loss": 1.0}, 1: {"loss": 4.0}}),
        ("y/0/", {0: {"loss": 2.0}}),
        ("x/1", {0: {"kl_ref": 0.5, "loss": 3.0}}),
    ]
    assert [NO_KL in run.notes for run in runs] == [True, True, False]
    same = csv(tmp_path / "b.csv", "a,b,step,loss", "x/0,1,0,1", "x,0/1,0,2")
    assert [run.name for run in find(same, columns={"run": "a+b"})] == ["x/0/1", "x/0/1.2"]


def test_a_course_says_nothing_of_rows_without_numbers() -> None:
    course = MetricSeries()
    course.add(5, {})
    course.add(3, {"loss": 1.0})
    assert (course.rows, course.segments, course.notes()) == (1, [{3: {"loss": 1.0}}], [])


# -- evaluations and the leash ----------------------------------------------------------------------------------------


def test_an_evaluation_has_its_items_from_a_number_or_a_column(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", "step,val-core/acc,items", "0,0.5,40", "1,,", "2,0.25,", "3,0.75,60")
    (run,) = find(path, evals={"val-core/acc": "items"})
    assert [(told.name, told.step, told.n) for told in run.evaluations] == [
        ("val_core_acc", 0, 40),
        ("val_core_acc", 2, 40),
        ("val_core_acc", 3, 60),
    ]
    assert any("1 without n, where the smallest is taken, the careful choice" in told for told in run.notes)
    (run,) = find(path, evals={"val-core/acc": 64})
    assert {told.n for told in run.evaluations} == {64}
    assert not any(NO_ROLLOUTS in told for told in run.notes)


@pytest.mark.parametrize(
    ("rows", "items", "told"),
    [
        (("0,50,1",), 10, "score is 50 at step 0.*a percentage by 100"),
        (("0,-0.1,1",), 10, "from 0 to 1: rescale"),
        (("0,inf,1",), 10, "from 0 to 1: rescale"),
        (("0,0.5,0",), "n", "counted in whole numbers"),
        (("0,0.5,2.5",), "n", "counted in whole numbers"),
        (("0,0.5,", "1,,3"), "n", "n has no number of items"),
        (("0,0.5,1",), 0, "at least one item"),
    ],
)
def test_a_score_or_a_count_that_cannot_be_one_is_refused(
    tmp_path: Path, rows: tuple[str, ...], items: Any, told: str
) -> None:
    with pytest.raises(StoreError, match=told):
        find(csv(tmp_path / "a.csv", "step,score,n", *rows), evals={"score": items})


def test_two_columns_that_would_be_one_evaluation_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="both the evaluation 'a_b'"):
        find(csv(tmp_path / "a.csv", "step,a/b,a-b", "0,0,0"), evals={"a/b": 5, "a-b": 5})


def test_a_leash_of_zeros_was_not_measured(tmp_path: Path) -> None:
    (run,) = find(csv(tmp_path / "a.csv", "step,train/kl", "0,0", "1,0", "2,0.0"))
    assert all("kl_ref" not in row for row in run.scalars.values())
    assert any(told.startswith("no KL measured: the KL is exactly 0") for told in run.notes)
    (run,) = find(csv(tmp_path / "b.csv", "step,train/kl", "0,0", "1,0.1"))
    assert run.scalars[0] == {"kl_ref": 0.0}
    assert not any("no KL measured" in told for told in run.notes)


# -- through the loop -------------------------------------------------------------------------------------------------


def test_a_run_of_numbers_alone_passes_the_loop_and_is_blind(tmp_path: Path) -> None:
    rows = (f"{step},{0.2 + 0.01 * step},{2 - 0.02 * step},nan" for step in range(50))
    (run,) = find(csv(tmp_path / "a.csv", "step,reward,policy_entropy,loss", *rows))
    verdict, events = imported(run, tmp_path / "run")
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert "no gold to judge by" in verdict.sentence
    assert [event for event in events if event.kind == "fault"] == []
    read = {
        (told.step, told.name): told.value
        for event in events
        if event.kind == "reading"
        for told in readings_of(event)
        if told.name.startswith("training.")
    }
    assert read[49, "training.reward"] == pytest.approx(0.69)
    assert read[49, "training.entropy"] == pytest.approx(1.02)
    assert read[49, "training.nonfinite_count"] == 1.0
    assert (0, "training.loss") not in read
    assert verdict.warnings == ()


def test_a_score_that_falls_raises_the_alarm_and_one_that_rises_does_not(tmp_path: Path) -> None:
    def course(name: str, late: float) -> ExternalRun:
        rows = (f"{20 * k},{0.4 + 0.1 * k},{0.5 if k < 4 else late}" for k in range(8))
        (run,) = find(csv(tmp_path / f"{name}.csv", "step,reward,score", *rows), evals={"score": 400})
        return run

    verdict, events = imported(course("falls", 0.2), tmp_path / "falls")
    assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    (alarm,) = verdict.alarms
    assert (alarm.name, alarm.onset) == ("eval.score", 80)
    assert [event for event in events if event.kind == "fault"] == []
    verdict, _ = imported(course("rises", 0.6), tmp_path / "rises")
    assert (verdict.alarms, verdict.exit_code) == ((), 2)


def test_two_curves_that_part_are_hollow_and_two_that_rise_together_are_not(tmp_path: Path) -> None:
    def course(name: str, gains: float) -> ExternalRun:
        rows = (f"{k},{0.2 + 0.0125 * k},{0.01 + gains * k}" for k in range(40))
        (run,) = find(csv(tmp_path / f"{name}.csv", "step,reward,score", *rows), evals={"score": 512})
        return run

    verdict, _ = imported(course("parts", 0.0), tmp_path / "parts")
    assert (verdict.state, verdict.exit_code) == ("HOLLOW", 3)
    assert "a gain of gold of 0.0" in verdict.sentence and "or more is excluded" in verdict.sentence
    assert verdict.advice is not None and verdict.advice.word == "stop"
    verdict, _ = imported(course("together", 0.01), tmp_path / "together")
    assert verdict.state != "HOLLOW"
    assert verdict.level is not None and verdict.level.change == 0.0


@pytest.mark.skipif(not DATA.exists(), reason="the public logs are not on this machine")
def test_segments_that_we_find_are_those_of_the_data(tmp_path: Path) -> None:
    """Upstream's files have restarts inside; whoever published them counted the same."""
    path = DATA / "rl_logs_reward_hacking_entropy" / "train_metrics.csv.gz"
    theirs = find(path, columns={"run": "run+segment", "reward": "proxy_g"}, evals={"true_f": 64})
    ours = find(path, columns={"run": "run", "reward": "proxy_g"}, evals={"true_f": 64})
    assert len(theirs) == 46
    assert len({row["run"] for _, row in TableFile(path).rows()}) == 33
    # A start that was given up after its first step is overwritten by the next one at that step.
    courses = [{step: row["reward"] for step, row in run.scalars.items()} for run in ours]
    longer = [run for run in theirs if len(run.scalars) > 1]
    assert len(longer) == len(ours) - 1  # a run that has one step in all
    assert all({step: row["reward"] for step, row in run.scalars.items()} in courses for run in longer)
    assert all(NO_KL in run.notes for run in ours)
