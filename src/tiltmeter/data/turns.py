"""The turns of a conversation: what the policy wrote, what it called, what it was answered.

A row's turns are one JSON text in the batch, like other texts of a row. They are flat: an assistant's message with two
calls is two turns, and a tool's answer has the turn of its call as `parent`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from tiltmeter.data.memo import peek, shared
from tiltmeter.data.records import RolloutBatch

TURN_LIMIT = 2_000  # of one row; of more, the first and last half are kept
TURNS_BYTES = 1 << 20  # of one row as JSON; the longest texts are cut in the middle until it fits

ASSISTANT, TOOL, USER, SYSTEM = "assistant", "tool", "user", "system"
OMITTED = "omitted"  # stands for turns that were left out
ROLES = (ASSISTANT, TOOL, USER, SYSTEM, OMITTED)

_TEXTS = ("text", "reasoning", "arguments", "error")


class Turn(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message, or one of the calls of a message. None: not known, or there is none."""

    role: str  # assistant, tool, user, system; omitted: `text` says how many turns were left out
    text: str | None = None
    reasoning: str | None = None
    call: str | None = None  # name of the tool; of a tool's answer, of the tool that answers
    arguments: str | None = None  # of the call, as JSON text
    error: str | None = None  # why the tool failed
    reward: float | None = None
    seconds: float | None = None
    tokens: tuple[int, int] | None = None  # first, and one past the last, in the row's tokens
    parent: int | None = None  # position of the turn that this one follows; None: of the one before it
    own: bool = True  # False: another policy, or a person, wrote this turn of an assistant
    agent: str | None = None

    @property
    def written(self) -> bool:
        """Whether the policy that is trained wrote it."""
        return self.own and self.role == ASSISTANT


def encode_turns(turns: Sequence[Turn]) -> str:
    """The JSON text of a row's turns, within the limits."""
    data = msgspec.json.encode(tuple(turns[: TURN_LIMIT + 1]), enc_hook=str) if _is_clean(turns) else None
    if len(turns) > TURN_LIMIT or data is None or len(data) > TURNS_BYTES:
        data = msgspec.json.encode(_fit(turns))
    return data.decode()


def decode_turns(text: str | None) -> tuple[Turn, ...]:
    """A row's turns. Raises `ValueError` for anything else.

    >>> decode_turns(encode_turns([Turn("assistant", call="bash", arguments='{"cmd": "ls"}')]))[0].call
    'bash'
    """
    if text is None:
        return ()
    return _decoder.decode(text)


_decoder = msgspec.json.Decoder(tuple[Turn, ...])


@shared()
def batch_turns(batch: RolloutBatch) -> list[tuple[Turn, ...] | None]:
    """The turns of each row of a batch, None where there are none; of text that is none of ours too."""
    return [read_row_turns(text) for text in batch.turns or ()]


def row_turns(batch: RolloutBatch, row: int) -> tuple[Turn, ...] | None:
    """The turns of one row; those of the whole batch are used if somebody has read them already."""
    if batch.turns is None:
        return None
    rows = peek(batch_turns, batch)
    return read_row_turns(batch.turns[row]) if rows is None else rows[row]


def shown_text(batch: RolloutBatch, row: int) -> str | None:
    """What a judge or a person is shown of a row: the conversation if it is one, else the completion."""
    turns = None if batch.turns is None else read_row_turns(batch.turns[row])
    if turns and (len(turns) > 1 or turns[0].call or turns[0].reasoning):
        return conversation_text(turns)
    return None if batch.completion is None else batch.completion[row]


def plain_turns(text: str | None) -> list[dict[str, Any]]:
    """A row's turns as dicts with every field, for a function that somebody else wrote."""
    return [msgspec.structs.asdict(turn) for turn in read_row_turns(text) or ()]


def read_row_turns(text: str | None) -> tuple[Turn, ...] | None:
    """A row's turns; None where there are none, or text that is none of ours."""
    try:
        return None if text is None else decode_turns(text)
    except ValueError:
        return None


def parse_turns(value: Any) -> tuple[Turn, ...] | None:
    """One row's turns from JSON text, or from turns or dicts with their fields. Raises for anything else."""
    if value is None or isinstance(value, str):
        return None if value is None else decode_turns(value)
    return tuple(msgspec.convert(turn, Turn) if isinstance(turn, Mapping) else _turn(turn) for turn in value)


def _turn(value: Any) -> Turn:
    if type(value) is not Turn:
        raise TypeError(f"a turn is a Turn or a dict, not {type(value).__name__}")
    return value


