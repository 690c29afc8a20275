"""`python -m tiltmeter_workbench.trail.at_saves RUN ATTEMPT PID`: asks each checkpoint of a run as it is saved.

The trainer's adapter starts it. It takes what is left of one core, waits for saves, asks the same prompts of each in
the order of training, has the answers judged, and declares gold of every prompt as an evaluation of the run, from which
the monitor concludes. When training has ended it finishes what is saved and ends. While more than a few checkpoints
wait it passes over every second one: a verdict must not fall behind for ever. What was gone before it could be asked,
or was passed over, is counted in the next evaluation.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.errors import AttachError, TiltmeterError, describe_error
from tiltmeter.gold.people import PeopleSource
from tiltmeter.monitor.parts import load_gold
from tiltmeter.rundir.checkpoints.sampling import CheckpointSampling, read_sampling
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.pinned_prompts import make_snapshot, write_snapshot
from tiltmeter.rundir.run_path import file_status
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.compare.referees import ScoringReferee
from tiltmeter_workbench.compare.sampling import AnswerSampler, JsonlCache, Prompts, Which
from tiltmeter_workbench.trail.checkpoints import BASE, Floats, measure_checkpoint
from tiltmeter_workbench.trail.reward_checkpoints import RewardPairs
from tiltmeter_workbench.trail.saves import checkpoint_folder, list_saves
from tiltmeter_workbench.trail.trail import sampler_maker

NICE = 19  # whatever else wants the core comes first
POLL_SECONDS = 0.5
MOST_WAITING = 4  # checkpoints; while training goes on and more wait, every second one is passed over
FAULT = "checkpoints"  # the kind of trouble that is reported


class SaveWatcher:
    """Which checkpoints are to be asked next, and how many never will be."""

    def __init__(self, run: RunDirectory, attempt: int, output: str, parent: int) -> None:
        self.run, self.attempt, self.output, self.parent = run, attempt, output, parent
        self.missed = 0  # since the last one that was asked
        self._done: set[int] = set()

    @property
    def is_over(self) -> bool:
        """Whether no save will come any more."""
        return self.run.ended(self.attempt) or not _is_alive(self.parent)

    def steps(self) -> Iterator[int]:
        """Steps whose checkpoints are to be asked, until training has ended and all are done."""
        while True:
            is_over = self.is_over  # before the saves are listed: what was saved before it ended is in the list
            waiting = [step for step in list_saves(self.run, self.attempt) if step not in self._done]
            waiting = [step for step in waiting if not self._is_gone(step)]
            if len(waiting) > MOST_WAITING and not is_over:
                for step in waiting[:-1:2]:
                    self.skip(step)
                continue
            if waiting:
                self._done.add(waiting[0])
                yield waiting[0]
            elif is_over:
                return
            else:
                time.sleep(POLL_SECONDS)

    def skip(self, step: int) -> None:
        """This one is not asked; it is counted."""
        self._done.add(step)
        self.missed += 1

    def _is_gone(self, step: int) -> bool:
        if checkpoint_folder(self.output, step).is_dir():
            return False
        self.skip(step)
        return True

    def take_missed(self) -> int:
        missed, self.missed = self.missed, 0
        return missed


def sampled_prompts(sampling: CheckpointSampling) -> Prompts:
    """What the checkpoints of a run are asked."""
    columns = [{name: value for name, value in row.items() if name != "prompt"} for row in sampling.rows]
    return Prompts("prompts", [row["prompt"] for row in sampling.rows], columns)


class AskedAnswers:
    """Gold of a policy's answers to the prompts, by prompt."""

    def __init__(self, run: RunDirectory, sampling: CheckpointSampling, gold: ScoringReferee) -> None:
        self.prompts, self.gold = sampled_prompts(sampling), gold
        self._base, self._work = sampling.base, work_folder(run)
        self._settings: dict[str, Any] = {
            "seed": sampling.seed,
            "limit": sampling.tokens,
            "samples": sampling.answers,
            "plain": sampling.plain,
        }
        self._make = sampler_maker(Path(self._base), self._work, **self._settings) if self._base else None

    @property
    def has_base(self) -> bool:
        return self._make is not None

    def _sampler(self, folder: Path | None) -> AnswerSampler:
        if self._make is not None:
            return self._make(folder)
        assert folder is not None  # without a base nobody asks for it
        make = sampler_maker(folder, self._work / folder.name, **self._settings)
        return make(None)

    def measure(self, folder: Path | None) -> Floats:
        """Of the model in a folder; None: of the base."""
        sampler = self._sampler(folder)
        which: Which = "base" if folder is None or not self.has_base else "checkpoint"
        point = measure_checkpoint(
            sampler, which, BASE if folder is None else folder.name, self.prompts, self.gold, None
        )
        answers = sampler.answers(which, self.prompts.name, self.prompts.turns, sampler.samples)
        self.first = [group[0].text for group in answers]
        rows = zip(self.prompts.texts, self.first, self.prompts.columns, strict=True)
        self.first_gold = self.gold.scores(list(rows))
        return point.gold


