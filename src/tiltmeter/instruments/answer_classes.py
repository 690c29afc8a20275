"""How many different answers a prompt gets."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.answer_clusters import final_answer, word_classes
from tiltmeter.stats.hash_sampling import draw_rows, text_hashes
from tiltmeter.stats.word_hashes import Texts, Words


class AnswerClasses:
    """Number of different answers among up to 8 completions of a prompt (`count`), and the share of their pairs that
    differ (`differing_share`).

    One answer per prompt where there used to be four is the collapse that users notice; on questions with one right
    answer the same fall is mastery, so read it beside gold. Completions are compared by their marked final answer
    (\\boxed{}, "####", "answer is"), else by the words of their first 400 characters. A paraphrase without a common
    word counts as another answer, and two names in equal sentences as one. `count` grows with group size up to 8;
    `differing_share` hardly depends on it. A prompt with fewer than two completions has no value.

    Formula: count: classes c; differing_share: 1 - Σ_c n_c (n_c - 1) / (n (n - 1)), n_c completions in class c. One
    class: the same final answer, or 0.24 of their distinct words shared (0.5 in answers of up to four words)
    Source: own; the quantity is that of NoveltyBench, Zhang et al. 2025, arXiv 2504.05228

    >>> from tiltmeter.data.batches import from_columns
    >>> texts = ["Paris.", "paris", "It must be 3.\\n#### 3", "So the answer is 3.", "I say: the answer is 4."]
    >>> readings = AnswerClasses().measure(from_columns(0, [0, 0, 1, 1, 1], completion=texts), None)
    >>> readings["count"].tolist(), readings["differing_share"].round(2).tolist()
    ([1.0, 2.0], [0.0, 0.67])
    """

    name = "diversity.answer_classes"
    grain = "group"
    needs = ("completion",)
    bounds = (0.0, None)
    local = True
    first = 400  # characters
    most = 8  # completions of a prompt

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.completion is not None
        groups = len(batch.starts) - 1
        has_text = np.array([text is not None for text in batch.completion], bool)
        group = np.repeat(np.arange(groups), np.diff(batch.starts))[has_text]
        texts = [_text_to_compare(text, self.first) for text in batch.completion if text is not None]
        hashes = text_hashes([text.lower().encode("utf-8", "surrogatepass") for text in texts])
        rows = draw_rows(hashes, np.searchsorted(group, np.arange(groups + 1)), self.most)
        group = group[rows]
        words = Words.of(Texts.of([texts[row] for row in rows]))
        labels = word_classes(words.hashes, words.offsets, np.searchsorted(group, np.arange(groups + 1)))
        sizes = np.bincount(group * self.most + labels, minlength=groups * self.most).reshape(groups, self.most)
        n = sizes.sum(axis=1)
        equal = np.divide((sizes * (sizes - 1)).sum(axis=1), n * (n - 1), out=np.full(groups, np.nan), where=n > 1)
        return {"count": np.where(n > 1, (sizes > 0).sum(axis=1), np.nan), "differing_share": 1.0 - equal}


def _text_to_compare(text: str, first: int) -> str:
    answer = final_answer(text)
    if answer is None:
        return text[:first]
    return answer.encode("utf-8", "surrogatepass").hex()  # one word, whatever it is made of
