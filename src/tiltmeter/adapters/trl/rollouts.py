"""Records the rollouts of TRL's on-policy trainers, by wrapping three methods of one trainer instance.

The methods are private in TRL, so `attach` uses this file only on versions it was tested with. Nothing expensive is
computed during a step: tensors are kept by reference and become columns once their step is over. TRL
shuffles a generated batch before it is used, so log-probabilities are matched to rows by their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tiltmeter.adapters.trl.pinned_prompts import PinnedCollector
from tiltmeter.adapters.trl.reward_mistakes import RewardErrorNotes
from tiltmeter.adapters.trl.reward_parts import reward_columns
from tiltmeter.adapters.trl.tool_rows import DecodedTurns, ToolRows, end_tokens
from tiltmeter.adapters.trl.workspaces import workspace_columns
from tiltmeter.data.batches import component_name, from_tensor
from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.gold.regrade.keep import WorkspaceKeeper

#: Methods of the trainer that are wrapped. All trainers that have them are handled alike: GRPO, RLOO, and Unsloth's
#: patched ones.
WRAPPED_METHODS = ("_generate_and_score_completions", "_calculate_rewards", "_get_per_token_logps_and_entropies")

#: The arguments of TRL's reward calculation, in order.
REWARD_ARGUMENTS = ("inputs", "prompts", "completions", "completion_ids_list")

#: TRL's own columns of a dataset row, which are not facts about it.
_NOT_FACTS = ("prompt", "completion", "completion_ids", "image", "images")


class ErrorGuard(Protocol):
    """Calls `work` and catches its errors, so that training goes on. `batch`: rollouts are lost if it fails."""

    def __call__(self, work: Callable[[], None], *, batch: bool = False) -> None: ...


@dataclass(eq=False)
class Generation:
    """One generated batch of this rank, in the order in which TRL made it: rows of a group together."""

    step: int  # the optimiser step that first uses it
    columns: dict[str, Any]
    keys: list[bytes]  # the tokens of each row, prompt included
    sampled: bool  # it has the policy's log-probabilities at sampling time
    loss_outputs: list[tuple[Any, Any, Any]] = field(default_factory=list)  # input ids, log-probabilities, entropies
    scalars: dict[str, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every row has been through the loss once."""
        return sum(len(ids) for ids, _, _ in self.loss_outputs) >= len(self.keys)

    def to_columns(self) -> dict[str, Any]:
        """The columns of `observe`, with log-probabilities and entropies where they were recorded."""
        rows = {key: row for row, key in reversed(list(enumerate(self.keys)))}
        tokens = self.columns["tokens"]
        token_columns: dict[str, Any] = {"logprob": np.full(tokens.shape, np.nan, np.float32)}
        token_columns["entropy"] = token_columns["logprob"].copy()
        filled = np.zeros(len(self.keys), bool)
        for ids, logprobs, entropies in self.loss_outputs:
            outputs = {"logprob": from_tensor(logprobs), "entropy": from_tensor(entropies)}
            for position, key in enumerate(_token_keys(from_tensor(ids))):
                row = rows.get(key)
                if row is not None and not filled[row]:
                    filled[row] = True
                    for name, values in outputs.items():
                        token_columns[name][row] = values[position]
        # Two rows of a prompt with the same tokens have the same values.
        for row, key in enumerate(self.keys):
            if not filled[row] and filled[rows[key]]:
                filled[row] = True
                for column in token_columns.values():
                    column[row] = column[rows[key]]
        if not filled.all():
            token_columns = {}
        if self.sampled:
            token_columns.pop("logprob", None)
        return {**self.columns, **token_columns, "step": self.step, "scalars": self.scalars}


