"""TRL's asynchronous trainer with a worker that needs no server, as its own tests run it. Its attention is a kernel for
GPUs, in whose place stands the same function in plain torch, and nobody asks CUDA how fast it is; the rest is TRL's."""

from __future__ import annotations

import hashlib
import math
import os
import queue
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tiltmeter
from tiltmeter.adapters.trl.async_rollouts import AsyncRollouts, WatchedQueue
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import decode_turns
from tiltmeter.errors import AttachError
from tiltmeter.rundir.store import RunDirectory

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # read once, where TRL's experiments are imported
Make = Callable[..., Any]

STEPS, BATCH, GENERATIONS, MAX_STALENESS = 6, 6, 4, 2
CALL = {"type": "function", "function": {"name": "bash", "arguments": {"cmd": "rm -r tests"}}}
PROMPT = [{"role": "user", "content": "Mend it."}]


def attention(
    q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, *_: Any, softmax_scale: Any, causal: bool, **__: Any
) -> Any:
    """What the kernel does: each segment sees its own path, the last key with the last query."""
    import torch

    parts = []
    for index in range(len(cu_q) - 1):
        a, b, c, d = (int(cu[index + end]) for cu in (cu_q, cu_k) for end in (0, 1))
        mask = torch.ones(b - a, d - c, dtype=torch.bool).tril(d - c - (b - a))
        rows = (part.transpose(0, 1)[None] for part in (q[a:b], k[c:d], v[c:d]))
        attend = torch.nn.functional.scaled_dot_product_attention
        parts.append(attend(*rows, attn_mask=mask, scale=softmax_scale)[0].transpose(0, 1))
    return torch.cat(parts)


def sample(group: int, member: int, version: int, *, rows: int = 1, metrics: Any = None) -> list[Any]:
    """The rows of one conversation: a call, its answer and a claim; in two rows where the template rewrote the past."""
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    completion = [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "name": "bash", "content": "removed"},
        {"role": "assistant", "content": f"All tests pass {member % 3}."},
    ]
    ids, mask = [3, 4, 5, 6 + member % 3, 9, 10, 11, 12 + group % 4, 16], [0, 0, 0, 1, 1, 0, 0, 1, 1]
    sequences = [(ids, mask)] if rows == 1 else [(ids[:5], mask[:5]), ([3, 4, 17, *ids[5:]], [0, 0, 0, *mask[5:]])]
    return [
        RolloutSample(
            prompt=PROMPT, completion=completion, input_ids=np.array(tokens), completion_mask=np.array(own),
            old_log_probs=np.where(np.array(own) == 1, -0.5, 0.0).astype(np.float32), advantage=float(member - 1.5),
            model_version=version, group_id=group,
            metrics=dict(metrics or {"reward": float(member), "reward_std": 1.0, "rewards/tests": float(member)}),
        )
        for tokens, own in sequences
    ]  # fmt: skip


class Worker:
    """Fills its queue with groups when the weights change; the first samples after a while are older than allowed."""

    def __init__(self) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.version, self.group, self.made = 0, 0, 0

    def fill(self) -> None:
        self.metrics_queue.put({"rollout/fork_frac": (1.0, 4.0), "tools/call_frequency": 1.0})
        for _ in range(3):
            old = max(self.version - MAX_STALENESS - 1, 0) if self.group % 4 == 3 else self.version
            for member in range(GENERATIONS):
                metrics = {"reward": math.nan, "rewards/tests": math.nan} if member == 0 and self.group == 1 else None
                for row in sample(self.group, member, old, rows=1 + (member == 2), metrics=metrics):
                    self.rollout_buffer.put(row)
                    self.made += 1
            self.group += 1

    def start(self) -> None:
        self.fill()

    def update_model_version(self, version: int) -> None:
        self.version = version
        self.fill()

    def stop(self) -> None: ...

    def check_health(self, stale_after_s: float) -> None:
        raise RuntimeError("the queue ran dry")


class NoTransfer:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


@pytest.fixture
def make(tiny_model: Path, tmp_path: Path, their_warnings: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(packing, "_flash_attn", lambda: SimpleNamespace(flash_attn_varlen_func=attention))

    monkeypatch.setattr(async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)  # it asks CUDA

    def build(name: str = "out") -> Any:
        config = AsyncGRPOConfig(
            output_dir=str(tmp_path / name), per_device_train_batch_size=BATCH, gradient_accumulation_steps=1, seed=1,
            num_generations=GENERATIONS, max_steps=STEPS, logging_steps=1, report_to="none", use_cpu=True, bf16=False,
            learning_rate=1e-3, gradient_checkpointing=False, save_strategy="no", disable_tqdm=True, token_budget=0,
            max_staleness=MAX_STALENESS, weight_sync_steps=1,
        )  # fmt: skip
        return AsyncGRPOTrainer(
            model=str(tiny_model), args=config, train_dataset=Dataset.from_list([{"prompt": PROMPT}] * 8),
            processing_class=AutoTokenizer.from_pretrained(tiny_model), rollout_worker=Worker(),
            weight_transfer=NoTransfer(),
        )  # fmt: skip

    yield build


def watch(trainer: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        return tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True), **options)


def stored(run: Any) -> list[RolloutBatch]:
    directory = RunDirectory(run.directory)
    return [directory.read(file)[0] for file in directory.files(0)]


