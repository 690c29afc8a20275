"""What one call of a reward function says: which rows were scored, and what each was paid.

Trainers call rewards by conventions of their own, told apart by the names of the arguments. Nothing is guessed: a call
that fits none of them is refused with the fix, and a result of another length than its rows is no result.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.batches import from_tensor, plain_text
from tiltmeter.errors import AttachError

#: What TRL passes beside the columns of its dataset.
TRL_OWN = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
COLUMNS = ("prompt", "completion", "group", "step", "length", "facts")
FILE_ROWS = 4096
SCORE_KEYS = ("score", "rewards", "reward")  # of a result that is a dict, the first that is there
PROMPTS = ("prompt", "question", "query", "problem", "input")  # of a function of two arguments, the first
COMPLETIONS = ("completion", "response", "output", "solution", "generation", "text")  # and the second; also with an s
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
    group: list[Any] | None = None  # what rows that answer one prompt have in common; else it is the prompt
    facts: list[dict[str, Any]] | None = None
    length: list[int] | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        rows = len(self.completion)
        for name in ("prompt", "group", "facts", "length"):
            column = getattr(self, name)
            if column is not None and len(column) != rows:
                raise ValueError(f"{rows} completions were passed with {len(column)} of {name}")


Reader = Callable[[Mapping[str, Any]], Call]


def reader_for(names: Sequence[str], columns: Mapping[str, str] | None = None) -> Reader:
    """How calls of a function with these arguments are read. Raises `AttachError` if nothing fits.

    >>> [reader_for(names).__name__ for names in (["data_source", "solution_str"], ["question", "responses"])]
    ['_verl', 'positional']
    """
    if columns is not None:
        if unknown := sorted(set(columns) - set(COLUMNS)):
            raise AttachError(f"columns= names {unknown}; a call has {', '.join(COLUMNS)}")
        if "completion" not in columns:
            raise AttachError(f"columns= does not say which argument is the completion: {FIX}")
        return lambda given: _mapped(given, columns)
    for known, reader in _CONVENTIONS:
        if all(name in names for name in known):
            return reader
    own = [name for name in names if not name.startswith("*")]
    if not own and names:  # f(*args, **kwargs): told by each call
        return read_call
    two = len(own) == 2 and own[0].removesuffix("s") in PROMPTS and own[1].removesuffix("s") in COMPLETIONS
    if len(own) != 1 and not two:
        raise AttachError(f"no trainer is known that calls a reward with ({', '.join(names)}): {FIX}")

    def positional(given: Mapping[str, Any]) -> Call:
        return _plain({"completion": given[own[-1]], "prompt": given[own[0]] if two else None})

    return positional


def read_call(given: Mapping[str, Any]) -> Call:
    """One call's rows, by the names of what was passed."""
    for known, reader in _CONVENTIONS:
        if all(name in given for name in known):
            return reader(given)
    raise AttachError(f"a call with ({', '.join(given)}) is of no known convention: {FIX}")


def _trl(given: Mapping[str, Any]) -> Call:
    if isinstance(given["completions"], str):  # AReaL: one sample, whatever the name says
        return _areal(given)
    completions: list[Any] = _list(given["completions"])
    prompts = given.get("prompts")
    keys = [key for key, value in given.items() if key not in TRL_OWN and as_long(value, completions)]
    facts = [{key: given[key][row] for key in keys} for row in range(len(completions))] if keys else None
    state, ids = given.get("trainer_state"), given.get("completion_ids")
    return Call(
        _texts(completions),
        None if prompts is None else _texts(prompts),
        facts=facts,
        length=[len(row) for row in _list(ids)] if as_long(ids, completions) else None,
        step=_step(given.get("step") if state is None else state.global_step + 1),
    )


def _areal(given: Mapping[str, Any]) -> Call:
    own = ("prompt", "completions", "prompt_ids", "completion_ids")
    ids = given.get("completion_ids")
    prompt = [plain_text(given["prompt"])] if "prompt" in given else None
    facts = [{key: value for key, value in given.items() if key not in own}]
    return Call([given["completions"]], prompt, facts=facts, length=None if ids is None else [len(ids)])


