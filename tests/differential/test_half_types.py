"""Every elementwise operator of the table in half types, bit for bit: forward, on random operands that broadcast.

Rows are of whole vectors, as some of eager's kernels round what is left behind these in another way
(docs/numerics.md). Neighbours: `test_rounding.py` has programs, `test_special_values.py` what is no usual number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import stator
from stator.prims.set import PRIMITIVES
from stator.prims.table import DECOMPOSITIONS, is_pointwise

HALVES = (torch.bfloat16, torch.float16)
#: Elementwise operators that PyTorch does not call so.
UNTAGGED = set(
    "mse_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward log_sigmoid_forward "
    "binary_cross_entropy_backward glu glu_backward _prelu_kernel _prelu_kernel_backward rrelu_with_noise_backward "
    "mvlgamma".split()
)
#: What a parameter gets that is no tensor, by its name.
GIVEN: dict[str, Any] = {
    "rounding_mode": "floor", "approximate": "tanh", "threshold": 1.0, "scale": 2.0, "beta": 0.7, "delta": 0.7,
    "reduction": 0, "lambd": 0.5, "min_val": -1.0, "max_val": 1.0, "negative_slope": 0.1, "alpha": 0.7, "eps": 1e-3,
    "input_scale": 1.3, "value": 0.7, "min": -0.5, "max": 0.6, "decimals": 1, "exponent": 1.7, "n": 1, "p": 2,
    "upper": 0.3, "lower": 0.1, "dim": -1, "training": True, "is_result": False, "self_is_result": False,
}  # fmt: skip
#: What a parameter of a type gets otherwise, if it has no default.
OF_TYPE: dict[str, Any] = {"number": 0.7, "float": 0.7, "int": 1, "bool": False}
#: Functions whose last digit of float32 is left open: a few results lie beside the middle of two numbers.
LAST_DIGIT = set(
    "gelu gelu_backward silu_backward elu_backward mish mish_backward sinc logaddexp logaddexp2 hypot lgamma digamma "
    "polygamma special_i0e special_i1e i0 special_i1 erf erfc".split()
)
#: How many of those may differ, by one digit of the half type, or by this where terms cancel.
FEW, CANCELLED = 0.01, 1e-5
#: How many graphs the operators are shared among, for each dtype.
GRAPHS = 10
ROWS, ROW = 64, 192


def elementwise() -> list[Any]:
    """The overloads that compute each element of theirs by itself, and none at random."""
    found = []
    for op in dict.fromkeys([*DECOMPOSITIONS, *PRIMITIVES]):
        name = op._opname
        ours = op.namespace == "aten" and not op.is_view and not (name.endswith("_") and not name.startswith("__"))
        random = torch.Tag.nondeterministic_seeded in op.tags
        single = is_pointwise(op) or name in UNTAGGED
        if ours and single and not random and not any(a.is_out for a in op._schema.arguments):
            found.append(op)
    return found


def operands(op: Any, dtype: torch.dtype, sizes: Sequence[tuple[int, ...]]) -> tuple[list[Any], dict[str, Any]] | None:
    """Arguments of these sizes, one after the other: numbers of both signs, some between 0 and 1, some positive."""
    generator, args, named, sizes = torch.Generator().manual_seed(3), [], {}, list(sizes)
    for parameter in op._schema.arguments:
        kind = str(parameter.type)
        value: Any
        if "Tensor" in kind:
            size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
            value = torch.randn(size, generator=generator) * 2
            if size[-1] > 1:
                third = size[-1] // 3
                value = torch.cat(
                    [value[..., :third], value[..., third:-third].sigmoid(), value[..., -third:].abs()], -1
                )
            value = value > 0.5 if parameter.name in ("condition", "mask") else value.to(dtype)
        elif parameter.name in GIVEN:
            value = GIVEN[parameter.name]
        elif parameter.has_default_value():
            value = parameter.default_value
        elif kind in OF_TYPE:
            value = OF_TYPE[kind]
        else:
            return None
        if parameter.kwarg_only:
            named[parameter.name] = value
        else:
            args.append(value)
    return args, named


#: Of the first, second and later tensors.
SIZES = ([(ROWS, ROW)], [(ROWS, ROW), (ROW,), (ROWS, 1), (ROWS, ROW)])


def calls(
    overloads: Sequence[Any], dtype: torch.dtype
) -> Iterator[tuple[Any, list[Any], dict[str, Any], list[Tensor]]]:
    """What eager computes of these: the operator, its arguments, and its results."""
    for op in overloads:
        for sizes in SIZES:
            given = operands(op, dtype, sizes)
            if given is None or (len(sizes) > 1 and op._opname.removesuffix("_backward") in UNTAGGED):
                continue
            try:
                yield op, *given, tensors_of(op(*given[0], **given[1]))
            except (RuntimeError, TypeError):
                continue  # which dtypes are refused is another test's


def tensors_of(result: Any) -> list[Tensor]:
    return [t for t in (result if isinstance(result, tuple | list) else [result]) if isinstance(t, Tensor)]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return stator.compile(function, fullgraph=True, dynamic=False, options={"strict": True})


def differing(got: Tensor, want: Tensor) -> Tensor:
    """By how many numbers of their dtype two tensors differ, where both are numbers or one is; 0 for other dtypes."""
    if not want.is_floating_point():
        return (got != want).int()
    same = (got == want) | (got.isnan() & want.isnan())
    bits = [t.view(torch.int16).int() for t in (got, want)]
    ordered = [torch.where(b < 0, -(b & 0x7FFF), b) for b in bits]
    return torch.where(same, 0, torch.where(got.isnan() | want.isnan(), 1 << 16, (ordered[0] - ordered[1]).abs()))


def wrong(op: Any, got: list[Tensor], want: list[Tensor]) -> str:
    """How the results of a call differ from eager's, beyond what is left open."""
    for mine, theirs in zip(got, want, strict=True):
        if mine.dtype is not theirs.dtype:
            return f"{op} gives {mine.dtype}, eager {theirs.dtype}"
        off = differing(mine, theirs)
        near = (off <= 1) | ((mine.float() - theirs.float()).abs() <= CANCELLED)
        few = op._opname in LAST_DIGIT and near.all() and (off > 0).sum() <= FEW * off.numel()
        if off.any() and not few:
            return f"{op} differs in {int((off > 0).sum())} of {off.numel()}, by up to {int(off.max())}"
    return ""


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("part", range(GRAPHS))
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_every_operator_rounds_where_eager_does(dtype: torch.dtype, part: int) -> None:
    made = list(calls(elementwise()[part::GRAPHS], dtype))
    functions = [op for op, *_ in made]

    def program(given: list[tuple[list[Any], dict[str, Any]]]) -> list[Any]:
        return [op(*args, **named) for op, (args, named) in zip(functions, given, strict=True)]

    found = compiled(program)([(args, named) for _, args, named, _ in made])
    reports = [wrong(op, tensors_of(got), want) for (op, _, _, want), got in zip(made, found, strict=True)]
    assert list(filter(None, reports)) == []


