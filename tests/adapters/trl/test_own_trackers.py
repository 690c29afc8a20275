"""What attach puts into the trainer's own runs and onto its console, read back by each tracker; and audits of what that
training left behind, which come to the same verdict."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import io
import json
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tiltmeter
from tiltmeter.adapters.trl import reporter as reporters
from tiltmeter.adapters.trl.reporter import RunReporter
from tiltmeter.audit.readers.wandb import log_records
from tiltmeter.cli import app
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")

#: It needs a column of the dataset, which no file of a trainer or tracker has.
GOLD = "def brief(completion, answer):\n    return max(0.0, 1.0 - len(completion) / (80 + 0 * int(answer)))\n"
STEPS = 14
TRACKERS = [
    name for name in ("wandb", "tensorboard", "mlflow", "trackio") if importlib.util.find_spec(name) is not None
]


def needs(package: str, extra: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(package not in TRACKERS, reason=f"needs {package}: pip install 'tiltmeter[{extra}]'")


def long(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 50 for text in completions]


@dataclass
class Training:
    """One training: its folder, its weights as a hash, what the trainer logged and what was printed."""

    folder: Path
    weights: str
    logs: list[dict[str, Any]]
    lines: list[str]
    directory: Path | None


@pytest.fixture(scope="module")
def trainings(build_trainer: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Training]]:
    """The same training twice: bare, and with attach and every tracker that is installed."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the trackers' own
        patch.delenv("TILTMETER_QUIET")
        yield [train(build_trainer, tmp_path_factory.mktemp(name), patch, name == "with") for name in ("bare", "with")]


def train(build: Callable[..., Any], folder: Path, patch: pytest.MonkeyPatch, watched: bool) -> Training:
    environment = {
        "XDG_STATE_HOME": folder / "state", "WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_SILENT": "true",
        "TRACKIO_DIR": folder / "trackio", "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
    }  # fmt: skip
    for name, value in environment.items():
        patch.setenv(name, str(value))
    if "trackio" in TRACKERS:  # it reads its folder once
        for module in ("trackio.utils", "trackio.sqlite_storage"):
            patch.setattr(importlib.import_module(module), "TRACKIO_DIR", folder / "trackio")
    trainer = build(
        folder, rewards=[long], max_steps=STEPS, learning_rate=3e-3, per_device_train_batch_size=32, num_generations=8,
        lr_scheduler_type="constant", beta=0.0, report_to=TRACKERS if watched and TRACKERS else "none",
        log_completions=True, num_completions_to_print=0,
    )  # fmt: skip
    printed, run = io.StringIO(), None
    with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(io.StringIO()):
        if watched:
            (folder / "checks.py").write_text(GOLD)
            run = tiltmeter.attach(
                trainer,
                gold=tiltmeter.Gold(f"{folder}/checks.py:brief", share=1.0),
                options=tiltmeter.Options(strict=True),
            )
        trainer.train()
        if watched and "wandb" in TRACKERS:
            importlib.import_module("wandb").finish()
    digest = hashlib.sha256()
    for _, value in sorted(trainer.model.state_dict().items()):
        digest.update(value.detach().cpu().numpy().tobytes())
    lines = [line for line in printed.getvalue().splitlines() if line.startswith("tiltmeter: ")]
    directory = None if run is None else run.directory
    return Training(folder, digest.hexdigest(), trainer.state.log_history, lines, directory)


@pytest.fixture
def watched(trainings: list[Training]) -> Training:
    return trainings[1]


def test_training_is_the_same_bit_by_bit(trainings: list[Training]) -> None:
    bare, watched = trainings
    assert bare.weights == watched.weights
    for key in ("loss", "reward", "grad_norm"):
        assert [row[key] for row in bare.logs if key in row] == [row[key] for row in watched.logs if key in row]


