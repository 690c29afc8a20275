"""verifiers and prime-rl: records that verifiers 0.4.0 serialised, in prime-rl's folders; older results by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.audit.readers.verifiers import VerifiersReader
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.errors import StoreError

SHARED = Path(__file__).resolve().parents[4] / "shared" / "fixtures" / "verifiers-0.4"
TRACES = SHARED / "rollouts" / "step_7" / "train" / "all" / "traces.jsonl"
recorded = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the recorded traces are not at {SHARED}")


def one(path: Path, **asked: Any) -> ExternalRun:
    (run,) = VerifiersReader().find(path, ReadOptions(**asked))
    return run


def batches(run: ExternalRun) -> list[RolloutBatch]:
    return [batch for piece in run.pieces for batch in VerifiersReader().read(run, piece)]


def says(run: ExternalRun, *words: str) -> bool:
    return any(all(word in line for word in words) for line in run.notes)


def stored(home: Path, step: int, lines: list[str], kind: str = "train/all") -> Path:
    path = home / "rollouts" / f"step_{step}" / kind / "traces.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def episode(name: str, score: float | None, **trace: Any) -> str:
    """Field by field as the schema of verifiers 0.4.0 has it; what is left out has a default there."""
    node = {"message": {"role": "assistant", "content": name}, "sampled": True, "token_ids": [1, 2], "mask": [True] * 2}
    asked = {"message": {"role": "user", "content": "q"}, "sampled": False, "token_ids": [0], "mask": [False]}
    reward = {"correct": None if score is None else {"score": score, "weight": 1.0}}
    made = {"agent": {"name": "a", "trainable": True}, "nodes": [asked, node], "rewards": reward, "errors": [], **trace}
    task = {"type": "T", "data": {"prompt": "q"}, "key": name[:1]}
    whole = {"id": name, "env": {"id": "sums", "name": "sums"}, "task": task, "group": {"id": name[:1]}, "errors": []}
    return json.dumps({**whole, "traces": [made]})


@recorded
@pytest.mark.parametrize("inside", ["", "rollouts", "rollouts/step_7/train/all", TRACES.relative_to(SHARED).as_posix()])
def test_the_recorded_episodes_give_one_step_however_they_are_named(inside: str) -> None:
    (batch,) = batches(one(SHARED / inside))
    assert batch.step == 7 and np.diff(batch.starts).tolist() == [4, 4]
    lines = [json.loads(line) for line in TRACES.read_text().splitlines()]
    traces = [line["traces"][0] for line in lines]
    total = [sum(part["score"] * part["weight"] for part in trace["rewards"].values() if part) for trace in traces[:7]]
    assert batch.reward is not None
    np.testing.assert_allclose(batch.reward[:7], total)
    assert list(batch.rewards) == ["correct", "brief"]
    assert batch.prompt is not None and batch.prompt[0] == "What is 1 plus 2?"
    assert batch.completion is not None and batch.completion[3] == traces[3]["nodes"][1]["message"]["content"]
    assert batch.truncated is not None and batch.truncated.tolist() == [False] * 3 + [True] + [False] * 4


@recorded
def test_a_rollout_whose_scoring_never_ran_has_no_reward_and_says_infra() -> None:
    (batch,) = batches(one(SHARED))
    assert batch.reward is not None and np.isnan(batch.reward[7]) and not np.isnan(batch.reward[:7]).any()
    assert FLAGS[batch.flags["reward"][7]] == "infra" and FLAGS[batch.flags["rewards.correct"][7]] == "infra"
    assert batch.completion is not None and batch.completion[7] is None


def test_an_episode_that_failed_before_any_agent_began_is_a_row_without_words(tmp_path: Path) -> None:
    failed = json.loads(episode("a1", 0.0))
    failed |= {"traces": [], "ok": False, "errors": [{"type": "SandboxError", "message": "no such image"}]}
    stored(tmp_path, 0, [episode("a0", 1.0), json.dumps(failed)])
    (batch,) = batches(one(tmp_path))
    assert batch.completion == ("a0", None) and batch.stop is not None and batch.stop[1] == "sandbox"
    assert batch.reward is not None and np.isnan(batch.reward[1]) and FLAGS[batch.flags["reward"][1]] == "infra"


@recorded
def test_tokens_and_their_numbers_are_those_that_were_sampled() -> None:
    (batch,) = batches(one(SHARED))
    node = json.loads(TRACES.read_text().splitlines()[1])["traces"][0]["nodes"][1]
    assert batch.tokens is not None and batch.tokens[1].tolist() == node["token_ids"]
    for column, key in ((batch.engine_logprob, "logprobs"), (batch.logprob, "trainer_logprobs")):
        assert column is not None
        assert column[1].tolist() == np.array(node[key], np.float32).tolist()
    assert batch.entropy is not None and batch.ref_logprob is None
    assert batch.length is not None and batch.length.tolist() == [1, 4, 1, 9, 1, 1, 1, 0]
    assert says(one(SHARED), "4 decimals")


def test_effective_is_marked_and_never_added(tmp_path: Path) -> None:
    lines = [episode("a1", 1.0), episode("a2", 0.0), episode("b1", 0.0), episode("b2", 0.0)]
    stored(tmp_path, 1, lines)
    stored(tmp_path, 1, lines[:2], "train/effective")
    run = one(tmp_path)
    (batch,) = batches(run)
    assert len(batch) == 4 and says(run, "marked effective")
    marks = [json.loads(str(facts))["effective"] for facts in batch.facts or ()]
    assert marks == [True, True, False, False]
    stored(tmp_path / "only", 1, lines[:2], "train/effective")
    assert says(one(tmp_path / "only"), "only what was trained on")
    assert len(batches(one(tmp_path / "only"))[0]) == 2


def test_held_out_episodes_are_evaluations_by_environment(tmp_path: Path) -> None:
    stored(tmp_path, 2, [episode("a1", 1.0), episode("b1", 0.0)])
    stored(tmp_path, 2, [episode("a1", 1.0), episode("a2", 0.0), episode("b1", 1.0), episode("c1", None)], "eval/all")
    run = one(tmp_path)
    assert [(found.step, found.name, found.value, found.n) for found in run.evaluations] == [(2, "eval_sums", 0.75, 2)]
    stored(tmp_path, 3, [episode("a1", 7.0)], "eval/all")
    assert says(one(tmp_path), "scores from 7 to 7 are not between 0 and 1")


def test_a_part_that_was_not_scored_is_not_zero_and_without_an_error_it_is_missing(tmp_path: Path) -> None:
    both = {"correct": {"score": 1.0, "weight": 2.0}, "style": None}
    stored(tmp_path, 1, [episode("a1", None, rewards=both), episode("a2", None)])
    (batch,) = batches(one(tmp_path))
    assert batch.reward is not None and batch.reward[0] == 2.0 and np.isnan(batch.reward[1])
    assert FLAGS[batch.flags["reward"][1]] == "missing" and FLAGS[batch.flags["rewards.style"][0]] == "missing"


def test_an_agent_that_is_not_trained_is_left_out(tmp_path: Path) -> None:
    whole = json.loads(episode("a1", 1.0))
    judge = json.loads(episode("a1", 0.0))["traces"][0] | {"agent": {"name": "judge", "trainable": False}}
    whole["traces"].append(judge)
    stored(tmp_path, 1, [json.dumps(whole)])
    assert [batch.reward.tolist() for batch in batches(one(tmp_path)) if batch.reward is not None] == [[1.0]]


def test_several_turns_are_one_completion_and_tools_do_not_speak_for_the_policy(tmp_path: Path) -> None:
    def node(role: str, text: str, tokens: int) -> dict[str, Any]:
        own = role == "assistant"
        said = {"role": role, "content": [{"type": "text", "text": text}]}
        return {"message": said, "sampled": own, "token_ids": list(range(tokens)), "mask": [own] * tokens}

    nodes = [node("user", "q", 1), node("assistant", "call", 2), node("tool", "42", 5), node("assistant", "so 42", 3)]
    stored(tmp_path, 1, [episode("a1", 1.0, nodes=nodes, stop_condition="max_turns_reached")])
    (batch,) = batches(one(tmp_path))
    assert batch.completion == ("call\nso 42",) and batch.prompt == ("q",)
    assert batch.length is not None and batch.length.tolist() == [5]
    assert batch.truncated is not None and batch.truncated.tolist() == [True]


def test_metrics_are_translated_and_the_sign_of_ref_kl_is_turned(tmp_path: Path) -> None:
    """Written by hand from the description of prime-rl's metrics.jsonl."""
    stored(tmp_path, 1, [episode("a1", 1.0)])
    rows = [
        {"step": 1, "time": 1.0, "train/agg/all/reward/mean": 0.5, "train/agg/all/is_truncated/mean": 0.1},
        {"step": 1, "time": 2.0, "entropy/all/mean": 1.5, "mismatch_kl/all/mean": 0.01, "ref_kl/all/mean": -0.2},
        {"step": 2, "time": 3.0, "optim/lr": 1e-6, "optim/grad_norm": 0.3, "loss/mean": 0.1},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 3, "ti')
    run = one(tmp_path)
    assert run.scalars[1] == pytest.approx(
        {"reward": 0.5, "truncated_share": 0.1, "entropy": 1.5, "kl_engine_trainer": 0.01, "kl_ref": 0.2}
    )
    assert run.scalars[2] == pytest.approx({"learning_rate": 1e-6, "grad_norm": 0.3, "loss": 0.1})
    alone = one(tmp_path / "metrics.jsonl")
    assert not alone.pieces and alone.scalars == run.scalars and says(alone, "no rollouts")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "metrics.jsonl").write_text('{"step": 1, "time": 2, "loss": 1}\n')
    assert VerifiersReader().find(tmp_path / "other", ReadOptions()) == []


