"""The instructions of PTX that code for GPUs has in it, on numpy arrays of all threads."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from stator.tile.interpret import libdevice
from stator.tile.interpret.casts import narrow
from stator.tile.ir.externs import EXTERNS
from stator.tile.ir.types import DTYPES, F32, F64, I32, I64, Type
from tests.tile.nvidia.numbers import numpy_of

Array = Any


class Assembly:
    """Runs the text of one call: statements one after the other, on its operands by number."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine
        self.groups: list[list[tuple[Array, Array, Array]]] = [[]]

    def run(self, text: str, result: str, args: list[tuple[str, Array]], constraints: str = "") -> Any:
        types = [] if result == "void" else re.findall(r"\w+", result)
        m = self.machine
        text = text.replace("\\5C", "\\").replace("\\0A", "\n")
        registers: dict[int, Any] = {len(types) + i: value for i, (_, value) in enumerate(args)}
        inputs = [each for each in constraints.split(",") if not each.startswith(("=", "~"))]
        for (_, value), constraint in zip(args, inputs, strict=False):
            if constraint.isdigit():  # where a result is to be
                registers[int(constraint)] = value
        for statement in text.split(";"):
            statement = statement.strip()
            if statement:
                self._statement(statement, registers, types)
        found = [registers[i].view(numpy_of(type_)) for i, type_ in enumerate(types)]
        return found[0] if len(found) == 1 else tuple(found) if found else m

    def _statement(self, text: str, registers: dict[int, Any], types: list[str]) -> None:
        m = self.machine
        mask = m.mask
        match = re.match(r"@\$(\d+) (.*)$", text)
        if match is not None:
            mask = mask & registers[int(match.group(1))]
            text = match.group(2)
        name, _, rest = text.partition(" ")
        numbers = [int(n) for n in re.findall(r"\$(\d+)", rest)]
        kind = name.split(".")[0]
        match kind:
            case "mov":
                registers[numbers[0]] = registers[numbers[1]].copy()
            case "ld":
                *into, address = numbers
                size = int(name.rsplit(".b", 1)[1]) // 8
                data = m.load(registers[address], size * len(into), mask)
                for place, number in enumerate(into):
                    new = _number(data[:, place * size : (place + 1) * size])
                    old = registers.get(number, np.zeros_like(new))
                    registers[number] = np.where(mask, new, old)
            case "st":
                size = int(name.rsplit(".b", 1)[1]) // 8
                address, *values = numbers
                data = np.concatenate([_bytes(registers[number])[:, :size] for number in values], axis=1)
                m.store(registers[address], data, mask)
            case "red":
                self._add(registers[numbers[0]], [registers[number] for number in numbers[1:]], mask)
            case "cp":
                self._copy(text, numbers, registers, mask)
            case "ldmatrix":
                self._matrices(name, numbers, registers)
            case "mma":
                self._mma(name, numbers, registers)
            case "wgmma" | "fence":
                m.groups.statement(name, rest, registers)
            case _ if (kind, name) and name in SIMPLE:
                result, *given = numbers
                with np.errstate(all="ignore"):
                    registers[result] = SIMPLE[name](*[registers[number] for number in given])
            case _:
                raise NotImplementedError(f"instruction {text}")

    def _add(self, address: Array, values: list[Array], mask: Array) -> None:
        """Neighbours in f32, by one thread after the other."""
        m, width = self.machine, 4 * len(values)
        for thread in np.nonzero(mask)[0]:
            one = np.zeros_like(mask)
            one[thread] = True
            assert not address[thread] % width, "neighbours that are added at once lie at a multiple of their bytes"
            old = m.load(address, width, one).view(np.float32)
            m.store(address, (old + np.stack(values, 1)).astype(np.float32).view(np.uint8), one)

    def _copy(self, text: str, numbers: list[int], registers: dict[int, Any], mask: Array) -> None:
        """What is copied arrives when it is waited for, and not before."""
        m = self.machine
        if text.startswith("cp.async.commit_group"):
            self.groups.append([])
        elif text.startswith("cp.async.wait_group"):
            pending = int(text.split()[-1])
            while len(self.groups) > pending + 1:
                for address, data, who in self.groups.pop(0):
                    m.store(address, data, who)
        else:
            nbytes = int(re.findall(r", (\d+)(?:,|$)", text)[0])
            size = registers[numbers[2]] if len(numbers) > 2 else np.full(m.threads, nbytes)
            data = m.load(registers[numbers[1]], nbytes, mask & (size > 0))
            m.groups.check_copy(registers[numbers[0]], nbytes, mask)
            self.groups[-1].append((registers[numbers[0]].copy(), data, mask.copy()))

    def _matrices(self, name: str, numbers: list[int], registers: dict[int, Any]) -> None:
        """Lane t has two neighbours of row t / 4 of each matrix of 8 by 8, or of its transpose."""
        m = self.machine
        if not m.mask.all():
            raise AssertionError("a load of matrices that not all threads meet")
        *outs, address = numbers
        givers = (np.arange(m.threads) & 31) < 8 * len(outs)
        rows = m.load(registers[address], 16, givers).view(np.uint16)
        lane = np.arange(32)
        for place, number in enumerate(outs):
            found = np.zeros((m.threads, 2), np.uint16)
            for warp in range(m.threads // 32):
                matrix = rows[warp * 32 + 8 * place : warp * 32 + 8 * place + 8]
                matrix = matrix.T if ".trans" in name else matrix
                for i in range(2):
                    found[warp * 32 + lane, i] = matrix[lane >> 2, 2 * (lane & 3) + i]
            registers[number] = found.view(np.uint32).reshape(-1)

    def _mma(self, name: str, numbers: list[int], registers: dict[int, Any]) -> None:
        m = self.machine
        if not m.mask.all():
            raise AssertionError("an instruction of tensor cores that not all threads meet")
        _, inner, *_ = re.match(r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.(.*)$", name).group(0, 1)  # type: ignore[union-attr]
        inner = int(inner)
        left = name.split(".")[-2]
        width = inner // 8
        decode = {"f16": _halves, "bf16": _brains, "tf32": _tf32, "s8": _signed_bytes, "u8": _unsigned_bytes}[left]
        outs, a, b, c = numbers[:4], numbers[4:8], numbers[8:10], numbers[10:14]
        a_words, b_words = [decode(registers[n]) for n in a], [decode(registers[n]) for n in b]
        sums = [registers[n] for n in c]
        found = [s.copy() for s in sums]
        for warp in range(m.threads // 32):
            lanes = np.arange(32)
            thread = warp * 32 + lanes
            group, pair = lanes >> 2, lanes & 3
            left_tile, right_tile = np.zeros((16, inner)), np.zeros((inner, 8))
            for place, word in enumerate(a_words):
                for i in range(width):
                    row = group + 8 * (place & 1)
                    column = pair * width + i + (place >> 1) * 4 * width
                    left_tile[row, column] = word[thread, i]
            for place, word in enumerate(b_words):
                for i in range(width):
                    right_tile[pair * width + i + place * 4 * width, group] = word[thread, i]
            product = left_tile @ right_tile
            for place in range(4):
                row, column = group + 8 * (place >> 1), pair * 2 + (place & 1)
                total = product[row, column] + _plain(sums[place])[thread]
                found[place][thread] = (
                    total.astype(np.int64).astype(np.uint32) if sums[place].dtype == np.uint32 else total
                )
        for number, value in zip(outs, found, strict=True):
            registers[number] = value


def _plain(values: Array) -> Array:
    return values.view(np.int32).astype(np.float64) if values.dtype == np.uint32 else values.astype(np.float64)


def _bytes(values: Array) -> Array:
    return np.ascontiguousarray(values)[:, None].view(np.uint8).reshape(len(values), -1)


def _number(data: Array) -> Array:
    size = data.shape[1]
    found = np.ascontiguousarray(data).view(np.dtype(f"u{size}")).reshape(-1)
    return found.astype(np.uint16) if size == 1 else found


def _halves(word: Array) -> Array:
    return np.ascontiguousarray(word)[:, None].view(np.float16).astype(np.float64)


def _brains(word: Array) -> Array:
    halves = np.ascontiguousarray(word)[:, None].view(np.uint16).astype(np.uint32) << 16
    return halves.view(np.float32).astype(np.float64)


def _tf32(word: Array) -> Array:
    return (
        np.ascontiguousarray(word.view(np.uint32) & np.uint32(0xFFFFE000))[:, None].view(np.float32).astype(np.float64)
    )


def _signed_bytes(word: Array) -> Array:
    return np.ascontiguousarray(word)[:, None].view(np.int8).astype(np.float64)


def _unsigned_bytes(word: Array) -> Array:
    return np.ascontiguousarray(word)[:, None].view(np.uint8).astype(np.float64)


def _to_tf32(value: Array) -> Array:
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded, bits)


def _fp8(name: str) -> Any:
    dtype = DTYPES[name]

    def row(high: Array, low: Array) -> Array:
        return narrow(low, dtype).view(np.uint8).astype(np.uint16)

    return row


def _from_fp8(name: str) -> Any:
    def row(both: Array) -> Array:
        numbers = (both & 255).astype(np.uint8).view(DTYPES[name].numpy).astype(np.float16)
        return numbers.view(np.uint16).astype(np.uint32)

    return row


def _directed() -> dict[str, Any]:
    """Instructions that round in a direction, as libdevice's functions of it."""
    found: dict[str, Any] = {}
    ways = {"rn": "rn", "rz": "rz", "rm": "rd", "rp": "ru"}
    for way, name in ways.items():
        for dtype in (F32, F64):
            for op, count in {"add": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}.items():
                symbol = f"{op}_{name}"
                found[f"{op}.{way}.f{dtype.bits}"] = lambda *a, s=symbol, d=dtype, n=count: libdevice.call(
                    s, [Type(d)] * n, Type(d), *a
                )
        integers = {"s32": ("int", I32), "u32": ("uint", I32), "s64": ("ll", I64), "u64": ("ull", I64)}
        for short, (kind, result) in integers.items():
            for floating, dtype in (("float", F32), ("double", F64)):
                symbol = f"{floating}2{kind}_{name}"
                found[f"cvt.{way}i.{short}.f{dtype.bits}"] = lambda a, s=symbol, d=dtype, r=result: libdevice.call(
                    s, [Type(d)], Type(r), a
                ).view(np.dtype(f"u{r.itemsize}"))
                back = f"{kind}2{floating}_{name}"
                if back in EXTERNS:
                    sign = np.dtype(("i" if kind in ("int", "ll") else "u") + str(result.itemsize))
                    found[f"cvt.{way}.f{dtype.bits}.{short}"] = lambda a, s=back, d=dtype, t=sign, r=result: (
                        libdevice.call(s, [Type(r)], Type(d), a.view(t))
                    )
        found[f"cvt.{way}.f32.f64"] = lambda a, s=f"double2float_{name}": libdevice.call(s, [Type(F64)], Type(F32), a)
    return found


def _permuted(a: Array, b: Array, selector: Array) -> Array:
    found = libdevice.call("byte_perm", [Type(I32)] * 3, Type(I32), *[item.view(np.int32) for item in (a, b, selector)])
    return found.view(np.uint32)


def _to_bfloats(high: Array, low: Array) -> Array:
    first, second = (narrow(item, DTYPES["bf16"]).view(np.uint16).astype(np.uint32) for item in (high, low))
    return first << np.uint32(16) | second


def _of_bfloats(op: Any) -> Any:
    """An operation on both halves of words, each rounded once: f64 has the exact result."""

    def row(a: Array, b: Array) -> Array:
        halves = [(word << np.uint32(16), word & np.uint32(0xFFFF0000)) for word in (a, b)]
        found = [op(*[half.view(np.float32).astype(np.float64) for half in pair]) for pair in zip(*halves, strict=True)]
        low, high = (narrow(value, DTYPES["bf16"]).view(np.uint16).astype(np.uint32) for value in found)
        return high << np.uint32(16) | low

    return row


def _flushed(x: Array) -> Array:
    """What is below the normal numbers counts as 0."""
    value = x.view(np.float32)
    return np.where(np.abs(value) < np.float32(2.0**-126), np.copysign(np.float32(0), value), value)


def _reciprocal(x: Array) -> Array:
    return _flushed((1 / _flushed(x)).astype(np.float32))


def _power_of_two(x: Array) -> Array:
    return _flushed(np.exp2(_flushed(x).astype(np.float64)).astype(np.float32))


def _shifted(shift: Any, dtype: Any) -> Any:
    """Of 64 bits; the amount is unsigned, and of more than 63 bits all are gone, or are the sign."""

    def run(a: Array, amount: Array) -> Array:
        wide, by = a.view(dtype), amount.view(np.uint32)
        none = np.where(wide < 0, wide.dtype.type(-1), 0) if dtype is np.int64 and shift is np.right_shift else 0
        return np.where(by > 63, none, shift(wide, np.minimum(by, 63).astype(dtype))).astype(dtype).view(np.uint64)

    return run


SIMPLE = {
    "cvt.rn.bf16x2.f32": _to_bfloats,
    "cvt.rna.tf32.f32": _to_tf32,
    "ex2.approx.f32": lambda x: np.exp2(x.astype(np.float64)).astype(np.float32),
    "ex2.approx.ftz.f32": _power_of_two,
    "div.full.f32": lambda a, b: (a / b).astype(np.float32),
    "sqrt.approx.f32": np.sqrt,
    **{
        f"{op}.rn.bf16x2": _of_bfloats(each)
        for op, each in {"add": np.add, "sub": np.subtract, "mul": np.multiply}.items()
    },
    "rcp.approx.ftz.f32": _reciprocal,
    "rsqrt.approx.f32": lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(np.float32),
    "cvt.rn.satfinite.e4m3x2.f32": _fp8("f8e4nv"),
    "cvt.rn.satfinite.e5m2x2.f32": _fp8("f8e5"),
    "cvt.rn.f16x2.e4m3x2": _from_fp8("f8e4nv"),
    "cvt.rn.f16x2.e5m2x2": _from_fp8("f8e5"),
    "prmt.b32": _permuted,
    "mul.wide.u32": lambda a, b: a.view(np.uint32).astype(np.uint64) * b.view(np.uint32),
    "mul.wide.s32": lambda a, b: (a.view(np.int32).astype(np.int64) * b.view(np.int32)).view(np.uint64),
    "shl.b64": _shifted(np.left_shift, np.uint64),
    "shr.u64": _shifted(np.right_shift, np.uint64),
    "shr.s64": _shifted(np.right_shift, np.int64),
    **_directed(),
}
