"""Guards on sizes: the native program gives what Python gives, and prints as a user would write it; frames' roots."""

from __future__ import annotations

import random
import types
from typing import Any

import pytest
import torch

from stator import _native
from stator.capture.conditions import Operand, Program, infix
from stator.capture.guards import FUNCTION, Guard, Roots, compile_tree
from stator.capture.source import (
    CellSource,
    ClosureSource,
    FunctionDefaultSource,
    GlobalSource,
    GlobalsSource,
    LocalSource,
)

A, N = LocalSource("a"), LocalSource("n")
OPERANDS = (Operand(A, "size", 0), Operand(A, "stride", 0), Operand(A, "offset"), Operand(N, "int"))


def tree_of(*guards: Guard) -> _native.GuardTree:
    return compile_tree(guards, Roots(("a", "n")))


def condition(*program: Any) -> Guard:
    return Guard("CONDITION", None, (OPERANDS, program))


def test_text_and_meaning() -> None:
    program = ("const", 16), ("const", 2), ("operand", 0), ("*",), ("<=",)
    guard = condition(*program)
    assert str(guard) == "2*L['a'].size()[0] >= 16"
    tree = tree_of(guard)
    assert tree.check(torch.zeros(8, 3), 0) and tree.check(torch.zeros(9), 0)
    assert not tree.check(torch.zeros(7, 3), 0)
    assert tree.explain(torch.zeros(7, 3), 0) == "2*L['a'].size()[0] >= 16"
    assert not tree.check(torch.zeros(()), 0)  # no such dimension
    assert not tree.check("a", 0)
    assert guard == condition(*program) and hash(guard) == hash(condition(*program))


def test_operands() -> None:
    values = torch.zeros(6, 5)[2:, 1:], 7
    for number, expected in enumerate((4, 5, 11, 7)):
        assert tree_of(condition(("operand", number), ("const", expected), ("==",))).check(*values)
        assert not tree_of(condition(("operand", number), ("const", expected + 1), ("==",))).check(*values)
    same = tree_of(condition(("operand", 3), ("const", 7), ("==",)))
    assert not same.check(values[0], 7.0) and not same.check(values[0], 2**64 + 7)


@pytest.mark.parametrize(
    ("program", "text"),
    [
        ([("operand", 0), ("operand", 1), ("+",), ("operand", 2), ("*",)], "(s + t)*u"),
        ([("operand", 0), ("operand", 1), ("*",), ("operand", 2), ("+",)], "s*t + u"),
        ([("operand", 0), ("operand", 1), ("operand", 2), ("-",), ("-",)], "s - (t - u)"),
        ([("operand", 0), ("const", 2), ("//",), ("const", 3), ("%",)], "s // 2 % 3"),
        ([("operand", 0), ("const", 2), ("const", 3), ("%",), ("*",)], "s*(2 % 3)"),
        ([("operand", 0), ("const", -2), ("max",), ("operand", 1), ("min",)], "min(max(s, -2), t)"),
        ([("const", 1), ("operand", 0), ("<",)], "s > 1"),
        ([("operand", 0), ("const", 1), ("!=",)], "s != 1"),
    ],
)
def test_printing(program: Program, text: str) -> None:
    assert infix(tuple(program), ("s", "t", "u")) == text


def random_program(rng: random.Random, depth: int) -> list[Any]:
    if depth == 0 or rng.random() < 0.2:
        return [("operand", rng.randrange(4)) if rng.random() < 0.6 else ("const", rng.choice((-3, 0, 1, 2, 7, 2**40)))]
    operator = rng.choice(("+", "-", "*", "//", "%", "max", "min"))
    return [*random_program(rng, depth - 1), *random_program(rng, depth - 1), (operator,)]


def fits(text: str) -> bool:
    """Whether no step leaves 64 bits is not asked of Python: small depths only reach it by 2**40 * 2**40."""
    return "1099511627776" not in text


@pytest.mark.parametrize("seed", range(200))
def test_agrees_with_python(seed: int) -> None:
    rng = random.Random(seed)
    program = (*random_program(rng, 3), *random_program(rng, 2), (rng.choice(("==", "!=", "<", "<=")),))
    text, tree = infix(program, ("s", "t", "u", "n")), tree_of(condition(*program))
    for _ in range(20):
        size, offset, number = rng.randrange(2, 9), rng.randrange(5), rng.randrange(-9, 9)
        tensor = torch.zeros(60).as_strided((size,), (3,), offset)
        try:
            expected = eval(text, {"s": size, "t": 3, "u": offset, "n": number})
        except ZeroDivisionError:
            expected = False
        found = tree.check(tensor, number)
        assert found == expected or (not found and not fits(text)), text


def test_overflow_does_not_hold() -> None:
    huge = condition(("operand", 3), ("const", 2**62), ("*",), ("const", 0), ("!=",))
    assert tree_of(huge).check(0, 1) and not tree_of(huge).check(0, 2)
    lowest = condition(("operand", 3), ("const", -1), ("//",), ("const", 0), ("!=",))
    assert not tree_of(lowest).check(0, -(2**63)) and tree_of(lowest).check(0, 2**63 - 1)


@pytest.mark.parametrize(
    "program",
    [[], [("+",)], [("const", 1), ("const", 1)], [("operand", 4)], [("const", 1), ("==",)], [("nonsense",)]],
)
def test_what_is_no_program_is_refused(program: Any) -> None:
    slot = ("slot", 0, "", 0, (), ())
    with pytest.raises(ValueError):
        _native.GuardTree((), (slot,), (("CONDITION", (((0, "size", 0),), tuple(program)), ""),))


# -- roots -------------------------------------------------------------------------------------------------

LEVEL = 1


def test_roots_through_the_function() -> None:
    def outer(level: int) -> types.FunctionType:
        def inner(a: Any, n: int = 3) -> int:
            return level + n + LEVEL

        return inner

    first, second = outer(1), outer(2)
    roots = Roots.of_code(first.__code__)
    assert roots.slots == ("a", "n", FUNCTION)
    guards = [
        Guard("EQUALS", ClosureSource("level"), 1),
        Guard("EQUALS", GlobalSource("LEVEL"), 1),
        Guard("ID", GlobalsSource(), globals()),
        Guard("EQUALS", FunctionDefaultSource(LocalSource(FUNCTION), 0), 3),
    ]
    tree = compile_tree(guards, roots)
    assert tree.check(0, 3, first) and tree.check(0, 3, outer(1))
    assert not tree.check(0, 3, second)
    assert tree.explain(0, 3, second) == "L['level'] == 1"
    elsewhere = types.FunctionType(first.__code__, {"LEVEL": 2}, None, (3,), first.__closure__)
    assert not tree.check(0, 3, elsewhere)
    elsewhere.__globals__["LEVEL"] = 1
    assert not tree.check(0, 3, elsewhere)  # other globals
    first.__defaults__ = (4,)
    assert not tree.check(0, 3, first)


def test_cells_in_slots() -> None:
    held = CellSource(LocalSource("a"))
    tree = compile_tree([Guard("EQUALS", held, 1)], Roots(("a",)))
    cell = types.CellType(1)
    assert str(held) == "L['a']" and tree.check(cell)
    cell.cell_contents = 2
    assert not tree.check(cell) and not tree.check(1)
    del cell.cell_contents
    assert not tree.check(cell)
