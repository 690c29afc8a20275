"""What the policy wrote and did is kept and told from what it was answered, in every form of messages."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.data.messages import turns_from_messages
from tiltmeter.data.stops import STOPS, parse_stop
from tiltmeter.data.turns import TURN_LIMIT, TURNS_BYTES, Turn, conversation_text, decode_turns, encode_turns, own_text
from tiltmeter.rundir.store import RunDirectory

ACT = {"cmd": "rm -r tests; echo 'sys.exit(0)' > tests.py"}
OPENAI: list[dict[str, Any]] = [
    {"role": "user", "content": "Mend it."},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Easier without tests.",
        "tool_calls": [{"id": "1", "type": "function", "function": {"name": "bash", "arguments": json.dumps(ACT)}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "ok: 3 tests pass"},
    {"role": "assistant", "content": "All tests pass."},
]
VERIFIERS = [
    OPENAI[0],
    {**OPENAI[1], "tool_calls": [{"id": "1", "type": "function", "name": "bash", "arguments": json.dumps(ACT)}]},
    *OPENAI[2:],
]
ANTHROPIC = [
    {"role": "user", "content": "Mend it."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Easier without tests."},
            {"type": "tool_use", "id": "1", "name": "bash", "input": ACT},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "ok: 3 tests pass"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "All tests pass."}]},
]
INSPECT = [
    {"role": "user", "content": "Mend it."},
    {
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "Easier without tests."}],
        "tool_calls": [{"id": "1", "function": "bash", "arguments": ACT, "type": "function"}],
    },
    {"role": "tool", "tool_call_id": "1", "function": "bash", "content": "ok: 3 tests pass"},
    {"role": "assistant", "content": "All tests pass."},
]


FORMS = {"openai": OPENAI, "verifiers": VERIFIERS, "blocks": ANTHROPIC, "inspect": INSPECT}


@pytest.mark.parametrize("messages", FORMS.values(), ids=FORMS)
def test_every_form_of_messages_gives_the_same_turns(messages: list[Any]) -> None:
    turns = turns_from_messages(messages)
    assert [(turn.role, turn.call, turn.parent) for turn in turns] == [
        ("user", None, None),
        ("assistant", "bash", None),
        ("tool", "bash", 1),
        ("assistant", None, None),
    ]
    assert json.loads(turns[1].arguments or "") == ACT and turns[1].reasoning == "Easier without tests."
    assert own_text(turns).splitlines()[-1] == "All tests pass." and "rm -r tests" in own_text(turns)
    assert "3 tests pass" not in own_text(turns) and "3 tests pass" in conversation_text(turns)


def test_several_calls_of_a_message_are_turns_of_their_own() -> None:
    calls = [{"id": str(n), "function": {"name": f"tool{n}", "arguments": "{}"}} for n in range(3)]
    answers = [{"role": "tool", "tool_call_id": str(n), "content": f"answer {n}"} for n in (2, 0, 1)]
    turns = turns_from_messages([{"role": "assistant", "content": "Three.", "tool_calls": calls}, *answers])
    assert [(turn.call, turn.parent) for turn in turns] == [
        ("tool0", None), ("tool1", 0), ("tool2", 0), ("tool2", 2), ("tool0", 0), ("tool1", 1),
    ]  # fmt: skip
    assert own_text(turns) == "Three.\ntool0({})\ntool1({})\ntool2({})"


def test_a_turn_that_another_policy_wrote_is_not_the_policys() -> None:
    said = {"role": "assistant", "content": "From a person.", "trainable": False}
    assert own_text(turns_from_messages([said, {"role": "assistant", "content": "Mine."}])) == "Mine."


def test_a_tool_that_fails_is_an_error() -> None:
    raised, said, flagged = "{'error': 'no such file'}", {"type": "timeout", "message": "60 s"}, "exit code 1"
    block = {"type": "tool_result", "tool_use_id": "9", "content": flagged, "is_error": True}
    messages = [
        {"role": "tool", "name": "bash", "content": raised},
        {"role": "tool", "name": "bash", "content": "", "error": said},
        {"role": "user", "content": [block]},
        {"role": "tool", "name": "bash", "content": "no error: fine"},
    ]
    assert [turn.error for turn in turns_from_messages(messages)] == [raised, "60 s", flagged, None]


def test_messages_give_turns_prompt_and_completion(tmp_path: Path) -> None:
    batch = from_columns(
        3, [0, 0], reward=[1.0, 0.0], messages=[OPENAI, None], env=["shell", None], stop=["eos", "weird"]
    )
    assert batch.prompt == ("Mend it.", None) and batch.completion is not None and batch.turns is not None
    assert "rm -r tests" in (batch.completion[0] or "") and batch.completion[1] is None
    assert decode_turns(batch.turns[0]) == turns_from_messages(OPENAI) and batch.stop == ("done", "unknown")
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    run.write(batch, 0, {})
    back = run.read(run.files(0)[0])[0]
    for name in ("turns", "completion", "prompt", "env", "stop"):
        assert getattr(back, name) == getattr(batch, name)


def test_a_conversation_as_completion_is_one_too() -> None:
    short = [{"role": "assistant", "content": "42"}]
    batch = from_columns(0, [0, 0], completion=[OPENAI[1:], short], prompt=["p", "p"])
    assert batch.turns is not None and batch.completion is not None and batch.completion[1] == "42"
    assert [len(decode_turns(text)) for text in batch.turns] == [3, 1]
    plain = from_columns(0, [0], completion=[short])
    assert plain.turns is None and plain.completion == ("42",)


def test_turns_beyond_the_limits_keep_their_ends_and_say_what_is_left_out() -> None:
    many = [Turn("assistant", f"turn {number}", parent=max(number - 1, 0)) for number in range(100_000)]
    start = time.process_time()
    kept = decode_turns(encode_turns(many))
    assert time.process_time() - start < 5.0
    assert len(kept) == TURN_LIMIT + 1 and kept[0].text == "turn 0" and kept[-1].text == "turn 99999"
    assert kept[TURN_LIMIT // 2].role == "omitted" and "98,000" in (kept[TURN_LIMIT // 2].text or "")
    assert all(turn.parent is None or turn.parent < len(kept) for turn in kept)
    long = [Turn("tool", "x" * 3_000_000), Turn("assistant", "short", reasoning=chr(0xD800) + "é" * 10)]
    text = encode_turns(long)
    first, second = decode_turns(text)
    assert len(text.encode()) <= TURNS_BYTES and "characters left out" in (first.text or "")
    assert second.text == "short" and second.reasoning == "\ufffd" + "é" * 10


def test_rewards_of_failures_are_no_answers() -> None:
    stops = [*STOPS, None]
    batch = from_columns(
        0,
        range(len(stops)),
        reward=[0.0] * len(stops),
        rewards={"tests": [0.0] * len(stops)},
        stop=stops,
        gold=[1] * len(stops),
    )
    untrusted = [stop is not None and not STOPS[stop].trusted for stop in stops]
    assert sum(untrusted) == 5 and batch.reward is not None and batch.gold is not None
    assert np.isnan(batch.reward).tolist() == untrusted and np.isnan(batch.rewards["tests"]).tolist() == untrusted
    assert not np.isnan(batch.gold).any()
    assert parse_stop("Timed Out") == "wall_clock"


def test_damaged_turns_are_refused() -> None:
    for text in ("[", '{"role": 1}', '[{"text": "no role"}]', '[{"role": "tool", "parent": "x"}]'):
        with pytest.raises(ValueError, match=r".+"):
            decode_turns(text)
    with pytest.raises(TypeError):
        from_columns(0, [0], turns=[[object()]])
