"""What is computed in each kernel that reads it, and what stays in memory for all of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial, reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stator.loop.evaluate import run_program, run_schedule
from stator.loop.expr import Expr, Rewriter, cast, const, load, op
from stator.loop.index import Axis, Index
from stator.loop.kernel import Launch, Schedule
from stator.loop.nest import Buffer, Nest, Program, View
from stator.loop.repeat import repeat
from stator.loop.schedule import schedule
from stator.targets import typical
from tests.loop.build import Build, contents, get, numbers, total
from tests.loop.random_programs import make
from tests.loop.test_schedule import MIXING, equivalent

GPU = typical("cuda")
#: A device on which a launch costs nothing, and bytes alone count.
REPEATING = replace(typical("cpu"), launch_cost=0.0, repeats=True, narrows=True)


def gradient(costly: bool = False, kept: bool = False) -> tuple[Program, Buffer]:
    """A masked gradient, its sums, and what is made of both: two kernels, as all sums come before the rest."""
    b = Build()
    y, dy, x = b.input(6, 50), b.input(6, 50), b.input(6, 50)
    nothing = const(0.0, "f32")

    def given_back(i: Axis, j: Axis) -> Expr:
        value = op("exp", get(dy, i, j)) if costly else get(dy, i, j)
        return op("where", op("le", get(y, i, j), nothing), nothing, value)

    masked = b.pointwise([6, 50], given_back)
    sums = b.reduction([50], [6], lambda j, i: total(op("mul", get(masked, i, j), get(y, i, j))))
    out = b.pointwise([6, 50], lambda i, j: op("sub", get(masked, i, j), op("mul", get(x, i, j), get(sums, j))))
    return b.program(out, *[masked] * kept), masked


def gradient_of_a_norm(costly: str = "exp") -> tuple[Program, Buffer]:
    """The gradient of a sigmoid's product in half type, its sums, and what is made of both, as before a batch norm.

    The sigmoid is used twice, so it is a nest of its own, which its kernel has in registers.
    """
    b = Build()
    x, dy = b.input(6, 50, dtype="bf16"), b.input(6, 50, dtype="bf16")
    one = const(1.0, "f32")

    def at(buffer: Buffer, i: Axis, j: Axis) -> Expr:
        return cast(get(buffer, i, j), "f32")

    def sigmoid(i: Axis, j: Axis) -> Expr:
        return op("div", one, op("add", one, op(costly, op("neg", at(x, i, j)))))

    gate = b.pointwise([6, 50], sigmoid)

    def given_back(i: Axis, j: Axis) -> Expr:
        slope = op("mul", get(gate, i, j), op("sub", one, get(gate, i, j)))
        return cast(op("mul", at(dy, i, j), op("add", slope, get(gate, i, j))), "bf16")

    given_ = b.pointwise([6, 50], given_back, "bf16")
    sums = b.reduction([50], [6], lambda j, i: total(at(given_, i, j)))
    dots = b.reduction([50], [6], lambda j, i: total(op("mul", at(given_, i, j), at(x, i, j))))

    def out(i: Axis, j: Axis) -> Expr:
        return op("sub", op("sub", at(given_, i, j), get(sums, j)), op("mul", at(x, i, j), get(dots, j)))

    return b.program(b.pointwise([6, 50], out)), given_


def in_memory(schedule: Schedule) -> set[str]:
    """The buffers that kernels read or write."""
    launches = [step for step in schedule.steps if isinstance(step, Launch)]
    return {pointer.buffer for launch in launches for pointer in launch.args}


def test_a_masked_gradient_is_computed_where_it_is_read() -> None:
    program, masked = gradient()
    found, without = equivalent(program, REPEATING), equivalent(program, replace(REPEATING, repeats=False))
    assert len(found.steps) <= len(without.steps) and masked.name in in_memory(without)
    assert not any(name.startswith(masked.name) for name in in_memory(found)), found.text()


def test_a_copy_has_a_name_of_its_own() -> None:
    """Whatever other buffers are called."""
    program, masked = gradient()
    last = program.nodes[-1]
    assert isinstance(last, Nest)
    nodes, outputs = list(program.nodes), list(program.outputs)
    for suffix in ("_0", "_1", "_copy0", "_copy1"):
        other = replace(last.buffer, name=masked.name + suffix)
        at = load(last.buffer.name, last.index, "f32")
        nodes.append(replace(last, buffer=other, value=op("mul", at, at)))
        outputs.append(View(other.name, other.size, other.stride))
    found = equivalent(replace(program, nodes=tuple(nodes), outputs=tuple(outputs)), REPEATING)
    assert masked.name not in in_memory(found)


@pytest.mark.parametrize("options", [{"costly": True}, {"kept": True}])
def test_what_is_costly_or_a_result_stays_in_memory(options: dict[str, bool]) -> None:
    program, masked = gradient(**options)
    assert masked.name in in_memory(equivalent(program, REPEATING))


def test_a_value_is_computed_again_instead_of_being_rounded() -> None:
    """With what its kernel computes for it, if it is a rounding alone that memory adds."""
    program, rounded = gradient_of_a_norm()
    kept = in_memory(equivalent(program, REPEATING))
    found = in_memory(equivalent(program, REPEATING, rounds=False, tolerance=0.05))
    assert rounded.name in kept and not any(name.startswith(rounded.name) for name in found)
    inputs = numbers(program)
    wide = [replace(node, **_unrounded(node)) for node in program.nodes if isinstance(node, Nest)]
    exact = run_program(replace(program, nodes=tuple(wide)), inputs)
    errors = []
    for rounds in (True, False):
        made = run_schedule(schedule(program, REPEATING, rounds), inputs)
        pairs = zip(contents(program, made).values(), contents(program, exact).values(), strict=True)
        errors.append(max(abs(a - b) for x, y in pairs for a, b in zip(x, y, strict=True)))
    assert errors[1] < errors[0] / 100, errors


def _unrounded(node: Nest) -> dict[str, object]:
    value = node.value.args[0] if node.buffer.dtype == "bf16" else node.value
    names = {"dtype": "f32"} if node.buffer.dtype == "bf16" else {}

    def on_load(buffer: str, index: Index, dtype: str) -> Expr:
        return load(buffer, index, "f32" if buffer.startswith("b") else dtype)

    return {"value": Rewriter({}, on_load)(value), "buffer": replace(node.buffer, **names)}


def test_a_value_is_computed_again_in_pieces_of_what_it_is_summed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever dims it has: its kernel walks them as one. No number changes where kernels keep their roundings."""
    monkeypatch.setattr("stator.loop.schedule.repeat", lambda plan, device, rounds: repeat(plan, device, False))
    b = Build()
    size = [7, 4, 4, 24]
    x, dy = b.input(*size, dtype="bf16"), b.input(*size, dtype="bf16")

    def at(buffer: Buffer, *axes: Axis) -> Expr:
        return cast(get(buffer, *axes), "f32")

    masked = b.pointwise(size, lambda *i: cast(op("mul", at(dy, *i), op("exp", op("neg", at(x, *i)))), "bf16"), "bf16")
    sums = b.reduction([24], size[:3], lambda c, *i: total(at(masked, *i, c)))
    last = b.pointwise(size, lambda *i: op("sub", at(masked, *i), op("mul", at(x, *i), get(sums, i[-1]))))
    device = replace(GPU, launch_cost=0.0, min_split=64, min_columns=0, column_points=64, row_parts=0, columns=8)
    found = equivalent(b.program(last), device)
    assert any("pieces" in reason for reason in found.reasons), found.reasons
    assert not any(name.startswith(masked.name) for name in in_memory(found)), found.text()