def _verl(given: Mapping[str, Any]) -> Call:
    """One sample. veRL passes no prompt: rows of one prompt have the same source and index, if the dataset has one."""
    extra = dict(given.get("extra_info") or {})
    return _verl_rows([given["solution_str"]], [given.get("data_source")], [given.get("ground_truth")], [extra])


def _verl_batch(given: Mapping[str, Any]) -> Call:
    rows = list(given["solution_strs"])
    nothing = [None] * len(rows)
    sources, truths = (given.get(name) for name in ("data_sources", "ground_truths"))
    extras = given.get("extra_infos")
    return _verl_rows(
        rows,
        nothing if sources is None else list(sources),
        nothing if truths is None else list(truths),
        [dict(extra or {}) for extra in (nothing if extras is None else extras)],
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


def _openrlhf(given: Mapping[str, Any]) -> Call:
    """A query is the prompt and what was said to it, in one text."""
    prompts, queries = _texts(given["prompts"]), _texts(given["queries"])
    said = [
        query.removeprefix(prompt) if query is not None and prompt is not None else query
        for query, prompt in zip(queries, prompts, strict=True)
    ]
    labels = given.get("labels")
    facts = [{"label": label} for label in _list(labels)] if as_long(labels, queries) else None
    return Call(said, prompts, facts=facts)


def _slime(given: Mapping[str, Any]) -> Call:
    samples = given["sample"] if isinstance(given.get("sample"), list) else [given["sample"]]
    return _samples(samples)


def _slime_batch(given: Mapping[str, Any]) -> Call:
    return _samples(list(given["samples"]))


def _samples(samples: list[Any]) -> Call:
    groups = [sample.group_index for sample in samples]
    return Call(
        _texts([sample.response for sample in samples]),
        _texts([sample.prompt for sample in samples]),
        None if any(group is None for group in groups) else groups,
        [{"label": sample.label} for sample in samples],
        [int(sample.response_length) for sample in samples],
    )


def _plain(given: Mapping[str, Any]) -> Call:
    completion, prompt, step = given["completion"], given.get("prompt"), _step(given.get("step"))
    if isinstance(completion, (list, tuple, np.ndarray)) and not _is_chat(completion):
        return Call(_texts(completion), None if prompt is None else _texts(prompt), step=step)
    return Call([plain_text(completion)], None if prompt is None else [plain_text(prompt)], step=step)


def _mapped(given: Mapping[str, Any], columns: Mapping[str, str]) -> Call:
    named = {column: given[name] for column, name in columns.items()}
    call = _plain({**named, "step": named.get("step")})
    rows = len(call.completion)

    def listed(column: str) -> Any:
        if column not in named:
            return None
        values = named[column]
        return list(values) if isinstance(values, (list, tuple, np.ndarray)) else [values] * rows

    return Call(call.completion, call.prompt, listed("group"), listed("facts"), listed("length"), call.step)


#: Names that must be there, and how such a call is read; the first that fits.
_CONVENTIONS: tuple[tuple[tuple[str, ...], Reader], ...] = (
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
class Scores:
    """What a call's rows were paid: the reward, and what else the function said of each row.

    >>> read_result({"score": 0.5, "format": 1.0}, 1)
    Scores(reward=[0.5], parts={'format': [1.0]})
    """

    reward: list[Any]
    parts: dict[str, list[Any]] = field(default_factory=dict)


def read_result(result: Any, rows: int) -> Scores:
    """The scores in whatever a reward function gave back. Raises `ValueError` if they are not one per row."""
    parts: dict[str, list[Any]] = {}
    if isinstance(result, Mapping):
        key = next((key for key in SCORE_KEYS if key in result), None)
        if key is None:
            raise ValueError(f"the result has none of {', '.join(SCORE_KEYS)}, but {', '.join(map(str, result))}")
        beside = {name: value for name, value in result.items() if name not in (key, "extra_logs", "scores")}
        for name, value in {**beside, **dict(result.get("extra_logs") or {})}.items():
            told = _listed(value, rows)
            if told is not None and all(isinstance(item, (bool, int, float, np.number, np.bool_)) for item in told):
                parts[str(name)] = told
        result = result[key]
    elif isinstance(result, list) and result and all(isinstance(item, Mapping) for item in result):
        each = [read_result(item, 1) for item in result]  # veRL's batches: one dict per row
        names = dict.fromkeys(name for score in each for name in score.parts)
        parts = {name: [score.parts.get(name, [None])[0] for score in each] for name in names}
        result = [score.reward[0] for score in each]
    reward = _listed(result, rows)
    if reward is None:
        raise ValueError(f"{rows} rows were scored and the result is {type(result).__name__} of another length")
    return Scores(reward, parts)


def _listed(value: Any, rows: int) -> list[Any] | None:
    """One value per row, as a list of its own, or None."""
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
    """A list of its own. What can be read only once is refused: reading it would take it from the trainer."""
    if not isinstance(values, (list, tuple, np.ndarray)):
        raise TypeError(f"rows must be in a list, not in a {type(values).__name__}")
    return list(values)


def as_long(values: Any, rows: Sequence[Any]) -> bool:
    return isinstance(values, (list, tuple, np.ndarray)) and len(values) == len(rows)


def _is_chat(value: Any) -> bool:
    return len(value) > 0 and all(isinstance(message, Mapping) and "role" in message for message in value)


def _step(value: Any) -> int | None:
    return None if value is None else int(value)


@dataclass(slots=True)
class Held:
    """Rows of one call that are not written yet."""

    call: Call
    scores: Scores
    moment: float  # when the call ended, seconds since 1970
    seconds: float
    size: int  # of its texts, about

    @property
    def rows(self) -> int:
        return len(self.call.completion)


def first_of(held: list[Held]) -> list[Held]:
    """The first calls, as many as one file takes."""
    rows = 0
    for number, item in enumerate(held):
        rows += item.rows
        if rows > FILE_ROWS:
            return held[: max(1, number)]
    return list(held)


def size_of(call: Call) -> int:
    """About how many bytes of text a call holds; this runs on the training thread."""
    texts = sum(len(text) for column in (call.completion, call.prompt or ()) for text in column if text is not None)
    facts = (value for row in call.facts or () if isinstance(row, dict) for value in row.values())
    return texts + sum(len(value) if isinstance(value, str) else 64 for value in facts) + 256 * len(call.completion)


def columns_of(held: list[Held]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a batch and what stands beside them, from calls that may not all tell the same."""
    sizes = [len(item.call.completion) for item in held]
    names = dict.fromkeys(name for item in held for name in item.scores.parts)
    columns: dict[str, Any] = {
        "completion": [text for item in held for text in item.call.completion],
        "reward": [reward for item in held for reward in item.scores.reward],
        "rewards": {
            name: [part for item in held for part in item.scores.parts.get(name, [None] * len(item.call.completion))]
            for name in names
        },
    }
    for name in ("prompt", "facts", "length"):
        parts = [getattr(item.call, name) for item in held]
        if name == "length" and any(part is None for part in parts):
            continue
        if any(part is not None for part in parts):
            columns[name] = [value for part, size in zip(parts, sizes, strict=True) for value in part or [None] * size]
    keys = [key for item in held for key in _keys(item.call)]
    beside = {
        "key": _hashed(keys),
        "time": np.maximum.accumulate(np.repeat([item.moment for item in held], sizes)),
        "step": np.repeat([-1 if item.call.step is None else item.call.step for item in held], sizes),
        "seconds": np.repeat([item.seconds for item in held], sizes),
    }
    return columns, beside


def _keys(call: Call) -> list[str]:
    """What makes rows one group; a row of which nothing is known is alone."""
    if call.group is not None:
        return [f"group {key}" for key in call.group]
    texts = call.prompt or [None] * len(call.completion)
    return [f"prompt {text}" if text is not None else f"row {secrets.token_hex(8)}" for text in texts]


def _hashed(keys: list[str]) -> Any:
    digests = (hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest() for key in keys)
    return np.array([int.from_bytes(digest) >> 1 for digest in digests], np.int64)