def work_folder(run: RunDirectory) -> Path:
    """Where answers and scores are stored, so that nothing is asked twice."""
    return Path(run.path) / "cache" / "checkpoints"


def ask_checkpoints(run: RunDirectory, attempt: int, parent: int) -> None:
    """Ask each checkpoint of an attempt as it is saved, until training has ended. Raises `TiltmeterError`."""
    sampling = read_sampling(run, attempt)
    source = load_gold(sampling.gold)
    if isinstance(source, PeopleSource):
        raise AttachError("people cannot judge checkpoints: give a function or a judge")
    gold = ScoringReferee(source, JsonlCache(work_folder(run) / "judged.jsonl"))
    questions = AskedAnswers(run, sampling, gold) if sampling.kind == "answers" else RewardPairs(sampling, gold)
    saves = SaveWatcher(run, attempt, sampling.output, parent)
    if questions.has_base and not _is_declared(run, sampling.name, attempt):
        _declare(run, attempt, 0, sampling, gold.identity, questions, None, saves)
    for step in saves.steps():
        _declare(
            run, attempt, step, sampling, gold.identity, questions, checkpoint_folder(sampling.output, step), saves
        )
        gc.collect()  # a model is let go of before the next is loaded


def _is_declared(run: RunDirectory, name: str, attempt: int) -> bool:
    """Whether this or an earlier attempt asked the base the same."""
    files = (Evaluation(one, 0, name, 0.0, 1).file for one in range(attempt + 1))
    return any(file_status(run.path / "evals" / file) is not None for file in files)


def _declare(
    run: RunDirectory, attempt: int, step: int, sampling: CheckpointSampling, judge: str,
    questions: AskedAnswers | RewardPairs, folder: Path | None, saves: SaveWatcher,
) -> None:  # fmt: skip
    """Ask one checkpoint and declare its gold; one that cannot be asked is counted, with the reason of the first."""
    try:
        gold = questions.measure(folder)
        if not np.isfinite(gold).any():
            raise AttachError(f"gold gave no score for any answer: {_reason(questions)}")
    except AttachError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever a checkpoint that is deleted or damaged makes libraries raise
        if folder is not None:
            saves.missed += 1
        if folder is None or folder.is_dir():
            where = "the model that training began with" if folder is None else folder.name
            run.report_trouble(attempt, 0, f"{where} could not be asked: {describe_error(error)}", FAULT)
        return
    values = tuple(None if math.isnan(value) else float(value) for value in gold)
    present = [value for value in values if value is not None]
    mean = min(max(math.fsum(present) / len(present), 0.0), 1.0)
    one = Evaluation(attempt, step, sampling.name, mean, len(present), "", values, judge, saves.take_missed())
    if isinstance(questions, AskedAnswers):
        name = BASE if folder is None else folder.name
        scores = [None if math.isnan(score) else float(score) for score in questions.first_gold]
        snapshot = make_snapshot(
            attempt, step, f"checkpoint {name}", questions.prompts.texts, questions.first, gold=scores
        )
        try:
            write_snapshot(run, snapshot)
        except FileExistsError:
            pass  # asked before this process was started again
    try:
        write_evaluation(run, one)
    except FileExistsError:
        pass


def _reason(questions: AskedAnswers | RewardPairs) -> str:
    faults = questions.gold.faults
    return max(faults, key=lambda why: faults[why], default="no reason was given")


def _is_alive(process: int) -> bool:
    """Whether the trainer's process, whose child this is, still runs."""
    return os.getppid() == process


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tiltmeter_workbench.trail.at_saves", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("attempt", type=int, metavar="ATTEMPT")
    parser.add_argument("parent", type=int, metavar="PID", help="the trainer's process")
    options = parser.parse_args()
    os.nice(NICE)
    run = RunDirectory(options.run)
    try:
        ask_checkpoints(run, options.attempt, options.parent)
    except TiltmeterError as error:
        run.report_trouble(options.attempt, 0, f"checkpoints are not judged: {error}", FAULT)
        sys.stderr.write(f"tiltmeter: {str(error)!r}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
