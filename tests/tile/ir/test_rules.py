"""Type rules: what operators give for types and attributes, and what they refuse, in words."""

from __future__ import annotations

from typing import Any

import pytest

from stator.tile.ir.build import IRBuilder, complete, infer, new_function
from stator.tile.ir.core import Block, Module
from stator.tile.ir.operators import OPERATORS, effects_of
from stator.tile.ir.parse import parse
from stator.tile.ir.rules import TypeRule
from stator.tile.ir.types import DTYPES, DType, Pointer, Type
from stator.tile.layouts.text import read


def types_of(text: str) -> list[Type]:
    """Types as the text has them, with blanks between them."""
    params = ", ".join([f"a{i}: {word}" for i, word in enumerate(text.split())])
    return [param.type for param in parse(f"def f({params}):\n    return_()\n").functions["f"].params]


def inferred(op: str, operands: str, attrs: dict[str, Any]) -> str:
    return " ".join([str(t).replace(", ", ",") for t in infer(op, types_of(operands), complete(op, attrs), ())])


GIVES: list[tuple[str, str, dict[str, Any], str]] = [
    ("constant", "", {"value": 3, "type": Type(DTYPES["i8"], (4,))}, "i8[4]"),
    ("constant", "", {"value": 4096, "type": Type(Pointer(DTYPES["f32"]))}, "ptr[f32]"),
    ("arange", "", {"start": 2, "end": 10}, "i32[8]"),
    ("program_id", "", {"axis": 2}, "i32"),
    ("splat", "ptr[f32]", {"shape": (4, 4)}, "ptr[f32][4,4]"),
    ("broadcast", "f32[1,4]", {"shape": (8, 4)}, "f32[8,4]"),
    ("reshape", "f32[8,4]", {"shape": (2, 16)}, "f32[2,16]"),
    ("permute", "f32[8,4,2]", {"order": (2, 0, 1)}, "f32[2,8,4]"),
    ("expand_dims", "f32[8,4]", {"axis": 1}, "f32[8,1,4]"),
    ("join", "i8[4] i8[4]", {}, "i8[4,2]"),
    ("split", "i8[4,2]", {}, "i8[4] i8[4]"),
    ("cat", "i8[4,2] i8[1,2]", {}, "i8[5,2]"),
    ("gather", "f32[4,8] i32[4,3]", {"axis": 1}, "f32[4,3]"),
    ("add", "f32[4] f32[4]", {}, "f32[4]"),
    ("lt", "f32[4] f32[4]", {}, "i1[4]"),
    ("eq", "ptr[f32] ptr[f32]", {}, "i1"),
    ("select", "i1[4] ptr[f32][4] ptr[f32][4]", {}, "ptr[f32][4]"),
    ("fma", "f16 f16 f16", {}, "f16"),
    ("cast", "f32[4]", {"dtype": DTYPES["f8e5"], "rounding": "rtz"}, "f8e5[4]"),
    ("bitcast", "f32[4]", {"dtype": DTYPES["u32"]}, "u32[4]"),
    ("bitcast", "ptr[f32]", {"dtype": Pointer(DTYPES["i8"])}, "ptr[i8]"),
    ("int_to_ptr", "u64", {"dtype": Pointer(DTYPES["i8"])}, "ptr[i8]"),
    ("ptr_to_int", "ptr[i8][4]", {"dtype": DTYPES["u64"]}, "u64[4]"),
    ("addptr", "ptr[f32][4] u8[4]", {}, "ptr[f32][4]"),
    ("load", "ptr[f32][4]", {}, "f32[4]"),
    ("load", "ptr[ptr[f32]] i1 ptr[f32]", {}, "ptr[f32]"),
    ("store", "ptr[f32][4] f32[4] i1[4]", {}, ""),
    ("atomic_rmw", "ptr[f16][4] f16[4] i1[4]", {"kind": "add"}, "f16[4]"),
    ("atomic_cas", "ptr[i64] i64 i64", {}, "i64"),
    ("dot", "f16[2,4] f16[4,8] f32[2,8]", {}, "f32[2,8]"),
    ("dot", "i8[3,2,4] i8[3,4,8] i32[3,2,8]", {}, "i32[3,2,8]"),
    ("dot", "f8e5[2,4] f8e4nv[4,8] f32[2,8]", {}, "f32[2,8]"),
    ("histogram", "i64[32] i1[32]", {"bins": 7}, "i32[7]"),
    ("sort", "bf16[4,8]", {"axis": 1}, "bf16[4,8]"),
    ("extern", "i32[4] f64[4]", {"symbol": "jn"}, "f64[4]"),
    ("extern", "f64[4]", {"symbol": "isnan"}, "i32[4]"),
    ("inline_asm", "f16[4] i32[4]", {"asm": "", "constraints": "", "dtypes": (DTYPES["i8"], DTYPES["f32"]), "pack": 2},
     "i8[4] f32[4]"),
    ("call", "i32", {"callee": "f", "types": (Type(DTYPES["f32"]),)}, "f32"),
    ("assert", "i1[4]", {"message": "x"}, ""),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "attrs", "wanted"), GIVES)
