"""Reads what verifiers and prime-rl leave: traces of every step, metrics.jsonl, and results.jsonl from before 0.4."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.adapters.readers.episodes import UnscoredError, batch_of, is_episode, reward_of, step_in, traces
from tiltmeter.adapters.readers.foreign import Asked, Foreign, Maker, Piece, usable
from tiltmeter.adapters.readers.jsonl import (
    asked_for,
    blamed,
    judged,
    named,
    peek,
    refuse_options,
    renamed,
    rows,
    scalars,
    step_of,
    unfinished,
    unused,
)
from tiltmeter.adapters.readers.places import Place, Stored, beside, bundled, called, numbered, size_of, survey
from tiltmeter.adapters.readers.tables import Row
from tiltmeter.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation
from tiltmeter.records import RolloutBatch

HELD_OUT_LIMIT = 2 << 30  # bytes of evaluation traces that are read to score them

_STEP = re.compile(r"step_(\d+)")
_OLD = frozenset({"example_id", "completion", "reward"})
#: Keys that only prime-rl's metrics have; other files of that name are somebody else's.
_PRIME = re.compile(r"train/[^/]+/(?:all|effective)/.*|mismatch_kl/.*|entropy/all/mean|off_policy/.*|optim/.*")
#: Names of prime-rl that the common table lacks.
_NAMES = {"learning_rate": "optim/lr", "grad_norm": "optim/grad_norm", "loss": "loss/mean", "step_seconds": "time/step"}


class Verifiers:
    """Traces of verifiers 0.4 and the run folder of prime-rl, which hold more than any other trainer's files.

    Groups, tokens, log-probabilities of engine and trainer, and every part of the reward with its weight. A rollout
    whose scoring failed has no reward here, although the package itself would say 0.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"example_id": 3, "prompt": "1 + 1 =", "completion": "2", "reward": 1.0}
    >>> _ = (folder / "results.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = Verifiers().find(folder, Asked())
    >>> [batch.reward.tolist() for piece in run.pieces for batch in Verifiers().read(run, piece)]
    [[1.0]]
    """

    name = "verifiers"
    title = "verifiers and prime-rl: rollouts/step_N/.../traces.jsonl, metrics.jsonl, results.jsonl"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        places = survey(path)
        mixed = beside(places, self.name)
        makers: dict[str, Maker] = {}
        inside: set[Path] = set()
        for place in places:
            if place.folder.name == "rollouts" and (stored := _steps(place)):
                home = place.folder.absolute().parent
                inside |= {home, place.folder}
                makers[str(home)] = partial(_run, home, stored, path, asked, mixed)
        for place in places:
            if place.folder in inside or place.folder.absolute() in inside:
                continue
            makers[str(place.folder)] = partial(_alone, place, path, asked, mixed)
        return usable(makers)

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        if run.settings["kind"] == "results":
            with blamed(Path(piece.files[0])):
                made = _results(Path(piece.files[0]))
            yield made
        elif run.settings["kind"] == "lone":
            yield from _lone(Path(piece.files[0]), run.settings["gold"])
        else:
            newest = run.settings["newest"]
            files = [Path(file) for file in piece.files]
            for step in dict.fromkeys(_step_of(file) for file in files):
                mine = {file.parent.name: file for file in files if _step_of(file) == step}
                made = _step(step, mine, run.settings["gold"], growing=step == newest)
                if len(made):  # of the newest nothing may be whole yet
                    yield made


def _step_of(file: Path) -> int:
    match = _STEP.fullmatch(file.parents[2].name)
    return int(match[1]) if match else -1


@dataclass(frozen=True)
class _Held:
    """What prime-rl stored of one step, training and evaluation apart."""

    step: int
    trained: tuple[Path, ...]
    evaluated: tuple[Path, ...]


def _steps(place: Place) -> list[_Held]:
    found = []
    for step, name in numbered(place.folder, place.folders, _STEP):
        kinds = {}
        for kind in ("train", "eval"):
            files = [place.folder / name / kind / part / "traces.jsonl" for part in ("all", "effective")]
            kinds[kind] = tuple(file for file in files if file.is_file())
        if kinds["train"] or kinds["eval"]:
            found.append(_Held(step, kinds["train"], kinds["eval"]))
    return found


def _run(home: Path, stored: Sequence[_Held], root: Path, asked: Asked, mixed: tuple[str, ...]) -> Foreign:
    trained = [one for one in stored if one.trained]
    said = [f"rollouts of {len(trained)} steps, groups by their stored id"]
    pieces = bundled([Stored(one.step, one.trained, sum(map(size_of, one.trained))) for one in trained])
    newest = trained[-1].step if trained else -1
    if trained:
        first = peek(trained[0].trained[0])
        if first and not is_episode(first):
            raise StoreError(f"{trained[0].trained[0]}: no episodes of verifiers 0.4; an older format is not read here")
        said += _gold(trained[0].trained[0], asked.columns.get("gold", ""))
        if unfinished(trained[-1].trained[0]):
            said.append(f"step {newest} is still being written: its whole lines count, the last does not yet")
        partly = [one.step for one in trained if one.trained[0].parent.name == "effective"]
        if partly:
            said.append(f"{len(partly)} steps hold only what was trained on (effective): what was dropped is unseen")
        elif any(len(one.trained) > 1 for one in trained):
            said.append("every rollout counts (all); those that were trained on are marked effective among the facts")
    evaluations, told = _evaluated([one for one in stored if one.evaluated])
    said += told
    said.append("per-token numbers are rounded to 4 decimals in these files: a KL below 1e-4 per token is not in them")
    numbers, logged, of_metrics = _metrics(home, asked)
    _refuse(asked, logged, home)
    return Foreign(
        name=called(home, root if root.is_dir() else home),
        reader=Verifiers.name,
        pieces=pieces,
        said=(*said, *of_metrics, *mixed),
        settings={"kind": "run", "newest": newest, "gold": asked.columns.get("gold", "")},
        scalars=numbers,
        evaluations=(*evaluations, *asked_for(logged, asked, home)),
    )


def _refuse(asked: Asked, logged: Mapping[int, Mapping[str, Any]], where: Path) -> None:
    """Raises `StoreError` for options that would change nothing."""
    refuse_options(asked, {key for row in logged.values() for key in row}, where, stored="each part with its weight")
    if asked.group_size is not None:
        raise StoreError(f"{where}: groups are stored: leave --group-size out")


def _step(step: int, files: dict[str, Path], gold: str, *, growing: bool) -> RolloutBatch:
    effective = None
    if "all" in files and "effective" in files:
        effective = frozenset(str(row.get("id")) for row in rows(files["effective"], growing=growing))
    file = files.get("all") or files["effective"]
    with blamed(file):
        made = batch_of(step, _episodes(file, growing=growing), effective, gold)
    if not len(made) and not growing:
        raise StoreError(f"{file}: it holds no rollouts; copy it again or move its step away")
    return made


def _gold(file: Path, name: str) -> list[str]:
    """What is said of the gold that was named. Raises `StoreError` where the first rollout has nothing of that name."""
    if not name:
        return []
    with blamed(file):
        first = next((trace for episode in _episodes(file, growing=True) for trace in traces(episode)), {})
        known = [*(first.get("metrics") or {}), *(first.get("rewards") or {})]
    if name not in known:
        raise StoreError(f"{file}: no metric {name!r} for gold; there are {', '.join(map(str, known)) or 'none'}")
    paid = name in (first.get("rewards") or {})
    return [
        f"gold: {name}, as given"
        + (", and it is paid as well: what a policy is paid for is no independent truth" if paid else "")
    ]


def _episodes(file: Path, *, growing: bool) -> Iterator[Row]:
    for row in rows(file, growing=growing):
        if not is_episode(row):
            raise StoreError(f"{file}: a line that is no episode of verifiers 0.4; move that line away")
        yield row


def _evaluated(stored: Sequence[_Held]) -> tuple[list[Evaluation], list[str]]:
    """An evaluation for every environment and step, from the rewards of its episodes."""
    found: list[Evaluation] = []
    said: dict[str, None] = {}
    taken: dict[str, str] = {}
    room = HELD_OUT_LIMIT
    for one in stored:
        room -= size_of(one.evaluated[0])
        if room < 0:
            said["evaluation traces beyond the first 2 GB are not read"] = None
            break
        try:
            with blamed(one.evaluated[0]):
                told = _scores(_episodes(one.evaluated[0], growing=one is stored[-1]))
        except StoreError as error:
            said[f"not read: {error}"] = None
            continue
        for env, scores in told.items():
            evaluation, why = judged(one.step, named(f"eval {env}", taken), scores)
            if evaluation is not None:
                found.append(evaluation)
            else:
                said[f"evaluations in {env} are no evaluation: {why}"] = None
    if found:
        said[f"{len(found)} evaluations, from the rewards of held-out episodes"] = None
    return found, [*said, *renamed(taken)]


def _scores(episodes: Iterator[Row]) -> dict[str, list[tuple[object, object]]]:
    told: dict[str, list[tuple[object, object]]] = {}
    for episode in episodes:
        task = episode["task"] if isinstance(episode["task"], dict) else {}
        item = task.get("key") or task.get("hash") or episode.get("id")
        env = episode["env"].get("name") if isinstance(episode["env"], dict) else None
        for trace in traces(episode):
            told.setdefault(str(env or "held out"), []).append((str(item), reward_of(episode, trace)[0]))
    return told


# --- metrics.jsonl


def _metrics(home: Path, asked: Asked) -> tuple[dict[int, dict[str, float]], dict[int, dict[str, Any]], list[str]]:
    file = home / "metrics.jsonl"
    if not file.is_file():
        return {}, {}, ["no metrics.jsonl: nothing that the trainer logged"]
    logged: dict[int, dict[str, Any]] = {}
    for row in rows(file, growing=True):
        logged.setdefault(step_of(row, file), {}).update(row)
    said = [f"metrics: metrics.jsonl, steps {min(logged, default=0)} to {max(logged, default=0)}"]
    keys = {key for row in logged.values() for key in row}
    known = {ours: theirs for ours, theirs in _NAMES.items() if theirs in keys and ours not in asked.columns}
    numbers = scalars(logged, Asked(columns={**known, **asked.columns}))
    for row in numbers.values():
        for key in ("ref_kl/all/mean", "ref_kl/mean", "ref_kl"):
            if key in row and "kl_ref" not in row:
                row["kl_ref"] = -row.pop(key)  # theirs is reference minus trainer
    if not any("kl_ref" in row for row in numbers.values()):
        said.append("no leash measured: prime-rl has no KL to a reference unless its loss asks for one")
    return numbers, logged, said


# --- files alone


def _alone(place: Place, root: Path, asked: Asked, mixed: tuple[str, ...]) -> list[Foreign]:
    """A traces.jsonl outside a run folder, results.jsonl of an evaluation before 0.4, or metrics without rollouts."""
    folder, top = place.folder, root if root.is_dir() else root.parent
    name = called(folder, top)
    if "traces.jsonl" in place.files and is_episode(peek(folder / "traces.jsonl")):
        return [_lone_run(name, folder / "traces.jsonl", asked, mixed)]
    if "results.jsonl" in place.files and peek(folder / "results.jsonl").keys() >= _OLD:
        file = folder / "results.jsonl"
        said = ["one evaluation of verifiers before 0.4, taken as step 0; groups by example_id"]
        if "metadata.json" not in place.files:
            said.append("no metadata.json beside it")
        said += unused(asked, grouped=True)
        pieces = bundled([Stored(0, (file,), size_of(file))])
        return [Foreign(name, Verifiers.name, pieces, (*said, *mixed), {"kind": "results"})]
    if "metrics.jsonl" in place.files and any(map(_PRIME.fullmatch, peek(folder / "metrics.jsonl"))):
        numbers, logged, said = _metrics(folder, asked)
        refuse_options(asked, {key for row in logged.values() for key in row}, folder / "metrics.jsonl")
        told = ("no rollouts: prime-rl keeps them under rollouts/ in its output folder", *said, *mixed)
        return [Foreign(name, Verifiers.name, (), told, {}, numbers, tuple(asked_for(logged, asked, folder)))]
    return []


def _lone_run(name: str, file: Path, asked: Asked, mixed: tuple[str, ...]) -> Foreign:
    _refuse(asked, {}, file)
    asked_for({}, asked, file)
    gold = asked.columns.get("gold", "")
    said = ["a traces.jsonl alone: steps as its episodes say them, groups by their stored id", *_gold(file, gold)]
    if unfinished(file):
        said.append("its last line is still being written and does not count yet")
    piece = Piece((str(file.absolute()),), size_of(file))
    return Foreign(name, Verifiers.name, (piece,), (*said, *mixed), {"kind": "lone", "gold": gold})


def _lone(file: Path, gold: str) -> Iterator[RolloutBatch]:
    by_step: dict[int, list[Row]] = {}
    for episode in _episodes(file, growing=True):
        by_step.setdefault(step_in(episode, file), []).append(episode)
    for step, episodes in sorted(by_step.items()):
        with blamed(file):
            made = batch_of(step, episodes, None, gold)
        yield made


def _results(file: Path) -> RolloutBatch:
    """Rows of one evaluation before 0.4. An error is attached to a rollout that has no reward, whatever was written."""
    read = list(rows(file, growing=True))
    metrics: list[Row] = [told if isinstance(told := row.get("metrics"), dict) else {} for row in read]
    names = list(dict.fromkeys(key for row in metrics for key in row))
    failed = [row.get("error") not in (None, "", False) for row in read]
    lost: list[object] = [UnscoredError() if bad else None for bad in failed]
    return from_columns(
        0,
        [str(row.get("example_id")) for row in read],
        reward=[lost[at] if failed[at] else row.get("reward") for at, row in enumerate(read)],
        rewards={name: [lost[at] if failed[at] else row.get(name) for at, row in enumerate(metrics)] for name in names},
        prompt=[row.get("prompt") for row in read],
        completion=[row.get("completion") for row in read],
        truncated=[bool(row.get("is_truncated")) for row in read],
        facts=[{"answer": row["answer"]} if row.get("answer") is not None else {} for row in read],
    )
