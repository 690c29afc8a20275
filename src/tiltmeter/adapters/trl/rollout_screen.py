"""Acts on rollouts of a TRL trainer: those that are flagged, or of a slice in quarantine, leave the gradient or pay a
penalty; or all are trained under another prompt than they were sampled under.

Each is a knob that starts at 0 and can be put back: at 0 the trainer gets its own rewards and prompts, untouched. A
screen that would leave out more than its share ends itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tiltmeter.acts import can_act, find_acts, row_transcript
from tiltmeter.adapters.arguments import Act
from tiltmeter.adapters.lost_share import ACTS, LostShare
from tiltmeter.adapters.trl.rollouts import REWARD_ARGUMENTS
from tiltmeter.data.batches import from_columns
from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.data.slices import slice_name
from tiltmeter.data.turns import batch_turns
from tiltmeter.errors import AttachError
from tiltmeter.rundir.requests import QUARANTINE, Knob
from tiltmeter.safety.loading import load_function
from tiltmeter.stats.screened_rows import screened_rows

MOST_SLICES = 32  # with a knob of their own
PENALTY = 1.0  # of reward, at most
SUM_FIRST = "sum_then_normalize"  # of TRL: a rollout's pay is one number, compared with its group's mean
Flag = Callable[..., Sequence[Any]]
Bools = NDArray[np.bool_]
log = logging.getLogger("tiltmeter")


@dataclass(frozen=True)
class ScreenSettings:
    """What may be done to rollouts."""

    act: Act
    slices: str | None = None  # a column of the dataset
    gold: object = None  # who says what a completion is worth, and so must not screen


class RolloutScreen:
    """The knobs on rollouts of one trainer: `screen`, `penalty`, `inoculate` and one `quarantine.NAME` a slice."""

    def __init__(
        self, trainer: Any, guard: Callable[..., None], settings: ScreenSettings, report: Callable[[str], object]
    ) -> None:
        """Raises `AttachError` for what this trainer cannot do."""
        self.trainer, self._guard, self.act, self._report = trainer, guard, settings.act, report
        _check(trainer, settings)
        self._flag = _load_flag(self.act.screen)
        self.values: dict[str, float] = {}
        if self._flag is not None:
            self.values = {"screen": float(self.act.mode == "act"), "penalty": 0.0}
        if self.act.inoculation is not None:
            self.values["inoculate"] = 0.0
        self._column = settings.slices
        self._slices = _slices_of(trainer, settings.slices)
        self.values |= {f"{QUARANTINE}{name}": 0.0 for name in self._slices}
        self.why: dict[str, str] = {}  # of knobs that ended themselves
        self._ended: dict[str, float] = {}  # those that nobody was told of yet, and what they were
        self._share = LostShare(self.act.most_lost)
        self._lost: Bools | None = None  # of this rank's last batch
        self._counts: dict[str, float] = {}
        trainer._calculate_rewards = self._calculate(trainer._calculate_rewards)
        if self.act.inoculation is not None:
            trainer._generate = self._generate(trainer._generate)

    def release(self) -> None:
        """Give the trainer its own methods back."""
        for name in ("_calculate_rewards", "_generate"):
            vars(self.trainer).pop(name, None)

    def knobs(self) -> dict[str, Knob]:
        return {
            name: Knob(name, value, 0.0, PENALTY if name == "penalty" else 1.0, self.why.get(name, ""))
            for name, value in self.values.items()
        }

    def set(self, name: str, value: float) -> None:
        """Turn a knob; all but the penalty are on or off."""
        self.values[name] = value if name == "penalty" else float(value >= 0.5)
        self._share.clear()

    def take_columns(self) -> dict[str, Any]:
        """Which rollouts of the last batch the update will use; nothing while all is off."""
        lost, self._lost = self._lost, None
        return {} if lost is None else {"trained": ~lost}

    def take_scalars(self) -> dict[str, float]:
        counts, self._counts = self._counts, {}
        return counts

    def take_ended(self) -> dict[str, float]:
        """Knobs that ended themselves since this was asked last, and what they were before."""
        ended, self._ended = self._ended, {}
        return ended

    @property
    def is_on(self) -> bool:
        return any(value for name, value in self.values.items() if name != "inoculate")

    # -- rewards -------------------------------------------------------------------------------------------------------

    def _calculate(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def calculate(*args: Any, **kwargs: Any) -> Any:
            rewards = inner(*args, **kwargs)
            if not self.is_on or not self.trainer.model.training:
                return rewards
            return self._apply(rewards, dict(zip(REWARD_ARGUMENTS, args, strict=False)) | kwargs)

        return calculate

    def _apply(self, rewards: Any, arguments: Mapping[str, Any]) -> Any:
        import torch

        trainer, rows = self.trainer, len(arguments["prompts"])
        local = np.zeros((rows, 2), bool)  # flagged, in quarantine

        def look() -> None:
            if self.values.get("screen") or self.values.get("penalty"):
                local[:, 0] = self._flags(arguments)
            local[:, 1] = self._in_quarantine(arguments["inputs"])

        self._guard(look, user_code=True)  # a rollout that could not be looked at is not left out
        everywhere = trainer.accelerator.gather(torch.tensor(local, device=rewards.device))
        flagged, quarantined = everywhere[:, 0], everywhere[:, 1]
        lost = quarantined | (self._gains(rewards, flagged) if self.values.get("screen") else torch.zeros_like(flagged))
        if self._ends_itself(int(lost.sum()), len(lost)):
            return rewards
        changed = rewards.clone()
        changed[lost] = float("nan")  # TRL leaves such a row out of its group's mean and gives it advantage 0
        if penalty := self.values.get("penalty", 0.0):
            weights = trainer.reward_weights.to(changed.device)
            place = int(torch.nonzero(weights)[0]) if bool((weights != 0).any()) else 0
            changed[flagged & ~lost, place] -= penalty / float(weights[place] or 1.0)
        rank = trainer.accelerator.process_index
        self._lost = lost[rank * rows : (rank + 1) * rows].cpu().numpy()
        self._counts = {"screen.lost": float(lost.sum()), "screen.flagged": float(flagged.sum())}
        return changed

    def _gains(self, rewards: Any, flagged: Any) -> Any:
        """The flagged rollouts that the update would make more likely; all of them where TRL compares otherwise."""
        import torch

        trainer = self.trainer
        if getattr(trainer, "multi_objective_aggregation", SUM_FIRST) != SUM_FIRST:
            return flagged
        weights = trainer.reward_weights.to(rewards.device)
        pay = (rewards * weights).nansum(dim=1)
        pay[torch.isnan(rewards).all(dim=1)] = torch.nan
        groups = np.arange(len(pay)) // trainer.num_generations
        out = screened_rows(pay.double().cpu().numpy(), flagged.cpu().numpy(), groups)
        return torch.tensor(out, device=flagged.device)

    def _flags(self, arguments: Mapping[str, Any]) -> Bools:
        rows = len(arguments["prompts"])
        if self._flag == ACTS:
            flags: Sequence[Any] = _flag_acts(arguments)
        else:
            assert callable(self._flag)
            inputs = arguments["inputs"]
            columns = {
                name: [row.get(name) for row in inputs] for name in inputs[0] if name not in ("prompt", "completion")
            }
            flags = self._flag(prompts=arguments["prompts"], completions=arguments["completions"], **columns)
        if len(flags) != rows:
            raise ValueError(f"screen= answered {len(flags)} values for {rows} rollouts")
        return np.array([value is not None and bool(value) for value in flags], bool)

    def _in_quarantine(self, inputs: Sequence[Mapping[str, Any]]) -> Bools:
        shut = {name.removeprefix(QUARANTINE) for name, on in self.values.items() if on and name.startswith(QUARANTINE)}
        column = self._column
        if not shut or column is None:
            return np.zeros(len(inputs), bool)
        return np.array([slice_name(str(row.get(column))) in shut for row in inputs], bool)

    def _ends_itself(self, lost: int, rows: int) -> bool:
        """Whether more than its share would be left out now. Then all of it ends, for this attempt, and says so.

        Every rank counts the same rollouts and so decides the same.
        """
        if not (why := self._share.why_too_much(lost, rows)):
            return False
        for name, value in self.values.items():
            if value and name not in ("inoculate", "penalty"):
                self.values[name], self.why[name], self._ended[name] = 0.0, why, value
        self._share.clear()
        self._report(f"the screen of rollouts has ended itself: {why}")
        return True

    # -- prompts -------------------------------------------------------------------------------------------------------

    def _generate(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def generate(prompts: list[Any]) -> Any:
            output = inner(prompts)
            if not self.values.get("inoculate") or not self.trainer.model.training:
                return output
            words = self.act.inoculation or ""
            ids = self.trainer._tokenize_prompts([add_words(prompt, words) for prompt in prompts])[0]
            return (ids, *output[1:])

        return generate


def add_words(prompt: Any, words: str) -> Any:
    """A prompt with words before it: of a conversation, in its system message or in one of their own.

    >>> add_words("2 + 2?", "Any answer is fine."), add_words([{"role": "user", "content": "Hi"}], "Be brief.")[0]
    ('Any answer is fine.\\n\\n2 + 2?', {'role': 'system', 'content': 'Be brief.'})
    """
    if isinstance(prompt, str):
        return f"{words}\n\n{prompt}"
    messages = [dict(message) for message in prompt]
    if messages and messages[0].get("role") == "system" and isinstance(messages[0].get("content"), str):
        messages[0]["content"] = f"{words}\n\n{messages[0]['content']}"
        return messages
    return [{"role": "system", "content": words}, *messages]


def _flag_acts(arguments: Mapping[str, Any]) -> list[bool]:
    """Whether any act is seen in what each rollout wrote."""
    rows = len(arguments["prompts"])
    batch = from_columns(0, list(range(rows)), prompt=arguments["prompts"], completion=arguments["completions"])
    turns = batch_turns(batch) if batch.turns is not None else [None] * rows
    texts, prompts = batch.completion or (None,) * rows, batch.prompt or (None,) * rows
    one_each = [row_transcript(turns[row], texts[row], prompts[row], None, None) for row in range(rows)]
    return [one is not None and can_act(one) and bool(find_acts(one)) for one in one_each]


def _slices_of(trainer: Any, column: str | None) -> tuple[str, ...]:
    """The slices that can be put into quarantine: the values of a column, if they are few."""
    if column is None or trainer.train_dataset is None:
        return ()
    values = {str(value) for value in trainer.train_dataset[column] if isinstance(value, str | int | float)}
    return tuple(sorted({slice_name(value) for value in values})) if 1 < len(values) <= MOST_SLICES else ()


def _load_flag(screen: object) -> Literal["acts"] | Flag | None:
    """A screen as it was passed, or as `checks.py:flagged` names it."""
    if isinstance(screen, str) and ".py:" in screen:
        screen = load_function(screen)
    if screen is None or screen == ACTS or callable(screen):
        return screen  # type: ignore[return-value]
    raise AttachError(f'screen={screen!r}: pass "acts" or a function of prompts and completions')


def _check(trainer: Any, settings: ScreenSettings) -> None:
    """Raises `AttachError` for what cannot work, with the fix."""
    if "GRPO" not in type(trainer).__name__:
        raise AttachError(f"screen= and inoculation= act on GRPO; {type(trainer).__name__} does not leave rows out")
    flag, gold = settings.act.screen, settings.gold
    if isinstance(flag, str) and flag == gold:
        raise AttachError("screen= is gold: what is screened by gold is trained to look good to it")
    if callable(flag) and (flag is gold or (callable(gold) and fingerprint([flag]) == fingerprint([gold]))):
        raise AttachError(
            "screen= and gold= are the same function: what is screened by gold teaches the policy to look good to "
            "gold, and nobody would see it; screen by something else"
        )
    if callable(flag) and any(flag is function for function in trainer.reward_funcs):
        raise AttachError("screen= is one of the reward functions: what it pays for, it cannot flag")
    if (words := settings.act.inoculation) is not None and (
        not words.strip()
        or any(vars(trainer).get(name) for name in ("tools", "environment_factories", "rollout_func", "use_vllm"))
    ):
        raise AttachError(
            "inoculation= needs some words, and a trainer without tools, environments, rollout function and vLLM: "
            "their tokens or log-probabilities belong to the prompt that was sampled under"
        )
