"""Functions of LLVM that code for GPUs calls, on numpy arrays of all threads."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from stator.tile.interpret import libdevice
from stator.tile.interpret.compute import fused
from stator.tile.ir.types import F32, F64, I32, Type
from tests.tile.nvidia.numbers import CONSTANT_BASE, LOCAL_BASE, saturated

Array = Any


def call(m: Any, name: str, result: str, args: list[tuple[str, Array]]) -> Any:
    """What a function gives."""
    values = [value for _, value in args]
    match = re.fullmatch(r"llvm\.nvvm\.read\.ptx\.sreg\.(\w+)(?:\.([xyz]))?", name)
    if match is not None:
        return _special(m, match.group(1), match.group(2))
    if name.startswith("llvm.nvvm.shfl.sync."):
        return _shuffle(m, name.split(".")[4], values)
    if name in ("llvm.nvvm.barrier.cta.sync.aligned.all", "llvm.nvvm.bar.warp.sync"):
        return m.barrier()
    if name == "__assertfail":
        raise AssertionError(_assertion(m, values))
    if name == "vprintf":
        return _print(m, values)
    if name.startswith("llvm.nvvm.mulhi."):
        return _high_bits(name.rsplit(".", 1)[1], *values)
    if name.startswith("__nv_"):
        return _of_libdevice(name.removeprefix("__nv_"), result, args)
    short = re.sub(r"^llvm\.", "", name).split(".")[0] if not name.startswith("llvm.nvvm") else name
    if ".sat." in name:
        return saturated(values[0], result, "fptosi" in name)
    if short in FUNCTIONS:
        return FUNCTIONS[short](*values)
    raise NotImplementedError(f"function {name}")


def _of_libdevice(name: str, result: str, args: list[tuple[str, Array]]) -> Array:
    dtypes = {"float": F32, "double": F64, "i32": I32}
    symbol = name[:-1] if result == "float" else name
    symbol = "pow" if symbol == "powi" else symbol
    given = [value.view(np.int32) if type_ == "i32" else value for type_, value in args]
    return np.asarray(libdevice.call(symbol, [Type(dtypes[type_]) for type_, _ in args], Type(dtypes[result]), *given))


def _high_bits(kind: str, a: Array, b: Array) -> Array:
    first, second = (v if kind[0] == "u" else _signed(v) for v in (a, b))
    bits = 8 * a.dtype.itemsize
    return np.array([int(x) * int(y) >> bits & (1 << bits) - 1 for x, y in zip(first, second, strict=True)], a.dtype)


def _special(m: Any, name: str, axis: str) -> Array:
    if name == "tid":
        return m.tid
    number = (m.place if name == "ctaid" else m.grid)["xyz".index(axis)]
    return np.full(m.threads, number, np.uint32)


def _shuffle(m: Any, way: str, values: list[Array]) -> Array:
    if not m.mask.all():
        raise AssertionError("a shuffle that not all threads meet")
    _, value, by, _ = values
    lane = m.tid & 31
    source = (lane ^ by) if way == "bfly" else by & 31
    return value[(m.tid & ~np.uint32(31)) + source]


def _assertion(m: Any, values: list[Array]) -> str:
    """What the driver prints of an assertion that fails, but for the thread."""
    thread = np.nonzero(m.mask)[0][0]
    message, file, line, function, _ = [int(value[thread]) for value in values]
    said, where, name = (_text(m, address) for address in (message, file, function))
    return f"{where}:{line}: {name}: block: {list(m.place)} Assertion `{said}` failed."


def _text(m: Any, address: int) -> str:
    return bytes(m.constant[address - CONSTANT_BASE :]).split(b"\0")[0].decode()


def _print(m: Any, values: list[Array]) -> Array:
    for thread in np.nonzero(m.mask)[0]:
        start = int(values[0][thread]) - CONSTANT_BASE
        text = bytes(m.constant[start:]).split(b"\0")[0].decode()
        at = int(values[1][thread]) - LOCAL_BASE
        args: list[Any] = []
        for spec in re.findall(r"%(?!%)[\d]*(ll[dux]|[duxf])", text.replace("%%", "")):
            size, code = (
                (8, "d")
                if spec == "f"
                else (8, "q" if spec == "lld" else "Q")
                if spec[0] == "l"
                else (4, "i" if spec == "d" else "I")
            )
            at += -at % size
            args.append(struct.unpack_from("=" + code, m.local[thread], at)[0])
            at += size
        m.printed.append(re.sub("ll", "", text) % tuple(args))
    return np.zeros(m.threads, np.uint32)


def _signed(values: Array) -> Array:
    return values.view(np.dtype(f"i{values.dtype.itemsize}"))


def _of_signed(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, b: function(_signed(a), _signed(b)).view(a.dtype)


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float64:
        from stator.tile.interpret.compute import _fma_exactly

        return np.asarray(_fma_exactly(a, b, c))
    wide = [v.astype(np.float64) for v in (a, b, c)]
    return fused(*wide).astype(a.dtype)


def _count(function: Callable[[int, int], int]) -> Callable[..., Array]:
    return lambda a, *_: np.array([function(int(v), 8 * a.dtype.itemsize) for v in a], a.dtype)


def _brev(number: int, bits: int) -> int:
    return int(f"{number:0{bits}b}"[::-1], 2)


def _fshl(a: Array, b: Array, c: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    return np.array(
        [
            ((int(x) << bits | int(y)) << int(n) % bits >> bits) & ((1 << bits) - 1)
            for x, y, n in zip(a, b, c, strict=True)
        ],
        a.dtype,
    )


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "fabs": np.abs, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint,
    "round": lambda a: np.copysign(np.floor(np.abs(a)) + (np.abs(a) - np.floor(np.abs(a)) >= 0.5), a),
    "minnum": np.fmin, "maxnum": np.fmax, "minimum": np.minimum, "maximum": np.maximum, "copysign": np.copysign,
    "fma": _fma, "smin": _of_signed(np.minimum), "smax": _of_signed(np.maximum), "umin": np.minimum,
    "umax": np.maximum, "abs": lambda a, *_: np.abs(_signed(a)).view(a.dtype),
    "ctpop": _count(lambda v, bits: v.bit_count()), "ctlz": _count(lambda v, bits: bits - v.bit_length()),
    "cttz": _count(lambda v, bits: (v & -v).bit_length() - 1 if v else bits), "bitreverse": _count(_brev),
    "fshl": _fshl,
}  # fmt: skip
