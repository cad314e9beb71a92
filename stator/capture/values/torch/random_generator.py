"""`torch.Generator` objects: what is drawn from one does not depend on the graph, so it is drawn before the graph runs.

    y = torch.randn(3, generator=g) + x.sin()    -->    drawn = torch.randn(3, generator=g); graph(drawn, x)

Such calls are made by PyTorch itself, in the program's order, on the generator that each call has: the numbers are
eager's, and so is the state it is left in. What draws by the data of a tensor that the graph computes ends the graph.
PyTorch's default generator given by name is none given. What the program does to its state (`manual_seed`,
`fork_rng`) is done before the graph where nothing has been drawn from it yet, and after it where nothing is drawn any
more. Neighbours: `graph.py` (`earlier`, `late_state`), `rewrite.py` (writes the calls), `tensor.py` (asks `draw`).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, cast

import torch

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.source import AttrSource, ConstSource, EarlierSource
from stator.capture.values import watch
from stator.capture.values.base import MethodValue, Object, PinnedValue
from stator.capture.values.fold import all_constant
from stator.capture.values.methods import find_method
from stator.capture.values.registry import builds, fresh, handles
from stator.capture.values.torch.tensor import DRAWN, TensorValue, call_graph
from stator.fake import FakeTensor
from stator.fake.symbolic import size_of
from stator.sizes import hint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stator.capture.machine import Machine
    from stator.capture.source import Source
    from stator.capture.value import Value


@value_class
class GeneratorObject(Object):
    """A generator of random numbers: one from outside, or one that a call before the graph makes."""

    kind = "a random generator"

    device: torch.device
    real: torch.Generator | None = None
    #: What the program has last seeded it with, and whether it has given it a state, which has a seed as well.
    seed: Value | None = part(default=None, init=False)
    restored: bool = field(default=False, init=False)

    def python_type(self) -> type:
        return torch.Generator

    def truth(self, tx: Machine) -> bool:
        return True

    def get_attr(self, tx: Machine, name: str) -> Value:
        return fresh(self.device) if name == "device" else super().get_attr(tx, name)

    def m_manual_seed(self, tx: Machine, seed: Value, /) -> Value:
        earlier(tx, torch.Generator.manual_seed, (self, seed))
        self.seed, self.restored = seed, False
        return self

    def m_initial_seed(self, tx: Machine, /) -> Value:
        if self.restored or (self.seed is not None and not (self.seed.is_constant() and self.seed.constant() >= 0)):
            raise self.refuse("asking for the seed of the state that it has been given")
        if self.seed is not None:
            return self.seed
        real = torch.Generator(self.device) if self.real is None else self.real
        if self.real is not None and self.source is not None:
            tx.guard("CALL", self.source, (torch.Generator.initial_seed, real.initial_seed()))
        return fresh(real.initial_seed())

    def m_get_state(self, tx: Machine, /) -> Value:
        like = torch.Generator(self.device).get_state() if self.real is None else self.real.get_state()
        return tensor_of(tx, earlier(tx, torch.Generator.get_state, (self,)), like)

    def m_set_state(self, tx: Machine, new_state: Value, /) -> Value:
        earlier(tx, torch.Generator.set_state, (self, new_state))
        self.restored = True
        return self

    def m_clone_state(self, tx: Machine, /) -> Value:
        made = GeneratorObject(self.device, source=earlier(tx, torch.Generator.clone_state, (self,)))
        made.restored = True
        return made


def is_early(tx: Machine, value: Value) -> bool:
    """Whether it is there before the graph runs, as it is here."""
    if isinstance(value, TensorValue):
        return value.source is not None and not tx.graph.is_changed(value.node) and not value.fake.requires_grad
    return value.is_constant() or isinstance(value, GeneratorObject | DefaultGenerator)


def earlier(
    tx: Machine, function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value] | None = None
) -> EarlierSource:
    """Makes a call before the graph runs; where its result is found."""
    kwargs = kwargs or {}
    if not all(is_early(tx, value) for value in (*args, *kwargs.values())):
        what = "a random generator is used with what the graph computes"
        raise GraphBreak(what, "draw by sizes alone, torch.rand(sizes, generator=g), and compare with what is computed")
    if tx.graph.mapping or tx.graph.inference or tx.graph.region is not None:
        raise GraphBreak("a random generator is used inside of vmap, of inference mode or of a checkpointed call")
    found = EarlierSource(len(tx.graph.earlier))
    tx.graph.earlier.append((function, tuple(args), kwargs))
    return found


def tensor_of(tx: Machine, source: EarlierSource, like: torch.Tensor) -> Value:
    """The tensor that such a call gives, an input of the graph; `like` it is one of these facts, real or fake."""
    geometry = None
    if isinstance(like, FakeTensor):
        if like._has_symbolic_sizes_strides:
            geometry = like.size(), like.stride()
        sizes, strides = ([hint(size_of(n)) for n in extents] for extents in (like.size(), like.stride()))
        like = torch.empty_strided(sizes, strides, dtype=like.dtype, device=like.device).zero_()
    node, fake = tx.graph.placeholder(source, like, tx.location(), geometry)
    tx.graph.kept.append(like)
    return TensorValue(node, fake, torch.Tensor, source=source)


def filled(
    method: str, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device,
    args: Sequence[Any], generator: torch.Generator,
) -> torch.Tensor:  # fmt: skip
    """What an in-place method of a tensor with this geometry draws."""
    made = torch.empty_strided(sizes, strides, dtype=dtype, device=device)
    return cast("torch.Tensor", getattr(made, method)(*args, generator=generator))


def draw(tx: Machine, kind: str, target: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A call with `generator=`."""
    generator = kwargs["generator"]
    rest = {name: value for name, value in kwargs.items() if name != "generator"}
    if generator.is_constant() and generator.constant() is torch.default_generator:
        return call_graph(tx, kind, target, args, rest)
    if not isinstance(generator, GeneratorObject):
        raise generator.refuse("drawing from it")
    name = target if kind == "call_method" else getattr(target, "__name__", "")
    if name.endswith("_") and args and isinstance(args[0], TensorValue):
        return fill(tx, name, args[0], args[1:], rest, generator)
    fakes = [arg.graph_argument()[1] for arg in args]
    named = {name: arg.graph_argument()[1] for name, arg in rest.items()}
    function = getattr(torch.Tensor, target) if kind == "call_method" else target
    before = tx.graph.mode.draws
    like = tx.graph.run(function, fakes, named)
    tx.graph.mode.draws = before  # from another generator
    if not isinstance(like, FakeTensor) or like.requires_grad:
        raise GraphBreak("a random generator is used for more than a tensor without gradient")
    return tensor_of(tx, earlier(tx, function, args, kwargs), like)


