"""Reads AReaL's dumped rollouts, rollout/VERSION/TASK.jsonl. Written from the description of the format only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import (
    FolderListing,
    StepFiles,
    bundle_steps,
    list_folder,
    list_folders,
    numbered_names,
    other_format_notes,
    run_name,
    size_of,
)
from tiltmeter.audit.readers.jsonl import (
    as_store_errors,
    first_row,
    read_rows,
    require_rows,
    score_evaluation,
    unused_option_notes,
)
from tiltmeter.audit.readers.table_files import TableRow, refuse_copies
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation

_VERSION = re.compile(r"(\d+)")
_KINDS = ("rollout", "eval-rollout")


class AReaLReader:
    """AReaL's rollouts, as `rollout.dump_to_file=true` writes them: text, reward and the versions that sampled it.

    Samples with an empty answer are not stored, so a policy that collapses to empty answers looks healthy. Written
    from the description of the format: no recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / "rollout" / "5").mkdir(parents=True)
    >>> row = {"task_id": "7", "prompt": "1 + 1 =", "completion": "2", "reward": 1.0}
    >>> _ = (folder / "rollout" / "5" / "7.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = AReaLReader().find(folder, ReadOptions())
    >>> [batch.step for piece in run.pieces for batch in AReaLReader().read(run, piece)]
    [5]
    """

    name = "areal"
    title = "AReaL: rollout/VERSION/TASK.jsonl (from the format's description only, not run)"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        other_notes = other_format_notes(listings, self.name)
        homes: dict[Path, dict[str, FolderListing]] = {}
        for listing in listings:
            if listing.folder.name in _KINDS and numbered_names(listing.folder, listing.folders, _VERSION):
                homes.setdefault(listing.folder.absolute().parent, {})[listing.folder.name] = listing
        return collect_runs(
            {str(home): partial(_run, home, kinds, path, options, other_notes) for home, kinds in sorted(homes.items())}
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        newest = run.settings["newest"]
        for version, files in groupby(map(Path, piece.files), key=lambda file: int(file.parent.name)):
            records = [row for file in files for row in read_rows(file, growing=version == newest)]
            if not records and version == newest:
                continue
            require_rows(Path(piece.files[0]).parent.parent / str(version), records)
            with as_store_errors(Path(piece.files[0]).parent.parent / str(version)):
                batch = _batch(version, records)
            yield batch


def _run(
    home: Path, kinds: dict[str, FolderListing], root: Path, options: ReadOptions, other_notes: tuple[str, ...]
) -> ExternalRun | None:
    trained = list(_versions(kinds["rollout"])) if "rollout" in kinds else []
    held_out = list(_versions(kinds["eval-rollout"])) if "eval-rollout" in kinds else []
    first = next((row for one in (trained + held_out)[:3] if (row := first_row(one.files[0]))), {})
    if not {"task_id", "reward", "completion"} <= first.keys():
        return None
    notes = [
        "read by the format's description: no file of a real run was at hand to check it against",
        "only what survived: samples with an empty answer are not written, so a collapse into silence is not seen",
        "a step is the version of the policy that finished the sample; groups by task",
        "where a prompt ends is inferred by AReaL, and wrong with several turns",
        "no metrics in these files: --format tensorboard or wandb reads those",
    ]
    notes += unused_option_notes(options, grouped=True)
    evaluations: list[Evaluation] = []
    for one in held_out:
        try:
            scores = [(str(row.get("task_id")), row.get("reward")) for file in one.files for row in read_rows(file)]
        except StoreError as error:
            notes.append(f"not read: {error}")
            continue
        evaluation, why = score_evaluation(one.step, "evaluation", scores)
        evaluations += [evaluation] if evaluation else []
        notes += [] if evaluation else [f"eval-rollout/{one.step} is no evaluation: {why}"]
    return ExternalRun(
        name=run_name(home, root),
        reader=AReaLReader.name,
        pieces=bundle_steps(trained),
        notes=(*notes, *other_notes),
        settings={"newest": trained[-1].step if trained else -1},
        evaluations=tuple(evaluations),
    )


def _versions(listing: FolderListing) -> Iterator[StepFiles]:
    for version, name in numbered_names(listing.folder, listing.folders, _VERSION):
        folder = listing.folder / name
        files = tuple(folder / one for one in list_folder(folder).files if one.endswith((".jsonl", ".jsonl.gz")))
        refuse_copies(files)
        if files:
            yield StepFiles(version, files, sum(map(size_of, files)))


def _batch(version: int, records: Sequence[TableRow]) -> RolloutBatch:
    columns: dict[str, Any] = {}
    if any("original_reward" in row for row in records):
        columns["rewards"] = {"original": [row.get("original_reward") for row in records]}
    lengths = [_length(row) for row in records]
    return from_columns(
        version,
        [str(row.get("task_id")) for row in records],
        reward=[row.get("reward") for row in records],
        prompt=[row.get("prompt") for row in records],
        completion=[row.get("completion") for row in records],
        length=None if None in lengths else lengths,
        facts=[{"policy_start": row.get("head_version")} for row in records],
        **columns,
    )


def _length(row: TableRow) -> int | None:
    whole, prompt = row.get("seqlen"), row.get("prompt_len")
    return whole - prompt if isinstance(whole, int) and isinstance(prompt, int) and whole >= prompt else None
