"""Tables: how each scalar operator, cast and reduction of the loop IR is written in C++.

A dtype has a register kind (`KIND`): narrow integers live in int, bf16 and f16 in float (already rounded), bool as a
mask. The texts work for vectors and scalars alike; the headers beside this overload every name used here.
"""

from __future__ import annotations

import math
from typing import Any

from stator.codegen.places import Whole
from stator.loop.scalar import FLOATS

STORAGE = {
    "f64": "double", "f32": "float", "bf16": "bf16", "f16": "f16", "i64": "i64_", "i32": "int", "i16": "short",
    "i8": "signed char", "u8": "unsigned char", "bool": "b8",
}  # fmt: skip
KIND = {
    "f64": "f64", "f32": "f32", "bf16": "f32", "f16": "f32", "i64": "i64", "i32": "i32", "i16": "i32", "i8": "i32",
    "u8": "i32", "bool": "mask",
}  # fmt: skip
ELEMENT = {"f64": "double", "f32": "float", "i64": "i64_", "i32": "int", "mask": "int"}
WRAP = {"i16": "wrap_i16", "i8": "wrap_i8", "u8": "wrap_u8", "bf16": "round_bf16", "f16": "round_f16"}
#: The same of what nothing but stores take, which narrow it.
STORED = WRAP | {"bf16": "stored_bf16", "f16": "stored_f16"}
#: The dtype of a sum → those whose sums are mostly exact in it.
NARROW = {"f64": ("f32",), "f32": ("f16", "bf16")}
_HELD = {"i64": (-(2**63), 2**63 - 1), "i32": (-(2**31), 2**31 - 1)}  # by a register of whole numbers

_CALLS = (
    "pow abs sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh erf erfc "
    "sigmoid lgamma sign floor ceil trunc round isnan isinf"
)
TEXT: dict[str, str] = {
    "add": "({0} + {1})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})", "neg": "(-{0})",
    "fma": "fused_({0}, {1}, {2})",
    "minimum": "min_({0}, {1})", "maximum": "max_({0}, {1})", "reciprocal": "(1 / {0})",
    "floordiv": "floordiv_({0}, {1})", "mod": "mod_({0}, {1})",
    "eq": "mask({0} == {1})", "ne": "mask({0} != {1})", "lt": "mask({0} < {1})", "le": "mask({0} <= {1})",
    "gt": "mask({0} > {1})", "ge": "mask({0} >= {1})",
    "and": "({0} & {1})", "or": "({0} | {1})", "xor": "({0} ^ {1})", "not": "(~{0})",
    "shl": "shl_({0}, {1})", "shr": "shr_({0}, {1})", "where": "select({0}, {1}, {2})",
    **{name: f"{name}_({{0}}, {{1}})" for name in ("pow", "atan2")},
    **{name: f"{name}_({{0}})" for name in _CALLS.split() if name not in ("pow", "atan2")},
}  # fmt: skip
ON_MASKS: dict[str, str] = {
    "add": "mask({0} | {1})", "mul": "mask({0} & {1})", "minimum": "mask({0} & {1})", "maximum": "mask({0} | {1})",
    "and": "mask({0} & {1})", "or": "mask({0} | {1})", "xor": "mask({0} ^ {1})", "sub": "mask({0} ^ {1})",
    "not": "not_({0})", "where": "select({0}, {1}, {2})", "eq": "not_(mask({0} ^ {1}))", "ne": "mask({0} ^ {1})",
    "lt": "mask(not_({0}) & {1})", "le": "mask(not_({0}) | {1})", "gt": "mask({0} & not_({1}))",
    "ge": "mask({0} | not_({1}))", "abs": "mask({0})", "sign": "mask({0})",
}  # fmt: skip
KEEPS_WIDTH = frozenset(("and", "or", "xor", "minimum", "maximum", "where", "sign", "mod"))  # of wrapped operands

#: How an accumulator or the state of a scan takes the next value; masks are of bits.
COMBINE = {
    "add": "{0} + {1}", "mul": "{0} * {1}", "maximum": "max_({0}, {1})", "minimum": "min_({0}, {1})",
    "or": "{0} | {1}", "and": "{0} & {1}", "logsumexp": "logaddexp_({0}, {1})",
}  # fmt: skip
COMBINE_MASKS = COMBINE | {"add": "{0} | {1}", "mul": "{0} & {1}", "maximum": "{0} | {1}", "minimum": "{0} & {1}"}

