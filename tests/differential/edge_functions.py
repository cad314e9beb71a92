"""Functions that have derivatives, of one number and of two, for tests at the edges of a dtype.

Those of a row of numbers (norms, softmax, scans) get one of two. Neighbour: `test_edge_gradients.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in (
        "abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor "
        "frac i0 lgamma log log10 log1p log2 logit nan_to_num neg rad2deg reciprocal relu round rsqrt sgn sigmoid sign "
        "sin sinc sinh sqrt square tan tanh trunc"
    ).split()},
    **{name: getattr(torch.special, name) for name in "entr erfcx expit i1 ndtr ndtri".split()},
    **{name: getattr(F, name) for name in (
        "celu elu gelu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu softplus "
        "softshrink softsign tanhshrink"
    ).split()},
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"), "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "low threshold": lambda x: F.threshold(x, -1.0, 0.0), "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp_min(0.5), "clamp_max": lambda x: x.clamp_max(0.5),
    "logit of eps": lambda x: torch.logit(x, 1e-3),
    "narrow hardtanh": lambda x: F.hardtanh(x, -2.0, 0.5), "steep softplus": lambda x: F.softplus(x, 2.0, 3.0),
    "falling leaky_relu": lambda x: F.leaky_relu(x, -0.5), "flat celu": lambda x: F.celu(x, 0.3),
    "steep elu": lambda x: F.elu(x, 2.0), "rrelu": lambda x: F.rrelu(x, 0.25, 0.25),
    "trigamma": lambda x: torch.polygamma(1, x), "polygamma": lambda x: torch.polygamma(2, x),
    "mvlgamma": lambda x: torch.mvlgamma(x + 5, 2), "float_power": lambda x: torch.float_power(x, 3),
    **{f"x ** {n}": lambda x, n=n: x**n for n in (-2, -1, 0, 0.5, 1, 2, 2.5, 3)},
    **{f"{n} ** x": lambda x, n=n: torch.pow(n, x) for n in (-2, 0, 0.5, 2)}, "x ** x": lambda x: x**x,
    "1 / x": lambda x: 1 / x, "fmod 0.5": lambda x: torch.fmod(x, 0.5), "% 0.5": lambda x: torch.remainder(x, 0.5),
    "xlogy of 2": lambda x: torch.xlogy(x, 2.0), "log y": lambda x: torch.xlogy(2.0, x),
    "log_softmax": lambda x: F.log_softmax(x[:, None], 1)[:, 0],
    "softmax": lambda x: torch.softmax(torch.stack([x, -x]), 0)[0],
    "glu": lambda x: F.glu(torch.stack([x, x]), 0)[0], "renorm": lambda x: torch.renorm(x[:, None], 2, 0, 1.0)[:, 0],
    "normalize": lambda x: F.normalize(torch.stack([x, x * 0.5]), dim=0)[0],
}  # fmt: skip
#: Those that eager has no kernel of for half types, and what rounds once by decision.
WIDE_ONLY = frozenset(("i1", "i1e", "ndtri", "erfcx", "logit of eps"))


def _of_two(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: function(torch.stack([x, y]))


def _distance(order: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, y: torch.cdist(x[:, None, None], y[:, None, None], p=order)[:, 0, 0]


def _loss(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    loss = getattr(F, name)
    return lambda x, y: loss(x, y, reduction="none")


BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: getattr(torch, name) for name in (
        "add atan2 copysign div float_power fmax fmin fmod hypot ldexp logaddexp logaddexp2 maximum minimum mul pow "
        "remainder sub xlogy"
    ).split()},
    **{name: _loss(name) for name in (
        "binary_cross_entropy_with_logits hinge_embedding_loss huber_loss kl_div l1_loss mse_loss poisson_nll_loss "
        "smooth_l1_loss"
    ).split()},
    "xlog1py": torch.special.xlog1py, "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "far lerp": lambda x, y: torch.lerp(x, y, 0.7), "lerp by y": lambda x, y: torch.lerp(x, y, y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "truncated div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "clamp": lambda x, y: torch.clamp(x, y, y + 1), "clamp between": lambda x, y: torch.clamp(y, x, y + 1),
    "where": lambda x, y: torch.where(x > y, x, y), "masked_fill": lambda x, y: x.masked_fill(x > y, 0.0),
    "relu times": lambda x, y: F.relu(x) * y, "gate": _of_two(lambda t: F.glu(t, 0)[0]),
    "kl_div of logs": lambda x, y: F.kl_div(x, y, reduction="none", log_target=True),
    "poisson_nll_loss of rates": lambda x, y: F.poisson_nll_loss(x, y, log_input=False, full=True, reduction="none"),
    "margin_ranking_loss": lambda x, y: F.margin_ranking_loss(x, y, torch.ones_like(x), reduction="none"),
    "wide huber_loss": lambda x, y: F.huber_loss(x, y, reduction="none", delta=2.0),
    "sharp smooth_l1_loss": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.0),
    "cross_entropy": lambda x, y: F.cross_entropy(
        torch.stack([x, y], 1), torch.zeros(len(x), dtype=torch.int64), reduction="none"
    ),
    "softmax": _of_two(lambda t: torch.softmax(t, 0)[0]), "log_softmax": _of_two(lambda t: F.log_softmax(t, 0)[0]),
    "logsumexp": _of_two(lambda t: torch.logsumexp(t, 0)), "logcumsumexp": _of_two(lambda t: t.logcumsumexp(0)[1]),
    **{f"norm of order {p}": _of_two(lambda t, p=p: torch.linalg.vector_norm(t, p, 0))
       for p in (0, 0.5, 1, 2, 3, math.inf, -math.inf)},
    **{name: _of_two(lambda t, name=name: getattr(t, name)(0))
       for name in "prod var std amax amin nansum nanmean".split()},
    **{name: _of_two(lambda t, name=name: getattr(t, name)(0)[0]) for name in "max median nanmedian".split()},
    **{name: _of_two(lambda t, name=name: getattr(t, name)(0)[1]) for name in "cumprod cumsum".split()},
    **{name: _of_two(lambda t, name=name: getattr(t, name)(0)[0][1]) for name in "cummax cummin sort".split()},
    "diff": _of_two(lambda t: t.diff(dim=0)[0]), "trapezoid": _of_two(lambda t: torch.trapezoid(t, dim=0)),
    "quantile": _of_two(lambda t: torch.quantile(t, 0.3, 0)),
    "rms_norm": lambda x, y: F.rms_norm(torch.stack([x, y], 1), (2,))[:, 0],
    "cosine_similarity": lambda x, y: F.cosine_similarity(torch.stack([x, y]), torch.stack([y, x]), 0),
    "pairwise_distance": lambda x, y: F.pairwise_distance(x[:, None], y[:, None]),
    **{f"cdist of order {p}": _distance(p) for p in (0.5, 1.0, 1.5, 2.0, 2.7, 3.0, math.inf)},
    "abs of complex": lambda x, y: torch.complex(x, y).abs(),
}  # fmt: skip
