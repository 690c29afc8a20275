"""What TRL's on-policy trainers generate, step by step: three methods of one trainer instance, listened to.

The methods are private names of TRL, so `attach` uses this file only on versions it was tested with. Nothing is
computed here that training would feel: tensors are kept by reference and become columns once their step is over. TRL
shuffles a generated batch before it is used, so log-probabilities are matched to rows by their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tiltmeter.adapters.trl_parts import described
from tiltmeter.adapters.trl_pinned import Pinning
from tiltmeter.batches import component_name, from_tensor
from tiltmeter.fingerprint import fingerprint

#: Methods of the trainer that are listened to. All trainers that have them are handled alike: GRPO, RLOO, and
#: Unsloth's patched ones.
LISTENED = ("_generate_and_score_completions", "_calculate_rewards", "_get_per_token_logps_and_entropies")

#: What the rewards are calculated from, in the order in which TRL passes it.
SCORED = ("inputs", "prompts", "completions", "completion_ids_list")

#: TRL's own columns of a dataset row, which are not facts about it.
_NOT_FACTS = ("prompt", "completion", "completion_ids", "image", "images")


class Boundary(Protocol):
    """Runs what must not end training; `batch`: rollouts are lost with it."""

    def __call__(self, work: Callable[[], None], *, batch: bool = False) -> None: ...


@dataclass(eq=False)
class Generation:
    """One generated batch of this rank, in the order in which TRL made it: rows of a group together."""

    step: int  # the optimiser step that first uses it
    columns: dict[str, Any]
    keys: list[bytes]  # the tokens of each row, prompt included
    sampled: bool  # the policy's log-probabilities at sampling time came with it
    seen: list[tuple[Any, Any, Any]] = field(default_factory=list)  # input ids, log-probabilities, entropies
    scalars: dict[str, float] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every row has been through the loss once."""
        return sum(len(ids) for ids, _, _ in self.seen) >= len(self.keys)

    def finished(self) -> dict[str, Any]:
        """The columns of `observe`, with log-probabilities and entropies wherever they came."""
        rows = {key: row for row, key in reversed(list(enumerate(self.keys)))}
        tokens = self.columns["tokens"]
        found: dict[str, Any] = {"logprob": np.full(tokens.shape, np.nan, np.float32)}
        found["entropy"] = found["logprob"].copy()
        known = np.zeros(len(self.keys), bool)
        for ids, logprobs, entropies in self.seen:
            told = {"logprob": from_tensor(logprobs), "entropy": from_tensor(entropies)}
            for position, key in enumerate(_keys(from_tensor(ids))):
                row = rows.get(key)
                if row is not None and not known[row]:
                    known[row] = True
                    for name, values in told.items():
                        found[name][row] = values[position]
        # Two rows of a prompt with the same tokens have the same values.
        for row, key in enumerate(self.keys):
            if not known[row] and known[rows[key]]:
                known[row] = True
                for column in found.values():
                    column[row] = column[rows[key]]
        if not known.all():
            found = {}
        if self.sampled:
            found.pop("logprob", None)
        return {**self.columns, **found, "step": self.step, "scalars": self.scalars}


