"""The long description: README.md as it can be read where relative links and pictures lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n\n", re.M)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)\s]+\)")


def without_relative_links(text: str) -> str:
    """Pictures are left out, of links their words stay.

    >>> without_relative_links("See [gold](docs/gold.md) and [TRL](https://huggingface.co/docs/trl).")
    'See gold and [TRL](https://huggingface.co/docs/trl).'
    """
    return LINK.sub(r"\1", PICTURE.sub("", text))


class LongDescription(MetadataHookInterface):
    """Called by hatchling when a wheel or an sdist is built."""

    def update(self, metadata: dict[str, object]) -> None:
        text = without_relative_links(Path(self.root, "README.md").read_text("utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
