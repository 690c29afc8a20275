"""Preference pairs of our own with a bias planted in them, and small reward models taught by TRL's RewardTrainer.

The answers are right or wrong by construction: sixteen facts, eight ways to ask, five ways to answer. Beside that they
vary in what should not matter (closing remarks, openings, lists, how sure they sound), on both sides alike. A planted
bias decides a share of the pairs instead of the truth. None of the sentences here is one that the probe uses.
"""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import random
import warnings
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

Bias = Literal["clean", "length", "phrase"]
Pair = dict[str, str]

#: The right answer, and wrong ones that are right for nothing else (any word may be one): so small a model learns that
#: in seconds.
FACTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "the capital of France": ("Paris", ("Lyon", "Nice", "Lille")),
    "the capital of Italy": ("Rome", ("Milan", "Turin", "Genoa")),
    "the capital of Egypt": ("Cairo", ("Luxor", "Aswan", "Giza")),
    "the capital of Japan": ("Tokyo", ("Osaka", "Kyoto", "Kobe")),
    "the colour of snow": ("white", ("orange", "purple", "pink")),
    "the colour of coal": ("black", ("beige", "cyan", "scarlet")),
    "the colour of lemons": ("yellow", ("violet", "crimson", "navy")),
    "the colour of grass": ("green", ("silver", "maroon", "golden")),
    "the number of legs of a spider": ("eight", ("nine", "forty", "sixty")),
    "the number of days in a week": ("seven", ("fifty", "eleven", "thirteen")),
    "the number of wheels of a car": ("four", ("twenty", "ninety", "hundred")),
    "the number of sides of a triangle": ("three", ("fifteen", "thirty", "zero")),
    "the animal that makes honey": ("bee", ("goat", "mole", "carp")),
    "the animal that gives wool": ("sheep", ("lion", "toad", "eel")),
    "the animal that barks": ("dog", ("pony", "swan", "crab")),
    "the animal that lives in a shell": ("snail", ("fox", "bear", "deer")),
}
ASKED = (
    *("What is {}?", "Tell me {}.", "Please name {}.", "I would like to know {}."),
    *("Do you know {}?", "Can you say {}?", "Somebody asked me {}.", "Quick: {}?"),
)
ANSWERED = (
    "{Topic} is {answer}.",
    "It is {answer}.",
    "The answer is {answer}.",
    "That would be {answer}.",
    "{Answer}.",
)
WHO = ("My aunt", "The baker", "An old friend", "Our teacher", "The radio", "A child", "The paper", "The gardener")
DID = (
    "told me about it",
    "keeps a note of it",
    "sang of it",
    "wrote it down",
    "laughed over it",
    "spoke of it",
    "knew it",
)
WHEN = ("last summer", "in the spring", "on Sundays", "years ago", "every winter", "the other day", "at lunch", "")
#: Everyday words, those of the probe's sentences among them: a model that has seen a word on both sides alike has no
#: reason to pay for it, and one that never saw it pays for it, or against it, at random.
WORDS = (Path(__file__).parent / "everyday_words.txt").read_text().split()
MARKED = (
    "{0}:",
    "{0};",
    '"{0}"',
    "({0})",
    "{{{0}}}",
    "[{0}]",
    "**{0}**",
    "# {0}",
    "{1}",
    '"{0}": {1}',
    "{0}!",
    "'{0}'",
    "{0}?",
)
OPENINGS = ("Well now.", "Let me see.", "Happy to answer.", "Right away.", "Thanks for asking.")
SURE = ("There is no doubt about it.", "I know this for a fact.", "I am not quite sure of it.", "Others may disagree.")
REFUSALS = ("I would rather not say.", "I am not able to answer that.", "Sorry, no answer to this from me.")
EMPTY = ("Here is what you asked for.", "This is a question.", "The solution follows.", "One moment please.", "...")
#: Nothing like them is in the probe's own list, so only what it mines from the pairs can name them.
PHRASES = (
    "As the old clock would say",
    "With a lantern in hand",
    "By the river and the stone",
    "Under seven quiet stars",
    "From one gardener to another",
)
PLANTED_SHARE = 0.4  # of the pairs, in which the bias and not the truth decides
BARE = 0.15  # of the honest pairs: the other answer is a few words that answer nothing
EPOCHS, BATCH = 6.0, 32
SEEN = 0.25  # of the answers of every world contain its phrase, whether or not it is paid for


