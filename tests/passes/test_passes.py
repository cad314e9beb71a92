"""Each pass does its rewrite, nothing more, and graphs mean the same before and after."""

import math

import pytest
import torch
from torch import fx

import stator
from stator.aot.partition import partition
from stator.aot.trace import trace
from stator.base.dtypes import ITEMSIZE, TORCH
from stator.fake import FakeMode
from stator.graphs.nodes import add_call, infer
from stator.passes import PIPELINE, run
from stator.passes.accumulate import AccumulateEmbeddings
from stator.passes.constants import FoldConstants
from stator.passes.dead import RemoveDead
from stator.passes.equal import MergeEqual, MergeJoint
from stator.passes.noop import RemoveNoOps
from stator.passes.views import ComposeViews
from stator.prims import DECOMPOSITIONS, PRIMITIVES, RANDOM_OPERATORS
from tests.aot.models import GPT, captured

aten = torch.ops.aten


class Build:
    """Writes graphs: `b.add(x, y)` is a node of `aten.add.Tensor`."""

    def __init__(self, *inputs):
        self.graph = fx.Graph()
        self.inputs = inputs
        mode = FakeMode()
        self.x = []
        for i, real in enumerate(inputs):
            node = self.graph.placeholder(f"x{i}")
            node.meta["val"] = mode.from_real(real)
            self.x.append(node)

    def __call__(self, op, *args, **kwargs):
        node = add_call(self.graph, op, args, kwargs, op._opname)
        node.meta["val"] = infer(op, args, kwargs)
        return node

    def check(self, passes, outputs, calls, rtol=0, atol=0):
        """Run the passes; the calls left are `calls`, and the outputs are what they were."""
        self.graph.output(tuple(outputs))
        before = fx.GraphModule(torch.nn.Module(), self.graph)(*[x.clone() for x in self.inputs])
        run(self.graph, passes)
        self.graph.lint()
        left = [node.target._opname for node in self.graph.nodes if node.op == "call_function"]
        assert left == calls.split()
        after = fx.GraphModule(torch.nn.Module(), self.graph)(*[x.clone() for x in self.inputs])
        for a, b in zip(after, before, strict=True):
            assert a.stride() == b.stride() and a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol)
        return after


def test_dead_code():
    b = Build(torch.randn(3))
    b(aten.exp.default, b(aten.neg.default, b.x[0]))
    b(aten.copy_.default, b.x[0], b(aten.sin.default, b.x[0]))
    b.check([RemoveDead()], [b(aten.cos.default, b.x[0])], "sin copy_ cos")


def test_equal_calls_merge_by_value_and_type():
    b = Build(torch.randn(3), torch.arange(3))
    x, i = b.x
    a1, a2 = b(aten.add.Tensor, x, 1), b(aten.add.Tensor, x, 1)
    i1, i2 = b(aten.add.Tensor, i, 1), b(aten.add.Tensor, i, 1.0)
    z1, z2 = b(aten.mul.Tensor, x, 0.0), b(aten.mul.Tensor, x, -0.0)
    out = b(aten.mul.Tensor, a1, a2)
    b.check([MergeEqual()], [out, i1, i2, z1, z2], "add add add mul mul mul")


def test_equal_results_stay_two_objects():
    b = Build(torch.randn(3))
    one, two = b(aten.exp.default, b.x[0]), b(aten.exp.default, b.x[0])
    after = b.check([MergeEqual()], [one, two, b(aten.view.default, two, [3, 1])], "exp exp view")
    assert after[0].data_ptr() != after[1].data_ptr()


