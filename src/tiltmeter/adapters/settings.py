"""What a run was set to when it was opened, for lists of runs: arguments on a short list, model, data, commit.

Nothing else is taken: no environment variables, no command lines, no tokens, and of a path only its last name. A value
that looks like a secret is left out.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiltmeter.safety.safe_text import log_line
from tiltmeter.safety.secret_scan import describe_secret, replace_secrets

MOST = 40
TEXT = 200  # characters of a value
PARENTS = 8  # folders above the current one in which a repository is looked for
#: Arguments of trainers that decide what a run does. A name that is not here is not stored.
ARGUMENTS = (
    "learning_rate", "lr_scheduler_type", "warmup_ratio", "weight_decay", "max_grad_norm", "beta", "epsilon",
    "epsilon_high", "loss_type", "scale_rewards", "importance_sampling_level", "num_iterations", "num_generations",
    "generation_batch_size", "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps",
    "num_train_epochs", "max_prompt_length", "max_completion_length", "temperature", "top_p", "top_k", "min_p",
    "mask_truncated_completions", "reward_weights", "use_vllm", "bf16", "fp16", "seed",
)  # fmt: skip
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def trainer_settings(trainer: Any, args: Any) -> dict[str, Any]:
    """What is known of a trainer of TRL. Never raises: what cannot be read is left out."""
    settings: dict[str, Any] = {}
    if trainer is not None:
        settings["trainer"] = type(trainer).__name__
        package = type(trainer).__module__.partition(".")[0]
        try:
            settings["package"] = f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            pass  # a trainer of one's own
        model = getattr(getattr(getattr(trainer, "model", None), "config", None), "_name_or_path", None)
        if isinstance(model, str) and model:
            settings["model"] = _last_name(model)
        data = getattr(trainer, "train_dataset", None)
        name = getattr(getattr(data, "info", None), "dataset_name", None)
        if isinstance(name, str) and name:
            settings["data"] = _last_name(name)
        if isinstance(mark := getattr(data, "_fingerprint", None), str):
            settings["data fingerprint"] = mark
    settings |= {name: value for name in ARGUMENTS if (value := getattr(args, name, None)) is not None}
    return settings


def capture_settings(values: Mapping[str, Any] | None) -> dict[str, str]:
    """Settings as short texts, with the commit of the code."""
    settings = {} if (commit := git_commit(Path.cwd())) is None else {"commit": commit[:12]}
    for name, value in (values or {}).items():
        if isinstance(value, float):
            value = f"{value:.6g}"
        text = str(getattr(value, "value", value))
        text = f"[secret {name}]" if describe_secret(str(name), text) else replace_secrets(text)
        settings.setdefault(log_line(str(name))[:100], log_line(text)[:TEXT])
        if len(settings) >= MOST:
            break
    return settings


def git_commit(folder: Path) -> str | None:
    """The commit that a folder's repository is at, read from its files; None if it is in none."""
    for place in [folder, *folder.parents][:PARENTS]:
        try:
            head = (place / ".git" / "HEAD").read_text(encoding="ascii")[:300].strip()
            if head.startswith("ref: refs/"):
                reference = head.removeprefix("ref: ")
                file = place / ".git" / reference
                if ".." in reference:
                    return None
                head = file.read_text(encoding="ascii")[:100].strip() if file.exists() else _packed(place, reference)
        except (OSError, ValueError):
            continue
        return head if _COMMIT.fullmatch(head) else None
    return None


def _packed(place: Path, reference: str) -> str:
    with (place / ".git" / "packed-refs").open(encoding="ascii") as lines:
        return next((line[:40] for line in lines if line.rstrip().endswith(f" {reference}")), "")


def _last_name(text: str) -> str:
    """A name on a hub as it is; of a path its last part, because others may tell who works where on what."""
    return text if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", text) else Path(text).name
