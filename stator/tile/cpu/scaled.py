"""`dot_scaled` as operators that there is code for: operands become f32 times their scales, then they are multiplied.

An operand's scale is 2 ** (u8 - 127), 255 is a NaN; so many elements of the inner axis share one. Two e2m1 share a
byte, of which the lower bits are the first. Neighbours: `prepare` calls this while it copies.
"""

from __future__ import annotations

from typing import Any

from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Operation, Value
from stator.tile.ir.rules import SCALE_GROUP
from stator.tile.ir.types import F32, I32, Type

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class Scaled:
    """Emits the operators of one `dot_scaled`."""

    def __init__(self, builder: IRBuilder, operation: Operation, operands: list[Value]) -> None:
        self.builder, self.operation = builder, operation
        self.operands = operands

    def emit(self, op: str, *operands: Value, **attrs: Any) -> Value:
        (found,) = self.builder.emit(op, operands, attrs, location=self.operation.location)
        return found

    def number(self, value: float | int, type_: Type) -> Value:
        return self.emit("constant", value=value, type=type_)

    def product(self) -> Value:
        a, b, acc, *scales = self.operands
        sides = []
        for name, side, inner in (("a", a, 1), ("b", b, 0)):
            numbers = self.numbers(name, side, inner)
            if self.operation.attrs[f"scale_{name}"]:
                numbers = self.emit("mul", numbers, self.scale(scales.pop(0), inner))
            sides.append(numbers)
        return self.emit("dot", *sides, acc, precision="ieee")

    def numbers(self, name: str, value: Value, inner: int) -> Value:
        if self.operation.attrs[f"format_{name}"] != "e2m1":
            return self.emit("cast", value, dtype=F32) if value.type.element != F32 else value
        axis = inner if self.operation.attrs[f"pack_{name}"] == "inner" else 1 - inner
        four, low = (self.number(bits, value.type) for bits in (4, 15))
        halves = [self.e2m1(self.emit("and", value, low)), self.e2m1(self.emit("shr", value, four))]
        both = self.emit("join", *halves)
        rows, columns = value.type.shape
        if axis == 1:
            return self.emit("reshape", both, shape=(rows, 2 * columns))
        return self.emit("reshape", self.emit("permute", both, order=(0, 2, 1)), shape=(2 * rows, columns))

    def e2m1(self, bits: Value) -> Value:
        """The numbers of four bits."""
        floats = bits.type.of(F32)
        magnitude = self.emit("and", bits, self.number(7, bits.type))
        found = self.number(_E2M1[0], floats)
        for place, number in enumerate(_E2M1[1:], 1):
            here = self.emit("eq", magnitude, self.number(place, bits.type))
            found = self.emit("select", here, self.number(number, floats), found)
        negative = self.emit("ge", bits, self.number(8, bits.type))
        return self.emit("select", negative, self.emit("neg", found), found)

    def scale(self, exponent: Value, inner: int) -> Value:
        """2 to the powers, as many as there are elements."""
        whole = exponent.type.of(I32)
        wide = self.emit("cast", exponent, dtype=I32)
        bits = self.emit("shl", wide, self.number(23, whole))
        for special, found in ((0, 1 << 22), (255, 0x7FC00000)):
            here = self.emit("eq", wide, self.number(special, whole))
            bits = self.emit("select", here, self.number(found, whole), bits)
        factor = self.emit("bitcast", bits, dtype=F32)
        rows, groups = exponent.type.shape
        spread = self.emit("broadcast", self.emit("expand_dims", factor, axis=2), shape=(rows, groups, SCALE_GROUP))
        each = self.emit("reshape", spread, shape=(rows, groups * SCALE_GROUP))
        return each if inner == 1 else self.emit("permute", each, order=(1, 0))