def test_the_console_has_a_line_at_the_start_one_for_an_alarm_and_three_at_the_end(trainings: list[Training]) -> None:
    bare, watched = trainings
    assert bare.lines == []
    first, *middle = (line.removeprefix("tiltmeter: ") for line in watched.lines)
    assert first.startswith("watching GRPOTrainer for long, judged by ") and "checks.py:brief" in first
    assert f"tiltmeter view {watched.directory}" in first
    middle = [line for line in middle if not line.startswith("the last steps are being measured")]
    *news, state, advice, where = middle
    assert len([line for line in news if line.startswith("Alarm in ")]) == 1
    assert all(line.startswith(("Alarm in ", "Finding at step ")) for line in news)
    assert state.startswith(f"ACT after step {STEPS}: Alarm: ") and advice.startswith("Stop advice: stop")
    assert where.startswith(f"To look: tiltmeter view {watched.directory}")


def wandb_file(folder: Path) -> Path:
    """The log of the one run that W&B has: the trainer's."""
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    return file


def wandb_records(folder: Path) -> list[Any]:
    """What W&B has written; its process writes the files that it was told of last a moment after `finish` returned."""
    internal: Any = importlib.import_module("wandb.proto.wandb_internal_pb2")
    end = time.monotonic() + 20.0
    while True:
        records = [internal.Record.FromString(data) for _, data in log_records(wandb_file(folder), [])]
        if any("proxy_and_gold" in path for path in file_paths(records)) or time.monotonic() > end:
            return records
        time.sleep(0.2)


def file_paths(records: list[Any]) -> set[str]:
    return {path for record in records for path in (file.path for file in record.files.files)}


