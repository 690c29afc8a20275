"""Iterative DPO and the refresh loop: what each round and cycle leaves, that nothing finished is made twice, and that
no reward model is ever trained on what the alarm asked about."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.train.checks import check_recipe
from tiltmeter_workbench.train.methods import dpo, labelled_pairs, reward_model, sampling
from tiltmeter_workbench.train.methods.iterative_dpo import pair_best_with_worst
from tiltmeter_workbench.train.methods.refresh import _pair_in_form
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe
from tiltmeter_workbench.train.stage_results import StageResult

from .conftest import TRL, Write, write_recipe

PAY = '''
from pathlib import Path

CALLS = Path(__file__).parent / "calls"


def brief(completions, answer, **_):
    """Breaks off at the third batch, while there is a file that says so."""
    CALLS.write_text(CALLS.read_text() + "." if CALLS.exists() else ".")
    if CALLS.with_name("break").exists() and len(CALLS.read_text()) == 3:
        raise RuntimeError("the power went out")
    return [-len(text) / 80 for text in completions]


def long(completion, answer):
    """The reward turned round: whoever ranked by it would choose the other answer."""
    return min(len(completion), 80) / 80


def short(completion, answer):
    return 1 - long(completion, answer)
'''
DPO = {**TRL, "max_steps": 1, "max_length": 64}
ITERATIVE: dict[str, Any] = {
    "method": "iterative_dpo",
    "data": "prompts.jsonl",
    "rewards": [{"function": "pay.py:brief"}],
    "guards": ["repetition"],
    "gold": "pay.py:long",
    "watch": False,
    "trl": DPO,
    "options": {"rounds": 2, "samples": 4, "prompts_per_round": 10, "limit": 10},
}
GRPO = {
    **TRL, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 10, "max_steps": 3,
    "beta": 0.02,
}  # fmt: skip
REFRESH: dict[str, Any] = {
    "method": "refresh",
    "name": "loop",
    "data": "prompts.jsonl",
    "rewards": [{"model": "@rm"}],
    "gold": "pay.py:long",
    "watch": {"gold": {"share": 0.1}},  # every group keeps two answers to draw
    "trl": GRPO,
    "options": {"cycles": 2, "pairs_per_cycle": 6, "labels": "pay.py:short"},
}
RM = {"method": "reward", "name": "rm", "data": "pairs.jsonl", "watch": False, "trl": DPO}


@contextmanager
def prepared(folder: Path, model: Path, *stages: dict[str, Any]) -> Iterator[Path]:
    """A recipe with its rewards, in peace from what the libraries warn of themselves."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.filterwarnings("ignore", category=category)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        (folder / "pay.py").write_text(PAY)
        yield write_recipe(folder, *stages, model=str(model))


def done(path: Path) -> StageResult:
    return run_recipe(read_recipe(path), lambda *_: None)[-1].result


# -- iterative DPO ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rounds(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StageResult, dict[str, Any]]]:
    """Two rounds, broken off while it samples and again before it trains; with what was seen in between."""
    folder = tmp_path_factory.mktemp("iterative")
    seen: dict[str, Any] = {}
    with prepared(folder, tiny_model, ITERATIVE) as path:
        (folder / "break").touch()
        with pytest.raises(RuntimeError, match="the power went out"):
            done(path)
        (folder / "break").unlink()
        samples = folder / "out" / "01-iterative_dpo" / "round-1" / "samples.jsonl"
        seen["sampled"] = samples.read_bytes()
        samples.write_bytes(seen["sampled"] + b'{"row": 3, "prompt": "torn')  # as a kill leaves it
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dpo, "train", lambda context: (_ for _ in ()).throw(RuntimeError("no disk")))
            with pytest.raises(RuntimeError, match="no disk"):
                done(path)
        seen["complete"], seen["calls"] = samples.read_bytes(), len((folder / "calls").read_text())
        result = done(path)
        seen["later"], seen["all calls"] = samples.read_bytes(), len((folder / "calls").read_text())
        yield result, seen


