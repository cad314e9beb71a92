"""Which step touches memory last that a caller has given, and first that results lie in."""

from __future__ import annotations

from stator.plan import ir
from stator.plan.uses import uses
from stator.runtime.extern import may_alias

FORM = ir.Form("f32", (4, 4), (4, 1))
W = ir.Whole


def launch(*reads: str, writes: str) -> ir.Launch:
    return ir.Launch("kernel", (*[ir.Address(W(name)) for name in reads], ir.Address(W(writes), written=True)))


def product(into: str, *taken: str) -> ir.Invoke:
    return ir.Invoke("aten.mm.out", tuple(map(W, taken)), (), into=ir.Into("aten.mm.out", W(into)))


def call(target: str, result: str, *taken: str) -> ir.Invoke:
    return ir.Invoke(target, tuple(map(W, taken)), (), (ir.Result(0, result, (4, 4), (4, 1)),))


def plan(*steps: ir.Step, results: tuple[ir.Argument, ...], inputs: str = "abc", **facts: object) -> ir.Plan:
    given = tuple([ir.Input(name, FORM) for name in inputs])
    return ir.Plan("p", "cpu", ("kernel",), given, steps, results, **facts)  # type: ignore[arg-type]


def test_the_last_step_that_reads_and_the_first_that_writes() -> None:
    made = plan(
        ir.Allocate("x", FORM),
        launch("a", "b", writes="x"),
        ir.Allocate("y", FORM),
        product("y", "a", "x"),
        launch("b", writes="y"),
        results=(W("x"), W("y")),
    )
    found = uses(made, may_alias)
    assert found.last == {0: 3, 1: 4, 2: -1} and found.first == (1, 3)


def test_views_and_transposes_are_the_memory() -> None:
    flat = ir.Reread("a", ir.Form("f32", (16,), (1,)))
    taken = ir.Invoke("aten.mm.out", (ir.Turned("b"), flat), (), into=ir.Into("aten.mm.out", W("x")))
    found = uses(plan(ir.Allocate("x", FORM), taken, results=(W("x"),)), may_alias)
    assert found.last == {0: 1, 1: 1, 2: -1}


def test_memory_that_is_used_under_another_name() -> None:
    """What takes over the memory of an input writes it; what takes over that of a result is the result."""
    made = plan(
        ir.Reuse("x", "a"),
        launch("b", writes="x"),
        ir.Allocate("y", FORM),
        launch("x", writes="y"),
        ir.Reuse("z", "y"),
        launch("c", writes="z"),
        results=(W("z"),),
    )
    found = uses(made, may_alias)
    assert found.last == {1: 1, 2: 5} and found.first == (3,)


def test_inputs_that_are_results_are_left_out() -> None:
    view = ir.Reread("b", ir.Form("f32", (2, 4), (4, 1)), 8)
    made = plan(ir.Allocate("x", FORM), launch("a", "b", "c", writes="x"), results=(W("x"), W("a"), view))
    assert uses(made, may_alias).last == {2: 1}


def test_inputs_that_are_written_are_left_out() -> None:
    made = plan(launch("a", writes="b"), results=(), effects=(ir.Effect("write", "b"),))
    assert uses(made, may_alias).last == {0: 0, 2: -1}


def test_what_an_operator_may_give_on() -> None:
    """A view of an input reads it later, through any number of operators; what is made anew does not."""
    steps = (
        call("aten.view.default", "v", "a"),
        call("mine.op.default", "w", "v"),
        call("aten.exp.default", "e", "b"),
        ir.Allocate("x", FORM),
        launch("w", "e", writes="x"),
    )
    assert uses(plan(*steps, results=(W("x"),)), may_alias).last == {0: 4, 1: 2, 2: -1}
    assert uses(plan(*steps, results=(W("w"), W("x"))), may_alias).last == {1: 2, 2: -1}


def test_results_in_several_dtypes_stay_where_they_are() -> None:
    cast = ir.Reread("x", ir.Form("i32", (4, 4), (4, 1)), casts=True)
    steps = (ir.Allocate("x", FORM), launch("a", writes="x"), ir.Allocate("y", FORM), launch("a", writes="y"))
    assert uses(plan(*steps, results=(W("x"), cast, W("y"))), may_alias).first == (None, 3)


def test_which_operators_may_give_on_what_they_are_given() -> None:
    alike = ("aten.view.default", "aten.t.default", "aten.contiguous.default", "aten.broadcast_tensors.default")
    assert all(map(may_alias, (*alike, "mine.op.default")))
    anew = (
        "aten.mm.default",
        "aten.convolution_backward.default",
        "aten._softmax.default",
        "aten.exp.default",
    )
    assert not any(map(may_alias, anew))
