"""Each kind of value has a program that makes one, and gives then what Python gives."""

from __future__ import annotations

import contextvars
import functools
import itertools
import logging
import math
import operator
import os
import sys
import types
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import stator
from stator.capture import entry
from stator.capture.effects import GlobalsValue
from stator.capture.generators import GeneratorMethod, GeneratorValue
from stator.capture.value import Value
from stator.capture.values import base
from stator.capture.values.autograd import inference
from stator.capture.values.python import constant, iterators, real, symbolic, unknown_text
from stator.capture.values.python.containers import deques, dict_views, lists, mapping, proxy, sequence, sets
from stator.capture.values.python.library import (
    builtin,
    context_variable,
    functional,
    numpy_scalars,
    pure,
    sharing,
    warning,
)
from stator.capture.values.python.library import iterators as library_iterators
from stator.capture.values.python.objects import (
    class_statement,
    descriptors,
    exception,
    function,
    klass,
    partial,
    user_object,
)
from stator.capture.values.python.objects import module as python_module
from stator.capture.values.stator import markers
from stator.capture.values.torch import (
    autocast,
    default_device,
    graph_context,
    random_generator,
    read_float,
    switches,
    tensor,
)
from stator.capture.values.torch import functions as torch_function
from stator.capture.values.torch import nn_module as module
from stator.capture.values.torch import profiler as ranges
from tests.capture.values.harness import check, refused

LOGGER = logging.getLogger("stator.tests.kinds")
CONTEXT: contextvars.ContextVar[int] = contextvars.ContextVar("scale", default=3)
LAYER = torch.nn.Linear(4, 4)
WEAK = weakref.ref(LAYER)
PROXY = types.MappingProxyType({"k": 2})
STORED = 0


def in_a_range(t: Tensor) -> Tensor:
    with torch.profiler.record_function("range"):
        return t * 2


def with_a_float_dropped(t: Tensor) -> Tensor:
    -float(t.sum())
    return t * 2


def with_a_variable_set(t: Tensor) -> Tensor:
    token = CONTEXT.set(5)
    result = t * CONTEXT.get()
    CONTEXT.reset(token)
    return result


class Pair:
    scale = 2
    activation = torch.nn.functional.relu

    def __init__(self) -> None:
        self.parts = [1, 2]

    def __getitem__(self, index: int) -> int:
        return self.parts[index]

    @property
    def total(self) -> int:
        return sum(self.parts)

    @functools.lru_cache  # noqa: B019
    def cached(self) -> int:
        return self.scale


class Child(Pair):
    def __init__(self) -> None:
        super().__init__()


def numbers() -> Iterator[int]:
    yield from (1, 2, 3)


def store(t: Tensor) -> Tensor:
    global STORED
    STORED = 5
    return t * STORED


def closed_over(t: Tensor) -> Tensor:
    scale = 2

    def inner() -> Tensor:
        return t * scale

    return inner()


def handled(t: Tensor) -> Tensor:
    try:
        raise ValueError(3)
    except ValueError as error:
        return t * error.args[0]


