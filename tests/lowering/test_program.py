"""What a lowered program looks like: mutations, aliases, what is copied and what is not, what fuses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.fx import Graph, GraphModule

from stator.base.device import Device
from stator.base.errors import Unsupported
from stator.fake import make
from stator.graphs.frozen import CONVOLUTION
from stator.graphs.pairs import MULTIPLY_PAIRS
from stator.graphs.pixels import MULTIPLY_PIXELS
from stator.graphs.scores import ATTEND, SCORES
from stator.loop.index import Axis
from stator.loop.kernel import Launch
from stator.loop.nest import Extern, Nest, Program, View
from stator.loop.schedule import schedule
from stator.loop.verify import verify_program
from stator.lowering import LOWERINGS, lower
from stator.lowering import product as product_library
from stator.lowering.view import reshape_indices, view_strides
from stator.plan import verify as verify_plan
from stator.plan.build import make as plan_of
from stator.plan.ir import Allocate
from stator.prims import DECOMPOSITIONS, PRIMITIVES
from stator.prims.random import RANDOM
from stator.targets import typical
from tests.cases.execute import run
from tests.cases.graphs import trace
from tests.cases.model import gradients, layout

CPU = typical("cpu")

aten = torch.ops.aten


def lowered(fn: Callable[..., Any], *inputs: Tensor, device: Device = CPU) -> tuple[Program, list[Tensor]]:
    gm, lifted = trace(fn, inputs, DECOMPOSITIONS)
    program = lower(gm, "test", device)
    verify_program(program)
    return program, lifted


def nests(program: Program) -> list[Nest]:
    return [n for n in program.nodes if isinstance(n, Nest)]


def externs(program: Program) -> list[str]:
    return [n.target for n in program.nodes if isinstance(n, Extern)]


def test_the_primitives_are_what_has_a_lowering() -> None:
    without = {op for op, primitive in PRIMITIVES.items() if primitive.kind != "extern" and op not in LOWERINGS}
    assert {str(op) for op in without} == {"aten.copy_.default"}
    made_by_passes, made_by_capture = {CONVOLUTION, MULTIPLY_PAIRS, MULTIPLY_PIXELS}, {SCORES, ATTEND}
    assert set(LOWERINGS) <= set(PRIMITIVES) | made_by_passes | made_by_capture


# -- mutations -------------------------------------------------------------------------------------


class Writer:
    """Builds a graph by hand; `call` records what the operator gives for the placeholders' values."""

    def __init__(self, *inputs: Tensor) -> None:
        self.graph, self.inputs = Graph(), list(inputs)
        self.nodes = [self.graph.placeholder(f"x{i}") for i in range(len(inputs))]
        for node, value in zip(self.nodes, inputs, strict=True):
            node.meta["val"] = value

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Any:
        node = self.graph.call_function(op, args, kwargs)
        values = [a.meta["val"].clone() if isinstance(a, torch.fx.Node) else a for a in args]
        node.meta["val"] = op(*values, **kwargs)
        return node

    def finish(self, *outputs: Any) -> Program:
        self.graph.output(outputs)
        program = lower(GraphModule(torch.nn.Module(), self.graph), "test", typical("cpu"))
        verify_program(program)
        return program


def test_in_place_update_is_one_nest_on_the_input() -> None:
    g = Writer(torch.randn(3), torch.randn(3))
    x, y = g.nodes
    g.call(aten.copy_.default, x, g.call(aten.add.Tensor, x, y))
    program = g.finish()
    assert len(program.nodes) == 1 and program.mutated == ("x0",)
    x0, y0 = (t.clone() for t in g.inputs)
    run(program, g.inputs)
    assert torch.equal(g.inputs[0], x0 + y0)


def test_swap() -> None:
    g = Writer(torch.randn(2, 3), torch.randn(2, 3))
    x, y = g.nodes
    g.call(aten.copy_.default, x, y)
    g.call(aten.copy_.default, y, x)
    program = g.finish()
    x0, y0 = (t.clone() for t in g.inputs)
    run(program, g.inputs)
    assert torch.equal(g.inputs[0], y0) and torch.equal(g.inputs[1], x0)


