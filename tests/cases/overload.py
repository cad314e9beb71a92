"""Overloads that the programs of the other files do not come to: called by name, below autograd.

PyTorch takes a composite operator apart in its autograd layer, above the tracer; those that decompositions call, below
it, come whole. A few others are what only derivatives call. Together with the other files every decomposition and every
lowering has a case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.cases.model import BOOL, F32, F64, I64, Case, Recipe, mask, normal, positions, positive, special, unit, whole

aten = torch.ops.aten


def below(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The program without PyTorch's autograd layer: composite operators reach the tracer whole."""

    def run(*inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return fn(*inputs)

    return run


def case(name: str, fn: Callable[..., Any], *recipes: Recipe, dtypes: tuple[torch.dtype, ...] = (F32,)) -> Case:
    return Case(f"overload_{name}", below(fn), recipes, dtypes)


COPIES = [
    case(
        "copies_of_parts",
        lambda x: (
            *aten.split_copy.Tensor(x, 2),
            *aten.split_with_sizes_copy(x, [1, 2], 1),
            aten.select_copy.int(x, 1, 2),
            aten.slice_copy.Tensor(x, 0, 1, 4, 2),
            aten.narrow_copy(x, 0, 1, 2),
            aten.unfold_copy(x, 0, 3, 1),
        ),
        normal(4, 3),
    ),
    case(
        "copies_in_another_shape",
        lambda x: (
            aten.t_copy(x),
            aten.transpose_copy.int(x, 0, 1),
            aten.expand_copy(x, [2, 1, 3]),
            aten.squeeze_copy(x),
            aten.squeeze_copy.dim(x, 0),
            aten.squeeze_copy.dims(x, [0]),
            aten.unsqueeze_copy(x, 1),
            aten.as_strided_copy(x, [2, 2], [1, 1]),
            aten.view_copy.dtype(x, torch.int32),
            aten.view_copy(x, [3, 1]),
        ),
        normal(1, 3),
    ),
    case(
        "shapes_of_memory",
        lambda x: tuple(
            aten.fill.Scalar(t, 2.0)
            for t in (
                torch.empty_strided((2, 3), (1, 2)),
                torch.empty_permuted((2, 3, 4), (1, 0, 2)),
                x.new_empty_strided((2, 3), (3, 1)),
            )
        ),
        normal(2),
    ),
    case("truth_of_all", lambda x: (aten._is_all_true(x > 0), aten._is_any_true(x > 0)), normal(3, 4)),
    case("native_channel_shuffle", lambda x: aten.native_channel_shuffle(x, 2), normal(2, 4, 3, 3)),
    case("cross", lambda x, y: (aten.linalg_cross(x, y), aten.linalg_cross(x, y, dim=0)), normal(3, 3), normal(3, 3)),
]

SPACES = [
    case(
        "linspace_between",
        lambda a, b: (
            torch.linspace(a[0], b[0], 5),
            torch.linspace(0.5, b[0], 4),
            torch.linspace(a[0], 2.0, 1),
        ),
        normal(1),
        normal(1),
    ),
    case(
        "whole_spaces",
        lambda a, b: (
            torch.linspace(558, -80, 122, dtype=I64),  # where rounding twice would give other numbers
            torch.linspace(-7.9, 3.2, 6, dtype=torch.int32),
            torch.linspace(a[0], b[0], 40, dtype=I64),
            torch.linspace(a[0], 2.5, 1, dtype=I64),
            torch.logspace(-1.5, 8, 9, dtype=I64),
            torch.logspace(a[0], b[0], 7, base=2.0, dtype=I64),
            torch.logspace(1.5, 2.5, 1, dtype=I64),
        ),
        normal(1),
        positive(1),
    ),
    case(
        "triangle_indices",
        lambda x: tuple(
            make(rows, columns, offset) + x.dim()
            for make in (torch.tril_indices, torch.triu_indices)
            for rows, columns, offset in ((4, 6, 0), (6, 4, -2), (3, 5, 2), (5, 3, 9), (4, 4, -9), (0, 3, 0))
        ),
        normal(1),
    ),
    case(
        "logspace",
        lambda a, b: (
            a * torch.logspace(-1, 1, 5),
            torch.logspace(a[0], b[0], 5),
            torch.logspace(0.5, b[0], 4, base=2.0),
            torch.logspace(a[0], 2.0, 3),
        ),
        unit(1),
        unit(1),
    ),
]

NUMBERS = [
    case("and_or_xor", lambda x, y: (x & y, x | y, x ^ y, x & True, x | False, x ^ True), mask(3, 4), mask(3, 4)),
    case(
        "bits",
        lambda x, y: (aten.__and__.Tensor(x, y), aten.__or__.Tensor(x, y), aten.__xor__.Tensor(x, y)),
        whole(0, 99, 3, 4),
        whole(0, 99, 3, 4),
        dtypes=(I64,),
    ),
    case(
        "bits_of_a_number",
        lambda x: (aten.__and__.Scalar(x, 5), aten.__or__.Scalar(x, 5), aten.__xor__.Scalar(x, 5)),
        whole(0, 99, 3, 4),
        dtypes=(I64,),
    ),
    case(
        "shifts",
        lambda x, y: (
            aten.__lshift__.Scalar(x, 3),
            aten.__rshift__.Tensor(x, y),
            aten.bitwise_left_shift.Tensor_Scalar(x, 2),
            aten.bitwise_right_shift.Tensor_Scalar(x, 2),
        ),
        whole(0, 99, 3, 4),
        whole(0, 5, 3, 4),
        dtypes=(I64,),
    ),
    case(
        "signs_of_floats",
        lambda x, y: (torch.signbit(x), torch.copysign(x, y), torch.copysign(x, -2.0), torch.angle(x)),
        normal(12),
        special,
        dtypes=(F32, F64),
    ),
    case("mantissas", lambda x: (*torch.frexp(x), torch.ldexp(x, torch.arange(12) - 6)), special, dtypes=(F32, F64)),
    case(
        "rounded",
        lambda x: (torch.round(x, decimals=2), torch.round(x * 100, decimals=-1), x.round(decimals=0)),
        normal(9),
    ),
    case("logaddexp2", torch.logaddexp2, normal(3, 4), normal(3, 4)),
    case(
        "logit_backward", lambda g, x: (aten.logit_backward(g, x), aten.logit_backward(g, x, 0.2)), normal(9), unit(9)
    ),
    case("signs", lambda x: (torch.positive(x), torch.isfinite(x), torch.square(x)), normal(3, 4)),
    case("signs_of_integers", torch.signbit, whole(-5, 5, 3, 4), dtypes=(I64,)),
    case("clamps", lambda x, y: (x.clamp_min(0), x.clamp_max(1), x.clamp_max(y)), normal(3, 4), normal(3, 4)),
    case("relu6", lambda x: torch.nn.functional.relu6(x * 4), normal(3, 4)),
    case(
        "inverse_functions",
        lambda x, p: (torch.acosh(x + 1), torch.logit(p), torch.logit(p, 0.2)),
        positive(3),
        unit(3),
    ),
    case(
        "divisions",
        lambda x: (
            aten.div.Scalar_mode(x, 0.7, rounding_mode="floor"),
            aten.div.Scalar_mode(x, 0.7, rounding_mode="trunc"),
            aten.div.Scalar_mode(x, 0.7, rounding_mode=None),
            aten.floor_divide.Scalar(x, 0.7),
            aten.remainder.Scalar_Tensor(2.5, x),
        ),
        positive(3, 4),
    ),
    case(
        "choices", lambda m, x, v: (torch.where(m, 1.0, -2.0), x.masked_fill(m, v)), mask(3, 4), normal(3, 4), normal()
    ),
]

FILLED = [
    case("fill", lambda x, v: (aten.fill.Scalar(x, 2.5), aten.fill.Tensor(x, v), aten.zero(x)), normal(3, 4), normal()),
    case("ones", lambda x: (torch.ones(2, 3), torch.zeros(3), x.new_ones(2), torch.arange(3, 8)), normal(3)),
    case("empty", lambda x: (torch.empty_like(x).fill_(1), x.new_empty(2, 3).fill_(2)), normal(3, 4)),
    case("copies", lambda x, y: (aten.copy(x, y), aten.alias_copy(x), aten.detach_copy(x)), normal(3, 4), normal(4)),
    case(
        "copied_views", lambda x: (aten.view_copy(x, [4, 3]), aten.lift_fresh_copy(x), aten.lift(x) * 2), normal(3, 4)
    ),
]

MOVED = [
    case("aliased", lambda x: aten._reshape_alias(x * 2, [4, 3], [3, 1]) + 1, normal(3, 4)),
    case("moved", lambda x: (x.movedim((0, 1), (2, 0)) * 1, x.narrow(1, 1, 2) * 1), normal(2, 3, 4)),
    case("repeated", lambda x: (x.repeat_interleave(2), x.repeat_interleave(3, dim=1)), normal(2, 3)),
    case(
        "indexed",
        lambda x, i: (aten._unsafe_index.Tensor(x, [None, i]), x.index_select(1, i[0])),
        normal(3, 5),
        positions(5, 4),
    ),
    case(
        "index_put",
        lambda x, i, v: aten._unsafe_index_put(x, [i], v, accumulate=True),
        normal(5, 3),
        positions(5, 4),
        normal(4, 3),
    ),
    case(
        "selected_gradient",
        lambda g, i: aten.value_selecting_reduction_backward(g, 1, i, [3, 4], False),
        normal(3),
        positions(4, 3),
    ),
]

REDUCED = [
    case(
        "norms",
        lambda x: (aten.norm.Scalar(x, 2), aten.norm.ScalarOpt_dim(x, 1, [1]), torch.dist(x, x * 2)),
        normal(3, 4),
    ),
    case("counts", lambda x: aten.count_nonzero.dim_IntList(x, [0, 1]), whole(0, 3, 2, 3, 4), dtypes=(I64,)),
    case("all_of_dims", lambda m: m.all((0, 2)), mask(2, 3, 4), dtypes=(BOOL,)),
    case("vdot", torch.vdot, normal(5), normal(5)),
]

LAYERS = [
    case("linear", torch.nn.functional.linear, normal(3, 4), normal(5, 4), normal(5)),
    case("rms_norm", lambda x, w: aten._fused_rms_norm(x, [4], w, 1e-5), normal(3, 4), normal(4)),
    case(
        "batch_norm",
        lambda x, w, b: aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5),
        normal(4, 3, 2),
        normal(3),
        normal(3),
    ),
    case(
        "batch_norm_with_statistics",
        lambda x, w, b, m, v: aten._native_batch_norm_legit(x, w, b, m, v, False, 0.1, 1e-5),
        normal(4, 3, 2),
        normal(3),
        normal(3),
        normal(3),
        positive(3),
    ),
    case(
        "batch_norm_at_inference",
        lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5)[0],
        normal(4, 3, 2),
        normal(3),
        normal(3),
        normal(3),
        positive(3),
    ),
    case("adaptive_pooling", lambda x: aten._adaptive_avg_pool2d(x, [1, 1]), normal(1, 2, 5, 7)),
    case("adaptive_pooling_of_volumes", lambda x: aten._adaptive_avg_pool3d(x, [1, 1, 1]), normal(1, 2, 3, 4, 5)),
    case("adaptive_pooling_gradient", aten._adaptive_avg_pool2d_backward, normal(1, 2, 1, 1), normal(1, 2, 4, 6)),
    case("upsampled_lines", lambda x: aten.upsample_nearest1d(x, [7]), normal(1, 2, 3)),
    case("upsampled_volumes", lambda x: aten.upsample_nearest3d(x, [4, 3, 5]), normal(1, 2, 2, 3, 2)),
]

CASES = [*COPIES, *SPACES, *NUMBERS, *FILLED, *MOVED, *REDUCED, *LAYERS]