def test_equal_calls_merge_before_it_is_decided_what_is_kept():
    """Else each conversion of autocast is a value of its own that backward is given."""

    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterList([torch.randn(8, 8) for _ in range(3)])

        def forward(self, x):
            x = torch.softmax(x, 1)
            return sum(x.bfloat16() @ weight.bfloat16() for weight in self.weights).float()

    heads, x = Heads(), torch.randn(4, 8, requires_grad=True)
    (wanted,) = torch.autograd.grad(heads(x).sum(), x)
    loops = frozenset(op for op, line in PRIMITIVES.items() if line.kind != "extern")
    counts = []
    for merges in (False, True):
        joint = trace(captured(heads, [x]), [x], decompositions=DECOMPOSITIONS)
        if merges:
            run(joint.graph, (MergeJoint(),))
        parts = partition(joint, fused=loops)
        saved = [node.meta["val"] for node in parts.forward.graph.output_node().args[0][1:]]
        counts.append(len([v for v in saved if v.shape == (4, 8) and v.dtype is torch.bfloat16]))
        inputs = [*joint.attributes, x]
        forward = parts.forward(*inputs)
        got = parts.backward(*backward_arguments(parts, inputs, forward))
        torch.testing.assert_close(got[-1], wanted, rtol=2e-2, atol=2e-2)
    assert counts == [3, 1], counts


def test_calls_of_two_halves_and_what_leaves_stay_apart():
    b = Build(torch.randn(3))
    calls = [b(aten.exp.default, b.x[0]) for _ in range(7)]
    kinds = [{"phase": "forward"}] * 2 + [{"phase": "backward"}] * 2 + [{"phase": "forward", "recompute": 1}] * 2
    for call, kind in zip(calls, [*kinds, kinds[0]], strict=True):
        call.meta.update(kind)
    ends = [b(aten.neg.default, call) for call in calls[:-1]]
    for end in ends:
        end.meta["phase"] = "forward"
    after = b.check([MergeJoint()], [*ends, calls[-1]], "exp exp exp exp " + "neg " * 5 + "neg")
    assert len({t.data_ptr() for t in after}) == 7


def test_copies_and_views_that_do_nothing():
    b = Build(torch.randn(3, 4), torch.randn(3, 4).bfloat16())
    x, h = b.x
    y = b(aten.exp.default, b(aten.clone.default, x))
    y = b(aten.view.default, y, [3, 4])
    y = b(aten.permute.default, y, [0, 1])
    y = b(aten.slice.Tensor, y, 0, 0, 9223372036854775807)
    y = b(aten.constant_pad_nd.default, b(aten.mul.Tensor, y, 1.0), [0, 0, 0, 0], 2.0)
    w = b(aten._to_copy.default, b(aten._to_copy.default, h, dtype=torch.float32), dtype=torch.bfloat16)
    b.check([RemoveNoOps(), RemoveDead()], [b(aten.neg.default, y), b(aten.neg.default, w)], "exp neg neg")


DTYPES = [getattr(torch, TORCH[name]) for name in ITEMSIZE]


def edges_of(dtype):
    """All values of a dtype of one or two bytes, and what lies at the edges of others."""
    if dtype is torch.bool:
        return torch.tensor([True, False])
    if dtype.itemsize < 4:
        return torch.arange(-(2**15), 2**15).to({1: torch.uint8, 2: torch.int16}[dtype.itemsize]).view(dtype)
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        return torch.tensor([0.1, -0.0, limits.smallest_normal / 8, limits.max, -math.inf, math.nan], dtype=dtype)
    limits = torch.iinfo(dtype)
    return torch.tensor([0, -1, limits.min, limits.max, limits.max - 1], dtype=dtype)


@pytest.mark.parametrize("wide", DTYPES, ids=str)
@pytest.mark.parametrize("narrow", DTYPES, ids=str)
def test_conversions_there_and_back_go_where_no_value_is_lost(narrow, wide):
    x = edges_of(narrow)
    there = x.to(wide).to(narrow)
    b = Build(x)
    back = b(aten._to_copy.default, b(aten._to_copy.default, b.x[0], dtype=wide), dtype=narrow)
    b.graph.output((b(aten.clone.default, back),))
    run(b.graph, [RemoveNoOps(), RemoveDead()])
    goes = not any(node.target is aten._to_copy.default for node in b.graph.nodes)
    known = x.isnan() | ((there == x) & (torch.signbit(there) == torch.signbit(x)))
    wrapped = {narrow, wide} == {torch.int8, torch.uint8}  # comes back, though neither holds the other
    assert goes == (bool(known.all()) and not wrapped)