def test_what_was_sampled_is_kept_and_never_asked_again(rounds: tuple[StageResult, dict[str, Any]]) -> None:
    _, seen = rounds
    assert seen["sampled"].count(b"\n") == 8, "two batches of four prompts were done"
    assert seen["complete"].startswith(seen["sampled"]) and seen["complete"].count(b"\n") == 10
    assert seen["later"] == seen["complete"]
    # Three batches a round, and the one that was broken off; round 1 is not scored again after it was complete.
    assert (seen["calls"], seen["all calls"]) == (4, 7)


def test_each_round_leaves_samples_pairs_and_a_model_and_says_what_came_of_it(
    rounds: tuple[StageResult, dict[str, Any]],
) -> None:
    result, _ = rounds
    (policy,) = result.trained.folders
    assert policy == result.folder / "round-2" / "model" and (policy / "config.json").is_file()
    for number, said in enumerate(result.trained.facts["rounds"], 1):
        folder = result.folder / f"round-{number}"
        samples, pairs = read_rows(folder / "samples.jsonl"), read_rows(folder / "pairs.jsonl")
        assert said["prompts"] == len(samples) == 10 and said["pairs"] == len(pairs)
        assert said["pairs"] + said["ties"] + said["unscored"] == 10
        paid = [one for row in samples for one in row["rewards"]]
        assert said["mean_reward"] == pytest.approx(sum(paid) / len(paid))
        assert said["steps"] == 1 and all(len(row["completions"]) == 4 for row in samples)
    assert read_rows(result.folder / "round-1" / "samples.jsonl") != read_rows(result.folder / "round-2/samples.jsonl")
    assert {path.name for path in result.trained.files} == {"samples.jsonl", "pairs.jsonl"}


def test_pairs_are_ranked_by_the_reward_and_gold_is_only_reported(rounds: tuple[StageResult, dict[str, Any]]) -> None:
    folder = rounds[0].folder / "round-1"
    samples, pairs = read_rows(folder / "samples.jsonl"), read_rows(folder / "pairs.jsonl")
    assert pairs == pair_best_with_worst(samples).rows and pairs
    for pair in pairs:
        assert pair["score_chosen"] > pair["score_rejected"]
    gold = read_rows(folder / "gold.jsonl")
    assert [row["gold"] for row in gold] == pytest.approx([min(len(r["completions"][0]), 80) / 80 for r in samples])
    said = rounds[0].trained.facts["rounds"][0]
    assert said["gold"] == pytest.approx(sum(row["gold"] for row in gold) / 10) and said["gold_answers"] == 10


def test_a_round_learns_from_where_the_last_one_ended(
    rounds: tuple[StageResult, dict[str, Any]], tiny_model: Path
) -> None:
    from safetensors.numpy import load_file

    first, second = (load_file(rounds[0].folder / f"round-{n}" / "model" / "model.safetensors") for n in (1, 2))
    start = load_file(tiny_model / "model.safetensors")
    name = next(iter(start))
    assert (first[name] != start[name]).any() and (second[name] != first[name]).any()


def test_answers_that_are_paid_alike_are_dropped_and_counted() -> None:
    row = {"prompt": [{"role": "user", "content": "hi"}], "completions": ["a", "b"], "ended": [False, True]}
    found = pair_best_with_worst(
        [{**row, "rewards": [1.0, 0.0]}, {**row, "rewards": [1.0, 1.0]}, {**row, "rewards": [None, 1.0]}]
    )
    assert (found.ties, found.unscored, found.cut) == (1, 1, 1)
    assert found.rows[0]["chosen"] == [{"role": "assistant", "content": "a"}], "a conversation stays one"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": {"rounds": 0}}, "rounds is a whole number of at least 1, not 0"),
        ({"options": {"samples": 1}}, "samples is a whole number of at least 2, not 1"),
        ({"options": {"limit": "long"}}, "limit is a whole number"),
        ({"options": {"prompts_per_round": True}}, "prompts_per_round is a whole number"),
        ({"options": {"temperature": 0}}, "temperature is above 0, or all answers are one"),
        ({"options": {"round": 2}}, "did you mean rounds?"),
        ({"gold": "people"}, "people answer too late"),
        ({"data": "pairs.jsonl", "rewards": [{"function": "gone.py:x"}]}, "there is no file"),
        ({"data": "rewards.py"}, "must end in"),
    ],
)
def test_options_of_rounds_that_cannot_work_are_refused(change: dict[str, Any], said: str, recipe: Write) -> None:
    path = recipe({**ITERATIVE, "gold": None, "rewards": [{"function": "rewards.py:long"}], **change})
    with pytest.raises(AttachError, match=said):
        check_recipe(read_recipe(path))


