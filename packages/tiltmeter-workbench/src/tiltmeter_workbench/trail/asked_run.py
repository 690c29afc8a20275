"""A run whose checkpoints were asked while it trained, as a trail: what was asked, and where the answers are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tiltmeter.errors import AttachError, StoreError, warn_user
from tiltmeter.rundir.checkpoints.sampling import read_sampling
from tiltmeter.rundir.locate_run import locate_run
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.compare.sampling import Prompts
from tiltmeter_workbench.trail.at_saves import sampled_prompts, work_folder
from tiltmeter_workbench.trail.saves import checkpoint_folder, list_saves


@dataclass(frozen=True)
class AskedRun:
    """The newest attempt of such a run."""

    base: Path
    folders: list[Path]
    prompts: Prompts
    gold: str
    work: Path
    plain: bool
    answers: int
    tokens: int
    seed: int


def read_asked_run(path: Path) -> AskedRun:
    """Raises `AttachError` with the fix for what is no such run."""
    try:
        run = RunDirectory(locate_run(path))
        attempt = max(run.attempts())
        sampling = read_sampling(run, attempt)
    except (StoreError, AttachError, OSError, ValueError) as error:
        raise AttachError(
            f"name the checkpoints behind {path}, or a run whose checkpoints were asked ({error})"
        ) from error
    if sampling.kind != "answers" or not sampling.base:
        raise AttachError(
            f"{path}: a reward model answers nothing; `tiltmeter show` has its verdict"
            if sampling.kind != "answers"
            else f"{path}: the model that training began with is in no folder: name base and checkpoints"
        )
    saves = [checkpoint_folder(sampling.output, step) for step in list_saves(run, attempt)]
    folders = [folder for folder in saves if folder.is_dir()]
    if not folders:
        raise AttachError(
            f"{path}: none of its {len(saves)} checkpoints is there any more; `tiltmeter show` has a verdict"
        )
    if len(folders) < len(saves):
        warn_user(f"{len(saves) - len(folders)} of {len(saves)} checkpoints are gone and are left out")
    return AskedRun(
        Path(sampling.base), folders, sampled_prompts(sampling), sampling.gold, work_folder(run), sampling.plain,
        sampling.answers, sampling.tokens, sampling.seed,
    )  # fmt: skip
