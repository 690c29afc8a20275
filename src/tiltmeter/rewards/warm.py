"""One reward model from several by averaging their weights (WARM): the price of one, and less of each one's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.rewards.model import check, hash_of, load, untouched

NOTE = "tiltmeter-warm.json"
#: Of a configuration: what says where a model was stored, by what, and in which type; not what it computes.
BESIDE = frozenset({"_name_or_path", "transformers_version", "dtype", "torch_dtype", "architectures", "use_cache"})
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
        check(folder)
        if folder.resolve() == target.resolve():
            raise AttachError(f"{target} is a member itself; choose another folder for the average")
    for folder in members[1:]:
        _same(members[0], folder)
    model, tokenizer = _averaged(members)
    with untouched():
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
    note = {
        "made_by": "tiltmeter.rewards.warm",
        "rule": "uniform mean of parameters in float32",
        "members": [{"name": folder.name, "sha256": hash_of(folder)} for folder in members],
        "assumed": ASSUMED,
    }
    (target / NOTE).write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")
    return target


def _averaged(members: Sequence[Path]) -> tuple[Any, Any]:
    """The first member with the mean weights, and its tokenizer. Sums are in float64, so that the mean of a model
    with itself is itself, bit for bit."""
    import torch

    model, tokenizer = load(members[0])
    total = {name: value.double() for name, value in model.state_dict().items() if value.is_floating_point()}
    for folder in members[1:]:
        other, _ = load(folder)
        weights = other.state_dict()
        _same_shapes(members[0], folder, model.state_dict(), weights)
        for name in total:
            total[name] += weights[name].double()
    with torch.no_grad():
        mean = {name: (value / len(members)).float() for name, value in total.items()}
        model.load_state_dict(mean, strict=False)  # what is not a float is no parameter, and stays the first member's
    return model, tokenizer


def _same_shapes(first: Path, folder: Path, known: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    if set(known) != set(found):
        odd = sorted(set(known) ^ set(found))
        raise AttachError(
            f"{first.name} and {folder.name} cannot be averaged: only one of them has {', '.join(odd[:3])}"
        )
    for name, value in known.items():
        if value.shape != found[name].shape:
            shapes = f"{tuple(value.shape)} and {tuple(found[name].shape)}"
            raise AttachError(f"{first.name} and {folder.name} cannot be averaged: {name} is {shapes}")
        if not found[name].isfinite().all():
            raise AttachError(f"{folder.name} cannot be averaged: {name} has weights that are not finite")


def _same(first: Path, folder: Path) -> None:
    """Refuse what differs in architecture or in what a token means."""
    one, other = _read(first / "config.json"), _read(folder / "config.json")
    for name in sorted((set(one) | set(other)) - BESIDE):
        if one.get(name) != other.get(name):
            told = f"{name} is {one.get(name)!r} and {other.get(name)!r}"
            raise AttachError(f"{first.name} and {folder.name} cannot be averaged: {told} in config.json")
    words, others = _vocabulary(first), _vocabulary(folder)
    if _splitting(first) != _splitting(folder) and words == others:
        raise AttachError(f"{first.name} and {folder.name} cannot be averaged: their tokenizers split text differently")
    if words != others:
        odd = sorted(word for word in words.keys() | others.keys() if words.get(word) != others.get(word))
        raise AttachError(
            f"{first.name} and {folder.name} cannot be averaged: their tokenizers differ in {len(odd)} tokens, "
            f"{odd[0]!r} among them"
        )


def _vocabulary(folder: Path) -> Mapping[str, int]:
    from transformers import AutoTokenizer

    with untouched():
        known = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    return dict(known.get_vocab())


def _splitting(folder: Path) -> list[Any]:
    """How text becomes tokens; empty where a tokenizer does not keep it in one file."""
    path = folder / "tokenizer.json"
    told = _read(path) if path.exists() else {}
    return [told.get(part) for part in ("normalizer", "pre_tokenizer", "model", "post_processor")]


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