def test_outputs_see_the_old_value() -> None:
    g = Writer(torch.randn(4))
    (x,) = g.nodes
    doubled = g.call(aten.mul.Tensor, x, 2.0)
    seen = g.call(aten.slice.Tensor, x, 0, 1, 3)
    g.call(aten.copy_.default, x, g.call(aten.flip.default, x, [0]))
    program = g.finish(doubled, seen, x)
    before = g.inputs[0].clone()
    got = run(program, g.inputs)
    assert torch.equal(got[0], before * 2) and torch.equal(got[1], before[1:3]) and torch.equal(got[2], before)
    assert torch.equal(g.inputs[0], before.flip(0))


def test_mutated_input_with_strides_and_a_broadcast_value() -> None:
    g = Writer(torch.randn(4, 3).t(), torch.randn(4))
    x, y = g.nodes
    g.call(aten.copy_.default, x, y)
    program = g.finish()
    run(program, g.inputs)
    assert torch.equal(g.inputs[0], g.inputs[1].expand(3, 4))


# -- memory ----------------------------------------------------------------------------------------


def test_outputs_that_are_views_share_memory() -> None:
    program, _ = lowered(lambda x: ((y := x.exp()), y.view(6), y.t(), y), torch.randn(2, 3))
    buffers = {output.buffer for output in program.outputs if isinstance(output, View)}
    assert len(buffers) == 1 and len(program.nodes) == 1


def test_an_input_may_be_an_output() -> None:
    program, _ = lowered(lambda x: (x.view(6), x.clone()), torch.randn(2, 3))
    first, second = program.outputs
    assert first == View(program.inputs[0].name, (6,), (1,)) and isinstance(second, View)
    assert second.buffer != program.inputs[0].name and len(program.nodes) == 1


def test_extern_arguments_are_views() -> None:
    program, _ = lowered(lambda a, b: a.t() @ b[1:, ::2], torch.randn(4, 3), torch.randn(5, 8))
    (call,) = program.nodes
    assert isinstance(call, Extern) and call.out_target == "aten.mm.out"
    assert call.args[0].stride == (1, 3) and call.args[1] == View(program.inputs[1].name, (4, 4), (8, 2), 8)


def test_a_copy_that_changes_nothing_is_not_made_for_a_call() -> None:
    program, _ = lowered(lambda a, b: a.clone() @ b.t().contiguous(), torch.randn(4, 4), torch.randn(4, 4))
    assert len(nests(program)) == 1  # only the one that reorders


def test_the_base_of_a_view_is_realised_once() -> None:
    program, _ = lowered(lambda x, w: (x.exp().view(6, 4) @ w, x.exp()), torch.randn(2, 3, 4), torch.randn(4, 2))
    (made,) = [n for n in nests(program) if n.buffer.size == (2, 3, 4)][:1]
    assert made.buffer.stride == (12, 4, 1)


def test_a_joined_value_is_written_part_by_part() -> None:
    program, _ = lowered(lambda a, b: torch.cat((a * 2, b), 1), torch.randn(3, 2), torch.randn(3, 4))
    assert len(nests(program)) == 2 and len({n.buffer.name for n in nests(program)}) == 1
    fused, _ = lowered(lambda a, b: torch.cat((a * 2, b), 1).exp(), torch.randn(3, 2), torch.randn(3, 4))
    assert len(nests(fused)) == 1


def test_a_value_with_costly_readers_is_computed_once() -> None:
    costly, _ = lowered(lambda x: ((y := x.tanh()).sum(0), y.sum(1)), torch.randn(3, 4))
    cheap, _ = lowered(lambda x: ((y := x * 2).sum(0), y.sum(1)), torch.randn(3, 4))
    assert len(nests(costly)) == 3 and len(nests(cheap)) == 2


def test_long_chains_are_cut() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(400):
            x = x + 1.5
        return x

    program, inputs = lowered(chain, torch.randn(3))
    assert 2 <= len(program.nodes) <= 10
    torch.testing.assert_close(run(program, inputs)[0], chain(inputs[0]), rtol=1e-6, atol=1e-4)