def test_gives(op: str, operands: str, attrs: dict[str, Any], wanted: str) -> None:
    assert inferred(op, operands, attrs) == wanted


_SCALED = {"format_a": "e4m3", "format_b": "e2m1"}
REFUSES: list[tuple[str, str, dict[str, Any], str]] = [
    ("constant", "", {"value": 256, "type": Type(DTYPES["u8"])}, "256 is no u8"),
    ("constant", "", {"value": 1, "type": Type(DTYPES["f32"])}, "1 is an integer, and f32 is none"),
    ("constant", "", {"value": 1.0, "type": Type(DTYPES["i32"])}, "1.0 is a float, and i32 is none"),
    ("constant", "", {"value": True, "type": Type(DTYPES["i8"])}, "True and False are i1, not i8"),
    ("constant", "", {"value": 1.0, "type": Type(Pointer(DTYPES["i8"]))}, "an address is an int"),
    ("constant", "", {"value": "x", "type": Type(DTYPES["i8"])}, "'value' is a number, not 'x'"),
    ("arange", "", {"start": 4, "end": 4}, "4 … 4 is no range of i32"),
    ("arange", "", {"start": 0, "end": 2**40}, "no range of i32"),
    ("program_id", "", {"axis": 3}, "a grid has the axes 0, 1 and 2, not 3"),
    ("program_id", "i32", {"axis": 0}, "takes 0 operands, not 1"),
    ("splat", "i32[4]", {"shape": (4,)}, r"takes a scalar, not i32\[4\]"),
    ("splat", "i32", {"shape": (0,)}, "are not all positive"),
    ("broadcast", "i32[2]", {"shape": (4,)}, "sizes of 1 grow, and no others"),
    ("broadcast", "i32[1]", {"shape": (4, 1)}, "does not broadcast"),
    ("reshape", "i32[4]", {"shape": (3,)}, "has not as many elements"),
    ("permute", "i32[4,2]", {"order": (0, 0)}, "is no order of the axes"),
    ("permute", "i32[4,2]", {"order": (0,)}, "is no order of the axes"),
    ("expand_dims", "i32[4]", {"axis": 2}, "axis 2 is none of 0 … 1"),
    ("join", "i32[4] i8[4]", {}, "takes operands of one type"),
    ("split", "i32[4]", {}, "is not 2"),
    ("split", "i32", {}, "is not 2"),
    ("cat", "i32[4] i8[4]", {}, "cannot join"),
    ("cat", "i32 i32", {}, "cannot join"),
    ("gather", "f32[4,8] f32[4,3]", {"axis": 1}, "positions are integers"),
    ("gather", "f32[4,8] i32[3,8]", {"axis": 1}, "differ in another axis"),
    ("gather", "f32[4] i32[4]", {"axis": 1}, "axis 1 is none of 0 … 0"),
    ("add", "f32 i32", {}, "takes operands of one type"),
    ("add", "f32[4] f32", {}, "takes operands of one type"),
    ("add", "ptr[f32] ptr[f32]", {}, "does not take pointers"),
    ("add", "f8e5 f8e5", {}, "numbers wide enough to compute with, not f8e5"),
    ("div", "i32 i32", {}, "takes float, not i32"),
    ("idiv", "f32 f32", {}, "takes integer, not f32"),
    ("shl", "i1 i1", {}, "takes integer, not i1"),
    ("and", "f32 f32", {}, "takes bits, not f32"),
    ("abs", "u8", {}, "takes signed, not u8"),
    ("mulhi", "i16 i16", {}, "takes wide, not i16"),
    ("exp", "i32", {}, "takes float, not i32"),
    ("minimum", "f32 f32", {"nan": "none"}, "'nan' is one of 'number', 'propagate', not 'none'"),
    ("lt", "f8e5 f8e5", {}, "numbers wide enough"),
    ("select", "i1 f32[4] f32[4]", {}, r"the condition is i1\[4\], not i1"),
    ("select", "i1 f32 i32", {}, "takes operands of one type"),
    ("cast", "i32", {"dtype": DTYPES["f32"], "rounding": "rtz"}, "i32 to f32 does not round"),
    ("cast", "f32", {"dtype": DTYPES["f64"], "rounding": "rtz"}, "only to a narrower float"),
    ("cast", "ptr[f32]", {"dtype": DTYPES["i64"]}, "does not take pointers"),
    ("cast", "i64", {"dtype": Pointer(DTYPES["i8"])}, "`bitcast` and `int_to_ptr` make pointers"),
    ("bitcast", "f32", {"dtype": DTYPES["f16"]}, "have not as many bits"),
    ("bitcast", "i64", {"dtype": Pointer(DTYPES["i8"])}, "go between pointers and integers"),
    ("int_to_ptr", "i32", {"dtype": Pointer(DTYPES["i8"])}, "takes i64 or u64"),
    ("int_to_ptr", "i64", {"dtype": DTYPES["i8"]}, "i8 is no pointer"),
    ("ptr_to_int", "i64", {}, "takes pointers, not i64"),
    ("ptr_to_int", "ptr[i8]", {"dtype": DTYPES["i32"]}, "gives i64 or u64, not i32"),
    ("addptr", "i32 i32", {}, "takes pointers first"),
    ("addptr", "ptr[i32] f32", {}, "an offset is an integer"),
    ("addptr", "ptr[i32][4] i32", {}, "differ in shape"),
    ("load", "i32", {}, "takes pointers first"),
    ("load", "ptr[i32][4] i1", {}, r"the mask is i1\[4\], not i1"),
    ("load", "ptr[i32] i1 f32", {}, "`other` is i32, not f32"),
    ("load", "ptr[i32]", {"eviction": "sometimes"}, "'eviction' is one of"),
    ("store", "ptr[i32] f32", {}, "the value is i32, not f32"),
    ("store", "ptr[i32] i32 i32", {}, "the mask is i1, not i32"),
    ("atomic_rmw", "ptr[i8] i8", {"kind": "add"}, "16 bits or more, not i8"),
    ("atomic_rmw", "ptr[f32] f32", {"kind": "xor"}, "takes bits, not f32"),
    ("atomic_rmw", "ptr[i32] i32", {"kind": "nand"}, "'kind' is one of"),
    ("atomic_rmw", "ptr[i32] i64", {"kind": "add"}, "the value is i32, not i64"),
    ("atomic_cas", "ptr[i32] i32 i64", {}, "takes two values of i32"),
    ("atomic_cas", "ptr[u8] u8 u8", {}, "16 bits or more"),
    ("dot", "f16[4,4] f32[4,4] f32[4,4]", {}, "multiplies one dtype, not f16 and f32"),
    ("dot", "f16[4,4] f16[8,4] f32[4,4]", {}, "do not fit together"),
    ("dot", "f16[4,4] f16[4,4] f32[4,8]", {}, "do not fit together"),
    ("dot", "f16[4] f16[4] f32[4]", {}, "takes matrices"),
    ("dot", "f16[4,4] f16[4,4] i32[4,4]", {}, "added up in f32 or f16 or bf16, not i32"),
    ("dot", "f32[4,4] f32[4,4] f16[4,4]", {}, "added up in f32, not f16"),
    ("dot", "i32[4,4] i32[4,4] i32[4,4]", {}, "floats or integers of 8 bits, not i32"),
    ("dot", "f16[4,4] f16[4,4] f32[4,4]", {"precision": "exact"}, "'precision' is one of"),
    ("dot_scaled", "f8e4nv[4,64] u8[32,4] f16[4,4]", _SCALED, "sums in f32"),
    ("dot_scaled", "f8e5[4,64] u8[32,4] f32[4,4]", _SCALED, "e4m3 is f8e4nv"),
    ("dot_scaled", "f8e4nv[4,32] u8[32,4] f32[4,4]", _SCALED, "do not fit together"),
    ("dot_scaled", "f8e4nv[4,64] u8[32,4] f32[4,4] u8[4,4]", {**_SCALED, "scale_a": True}, r"are u8\[4, 2\]"),
    ("dot_scaled", "f8e4nv[4,64] u8[32,4] f32[4,4] u8[4,2]", _SCALED, "takes 3 operands, not 4"),
    ("histogram", "i32[4,4]", {"bins": 4}, "counts one row of integers"),
    ("histogram", "f32[4]", {"bins": 4}, "counts one row of integers"),
    ("histogram", "i32[4]", {"bins": 0}, "at least one bin"),
    ("sort", "i32[4]", {"axis": 1}, "axis 1 is none"),
    ("sort", "f8e5[4]", {"axis": 0}, "numbers wide enough"),
    ("inline_asm", "", {"asm": "", "constraints": "", "dtypes": (), "pack": 1}, "takes at least one operand"),
    ("inline_asm", "i8[4] i8", {"asm": "", "constraints": "", "dtypes": (), "pack": 1}, "differ in shape"),
    ("assert", "i32", {"message": "x"}, "takes i1, not i32"),
    ("barrier", "i32", {}, "takes 0 operands"),
    ("condition", "i32", {}, "takes an i1 first"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "attrs", "message"), REFUSES)
