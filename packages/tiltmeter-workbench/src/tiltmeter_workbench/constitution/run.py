"""Runs the steps in order, each from the files of the one before. Run again, it resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.models.chat.endpoint import ChatError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter_workbench.common.chat_model import ChatModel, Progress, Turns
from tiltmeter_workbench.constitution.item_log import ItemLog, item_key, lock_folder
from tiltmeter_workbench.constitution.labels import Question, label_questions
from tiltmeter_workbench.constitution.principles import Constitution
from tiltmeter_workbench.constitution.prompts import ConstitutionPrompt

STEPS = ("answers", "critiques", "revisions", "samples", "labels")
SETTINGS = "constitution.json"


@dataclass(frozen=True)
class ConstitutionSettings:
    """Settings of a run. A folder that was begun with one can be continued with the same only."""

    rounds: int = 1  # of critique and revision; 0: no data for SFT is made
    samples: int = 2  # answers per prompt that are compared two by two; 0: no pairs are made
    limit: int = 256  # tokens of one answer
    temperature: float = 1.0
    margin: float = 0.0  # nats; a local judge that is nearer to the middle has no opinion
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 0 or self.samples < 0 or not self.rounds + self.samples:
            raise AttachError("rounds and samples are numbers from 0 on, and not both 0")
        if self.samples % 2:
            raise AttachError(f"samples is {self.samples}: answers are compared two by two, so give an even number")
        if self.limit < 1 or not self.temperature >= 0.0 or not self.margin >= 0.0:
            raise AttachError("limit is at least 1; temperature and margin are at least 0")
        if self.samples and self.temperature == 0.0:
            raise AttachError("at temperature 0 all samples are the same answer: raise it, or set samples to 0")


@dataclass(frozen=True)
class ConstitutionSteps:
    """The rows on disk after all steps ran as far as they could."""

    rows: dict[str, dict[str, dict[str, Any]]]  # by step and key
    failed: tuple[str, ...]  # why something is missing; empty: nothing is

    def __getitem__(self, step: str) -> dict[str, dict[str, Any]]:
        return self.rows[step]


def run_steps(
    prompts: Sequence[ConstitutionPrompt],
    model: ChatModel,
    judge: ChatModel,
    constitution: Constitution,
    folder: Path,
    settings: ConstitutionSettings,
    progress: Progress,
) -> ConstitutionSteps:
    """All steps, as far as they go. What a model would not answer is left out and named; a step of which nothing at all
    is there raises its `ChatError`."""
    with lock_folder(folder):
        _check_settings(folder, settings, model, judge, constitution)
        logs = {step: ItemLog(folder / f"{step}.jsonl") for step in STEPS}
        work = _StepRunner(prompts, model, judge, constitution, settings, logs, progress, [])
        try:
            if settings.rounds:
                work.answer()
            for number in range(1, settings.rounds + 1):
                work.criticise(number)
                work.revise(number)
            for number in range(settings.samples):
                work.sample(number)
            if settings.samples:
                work.label()
        finally:
            for log in logs.values():
                log.close()
    return ConstitutionSteps({step: log.rows for step, log in logs.items()}, tuple(work.failed))


@dataclass
class _StepRunner:
    prompts: Sequence[ConstitutionPrompt]
    model: ChatModel
    judge: ChatModel
    constitution: Constitution
    settings: ConstitutionSettings
    logs: dict[str, ItemLog]
    progress: Progress
    failed: list[str]

    def answer(self) -> None:
        self._ask("answers", "answering", [({"id": prompt.id}, prompt.turns) for prompt in self.prompts], 0)

    def criticise(self, number: int) -> None:
        items = []
        for prompt, before in self._texts_to_revise(number):
            principle = self.constitution.draw_principle(self.settings.seed, "revision", prompt.id, number)
            facts = {"id": prompt.id, "round": number, "principle": principle.name}
            items.append((facts, [*prompt.turns, _assistant_turn(before), _user_turn(principle.critique)]))
        self._ask("critiques", f"criticising, round {number}", items, 2 * number)

    def revise(self, number: int) -> None:
        items = []
        for prompt, before in self._texts_to_revise(number):
            critique = self.logs["critiques"].rows.get(f"{prompt.id}/{number}")
            if critique is None:
                continue
            principle = self.constitution.draw_principle(self.settings.seed, "revision", prompt.id, number)
            turns = [
                *prompt.turns,
                _assistant_turn(before),
                _user_turn(principle.critique),
                _assistant_turn(critique["text"]),
            ]
            facts = {"id": prompt.id, "round": number, "principle": principle.name}
            items.append((facts, [*turns, _user_turn(principle.revise)]))
        self._ask("revisions", f"revising, round {number}", items, 2 * number + 1)

    def sample(self, number: int) -> None:
        """One sample of every prompt at a time: samples of one prompt must not share a seed."""
        items = [({"id": prompt.id, "sample": number}, prompt.turns) for prompt in self.prompts]
        self._ask("samples", f"sampling, {number + 1} of {self.settings.samples}", items, 1000 + number)

    def label(self) -> None:
        log = self.logs["labels"]
        items = list(self._questions())
        todo = [(facts, question) for facts, question in items if item_key(facts) not in log]
        replies = label_questions(self.judge, [question for _, question in todo], self.settings.margin)
        rows = ((number, label.facts) for number, label in replies)
        self._store_rows("labels", "comparing", [facts for facts, _ in todo], rows, len(items))

    def _questions(self) -> Iterator[tuple[dict[str, Any], Question]]:
        samples = self.logs["samples"].rows
        for prompt in self.prompts:
            for first in range(0, self.settings.samples, 2):
                one, two = (samples.get(f"{prompt.id}/{number}") for number in (first, first + 1))
                if one is None or two is None or not comparable(one["text"], two["text"]):
                    continue
                pair = f"{first}-{first + 1}"
                principle = self.constitution.draw_principle(self.settings.seed, "comparison", prompt.id, pair)
                for order, (a, b) in enumerate(((one, two), (two, one))):
                    facts = {"id": prompt.id, "pair": pair, "order": order, "principle": principle.name}
                    yield facts, Question(principle.compare, prompt.text, a["text"], b["text"])

    def _texts_to_revise(self, number: int) -> Iterator[tuple[ConstitutionPrompt, str]]:
        """What is revised in a round: the answer, or the revision of the round before."""
        for prompt in self.prompts:
            step, name = ("answers", prompt.id) if number == 1 else ("revisions", f"{prompt.id}/{number - 1}")
            row = self.logs[step].rows.get(name)
            if row is not None:
                yield prompt, row["text"]

    def _ask(self, step: str, what: str, items: Sequence[tuple[dict[str, Any], Turns]], stream: int) -> None:
        todo = [(facts, turns) for facts, turns in items if item_key(facts) not in self.logs[step]]
        replies = self.model.answers(
            [turns for _, turns in todo],
            limit=self.settings.limit,
            temperature=self.settings.temperature,
            seed=10_000 * self.settings.seed + stream,
        )
        rows = ((number, {"text": answer.text, "ended": answer.ended}) for number, (answer,) in replies)
        self._store_rows(step, what, [facts for facts, _ in todo], rows, len(items))

    def _store_rows(
        self,
        step: str,
        what: str,
        todo: Sequence[dict[str, Any]],
        rows: Iterator[tuple[int, dict[str, Any]]],
        total: int,
    ) -> None:
        done = total - len(todo)
        self.progress(what, done, total)
        if not todo:
            return
        try:
            for number, fields in rows:
                self.logs[step].add({**todo[number], **fields})
                done += 1
                self.progress(what, done, total)
        except ChatError as error:
            if not done:
                raise  # the model cannot be reached; after a first answer, one bad item must not stop the others
            self.failed.append(f"{what}: {error}")


def comparable(one: str, other: str) -> bool:
    """Whether there is anything to choose: two answers that are not the same, and none of them empty."""
    return bool(one.strip() and other.strip()) and one != other


def _assistant_turn(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def _user_turn(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def model_identity(model: ChatModel) -> str:
    """Which model it is: a folder's place, or the name on its server, wherever that is."""
    folder = getattr(model, "folder", None)
    return model.name if folder is None else str(Path(folder).resolve())


def _check_settings(
    folder: Path, settings: ConstitutionSettings, model: ChatModel, judge: ChatModel, constitution: Constitution
) -> None:
    """What a folder was begun with is kept in it; anything else would be mixed into the same files."""
    now = {
        **asdict(settings),
        "model": model_identity(model),
        "judge": model_identity(judge) if settings.samples else None,
        "constitution": constitution.mark,
    }
    path = folder / SETTINGS
    if not path.exists():
        if any((folder / f"{step}.jsonl").exists() for step in STEPS):
            raise AttachError(f"{folder} holds answers but no {SETTINGS}: give another folder")
        publish(path, [(json.dumps(now, indent=1) + "\n").encode()])
        return
    try:
        before = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise AttachError(f"{path} is damaged: give another folder") from error
    for name, value in now.items():
        if before.get(name) != value:
            raise AttachError(
                f"{folder} was begun with {name} {before.get(name)!r}, and now it is {value!r}: use the same, or give "
                "another folder"
            )
