"""Reads SkyRL's dumped evaluations. Written from the description of the format only; its rollouts are a pickle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tiltmeter.adapters.readers.foreign import Asked, Foreign, Piece, usable
from tiltmeter.adapters.readers.jsonl import judged, named, renamed, rows, unused
from tiltmeter.adapters.readers.places import Place, beside, called, listed, numbered, survey
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation
from tiltmeter.records import RolloutBatch

_STEP = re.compile(r"global_step_(\d+)_evals")
_AGGREGATE = "aggregated_results.jsonl"


class SkyRL:
    """SkyRL's evaluations: held-out scores by step, which training never sees.

    Where no completion can be labelled they are the only truth there is. SkyRL dumps training rollouts as a pickle
    without rewards, which is not read. Written from the description of the format: no recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "global_step_5_evals").mkdir()
    >>> row = {"input_prompt": "1 + 1 =", "output_response": "2", "score": 1.0}
    >>> _ = (folder / "global_step_5_evals" / "sums.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = SkyRL().find(folder, Asked())
    >>> run.evaluations
    (Evaluation(attempt=0, step=5, name='eval_sums', value=1.0, n=1),)
    """

    name = "skyrl"
    title = "SkyRL: dumped_evals/global_step_N_evals/*.jsonl (from the format's description only, not run)"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        places = survey(path)
        mixed = beside(places, self.name)
        return usable({str(place.folder): partial(_run, place, path, asked, mixed) for place in places})

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        return iter(())


def _run(place: Place, root: Path, asked: Asked, mixed: tuple[str, ...]) -> Foreign | None:
    steps = numbered(place.folder, place.folders, _STEP)
    if not steps:
        return None
    home = place.folder.absolute()
    home = home.parent if home.name == "dumped_evals" else home
    said = [
        "read by the format's description: no file of a real run was at hand to check it against",
        "evaluations only: SkyRL dumps training rollouts as a pickle without rewards, and a pickle is not read",
    ]
    found: list[Evaluation] = []
    taken: dict[str, str] = {}
    for step, name in steps:
        folder = place.folder / name
        for file in (folder / one for one in listed(folder).files if one.endswith(".jsonl") and one != _AGGREGATE):
            try:
                scores = [(str(row.get("input_prompt")), _score(row.get("score"))) for row in rows(file)]
            except StoreError as error:
                said.append(f"not read: {error}")
                continue
            one, why = judged(step, named(f"eval {file.stem}", taken), scores)
            found += [one] if one else []
            said += [] if one else [f"{name}/{file.name} is no evaluation: {why}"]
    said += [*renamed(taken), *unused(asked)]
    said.append(f"{len(found)} evaluations, from the scores of held-out prompts")
    return Foreign(called(home, root), SkyRL.name, said=(*said, *mixed), evaluations=tuple(found))


def _score(score: object) -> object:
    """A response's score: one number, or one for every token, which add up to it."""
    if isinstance(score, list) and score and all(isinstance(part, (int, float)) for part in score):
        return sum(score)
    return score
