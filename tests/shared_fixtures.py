"""What tests of several rooms share: a real TRL trainer on a 2-layer model, and the harnesses under `benchmarks/`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.made_once import made_once
from tiltmeter.cli.demo import measure_demo_run
from tiltmeter.rundir.store import RunDirectory

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TILTMETER_QUIET"] = "1"  # tests of what attach prints take it away

CAMPAIGN_ONLY = tuple(
    line
    for line in Path(__file__).with_name("campaign.txt").read_text().splitlines()
    if line.startswith(("tests/", "packages/"))
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `tests/campaign.txt` lists: CI leaves it out."""
    for item in items:
        if item.nodeid in CAMPAIGN_ONLY or item.nodeid.split("[")[0] in CAMPAIGN_ONLY:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _a_disk_for_what_is_about_disks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.ci/run` keeps temporary folders in memory; what a test marked `disk` and its processes make is on the disk."""
    place = os.environ.get("TILTMETER_TEST_DISK")
    if place and request.node.get_closest_marker("disk"):
        monkeypatch.setenv("TMPDIR", place)
        monkeypatch.setattr(tempfile, "tempdir", place)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """pytest's own, but on the disk for a test marked `disk`."""
    place = os.environ.get("TILTMETER_TEST_DISK")
    if not place or not request.node.get_closest_marker("disk"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def long(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 50 for text in completions]


@pytest.fixture(scope="session")
def copy_demo_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Path], RunDirectory]:
    """`copy_demo_run("hacked", path)`: a run of `tiltmeter demo`, measured once, as a copy that a test may change."""

    def copy(name: str, target: Path) -> RunDirectory:
        measured = made_once(tmp_path_factory, f"demo-{name}", lambda place: measure_demo_run(name, place))
        shutil.copytree(measured, target)
        return RunDirectory(target)

    return copy


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a 2-layer Llama and a byte-level tokenizer; saved, because a reference model is loaded by path."""
    pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny") / "model"
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    text = ["what is 1 plus 2", "the answer is 3 because one and two"] * 50
    bpe.train_from_iterator(text, trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<pad>", "<eos>"]))
    chat = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>", chat_template=chat
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=128,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def their_warnings() -> Iterator[None]:
    """TRL, transformers and torch warn about themselves; what we warn of still fails a test that does not expect it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=FutureWarning)
        yield


@pytest.fixture(scope="session")
def build_trainer(tiny_model: Path) -> Callable[..., Any]:
    """`build_trainer(folder, "GRPO", rewards=[...], **config)`: an unmodified trainer of that kind."""

    def build(folder: Path, kind: str = "GRPO", rewards: Any = None, name: str = "out", **changes: Any) -> Any:
        import trl
        from datasets import Dataset
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(tiny_model)
        settings: dict[str, Any] = {
            "output_dir": str(folder / name), "per_device_train_batch_size": 8, "max_steps": 4, "logging_steps": 1,
            "report_to": "none", "use_cpu": True, "bf16": False, "learning_rate": 1e-3, "seed": 1,
            "gradient_checkpointing": False, "save_strategy": "no", "disable_tqdm": True,
        }  # fmt: skip
        rows: list[dict[str, Any]]
        questions = [f"what is {i} plus 2" for i in range(16)]
        pairs = [
            {"prompt": q, "chosen": f" the answer is {i + 2}", "rejected": " what"} for i, q in enumerate(questions)
        ]
        given: dict[str, Any] = {"model": str(tiny_model), "processing_class": tokenizer}
        if kind in ("GRPO", "RLOO"):
            settings |= {"num_generations": 4, "max_completion_length": 16, "beta": 0.04}
            rows = [{"prompt": q, "answer": str(i + 2)} for i, q in enumerate(questions)]
            given["reward_funcs"] = [long] if rewards is None else rewards
            given["eval_dataset"] = Dataset.from_list(rows[:4])
        elif kind == "SFT":
            rows = [{"text": row["prompt"] + row["chosen"]} for row in pairs]
        elif kind == "KTO":
            rows = [
                {"prompt": r["prompt"], "completion": r["chosen"], "label": i % 2 == 0} for i, r in enumerate(pairs)
            ]
        else:
            rows = pairs
        if kind == "Reward":
            model = AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=1)
            model.config.pad_token_id = tokenizer.pad_token_id
            given["model"] = model
        config = getattr(trl, f"{kind}Config")(**settings | changes)
        return getattr(trl, f"{kind}Trainer")(args=config, train_dataset=Dataset.from_list(rows), **given)

    return build


@pytest.fixture
def make_trainer(
    build_trainer: Callable[..., Any], tmp_path: Path, their_warnings: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """The same, in the test's own folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # where attach keeps its tokens
    return partial(build_trainer, tmp_path)


@pytest.fixture
def unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of what a trainer hands over: no monitor, which would cost three CPU seconds each time."""
    monkeypatch.setattr("tiltmeter.adapters.custom_loop.MonitorProcess", lambda *_: None)


BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

Bench = Callable[..., dict[str, Any]]


@pytest.fixture
def bench() -> Bench:
    """Run one of them in a process of its own (it forks, or is killed by what it proves) and give its figures."""

    def run(name: str, *options: str) -> dict[str, Any]:
        # Warnings are errors there as they are here: a batch that makes numpy warn would print into a training log.
        done = subprocess.run(
            [sys.executable, "-W", "error", str(BENCHMARKS / f"{name}.py"), "--json", *options],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        figures: dict[str, Any] = json.loads(done.stdout)
        return figures

    return run
