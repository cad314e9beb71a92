"""Matrix products: `dot`, and `dot_scaled` of small floats with a scale for each 32 elements.

Shapes and dtypes are checked by the IR's rule; what is here is the accumulator's default, the names of precisions and
formats, and operands that come as bytes.
Neighbours: `promotion.py`; `stator.tile.interpret` says how products round.
"""

from __future__ import annotations

from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.context import emit
from stator.tile.language.memory import one_of
from stator.tile.language.promotion import bitcast_to, cast_to, to_tensor
from stator.tile.language.shapes import full
from stator.tile.language.static import unwrap
from stator.tile.language.types import (
    as_dtype,
    bfloat16,
    block_type,
    dtype,
    float8e4nv,
    float8e5,
    float16,
    float32,
    float64,
    int32,
    uint8,
)
from stator.tile.language.values import tensor

PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")
#: A format of `dot_scaled` → its dtype; e2m1 comes as two to a byte.
FORMATS: dict[str, dtype] = {"e2m1": uint8, "e4m3": float8e4nv, "e5m2": float8e5, "fp16": float16, "bf16": bfloat16}


def _result_type(operand: dtype, out: dtype) -> dtype:
    """What a product of a dtype is added up in."""
    if operand.is_int():
        return int32
    if operand == float64:
        return float64
    if operand in (float32, bfloat16):
        return float32
    return out


def _precision(input_precision: Any, allow_tf32: Any, operand: dtype) -> str:
    named, allowed = unwrap(input_precision), unwrap(allow_tf32)
    if named is not None and allowed is not None:
        raise InvalidUse("input_precision and allow_tf32 say the same", "leave allow_tf32 out")
    if named is None:
        named = "ieee" if allowed is False or not operand.is_floating() else "tf32"
    return one_of("input precision", named.lower() if isinstance(named, str) else named, PRECISIONS)


def dot(
    input: Any,
    other: Any,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = float32,
) -> tensor:
    """The product of two matrices, or of as many pairs of them as a first dim has, added to `acc`."""
    a, b = to_tensor(input), to_tensor(other)
    left, right = a.type.shape, b.type.shape
    if len(left) not in (2, 3) or len(left) != len(right):
        raise InvalidUse(f"dot takes two matrices, or two batches of them, not {a.type} and {b.type}")
    if left[-1] != right[-2] or left[:-2] != right[:-2]:
        raise InvalidUse(
            f"the shapes {list(left)} and {list(right)} do not go together: {left[-1]} columns and {right[-2]} rows",
            "tl.trans swaps the last two dims",
        )
    result = block_type(_result_type(a.dtype, as_dtype(out_dtype)), [*left[:-1], right[-1]])
    start = full(result.shape, 0, result.scalar) if unwrap(acc) is None else to_tensor(acc)
    if start.type.shape != result.shape or (start.type != result and not _may_add(a.dtype, start.dtype)):
        raise InvalidUse(f"acc is {result} here, not {start.type}", f"`acc.to(tl.{result.scalar.codegen_name()})`")
    imprecise = unwrap(max_num_imprecise_acc)
    options = {"precision": _precision(input_precision, allow_tf32, a.dtype), "max_imprecise": imprecise or 0}
    return emit("dot", a, b, start, type=start.type, **options)


def _may_add(operand: dtype, acc: dtype) -> bool:
    return acc == float16 and (operand == float16 or operand.is_fp8())


def _formatted(value: tensor, format: str) -> tensor:
    """An operand of `dot_scaled` as the dtype of its format; bytes are taken for it."""
    wanted = FORMATS[format]
    if value.dtype == wanted:
        return value
    if value.dtype.primitive_bitwidth != wanted.primitive_bitwidth or not value.dtype.is_int():
        raise InvalidUse(f"an operand of the format {format} is {wanted}, or as many bits, not {value.dtype}")
    return bitcast_to(value, wanted)


def dot_scaled(
    lhs: Any,
    lhs_scale: Any,
    lhs_format: Any,
    rhs: Any,
    rhs_scale: Any,
    rhs_format: Any,
    acc: Any = None,
    fast_math: Any = False,
    lhs_k_pack: Any = True,
    rhs_k_pack: Any = True,
    out_dtype: Any = float32,
) -> tensor:
    """The product of two matrices of which 32 elements along the inner dim at a time have a scale, a power of 2."""
    formats = tuple(FORMATS)
    form_a, form_b = one_of("format", lhs_format, formats), one_of("format", rhs_format, formats)
    if as_dtype(out_dtype) != float32:
        raise InvalidUse(f"dot_scaled adds up in fp32, not in {as_dtype(out_dtype)}", "cast its result")
    a, b = _formatted(to_tensor(lhs), form_a), _formatted(to_tensor(rhs), form_b)
    pack_a, pack_b = ["inner" if unwrap(flag) else "outer" for flag in (lhs_k_pack, rhs_k_pack)]
    rows = a.type.shape[0] * (2 if form_a == "e2m1" and pack_a == "outer" else 1)
    columns = b.type.shape[1] * (2 if form_b == "e2m1" and pack_b == "outer" else 1)
    start = full([rows, columns], 0, float32) if unwrap(acc) is None else cast_to(to_tensor(acc), float32)
    scales = [bitcast_to(to_tensor(s), uint8) for s in (lhs_scale, rhs_scale) if unwrap(s) is not None]
    return emit(
        "dot_scaled", a, b, start, *scales, type=start.type,
        format_a=form_a, format_b=form_b, pack_a=pack_a, pack_b=pack_b, fast_math=bool(unwrap(fast_math)),
        scale_a=unwrap(lhs_scale) is not None, scale_b=unwrap(rhs_scale) is not None,
    )  # fmt: skip
