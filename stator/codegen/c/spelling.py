"""Tables: how dtypes, operators and casts of the kernel IR are written in C.

Floats of 16 bits are held as float, rounded; bool is 0 or 1. An operator on narrow integers wraps around because what
it defines has the narrow type.
"""

from __future__ import annotations

import math

from stator.codegen.places import Whole
from stator.kernel.writing import COMBINE
from stator.loop.scalar import FLOATS, INTEGERS, Number

#: dtype → how memory has it, and how a variable has it.
STORAGE = {
    "f64": "double", "f32": "float", "bf16": "uint16_t", "f16": "uint16_t", "i64": "int64_t", "i32": "int32_t",
    "i16": "int16_t", "i8": "int8_t", "u8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip
TYPE = STORAGE | {"bf16": "float", "f16": "float"}
WHOLE = Whole("int64_t", {"//": "floordiv", "%": "mod", "max": "most", "min": "least"})
WIDTH = {"i64": 64, "i32": 32, "i16": 16, "i8": 8, "u8": 8}

_FLOATS = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "reciprocal": "1 / {0}", "abs": "fabs{S}({0})", "round": "rint{S}({0})", "pow": "pow{S}({0}, {1})",
    "atan2": "atan2{S}({0}, {1})", "fma": "fma{S}({0}, {1}, {2})",
    **{name: f"{name}_{{D}}({{0}}, {{1}})" for name in ("minimum", "maximum", "floordiv", "mod")},
    **{name: f"{name}_{{D}}({{0}})" for name in ("rsqrt", "sigmoid", "sign")},
    **{name: f"{name}{{S}}({{0}})" for name in (
        "sqrt exp exp2 expm1 log log10 log2 log1p sin cos tan tanh asin acos atan sinh cosh erf erfc lgamma floor ceil "
        "trunc"
    ).split()},
}  # fmt: skip
_WHOLE = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "neg": "-{0}", "abs": "{0} < 0 ? -{0} : {0}",
    "minimum": "{0} < {1} ? {0} : {1}", "maximum": "{0} > {1} ? {0} : {1}", "floordiv": "floordiv({0}, {1})",
    "mod": "mod({0}, {1})", "pow": "power({0}, {1})", "sign": "({0} > 0) - ({0} < 0)", "and": "{0} & {1}",
    "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "~{0}", "shl": "shl({0}, {1}, {W})", "shr": "shr({0}, {1}, {W})",
}  # fmt: skip
_BOOL = {
    "add": "{0} | {1}", "mul": "{0} & {1}", "sub": "{0} ^ {1}", "minimum": "{0} & {1}", "maximum": "{0} | {1}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "not": "!{0}", "abs": "{0}", "sign": "{0}",
}  # fmt: skip
_ANY = {
    "eq": "{0} == {1}", "ne": "{0} != {1}", "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}",
    "ge": "{0} >= {1}", "where": "{0} ? {1} : {2}", "isnan": "{0} != {0}", "isinf": "isinf({0}) != 0",
}  # fmt: skip
_BITS = {
    ("f32", "i32"): "bits_of_f32({})", ("i32", "f32"): "f32_of_bits({})", ("f64", "i64"): "bits_of_f64({})",
    ("i64", "f64"): "f64_of_bits({})", ("bf16", "i16"): "(int16_t)to_bf16({})", ("f16", "i16"): "(int16_t)to_f16({})",
    ("i16", "bf16"): "from_bf16((uint16_t){})", ("i16", "f16"): "from_f16((uint16_t){})",
    ("i8", "bool"): "{} != 0", ("u8", "bool"): "{} != 0",
}  # fmt: skip


def operator(op: str, dtype: str, given: str, operands: list[str]) -> str:
    """An operator that defines a dtype; `given` is that of its last operand."""
    table = _ANY if op in _ANY else _FLOATS if given in FLOATS else _WHOLE if given in INTEGERS else _BOOL
    if op not in table:
        raise NotImplementedError(f"plain C has no {op} of {given}")
    return table[op].format(*operands, D=given, S="" if given == "f64" else "f", W=WIDTH.get(given))


def scan(op: str, dtype: str, operands: list[str]) -> str:
    """What was so far, and the next value."""
    if op == "logsumexp":
        return f"logaddexp_{dtype}({', '.join(operands)})"
    return operator(COMBINE[op], dtype, dtype, operands)


def cast(source: str, target: str, text: str) -> str:
    """The value of one dtype in another."""
    if target == "bool":
        return f"{text} != 0"
    if source in FLOATS and target in INTEGERS:
        return f"{'to_i64' if target in ('i64', 'u8') else 'to_i32'}({text})"
    return f"round_{target}({text})" if target in ("bf16", "f16") else text


def bitcast(source: str, target: str, text: str) -> str:
    """The bits of one dtype as another of the same size."""
    return _BITS.get((source, target), "{}").format(text)


def load(dtype: str, place: str) -> str:
    """What lies at a place."""
    return f"from_{dtype}({place})" if dtype in ("bf16", "f16") else f"{place} != 0" if dtype == "bool" else place


def store(dtype: str, text: str) -> str:
    """A value as memory has it."""
    return f"to_{dtype}({text})" if dtype in ("bf16", "f16") else text


def number(dtype: str, value: Number) -> str:
    """A literal."""
    if dtype in FLOATS:
        end = "" if dtype == "f64" else "f"
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "(-INFINITY)"
        text = f"{value:.1f}{end}" if value == int(value) and abs(value) < 1e6 else f"{float(value).hex()}{end}"
    elif value == -(2**63):
        return "INT64_MIN"
    else:
        text = f"{int(value)}{'LL' if dtype == 'i64' else ''}"
    return f"({text})" if text.startswith("-") else text
