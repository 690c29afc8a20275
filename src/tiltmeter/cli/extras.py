"""Packages that only some verbs need: the extra that installs each, and what it is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the distribution: what it is for, and the modules whose import shows that it works."""

    purpose: str
    modules: tuple[str, ...]


EXTRAS = {
    "trl": Extra("tiltmeter.attach on a TRL trainer", ("trl", "transformers", "torch")),
    "workbench": Extra("tools around a run: tiltmeter probe, lint, model plan", ("tiltmeter_workbench", "yaml")),
    "lab": Extra("simulated runs with known ground truth: tiltmeter lab", ("tiltmeter_lab",)),
    "train": Extra("training by a recipe: tiltmeter model train", ("trl", "peft", "accelerate", "datasets", "yaml")),
    "compare": Extra("tiltmeter model compare, trail and repay", ("torch", "transformers", "lm_eval", "datasets")),
    "ray": Extra("audits on a cluster", ("ray",)),
    "dashboard": Extra(
        "the live page and the search of rollouts: tiltmeter view; pictures as PNG",
        ("starlette", "uvicorn", "duckdb", "PIL"),
    ),
    "cloud": Extra("runs on S3, Google Cloud Storage and Azure", ("obstore",)),
    "mcp": Extra("tools for coding agents: tiltmeter mcp", ("mcp", "duckdb")),
    "judge": Extra("gold from a judge's server, and the witness", ("httpx",)),
    "trackers": Extra("W&B, TensorBoard and Prometheus", ("wandb", "tensorboard", "prometheus_client", "PIL")),
    "mlflow": Extra("MLflow", ("mlflow", "sqlalchemy", "alembic")),
    "trackio": Extra("Trackio", ("trackio",)),
}


def how_to_install(module: str, words: tuple[str, ...]) -> str:
    """What to install where a module is missing, for the verb of a command line; empty if no extra has it.

    >>> how_to_install("torch", ("model", "compare", "a", "b"))
    "torch is not installed, which tiltmeter model compare needs: pip install 'tiltmeter[compare]'"
    """
    name = module.partition(".")[0]
    having = [extra for extra, one in EXTRAS.items() if name in one.modules]
    if not having:
        return ""
    own = next((extra for extra in having if extra in words[:2]), having[0])
    verb = " ".join(words[: 2 if words[:1] and words[0] in ("data", "reward", "gold", "model", "lab") else 1])
    return f"{name} is not installed, which tiltmeter {verb} needs: pip install 'tiltmeter[{own}]'"