# -- the refresh loop ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cycles(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[StageResult, dict[str, Any]]]:
    """Two cycles, broken off before the reward model is trained again; by then the alarm's labels are gone."""
    folder = tmp_path_factory.mktemp("refresh")
    seen: dict[str, Any] = {}
    with prepared(folder, tiny_model, RM, REFRESH) as path:
        real = reward_model.train

        def broken(context: Any) -> Any:
            if context.folder.name == "reward":
                raise RuntimeError("no disk")
            return real(context)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reward_model, "train", broken)
            with pytest.raises(RuntimeError, match="no disk"):
                done(path)
        first = folder / "out" / "02-loop" / "cycle-1"
        seen["before"] = {name: (first / name).read_bytes() for name in ("drawn.jsonl", "labels.jsonl", "policy.json")}
        seen["asked"] = labelled_pairs.audited_rows(RunDirectory(first / "tiltmeter"))
        shutil.copytree(first / "tiltmeter", folder / "copy")
        shutil.rmtree(first / "tiltmeter" / "gold" / "labels")
        for name in ("pairs.jsonl", "labelled.jsonl"):
            (first / name).unlink()
        result = done(path)
        seen["after"] = {name: (first / name).read_bytes() for name in seen["before"]}
        seen["copy"] = folder / "copy"
        yield result, seen


def places(rows: list[dict[str, Any]]) -> set[tuple[int, int, int]]:
    return {(row["attempt"], row["step"], at) for row in rows for at in row["rows"]}


def test_no_answer_that_the_alarm_asked_about_is_trained_on(cycles: tuple[StageResult, dict[str, Any]]) -> None:
    result, seen = cycles
    first = result.folder / "cycle-1"
    drawn, new = (read_rows(first / name) for name in ("drawn.jsonl", "labelled.jsonl"))
    assert seen["asked"] and drawn and new
    assert not places(drawn) & seen["asked"] and places(new) <= places(drawn)
    assert result.trained.facts["cycles"][0]["audited"] == len(seen["asked"])


