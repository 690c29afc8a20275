"""A recipe, run: one stage after the other, each once; what was interrupted goes on, what is finished is left alone."""

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
from tiltmeter.train import places, processes
from tiltmeter.train.checks import check
from tiltmeter.train.data import checked
from tiltmeter.train.finished import Parts, Result, begin, begun, changed, finish, finished, identity
from tiltmeter.train.method import Context, Progress
from tiltmeter.train.methods import config_of, trainer_of
from tiltmeter.train.paying import resolved
from tiltmeter.train.recipe import Recipe, Stage, is_hub
from tiltmeter.train.settings import configured

#: Methods that use one process, whatever the number there is: the others wait.
ALONE = ("constitution", "ppo")
#: Fields whose texts may be names of files or of stages.
NAMING = ("data", "eval", "rewards", "guards", "gold", "options")


@dataclass(frozen=True)
class Done:
    """A stage at its end. `before`: it was finished already, and nothing was done."""

    result: Result
    before: bool


def run(recipe: Recipe, progress: Progress, *, fresh: Sequence[str] = (), steps: int | None = None) -> list[Done]:
    """Train what is not trained yet. Raises `AttachError` before anything is, for whatever cannot work.

    `fresh`: stages whose results are thrown away first. `steps`: a trial, at most so many steps of each stage, kept in
    a folder of its own inside the output.
    """
    check(recipe)
    output = recipe.output if steps is None else recipe.output / f"trial-{steps}"
    stages = [_Place(recipe, stage, output / f"{number:02d}-{stage.name}", steps)
              for number, stage in enumerate(recipe.stages, 1)]  # fmt: skip
    if unknown := [name for name in fresh if name not in [stage.name for stage in recipe.stages]]:
        raise AttachError(f"--fresh {unknown[0]}: there is no such stage; there are {_names(recipe)}")
    for place in stages:
        place.configure(progress)  # which also lets several processes find each other
    with _alone(output), _quiet():
        _settled(stages, fresh)
        return list(_run(stages, progress))


def state(recipe: Recipe) -> dict[str, str]:
    """By stage, whether it is finished, was begun, or is still to do."""
    found = {}
    for number, stage in enumerate(recipe.stages, 1):
        folder = recipe.output / f"{number:02d}-{stage.name}"
        found[stage.name] = "finished" if finished(folder) else "begun" if begun(folder) is not None else "to do"
    return found


def _run(stages: Sequence[_Place], progress: Progress) -> Iterator[Done]:
    results: dict[str, Result] = {}
    for place in stages:
        done = finished(place.folder)
        if done is not None:
            results[place.stage.name] = done
            yield Done(done, before=True)
            continue
        context, parts = place.context(results, progress), place.parts(results)
        if processes.main():
            begin(place.folder, parts)
        processes.wait()
        if processes.main() or place.stage.method not in ALONE:
            trained = trainer_of(place.stage.method)(context)
        if processes.main():
            finish(place.folder, place.stage.name, place.stage.method, parts, trained)
        processes.wait()
        _freed()
        made = finished(place.folder)
        if made is None:
            raise AttachError(f"{place.folder} is not seen by every process: use a folder that all of them share")
        results[place.stage.name] = made
        yield Done(made, before=False)


def _settled(stages: Sequence[_Place], fresh: Sequence[str]) -> None:
    """Refuse what does not fit to the results that are there, all at once and first; then throw away what is asked."""
    results: dict[str, Result] = {}
    for place in stages:
        name = place.stage.name
        if name in fresh:
            continue
        done, started = finished(place.folder), begun(place.folder)
        before = done.parts if done is not None else started
        if before is not None and (odd := list(changed(before, place.parts(results)))):
            what = "finished" if done is not None else "begun"
            again = " ".join(f"--fresh {one}" for one in [*fresh, name])
            raise AttachError(
                f"stage {name} is {what}, and {', '.join(odd[:5])} changed since: train it again with {again}, or "
                f"keep it and name another output"
            )
        if done is not None:
            results[name] = done
    if processes.main():
        for place in stages:
            if place.stage.name in fresh and place.folder.exists():
                shutil.rmtree(place.folder)
    processes.wait()


