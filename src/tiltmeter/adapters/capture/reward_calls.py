"""Reads one call of a reward function: which rows were scored, and the score of each.

Each trainer has its own calling convention, recognised by the names of the arguments. Nothing is guessed: a call that
fits no convention is refused with the fix, and so is a result whose length is not the number of rows.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from tiltmeter.data.batches import from_tensor, plain_text
from tiltmeter.errors import AttachError

#: Arguments that TRL passes in addition to the columns of its dataset.
TRL_OWN = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
COLUMNS = ("prompt", "completion", "group", "step", "length", "facts")
FILE_ROWS = 4096
MAPPING_ITEMS = 10_000  # of a result or of what a dataset says of a row
SCORE_KEYS = ("score", "rewards", "reward")  # keys of a result dict; the first that is present
PROMPT_NAMES = ("prompt", "question", "query", "problem", "input")  # of a function of two arguments, the first
COMPLETION_NAMES = (
    "completion",
    "response",
    "output",
    "solution",
    "generation",
    "text",
)  # and the second; also with an s
FIX = (
    "give columns={'prompt': NAME, 'completion': NAME} with the names of its arguments; there are also group, step, "
    "length and facts"
)


@dataclass(frozen=True, slots=True)
class Call:
    """The rows of one call.

    >>> call = read_call({"prompt": "1+1?", "completion": "2"})
    >>> call.completion, call.prompt
    (['2'], ['1+1?'])
    """

    completion: list[str | None]
    prompt: list[str | None] | None = None
    group: list[Any] | None = None  # a group id per row; without it, the prompt
    facts: list[dict[str, Any]] | None = None
    length: list[int] | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        rows = len(self.completion)
        for name in ("prompt", "group", "facts", "length"):
            column = getattr(self, name)
            if column is not None and len(column) != rows:
                raise ValueError(f"{rows} completions were passed with {len(column)} of {name}")


CallReader = Callable[[Mapping[str, Any]], Call]


def reader_for(names: Sequence[str], columns: Mapping[str, str] | None = None) -> CallReader:
    """The reader for calls of a function with these arguments. Raises `AttachError` if no convention fits.

    >>> [reader_for(names).__name__ for names in (["data_source", "solution_str"], ["question", "responses"])]
    ['_verl', 'positional']
    """
    if columns is not None:
        if unknown := sorted(set(columns) - set(COLUMNS)):
            raise AttachError(f"columns= names {unknown}; a call has {', '.join(COLUMNS)}")
        if "completion" not in columns:
            raise AttachError(f"columns= does not say which argument is the completion: {FIX}")
        return lambda arguments: _by_columns(arguments, columns)
    for required, reader in _CONVENTIONS:
        if all(name in names for name in required):
            return reader
    own = [name for name in names if not name.startswith("*")]
    if not own and names:  # f(*args, **kwargs): decided for each call
        return read_call
    two = len(own) == 2 and own[0].removesuffix("s") in PROMPT_NAMES and own[1].removesuffix("s") in COMPLETION_NAMES
    if len(own) != 1 and not two:
        raise AttachError(f"no trainer is known that calls a reward with ({', '.join(names)}): {FIX}")

    def positional(arguments: Mapping[str, Any]) -> Call:
        return _plain({"completion": arguments[own[-1]], "prompt": arguments[own[0]] if two else None})

    return positional


def read_call(arguments: Mapping[str, Any]) -> Call:
    """One call's rows, by the names of what was passed."""
    for required, reader in _CONVENTIONS:
        if all(name in arguments for name in required):
            return reader(arguments)
    raise AttachError(f"a call with ({', '.join(arguments)}) is of no known convention: {FIX}")


def _trl(arguments: Mapping[str, Any]) -> Call:
    if isinstance(arguments["completions"], str):  # AReaL: one sample, whatever the name says
        return _areal(arguments)
    completions: list[Any] = _list(arguments["completions"])
    prompts = arguments.get("prompts")
    keys = [key for key, value in arguments.items() if key not in TRL_OWN and same_length(value, completions)]
    facts = [{key: arguments[key][row] for key in keys} for row in range(len(completions))] if keys else None
    state, ids = arguments.get("trainer_state"), arguments.get("completion_ids")
    return Call(
        _texts(completions),
        None if prompts is None else _texts(prompts),
        facts=facts,
        length=[len(row) for row in _list(ids)] if same_length(ids, completions) else None,
        step=_step(arguments.get("step") if state is None else state.global_step + 1),
    )


def _areal(arguments: Mapping[str, Any]) -> Call:
    own = ("prompt", "completions", "prompt_ids", "completion_ids")
    ids = arguments.get("completion_ids")
    prompt = [plain_text(arguments["prompt"])] if "prompt" in arguments else None
    facts = [{key: value for key, value in arguments.items() if key not in own}]
    return Call([arguments["completions"]], prompt, facts=facts, length=None if ids is None else [len(ids)])