def in_autocast(t: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return t.view(1, 4) @ t.view(4, 1)


def in_inference_mode(t: Tensor) -> Tensor:
    with torch.inference_mode():
        return t * 2


def called_until(t: Tensor) -> Tensor:
    items = [1, 2, 3]
    return t * len(list(iter(items.pop, 1)))


@stator.disable
def left_alone(t: Tensor) -> Tensor:
    return t + 1


@stator.allow_in_graph
def as_one_call(t: Tensor) -> Tensor:
    return t + 1


@stator.assume_constant_result
def taken_for_constant() -> int:
    return 3


def with_one_kernel(t: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return t + 1


def without_warnings(t: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return t + 1


def with_a_message_dropped(t: Tensor) -> Tensor:
    message = f"{t}"
    assert t.dim() == 1, message
    return t + 1


def bound(t: Tensor) -> Tensor:
    pair = Pair()
    return t * pair.__getitem__(1) * (2 if callable(pair.cached) else 3) * (2 if hasattr(pair, "activation") else 3)


#: Kind of value → a program that makes one.
def with_a_class(t: Tensor) -> Tensor:
    class Local:
        @staticmethod
        def twice(y: Tensor) -> Tensor:
            return y * 2

    return Local.twice(t)


class Numbers(list[int]):
    """A list of its own class."""


PROGRAMS: dict[type[Value], Callable[[Tensor], Any]] = {
    GlobalsValue: store,
    GeneratorValue: lambda t: t * sum(numbers()),
    numpy_scalars.ScalarValue: lambda t: t * NUMBER,
    numpy_scalars.UfuncValue: lambda t: t * numpy.sqrt(8) - numpy.log(2.0),
    GeneratorMethod: lambda t: t * numbers().__next__(),
    autocast.AutocastValue: in_autocast,
    inference.InferenceValue: in_inference_mode,
    base.MethodValue: lambda t: t * [1, 2].index(2),
    builtin.BuiltinValue: lambda t: t * math.sqrt(4),
    constant.ConstantValue: lambda t: t * 2,
    default_device.DeviceValue: lambda t: t.to(torch.device("cpu")) * 2,
    random_generator.GeneratorObject: lambda t: t * torch.rand(4, generator=torch.Generator().manual_seed(3)),
    random_generator.DefaultGenerator: lambda t: t + torch.rand(4, generator=torch.default_generator) * 0,
    constant.BoundConstantValue: lambda t: t * len("a b".split()),
    constant.SliceValue: lambda t: t[slice(1, 3)],
    exception.ExceptionValue: handled,
    function.FunctionValue: closed_over,
    function.FunctionMethod: lambda t: closed_over.__call__(t),
    function.BoundMethodValue: bound,
    partial.PartialValue: lambda t: functools.partial(torch.mul, t)(2),
    function.CellValue: closed_over,
    iterators.ItemsIterator: lambda t: t * next(iter((2, 3))),
    library_iterators.Enumerate: lambda t: [t * i for i, _ in enumerate("ab")],
    library_iterators.Zip: lambda t: [t * i for i, _ in zip((1, 2), "ab", strict=True)],
    library_iterators.Filter: lambda t: [t * i for i in filter(None, (0, 1))],
    library_iterators.Chain: lambda t: [t * i for i in itertools.chain((1,), [2])],
    library_iterators.Counter: lambda t: t * next(itertools.count(2)),
    library_iterators.Repeat: lambda t: [t * i for i in itertools.repeat(2, 2)],
    library_iterators.Slice: lambda t: [t * i for i in itertools.islice((1, 2, 3), 2)],
    library_iterators.While: lambda t: [t * i for i in itertools.takewhile(lambda i: i < 3, (1, 2, 3))],
    library_iterators.Cycle: lambda t: t * next(itertools.cycle((2, 3))),
    library_iterators.Accumulate: lambda t: [t * i for i in itertools.accumulate((1, 2, 3))],
    sharing.Steps: lambda t: [t * i for i in itertools.compress((1, 2, 3), (1, 0, 1))],
    ranges.RangeValue: in_a_range,
    functional.GetterValue: lambda t: t * operator.itemgetter(1)((2, 3)),
    functional.KeyMaker: lambda t: t * sorted((3, 1), key=functools.cmp_to_key(lambda a, b: a - b))[0],
    functional.OrderedKey: lambda t: t * sorted((3, 1), key=functools.cmp_to_key(lambda a, b: a - b))[0],
    context_variable.TokenValue: with_a_variable_set,
    tensor.OpaqueValue: lambda t: (t + 1, (LAYER(t) * 2).grad_fn is None),
    pure.ReferenceValue: lambda t: weakref.ref(LAYER)()(t),
    library_iterators.CallableIterator: called_until,
    class_statement.MadeClassValue: with_a_class,
    class_statement.MadeDescriptorValue: with_a_class,
    klass.ClassValue: lambda t: t * Pair.scale,
    descriptors.BuiltinMethodValue: lambda t: t * dict.__len__({"k": 1}),
    descriptors.PropertyValue: lambda t: t * Pair().total,
    klass.SuperValue: lambda t: t * Child().total,
    mapping.DictValue: lambda t: {"k": t + 1},
    dict_views.DictViewValue: lambda t: t * len({"k": 1}.items()),
    dict_views.DictIterator: lambda t: [t * value for value in {"k": 2}.values()],
    proxy.ProxyValue: lambda t: t * PROXY["k"],
    module.ModuleValue: lambda t: LAYER(t),
    module.RegistryValue: lambda t: LAYER.weight @ t,
    pure.EnvironValue: lambda t: t * len(os.environ.get("STATOR_NO_SUCH_NAME", "ab")),
    pure.LoggerValue: lambda t: t * (2 if LOGGER.isEnabledFor(logging.DEBUG) else 3),
    pure.LogMethod: lambda t: t * (2 if LOGGER.isEnabledFor(logging.DEBUG) else 3),
    pure.WeakReferenceValue: lambda t: WEAK()(t),  # type: ignore[misc]
    context_variable.ContextVariableValue: lambda t: t * CONTEXT.get(),
    python_module.PythonModuleValue: lambda t: t * math.pi,
    sequence.TupleValue: lambda t: (t + 1, 2),
    lists.ListValue: lambda t: [t + 1, 2],
    lists.ListIterator: lambda t: [t * i for i in Pair().parts],
    lists.ReversedList: lambda t: [t * i for i in reversed([1, 2])],
    deques.DequeValue: lambda t: t * deque([1, 2]).popleft(),
    deques.DequeIterator: lambda t: [t * i for i in deque([1, 2])],
    sets.SetValue: lambda t: t * len({1, 2}),
    sets.SetIterator: lambda t: [t * i for i in {1, 2}],
    descriptors.BoundBuiltinValue: lambda t: t * len(Numbers().__iadd__([1])),
    tensor.TensorValue: lambda t: t + t,
    tensor.TensorMethod: lambda t: t.sin(),
    markers.AllowedFunction: lambda t: as_one_call(t),
    markers.ConstantFunction: lambda t: t * taken_for_constant(),
    exception.TracebackValue: handled,
    switches.Switch: with_one_kernel,
    warning.CatchWarningsValue: without_warnings,
    torch_function.TorchFunctionValue: lambda t: torch.sin(t),
    torch_function.NamespaceValue: lambda t: torch.ops.aten.sin(t),
    unknown_text.UnknownTextValue: with_a_message_dropped,
    read_float.ReadFloat: with_a_float_dropped,
    user_object.UserObjectValue: lambda t: t * Pair().parts[0],
    iterators.IndexIterator: lambda t: [t * i for i in Pair()],
}

NUMBER = numpy.float64(0.5)

#: Kinds that no such program makes, and why.
OTHERS: dict[type[Value], str] = {
    base.Object: "a base class",
    base.Modelled: "a base class",
    base.PinnedValue: "a base class",
    base.Builtin: "a base class",
    graph_context.GraphContext: "a base class",
    sequence.SequenceValue: "a base class",
    iterators.IteratorValue: "a base class",
    descriptors.ExtensionMethod: "calling one is refused: see test_breaks_odd.py",
    markers.DisabledFunction: "calling one is refused: see below",
    real.SymbolicFloat: "made where floats have changed: see test_dynamic.py",
    symbolic.SymbolicValue: "made where sizes have changed: see test_dynamic.py",
}


def kinds(cls: type[Value] = Value) -> Iterator[type[Value]]:
    """The classes of values that the package has."""
    for kind in cls.__subclasses__():
        # Making the slots of a class leaves another of its name, until garbage is collected.
        if kind.__module__.startswith("stator.") and getattr(sys.modules[kind.__module__], kind.__name__) is kind:
            yield kind
        yield from kinds(kind)


@pytest.mark.parametrize("kind", PROGRAMS, ids=lambda kind: kind.__name__)
def test_a_program_makes_it(kind: type[Value], monkeypatch: pytest.MonkeyPatch) -> None:
    made = set()
    original = kind.__init__

    def noting(self: Value, *args: Any, **kwargs: Any) -> None:
        made.add(type(self))
        original(self, *args, **kwargs)

    monkeypatch.setattr(kind, "__init__", noting)
    check(PROGRAMS[kind], torch.arange(4.0))
    assert kind in made


def test_every_kind_has_a_program() -> None:
    assert entry.__name__  # all kinds are imported with it
    assert set(kinds()) == set(PROGRAMS) | set(OTHERS)


def test_disabled_functions_are_refused() -> None:
    assert "left_alone is called, which is not compiled" in refused(lambda t: left_alone(t) * 2, torch.arange(4.0))
