"""Run the stages of a recipe in order; interrupted stages resume, finished stages are skipped."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train import distributed, references
from tiltmeter_workbench.train.checks import check_recipe
from tiltmeter_workbench.train.data import read_checked_rows
from tiltmeter_workbench.train.method_interface import Context, Progress
from tiltmeter_workbench.train.recipe import Recipe, Stage, is_hub_model
from tiltmeter_workbench.train.registry import config_of, trainer_of
from tiltmeter_workbench.train.resolve_rewards import resolve_reward
from tiltmeter_workbench.train.stage_results import (
    Parts,
    StageResult,
    changed_settings,
    content_id,
    mark_started,
    read_result,
    started_parts,
    write_result,
)
from tiltmeter_workbench.train.trl_trainer import make_config

#: Methods that use one process, whatever the number there is: the others wait.
SINGLE_PROCESS = ("constitution", "ppo")
#: Fields whose texts may be names of files or of stages.
NAME_FIELDS = ("data", "eval", "replay", "rewards", "guards", "gold", "options")


@dataclass(frozen=True)
class FinishedStage:
    """A finished stage. `before`: it was already finished before this call."""

    result: StageResult
    before: bool


def run_recipe(
    recipe: Recipe, progress: Progress, *, fresh: Sequence[str] = (), steps: int | None = None
) -> list[FinishedStage]:
    """Train the stages that are not finished. Raises `AttachError` first, for anything that cannot work.

    `fresh`: stages whose results are thrown away first. `steps`: a trial, at most so many steps of each stage, kept in
    a folder of its own inside the output.
    """
    check_recipe(recipe)
    output = recipe.output if steps is None else recipe.output / f"trial-{steps}"
    stages = [_StageRun(recipe, stage, output / f"{number:02d}-{stage.name}", steps)
              for number, stage in enumerate(recipe.stages, 1)]  # fmt: skip
    if unknown := [name for name in fresh if name not in [stage.name for stage in recipe.stages]]:
        raise AttachError(f"--fresh {unknown[0]}: there is no such stage; there are {_stage_names(recipe)}")
    for stage_run in stages:
        stage_run.configure(progress)  # which also lets several processes find each other
    with _lock_output(output), _without_progress_bars():
        _prepare_folders(stages, fresh)
        return list(_run_stages(stages, progress))


def stage_states(recipe: Recipe) -> dict[str, str]:
    """By stage, whether it is finished, was begun, or is still to do."""
    states = {}
    for number, stage in enumerate(recipe.stages, 1):
        folder = recipe.output / f"{number:02d}-{stage.name}"
        states[stage.name] = (
            "finished" if read_result(folder) else "begun" if started_parts(folder) is not None else "to do"
        )
    return states


def _run_stages(stages: Sequence[_StageRun], progress: Progress) -> Iterator[FinishedStage]:
    results: dict[str, StageResult] = {}
    for stage_run in stages:
        done = read_result(stage_run.folder)
        if done is not None:
            results[stage_run.stage.name] = done
            yield FinishedStage(done, before=True)
            continue
        context, parts = stage_run.context(results, progress), stage_run.parts(results)
        if distributed.is_main_process():
            mark_started(stage_run.folder, parts)
        distributed.wait_for_everyone()
        if distributed.is_main_process() or stage_run.stage.method not in SINGLE_PROCESS:
            trained = trainer_of(stage_run.stage.method)(context)
        if distributed.is_main_process():
            write_result(stage_run.folder, stage_run.stage.name, stage_run.stage.method, parts, trained)
        distributed.wait_for_everyone()
        _free_memory()
        result = read_result(stage_run.folder)
        if result is None:
            raise AttachError(f"{stage_run.folder} is not seen by every process: use a folder that all of them share")
        results[stage_run.stage.name] = result
        yield FinishedStage(result, before=False)


def _prepare_folders(stages: Sequence[_StageRun], fresh: Sequence[str]) -> None:
    """Refuse stages whose settings changed since they were trained; then delete the results named by `fresh`."""
    results: dict[str, StageResult] = {}
    for stage_run in stages:
        name = stage_run.stage.name
        if name in fresh:
            continue
        done, started = read_result(stage_run.folder), started_parts(stage_run.folder)
        before = done.parts if done is not None else started
        if before is not None and (differences := list(changed_settings(before, stage_run.parts(results)))):
            what = "finished" if done is not None else "begun"
            again = " ".join(f"--fresh {one}" for one in [*fresh, name])
            raise AttachError(
                f"stage {name} is {what}, and {', '.join(differences[:5])} changed since: train it again with {again}, "
                f"or keep it and name another output"
            )
        if done is not None:
            results[name] = done
    if distributed.is_main_process():
        for stage_run in stages:
            if stage_run.stage.name in fresh and stage_run.folder.exists():
                shutil.rmtree(stage_run.folder)
    distributed.wait_for_everyone()


@dataclass(frozen=True)
class _StageRun:
    """A stage of a recipe with its folder and step limit."""

    recipe: Recipe
    stage: Stage
    folder: Path
    steps: int | None

    def configure(self, progress: Progress) -> None:
        config = config_of(self.stage.method)
        if config is not None:
            make_config(self._make_context(Path(), None, None, (), progress), config)

    def context(self, results: Mapping[str, StageResult], progress: Progress) -> Context:
        model = self._model(results)
        data, eval_file, replay = (
            self._file(field, getattr(self.stage, field), results) for field in ("data", "eval", "replay")
        )
        rewards = tuple(resolve_reward(self.recipe, entry, results) for entry in self.stage.rewards)
        return replace(self._make_context(model, data, eval_file, rewards, progress), replay=replay)

    def _make_context(
        self, model: Path, data: Path | None, eval_file: Path | None, rewards: Sequence[Mapping[str, Any]],
        progress: Progress,
    ) -> Context:  # fmt: skip
        gold = None if self.stage.gold is None else references.resolve_function(self.recipe, self.stage.gold)
        stage = replace(self.stage, gold=gold)
        return Context(self.recipe, stage, self.folder, model, data, eval_file, rewards, progress, steps=self.steps)

    def parts(self, results: Mapping[str, StageResult]) -> Parts:
        """All inputs of the stage: settings by value, files by content hash, earlier stages by their build id."""
        named = {"model": references.start_model(self.recipe, self.stage)}
        named |= {field: getattr(self.stage, field) for field in NAME_FIELDS}
        plain = {field: getattr(self.stage, field) for field in ("method", "trl", "lora", "watch")}
        identities = {field: self._identify(value, results) for field, value in named.items()}
        document = {**plain, **identities, "seed": self.recipe.seed, "steps": self.steps}
        parts: Parts = json.loads(json.dumps(document, default=str))
        return parts

    def _identify(self, value: Any, results: Mapping[str, StageResult]) -> Any:
        if isinstance(value, Mapping):
            # The name of a reward may be that of a folder beside the recipe, as the output of another recipe is.
            return {key: one if key == "name" else self._identify(one, results) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._identify(one, results) for one in value]
        if not isinstance(value, str):
            return value
        ref = references.parse_reference(value)
        if ref is not None:
            result = results.get(ref.stage)
            return {value: "to be made" if result is None else result.build_id}
        if is_hub_model(value):
            return {value: references.model_folder(self.recipe, self.stage.name, value).name}
        for text in (value, value.rpartition(":")[0]):
            path = references.resolve_path(self.recipe, text)
            if text and path.exists() and path != self.recipe.path.parent.resolve():
                return {value.removeprefix(text) or "holds": content_id(path)}
        return value

    def _model(self, results: Mapping[str, StageResult]) -> Path:
        name = references.start_model(self.recipe, self.stage)
        ref = references.parse_reference(name)
        if ref is None:
            return references.model_folder(self.recipe, f"stage {self.stage.name}", name)
        result = results[ref.stage]
        return result.folder / ref.file if ref.file else result.trained.folders[0]

    def _file(self, field: str, name: str | None, results: Mapping[str, StageResult]) -> Path | None:
        if name is None:
            return None
        ref = references.parse_reference(name)
        if ref is None:
            return references.resolve_path(self.recipe, name)
        result = results[ref.stage]
        files = [result.folder / ref.file] if ref.file else list(result.trained.files)
        if len(files) != 1 or not files[0].exists():
            there = ", ".join(f"@{ref.stage}/{path.relative_to(result.folder)}" for path in result.trained.files)
            raise AttachError(f"stage {self.stage.name}: {field}: {name} names no file; there are {there or 'none'}")
        read_checked_rows(files[0], self.stage.method)
        return files[0]


@contextmanager
def _lock_output(output: Path) -> Iterator[None]:
    """Lock the output folder: two runs that write the same checkpoints would corrupt both."""
    if not distributed.is_main_process():
        yield
        return
    output.mkdir(parents=True, exist_ok=True)
    handle = os.open(output / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AttachError(f"{output} is being trained in by another process; wait for it, or end it") from error
        yield
    finally:
        os.close(handle)


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Turn off the libraries' progress bars, which would overwrite ours; warnings stay."""
    import datasets
    from transformers.utils import logging

    transformers_bars, datasets_bars_off = logging.is_progress_bar_enabled(), datasets.are_progress_bars_disabled()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if transformers_bars:
            logging.enable_progress_bar()
        if not datasets_bars_off:
            datasets.enable_progress_bars()


def _free_memory() -> None:
    """Free memory for the next stage: a trainer keeps its model through reference cycles."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _stage_names(recipe: Recipe) -> str:
    return ", ".join(stage.name for stage in recipe.stages)
