"""One line on a TRL run: `tiltmeter.attach(trainer)`. The only files that know TRL are this one and `trl_*.py`.

`attach` raises `AttachError` with the fix for what cannot work, and warns once of what works less well than it could.
From the first step on nothing is raised or waited for, and a line is printed for each alarm and finding. On a version
of TRL for which wrapping the trainer's methods was not tested, the callback and a wrapper around the reward functions
are used instead.
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import numpy as np
from transformers import TrainerCallback

from tiltmeter.adapters.arguments import (
    AUTO,
    Act,
    Anchors,
    Gold,
    Launch,
    Options,
    Source,
    Traps,
    read_act,
    read_anchors,
    read_gold,
    read_options,
    read_traps,
)
from tiltmeter.adapters.custom_loop import Run, open_run
from tiltmeter.adapters.gold_file import regrade_of
from tiltmeter.adapters.metric_names import canonical_names, evaluation_keys, first_metrics
from tiltmeter.adapters.settings import trainer_settings
from tiltmeter.adapters.settings_file import with_settings
from tiltmeter.adapters.tried_versions import TRL, first_two
from tiltmeter.adapters.trl.anchors import AnchorRounds
from tiltmeter.adapters.trl.async_rollouts import AsyncRollouts
from tiltmeter.adapters.trl.checkpoint_sampling import CheckpointSampler
from tiltmeter.adapters.trl.control import TrlControl
from tiltmeter.adapters.trl.gold_facts import check_unpaid, judge_cost_of, rows_for_gold, rows_of_step, run_facts
from tiltmeter.adapters.trl.own_trackers import TITLES, find_own_runs, named_trackers, tracker_environment
from tiltmeter.adapters.trl.reporter import RunReporter, is_quiet, print_line
from tiltmeter.adapters.trl.reward_functions import RewardWrapper, configuration_warnings
from tiltmeter.adapters.trl.reward_mistakes import check_signatures
from tiltmeter.adapters.trl.rollout_screen import RolloutScreen, ScreenSettings
from tiltmeter.adapters.trl.rollouts import WRAPPED_METHODS, Rollouts, concatenate_generations
from tiltmeter.adapters.trl.tool_rows import tokenizer_of
from tiltmeter.adapters.trl.traps import TrapRounds
from tiltmeter.errors import AttachError, Boundary, describe_error, finish_first, is_interrupt, warn_user
from tiltmeter.gold.find_gold import find_gold
from tiltmeter.gold.regrade.settings import Regrade
from tiltmeter.monitor.parts import REWARD_AS_GOLD, default_share
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.run_facts import CHECKPOINT_JUDGE
from tiltmeter.verdict.verdict import Verdict

#: Metrics that TRL logs and Tiltmeter measures itself, from the same rows.
MEASURED = frozenset({"reward", "reward_std", "dead_group_share", "length_mean"})
#: Kept under TRL's own name.
KEPT_METRICS = ("sample/", "rollout/", "tools/")
#: What metrics of the asynchronous trainer are, where their name says something else: its `kl` is between the policy
#: that is trained and the one that sampled.
ASYNC_NAMES = {"kl_old_new": "kl"}

log = logging.getLogger("tiltmeter")


def attach(
    trainer: Any,
    *,
    gold: Gold | Source = AUTO,
    act: Act | Literal["observe", "advise", "act"] | None = None,
    traps: Traps | Any = None,
    anchors: Anchors | int | None = None,
    slices: str | None = None,
    directory: str | os.PathLike[str] | None = None,
    trackers: bool = True,
    options: Options | None = None,
) -> Attached:
    """Watch a TRL trainer. Call it once, on every process, before `trainer.train()`.

    Args:
        trainer: Any trainer of TRL. Those that make rollouts are judged by them; DPO, KTO, SFT and reward models by
            what they save.
        gold: Who says what an answer is worth: `auto` (what the dataset and the trainer hold; it prints what it found),
            a function, `checks.py:score`, `judge.toml`, `people`, `tests`, `answers`, a `Regrade` for agents,
            `reward:NAME`, None; or a `Gold`, which also says how often, which evaluations count and what checkpoints
            are asked.
        act: What may be changed in training. Default: nothing; it advises, and changes what you approve. `observe`
            only records and judges. An `Act` changes training, within its limits.
        traps: A file of `tiltmeter data traps`, or its rows: tasks that only a hack can pass, asked between steps and
            never trained on; or a `Traps`, which also says how many.
        anchors: How many prompts of the dataset are asked again between steps, never trained on, so that a loss of gold
            is told from harder prompts; or an `Anchors`, which also says how often.
        slices: A column of the dataset by whose values the run is judged too, each by itself, as `source`.
        directory: Where the run is kept. Default: `tiltmeter` in the trainer's output directory.
        trackers: Whether readings, alerts, the picture and completions that show an alarm go into the trainer's own
            run, where `report_to` names W&B, Trackio, TensorBoard or MLflow.
        options: Plug-ins, an experiment on your reward, whether to print, and more.

    What is left at its default may stand in `tiltmeter.toml`, or under `[tool.tiltmeter]` in `pyproject.toml`, beside
    your script or in the current folder; the line at the start says which file was read.

    Training does not change by a bit unless `act` says so, or you approve what was advised.

    Example:

        trainer = GRPOTrainer(model, reward_funcs=reward, args=GRPOConfig("out"), train_dataset=dataset)
        tiltmeter.attach(trainer, gold="checks.py:score")
        trainer.train()  # then, in any terminal: tiltmeter show out
    """
    if any(isinstance(part, Callback) for part in trainer.callback_handler.callbacks):
        raise AttachError("this trainer is watched already: attach once, or pass Callback() and do not attach")
    if os.environ.get("TILTMETER_DISABLED", "") not in ("", "0"):
        return Attached(trainer, Callback(), None)
    arguments = {
        "gold": gold, "act": act, "traps": traps, "anchors": anchors, "slices": slices, "directory": directory,
        "trackers": trackers, "options": options,
    }  # fmt: skip
    settings, file = with_settings(arguments, {"gold": AUTO, "trackers": True})
    traps, anchors = read_traps(settings.pop("traps")), read_anchors(settings.pop("anchors"))
    callback = Callback(**settings)
    callback.settings_file = file
    callback.connect(trainer, traps, anchors)
    trainer.add_callback(callback)
    return Attached(trainer, callback, callback.control)


class Callback(TrainerCallback):  # type: ignore[misc]
    """The trainer callback that records steps, metrics and evaluations, and applies interventions.

    Passed by hand, as `callbacks=[tiltmeter.Callback()]`, it has no trainer, because transformers gives it none. It
    then sees what the trainer logs and evaluates, and nothing else: no completions, so no phrases, lengths or dead
    groups; no rewards by row, so no gold labels and no slope alarm; and it can change nothing.

    Example:

        trainer = GRPOTrainer(model, reward_funcs=reward, callbacks=[tiltmeter.Callback()])
    """

    def __init__(
        self,
        *,
        gold: Gold | Source = AUTO,
        act: Act | Literal["observe", "advise", "act"] | None = None,
        slices: str | None = None,
        directory: str | os.PathLike[str] | None = None,
        trackers: bool = True,
        options: Options | None = None,
    ) -> None:
        self.run: Run | None = None
        self.control: TrlControl | None = None
        self.act, self._options = read_act(act), read_options(options)
        self.strict = self._options.strict
        self._gold = gold = read_gold(gold)
        self._finds_evals = gold.evals == AUTO or (gold.source == AUTO and not gold.evals)
        self.evals = () if gold.evals == AUTO else tuple(gold.evals)
        self.gold_share = gold.share
        self._directory, self._slices = directory, slices
        self.settings_file: Path | None = None  # which said some of these
        self.traps: TrapRounds | None = None
        self.anchors: AnchorRounds | None = None
        self.sampler: CheckpointSampler | None = None
        self.screen: RolloutScreen | None = None
        self._trackers, self._quiet = trackers, self._options.quiet or is_quiet()
        self._reporter: RunReporter | None = None
        self._names_trackers = False  # the trainer's own runs are still to be found
        self._trainer: Any = None
        self._source: Rollouts | RewardWrapper | AsyncRollouts | None = None
        self._ready: list[Any] = []  # parts of finished steps that are not passed to the run yet
        self._last = -1  # the newest step that was observed
        self._scalars: dict[str, float] = {}
        self._checkpoint: int | None = None
        self._columns_checked = False  # whether missing columns were reported
        self._problems: set[str] = set()  # errors that were recorded, each once

    # -- before training --------------------------------------------------------------------------------------------

    def connect(self, trainer: Any, traps: Traps | None = None, anchors: Anchors | None = None) -> None:
        """Wrap this trainer and open its run."""
        self._trainer = trainer
        gold = self._gold
        if self.gold_share is None:
            self.gold_share = default_share(gold.source, rows_of_step(trainer))
        if "reward_funcs" in vars(trainer):
            self._connect_rollouts(trainer, judged=traps is not None)
        elif "rollout_queue" in vars(trainer):  # TRL's asynchronous trainer
            if trainer.accelerator.num_processes > 1 and self.act.mode == "act":
                raise AttachError("the asynchronous trainer shows its rollouts to rank 0 alone: use act='advise'")
            if trainer.rollout_queue is None:
                return  # another rank, which sees no rollouts
            self._source = AsyncRollouts(trainer, self._guard)
        elif isinstance(gold.source, Regrade):
            raise AttachError("gold=Regrade(...) grades what an agent left, and this trainer makes no rollouts")
        elif gold.source is not None and gold.source != AUTO:
            self.sampler = CheckpointSampler(trainer, gold.source, gold.prompts, gold.sampling)
            self._gold = replace(gold, source=None)  # the monitor has no rollouts to ask about
        if self.sampler is None and (gold.prompts, gold.sampling) != (None, None):
            raise AttachError("Gold(prompts=, sampling=) is for gold on a trainer that makes no rollouts")
        if self._gold.source == AUTO:
            self._gold = replace(gold, source=None)  # this trainer shows no rows to look for it in
        with ExitStack() as undo:  # a trainer that is not watched is as it was
            if self._source is not None:
                undo.callback(self._source.release)
            self.traps = None if traps is None else TrapRounds(trainer, self._source, traps.source, traps.share)
            if anchors is not None:
                self.anchors = AnchorRounds(trainer, self._source, anchors, self._gold.source)
            self._connect_screen(trainer, gold.source, undo)
            self._open(None)
            atexit.register(_finish_at_exit, weakref.ref(self))  # after the run's own, and therefore called before it
            self.control = TrlControl(self, trainer, self.act.limits) if self.run is not None else None
            self._print_start()
            trainer.train = self._finish_after(trainer.train)
            undo.pop_all()

    def _finish_after(self, train: Callable[..., Any]) -> Callable[..., Any]:
        """Training that fails or is interrupted has no `on_train_end`, and another trainer may follow in this process,
        as in a notebook: it must find the directory free."""

        @wraps(train)
        def train_and_finish(*args: Any, **kwargs: Any) -> Any:
            try:
                return train(*args, **kwargs)
            finally:
                self.finish()

        return train_and_finish

    def _connect_screen(self, trainer: Any, gold: object, undo: ExitStack) -> None:
        """Offer what acts on rollouts, where the user has named what flags, or words, or a column."""
        wanted = self.act.changes_rollouts
        if self.act.mode == "observe":
            if wanted:
                raise AttachError("screen= and inoculation= change training: use mode='advise' or mode='act'")
            return
        has_slices = self._slices is not None and "GRPO" in type(trainer).__name__
        if not isinstance(self._source, Rollouts):
            if wanted:
                raise AttachError(
                    "screen= and inoculation= need GRPO of a TRL on which wrapping its methods was tested"
                )
            return
        if wanted or has_slices:
            settings = ScreenSettings(self.act, self._slices, gold)
            self.screen = RolloutScreen(trainer, self._guard, settings, self._report_screen)
            undo.callback(self.screen.release)
            self._source.more_columns, self._source.more_scalars = self.screen.take_columns, self.screen.take_scalars

    def _report_screen(self, why: str) -> None:
        if self.run is not None:
            self.run.record_problem(why)

    def _connect_rollouts(self, trainer: Any, *, judged: bool) -> None:
        import trl

        if (named := self._slices) is not None:
            columns = list(trainer.train_dataset.column_names or ()) if trainer.train_dataset is not None else []
            if columns and named not in columns:
                shown = ", ".join(map(repr, columns))
                raise AttachError(f"slices={named!r} is no column of the dataset: it has {shown}")
        tested = first_two(trl.__version__) in TRL
        check_signatures(trainer, tested=tested)
        has_methods = all(hasattr(trainer, name) for name in WRAPPED_METHODS)
        if has_methods and tested:
            self._source = Rollouts(trainer, self._guard)
        else:
            self._source = RewardWrapper(trainer, self._guard)
            lacking = [name for name in WRAPPED_METHODS if not hasattr(trainer, name)]
            why = f"TRL {trl.__version__} is not one this adapter was tested with ({', '.join(TRL)})"
            why = f"{type(trainer).__name__} has no {lacking[0]}" if lacking else why
            warn_user(
                f"{why}: only rewards and completions are seen, not advantages, log-probabilities or entropies. "
                "Training goes on as it is.",
                4,
            )
        for message in configuration_warnings(trainer):
            warn_user(message, 4)
        source = self._gold.source
        name = source if isinstance(source, str) else ""
        if source == AUTO:
            self._gold = replace(self._gold, source=None)
            with Boundary(lambda error: warn_user(f"no gold was looked for: {describe_error(error)}", 6)):
                result = find_gold(run_facts(trainer))
                self._gold = replace(self._gold, source=result.name or None)
                if result.name or not (self.evals or judged):
                    warn_user("\n".join(result.lines), 4)
        elif name.startswith(REWARD_AS_GOLD):
            check_unpaid(trainer, name.removeprefix(REWARD_AS_GOLD))
        elif name.endswith(".toml"):
            cost = judge_cost_of(trainer, name, self.gold_share or 1.0, _planned_steps(trainer))
            warn_user(f"gold: {cost}", 4)
        elif source is not None and not self._gold.rows:
            with Boundary(lambda error: warn_user(f"gold was not tried: {describe_error(error)}", 6)):
                self._gold = replace(self._gold, rows=rows_for_gold(trainer))

    def _open(self, resume_step: int | None, args: Any = None) -> None:
        """Open the run, or its next attempt."""
        trainer = self._trainer
        args = args if trainer is None else trainer.args
        rewards = () if trainer is None else vars(trainer).get("reward_funcs", ())
        alone = isinstance(self._source, AsyncRollouts)
        directory = self._directory if self._directory is not None else Path(args.output_dir) / "tiltmeter"
        judge = {} if self.sampler is None else {CHECKPOINT_JUDGE: self.sampler.judge}
        rank, ranks = (0, 1) if alone else (args.process_index, args.world_size)
        gold, options = self._gold, self._options
        if options.tokenizer is None and isinstance(self._source, (Rollouts, AsyncRollouts)):
            options = replace(options, tokenizer=tokenizer_of(trainer))
        self.run = open_run(
            directory,
            gold=gold if gold.steps is not None else replace(gold, steps=_planned_steps(trainer)),
            slices=self._slices,
            rewards=[part for part in rewards if callable(part)],
            settings=trainer_settings(trainer, args) | judge,
            resume_step=resume_step,
            launch=Launch(rank, ranks, groups="shared"),
            options=options,
        )
        # The next attempt at this run has the same gold, and nothing is tried while it trains.
        self._gold = replace(gold, source=self.run.gold or gold.source, rows=())
        self.run = None if self.run.directory is None else self.run
        self._last = -1
        if isinstance(self._source, Rollouts) and self.run is not None:
            self._source.workspaces = self.run.workspaces
        if self.traps is not None and self.run is not None:
            self.traps.open(self.run)
        if self.anchors is not None and self.run is not None:
            self.anchors.open(self.run)
        if self.sampler is not None and self.run is not None:
            self.sampler.open(self.run)
        self._open_reporter()

    def _own_trackers(self) -> list[str]:
        return named_trackers(self._trainer) if self._trackers and self._trainer is not None else []

    def _open_reporter(self) -> None:
        """Start what prints and sends, on the process that the trackers of the trainer belong to."""
        run = self.run
        if run is None or run.rank != 0 or run.directory is None or (self._quiet and not self._own_trackers()):
            return
        if self._reporter is not None:
            self._reporter.leave()
        self._reporter, self._names_trackers = RunReporter(run.directory), True

    def _name_trackers(self) -> None:
        """At the first step: the trackers have opened their runs by then."""
        self._names_trackers = False
        if self._reporter is not None and self.run is not None:
            wanted = self._own_trackers()
            runs = find_own_runs(self._trainer, wanted) if wanted else {}
            for name in [name for name in wanted if name not in runs]:
                log.warning("the trainer has no open run in %s: nothing goes there", TITLES[name])
            self._reporter.open(runs, tracker_environment(), "" if self._quiet else self._where_to_look(list(runs)))

    def _where_to_look(self, trackers: Sequence[str]) -> str:
        directory = None if self.run is None else self.run.directory
        also = f"; in {' and '.join(TITLES[name] for name in trackers)} under tiltmeter/" if trackers else ""
        return f"To look: tiltmeter view {directory}{also}"

    def _sampler_words(self) -> str:
        return "" if self.sampler is None else f"{self.sampler.judge} at each save ({self.sampler.cost})"

    def _print_start(self) -> None:
        """What is watched, by what gold, where to look."""
        if self._quiet or self.run is None or self.run.rank != 0:
            return
        rewards = [getattr(part, "__name__", str(part)) for part in vars(self._trainer).get("reward_funcs", ())]
        gold = (
            self._gold.source or self._sampler_words() or ("traps" if self.traps is not None else ", ".join(self.evals))
        )
        gold = f"the dataset's {kind}" if (kind := str(gold).partition(":")[0]) in ("answers", "tests") else gold
        gold = "tests run again on final workspaces" if regrade_of(gold) is not None else gold
        judged = f"judged by {gold}" if gold else "judged by nothing: there is no gold, so a hack looks like progress"
        paid = f" for {', '.join(rewards)}" if rewards else ""
        judged += f", as {self.settings_file} says" if self.settings_file is not None else ""
        line = f"watching {type(self._trainer).__name__}{paid}, {judged}. {self._where_to_look(self._own_trackers())}"
        print_line(log_line(line, 500))
        if self.anchors is not None:
            print_line(self.anchors.cost)

    # -- during training: nothing below may raise --------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.run is None and self._trainer is None:
            self._open(None, args)  # the first moment at which a bare callback knows where to write
        self._guard(lambda: self._begin(state))

    def _begin(self, state: Any) -> None:
        if self.run is not None and (self.run.closed or state.global_step < self._last):
            # Going back to an earlier step, or training once more, is a new attempt at the same run.
            self._hand_over(all_of_them=True)
            self._close_anchors()
            self.run.close()
            self._open(state.global_step + 1)
        if self._source is not None:
            self._source.pending.clear()  # rollouts of an interrupted step, which is repeated
        self._scalars, self._checkpoint = {}, None
        if self.control is not None:
            self.control.begin(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._guard(self._hand_over, batch=True, kept=True)
        if self._names_trackers:
            self._guard(self._name_trackers)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if self.control is not None:
            self.control.stepped = True
            self._guard(lambda: self.control.poll(state.global_step, control))  # type: ignore[union-attr]
        if self.traps is not None:
            self._guard(lambda: self.traps.ask(state.global_step, self._scalars))  # type: ignore[union-attr]
        if self.anchors is not None:
            self._guard(lambda: self.anchors.ask(state.global_step))  # type: ignore[union-attr]
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self._guard(lambda: self._record_logs(state.global_step, logs or {}))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._guard(lambda: self._record_checkpoint(int(state.global_step)))

    def _record_checkpoint(self, step: int) -> None:
        self._checkpoint = step
        if self.sampler is not None and self.run is not None:
            if step > self._last:  # a save of which nothing was logged is a step too
                self._last = step
                self.run.observe(step=step, group=np.zeros(0, np.int64), scalars=self._take_checkpoint())
            self.sampler.record_save(step)
        if self.control is not None:
            self.control.record_checkpoint(step)

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> None:
        self._guard(lambda: self._store_pinned(state.global_step))
        self._guard(lambda: self._record_evaluations(state.global_step, metrics or {}, kwargs.get("eval_dataloader")))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.finish()
        if self.control is None or not self.control.goes_back:
            self._guard(self._report_end)

    def finish(self) -> None:
        """Pass the remaining steps to the run and close it. Also called at exit if training was interrupted."""
        finish_first(lambda interrupts: self._end())

    def _end(self) -> None:
        """The end, which is begun again after an interrupt."""
        self._guard(lambda: self._hand_over(all_of_them=True), batch=True, kept=True)
        self._guard(self._close_anchors)
        if self.run is not None:
            self.run.close()

    def _close_anchors(self) -> None:
        if self.anchors is not None:
            self.anchors.close()

    def _report_end(self) -> None:
        if self._reporter is not None and not self._reporter.finish(quiet=self._quiet) and not self._quiet:
            print_line(f"the last steps are measured without you. {self._where_to_look([])}")

    def _record_logs(self, step: int, logs: Mapping[str, Any]) -> None:
        """Keep the logged metrics, to be stored with their step."""
        logs = first_metrics(logs)
        names = canonical_names(logs, ASYNC_NAMES if isinstance(self._source, AsyncRollouts) else None)
        names |= {key: key for key in logs if key.startswith(KEPT_METRICS)}
        metrics = {names[key]: value for key, value in logs.items() if key in names and value is not None}
        metrics = {name: value for name, value in metrics.items() if name not in MEASURED}
        if not metrics:
            return  # evaluations, and the summary at the end
        if isinstance(self._source, Rollouts):
            newest = [item for item in self._source.pending if item.step <= step]
            if newest:
                newest[-1].scalars.update(metrics)
        elif self._source is not None:
            self._scalars.update(metrics)
        elif self.run is not None and step > self._last:
            self._last = step
            self.run.observe(step=step, group=np.zeros(0, np.int64), scalars={**metrics, **self._take_checkpoint()})

    def _take_checkpoint(self) -> dict[str, float]:
        scalars = {} if self._checkpoint is None else {"checkpoint": float(self._checkpoint)}
        self._checkpoint = None
        return scalars

    def _hand_over(self, *, all_of_them: bool = False) -> None:
        """Pass finished steps to the run. Arrays are not copied: TRL makes new tensors for every batch."""
        if self._source is None or self.run is None:
            return
        self._ready += self._source.ready(all_of_them=all_of_them)
        while self._ready:
            step = self._ready[0].step
            parts = [item.to_columns() for item in self._ready if item.step == step]
            columns = parts[0] if len(parts) == 1 else concatenate_generations(parts)
            columns["scalars"] = {**columns["scalars"], **self._scalars, **self._take_checkpoint()}
            self._scalars = {}
            self._last = max(self._last, step)
            self._check_columns(columns)
            self._ready = [item for item in self._ready if item.step != step]  # from here on `observe` counts it
            self.run.observe(give=True, **columns)

    def _check_columns(self, columns: Mapping[str, Any]) -> None:
        """Warn once of columns that are missing: a patched trainer may never call the wrapped methods."""
        if not self._columns_checked:
            self._columns_checked = True
            lacking = [name for name in ("logprob", "entropy") if name not in columns]
            if lacking and isinstance(self._source, Rollouts):
                log.warning("this trainer gives no %s: readings that need them are absent", " and no ".join(lacking))

    def _store_pinned(self, step: int) -> None:
        if self._source is not None and self.run is not None:
            self._source.pinning.store(self.run, step)

    def _record_evaluations(self, step: int, metrics: Mapping[str, Any], loader: Any) -> None:
        for key in evaluation_keys(metrics) if self._finds_evals else self.evals:
            value = metrics.get(key)
            if value is None or self.run is None:
                continue
            name = "".join(c if c.isalnum() else "_" for c in key.lower().removeprefix("eval_"))
            dataset: Any = None if loader is None else loader.dataset
            if not hasattr(dataset, "__len__"):
                raise TypeError(
                    f"{key}: nobody knows over how many items it is a mean; use an eval dataset with a length"
                )
            self.run.evaluate(step, float(value), len(dataset), name)

    def _guard(
        self, work: Callable[[], None], *, batch: bool = False, kept: bool = False, user_code: bool = False
    ) -> None:
        """The boundary: whatever we get wrong, training goes on, and the run says what was lost.

        `batch`: rollouts are lost with it, and are counted as such; with `kept`, not by an interrupt, after which they
        are passed later. `user_code`: of `Boundary`.
        """

        def count(error: BaseException) -> None:
            why = describe_error(error)
            if kept and is_interrupt(error):
                return
            if kept and self._ready:  # of a step that would fail again
                step = self._ready[0].step
                self._ready = [item for item in self._ready if item.step != step]
            if self.run is not None and batch:
                self.run.refuse(error)
            elif self.run is not None and why not in self._problems:
                self._problems.add(why)
                self.run.record_problem(f"the adapter failed and training goes on: {why}")

        with Boundary(count, strict=self.strict, user_code=user_code):
            work()


class Attached:
    """A watched trainer. `train()` is `trainer.train()` that can also roll back to an earlier checkpoint."""

    def __init__(self, trainer: Any, callback: Callback, control: TrlControl | None) -> None:
        self.trainer, self._callback, self._control = trainer, callback, control

    @property
    def directory(self) -> Path | None:
        """Where the run is kept; None when disabled."""
        return None if self._callback.run is None else self._callback.run.directory

    @property
    def attempt(self) -> int:
        return 0 if self._callback.run is None else self._callback.run.attempt

    @property
    def counters(self) -> dict[str, int]:
        """Batches seen, written, thinned and dropped so far by this rank."""
        return {} if self._callback.run is None else self._callback.run.counters

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows."""
        run = self._callback.run
        return {"text/plain": "Not training yet."} if run is None else run._repr_mimebundle_(include, exclude)

    def train(self, **arguments: Any) -> Any:
        """Train; where a rollback was requested, resume from its checkpoint with the changed setting."""
        if self._control is not None:
            self._control.reentrant = True
        result = self.trainer.train(**arguments)
        while self._control is not None and (checkpoint := self._control.take_rollback()) is not None:
            result = self._train_from(checkpoint, self._control, arguments)
        return result

    def _train_from(self, checkpoint: str, control: TrlControl, arguments: dict[str, Any]) -> Any:
        """Train from a checkpoint, or, if it cannot be loaded, from the state that was left for it."""
        errors: list[BaseException] = []
        with Boundary(errors.append):
            return self.trainer.train(**{**arguments, "resume_from_checkpoint": checkpoint})
        left = None if control.stepped else control.take_failed_rollback(errors[0])
        if left is None:
            raise errors[0]  # of training itself
        errors.clear()  # its frames hold what was loaded
        return self.trainer.train(**{**arguments, "resume_from_checkpoint": left})

    def verdict(self, timeout: float = 60.0) -> Verdict:
        """What the monitor says, once it has measured everything written so far, or after `timeout` seconds."""
        if self._callback.run is None:
            raise AttachError("this run is disabled (TILTMETER_DISABLED is set): there is nothing to judge")
        return self._callback.run.verdict(timeout)

    def close(self) -> None:
        """Pass the remaining steps to the run and close it; `train` does it by itself."""
        self._callback.finish()


def _finish_at_exit(reference: weakref.ref[Callback]) -> None:
    callback = reference()
    if callback is not None:
        callback.finish()


def _planned_steps(trainer: Any) -> int | None:
    """How many optimiser steps are planned, where the configuration says it."""
    steps = 0 if trainer is None else int(trainer.args.max_steps)
    return steps if steps > 0 else None
