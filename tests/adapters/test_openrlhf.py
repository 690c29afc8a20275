"""OpenRLHF's real trainer loop and reward executor, on a CPU; what needs a GPU is names only."""

from __future__ import annotations

import asyncio
import importlib
import importlib.machinery
import importlib.util
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters import openrlhf as adapter
from tiltmeter.adapters.capture import recorder as recorders
from tiltmeter.errors import AttachError
from tiltmeter.rundir import requests
from tiltmeter.rundir.receipts import read_receipts
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.staging.assign_steps import StepAssembler
from tiltmeter.rundir.store import RunDirectory

NEEDS = "needs OpenRLHF: see the lines for OpenRLHF in docs/other-trainers.md"
#: Modules that import a GPU's libraries, and the names OpenRLHF takes from them.
GPU_ONLY = {
    "deepspeed": (),
    "deepspeed.runtime": (),
    "deepspeed.runtime.zero": (),
    "deepspeed.runtime.zero.partition_parameters": ("ZeroParamStatus",),
    "flash_attn": (),
    "flash_attn.bert_padding": ("index_first_axis", "pad_input", "rearrange", "unpad_input"),
    "flash_attn.utils": (),
    "flash_attn.utils.distributed": ("all_gather",),
    "vllm": ("SamplingParams",),
    "vllm.inputs": ("TokensPrompt",),
    "vllm.utils": ("random_uuid",),
}


@pytest.fixture(scope="module")
def openrlhf() -> Iterator[Any]:
    """The module of OpenRLHF's PPO trainer. What stands in for GPU libraries is gone afterwards."""
    if importlib.util.find_spec("openrlhf") is None:
        pytest.skip(NEEDS)
    absent = [name for name in GPU_ONLY if importlib.util.find_spec(name.split(".")[0]) is None]
    before = set(sys.modules)
    for name in absent:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
        vars(module).update({"__version__": "0", "__path__": [], **dict.fromkeys(GPU_ONLY[name])})
        sys.modules[name] = module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield importlib.import_module("openrlhf.trainer.ppo_trainer")
        except ImportError as error:
            pytest.skip(f"{NEEDS} ({error})")
        finally:
            for name in set(sys.modules) - before:
                if name.split(".")[0] in ("deepspeed", "flash_attn", "vllm", "openrlhf"):
                    del sys.modules[name]


