"""Finds lm-evaluation-harness tasks by name, file or folder, with the data files beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError

#: Tasks of our own, shipped with their items: they need no network, and any model that was trained on text knows some.
OWN = ("facts", "arithmetic")

#: A name or the path of a file that only the harness can read, or a task as data.
Spec = str | dict[str, Any]


def task_specs(tasks: Sequence[str | Path]) -> list[Spec]:
    """Task specifications for the harness: names, paths of files that only it can read, and task files as data.

    Data files that a task names are looked for beside it.

    >>> [spec["task"] for spec in task_specs(OWN)]
    ['tiltmeter_facts', 'tiltmeter_arithmetic']
    """
    here = Path(str(files("tiltmeter_workbench.compare") / "suites" / "tasks"))
    all_specs: list[Spec] = []
    for task in tasks:
        path = here / f"{task}.yaml" if task in OWN else Path(task)
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
            specs = [_spec(file) for file in inside]
            all_specs += [spec for spec in specs if isinstance(spec, str) or isinstance(spec.get("task"), str)]
            if not inside:
                raise AttachError(f"{task} holds no task file of lm-evaluation-harness (.yaml)")
        else:
            all_specs.append(_spec(path) if path.suffix in (".yaml", ".yml") else str(task))
    if not all_specs:
        raise AttachError(f"capability: name a task, as {OWN[0]}, a task of lm-evaluation-harness or a task file")
    return all_specs


def _spec(file: Path) -> Spec:
    import yaml

    try:
        config = yaml.safe_load(file.read_text("utf-8"))
    except OSError as error:
        raise AttachError(f"{file} cannot be read: {error.strerror or error}") from error
    except yaml.constructor.ConstructorError:
        return str(file.resolve())  # it names functions, which the harness loads itself
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise AttachError(f"{file} is no task file: {error}") from error
    if not isinstance(config, dict) or "include" in config or "task" not in config:
        return str(file.resolve())
    options = dict(config.get("dataset_kwargs") or {})
    if "data_files" in options:
        options["data_files"] = _absolute(options["data_files"], file.parent)
        config["dataset_kwargs"] = options
    return config


def _absolute(data_files: Any, folder: Path) -> Any:
    if isinstance(data_files, Mapping):
        return {split: _absolute(one, folder) for split, one in data_files.items()}
    if isinstance(data_files, list):
        return [_absolute(one, folder) for one in data_files]
    beside = folder / str(data_files)
    return str(beside.resolve()) if beside.exists() else data_files


def spec_content(spec: Spec) -> object:
    """A task with the bytes of its data, so that edited items are scored anew."""
    if isinstance(spec, str):
        return [spec, hashlib.sha256(Path(spec).read_bytes()).hexdigest() if Path(spec).is_file() else ""]
    data_files = (spec.get("dataset_kwargs") or {}).get("data_files")
    names = data_files.values() if isinstance(data_files, Mapping) else [data_files]
    paths = [Path(str(one)) for name in names for one in (name if isinstance(name, list) else [name])]
    return [spec, [hashlib.sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()]]