def test_refuses(op: str, operands: str, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeRule, match=f"^{op}: .*{message}"):
        inferred(op, operands, attrs)


def builder_of(**params: str) -> tuple[IRBuilder, list[Any]]:
    function, builder = new_function(Module(), "f", {name: types_of(text)[0] for name, text in params.items()})
    return builder, list(function.params)


def region(builder: IRBuilder, types: str, terminator: str, pick: slice = slice(None)) -> Block:
    """A region that gives some of its arguments."""
    with builder.inside(builder.block_of(types_of(types))) as block:
        builder.emit(terminator, block.args[pick])
    return block


FLOW: list[tuple[str, str, list[tuple[str, str, slice]], str]] = [
    ("if", "i32", [("", "yield", slice(None))] * 2, "takes an i1 first"),
    ("if", "i1[4]", [("", "yield", slice(None))] * 2, "takes an i1 first"),
    ("if", "i1", [("i32", "yield", slice(None))] * 2, r"region 0 takes \(\), not \(i32\)"),
    ("if", "i1", [("", "return", slice(None))] * 2, "region 0 does not end in yield"),
    ("for", "i32 i32", [("", "yield", slice(None))], "takes lower, upper and step"),
    ("for", "f32 f32 f32", [("f32", "yield", slice(0))], "counts with an integer, not f32"),
    ("for", "i32 i32 i64", [("i32", "yield", slice(0))], "takes operands of one type"),
    ("for", "i32[4] i32[4] i32[4]", [("i32[4]", "yield", slice(0))], "counts with an integer"),
    ("for", "i32 i32 i32 f32", [("i32", "yield", slice(0))], r"region 0 takes \(i32, f32\), not \(i32\)"),
    ("for", "i32 i32 i32 f32", [("i32 f32", "yield", slice(0, 1))], r"region 0 gives \(i32\), not \(f32\)"),
    ("while", "i1 f32", [("i1 f32", "yield", slice(None)), ("f32", "yield", slice(None))], "does not end in condition"),
    ("while", "i1 f32", [("i1", "condition", slice(None)), ("", "yield", slice(None))], r"region 0 takes \(i1, f32\)"),
    ("while", "i1 f32", [("i1 f32", "condition", slice(None)), ("f32", "yield", slice(None))],
     r"region 1 gives \(f32\), not \(i1, f32\)"),
    ("while", "i1 f32", [("i1 f32", "condition", slice(None)), ("i1", "yield", slice(None))],
     r"region 1 takes \(f32\)"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "operands", "regions", "message"), FLOW)
