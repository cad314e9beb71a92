"""Complex numbers: made of their parts and taken apart; and which decompositions hold of them at all.

Most decompositions speak of real numbers (an order, a sign, bits, half types). So they decline what is of a dtype that
no loop knows, and `ALSO_COMPLEX` lists those whose formula is right for complex numbers too.

Neighbours: `stator.lowering.complex` computes with pairs; what neither reduces is a call of ATen's kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from stator.fake.execute import plan_of
from stator.fake.layout import OPAQUE_DTYPES, elementwise_strides
from stator.fake.overloads import Table, overload
from stator.fake.rules import broadcast
from stator.prims import names as p
from stator.prims.decompositions.layout import packed
from stator.prims.table import decompose

#: Overloads whose decomposition holds of complex numbers.
ALSO_COMPLEX = """
    add.Scalar sub.Scalar mul.Scalar div.Scalar rsub.Tensor rsub.Scalar pow.Tensor_Scalar square
    addcmul addcdiv logical_not masked_fill.Scalar masked_fill.Tensor where.Scalar
    sum mean any any.dim all all.dim all.dims count_nonzero linalg_vector_norm norm.Scalar norm.ScalarOpt_dim dist
    zeros ones scalar_tensor zeros_like empty_like ones_like new_zeros new_ones new_full new_empty empty.memory_format
    empty_strided empty_permuted new_empty_strided eye eye.m
    copy fill.Scalar fill.Tensor zero
    stack repeat repeat_interleave.self_int roll tril triu diag_embed rot90
    slice_backward select_backward diagonal_backward diagonal_scatter
    as_strided_copy alias_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy.int
    slice_copy.Tensor split_copy.Tensor split_with_sizes_copy squeeze_copy squeeze_copy.dim squeeze_copy.dims t_copy
    transpose_copy.int unbind_copy.int unfold_copy unsqueeze_copy view_copy
    reflection_pad1d reflection_pad2d reflection_pad3d reflection_pad1d_backward reflection_pad2d_backward
    reflection_pad3d_backward replication_pad1d replication_pad2d replication_pad3d replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward
    index_select _unsafe_index.Tensor take native_dropout_backward addr block_diag
    complex polar angle sgn conj_physical _conj_physical view_as_real_copy view_as_complex_copy
""".split()

COMPLEX = frozenset((torch.complex32, torch.complex64, torch.complex128))


def restrict(table: Table) -> None:
    """Let every decomposition decline what it does not hold of; views hold of everything."""
    also = {overload(name) for name in ALSO_COMPLEX}
    for op, function in table.items():
        if not plan_of(op).view:
            table[op] = _declining(function, op in also)


def _declining(function: Callable[..., Any], also_complex: bool) -> Callable[..., Any]:
    foreign = OPAQUE_DTYPES - COMPLEX if also_complex else OPAQUE_DTYPES

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _holds(args, foreign, also_complex) or (kwargs and _holds(kwargs.values(), foreign, also_complex)):
            return NotImplemented
        return function(*args, **kwargs)

    return run


def _holds(args: Iterable[Any], foreign: frozenset[torch.dtype], also_complex: bool) -> bool:
    """Whether one of these dtypes, or a complex number that is not wanted, is among the arguments."""
    for arg in args:
        kind = type(arg)
        if isinstance(arg, Tensor):
            found = arg.dtype in foreign
        elif kind is list or kind is tuple:
            found = _holds(arg, foreign, also_complex)
        else:
            found = (kind is complex and not also_complex) or (kind is torch.dtype and arg in foreign)
        if found:
            return True
    return False


def joined(re: Tensor, im: Tensor) -> Tensor:
    """The complex numbers of these parts, laid out as an elementwise result of both is."""
    size = broadcast((re, im))
    if size is None:
        return NotImplemented
    strides = elementwise_strides(torch.Size(size), (re, im))
    parts = [part if part.shape == size else p.expand(part, list(size)) for part in (re, im)]
    if strides is None:
        return _pairs(parts)
    order = sorted(range(len(size)), key=lambda d: -strides[d])
    laid = _pairs([p.permute(part, order) for part in parts])
    return p.permute(laid, [order.index(d) for d in range(len(size))])


def _pairs(parts: Sequence[Tensor]) -> Tensor:
    return p.view_as_complex(p.cat([p.unsqueeze(part, -1) for part in parts], -1))


def parts_of(x: Tensor) -> tuple[Tensor, Tensor]:
    pairs = p.view_as_real(x)
    return p.select(pairs, -1, 0), p.select(pairs, -1, 1)


@decompose("complex")
def of_parts(re: Tensor, im: Tensor) -> Tensor:
    return joined(re, im)


@decompose("polar")
def polar(size: Tensor, angle: Tensor) -> Tensor:
    return joined(p.mul(size, p.cos(angle)), p.mul(size, p.sin(angle)))


@decompose("conj_physical", "_conj_physical")
def conj_physical(x: Tensor) -> Tensor:
    if x.is_conj() or not x.is_complex():
        return NotImplemented
    re, im = parts_of(x)
    return joined(re, p.neg(im))


@decompose("view_as_real_copy")
def view_as_real_copy(x: Tensor) -> Tensor:
    return packed(p.view_as_real(x))


@decompose("view_as_complex_copy")
def view_as_complex_copy(x: Tensor) -> Tensor:
    return packed(p.view_as_complex(x))
