"""The file around every report: one head with a policy that lets nothing load or run but our own style and script.

The run's report, and those of probe, preferences, plan, lint, compare, trail and the verifier's audit, are this shell
with a body; `states.css` and `shell.css` have their colours for light, dark and paper, their head and their contents.
The page begins with the same style sheets.
"""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib.resources import files

from tiltmeter.safety.safe_text import visible

_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def render_shell(title: str, body: str, style: str, script: str = "") -> str:
    """A whole file. `body` is markup, whose foreign text is escaped already; `title` is escaped here. Style and script
    are ours, and are allowed by their hashes alone: even unescaped text could neither run nor load anything.

    >>> page = render_shell("<b>", "<main>x</main>", "main { color: red; }")
    >>> "<title>&lt;b&gt;</title>" in page, "script-src" in page, "default-src 'none'" in page
    (True, False, True)
    """
    for text in (style, script):
        if "</script" in text.lower() or "</style" in text.lower() or "<!--" in text:
            raise ValueError("a style or script that would end its own element")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'; "
    policy += f"script-src '{_hash(script)}'; " * bool(script)
    policy += "require-trusted-types-for 'script'; trusted-types 'none'"
    body += f"\n<script>{script}</script>" * bool(script)
    return _TEMPLATE.format(policy=policy, title=html.escape(visible(title)), style=style, body=body)


@cache
def shell_style() -> str:
    """Colours, head, contents and paper, for reports that are not built with the page."""
    return "".join((files(__package__) / name).read_text("utf-8") for name in ("states.css", "shell.css"))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