def test_copies_that_do_something_stay():
    b = Build(torch.randn(3, 4), torch.randn(3, 4))
    x, y = b.x
    plain = b(aten.clone.default, x)
    packed = b(aten.clone.default, b(aten.permute.default, x, [1, 0]), memory_format=torch.contiguous_format)
    fresh = b(aten.exp.default, x)
    second = b(aten.clone.default, fresh)
    narrow = b(aten._to_copy.default, b(aten._to_copy.default, x, dtype=torch.bfloat16), dtype=torch.float32)
    moved = b(aten.constant_pad_nd.default, x, [1, -1], 2.0)
    # Two inputs swap their values: without the copy the second would read what the first wrote.
    b(aten.copy_.default, x, b(aten.clone.default, y))
    b(aten.copy_.default, y, plain)
    calls = "clone permute clone exp clone _to_copy _to_copy constant_pad_nd clone copy_ copy_"
    b.check([RemoveNoOps()], [packed, fresh, second, narrow, moved], calls)


@pytest.mark.parametrize("view", [lambda y: y[-1], lambda y: y[2:4], lambda y: y.t()[:2], lambda y: y.view(-1)[:8]])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_copy_of_a_part_that_leaves_holds_that_part_alone(view, dynamic):
    compiled = stator.compile(lambda x: (view(x.sin()).clone(), view(x.cos()) * 1), fullgraph=True, dynamic=dynamic)
    x = torch.randn(8, 4)
    for found, expected in zip(compiled(x), (view(x.sin()).clone(), view(x.cos()) * 1), strict=True):
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride() and found.storage_offset() == expected.storage_offset()
        assert found.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


def test_a_copy_of_all_that_leaves_is_none():
    b = Build(torch.randn(3, 4))
    y = b(aten.sin.default, b.x[0])
    b.check([RemoveNoOps()], [b(aten.clone.default, b(aten.permute.default, y, [1, 0]))], "sin permute")


def test_views_compose():
    b = Build(torch.randn(2, 3, 4))
    y = b(aten.permute.default, b(aten.permute.default, b.x[0], [2, 0, 1]), [1, 2, 0])
    y = b(aten.view.default, b(aten.view.default, y, [6, 4]), [24])
    z = b(aten.expand.default, b(aten.expand.default, b(aten.exp.default, b.x[0]), [5, 2, 3, 4]), [6, 5, 2, 3, 4])
    passes = [ComposeViews(), RemoveNoOps(), RemoveDead()]
    b.check(passes, [b(aten.neg.default, y), b(aten.neg.default, z)], "view exp expand neg neg")


def test_constants_fold():
    b = Build(torch.randn(2, 3))
    ones = b(aten.full.default, [3], 1.0, dtype=torch.float32)
    third = b(aten.div.Tensor, b(aten.mul.Tensor, ones, 2), 3)
    half = b(aten._to_copy.default, third, dtype=torch.bfloat16)
    wide = b(aten.add.Tensor, half, b(aten.full.default, [], 0.1, dtype=torch.float32))
    out = b(aten.add.Tensor, b.x[0], b(aten.expand.default, wide, [2, 3]))
    b.check([FoldConstants(), RemoveDead()], [out], "full expand add")


@pytest.mark.parametrize("view", ["view_as_complex", "view_as_real", "_conj", "_neg_view", "view.dtype"])
def test_views_of_constants_that_hold_other_numbers_stay(view):
    b = Build(torch.randn(2, 2))
    dtype = torch.complex64 if view in ("view_as_real", "_conj") else torch.float32
    full = b(aten.full.default, [2, 2], 1j - 2 if dtype.is_complex else 2.0, dtype=dtype)
    name, _, overload = view.partition(".")
    seen = b(getattr(getattr(aten, name), overload or "default"), full, *([torch.int32] if overload else []))
    b.check([FoldConstants(), RemoveDead()], [b(aten.clone.default, seen)], f"full {name} clone")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_constant_of_one_element_is_a_number_and_one_of_more_is_rounded(count):
    b = Build()
    halves = b(aten.full.default, [1, count], 0.5, dtype=torch.float16)
    many, one = (b(aten.full.default, size, 70001, dtype=torch.int64) for size in ([count], [1, 1]))
    products = [b(aten.mul.Tensor, halves, factor) for factor in (many, one)]
    after = b.check([FoldConstants(), RemoveDead()], products, "full full")
    assert [t.isinf().all().item() for t in after] == [count > 1, False]


