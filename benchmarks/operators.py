"""Single operators compiled, against eager: which are slower, `python -m benchmarks.operators [name …] [--all]`.

Each is compiled by itself at a size that models use and called in turn with eager, on one thread; so many times as
fast as eager is the ratio of the least seconds of processor time that a call took. Forward is timed without gradients,
"+ gradient" is forward and backward. Those below `--least` are listed, and make the status 1; `--dynamic` compiles for
symbolic sizes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import stator

Make = Callable[[], tuple[Any, ...]]
#: Name → (what is compiled, its operands).
CASES: dict[str, tuple[Callable[..., Any], Make]] = {}
ROWS, IMAGE, VOLUME = (512, 768), (8, 32, 56, 56), (2, 8, 16, 32, 32)
#: Seconds that are timed at once, at least: clocks of processor time may step by a few microseconds.
TICK = 1e-3


def add(make: Make, **cases: Callable[..., Any]) -> None:
    for name, function in cases.items():
        CASES[name] = (function, make)


def rows() -> tuple[Tensor]:
    return (torch.randn(*ROWS, requires_grad=True),)


def two() -> tuple[Tensor, Tensor]:
    return torch.randn(*ROWS, requires_grad=True), torch.randn(*ROWS, requires_grad=True)


def image() -> tuple[Tensor]:
    return (torch.randn(*IMAGE, requires_grad=True),)


def last_image() -> tuple[Tensor]:
    return (torch.randn(*IMAGE).contiguous(memory_format=torch.channels_last).requires_grad_(),)


def volume() -> tuple[Tensor]:
    return (torch.randn(*VOLUME, requires_grad=True),)


def sequence() -> tuple[Tensor]:
    return (torch.randn(8, 64, 512, requires_grad=True),)


def positions(high: int, *size: int) -> Tensor:
    return torch.randint(0, high, size)


add(
    rows,
    **{
        name: getattr(F, name)
        for name in (
            "relu",
            "gelu",
            "silu",
            "elu",
            "selu",
            "celu",
            "leaky_relu",
            "softplus",
            "mish",
            "hardswish",
            "hardtanh",
            "hardsigmoid",
            "logsigmoid",
            "tanhshrink",
            "softsign",
            "relu6",
            "hardshrink",
            "softshrink",
        )
    },
)
add(
    rows,
    **{
        name: getattr(torch, name)
        for name in (
            "exp",
            "exp2",
            "log1p",
            "sqrt",
            "rsqrt",
            "sigmoid",
            "tanh",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "sinh",
            "cosh",
            "erf",
            "erfc",
            "erfinv",
            "abs",
            "sign",
            "round",
            "square",
            "reciprocal",
            "isnan",
            "lgamma",
            "digamma",
            "expm1",
            "atan",
            "asinh",
            "trunc",
            "frac",
            "logit",
            "sinc",
            "nan_to_num",
        )
    },
)
add(lambda: (torch.rand(*ROWS).add_(0.01).requires_grad_(),), log=torch.log, log2=torch.log2, log10=torch.log10)
add(
    two,
    **{
        name: getattr(torch, name)
        for name in (
            "add",
            "mul",
            "div",
            "maximum",
            "pow",
            "atan2",
            "hypot",
            "fmod",
            "remainder",
            "logaddexp",
            "copysign",
            "eq",
            "lt",
            "xlogy",
            "ldexp",
            "dist",
        )
    },
)
add(
    two,
    lerp=lambda x, y: torch.lerp(x, y, 0.3),
    addcmul=lambda x, y: torch.addcmul(x, x, y, value=0.5),
    where=lambda x, y: torch.where(x > y, x, y),
    cosine=F.cosine_similarity,
    mse=F.mse_loss,
    l1=F.l1_loss,
    huber=F.huber_loss,
    bce_logits=lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    kl_div=lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
    cat=lambda x, y: torch.cat([x, y], 1),
    stack=lambda x, y: torch.stack([x, y]),
    outer_sum=lambda x, y: x[:, :, None] + y[:, None, :16],
    mm=lambda x, y: x @ y.t(),
    glu=lambda x, y: F.glu(x) + F.glu(y),
    add_t=lambda x, y: x.t() + y.t().contiguous(),
)
add(
    rows,
    softmax=lambda x: x.softmax(-1),
    softmax_0=lambda x: x.softmax(0),
    log_softmax=lambda x: x.log_softmax(-1),
    sum=lambda x: x.sum(),
    sum_0=lambda x: x.sum(0),
    sum_1=lambda x: x.sum(1),
    mean=lambda x: x.mean(-1),
    var=lambda x: x.var(-1),
    std_0=lambda x: x.std(0),
    amax=lambda x: x.amax(-1),
    max_0=lambda x: x.max(0).values,
    argmax=lambda x: x.argmax(-1),
    argmin_0=lambda x: x.argmin(0),
    norm=lambda x: x.norm(dim=-1),
    logsumexp=lambda x: x.logsumexp(-1),
    prod=lambda x: x.prod(-1),
    cumsum=lambda x: x.cumsum(-1),
    cumsum_0=lambda x: x.cumsum(0),
    cumprod=lambda x: x.cumprod(-1),
    cummax=lambda x: x.cummax(-1).values,
    logcumsumexp=lambda x: x.logcumsumexp(-1),
    sort=lambda x: x.sort(-1).values,
    topk=lambda x: x.topk(16, -1).values,
    median=lambda x: x.median(-1).values,
    normalize=F.normalize,
    any=lambda x: (x > 3).any(-1),
    count=lambda x: (x > 0).sum(-1),
    layer_norm=lambda x: F.layer_norm(x, (768,)),
    rms_norm=lambda x: F.rms_norm(x, (768,)),
    aminmax=lambda x: torch.aminmax(x, dim=-1),
    transpose=lambda x: x.t().contiguous(),
    flip=lambda x: x.flip(-1),
    flip_0=lambda x: x.flip(0),
    roll=lambda x: x.roll(5, -1),
    tril=torch.tril,
    pad=lambda x: F.pad(x, (3, 5)),
    repeat=lambda x: x.repeat(2, 2),
    interleave=lambda x: x.repeat_interleave(3, 1),
    chunk=lambda x: torch.cat(x.chunk(3, 1)[::-1], 1),
    half=lambda x: x[:, ::2] * 2,
    bfloat16=lambda x: x.bfloat16(),
    clamp=lambda x: x.clamp(-1, 1),
    dropout=lambda x: F.dropout(x, 0.1),
    masked_fill=lambda x: x.masked_fill(x > 1, 0.0),
    unfold=lambda x: x.unfold(1, 8, 4) * 2,
    diagonal=lambda x: x[:, :512].diagonal() * 2,
    one_hot=lambda x: F.one_hot(x.argmax(-1), 768),
    histc=lambda x: torch.bucketize(x, torch.linspace(-3, 3, 64)),
    gather=lambda x: x.gather(1, x.argsort(1)),
    swapped=lambda x: x.view(512, 12, 64).transpose(0, 1).contiguous(),
)
add(
    image,
    conv=lambda x: F.conv2d(x, torch.ones(16, 32, 3, 3), padding=1),
    max_pool=lambda x: F.max_pool2d(x, 2),
    max_pool_3=lambda x: F.max_pool2d(x, 3, 2, 1),
    avg_pool=lambda x: F.avg_pool2d(x, 2),
    avg_pool_3=lambda x: F.avg_pool2d(x, 3, 2, 1),
    adaptive=lambda x: F.adaptive_avg_pool2d(x, 7),
    global_pool=lambda x: x.mean((2, 3)),
    adaptive_max=lambda x: F.adaptive_max_pool2d(x, 7),
    bilinear=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    nearest=lambda x: F.interpolate(x, scale_factor=2),
    bilinear_down=lambda x: F.interpolate(x, size=(31, 31), mode="bilinear"),
    bicubic=lambda x: F.interpolate(x, size=(64, 64), mode="bicubic"),
    reflect=lambda x: F.pad(x, (3, 3, 3, 3), "reflect"),
    replicate=lambda x: F.pad(x, (3, 3, 3, 3), "replicate"),
    circular=lambda x: F.pad(x, (3, 3, 3, 3), "circular"),
    pixel_shuffle=lambda x: F.pixel_shuffle(x, 2),
    pixel_unshuffle=lambda x: F.pixel_unshuffle(x, 2),
    batch_norm=lambda x: F.batch_norm(x, None, None, training=True),
    group_norm=lambda x: F.group_norm(x, 8),
    instance_norm=F.instance_norm,
    local_response=lambda x: F.local_response_norm(x, 5),
    channels_last=lambda x: x.contiguous(memory_format=torch.channels_last),
    channel_shuffle=lambda x: F.channel_shuffle(x, 4),
    windows=lambda x: x.view(8, 32, 7, 8, 7, 8).permute(0, 2, 4, 3, 5, 1).contiguous(),
    unfold_image=lambda x: F.unfold(x, 3, padding=1),
    grid_sample=lambda x: F.grid_sample(
        x, F.affine_grid(torch.eye(2, 3).expand(8, 2, 3), [8, 32, 56, 56], align_corners=False), align_corners=False
    ),
    prelu=lambda x: F.prelu(x, torch.full((32,), 0.2)),
    channel_softmax=lambda x: x.softmax(1),
    image_norm=lambda x: x / x.norm(dim=1, keepdim=True),
)
add(
    last_image,
    max_pool_last=lambda x: F.max_pool2d(x, 2),
    avg_pool_last=lambda x: F.avg_pool2d(x, 3, 2, 1),
    batch_norm_last=lambda x: F.batch_norm(x, None, None, training=True),
    bilinear_last=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    group_norm_last=lambda x: F.group_norm(x, 8),
    relu_last=F.relu,
    nearest_last=lambda x: F.interpolate(x, scale_factor=2),
    global_pool_last=lambda x: x.mean((2, 3)),
    contiguous_last=lambda x: x.contiguous(),
)
add(
    volume,
    max_pool3d=lambda x: F.max_pool3d(x, 2),
    avg_pool3d=lambda x: F.avg_pool3d(x, 2),
    trilinear=lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"),
    batch_norm3d=lambda x: F.batch_norm(x, None, None, training=True),
)
add(
    sequence,
    max_pool1d=lambda x: F.max_pool1d(x, 2),
    avg_pool1d=lambda x: F.avg_pool1d(x, 3, 1, 1),
    linear=lambda x: F.interpolate(x, scale_factor=2, mode="linear"),
    diff=lambda x: x.diff(dim=-1),
    attention=lambda x: F.scaled_dot_product_attention(x, x, x),
    rfft=lambda x: torch.fft.rfft(x).abs(),
    einsum=lambda x: torch.einsum("bct,bdt->bcd", x, x),
    mask=lambda x: x.masked_fill(torch.ones(64, 512, dtype=torch.bool).triu(1), -1e9),
)
add(
    lambda: (positions(1000, 64, 32), torch.randn(1000, 256, requires_grad=True)),
    embedding=F.embedding,
    index_select=lambda i, w: w.index_select(0, i[0]),
    index=lambda i, w: w[i],
    embedding_bag=F.embedding_bag,
)
add(
    lambda: (positions(512, 4096), torch.randn(4096, 64, requires_grad=True)),
    scatter_add=lambda i, x: torch.zeros(512, 64).scatter_add(0, i[:, None].expand(-1, 64), x),
    index_add=lambda i, x: torch.zeros(512, 64).index_add(0, i, x),
    index_put=lambda i, x: torch.zeros(512, 64).index_put((i,), x, accumulate=True),
    scatter_mean=lambda i, x: torch.zeros(512, 64).scatter_reduce(
        0, i[:, None].expand(-1, 64), x, "mean", include_self=False
    ),
    scatter_amax=lambda i, x: torch.zeros(512, 64).scatter_reduce(0, i[:, None].expand(-1, 64), x, "amax"),
)
add(
    lambda: (torch.randn(512, 1000, requires_grad=True), positions(1000, 512)),
    cross_entropy=F.cross_entropy,
    smoothed=lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
    nll=lambda x, y: F.nll_loss(x, y),
)
add(
    lambda: (torch.randn(128, 64, requires_grad=True), torch.randn(96, 64, requires_grad=True)),
    cdist=torch.cdist,
    cdist_1=lambda x, y: torch.cdist(x, y, p=1.0),
    pdist=lambda x, y: F.pdist(x) + y.sum(),
    bilinear_form=lambda x, y: torch.einsum("id,jd->ij", x, y),
)
add(
    lambda: (positions(100, *ROWS), positions(100, *ROWS) + 1),
    int_add=lambda x, y: x + y,
    int_div=lambda x, y: x // y,
    int_mod=lambda x, y: x % y,
    bits=lambda x, y: (x & y) | (x ^ 7),
    int_sum=lambda x, y: x.sum(-1) + y.amax(-1),
    to_float=lambda x, y: x.float() / y,
)
add(
    lambda: (torch.randn(*ROWS).bfloat16().requires_grad_(), torch.randn(*ROWS).bfloat16().requires_grad_()),
    bf16_add=lambda x, y: x + y,
    bf16_gelu=lambda x, y: F.gelu(x) * y,
    bf16_softmax=lambda x, y: x.softmax(-1) + y,
    bf16_norm=lambda x, y: F.layer_norm(x, (768,)) + y,
    bf16_sum=lambda x, y: x.sum(-1) + y.mean(-1),
)


def least(calls: Sequence[Callable[[], Any]], seconds: float) -> list[float]:
    """The least seconds of processor time of a call of each, called in turn, so often that the clock can tell."""
    begin = time.perf_counter()
    for call in calls:
        call()
    times = math.ceil(TICK / (time.perf_counter() - begin))
    found = [math.inf] * len(calls)
    end = time.perf_counter() + seconds
    turns = 0
    while turns < 5 or time.perf_counter() < end:
        for i, call in enumerate(calls):
            begin = time.process_time()
            for _ in range(times):
                call()
            found[i] = min(found[i], (time.process_time() - begin) / times)
        turns += 1
    return found


def with_gradient(function: Callable[..., Any], operands: tuple[Any, ...]) -> Callable[[], Any] | None:
    """A call of forward and backward; None where there are no gradients."""
    given = [t for t in operands if t.requires_grad]
    out = function(*operands)
    if not isinstance(out, Tensor) or not out.requires_grad:
        return None
    cotangent = torch.randn_like(out)

    def call() -> Any:
        return torch.autograd.grad(function(*operands), given, cotangent, allow_unused=True)

    return call


def measure(name: str, seconds: float, dynamic: bool) -> list[tuple[str, float, float]]:
    """(what, seconds of eager, seconds compiled) of an operator, and with its gradient."""
    function, make = CASES[name]
    torch.manual_seed(0)
    operands = make()
    compiled = stator.compile(function, dynamic=dynamic or None)
    found = []
    with torch.no_grad():
        compiled(*operands)
        eager, ours = least([lambda: function(*operands), lambda: compiled(*operands)], seconds)
    found.append((name, eager, ours))
    one, other = with_gradient(function, operands), with_gradient(compiled, operands)
    if one is not None and other is not None:
        other()
        eager, ours = least([one, other], seconds)
        found.append((f"{name} + gradient", eager, ours))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="which operators (all)")
    parser.add_argument("--seconds", type=float, default=0.3, help="how long calls are timed")
    parser.add_argument("--least", type=float, default=0.95, help="what counts as no slower than eager")
    parser.add_argument("--all", action="store_true", help="list the others too")
    parser.add_argument("--dynamic", action="store_true", help="compile for symbolic sizes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'operator':28}{'eager µs':>12}{'stator µs':>12}{'times eager':>14}")
    slow = 0
    for name in given.names or CASES:
        for what, eager, ours in measure(name, given.seconds, given.dynamic):
            slow += eager / ours < given.least
            if given.all or eager / ours < given.least:
                print(f"{what:28}{eager * 1e6:12.0f}{ours * 1e6:12.0f}{eager / ours:14.2f}", flush=True)
    return int(slow > 0)


if __name__ == "__main__":
    raise SystemExit(main())