def _verl(arguments: Mapping[str, Any]) -> Call:
    """One sample. veRL passes no prompt: rows of one prompt have the same source and index, if the dataset has one."""
    extra = first_items(arguments.get("extra_info") or {})
    return _verl_rows(
        [arguments["solution_str"]], [arguments.get("data_source")], [arguments.get("ground_truth")], [extra]
    )


def _verl_batch(arguments: Mapping[str, Any]) -> Call:
    rows = list(arguments["solution_strs"])
    nothing = [None] * len(rows)
    sources, truths = (arguments.get(name) for name in ("data_sources", "ground_truths"))
    extras = arguments.get("extra_infos")
    return _verl_rows(
        rows,
        nothing if sources is None else list(sources),
        nothing if truths is None else list(truths),
        [first_items(extra or {}) for extra in (nothing if extras is None else extras)],
    )


def _verl_rows(rows: list[Any], sources: list[Any], truths: list[Any], extras: list[dict[str, Any]]) -> Call:
    prompts = [extra.get("prompt", extra.get("question")) for extra in extras]
    indexed = all(extra.get("index") is not None for extra in extras)
    facts = [
        {"data_source": source, "ground_truth": truth, **extra}
        for source, truth, extra in zip(sources, truths, extras, strict=True)
    ]
    return Call(
        _texts(rows),
        None if any(prompt is None for prompt in prompts) else _texts(prompts),
        [f"{source} {extra['index']}" for source, extra in zip(sources, extras, strict=True)] if indexed else None,
        facts,
    )


def _openrlhf(arguments: Mapping[str, Any]) -> Call:
    """A query is prompt and completion in one text."""
    prompts, queries = _texts(arguments["prompts"]), _texts(arguments["queries"])
    completions = [
        query.removeprefix(prompt) if query is not None and prompt is not None else query
        for query, prompt in zip(queries, prompts, strict=True)
    ]
    labels = arguments.get("labels")
    facts = [{"label": label} for label in _list(labels)] if same_length(labels, queries) else None
    return Call(completions, prompts, facts=facts)


def _slime(arguments: Mapping[str, Any]) -> Call:
    samples = arguments["sample"] if isinstance(arguments.get("sample"), list) else [arguments["sample"]]
    return _samples(samples)


def _slime_batch(arguments: Mapping[str, Any]) -> Call:
    return _samples(list(arguments["samples"]))


def _samples(samples: list[Any]) -> Call:
    groups = [sample.group_index for sample in samples]
    return Call(
        _texts([sample.response for sample in samples]),
        _texts([sample.prompt for sample in samples]),
        None if any(group is None for group in groups) else groups,
        [{"label": sample.label} for sample in samples],
        [int(sample.response_length) for sample in samples],
    )


def _plain(arguments: Mapping[str, Any]) -> Call:
    completion, prompt, step = arguments["completion"], arguments.get("prompt"), _step(arguments.get("step"))
    if isinstance(completion, (list, tuple, np.ndarray)) and not _is_chat(completion):
        return Call(_texts(completion), None if prompt is None else _texts(prompt), step=step)
    return Call([plain_text(completion)], None if prompt is None else [plain_text(prompt)], step=step)


def _by_columns(arguments: Mapping[str, Any], columns: Mapping[str, str]) -> Call:
    named = {column: arguments[name] for column, name in columns.items()}
    call = _plain({**named, "step": named.get("step")})
    rows = len(call.completion)

    def row_values(column: str) -> Any:
        if column not in named:
            return None
        values = named[column]
        return list(values) if isinstance(values, (list, tuple, np.ndarray)) else [values] * rows

    return Call(call.completion, call.prompt, row_values("group"), row_values("facts"), row_values("length"), call.step)


#: Required argument names, and the reader of such a call; the first that fits is used.
_CONVENTIONS: tuple[tuple[tuple[str, ...], CallReader], ...] = (
    (("solution_str",), _verl),
    (("solution_strs",), _verl_batch),
    (("queries", "prompts"), _openrlhf),
    (("completions",), _trl),
    (("samples",), _slime_batch),
    (("sample",), _slime),
    (("prompt", "completion"), _plain),
    (("completion",), _plain),
)


@dataclass(frozen=True, slots=True)
class CallScores:
    """The reward of each row of a call, and further scores that the function returned.

    >>> read_result({"score": 0.5, "format": 1.0}, 1)
    CallScores(reward=[0.5], parts={'format': [1.0]})
    """

    reward: list[Any]
    parts: dict[str, list[Any]] = field(default_factory=dict)