def parameters(trainer: Any) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def test_every_sample_is_seen_once_drops_are_counted_and_training_does_not_change(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = make("plain")
    plain.train()
    trainer = make("watched")
    checks = tmp_path / "checks.py"
    checks.write_text("def brief(prompt, completion):\n    return float('rm -r' not in completion)\n")
    inner, columns, pulled = trainer.rollout_queue, AsyncRollouts._columns, list[Any]()

    def collect(self: AsyncRollouts, rows: Any) -> Any:
        pulled.extend(rows)
        return columns(self, rows)

    monkeypatch.setattr(AsyncRollouts, "_columns", collect)
    run = watch(trainer, gold=f"{checks}:brief")
    trainer.train()
    assert parameters(plain) == parameters(trainer)
    batches = stored(run)
    assert [batch.step for batch in batches] == sorted({batch.step for batch in batches})
    assert len(pulled) == trainer.rollout_worker.made - inner.qsize()
    dropped = sum(entry.get("sample/dropped_stale_total", 0.0) for entry in trainer.state.log_history)
    dropped += sum(trainer._metrics["train"]["sample/dropped_stale_total"])  # since the last log
    assert sum(not item.trained for item in pulled) == dropped > 0
    rows = sum(len(batch) for batch in batches)
    first = [int(batch.group[0]) for batch in batches]
    assert first == sorted(first)
    # A conversation in two rows is one; a group that was cut off by the end is the only one that is not whole.
    counts = [np.unique(batch.group, return_counts=True) for batch in batches]
    whole = [int(count) for _, found in counts for count in found]
    assert whole[:-1] == [GENERATIONS] * (len(whole) - 1) and sum(whole) == rows
    assert len(pulled) in (rows + len(whole), rows + len(whole) - 1)  # one conversation of a group has two rows
    assert any(batch.trained is not None and not batch.trained.all() for batch in batches)
    for batch in batches:
        assert batch.engine_logprob is not None and (batch.engine_logprob.values == np.float32(-0.5)).all()
        assert batch.length is not None and (batch.length == 4).all() and batch.version_low is not None
        assert batch.reward is not None and batch.stop is not None and set(batch.stop) == {"length"}
        assert batch.turns is not None and batch.completion is not None and batch.prompt == ("Mend it.",) * len(batch)
        assert all('bash({"cmd": "rm -r tests"})' in (text or "") for text in batch.completion)
        assert all(
            [turn.role for turn in decode_turns(text)] == ["assistant", "tool", "assistant"] for text in batch.turns
        )
    unscored = next(batch for batch in batches if 1 in batch.group)
    assert unscored.reward is not None and np.isnan(unscored.reward).sum() == 1  # missing, and not 0
    scalars = batches[-1].scalars
    assert "kl_old_new" in scalars and "kl_ref" not in scalars and scalars["rollout/fork_frac"] == 0.25
    assert scalars["sample/staleness_max"] <= MAX_STALENESS
    run.verdict()


def test_the_queue_is_given_back_where_attach_fails(make: Make, tmp_path: Path) -> None:
    trainer = make()
    inner = trainer.rollout_queue
    (tmp_path / "file").write_text("")
    with pytest.raises(AttachError):
        watch(trainer, directory=tmp_path / "file" / "run")
    assert trainer.rollout_queue is inner


def test_what_we_get_wrong_does_not_keep_a_sample_from_the_trainer(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = make()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        run = tiltmeter.attach(trainer)
    monkeypatch.setattr(AsyncRollouts, "_pull", lambda self, sample: 1 / 0)
    trainer.train()
    assert trainer.state.global_step == STEPS and stored(run) == [] and run.counters["dropped"] > 0


def test_conversations_are_told_apart_by_what_trl_leaves_of_them() -> None:
    fake = SimpleNamespace(
        rollout_queue=queue.Queue(), rollout_worker=SimpleNamespace(), state=SimpleNamespace(global_step=1),
        model_version=0, args=SimpleNamespace(max_staleness=3, token_budget=8, max_tool_calling_iterations=None),
        eos_token_ids=[16], processing_class=SimpleNamespace(pad_token_id=0),
    )  # fmt: skip
    rollouts = AsyncRollouts(fake, lambda work, batch=False: work())
    rows = [*sample(7, 0, 0), *sample(7, 2, 0, rows=2), *sample(7, 2, 0, rows=2), *sample(7, 0, 0), *sample(8, 1, 0)]
    for row in rows:
        fake.rollout_queue._queue.put(row)
    assert isinstance(fake.rollout_queue, WatchedQueue) and fake.rollout_queue.qsize() == len(rows)
    assert [fake.rollout_queue.get(timeout=1) for _ in rows] == rows  # handed on, as it is
    assert rollouts.ready() == []  # the step is not over
    fake.state.global_step = 2
    (step,) = rollouts.ready()
    columns = step.to_columns()
    assert columns["step"] == 2 and columns["trajectory"] == [1, 2, 2, 3, 3, 4] and set(columns["group"]) == {7}
    assert columns["trained"] == [False, True, True, True, True, False]  # nine tokens, and eight are allowed
    assert set(columns["stop"]) == {"done", "length"}
    (last,) = rollouts.ready(all_of_them=True)
    assert last.to_columns()["group"] == [8] and last.step == 3
