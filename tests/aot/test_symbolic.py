"""One trace of a graph with symbolic sizes gives eager's results and gradients for all sizes."""

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

import stator.prims.decompositions  # noqa: F401
from stator.aot.metadata import Metadata
from stator.aot.reference import reference
from stator.fake import FakeMode
from stator.fake.symbolic import symint
from stator.prims.random import RANDOM_OPERATORS
from stator.prims.table import DECOMPOSITIONS
from stator.sizes import Environment

TABLES = {"plain": {}, "primitives": DECOMPOSITIONS}


@pytest.fixture(params=TABLES, ids=str)
def table(request):
    return TABLES[request.param]


def captured(function, examples, dynamic, root=None):
    """A graph of one call of `function`, whose placeholders have symbols for the sizes in `dynamic` (input, dim)."""
    environment, mode, graph = Environment(), FakeMode(), fx.Graph()
    nodes = []
    for i, example in enumerate(examples):
        node = graph.placeholder(f"x{i}")
        nodes.append(node)
        if isinstance(example, int):
            node.meta["val"] = symint(environment.symbol(example, (i,)).size, environment)
            continue
        size = [
            symint(environment.symbol(extent, (i, dim)).size, environment) if (i, dim) in dynamic else extent
            for dim, extent in enumerate(example.shape)
        ]
        stride, step = [0] * len(size), 1
        for dim in sorted(range(len(size)), key=lambda dim: (example.stride(dim), -dim)):
            stride[dim], step = step, step * size[dim]
        node.meta["val"] = mode.from_real(example, geometry=(size, stride))
    graph.output(graph.call_function(function, tuple(nodes)))
    gm = fx.GraphModule(root if root is not None else nn.Module(), graph)
    gm.meta["sizes"] = environment
    return gm


def eager(function, args):
    out = function(*args)
    return out if isinstance(out, (tuple, list)) else (out,)


def check(function, make, sizes, dynamic, table, *, conditions=None, tolerance=2e-5):
    """The trace made for the first sizes serves all."""
    torch.manual_seed(0)
    gm = captured(function, make(*sizes[0]), dynamic)
    call = reference(gm, make(*sizes[0]), decompositions=table, random_operators=RANDOM_OPERATORS)
    metadata = call.__self__.metadata
    assert Metadata.from_json(metadata.to_json()) == metadata
    for size in sizes:
        ours = make(*size)
        theirs = [
            x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in ours
        ]
        got, expected = call(*ours), eager(function, theirs)
        assert len(got) == len(expected)
        total = [0, 0]
        for a, b in zip(got, expected, strict=True):
            if not isinstance(b, torch.Tensor):
                assert a == b
                continue
            assert (a.shape, a.stride(), a.dtype, a.requires_grad) == (b.shape, b.stride(), b.dtype, b.requires_grad)
            torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)
            if b.requires_grad:
                weights = torch.randn(b.shape)
                total = [total[0] + (a * weights).sum(), total[1] + (b * weights).sum()]
        for loss in total:
            if isinstance(loss, torch.Tensor):
                loss.backward()
        for a, b in zip(ours, theirs, strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b)
                assert (a.grad is None) == (b.grad is None)
                if b.grad is not None:
                    torch.testing.assert_close(a.grad, b.grad, atol=5 * tolerance, rtol=5 * tolerance)
    found = [str(recorded.condition) for recorded in gm.meta["sizes"].conditions]
    if conditions is not None:
        assert found == conditions
    return found


def randn(*size):
    return torch.randn(*size, requires_grad=True)


SIZES = [(3, 5), (4, 7), (11, 2), (2, 16)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x * y + 1).relu().sum(-1),
        lambda x, y: F.softmax(x, -1) * F.log_softmax(y, 0),
        lambda x, y: x.mean() + y.mean(0).sum(),
        lambda x, y: x @ y.t(),
        lambda x, y: torch.cat([x, y], 1)[:, 1:-1],
        lambda x, y: x.view(-1) * y.reshape(-1),
        lambda x, y: (x.t().contiguous(), y.unsqueeze(0).expand(2, -1, -1)),
        lambda x, y: x[0] * y[-1],
        lambda x, y: F.layer_norm(x, x.shape[1:]) + y,
        lambda x, y: x.amax(1) - y.argmax(1),
        lambda x, y: x.tril() + torch.arange(y.shape[1]) * y,
        lambda x, y: F.pad(x, (1, 2)).cumsum(1)[:, : y.shape[1]] * y,
        lambda x, y: x.var(1) + y.std(0).sum(),
        lambda x, y: F.gelu(x) / y.shape[0] + y.size(1),
        lambda x, y: torch.stack([x, y]).flatten(),
        lambda x, y: x.repeat(2, 3) * torch.ones(2 * x.shape[0], 1),
        lambda x, y: (x.view(x.shape[0], 1, x.shape[1]), y.clone().view(y.numel())),
        lambda x, y: torch.where(x > 0, x, y).logsumexp(1),
        lambda x, y: x.new_zeros(x.shape[1], y.shape[0]) + 1,
    ],
)
def test_functions(function, table):
    check(
        function, lambda n, m: [randn(n, m), randn(n, m)], SIZES, {(0, 0), (0, 1), (1, 0), (1, 1)}, table, conditions=[]
    )