def fill(
    tx: Machine, name: str, owner: TensorValue, args: Sequence[Value], rest: dict[str, Value], generator: Value
) -> Value:
    """`x.normal_(generator=g)`: what is drawn is copied."""
    fake = owner.fake
    if not all_constant(args, rest) or not is_dense(fake):
        raise GraphBreak("a random generator fills a tensor that is not dense, or with what is not known")
    signature = [fresh(value) for value in (name, tuple(fake.size()), tuple(fake.stride()), fake.dtype, fake.device)]
    given = (*signature, fresh(tuple(value.constant() for value in (*args, *rest.values()))), generator)
    drawn = tensor_of(tx, earlier(tx, filled, given), fake)
    return call_graph(tx, "call_method", "copy_", (owner, drawn), {})


def is_dense(fake: FakeTensor) -> bool:
    """Whether its elements lie side by side, in any order of the dims."""
    if fake.is_contiguous() or fake._has_symbolic_sizes_strides:
        return fake.is_contiguous()
    reached = 1
    for stride, size in sorted(zip(fake.stride(), fake.size(), strict=True)):
        if size != 1 and stride != reached:
            return False
        reached *= size
    return True


DRAWN.append(draw)


@value_class
class DefaultGenerator(PinnedValue):
    """The generator that is used where none is given, and from which the graph draws when it runs."""

    kind = "the default random generator"

    def get_attr(self, tx: Machine, name: str) -> Value:
        return MethodValue(self, name) if find_method(self, name) is not None else PinnedValue.get_attr(self, tx, name)

    def m_manual_seed(self, tx: Machine, seed: Value, /) -> Value:
        before_draws(tx, "the default generator is seeded")
        earlier(tx, torch.Generator.manual_seed, (self, seed))
        return self

    def m_get_state(self, tx: Machine, /) -> Value:
        before_draws(tx, "the random state is asked for")
        return tensor_of(tx, earlier(tx, torch.Generator.get_state, (self,)), self.obj.get_state())

    def m_set_state(self, tx: Machine, new_state: Value, /) -> Value:
        if tx.graph.mode.draws or tx.graph.late_state is not None:
            tx.graph.set_late_state(tx.location())
            tx.effects.call(torch.Generator.set_state, self, new_state)
        else:
            earlier(tx, torch.Generator.set_state, (self, new_state))
        return self


def before_draws(tx: Machine, what: str) -> None:
    """Refuses what is to be done to the random state before the graph runs, where that has drawn from it."""
    if tx.graph.mode.draws or tx.graph.late_state is not None:
        raise GraphBreak(f"{what} after random numbers have been drawn", "give the operators a torch.Generator instead")


def seed_all(generator: torch.Generator, seed: int) -> torch.Generator:
    """`torch.manual_seed(seed)`, whose first result is the default generator."""
    return torch.manual_seed(seed)


@handles(torch.manual_seed)
def manual_seed(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.manual_seed(seed)`: on all devices."""
    (seed,) = (*args, *kwargs.values())
    before_draws(tx, "torch.manual_seed() is called")
    generator = DefaultGenerator(torch.default_generator, source=ConstSource(torch.default_generator))
    earlier(tx, seed_all, (generator, seed))
    return generator


@builds(torch.Generator)
def build_generator(tx: Machine, obj: torch.Generator, source: Source) -> Value:
    """A generator is known by its device; the default one, by being it."""
    if obj is torch.default_generator:
        watch.identity(tx, source, obj)
        return DefaultGenerator(obj, source=source)
    watch.type_of(tx, source, type(obj))
    watch.equals(tx, AttrSource(source, "device"), obj.device)
    tx.guard("NOT_SAME", source, ConstSource(torch.default_generator))
    return GeneratorObject(obj.device, source=source, real=obj)


@handles(torch.Generator)
def call_generator(tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.Generator(device)`: a new one at each call."""
    device = args[0] if args else kwargs.get("device", fresh("cpu"))
    return GeneratorObject(torch.device(device.constant()), source=earlier(tx, torch.Generator, args, kwargs))
