"""Reads SkyRL's dumped evaluations. Written from the description of the format only; its rollouts are a pickle."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import (
    FolderListing,
    list_folder,
    list_folders,
    numbered_names,
    other_format_notes,
    run_name,
)
from tiltmeter.audit.readers.jsonl import read_rows, renaming_notes, score_evaluation, unique_name, unused_option_notes
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation

_STEP = re.compile(r"global_step_(\d+)_evals")
_AGGREGATE = "aggregated_results.jsonl"


class SkyRLReader:
    """SkyRL's evaluations: held-out scores by step, which training never sees.

    Where no completion can be labelled they are the only gold. SkyRL dumps training rollouts as a pickle
    without rewards, which is not read. Written from the description of the format: no recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "global_step_5_evals").mkdir()
    >>> row = {"input_prompt": "1 + 1 =", "output_response": "2", "score": 1.0}
    >>> _ = (folder / "global_step_5_evals" / "sums.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = SkyRLReader().find(folder, ReadOptions())
    >>> run.evaluations
    (Evaluation(attempt=0, step=5, name='eval_sums', value=1.0, n=1),)
    """

    name = "skyrl"
    title = "SkyRL: dumped_evals/global_step_N_evals/*.jsonl (from the format's description only, not run)"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        other_notes = other_format_notes(listings, self.name)
        return collect_runs(
            {str(listing.folder): partial(_run, listing, path, options, other_notes) for listing in listings}
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        return iter(())


def _run(listing: FolderListing, root: Path, options: ReadOptions, other_notes: tuple[str, ...]) -> ExternalRun | None:
    steps = numbered_names(listing.folder, listing.folders, _STEP)
    if not steps:
        return None
    home = listing.folder.absolute()
    home = home.parent if home.name == "dumped_evals" else home
    notes = [
        "read by the format's description: no file of a real run was at hand to check it against",
        "evaluations only: SkyRL dumps training rollouts as a pickle without rewards, and a pickle is not read",
    ]
    evaluations: list[Evaluation] = []
    used_names: dict[str, str] = {}
    for step, name in steps:
        folder = listing.folder / name
        for file in (folder / one for one in list_folder(folder).files if one.endswith(".jsonl") and one != _AGGREGATE):
            try:
                scores = [(str(row.get("input_prompt")), _score(row.get("score"))) for row in read_rows(file)]
            except StoreError as error:
                notes.append(f"not read: {error}")
                continue
            one, why = score_evaluation(step, unique_name(f"eval {file.stem}", used_names), scores)
            evaluations += [one] if one else []
            notes += [] if one else [f"{name}/{file.name} is no evaluation: {why}"]
    notes += [*renaming_notes(used_names), *unused_option_notes(options)]
    notes.append(f"{len(evaluations)} evaluations, from the scores of held-out prompts")
    return ExternalRun(
        run_name(home, root), SkyRLReader.name, notes=(*notes, *other_notes), evaluations=tuple(evaluations)
    )


def _score(score: object) -> object:
    """A response's score: one number, or the sum of one number per token."""
    if isinstance(score, list) and score and all(isinstance(part, (int, float)) for part in score):
        return sum(score)
    return score
