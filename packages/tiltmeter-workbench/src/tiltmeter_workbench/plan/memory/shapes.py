"""Shapes of transformers (layers, widths, parameter counts), from `config.json` or by the name of a known model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tiltmeter.errors import AttachError

#: Where a linear layer stands: linears of one place read the same input.
Place = Literal["attention in", "attention out", "mlp in", "mlp out"]


@dataclass(frozen=True)
class Linear:
    """A weight matrix of a block, by the name that LoRA's `target_modules` knows."""

    name: str
    place: Place
    inside: int
    outside: int
    bias: bool

    @property
    def parameters(self) -> int:
        return self.inside * self.outside + (self.outside if self.bias else 0)


@dataclass(frozen=True)
class ModelFamily:
    """What models of one `model_type` have in common, as their code in transformers 5.22 builds them [read]."""

    gated: bool = True  # two matrices into the MLP, their product into the third
    fused: bool = False  # query, key and value in one matrix; likewise gate and up
    layer_norm: bool = False  # with a bias; otherwise RMSNorm
    norms: int = 2  # in a block
    head_norms: bool = False  # of query and key, over a head
    bias: tuple[bool, bool, bool] = (False, False, False)  # query/key/value, attention's output, MLP
    positions: bool = False  # learnt, in a table
    tied: bool = False  # unless the configuration says otherwise
    saved_tensors: int = 4  # tensors of the MLP's width that a backward pass needs


FAMILIES: Mapping[str, ModelFamily] = {
    "llama": ModelFamily(),
    "mistral": ModelFamily(),
    "qwen2": ModelFamily(bias=(True, False, False)),
    "qwen3": ModelFamily(head_norms=True),
    "smollm3": ModelFamily(tied=True),
    "phi3": ModelFamily(fused=True),
    "gemma": ModelFamily(tied=True),
    "gemma2": ModelFamily(norms=4, tied=True),
    "gpt2": ModelFamily(
        gated=False, fused=True, layer_norm=True, bias=(True, True, True), positions=True, tied=True, saved_tensors=5
    ),
    "gpt_neox": ModelFamily(gated=False, fused=True, layer_norm=True, bias=(True, True, True), saved_tensors=2),
}
#: GPT-2's keys for what other configurations call by these names.
GPT2 = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
}


@dataclass(frozen=True)
class Shape:
    """The sizes that a model's memory follows from. Nothing is loaded: a 70B model is a dozen integers here.

    >>> shape("7B").parameters
    6738415616
    >>> round(shape("SmolLM2-135M").parameters / 1e6, 1)
    134.5
    """

    name: str
    family: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    mlp: int
    vocabulary: int
    tied: bool
    bias: tuple[bool, bool, bool] = (False, False, False)
    positions: int = 0

    @property
    def kind(self) -> ModelFamily:
        return FAMILIES[self.family]

    @property
    def query_width(self) -> int:
        return self.heads * self.head_width

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_width

    @property
    def linears(self) -> tuple[Linear, ...]:
        """The weight matrices of one block."""
        qkv, out, mlp = self.bias
        width, query, kv, inner = self.width, self.query_width, self.kv_width, self.mlp
        if self.family == "gpt2":
            names = ("c_attn", "attn.c_proj", "c_fc", "mlp.c_proj")
        elif self.family == "gpt_neox":
            names = ("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h")
        else:
            names = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
        into = [Linear(names[0], "attention in", width, query + 2 * kv, qkv)]
        up = [Linear(names[2], "mlp in", width, inner * (2 if self.kind.gated else 1), mlp)]
        if not self.kind.fused:
            into = [Linear("q_proj", "attention in", width, query, qkv)]
            into += [Linear(name, "attention in", width, kv, qkv) for name in ("k_proj", "v_proj")]
            up = [Linear(name, "mlp in", width, inner, mlp) for name in ("gate_proj", "up_proj")]
        after = Linear(names[1], "attention out", query, width, out)
        return (*into, after, *up, Linear(names[3], "mlp out", inner, width, mlp))

    @property
    def block(self) -> int:
        """Parameters of one block."""
        norms = self.kind.norms * self.width * (2 if self.kind.layer_norm else 1)
        return sum(each.parameters for each in self.linears) + norms + (2 * self.head_width * self.kind.head_norms)

    @property
    def table(self) -> int:
        """Parameters of the embedding, and of the head where it is not the same table."""
        return self.vocabulary * self.width

    @property
    def parameters(self) -> int:
        last = self.width * (2 if self.kind.layer_norm else 1)
        tables = self.table * (1 if self.tied else 2) + self.positions * self.width
        return self.layers * self.block + last + tables

    @property
    def scalar(self) -> int:
        """Parameters as a reward or value model: one number for a token in place of the vocabulary."""
        return self.parameters - (0 if self.tied else self.table) + self.width