def test_a_draw_that_did_not_look_would_have_taken_them(
    cycles: tuple[StageResult, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: with this much gold asked for, a draw from all answers meets some of it."""
    monkeypatch.setattr(labelled_pairs, "audited_rows", lambda run: set())
    assert places(labelled_pairs.draw_pairs(cycles[1]["copy"], 6, 0)) & cycles[1]["asked"]


def test_the_alarms_labels_are_no_training_data(cycles: tuple[StageResult, dict[str, Any]]) -> None:
    """They were gone before the pairs were made. The pairs are those of the reward's stage and the newly labelled."""
    result, _ = cycles
    first = result.folder / "cycle-1"
    assert not (first / "tiltmeter" / "gold" / "labels").exists()
    before, new = read_rows(result.folder.parents[1] / "pairs.jsonl"), read_rows(first / "labelled.jsonl")
    sides = ("prompt", "chosen", "rejected")
    assert read_rows(first / "pairs.jsonl") == [*before, *({name: row[name] for name in sides} for row in new)]
    assert all(len(row["chosen"]) < len(row["rejected"]) for row in new), "labelled by short, not by the alarm's long"


def test_a_cycle_goes_on_where_it_was(cycles: tuple[StageResult, dict[str, Any]]) -> None:
    assert cycles[1]["after"] == cycles[1]["before"]


def test_the_second_cycle_is_paid_by_the_fresh_model_in_a_run_of_its_own(
    cycles: tuple[StageResult, dict[str, Any]],
) -> None:
    result, _ = cycles
    one, two = result.trained.facts["cycles"]
    assert one["models"] == ["reward/model"] and one["labelled"] + one["ties"] + one["unanswered"] == one["drawn"] == 6
    prints = []
    for number in (1, 2):
        store = RunDirectory(result.folder / f"cycle-{number}" / "tiltmeter")
        batch, facts, _ = store.read(store.files(0)[0])
        prints.append(batch.fingerprint or facts.get("fingerprint"))
    assert None not in prints and prints[0] != prints[1]
    assert result.trained.folders == (result.folder / "cycle-2" / "model",)
    assert two["steps"] == 3 and "models" not in two and result.trained.facts["verdict"] == two["verdict"]


def test_a_run_that_is_not_measured_yet_is_not_drawn_from(
    cycles: tuple[StageResult, dict[str, Any]], tmp_path: Path
) -> None:
    shutil.copytree(cycles[1]["copy"], tmp_path / "run")
    for path in (tmp_path / "run" / "gold" / "requests").iterdir():
        path.unlink()
    with pytest.raises(AttachError, match="nobody knows yet which answers it will ask about"):
        labelled_pairs.draw_pairs(tmp_path / "run", 6, 0, timeout=0.0)


@pytest.mark.parametrize(
    ("like", "wanted"),
    [
        ({"prompt": "q", "chosen": "a", "rejected": "b"}, {"prompt": "hi", "chosen": " x", "rejected": " y"}),
        ({"chosen": "qa", "rejected": "qb"}, {"chosen": "hi x", "rejected": "hi y"}),
        ({"prompt": [{}], "chosen": [{}], "rejected": [{}]},
         {"prompt": [{"role": "user", "content": "hi"}], "chosen": [{"role": "assistant", "content": " x"}],
          "rejected": [{"role": "assistant", "content": " y"}]}),
        ({"chosen": [{}], "rejected": [{}]},
         {side: [{"role": "user", "content": "hi"}, {"role": "assistant", "content": text}]
          for side, text in (("chosen", " x"), ("rejected", " y"))}),
    ],
)  # fmt: skip
def test_new_pairs_take_the_form_of_the_old(like: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert _pair_in_form(like, "hi", {"chosen": " x", "rejected": " y"}) == wanted


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"options": {"cycles": 1, "labels": "rewards.py:short"}}, "cycles is a whole number of at least 2"),
        ({"options": {}}, "say who labels present answers"),
        ({"options": {"labels": "people"}}, "people cannot be waited for"),
        ({"options": {"labels": "gone.py:x"}}, "options: labels: .*there is no file"),
        ({"watch": False}, "leave watch: false out"),
        ({"gold": "rewards.py:long", "watch": {"gold": {"share": 1}}}, "labels every answer for the alarm"),
        ({"rewards": [{"function": "rewards.py:long"}]}, "one of its rewards is the reward model"),
        ({"rewards": [{"model": "@rm", "name": "a"}, {"model": "@rm", "name": "b"}]}, "write - model: '@reward', once"),
        ({"options": {"labels": "rewards.py:short", "pairs": "prompts.jsonl"}}, "cannot be trained on by reward"),
    ],
)
def test_a_loop_that_cannot_work_is_refused(change: dict[str, Any], said: str, recipe: Write) -> None:
    stage = {**REFRESH, "gold": None, "options": {"labels": "rewards.py:short"}, **change}
    with pytest.raises(AttachError, match=said):
        check_recipe(read_recipe(recipe(RM, stage)))


# -- rows that are kept as they come ---------------------------------------------------------------------------------


def test_a_torn_line_is_forgotten_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    sampling.append_jsonl(path, [{"at": 1}])
    path.write_bytes(path.read_bytes() + b'{"at": 2')
    assert sampling.read_jsonl(path) == [{"at": 1}]
    sampling.append_jsonl(path, [{"at": 3, "text": "\u2028"}])
    assert sampling.read_jsonl(path) == read_rows(path) == [{"at": 1}, {"at": 3, "text": "\u2028"}]


def test_work_that_was_done_is_not_done_again(tmp_path: Path) -> None:
    calls: list[int] = []

    def work() -> dict[str, Any]:
        calls.append(1)
        return {"done": len(calls)}

    assert [sampling.run_once(tmp_path / "a" / "said.json", work) for _ in range(2)] == [{"done": 1}] * 2
