"""One trace of a graph with symbolic sizes gives eager's results and gradients for all sizes."""

import copy
import re
import types

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch.utils._pytree import tree_leaves

from stator.aot import overrides as overrides  # fills the tracer's table
from stator.aot.functional import Cell, Handle
from stator.aot.metadata import Metadata
from stator.aot.reference import reference
from stator.aot.symbols import read
from stator.aot.trace import trace
from stator.aot.tracer import Tracer
from stator.fake import FakeMode
from stator.fake import make as make_fake
from stator.fake.symbolic import symint
from stator.prims import DECOMPOSITIONS, RANDOM_OPERATORS
from stator.sizes import Environment
from tests.aot.models import GPT

TABLES = {"plain": {}, "primitives": DECOMPOSITIONS}


@pytest.fixture(params=TABLES, ids=str)
def table(request):
    return TABLES[request.param]


def captured(function, examples, dynamic):
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
    root = nn.Module()
    if isinstance(function, nn.Module):
        root.net = function
        graph.output(graph.call_module("net", tuple(nodes)))
    else:
        graph.output(graph.call_function(function, tuple(nodes)))
    gm = fx.GraphModule(root, graph)
    gm.meta["sizes"] = environment
    return gm


def eager(function, args):
    out = function(*args)
    return out if isinstance(out, (tuple, list)) else (out,)


def check(function, make, sizes, dynamic, table, *, conditions=None, tolerance=2e-5):
    """The trace made for the first sizes serves all."""
    torch.manual_seed(0)
    other = copy.deepcopy(function)
    gm = captured(function, make(*sizes[0]), dynamic)
    call = reference(gm, make(*sizes[0]), decompositions=table, random_operators=RANDOM_OPERATORS)
    found = [str(recorded.condition) for recorded in gm.meta["sizes"].conditions]
    assert conditions is None or found == conditions
    metadata = call.bound.metadata
    assert Metadata.from_json(metadata.to_json()) == metadata
    for size in sizes:
        ours = make(*size)
        given = [*call.bound.attributes, *ours]
        places = [place for place in metadata.symbols if place.input < len(given)]
        values = dict(zip([place.symbol for place in places], read(places, given), strict=True))
        if not all(recorded.condition.evaluate(values) for recorded in gm.meta["sizes"].conditions):
            assert size is not sizes[0]
            continue
        theirs = [
            x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in ours
        ]
        got, expected = call(*ours), eager(other, theirs)
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
        parameters = [list(f.parameters()) if isinstance(f, nn.Module) else [] for f in (function, other)]
        buffers = [list(f.buffers()) if isinstance(f, nn.Module) else [] for f in (function, other)]
        for a, b in zip([*ours, *parameters[0], *buffers[0]], [*theirs, *parameters[1], *buffers[1]], strict=True):
            if isinstance(b, torch.Tensor):
                torch.testing.assert_close(a, b)
                assert (a.grad is None) == (b.grad is None)
                if b.grad is not None:
                    torch.testing.assert_close(a.grad, b.grad, atol=5 * tolerance, rtol=5 * tolerance)
    return found


def randn(*size):
    return torch.randn(*size, requires_grad=True)


#: Before 2.13 PyTorch takes products of more than two dimensions apart for the numbers that sizes are.
PRODUCTS_FIX_SIZES = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13)
ALL = {(0, 0), (0, 1), (1, 0), (1, 1)}
SIZES = [(6, 9), (4, 7), (11, 2), (2, 16)]


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
        lambda x, y: x.roll((1, -1), (0, 1)) + y.roll(0, 0),
        lambda x, y: torch.where(x > 0, y.shape[0], 2) + y,
        lambda x, y: x.cumsum(0) / torch.arange(1, x.shape[0] + 1)[:, None] + y.flip(0, 1),
        lambda x, y: torch.einsum("ij,kj->ik", x, y) * x.shape[0],
        lambda x, y: x.norm(dim=1) + y.std(1, unbiased=False),
        lambda x, y: (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(-1).sqrt(),
    ],
)
def test_functions(function, table):
    check(function, lambda n, m: [randn(n, m), randn(n, m)], SIZES, ALL, table, conditions=[])