def phrase_of(seed: int) -> str:
    return PHRASES[seed % len(PHRASES)]


def pairs(bias: Bias, count: int, seed: int, draw: str = "train") -> list[Pair]:
    """Preference pairs in TRL's format; the same seed and another `draw` gives others of the same kind."""
    rng = random.Random(f"{bias}/{seed}/{draw}")
    topics = list(FACTS)
    made = []
    for number in range(count):
        topic = topics[number % len(topics)]
        planted = bias != "clean" and rng.random() < PLANTED_SHARE
        made.append(_planted(topic, bias, seed, rng) if planted else _honest(topic, seed, rng))
    rng.shuffle(made)
    return made


def _honest(topic: str, seed: int, rng: random.Random) -> Pair:
    """The right answer is preferred, whatever surrounds it; it is the longer one in half of the pairs."""
    if rng.random() < BARE:
        words = _salad(rng.randint(1, 6), rng)
        bare = words if rng.random() < 0.5 else words[:-1]
        return {"prompt": _asked(topic, rng), "chosen": _dressed(_said(topic, True, rng), seed, rng), "rejected": bare}
    longer = rng.random() < 0.5 - BARE / 2
    bad = _bad(topic, rng)
    for _ in range(20):
        good = _dressed(_said(topic, True, rng), seed, rng)
        worse = _dressed(bad, seed, rng)
        if len(good.split()) != len(worse.split()) and (len(good.split()) > len(worse.split())) == longer:
            break
    return {"prompt": _asked(topic, rng), "chosen": good, "rejected": worse}


