"""The base of all rewards: calls the parts, applies a rule to their scores, and keeps outages apart from None."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.batches import INFRA, MISSING, NAN, OK, TYPE, component_name, numbers
from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.reward import InfraError, Reward, Scores, texts
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.sandbox import SandboxUnavailable
from tiltmeter.stats.word_hashes import Texts, Words

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
CodedScores = tuple[Floats, NDArray[np.uint8]]  # numbers, and a code for each value: see `batches.numbers`
Part = Callable[..., Any]
Bounds = tuple[float | None, float | None]
OnInfra = Literal["none", "raise"]
Unit = Literal["tokens", "words", "characters"]
#: Sums over this process's rows in, sums over the rows of all processes out.
Agree = Callable[[list[float]], Sequence[float]]

#: Errors that mean an outage (a machine, a server or a file is missing), not a mistake of the policy or of the part.
INFRA_ERRORS = (InfraError, JudgeError, SandboxUnavailable, OSError)  # OSError: ConnectionError and TimeoutError too
#: What TRL passes beside dataset columns. Only `completion_ids` and `environments` have a value per row.
TRAINER_ARGUMENTS = ("completion_ids", "environments", "trainer_state", "log_extra", "log_metric")


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of one call: prompts, completions and dataset columns.

    >>> rows = Rows(["2 + 2?"], ["It is 4."], {"completion_ids": [[7, 8, 9]]})
    >>> rows.texts, rows.lengths("tokens").tolist(), rows.lengths("words").tolist()
    (['It is 4.'], [3.0], [3.0])
    """

    prompts: Any
    completions: Any
    columns: Mapping[str, Any]

    def __len__(self) -> int:
        return len(self.completions)

    @cached_property
    def texts(self) -> list[str]:
        return texts(self.completions)

    @cached_property
    def prompt_texts(self) -> list[str]:
        """The prompts as text; rows with the same prompt form a group."""
        if self.prompts is None:
            raise TypeError("this reward compares answers to one prompt: call it with prompts= as well")
        return texts(self.prompts)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """A number per row, the same for answers to the same prompt."""
        group_ids: dict[str, int] = {}
        return np.array([group_ids.setdefault(prompt, len(group_ids)) for prompt in self.prompt_texts], np.int64)

    def tokens(self) -> Any:
        ids = self.columns.get("completion_ids")
        if ids is None:
            raise TypeError("no completion_ids were given, so there are no tokens to count: measure by words instead")
        return ids

    def lengths(self, unit: Unit) -> Floats:
        if unit == "tokens":
            return np.array([len(ids) for ids in self.tokens()], np.float64)
        if unit == "words":
            return Words.of(Texts.of(self.texts)).lengths.astype(np.float64)
        return np.array([len(text) for text in self.texts], np.float64)

    @property
    def evaluating(self) -> bool:
        """Whether the trainer is evaluating: rules that learn must not learn from such rows.

        TRL does not pass this to a reward function, but `log_metric` is a method of the trainer, whose model has it.
        """
        try:
            return not self.columns["log_metric"].__self__.model.training
        except (KeyError, AttributeError):  # another trainer, or none
            return False

    def log(self, name: str, value: float) -> None:
        """Write a number to the trainer's log, if the trainer passes `log_metric`."""
        if callable(logs := self.columns.get("log_metric")):
            logs(name, value)


@dataclass(frozen=True, eq=False)
class PartScores:
    """The scores of each part for each row (NaN: not scored), and which rows are missing because of an outage."""

    scores: Mapping[str, Floats]
    broken: Mapping[str, Bools]

    def __getitem__(self, name: str) -> Floats:
        return self.scores[name]

    def table(self) -> Floats:
        """Parts x rows."""
        return np.array(list(self.scores.values()))


#: One number per row from the scores of the parts. NaN, None: not scored; an exception in place of a number: outage.
ScoreRule = Callable[[PartScores, Rows], Any]


