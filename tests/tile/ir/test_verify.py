"""The rules of tile IR: each one refuses what breaks it, and names the function and the operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stator.tile.ir.build import new_function
from stator.tile.ir.core import Block, Function, Module, Operation, Value
from stator.tile.ir.parse import parse
from stator.tile.ir.rules import TypeRule
from stator.tile.ir.types import F32, I32, I64, Type
from stator.tile.ir.verify import GrammarError, verify

GOOD = """\
def helper(a: i32) -> i32:
    v0: i32 = neg(a)
    return_(v0)

def main(n: i32, x: ptr[f32]) -> f32:
    v0: i32 = call(n, callee='helper', types=(i32,))
    v1: i1 = lt(v0, n)
    v2: f32 = if_(v1)
    def then():
        v3: f32 = load(x)
        yield_(v3)
    def otherwise():
        v4: f32 = constant(value=1.0, type=f32)
        yield_(v4)
    v5: f32[4] = splat(v2, shape=(4,))
    v6: f32 = reduce(v5, axis=0)
    def combine(v7: f32, v8: f32):
        v9: f32 = add(v7, v8)
        yield_(v9)
    return_(v6)
"""


def test_a_good_module_passes() -> None:
    verify(parse(GOOD))


def main(module: Module) -> Function:
    return module.functions["main"]


def operations(module: Module) -> list[Operation]:
    return list(main(module).body.walk())


def find(module: Module, op: str) -> Operation:
    return next(operation for operation in operations(module) if operation.op == op)


def give_another_type(module: Module) -> None:
    find(module, "if").results[0].type = Type(I32)


def drop_terminator(module: Module) -> None:
    main(module).body.operations.pop()


def drop_body(module: Module) -> None:
    main(module).body.operations.clear()


def end_twice(module: Module) -> None:
    main(module).body.operations.append(main(module).body.operations[-1])


def end_with_yield(module: Module) -> None:
    main(module).body.operations[-1].op = "yield"


def use_before_definition(module: Module) -> None:
    body = main(module).body.operations
    body[0], body[1] = body[1], body[0]


def use_out_of_region(module: Module) -> None:
    inner = find(module, "if").regions[0].operations[0].results[0]
    find(module, "splat").operands = (inner,)


def use_a_twin(module: Module) -> None:
    find(module, "splat").operands = (Value("v2", Type(F32)),)


def define_twice(module: Module) -> None:
    find(module, "lt").results[0].name = "v0"


def name_badly(module: Module) -> None:
    find(module, "lt").results[0].name = "a b"


def drop_attribute(module: Module) -> None:
    del find(module, "load").attrs["volatile"]


def change_attribute(module: Module) -> None:
    find(module, "load").attrs["cache"] = ".zz"


def unknown_attribute(module: Module) -> None:
    find(module, "lt").attrs["colour"] = 1


def wrong_hint(module: Module) -> None:
    find(module, "lt").attrs["divisibility"] = 16


def unknown_operator(module: Module) -> None:
    find(module, "lt").op = "less"


def drop_region(module: Module) -> None:
    find(module, "if").regions = find(module, "if").regions[:1]


def argument_of_branch(module: Module) -> None:
    find(module, "if").regions[0].args = (Value("spare", Type(I32)),)


def combine_with_load(module: Module) -> None:
    region = find(module, "reduce").regions[0]
    pointer = main(module).params[1]
    load = find(module, "load")
    region.operations.insert(0, Operation("load", (pointer,), load.attrs, (Value("spare", Type(F32)),)))


def combine_one(module: Module) -> None:
    region = find(module, "reduce").regions[0]
    region.args = region.args[:1]
    region.operations[0].operands = (region.args[0], region.args[0])


def return_nothing(module: Module) -> None:
    main(module).body.operations[-1].operands = ()


def call_nobody(module: Module) -> None:
    find(module, "call").attrs["callee"] = "nobody"


def call_with_another_type(module: Module) -> None:
    module.functions["helper"].params[0].type = Type(I64)
    module.functions["helper"].body.operations[0].results[0].type = Type(I64)
    module.functions["helper"].results = (Type(I64),)


def call_for_other_results(module: Module) -> None:
    find(module, "call").attrs["types"] = (Type(I32), Type(I32))
    find(module, "call").results += (Value("spare", Type(I32)),)


def hint_of_nobody(module: Module) -> None:
    main(module).hints["nobody"] = {"divisibility": 16}


def another_name(module: Module) -> None:
    main(module).name = "other"


def twice_the_same_parameter(module: Module) -> None:
    main(module).params[1].name = "n"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (give_another_type, r"main: `v2: i32 = if_\(v1\)`: gives \(f32\), not \(i32\)"),
        (drop_terminator, r"main: `v6: f32 = reduce\(v5, axis=0\)`: a block ends in one terminator"),
        (drop_body, "main: its body does not end in return"),
        (end_twice, "a block ends in one terminator, and has none before its end"),
        (end_with_yield, "its body does not end in return"),
        (use_before_definition, "v0 is not known here"),
        (use_out_of_region, "v3 is not known here"),
        (use_a_twin, "v2 is not known here"),
        (define_twice, "v0 is defined already"),
        (name_badly, "'a b' is no name"),
        (drop_attribute, "an attribute is missing"),
        (change_attribute, "load: the attribute 'cache' is one of"),
        (unknown_attribute, "has no attribute 'colour'"),
        (wrong_hint, "the hint 'divisibility' is a tuple of ints"),
        (unknown_operator, "main: `less`: an unknown operator"),
        (drop_region, "if: has 2 regions, not 1"),
        (argument_of_branch, r"if: region 0 takes \(\), not \(i32\)"),
        (combine_with_load, "load is more than a combination"),
        (combine_one, r"reduce: region 0 takes \(f32, f32\), not \(f32\)"),
        (return_nothing, r"returns \(\), not \(f32\)"),
        (call_nobody, "there is no function nobody"),
        (call_with_another_type, r"helper takes \(i64\), not \(i32\)"),
        (call_for_other_results, r"helper gives \(i32\), not \(i32, i32\)"),
        (hint_of_nobody, "has hints of nobody, which is no parameter"),
        (another_name, "other: the module calls it main"),
        (twice_the_same_parameter, "n is defined already"),
    ],
)
def test_a_broken_rule_is_named(spoil: Callable[[Module], None], message: str) -> None:
    module = parse(GOOD)
    spoil(module)
    with pytest.raises(GrammarError, match=message):
        verify(module)


def test_a_call_that_leads_back_is_refused() -> None:
    text = """\
def first(n: i32) -> i32:
    v0: i32 = call(n, callee='second', types=(i32,))
    return_(v0)

def second(n: i32) -> i32:
    v0: i32 = call(n, callee='first', types=(i32,))
    return_(v0)
"""
    with pytest.raises(GrammarError, match="first: calls itself, by first → second → first"):
        verify(parse(text))


def test_nothing_is_added_behind_a_terminator() -> None:
    _, builder = new_function(Module(), "f", {})
    builder.emit("return")
    with pytest.raises(TypeRule, match="barrier: the block has ended with return"):
        builder.emit("barrier")


def test_a_function_has_its_name_alone() -> None:
    module = Module()
    new_function(module, "f", {})
    with pytest.raises(ValueError, match="there is a function f already"):
        new_function(module, "f", {})


def test_walk_finds_operations_of_regions() -> None:
    ops = [operation.op for operation in operations(parse(GOOD))]
    assert ops == [
        "call",
        "lt",
        "if",
        "load",
        "yield",
        "constant",
        "yield",
        "splat",
        "reduce",
        "add",
        "yield",
        "return",
    ]
    assert Block().terminator is None