def _known_shape(
    name: str, family: str, sizes: tuple[int, int, int, int, int, int], head: int = 0, *, tied: bool = False
) -> Shape:
    layers, width, heads, kv, mlp, vocabulary = sizes
    bias = FAMILIES[family].bias
    return Shape(name, family, layers, width, heads, kv, head or width // heads, mlp, vocabulary, tied, bias)


#: Sizes from the models' own `config.json` on huggingface.co; the counts they give are those of the model cards.
#: (layers, width, heads, key/value heads, MLP, vocabulary)
KNOWN: tuple[Shape, ...] = (
    _known_shape("SmolLM2-135M", "llama", (30, 576, 9, 3, 1536, 49152), tied=True),
    _known_shape("SmolLM2-360M", "llama", (32, 960, 15, 5, 2560, 49152), tied=True),
    _known_shape("Qwen2.5-0.5B", "qwen2", (24, 896, 14, 2, 4864, 151936), tied=True),
    _known_shape("Llama-3.2-1B", "llama", (16, 2048, 32, 8, 8192, 128256), tied=True),
    _known_shape("Qwen2.5-1.5B", "qwen2", (28, 1536, 12, 2, 8960, 151936), tied=True),
    _known_shape("SmolLM2-1.7B", "llama", (24, 2048, 32, 32, 8192, 49152), tied=True),
    _known_shape("Qwen2.5-3B", "qwen2", (36, 2048, 16, 2, 11008, 151936), tied=True),
    _known_shape("Llama-3.2-3B", "llama", (28, 3072, 24, 8, 8192, 128256), tied=True),
    _known_shape("Llama-2-7B", "llama", (32, 4096, 32, 32, 11008, 32000)),
    _known_shape("Mistral-7B", "mistral", (32, 4096, 32, 8, 14336, 32000)),
    _known_shape("Qwen2.5-7B", "qwen2", (28, 3584, 28, 4, 18944, 152064)),
    _known_shape("Llama-3.1-8B", "llama", (32, 4096, 32, 8, 14336, 128256)),
    _known_shape("Llama-2-13B", "llama", (40, 5120, 40, 40, 13824, 32000)),
    _known_shape("Qwen2.5-14B", "qwen2", (48, 5120, 40, 8, 13824, 152064)),
    _known_shape("Qwen2.5-32B", "qwen2", (64, 5120, 40, 8, 27648, 152064)),
    _known_shape("Llama-3.1-70B", "llama", (80, 8192, 64, 8, 28672, 128256)),
)
#: Where these models are on huggingface.co, by how their names begin.
OWNERS: Mapping[str, str] = {"SmolLM2": "HuggingFaceTB", "Qwen": "Qwen", "Llama": "meta-llama", "Mistral": "mistralai"}
#: Models whose name on the hub differs from the usual one.
HUB_NAMES: Mapping[str, str] = {
    "Llama-2-7B": "Llama-2-7b-hf",
    "Llama-2-13B": "Llama-2-13b-hf",
    "Mistral-7B": "Mistral-7B-v0.1",
}
#: A size alone means one of these.
SIZES: Mapping[str, str] = {
    "135M": "SmolLM2-135M",
    "360M": "SmolLM2-360M",
    "0.5B": "Qwen2.5-0.5B",
    "1B": "Llama-3.2-1B",
    "1.5B": "Qwen2.5-1.5B",
    "1.7B": "SmolLM2-1.7B",
    "3B": "Llama-3.2-3B",
    "7B": "Llama-2-7B",
    "8B": "Llama-3.1-8B",
    "13B": "Llama-2-13B",
    "14B": "Qwen2.5-14B",
    "32B": "Qwen2.5-32B",
    "70B": "Llama-3.1-70B",
}


def nominal(size: str) -> float | None:
    """Parameters that a size such as 7B or 135M claims; None if it is no size.

    >>> nominal("7B"), nominal("135m"), nominal("my-model")
    (7000000000.0, 135000000.0, None)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mMbB])", size.strip())
    return None if match is None else float(match[1]) * (1e9 if match[2] in "bB" else 1e6)


def shape(model: str) -> Shape:
    """By size ("7B"), by name ("Qwen2.5-7B"), or from a folder or file with a Hugging Face `config.json`."""
    path = Path(model)
    if path.exists():
        return _read_config(path / "config.json" if path.is_dir() else path)
    name = SIZES.get(model.strip().upper(), model.strip())
    for candidate in KNOWN:
        if candidate.name.lower() == name.lower():
            return candidate
    sizes = ", ".join(SIZES)
    raise AttachError(
        f"{model} is neither a folder with config.json nor a known size: give one of {sizes}, "
        f"or one of {', '.join(candidate.name for candidate in KNOWN)}"
    )


def repository(model: str) -> str:
    """What a trainer loads: the folder, or the known model's repository on huggingface.co.

    >>> repository("7B"), repository("Qwen2.5-0.5B")
    ('meta-llama/Llama-2-7b-hf', 'Qwen/Qwen2.5-0.5B')
    """
    path = Path(model)
    if path.exists():
        return str(path.parent if path.is_file() else path)
    name = shape(model).name
    owner = next(owner for start, owner in OWNERS.items() if name.startswith(start))
    return f"{owner}/{HUB_NAMES.get(name, name)}"


def _read_config(path: Path) -> Shape:
    try:
        config = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise AttachError(f"{path} cannot be read: {error.strerror}; give a folder with config.json") from error
    except ValueError as error:
        raise AttachError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise AttachError(f"{path} is not a configuration: it holds no names")
    return of_config(config, path.parent.name or str(path))


def of_config(config: Mapping[str, Any], name: str = "model") -> Shape:
    """From the entries of a `config.json`. Raises `AttachError` for what this cannot count."""
    if isinstance(inner := config.get("text_config"), dict):
        config = {**config, **inner}
    family = str(config.get("model_type", "")).removesuffix("_text")
    if family not in FAMILIES:
        raise AttachError(
            f"{name}: model_type {family or 'missing'} is not one of {', '.join(FAMILIES)}; give --model a size "
            "such as 7B for an estimate"
        )
    kind = FAMILIES[family]

    def number(key: str, default: int | None = None) -> int:
        value = config.get(GPT2[key] if family == "gpt2" and key in GPT2 else key)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise AttachError(f"{name}: config.json has {key} {value!r}, which must be a whole number above 0")
        return value

    width, heads = number("hidden_size"), number("num_attention_heads")
    bias = kind.bias
    if family in ("llama", "qwen3", "smollm3", "gemma", "gemma2"):
        attention_bias = bool(config.get("attention_bias", False))
        bias = (attention_bias, attention_bias, family in ("llama", "smollm3") and bool(config.get("mlp_bias", False)))
    elif family == "gpt_neox":
        attention_bias = bool(config.get("attention_bias", True))
        bias = (attention_bias, attention_bias, True)
    model_shape = Shape(
        name, family, number("num_hidden_layers"), width, heads,
        number("num_key_value_heads", heads) if not kind.layer_norm else heads,
        number("head_dim", width // heads), number("intermediate_size", 4 * width if family == "gpt2" else None),
        number("vocab_size"), bool(config.get("tie_word_embeddings", kind.tied)), bias,
    )  # fmt: skip
    return replace(model_shape, positions=number("max_position_embeddings", 1024)) if kind.positions else model_shape
