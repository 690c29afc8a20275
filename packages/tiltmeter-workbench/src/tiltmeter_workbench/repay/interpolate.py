"""A model between a base and a checkpoint: weights (1 - share) * base + share * checkpoint, tensor by tensor."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.compare.sampling import fingerprint

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
#: What makes an adapter more than a product of two matrices: half of it would not be half of the change.
NOT_LINEAR = ("use_dora", "modules_to_save", "alora_invocation_tokens")
NOT_COPIED = (".safetensors", ".bin", ".pt", ".pth", ".msgpack", ".h5")  # weights, and forms of them that may run code


def interpolate(base: Path, checkpoint: Path, share: float, out: Path) -> Path:
    """Write the model in between to the folder `out`, whole or not at all. Raises `AttachError` with the reason.

    One tensor of each model is in memory at a time, and one file of the result. An adapter is scaled: `share` of what
    it adds is just the model in between, and needs no copy of the base.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        if (checkpoint / ADAPTER_CONFIG).exists():
            _scale_adapter(checkpoint, share, draft)
        else:
            _mix_weights(base, checkpoint, share, draft)
        for file in checkpoint.iterdir():
            if file.is_file() and file.suffix not in NOT_COPIED and not (draft / file.name).exists():
                shutil.copyfile(file, draft / file.name)
        _date_files(draft, fingerprint(base), fingerprint(checkpoint), share)
        shutil.rmtree(out, ignore_errors=True)
        draft.replace(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return out


def _mix_weights(base: Path, checkpoint: Path, share: float, draft: Path) -> None:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    base_files, own_files = _tensor_files(base), _tensor_files(checkpoint)
    if lacking := sorted(base_files.keys() ^ own_files.keys()):
        raise AttachError(f"{lacking[0]} is in one of {base} and {checkpoint} only: they are not one architecture")
    for name in sorted(set(own_files.values())):
        mixed: dict[str, Any] = {}
        with safe_open(checkpoint / name, "pt") as own:
            for key in own.keys():  # noqa: SIM118  # not a dict
                with safe_open(base / base_files[key], "pt") as start:
                    mixed[key] = _mix(start.get_tensor(key), own.get_tensor(key), share, key, torch)
        save_file(mixed, draft / name, {"format": "pt"})
    if (checkpoint / INDEX).exists():
        shutil.copyfile(checkpoint / INDEX, draft / INDEX)


def _mix(start: Any, own: Any, share: float, name: str, torch: Any) -> Any:
    if start.shape != own.shape:
        raise AttachError(f"{name} has other sizes in the two models: {tuple(start.shape)} and {tuple(own.shape)}")
    if not own.is_floating_point():
        return own
    return torch.lerp(start.float(), own.float(), share).to(own.dtype)


def _scale_adapter(checkpoint: Path, share: float, draft: Path) -> None:
    from safetensors.torch import load_file, save_file

    config = json.loads((checkpoint / ADAPTER_CONFIG).read_text("utf-8"))
    more = [name for name in NOT_LINEAR if config.get(name)]
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none" or more:
        kind = more[0] if more else config.get("peft_type")
        raise AttachError(f"{checkpoint} is an adapter that cannot be scaled ({kind}): merge it into its base first")
    if not (checkpoint / ADAPTER).exists():
        raise AttachError(f"{checkpoint} holds no {ADAPTER}; other forms may run code")
    weights = load_file(checkpoint / ADAPTER)
    # The change is B A: scaling one of the two scales it.
    scaled = {
        key: value * share if "lora_B" in key or "lora_embedding_B" in key else value for key, value in weights.items()
    }
    save_file(scaled, draft / ADAPTER, {"format": "pt"})


def _tensor_files(folder: Path) -> dict[str, str]:
    """By tensor, the file that it is in."""
    from safetensors import safe_open

    if (folder / INDEX).exists():
        places: dict[str, str] = json.loads((folder / INDEX).read_text("utf-8"))["weight_map"]
        if strange := [name for name in places.values() if Path(name).name != name]:
            raise AttachError(f"{folder / INDEX} names a file outside of its folder: {strange[0]}")
        return places
    if not (folder / WEIGHTS).exists():
        raise AttachError(f"{folder} holds no {WEIGHTS}: models are mixed in safetensors, whose files run no code")
    with safe_open(folder / WEIGHTS, "pt") as file:
        return dict.fromkeys(file.keys(), WEIGHTS)


def _date_files(folder: Path, *sources: object) -> None:
    """Give all files a time that follows from what they were made of: made again, it is the same model to a cache."""
    seconds = int(hashlib.sha256(repr(sources).encode()).hexdigest()[:7], 16)
    for file in folder.iterdir():
        os.utime(file, (seconds, seconds))