def attend(q, k, v):
    b, t, width = q.shape
    q, k, v = (x.view(b, t, 4, width // 4).transpose(1, 2) for x in (q, k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(b, t, width)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        return self.out(attend(*self.qkv(x).chunk(3, -1)))


class Plain(nn.Module):
    """Attention written out, with a mask made of sizes."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.qkv(x).split(8, -1)
        n = x.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)
        return (q @ k.transpose(1, 2) / 8**0.5 + mask).softmax(-1) @ v


NETWORKS = {
    "mlp": (
        nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3)),
        [(3, 8), (7, 8), (2, 8)],
        [0],
    ),
    "attention": (Attention(), [(2, 5, 8), (4, 3, 8), (3, 17, 8)], [0, 1]),
    "plain attention": (Plain(), [(2, 5, 8), (4, 3, 8), (3, 17, 8)], [0, 1]),
    "convolution": (
        nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(2)),
        [(2, 3, 6, 8), (5, 3, 8, 6), (3, 3, 10, 4)],
        [0, 2, 3],
    ),
    "group norm": (nn.Sequential(nn.Conv1d(4, 4, 3), nn.GroupNorm(2, 4), nn.SiLU()), [(2, 4, 6), (3, 4, 9)], [0, 2]),
    "batch": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1)), [(2, 3, 6, 8), (5, 3, 6, 8)], [0]),
    "encoder": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), [(2, 5, 8), (4, 3, 8)], [0, 1]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, table):
    network, sizes, dims = NETWORKS[name]
    make = lambda *size: [randn(*size)]  # noqa: E731
    found = check(copy.deepcopy(network), make, sizes, {(0, dim) for dim in dims}, table, tolerance=1e-4)
    assert PRODUCTS_FIX_SIZES or not any("==" in condition for condition in found)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.GRU(4, 5, batch_first=True)

    def forward(self, x):
        return self.network(x)[0]


def test_what_needs_numbers_fixes_them(table):
    """PyTorch takes recurrent layers apart for one batch size."""
    found = check(Recurrent(), lambda *size: [randn(*size)], [(2, 3, 4)], {(0, 0)}, table)
    assert found == ["s0 == 2"]


def test_gpt(table):
    torch.manual_seed(1)
    net = GPT(vocabulary=31, length=32, width=16, layers=2, heads=2)
    net.forward = types.MethodType(with_positions, net)

    def make(batch, length):
        return [torch.randint(0, 31, (batch, length)), torch.randint(0, 31, (batch, length))]

    check(net, make, [(2, 6), (5, 9), (3, 31)], ALL, table, tolerance=1e-4)


def with_positions(self, tokens, targets):
    x = self.wte(tokens) + self.wpe(self.positions[: tokens.shape[1]])
    for block in self.blocks:
        x = block(x)
    logits = self.head(self.ln_f(x))
    return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def test_numbers_as_inputs(table):
    def f(x, n):
        return x[:, :n] * n, x.shape[0] * n + 1, n

    check(f, lambda b, n: [randn(b, 12), n], [(3, 5), (7, 2), (2, 11)], {(0, 0)}, table)


def test_views_and_writes(table):
    def f(x, y):
        row = x[1:]
        row.mul_(2)
        z = y * x
        return x, x.t(), row, z, z.view(-1), z[1:, ::2]

    check(f, lambda n, m: [torch.randn(n, m), randn(n, m)], SIZES, ALL, table)


def test_random_numbers_follow_the_sizes(table):
    def f(x):
        return F.dropout(x, 0.5, True), torch.rand(x.shape[0], 3), torch.randn_like(x)

    gm = captured(f, [torch.ones(4, 6)], {(0, 0), (0, 1)})
    call = reference(gm, [torch.ones(4, 6)], decompositions=table, random_operators=RANDOM_OPERATORS)
    for n, m in ((4, 6), (9, 50), (31, 2)):
        dropped, uniform, normal = call(torch.ones(n, m))
        assert dropped.shape == normal.shape == (n, m) and uniform.shape == (n, 3)
        assert set(dropped.unique().tolist()) <= {0.0, 2.0} and uniform.min() >= 0 and uniform.max() < 1
    assert gm.meta["sizes"].conditions == []


def test_parts_of_parts(table):
    """Conditions say where the parts are no longer what they were."""

    def f(x, y):
        picked = x.index_select(0, torch.arange(y.shape[0] - 1)) + y[1:].diff(dim=0).sum()
        return picked, x.sort(-1).values * y.topk(2, 0).values.sum() + x.gather(1, y.argsort(1))

    found = check(f, lambda n, m: [randn(n, m), randn(n, m)], [(6, 9), (5, 7), (12, 4), (2, 9)], ALL, table)
    assert found and not any("==" in condition for condition in found)


def test_decisions_become_conditions(table):
    def f(x, y):
        return x + y if x.shape[0] > 4 else x * y

    randoms = [randn(8, 3), randn(8, 3)]
    found = check(f, lambda n: [randn(n, 3), randn(n, 3)], [(8,), (5,), (64,)], {(0, 0), (1, 0)}, table)
    assert found == ["s0 > 4"]
    gm = captured(f, randoms, {(0, 0), (1, 0)})
    assert [str(place.symbol) for place in trace(gm, randoms, decompositions=table).metadata.symbols] == ["s0"]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_addresses_of_symbolic_sizes_are_no_sizes(table, device):
    """`rms_norm` hands sizes on as integers: of a symbolic one autograd keeps the address."""
    environment = Environment()
    rows, columns = (symint(environment.symbol(n, (0, dim)).size, environment) for dim, n in enumerate((3, 5)))
    tracer = Tracer(table, {})

    def placeholder(name, *size):
        fake = make_fake(size, torch.float32, torch.device(device))
        node = tracer.placeholder(name, fake)
        fake.handle = Handle(Cell(node), (), node, fake)
        return fake

    grad, x = placeholder("grad", rows, columns), placeholder("x", rows, columns)
    rstd, weight = placeholder("rstd", rows, 1), placeholder("weight", columns)
    func = torch.ops.aten._fused_rms_norm_backward.default
    with torch.no_grad():
        results = tracer.run(func, grad, x, [-6917529026168050432], rstd, weight, [True, True])
    assert [str(result.shape) for result in results] == ["torch.Size([s0, s1])", "torch.Size([s1])"]
    for node in tracer.graph.find_nodes(op="call_function", target=func):
        assert str(node.args[2]) == "[s1]"
    numbers = [n for node in tracer.graph.nodes for n in tree_leaves((node.args, node.kwargs)) if type(n) is int]
    assert all(abs(n) < 2**62 for n in numbers)


def test_no_other_gradient_takes_sizes_as_integers():
    """But what the program itself has as integers, and the libraries of other formats and devices."""
    found = set()
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        packet = getattr(torch.ops.aten, packet, None) if name.startswith("aten::") else None
        if packet is None or not packet.__name__.endswith("_backward"):
            continue
        schema = str(getattr(packet, overload or "default")._schema)
        if re.search(r"[( ]int\[\]\??\s(normalized_shape|\w*sizes?)\b", schema):
            found.add(packet.__name__)
    assert found == {"_fused_rms_norm_backward", "miopen_rnn_backward", "mkldnn_rnn_layer_backward"}
