"""Texts of tile IR: what is printed is read again as the same, and what the grammar does not have is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.tile.ir.build import new_function
from stator.tile.ir.core import Location, Module
from stator.tile.ir.parse import ParseError, parse
from stator.tile.ir.text import module_text
from stator.tile.ir.types import DTYPES, F16, F32, I32, Pointer, Type
from stator.tile.ir.verify import verify
from stator.tile.layouts.text import read
from tests.tile.ir.programs import random_module

PRINTED = """\
L0 = "4: register; lane 1 2 0 0 0; warp"


@function(noinline=True, num_warps=4)
def half(x: ptr[f32](divisibility=16, alias=('y', 2)), n: i32) -> (f32, i32):
    v0: i32[16] = arange(start=0, end=16, contiguity=(16,))
    v1: ptr[f32][16] = splat(x, shape=(16,))
    v2: ptr[f32][16] = addptr(v1, v0)
    v3: f32[16] = load(v2, cache='.ca')
    v6: f32 = reduce(v3, axis=0)
    def combine(v4: f32, v5: f32):
        v7: f32 = maximum(v4, v5, nan='propagate')
        yield_(v7)
    v8: i1 = gt(n, n)
    v9, v10 = if_(v8)
    def then():
        v11: f32 = constant(value=-0.0, type=f32)
        yield_(v11, n)
    def otherwise():
        yield_(v6, n)
    v12, v13 = while_(v9, v10)
    def test(v14: f32, v15: i32):
        v16: i1 = lt(v14, v14)
        condition(v16, v14, v15)
    def body(v17: f32, v18: i32):
        yield_(v17, v18)
    return_(v12, v13)


def main(p: ptr[ptr[f16, shared]], q: f8e4nv[4, L0]):
    v0: f32[2] = constant(value=nan, type=f32[2])
    v1: i64 = ptr_to_int(p)
    v2: ptr[ptr[f16], shared] = int_to_ptr(v1, dtype=ptr[ptr[f16], shared])
    v3, v4 = call(p, v1, callee='half', types=(f32, i32))
    return_()
"""


def test_a_text_is_what_it_was_read_from() -> None:
    module = parse(PRINTED)
    assert module_text(module) == PRINTED
    assert module.functions["half"].noinline and module.functions["half"].attrs == {"num_warps": 4}
    assert module.functions["half"].hints == {"x": {"divisibility": 16, "alias": ("y", 2)}}
    assert [str(result) for result in module.functions["half"].results] == ["f32", "i32"]


@settings(max_examples=25, deadline=None, database=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_random_functions_go_through_text(seed: int) -> None:
    module, _ = random_module(seed)
    verify(module)
    text = module_text(module)
    again = parse(text)
    verify(again)
    assert module_text(again) == text


@pytest.mark.parametrize("name", DTYPES)
def test_types_go_through_text(name: str) -> None:
    dtype = DTYPES[name]
    for element in (dtype, Pointer(dtype), Pointer(Pointer(dtype), "shared")):
        for shape in ((), (4,), (2, 3)):
            for layout in (None, read("4: register 1; lane 2 0 0 0 0; warp 0")) if shape == (4,) else (None,):
                module = Module()
                _, builder = new_function(module, "f", {"x": Type(element, shape, layout)})
                builder.emit("return")
                assert parse(module_text(module)).functions["f"].params[0].type == Type(element, shape, layout)


@pytest.mark.parametrize("value", [0.1, -0.0, 1e-300, 1e300, float("inf"), float("-inf"), 5e-324])
def test_floats_go_through_text(value: float) -> None:
    module = Module()
    _, builder = new_function(module, "f", {})
    builder.emit("constant", [], {"value": value, "type": Type(DTYPES["f64"])})
    builder.emit("return")
    read = parse(module_text(module)).functions["f"].body.operations[0].attrs["value"]
    assert read.hex() == value.hex()


def test_locations_go_through_text() -> None:
    module = Module()
    function, builder = new_function(module, "f", {"n": Type(I32)}, location=Location("kernel.py", 3))
    builder.location = Location("a folder/kernel.py", 12, 4)
    builder.emit("neg", [function.params[0]])
    builder.emit("return", location=Location("c:\\k.py", 13))
    text = module_text(module, locations=True)
    read = parse(text).functions["f"]
    assert [operation.location for operation in read.body.operations] == [
        Location("a folder/kernel.py", 12, 4), Location("c:\\k.py", 13),
    ]  # fmt: skip
    assert read.location == Location("kernel.py", 3) and module_text(parse(text), locations=True) == text
    assert "at=" not in module_text(module)


def test_names_are_those_of_the_kernel_where_they_are_free() -> None:
    function, builder = new_function(Module(), "f", {"n": Type(I32)})
    values = [builder.emit("neg", [function.params[0]])[0] for _ in range(3)]
    for value in values:
        builder.rename(value, "n")
    assert len({"n", *[value.name for value in values]}) == 4
    assert all(value.name.startswith("n_") for value in values)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x = 1", "no operation of tile IR"),
        ("v0: i32 = frobnicate(n)", "no operator frobnicate"),
        ("v0: i32 = neg(m)", "m is not defined"),
        ("v0: f32 = neg(n)", "neg gives i32, not f32"),
        ("v0, v1 = neg(n)", "neg gives 1 results, not 2"),
        ("neg(n)", "neg gives 1 results, not 0"),
        ("n: i32 = neg(n)", "n is defined already"),
        ("v0: i32 = add(n)", "add: takes 2 operands, not 1"),
        ("v0: i32 = program_id()", "needs the attribute 'axis'"),
        ("v0: i32 = program_id(axis=0, hue=1)", "no attribute 'hue'"),
        ("v0: i32 = program_id(axis='x')", "'axis' is an int"),
        ("v0: i32[4] = splat(n, shape=(4.0,))", "a tuple of ints"),
        ("v0: word = neg(n)", "word is no type"),
        ("v0: f32 = if_(n)", "followed by its region then"),
        ("v0: f32 = cast(n, dtype=f32[4])", "a dtype or pointer"),
        ("v0: i32 = neg(n, at='here')", "no file:line:column"),
        ("neg(", "was never closed"),
    ],
)
def test_what_is_no_text_is_refused(line: str, message: str) -> None:
    with pytest.raises(ParseError, match=r"^line 2: .*" + message.replace("(", r"\(")):
        parse(f"def f(n: i32):\n    {line}\n    return_()\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "has layouts, each with a name of its own, and functions, and nothing else"),
        ("def f():\n    return_()\ndef f():\n    return_()", "there is a function f already"),
        ("@jit\ndef f():\n    return_()", "decorated by function"),
        ("def f(n):\n    return_()", "n has no type"),
        ("def f(n: i32 = 3):\n    return_()", "f has parameters that are no names with types"),
        ("def f(*n: i32):\n    return_()", "f has parameters that are no names with types"),
        ("def f(n: i32(16)):\n    return_()", "is no type"),
        ("def f(n: f32[4][4]):\n    return_()", "is no element"),
    ],
)
def test_what_is_no_function_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_a_default_is_not_printed() -> None:
    module = Module()
    function, builder = new_function(module, "f", {"a": Type(F32)})
    builder.emit("cast", function.params, {"dtype": F16})
    builder.emit("cast", function.params, {"dtype": F16, "rounding": "rtz"})
    builder.emit("return")
    lines = module_text(module).splitlines()
    assert lines[1:3] == ["    v0: f16 = cast(a, dtype=f16)", "    v1: f16 = cast(a, dtype=f16, rounding='rtz')"]