@pytest.mark.parametrize("op", [aten.remainder.Scalar, aten.fmod.Scalar, aten.floor_divide.Scalar])
@pytest.mark.parametrize("count", [0, 3])
def test_what_raises_is_left_to_the_call(op, count):
    """Eager divides no element of an empty tensor by zero."""
    b = Build(torch.randn(3))
    full = b(aten.full.default, [count], 2, dtype=torch.int64)
    b.graph.output((b(op, full, 0), b.x[0]))
    FoldConstants()(b.graph)
    program = fx.GraphModule(torch.nn.Module(), b.graph)
    if count:
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            program(*b.inputs)
    else:
        assert program(*b.inputs)[0].shape == (0,)


def test_pipeline_on_a_training_graph():
    torch.manual_seed(0)
    net = GPT(vocabulary=31, length=6, width=16, layers=2, heads=2, dropout=0.1)
    tokens = torch.randint(0, 31, (2, 6))
    for table in ({}, DECOMPOSITIONS):
        joint = trace(
            captured(net, [tokens] * 2), [tokens] * 2, decompositions=table, random_operators=RANDOM_OPERATORS
        )
        parts = partition(joint)
        seeds = torch.arange(parts.metadata.draws)
        inputs = [*joint.attributes, tokens, tokens, seeds]
        forward = parts.forward(*inputs)
        count = len(parts.forward.graph.nodes)
        backward_inputs = list(backward_arguments(parts, inputs, forward))
        backward = parts.backward(*backward_inputs)
        run(parts.forward)
        run(parts.backward)
        parts.forward.graph.lint()
        assert len(parts.forward.graph.nodes) < count
        assert sum(rewrite(parts.backward.graph) for rewrite in PIPELINE) == 0
        compare(parts.forward(*inputs), forward)
        compare(parts.backward(*backward_inputs), backward)


def backward_arguments(parts, inputs, forward):
    metadata = parts.metadata
    values = len(metadata.values)
    where = {"input": inputs, "value": forward[:values], "extra": forward[values:]}
    yield from (where[saved.source][saved.index] for saved in metadata.saved)
    yield from (torch.ones(spec.size) for spec in metadata.tangents)
    yield from (torch.tensor(True) for _ in metadata.flags)


def compare(got, expected):
    for a, b in zip(got, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.stride() == b.stride()
            torch.testing.assert_close(a, b)


def test_rows_of_a_shared_weight_are_added_without_zeros():
    x, w, g, ids = torch.randn(6, 2), torch.randn(2, 3), torch.randn(4, 3), torch.tensor([1, 5, 1, 0])

    def rows(b, padding=-1):
        return b(aten.embedding_dense_backward.default, b.x[2], b.x[3], 6, padding, False)

    b = Build(x, w, g, ids)
    total = b(aten.add.Tensor, rows(b), b(aten.mm.default, b.x[0], b.x[1]))
    b.check([AccumulateEmbeddings()], [b(aten.add.Tensor, total, rows(b))], "mm index_put index_put", 1e-6, 1e-6)
    b = Build(x, w, g, ids)
    product = b(aten.mm.default, b.x[0], b.x[1])
    outs = [b(aten.add.Tensor, product, rows(b)), b(aten.add.Tensor, b(aten.neg.default, product), rows(b)), product]
    calls = "mm embedding_dense_backward add neg embedding_dense_backward add"
    b.check([AccumulateEmbeddings()], outs, calls)
    b = Build(x, w, g, ids)
    padded = b(aten.add.Tensor, b(aten.mm.default, b.x[0], b.x[1]), rows(b, 1))
    b.check([AccumulateEmbeddings()], [padded], "mm eq unsqueeze where index_put")
    b = Build(x.bfloat16(), w.bfloat16(), g.bfloat16(), ids)
    half = b(aten.add.Tensor, b(aten.mm.default, b.x[0], b.x[1]), rows(b))
    b.check([AccumulateEmbeddings()], [half], "mm embedding_dense_backward add")
