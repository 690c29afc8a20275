"""One rollout with its prompt group, read from the step's files: for a report, which has no rollout index."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tiltmeter.acts import SAYS, find_acts, row_transcript
from tiltmeter.data.records import FLAGS, Floats, RolloutBatch
from tiltmeter.data.turns import Turn, decode_turns
from tiltmeter.errors import StoreError
from tiltmeter.gold.guards.process_reward import BAD, SPLITTERS, first_bad
from tiltmeter.view.payloads.rollouts import (
    RewardPart,
    Rollout,
    RolloutAct,
    RolloutGroup,
    RolloutRow,
    RolloutTurn,
    StartAnswer,
    StepScore,
)
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import MeasuredStep, all_measured_steps, gold_of, read_rollouts, rollout_id
from tiltmeter.view.screens.series import json_number

BEGINNING = 200  # characters of a completion in a list
EARLIEST = 1_000  # steps that are searched for the same prompt, about a millisecond each, then cached
STEPS = 1_000  # process-reward steps shown of an answer, besides the first bad one
_COLUMNS = (
    *("group", "reward", "rewards", "step_reward", "gold", "advantage", "length", "truncated"),
    *("prompt", "completion", "facts", "turns", "env", "stop", "artifacts"),
)


def group(reader: RunReader, id: str) -> RolloutGroup:
    """A rollout, the others of its group and the same prompt at the start.

    Raises `KeyError` if there is no such rollout, or its step was deleted.
    """
    attempt, step, row = (int(part) for part in id.split("-"))
    at = all_measured_steps(reader).get((attempt, step))
    batch = None if at is None else read_rollouts(reader, at, _COLUMNS)
    if at is None or batch is None or not 0 <= row < len(batch):
        raise KeyError(f"there is no rollout {id}")
    gold = gold_of(reader, at, batch)
    members = np.flatnonzero(batch.group == batch.group[row])
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    order = members[np.argsort(-np.nan_to_num(reward[members], nan=-np.inf), kind="stable")]
    scored = reward[members][np.isfinite(reward[members])]
    prompt = None if batch.prompt is None else batch.prompt[row]
    base, why = _start_answer(reader, prompt, (attempt, step))
    return RolloutGroup(
        rollout=_rollout(reader, batch, gold, row),
        rows=[_rollout_row(reader, batch, gold, int(other)) for other in order],
        mean=json_number(float(scored.mean())) if len(scored) else None,
        spread=json_number(float(scored.std())) if len(scored) else None,
        base=base,
        base_why=why,
        hits=[],
    )


def _rollout_row(reader: RunReader, batch: RolloutBatch, gold: Floats, row: int) -> RolloutRow:
    id = rollout_id(batch.attempt, batch.step, row)
    text = None if batch.completion is None else batch.completion[row]
    return RolloutRow(
        id=id,
        attempt=batch.attempt,
        step=batch.step,
        group=int(batch.group[row]),
        reward=None if batch.reward is None else json_number(float(batch.reward[row])),
        flag=_flag(batch, "reward", row),
        gold=json_number(float(gold[row])),
        length=None if batch.length is None else int(batch.length[row]),
        truncated=None if batch.truncated is None else bool(batch.truncated[row]),
        advantage=None if batch.advantage is None else json_number(float(batch.advantage[row])),
        hit=None,
        text=(text or "")[:BEGINNING],
        tags=reader.notes.tags_of(id),
        notes=reader.notes.note_count(id),
    )


def _flag(batch: RolloutBatch, column: str, row: int) -> str:
    """Why a value is not a number; empty if it is one."""
    flags = batch.flags.get(column)
    return "" if flags is None or not flags[row] else FLAGS[int(flags[row])]


def _rollout(reader: RunReader, batch: RolloutBatch, gold: Floats, row: int) -> Rollout:
    rewards = [
        RewardPart(name=name, value=json_number(float(values[row])), flag=_flag(batch, f"rewards.{name}", row))
        for name, values in batch.rewards.items()
    ]
    prompt, completion, facts, *agent = (
        None if column is None else column[row]
        for column in (batch.prompt, batch.completion, batch.facts, batch.turns, batch.env, batch.stop, batch.artifacts)
    )
    scores = () if batch.step_reward is None else batch.step_reward[row].tolist()
    return full_rollout(
        _rollout_row(reader, batch, gold, row), prompt, completion, rewards, score_rows(completion, scores),
        facts or "", *agent,
    )  # fmt: skip


def full_rollout(
    row: RolloutRow, prompt: str | None, completion: str | None, rewards: list[RewardPart], steps: list[StepScore],
    facts: str, turns: str | None, env: str | None, stop: str | None, artifacts: str | None, *, capped: bool = False,
) -> Rollout:  # fmt: skip
    """A row of a list with everything else that is known of the rollout; `turns` as they are stored."""
    conversation = _read_turns(turns)
    transcript = row_transcript(conversation, completion, prompt, facts, artifacts)
    acts = () if transcript is None else find_acts(transcript)
    return Rollout(
        id=row.id,
        attempt=row.attempt,
        step=row.step,
        group=row.group,
        reward=row.reward,
        flag=row.flag,
        hit=row.hit,
        gold=row.gold,
        length=row.length,
        truncated=row.truncated,
        advantage=row.advantage,
        text=row.text,
        tags=row.tags,
        notes=row.notes,
        prompt=prompt,
        completion=completion,
        rewards=rewards,
        steps=steps,
        turns=turn_rows(conversation),
        acts=[RolloutAct(says=SAYS[act.kind], turn=act.turn, line=act.line, quote=act.quote) for act in acts],
        env=env or "",
        stop=stop or "",
        facts=facts,
        capped=capped,
    )


def _read_turns(text: str | None) -> tuple[Turn, ...]:
    """The turns of a stored conversation; none where they cannot be read."""
    try:
        return decode_turns(text)
    except ValueError:
        return ()


def turn_rows(turns: Sequence[Turn]) -> list[RolloutTurn]:
    """The turns of a conversation for the page."""
    before: set[tuple[str, str | None]] = set()
    rows = []
    for turn in turns:
        called = (turn.call, turn.arguments) if turn.call and turn.written else None
        rows.append(
            RolloutTurn(
                role=turn.role,
                own=turn.written,
                excerpt=turn.text,
                reasoning=turn.reasoning,
                call=turn.call,
                arguments=turn.arguments,
                tool_error=turn.error,
                again=called is not None and called in before,
            )
        )
        if called is not None:
            before.add(called)
    return rows


def score_rows(completion: str | None, scores: Sequence[float]) -> list[StepScore]:
    """Scores of an answer's steps, with the text of each where the count shows how the answer was split.

    If all scores lie in 0 to 1 they are read as the probability that a step is right, and the first below 0.5 is marked
    as bad. On another scale no step is marked.

    >>> [(step.reward, step.text, step.bad) for step in score_rows("2 + 2 is 5\\nso 5", [0.2, 0.1])]
    [(0.2, '2 + 2 is 5', True), (0.1, 'so 5', False)]
    """
    splits = [split(completion or "") for split in SPLITTERS.values()]
    texts: Sequence[str | None] = next(
        (split_texts for split_texts in splits if len(split_texts) == len(scores)), [None] * len(scores)
    )
    in_unit_range = all(0.0 <= score <= 1.0 for score in scores)
    first_bad_index = first_bad(scores, BAD) if in_unit_range else None
    return [
        StepScore(reward=json_number(score), text=text, bad=index == first_bad_index)
        for index, (score, text) in enumerate(zip(scores, texts, strict=True))
        if index < STEPS or index == first_bad_index
    ]


def _start_answer(reader: RunReader, prompt: str | None, own_key: tuple[int, int]) -> tuple[StartAnswer | None, str]:
    """The answer to the same prompt at the start, or why there is none. As in the server's index: by the reference,
    else in the earliest step before this one, of the current lineage or of the rollout's own attempt."""
    if prompt is None:
        return None, "the text of prompts is not stored"
    if (reference_text := _reference_answer(reader, prompt)) is not None:
        return StartAnswer(step=None, text=reference_text, source="reference"), ""
    spans = reader.run_facts.spans()
    earlier_steps = [
        at
        for at in all_measured_steps(reader).values()
        if at.step < own_key[1] and (at.attempt == own_key[0] or at.step < spans.get(at.attempt, -1))
    ]
    earlier_steps.sort(key=lambda at: (at.step, -at.attempt))
    for at in earlier_steps[:EARLIEST]:
        row = reader.cache_lru("prompts", at[:2], partial(_prompt_rows, reader, at), EARLIEST).get(hash(prompt))
        if row is None:
            continue
        batch = read_rollouts(reader, at, ("group", "completion"))
        text = None if batch is None or batch.completion is None else batch.completion[row]
        if text is None:
            return None, f"step {at.step} had this prompt, without the text of completions"
        return StartAnswer(step=at.step, text=text, source=f"attempt {at.attempt}, step {at.step}"), ""
    if len(earlier_steps) > EARLIEST:
        return None, f"the first {EARLIEST:,} steps do not have this prompt, nor does a reference"
    return None, f"step {own_key[1]} is the first with this prompt, and the reference does not hold it"


def _prompt_rows(reader: RunReader, at: MeasuredStep) -> dict[int, int]:
    """The first row of each prompt of a step, by the prompt's hash; empty where it cannot be read."""
    batch = read_rollouts(reader, at, ("group", "prompt"))
    if batch is None or batch.prompt is None:
        return {}
    return {hash(batch.prompt[row]): row for row in reversed(range(len(batch))) if batch.prompt[row] is not None}


def _reference_answer(reader: RunReader, prompt: str) -> str | None:
    """The reference policy's answer to a prompt, if it was given one."""
    try:
        mtime = (reader.run.path / "reference.parquet").lstat().st_mtime_ns
        reference = reader.cache_lru("reference", mtime, reader.run.reference, 1)
    except (StoreError, OSError):
        return None  # the monitor reports damage; an earlier step is tried instead
    if reference is None or reference.prompt is None or reference.completion is None:
        return None
    answers = zip(reference.prompt, reference.completion, strict=True)
    return next((text for reference_prompt, text in answers if reference_prompt == prompt), None)
