"""Activation memory: the tensors that autograd saves in the forward pass for the backward pass, counted one by one.

For one token, in a block with RMSNorm and a gated MLP, with c bytes for a number that is computed with:

- each RMSNorm: its input in 32 bits (it squares and scales in 32 bits), the scaled input (for its weight's gradient),
  the root; its output, once, as the input of all linears that read it;
- attention: query and key after rotation (the rotation itself saves nothing of them), value, and the output, which is
  the last linear's input too. The fused kernels (flash, PyTorch's `sdpa`) add one 32-bit number per head; the eager one
  the probabilities, length x heads, in 32 bits and, if c is 2, once more in c, and keys and values repeated for each
  head;
- MLP: gate, activated gate, up, and their product, each as wide as the MLP.

A frozen weight (LoRA) needs none of its own input; an adapter needs its input, cast to 32 bits for itself if the model
is in 16, and its inner product. Under autocast every linear layer keeps a 16-bit copy of its own input, and the stream
between blocks stays in 32 bits.

The loss, with logits as a whole: log-probabilities in 32 bits are kept (4 bytes x vocabulary a token), and the backward
pass has two more such arrays at its start: 12 bytes x vocabulary, which for a small model is most of the memory. A head
that goes over the tokens in tiles (TRL 1.16, Liger) has none of the three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tiltmeter_workbench.plan.memory.shapes import Shape

Attention = Literal["flash", "sdpa", "eager"]
Head = Literal["whole", "tiled"]

ROOT = 12  # bytes a token and RMSNorm: mean square, its root, their product
LOSS_KEPT, LOSS_PEAK = 4, 12  # bytes a token and entry of the vocabulary
TILE = (4096, 32768)  # tokens and entries of the vocabulary that TRL 1.16's head takes at once [read]


@dataclass(frozen=True)
class Numbers:
    """Bytes of a number, by what it is for.

    >>> PRECISIONS["bf16"].weights, PRECISIONS["master"].state
    (2, 4)
    """

    weights: int
    compute: int
    gradients: int
    state: int  # each of Adam's two
    master: int = 0  # a second copy of what is trained, in 32 bits
    casts: int = 0  # a second copy of all matrices, made by autocast and kept from the forward to the backward pass


PRECISIONS: dict[str, Numbers] = {
    "fp32": Numbers(4, 4, 4, 4),
    "bf16": Numbers(2, 2, 2, 2),
    "mixed": Numbers(4, 2, 4, 4, casts=2),
    "master": Numbers(2, 2, 2, 4, master=4),
}


@dataclass(frozen=True)
class Adapters:
    """LoRA adapters: their rank, and the linear layers they are on (all of a block if none is named)."""

    rank: int
    targets: tuple[str, ...] = ()

    def on(self, name: str) -> bool:
        return not self.targets or name in self.targets

    def parameters(self, shape: Shape) -> int:
        """Of all blocks."""
        sides = (each.inside + each.outside for each in shape.linears if self.on(each.name))
        return shape.layers * self.rank * sum(sides)


@dataclass(frozen=True)
class ActivationBytes:
    """Activation bytes of one token, by where in the model they are stored."""

    block: float  # in each block, until its backward pass
    less: float  # of the first block, whose input needs no gradient if the embedding is frozen
    stream: float  # between blocks: all that checkpointing keeps of one
    last: float  # between the last block and the loss
    work: float  # inside a block during its backward pass, beyond what was kept
    loss_kept: float
    loss_peak: float


def activation_bytes(
    shape: Shape, precision: str, attention: Attention, length: int, head: Head, adapters: Adapters | None
) -> ActivationBytes:
    """Activation bytes that a training forward pass stores for one token of a sequence of this length."""
    numbers = PRECISIONS[precision]
    compute, width = numbers.compute, shape.width
    stream = 4 if numbers.casts else compute
    norms = 2 * _norm(shape, numbers, trained=adapters is None)
    # A 16-bit model's adapter saves its own cast copy of the product, so the product itself is not saved.
    product = adapters is None or (compute == 4 and _has_adapter(shape, adapters, "mlp out"))
    mlp = compute * shape.mlp * (shape.kind.saved_tensors - (0 if product else 1))
    if shape.kind.head_norms:
        norms += _norm(shape, numbers, trained=adapters is None, over=(shape.heads, shape.head_width))
        norms += _norm(shape, numbers, trained=adapters is None, over=(shape.kv_heads, shape.head_width))
    block = norms + _inputs(shape, numbers, adapters) + _attention(shape, compute, attention, length) + mlp
    if adapters is not None:
        block += _adapter_bytes(shape, numbers, adapters)
    last = _norm(shape, numbers, trained=adapters is None) + (compute * width if adapters is None else 0)
    loss_kept, loss_peak = float(LOSS_KEPT * shape.vocabulary), float(LOSS_PEAK * shape.vocabulary)
    if head == "tiled":
        # A copy of the last hidden state, and its gradient, which is summed in 32 bits.
        loss_kept, loss_peak = float(compute * width), float((compute + 4) * width)
    # The gradients of the product and of its two factors are there at once, the product itself no more if it was kept;
    # or the product's from the matrix and from its adapter, the latter in 32 bits and as cast. Beside them those of the
    # stream and of the branch.
    casting = adapters is not None and compute == 2 and _has_adapter(shape, adapters, "mlp out")
    copies = 2.0 * compute + 4 if casting else compute * (2.0 if product else 3.0)
    work = copies * shape.mlp + 2.0 * stream * width
    less = 0.0 if adapters is None else 4.0 * width + ROOT
    return ActivationBytes(block, less, stream * width, last, work, loss_kept, loss_peak)


def tile(shape: Shape, precision: str, tokens: int) -> float:
    """Bytes of logits that a tiled head has at once, however many tokens there are."""
    return float(PRECISIONS[precision].compute * min(tokens, TILE[0]) * min(shape.vocabulary, TILE[1]))


def _norm(shape: Shape, numbers: Numbers, *, trained: bool, over: tuple[int, int] | None = None) -> float:
    """A norm over the model's width, or over so many heads of a width."""
    count, width = over or (1, shape.width)
    stream = 4 if numbers.casts else numbers.compute
    if shape.kind.layer_norm:
        return stream * width + 8.0
    return count * (4.0 * width + ROOT + (stream * width if trained else 0))


