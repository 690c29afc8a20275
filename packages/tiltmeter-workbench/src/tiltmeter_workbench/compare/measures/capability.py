"""Measure: capability on tasks of lm-evaluation-harness, run on both models and compared item by item."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter_workbench.compare.measures.code_tasks import is_code_tasks, score_code
from tiltmeter_workbench.compare.measures.difference import Difference, means, percent, shares
from tiltmeter_workbench.compare.measures.harness_tasks import OWN, Spec, spec_content, task_specs
from tiltmeter_workbench.compare.measures.measure import Measure, State, not_asked
from tiltmeter_workbench.compare.sampling import AnswerSampler, Which, fingerprint

#: Points out of a hundred that a benchmark's own noise and a change of format explain.
MARGIN = 0.05
NAME, TITLE = "capability", "Capability"
MISSING = "needs lm-evaluation-harness: pip install 'tiltmeter[compare]'"
WHICH: tuple[Which, Which] = ("base", "checkpoint")
FIX = "Mix some of the base's training data in, average the weights with the base's, raise beta, or stop earlier."

#: Scores of one model on one task: by item, with the versions of the harness and of the task, and the metric.
Result = dict[str, Any]


def measure(
    sampler: AnswerSampler,
    tasks: Sequence[str | Path] = OWN,
    *,
    limit: int | None = None,
    chat: bool = False,
    alpha: float,
) -> list[Measure]:
    """The tasks' scores of both models, paired by item; all tests together err with chance `alpha`.

    A task is a shipped one, the name of a task or group of the harness, a task file of it, a folder with such files, or
    a table of code tasks, whose programs run in our sandbox.
    A task file may name Python code, which the harness runs. `limit` items of each; `chat` puts the prompts into
    the chat template. What is scored already is found again in the material's folder.
    """
    if find_spec("lm_eval") is None:
        return [not_asked(NAME, TITLE, MISSING)]
    both = {which: score_tasks(sampler, which, tasks, limit, chat) for which in WHICH}
    names = [name for name in both["base"] if name in both["checkpoint"]]
    each = alpha / (len(names) + 1 if len(names) > 1 else 1)
    differences = {name: _difference(both["base"][name], both["checkpoint"][name], each) for name in names}
    states = {name: _state(both, name, differences[name]) for name in names}
    judged_tasks = [name for name in names if states[name] != "shown"]
    pooled = _pooled(both, judged_tasks, each)
    state: State = pooled.state(MARGIN, more_is_worse=False) if judged_tasks else "shown"
    rows = [
        {
            "task": name,
            "version": both["base"][name]["version"],
            "harness": both["base"][name]["harness"],
            "metric": both["base"][name]["metric"],
            "state": states[name],
            **differences[name]._asdict(),
        }
        for name in names
    ]
    fell = [name for name in names if states[name] == "worse"]
    if fell:
        state = "worse"
    sentence = f"Shown and not judged: {', '.join(names)}."  # no share for each item
    if judged_tasks:
        sentence = (
            f"The checkpoint scores {percent(pooled.checkpoint)}, the base {percent(pooled.base)}, on {pooled.n} items "
            f"of {', '.join(judged_tasks)}." + (f" It fell in {', '.join(fell)}." if fell else "")
        )
    return [Measure(NAME, TITLE, state, sentence, "capability", "score", *pooled, rows=rows, fix=FIX)]


def check_tasks(tasks: Sequence[str | Path]) -> None:
    """Raises `AttachError` for an unknown task, before hours of sampling."""
    if find_spec("lm_eval") is None:
        return
    names = [spec for spec in task_specs(tasks) if isinstance(spec, str) and not Path(spec).is_file()]
    if lacking := [name for name in names if is_code_tasks(name)]:
        raise AttachError(f"{lacking[0]} is not there: a table of code tasks")
    if not names:
        return
    with _quiet():
        from lm_eval.tasks import TaskManager

        available = set(TaskManager().all_tasks)
    if missing := [name for name in names if name not in available]:
        raise AttachError(
            f"{missing[0]!r} is no task: give one of ours ({', '.join(OWN)}), a task or group of "
            "lm-evaluation-harness by its name, a task file (.yaml), a folder of them, or code tasks (.jsonl)"
        )


def score_tasks(
    sampler: AnswerSampler, which: Which, tasks: Sequence[str | Path], limit: int | None, chat: bool
) -> dict[str, Result]:
    """Results by task, from the folder where they are there, else from the harness."""
    import lm_eval

    cache = sampler.cache_file(f"capability-{which}")
    model = fingerprint(sampler.model(which).folder)
    results: dict[str, Result] = {}
    for number, spec in enumerate(task_specs(tasks)):
        if sampler.progress is not None:
            sampler.progress(f"capability of the {which}", number, len(tasks))
        is_code = is_code_tasks(spec)
        key_parts = [model, lm_eval.__version__, spec_content(spec), limit, chat, sampler.seed]
        key_parts += [sampler.limit] if is_code else []
        key = hashlib.sha256(json.dumps(key_parts, default=str).encode()).hexdigest()[:24]
        if key not in cache:
            scored = score_code(sampler, which, str(spec), limit) if is_code else None
            cache.put({key: scored or _evaluate(sampler, which, spec, limit, chat)})
        results |= cache.get(key)
    if sampler.progress is not None:
        sampler.progress(f"capability of the {which}", len(tasks), len(tasks))
    return results


def _evaluate(sampler: AnswerSampler, which: Which, spec: Spec, limit: int | None, chat: bool) -> dict[str, Result]:
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    local = sampler.model(which)
    if isinstance(spec, dict):
        # Cached beside the answers, not in the home folder.
        dataset_options = {"cache_dir": str(sampler.work / "datasets"), **(spec.get("dataset_kwargs") or {})}
        spec = {**spec, "dataset_kwargs": dataset_options}
    training = local.model.training
    with _quiet():
        try:
            is_named = isinstance(spec, str) and not Path(spec).is_file()
            manager = TaskManager(include_defaults=is_named)
            harness = HFLM(pretrained=local.model, tokenizer=local.tokenizer, batch_size=local.batch)
            evaluation = lm_eval.simple_evaluate(
                model=harness,
                tasks=[spec],
                limit=limit,
                task_manager=manager,
                log_samples=True,
                apply_chat_template=chat,
                bootstrap_iters=0,
                random_seed=sampler.seed,
                numpy_random_seed=sampler.seed,
                torch_random_seed=sampler.seed,
                fewshot_random_seed=sampler.seed,
            )
        except Exception as error:  # a task's data, template or metric: whatever the harness makes of it
            name = spec["task"] if isinstance(spec, dict) else spec
            raise AttachError(
                f"{name} cannot be run by lm-evaluation-harness {lm_eval.__version__}: {type(error).__name__}: {error}"
            ) from error
        finally:
            local.model.train(training)
    return {task: _result(evaluation, task, lm_eval.__version__) for task in evaluation["samples"]}


def _result(evaluation: Mapping[str, Any], task: str, version: str) -> Result:
    samples = evaluation["samples"][task]
    better = evaluation["higher_is_better"].get(task) or {}
    metric = next(
        (name for name in ("acc", "exact_match", *better) if samples and _is_number(samples[0].get(name))), ""
    )
    if not metric:
        raise AttachError(f"{task} gives no number for each item; it has {sorted(better)}")
    first = samples[0].get("filter")  # a task with several filters lists every item under each
    sign = -1.0 if better.get(metric) is False else 1.0
    values = {
        str(sample["doc_id"]): sign * float(sample[metric])
        for sample in samples
        if sample.get("filter") == first and _is_number(sample.get(metric))
    }
    return {
        "values": values,
        "metric": metric,
        "version": str(evaluation["versions"].get(task, "")),
        "harness": version,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and math.isfinite(float(value))


def _difference(base: Mapping[str, Any], checkpoint: Mapping[str, Any], alpha: float) -> Difference:
    items = [item for item in base["values"] if item in checkpoint["values"]]
    a, b = ([result["values"][item] for item in items] for result in (base, checkpoint))
    return shares(a, b, alpha) if _is_share(base) and _is_share(checkpoint) else means(a, b, alpha)


def _is_share(result: Mapping[str, Any]) -> bool:
    return all(0.0 <= value <= 1.0 for value in result["values"].values())


def _state(both: Mapping[Which, Mapping[str, Result]], name: str, difference: Difference) -> State:
    """A metric that is not a share, such as perplexity, has no preset margin: it is shown and not judged."""
    if not all(_is_share(both[which][name]) for which in WHICH):
        return "shown"
    return difference.state(MARGIN, more_is_worse=False)


def _pooled(both: Mapping[Which, Mapping[str, Result]], names: Sequence[str], alpha: float) -> Difference:
    """All items of these tasks pooled into one set."""
    whole = {
        which: {"values": {f"{n} {item}": v for n in names for item, v in both[which][n]["values"].items()}}
        for which in WHICH
    }
    return _difference(whole["base"], whole["checkpoint"], alpha)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the harness's logs, prints and progress bars."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "transformers", "accelerate")]
    before = [(logger.level, logger.propagate) for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
            logger.propagate = False
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), _quiet_children():
            yield
    finally:
        for logger, (level, propagate) in zip(loggers, before, strict=True):
            logger.setLevel(level)
            logger.propagate = propagate


@contextmanager
def _quiet_children() -> Iterator[None]:
    """The harness asks git for the commit of whatever folder it stands in; outside of one, git complains by itself."""
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)
