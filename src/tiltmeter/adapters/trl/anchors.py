"""Asks a TRL trainer's policy the same prompts again between steps: an evaluation that Tiltmeter makes itself.

Which prompts training draws may change along a run, so a lower level of gold may be harder prompts. Of anchors it may
not: they are fixed before the run. Their answers are generated as traps are, never trained on, and get gold from the
run's own source, in a thread, so that training does not wait. Each round is an evaluation of its number of answers.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

import numpy as np

from tiltmeter.adapters.arguments import ANCHOR_SHARE, LEAST_ANCHORS, Anchors
from tiltmeter.adapters.custom_loop import Run
from tiltmeter.adapters.gold_file import absolute_name
from tiltmeter.adapters.trl.as_evaluation import as_evaluation
from tiltmeter.adapters.trl.gold_facts import rows_of_step
from tiltmeter.adapters.trl.rollouts import Rollouts, distinct_names
from tiltmeter.adapters.trl.tool_rows import end_tokens
from tiltmeter.data.batches import from_columns, from_tensor
from tiltmeter.data.dataset_facts import to_text
from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.errors import AttachError, Boundary, describe_error, warn_user
from tiltmeter.gold import GoldAnswer, GoldSource
from tiltmeter.gold.label_files import to_label
from tiltmeter.gold.label_worker import LabelWorker, ask_source
from tiltmeter.gold.row_request import row_request
from tiltmeter.monitor.parts import REWARD_AS_GOLD, load_gold, names_people
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation

SEED = 0  # of the draw: a resumed run must have the same anchors
LOOKED_AT = 8  # rows for each anchor, of which some may have the prompt of another
FEW_ROUNDS = 10  # with fewer no fall that matters is found
CLOSE_SECONDS = 10.0  # that the end of training waits for gold of the last rounds


class AnchorAnswer(NamedTuple):
    """What the policy said to an anchor."""

    completion: Any
    length: int
    truncated: bool
    score: float  # of the reward function with weight 0 that is gold; NaN where gold is another


class AnchorRounds:
    """The anchors of one trainer: they are asked, their answers labelled, and each round written as an evaluation."""

    def __init__(self, trainer: Any, source: object, anchors: Anchors, gold: object) -> None:
        """Raises `AttachError` for anchors that this trainer cannot be asked, or that nobody would label."""
        if not isinstance(source, Rollouts) or not hasattr(trainer, "num_generations_eval"):
            raise AttachError(
                "anchors= needs a trainer whose methods can be wrapped (GRPO or RLOO of a tested TRL); with others, "
                "evaluate fixed prompts yourself and declare it: run.evaluate(step, value, n)"
            )
        if any(vars(trainer).get(name) is not None for name in ("environment_factories", "rollout_func")):
            raise AttachError("anchors= is for prompts with one answer, not for environments or a rollout function")
        if gold is None:
            raise AttachError('anchors= needs gold for the answers: pass gold="checks.py:score", "tests" or "answers"')
        self._reward = gold.removeprefix(REWARD_AS_GOLD) if isinstance(gold, str) and gold.startswith("reward:") else ""
        if isinstance(gold, str) and (gold.endswith(".toml") or names_people(gold)):
            raise AttachError(
                f"anchors= needs gold that is a function, tests or answers: {gold!r} would be asked for all answers "
                "of a round. Leave anchors= out, or evaluate fixed prompts yourself: run.evaluate(step, value, n)"
            )
        self._trainer, self._source, self._answers = trainer, source, anchors.answers
        self._rows = _choose_rows(trainer, anchors)
        answers = len(self._rows) * self._answers
        rollouts = rows_of_step(trainer) / max(getattr(trainer, "num_iterations", 1), 1)
        self._every = anchors.every or math.ceil(answers / (ANCHOR_SHARE * rollouts))
        self._share = answers / (self._every * rollouts)
        steps = trainer.args.max_steps
        if steps > 0 and (rounds := 1 + (steps - 1) // self._every) < FEW_ROUNDS:
            warn_user(f"{self.cost}. {rounds} rounds are too few to find a fall of gold: lower Anchors(every=)", 6)
        self._run: Run | None = None
        self._gold: GoldSource | None = None
        self._name = ""
        self._worker: LabelWorker | None = None
        self._pending: list[Future[None]] = []
        self.over = False  # no further round is asked

    @property
    def cost(self) -> str:
        return (
            f"anchors: {len(self._rows)} prompts, {self._answers} answers each, every {self._every} steps: "
            f"{100.0 * self._share:.2g} % of rollouts"
        )

    def open(self, run: Run) -> None:
        """Label for this attempt from here on."""
        self._run = run
        if run.store is None or run.rank != 0:
            return
        if self._reward:
            functions, names = self._trainer.reward_funcs, distinct_names(self._trainer.reward_func_names)
            whose = f"{self._reward} {fingerprint([functions[names.index(self._reward)]])}"
        else:
            self._gold = self._gold or load_gold(absolute_name(run.gold))
            whose = self._gold.identity
        # Other anchors, or other gold, are another series: levels of the two are not to be compared.
        facts = [*map(to_text, self._rows), str(self._answers), whose]
        self._name = f"anchors_{hashlib.sha256(chr(0).join(facts).encode('utf-8', 'replace')).hexdigest()[:8]}"
        self._worker, self._pending = LabelWorker(), []

    def ask(self, step: int) -> None:
        """Ask all anchors if they are due after this step, the first time after the first; gold comes later."""
        if self.over or self._run is None or (step - 1) % self._every:
            return
        try:
            answers = self._answer(step)
        except BaseException:
            self.over = True
            raise
        if self._worker is not None:
            run = self._run
            self._pending = [one for one in self._pending if not one.done()]
            self._pending.append(self._worker.submit(lambda: self._label(run, step, answers)))

    def close(self) -> None:
        """Wait a little for gold of the last rounds, and end the thread."""
        worker, self._worker = self._worker, None
        if worker is None or self._run is None:
            return
        late = wait(self._pending, CLOSE_SECONDS).not_done
        worker.close()
        if late:
            self._run.record_problem(f"anchors: gold of {len(late)} of the last rounds took over {CLOSE_SECONDS:g} s")
        elif (end := getattr(self._gold, "close", None)) is not None:
            end()

    def _answer(self, step: int) -> list[AnchorAnswer]:
        """The answers of all ranks to all anchors, those to one prompt together."""
        trainer, count = self._trainer, len(self._rows)
        ranks, rank = trainer.accelerator.num_processes, trainer.accelerator.process_index
        own = math.ceil(count / ranks)  # as many on each rank, because generating is done by all together
        rows = [self._rows[at % count] for at in range(rank * own, (rank + 1) * own) for _ in range(self._answers)]
        # As many at once as memory is known to hold: what a rank generates for training.
        at_once = trainer.args.per_device_train_batch_size * trainer.args.gradient_accumulation_steps
        at_once = max(at_once // self._answers, 1) * self._answers
        column = distinct_names(trainer.reward_func_names).index(self._reward) if self._reward else None
        answers: list[AnchorAnswer] = []
        ends = end_tokens(trainer)
        seed = hash((step, rank, count, self._answers)) & 0xFFFFFFFF  # another in each round: answers are independent
        with as_evaluation(trainer, seed, self._answers, () if column is None else (column,)):
            for start in range(0, len(rows), at_once):
                part = copy.deepcopy(rows[start : start + at_once])
                (_, completions, tokens), rewards = self._source.answer_apart(part)
                scores = from_tensor(rewards)[rank * len(part) : (rank + 1) * len(part)].astype(np.float64)
                for text, ids, score in zip(completions, tokens, scores, strict=True):
                    value = math.nan if column is None else float(score[column])
                    answers.append(AnchorAnswer(text, len(ids), not len(ids) or ids[-1] not in ends, value))
        if ranks > 1:
            from accelerate.utils import gather_object

            answers = [AnchorAnswer(*one) for one in gather_object([tuple(one) for one in answers])]
        return answers[: count * self._answers]

    def _label(self, run: Run, step: int, answers: list[AnchorAnswer]) -> None:
        """Get gold of a round, and write it."""

        def note(error: BaseException) -> None:
            run.record_problem(f"anchors of step {step} have no gold: {describe_error(error)}")

        with Boundary(note, own_thread=True):
            labels = [to_label(answer) for answer in self._gold_of(step, answers)]
            values = [label.value for label in labels if label.value is not None]
            if not values:
                raise LookupError(labels[0].why)
            value = min(math.fsum(values) / len(values), 1.0)
            unknown = len(labels) - len(values)
            if run.store is not None:
                write_evaluation(
                    run.store, Evaluation(run.attempt, step, self._name, value, len(values), unknown=unknown)
                )

    def _gold_of(self, step: int, answers: list[AnchorAnswer]) -> list[GoldAnswer]:
        if self._gold is None:
            return [answer.score for answer in answers]
        rows = [row for row in self._rows for _ in range(self._answers)]
        batch = from_columns(
            step,
            np.arange(len(rows)) // self._answers,
            prompt=[row["prompt"] for row in rows],
            completion=[answer.completion for answer in answers],
            facts=[{name: value for name, value in row.items() if name != "prompt"} for row in rows],
            length=np.array([answer.length for answer in answers]),
            truncated=np.array([answer.truncated for answer in answers]),
        )
        possible = {at: row_request(batch, at, f"anchor-{step}-{at}", "anchor") for at in range(len(rows))}
        requests = {at: request for at, request in possible.items() if request is not None}
        replies = dict(zip(requests, ask_source(self._gold, list(requests.values())).answers, strict=True))
        return [replies.get(at) for at in range(len(rows))]


def _choose_rows(trainer: Any, anchors: Anchors) -> list[dict[str, Any]]:
    """The rows of the user, or a draw of the dataset, each prompt once.

    A random draw of the whole pool, made before the run: which prompts training sees first is decided by samplers and
    curricula, and anchors that a curriculum chose, or that were chosen by their answers, would stand for nothing else.
    """
    from datasets import Dataset

    dataset = trainer.train_dataset
    columns = set(getattr(dataset, "column_names", None) or ())
    if anchors.rows is not None:
        candidates, most = list(anchors.rows), len(anchors.rows)
    elif isinstance(dataset, Dataset):
        plain, most = dataset.with_format(None), anchors.prompts
        looked_at = min(len(plain), LOOKED_AT * anchors.prompts)
        places = np.random.default_rng(SEED).choice(len(plain), looked_at, replace=False)
        candidates = [plain[int(at)] for at in places]
    else:
        raise AttachError("anchors= cannot draw prompts of a dataset that is streamed: pass Anchors(rows=[...])")
    rows: dict[str, dict[str, Any]] = {}
    for row in candidates:
        if not isinstance(row, Mapping) or (lacking := sorted((columns | {"prompt"}) - set(row))):
            what = f"the column {lacking[0]!r} of the dataset" if isinstance(row, Mapping) else "columns"
            raise AttachError(f"an anchor lacks {what}: pass rows as the dataset has them, Anchors(rows=[...])")
        plain_row = {name: value for name, value in row.items() if not columns or name in columns}
        rows.setdefault(to_text({"prompt": row["prompt"]}), plain_row)
    if len(rows) < LEAST_ANCHORS:
        raise AttachError(f"anchors: {len(rows)} distinct prompts; with fewer than {LEAST_ANCHORS} they say nothing")
    return list(rows.values())[:most]
