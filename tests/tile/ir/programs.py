"""Random functions of tile IR: the same program for any builder, so that both ways of running it can be compared.

What a program does depends on its seed and on types alone. It reads and writes one memory of f32 and one of i32;
control flow goes through `Control`, which the IR has as operations and the eager builder as Python's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from stator.tile.interpret.eager import EagerBuilder
from stator.tile.ir.build import IRBuilder, new_function
from stator.tile.ir.core import Function, Module
from stator.tile.ir.types import DTYPES, F32, I1, I32, Pointer, Type

#: So many elements each memory of a program has.
SIZE = 64
PARAMS = {"x": Type(Pointer(F32)), "y": Type(Pointer(I32)), "n": Type(I32)}
_DTYPES = [DTYPES[name] for name in "i8 u8 i32 u32 i64 f16 bf16 f32 f64".split()]
_SHAPES = [(), (8,), (4, 8), (1, 8), (4, 1)]
_BINARY = {
    "float": ["add", "sub", "mul", "div", "minimum", "maximum", "rem"],
    "int": ["add", "sub", "mul", "idiv", "rem", "and", "or", "xor", "shl", "shr", "minimum"],
    "uint": ["add", "mul", "idiv", "rem", "and", "xor", "shr", "maximum"],
}
_UNARY = {
    "float": ["neg", "abs", "floor", "sqrt", "exp2", "sin"],
    "int": ["neg", "abs", "not"],
    "uint": ["neg", "not"],
}


class Control(Protocol):
    """Control flow, and what is emitted in it."""

    builder: Any

    def if_(self, condition: Any, branches: Sequence[Callable[[], Any]]) -> Any: ...
    def for_(self, count: int, start: Any, body: Callable[[Any, Any], Any]) -> Any: ...
    def while_(self, start: Sequence[Any], test: Callable[..., Any], body: Callable[..., Sequence[Any]]) -> Any: ...


class Structured:
    """Operations of the IR."""

    def __init__(self, builder: IRBuilder) -> None:
        self.builder = builder

    def if_(self, condition: Any, branches: Sequence[Callable[[], Any]]) -> Any:
        return self.builder.emit("if", [condition], {}, [self._region([], branch) for branch in branches])[0]

    def for_(self, count: int, start: Any, body: Callable[[Any, Any], Any]) -> Any:
        bounds = [self.builder.emit("constant", [], {"value": v, "type": Type(I32)})[0] for v in (0, count, 1)]
        region = self._region([Type(I32), start.type], body)
        return self.builder.emit("for", [*bounds, start], {}, [region])[0]

    def while_(self, start: Sequence[Any], test: Callable[..., Any], body: Callable[..., Sequence[Any]]) -> Any:
        types = [value.type for value in start]
        with self.builder.inside(self.builder.block_of(types)) as condition:
            self.builder.emit("condition", [test(*condition.args), *condition.args])
        with self.builder.inside(self.builder.block_of(types)) as block:
            self.builder.emit("yield", body(*block.args))
        return self.builder.emit("while", start, {}, [condition, block])[-1]

    def _region(self, types: Sequence[Type], body: Callable[..., Any]) -> Any:
        with self.builder.inside(self.builder.block_of(types)) as block:
            self.builder.emit("yield", [body(*block.args)])
        return block


class Direct:
    """Python's own control flow."""

    def __init__(self, builder: EagerBuilder) -> None:
        self.builder = builder

    def if_(self, condition: Any, branches: Sequence[Callable[[], Any]]) -> Any:
        return branches[0 if condition.item() else 1]()

    def for_(self, count: int, start: Any, body: Callable[[Any, Any], Any]) -> Any:
        for i in range(count):
            start = body(self.builder.emit("constant", [], {"value": i, "type": Type(I32)})[0], start)
        return start

    def while_(self, start: Sequence[Any], test: Callable[..., Any], body: Callable[..., Sequence[Any]]) -> Any:
        while test(*start).item():
            start = body(*start)
        return start[-1]


