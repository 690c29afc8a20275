"""What `attach`, `open_run`, `capture` and every other entry point take: small frozen objects with defaults.

Where one of them is asked for, a mapping with the same keys serves too, so that a trainer's configuration, a recipe and
a `tiltmeter.toml` say the same words; and what most people name alone stands for the object: `gold="checks.py:score"`,
`act="observe"`, `traps="traps.jsonl"`, `anchors=32`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args

from tiltmeter.adapters.lost_share import MOST_LOST
from tiltmeter.errors import AttachError
from tiltmeter.gold.regrade.settings import Regrade

Mode = Literal["observe", "advise", "act"]
Limits = Mapping[str, tuple[float, float]]
Source = str | Callable[..., Any] | Regrade | None
AUTO = "auto"  # find it
TRAP_SHARE = 0.01  # of rollouts that are traps
ANCHOR_SHARE = 0.005  # of rollouts that are answers to anchors
LEAST_ANCHORS = 8  # below which a run would be judged by a handful of questions
T = TypeVar("T")


@dataclass(frozen=True)
class Gold:
    """Who says what an answer is worth, and how often they are asked.

    Args:
        source: A function, or one as `checks.py:score`; a judge's `judge.toml`; `people`, who compare answers at the
            labelling screen; `tests` or `answers`, which a row's facts hold; a `Regrade`, which runs an agent's tests
            again on its final workspace; `reward:NAME`, a reward with weight 0;
            `auto`, what is found in the dataset and the trainer; None for none.
        share: Share of the rollouts to label (1: all). Default: a function labels as many as take a second per step,
            judges and people six a step, at least 2%.
        evals: Evaluation metrics, each a mean of scores from 0 to 1, that serve as gold too. `auto` takes those that
            are shares of right answers.
        steps: Planned optimizer steps, so that labels are spent where the run seems to turn. TRL and veRL say it.
        rows: Rows of the dataset on which a function is tried before the run begins. TRL gives its own.
        prompts: What checkpoints are asked where a trainer makes no rollouts (DPO, KTO, SFT, reward models): texts,
            rows or a `.jsonl` file. Default: prompts of its dataset.
        sampling: How checkpoints are asked: `{"prompts": 128, "answers": 2, "tokens": 256, "device": "cpu"}`.

    Example:

        tiltmeter.attach(trainer, gold=tiltmeter.Gold("judge.toml", share=0.05))
    """

    source: Source = AUTO
    share: float | None = None
    evals: Sequence[str] = ()
    steps: int | None = None
    rows: Sequence[Mapping[str, Any]] = ()
    prompts: str | os.PathLike[str] | Sequence[Any] | None = None
    sampling: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Act:
    """What Tiltmeter may change in training. Without one it advises, and changes what you approve.

    Args:
        mode: `act` changes training; `advise` says what it would change; `observe` records and judges only.
        limits: Floor and ceiling of a setting that may be changed, by its name: `{"beta": (1e-6, 0.2)}`.
        target_kl: Nats per completion that the KL controller keeps to.
        screen: Which rollouts to leave out of the update: `acts`, or a function like a reward function. On from the
            start in mode `act`, otherwise proposed.
        most_lost: Share of rollouts that the screen may leave out before it ends itself.
        inoculation: Words that may be put before prompts for training alone.

    Example:

        tiltmeter.attach(trainer, act=tiltmeter.Act(limits={"beta": (1e-6, 0.2)}, target_kl=6.0))
    """

    mode: Mode = "act"
    limits: Limits | None = None
    target_kl: float | None = None
    screen: str | Callable[..., Any] | None = None
    most_lost: float = MOST_LOST
    inoculation: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise AttachError(f'mode={self.mode!r}: choose "observe", "advise" or "act"')
        if self.target_kl is not None and not self.target_kl > 0.0:
            raise AttachError(f"target_kl={self.target_kl}: give nats per completion above 0, or leave it out")

    @property
    def changes_rollouts(self) -> bool:
        """Whether it names something that acts on rollouts."""
        return self.screen is not None or self.inoculation is not None


@dataclass(frozen=True)
class Traps:
    """Tasks that only a hack can pass: asked between steps, scored, never trained on.

    Args:
        source: A file of `tiltmeter data traps`, or its rows.
        share: Share of the rollouts that are traps.

    Example:

        tiltmeter.attach(trainer, traps=tiltmeter.Traps("traps.jsonl", share=0.02))
    """

    source: Any
    share: float = TRAP_SHARE


@dataclass(frozen=True)
class Anchors:
    """Prompts that are asked again between steps, never trained on: the same questions, whatever the run comes to.

    Args:
        prompts: How many rows of the dataset, drawn before the run begins; 16 to 64 serve most.
        every: Steps from one round to the next. Default: as many as keep all answers within half a percent of the
            rollouts.
        answers: To each of them in a round.
        rows: Rows of your own instead of a draw, with the columns of the dataset.

    Example:

        tiltmeter.attach(trainer, gold="checks.py:score", anchors=tiltmeter.Anchors(prompts=32, every=10))
    """

    prompts: int = 32
    every: int | None = None
    answers: int = 2
    rows: Sequence[Mapping[str, Any]] | None = None

    def __post_init__(self) -> None:
        for name, least in (("prompts", LEAST_ANCHORS), ("answers", 1), ("every", 1)):
            value = getattr(self, name)
            if not (name == "every" and value is None) and (type(value) is not int or value < least):
                raise AttachError(f"anchors: {name}={value!r}: give a whole number of at least {least}")


@dataclass(frozen=True)
class Launch:
    """Which of the processes of one start this is. Needed only where torchrun's environment doesn't say it.

    Args:
        rank: This process, from 0.
        ranks: How many processes write.
        name: The same word on every process, new for every start.
        groups: `shared` where completions of one prompt are spread over ranks and share their group id.

    Example:

        tiltmeter.open_run("runs/tonight", launch=tiltmeter.Launch(rank, 8, os.environ["JOB_ID"]))
    """

    rank: int | None = None
    ranks: int | None = None
    name: str | None = None
    groups: Literal["rank", "shared"] = "rank"


@dataclass(frozen=True)
class Options:
    """What few runs need.

    Args:
        plugins: Your own instruments, derived readings and detectors, each as `file.py:Class`.
        experiment: Your reward function as `file.py:function`, on which the monitor tries edited completions when it
            suspects that length or a phrase is rewarded.
        on_full: `wait` slows training down rather than thinning a batch that storage has no room for.
        logprobs: How log-probabilities are stored: `fp32` (exact), `round12` or `fp16`.
        tokenizer: Of Hugging Face; its pieces let the page color the tokens of a completion. TRL and veRL give theirs.
        quiet: Print nothing but warnings.
        strict: Raise what would otherwise be counted.

    Example:

        tiltmeter.open_run("runs/tonight", options=tiltmeter.Options(on_full="wait", strict=True))
    """

    plugins: Sequence[str] = ()
    experiment: str | None = None
    on_full: Literal["thin", "wait"] = "thin"
    logprobs: str = "fp32"
    tokenizer: Any = None
    quiet: bool = False
    strict: bool = False


def read_gold(gold: Gold | Mapping[str, Any] | Source) -> Gold:
    """
    >>> read_gold("people"), read_gold({"source": "judge.toml", "share": 0.05}).share
    (Gold(source='people', share=None, evals=(), steps=None, rows=(), prompts=None, sampling=None), 0.05)
    """
    return gold if isinstance(gold, Gold) else _read("gold", Gold, gold, "source")


def read_act(act: Act | Mapping[str, Any] | str | None) -> Act:
    """None advises.

    >>> read_act(None).mode, read_act("observe").mode, read_act({"target_kl": 6.0}).mode
    ('advise', 'observe', 'act')
    """
    return act if isinstance(act, Act) else _read("act", Act, "advise" if act is None else act, "mode")


def read_traps(traps: Any) -> Traps | None:
    """
    >>> read_traps(None), read_traps("traps.jsonl")
    (None, Traps(source='traps.jsonl', share=0.01))
    """
    return traps if traps is None or isinstance(traps, Traps) else _read("traps", Traps, traps, "source")


def read_anchors(anchors: Any) -> Anchors | None:
    """
    >>> read_anchors(None), read_anchors(16), read_anchors({"every": 10}).every
    (None, Anchors(prompts=16, every=None, answers=2, rows=None), 10)
    """
    return anchors if anchors is None or isinstance(anchors, Anchors) else _read("anchors", Anchors, anchors, "prompts")


def read_launch(launch: Launch | Mapping[str, Any] | str | None) -> Launch:
    return launch if isinstance(launch, Launch) else _read("launch", Launch, launch, "name")


def read_options(options: Options | Mapping[str, Any] | None) -> Options:
    """
    >>> read_options({"plug_ins": []})
    Traceback (most recent call last):
    tiltmeter.errors.AttachError: options has no 'plug_ins'; did you mean plugins?
    """
    return options if isinstance(options, Options) else _read("options", Options, {} if options is None else options)


def nearest_name(name: str, among: Sequence[str]) -> str:
    """What to say of a name that is unknown.

    >>> nearest_name("slice", ["slices", "gold"]), nearest_name("beta", ["slices", "gold"])
    ('did you mean slices?', 'choose from slices, gold')
    """
    close = get_close_matches(name, among, 1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(among)}"


def _read(name: str, kind: type[T], value: Any, alone: str = "") -> T:
    """An object of what a configuration says: its fields by name, or the one that is mostly named alone."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(value, Mapping) and not hasattr(value, "items"):
        if not alone:
            raise AttachError(f"{name}={value!r}: pass tiltmeter.{kind.__name__}({', '.join(names)}), or those by name")
        return kind(**{alone: value})
    settings = dict(value)  # an OmegaConf is no Mapping
    if unknown := [key for key in settings if key not in names]:
        raise AttachError(f"{name} has no {unknown[0]!r}; {nearest_name(str(unknown[0]), names)}")
    try:
        return kind(**settings)
    except TypeError as error:
        raise AttachError(f"{name}: {error}; it may have {', '.join(names)}") from error
