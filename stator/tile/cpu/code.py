"""Text of LLVM as it is written: values and blocks with fresh names, loops, and the operations of one width.

`Code` is one function's text. `Maker` writes operations on numbers (width 0) or on vectors of so many lanes, so that
whoever writes a formula need not know which. Names of operands are texts: `%7`, or a constant.
Neighbours: `lanes` has what values are, `elementwise` and `formulas` write with a `Maker`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stator.tile.cpu.folding import Conversion, compared, converted, folded

_SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}


def literal(type_: str, value: float | int | bool) -> str:
    """A number as LLVM spells it."""
    if type_ in ("float", "double", "half"):
        number = float(value)
        if type_ == "float":
            (number,) = struct.unpack("f", struct.pack("f", number))
        if type_ == "half":
            return f"0xH{struct.unpack('H', struct.pack('e', number))[0]:04X}"
        return f"0x{struct.unpack('Q', struct.pack('d', number))[0]:016X}"
    if type_ == "i1":
        return "true" if value else "false"
    return str(int(value))


class Code:
    """The text of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.entry: list[str] = []  # what stands before everything: memory for what changes
        self.declared: dict[str, str] = {}
        self.constants: dict[str, str] = {}
        self.label = "start"
        self._next = 0
        self._known: dict[str, str] = {}  # the text of an instruction of this block that only computes → its name
        self._known_at_entry: dict[str, str] = {}
        self._conversions: dict[str, Conversion] = {}

    def fresh(self, name: str = "v") -> str:
        self._next += 1
        return f"{name}{self._next}"

    def value(self, text: str) -> str:
        """A name for what an instruction gives: where it can be, a number, of which LLVM keeps no text."""
        self._next += 1
        name = f"%e{self._next}" if self.lines is self.entry else f"%{self._next}"
        self.lines.append(f"  {name} = {text}")
        return name

    def pure(self, text: str) -> str:
        """The same for an instruction that only computes: that of an equal one before it in the block, if there is."""
        known = self._known_at_entry if self.lines is self.entry else self._known
        found = known.get(text) or self._known_at_entry.get(text)
        if found is None:
            found = known[text] = self.value(text)
        return found

    def convert(self, name: str, source: str, target: str, value: str) -> str:
        """A conversion of a single number."""
        found = converted(name, source, target, value, self._conversions.get(value))
        if found is None:
            found = self.pure(f"{name} {source} {value} to {target}")
            self._conversions[found] = Conversion(name, source, value)
        return found

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label
        self._known = {}

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def memory(self, type_: str, count: int = 1, align: int = 64) -> str:
        """Memory of this function, whose address it gives; for what LLVM makes registers of."""
        name = f"%{self.fresh('m')}"
        size = "" if count == 1 else f", i64 {count}"
        self.entry.append(f"  {name} = alloca {type_}{size}, align {align}")
        return name

    def load(self, type_: str, address: str) -> str:
        return self.value(f"load {type_}, ptr {address}")

    def store(self, type_: str, value: str, address: str) -> None:
        self.do(f"store {type_} {value}, ptr {address}")

    def call(self, result: str, name: str, *args: tuple[str, str], attributes: str = "") -> str:
        """What a function gives, which is declared by the types of this call; nothing for `void`."""
        text = self._call(result, name, args, attributes)
        if result == "void":
            self.do(text)
            return ""
        return self.value(text)

    def computed(self, result: str, name: str, *args: tuple[str, str], attributes: str = "") -> str:
        """What a function gives that only computes."""
        return self.pure(self._call(result, name, args, attributes))

    def _call(self, result: str, name: str, args: Sequence[tuple[str, str]], attributes: str) -> str:
        if name not in self.declared:
            types = ", ".join([type_ for type_, _ in args])
            self.declared[name] = f"declare {result} @{name}({types}){attributes}"
        return f"call {result} @{name}({', '.join([f'{type_} {value}' for type_, value in args])})"

    def at(self, base: str, index: str, type_: str) -> str:
        """The address of an element behind another."""
        return self.value(f"getelementptr {type_}, ptr {base}, i64 {index}")

    def table(self, name: str, type_: str, values: Sequence[float | int]) -> str:
        """A constant array."""
        items = ", ".join([f"{type_} {literal(type_, value)}" for value in values])
        self.constants[name] = f"@{name} = private constant [{len(values)} x {type_}] [{items}], align 64"
        return f"@{name}"

    @contextmanager
    def loop(self, lower: str, upper: str, step: int = 1) -> Iterator[str]:
        """Counts from one i64 up to another."""
        before, head, body, latch, end = self.label, *[self.fresh(name) for name in ("head", "body", "latch", "end")]
        self.jump(head)
        self.block(head)
        index, after = f"%{self.fresh('i')}", f"%{self.fresh('i')}"
        self.do(f"{index} = phi i64 [{lower}, %{before}], [{after}, %{latch}]")
        self.branch(self.value(f"icmp slt i64 {index}, {upper}"), body, end)
        self.block(body)
        yield index
        self.jump(latch)
        self.block(latch)
        self.do(f"{after} = add nsw i64 {index}, {step}")
        self.jump(head)
        self.block(end)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Only if a condition holds."""
        then, end = self.fresh("then"), self.fresh("end")
        self.branch(condition, then, end)
        self.block(then)
        yield
        self.jump(end)
        self.block(end)


class Maker:
    """Writes operations on `width` lanes, or on single numbers if that is 0."""

    def __init__(self, code: Code, width: int) -> None:
        self.code, self.width = code, width

    def type(self, scalar: str) -> str:
        return f"<{self.width} x {scalar}>" if self.width else scalar

    def number(self, type_: str, value: float | int | bool) -> str:
        text = literal(type_, value)
        return f"splat ({type_} {text})" if self.width else text

    def op(self, name: str, type_: str, *args: str) -> str:
        """An instruction on operands of one type."""
        has_constant = args[-1][0] != "%" or args[0][0] != "%"
        found = folded(name, type_, args) if has_constant and not self.width else None
        return found or self.code.pure(f"{name} {self.type(type_)} {', '.join(args)}")

    def compare(self, predicate: str, type_: str, a: str, b: str) -> str:
        found = None if self.width else compared(predicate, type_, a, b)
        name = "fcmp" if type_ in _SUFFIX else "icmp"
        return found or self.code.pure(f"{name} {predicate} {self.type(type_)} {a}, {b}")

    def select(self, condition: str, type_: str, a: str, b: str) -> str:
        if a == b or condition in ("true", "false"):
            return b if condition == "false" else a
        kind = self.type(type_)
        return self.code.pure(f"select {self.type('i1')} {condition}, {kind} {a}, {kind} {b}")

    def convert(self, name: str, source: str, target: str, value: str) -> str:
        """An instruction that gives another type."""
        return self.code.convert(name, self.type(source), self.type(target), value)

    def suffix(self, type_: str) -> str:
        plain = _SUFFIX.get(type_, type_)
        return f"v{self.width}{plain}" if self.width else plain

    def intrinsic(self, name: str, type_: str, *args: str, flag: str | None = None) -> str:
        """A function of LLVM on operands of one type, which it gives too."""
        kind = self.type(type_)
        given = [(kind, arg) for arg in args] + ([("i1", flag)] if flag is not None else [])
        return self.code.computed(kind, f"llvm.{name}.{self.suffix(type_)}", *given)

    def bits(self, source: str, target: str, value: str) -> str:
        return self.convert("bitcast", source, target, value)

    def fma(self, type_: str, a: str, b: str, c: str) -> str:
        return self.intrinsic("fma", type_, a, b, c)

    def to_bfloat(self, value: str) -> str:
        """f32 numbers rounded to those that bf16 has."""
        bits = self.bits("float", "i32", value)
        odd = self.op("and", "i32", self.op("lshr", "i32", bits, self.number("i32", 16)), self.number("i32", 1))
        up = self.op("add", "i32", self.op("add", "i32", bits, self.number("i32", 0x7FFF)), odd)
        quiet = self.op("or", "i32", bits, self.number("i32", 0x400000))
        found = self.select(self.compare("uno", "float", value, value), "i32", quiet, up)
        return self.bits("i32", "float", self.op("and", "i32", found, self.number("i32", -65536)))

    def polynomial(self, type_: str, x: str, coefficients: Sequence[float]) -> str:
        """By Horner's rule; the coefficient of the highest power is the last."""
        found = self.number(type_, coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            found = self.fma(type_, found, x, self.number(type_, coefficient))
        return found

    def each(self, name: str, result: str, *args: tuple[str, str]) -> str:
        """A function of single numbers, for lane after lane."""
        attributes = " nounwind memory(none)"
        if not self.width:
            return self.code.computed(result, name, *args, attributes=attributes)
        found = "poison"
        for lane in range(self.width):
            single = [(t, self.code.value(f"extractelement {self.type(t)} {v}, i32 {lane}")) for t, v in args]
            given = self.code.call(result, name, *single, attributes=attributes)
            found = self.code.value(f"insertelement {self.type(result)} {found}, {result} {given}, i32 {lane}")
        return found

    def splat(self, type_: str, value: str) -> str:
        """A number in all lanes."""
        if not self.width:
            return value
        if value[0] not in "%@":
            return f"splat ({type_} {value})"
        kind = self.type(type_)
        first = self.code.value(f"insertelement {kind} poison, {type_} {value}, i64 0")
        return self.code.value(f"shufflevector {kind} {first}, {kind} poison, <{self.width} x i32> zeroinitializer")

    def iota(self, type_: str, step: int = 1) -> str:
        """0, 1, 2, … in the lanes, or so many times as much."""
        if not self.width:
            return literal(type_, 0)
        return "<" + ", ".join([f"{type_} {literal(type_, lane * step)}" for lane in range(self.width)]) + ">"
