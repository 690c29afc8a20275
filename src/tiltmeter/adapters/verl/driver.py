"""Watches a veRL run from its driver: rollouts as veRL decodes them, metrics, and the in-reward KL coefficient.

`fit` raises `AttachError` before the first step for what cannot work, and says how to train without it. Afterwards it
is silent. Written against veRL 0.9.1; see `docs/other-trainers.md` for what was run and what was only read.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.adapters.arguments import AUTO, Gold, Launch, read_act, read_gold, read_options
from tiltmeter.adapters.capture.recorder import Recorder, open_recorder
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.adapters.knobs import KnobControl, LiveKnob, fixed_knob, reward_kl_knob
from tiltmeter.adapters.metric_names import canonical_names, evaluation_keys, first_metrics
from tiltmeter.adapters.verl.advantage_screen import AdvantageScreen
from tiltmeter.adapters.verl.switch import SWITCH
from tiltmeter.adapters.verl.turn_scores import place_scores, read_scores
from tiltmeter.data.batches import from_tensor
from tiltmeter.data.turns import turns_of_tokens
from tiltmeter.errors import AttachError, Boundary, describe_error, finish_first
from tiltmeter.rundir.staging.pending_rows import FLUSH_SECONDS
from tiltmeter.rundir.staging.staged_rows import StepBoundary, finite_numbers

#: Kept under veRL's own name.
KEPT_METRICS = (
    *(
        "critic/score/",
        "critic/rewards/",
        "critic/advantages/",
        "critic/returns/",
        "critic/values/",
        "critic/vf_explained_var",
    ),
    *("training/off_policy/", "val-core/", "rollout_corr/", "response/aborted_ratio"),
)
#: What is taken from veRL's queue beside what it dumps. `response_mask` is 1 where the policy wrote the token.
QUEUE_FIELDS = ("responses", "response_mask", "rollout_log_probs")
#: Scores of single turns are here, beside whatever else an agent loop wants to keep.
EXTRA_FIELDS = "extra_fields"
DUMP_MARKER = "tiltmeter: kept by the run, not written here"  # a path that veRL's dump is never allowed to reach
WORKER_SETTING = "it lives in the workers' configuration, which the driver cannot change: restart with {}"


def scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """veRL's logged metrics under canonical names.

    >>> scalars({"actor/ppo_kl": 0.1, "actor/kl_loss": 0.2, "perf/mfu": 0.3, "critic/score/mean": 1})
    {'kl_old_new': 0.1, 'kl_ref': 0.2, 'reward': 1.0}
    """
    metrics = first_metrics(metrics)
    names = canonical_names(metrics)
    values = {
        names.get(key, key): value for key, value in metrics.items() if key in names or key.startswith(KEPT_METRICS)
    }
    return finite_numbers(values)


def _read_gold(setting: Any) -> Gold:
    """Evaluations alone do not make the driver look for gold: nobody can look at the rows before the run."""
    return read_gold({"source": None, **setting} if hasattr(setting, "items") else setting)


class VerlObserver:
    """Observes one veRL trainer: only the methods of this object are wrapped, its class stays as it is.

    `provides`: the columns that the run will have. `knobs`: the numbers that may be changed. With
    `TILTMETER_VERL=capture` (or `rows: capture` in the configuration) rows come from captured reward functions in the
    workers, with their parts, and the driver writes where each step ends.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        config = trainer.config.trainer.get("tiltmeter", None)
        settings: dict[str, Any] = dict(config) if isinstance(config, Mapping) or hasattr(config, "items") else {}
        rows = settings.pop("rows", "capture" if os.environ.get(SWITCH) == "capture" else "dump")
        act, gold = read_act(settings.pop("act", None)), _read_gold(settings.get("gold"))
        settings["gold"] = gold
        self._evals: tuple[str, ...] | None = None if gold.evals == AUTO else tuple(gold.evals)  # None: by their names
        where = settings.pop("directory", None) or Path(trainer.config.trainer.default_local_dir) / "tiltmeter"
        self._legacy = not hasattr(trainer, "_compute_metrics")
        self._check(rows)
        self.screen: AdvantageScreen | None = None
        if act.screen is not None:
            self._check_screen(str(act.screen), gold.source, rows, act.mode)
        self.run: Run | None = None
        self.recorder: Recorder | None = None
        if rows == "capture":
            self.recorder = open_recorder(where, driver=True, seconds=FLUSH_SECONDS, rows=256, settings=settings)
            store, attempt = self.recorder.store, self.recorder.attempt
        else:
            done = int(vars(trainer).get("global_steps", 0))
            settings = {"resume_step": done + 1 if done else None, **settings}
            if gold.steps is None:
                gold = replace(gold, steps=_planned_steps(trainer))
            options = read_options(settings.get("options"))
            if options.tokenizer is None:
                options = replace(options, tokenizer=vars(trainer).get("tokenizer"))
            self.run = open_run(where, **{**settings, "gold": gold, "options": options, "launch": Launch(0, 1)})
            assert self.run.store is not None  # the plug-in has checked that Tiltmeter is not disabled
            store, attempt = self.run.store, self.run.attempt
        self.provides = frozenset(
            {"scalars"} | ({"group", "prompt", "completion", "reward", "facts"} if self.run else {"boundaries"})
        )
        if act.screen is not None:
            self.screen = AdvantageScreen(
                trainer, str(act.screen), act.most_lost, on=act.mode == "act", failed=self._record_problem
            )
        self._knob_control = KnobControl(store, attempt, self._live_knobs(), act.mode, act.limits)
        self._metrics: dict[str, float] = {}
        self._rows: dict[str, Any] | None = None
        self._padding: frozenset[str] = frozenset()
        self._trajectories: dict[str, dict[str, Any]] = {}
        self._has_tools = False  # somebody else than the policy has written tokens of an answer
        self._begin: float | None = None
        self._end: float | None = None
        self._undo: Callable[[], None] = lambda: None
        self._wrap()

    @property
    def knobs(self) -> dict[str, Any]:
        return self._knob_control.knobs

    def close(self) -> None:
        """Called when `fit` returns or raises: veRL skips its own `on_train_end` at the last step."""
        finish_first(lambda interrupts: self._close_parts())

    def _close_parts(self) -> None:
        """Each part of the end, which may be begun again after an interrupt."""
        self._guard(self._undo)
        if self.screen is not None:
            self._guard(self.screen.release)
        for part in (self.run, self.recorder):
            if part is not None:
                part.close()

    # -- before training --------------------------------------------------------------------------------------------

    def _check(self, rows: str) -> None:
        out = f"; unset {SWITCH} and trainer.tiltmeter to train without"
        needed = (
            "_dump_generations",
            "_log_rollout_data",
            *(() if self._legacy else ("on_train_begin", "on_step_end")),
        )
        if lacking := [name for name in needed if not hasattr(self.trainer, name)]:
            raise AttachError(f"this veRL's {type(self.trainer).__name__} has no {lacking[0]}: not one known here{out}")
        if rows not in ("dump", "capture"):
            raise AttachError(f"trainer.tiltmeter.rows={rows!r}: choose dump or capture{out}")
        if self._legacy and rows == "capture":
            raise AttachError(f"the older trainer does not say when a step's scoring ends: set rows=dump{out}")
        if self._legacy and not self.trainer.config.trainer.get("rollout_data_dir", None):
            raise AttachError(f"the older trainer shows rollouts only if trainer.rollout_data_dir is set: set it{out}")
        if rows == "capture" and self.trainer.trainer_mode != "sync":
            raise AttachError(
                f"trainer_mode={self.trainer.trainer_mode}: rows are scored while other steps train, and a captured "
                f"reward cannot know for which: set rows=dump{out}"
            )

    def _check_screen(self, flag: str, gold: object, rows: str, mode: str) -> None:
        if self._legacy or rows != "dump" or mode == "observe":
            raise AttachError(
                "trainer.tiltmeter.act.screen changes training, in veRL's trainer since 0.9: set "
                "rows=dump and act.mode=advise or act"
            )
        if flag == gold:
            raise AttachError(
                "trainer.tiltmeter.act.screen is gold: what is screened by gold is trained to look good to it"
            )

    def _live_knobs(self) -> list[LiveKnob]:
        trainer, config = self.trainer, self.trainer.config
        knobs = [LiveKnob("stop", self._stopping, self._stop, 0.0, 1.0)]
        if (screen := self.screen) is not None:
            knobs.append(LiveKnob("screen", lambda: screen.value, screen.set, 0.0, 1.0))
        if config.algorithm.use_kl_in_reward:
            knobs.append(reward_kl_knob(trainer.kl_ctrl_in_reward))
        else:
            why = "there is no KL in the reward: restart with algorithm.use_kl_in_reward=True"
            knobs.append(fixed_knob("beta", 0.0, why))
        actor = config.actor_rollout_ref.actor
        why = WORKER_SETTING.format("actor_rollout_ref.actor.entropy_coeff")
        knobs.append(fixed_knob("entropy_coef", float(actor.entropy_coeff), why))
        knobs.append(
            fixed_knob(
                "learning_rate", float(actor.optim.lr), WORKER_SETTING.format("actor_rollout_ref.actor.optim.lr")
            )
        )
        why = "veRL goes back only by a restart: trainer.resume_mode=resume_path trainer.resume_from_path=..."
        knobs.append(fixed_knob("rollback", 0.0, why))
        return knobs

    def _now(self) -> int:
        return int(vars(self.trainer).get("global_steps", 0))  # the older trainer has none before it trains

    def _stopping(self) -> float:
        return float(self.trainer.total_training_steps <= self._now() + 1)

    def _stop(self, value: float) -> None:
        if value >= 1.0:  # the next step is then the last, and is saved if trainer.save_freq > 0
            self.trainer.total_training_steps = min(self.trainer.total_training_steps, self._now() + 1)

    def _wrap(self) -> None:
        self._wrap_method("_dump_generations", self._wrap_dump)
        if self._legacy:
            self._wrap_tracking()
            return
        self._wrap_method("on_train_begin", self._wrap_train_begin)
        self._wrap_method("on_step_end", self._wrap_step_end)
        self._wrap_method("_compute_metrics", self._wrap_compute_metrics)

    def _wrap_method(self, name: str, wrapper: Callable[..., Any]) -> None:
        setattr(self.trainer, name, functools.wraps(getattr(self.trainer, name))(wrapper(getattr(self.trainer, name))))

    # -- during training: nothing below may raise by itself ----------------------------------------------------------

    def _wrap_train_begin(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def on_train_begin(*args: Any, **kwargs: Any) -> Any:
            self._begin = time.time()  # earlier validations belong to no step
            return original(*args, **kwargs)

        return on_train_begin

    def _wrap_step_end(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def on_step_end(*args: Any, **kwargs: Any) -> Any:
            self._end = time.time()  # trained: whatever is scored from now on is a validation
            return original(*args, **kwargs)

        return on_step_end

    def _wrap_compute_metrics(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compute_metrics(batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
            result = original(batch, metrics, *args, **kwargs)
            self._guard(lambda: self._record_step(batch, metrics))
            return result

        return compute_metrics

    def _record_step(self, batch: Any, metrics: Mapping[str, Any]) -> None:
        self._metrics = scalars(metrics)
        step = int(self.trainer.global_steps)
        if self.screen is not None:
            self._metrics |= self.screen.counts
            if why := self.screen.ended:
                self.screen.ended = ""
                self._knob_control.tell_ended("screen", 1.0, step, why)
                assert self.run is not None  # rows=dump, as was checked
                self.run.record_problem(f"the screen of rollouts has ended itself: {why}")
        self._record_evaluations(step, metrics)
        if self.recorder is not None:
            self.recorder.step(StepBoundary(step, self._end or time.time(), self._begin, None, self._metrics))
            self._begin = time.time()
            self._knob_control.poll(step)
            return
        tags = dict(zip(batch.keys, batch.tags, strict=True))
        self._padding = frozenset(key for key, tag in tags.items() if tag.get("is_padding", False))
        self._trajectories = {}
        with Boundary(self._record_problem):  # the rows themselves are still to come
            self._fetch_trajectories(batch, tags)
        if not self.trainer.config.trainer.get("rollout_data_dir", None):
            self.trainer._log_rollout_data(batch, {}, DUMP_MARKER)  # veRL decodes; our wrapped dump receives the rows

    def _fetch_trajectories(self, batch: Any, tags: Mapping[str, Mapping[str, Any]]) -> None:
        """What veRL does not dump: which tokens the policy wrote, what its engine thought of them, its versions."""
        queue = importlib.import_module("transfer_queue")
        names = [*QUEUE_FIELDS, EXTRA_FIELDS]
        data = queue.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=names)
        present = [name for name in QUEUE_FIELDS if name in data.keys()]  # noqa: SIM118
        fields = {name: [from_tensor(row) for row in data[name].unbind()] for name in present}
        decode = partial(self.trainer.tokenizer.decode, skip_special_tokens=True)
        masks = fields.get("response_mask", [])
        extra = list(data[EXTRA_FIELDS]) if EXTRA_FIELDS in data.keys() else [None] * len(batch.keys)  # noqa: SIM118
        scores = [read_scores(getattr(value, "data", value)) for value in extra]  # wrapped, or as it is
        self._has_tools |= any(not mask.all() for mask in masks) or any(scores)
        for row, key in enumerate(batch.keys):
            columns: dict[str, Any] = {name: rows[row] for name, rows in fields.items()}
            versions = (tags[key].get("min_global_steps"), tags[key].get("max_global_steps"))
            if self.screen is not None and self.screen.counts:
                columns["trained"] = key.rsplit("_", 1)[0] not in self.screen.lost
            columns["version"] = None if None in versions else versions
            if self._has_tools and "responses" in columns:
                tokens, own = columns["responses"].tolist(), columns["response_mask"].tolist()
                columns["turns"] = turns_of_tokens(tokens, own, decode)
                columns["turns"], columns["artifacts"] = place_scores(columns["turns"], scores[row])
            self._trajectories[key] = columns

    def _wrap_dump(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def dump_generations(*args: Any, **kwargs: Any) -> Any:
            self._guard(lambda: self._record_dump(signature.bind(*args, **kwargs).arguments))
            ours = any(isinstance(value, str) and value == DUMP_MARKER for value in (*args, *kwargs.values()))
            return None if ours else original(*args, **kwargs)

        return dump_generations

    def _record_dump(self, arguments: Mapping[str, Any]) -> None:
        if arguments["dump_path"] not in (DUMP_MARKER, self.trainer.config.trainer.get("rollout_data_dir", None)):
            return  # a validation dump
        rows = _columns(arguments, self._padding, self._trajectories)
        if self._legacy:
            self._rows = rows  # its metrics come later
        else:
            self._hand_over(int(self.trainer.global_steps), rows)

    def _wrap_tracking(self) -> None:
        """Wrap `Tracking.log`: the older trainer has no method for its metrics, but logs all of them after a step."""
        tracking_class = importlib.import_module("verl.utils.tracking").Tracking
        original, trainer = tracking_class.log, self.trainer

        def log_and_record(tracking: Any, data: Mapping[str, Any], step: int, *args: Any, **kwargs: Any) -> Any:
            result = original(tracking, data, step, *args, **kwargs)
            if self._rows is not None and step == trainer.global_steps:
                self._guard(lambda: self._hand_over_logged(int(step), data))
            return result

        tracking_class.log = functools.wraps(original)(log_and_record)
        self._undo = lambda: setattr(tracking_class, "log", original)

    def _hand_over_logged(self, step: int, data: Mapping[str, Any]) -> None:
        rows, self._rows = self._rows, None
        self._metrics = scalars(data)
        self._record_evaluations(step, data)
        self._hand_over(step, rows or {})

    def _record_evaluations(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Declare validations as gold, each with the number of its items."""
        with Boundary(self._record_problem):
            run = self.run if self.recorder is None else self.recorder.run
            for key in evaluation_keys(metrics) if self._evals is None else self._evals:
                if run is not None and metrics.get(key) is not None:
                    name = re.sub(r"[^a-z0-9_]", "_", key.lower().removeprefix("val-core/"))[:64]
                    run.evaluate(step, float(metrics[key]), _validation_items(self.trainer, key), name)

    def _hand_over(self, step: int, rows: dict[str, Any]) -> None:
        assert self.run is not None
        self.run.observe(step=step, scalars=self._metrics, **rows)
        self._knob_control.poll(step)

    def _guard(self, work: Callable[[], None]) -> None:
        with Boundary(self._count_failure):
            work()

    def _count_failure(self, error: BaseException) -> None:
        if self.run is not None:
            self.run.refuse(error)
        self._record_problem(error)

    def _record_problem(self, error: BaseException) -> None:
        why = f"the veRL adapter failed and training goes on: {describe_error(error)}"
        part = self.recorder if self.run is None else self.run
        if part is not None:
            part.record_problem(why)


def _trajectory_columns(keys: list[str], fetched: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The columns that the queue gave for these rows; each but artifacts is there for all of them or not at all."""
    fields = [fetched[key] for key in keys if key in fetched]
    if not keys or len(fields) < len(keys):
        return {}
    columns: dict[str, Any] = {"trajectory": [key.rsplit("_", 1)[0] for key in keys]}
    for name, theirs in (
        *(("tokens", "responses"), ("own", "response_mask"), ("engine_logprob", "rollout_log_probs")),
        *(("version", "version"), ("turns", "turns"), ("trained", "trained")),
    ):
        if all(row.get(theirs) is not None for row in fields):
            columns[name] = [row[theirs] for row in fields]
    if any(row.get("artifacts") for row in fields):
        columns["artifacts"] = [row.get("artifacts") or None for row in fields]
    return columns


def _columns(
    dump: Mapping[str, Any], padding: frozenset[str], fetched: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The columns of `observe` from what veRL dumps. A group is a prompt: by its uid where there is one."""
    extra = {key: list(values) for key, values in dump["reward_extra_infos_dict"].items()}
    uids = extra.pop("uid", None)
    rows = [row for row in range(len(dump["outputs"])) if uids is None or uids[row] not in padding]
    parts = {
        key: [values[row] for row in rows]
        for key, values in extra.items()
        if len(values) == len(dump["outputs"]) and all(isinstance(v, (bool, int, float, np.number)) for v in values)
    }
    prompts = [dump["inputs"][row] for row in rows]
    return {
        "group": prompts if uids is None else [str(uids[row]).rsplit("_", 2)[0] for row in rows],
        "prompt": prompts,
        "completion": [dump["outputs"][row] for row in rows],
        "reward": [dump["scores"][row] for row in rows],
        "rewards": {key: values for key, values in parts.items() if key != "score"},
        "facts": [{"ground_truth": dump["gts"][row]} for row in rows],
        **({} if uids is None else _trajectory_columns([str(uids[row]) for row in rows], fetched)),
    }


def _validation_items(trainer: Any, key: str) -> int:
    """Over how many items a validation is a mean: those of its source, where the dataset tells sources apart."""
    dataset = trainer.val_dataset
    source = key.removeprefix("val-core/").rsplit("/", 2)[0]
    if hasattr(dataset, "dataframe") and "data_source" in dataset.dataframe:
        return sum(one == source for one in dataset.dataframe["data_source"])
    return len(dataset)


def _planned_steps(trainer: Any) -> int | None:
    """How many steps are planned, where the trainer knows it by now."""
    return int(trainer.total_training_steps) if hasattr(trainer, "total_training_steps") else None