def test_what_takes_many_instructions_is_not_computed_again() -> None:
    program, rounded = gradient_of_a_norm("erfinv")
    assert rounded.name in in_memory(schedule(program, REPEATING, rounds=False))


def test_what_more_is_read_than_is_saved_stays_in_memory() -> None:
    """A sum of four tensors is read by two kernels at the cost of one more read each, instead of four."""
    b = Build()
    given_ = [b.input(6, 50) for _ in range(4)]
    many = b.pointwise([6, 50], lambda i, j: reduce(partial(op, "add"), [get(x, i, j) for x in given_]))
    sums = b.reduction([50], [6], lambda j, i: total(get(many, i, j)))
    out = b.pointwise([6, 50], lambda i, j: op("sub", get(many, i, j), get(sums, j)))
    assert many.name in in_memory(equivalent(b.program(out), REPEATING))


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_random_programs(seed: int) -> None:
    equivalent(make(seed), REPEATING)
    equivalent(make(seed), replace(MIXING, repeats=True, launch_cost=0.0))


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_random_programs_without_roundings(seed: int) -> None:
    """What is computed again, of any dtype here, changes no number where kernels keep their roundings."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("stator.loop.repeat.HALVES", ("f32", "bf16"))
        patched.setattr("stator.loop.schedule.repeat", lambda plan, device, rounds: repeat(plan, device, False))
        equivalent(make(seed), REPEATING)
