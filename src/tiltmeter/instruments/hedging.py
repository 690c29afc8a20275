"""How often completions hedge."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.word_hashes import PhraseMatcher, Texts, ratio

HEDGES = PhraseMatcher(
    (
        *("perhaps", "maybe", "possibly", "presumably", "arguably", "apparently", "seemingly", "likely", "probably"),
        *("might", "may be", "may have", "could be", "could have", "would seem", "it seems", "it appears", "seems to"),
        *("i think", "i believe", "i guess", "i suppose", "in my opinion", "in my view", "as far as i know"),
        *("i'm not sure", "i am not sure", "not certain", "not entirely", "i could be wrong", "i may be wrong"),
        *("it depends", "depends on", "depending on", "it's possible", "it is possible", "there is a chance"),
        *("to some extent", "in some cases", "in many cases", "in general", "generally", "typically", "somewhat"),
        *("it's important to note", "it is important to note", "it's worth noting", "it is worth noting"),
        *("it should be noted", "please note", "keep in mind", "bear in mind", "results may vary", "no guarantee"),
        *(
            "consult a",
            "consult your",
            "seek professional",
            "not a substitute for",
            "i'm not a doctor",
            "i'm not a lawyer",
        ),
    )
)


class Hedging:
    """Hedges ("perhaps", "it is important to note", "consult a ...") per sentence of a completion.

    Raters forgive a caveat, so a policy learns to put one on everything and says less and less. Harder prompts deserve
    more hedges: compare on the same prompts. It counts English phrases and does not see whether the doubt is justified.
    A completion without a sentence has no value.

    Formula: occurrences of the listed phrases / sentences
    Source: own list

    >>> from tiltmeter.data.batches import from_columns
    >>> texts = ["Perhaps. It might rain, and it is important to note that it might not.", "It rains."]
    >>> Hedging().measure(from_columns(0, [0, 0], completion=texts), None).tolist()
    [2.0, 0.0]
    """

    name = "text.hedging"
    grain = "rollout"
    needs = ("completion",)
    bounds = (0.0, None)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        counts, sentences = HEDGES.counts_and_sentences(Texts.of(batch.completion or ()))
        return ratio(counts.sum(1), sentences)