class Rollouts:
    """Wraps one trainer's methods and returns each generation once, after its step is over."""

    def __init__(self, trainer: Any, guard: ErrorGuard) -> None:
        self.trainer, self._guard = trainer, guard
        self.pending: list[Generation] = []
        self.pinning = PinnedCollector()
        self._tools = ToolRows(trainer)
        self._reward_call: tuple[Any, ...] | None = None
        self._last_logprobs: Any = None  # log-probabilities that were scored last while generating
        self.more_columns: Callable[[], dict[str, Any]] | None = None  # of a batch that was acted on
        self.more_scalars: Callable[[], dict[str, float]] | None = None
        self.workspaces: WorkspaceKeeper | None = None  # of the run; None: none are graded
        self._apart = False  # what is generated now is neither a training batch nor the user's evaluation
        self._fingerprint_cache: tuple[object, str] = (None, "")
        for name in WRAPPED_METHODS:
            setattr(trainer, name, getattr(self, name)(getattr(trainer, name)))

    def release(self) -> None:
        """Restore the trainer's original methods."""
        for name in WRAPPED_METHODS:
            vars(self.trainer).pop(name, None)

    def ready(self, *, all_of_them: bool = False) -> list[Generation]:
        """Remove and return the generations whose step is over, oldest first."""
        now = self.trainer.state.global_step
        newest = self.pending[-1] if self.pending else None
        done = [
            item for item in self.pending if all_of_them or (item.step <= now and (item.complete or item is not newest))
        ]
        self.pending = [item for item in self.pending if item not in done]
        return done

    def score_apart(self, rows: list[dict[str, Any]]) -> Any:
        """Let the trainer generate and score rows of our own; the rewards of all ranks, by row and function."""
        return self.answer_apart(rows)[1]

    def answer_apart(self, rows: list[dict[str, Any]]) -> tuple[list[Any], Any]:
        """The same, with this rank's prompts, completions and tokens before it."""
        self._apart = True
        try:
            self.trainer._generate_and_score_completions(rows)
            return self._take_reward_call()
        finally:
            self._apart, self._reward_call = False, None

    def _generate_and_score_completions(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def generate(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self._reward_call = self._last_logprobs = None
            output = inner(inputs, *args, **kwargs)
            if self._apart:
                return output
            if self.trainer.model.training:
                self._guard(lambda: self._record_generation(inputs, output), batch=True)
            elif self.trainer.accelerator.process_index == 0:
                self._guard(self._pin)
            return output

        return generate

    def _calculate_rewards(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def calculate(*args: Any, **kwargs: Any) -> Any:
            prompts = kwargs.get("prompts", args[1] if len(args) > 1 else None)
            with RewardErrorNotes(self._guard, self.trainer.reward_func_names, prompts):
                rewards = inner(*args, **kwargs)
            self._reward_call = (args, kwargs, rewards)
            return rewards

        return calculate

    def _get_per_token_logps_and_entropies(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def score(model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
            output = inner(model, input_ids, *args, **kwargs)
            # Only the loss asks for entropies; the reference and the sampling policy are scored without.
            if not kwargs.get("compute_entropy"):
                self._guard(lambda: self._record_reference(output))
            elif self.trainer.model.training:
                self._guard(lambda: self._record_loss(input_ids, output))
            return output

        return score

    def _record_reference(self, output: Any) -> None:
        self._last_logprobs = output[0]

    def _record_loss(self, input_ids: Any, output: Any) -> None:
        logprobs, entropies = output[0].detach(), output[1].detach()
        # TRL uses up a generation before it makes the next, so what is scored belongs to the newest.
        if self.pending and not self.pending[-1].complete:
            self.pending[-1].loss_outputs.append((input_ids, logprobs, entropies))

    def _pin(self) -> None:
        """Keep a few rows of an evaluation for display; none of them is a training rollout."""
        (prompts, completions, _), rewards = self._take_reward_call()

        def total() -> Any:
            totals = _total(self.trainer, from_tensor(rewards)[: len(prompts)].astype(np.float64))
            return [None] * len(prompts) if totals is None else totals

        self.pinning.add_rows(self.trainer.state.global_step, prompts, completions, total)

    def _take_reward_call(self) -> tuple[list[Any], Any]:
        """The prompts, completions and tokens of the last reward calculation, and the rewards of all ranks."""
        if self._reward_call is None:
            raise RuntimeError("TRL generated a batch without calculating its rewards")
        args, kwargs, rewards = self._reward_call
        self._reward_call = None
        arguments = dict(zip(REWARD_ARGUMENTS, args, strict=False)) | kwargs
        return [arguments[name] for name in REWARD_ARGUMENTS[1:]], rewards

    def _record_generation(self, inputs: Any, output: Mapping[str, Any]) -> None:
        (prompts, completions, completion_ids), rewards = self._take_reward_call()
        trainer = self.trainer
        rows, rank = len(prompts), trainer.accelerator.process_index
        step = trainer.state.global_step + 1
        before = sum(len(item.keys) for item in self.pending if item.step == step) * trainer.accelerator.num_processes
        number = before + rank * rows + np.arange(rows)
        tokens = from_tensor(output["completion_ids"])
        lengths = np.array([len(ids) for ids in completion_ids])
        scores = from_tensor(rewards)[rank * rows : (rank + 1) * rows].astype(np.float64)
        ends = end_tokens(trainer)
        columns: dict[str, Any] = {
            "group": number // trainer.num_generations,
            "reward": _total(trainer, scores),
            "rewards": {
                name: _with_none(scores[:, k]) for k, name in enumerate(distinct_names(trainer.reward_func_names))
            },
            "advantage": _row_advantages(output),
            "prompt": prompts,
            "completion": completions,
            "facts": [{k: v for k, v in row.items() if k not in _NOT_FACTS} for row in inputs],
            "length": lengths,
            "truncated": np.array([not ids or ids[-1] not in ends for ids in completion_ids]),
            "tokens": tokens,
            "fingerprint": self._fingerprint(),
        }
        self._guard(lambda: columns.update(reward_columns(trainer.reward_funcs, columns)))
        columns |= self._tools.columns(output, completions, completion_ids)
        self._guard(lambda: columns.update(workspace_columns(trainer, inputs, self.workspaces, self._guard)))
        for name, source in (
            ("logprob", "old_per_token_logps"),
            ("ref_logprob", "ref_per_token_logps"),
            ("engine_logprob", "sampling_per_token_logps"),
        ):
            if source in output:
                columns[name] = from_tensor(output[source])
        if trainer.beta != 0.0 and "ref_logprob" not in columns and self._last_logprobs is not None:
            columns["ref_logprob"] = from_tensor(self._last_logprobs)  # RLOO scores its reference last and keeps it
        keys = _token_keys(np.concatenate([from_tensor(output["prompt_ids"]), tokens], axis=1))
        scalars = _settings(trainer)
        if self.more_columns is not None and self.more_scalars is not None:
            columns |= self.more_columns()
            scalars |= self.more_scalars()
        self.pending.append(Generation(step, columns, keys, "logprob" in columns, scalars=scalars))

    def _fingerprint(self) -> str:
        """Names of the reward functions, and a digest of their code and weights."""
        trainer = self.trainer
        weights = trainer.reward_weights.tolist()
        key: object = (tuple(map(id, trainer.reward_funcs)), tuple(weights))
        if self._fingerprint_cache[0] != key:
            named = " + ".join(trainer.reward_func_names)
            self._fingerprint_cache = (key, f"{named} {fingerprint(trainer.reward_funcs, weights)}")
        return self._fingerprint_cache[1]


def concatenate_generations(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Concatenate several generations of one step; a column that one of them lacks is absent."""
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    columns: dict[str, Any] = {}
    width = max(part["tokens"].shape[1] for part in parts) if "tokens" in shared else 0
    for name in shared:
        values = [part[name] for part in parts]
        if name in ("step", "fingerprint"):
            columns[name] = values[0]
        elif name == "scalars":
            columns[name] = {key: value for scalars in values for key, value in scalars.items()}
        elif name == "rewards":
            part_names = [key for key in values[0] if all(key in part for part in values)]
            columns[name] = {key: _concatenate([part[key] for part in values]) for key in part_names}
        elif isinstance(values[0], np.ndarray) and values[0].ndim == 2:
            padded = [np.pad(value, ((0, 0), (0, width - value.shape[1]))) for value in values]
            columns[name] = np.concatenate(padded)
        else:
            columns[name] = _concatenate(values)
    return columns


def _concatenate(values: Sequence[Any]) -> Any:
    if all(isinstance(value, np.ndarray) for value in values):
        return np.concatenate(values)
    if all(isinstance(value, DecodedTurns) for value in values):
        return DecodedTurns.joined(values)
    return [item for value in values for item in value]


def distinct_names(names: Iterable[str]) -> list[str]:
    """Unique, valid names of reward functions for readings and knobs; in TRL two functions may share a name.

    >>> distinct_names(["right", "right", "<lambda>"])
    ['right', 'right.2', '_lambda_.a153']
    """
    unique: dict[str, None] = {}
    for name in names:
        unique[component_name(name, existing=unique)] = None
    return list(unique)


def _total(trainer: Any, scores: Any) -> Any:
    """The reward that TRL optimises: the weighted sum over functions that returned a score; None where none did."""
    if scores.shape[1] == 0:
        return None
    total = np.nansum(scores * from_tensor(trainer.reward_weights)[None, :], axis=1)
    clip = vars(trainer).get("reward_clip_range")  # RLOO alone has one
    if clip:
        total = np.clip(total, clip[0], clip[1])
    return _with_none(np.where(np.isnan(scores).all(axis=1), np.nan, total))


def _row_advantages(output: Mapping[str, Any]) -> Any:
    """The advantage of each answer; where tokens have their own (`step_trainers.py`), their mean over the answer."""
    advantages = from_tensor(output["advantages"])
    steps = from_tensor(output["step_credit"]) if "step_credit" in output else None
    if advantages.ndim == 1 and steps is None:
        return advantages
    mask = from_tensor(output["completion_mask"]).astype(np.float64)
    by_token = advantages if advantages.ndim == 2 else advantages[:, None]
    total = ((by_token if steps is None else by_token + steps) * mask).sum(1)
    return total / np.maximum(mask.sum(1), 1.0)


def _with_none(values: Any) -> Any:
    """Undo TRL's conversion of None to NaN: a row without a score is `missing`, which differs from a reward of NaN."""
    odd = np.isnan(values)
    return [None if is_odd else value for value, is_odd in zip(values, odd, strict=True)] if odd.any() else values


def _settings(trainer: Any) -> dict[str, float]:
    """The current knob values; logged metrics are added later."""
    settings = {"beta": float(trainer.beta)}
    if "entropy_coef" in vars(trainer):
        settings["entropy_coef"] = float(trainer.entropy_coef)
    return settings


def _token_keys(tokens: Any) -> list[bytes]:
    rows = np.ascontiguousarray(tokens, np.int64)
    return [row.tobytes() for row in rows]