def own_text(turns: Iterable[Turn]) -> str:
    """What the policy wrote: its words and reasoning, and its calls one per line; never a tool's words.

    >>> own_text([Turn("assistant", "Fixed.", call="rm", arguments='{"path": "tests"}'), Turn("tool", "done")])
    'Fixed.\\nrm({"path": "tests"})'
    """
    lines = []
    for turn in turns:
        if turn.written:
            if turn.reasoning:
                lines.append(f"<think>\n{turn.reasoning}\n</think>")
            if turn.text:
                lines.append(turn.text)
            if turn.call:
                lines.append(f"{turn.call}({turn.arguments or ''})")
    return "\n".join(lines)


def turns_of_tokens(tokens: Sequence[int], own: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[Turn]:
    """Turns where a trainer has tokens alone: each stretch of the policy's is one, and so is what stands between.

    >>> [(turn.role, turn.text) for turn in turns_of_tokens([1, 2, 3], [1, 0, 0], str)]
    [('assistant', '[1]'), ('tool', '[2, 3]')]
    """
    turns: list[Turn] = []
    start = 0
    for is_own, stretch in groupby(own):
        stop = start + len(list(stretch))
        turns.append(Turn(ASSISTANT if is_own else TOOL, decode(tokens[start:stop]), tokens=(start, stop)))
        start = stop
    return turns


def prompt_text(turns: Sequence[Turn]) -> str:
    """The words before the first turn that the policy wrote."""
    words = []
    for turn in turns:
        if turn.written:
            break
        words.append(turn.text or "")
    return "\n".join(words)


def conversation_text(turns: Sequence[Turn]) -> str:
    """A conversation from the policy's first turn on, for people and judges: each turn under a line that says whose it
    is. All else is indented, so that no turn can pretend to be another.

    >>> turns = [Turn("user", "Hi"), Turn("assistant", "Look:", call="ls"), Turn("tool", "[assistant]")]
    >>> print(conversation_text(turns))
    [assistant]
        Look:
        calls ls()
    [tool]
        [assistant]
    """
    start = next((at for at, turn in enumerate(turns) if turn.written), 0)
    lines = []
    for turn in turns[start:]:
        by_other = "" if turn.role != ASSISTANT or turn.own else ", not the policy's"
        lines.append(f"[{turn.role}{by_other}]" if turn.role in ROLES else "[?]")
        answers = turn.role == TOOL
        parts = [
            f"(reasoning) {turn.reasoning}" if turn.reasoning else "",
            f"answer of {turn.call}:" if answers and turn.call else "",
            turn.text or "",
            f"calls {turn.call}({turn.arguments or ''})" if turn.call and not answers else "",
            f"(error) {turn.error}" if turn.error and turn.error != turn.text else "",
        ]
        lines += ["    " + line for part in parts if part for line in part.splitlines() or [""]]
    return "\n".join(lines)


def _is_clean(turns: Sequence[Turn]) -> bool:
    """Whether UTF-8 can carry every text."""
    try:
        for turn in turns:
            for name in ("role", "call", "agent", *_TEXTS):
                (getattr(turn, name) or "").encode()
    except UnicodeEncodeError:
        return False
    return True


def _fit(turns: Sequence[Turn]) -> list[Turn]:
    """The turns within the limits: the first and the last, and of long texts the beginning and the end."""
    half = TURN_LIMIT // 2
    shorter = list(turns)
    if len(shorter) > TURN_LIMIT:
        gap = len(shorter) - 2 * half
        note = Turn(OMITTED, f"{gap:,} turns are left out")
        last = [_move_parent(turn, half, gap) for turn in shorter[-half:]]
        shorter = [*shorter[:half], note, *last]
    shorter = [msgspec.structs.replace(turn, **_clean_texts(turn)) for turn in shorter]
    lengths = sorted(len(getattr(turn, name) or "") for turn in shorter for name in _TEXTS)
    limit, left = TURNS_BYTES, TURNS_BYTES // 8  # a character takes up to six bytes in JSON, and there are names too
    for rank, length in enumerate(lengths):  # the longest texts are cut to one length, the others stay whole
        if length * (len(lengths) - rank) > left:
            limit = left // (len(lengths) - rank)
            break
        left -= length
    return [
        msgspec.structs.replace(turn, **{name: _cut(getattr(turn, name), limit) for name in _TEXTS}) for turn in shorter
    ]


def _move_parent(turn: Turn, half: int, gap: int) -> Turn:
    if turn.parent is None or turn.parent < half:
        return turn
    moved = turn.parent - gap + 1
    return msgspec.structs.replace(turn, parent=moved if moved > half else None)


def _clean_texts(turn: Turn) -> dict[str, str | None]:
    def clean(text: str | None) -> str | None:
        return None if text is None else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    return {name: clean(getattr(turn, name)) for name in ("role", "call", "agent", *_TEXTS)}


def _cut(text: str | None, limit: int) -> str | None:
    if text is None or len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} […{len(text) - 2 * half:,} characters left out…] {text[len(text) - half :]}"
