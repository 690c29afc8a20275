"""veRL's real classes and loops on the CPU; what needs a GPU (generation, the update of weights) is stood in for."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.adapters.verl import plugin
from tiltmeter.adapters.verl.driver import VerlObserver, scalars
from tiltmeter.data.turns import decode_turns
from tiltmeter.errors import AttachError
from tiltmeter.rundir import requests
from tiltmeter.rundir.evaluations import Evaluation, read_evaluations
from tiltmeter.rundir.receipts import read_receipts
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory

NEEDS = "needs veRL: see the lines for veRL in docs/other-trainers.md"
ROWS = 8  # two prompts, four answers each
LOOP = "verl.trainer.ppo.v1.trainer_sync"


@pytest.fixture(scope="session")
def verl() -> Any:
    """veRL's trainers, imported; they warn about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            importlib.import_module("verl.trainer.ppo.ray_trainer")
            return importlib.import_module(LOOP)
        except ImportError as error:
            pytest.skip(f"{NEEDS} ({error})")


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("TILTMETER_VERL", raising=False)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch, tensordict and veRL warn about themselves
        yield


class Tokenizer:
    pad_token_id = 0

    def decode(self, ids: Any, skip_special_tokens: bool = True) -> str:
        return " ".join(str(int(token)) for token in ids if int(token))

    def batch_decode(self, rows: Any, skip_special_tokens: bool = True) -> list[str]:
        return [self.decode(row) for row in rows]


def configuration(folder: Path, **trainer: Any) -> Any:
    omegaconf = importlib.import_module("omegaconf")
    return omegaconf.OmegaConf.create(
        {
            "trainer": {
                "project_name": "p", "experiment_name": "e", "logger": ["file"], "total_epochs": 9, "save_freq": 2,
                "test_freq": -1, "val_before_train": False, "default_local_dir": str(folder), "n_gpus_per_node": 1,
                "nnodes": 1, "v1": {"trainer_mode": "sync"}, "log_val_generations": 0, "device": "cpu", **trainer,
            },
            "algorithm": {"use_kl_in_reward": True, "kl_penalty": "kl", "kl_ctrl": {"type": "fixed", "kl_coef": 0.04}},
            "actor_rollout_ref": {
                "actor": {"entropy_coeff": 0.01, "optim": {"lr": 1e-6}}, "rollout": {"n": 4}, "model": {},
            },
            "global_profiler": {"steps": None, "profile_continuous_steps": False},
            "skip": {"rollout_tq": {"enable": False}},
        }
    )  # fmt: skip