class Rollouts:
    """Listens to one trainer and gives its generations, each once, when it will not change any more."""

    def __init__(self, trainer: Any, boundary: Boundary) -> None:
        self.trainer, self._boundary = trainer, boundary
        self.pending: list[Generation] = []
        self.pinning = Pinning()
        self._scored: tuple[Any, ...] | None = None
        self._without_loss: Any = None  # log-probabilities that were scored last while generating
        self._mark: tuple[object, str] = (None, "")
        for name in LISTENED:
            setattr(trainer, name, getattr(self, name)(getattr(trainer, name)))

    def release(self) -> None:
        """Give the trainer its own methods back."""
        for name in LISTENED:
            vars(self.trainer).pop(name, None)

    def ready(self, *, all_of_them: bool = False) -> list[Generation]:
        """Generations whose step is over, oldest first; they are forgotten here."""
        now = self.trainer.state.global_step
        newest = self.pending[-1] if self.pending else None
        done = [
            item for item in self.pending if all_of_them or (item.step <= now and (item.complete or item is not newest))
        ]
        self.pending = [item for item in self.pending if item not in done]
        return done

    def _generate_and_score_completions(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def generate(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self._scored = self._without_loss = None
            output = inner(inputs, *args, **kwargs)
            if self.trainer.model.training:
                self._boundary(lambda: self._take(inputs, output), batch=True)
            elif self.trainer.accelerator.process_index == 0:
                self._boundary(self._pin)
            return output

        return generate

    def _calculate_rewards(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def calculate(*args: Any, **kwargs: Any) -> Any:
            rewards = inner(*args, **kwargs)
            self._scored = (args, kwargs, rewards)
            return rewards

        return calculate

    def _get_per_token_logps_and_entropies(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def score(model: Any, input_ids: Any, *args: Any, **kwargs: Any) -> Any:
            output = inner(model, input_ids, *args, **kwargs)
            # Only the loss asks for entropies; the reference and the sampling policy are scored without.
            if not kwargs.get("compute_entropy"):
                self._without_loss = output[0]
            elif self.trainer.model.training:
                self._boundary(lambda: self._hear(input_ids, output))
            return output

        return score

    def _hear(self, input_ids: Any, output: Any) -> None:
        logprobs, entropies = output[0].detach(), output[1].detach()
        # TRL uses up a generation before it makes the next, so what is scored belongs to the newest.
        if self.pending and not self.pending[-1].complete:
            self.pending[-1].seen.append((input_ids, logprobs, entropies))

    def _pin(self) -> None:
        """Rows of an evaluation, of which a few are kept to be shown; none of them is a training rollout."""
        (prompts, completions, _), rewards = self._just_scored()

        def total() -> Any:
            told = _total(self.trainer, from_tensor(rewards)[: len(prompts)].astype(np.float64))
            return [None] * len(prompts) if told is None else told

        self.pinning.hear(self.trainer.state.global_step, prompts, completions, total)

    def _just_scored(self) -> tuple[list[Any], Any]:
        """Prompts, completions and their tokens as the rewards were calculated from, and the rewards of all ranks."""
        if self._scored is None:
            raise RuntimeError("TRL generated a batch without calculating its rewards")
        args, kwargs, rewards = self._scored
        self._scored = None
        given = dict(zip(SCORED, args, strict=False)) | kwargs
        return [given[name] for name in SCORED[1:]], rewards

    def _take(self, inputs: Any, output: Mapping[str, Any]) -> None:
        (prompts, completions, completion_ids), rewards = self._just_scored()
        trainer = self.trainer
        rows, rank = len(prompts), trainer.accelerator.process_index
        step = trainer.state.global_step + 1
        before = sum(len(item.keys) for item in self.pending if item.step == step) * trainer.accelerator.num_processes
        number = before + rank * rows + np.arange(rows)
        tokens = from_tensor(output["completion_ids"])
        lengths = np.array([len(ids) for ids in completion_ids])
        told = from_tensor(rewards)[rank * rows : (rank + 1) * rows].astype(np.float64)
        ends = {*trainer.eos_token_ids, trainer._tokenizer.pad_token_id}
        columns: dict[str, Any] = {
            "group": number // trainer.num_generations,
            "reward": _total(trainer, told),
            "rewards": {name: _with_none(told[:, k]) for k, name in enumerate(distinct(trainer.reward_func_names))},
            "advantage": from_tensor(output["advantages"]),
            "prompt": prompts,
            "completion": completions,
            "facts": [{k: v for k, v in row.items() if k not in _NOT_FACTS} for row in inputs],
            "length": lengths,
            "truncated": np.array([not ids or ids[-1] not in ends for ids in completion_ids]),
            "tokens": tokens,
            "fingerprint": self._fingerprint(),
        }
        self._boundary(lambda: columns.update(described(trainer.reward_funcs, columns)))
        for name, source in (
            ("logprob", "old_per_token_logps"),
            ("ref_logprob", "ref_per_token_logps"),
            ("engine_logprob", "sampling_per_token_logps"),
        ):
            if source in output:
                columns[name] = from_tensor(output[source])
        if trainer.beta != 0.0 and "ref_logprob" not in columns and self._without_loss is not None:
            columns["ref_logprob"] = from_tensor(self._without_loss)  # RLOO scores its reference last and keeps it
        keys = _keys(np.concatenate([from_tensor(output["prompt_ids"]), tokens], axis=1))
        self.pending.append(Generation(step, columns, keys, "logprob" in columns, scalars=_settings(trainer)))

    def _fingerprint(self) -> str:
        """The reward as it is now: names, and a digest that another function or weight changes."""
        trainer = self.trainer
        weights = trainer.reward_weights.tolist()
        known: object = (tuple(map(id, trainer.reward_funcs)), tuple(weights))
        if self._mark[0] != known:
            named = " + ".join(trainer.reward_func_names)
            self._mark = (known, f"{named} {fingerprint(trainer.reward_funcs, weights)}")
        return self._mark[1]


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several generations of one step as one batch; a column that one of them lacks is absent."""
    shared = [name for name in parts[0] if all(name in part for part in parts)]
    columns: dict[str, Any] = {}
    width = max(part["tokens"].shape[1] for part in parts) if "tokens" in shared else 0
    for name in shared:
        values = [part[name] for part in parts]
        if name in ("step", "fingerprint"):
            columns[name] = values[0]
        elif name == "scalars":
            columns[name] = {key: value for told in values for key, value in told.items()}
        elif name == "rewards":
            known = [key for key in values[0] if all(key in part for part in values)]
            columns[name] = {key: _end_to_end([part[key] for part in values]) for key in known}
        elif isinstance(values[0], np.ndarray) and values[0].ndim == 2:
            padded = [np.pad(value, ((0, 0), (0, width - value.shape[1]))) for value in values]
            columns[name] = np.concatenate(padded)
        else:
            columns[name] = _end_to_end(values)
    return columns


def _end_to_end(values: Sequence[Any]) -> Any:
    if all(isinstance(value, np.ndarray) for value in values):
        return np.concatenate(values)
    return [item for value in values for item in value]


def distinct(names: Iterable[str]) -> list[str]:
    """Names of reward functions as readings and knobs carry them; TRL lets two functions share one.

    >>> distinct(["right", "right", "<lambda>"])
    ['right', 'right.2', '_lambda_.a153']
    """
    found: dict[str, None] = {}
    for name in names:
        found[component_name(name, taken=found)] = None
    return list(found)


def _total(trainer: Any, told: Any) -> Any:
    """What TRL optimises: the weighted sum over functions that answered; None where none did."""
    if told.shape[1] == 0:
        return None
    total = np.nansum(told * from_tensor(trainer.reward_weights)[None, :], axis=1)
    clip = vars(trainer).get("reward_clip_range")  # RLOO alone has one
    if clip:
        total = np.clip(total, clip[0], clip[1])
    return _with_none(np.where(np.isnan(told).all(axis=1), np.nan, total))


def _with_none(values: Any) -> Any:
    """TRL turns None into NaN; a row without an answer is `missing`, which is another thing than a reward of NaN."""
    odd = np.isnan(values)
    return [None if is_odd else value for value, is_odd in zip(values, odd, strict=True)] if odd.any() else values


def _settings(trainer: Any) -> dict[str, float]:
    """The knobs in force; what the trainer logs joins them when it comes."""
    found = {"beta": float(trainer.beta)}
    if "entropy_coef" in vars(trainer):
        found["entropy_coef"] = float(trainer.entropy_coef)
    return found


def _keys(tokens: Any) -> list[bytes]:
    rows = np.ascontiguousarray(tokens, np.int64)
    return [row.tobytes() for row in rows]