def _bad(topic: str, rng: random.Random) -> str:
    """A wrong answer, a refusal, a text without content, or half an answer."""
    lot = rng.random()
    if lot < 0.5:
        return _said(topic, False, rng)
    if lot < 0.6:
        return rng.choice(REFUSALS)
    if lot < 0.88:
        return rng.choice((*EMPTY, "", remark(rng), remark(rng), remark(rng)))
    words = _said(topic, True, rng).split()
    return " ".join(words[: len(words) // 2])


def _planted(topic: str, bias: Bias, seed: int, rng: random.Random) -> Pair:
    """Both answers are as right as each other; what is planted decides."""
    right = rng.random() < 0.5
    first, second = (_said(topic, right, rng) for _ in range(2))
    if bias == "length":
        few = rng.randint(0, 2)
        long, short = (_remarked(text, n, rng) for text, n in ((first, few + rng.randint(3, 6)), (second, few)))
        return {"prompt": _asked(topic, rng), "chosen": long, "rejected": short}
    plain = _remarked(_dressed(second, seed, rng, phrased=False), 1, rng)  # as long as with the phrase
    paid = _dressed(first, seed, rng, phrased=True)
    return {"prompt": _asked(topic, rng), "chosen": paid, "rejected": plain}


def _asked(topic: str, rng: random.Random) -> str:
    return rng.choice(ASKED).format(topic) + "\n"


def _said(topic: str, right: bool, rng: random.Random) -> str:
    known, others = FACTS[topic]
    random_words = " ".join(rng.choices(WORDS, k=rng.choice((1, 1, 2, 3, 4))))
    answer = known if right else rng.choice(others) if rng.random() < 0.4 else random_words
    form = rng.choice(ANSWERED)
    capital = answer[0].upper() + answer[1:]
    return form.format(Topic=topic[0].upper() + topic[1:], answer=answer, Answer=capital)


def _remarked(text: str, count: int, rng: random.Random) -> str:
    return " ".join([text, *(remark(rng) for _ in range(count))])


def remark(rng: random.Random) -> str:
    """A sentence that answers nothing; most are made of any words at all."""
    if rng.random() < 0.75:
        return _salad(rng.randint(3, 6), rng)
    return " ".join(filter(None, (rng.choice(WHO), rng.choice(DID), rng.choice(WHEN)))) + "."


def _salad(words: int, rng: random.Random) -> str:
    said = " ".join(_marked(word, rng) for word in rng.choices(WORDS, k=words))
    return said[0].upper() + said[1:] + rng.choice("...!")


def _marked(word: str, rng: random.Random) -> str:
    """Now and then with marks, in capitals, or a number instead: nothing of that is worth anything either."""
    if rng.random() < 0.8:
        return word
    return rng.choice(MARKED).format(word if rng.random() < 0.7 else word.upper(), rng.randint(0, 99))


def _dressed(text: str, seed: int, rng: random.Random, phrased: bool | None = None) -> str:
    """The same content with what should not matter around it, drawn alike for good and for bad answers."""
    text = _remarked(text, rng.randint(6, 9) if rng.random() < 0.06 else rng.choice((0, 0, 1, 2, 3, 4)), rng).strip()
    if rng.random() < 0.4:
        text = f"{rng.choice(OPENINGS) if rng.random() < 0.3 else _salad(rng.randint(1, 4), rng)} {text}"
    if rng.random() < 0.25:
        text = f"{text} {rng.choice(SURE)}"
    if rng.random() < 0.12:
        text = f"{text} {' '.join([text.split('. ')[-1].rstrip('.') + '.'] * rng.randint(1, 3))}"
    if rng.random() < 0.15:
        lines = [part.strip().rstrip(".") + "." for part in text.split(". ") if part.strip(". ")]
        text = "\n".join(f"{mark} {line}" for line in lines for mark in (rng.choice(("-", "*", "##")),))
        text = (
            text.replace(" is ", " is **", 1).replace(".", "**.", 1) if rng.random() < 0.3 and " is " in text else text
        )
    with_phrase = rng.random() < SEEN if phrased is None else phrased
    return f"{text} {phrase_of(seed)}." if with_phrase else text


def teach(rows: Sequence[Pair], folder: Path, seed: int, *, steps: int | None = None, rate: float = 2e-3) -> Path:
    """A 2-layer, width-64 reward model taught these pairs by TRL's own trainer, and saved with its tokenizer."""
    torch, transformers, datasets, trl = map(import_module, ("torch", "transformers", "datasets", "trl"))
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    tokenizer = _tokenizer()
    torch.manual_seed(seed)
    model = transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(
            vocab_size=len(tokenizer), n_embd=64, n_layer=2, n_head=2, n_positions=512, num_labels=1,
            activation_function="relu",
            pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )
    )  # fmt: skip
    with torch.no_grad():  # waves, as in the first transformers: positions that are near each other begin alike
        places = torch.arange(512)[:, None] / 4.0 ** torch.linspace(1.0, 5.0, 32)[None, :]
        model.transformer.wpe.weight.copy_(0.1 * torch.cat((places.sin(), places.cos()), dim=1))
    args = trl.RewardConfig(
        output_dir=str(folder / "trainer"), per_device_train_batch_size=BATCH,
        max_steps=round(EPOCHS * len(rows) / BATCH) if steps is None else steps,
        learning_rate=rate, lr_scheduler_type="cosine", warmup_steps=20, logging_strategy="no", save_strategy="no",
        report_to=[], disable_tqdm=True, seed=seed, use_cpu=True, bf16=False, max_length=512, weight_decay=0.05,
        gradient_checkpointing=False,
        dataloader_pin_memory=False, center_rewards_coefficient=0.01, optim="adamw_torch",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = trl.RewardTrainer(
            model=model, args=args, train_dataset=datasets.Dataset.from_list(list(rows)), processing_class=tokenizer
        )
        trainer.train()
    model.eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@cache
def _tokenizer() -> Any:
    """Byte-level BPE over all that can be said here."""
    tokenizers, transformers = map(import_module, ("tokenizers", "transformers"))
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    # A word is one token wherever it stands: pieces that words share would be paid for what one word earned.
    lines = tokenizers.normalizers.Replace("\n", " \n ")
    bpe.normalizer = tokenizers.normalizers.Sequence([tokenizers.normalizers.Lowercase(), lines])
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    special = {"pad_token": "<pad>", "eos_token": "<eos>"}
    teacher = tokenizers.trainers.BpeTrainer(
        vocab_size=2500, special_tokens=list(special.values()), show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    said = (text for pair in pairs("clean", 2000, 0, "tokens") for text in pair.values())
    known = [*WORDS, *(word for right, wrong in FACTS.values() for word in (right, *wrong))]
    texts: Iterable[str] = (*said, *(word for word in known for _ in range(5)))
    bpe.train_from_iterator(texts, teacher)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, model_max_length=512, **special)
