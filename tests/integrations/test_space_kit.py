"""The demo app: made, started, and asked by Gradio's own client for both of its runs."""

from __future__ import annotations

import html
import importlib
import importlib.util
import os
import warnings
from pathlib import Path
from typing import Any

import pytest

KIT = Path(__file__).parents[2] / "integrations" / "space"
FIELDS = {"title", "emoji", "colorFrom", "colorTo", "sdk", "sdk_version", "app_file", "pinned", "license"}
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


def front_matter() -> dict[str, Any]:
    yaml = importlib.import_module("yaml")
    fields: dict[str, Any] = yaml.safe_load((KIT / "README.md").read_text().split("---\n")[1])
    return fields


def test_the_front_matter_is_what_a_space_reads() -> None:
    fields = front_matter()
    assert fields.keys() >= FIELDS and fields["sdk"] == "gradio" and (KIT / fields["app_file"]).is_file()
    assert {fields["colorFrom"], fields["colorTo"]} <= COLOURS and len(fields["short_description"]) <= 60


def test_the_app_shows_both_runs(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            gradio = importlib.import_module("gradio")
            client = importlib.import_module("gradio_client")
        except ImportError as error:
            pytest.skip(f"needs Gradio, in an environment of its own: pip install gradio==6.31.0 ({error})")
        assert gradio.__version__ == front_matter()["sdk_version"]
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        spec = importlib.util.spec_from_file_location("space_app", KIT / "app.py")
        assert spec is not None and spec.loader is not None
        app = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(app)
        shown = app.prepare(tmp_path)
        assert set(shown) == {"hacked", "honest"}
        demo = app.build(shown)
        _, url, _ = demo.launch(prevent_thread_lock=True, quiet=True, server_name="127.0.0.1")
        try:
            asking = client.Client(url, verbose=False)
            for name, state in (("hacked", "ACT"), ("honest", "OK")):
                lines, page = asking.predict(name, fn_index=0)
                assert lines.startswith(state), lines
                published = (tmp_path / "pages" / name / "index.html").read_text("utf-8")
                assert html.escape(published) in page and 'sandbox="allow-scripts"' in page
        finally:
            demo.close()
