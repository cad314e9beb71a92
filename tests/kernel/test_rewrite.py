"""Rewrites: what they make, and that it computes the same."""

from __future__ import annotations

import pytest

from stator.base.dtypes import ITEMSIZE
from stator.kernel.evaluate import run
from stator.kernel.ir import Assign, Function, Loop, walk
from stator.kernel.nest import Order, nest
from stator.kernel.parse import parse
from stator.kernel.rewrite import PART, columns, contract, flush_sums, jam, split, strip
from stator.kernel.text import function_text
from stator.kernel.verify import verify
from stator.loop.evaluate import Memory
from stator.loop.kernel import Kernel
from stator.loop.verify import GrammarError
from tests.kernel.programs import Strategy, checked, compare

SUM = """def k(p0: In[{dtype}, {numel}], p1: Out[{dtype}, 1]):
    a0: Var[{dtype}] = {start}
{loops}
    p1[0] = a0
"""


def summed(sizes: tuple[int, ...], op: str = "add", dtype: str = "f32") -> Function:
    """A reduction over loops of these sizes."""
    lines, place, numel = [], "", 1
    for i, size in enumerate(sizes):
        lines.append("    " * (i + 1) + f"for r{i} in range({size}):")
        numel *= size
    below = numel
    for i, size in enumerate(sizes):
        below //= size
        place += f"{' + ' if place else ''}{f'{below}*' if below > 1 else ''}r{i}"
    inside = "    " * (len(sizes) + 1)
    lines += [f"{inside}t0: {dtype} = p0[{place}]", f"{inside}a0 = {op}(a0, t0)"]
    start = {"add": "0.0", "mul": "1.0", "maximum": "-inf"}[op]
    return parse(SUM.format(dtype=dtype, numel=numel, start=start, loops="\n".join(lines)))


def result(function: Function, values: list[float]) -> float:
    memories = {p.name: Memory(bytearray(p.numel * ITEMSIZE[p.dtype]), 0, p.dtype) for p in function.params}
    for position, value in enumerate(values):
        memories["p0"].write(position, value)
    verify(function)
    assert run(function, memories) == 0
    found: float = memories["p1"].read(0)
    return found


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("sizes", [(1000,), (33,), (100, 20), (100, 3), (5, 7, 9), (2, 200, 2), (64, 16)], ids=str)
def test_long_sums_are_flushed(sizes: tuple[int, ...], dtype: str) -> None:
    before = summed(sizes, dtype=dtype)
    after = flush_sums(before)
    assert function_text(after).count("flush(a0)") == 1
    values = [(i * 37 % 64) / 8 for i in range(before.params[0].numel)]  # type: ignore[arg-type]
    assert result(after, values) == result(before, values) == sum(values)


def test_a_flushed_sum_is_rounded_less_than_a_long_one() -> None:
    before = summed((4096,))
    values = [1.0 + i / 8192 for i in range(4096)]
    wrong = [abs(result(f, values) - sum(values)) for f in (before, flush_sums(before))]
    assert wrong[1] <= 2.0**-12 < wrong[0]  # half a unit in the last place of float32, there


@pytest.mark.parametrize(("sizes", "op"), [((32,), "add"), ((4, 8), "add"), ((1000,), "maximum")], ids=str)
def test_what_is_short_or_exact_stays(sizes: tuple[int, ...], op: str) -> None:
    before = summed(sizes, op)
    assert flush_sums(before) == before


@pytest.mark.parametrize("size", [1, PART - 1, PART, PART + 1, 100])
def test_a_split_loop_meets_every_point_once(size: int) -> None:
    loop = parse(f"def k(p1: InOut[f32, {size}]):\n    for x0 in range({size}):\n        add(p1[x0], f32(1.0))\n").body[
        0
    ]
    assert isinstance(loop, Loop)
    function = parse(f"def k(p1: InOut[f32, {size}]):\n    pass\n")
    function = Function("k", function.params, (), (split(loop, PART),))
    verify(function)
    memory = Memory(bytearray(4 * size), 0, "f32")
    run(function, {"p1": memory})
    assert [memory.read(i) for i in range(size)] == [1.0] * size


def jammed(kernel: Kernel, name: str) -> Function:
    """Iterations of a loop that may go in any order, three together and those that are left over."""
    function = nest(kernel, name, Order.of(kernel))
    for loop in [s for s in walk(function.body) if isinstance(s, Loop) and s.kind == "parallel"]:
        if type(loop.axis.size) is int and loop.axis.size > 1:
            return jam(function, loop.axis, 3)
    return function


def stripped(kernel: Kernel, name: str) -> Function:
    """Parts of a loop that may go in any order around all others, as many as divide it; products rounded with sums."""
    function = contract(nest(kernel, name, Order.of(kernel)))
    for loop in [s for s in walk(function.body) if isinstance(s, Loop) and s.kind == "parallel"]:
        size = loop.axis.size
        count = next((c for c in (5, 4, 3, 2) if type(size) is int and size and size % c == 0), 1)
        if count > 1 and len(function.body) == 1:
            return strip(function, loop.axis, count)
    return function


@pytest.mark.parametrize("strategy", [jammed, stripped])
@pytest.mark.parametrize("seed", range(80, 120))
def test_iterations_together(seed: int, strategy: Strategy) -> None:
    compare(seed, strategy)


