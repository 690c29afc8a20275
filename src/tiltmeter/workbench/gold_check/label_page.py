"""Pairs to label as one HTML file that needs no network and no server: it shows them, and saves what was chosen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import html_json
from tiltmeter.view.shell.shell import render_shell, shell_style
from tiltmeter.workbench.gold_check.person_labels import CHOICES, Ask, Choice, ScoredPair

#: What a model wrote is set as text, never as markup.
_SCRIPT = """
const pairs = JSON.parse(document.getElementById("pairs").textContent);
const keys = {a: "first", b: "second", t: "tie", s: "skip"};
const answers = [];
const put = (id, text) => { document.getElementById(id).textContent = text; };
function show() {
  const pair = pairs[answers.length];
  put("count", pair ? `${answers.length + 1} of ${pairs.length}` : `${answers.length} of ${pairs.length} labelled`);
  for (const part of ["prompt", "first", "second"]) put(part, pair ? pair[part] : "");
  const lines = answers.map((one) => JSON.stringify(one)).join("\\n") + "\\n";
  document.getElementById("save").href = URL.createObjectURL(new Blob([lines], {type: "application/jsonl"}));
}
function choose(key) {
  if (key === "u") answers.pop();
  else if (keys[key] && answers.length < pairs.length) {
    answers.push({key: pairs[answers.length].key, person: keys[key]});
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
"""

_BODY = """<main>
<h1>Which answer is better?</h1>
<p><span id="count"></span>. Keys: a or b, t (as good as each other), s (skip), u (undo).</p>
<pre id="prompt"></pre>
<div class="sides"><section><h2>A</h2><pre id="first"></pre></section>
<section><h2>B</h2><pre id="second"></pre></section></div>
<p><button value="a">A</button> <button value="b">B</button> <button value="t">tie</button>
<button value="s">skip</button> <button value="u">undo</button> <a id="save" download="labels.jsonl">Save</a></p>
</main>
<script type="application/json" id="pairs">{pairs}</script>"""


def render_pairs(pairs: Sequence[ScoredPair]) -> str:
    """The page, which does not know what the check prefers."""
    shown = [{"key": pair_key(one), "prompt": one.prompt, "first": one.first, "second": one.second} for one in pairs]
    body = _BODY.format(pairs=html_json(shown))
    return render_shell("Which answer is better?", body, shell_style() + _STYLE, _SCRIPT)


def pair_key(pair: ScoredPair) -> str:
    texts = json.dumps([pair.prompt, pair.first, pair.second])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def saved_answers(rows: Iterable[Mapping[str, Any]], pairs: Sequence[ScoredPair]) -> Ask:
    """Answers that the page saved, given in the order of the pairs; a pair without one is skipped."""
    answers: dict[str, Choice] = {}
    for row in rows:
        if row.get("person") in CHOICES and isinstance(row.get("key"), str):
            answers[row["key"]] = row["person"]
    if not answers.keys() & {pair_key(pair) for pair in pairs}:
        raise AttachError(
            "none of these labels is about these pairs: give the check, rows, --pairs and --seed that made the page"
        )

    def ask(pair: ScoredPair, number: int, count: int) -> Choice:
        return answers.get(pair_key(pair), "skip")

    return ask