def _has_adapter(shape: Shape, adapters: Adapters, place: str) -> bool:
    return any(each.place == place and adapters.on(each.name) for each in shape.linears)


def _inputs(shape: Shape, numbers: Numbers, adapters: Adapters | None) -> float:
    """Inputs of the linears behind a norm; the other linears' are counted where they come from."""
    total = 0.0
    for place in ("attention in", "mlp in"):
        readers = [each for each in shape.linears if each.place == place]
        if adapters is not None:
            # Cast for each adapter of a 16-bit model: counted there.
            total += (
                numbers.compute * shape.width if _has_adapter(shape, adapters, place) and numbers.compute == 4 else 0
            )
        else:
            total += numbers.compute * shape.width * (len(readers) if numbers.casts else 1)
    return total


def _adapter_bytes(shape: Shape, numbers: Numbers, adapters: Adapters) -> float:
    """Under autocast every adapter has a 16-bit copy of its input, else in a 16-bit model a 32-bit one."""
    copy, inner = (numbers.compute, numbers.compute) if numbers.casts else (4 if numbers.compute == 2 else 0, 4)
    adapted = (each for each in shape.linears if adapters.on(each.name))
    return float(sum(inner * adapters.rank + copy * each.inside for each in adapted))


def _attention(shape: Shape, compute: int, attention: Attention, length: int) -> float:
    if attention == "eager":
        twice = 4 + (compute if compute < 4 else 0)
        return 4.0 * compute * shape.query_width + twice * shape.heads * length
    return 2.0 * compute * (shape.query_width + shape.kv_width) + 4.0 * shape.heads