def test_results_from_before_0_4_are_one_step_and_an_error_is_no_zero(tmp_path: Path) -> None:
    """Written by hand from the description of results.jsonl before 0.4."""
    rows = [
        {
            "example_id": 1,
            "prompt": [{"role": "user", "content": "q"}],
            "completion": "a",
            "reward": 1.0,
            "answer": "a",
        },
        {"example_id": 1, "prompt": "q", "completion": "b", "reward": 0.0, "is_truncated": True, "metrics": {"fmt": 1}},
        {"example_id": 2, "prompt": "r", "completion": "", "reward": 0.0, "error": "SandboxError()"},
    ]
    (tmp_path / "results.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "metadata.json").write_text("{}")
    run = one(tmp_path)
    (batch,) = batches(run)
    assert batch.step == 0 and np.diff(batch.starts).tolist() == [2, 1] and says(run, "taken as step 0")
    assert batch.reward is not None and batch.reward[:2].tolist() == [1.0, 0.0] and np.isnan(batch.reward[2])
    assert FLAGS[batch.flags["reward"][2]] == "infra"
    assert batch.truncated is not None and batch.truncated.tolist() == [False, True, False]
    (tmp_path / "results.jsonl").write_text('{"task": 1, "valid": true}\n')  # vf-validate of 0.4 uses the name too
    assert VerifiersReader().find(tmp_path, ReadOptions()) == []


def test_the_newest_step_may_end_in_a_torn_line_and_an_older_one_may_not(tmp_path: Path) -> None:
    for step in (1, 2):
        file = stored(tmp_path, step, [episode("a1", 1.0), episode("a2", 0.0)])
    file.write_text(file.read_text()[:-40])
    run = one(tmp_path)
    assert [len(batch) for batch in batches(run)] == [2, 1] and says(run, "step 2 is still being written")
    older = stored(tmp_path, 1, [episode("a1", 1.0)])
    older.write_text(older.read_text()[:-40])
    with pytest.raises(StoreError, match=r"step_1.*line 1, the last, is cut off"):
        batches(one(tmp_path))


@pytest.mark.parametrize(
    "damage",
    [
        {"nodes": 3},
        {"nodes": [{"sampled": True, "token_ids": "x", "mask": [True]}]},
        {"nodes": [{"sampled": True, "token_ids": [2**40], "mask": [True]}]},
        {"nodes": [{"sampled": True, "token_ids": ["x"], "mask": [True]}]},
        {"calls": 7},
    ],
)
def test_a_row_that_is_not_as_it_should_be_is_blamed_on_its_file(tmp_path: Path, damage: dict[str, Any]) -> None:
    stored(tmp_path, 1, [episode("a1", 1.0, **damage)])
    with pytest.raises(StoreError, match=r"traces[.]jsonl"):
        batches(one(tmp_path))


def test_traces_of_another_format_are_named(tmp_path: Path) -> None:
    stored(tmp_path, 1, ['{"prompt": "q"}'])
    with pytest.raises(StoreError, match=r"no episodes of verifiers 0[.]4"):
        one(tmp_path)


@pytest.mark.parametrize("kept", [{"metrics": {"truth": 1.0}}, {"rewards": {"truth": {"score": 1.0, "weight": 0.0}}}])
def test_a_metric_or_a_part_may_be_named_as_gold(tmp_path: Path, kept: dict[str, Any]) -> None:
    stored(tmp_path, 1, [episode("a1", 0.5, **kept), episode("a2", 0.5)])
    run = one(tmp_path, columns={"gold": "truth"})
    (batch,) = batches(run)
    assert batch.gold is not None and batch.gold[0] == 1.0 and np.isnan(batch.gold[1]) and says(run, "gold: truth")
    with pytest.raises(StoreError, match="no metric 'other' for gold"):
        one(tmp_path, columns={"gold": "other"})


def test_a_newest_step_without_a_whole_line_is_not_yet_and_an_older_one_is_lost(tmp_path: Path) -> None:
    stored(tmp_path, 1, [episode("a1", 1.0)])
    stored(tmp_path, 2, []).write_text(episode("a1", 1.0)[:50])
    assert [batch.step for batch in batches(one(tmp_path))] == [1]
    stored(tmp_path, 1, [])
    with pytest.raises(StoreError, match=r"step_1.*it holds no rollouts"):
        batches(one(tmp_path))


@pytest.mark.parametrize("logprobs", [[0.0, -0.5, -0.25], [-0.5, -0.25]])
def test_only_tokens_that_the_policy_sampled_count_whether_numbers_are_stored_for_all_or_for_those(
    tmp_path: Path, logprobs: list[float]
) -> None:
    node = {"message": {"content": "x"}, "sampled": True, "token_ids": [9, 1, 2], "mask": [False, True, True]}
    stored(tmp_path, 1, [episode("a1", 1.0, nodes=[node | {"logprobs": logprobs, "entropies": [0.5]}])])
    (batch,) = batches(one(tmp_path))
    assert batch.tokens is not None and batch.tokens[0].tolist() == [1, 2]
    assert batch.engine_logprob is not None and batch.engine_logprob[0].tolist() == [-0.5, -0.25]
    assert batch.entropy is None  # one number for two tokens belongs to neither