PRODUCT = """def k(p0: In[f32, {numel}], p1: In[f32, 8], p2: Out[f32, {rows}]):
    for x0 in parallel({rows}):
        a0: Var[f32] = 0.0
        for r0 in range(8):
            t0: f32 = p0[8*x0 + r0]
            t1: f32 = p1[r0]
            t2: f32 = mul(t0, t1)
            a0 = add(a0, t2)
        p2[x0] = a0
"""


def test_a_product_is_rounded_with_its_sum() -> None:
    before = parse(PRODUCT.format(numel=24, rows=3))
    text = function_text(checked(contract(before)))
    assert "a0 = fma(t0, t1, a0)" in text and "mul" not in text and "add(" not in text


def test_a_product_that_is_used_elsewhere_too_stays() -> None:
    text = PRODUCT.format(numel=24, rows=3)
    before = parse(text.replace("a0 = add(a0, t2)", "a0 = add(a0, t2)\n            p2[x0] = t2"))
    assert contract(before) == before


@pytest.mark.parametrize("rows", range(1, 12))
def test_iterations_left_over_are_together_too(rows: int) -> None:
    before = parse(PRODUCT.format(numel=8 * rows, rows=rows))
    (loop,) = before.body
    assert isinstance(loop, Loop)
    after = checked(jam(contract(before), loop.axis, 4))
    sums = [s for s in walk(after.body) if isinstance(s, Assign)]
    assert len(sums) == (4 if rows >= 4 else 0) + rows % 4
    found = []
    for function in (before, after):
        memories = {p.name: Memory(bytearray(4 * p.numel), 0, "f32") for p in function.params}  # type: ignore[operator]
        for name, numel in (("p0", 8 * rows), ("p1", 8)):
            for i in range(numel):
                memories[name].write(i, float(i % 5))
        assert run(function, memories) == 0
        found.append([memories["p2"].read(i) for i in range(rows)])
    assert found[0] == found[1]


def test_what_iterations_have_in_common_is_computed_once() -> None:
    before = parse("""def k(p0: In[f32, 8], p1: In[f32, 3], p2: Out[f32, 4]):
    for x0 in parallel(4):
        a0: Var[f32] = 0.0
        for r0 in range(2):
            t0: f32 = p0[2*x0 + r0]
            t1: f32 = p1[r0 + 1]
            t2: f32 = mul(t0, t1)
            a0 = add(a0, t2)
        p2[x0] = a0
""")
    (loop,) = before.body
    assert isinstance(loop, Loop)
    assert (
        function_text(jam(before, loop.axis, 2))
        == """def k(p0: In[f32, 8], p1: In[f32, 3], p2: Out[f32, 4]):
    for x0_2 in parallel(2):
        a0_0: Var[f32] = 0.0
        a0_1: Var[f32] = 0.0
        for r0 in range(2):
            t1: f32 = p1[r0 + 1]
            t0_0: f32 = p0[4*x0_2 + r0]
            t2_0: f32 = mul(t0_0, t1)
            a0_0 = add(a0_0, t2_0)
            t0_1: f32 = p0[4*x0_2 + r0 + 2]
            t2_1: f32 = mul(t0_1, t1)
            a0_1 = add(a0_1, t2_1)
        p2[2*x0_2] = a0_0
        p2[2*x0_2 + 1] = a0_1
"""
    )


@pytest.mark.parametrize("size", [3, 4, 7, 8, 9, 23])
def test_vectors_of_columns_go_together_and_the_rest_one_by_one(size: int) -> None:
    before = parse(f"""def k(p0: In[f32, {3 * size}], p1: Out[f32, {size}]):
    for x0 in lanes(2*2, {size}):
        a0: Var[f32] = 0.0
        for r0 in range(3):
            t0: f32 = p0[{size}*r0 + x0]
            a0 = add(a0, t0)
        p1[x0] = a0
""")
    after = checked(columns(before))
    assert [s.kind for s in after.body if isinstance(s, Loop)] == ["whole", "rest"][: 2 if size % 4 else 1]
    assert f"p0[{size}*r0 + x0 + 2]" in function_text(after)
    memories = {p.name: Memory(bytearray(p.numel * 4), 0, "f32") for p in after.params if isinstance(p.numel, int)}
    for i in range(3 * size):
        memories["p0"].write(i, float(i * i))
    run(after, memories)
    expected = [float(sum((size * r + x) ** 2 for r in range(3))) for x in range(size)]
    assert [memories["p1"].read(x) for x in range(size)] == expected


def test_what_goes_together_stays_in_memory() -> None:
    text = """def k(p0: Out[f32, 8]):
    for x0 in whole(2*2, 8):
        p0[x0] = f32(1.0)
        p0[x0 + 2] = f32(1.0)
"""
    verify(parse(text))
    with pytest.raises(GrammarError, match="leaves"):
        verify(parse(text.replace("x0 + 2", "x0 + 3")))


@pytest.mark.parametrize("seed", range(60, 80))
def test_kernels_before_any_rewrite(seed: int) -> None:
    assert compare(seed, lambda kernel, name: nest(kernel, name, Order.of(kernel))) > 0