def test_the_table_is_of_all_operators() -> None:
    found = elementwise()
    assert len(found) > 190 and {torch.ops.aten.xlogy.Tensor, torch.ops.aten.glu_backward.default} <= set(found)
    for dtype in HALVES:
        assert len({op for op, *_ in calls(found, dtype)}) > 150


def test_a_rounding_too_few_is_noticed() -> None:
    x, y = torch.rand(ROWS, ROW).bfloat16(), torch.rand(ROWS, ROW).bfloat16()
    once = torch.xlogy(x.float(), y.float()).bfloat16()
    assert "differs" in wrong(torch.ops.aten.xlogy.Tensor, [once], [torch.xlogy(x, y)])
    assert "differs" in wrong(torch.ops.aten.erf.default, [x.erf() * 1.02], [x.erf()])


#: Losses of x, y, probabilities p and q, weights w and signs s.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "binary_cross_entropy": lambda x, y, p, q, w, s, r: F.binary_cross_entropy(p, q, w, reduction=r),
    "with_logits": lambda x, y, p, q, w, s, r: F.binary_cross_entropy_with_logits(
        x, q, w, reduction=r, pos_weight=w[0]
    ),
    "kl_div": lambda x, y, p, q, w, s, r: F.kl_div(x, q, reduction=r),
    "kl_div of logarithms": lambda x, y, p, q, w, s, r: F.kl_div(x, y, reduction=r, log_target=True),
    "mse_loss": lambda x, y, p, q, w, s, r: F.mse_loss(x, y, reduction=r, weight=w),
    "l1_loss": lambda x, y, p, q, w, s, r: F.l1_loss(x, y, reduction=r),
    "smooth_l1_loss": lambda x, y, p, q, w, s, r: F.smooth_l1_loss(x, y, reduction=r, beta=0.7),
    "huber_loss": lambda x, y, p, q, w, s, r: F.huber_loss(x, y, reduction=r, delta=0.7),
    "soft_margin_loss": lambda x, y, p, q, w, s, r: F.soft_margin_loss(x, s, reduction=r),
    "poisson_nll_loss": lambda x, y, p, q, w, s, r: F.poisson_nll_loss(x, w * 4, full=True, reduction=r),
    "hinge_embedding_loss": lambda x, y, p, q, w, s, r: F.hinge_embedding_loss(x, s, reduction=r),
    "margin_ranking_loss": lambda x, y, p, q, w, s, r: F.margin_ranking_loss(x, y, s, reduction=r),
    "multilabel_soft_margin_loss": lambda x, y, p, q, w, s, r: F.multilabel_soft_margin_loss(x, q.round(), reduction=r),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_their_gradients_round_where_eager_does(name: str, dtype: torch.dtype) -> None:
    """Also before a mean or a sum, whose few numbers are added up in float32 in any order."""
    loss, generator = LOSSES[name], torch.Generator().manual_seed(1)
    x, y = ((torch.randn(64, 64, generator=generator) * 2).to(dtype).requires_grad_() for _ in range(2))
    p, q = (torch.rand(64, 64, generator=generator).to(dtype).requires_grad_(i == 0) for i in range(2))
    weight, sign = (torch.rand(64, 64, generator=generator) + 0.1).to(dtype), torch.randn(64, 64).sign().to(dtype)

    def all_of(*tensors: Tensor) -> list[Tensor]:
        return [loss(*tensors, reduction) for reduction in ("none", "mean", "sum")]

    tensors = x, y, p, q, weight, sign
    for got, want in zip(compiled(all_of)(*tensors), all_of(*tensors), strict=True):
        assert not differing(got, want).any()
        tangent = torch.randn(want.shape, generator=generator).to(dtype)
        ours, eager = (torch.autograd.grad(v, (x, y, p), tangent, allow_unused=True) for v in (got, want))
        for mine, theirs in zip(ours, eager, strict=True):
            assert (mine is None) is (theirs is None)
            assert mine is None or theirs is None or not differing(mine, theirs).any()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("scale", [1, 30])
def test_floors_of_quotients(scale: int, dtype: torch.dtype) -> None:
    """Of a tensor every step is rounded, of a number none."""
    generator = torch.Generator().manual_seed(0)
    odd = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -3.0, 6e4, 1e-7]).to(dtype)
    x, y = ((torch.randn(50_000, generator=generator) * size).to(dtype) for size in (scale, 1))
    x, y = torch.cat([x, odd.repeat_interleave(len(odd))]), torch.cat([y, odd.repeat(len(odd))])

    def all_of(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x // y, x // 0.7, x // -3, 0.7 // y, x // y[:1], x // y[0], y[:1] // x]

    for got, want in zip(compiled(all_of)(x, y), all_of(x, y), strict=True):
        assert not differing(got, want).any()
