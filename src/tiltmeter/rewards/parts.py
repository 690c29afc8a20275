"""What all rewards share: asking parts, and keeping apart what was not scored, what does not apply and what broke."""

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

from tiltmeter.batches import INFRA, MISSING, NAN, OK, TYPE, component_name, numbers
from tiltmeter.errors import AttachError
from tiltmeter.fingerprint import fingerprint
from tiltmeter.judge import JudgeError
from tiltmeter.rewards import InfraError, Reward, Scores, texts
from tiltmeter.sandbox import SandboxUnavailable
from tiltmeter.stats.words import Texts, Words

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Answers = tuple[Floats, NDArray[np.uint8]]  # numbers, and what stood there: see `batches.numbers`
Part = Callable[..., Any]
Bounds = tuple[float | None, float | None]
OnInfra = Literal["none", "raise"]
Unit = Literal["tokens", "words", "characters"]
#: Sums over this process's rows in, sums over the rows of all processes out.
Agree = Callable[[list[float]], Sequence[float]]

#: What is not the policy's doing, nor a mistake in the part: a machine, a server or a file that is not there.
BROKEN = (InfraError, JudgeError, SandboxUnavailable, OSError)  # OSError: ConnectionError and TimeoutError too
#: What TRL passes beside dataset columns. Only `completion_ids` and `environments` have a value per row.
TRAINERS_OWN = ("completion_ids", "environments", "trainer_state", "log_extra", "log_metric")


@dataclass(frozen=True, eq=False)
class Rows:
    """What one call is about.

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
    def asked(self) -> list[str]:
        """The prompts, which tell the groups apart."""
        if self.prompts is None:
            raise TypeError("this reward compares answers to one prompt: call it with prompts= as well")
        return texts(self.prompts)

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """A number per row, the same for answers to the same prompt."""
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(prompt, len(seen)) for prompt in self.asked], np.int64)

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
        """Whether the trainer is only looking: what is learnt from such rows would not be about training.

        TRL does not say so to a reward function, but `log_metric` is a method of the trainer, which knows.
        """
        try:
            return not self.columns["log_metric"].__self__.model.training
        except (KeyError, AttributeError):  # another trainer, or none
            return False

    def log(self, name: str, value: float) -> None:
        """A number for the trainer's own log, where it takes one."""
        if callable(logs := self.columns.get("log_metric")):
            logs(name, value)


@dataclass(frozen=True, eq=False)
class Told:
    """What each part said of each row: NaN where nothing, and whether that was because something broke."""

    scores: Mapping[str, Floats]
    broken: Mapping[str, Bools]

    def __getitem__(self, name: str) -> Floats:
        return self.scores[name]

    def table(self) -> Floats:
        """Parts x rows."""
        return np.array(list(self.scores.values()))


#: One number per row from what the parts said. NaN, None: not scored; an exception in place of a number: it broke.
Rule = Callable[[Told, Rows], Any]