def test_the_bias_joins_the_kernel_that_reads_the_product() -> None:
    x, w, b = torch.randn(30, 40), torch.randn(50, 40), torch.randn(50)
    assert externs(lowered(lambda x, w, b: F.gelu(F.linear(x, w, b)), x, w, b)[0]) == ["aten.mm.default"]
    assert externs(lowered(F.linear, x, w, b)[0]) == ["aten.addmm.default"]
    halves = (torch.randn(300, 40).bfloat16(), w.bfloat16(), b.bfloat16())  # fewer results are a loop
    assert externs(lowered(lambda x, w, b: F.relu(F.linear(x, w, b)), *halves)[0]) == ["aten.addmm.default"]


def test_large_products_go_to_the_faster_library() -> None:
    x, w, b = torch.randn(130, 128), torch.randn(128, 160), torch.randn(160)
    onednn = product_library.ONEDNN
    for faster, product, biased in ((True, onednn, onednn), (False, "aten.mm.default", "aten.addmm.default")):
        device = replace(typical("cpu"), onednn_products=faster)
        for fn, inputs, target in (
            (torch.mm, (x, w), product),
            (lambda x, w: x.t() @ w.t(), (w, x), product),
            (torch.addmm, (b, x, w), biased),
            (lambda b, x, w: torch.addmm(b, x, w).relu(), (b, x, w), product),
            (lambda b, x, w: torch.addmm(b[:1], x, w).relu(), (b, x, w), product),
            (torch.mm, (x[:8], w), "aten.mm.default"),
            (torch.mm, (x[:1].repeat(1, 99), w.repeat(99, 1)), "aten.mm.default"),
            (torch.mm, (x.double(), w.double()), "aten.mm.default"),
        ):
            program, given = lowered(fn, *inputs, device=device)
            assert externs(program) == [target]
            torch.testing.assert_close(run(program, given)[0], fn(*inputs), rtol=1e-4, atol=1e-4)