def content(keys: list[str]) -> Any:
    """A batch as veRL's workers leave it in the queue: answers of different lengths, scored at their last token."""
    import torch

    tensordict = importlib.import_module("tensordict")

    def jagged(rows: list[Any]) -> Any:
        return torch.nested.as_nested_tensor(rows, layout=torch.jagged)

    def mask(count: int) -> Any:  # the second of three or more is a tool's
        return torch.tensor([int(count < 3 or position != 1) for position in range(count)])

    step = int(keys[0].split("-")[0])
    lengths = [2 + row % 3 for row in range(len(keys))]
    floats = [torch.full((n,), 0.1 * (row + 1)) for row, n in enumerate(lengths)]
    last = [torch.nn.functional.pad(torch.tensor([float(row % 4)]), (n - 1, 0)) for row, n in enumerate(lengths)]
    named: dict[str, list[Any]] = {
        "uid": [key.rsplit("_", 2)[0] for key in keys],
        "num_turns": [2] * len(keys),
        "reward_model": [{"ground_truth": "4"} for _ in keys],
        "extra_fields": [
            {"turn_scores": [0.25, 0.75][: n - 1], "tool_rewards": [0.5] * (n - 2), "min_global_steps": step}
            for n in lengths
        ],
    }
    return tensordict.TensorDict(
        {
            "prompts": jagged([torch.tensor([7, 1 + row // 4]) for row in range(len(keys))]),
            "responses": jagged([torch.full((n,), 10 * step + row) + 1 for row, n in enumerate(lengths)]),
            "response_mask": jagged([mask(n) for n in lengths]),
            "rollout_log_probs": jagged([torch.where(mask(n) == 1, -0.5, 0.0) for n in lengths]),
            "advantages": jagged(floats),
            "returns": jagged(floats),
            "rm_scores": jagged(last),
            "token_level_rewards": jagged(last),
            **{name: tensordict.NonTensorStack(*values) for name, values in named.items()},
        },
        batch_size=len(keys),
    )


class Queue:
    """In place of the TransferQueue, whose servers take Ray and seconds to start; one test has the real one."""

    @staticmethod
    def kv_batch_put(keys: list[str], partition_id: str, fields: Any, tags: list[Any]) -> Any:
        return SimpleNamespace(keys=keys, tags=tags, partition_id=partition_id)

    @staticmethod
    def kv_batch_get(keys: list[str], partition_id: str, select_fields: list[str]) -> Any:
        whole = content(keys)
        return whole.select(*(name for name in select_fields if name in whole.keys()))  # noqa: SIM118

    @staticmethod
    def kv_clear(keys: list[str], partition_id: str) -> None:
        pass


def sync_trainer(verl: Any, folder: Path, monkeypatch: pytest.MonkeyPatch | None, steps: int, **settings: Any) -> Any:
    """The real `PPOTrainerSync` with its real `fit`, without the parts that need a GPU."""
    base = importlib.import_module("verl.trainer.ppo.v1.trainer_base")
    if monkeypatch is not None:
        for name in ("kv_batch_put", "kv_batch_get", "kv_clear"):
            monkeypatch.setattr(base.tq, name, getattr(Queue, name))
    trainer = object.__new__(verl.PPOTrainerSync)
    trainer.config = configuration(folder, **settings)
    trainer.trainer_mode, trainer.use_critic, trainer.parameter_sync_step = "sync", False, 1
    trainer.kl_ctrl_in_reward = base.core_algos.get_kl_controller(
        importlib.import_module("omegaconf").OmegaConf.create({"type": "fixed", "kl_coef": 0.04})
    )
    trainer.global_steps, trainer.total_training_steps, trainer.steps_per_epoch = 0, steps, 100
    trainer.tokenizer = Tokenizer()
    trainer.checkpoint_manager = SimpleNamespace(update_weights=lambda step: None)
    trainer.resource_pool_manager = SimpleNamespace(get_n_gpus=lambda: 1)
    trainer._rollout_moe_lb_metrics_accumulator = None
    trainer.saved = []
    trainer._save_checkpoint = lambda: trainer.saved.append(trainer.global_steps)
    trainer._start_profiling = trainer._stop_profiling = lambda: None
    trainer._get_n_gpus_for_throughput = lambda: 1
    trainer._init_dump_executor()

    def step(metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        now = trainer.global_steps
        metrics.update({"actor/ppo_kl": 0.5, "actor/entropy": 1.0 + now, "actor/grad_norm": 0.1, "actor/pg_loss": 0.0})
        metrics["actor/reward_kl_penalty"] = 0.02
        metrics["actor/reward_kl_penalty_coeff"] = trainer.kl_ctrl_in_reward.value
        timing_raw.update({"gen": 0.1, "update_actor": 0.1})
        keys = [f"{now}-{row // 4}_{row % 4}_0" for row in range(ROWS)]
        tags = [
            {"min_global_steps": now - 1, "max_global_steps": now - 1, "is_padding": row == ROWS - 1}
            for row in range(ROWS)
        ]
        return base.tq.kv_batch_put(keys=keys, partition_id="train", fields=content(keys), tags=tags)

    trainer.step = step
    return trainer


def test_the_plugin_is_light_and_inert() -> None:
    code = (
        "import sys, tiltmeter.adapters.verl.plugin as plugin\n"
        "assert any(isinstance(finder, plugin.TrainerFinder) for finder in sys.meta_path)\n"
        "heavy = {'verl', 'torch', 'ray', 'pyarrow', "
        "'tiltmeter.adapters.verl.driver', 'tiltmeter.adapters.custom_loop'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_a_verl_that_is_not_known_is_imported_and_trains_as_if_nobody_were_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    module = types.ModuleType("verl.trainer.ppo.ray_trainer")
    plugin._wrap_in(module)
    assert not caplog.records  # nobody asked
    monkeypatch.setenv("TILTMETER_VERL", "1")
    plugin._wrap_in(module)
    assert "RayPPOTrainer" in caplog.text
    monkeypatch.delenv("TILTMETER_VERL")

    class Trainer:
        def fit(self) -> int:
            return 7

    module.RayPPOTrainer = Trainer  # type: ignore[attr-defined]
    plugin._wrap_in(module)
    configs: list[Any] = [None, SimpleNamespace(), SimpleNamespace(trainer=None), {"trainer": {}}]
    for config in configs:
        trainer = Trainer()
        assert trainer.fit() == 7
        trainer.config = config  # type: ignore[attr-defined]
        assert trainer.fit() == 7 and hasattr(Trainer.fit, "tiltmeter")


@pytest.mark.parametrize(
    ("evals", "names"), [("auto", ["openai_gsm8k_acc_mean_1"]), (["val-core/x/best"], ["x_best"]), ((), [])]
)
def test_validations_are_gold_by_one_word(tmp_path: Path, evals: Any, names: list[str]) -> None:
    observer = object.__new__(VerlObserver)
    sources = {"data_source": ["openai/gsm8k"] * 3 + ["aime"] * 2}
    observer.trainer = SimpleNamespace(val_dataset=SimpleNamespace(dataframe=sources))
    observer.recorder, observer._evals = None, None if evals == "auto" else tuple(evals)
    if names == ["x_best"]:
        observer.trainer.val_dataset = range(7)
    metrics = {
        "val-core/openai/gsm8k/acc/mean@1": 0.5,
        "val-core/openai/gsm8k/reward/mean@1": 0.6,
        "val-core/x/best": 1,
    }
    with open_run(tmp_path / "run", monitor=False) as observer.run:
        observer._record_evaluations(4, metrics)
    stored = read_evaluations(RunDirectory(tmp_path / "run"), ()).get(0, [])
    assert [one.name for one in stored if isinstance(one, Evaluation)] == names
    assert [one.n for one in stored if isinstance(one, Evaluation)] == [7 if name == "x_best" else 3 for name in names]


def test_metrics_that_are_no_numbers_are_left_out() -> None:
    told = {"actor/kl_loss": None, "actor/pg_loss": 1j, "actor/lr": np.float32(0.5), "val-core/best": "step 3"}
    assert scalars(told) == {"learning_rate": 0.5}


def test_verl_loads_the_plugin_by_itself_and_its_loops_are_wrapped(verl: Any, tmp_path: Path) -> None:
    """veRL's own discovery of entry points, executed in a process of its own."""
    folder = tmp_path / "site" / "tiltmeter_entry-1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: tiltmeter-entry\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[verl.plugins]\ntiltmeter = tiltmeter.adapters.verl.plugin\n")
    code = (
        f"import sys; sys.path.insert(0, {str(folder.parent)!r})\n"
        "import verl\n"
        "assert 'tiltmeter.adapters.verl.plugin' in sys.modules\n"
        "assert 'tiltmeter.adapters.verl.driver' not in sys.modules\n"
        "from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync\n"
        "from verl.trainer.ppo.ray_trainer import RayPPOTrainer\n"
        "assert PPOTrainerSync.fit.tiltmeter and RayPPOTrainer.fit.tiltmeter\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=240)


def test_a_run_that_nobody_asked_to_watch_is_left_alone(
    verl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.install()
    trainer = sync_trainer(verl, tmp_path / "out", monkeypatch, 2)
    trainer.fit(None)
    assert trainer.global_steps == 3
    assert not (tmp_path / "out").exists() and "_dump_generations" not in vars(trainer)


@pytest.mark.parametrize("dumped", [False, True])
def test_the_real_sync_loop_gives_rollouts_groups_and_metrics(
    verl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dumped: bool
) -> None:
    monkeypatch.setenv("TILTMETER_VERL", "1")
    plugin.install()
    settings = {"rollout_data_dir": str(tmp_path / "dump")} if dumped else {}
    trainer = sync_trainer(verl, tmp_path / "out", monkeypatch, 3, tiltmeter={"monitor": False}, **settings)
    trainer.fit(None)
    run = RunDirectory(tmp_path / "out" / "tiltmeter")
    assert [file.step for file in run.files(0)] == [1, 2, 3]
    assert run.ended(0)
    batch = run.read(run.find(0, 2)[0])[0]
    assert len(batch) == ROWS - 1  # the padding row that veRL adds for balance is none
    assert np.diff(batch.starts).tolist() == [4, 3]
    assert batch.reward is not None and batch.reward.tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0]
    assert batch.prompt is not None and batch.prompt[0] == "7 1"
    assert batch.facts is not None and '"ground_truth"' in str(batch.facts[0])
    assert batch.length is not None and batch.length.tolist() == [2, 2, 3, 2, 2, 3, 2]  # without a tool's tokens
    assert batch.engine_logprob is not None and (batch.engine_logprob.values == -0.5).all()
    assert batch.version_low is not None and (batch.version_low == 1.0).all() and batch.trajectory is not None
    assert batch.turns is not None and batch.completion is not None and batch.tokens is not None
    roles = [[turn.role for turn in decode_turns(text)] for text in batch.turns]
    assert roles[0] == ["assistant"] and roles[1] == ["assistant", "tool", "assistant"]
    assert batch.completion[1] == "22\n22"  # and not the tool's
    rewards = [[turn.reward for turn in decode_turns(text)] for text in batch.turns]
    assert rewards[:2] == [[0.25], [0.25, 0.5, 0.75]]
    assert batch.artifacts is not None and batch.artifacts[1] is None
    assert batch.artifacts[2] == '{"tool_rewards":[0.5,0.5]}'  # two rewards for one stretch of a tool's words
    assert batch.scalars["kl_ref"] == 0.02 and batch.scalars["kl_old_new"] == 0.5
    assert batch.scalars["entropy"] == 3.0 and batch.scalars["beta"] == 0.04
    assert {"reward", "length_mean", "truncated_share", "critic/rewards/mean", "step_seconds"} <= set(batch.scalars)
    assert sorted(path.name for path in (tmp_path / "dump").glob("*")) == (
        ["1.jsonl", "2.jsonl", "3.jsonl"] if dumped else []
    )
    assert not list(tmp_path.rglob("tiltmeter: kept*"))


def test_the_real_loop_with_the_real_transfer_queue(verl: Any, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'tiltmeter[ray]'")
    queue = importlib.import_module("transfer_queue")
    plugin.install()
    try:
        ray.init(num_cpus=4, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
        queue.init()
        trainer = sync_trainer(verl, tmp_path / "out", None, 2, tiltmeter={"monitor": False})
        trainer.fit(None)
        queue.close()
    finally:
        ray.shutdown()
    run = RunDirectory(tmp_path / "out" / "tiltmeter")
    batch = run.read(run.find(0, 2)[0])[0]
    assert np.diff(batch.starts).tolist() == [4, 3]
    assert batch.reward is not None and batch.reward.tolist() == [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 2.0]
    assert batch.scalars["reward"] == pytest.approx(9 / 7)
    assert batch.turns is not None
    assert [turn.reward for turn in decode_turns(batch.turns[1])] == [0.25, 0.5, 0.75]


def ask(run: RunDirectory, knob: str, value: float, kind: Any = "approve") -> None:
    request = requests.ControlRequest(
        f"0-1-{knob}.{kind}", f"0-1-{knob}", 0, knob, value, kind, "operator", expires_step=99
    )
    requests.write_request(run, request, read_token(run))


def test_the_kl_in_the_reward_can_be_changed_and_the_run_stopped(
    verl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin.install()
    trainer = sync_trainer(verl, tmp_path / "out", monkeypatch, 50, tiltmeter={"monitor": False})
    step = trainer.step

    def asking(metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        run = RunDirectory(tmp_path / "out" / "tiltmeter")
        if trainer.global_steps == 1:
            ask(run, "beta", 0.08)
            ask(run, "entropy_coef", 0.01)
        if trainer.global_steps == 2:
            ask(run, "beta", 7.0, "undo")
        if trainer.global_steps == 3:
            ask(run, "stop", 1.0)
        return step(metrics, timing_raw)

    trainer.step = asking
    trainer.fit(None)
    assert trainer.kl_ctrl_in_reward.value == 0.08
    assert trainer.global_steps == 5 and trainer.saved[-1] == 4  # the next step was the last, and was saved
    run = RunDirectory(tmp_path / "out" / "tiltmeter")
    told = {receipt.id: receipt for receipt in read_receipts(run, set(), read_token(run))[0]}
    assert (told["0-1-beta.approve"].state, told["0-1-beta.approve"].after) == ("applied", 0.08)
    assert told["0-1-beta.undo"].state == "refused" and "outside" in told["0-1-beta.undo"].why
    assert "workers' configuration" in told["0-1-entropy_coef.approve"].why
    assert told["0-1-stop.approve"].state == "applied"
    coefficients = [run.read(file)[0].scalars["beta"] for file in run.files(0)]
    assert coefficients == [0.04, 0.08, 0.08, 0.08]


def test_with_captured_rewards_the_driver_writes_where_steps_end(
    verl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiltmeter.adapters.capture.capture import capture
    from tiltmeter.rundir.staging.assign_steps import StepAssembler

    monkeypatch.setenv("TILTMETER_RUN", "verl-capture")
    plugin.install()
    trainer = sync_trainer(
        verl, tmp_path / "out", monkeypatch, 3, tiltmeter={"monitor": False, "rows": "capture"}, test_freq=1
    )
    reward_of = importlib.import_module("verl.trainer.ppo.reward").get_custom_reward_fn
    file = tmp_path / "reward.py"
    file.write_text(
        "import tiltmeter\nfrom tiltmeter.adapters.capture.capture import capture\n"
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return {'score': float(solution_str[-1]), 'format': 1.0}\n"
        f"compute_score = capture(compute_score, {str(tmp_path / 'out' / 'tiltmeter')!r}, monitor=False)\n"
    )
    omegaconf = importlib.import_module("omegaconf")
    step = trainer.step
    score: list[Any] = []

    def scored(text: str, index: int) -> None:
        if not score:
            settings = {"reward": {"custom_reward_function": {"path": str(file), "name": "compute_score"}}}
            score.append(reward_of(omegaconf.OmegaConf.create(settings)))
        info = {"index": index, "split": "train"}
        assert score[0](data_source="d", solution_str=text, ground_truth="4", extra_info=info)["format"] == 1.0

    def scoring(metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        for row in range(4):
            scored(f"{trainer.global_steps} {row}", row // 2)
        return step(metrics, timing_raw)

    def validate() -> dict[str, float]:
        scored("held out 1", 99)
        return {"val-core/acc": 0.5}

    trainer.step, trainer._validate = scoring, validate
    trainer.fit(None)
    run = RunDirectory(tmp_path / "out" / "tiltmeter")
    capture_clock = iter(range(0, 10_000, 60))
    placing = StepAssembler(run, clock=lambda: float(next(capture_clock)))
    for _ in range(3):
        placing.assemble(over=True)
    found = {file.step: run.read(file)[0] for file in run.files(0)}
    assert sorted(found) == [1, 2, 3] and capture is not None
    for number, batch in found.items():
        assert sorted(str(text) for text in batch.completion or ()) == [f"{number} {row}" for row in range(4)]
        assert np.diff(batch.starts).tolist() == [2, 2] and batch.rewards["format"].tolist() == [1.0] * 4
        assert batch.scalars["kl_ref"] == 0.02 and batch.scalars["val-core/acc"] == 0.5


def test_the_older_trainer_gives_what_it_dumps(verl: Any, tmp_path: Path) -> None:
    import torch

    protocol = importlib.import_module("verl.protocol")
    legacy = importlib.import_module("verl.trainer.ppo.ray_trainer").RayPPOTrainer
    tracking = importlib.import_module("verl.utils.tracking").Tracking
    trainer = object.__new__(legacy)
    trainer.config = configuration(tmp_path / "out", tiltmeter={"monitor": False})
    trainer.config.algorithm.use_kl_in_reward = False
    trainer.total_training_steps, trainer.tokenizer = 9, Tokenizer()
    trainer._init_dump_executor()
    with pytest.raises(AttachError, match="rollout_data_dir"):
        VerlObserver(trainer)
    trainer.config.trainer.rollout_data_dir = str(tmp_path / "dump")
    original = tracking.log
    watched = VerlObserver(trainer)
    batch = protocol.DataProto.from_dict(
        tensors={
            "prompts": torch.tensor([[7, 1], [7, 1]]),
            "responses": torch.tensor([[3, 4], [5, 0]]),
            "token_level_scores": torch.tensor([[0.0, 1.0], [0.5, 0.0]]),
        },
        non_tensors={"reward_model": np.array([{"ground_truth": "4"}] * 2, dtype=object)},
    )
    trainer.global_steps = 1
    log = tracking(project_name="p", experiment_name="e", default_backend=["file"], config={})
    trainer._log_rollout_data(batch, {"acc": np.array([1.0, 0.0])}, {}, str(tmp_path / "dump"))
    log.log(data={"actor/kl_loss": 0.3, "training/global_step": 1}, step=1)
    watched.close()
    trainer._shutdown_dump_executor()
    assert tracking.log is original
    run = RunDirectory(tmp_path / "out" / "tiltmeter")
    stored = run.read(run.find(0, 1)[0])[0]
    assert stored.reward is not None and stored.reward.tolist() == [1.0, 0.5]
    assert stored.rewards["acc"].tolist() == [1.0, 0.0] and len(stored.starts) == 2
    assert stored.scalars == {"kl_ref": 0.3}
    assert (tmp_path / "dump" / "1.jsonl").read_text().count("\n") == 2
    assert "no KL in the reward" in requests.read_knobs(run, 0).knobs["beta"].why


def test_names_are_translated_and_what_is_not_a_number_is_left_out() -> None:
    told = scalars({"actor/kl_loss": 0.1, "actor/reward_kl_penalty": 0.2, "val-core/x": "no", "critic/values/mean": 2})
    assert told == {"kl_ref": 0.2, "critic/values/mean": 2.0}


class BatchMeta(SimpleNamespace):
    """What the queue says of a batch."""

    keys: list[str]

    def __len__(self) -> int:
        return len(self.keys)


def test_flagged_rollouts_that_would_gain_leave_verls_own_advantages(
    verl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    (tmp_path / "checks.py").write_text(
        "def flagged(prompts, completions):\n    return [int(text.split()[0]) % 4 in (1, 0) for text in completions]\n"
    )
    stored: dict[str, Any] = {}

    def put(keys: list[str], partition_id: str, fields: Any, tags: Any = None) -> Any:
        stored.update(zip(keys, fields["advantages"].unbind(), strict=True) if tags is None else ())
        return SimpleNamespace(keys=keys, tags=tags, partition_id=partition_id)

    def advantages(**settings: Any) -> tuple[VerlObserver, dict[str, float]]:
        trainer = sync_trainer(verl, tmp_path / str(len(list(tmp_path.iterdir()))), monkeypatch, 2, tiltmeter=settings)
        algorithm = trainer.config.algorithm
        algorithm.update({"adv_estimator": "grpo", "use_kl_in_reward": False, "gamma": 1.0, "lam": 1.0})
        base = importlib.import_module("verl.trainer.ppo.v1.trainer_base")
        monkeypatch.setattr(base.tq, "kv_batch_put", put)
        observer = VerlObserver(trainer)
        keys = [f"0-{row // 4}_{row % 4}_0" for row in range(ROWS)]
        tags = [{"is_padding": False}] * ROWS
        before = vars(base)["compute_advantage_for_multi_trajectories"]
        trainer._compute_advantage(BatchMeta(keys=keys, tags=tags, partition_id="train"), metrics={})
        assert vars(base)["compute_advantage_for_multi_trajectories"] is before
        observer.close()
        assert "_compute_advantage" not in vars(trainer)
        return observer, {key: float(stored[key][0]) for key in keys}

    _, plain = advantages(act="advise")
    screen = f"{tmp_path}/checks.py:flagged"
    _, off = advantages(act={"mode": "advise", "screen": screen})
    assert off == plain, "off is off to the bit"
    observer, screened = advantages(act={"screen": screen})
    # Pay within a prompt is 0, 1, 2, 3; rows 0 and 3 are flagged. Row 3 would gain and leaves; row 0 stays.
    rest = torch.tensor([0.0, 1.0, 2.0])
    expected = [*((rest - rest.mean()) / (rest.std() + 1e-6)).tolist(), 0.0]
    np.testing.assert_allclose(list(screened.values()), expected * 2, atol=1e-5)
    assert observer.screen is not None and observer.screen.lost == {"0-0_3", "0-1_3"}
    assert observer.screen.counts == {"screen.lost": 2.0, "screen.flagged": 4.0}

    (tmp_path / "all.py").write_text("def flagged(prompts, completions):\n    return [True] * len(prompts)\n")
    observer, starved = advantages(act={"screen": f"{tmp_path}/all.py:flagged"})
    assert starved == plain, "not one step is starved"
    assert observer.screen is not None and observer.screen.value == 0.0 and "100 %" in observer.screen.why
    (tmp_path / "bad.py").write_text("def flagged(prompts, completions):\n    return [True]\n")
    observer, unread = advantages(act={"screen": f"{tmp_path}/bad.py:flagged"})
    assert unread == plain and observer.run is not None and observer.run.store is not None
    assert any("answered 1 values" in why for why in RunDirectory(observer.run.store.path).troubles(0).values())


def test_a_verl_run_stores_what_was_left_out_and_says_that_a_screen_ended(
    verl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checks.py").write_text("def flagged(prompts, completions):\n    return [False] * len(prompts)\n")
    settings = {"act": {"screen": f"{tmp_path}/checks.py:flagged"}}
    trainer = sync_trainer(verl, tmp_path / "run", monkeypatch, 2, tiltmeter=settings)
    trainer.config.algorithm.update({"adv_estimator": "grpo"})
    observer = VerlObserver(trainer)
    assert observer.screen is not None and observer.knobs["screen"].value == 1.0
    inner = trainer.step

    def step(metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:
        assert observer.screen is not None
        observer.screen.lost = frozenset({f"{trainer.global_steps}-0_3"})
        observer.screen.counts = {"screen.lost": 1.0, "screen.flagged": 1.0}
        if trainer.global_steps == 2:
            observer.screen._ends_itself(8, 8)
        return inner(metrics, timing_raw)

    trainer.step = step
    type(trainer).fit.__wrapped__(trainer, None)  # veRL's own: the plug-in's would make another observer
    observer.close()
    assert observer.run is not None and observer.run.store is not None
    store = RunDirectory(observer.run.store.path)
    batches = [store.read(file)[0] for file in store.files(0)]
    assert batches and all(batch.trained is not None and (~batch.trained).sum() == 1 for batch in batches)
    assert all(batch.scalars["screen.lost"] == 1.0 for batch in batches)
    receipts, _ = read_receipts(store, set(), read_token(store))
    assert [(one.knob, one.after, one.id.endswith(".ended")) for one in receipts] == [("screen", 0.0, True)]
    assert observer.knobs["screen"].why == receipts[0].why


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"act": {"screen": "acts", "mode": "observe"}}, "mode=advise or act"),
        ({"act": {"screen": "checks.py:solved"}, "gold": "checks.py:solved"}, "screen is gold"),
        ({"act": {"screen": "acts", "most_lost": 1.0}}, "most_lost"),
        ({"act": {"screen": "acts"}, "estimator": "gae"}, "adv_estimator=grpo"),
    ],
)
def test_a_screen_that_verl_cannot_have_is_refused_before_the_first_step(
    verl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], why: str
) -> None:
    estimator = settings.pop("estimator", "grpo")
    trainer = sync_trainer(verl, tmp_path / "run", monkeypatch, 2, tiltmeter=settings)
    trainer.config.algorithm.update({"adv_estimator": estimator})
    with pytest.raises(AttachError, match=why):
        VerlObserver(trainer)
    assert "_compute_advantage" not in vars(trainer)
