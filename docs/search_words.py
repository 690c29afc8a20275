"""Gives every page the words under which people look for it (`concepts.toml`), as tags of the site's search index."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

CONCEPTS = Path(__file__).with_name("concepts.toml")


@cache
def words_by_page() -> dict[str, list[str]]:
    """By page: its terms and what else they are called, in the order of the file."""
    pages = tomllib.loads(CONCEPTS.read_text())["pages"]
    return {page: [word for term, names in terms.items() for word in (term, *names)] for page, terms in pages.items()}


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs for each page; Material's search ranks a tag above a title and a title above text."""
    words = words_by_page().get(page.file.src_uri)
    if words:
        page.meta["tags"] = words
    return markdown
