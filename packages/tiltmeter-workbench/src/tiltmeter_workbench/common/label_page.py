"""Answers to label as one HTML file that needs no network and no server: it shows them, and saves what was chosen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple

from tiltmeter.safety.safe_text import html_json
from tiltmeter.view.shell.shell import render_shell, shell_style
from tiltmeter.view.without_secrets import without_secrets

#: What a model wrote is set as text, never as markup.
_SCRIPT = """
const items = JSON.parse(document.getElementById("items").textContent);
const forPairs = {a: "first", b: "second", t: "tie", s: "skip"};
const forOne = {1: "0", 2: "0.25", 3: "0.5", 4: "0.75", 5: "1", s: "skip"};
const keysOf = (item) => (item.second === null ? forOne : forPairs);
const answers = [];
const put = (id, text) => { document.getElementById(id).textContent = text; };
function show() {
  const item = items[answers.length];
  put("count", item ? `${answers.length + 1} of ${items.length}` : `${answers.length} of ${items.length} labelled`);
  for (const part of ["prompt", "first", "second"]) put(part, item ? item[part] : "");
  const one = Boolean(item) && item.second === null;
  document.getElementById("other").hidden = one;
  for (const part of document.querySelectorAll(".pair")) part.hidden = one;
  for (const part of document.querySelectorAll(".one")) part.hidden = !one;
  const lines = answers.map((one) => JSON.stringify(one)).join("\\n") + "\\n";
  document.getElementById("save").href = URL.createObjectURL(new Blob([lines], {type: "application/jsonl"}));
}
function choose(key) {
  if (key === "u") answers.pop();
  else if (answers.length < items.length && keysOf(items[answers.length])[key]) {
    const item = items[answers.length];
    answers.push({key: item.key, person: keysOf(item)[key]});
  }
  show();
}
document.addEventListener("keydown", (event) => choose(event.key.toLowerCase()));
for (const button of document.querySelectorAll("button")) button.onclick = () => choose(button.value);
show();
"""

_STYLE = """
main { max-width: 80rem; margin: 0 auto; padding: 1rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid var(--line); }
pre { min-height: 3rem; margin: 0.4rem 0; padding: 0.6rem; border-radius: 6px; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 1rem; }
.sides > * { min-width: 0; }
button { font: inherit; min-height: 2rem; padding: 0.2rem 0.8rem; }
[hidden] { display: none; }
"""

_BODY = """<main>
<h1><span class="pair">Which answer is better?</span><span class="one" hidden>How good is this answer?</span></h1>
<p><span id="count"></span>. Keys: <span class="pair">a or b, t (as good as each other)</span><span class="one" hidden>1
(useless) to 5 (flawless)</span>, s (skip), u (undo).</p>
<pre id="prompt"></pre>
<div class="sides"><section><h2 class="pair">A</h2><pre id="first"></pre></section>
<section id="other"><h2>B</h2><pre id="second"></pre></section></div>
<p><button class="pair" value="a">A</button> <button class="pair" value="b">B</button>
<button class="pair" value="t">tie</button>
<button class="one" value="1" hidden>1</button> <button class="one" value="2" hidden>2</button>
<button class="one" value="3" hidden>3</button> <button class="one" value="4" hidden>4</button>
<button class="one" value="5" hidden>5</button>
<button value="s">skip</button> <button value="u">undo</button> <a id="save" download="labels.jsonl">Save</a></p>
</main>
<script type="application/json" id="items">{items}</script>"""


class PageItem(NamedTuple):
    """Two answers to one prompt as they are shown, or one."""

    prompt: str
    first: str
    second: str | None = None

    @property
    def key(self) -> str:
        """What a saved answer names it by.

        >>> PageItem("2 + 2?", "4", "5").key == PageItem("2 + 2?", "4", "5").key != PageItem("2 + 2?", "4").key
        True
        """
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()[:16]


def render_items(items: Sequence[PageItem]) -> str:
    """The page, which does not know whose answers they are."""
    shown = [{"key": one.key, "prompt": one.prompt, "first": one.first, "second": one.second} for one in items]
    body = _BODY.format(items=html_json(without_secrets(shown)))
    return render_shell("Which answer is better?", body, shell_style() + _STYLE, _SCRIPT)
