"""A checkpoint that a server holds, as vLLM or any other with OpenAI's chat API, asked as one in a folder is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tiltmeter_workbench.common.chat_endpoint import read_endpoint
from tiltmeter_workbench.common.chat_model import ChatAnswer, Turns
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.comparison import open_models


class ServedModel(LocalModel):
    """The model that a TOML file describes. It answers; it shows no tokens and no log-probabilities."""

    def __init__(self, file: str | Path) -> None:
        self.folder, self.base, self.plain = Path(file), None, False
        self.server = read_endpoint(file)

    @property
    def name(self) -> str:
        return self.folder.stem

    def answers(
        self,
        questions: Sequence[Turns],
        *,
        samples: int = 1,
        limit: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> Iterator[tuple[int, list[ChatAnswer]]]:
        return self.server.answers(questions, samples=samples, limit=limit, temperature=temperature, seed=seed)


def is_served(path: Path) -> bool:
    return path.suffix == ".toml" and path.is_file()


def open_checkpoint(base: Path, checkpoint: Path) -> LocalModel:
    """A checkpoint in a folder, as an adapter of the base if it is one, or on a server. Raises `AttachError`."""
    if is_served(checkpoint):
        return ServedModel(checkpoint)
    return open_models(checkpoint if is_served(base) else base, checkpoint)[1]
