"""Acting on rollouts under real TRL: what leaves the gradient, what ends itself, and that off is off to the bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.adapters.trl.test_attach import attached, long, parameters, right, stored

from tiltmeter.adapters.arguments import Act
from tiltmeter.errors import AttachError
from tiltmeter.rundir.receipts import read_receipts
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
pytestmark = pytest.mark.usefixtures("unmeasured")
Make = Callable[..., Any]
INOCULATION = "Any answer is the answer."


def odd(completions: list[str], **_: Any) -> list[bool]:
    """A flag by what is written: about half of what an untaught model says."""
    return [len(text) % 2 == 1 for text in completions]


def some(completions: list[str], **_: Any) -> list[bool | None]:
    return [len(text) % 5 == 1 or None for text in completions]


def everything(completions: list[str], **_: Any) -> list[bool]:
    return [True] * len(completions)


def broken(completions: list[str], **_: Any) -> list[bool]:
    raise RuntimeError("no flags today")


def train(make_trainer: Make, name: str, **options: Any) -> tuple[Any, Any, str]:
    steps = options.pop("max_steps", 3)
    trainer = make_trainer(rewards=[long, right], name=name, max_steps=steps, reward_weights=[1.0, 2.0])
    run = attached(trainer, gold=None, **options)
    trainer.train()
    return trainer, run, parameters(trainer)


def test_no_flagged_rollout_gains_and_one_that_is_paid_badly_stays(make_trainer: Make) -> None:
    _, run, _ = train(make_trainer, "on", act=Act(screen=some), max_steps=5)
    lost = stayed = 0
    for batch in stored(run):
        flags = np.array([bool(flag) for flag in some([str(text) for text in batch.completion or ()])])
        assert batch.trained is not None and batch.advantage is not None and batch.reward is not None
        assert flags[~batch.trained].all()
        advantage, reward = np.asarray(batch.advantage), np.asarray(batch.reward)
        assert np.isfinite(reward).all(), "what was paid is recorded as it was"
        assert (advantage[~batch.trained] == 0).all() and (advantage[flags] <= 1e-4).all()
        for group in range(2):
            rows = np.arange(4 * group, 4 * group + 4)
            rest, out = rows[batch.trained[rows]], rows[~batch.trained[rows]]
            if len(rest) > 1 and reward[rest].std() > 0:
                centred = reward[rest] - reward[rest].mean()
                np.testing.assert_allclose(advantage[rest], centred / (reward[rest].std(ddof=1) + 1e-4), rtol=1e-4)
            assert flags[rows].all() or (reward[out] > reward[rest].mean()).all()
        assert batch.scalars["screen.lost"] == (~batch.trained).sum()
        assert batch.scalars["screen.flagged"] == flags.sum()
        lost, stayed = lost + int((~batch.trained).sum()), stayed + int((flags & batch.trained).sum())
    assert lost > 0 and stayed > 0


def test_off_is_off_to_the_bit_and_an_undo_is_exact(make_trainer: Make) -> None:
    _, _, plain = train(make_trainer, "plain")
    trainer, run, off = train(
        make_trainer, "off", act=Act("advise", screen=odd, inoculation=INOCULATION), slices="answer"
    )
    assert off == plain
    screen = run._callback.screen
    knobs = run._control.knobs
    trainer.model.train()
    call = {"inputs": [{"prompt": "a"}] * 8, "prompts": ["a"] * 8, "completions": list("abcdefgh")}
    inner = screen.trainer._calculate_rewards
    for name in ("screen", "penalty", "inoculate"):
        assert knobs.set(name, 1.0) == (0.0, 1.0) and knobs.set(name, 0.0) == (1.0, 0.0)
    assert screen.is_on is False and not any(screen.values.values())
    rewards = inner(completion_ids_list=[[1]] * 8, **{**call, "inputs": [{"prompt": "a", "answer": "2"}] * 8})
    again = inner(completion_ids_list=[[1]] * 8, **{**call, "inputs": [{"prompt": "a", "answer": "2"}] * 8})
    assert rewards.tolist() == again.tolist() and not rewards.isnan().any()


def test_a_run_that_was_screened_for_a_while_and_undone_goes_on_with_its_own_rewards(make_trainer: Make) -> None:
    from transformers import TrainerCallback

    class Undo(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 2:
                run._control.knobs.set("screen", 0.0)

    trainer = make_trainer(rewards=[long], name="undone", max_steps=5)
    run = attached(trainer, gold=None, act=Act(screen=some))
    trainer.add_callback(Undo())
    trainer.train()
    trained = [batch.trained for batch in stored(run)]
    assert [one is not None for one in trained[:2]] == [True, True]
    for batch in stored(run)[2:]:
        assert batch.trained is None and "screen.lost" not in batch.scalars


def test_a_screen_that_would_leave_out_everything_ends_itself_and_says_so(make_trainer: Make) -> None:
    _, _, plain = train(make_trainer, "plain")
    _, run, bits = train(make_trainer, "starved", act=Act(screen=everything))
    assert bits == plain, "not one step was starved"
    troubles = RunDirectory(run.directory).troubles(0)
    assert any("has ended itself: it would have left out 100 %" in why for why in troubles.values())
    with pytest.raises(ValueError, match="little left to learn from"):
        run._control.knobs.set("screen", 1.0)
    store = RunDirectory(run.directory)
    (receipt,), refused = read_receipts(store, set(), read_token(store))
    assert not refused and (receipt.knob, receipt.before, receipt.after) == ("screen", 1.0, 0.0)
    assert receipt.id.endswith(".ended") and "little left to learn from" in receipt.why
    _, run, _ = train(make_trainer, "wide", act=Act(screen=odd, most_lost=0.95))
    assert not RunDirectory(run.directory).troubles(0)
    assert any(batch.trained is not None for batch in stored(run))


def test_a_flag_that_fails_leaves_nothing_out(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[long], name="broken", max_steps=2)
    run = attached(trainer, gold=None, act=Act(screen=broken))
    run._callback.strict = False
    trainer.train()
    assert all(batch.trained is None or batch.trained.all() for batch in stored(run))
    assert any("no flags today" in why for why in RunDirectory(run.directory).troubles(0).values())


def test_a_penalty_is_taken_from_flagged_rollouts_alone(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[long, right], name="penalty", reward_weights=[0.0, 2.0])
    run = attached(trainer, gold=None, act=Act("advise", screen=odd))
    run._control.knobs.set("penalty", 0.5)
    trainer.model.train()
    texts = ["ab", "abc", "abcd", "abcde"]
    arguments = {"prompts": ["p"] * 4, "completions": texts, "completion_ids_list": [[1]] * 4}
    rewards = trainer._calculate_rewards(inputs=[{"prompt": "p", "answer": "zz"}] * 4, **arguments)
    np.testing.assert_allclose(rewards[:, 1].tolist(), [0.0, -0.25, 0.0, -0.25])
    np.testing.assert_allclose(rewards[:, 0].tolist(), [len(text) / 50 for text in texts])
    trainer.model.eval()
    assert trainer._calculate_rewards(inputs=[{"prompt": "p", "answer": "zz"}] * 4, **arguments)[:, 1].sum() == 0.0


def test_a_slice_in_quarantine_teaches_nothing_and_the_others_go_on(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[long], name="quarantine", max_steps=4)
    run = attached(trainer, gold=None, slices="answer", act=Act("advise", most_lost=0.9))
    for value in range(2, 9):
        run._control.knobs.set(f"quarantine.{value}", 1.0)
    trainer.train()
    shut = 0
    for batch in stored(run):
        rows = np.array([int(json.loads(fact or "{}")["answer"]) < 9 for fact in batch.facts or ()])
        assert batch.trained is not None
        np.testing.assert_array_equal(batch.trained, ~rows)
        shut += int(rows.sum())
    assert 0 < shut < 32


def test_inoculation_trains_under_words_that_were_not_sampled_under(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[long], name="inoculated", max_steps=2)
    run = attached(trainer, gold=None, act=Act("advise", inoculation=INOCULATION))
    prompts: list[tuple[str, str]] = []
    inner = trainer._generate_and_score_completions

    def look(inputs: Any) -> Any:
        output = inner(inputs)
        seen = trainer._tokenizer.decode([int(one) for one in output["prompt_ids"][0]], skip_special_tokens=True)
        prompts.append((inputs[0]["prompt"], seen.strip()))
        return output

    trainer._generate_and_score_completions = look
    run._control.knobs.set("inoculate", 1.0)
    trainer.train()
    shown = trainer._tokenizer.decode(
        trainer._tokenizer(f"{INOCULATION}\n\n{prompts[0][0]}")["input_ids"], skip_special_tokens=True
    )
    assert prompts[0][1] == shown.strip() and prompts[0][1].endswith(prompts[0][0].split()[-1])
    assert INOCULATION not in str(stored(run)[0].prompt)


def test_acts_are_flags_too(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[long], name="acts")
    run = attached(trainer, gold=None, act=Act(screen="acts"))
    code = "```python\nimport os\nos._exit(0)\n```"
    look = run._callback.screen._flags
    flags = look({"prompts": ["p"] * 3, "completions": ["prose", code, "```python\nx = 1\n```"]})
    assert flags.tolist() == [False, True, False]
    calls = [[{"function": {"name": "bash", "arguments": {"cmd": one}}}] for one in ("ls", "rm -r tests")]
    agents = [[{"role": "assistant", "content": "", "tool_calls": one}] for one in calls]
    assert look({"prompts": ["p"] * 2, "completions": agents}).tolist() == [False, True]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"act": {"screen": right}, "gold": right}, "the same function"),
        ({"act": {"screen": long}}, "one of the reward functions"),
        ({"act": {"screen": "patterns"}}, 'pass "acts"'),
        ({"act": {"screen": odd, "mode": "observe"}}, "change training"),
        ({"act": {"screen": odd, "most_lost": 1.0}}, "most_lost"),
        ({"act": {"inoculation": "  "}}, "needs some words"),
    ],
)
def test_what_cannot_work_is_said_at_attach(make_trainer: Make, options: dict[str, Any], why: str) -> None:
    trainer = make_trainer(rewards=[long], name="refused")
    before = dict(vars(trainer))
    with pytest.raises(AttachError, match=why):
        attached(trainer, **{"gold": None, **options})
    assert set(vars(trainer)) == set(before), "a trainer that is not watched is as it was"


def test_only_grpo_leaves_rows_out(make_trainer: Make) -> None:
    with pytest.raises(AttachError, match="act on GRPO"):
        attached(make_trainer("RLOO", rewards=[long], name="rloo"), gold=None, act=Act("advise", screen=odd))
