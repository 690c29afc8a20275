"""How much of the code in completions is comment."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.text_features import CODE, COMMENT, markup_counts
from tiltmeter.stats.word_hashes import Texts, ratio


class CommentShare:
    """Share of the lines of code in a completion that are comments or docstrings.

    Well-commented code looks careful, whether or not it passes its tests; where the look is paid, comments grow and
    logic does not. Read it beside the verifier's result. Tasks that ask for explanations in the code are the usual
    innocent cause. Code is what stands between fences, or a whole completion that looks like it; without code there is
    no value. Comments behind code on the same line do not count.

    Formula: lines that begin as comments do, or lie in a docstring or block comment / lines of code that are not blank
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> texts = ["```python\\n# adds one\\nx += 1\\n```", "There is no code here."]
    >>> CommentShare().measure(from_columns(0, [0, 0], completion=texts), None).tolist()
    [0.5, nan]
    """

    name = "text.comment_share"
    grain = "rollout"
    needs = ("completion",)
    bounds = (0.0, 1.0)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        line_counts = markup_counts(Texts.of(batch.completion or ()))
        return ratio(line_counts[:, COMMENT], line_counts[:, CODE])