def test_control_flow_refuses(op: str, operands: str, regions: list[tuple[str, str, slice]], message: str) -> None:
    builder, params = builder_of(**{f"a{i}": word for i, word in enumerate(operands.split())})
    blocks = [region(builder, *given) for given in regions]
    with pytest.raises(TypeRule, match=f"^{op}: .*{message}"):
        builder.emit(op, params, {}, blocks)


def test_branches_give_the_same() -> None:
    builder, (condition, number, other) = builder_of(c="i1", n="i32", x="f32")
    blocks = []
    for value in (number, other):
        with builder.inside(builder.block_of([])) as block:
            builder.emit("yield", [value])
        blocks.append(block)
    with pytest.raises(TypeRule, match=r"if: region 1 gives \(f32\), not \(i32\)"):
        builder.emit("if", [condition], {}, blocks)


@pytest.mark.parametrize("op", ["reduce", "scan"])
def test_along_an_axis(op: str) -> None:
    builder, (a, b, c) = builder_of(a="f32[4,8]", b="i32[4,8]", c="i32[8]")
    both = region(builder, "f32 i32 f32 i32", "yield", slice(0, 2))
    results = builder.emit(op, [a, b], {"axis": 1}, [both])
    shape = (4,) if op == "reduce" else (4, 8)
    assert [value.type for value in results] == [Type(DTYPES["f32"], shape), Type(DTYPES["i32"], shape)]
    for operands, axis, given, message in (
        ([a, b], 2, both, "axis 2 is none of 0 … 1"),
        ([a, c], 0, both, "differ in shape"),
        ([], 0, both, "at least one operand"),
        ([a], 0, both, "region 0 takes"),
        ([a, b], 0, region(builder, "f32 i32 f32 i32", "yield", slice(1, 3)), r"gives \(i32, f32\), not"),
    ):
        with pytest.raises(TypeRule, match=message):
            builder.emit(op, operands, {"axis": axis}, [given])


