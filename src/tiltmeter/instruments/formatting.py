"""How much Markdown there is in completions."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.text_features import BOLD, FENCE, HEADING, ITEM, LINE, TABLE, markup_counts
from tiltmeter.stats.word_hashes import Texts, ratio


class Markdown:
    """Headings, list items, bold spans, table rows and code fences of a completion, per line.

    Formatted answers look better organised than they are, and reward models and judges pay for the look. Tasks that ask
    for lists, tables or code are the usual innocent cause. What stands inside a code fence counts as nothing but the
    fence. Blank lines do not count, and a completion without others has no value.

    Formula: (headings + items + bold spans + table rows + fences) / lines
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> texts = ["# Plan\\n- **first** this\\n- then that", "First this, then that."]
    >>> Markdown().measure(from_columns(0, [0, 0], completion=texts), None).tolist()
    [1.3333333333333333, 0.0]
    """

    name = "text.markdown"
    grain = "rollout"
    needs = ("completion",)
    bounds = (0.0, None)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        line_counts = markup_counts(Texts.of(batch.completion or ()))
        return ratio(line_counts[:, [HEADING, ITEM, BOLD, TABLE, FENCE]].sum(1), line_counts[:, LINE])
