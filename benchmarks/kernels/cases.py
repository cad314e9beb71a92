"""What `python -m benchmarks.kernels` runs: patterns of real programs, each as a function of tensors, at any size.

A pattern is given how many elements its main operand is to have, about. Those with `grad` are run forward and backward;
`moved` patterns do so little beside reading inputs and writing results that memory bounds them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

#: Elements of the main operand → its rows and columns, and what they are as images.
ROWS = {
    16: (2, 8), 1000: (16, 64), 100_000: (128, 768), 1_000_000: (512, 2048), 10_000_000: (2560, 4096),
    1_005: (15, 67), 99_949: (127, 787), 1_004_257: (509, 1973), 33_554_432: (8192, 4096),
    134_217_728: (32_768, 4096),
}  # fmt: skip
IMAGES = {
    16: (1, 1, 4, 4), 1000: (1, 4, 16, 16), 100_000: (2, 16, 56, 56), 1_000_000: (4, 32, 88, 88),
    10_000_000: (8, 64, 140, 140), 1_005: (1, 4, 15, 17), 99_949: (2, 16, 55, 57), 1_004_257: (4, 32, 87, 91),
    33_554_432: (32, 64, 128, 128), 134_217_728: (128, 64, 128, 128),
}  # fmt: skip
#: The sizes of the table, and odd ones: no length of a row is a multiple of a vector, nor one of rows of threads.
SIZES = (16, 1000, 100_000, 1_000_000, 10_000_000)
ODD_SIZES = (1_005, 99_949, 1_004_257)
#: What no cache of a GPU holds: 64 MiB in bfloat16.
LARGE = 33_554_432
GROUPS = {1: 1, 4: 2, 16: 4, 32: 8, 64: 16}

Inputs = Callable[[int], tuple[Any, ...]]


class Pattern(NamedTuple):
    """A function, its inputs at a size, whether gradients are computed too, and whether memory bounds it."""

    run: Callable[..., Any]
    inputs: Inputs
    grad: bool = False
    moved: bool = False


def rows(*shapes: str) -> Inputs:
    """Random tensors: `xy` is rows and columns, `y` a row, `x` a column, `1y` and `x1` with dims of size 1."""

    def make(size: int) -> tuple[Tensor, ...]:
        x, y = ROWS[size]
        lengths = {"x": x, "y": y, "1": 1}
        return tuple([torch.randn([lengths[letter] for letter in shape]) for shape in shapes])

    return make


def positive(size: int) -> tuple[Tensor, ...]:
    return (torch.rand(ROWS[size]) * 5 + 0.1,)


def images(*channels: str) -> Inputs:
    """A random image, and a vector of one element for each channel for every `c`."""

    def make(size: int) -> tuple[Tensor, ...]:
        shape = IMAGES[size]
        return (torch.randn(shape), *[torch.randn(shape[1]) for _ in channels])

    return make


def labelled(size: int) -> tuple[Tensor, ...]:
    x, y = ROWS[size]
    return torch.randn(x, y), torch.randint(y, (x,))


def looked_up(size: int) -> tuple[Tensor, ...]:
    x, y = ROWS[size]
    return torch.randint(1000, (x,)), torch.randn(1000, y)


def chosen(size: int) -> tuple[Tensor, ...]:
    x, y = ROWS[size]
    return torch.randn(x, y), torch.randint(y, (x, y))


def flagged(size: int) -> tuple[Tensor, ...]:
    (x,) = rows("xy")(size)
    return x, torch.rand(x.shape) < 0.3


def heads(size: int) -> tuple[Tensor, ...]:
    """Queries of some heads, [heads, length, width], and the angles of their places."""
    x, y = ROWS[size]
    width = min(y, 64)
    return torch.randn(y // width, x, width), torch.randn(x, width), torch.randn(x, width)


def scores(size: int) -> tuple[Tensor, ...]:
    """Scores of attention, [heads, length, length], and which of them count."""
    x, y = ROWS[size]
    length = 2 ** int(math.log2(max(x * y, 4) / 4) / 2)
    return torch.randn(4, length, length), torch.ones(length, length, dtype=torch.bool).tril()


def optimiser(size: int) -> tuple[Tensor, ...]:
    """A parameter, its gradient, and the two moments."""
    (p,) = rows("xy")(size)
    return p, torch.randn_like(p), torch.randn_like(p), torch.rand_like(p)


def halves(size: int) -> tuple[Tensor, ...]:
    return tuple([t.bfloat16() for t in rows("xy", "y")(size)])


def bytes_(size: int) -> tuple[Tensor, ...]:
    x, y = ROWS[size]
    return torch.randint(-128, 128, (x, y), dtype=torch.int8), torch.rand(x, 1)


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], w, b)


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, GROUPS[x.shape[1]], w, b)


def batch_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, None, None, w, b, training=True))


def frozen_norm(x: Tensor, mean: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.relu(F.batch_norm(x, mean, mean.square() + 1, w, b))


def rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def masked_scores(x: Tensor, mask: Tensor) -> Tensor:
    return (x * 0.125).masked_fill(~mask, -math.inf).softmax(-1)


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def residual(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = x + F.dropout(y, 0.1)
    return total, layer_norm(total, w, b)


def adam(p: Tensor, grad: Tensor, mean: Tensor, square: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = mean * 0.9 + grad * 0.1
    square = square * 0.999 + grad * grad * 0.001
    return p - 1e-3 * (mean / (1 - 0.9**10)) / ((square / (1 - 0.999**10)).sqrt() + 1e-8), mean, square


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return (x / scale).round().clamp(-128, 127).to(torch.int8), scale


PATTERNS: dict[str, Pattern] = {
    "layer_norm": Pattern(layer_norm, rows("xy", "y", "y")),
    "layer_norm, gradients": Pattern(layer_norm, rows("xy", "y", "y"), grad=True),
    "rms_norm": Pattern(rms_norm, rows("xy", "y")),
    "rms_norm, gradients": Pattern(rms_norm, rows("xy", "y"), grad=True),
    "group_norm": Pattern(group_norm, images("c", "c")),
    "group_norm, gradients": Pattern(group_norm, images("c", "c"), grad=True),
    "batch_norm+relu": Pattern(batch_norm, images("c", "c")),
    "batch_norm+relu, gradients": Pattern(batch_norm, images("c", "c"), grad=True),
    "batch_norm+relu, frozen": Pattern(frozen_norm, images("c", "c", "c"), moved=True),
    "softmax": Pattern(lambda x: x.softmax(-1), rows("xy")),
    "softmax, gradients": Pattern(lambda x: x.softmax(-1), rows("xy"), grad=True),
    "softmax of columns": Pattern(lambda x: x.softmax(0), rows("xy")),
    "cross_entropy": Pattern(F.cross_entropy, labelled),
    "cross_entropy, gradients": Pattern(F.cross_entropy, labelled, grad=True),
    "gelu": Pattern(F.gelu, rows("xy")),
    "bias+gelu tanh, gradients": Pattern(lambda x, b: F.gelu(x + b, approximate="tanh"), rows("xy", "y"), grad=True),
    "silu": Pattern(F.silu, rows("xy")),
    "swiglu": Pattern(swiglu, rows("xy", "xy")),
    "swiglu, gradients": Pattern(swiglu, rows("xy", "xy"), grad=True),
    "rope": Pattern(rope, heads),
    "masked scores": Pattern(masked_scores, scores),
    "masked scores, gradients": Pattern(masked_scores, scores, grad=True),
    "embedding": Pattern(F.embedding, looked_up, moved=True),
    "embedding, gradients": Pattern(F.embedding, looked_up, grad=True),
    "dropout+residual+norm": Pattern(residual, rows("xy", "xy", "y", "y")),
    "Adam": Pattern(adam, optimiser, moved=True),
    "add": Pattern(torch.add, rows("xy", "xy"), moved=True),
    "sum of all": Pattern(torch.sum, rows("xy"), moved=True),
    "sum of rows": Pattern(lambda x: x.sum(-1), rows("xy"), moved=True),
    "sum of columns": Pattern(lambda x: x.sum(0), rows("xy"), moved=True),
    "mean of images": Pattern(lambda x: x.mean((2, 3)), images(), moved=True),
    "var of rows": Pattern(lambda x: x.var(-1), rows("xy")),
    "max of rows": Pattern(lambda x: x.max(-1), rows("xy"), moved=True),
    "argmax of columns": Pattern(lambda x: x.argmax(0), rows("xy")),
    "transpose": Pattern(lambda x: x.t().contiguous(), rows("xy")),
    "add of a transpose": Pattern(lambda x, y: x + y.reshape(x.shape[1], x.shape[0]).t(), rows("xy", "xy")),
    "channels last": Pattern(lambda x: x.permute(0, 2, 3, 1).contiguous(), images()),
    "concatenate": Pattern(lambda x, y: torch.cat([x, F.relu(y)], -1), rows("xy", "xy"), moved=True),
    "cumsum of rows": Pattern(lambda x: x.cumsum(-1), rows("xy")),
    "cumsum of columns": Pattern(lambda x: x.cumsum(0), rows("xy")),
    "resize": Pattern(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), images()),
    "average pool": Pattern(lambda x: F.avg_pool2d(x, 3, 1, 1), images()),
    "max pool, gradients": Pattern(lambda x: F.max_pool2d(x, 2), images(), grad=True),
    "adaptive pool, gradients": Pattern(lambda x: F.adaptive_avg_pool2d(x, 3), images(), grad=True),
    "circular pad": Pattern(lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"), images()),
    "where": Pattern(lambda x, m: torch.where(m, x * 2, 0.0), flagged, moved=True),
    "gather": Pattern(lambda x, i: x.gather(-1, i), chosen),
    "scatter_add": Pattern(lambda x, i: torch.zeros_like(x).scatter_add(-1, i, x), chosen),
    "bfloat16 bias+gelu": Pattern(lambda x, b: F.gelu(x + b), halves),
    "bfloat16 softmax": Pattern(lambda x, b: (x + b).softmax(-1), halves),
    "to bfloat16": Pattern(lambda x: x.bfloat16(), rows("xy"), moved=True),
    "int8 to float": Pattern(lambda x, s: x.float() * s, bytes_, moved=True),
    "float to int8": Pattern(quantise, rows("xy")),
    "lgamma": Pattern(torch.lgamma, positive),
    "erfinv": Pattern(lambda x: torch.erfinv(torch.tanh(x)), rows("xy")),
}