def test_every_operator_says_what_it_does() -> None:
    known = {"reads", "writes", "fails", "prints", "syncs", "ends"}
    for name, operator in OPERATORS.items():
        assert operator.name == name and operator.doc and operator.doc[0] != " " and operator.effects <= known
        assert operator.is_pure == (not operator.effects)
    assert not {n for n, o in OPERATORS.items() if o.elementwise and o.effects}


def test_regions_have_effects() -> None:
    text = """\
def f(c: i1, x: ptr[i32]) -> i32:
    v0: i32 = if_(c)
    def then():
        v1: i32 = load(x)
        v2: i32 = inline_asm(v1, asm='', constraints='', dtypes=(i32,), pack=1, is_pure=False)
        yield_(v2)
    def otherwise():
        assume(c)
        v4: i32 = constant(value=1, type=i32)
        v3: i32 = inline_asm(v4, asm='', constraints='', dtypes=(i32,), pack=1)
        yield_(v3)
    return_(v0)
"""
    first, *_ = parse(text).functions["f"].body.operations
    then, otherwise = first.regions
    assert [sorted(effects_of(operation)) for operation in then.operations] == [
        ["reads"],
        ["reads", "writes"],
        ["ends"],
    ]
    assert [sorted(effects_of(operation)) for operation in otherwise.operations] == [["fails"], [], [], ["ends"]]
    assert effects_of(first) == {"reads", "writes", "fails"}


def test_every_operator_is_in_a_table_here() -> None:
    tried = {row[0] for row in (*GIVES, *REFUSES)} | {row[0] for row in FLOW} | {"reduce", "scan", "yield", "return"}
    alike = {name for name, row in OPERATORS.items() if row.elementwise} | {"num_programs", "print", "assume"}
    assert OPERATORS.keys() - tried <= alike


def test_hints_are_kept() -> None:
    builder, params = builder_of(n="i32[4,4]")
    (value,) = builder.emit("neg", params, {"divisibility": (16, 1), "contiguity": (4, 1)})
    assert builder.block.operations[-1].attrs == {"divisibility": (16, 1), "contiguity": (4, 1)}
    assert value is builder.block.operations[-1].result
    with pytest.raises(TypeRule, match="neg: the hint 'constancy' is a tuple of ints, not 4"):
        builder.emit("neg", params, {"constancy": 4})


@pytest.mark.parametrize(
    ("name", "low", "high", "itemsize"),
    [
        ("i1", 0, 1, 1),
        ("i8", -128, 127, 1),
        ("u16", 0, 65535, 2),
        ("i64", -(2**63), 2**63 - 1, 8),
        ("u64", 0, 2**64 - 1, 8),
    ],
)
def test_integers(name: str, low: int, high: int, itemsize: int) -> None:
    dtype = DTYPES[name]
    assert (dtype.low, dtype.high, dtype.itemsize) == (low, high, itemsize)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_dtypes(dtype: DType) -> None:
    assert dtype.numpy.itemsize == dtype.itemsize and DTYPES[dtype.name] is dtype
    assert dtype.is_float == (dtype.kind == "float") and dtype.is_fp8 == (dtype.name.startswith("f8"))
    if dtype.is_float:
        exponent_bits = dtype.bits - 1 - dtype.mantissa
        assert dtype.bias in (2 ** (exponent_bits - 1) - 1, 2 ** (exponent_bits - 1), 15)


def test_types_are_values() -> None:
    line = "4x8: register ; lane 0.1 0.2 0.4 1.0 2.0; warp "
    tile = Type(DTYPES["f32"], (4, 8), read(line))
    assert tile == Type(DTYPES["f32"], (4, 8), read(line)) != Type(DTYPES["f32"], (4, 8))
    assert (tile.rank, tile.numel, tile.is_scalar, tile.scalar) == (2, 32, False, Type(DTYPES["f32"]))
    assert tile.of(DTYPES["i8"]).layout == read(line) and tile.shaped(32).layout is None
    assert (
        str(tile) == 'f32[4, 8, "4x8: register; lane 0.1 0.2 0.4 1.0 2.0; warp"]'
        and str(Pointer(DTYPES["i8"], "shared")) == "ptr[i8, shared]"
    )
    assert Pointer(DTYPES["i8"]).itemsize == Pointer(DTYPES["i8"]).numpy.itemsize == 8