@dataclass(frozen=True)
class _Place:
    """A stage and its folder."""

    recipe: Recipe
    stage: Stage
    folder: Path
    steps: int | None

    def configure(self, progress: Progress) -> None:
        config = config_of(self.stage.method)
        if config is not None:
            configured(self._context(Path(), None, None, (), progress), config)

    def context(self, results: Mapping[str, Result], progress: Progress) -> Context:
        model = self._model(results)
        data, held = (self._file(field, getattr(self.stage, field), results) for field in ("data", "eval"))
        rewards = tuple(resolved(self.recipe, entry, results) for entry in self.stage.rewards)
        return self._context(model, data, held, rewards, progress)

    def _context(
        self, model: Path, data: Path | None, held: Path | None, rewards: Sequence[Mapping[str, Any]],
        progress: Progress,
    ) -> Context:  # fmt: skip
        gold = None if self.stage.gold is None else places.function(self.recipe, self.stage.gold)
        stage = replace(self.stage, gold=gold)
        return Context(self.recipe, stage, self.folder, model, data, held, rewards, progress, self.steps)

    def parts(self, results: Mapping[str, Result]) -> Parts:
        """Everything that makes the stage what it is: settings as they are, files by what they hold, stages by when
        they were made."""
        named = {"model": places.start_of(self.recipe, self.stage)}
        named |= {field: getattr(self.stage, field) for field in NAMING}
        plain = {field: getattr(self.stage, field) for field in ("method", "trl", "lora", "watch")}
        known = {field: self._identified(value, results) for field, value in named.items()}
        made = {**plain, **known, "seed": self.recipe.seed, "steps": self.steps}
        parts: Parts = json.loads(json.dumps(made, default=str))
        return parts

    def _identified(self, value: Any, results: Mapping[str, Result]) -> Any:
        if isinstance(value, Mapping):
            # The name of a reward may be that of a folder beside the recipe, as the output of another recipe is.
            return {key: one if key == "name" else self._identified(one, results) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._identified(one, results) for one in value]
        if not isinstance(value, str):
            return value
        found = places.reference(value)
        if found is not None:
            made = results.get(found.stage)
            return {value: "to be made" if made is None else made.made}
        if is_hub(value):
            return {value: places.model_folder(self.recipe, self.stage.name, value).name}
        for text in (value, value.rpartition(":")[0]):
            path = places.beside(self.recipe, text)
            if text and path.exists() and path != self.recipe.path.parent.resolve():
                return {value.removeprefix(text) or "holds": identity(path)}
        return value

    def _model(self, results: Mapping[str, Result]) -> Path:
        name = places.start_of(self.recipe, self.stage)
        found = places.reference(name)
        if found is None:
            return places.model_folder(self.recipe, f"stage {self.stage.name}", name)
        made = results[found.stage]
        return made.folder / found.file if found.file else made.trained.folders[0]

    def _file(self, field: str, name: str | None, results: Mapping[str, Result]) -> Path | None:
        if name is None:
            return None
        found = places.reference(name)
        if found is None:
            return places.beside(self.recipe, name)
        made = results[found.stage]
        files = [made.folder / found.file] if found.file else list(made.trained.files)
        if len(files) != 1 or not files[0].exists():
            there = ", ".join(f"@{found.stage}/{path.relative_to(made.folder)}" for path in made.trained.files)
            raise AttachError(f"stage {self.stage.name}: {field}: {name} names no file; there are {there or 'none'}")
        checked(files[0], self.stage.method)
        return files[0]


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """One run of a recipe at a time: two that write the same checkpoints would spoil both."""
    if not processes.main():
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
def _quiet() -> Iterator[None]:
    """Bars of libraries would write over ours; what they warn of is left alone."""
    import datasets
    from transformers.utils import logging

    shown, theirs = logging.is_progress_bar_enabled(), datasets.are_progress_bars_disabled()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
        if not theirs:
            datasets.enable_progress_bars()


def _freed() -> None:
    """A trainer holds on to its model through cycles; the next stage needs the room."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _names(recipe: Recipe) -> str:
    return ", ".join(stage.name for stage in recipe.stages)
