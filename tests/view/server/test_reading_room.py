"""A prompt's completions side by side: each token's number stands at its own letters, or it is said why it cannot."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltmeter
from tiltmeter.adapters.tokenizer_pieces import byte_alphabet, tokenizer_pieces
from tiltmeter.data.token_pieces import TokenMismatchError, TokenPieces, token_widths
from tiltmeter.data.turns import Turn
from tiltmeter.rundir.reading_room.pieces import read_pieces, write_pieces
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server.reading_room.members import NO_RANGES, members, tokens
from tiltmeter.view.server.rollout_index import RolloutIndex

WORDS = ["The", " sum", " of", " két", " 👨‍👩‍👧", "\n", " is", " 4", "."]
PIECES = TokenPieces([*(word.encode() for word in WORDS), b"\xe4\xb8", b"\xad", b"<end>"], [False] * 11 + [True])


def write_run(path: Path, **extra: Any) -> RolloutIndex:
    """Two groups of four completions, with every number that a token can have."""
    rng = np.random.default_rng(1)
    rows = [[0, 1, 2, 3, 6, 7, 8, 11], [0, 4, 5, 6, 7, 11], [0, 9, 10, 8, 11], [1, 2, 11]] * 2
    texts = [b"".join(PIECES.texts[token] for token in row[:-1]).decode() for row in rows]
    ragged = {
        name: [rng.normal(size=len(row)) for row in rows] for name in ("logprob", "ref_logprob", "engine_logprob")
    }
    right, tidy = rng.random(8), rng.random(8)
    columns = {
        "reward": right + 0.25 * tidy, "rewards": {"right": right, "tidy": tidy}, "advantage": rng.normal(size=8),
        "prompt": ["What is 2 + 2?"] * 8, "completion": texts, "tokens": rows, "length": [len(row) for row in rows],
        "entropy": [rng.random(len(row)) for row in rows], **ragged,
    }  # fmt: skip
    with tiltmeter.open_run(path, monitor=False, options=tiltmeter.Options(tokenizer=PIECES)) as run:
        run.observe(step=0, group=np.repeat([0, 1], 4), **{**columns, **extra})
    return RolloutIndex(RunReader(RunDirectory(path)))


def test_each_number_stands_at_the_letters_of_its_token(tmp_path: Path) -> None:
    index = write_run(tmp_path / "run")
    batch = index.run.read(index.run.files(0)[0])[0]
    assert batch.tokens is not None and batch.completion is not None and batch.logprob is not None
    assert batch.ref_logprob is not None
    group = members(index, "0-0-1")
    assert [scale.why for scale in group.scales] == [
        "",
        "",
        "",
        "",
        "",
        "step_reward is not stored: there is no process reward",
    ]
    by_row = {row.id: row for row in tokens(index, "0-0-1", "reference").rows}
    assert sorted(by_row) == [f"0-0-{row}" for row in range(4)]
    for row in range(4):
        found = by_row[f"0-0-{row}"]
        assert found.why == ""
        assert batch.completion[row] is not None
        units = str(batch.completion[row]).encode("utf-16-le")
        ends = np.cumsum([0, *found.widths])
        parts = [units[2 * a : 2 * b].decode("utf-16-le") for a, b in pairwise(ends)]
        assert "".join(parts) == batch.completion[row]
        wanted = [PIECES.texts[int(token)] for token in batch.tokens[row]]
        if row != 2:  # a character of two tokens is the first one's
            assert parts == ["" if piece == b"<end>" else piece.decode() for piece in wanted]
        else:
            assert parts == ["The", "中", "", ".", ""]
        stored = np.asarray(batch.logprob[row], float) - np.asarray(batch.ref_logprob[row], float)
        np.testing.assert_allclose([float(v) for v in found.values if v is not None], stored, rtol=1e-3)
    index.close()


def test_the_weights_of_components_follow_from_the_rewards_or_are_not_claimed(tmp_path: Path) -> None:
    index = write_run(tmp_path / "run")
    group = members(index, "0-0-5")
    assert {one.name: one.weight for one in group.weights} == {"right": 1.0, "tidy": 0.25}
    rewards = [member.reward for member in group.members]
    assert rewards == sorted(rewards, key=lambda reward: -(reward or 0.0))
    index.close()
    other = write_run(tmp_path / "other", reward=np.random.default_rng(5).random(8))
    group = members(other, "0-0-5")
    assert [one.weight for one in group.weights] == [None, None] and "not known" in group.weights_why
    other.close()


def test_a_text_that_is_not_its_tokens_is_not_coloured_and_it_is_said_where(tmp_path: Path) -> None:
    index = write_run(tmp_path / "run", completion=["The sum of two is 4."] * 8)
    rows = tokens(index, "0-0-0", "logprob").rows
    assert all(row.widths == [] and row.values == [] for row in rows)
    assert {row.why for row in rows if row.id == "0-0-0"} == {
        "token 4, “ két”, does not stand at character 11 of the text"
    }
    index.close()


def test_the_words_of_a_turn_are_coloured_where_its_tokens_say_them_and_else_it_is_said(tmp_path: Path) -> None:
    """A row's tokens are the whole conversation; each turn says which of them are its own."""
    rows = [
        [0, 1, 11, 7, 8, 6, 7, 11],
        [0, 1, 11, 7, 8, 6, 7, 11],
        [0, 1, 2, 3, 6, 7, 11, 8],
        [1, 2, 11, 7, 8, 6, 7, 8],
    ] * 2
    numbers = [np.arange(8.0) / 10 - 1 for _ in rows]
    first = Turn("assistant", "The sum", tokens=(0, 3))
    answer = Turn("tool", " 4.")
    talks = [
        [first, answer, Turn("assistant", " is 4", tokens=(5, 8))],
        [Turn("assistant", "The sum"), answer, Turn("assistant", " is 4", tokens=(5, 800))],  # no range, a wrong one
        [Turn("assistant", "sum", tokens=(0, 7)), answer, Turn("assistant", "The product", tokens=(0, 7))],
        [Turn("assistant", " 4", tokens=(3, 8)), answer],  # stands there twice
    ] * 2
    index = write_run(
        tmp_path / "run", tokens=rows, turns=talks, completion=None,
        **dict.fromkeys(("logprob", "ref_logprob", "engine_logprob", "entropy"), numbers),
    )  # fmt: skip
    assert all(not scale.why for scale in members(index, "0-0-0").scales if scale.name == "logprob")
    by_id = {row.id: row for row in tokens(index, "0-0-0", "logprob").rows}
    whole = by_id["0-0-0"]
    assert whole.why == "" and [one.turn for one in whole.turns] == [0, 2] and whole.widths == []
    assert [(one.widths, one.values) for one in whole.turns] == [
        ([3, 4, 0], [-1.0, -0.9, -0.8]), ([3, 2, 0], [-0.5, -0.4, -0.3]),
    ]  # fmt: skip
    assert by_id["0-0-1"].turns == [] and by_id["0-0-1"].why == NO_RANGES
    (part,) = by_id["0-0-2"].turns
    assert part.widths == [0, 3, 0, 0, 0, 0, 0] and "turn 3: its words do not stand" in by_id["0-0-2"].why
    assert by_id["0-0-3"].turns == [] and "more than once" in by_id["0-0-3"].why
    advantage = {row.id: row for row in tokens(index, "0-0-0", "advantage").rows}["0-0-0"]
    assert [(one.turn, one.widths) for one in advantage.turns] == [(0, [7]), (2, [5])]