@runtime_checkable
class Remembers(Protocol):
    """A rule that learns from the rows it sees."""

    def state(self) -> dict[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Stepwise(Protocol):
    """Something that scored the steps of each completion of the last call."""

    step_reward: Sequence[Sequence[float]] | None


class Made:
    """A reward made of parts by a rule: what every function of `tiltmeter.rewards` returns.

    It is a reward function for TRL and for any trainer with its convention. Where a part broke, the row is None and
    `infra` says so: paid as 0, an outage of the verifier would look like a collapsing policy, and teach one. A part's
    own mistake (any other exception) is raised. What a rule learns while training goes on (`state`) is no part of the
    reward's `identity`, which settings and parts are: a run's fingerprint must change with these only.

    >>> def long(completions, **_): return [len(text) for text in completions]
    >>> half = Made("half", {"long": long}, lambda told, rows: told["long"] / 2)
    >>> half(completions=["four", "sixsix"]), half.told, half.infra
    ([2.0, 3.0], {'long': [4.0, 6.0]}, [False, False])
    """

    def __init__(
        self,
        name: str,
        parts: Mapping[str, Part],
        rule: Rule,
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
        self.rule: Any = rule  # of its own kind, with what it has learnt
        self.told: dict[str, Scores] = {}
        self.infra: list[bool] = []
        self.step_reward: Sequence[Sequence[float]] | None = None  # where a part, or the rule, scores steps
        self._said: set[tuple[str, str]] = set()  # what was warned of, once each

    @property
    def components(self) -> tuple[str, ...]:
        """The names in `told`. A reward around one other shows what that one is made of."""
        inner = self._only()
        return tuple(self.parts) if inner is None else inner.components

    @property
    def identity(self) -> tuple[object, ...]:
        parts = tuple((name, fingerprint([part])) for name, part in self.parts.items())
        rule = fingerprint([self.rule]) if inspect.isroutine(self.rule) else type(self.rule).__qualname__
        return (rule, self.settings, parts)

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        if completions is None:
            raise TypeError(f"{self.__name__} was called without completions")
        self.told, self.infra, self.step_reward = {}, [], None  # what was true of the last call is of no other
        rows = Rows(prompts, completions, columns)
        asked = {name: self._asked(name, partial(heard, part, rows), len(rows)) for name, part in self.parts.items()}
        told = Told(
            {name: scores for name, (scores, _) in asked.items()}, {name: broke for name, (_, broke) in asked.items()}
        )
        inner, steps = self._only(), _steps(*self.parts.values())
        said = {n: with_none(scores) for n, scores in told.scores.items()}
        if inner is not None:
            said = {n: inner.told.get(n, [None] * len(rows)) for n in inner.components}  # one that raised told nothing
        made, broken = self._asked(self.__name__, partial(self.rule, told, rows), len(rows), ours=True)
        for broke in told.broken.values():
            broken = broken | (broke & np.isnan(made))
        if self.on_infra == "raise" and broken.any():
            raise InfraError(f"{self.__name__}: {int(broken.sum())} of {len(rows)} rows could not be scored")
        self.told, self.infra, self.step_reward = said, broken.tolist(), steps or _steps(self.rule)
        return with_none(np.where(broken, np.nan, made))

    def _only(self) -> Reward | None:
        """The one part, if it has parts of its own."""
        only = next(iter(self.parts.values())) if len(self.parts) == 1 else None
        return only if isinstance(only, Reward) and only.components else None

    def _asked(self, name: str, work: Callable[[], Any], rows: int, *, ours: bool = False) -> tuple[Floats, Bools]:
        """Numbers, and where something broke. `ours`: a NaN is a rule's way to say None."""
        try:
            said = work()
        except BROKEN as error:
            self._warn(name, "broke", f"could not score {rows} rows: {type(error).__name__}: {error}")
            return np.full(rows, np.nan), np.ones(rows, bool)
        scores, codes = numbers(said)
        if ours:
            codes = np.where(codes == NAN, MISSING, codes).astype(np.uint8)
        if len(scores) != rows:
            raise ValueError(f"{name} returned {len(scores)} scores for {rows} completions")
        if (codes == TYPE).any():
            raise TypeError(f"{name} returned something that is neither a number nor None")
        broke, odd = codes == INFRA, ~np.isin(codes, (OK, MISSING, INFRA))
        if broke.any():
            why = next(error for error in said if isinstance(error, BaseException))
            count = f"{int(broke.sum())} of {rows} rows"
            self._warn(name, "broke", f"could not score {count}: {type(why).__name__}: {why}")
        if odd.any():
            self._warn(
                name, "odd", f"returned NaN or infinity for {int(odd.sum())} of {rows} rows; they are not scored"
            )
        return np.where(np.isfinite(scores), scores, np.nan), broke

    def _warn(self, name: str, kind: str, message: str) -> None:
        if (name, kind) in self._said:
            return
        self._said.add((name, kind))
        from tiltmeter.encode import log_line  # an error may quote what a model wrote

        warnings.warn(f"tiltmeter: the reward {log_line(f'{name} {message}', 300)}", stacklevel=4)

    def state(self) -> dict[str, Any]:
        """What was learnt from the rows so far, of the parts too: plain data."""
        parts = {name: part.state() for name, part in self.parts.items() if isinstance(part, Made)}
        own: dict[str, Any] = self.rule.state() if isinstance(self.rule, Remembers) else {}
        return {"rule": own, "parts": {name: state for name, state in parts.items() if any(state.values())}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        if isinstance(self.rule, Remembers) and state["rule"]:
            self.rule.restore(state["rule"])
        for name, inner in state["parts"].items():
            part = self.parts.get(name)
            if not isinstance(part, Made):
                raise ValueError(f"the state is of another reward: {self.__name__} has no part {name!r} that learns")
            part.restore(inner)

    def save(self, path: str | Path) -> None:
        """Write `state` as JSON, beside a checkpoint: without it a resumed run begins to learn anew."""
        path = Path(path)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        new.write_text(json.dumps(self.state(), allow_nan=False) + "\n", encoding="ascii")
        new.replace(path)

    def load(self, path: str | Path) -> None:
        self.restore(json.loads(Path(path).read_text(encoding="ascii")))

    def __repr__(self) -> str:
        return f"<reward {self.__name__} of {', '.join(self.parts)}>" if self.parts else f"<reward {self.__name__}>"


def _steps(*sources: object) -> Sequence[Sequence[float]] | None:
    known = (source.step_reward for source in sources if isinstance(source, Stepwise))
    return next((steps for steps in known if steps is not None), None)


def heard(part: Part, rows: Rows) -> Any:
    """What a part says of the rows, which may have to be waited for; an error in each row of ours that broke."""
    given = {"completions": rows.completions, **rows.columns}
    if rows.prompts is not None:
        given["prompts"] = rows.prompts
    said = awaited(part(**given))
    said = said if hasattr(said, "__array__") else list(said)
    if not isinstance(part, Reward):
        return said
    if len(part.infra) != len(said):
        raise ValueError(f"{named(part)} scored {len(said)} rows and says of {len(part.infra)} whether they broke")
    return marked(said, part.infra)


def ask(part: Part, rows: Rows) -> Answers:
    """What a part says, as numbers with a code that says what stood there."""
    return numbers(heard(part, rows))


def marked(scores: Any, broken: Sequence[bool]) -> Any:
    """The scores with an error in place of a None that is there because something broke."""
    if not any(broken):
        return scores
    error = InfraError("could not be scored")
    rows = zip(scores, broken, strict=True)
    return [error if broke and (score is None or score != score) else score for score, broke in rows]


def awaited(said: Any) -> Any:
    """What it said, also if that has to be waited for."""
    if not inspect.isawaitable(said):
        return said

    async def waited() -> Any:
        return await said

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(waited())
    # A loop is running in this thread and cannot wait for another: give that one a thread of its own.
    told: list[Any] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            told.append(asyncio.run(waited()))
        except BaseException as error:  # noqa: BLE001  # raised again below, where it belongs
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return told[0]


def named(part: Part) -> str:
    """A part's name, as TRL finds it: of the function inside partials, or of its class."""
    while isinstance(part, partial):
        part = part.func
    return part.__name__ if hasattr(part, "__name__") else type(part).__name__


def by_name(parts: Mapping[str, Part] | Sequence[Part]) -> dict[str, Part]:
    """Parts under names that differ.

    >>> def short(completions): return [-len(text) for text in completions]
    >>> list(by_name([short, short]))
    ['short', 'short.2']
    """
    if isinstance(parts, Mapping):
        return dict(parts)
    found: dict[str, Part] = {}
    for part in parts:
        found[component_name(named(part), found)] = part
    return found


def limits(part: Part) -> Bounds:
    """Between which numbers a part's scores lie, as far as it says so."""
    return part.bounds if isinstance(part, Reward) else (None, None)


def per_row(values: object, rows: int) -> bool:
    """Whether something that a trainer handed over is a column."""
    return isinstance(values, (list, tuple, np.ndarray)) and len(values) == rows


def with_none(scores: Floats) -> Scores:
    return [None if score != score else score for score in scores.tolist()]


def alone(agree: Agree | None, what: str) -> Agree:
    """How processes agree on sums; where there is one process, they need not."""
    if agree is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise AttachError(
            f"{what} learns from the rows it sees, and each of several processes sees its own: give it agree=, a "
            "function from a list of sums to their totals over all processes, such as `lambda sums: accelerator.reduce("
            "torch.tensor(sums, dtype=torch.float64, device=accelerator.device)).tolist()`"
        )
    return list if agree is None else agree
