"""One rank of a TRL run on several processes, as a program: `torchrun --nproc_per_node=2 trl_ranks.py MODEL FOLDER`.

Trains once without Tiltmeter and once in each situation of `SITUATIONS`, one after the other in the same processes, and
writes what this rank saw to `FOLDER/RANK.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import tiltmeter
from tiltmeter import rewards
from tiltmeter.adapters import custom_loop
from tiltmeter.rundir import requests as control
from tiltmeter.rundir.receipts import ReceiptLog
from tiltmeter.rundir.requests import ControlRequest, write_request
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory

STEPS, ASKED_AT = 6, 2
COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier", "broadcast",
    "broadcast_object_list", "gather", "gather_object", "reduce", "scatter",
)  # fmt: skip


def long(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 50 for text in completions]


def request(knob: str, value: float, kind: control.Kind = "apply") -> ControlRequest:
    who: control.Who = "monitor" if kind == "apply" else "operator"
    return ControlRequest(f"0-1-{knob}.{kind}", f"0-1-{knob}", 0, knob, value, kind, who, expires_step=100)


#: What is asked of the run after step `ASKED_AT`, by situation, and in which mode it is watched.
SITUATIONS: dict[str, tuple[str, tuple[ControlRequest, ...]]] = {
    "observe": ("observe", ()),
    "advise": ("advise", (request("beta", 0.09, "approve"),)),
    "act": ("act", ()),
    "beta": ("act", (request("beta", 0.09),)),
    "stop": ("act", (request("stop", 1.0),)),
    "lost receipt": ("act", (request("beta", 0.09), request("learning_rate", 5e-4))),
    "unreadable requests": ("act", ()),
    "parts": ("observe", ()),
    "anchors": ("observe", ()),
}


def parts() -> Any:
    """A reward of parts that learns, and must learn the same on both ranks."""
    torch: Any = import_module("torch")
    accelerator = import_module("accelerate").Accelerator()

    def agree(sums: list[float]) -> list[float]:
        return list(accelerator.reduce(torch.tensor(sums, dtype=torch.float64, device=accelerator.device)).tolist())

    return rewards.constrained(long, {"long": (long, 1.0)}, rate=0.1, agree=agree)


def make(model: str, output: Path, reward: Any = long) -> Any:
    """Two completions per process, groups of four: every group lies on both."""
    trl, datasets, transformers = map(import_module, ("trl", "datasets", "transformers"))
    rows = [{"prompt": f"what is {i} plus 2"} for i in range(16)]
    config = trl.GRPOConfig(
        output_dir=str(output), per_device_train_batch_size=2, num_generations=4, max_completion_length=16,
        max_steps=STEPS, beta=0.04, learning_rate=1e-3, logging_steps=1, report_to="none", use_cpu=True, bf16=False,
        gradient_checkpointing=False, save_strategy="no", disable_tqdm=True, seed=1, ddp_timeout=30,
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model,
        args=config,
        processing_class=transformers.AutoTokenizer.from_pretrained(model),
        reward_funcs=[reward],
        train_dataset=datasets.Dataset.from_list(rows),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


def at_step_begin(trainer: Any, work: Callable[[int], None]) -> None:
    def told(self: object, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        work(int(state.global_step))

    base = import_module("transformers").TrainerCallback
    trainer.add_callback(type("AtStepBegin", (base,), {"on_step_begin": told})())


def disturb(situation: str, rank: int, step: int) -> None:
    """What goes wrong on rank 0 alone, once, while the step after `ASKED_AT` is made."""
    if rank or step != ASKED_AT:
        return
    places: dict[str, tuple[Any, str]] = {
        "lost receipt": (ReceiptLog, "append"),
        "unreadable requests": (control, "read_requests"),
    }
    if situation not in places:
        return
    module, name = places[situation]
    real = getattr(module, name)

    def failing(*args: Any, **kwargs: Any) -> Any:
        setattr(module, name, real)
        raise OSError(28, "No space left on device")

    setattr(module, name, failing)


def train(situation: str, model: str, folder: Path, rank: int, calls: Counter[str]) -> dict[str, Any]:
    mode, asked = SITUATIONS.get(situation, ("", ()))
    reward: Any = parts() if situation == "parts" else long
    trainer = make(model, folder / situation, reward)
    anchors: dict[str, Any] = {}
    if situation == "anchors":  # nine prompts on two ranks: five on each, and one of them for nothing
        anchors = {"gold": f"{folder / 'checks.py'}:score", "anchors": tiltmeter.Anchors(prompts=9, every=3)}
    run = tiltmeter.attach(trainer, act=mode, **anchors) if mode else None  # type: ignore[arg-type]

    def ask_now(step: int) -> None:
        disturb(situation, rank, step)
        if rank == 0 and step == ASKED_AT and run is not None and run.directory is not None:
            store = RunDirectory(run.directory)
            for one in asked:
                write_request(store, one, read_token(store))

    at_step_begin(trainer, ask_now)
    calls.clear()
    trainer.train()
    digest = hashlib.sha256()
    for _, value in sorted(trainer.model.state_dict().items()):
        digest.update(value.detach().numpy().tobytes())
    return {
        "parameters": digest.hexdigest(),
        "steps": trainer.state.global_step,
        "beta": trainer.beta,
        "learning_rate": trainer.lr_scheduler.base_lrs[0],
        "collectives": dict(calls),
        "state": reward.state() if situation == "parts" else {},
        "counters": {} if run is None else run.counters,
    }


def count_collectives() -> Counter[str]:
    distributed: Any = import_module("torch.distributed")
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(distributed, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return real(*args, **kwargs)

        return call

    for name in COLLECTIVES:
        setattr(distributed, name, counted(name))
    return calls


def main() -> None:
    warnings.simplefilter("ignore")
    model, folder = sys.argv[1], Path(sys.argv[2])
    rank = int(os.environ["RANK"])
    calls = count_collectives()
    told = {}
    for situation in ("plain", *SITUATIONS):
        if situation == "advise":  # one run has a monitor; what the others are asked about needs none, and it costs
            vars(custom_loop)["MonitorProcess"] = lambda *_: None
        told[situation] = train(situation, model, folder, rank, calls)
        (folder / f"{rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
