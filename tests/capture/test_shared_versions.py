"""Modules that stay share a version by their structure: how many versions there are, and none serves another structure.

Each program is run on modules made twice, once in eager, and compared after each call in results, gradients and in what
the modules hold. That versions are shared is seen from their number: each module of the same structure needs none.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import stator
from stator.base.errors import FallbackWarning, StatorWarning
from stator.capture.entry import versions_of

LAYERS = 12


class Layer(nn.Module):
    """What a loop goes over; `scale` and `mode` are what layers of one class may differ in."""

    steps: Tensor

    def __init__(self, width: int = 4, scale: float = 1.0, mode: str = "relu", bias: bool = True) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width, bias=bias)
        self.norm = nn.LayerNorm(width)
        self.scale, self.mode, self.calls = scale, mode, 0
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        y = getattr(torch, self.mode)(self.inner(x)) * self.scale
        return x + self.norm(y) + self.steps if self.training else x + y


class Stack(nn.Module):
    """A loop over layers."""

    def __init__(self, way: str, layers: int = LAYERS) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(layers)])
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        for index, layer in enumerate(self.layers):
            if self.way == "dropped" and torch.rand([]) < 0.2:
                continue
            if self.way == "mixture":
                (rows,) = torch.where(x.sum(-1) > 0)
                if rows.numel() == 0:
                    continue
                x = x.index_add(0, rows, layer(x[rows]))
                continue
            if self.way == "printed":
                stator.graph_break()
            if self.way == "compared" and layer is self.layers[3]:
                x = x * 2
            if self.way == "compared":
                stator.graph_break()
            x = layer(x) + (index if self.way == "numbered" else 0)
        return x


@pytest.fixture(autouse=True)
def _breaks_are_wanted() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*breaks its graph", category=FallbackWarning)
        yield


class Counting:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Any:
        self.graphs += 1
        return gm.forward


def state(root: Any) -> list[Any]:
    """All that modules hold that a call may change."""
    found: list[Any] = []
    for module in root.modules():
        found += [(name, value) for name, value in vars(module).items() if isinstance(value, (int, float, str))]
    found += [(name, value.detach().clone()) for name, value in root.state_dict().items()]
    found += [(name, value.grad) for name, value in root.named_parameters()]
    return found


def same(got: Any, expected: Any) -> None:
    assert len(got) == len(expected)
    for (name, one), (other_name, other) in zip(got, expected, strict=True):
        assert name == other_name
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            torch.testing.assert_close(one, other)
        else:
            assert one == other, name


@pytest.mark.parametrize("way", ["dropped", "mixture", "printed", "compared"])
def test_a_loop_with_a_break_has_versions_for_its_layers_together(way: str) -> None:
    torch.manual_seed(0)
    eager = Stack(way)
    stack, count = copy.deepcopy(eager), Counting()
    compiled = stator.compile(stack, backend=count, options={"strict": True})
    for call in range(3):
        x = torch.randn(16, 4)
        results = []
        for net in (eager, compiled):
            torch.manual_seed(call)
            result = net(x)
            result.square().mean().backward()
            results.append(result.detach())
        torch.testing.assert_close(results[1], results[0])
        same(state(stack), state(eager))
    wide = copy.deepcopy(eager).double()
    torch.manual_seed(2)
    exact = wide(x.double())  # the buffers have counted once more
    assert torch.isfinite(exact).all()
    assert count.graphs <= 10


def test_a_method_has_one_version_for_all_layers() -> None:
    count = Counting()
    forward = stator.compile(Layer.forward, backend=count, options={"strict": True})
    layers = [Layer() for _ in range(100)]
    for layer in layers:
        twin, x = copy.deepcopy(layer), torch.randn(3, 4)
        result, expected = forward(layer, x), twin(x)
        torch.testing.assert_close(result, expected)
        for each in (result, expected):
            each.square().sum().backward()
        same(state(layer), state(twin))
    assert count.graphs == 2  # the first one by identity


def test_layers_that_share_nothing_have_versions_of_their_own() -> None:
    """More kinds than the limit allows: none is left to eager."""
    count = Counting()
    forward = stator.compile(Layer.forward, backend=count, dynamic=False, options={"strict": True})
    layers = [Layer(width) for width in range(2, 22)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", StatorWarning)
        for _ in range(2):
            for width, layer in enumerate(layers, 2):
                twin, x = copy.deepcopy(layer), torch.randn(3, width)
                torch.testing.assert_close(forward(layer, x), twin(x))
    assert count.graphs <= len(layers) + 2 + 8


def test_modules_whose_parameters_are_part_of_the_graph_have_a_version_each() -> None:
    compiled = stator.compile(lambda m, x: m(x), options={"strict": True, "freezing": True, "check_speed": "off"})
    layers = [nn.Linear(3, 3) for _ in range(4)]
    with torch.no_grad():
        for layer in layers:
            x = torch.randn(2, 3)
            torch.testing.assert_close(compiled(layer, x), layer(x))
    assert len(versions_of(compiled)) == len(layers)


# -- soundness -------------------------------------------------------------------------------------------


class Odd(NamedTuple):
    """What is another structure than that of `Layer()`, or only seems so."""

    make: Callable[[], nn.Module]
    #: Whether a version for `Layer()` may not serve it.
    other: bool = True
    #: Whether it has a break, so that a version that only leads up to that serves all.
    breaks: bool = False


class Below(Layer):
    """A subclass with another forward."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 2