@needs("wandb", "trackers")
def test_wandb_has_them_in_the_trainers_own_run(watched: Training) -> None:
    records = wandb_records(watched.folder)
    rows = [
        {"/".join(item.nested_key): item.value_json for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert len([row for row in rows if "train/loss" in row]) == STEPS
    gold = [int(row["tiltmeter/step"]) for row in rows if "tiltmeter/gold.mean" in row]
    assert sorted(gold) == list(range(1, STEPS + 1))
    alerts = [record.alert for record in records if record.WhichOneof("record_type") == "alert"]
    assert [alert.title.split(" in ")[0] for alert in alerts if alert.level == "ERROR"] == ["Alarm: gold.slope down"]
    updates = [item for record in records for item in record.summary.update]
    assert '"ACT"' in [item.value_json for item in updates if item.key == "tiltmeter/state"]
    files = file_paths(records)
    assert [path for path in files if path.startswith("media/table/tiltmeter/completions_")]
    assert [path for path in files if path.startswith("media/images/tiltmeter/proxy_and_gold_")]
    assert sum(record.WhichOneof("record_type") == "exit" for record in records) == 1  # the trainer's


@needs("tensorboard", "trackers")
def test_tensorboard_has_them_in_the_trainers_own_folder(watched: Training) -> None:
    events: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    (folder,) = (watched.folder / "out" / "runs").iterdir()
    run = events.EventAccumulator(str(folder), {"tensors": 0, "scalars": 0})
    until(lambda: run.Reload() and "tiltmeter/proxy_and_gold" in run.Tags()["images"])
    assert [point.step for point in run.Scalars("train/loss")] == list(range(1, STEPS + 1))
    assert [point.step for point in run.Scalars("tiltmeter/gold.mean")] == list(range(1, STEPS + 1))
    assert run.Images("tiltmeter/proxy_and_gold")[-1].encoded_image_string.startswith(b"\x89PNG")
    (alarm,) = run.Tensors("tiltmeter/alarms")
    assert b"pushes gold down" in alarm.tensor_proto.string_val[0]
    assert (
        b"| rollout | reward | gold | completion |"
        in run.Tensors("tiltmeter/completions")[-1].tensor_proto.string_val[0]
    )


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """The training data as somebody may keep it: under other names, and without what the trainer added."""
    file = tmp_path / "tasks.jsonl"
    rows = [{"question": f"what is {i} plus 2", "answer": str(i + 2), "level": "easy"} for i in range(16)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def audit(*arguments: object) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["audit", *map(str, arguments), "--json"])
    assert done.exit_code in (0, 1, 2, 3), done.output
    shown: dict[str, Any] = json.loads(done.stdout)
    return {**shown, "exit_code": done.exit_code}


@pytest.mark.parametrize("source", ["trl", pytest.param("wandb", marks=needs("wandb", "trackers"))])
def test_an_audit_with_the_dataset_joined_comes_to_the_verdict_of_the_live_run(
    watched: Training, dataset: Path, source: str
) -> None:
    assert watched.directory is not None
    live = judge_run(RunDirectory(watched.directory))[0]
    gold = ("--gold", f"{watched.folder}/checks.py:brief", "--gold-share", 1.0)
    where = watched.folder / "out" / "completions" if source == "trl" else wandb_file(watched.folder).parent
    shown = audit(where, "--dataset", dataset, "--on", "question", *gold)
    assert (shown["state"], shown["exit_code"], shown["sentence"]) == (live.state, live.exit_code, live.sentence)
    raised = [(alarm["name"], alarm["step"], alarm["onset"]) for alarm in shown["alarms"]]
    assert raised == [(alarm.name, alarm.step, alarm.onset) for alarm in live.alarms]
    assert any(f"tasks.jsonl has a row for {32 * STEPS} of {32 * STEPS} rollouts" in line for line in shown["said"])
    assert audit(where, *gold)["state"] == "BLIND"  # the answers are in no other place


def test_gold_is_looked_for_in_the_dataset_that_is_joined(watched: Training, dataset: Path) -> None:
    shown = audit(watched.folder / "out" / "completions", "--dataset", dataset)
    assert shown["gold"]["name"] == "the dataset's answers" and shown["readings"]["gold.mean"]["steps"] == STEPS


@needs("mlflow", "mlflow")
def test_mlflow_has_them_in_the_trainers_own_run(watched: Training) -> None:
    tracking: Any = importlib.import_module("mlflow.tracking")
    client = tracking.MlflowClient(f"sqlite:///{watched.folder}/mlflow.db")
    (run,) = client.search_runs(["0"])
    until(lambda: client.get_run(run.info.run_id).data.tags.get("tiltmeter.state") == "ACT", 60.0)
    until(lambda: len(client.list_artifacts(run.info.run_id, "tiltmeter")) == 2, 60.0)
    for name in ("loss", "tiltmeter/gold.mean"):
        history = client.get_metric_history(run.info.run_id, name)
        assert sorted(point.step for point in history) == list(range(1, STEPS + 1))
    tags = client.get_run(run.info.run_id).data.tags
    assert [name for name in tags if name.startswith("tiltmeter.alarm.")]
    assert client.get_run(run.info.run_id).info.status == "FINISHED"  # by the trainer


@needs("trackio", "trackio")
def test_a_trackio_run_by_its_address_is_audited_to_the_same_verdict(watched: Training, dataset: Path) -> None:
    storage: Any = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    (run,) = storage.get_runs("huggingface")
    gold = ("--gold", f"{watched.folder}/checks.py:brief", "--gold-share", 1.0)
    shown = audit(f"trackio:huggingface/{run}", "--dataset", dataset, *gold)
    assert watched.directory is not None
    assert shown["sentence"] == judge_run(RunDirectory(watched.directory))[0].sentence


@needs("mlflow", "mlflow")
def test_an_mlflow_run_by_its_address_gives_what_was_logged(watched: Training) -> None:
    tracking: Any = importlib.import_module("mlflow.tracking")
    (run,) = tracking.MlflowClient().search_runs(["0"])
    shown = audit(f"mlflow:{run.info.run_id}")
    assert shown["state"] == "BLIND" and shown["readings"]["training.loss"]["steps"] == STEPS


@needs("wandb", "trackers")
def test_a_wandb_run_by_its_address_is_audited_like_its_folder(
    watched: Training, dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W&B's servers are not here: this Api answers from the folder, as theirs does from what was uploaded."""
    folder, records = wandb_file(watched.folder).parent, wandb_records(watched.folder)

    class UploadedFile:
        def __init__(self, name: str) -> None:
            self.name = name

        def download(self, root: str, exist_ok: bool) -> None:
            assert ".." not in self.name
            target = Path(root, self.name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((folder / "files" / self.name).read_bytes())

    class Api:
        def run(self, name: str) -> Any:
            assert name == "me/grpo/1a2b3c"
            return self

        def files(self) -> list[UploadedFile]:
            names = [
                str(path.relative_to(folder / "files")) for path in (folder / "files").rglob("*") if path.is_file()
            ]
            return [UploadedFile(name) for name in [*names, "media/table/../../../../etc/x.table.json"]]

        def scan_history(self) -> Iterator[dict[str, Any]]:
            for record in records:
                if record.WhichOneof("record_type") == "history":
                    yield {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}

    monkeypatch.setattr("wandb.Api", Api)
    gold = ("--gold", f"{watched.folder}/checks.py:brief", "--gold-share", 1.0, "--dataset", dataset)
    fetched, local = audit("wandb:me/grpo/1a2b3c", *gold), audit(folder, *gold)
    for key in ("state", "sentence", "alarms", "steps", "completions"):
        assert fetched[key] == local[key]
    assert fetched["readings"]["training.loss"] == local["readings"]["training.loss"]


@needs("trackio", "trackio")
def test_trackio_has_them_in_the_trainers_own_run(watched: Training) -> None:
    storage: Any = importlib.import_module("trackio.sqlite_storage").SQLiteStorage
    (run,) = storage.get_runs("huggingface")

    def rows_with(name: str) -> list[dict[str, Any]]:
        return [row for row in storage.get_logs("huggingface", run) if name in row]

    until(lambda: rows_with("tiltmeter/proxy_and_gold"), 60.0)
    assert len(rows_with("train/loss")) == STEPS and rows_with("tiltmeter/completions")
    assert sorted(row["train/global_step"] for row in rows_with("tiltmeter/gold.mean")) == list(range(1, STEPS + 1))
    assert [row["level"] for row in storage.get_alerts("huggingface")].count("error") == 1
    assert "learning_rate" in storage.get_run_config("huggingface", run)  # ours has not taken its place


@needs("tensorboard", "trackers")
def test_a_process_that_dies_is_started_again_and_a_tracker_that_lets_nobody_in_is_said(
    watched: Training, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watched.directory is not None
    monkeypatch.setattr(reporters, "START_SECONDS", 0.05)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed):
        reporter = RunReporter(watched.directory)
        os.kill(reporter._process.pid, signal.SIGKILL)
        reporter.open({"wandb": "nobody", "tensorboard": str(tmp_path)}, {}, "here")
        until(lambda: list(tmp_path.glob("*.tiltmeter")))
        assert reporter.finish(quiet=True)
    reporter.leave()
    lines = printed.getvalue().splitlines()
    assert [line for line in lines if line.startswith("tiltmeter: Not in the trainer's own run: wandb: ")]
    assert lines[-1] == "tiltmeter: here"
    until(lambda: reporter._process.poll() is not None)
    idle = RunReporter(watched.directory)  # quiet, and the trainer has no open run anywhere
    idle.open({}, {}, "")
    assert idle.finish(quiet=True)
    events: Any = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    run = events.EventAccumulator(str(tmp_path), {"scalars": 0})
    assert [point.step for point in run.Reload().Scalars("tiltmeter/gold.mean")] == list(range(1, STEPS + 1))


def test_both_can_be_switched_off(make_trainer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILTMETER_QUIET", raising=False)
    printed = io.StringIO()
    with contextlib.redirect_stderr(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tiltmeter.attach(
            make_trainer(report_to=TRACKERS or "none"), trackers=False, options=tiltmeter.Options(quiet=True)
        )
    assert run._callback._reporter is None and "watching" not in printed.getvalue()


def until(holds: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.1)
