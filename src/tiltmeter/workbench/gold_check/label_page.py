"""Pairs to label as one HTML file that needs no network and no server: it shows them, and saves what was chosen."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import html_json
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

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Which answer is better?</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src '{hash}'">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; color-scheme: light dark }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid; padding: .8rem; min-height: 3rem }}
main {{ display: grid; grid-template-columns: 1fr 1fr; gap: 1rem }}
</style></head><body>
<h1>Which answer is better?</h1>
<p><span id="count"></span>. Keys: a or b, t (as good as each other), s (skip), u (undo).</p>
<pre id="prompt"></pre>
<main><section><h2>A</h2><pre id="first"></pre></section><section><h2>B</h2><pre id="second"></pre></section></main>
<p><button value="a">A</button> <button value="b">B</button> <button value="t">tie</button>
<button value="s">skip</button> <button value="u">undo</button> <a id="save" download="labels.jsonl">Save</a></p>
<script type="application/json" id="pairs">{pairs}</script>
<script>{script}</script>
</body></html>
"""


def render_pairs(pairs: Sequence[ScoredPair]) -> str:
    """The page, which does not know what the check prefers."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    shown = [{"key": pair_key(one), "prompt": one.prompt, "first": one.first, "second": one.second} for one in pairs]
    return _PAGE.format(hash=f"sha256-{digest}", pairs=html_json(shown), script=_SCRIPT)


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