def changed(change: Callable[[Any], object]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        layer = Layer()
        change(layer)
        return layer

    return make


def hooked(register: str, hook: Callable[..., Any], inner: bool = False) -> Callable[[], nn.Module]:
    return changed(lambda layer: getattr(layer.inner if inner else layer, register)(hook))


def set_attr(name: str, make: Callable[[Any], Any]) -> Callable[[], nn.Module]:
    return changed(lambda layer: setattr(layer, name, make(layer)))


def twice(module: nn.Module, given: tuple[Tensor, ...], taken: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (given[0] * 2,)


ODD: dict[str, Odd] = {
    "same": Odd(Layer, other=False),
    "unread attribute": Odd(set_attr("unread", lambda m: 3), other=False),
    "text": Odd(lambda: Layer(mode="tanh")),
    "number": Odd(lambda: Layer(scale=2.0)),
    "number of another type": Odd(lambda: Layer(scale=1)),
    "nan": Odd(lambda: Layer(scale=float("nan"))),
    "no bias": Odd(lambda: Layer(bias=False)),
    "eval": Odd(lambda: Layer().eval()),
    "inner eval": Odd(changed(lambda m: m.norm.eval()), other=False),
    "subclass": Odd(Below),
    "frozen": Odd(changed(lambda m: m.inner.requires_grad_(False))),
    "one frozen": Odd(changed(lambda m: m.inner.bias.requires_grad_(False))),
    "buffer of another shape": Odd(set_attr("steps", lambda m: torch.zeros(3, 4))),
    "buffer of another dtype": Odd(set_attr("steps", lambda m: torch.zeros(1, dtype=torch.float64))),
    "parameter of another layout": Odd(set_attr("inner", lambda m: transposed())),
    "other eps": Odd(changed(lambda m: setattr(m.norm, "eps", 0.5))),
    "other class inside": Odd(set_attr("norm", lambda m: nn.RMSNorm(4))),
    "own forward": Odd(set_attr("forward", lambda m: lambda x: x * 5)),
    "own inner forward": Odd(changed(lambda m: setattr(m.inner, "forward", lambda x: x * 5))),
    "parameter shadowed": Odd(changed(lambda m: m.inner.__dict__.update(bias=torch.ones(4)))),
    "weight norm": Odd(changed(lambda m: parametrizations.weight_norm(m.inner))),
    "forward hook": Odd(hooked("register_forward_hook", lambda m, args, y: y + 1)),
    "forward pre hook": Odd(hooked("register_forward_pre_hook", lambda m, args: (args[0] + 1,))),
    "inner forward hook": Odd(hooked("register_forward_hook", lambda m, args, y: y + 1, inner=True)),
    "backward hook": Odd(hooked("register_full_backward_hook", twice, inner=True), breaks=True),
    "hook on a parameter": Odd(changed(lambda m: m.inner.weight.register_hook(lambda grad: grad * 3)), other=False),
    "tied": Odd(changed(lambda m: setattr(m.norm, "bias", m.inner.bias))),
    "one tensor in two buffers": Odd(
        changed(lambda m: m.norm.register_parameter("weight", nn.Parameter(m.steps.expand(4)[:])))
    ),
}


def transposed() -> nn.Module:
    inner = nn.Linear(4, 4)
    inner.weight = nn.Parameter(torch.randn(4, 4).t())
    return inner


def program(module: Any, x: Tensor) -> Tensor:
    return module(x * 2) + 1  # type: ignore[no-any-return]


def both(function: Callable[..., Any], compiled: Callable[..., Any], make: Callable[[], Any], x: Tensor) -> None:
    """Runs a function on modules, and the compiled one on such that are made in the same way."""
    before = torch.get_rng_state()
    modules = make()
    torch.set_rng_state(before)
    twins = make()
    outcomes = []
    for run, given in ((function, modules), (compiled, twins)):
        try:
            result: Any = run(*given, x.clone().requires_grad_())
            values = result if isinstance(result, tuple) else (result,)
            tensors = [value for value in values if isinstance(value, Tensor) and value.requires_grad]
            if tensors:
                sum(value.double().square().sum() for value in tensors).backward()  # type: ignore[union-attr]
            outcomes.append([(i, v.detach() if isinstance(v, Tensor) else v) for i, v in enumerate(values)])
        except (RuntimeError, AttributeError, TypeError) as error:
            outcomes.append([("raised", f"{type(error).__name__}: {error}")])
    assert len(outcomes[0]) == len(outcomes[1]), outcomes
    for (_, one), (_, other) in zip(*outcomes, strict=True):
        if isinstance(one, Tensor):
            torch.testing.assert_close(other, one, equal_nan=True)
        else:
            assert one == other
    expected, got = state(nn.ModuleList(modules)), state(nn.ModuleList(twins))
    assert len(expected) == len(got)
    for (name, one), (_, other) in zip(expected, got, strict=True):
        if isinstance(one, Tensor):
            torch.testing.assert_close(other, one, equal_nan=True, msg=lambda text, name=name: f"{name}: {text}")
        else:
            assert one == other or one != one, name


@pytest.mark.parametrize("name", ODD)
def test_a_version_serves_no_other_structure(name: str) -> None:
    count = Counting()
    compiled = stator.compile(program, backend=count, options={"strict": True})
    for _ in range(3):
        both(program, compiled, lambda: [Layer()], torch.randn(3, 4))
    before = count.graphs
    assert before == 2
    for _ in range(2):
        both(program, compiled, lambda: [ODD[name].make()], torch.randn(3, 4))
    assert (count.graphs > before) is ODD[name].other
    before = count.graphs
    both(program, compiled, lambda: [Layer()], torch.randn(3, 4))
    assert count.graphs == before or ODD[name].breaks


# -- modules that are reached in another way, too --------------------------------------------------------


def is_first(m: Any, net: Any, x: Tensor) -> Any:
    return m(x) + (1 if m is net.layers[0] else 2), m is net.layers[1]


def is_member(m: Any, net: Any, x: Tensor) -> Any:
    return m(x), m in list(net.layers), list(net.layers).index(m) if m in list(net.layers) else -1


def is_key(m: Any, net: Any, x: Tensor) -> Any:
    names = {layer: i for i, layer in enumerate(net.layers)}
    return m(x) * names.get(m, 7), len({m, *net.layers})


def counts(m: Any, net: Any, x: Tensor) -> Any:
    m.calls += 1
    net.layers[0].calls += 10
    return m(x) * m.calls + net.layers[0].calls


def exchanges(m: Any, net: Any, x: Tensor) -> Any:
    m.inner = net.layers[1].inner
    return net.layers[0](x) + m(x)


def exchanges_a_parameter(m: Any, net: Any, x: Tensor) -> Any:
    m.inner.bias = nn.Parameter(torch.full((4,), 3.0))
    return net.layers[0].inner(x) * 2


def exchanges_by_the_other_way(m: Any, net: Any, x: Tensor) -> Any:
    net.layers[0].inner.bias = None
    return m.inner(x) * 2


def writes(m: Any, net: Any, x: Tensor) -> Any:
    with torch.no_grad():
        m.inner.weight.mul_(2)
        net.layers[0].inner.weight.add_(1)
    return m.inner(x) + net.layers[0].inner(x)


def turns(m: Any, net: Any, x: Tensor) -> Any:
    m.training = not m.training
    return net.layers[0](x) + m(x)


def gradients(m: Any, net: Any, x: Tensor) -> Any:
    y = m(x) + net.layers[0](x)
    return torch.autograd.grad(y.sum(), [m.inner.weight, net.layers[0].inner.weight])


def hooks(m: Any, net: Any, x: Tensor) -> Any:
    handle = m.register_forward_hook(lambda module, args, y: y + 5)
    y = net.layers[0](x)
    handle.remove()
    return y + m(x)


OTHER_WAYS = (
    is_first, is_member, is_key, counts, exchanges, exchanges_a_parameter, exchanges_by_the_other_way, writes, turns,
    gradients, hooks,
)  # fmt: skip


def shared_parameter(net: Any) -> nn.Module:
    layer = Layer()
    layer.inner.weight = net.layers[0].inner.weight
    return layer


def shared_memory(net: Any) -> nn.Module:
    layer = Layer()
    layer.inner.weight = nn.Parameter(net.layers[0].inner.weight.detach())
    return layer


def shared_inside(net: Any) -> nn.Module:
    layer = Layer()
    layer.inner = net.layers[0].inner
    return layer


WHICH: dict[str, Callable[[Any], nn.Module]] = {
    "first": lambda net: net.layers[0],
    "second": lambda net: net.layers[1],
    "parameter": shared_parameter,
    "memory": shared_memory,
    "submodule": shared_inside,
}


@pytest.mark.parametrize("function", OTHER_WAYS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("starts", ["apart", "together"])
def test_modules_that_are_reached_in_another_way(function: Callable[..., Any], which: str, starts: str) -> None:
    """The version is made with modules apart, or with one reached in both ways, and then it is the reverse."""
    compiled = stator.compile(function, backend="eager", options={"strict": True})

    def call(make: Callable[[Any], nn.Module]) -> None:
        def pair() -> list[nn.Module]:
            net = Stack("plain", 2)
            return [make(net), net]

        both(function, compiled, pair, torch.randn(3, 4))

    apart: Callable[[Any], nn.Module] = lambda net: Layer()  # noqa: E731
    first, then = (apart, WHICH[which]) if starts == "apart" else (WHICH[which], apart)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatorWarning)
        for make in (first, first, first, then, then, first):
            call(make)


@pytest.mark.parametrize("function", OTHER_WAYS, ids=lambda function: function.__name__)
def test_modules_of_one_net_in_turn(function: Callable[..., Any]) -> None:
    """The net stays, so its layers are known by identity where they are reached through it."""
    compiled = stator.compile(function, backend="eager", options={"strict": True})
    nets = [Stack("plain", 4)]
    nets.append(copy.deepcopy(nets[0]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StatorWarning)
        for index in (2, 3, 0, 1, 2, 0):
            x = torch.randn(3, 4)
            found = [run(net.layers[index], net, x) for run, net in zip((function, compiled), nets, strict=True)]
            expected, got = (list(each) if isinstance(each, tuple) else [each] for each in found)
            for one, other in zip(expected, got, strict=True):
                assert torch.allclose(one, other, atol=1e-5) if isinstance(one, Tensor) else one == other
            same(state(nets[1]), state(nets[0]))


def test_one_module_twice_and_two() -> None:
    def run(a: Any, b: Any, x: Tensor) -> Any:
        a.calls += 1
        a.steps += 3
        return b(x) * b.calls + a(x), a is b

    compiled = stator.compile(run, backend="eager", options={"strict": True})

    def make(which: str) -> list[nn.Module]:
        layers = {name: Layer() for name in "ab"}
        return [layers[name] for name in which]

    for which in ("ab", "ba", "aa", "ab", "aa", "ab"):
        both(run, compiled, functools.partial(make, which), torch.randn(3, 4))


def test_hooks_of_all_modules() -> None:
    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for _ in range(3):
        both(program, compiled, lambda: [Layer()], torch.randn(3, 4))
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, y: y + 1)
    try:
        both(program, compiled, lambda: [Layer()], torch.randn(3, 4))
    finally:
        handle.remove()
    both(program, compiled, lambda: [Layer()], torch.randn(3, 4))