def test_a_run_without_the_tokenizer_says_what_would_add_it(tmp_path: Path) -> None:
    index = write_run(tmp_path / "run")
    (tmp_path / "run" / "pieces" / "0.parquet").unlink()
    group = members(index, "0-0-0")
    assert "tokenizer=" in group.scales[0].why and group.scales[4].why == ""
    assert all("tokenizer=" in row.why for row in tokens(index, "0-0-0", "entropy").rows)
    whole = tokens(index, "0-0-0", "advantage").rows
    assert all(len(row.widths) == 1 and row.why == "" for row in whole)
    index.close()


def test_scores_of_steps_lie_on_their_lines(tmp_path: Path) -> None:
    steps = [[0.9, 0.2], [0.8, 0.7]] * 4
    index = write_run(tmp_path / "run", completion=["First, add.\nThen stop."] * 8, step_reward=steps)
    rows = tokens(index, "0-0-0", "process").rows
    assert [row.widths for row in rows] == [[11, 11]] * 4
    index.close()


def test_pieces_are_stored_once_and_again_only_for_another_tokenizer(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    assert write_pieces(run, 0, PIECES)
    assert not write_pieces(run, 1, PIECES)
    other = PIECES._replace(texts=[b"x", *PIECES.texts[1:]])
    assert write_pieces(run, 2, other)
    assert [read_pieces(run, attempt).texts[0] for attempt in (0, 1, 2, 9)] == [b"The", b"The", b"x", b"x"]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="bytes"):
        write_pieces(run, 3, PIECES._replace(texts=[b"x" * 5000, *PIECES.texts[1:]]))


def test_tokenizers_of_hugging_face_are_read_as_the_bytes_that_they_decode_to() -> None:
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    corpus = ["The sum of két naïve 中文 👨‍👩‍👧 is 4.\n\n", "def f(x):\n\treturn x"] * 20
    level = tokenizers.Tokenizer(tokenizers.models.BPE())
    level.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    level.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<end>"], show_progress=False, initial_alphabet=list(byte_alphabet())
    )
    level.train_from_iterator(corpus, trainer)
    marks = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True))
    marks.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    marks.decoder = tokenizers.decoders.Metaspace()
    marks.train_from_iterator(corpus, tokenizers.trainers.BpeTrainer(special_tokens=["<end>"], show_progress=False))
    for core in (level, marks):
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>")
        pieces = tokenizer_pieces(tokenizer)
        for text in corpus[:2]:
            ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
            decoded = tokenizer.decode(ids, skip_special_tokens=True)
            assert sum(token_widths(decoded, ids, pieces)) == len(decoded.encode("utf-16-le")) // 2
            with pytest.raises(TokenMismatchError):
                token_widths(f"x{decoded}", ids, pieces)