class Writer:
    """One program: what is known so far, and steps that add to it."""

    def __init__(self, seed: int, control: Control, known: Sequence[Any], memory: Sequence[Any]) -> None:
        self.random = random.Random(seed)
        self.control, self.known, self.memory = control, list(known), memory

    def emit(self, op: str, *operands: Any, **attrs: Any) -> Any:
        return self.control.builder.emit(op, operands, attrs)[0]

    def pick(self, accepts: Callable[[Type], bool] = lambda type_: True) -> Any:
        """A value of a type that is accepted; made anew where there is none."""
        found = [value for value in self.known if not value.type.is_pointer and accepts(value.type)]
        if found:
            return self.random.choice(found)
        return self.random.choice([v for v in self.made() if accepts(v.type)])

    def made(self) -> list[Any]:
        types = [Type(dtype, shape) for dtype in (F32, I32) for shape in _SHAPES]
        return [self.constant(type_, 1 + i) for i, type_ in enumerate(types)]

    def constant(self, type_: Type, number: int) -> Any:
        return self.emit("constant", type=type_, value=float(number) if type_.element.is_float else number)

    def same(self, value: Any) -> Any:
        """Another value of the same type."""
        return self.random.choice([v for v in self.known if v.type == value.type])

    def steps(self, count: int, depth: int = 0) -> None:
        kinds = [
            self.unary, self.binary, self.choice, self.cast, self.shape, self.pair, self.along, self.together,
            self.product, self.count, self.access, self.change,
        ]  # fmt: skip
        flow = [self.branch, self.loop, self.countdown] if depth < 2 else []
        for _ in range(count):
            kind = self.random.choice([*kinds, *flow])
            self.known.append(kind(depth) if kind in flow else kind())

    def unary(self) -> Any:
        value = self.pick(lambda type_: type_.element != I1)
        return self.emit(self.random.choice(_UNARY[value.type.element.kind]), value)

    def binary(self) -> Any:
        value = self.pick(lambda type_: type_.element != I1)
        return self.emit(self.random.choice(_BINARY[value.type.element.kind]), value, self.same(value))

    def choice(self) -> Any:
        value = self.pick()
        other = self.same(value)
        condition = self.emit(self.random.choice(["lt", "ge", "ne"]), value, other)
        return self.emit("select", condition, other, value)

    def cast(self) -> Any:
        return self.emit("cast", self.pick(), dtype=self.random.choice(_DTYPES))

    def shape(self) -> Any:
        value = self.pick()
        shape = value.type.shape
        match len(shape):
            case 0:
                return self.emit("splat", value, shape=self.random.choice(_SHAPES[1:]))
            case 1:
                return self.emit("expand_dims", value, axis=0)
        if shape in _SHAPES[3:]:
            return self.emit("broadcast", value, shape=(4, 8))
        turned = self.emit("permute", value, order=(1, 0))
        return self.emit("reshape", turned, shape=shape)

    def along(self) -> Any:
        value = self.pick(lambda type_: type_.rank > 0 and type_.element != I1)
        axis = self.random.randrange(value.type.rank)
        if self.random.random() < 0.3:
            return self.emit("sort", value, axis=axis, descending=self.random.random() < 0.5)
        op = self.random.choice(["add", "minimum", "maximum"])
        scalar, builder = Type(value.type.element), self.control.builder
        region = builder.region([scalar] * 2, lambda a, b: builder.emit(op, [a, b]))
        if self.random.random() < 0.5:
            return builder.emit("scan", [value], {"axis": axis, "reverse": self.random.random() < 0.5}, [region])[0]
        return builder.emit("reduce", [value], {"axis": axis}, [region])[0]

    def pair(self) -> Any:
        """Two values in one, or the halves of it the other way round."""
        value = self.pick(lambda type_: type_.rank < 3)
        joined = self.emit("join", value, self.same(value))
        if self.random.random() < 0.3 and joined.type.rank == 2:
            return self.emit("cat", joined, joined)
        first, second = self.control.builder.emit("split", [joined])
        return self.random.choice([first, second])

    def together(self) -> Any:
        """Two values reduced by a body that mixes them."""
        value = self.pick(lambda type_: type_.rank > 0 and type_.element in (F32, I32))
        other, builder, scalar = self.same(value), self.control.builder, Type(value.type.element)

        def body(a: Any, b: Any, c: Any, d: Any) -> list[Any]:
            first = builder.emit("lt", [a, c])[0]
            return [builder.emit("select", [first, a, c])[0], builder.emit("select", [first, b, d])[0]]

        region = builder.region([scalar] * 4, body)
        return builder.emit("reduce", [value, other], {"axis": value.type.rank - 1}, [region])[1]

    def product(self) -> Any:
        """A row times itself, as matrices."""
        value = self.pick(lambda type_: type_.shape == (4, 8))
        numbers = self.emit("cast", value, dtype=self.random.choice([DTYPES["f16"], F32]))
        turned = self.emit("permute", numbers, order=(1, 0))
        start = self.constant(Type(F32, (4, 4)), 1)
        return self.emit("dot", numbers, turned, start, precision=self.random.choice(["ieee", "tf32", "bf16x3"]))

    def count(self) -> Any:
        value = self.emit("cast", self.pick(lambda type_: type_.rank == 1), dtype=I32)
        eight = self.constant(value.type, 7)
        inside = self.emit("and", value, eight)
        gathered = self.emit(
            "gather", value, self.emit("rem", inside, self.constant(value.type, value.type.numel)), axis=0
        )
        return self.emit("add", self.emit("histogram", gathered, bins=8), self.constant(Type(I32, (8,)), 3))

    def places(self, memory: Any) -> tuple[Any, Any]:
        """Pointers to places that a value says, all of which are in memory, and a mask."""
        index = self.emit("cast", self.pick(), dtype=I32)
        inside = self.emit("and", index, self.constant(index.type, SIZE - 1))
        if index.type.shape:
            memory = self.emit("splat", memory, shape=index.type.shape)
        return self.emit("addptr", memory, inside), self.emit("gt", index, inside)

    def change(self) -> Any:
        """An atomic."""
        place, mask = self.places(self.memory[1])
        value = self.constant(Type(I32, place.type.shape), 3)
        if self.random.random() < 0.2:
            return self.emit("atomic_cas", place, value, self.constant(value.type, 5))
        return self.emit("atomic_rmw", place, value, mask, kind=self.random.choice(["add", "max", "xor", "xchg"]))

    def access(self) -> Any:
        """A load and a store."""
        place, mask = self.places(self.random.choice(self.memory))
        loaded = self.emit("load", place, mask)
        self.control.builder.emit("store", [place, self.emit("add", loaded, loaded), mask])
        return self.emit("load", place)

    def branch(self, depth: int) -> Any:
        value = self.pick(lambda type_: type_.is_scalar)
        condition = self.emit("le", value, self.same(value))
        seeds, result = [self.random.random() for _ in range(2)], self.pick().type
        return self.control.if_(condition, [lambda seed=seed: self.nested(seed, result, [], depth) for seed in seeds])

    def loop(self, depth: int) -> Any:
        start, seed = self.pick(), self.random.random()
        return self.control.for_(
            self.random.randrange(4), start, lambda i, carried: self.nested(seed, start.type, [i, carried], depth)
        )

    def countdown(self, depth: int) -> Any:
        """A loop that ends after as many turns as the lower bits of a number say."""
        start, seed = self.pick(), self.random.random()
        number = self.emit("cast", self.pick(lambda type_: type_.is_scalar), dtype=I32)
        turns = self.emit("and", number, self.constant(Type(I32), 3))

        def test(left: Any, carried: Any) -> Any:
            return self.emit("gt", left, self.constant(Type(I32), 0))

        def body(left: Any, carried: Any) -> list[Any]:
            fewer = self.emit("sub", left, self.constant(Type(I32), 1))
            return [fewer, self.nested(seed, start.type, [left, carried], depth)]

        return self.control.while_([turns, start], test, body)

    def nested(self, seed: float, result: Type, more: Sequence[Any], depth: int) -> Any:
        inner = Writer(0, self.control, [*self.known, *more], self.memory)
        inner.random.seed(seed)
        inner.steps(3, depth + 1)
        return inner.random.choice([value for value in inner.known if value.type == result])


def write(seed: int, control: Control, params: Sequence[Any], count: int = 12) -> None:
    """A program whose last values are stored."""
    *memory, n = params
    writer = Writer(seed, control, [n], memory)
    writer.known += writer.made()
    writer.steps(count)
    for place, value in enumerate(writer.known[-8:]):
        total = value
        for _ in range(value.type.rank):
            region = control.builder.region([value.type.scalar] * 2, lambda a, b: [b])
            total = control.builder.emit("reduce", [total], {"axis": 0}, [region])[0]
        number = writer.emit("cast", total, dtype=F32)
        at = writer.emit("addptr", memory[0], writer.emit("constant", type=Type(I32), value=place))
        control.builder.emit("store", [at, number])


def random_module(seed: int) -> tuple[Module, Function]:
    """A module with one program, `main`."""
    module = Module()
    function, builder = new_function(module, "main", PARAMS)
    write(seed, Structured(builder), function.params)
    builder.emit("return")
    return module, function