#: Texts that combine the lanes of an accumulator → the functions in `math.h` that do it. Others are written where they
#: are used, and cost the compiler more: it makes all steps of folding anew for a function of another place.
FOLDS = {
    "a + b": "Sum{}", "a * b": "Product{}", "max_(a, b)": "Greatest{}", "min_(a, b)": "Least{}",
    "a | b": "Either{}", "a & b": "Both{}",
}  # fmt: skip


def operator(name: str, kind: str, dtype: str, operands: list[str]) -> str:
    """The text of an operator whose (value) operands are of a register kind."""
    text = (ON_MASKS if kind == "mask" else TEXT)[name].format(*operands)
    wrap = WRAP.get(dtype)
    return f"{wrap}({text})" if wrap is not None and name not in KEEPS_WIDTH else text


def cast(source: str, target: str, text: str, stored: bool = False) -> str:
    """Convert a register of dtype `source` into one of `target` (kinds: see `convert`), for stores alone or not."""
    if target == "bool":
        return f"mask({text} != 0)"
    if (source, target) == ("f64", "u8"):  # as eager's kernels do
        text = convert("", "i64", text)
    text = convert("mask" if source == "bool" else "", KIND[target], text)
    wrap = (STORED if stored else WRAP).get(target)
    return f"{wrap}({text})" if wrap is not None else text


def convert(source: str, target: str, text: str) -> str:
    """Change the register kind; a mask becomes 0 or 1."""
    return f"mask_to_{target}({text})" if source == "mask" else f"to_{target}({text})"


def scan_along_lanes(op: str, dtype: str, source: str | None) -> str:
    """The function of a scan along lanes: maxima are the same in any order, integers wrap around, floats are rounded.

    Sums in a wider dtype than that of what was converted are mostly exact in any order; where they are not, much has
    cancelled.
    """
    if op not in ("sum", "prod") or dtype not in FLOATS:
        return "scan"
    exact = op == "sum" and source in NARROW.get(dtype, ())
    return f"scan_floats<Digits::{'all' if exact else 'most'}, {'true' if op == 'prod' else 'false'}>"


def bitcast(source: str, target: str, text: str) -> str:
    """The same bits as another dtype of the same size."""
    pair = (source, target)
    if pair in (("f32", "i32"), ("i32", "f32"), ("f64", "i64"), ("i64", "f64")):
        return f"bits_{target}({text})"
    match pair:
        case ("bf16", "i16"):
            return f"(bits_i32({text}) >> 16)"
        case ("i16", "bf16"):
            return f"bits_f32({text} << 16)"
        case ("f16", "i16"):
            return f"f16_bits({text})"
        case ("i16", "f16"):
            return f"f16_from_bits({text})"
        case ("u8", "i8") | ("i8", "u8"):
            return f"{WRAP[target]}({text})"
        case ("bool", _):
            return f"mask_to_i32({text})"
        case _:
            return f"mask({text} != 0)"


#: Sizes and positions.
WHOLE = Whole("i64_", {"//": "floordiv_", "%": "mod_", "max": "max_", "min": "min_"})


def number(kind: str, value: Any) -> str:
    """A scalar literal of a register kind."""
    if kind == "mask":
        return "true" if value else "false"
    if kind in ("f32", "f64"):
        end = "f" if kind == "f32" else ""
        if math.isnan(value):
            return f'__builtin_nan{end}("")'
        if math.isinf(value):
            return f"{'-' if value < 0 else ''}__builtin_inf{end}()"
        if value == int(value) and abs(value) < 1e6:
            return f"{value:.1f}{end}"
        return f"{float(value).hex()}{end}"
    if not _HELD[kind][0] <= value <= _HELD[kind][1]:
        raise AssertionError(f"{value} is no {ELEMENT[kind]}")
    if value == -(2**63):
        return f"{ELEMENT[kind]}(-9223372036854775807LL - 1)"
    return f"{ELEMENT[kind]}({int(value)}{'LL' if kind == 'i64' else ''})"