@runtime_checkable
class Stateful(Protocol):
    """A rule with state: it learns from the rows it scores."""

    def state(self) -> dict[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Stepwise(Protocol):
    """Something that scored the steps of each completion of the last call."""

    step_reward: Sequence[Sequence[float]] | None


class ComposedReward:
    """A reward composed of parts by a rule: what most functions of `tiltmeter.rewards` return.

    It is a reward function for TRL and for any trainer with its convention. Where a part broke, the row is None and
    `infra` is True: scored as 0, an outage of the verifier would look like a collapsing policy, and train one. Other
    exceptions are a mistake of the part and are raised. `identity` holds settings and parts but not what a rule has
    learnt (`state`), so that a run's reward fingerprint changes only with the settings and parts.

    >>> def long(completions, **_): return [len(text) for text in completions]
    >>> half = ComposedReward("half", {"long": long}, lambda scores, rows: scores["long"] / 2)
    >>> half(completions=["four", "sixsix"]), half.told, half.infra
    ([2.0, 3.0], {'long': [4.0, 6.0]}, [False, False])
    """

    def __init__(
        self,
        name: str,
        parts: Mapping[str, Part],
        rule: ScoreRule,
        *,
        bounds: Bounds = (None, None),
        settings: tuple[object, ...] = (),
        on_infra: OnInfra = "none",
    ) -> None:
        if on_infra not in get_args(OnInfra):
            raise ValueError(f'on_infra must be "none" or "raise", not {on_infra!r}')
        for part_name, part in parts.items():
            if not callable(part):
                raise TypeError(f"the part {part_name!r} is {type(part).__name__}, which cannot be called")
        self.__name__ = name
        self.parts, self.bounds, self.settings, self.on_infra = dict(parts), bounds, settings, on_infra
        self.rule: Any = rule  # each rule has its own class, and may have state
        self.told: dict[str, Scores] = {}
        self.infra: list[bool] = []
        self.step_reward: Sequence[Sequence[float]] | None = None  # where a part, or the rule, scores steps
        self._warned: set[tuple[str, str]] = set()  # warnings already given: each is given once

    @property
    def components(self) -> tuple[str, ...]:
        """The names in `told`. A reward that wraps a single other reward shows that one's components."""
        inner = self._single_part()
        return tuple(self.parts) if inner is None else inner.components

    @property
    def identity(self) -> tuple[object, ...]:
        parts = tuple((name, fingerprint([part])) for name, part in self.parts.items())
        rule = fingerprint([self.rule]) if inspect.isroutine(self.rule) else type(self.rule).__qualname__
        return (rule, self.settings, parts)

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        if completions is None:
            raise TypeError(f"{self.__name__} was called without completions")
        self.told, self.infra, self.step_reward = {}, [], None  # reset: these describe the last call only
        rows = Rows(prompts, completions, columns)
        results = {
            name: self._collect_scores(name, partial(call_part, part, rows), len(rows))
            for name, part in self.parts.items()
        }
        part_scores = PartScores(
            {name: scores for name, (scores, _) in results.items()},
            {name: broke for name, (_, broke) in results.items()},
        )
        inner, steps = self._single_part(), _step_scores(*self.parts.values())
        component_scores = {n: nan_to_none(scores) for n, scores in part_scores.scores.items()}
        if inner is not None:
            component_scores = {n: inner.told.get(n, [None] * len(rows)) for n in inner.components}  # none if it raised
        totals, broken = self._collect_scores(
            self.__name__, partial(self.rule, part_scores, rows), len(rows), ours=True
        )
        for broke in part_scores.broken.values():
            broken = broken | (broke & np.isnan(totals))
        if self.on_infra == "raise" and broken.any():
            raise InfraError(f"{self.__name__}: {int(broken.sum())} of {len(rows)} rows could not be scored")
        self.told, self.infra, self.step_reward = component_scores, broken.tolist(), steps or _step_scores(self.rule)
        return nan_to_none(np.where(broken, np.nan, totals))

    def _single_part(self) -> Reward | None:
        """The only part, if there is one and it has components of its own."""
        only = next(iter(self.parts.values())) if len(self.parts) == 1 else None
        return only if isinstance(only, Reward) and only.components else None

    def _collect_scores(
        self, name: str, work: Callable[[], Any], rows: int, *, ours: bool = False
    ) -> tuple[Floats, Bools]:
        """Scores, and where an outage occurred. `ours`: a rule may return NaN for None."""
        try:
            returned = work()
        except INFRA_ERRORS as error:
            self._warn(name, "broke", f"could not score {rows} rows: {type(error).__name__}: {error}")
            return np.full(rows, np.nan), np.ones(rows, bool)
        scores, codes = numbers(returned)
        if ours:
            codes = np.where(codes == NAN, MISSING, codes).astype(np.uint8)
        if len(scores) != rows:
            raise ValueError(f"{name} returned {len(scores)} scores for {rows} completions")
        if (codes == TYPE).any():
            raise TypeError(f"{name} returned something that is neither a number nor None")
        broke, odd = codes == INFRA, ~np.isin(codes, (OK, MISSING, INFRA))
        if broke.any():
            why = next(error for error in returned if isinstance(error, BaseException))
            count = f"{int(broke.sum())} of {rows} rows"
            self._warn(name, "broke", f"could not score {count}: {type(why).__name__}: {why}")
        if odd.any():
            self._warn(
                name, "odd", f"returned NaN or infinity for {int(odd.sum())} of {rows} rows; they are not scored"
            )
        return np.where(np.isfinite(scores), scores, np.nan), broke

    def _warn(self, name: str, kind: str, message: str) -> None:
        if (name, kind) in self._warned:
            return
        self._warned.add((name, kind))
        warnings.warn(f"tiltmeter: the reward {log_line(f'{name} {message}', 300)}", stacklevel=4)

    def state(self) -> dict[str, Any]:
        """The learnt state of the rule and of the parts, as plain data."""
        parts = {name: part.state() for name, part in self.parts.items() if isinstance(part, ComposedReward)}
        own: dict[str, Any] = self.rule.state() if isinstance(self.rule, Stateful) else {}
        return {"rule": own, "parts": {name: state for name, state in parts.items() if any(state.values())}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that `state` returned."""
        if isinstance(self.rule, Stateful) and state["rule"]:
            self.rule.restore(state["rule"])
        for name, inner in state["parts"].items():
            part = self.parts.get(name)
            if not isinstance(part, ComposedReward):
                raise ValueError(f"the state is of another reward: {self.__name__} has no part {name!r} that learns")
            part.restore(inner)

    def save(self, path: str | Path) -> None:
        """Write `state` as JSON, beside a checkpoint: without it a resumed run starts learning from nothing."""
        path = Path(path)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(json.dumps(self.state(), allow_nan=False) + "\n", encoding="ascii")
        new.replace(path)

    def load(self, path: str | Path) -> None:
        self.restore(json.loads(Path(path).read_text(encoding="ascii")))

    def __repr__(self) -> str:
        return f"<reward {self.__name__} of {', '.join(self.parts)}>" if self.parts else f"<reward {self.__name__}>"


def _step_scores(*sources: object) -> Sequence[Sequence[float]] | None:
    candidates = (source.step_reward for source in sources if isinstance(source, Stepwise))
    return next((steps for steps in candidates if steps is not None), None)


def call_part(part: Part, rows: Rows) -> Any:
    """Call a part, awaiting it if it is async. Rows that broke hold an exception in place of a score."""
    arguments = {"completions": rows.completions, **rows.columns}
    if rows.prompts is not None:
        arguments["prompts"] = rows.prompts
    scores = await_result(part(**arguments))
    scores = scores if hasattr(scores, "__array__") else list(scores)
    if not isinstance(part, Reward):
        return scores
    if len(part.infra) != len(scores):
        raise ValueError(
            f"{function_name(part)} scored {len(scores)} rows and says of {len(part.infra)} whether they broke"
        )
    return mark_broken(scores, part.infra)


def score_part(part: Part, rows: Rows) -> CodedScores:
    """Call a part and convert its scores to numbers, with a code for each value."""
    return numbers(call_part(part, rows))


def mark_broken(scores: Any, broken: Sequence[bool]) -> Any:
    """The scores, with an `InfraError` in place of each None that is due to an outage."""
    if not any(broken):
        return scores
    error = InfraError("could not be scored")
    rows = zip(scores, broken, strict=True)
    return [error if broke and (score is None or score != score) else score for score, broke in rows]


def await_result(result: Any) -> Any:
    """The value itself, or the result of awaiting it."""
    if not inspect.isawaitable(result):
        return result

    async def wait() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    # An event loop is already running in this thread: run a second one in another thread.
    results: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            results.append(asyncio.run(wait()))
        except BaseException as error:  # noqa: BLE001  # raised again below, in the calling thread
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return results[0]


def function_name(part: Part) -> str:
    """A part's name as TRL determines it: of the function inside partials, or of its class."""
    while isinstance(part, partial):
        part = part.func
    return part.__name__ if hasattr(part, "__name__") else type(part).__name__


def name_parts(parts: Mapping[str, Part] | Sequence[Part]) -> dict[str, Part]:
    """The parts by unique names.

    >>> def short(completions): return [-len(text) for text in completions]
    >>> list(name_parts([short, short]))
    ['short', 'short.2']
    """
    if isinstance(parts, Mapping):
        return dict(parts)
    named_parts: dict[str, Part] = {}
    for part in parts:
        named_parts[component_name(function_name(part), named_parts)] = part
    return named_parts


def part_bounds(part: Part) -> Bounds:
    """The bounds of a part's scores; None where it does not declare them."""
    return part.bounds if isinstance(part, Reward) else (None, None)


def is_column(values: object, rows: int) -> bool:
    """Whether a keyword argument from the trainer has one value per row."""
    return isinstance(values, (list, tuple, np.ndarray)) and len(values) == rows


def nan_to_none(scores: Floats) -> Scores:
    return [None if score != score else score for score in scores.tolist()]


def agree_or_local(agree: Agree | None, what: str) -> Agree:
    """The function that sums over all processes; with a single process, `list` (no communication)."""
    if agree is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise AttachError(
            f"{what} learns from the rows it sees, and each of several processes sees its own: give it agree=, a "
            "function from a list of sums to their totals over all processes, such as `lambda sums: accelerator.reduce("
            "torch.tensor(sums, dtype=torch.float64, device=accelerator.device)).tolist()`"
        )
    return list if agree is None else agree
