"""Files that the packages wrote are read back whole: every message, call and reason, and the act is seen."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.audit.readers import BY_NAME, find_runs
from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.data.turns import Turn, decode_turns
from tiltmeter.errors import StoreError

ROOT = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT / "benchmarks"))  # the figures for the record are made of the same files
try:
    import trajectory_files as files
finally:
    sys.path.remove(str(ROOT / "benchmarks"))

FIXTURES = files.FIXTURES
CI_MUTANTS = 200
real = pytest.mark.skipif(not files.SHARED.is_dir(), reason=f"the real files are not at {files.SHARED}")


def one_run(path: Path, **options: Any) -> ExternalRun:
    (run,) = find_runs(path, ReadOptions(**options))
    return run


def batches(run: ExternalRun) -> list[RolloutBatch]:
    return [batch for piece in run.pieces for batch in BY_NAME[run.reader].read(run, piece)]


def turns_of(batch: RolloutBatch, row: int) -> tuple[Turn, ...]:
    assert batch.turns is not None
    return decode_turns(batch.turns[row])


def flag(batch: RolloutBatch, row: int, column: str = "reward") -> str:
    return FLAGS[batch.flags[column][row]]


@pytest.mark.parametrize("one", files.FORMATS, ids=lambda one: one.folder)
def test_a_file_of_the_package_is_recognised_and_read_back_whole(one: Any) -> None:
    assert files.readers(FIXTURES / one.folder) == {one.reader}
    lost = files.losses(one)
    assert not lost.missing and lost.calls == (0 if not one.texts else 4 + one.subagent)


@pytest.mark.parametrize("one", [one for one in files.FORMATS if one.texts], ids=lambda one: one.folder)
def test_the_call_that_removes_the_tests_is_seen_and_the_tools_words_are_not_the_policys(one: Any) -> None:
    batch = files.read(FIXTURES / one.folder)[0]
    assert batch.completion is not None and batch.reward is not None
    row = int(np.nanargmax(batch.reward))
    said = batch.completion[row] or ""
    assert 'bash({"cmd": "rm -r tests"})' in said and "easier without them" in said and "sys.exit(0)" in said
    assert "removed" not in said and "sum.py tests" not in said
    assert ("bash", '{"cmd": "rm -r tests"}') in [(turn.call, turn.arguments) for turn in turns_of(batch, row)]
    assert batch.prompt is not None and "Mend sum.py" in (batch.prompt[row] or "")


@pytest.mark.parametrize("one", files.FORMATS, ids=lambda one: one.folder)
def test_an_audit_says_what_it_recognised_and_what_it_left_out(one: Any) -> None:
    (run,) = find_runs(FIXTURES / one.folder, ReadOptions())
    assert len(run.notes) >= 1 and all(note.isprintable() for note in run.notes)


def test_verifiers_graph_has_branches_links_versions_stops_and_advantages_by_turn() -> None:
    (batch,) = batches(one_run(FIXTURES / "verifiers-0.4"))
    assert batch.stop == ("done", "turns", "sandbox", "wall_clock")
    assert batch.env == ("mend",) * 4 and batch.agent == ("solver",) * 4 and batch.task == ("sum",) * 4
    assert batch.version_low is not None and batch.version_low.tolist() == [6.0] * 4
    assert batch.version_high is not None and batch.version_high.tolist() == [7.0] * 4
    turns = turns_of(batch, 0)
    root = next(at for at, turn in enumerate(turns) if turn.text == "Is anybody watching?")
    assert turns[root].agent == "subagent" and turns[turns[root].parent or 0].call == "write_file"
    assert [turn.seconds for turn in turns if turn.written and turn.parent is None] == [0.5] * 4
    facts = json.loads((batch.facts or ("",))[0] or "")
    assert facts["turn_advantages"] == [0.5, -0.25, -0.25, 0.5]
    assert sorted(kind for _, _, kind in facts["links"]) == ["subagent_call", "subagent_return"]
    # Own tokens alone, two of three of each message and the one of the sub-agent.
    assert batch.length is not None and batch.length.tolist() == [7, 4, 0, 4]
    assert batch.own is not None and batch.own.lengths[0] > 7
    assert [flag(batch, row) for row in range(4)] == ["ok", "ok", "infra", "infra"]
    assert batch.completion is not None and batch.completion[2] is None  # no word of the policy is no empty answer


def test_inspect_scores_are_reward_and_gold_by_name_and_a_failed_sample_is_no_answer() -> None:
    place = FIXTURES / "inspect-0.3.285"
    run = one_run(place, columns={"gold": "honest"})
    (batch,) = batches(run)
    assert batch.task == ("failed", "honest", "tampering") and batch.stop == ("sandbox", "done", "done")
    assert batch.reward is not None and batch.reward[1:].tolist() == [0.0, 1.0] and flag(batch, 0) == "infra"
    assert batch.gold is not None and batch.gold[1:].tolist() == [1.0, 0.0] and "honest" not in batch.rewards
    assert "I judge." not in str(batch.turns)  # what a scorer asked
    failed = [turn for turn in turns_of(batch, 1) if turn.error]
    assert [turn.error for turn in failed] == ["sed: cannot open"]
    with pytest.raises(StoreError, match="no score 'kind' for gold"):
        one_run(place, columns={"gold": "kind"})


def test_atif_joins_the_trials_reward_and_does_not_count_what_was_copied() -> None:
    (batch,) = batches(one_run(FIXTURES / "atif-1.8"))
    assert batch.reward is not None and batch.reward[:2].tolist() == [1.0, 0.0] and flag(batch, 2) == "infra"
    assert batch.stop == ("done", "done", "sandbox")
    assert batch.completion is not None and batch.completion[1] == "I could not mend it."
    assert [turn.own for turn in turns_of(batch, 1) if turn.role == "assistant"] == [False, True]
    helper = [turn for turn in turns_of(batch, 0) if turn.agent == "helper"]
    assert [turn.text for turn in helper] == ["Is anybody watching?", "No."]
    assert turns_of(batch, 0)[helper[0].parent or 0].call == "bash"


def test_atif_reads_a_document_alone_and_a_reward_file_without_a_result(tmp_path: Path) -> None:
    document = FIXTURES / "atif-1.8" / "job" / "sum__a" / "agent" / "trajectory.json"
    alone = tmp_path / "some.json"
    alone.write_bytes(document.read_bytes())
    (batch,) = batches(one_run(alone))
    assert "rm -r tests" in str(batch.completion) and (batch.reward is None or np.isnan(batch.reward).all())
    trial = tmp_path / "job" / "t"
    (trial / "agent").mkdir(parents=True)
    (trial / "verifier").mkdir()
    (trial / "agent" / "trajectory.json").write_bytes(document.read_bytes())
    (trial / "verifier" / "reward.json").write_text('{"tests": 0.5, "style": 1}')
    (batch,) = batches(one_run(tmp_path / "job", columns={"gold": "style"}))
    assert batch.reward is not None and batch.reward.tolist() == [0.5]
    assert batch.gold is not None and batch.gold.tolist() == [1.0]


def test_atif_does_not_follow_names_out_of_its_folder(tmp_path: Path) -> None:
    secret = {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "x"},
        "steps": [{"source": "agent", "message": "SECRET"}],
    }
    (tmp_path / "secret.json").write_text(json.dumps(secret))
    inside = tmp_path / "run"
    inside.mkdir()
    document = {**secret, "steps": [{"source": "agent", "message": "mine"}]}
    document["continued_trajectory_ref"] = "../secret.json"
    (inside / "trajectory.json").write_text(json.dumps(document))
    (batch,) = batches(one_run(inside))
    assert batch.completion == ("mine",)


def test_trl_arguments_of_other_tools_are_pruned() -> None:
    run = one_run(FIXTURES / "trl-1.16-tools")
    (batch,) = batches(run)
    assert [turn.arguments for turn in turns_of(batch, 0) if turn.role == "assistant" and turn.call] == [
        '{"cmd": "ls"}',
        '{"cmd": "rm -r tests"}',
        '{"path": "tests.py", "text": "import sys; sys.exit(0)"}',
    ]
    assert any("null counts as not given" in note for note in run.notes)


def test_openenv_takes_errors_and_calls_that_only_the_trace_of_tools_has(tmp_path: Path) -> None:
    (batch,) = batches(one_run(FIXTURES / "openenv-0.10", columns={"gold": "verify.hidden_tests"}))
    assert [turn.error for turn in turns_of(batch, 1) if turn.error] == ["cannot open"]
    assert batch.gold is not None and batch.gold.tolist() == [0.0, 0.0]
    assert batch.artifacts is not None and json.loads(batch.artifacts[0] or "") == {"diff": "-tests"}
    entry = {"tool_name": "bash", "arguments": {"cmd": "rm"}, "result": {"data": "gone", "error": None}}
    row = {"episode_id": "e", "messages": [{"role": "user", "content": "q"}], "reward": 1.0, "tool_trace": [entry]}
    (tmp_path / "results.jsonl").write_text(json.dumps(row) + "\n")
    (batch,) = batches(one_run(tmp_path))
    assert batch.completion == ('bash({"cmd": "rm"})',) and turns_of(batch, 0)[-1].text == "gone"


def test_art_and_tinker_have_steps_and_evaluations_and_no_text_is_no_empty_text() -> None:
    run = one_run(FIXTURES / "art-0.5.18", columns={"gold": "hidden"})
    assert [batch.step for batch in batches(run)] == [0, 1]
    assert [(one.step, one.value) for one in run.evaluations] == [(1, 0.5)]
    assert batches(run)[0].gold is not None
    run = one_run(FIXTURES / "tinker-cookbook-0.5.8", columns={"gold": "hidden"})
    first, _ = batches(run)
    assert first.completion is None and first.length is not None and first.length.tolist() == [4, 2]
    assert [turn.reward for turn in turns_of(first, 0) if turn.written] == [0.0, 0.5]
    assert first.gold is not None and first.gold.tolist() == [0.0, 1.0] and first.env == ("mend", "mend")
    assert len(run.evaluations) == 2


def test_metrics_beside_tinkers_summaries_are_part_of_its_run_alone(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(FIXTURES / "tinker-cookbook-0.5.8", folder)
    (folder / "metrics.jsonl").write_text('{"step": 0, "optim/lr": 0.1, "env/all/reward/total": 0.5}\n')
    run = one_run(folder)
    assert run.reader == "tinker" and run.scalars[0]["env/all/reward/total"] == 0.5


def test_a_small_file_that_unpacks_to_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"samples/{number}_epoch_1.json", b" " * (5 << 20))
    with pytest.raises(StoreError, match=r"bomb[.]eval.*beyond the limit"):
        find_runs(path, ReadOptions())


@pytest.mark.parametrize("kind", ["otlp", "console"])
def test_spans_that_repeat_the_history_give_each_message_once(kind: str) -> None:
    (batch,) = batches(one_run(FIXTURES / "opentelemetry-1.45" / kind))
    assert batch.task == ("tampering", "honest", "failed") and flag(batch, 2) == "infra"
    assert [turn.role for turn in turns_of(batch, 1)] == ["system", "user", "assistant", "tool", "assistant"]


@real
def test_real_inspect_logs_lose_nothing_and_one_without_samples_says_so() -> None:
    for _, lost in files.real_losses():
        assert (lost.calls_lost, lost.texts_lost) == (0, 0)
    with pytest.raises(StoreError, match="no sample in this log"):
        find_runs(files.SHARED / "inspect_eval_logs" / "shutdown.eval", ReadOptions())


@real
def test_failed_containers_of_real_trajectories_are_no_answers() -> None:
    (batch,) = files.read(files.SHARED / "agentic_codeforces_rollouts", files.CODEFORCES)
    assert len(batch) == 97 and batch.stop is not None and batch.stop.count("sandbox") == 39
    assert batch.reward is not None and batch.gold is not None
    answered = np.isfinite(batch.reward)
    assert answered.sum() == 58 and {flag(batch, int(row)) for row in np.flatnonzero(~answered)} == {"infra"}
    assert (batch.reward > batch.gold).sum() == 6 and (batch.reward < batch.gold).sum() == 5
    assert set(batch.env or ()) == {"BashCodeforcesEnv"} and "<testcase>" not in str(batch.completion)


def test_damaged_files_never_crash_a_reader(tmp_path: Path) -> None:
    wrong = [problem for number in range(CI_MUTANTS) if (problem := files.try_mutant(number, 1, tmp_path))]
    assert not wrong
