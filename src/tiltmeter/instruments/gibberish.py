"""How much of a completion is no language at all."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.text_features import noise_counts
from tiltmeter.stats.word_hashes import Texts, ratio


class Gibberish:
    """Share of a completion's characters that are noise: "!!!!", "sdfghjk", control characters, endless words.

    Where the learning rate is too high or the KL penalty has let go, the policy can fall out of language within a few
    steps. Ordinary prose and code read close to 0; lists of hashes or base64 are the usual innocent cause. Fluent
    nonsense is not seen here. An empty completion has no value.

    Formula: noise / all characters; noise: runs of 4 or more equal ones (100 or more of spaces, digits, brackets and
    what lines are drawn with), words of 6 or more letters without a vowel or of more than 40 letters, control
    characters
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> texts = ["Yes!!!!!!!!", "Yes, it is 1000000.", ""]
    >>> Gibberish().measure(from_columns(0, [0, 0, 0], completion=texts), None).round(2).tolist()
    [0.73, 0.0, nan]
    """

    name = "text.gibberish"
    grain = "rollout"
    needs = ("completion",)
    bounds = (0.0, 1.0)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        bad, characters = noise_counts(Texts.of(batch.completion or ()))
        return ratio(bad, characters)