def read_result(result: Any, rows: int) -> CallScores:
    """The scores in the result of a reward function. Raises `ValueError` if they are not one per row."""
    parts: dict[str, list[Any]] = {}
    if isinstance(result, Mapping):
        result = first_items(result)
        key = next((key for key in SCORE_KEYS if key in result), None)
        if key is None:
            raise ValueError(f"the result has none of {', '.join(SCORE_KEYS)}, but {', '.join(map(str, result))}")
        beside = {name: value for name, value in result.items() if name not in (key, "extra_logs", "scores")}
        for name, value in {**beside, **first_items(result.get("extra_logs") or {})}.items():
            values = _per_row(value, rows)
            if values is not None and all(isinstance(item, (bool, int, float, np.number, np.bool_)) for item in values):
                parts[str(name)] = values
        result = result[key]
    elif isinstance(result, list) and result and all(isinstance(item, Mapping) for item in result):
        each = [read_result(item, 1) for item in result]  # veRL's batches: one dict per row
        names = dict.fromkeys(name for score in each for name in score.parts)
        parts = {name: [score.parts.get(name, [None])[0] for score in each] for name in names}
        result = [score.reward[0] for score in each]
    reward = _per_row(result, rows)
    if reward is None:
        raise ValueError(f"{rows} rows were scored and the result is {type(result).__name__} of another length")
    return CallScores(reward, parts)


def first_items(mapping: Any) -> dict[Any, Any]:
    """A dict of a mapping; of one without end only the first items."""
    return dict(islice(mapping.items(), MAPPING_ITEMS))


def _per_row(value: Any, rows: int) -> list[Any] | None:
    """One value per row, as a new list, or None."""
    if not isinstance(value, (list, tuple, np.ndarray)) and hasattr(value, "__array__") and not np.isscalar(value):
        value = from_tensor(value)  # of torch, on any device
    if isinstance(value, np.ndarray):
        value = value.reshape(-1).tolist()
    if isinstance(value, (list, tuple)):
        return list(value) if len(value) == rows else None
    return [value] if rows == 1 else None


def _texts(values: Any) -> list[str | None]:
    return [plain_text(value) for value in _list(values)]


def _list(values: Any) -> list[Any]:
    """A new list. An iterator is refused: reading it would consume the trainer's data."""
    if not isinstance(values, (list, tuple, np.ndarray)):
        raise TypeError(f"rows must be in a list, not in a {type(values).__name__}")
    return list(values)


def same_length(values: Any, rows: Sequence[Any]) -> bool:
    return isinstance(values, (list, tuple, np.ndarray)) and len(values) == len(rows)


def _is_chat(value: Any) -> bool:
    return len(value) > 0 and all(isinstance(message, Mapping) and "role" in message for message in value)


def _step(value: Any) -> int | None:
    return None if value is None else int(value)


@dataclass(slots=True)
class PendingCall:
    """Rows of one call that are not written yet."""

    call: Call
    scores: CallScores
    moment: float  # when the call ended, seconds since 1970
    seconds: float
    size: int  # bytes of text, approximate

    @property
    def rows(self) -> int:
        return len(self.call.completion)


def calls_for_one_file(pending: list[PendingCall]) -> list[PendingCall]:
    """The first calls, as many as fit into one file."""
    rows = 0
    for number, item in enumerate(pending):
        rows += item.rows
        if rows > FILE_ROWS:
            return pending[: max(1, number)]
    return list(pending)


def text_bytes(call: Call) -> int:
    """About how many bytes of text a call holds; this runs on the training thread."""
    texts = sum(len(text) for column in (call.completion, call.prompt or ()) for text in column if text is not None)
    facts = (value for row in call.facts or () if isinstance(row, dict) for value in row.values())
    return texts + sum(len(value) if isinstance(value, str) else 64 for value in facts) + 256 * len(call.completion)


def batch_columns(pending: list[PendingCall]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a batch, and key, time, step and seconds of each row. Calls may have different columns."""
    sizes = [len(item.call.completion) for item in pending]
    names = dict.fromkeys(name for item in pending for name in item.scores.parts)
    columns: dict[str, Any] = {
        "completion": [text for item in pending for text in item.call.completion],
        "reward": [reward for item in pending for reward in item.scores.reward],
        "rewards": {
            name: [part for item in pending for part in item.scores.parts.get(name, [None] * len(item.call.completion))]
            for name in names
        },
    }
    for name in ("prompt", "facts", "length"):
        parts = [getattr(item.call, name) for item in pending]
        if name == "length" and any(part is None for part in parts):
            continue
        if any(part is not None for part in parts):
            columns[name] = [value for part, size in zip(parts, sizes, strict=True) for value in part or [None] * size]
    keys = [key for item in pending for key in _keys(item.call)]
    extra_columns = {
        "key": _hash_keys(keys),
        "time": np.maximum.accumulate(np.repeat([item.moment for item in pending], sizes)),
        "step": np.repeat([-1 if item.call.step is None else item.call.step for item in pending], sizes),
        "seconds": np.repeat([item.seconds for item in pending], sizes),
    }
    return columns, extra_columns


def _keys(call: Call) -> list[str]:
    """A group key per row; a row without group and prompt is a group of its own."""
    if call.group is not None:
        return [f"group {key}" for key in call.group]
    texts = call.prompt or [None] * len(call.completion)
    return [f"prompt {text}" if text is not None else f"row {secrets.token_hex(8)}" for text in texts]


def _hash_keys(keys: list[str]) -> Any:
    digests = (hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest() for key in keys)
    return np.array([int.from_bytes(digest) >> 1 for digest in digests], np.int64)
