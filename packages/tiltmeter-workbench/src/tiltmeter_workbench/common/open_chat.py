"""The chat model that a path names: a folder with weights, or a TOML file that describes a server."""

from __future__ import annotations

from pathlib import Path

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.chat_endpoint import read_endpoint
from tiltmeter_workbench.common.chat_model import ChatModel
from tiltmeter_workbench.common.local_model import LocalModel


def open_model(source: str | Path) -> ChatModel:
    """The model that a folder holds or a TOML file describes. Raises `AttachError` with the fix."""
    path = Path(source)
    if path.suffix == ".toml":
        return read_endpoint(path)
    if path.is_dir():
        return LocalModel(path)
    raise AttachError(f"{source}: give a folder that transformers can load, or a .toml file that describes a server")