@pytest.fixture(autouse=True)
def own_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TILTMETER_RUN", f"test-{time.time_ns()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    for recorder in recorders._RECORDERS.values():
        recorder.close()
    recorders._RECORDERS.clear()


def settings(coefficient: float) -> Any:
    kl = SimpleNamespace(init_coef=coefficient, target=None, horizon=1)
    return SimpleNamespace(
        algo=SimpleNamespace(kl=kl, dynamic_filtering_enable=False),
        actor=SimpleNamespace(entropy_coef=0.0),
        train=SimpleNamespace(num_episodes=1),
        logger=SimpleNamespace(logging_steps=1),
        ckpt=SimpleNamespace(save_steps=float("inf"), path="none", load_enable=False),
        eval=SimpleNamespace(steps=2, temperature=1.0, n_samples_per_prompt=1),
    )


REWARD = """
from tiltmeter.adapters.capture.capture import capture

def reward_func(queries, prompts, labels):
    import torch
    value = torch.tensor([float(len(query)) for query in queries])
    return {"rewards": value, "scores": value, "extra_logs": {"acc": torch.ones(len(queries))}}

reward_func = capture(reward_func, PLACE, monitor=False)
"""


def trainer_of(openrlhf: Any, place: Path, steps: int, coefficient: float = 0.02) -> Any:
    """The real `fit` and `save_logs_and_checkpoints` of the real class, without what needs a GPU."""
    whole = openrlhf.PPOTrainer.__ray_metadata__.modified_class
    inner = type("Mine", (whole,), {})  # each test wraps a class of its own
    adapter.wrap(inner, str(place))
    trainer: Any = object.__new__(inner)
    furnish(trainer, place, steps, coefficient)
    return trainer


def furnish(trainer: Any, place: Path, steps: int, coefficient: float) -> None:
    """What a constructor would have made, as far as the loop asks for it."""
    openrlhf = importlib.import_module("openrlhf.trainer.ppo_trainer")
    trainer.args = settings(coefficient)
    trainer.kl_ctl = openrlhf.FixedKLController(coefficient)
    trainer.reference_model_group = object() if coefficient else None
    trainer.actor_model_group = trainer.critic_model_group = trainer.wandb_logger = trainer.tensorboard_logger = None
    trainer.best_eval_metric_key, trainer.best_eval_metric_value = "none", 0.0
    trainer.eval_dataloader, trainer.generate_kwargs = [object()], {}

    class Loader(list[int]):
        def state_dict(self) -> dict[str, int]:
            return {}

    trainer.prompts_dataloader = Loader(range(steps))
    executor_of = importlib.import_module("openrlhf.utils.agent").SingleTurnAgentExecutor
    file = place.parent / "reward.py"
    file.write_text(REWARD.replace("PLACE", repr(str(place))))
    executor = executor_of(str(file))

    def score(prompt: str, said: str) -> Any:
        """As the rollout worker does: the real executor, one sample, in a thread of a loop."""
        told: list[Any] = []

        async def one() -> None:
            told.extend(await executor._fetch_rewards_via_func([prompt + said], [prompt], ["label"]))

        thread = threading.Thread(target=lambda: asyncio.run(one()))
        thread.start()
        thread.join()
        return told[0]

    made = [0]

    def generate_samples(**kwargs: Any) -> Any:
        made[0] += 1
        for row in range(4):
            assert float(score(f"p{row // 2}:", f"{made[0]} {row}")["rewards"][0]) == 6.0
        return ["sample"], 1.0, 1, made[0] >= steps

    trainer.samples_generator = SimpleNamespace(
        generate_samples=generate_samples,
        generate_eval_samples=lambda **kwargs: [score("held out", "x")][1:],
    )
    trainer.logged = []

    def train_step(samples: Any, global_step: int) -> Any:
        status = {"kl": 0.0, "ppo_kl": 0.1, "entropy_loss": 2.0, "rollout/num_samples": 4.0, "rollout/reward_mean": 6.0}
        trainer.logged.append(trainer.kl_ctl.value)
        return {**status, "generated_samples": ["text", 1.0], "timing/ppo_train": 0.1}, global_step + 1

    trainer.train_step = train_step


def placed(run: RunDirectory) -> dict[int, Any]:
    moments = iter(range(0, 100_000, 60))
    placing = StepAssembler(run, clock=lambda: float(next(moments)))
    for _ in range(3):
        placing.assemble(over=True)
    return {file.step: run.read(file)[0] for file in run.files(0)}


def test_the_real_loop_and_the_real_reward_executor_make_a_run(openrlhf: Any, tmp_path: Path) -> None:
    place = tmp_path / "run"
    trainer_of(openrlhf, place, 4).fit()
    run = RunDirectory(place)
    found = placed(run)
    assert sorted(found) == [1, 2, 3, 4] and run.ended(0)
    for step, batch in found.items():
        assert sorted(str(text) for text in batch.completion or ()) == [f"{step} {row}" for row in range(4)]
        assert np.diff(batch.starts).tolist() == [2, 2]  # prompts, by their text; the evaluation is in no step
        assert batch.reward is not None and batch.reward.tolist() == [6.0] * 4
        assert batch.rewards["acc"].tolist() == [1.0] * 4
        assert batch.scalars["kl_old_new"] == 0.1 and batch.scalars["entropy"] == 2.0
        assert batch.scalars["kl_ref"] == 0.0 and batch.scalars["beta"] == 0.02
    assert adapter.OpenRLHFObserver.provides >= {"completion", "reward", "scalars"}


def test_a_kl_of_nothing_is_no_kl_and_cannot_be_raised(openrlhf: Any, tmp_path: Path) -> None:
    place = tmp_path / "run"
    trainer_of(openrlhf, place, 1, coefficient=0.0).fit()
    run = RunDirectory(place)
    assert "kl_ref" not in placed(run)[1].scalars
    assert "no reference model" in requests.read_knobs(run, 0).knobs["beta"].why


def test_the_kl_coefficient_can_be_changed_between_steps(openrlhf: Any, tmp_path: Path) -> None:
    place = tmp_path / "run"
    trainer = trainer_of(openrlhf, place, 3)
    train_step = trainer.train_step

    def asking(samples: Any, global_step: int) -> Any:
        if global_step == 0:
            run = RunDirectory(place)
            for knob, value in (("beta", 0.05), ("stop", 1.0)):
                request = requests.ControlRequest(
                    f"0-1-{knob}.approve", f"0-1-{knob}", 0, knob, value, "approve", "operator", expires_step=9
                )
                requests.write_request(run, request, read_token(run))
        return train_step(samples, global_step)

    trainer.train_step = asking
    trainer.fit()
    assert trainer.logged == [0.02, 0.05, 0.05]
    store = RunDirectory(place)
    told = {receipt.id: receipt for receipt in read_receipts(store, set(), read_token(store))[0]}
    assert (told["0-1-beta.approve"].state, told["0-1-beta.approve"].after) == ("applied", 0.05)
    assert told["0-1-stop.approve"].state == "refused" and "asks nobody" in told["0-1-stop.approve"].why


def test_the_trainer_is_watched_in_the_process_that_ray_gives_it(
    openrlhf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenRLHF's trainer is an actor: its class goes to another process by value, with what `install` wrapped."""
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'tiltmeter[ray]'")
    place, stubs = tmp_path / "run", tmp_path / "stubs"
    for name, names in GPU_ONLY.items():
        folder = stubs.joinpath(*name.split("."))
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("\n".join(["__version__ = '0'", *(f"{word} = None" for word in names)]))
    monkeypatch.setenv("PYTHONPATH", str(stubs))
    inner = openrlhf.PPOTrainer.__ray_metadata__.modified_class
    before = (inner.save_logs_and_checkpoints, inner.evaluate, inner.fit)
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        adapter.install(place, monitor=False)

        class Small(inner):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                furnish(self, place, 2, 0.02)

        ray.init(num_cpus=1, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
        trainer = ray.remote(num_cpus=1)(Small).remote()
        ray.get(trainer.fit.remote(), timeout=240)
    finally:
        ray.shutdown()
        ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        inner.save_logs_and_checkpoints, inner.evaluate, inner.fit = before
    run = RunDirectory(place)
    found = placed(run)
    assert {step: len(batch) for step, batch in found.items()} == {1: 4, 2: 4}
    assert found[2].scalars["kl_old_new"] == 0.1
    assert not run.ended(0)  # the run belongs to the driver, which opened it


def test_a_trainer_that_is_not_known_is_refused_with_the_way_out() -> None:
    class Other:
        def fit(self) -> None: ...

    with pytest.raises(AttachError, match="batch_size"):
        adapter.wrap(Other, "nowhere")


def test_a_fit_of_its_own_and_an_early_evaluation_do_not_fail_for_our_sake(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Trainer:
        def fit(self) -> int:
            return 1

        def evaluate(self, step: int) -> int:
            return step

        def save_logs_and_checkpoints(self, global_step: int, logs_dict: Any = None, client_states: Any = None) -> int:
            return global_step

    class Mine(Trainer):
        def fit(self) -> int:
            return self.save_logs_and_checkpoints(3, {})

    adapter.wrap(Trainer, str(tmp_path / "run"))
    assert Trainer().evaluate(2) == 2
    assert Mine().fit() == 3 and "Mine.fit is not the one" in caplog.text
    once = Trainer.fit
    adapter.wrap(Trainer, str(tmp_path / "run"))
    assert Trainer.fit is once
    with pytest.raises(AttachError, match="already"):
        adapter.wrap(Trainer, str(tmp_path / "other"))


def test_a_metric_that_is_no_number_is_left_out() -> None:
    assert adapter.scalars({"kl": None, "policy_loss": 1j, "acc": 0.5}, reference=True) == {"acc": 0.5}
