"""The language of kernels: what `tl` names. Each name is defined in the file of its concept."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stator.tile.language import extra, math, members, target_info
from stator.tile.language.aggregates import aggregate as _aggregate
from stator.tile.language.arithmetic import PropagateNan, add, clamp, maximum, minimum, mul, sub, where
from stator.tile.language.block_pointers import (
    advance,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store_tensor_descriptor,
    tensor_descriptor,
    tensor_descriptor_type,
)
from stator.tile.language.effects import (
    assume,
    debug_barrier,
    device_assert,
    device_print,
    inline_asm_elementwise,
    map_elementwise,
    max_constancy,
    max_contiguous,
    multiple_of,
    num_programs,
    program_id,
    static_assert,
    static_print,
)
from stator.tile.language.math import (
    abs,
    ceil,
    cos,
    div_rn,
    erf,
    exp,
    exp2,
    fdiv,
    floor,
    fma,
    log,
    log2,
    rsqrt,
    sin,
    sqrt,
    sqrt_rn,
    umulhi,
)
from stator.tile.language.members import cdiv
from stator.tile.language.memory import (
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    store,
)
from stator.tile.language.products import dot, dot_scaled
from stator.tile.language.promotion import to_tensor
from stator.tile.language.random import (
    pair_uniform_to_normal,
    philox,
    philox_impl,
    rand,
    rand4x,
    randint,
    randint4x,
    randn,
    randn4x,
    uint_to_uniform_float,
)
from stator.tile.language.ranges import condition, range, static_range
from stator.tile.language.reductions import (
    argmax,
    argmin,
    associative_scan,
    bitonic_merge,
    cumprod,
    cumsum,
    flip,
    histogram,
    max,
    min,
    reduce,
    reduce_or,
    sigmoid,
    softmax,
    sort,
    sum,
    topk,
    xor_sum,
)
from stator.tile.language.shapes import (
    arange,
    broadcast,
    broadcast_to,
    cast,
    cat,
    expand_dims,
    full,
    gather,
    interleave,
    join,
    permute,
    ravel,
    reshape,
    split,
    swizzle2d,
    trans,
    view,
    zeros,
    zeros_like,
)
from stator.tile.language.static import constexpr, constexpr_type
from stator.tile.language.types import (
    TRITON_MAX_TENSOR_NUMEL,
    bfloat16,
    block_type,
    const,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pi32_t,
    pointer_type,
    tuple_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from stator.tile.language.values import slice, tensor, tuple

__all__ = [
    "TRITON_MAX_TENSOR_NUMEL", "PropagateNan", "_aggregate", "abs", "add", "advance", "arange", "argmax", "argmin",
    "associative_scan", "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or",
    "atomic_xchg", "atomic_xor", "bfloat16", "bitonic_merge", "block_type", "broadcast", "broadcast_to", "cast", "cat",
    "cdiv", "ceil", "clamp", "condition", "const", "constexpr", "constexpr_type", "cos", "cumprod", "cumsum",
    "debug_barrier", "device_assert", "device_print", "div_rn", "dot", "dot_scaled", "dtype", "erf", "exp", "exp2",
    "expand_dims", "extra", "fdiv", "flip", "float8e4b8", "float8e4b15", "float8e4nv", "float8e5", "float8e5b16",
    "float16", "float32", "float64", "floor", "fma", "full", "gather", "histogram", "inline_asm_elementwise", "int1",
    "int8", "int16", "int32", "int64", "interleave", "join", "load", "load_tensor_descriptor", "log", "log2",
    "make_block_ptr", "make_tensor_descriptor", "map_elementwise", "math", "max", "max_constancy", "max_contiguous",
    "maximum", "members", "min", "minimum", "mul", "multiple_of", "num_programs", "pair_uniform_to_normal", "permute",
    "philox", "philox_impl", "pi32_t", "pointer_type", "program_id", "rand", "rand4x", "randint", "randint4x", "randn",
    "randn4x", "range", "ravel", "reduce", "reduce_or", "reshape", "rsqrt", "sigmoid", "sin", "slice", "softmax",
    "sort", "split", "sqrt", "sqrt_rn", "static_assert", "static_print", "static_range", "store",
    "store_tensor_descriptor", "sub", "sum", "swizzle2d", "target_info", "tensor", "tensor_descriptor",
    "tensor_descriptor_type", "to_tensor", "topk", "trans", "tuple", "tuple_type", "uint8", "uint16", "uint32",
    "uint64", "uint_to_uniform_float", "umulhi", "view", "void", "where", "xor_sum", "zeros", "zeros_like",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """`tl.core`, which has the same names; it is built upon this file."""
    if name == "core":
        return import_module("stator.tile.language.core")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
