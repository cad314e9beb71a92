"""Replacement code: signature kept, sources loaded before effects, identity and aliasing as in the program."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

from stator.capture.rewrite import Assembler
from stator.capture.source import (
    AttrSource,
    ClosureSource,
    ConstSource,
    FunctionClosureSource,
    FunctionDefaultSource,
    GlobalSource,
    GlobalsSource,
    InstanceDictSource,
    ItemSource,
    LocalSource,
    Source,
    TypeSource,
)
from stator.capture.value import Value

MARK = object()


class Constant(Value):
    def __init__(self, obj: Any) -> None:
        super().__init__()
        self.obj = obj

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.obj

    def reconstruct(self, out: Assembler) -> None:
        out.load_object(self.obj)


class Tensor(Value):
    def reconstruct(self, out: Assembler) -> None:
        out.load_output(id(self))


class Items(Value):
    def __init__(self, *items: Value) -> None:
        super().__init__()
        self.items = list(items)

    def reconstruct(self, out: Assembler) -> None:
        out.build("list", 0)
        out.remember(self)
        for item in self.items:
            out.call(list.append, self, item)
            out.pop()


class Effects:
    def __init__(self, *stores: tuple[Value, str, Value]) -> None:
        self.stores = stores

    def replay(self, out: Assembler) -> None:
        for target, name, value in self.stores:
            out.call(setattr, target, Constant(name), value)
            out.pop()


def rewrite(
    function: types.FunctionType,
    result: Value,
    effects: Effects | None = None,
    graph: Callable[..., Sequence[Any]] = lambda: (),
    inputs: Sequence[Source] = (),
) -> types.FunctionType:
    out = Assembler(function.__code__, function.__globals__)
    out.finish(result, effects or Effects())  # type: ignore[arg-type]
    code = out.assemble(graph, inputs)
    made = types.FunctionType(code, function.__globals__, "made", function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def original() -> types.FunctionType:
    free = [7]

    def program(a: Any, b: Any = 2, /, *rest: Any, key: Any = 4, **named: Any) -> Any:
        return free, a, b, rest, key, named

    return program  # type: ignore[return-value]


def test_signature_is_kept() -> None:
    function = original()
    made = rewrite(function, Constant(1))
    assert str(inspect.signature(made)) == "(a, b=2, /, *rest, key=4, **named)"
    assert made.__code__.co_freevars == function.__code__.co_freevars
    assert made.__code__.co_filename == __file__
    assert made(1, 2, 3, key=5, other=6) == 1


def test_every_kind_of_source_loads_what_it_resolves_to() -> None:
    class Thing:
        def __init__(self) -> None:
            self.x = [1, 2]

    def target(p: int = 3, q: tuple[int, ...] = (4,)) -> type:
        return Thing

    function = original()
    a = LocalSource("a")
    sources = [
        a, LocalSource("rest"), LocalSource("named"), ClosureSource("free"), GlobalSource("MARK"), GlobalsSource(),
        ConstSource(MARK), AttrSource(a, "x"), ItemSource(AttrSource(a, "x"), 1), TypeSource(a), InstanceDictSource(a),
        FunctionDefaultSource(LocalSource("b"), 1), FunctionClosureSource(LocalSource("b"), 0),
        ItemSource(LocalSource("named"), "z"),
    ]  # fmt: skip
    made = rewrite(function, Items(*(Value(source=source) for source in sources)))
    thing = Thing()
    found = made(thing, target, 5, z=MARK)
    assert found == [
        thing, (5,), {"z": MARK}, [7], MARK, globals(), MARK, [1, 2], 2, Thing, {"x": [1, 2]}, (4,), Thing, MARK,
    ]  # fmt: skip


def test_graph_is_called_once_with_its_inputs() -> None:
    calls = []

    def graph(*tensors: Any) -> Any:
        calls.append(tensors)
        return tensors[0] + 1, tensors[1] * 2

    first, second = Tensor(), Tensor()
    result = Items(second, first, second)
    made = rewrite(original(), result, graph=graph, inputs=[LocalSource("a"), ItemSource(LocalSource("rest"), 0)])
    assert made(10, 0, 5) == [11, 10, 11]
    assert calls == [(10, 5)]


def test_identity_cycles_and_live_objects() -> None:
    shared = Items(Constant(1))
    loop = Items(shared, shared)
    loop.items.append(loop)
    live = [1]
    result = Items(loop, shared, Constant(live), Constant([1]), Constant(live), Constant(True), Constant(1.0))
    made = rewrite(original(), result)
    found = made(0)
    assert found[0][0] is found[0][1] is found[1]
    assert found[0][2] is found[0]
    assert found[2] is live is found[4]
    assert found[3] is not live
    assert [type(item) for item in found[5:]] == [bool, float]
    assert made(0)[1] is not found[1]


def test_sources_are_read_before_effects_overwrite_them() -> None:
    a = Value(source=LocalSource("a"))
    x, y = AttrSource(LocalSource("a"), "x"), AttrSource(LocalSource("a"), "y")
    effects = Effects((a, "x", Value(source=y)), (a, "y", Value(source=x)))
    made = rewrite(original(), Items(Value(source=x)), effects)
    thing = types.SimpleNamespace(x=1, y=2)
    assert made(thing) == [1]
    assert (thing.x, thing.y) == (2, 1)
