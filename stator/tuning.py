"""Products and attention by measurement: under `autotune` each is timed as a kernel of ours and as a library's, once.

A product is timed with the pointwise operators that are computed of it alone, as our kernel computes them too and a
library leaves them to another one. Sizes that are symbolic are those of the first call. What is found is kept in the
store under all that it depends on, so that no other process measures again and all decide alike; lowering finds it in
the `meta` of the node. On a GPU our kernel is the fastest of several (`targets/cuda/autotune.py`). Where kernels of
ours do not compute products it is said that there is nothing to measure.
Neighbours: `pipeline.py` asks, `lowering/product.py` and `lowering/attention.py` decide by it, or by rule where nothing
is measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, TypeAlias

import torch
from torch import fx

from stator import lowering, targets
from stator.base import log
from stator.base.device import Device
from stator.base.errors import WithoutEffect
from stator.base.options import Options
from stator.base.store import Store, key_of
from stator.fake.symbolic import extents
from stator.loop.kernel import Call, Schedule
from stator.loop.schedule import schedule
from stator.lowering.extern import target_name
from stator.lowering.product import TAKES_LOOP, may_loop
from stator.lowering.table import REPLACEMENTS
from stator.plan.build import make
from stator.prims.set import PRIMITIVES
from stator.runtime import Building, GraphArtifact
from stator.runtime.link import link
from stator.runtime.toolchain import open_store
from stator.sizes import hint, symbols
from stator.sizes.strides import span

aten = torch.ops.aten
PRODUCTS = (aten.mm.default, aten.addmm.default, aten.bmm.default)
#: Seconds that a call takes, of so many in a row.
Clock: TypeAlias = Callable[[Callable[[], object], int], float]
#: Operators that are computed of a product and timed with it, at most.
READERS = 12
#: Seconds that a sample takes, at least, and how many there are of each way.
SAMPLE, ROUNDS = 2e-3, 7
#: Calls in a sample, at most.
MOST = 20_000
#: What a loop takes at most of a library's time to be taken: less is within what measuring is wrong by.
LEAST_GAIN = 0.97


@dataclass(frozen=True, slots=True)
class Tuned:
    """A product or attention, the seconds that it takes in either way, and which is taken."""

    product: str
    loop: float
    library: float
    takes_loop: bool

    def __str__(self) -> str:
        taken = "a loop" if self.takes_loop else "the library"
        return f"{self.product}: {self.loop * 1e6:.1f} µs as a loop, {self.library * 1e6:.1f} by the library: {taken}"


def tune(graph: fx.Graph, device: Device, options: Options) -> list[Tuned]:
    """Decide for each product and attention; what was measured, or found in the store, of each kind."""
    if not (device.product_blocks or device.tile_products):
        where = "in plain C" if device.host else f"on {device.kind}"
        options.announce(
            WithoutEffect(f"option 'autotune' has no effect {where}, where products are left to libraries")
        )
        return []
    store = open_store(options)
    products = [node for target in PRODUCTS for node in graph.find_nodes(op="call_function", target=target)]
    nodes = [node for node in products if may_loop(node, device)]
    if device.tile_products:
        nodes += [node for node in graph.nodes if node.op == "call_function" and node.target in REPLACEMENTS]
    nodes = [node for node in nodes if device.tile_products or _is_known(node)]
    parts = {
        node: part for node in nodes if (part := _Part(node, options.rounds)).runs_alone() and part.may_be_ours(device)
    }
    known = str(device), torch.__version__, options.triton, options.numerics
    keys = {node: f"product-{key_of(part.text, *known)}" for node, part in parts.items()}
    found: dict[str, Tuned] = {}
    for node, key in keys.items():
        if key not in found:
            try:
                found[key] = _kept(store, key) or _measured(parts[node], device, options)
            except torch.OutOfMemoryError as error:  # the program has what there is: the rule decides
                log.record(log.NOTE, text=f"{parts[node].title()} is not timed: {str(error).splitlines()[0]}")
                continue
            store.put(key, json.dumps(asdict(found[key])).encode())
            log.record(log.PRODUCT, told=str(found[key]), **asdict(found[key]))
        node.meta[TAKES_LOOP] = found[key].takes_loop
    return list(found.values())


def _is_known(node: fx.Node) -> bool:
    """Whether the sizes of a product are numbers."""
    values = [value for one in (node, *node.all_input_nodes) for value in _tensors(one)]
    return all(type(size) is int for value in values for size in value.shape)


def _tensors(node: fx.Node) -> list[torch.Tensor]:
    """The result of a node, or those of its results that are tensors."""
    value = node.meta.get("val")
    return [x for x in (value if isinstance(value, tuple | list) else (value,)) if isinstance(x, torch.Tensor)]


def _kept(store: Store, key: str) -> Tuned | None:
    """What is kept; what another version has written is nothing."""
    data = store.get(key)
    try:
        return Tuned(**json.loads(data)) if data is not None else None
    except (ValueError, TypeError):
        return None


class _Part:
    """A product and what is computed of it alone, as a graph of its own; `rounds`: where eager does, too."""

    def __init__(self, node: fx.Node, rounds: bool) -> None:
        self.rounds = rounds
        self.several = len(node.target._schema.returns) > 1  # type: ignore[union-attr]
        self.nodes = [node, *node.users] if self.several else _with_readers(node)
        self.graph = fx.Graph()
        given_to = dict.fromkeys([given for one in self.nodes for given in one.all_input_nodes])
        self.inputs = [given for given in given_to if given not in self.nodes]
        copies: dict[fx.Node, fx.Node] = {}
        for i, given in enumerate(self.inputs):
            copies[given] = self.graph.placeholder(f"x{i}")
            copies[given].meta.update(val=given.meta["val"])
        for one in self.nodes:
            copies[one] = self.graph.node_copy(one, lambda used: copies[used])
            copies[one].meta = {"val": one.meta["val"]}
        self.product = copies[node]
        read = self.nodes[1:] if self.several else [one for one in self.nodes if _is_read(one, self.nodes)]
        self.graph.output(tuple([copies[one] for one in read]))
        lines = [_tensor(given.meta["val"]) for given in self.inputs]
        numbers = {copies[one]: f"%{i}" for i, one in enumerate([*self.inputs, *self.nodes])}
        for one in self.nodes:
            args = fx.node.map_arg((copies[one].args, copies[one].kwargs), lambda used: numbers[used])
            lines.append(f"{one.target} {args} {', '.join(map(_tensor, _tensors(one)))}")
        self.text = "\n".join(lines)

    def title(self) -> str:
        """What people are told."""
        if self.several:
            sizes = ", ".join(["×".join(map(str, value.shape)) for given in self.inputs for value in _tensors(given)])
            return f"{self.product.target._opname} of {sizes}"  # type: ignore[union-attr]
        left, right = [n.meta["val"] for n in self.product.args[-2:]]  # type: ignore[union-attr]
        sizes = " @ ".join(["×".join(map(str, value.shape)) for value in (left, right)])
        readers = "".join([f" {n.target._opname}" for n in self.nodes[1:]])  # type: ignore[union-attr]
        return f"{self.product.target._opname} {sizes} {str(left.dtype).removeprefix('torch.')}{readers}"  # type: ignore[union-attr]

    def runs_alone(self) -> bool:
        """Whether its inputs tell all symbols that its sizes are made of."""
        shapes = [extents((*value.shape, *value.stride())) for one in self.inputs for value in _tensors(one)]
        told = {extent for shape in shapes for extent in shape}
        results = [extents(value.shape) for one in self.nodes for value in _tensors(one)]
        wanted = {symbol for shape in (*shapes, *results) for extent in shape for symbol in symbols(extent)}
        return all(symbol.size in told for symbol in wanted)

    def scheduled(self, loop: bool, device: Device) -> Schedule:
        """It in one way."""
        self.product.meta[TAKES_LOOP] = loop
        program = lowering.lower(fx.GraphModule({}, self.graph), "product", device, self.rounds)
        return schedule(program, device, self.rounds)

    def may_be_ours(self, device: Device) -> bool:
        """Whether there is a kernel of ours for it."""
        steps = self.scheduled(True, device).steps
        return not any(
            isinstance(step, Call) and step.extern.target == target_name(self.product.target) for step in steps
        )

    def artifact(self, loop: bool, device: Device, building: Building, options: Options) -> GraphArtifact:
        """It compiled in one way."""
        made = self.scheduled(loop, device)
        kernels, emit = made.kernels, targets.printer(made.device).emit
        units = emit(kernels, made.names, device, options) if kernels else []
        return GraphArtifact(make(made), building.begin(units, made.place))

    def arguments(self) -> list[torch.Tensor]:
        """Random numbers in the layout of the inputs, on their device; of integers and truth values zeros."""
        random = torch.Generator().manual_seed(0)
        made = []
        for given in self.inputs:
            value = given.meta["val"]
            size, stride = ([hint(n) for n in extents(each)] for each in (value.shape, value.stride()))
            tensor = torch.zeros(span(size, stride), dtype=value.dtype)
            if value.dtype.is_floating_point:
                tensor.normal_(generator=random)
            made.append(tensor.to(value.device).as_strided(size, stride))
        return made


def _with_readers(node: fx.Node) -> list[fx.Node]:
    """The product, and the pointwise operators with results as large that read it, or each other, and what is older."""
    found, waiting = {node: None}, list(node.users)
    while waiting and len(found) <= READERS:
        ready = [user for user in waiting if _joins(user, node, found)]
        if not ready:
            break
        first = min(ready)
        found[first] = None
        waiting = [*[user for user in waiting if user is not first], *[u for u in first.users if u not in waiting]]
    while len(found) > 1 and (idle := [one for one in found if _is_idle(one, node, found)]):
        for one in idle:
            del found[one]
    return sorted(found)


def _joins(user: fx.Node, product: fx.Node, found: Collection[fx.Node]) -> bool:
    """Whether an operator is computed of elements of what was found and of what there was before the product."""
    line = PRIMITIVES.get(user.target) if user.op == "call_function" else None  # type: ignore[call-overload]
    if line is None or line.kind not in ("pointwise", "view") or not _fits(user, product):
        return False
    return all(given in found or given < product for given in user.all_input_nodes)


def _is_idle(one: fx.Node, product: fx.Node, found: Collection[fx.Node]) -> bool:
    """Whether nothing is computed of a view."""
    view = one is not product and PRIMITIVES[one.target].kind == "view"  # type: ignore[index]
    return view and all(user not in found for user in one.users)


def _is_read(one: fx.Node, found: Collection[fx.Node]) -> bool:
    """Whether something else reads what was found."""
    return any(user not in found for user in one.users)


def _fits(user: fx.Node, product: fx.Node) -> bool:
    value, inputs = user.meta.get("val"), [given.meta.get("val") for given in user.all_input_nodes]
    if not isinstance(value, torch.Tensor) or not all(isinstance(v, torch.Tensor) for v in inputs):
        return False
    whole: torch.Tensor = product.meta["val"]
    return prod(extents(value.shape)) == prod(extents(whole.shape))


def _tensor(value: torch.Tensor) -> str:
    shape, stride = extents(value.shape), extents(value.stride())
    first = [hint(extent) for extent in (*shape, *stride)]
    return f"{value.dtype} {shape} {stride}{'' if first == [*shape, *stride] else f' {first}'}"


def _measured(part: _Part, device: Device, options: Options) -> Tuned:
    """Both ways compiled, and timed in turn."""
    with Building(options) as building:
        artifacts = [part.artifact(loop, device, building, options) for loop in (True, False)]
        building.finish()
    given = part.arguments()
    ways = [_bound(link(artifact, options), given) for artifact in artifacts]
    loop, library = in_turn(ways, targets.toolchain(device.kind).seconds)
    return Tuned(part.title(), loop, library, loop < LEAST_GAIN * library)


def _bound(call: Callable[..., Any], given: Sequence[torch.Tensor]) -> Callable[[], Any]:
    return lambda: call(list(given))  # it empties the list


def in_turn(ways: Sequence[Callable[[], Any]], seconds: Clock) -> list[float]:
    """Seconds a call of each, the least of some samples in turn."""
    for way in ways:
        way()
    counts = [max(1, min(MOST, int(SAMPLE / max(seconds(way, 1), 1e-7)))) for way in ways]
    samples = [[seconds(way, count) for way, count in zip(ways, counts, strict=True)] for _ in range(ROUNDS)]
    return [min(times) for times in zip(*samples, strict=True)]
