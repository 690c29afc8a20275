"""The configurations here are text to judge, never code to import."""

from __future__ import annotations

collect_ignore_glob = ["configs/*"]
