"""`warm`: average the weights of several reward models into one (WARM), which costs as much as one model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.rewards.reward_model import check_model_folder, hash_model, load_reward_model, preserve_rng

NOTE = "tiltmeter-warm.json"
#: Configuration keys that do not affect what a model computes.
IGNORED_KEYS = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache"}
)
ASSUMED = (
    "members were trained from the same initial weights, head included; nothing in a folder tells, and the average of "
    "models that were not is worthless"
)


def warm(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Average the weights of two or more reward models and save the result as a reward model in `out`.

    Formula: θ = (1/M) Σ θ_m, each parameter in float32 (Ramé et al. 2024, arXiv 2401.12187). Where members were
    fine-tuned from the same start on other pairs, in other orders or at other rates, their weights lie in one basin:
    the mean scores about as an ensemble of all of them, at the price of one, and remembers less of what only one of
    them saw. What voids it: members with different initial weights (`tiltmeter-warm.json` notes that this was assumed,
    for it cannot be verified), and errors that all members share, which the mean has too. Compare it with its members
    on held-out pairs before a policy is trained on it.

    `out` gets weights, configuration, tokenizer and the note, which names the members with their hashes; give it to
    `tiltmeter.rewards.model`. Members that do not fit together are refused, with the reason.

    >>> warm(["only-one"], "out")
    Traceback (most recent call last):
    tiltmeter.errors.AttachError: 1 reward model has no average; give warm two or more folders
    """
    members = [Path(folder) for folder in folders]
    target = Path(out)
    if len(members) < 2:
        raise AttachError(f"{len(members)} reward model has no average; give warm two or more folders")
    for folder in members:
        check_model_folder(folder)
        if folder.resolve() == target.resolve():
            raise AttachError(f"{target} is a member itself; choose another folder for the average")
    for folder in members[1:]:
        _check_compatible(members[0], folder)
    model, tokenizer = _average_weights(members)
    with preserve_rng():
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    note = {
        "made_by": "tiltmeter.rewards.warm",
        "rule": "uniform mean of parameters in float32",
        "members": [{"name": folder.name, "sha256": hash_model(folder)} for folder in members],
        "assumed": ASSUMED,
    }
    (target / NOTE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    return target


def _average_weights(members: Sequence[Path]) -> tuple[Any, Any]:
    """The first member with the mean weights, and its tokenizer. Sums are in float64, so that the mean of a model
    with itself is itself, bit for bit."""
    import torch

    model, tokenizer = load_reward_model(members[0])
    total = {name: value.double() for name, value in model.state_dict().items() if value.is_floating_point()}
    for folder in members[1:]:
        other, _ = load_reward_model(folder)
        weights = other.state_dict()
        _check_shapes(members[0], folder, model.state_dict(), weights)
        for name in total:
            total[name] += weights[name].double()
    with torch.no_grad():
        mean = {name: (value / len(members)).float() for name, value in total.items()}
        model.load_state_dict(mean, strict=False)  # what is not a float is no parameter, and stays the first member's
    return model, tokenizer


def _check_shapes(first: Path, folder: Path, weights: Mapping[str, Any], other_weights: Mapping[str, Any]) -> None:
    if set(weights) != set(other_weights):
        odd = sorted(set(weights) ^ set(other_weights))
        raise AttachError(
            f"{first.name} and {folder.name} cannot be averaged: only one of them has {', '.join(odd[:3])}"
        )
    for name, value in weights.items():
        if value.shape != other_weights[name].shape:
            shapes = f"{tuple(value.shape)} and {tuple(other_weights[name].shape)}"
            raise AttachError(f"{first.name} and {folder.name} cannot be averaged: {name} is {shapes}")
        if not other_weights[name].isfinite().all():
            raise AttachError(f"{folder.name} cannot be averaged: {name} has weights that are not finite")


def _check_compatible(first: Path, folder: Path) -> None:
    """Refuse what differs in architecture or in what a token means."""
    one, other = _read_json(first / "config.json"), _read_json(folder / "config.json")
    for name in sorted((set(one) | set(other)) - IGNORED_KEYS):
        if one.get(name) != other.get(name):
            difference = f"{name} is {one.get(name)!r} and {other.get(name)!r}"
            raise AttachError(f"{first.name} and {folder.name} cannot be averaged: {difference} in config.json")
    words, others = _vocabulary(first), _vocabulary(folder)
    if _tokenizer_rules(first) != _tokenizer_rules(folder) and words == others:
        raise AttachError(f"{first.name} and {folder.name} cannot be averaged: their tokenizers split text differently")
    if words != others:
        odd = sorted(word for word in words.keys() | others.keys() if words.get(word) != others.get(word))
        raise AttachError(
            f"{first.name} and {folder.name} cannot be averaged: their tokenizers differ in {len(odd)} tokens, "
            f"{odd[0]!r} among them"
        )


def _vocabulary(folder: Path) -> Mapping[str, int]:
    from transformers import AutoTokenizer

    with preserve_rng():
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    return dict(tokenizer.get_vocab())


def _tokenizer_rules(folder: Path) -> list[Any]:
    """How text becomes tokens; empty where a tokenizer does not keep it in one file."""
    path = folder / "tokenizer.json"
    spec = _read_json(path) if path.exists() else {}
    return [spec.get(part) for part in ("normalizer", "pre_tokenizer", "model", "post_processor")]


def _read_json(path: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return config