def test_a_shared_weight_gets_its_rows_added_in_place() -> None:
    g, w, ids = torch.randn(2, 5, 4), torch.randn(7, 3), torch.tensor([[1, 6, 1, 0, 3], [1, 1, 2, 2, 5]])

    def rows(g: Tensor, w: Tensor, ids: Tensor) -> Tensor:
        return torch.index_put(w @ g[0, :3], [ids], g, accumulate=True)

    program, inputs = lowered(rows, g, w, ids)
    assert externs(program) == ["aten.mm.default"] and [n.mode for n in nests(program)] == ["add"]
    torch.testing.assert_close(run(program, inputs)[0], rows(g, w, ids))

    def shared(g: Tensor, w: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        product = w @ g[0, :3]
        return torch.index_put(product, [ids], g, accumulate=True), product

    program, inputs = lowered(shared, g, w, ids)
    assert [n.mode for n in nests(program)] == ["store", "add"]  # a copy of the product first
    for got, want in zip(run(program, inputs), shared(g, w, ids), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("padding", [-1, 1])
def test_rows_of_an_embedding_are_summed_by_kernels(padding: int) -> None:
    g, ids = torch.randn(2, 5, 4), torch.tensor([[1, 6, 1, 0, 3], [1, 1, 2, 2, 5]])

    def rows(g: Tensor, ids: Tensor) -> Tensor:
        return aten.embedding_dense_backward(g, ids, 7, padding, False)

    program, inputs = lowered(rows, g, ids)
    assert externs(program) == [] and [n.mode for n in nests(program)] == ["store", "add"]
    torch.testing.assert_close(run(program, inputs)[0], rows(g, ids), rtol=0, atol=0)
    half = lowered(rows, g.bfloat16(), ids)
    assert externs(half[0]) == []
    torch.testing.assert_close(run(*half)[0], rows(g.bfloat16(), ids), rtol=0, atol=0)


def test_unknown_operators_are_calls() -> None:
    program, inputs = lowered(lambda x: torch.linalg.inv_ex(x)[0] * 2, torch.rand(4, 4))
    assert externs(program) == ["aten.linalg_inv_ex.default"]
    torch.testing.assert_close(run(program, inputs)[0], torch.linalg.inv_ex(inputs[0])[0] * 2)


# -- another device --------------------------------------------------------------------------------


def on_cuda(fn: Callable[..., Any], *inputs: Tensor) -> tuple[Program, list[Tensor]]:
    """Lowered as if every tensor were on a GPU; the evaluator does not care where buffers are."""
    gm, lifted = trace(fn, inputs, DECOMPOSITIONS)
    for node in gm.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            node.meta["val"] = make(tuple(value.shape), value.dtype, torch.device("cuda"))
    program = lower(gm, "test", typical("cuda"))
    verify_program(program)
    return program, lifted


ROWS = torch.randint(4, (5,))

SCATTERS = {
    "embedding": (gradients(lambda w, i: F.embedding(i, w, padding_idx=1)), torch.randn(5, 4), ROWS),
    "index_add": (lambda x, i, y: torch.index_add(x, 0, i, y), torch.randn(4, 3), ROWS, torch.randn(5, 3)),
    "put": (lambda x, i, y: x.index_put((i, i), y, True), torch.randn(4, 4, 2), ROWS, torch.randn(2)),
    "scatter_add": (lambda x, i, y: x.scatter_add(1, i.view(1, 5), y), torch.randn(3, 4), ROWS, torch.randn(2, 6)),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_accumulating_scatters_are_nests_there(name: str) -> None:
    fn, *inputs = SCATTERS[name]
    program, lifted = on_cuda(fn, *inputs)
    assert not externs(program) and any(n.mode == "add" for n in nests(program))
    assert {buffer.device for buffer in program.buffers.values()} == {"cuda"}
    expected = fn(*inputs)
    for ours, eager in zip(run(program, lifted), expected if isinstance(expected, tuple) else [expected], strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)


ODD = torch.tensor([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, -math.nan, 3e38, -1e-40], dtype=torch.float64)


@pytest.mark.parametrize("reduce", ["amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.bool])
def test_extremes_there_are_those_of_integers(dtype: torch.dtype, reduce: str) -> None:
    """Which are in the same order as the floats; NaN wins over all of them, whatever its sign."""
    odd = ODD if dtype.is_floating_point else torch.tensor([0.0, 1.0, -5.0, 127.0])
    x, y = (odd[torch.randint(len(odd), (count, 2))].to(dtype) for count in (6, 40))
    positions = torch.randint(6, (40, 2))
    program, inputs = on_cuda(lambda x, i, y: x.scatter_reduce(0, i, y, reduce), x, positions, y)
    assert not externs(program)
    (ours,) = run(program, inputs)
    torch.testing.assert_close(ours, x.scatter_reduce(0, positions, y, reduce), equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.uint8, torch.int16, torch.bool])
def test_narrow_numbers_there_are_added_in_wide_ones(dtype: torch.dtype) -> None:
    x, y = torch.randint(-9, 9, (4, 3)).to(dtype), torch.randint(-90, 90, (60, 3)).to(dtype)
    rows = torch.randint(4, (60,))
    program, inputs = on_cuda(lambda x, i, y: x.index_put((i,), y, True), x, rows, y)
    assert not externs(program)
    (ours,) = run(program, inputs)
    wide = torch.float32 if dtype.is_floating_point else dtype
    torch.testing.assert_close(ours, x.to(wide).index_put((rows,), y.to(wide), True).to(dtype), rtol=0, atol=0)


def test_host_values_are_carried_over() -> None:
    g = Writer(torch.randn(4), torch.tensor(2.0))
    product = g.call(aten.mul.Tensor, *g.nodes)
    g.nodes[0].meta["val"] = product.meta["val"] = make((4,), torch.float32, torch.device("cuda"))
    g.graph.output((product,))
    program = lower(GraphModule(torch.nn.Module(), g.graph), "test", typical("cuda"))
    assert externs(program) == ["aten._to_copy.default"]
    (call,) = [n for n in program.nodes if isinstance(n, Extern)]
    assert call.kwargs == (("device", "torch.device('cuda')"),) and call.outputs[0].device == "cuda"


def on_devices(*names: str) -> GraphModule:
    """A tensor on each of these devices times a number of the host."""
    g = Writer(*[torch.randn(4) for _ in names], torch.tensor(2.0))
    number, made = g.nodes[-1], []
    for node, name in zip(g.nodes, names, strict=False):
        node.meta["val"] = make((4,), torch.float32, torch.device(name))
        made.append(g.call(aten.mul.Tensor, node, number))
        made[-1].meta["val"] = node.meta["val"]
    g.graph.output(tuple(made))
    return GraphModule(torch.nn.Module(), g.graph)


@pytest.mark.parametrize(("name", "number"), [("cuda:1", 1), ("cuda:0", 0), ("cuda", None)])
def test_plans_say_which_device(name: str, number: int | None) -> None:
    program = lower(on_devices(name), "test", typical(torch.device(name).type))
    (call,) = [n for n in program.nodes if isinstance(n, Extern)]
    assert program.device_number == number and call.kwargs == (("device", f"torch.device('{name}')"),)
    plan = plan_of(schedule(program, typical(program.device)))
    verify_plan(plan)
    assert plan.device == name and [given.device for given in plan.inputs] == [name, "cpu"]
    assert {step.device for step in plan.steps if isinstance(step, Allocate)} == {name}


def test_several_devices_are_refused() -> None:
    with pytest.raises(Unsupported, match=r"a graph on several devices .* are on cuda:0 and cuda:1"):
        lower(on_devices("cuda:0", "cuda:1"), "test", typical("cuda"))


def test_random_numbers() -> None:
    seeds = torch.tensor([3, 1234567890123])
    options: dict[str, Any] = {"kind": "uniform", "dtype": torch.float32, "device": torch.device("cpu")}
    program, inputs = lowered(lambda s: (RANDOM(s, 1, [3, 4], **options).t() > 0.5).float(), seeds)
    assert len(program.nodes) == 1
    assert torch.equal(run(program, inputs)[0], (RANDOM(seeds, 1, [3, 4], **options).t() > 0.5).float())


# -- shapes of the schedule ------------------------------------------------------------------------

H = 16


def layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, (H,), w, b)


def norm_args() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(2, 8, H), torch.randn(H), torch.randn(H)


#: name → (program, inputs, kernels after fusion)
def rotary(x: Tensor, c: Tensor) -> Tensor:
    return x * c + torch.cat((-x[..., H // 2 :], x[..., : H // 2]), -1) * c


ROW = torch.randn(8, H)

#: name → (program, inputs, kernels after fusion)
FUSED: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    "layer_norm": (layer_norm, norm_args(), 1),
    "residual_norm": (lambda y, x, w, b: (layer_norm(x + y, w, b), x + y), (torch.randn(2, 8, H), *norm_args()), 1),
    "softmax": (lambda x: F.softmax(x, -1), (ROW,), 1),
    "softmax_backward": (lambda g, y: aten._softmax_backward_data(g, y, -1, torch.float32), (ROW, ROW * 2), 1),
    "bias_gelu": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (ROW, torch.randn(32, H), torch.randn(32)), 1),
    "rms_norm": (lambda x, w: F.rms_norm(x, (H,), w), (ROW, torch.randn(H)), 1),
    "swiglu": (lambda a, b: F.silu(a) * b, (ROW, ROW * 2), 1),
    "rotary": (rotary, (torch.randn(2, 4, 8, H), ROW), 1),
}


@pytest.mark.parametrize("name", FUSED)
def test_fuses(name: str) -> None:
    fn, inputs, kernels = FUSED[name]
    program, _ = lowered(fn, *inputs)
    plan = schedule(program, typical("cpu"))
    assert sum(isinstance(step, Launch) for step in plan.steps) == kernels


# -- index rewriting -------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [(2, 3, 4), (6, 4), (24,), (1, 24, 1), (4, 6), (2, 12), (3, 8)])
@pytest.mark.parametrize("new", [(2, 3, 4), (6, 4), (24,), (1, 24, 1), (4, 6), (2, 12), (8, 3), (2, 1, 2, 6)])
def test_reshape(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    values = torch.arange(24)
    axes = [Axis(f"x{d}", n) for d, n in enumerate(new)]
    at = reshape_indices(tuple(a.index for a in axes), new, old)
    for number, point in enumerate(torch.cartesian_prod(*[torch.arange(n) for n in new]).view(24, -1).tolist()):
        place = [i.evaluate(dict(zip(axes, point, strict=True))) for i in at]
        assert values.view(old)[tuple(place)] == number


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (0, 2, 1)])
@pytest.mark.parametrize("new", [(24,), (6, 4), (2, 12), (4, 3, 2), (4, 6), (2, 2, 6), (1, 3, 8), (12, 2, 1)])
def test_view_strides(order: tuple[int, ...], new: tuple[int, ...]) -> None:
    x = torch.arange(24).view(2, 3, 4).permute(order)
    found = view_strides(tuple(x.shape), x.stride(), new)
    try:
        expected = x.view(new)
    except RuntimeError:
        assert found is None
        return
    assert found is not None
    assert torch.equal(x.as_strided(new, found), expected)


# -- chains of views -------------------------------------------------------------------------------


def view_of(x: Tensor, data: st.DataObject) -> Callable[[Tensor], Tensor]:
    """A random view (or copy) that is legal for `x`."""
    dims = list(range(x.dim()))
    dim = data.draw(st.sampled_from(dims)) if dims else 0
    extent = x.shape[dim] if dims else 1
    kinds = ["unsqueeze", "clone", "reshape", "pad"]
    if dims:
        kinds += ["permute", "slice", "select", "expand", "flip", "squeeze", "step", "diagonal", "cat"]
    match data.draw(st.sampled_from(kinds)):
        case "permute":
            order = data.draw(st.permutations(dims))
            return lambda t: t.permute(order)
        case "slice":
            start = data.draw(st.integers(0, extent))
            return lambda t: t.narrow(dim, start, extent - start)
        case "step":
            return lambda t: t[(slice(None),) * dim + (slice(None, None, 2),)]
        case "select" if extent:
            place = data.draw(st.integers(0, extent - 1))
            return lambda t: t.select(dim, place)
        case "expand" if extent == 1:
            return lambda t: t.expand([3 if d == dim else n for d, n in enumerate(t.shape)])
        case "flip":
            return lambda t: t.flip(dim)
        case "squeeze":
            return lambda t: t.squeeze(dim)
        case "diagonal" if len(dims) > 1:
            offset = data.draw(st.integers(-1, 1))
            return lambda t: t.diagonal(offset, 0, 1)
        case "cat":
            return lambda t: torch.cat((t, t), dim)
        case "unsqueeze":
            return lambda t: t.unsqueeze(dim)
        case "reshape" if x.numel():
            return lambda t: t.reshape(-1, x.shape[-1]) if dims else t.reshape(1)
        case "pad" if dims:
            return lambda t: F.pad(t, (1, 0))
        case _:
            return lambda t: t.clone()


@given(st.data())
def test_chains_of_views(data: st.DataObject) -> None:
    """Views of inputs and of computed values, in any order, agree with eager in values and strides."""
    size = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    x = torch.randn(size)
    steps: list[Callable[[Tensor], Tensor]] = []
    shape = x
    for _ in range(data.draw(st.integers(1, 5))):
        steps.append(view_of(shape, data))
        shape = steps[-1](shape)
        if shape.numel() > 200:
            break
    computed = data.draw(st.booleans())

    def program(t: Tensor) -> Tensor:
        t = t * 2 if computed else t
        for step in steps:
            t = step(t)
        return t

    lowered_program, inputs = lowered(program, x)
    (ours,) = run(lowered_program, inputs)
    eager = program(x)
    assert torch.equal(ours, eager) and layout(ours) == layout(eager)
