"""A model in a folder, full or a LoRA adapter, run with transformers on the GPU if there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.batches import replace_surrogates
from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.chat_model import ChatAnswer, Turns

BATCH = 16  # sequences that are generated or scored at once
LOGITS = 1 << 28  # numbers that scoring may hold at once: 1 GB
#: Switches off what a folder's generation_config.json may ask for: samples come from the model itself.
NEUTRAL_OPTIONS = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_new_tokens": None, "bad_words_ids": None,
             "suppress_tokens": None, "num_beams": 1}  # fmt: skip
GREEDY_OPTIONS = {
    "do_sample": False,
    "temperature": None,
    "top_k": None,
    "top_p": None,
    "min_p": None,
    "typical_p": None,
}

Floats = NDArray[np.float64]


class LocalModel:
    """A causal language model of a folder, loaded at the first question, from safetensors only.

    A prompt that is a plain text goes to a model with a chat template as one turn of a user, unless `plain`; to a model
    without one as it is. A folder with `adapter_config.json` is a LoRA adapter: its base is read from there, or is
    `base`. `model` and `tokenizer` may be given instead of being loaded, as by a trainer that has them.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        base: str | Path | None = None,
        plain: bool = False,
        batch: int = BATCH,
        model: Any = None,
        tokenizer: Any = None,
    ) -> None:
        self.folder, self.base, self.plain, self.batch = Path(folder), base, plain, batch
        self._passed_in = model, tokenizer
        if model is None and not (self.folder / "config.json").exists() and not self.is_adapter:
            raise AttachError(f"{folder} holds neither config.json nor adapter_config.json: it is no model's folder")

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def is_adapter(self) -> bool:
        return (self.folder / "adapter_config.json").exists()

    @cached_property
    def tokenizer(self) -> Any:
        if self._passed_in[1] is not None:
            return self._passed_in[1]
        from transformers import AutoTokenizer

        own = any((self.folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json"))
        source = self.folder if own else self._base
        language = AutoTokenizer.from_pretrained(str(source), local_files_only=True, trust_remote_code=False)
        if language.pad_token_id is None:
            language.pad_token = language.eos_token
        return language

    @property
    def _base(self) -> Path:
        if not self.is_adapter:
            return self.folder
        if self.base is not None:
            return Path(self.base)
        import json

        base = json.loads((self.folder / "adapter_config.json").read_text("utf-8")).get("base_model_name_or_path")
        if not base or not Path(base).is_dir():
            raise AttachError(f"{self.folder} is an adapter of {base!r}, which is not here: give the base's folder")
        return Path(base)

    @cached_property
    def model(self) -> Any:
        if self._passed_in[0] is not None:
            return self._passed_in[0]
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        options = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        model = AutoModelForCausalLM.from_pretrained(str(self._base), **options)
        if self.is_adapter:
            from peft import PeftModel

            if not (self.folder / "adapter_model.safetensors").exists():
                raise AttachError(f"{self.folder} holds no adapter_model.safetensors; other forms may run code")
            model = PeftModel.from_pretrained(model, str(self.folder)).merge_and_unload()
        return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()

    @property
    def chats(self) -> bool:
        """Whether plain prompts are put into a chat template."""
        return not self.plain and self.tokenizer.chat_template is not None

    def prompt_tokens(self, prompt: Turns) -> list[int]:
        """The tokens that stand before an answer; at least one, or the first token would have no probability."""
        if isinstance(prompt, str) and not self.chats:
            return self._encode(prompt)
        turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else [dict(turn) for turn in prompt]
        if self.tokenizer.chat_template is None:
            return self._encode("\n".join(turn["content"] for turn in turns))
        turns = [{**turn, "content": self._escape_control_tokens(turn["content"])} for turn in turns]
        encoding = self.tokenizer.apply_chat_template(
            turns, add_generation_prompt=True, tokenize=True, return_dict=True
        )
        return list(encoding["input_ids"])

    def _encode(self, text: str) -> list[int]:
        language = self.tokenizer
        first = language.bos_token_id if language.bos_token_id is not None else language.eos_token_id
        return list(language(replace_surrogates(text))["input_ids"]) or [first]

    def _escape_control_tokens(self, text: str) -> str:
        """A turn's text in which a control token's name is only a name: whoever wrote it cannot end the turn."""
        text = replace_surrogates(text)
        for name in self.tokenizer.all_special_tokens:
            text = text.replace(name, f"{name[0]} {name[1:]}")
        return text

    def answers(
        self,
        questions: Sequence[Turns],
        *,
        samples: int = 1,
        limit: int = 256,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> Iterator[tuple[int, list[ChatAnswer]]]:
        """As `ChatModel.answers`, in order. Sampled from the whole distribution: no top-k, no top-p."""
        import torch

        prompts = [self.prompt_tokens(one) for one in questions]
        each = max(1, self.batch // samples)
        language, model = self.tokenizer, self.model
        sampling_options = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
                  "typical_p": 1.0}  # fmt: skip
        devices = [model.device] if model.device.type == "cuda" else []
        for first in range(0, len(prompts), each):
            part = prompts[first : first + each]
            repeated = [prompt for prompt in part for _ in range(samples)]
            ids, mask = _pad_rows(repeated, language.pad_token_id, left=True)
            # A trainer's random state and the mode of its model must be restored.
            with torch.random.fork_rng(devices), torch.no_grad(), _eval_mode(model):
                torch.manual_seed(int(np.random.SeedSequence([seed, first]).generate_state(1, np.uint64)[0] >> 1))
                output = model.generate(
                    ids.to(model.device),
                    attention_mask=mask.to(model.device),
                    max_new_tokens=limit,
                    pad_token_id=language.pad_token_id,
                    **NEUTRAL_OPTIONS,
                    **(sampling_options if temperature > 0.0 else GREEDY_OPTIONS),
                )
            rows = [self._answer(row, limit) for row in output[:, ids.shape[1] :].tolist()]
            for at in range(len(part)):
                yield first + at, rows[at * samples : (at + 1) * samples]

    def _answer(self, row: list[int], limit: int) -> ChatAnswer:
        ends = self.model.generation_config.eos_token_id
        end_tokens = {ends} if isinstance(ends, int) else set(ends or ())
        end_tokens.add(self.tokenizer.eos_token_id)
        stop = next((at for at, token in enumerate(row) if token in end_tokens), None)
        tokens = row[:limit] if stop is None else row[: stop + 1]  # with its end: stopping has a probability too
        text = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return ChatAnswer(text, tuple(tokens), stop is not None)

    def log_likelihoods(self, questions: Sequence[Turns], tokens: Sequence[Sequence[int]]) -> list[Floats]:
        """The log-probability, in nats at temperature 1, of each token of each answer after its prompt."""
        if len(questions) != len(tokens):
            raise ValueError(f"{len(questions)} questions and {len(tokens)} answers")
        prompts = [self.prompt_tokens(one) for one in questions]
        results: list[Floats] = []
        for part in self._parts([len(p) + len(t) for p, t in zip(prompts, tokens, strict=True)]):
            whole = [[*prompts[at], *tokens[at]] for at in part]
            logits, ids = self._logits(whole)
            for row, at in enumerate(part):
                begin, end = len(prompts[at]), len(whole[row])
                logprobs = logits[row, begin - 1 : end - 1].float().log_softmax(-1)
                token_logprobs = logprobs.gather(-1, ids[row, begin:end, None].to(logprobs.device))[:, 0]
                results.append(token_logprobs.double().cpu().numpy())
        return results

    def choices(self, questions: Sequence[Turns], texts: Sequence[str]) -> Iterator[tuple[int, Floats]]:
        """The number of a question with the log-probability, in nats, that its answer begins as each of the texts does.

        One look at each question. A text counts with a space before it as without.
        """
        first_tokens = self._first_tokens(texts)
        if not self.can_distinguish(texts):
            raise AttachError(f"{self.name} has no token of its own for each of {', '.join(texts)}: use another judge")
        prompts = [self.prompt_tokens(one) for one in questions]
        for part in self._parts([len(prompt) for prompt in prompts]):
            logits, _ = self._logits([prompts[at] for at in part])
            for row, at in enumerate(part):
                logprobs = logits[row, len(prompts[at]) - 1].double().log_softmax(-1)
                yield at, np.array([logprobs[sorted(ids)].logsumexp(0).item() for ids in first_tokens])

    def can_distinguish(self, texts: Sequence[str]) -> bool:
        """Whether the first token of each text is not that of another."""
        return all(self._first_tokens(texts))

    def _first_tokens(self, texts: Sequence[str]) -> list[set[int]]:
        """The tokens with which each text, and no other, begins."""
        language = self.tokenizer
        forms = [[language(form, add_special_tokens=False)["input_ids"][0] for form in (text, f" {text}")]
                 for text in texts]  # fmt: skip
        all_ = [token for tokens in forms for token in set(tokens)]
        return [{token for token in tokens if all_.count(token) == 1} for tokens in forms]

    def _parts(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Numbers in order, in groups whose logits fit into memory."""
        part: list[int] = []
        for at, length in enumerate(lengths):
            width = max(length, *(lengths[one] for one in part)) if part else length
            if part and (len(part) == self.batch or (len(part) + 1) * width * self.model.config.vocab_size > LOGITS):
                yield part
                part = []
            part.append(at)
        if part:
            yield part

    def _logits(self, rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
        import torch

        ids, mask = _pad_rows(rows, self.tokenizer.pad_token_id, left=False)
        model = self.model
        with torch.no_grad(), _eval_mode(model):
            return model(input_ids=ids.to(model.device), attention_mask=mask.to(model.device)).logits, ids


@contextmanager
def _eval_mode(model: Any) -> Iterator[None]:
    """Without dropout; a trainer finds its model as it left it."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _pad_rows(rows: Sequence[Sequence[int]], pad: int, *, left: bool) -> tuple[Any, Any]:
    import torch

    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.long)
    for at, row in enumerate(rows):
        place = slice(width - len(row), width) if left else slice(0, len(row))
        ids[at, place], mask[at, place] = torch.tensor(row, dtype=torch.long), 1
    return ids, mask
