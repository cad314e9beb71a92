"""The kinds of guards, as `csrc/guard_kinds.h` has them: one row says what a kind compares, costs and prints.

Here is what the rows mean to Python: how the payload of a guard is made (`PAYLOADS`), how it prints (`FORMS`), and the
facts that payloads hold. There is no second list of kinds: `KINDS` is read from the extension.
Invariant: a payload keeps no user tensor alive; it holds only the tensor's facts.
Neighbours: `guards.py` (guards, and the tree of them), `conditions.py` (comparisons of sizes).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import torch

from stator import _native
from stator.capture.conditions import ConditionFacts
from stator.capture.default_device import default_device
from stator.capture.source import ConstSource, Source, constant_key
from stator.graphs.modes import ATTENTION_KERNELS, SWITCHES

#: Learn where torch keeps metadata now, not in the middle of a call, where modes may be active.
TENSOR_ACCESS: Final = _native.tensor_access()

# -- facts ---------------------------------------------------------------------------------------------


class TensorFacts(NamedTuple):
    """What a TENSOR guard compares; a size or stride of None may be any. Layout, conjugation and
    inference are among the dispatch keys."""

    cls: type
    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    requires_grad: bool
    keys: int
    #: How the native reader numbers dtype and device.
    numbers: tuple[int, int]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorFacts:
        """The facts of a live tensor."""
        sizes, strides, dtype, device, keys, requires_grad = _native.tensor_facts(tensor)
        return cls(type(tensor), tensor.dtype, tensor.device, sizes, strides, requires_grad, keys, (dtype, device))

    def __str__(self) -> str:
        shape = ", ".join("*" if size is None else str(size) for size in self.sizes)
        strides = ", ".join("*" if stride is None else str(stride) for stride in self.strides)
        name = "" if self.cls is torch.Tensor else f"{self.cls.__name__} "
        grad = " requires_grad" if self.requires_grad else ""
        return f"{name}{str(self.dtype).removeprefix('torch.')}[{shape}] strides ({strides}) {self.device}{grad}"


def always() -> bool:
    """Of a state that every version depends on."""
    return True


class TogetherFacts(NamedTuple):
    """What a TOGETHER guard asks: `function` of a tuple of what is found at the sources gives `answer`."""

    function: Callable[[tuple[Any, ...]], Any]
    answer: Any
    sources: tuple[Source, ...]


class State(NamedTuple):
    """One piece of torch's global state that compiled code depends on, while `when` says so."""

    read: Callable[[], Any]
    text: str
    when: Callable[[], bool] = always


def included_keys() -> int:
    """Dispatch keys that this thread adds: transforms, dispatch modes, inference mode."""
    return int(torch._C._dispatch_tls_local_include_set().raw_repr())


def excluded_keys() -> int:
    """Dispatch keys that this thread leaves out: autocast unless it is on, autograd in inference mode."""
    return int(torch._C._dispatch_tls_local_exclude_set().raw_repr())


def autocast(device: str) -> State:
    """Whether autocast is on for a device type, to which dtype, and whether casts are cached."""

    def read() -> tuple[bool, torch.dtype, bool]:
        return (
            torch.is_autocast_enabled(device),
            torch.get_autocast_dtype(device),
            torch.is_autocast_cache_enabled(),
        )

    return State(read, f"autocast of {device}", torch._C._is_any_autocast_enabled)


def attention_kernels() -> tuple[str, ...]:
    """The kernels of attention that are switched on."""
    return tuple([name for name in ATTENTION_KERNELS if SWITCHES[name].read()])


#: Global state by name; `state_guards` guards it as it is while capturing. `csrc/state.c` reads most of it without
#: Python, under the same names.
STATES: Final[dict[str, State]] = {
    "grad_mode": State(torch.is_grad_enabled, "torch.is_grad_enabled()"),
    "keys_included": State(included_keys, "dispatch keys of modes and transforms"),
    "keys_excluded": State(excluded_keys, "dispatch keys left out (autocast, inference mode)"),
    "function_modes": State(torch._C._len_torch_function_stack, "len(torch function modes)"),
    "default_dtype": State(torch.get_default_dtype, "torch.get_default_dtype()"),
    "default_device": State(default_device, "the default device", lambda: default_device() is not None),
    "deterministic": State(torch._C._get_deterministic_algorithms, "torch.are_deterministic_algorithms_enabled()"),
    "attention": State(attention_kernels, "kernels of attention that are switched on"),
    "fills_memory": State(
        torch._C._get_deterministic_fill_uninitialized_memory,
        "torch.utils.deterministic.fill_uninitialized_memory",
        torch.are_deterministic_algorithms_enabled,
    ),
    "autocast_cpu": autocast("cpu"),
    "autocast_cuda": autocast("cuda"),
}


def state_number(name: str, value: Any) -> int | None:
    """The native reader's number for a state that is `value`, where that is known: while it is so."""
    return _native.read_state(name) if STATES[name].read() == value else None


# -- payloads ------------------------------------------------------------------------------------------


def _same(payload: Any) -> Any:
    return payload


class Payload(NamedTuple):
    """How a payload of one sort is made of what is given, told apart from others, and handed to the tree."""

    make: Callable[[Any], Any] = _same
    key: Callable[[Any], object] = constant_key
    native: Callable[[Any], Any] = _same


def _tensor(payload: Any) -> TensorFacts:
    return payload if isinstance(payload, TensorFacts) else TensorFacts.of(payload)


def _native_tensor(facts: TensorFacts) -> tuple[Any, ...]:
    return facts.cls, facts.sizes, facts.strides, *facts.numbers, facts.keys, facts.requires_grad


def _native_state(payload: tuple[str, Any]) -> tuple[Any, ...]:
    name, value = payload
    return name, state_number(name, value), (STATES[name].read, value)


def _condition(payload: Any) -> ConditionFacts:
    operands, program = payload
    return ConditionFacts(tuple(operands), tuple(program))


#: By the column `payload` of the rows; `parse_*` in `csrc/tree.c` takes what `native` gives.
PAYLOADS: Final[dict[str, Payload]] = {
    "object": Payload(),
    "number": Payload(),
    "call": Payload(),
    "sequence": Payload(tuple),
    "names": Payload(tuple),
    "state": Payload(native=_native_state),
    "tensor": Payload(_tensor, _same, _native_tensor),
    "other": Payload(),
    "sources": Payload(tuple),
    "condition": Payload(_condition, _same),
    "together": Payload(lambda payload: TogetherFacts(*payload), _same),
}

# -- text ----------------------------------------------------------------------------------------------


def _name(value: object) -> str:
    """A short text for an object that is meant by identity."""
    return str(ConstSource(value))


def _items(items: Iterable[object]) -> str:
    return ", ".join(repr(item) if isinstance(item, (str, int, float, bytes)) else _name(item) for item in items)


def _code(code: types.CodeType) -> str:
    return f"<code of {code.co_qualname}, line {code.co_firstlineno}>"


#: How a payload prints, by the form that follows it in the text of a row; as `str` has it where there is none.
FORMS: Final[dict[str, Callable[[Any], str]]] = {
    "": str,
    "name": _name,
    "value": repr,
    "item": lambda payload: _items([payload]),
    "items": _items,
    "code": _code,
    "state": lambda name: STATES[name].text,
    "ways": lambda sources: ", ".join(map(str, sources)),
}


class Shown:
    """A payload as the text of a row refers to it: `{payload:form}`, `{payload[0]:form}`."""

    __slots__ = ("payload",)

    def __init__(self, payload: Any) -> None:
        self.payload = payload

    def __getitem__(self, index: int) -> Shown:
        return Shown(self.payload[index])

    def __format__(self, form: str) -> str:
        return FORMS[form](self.payload)


# -- the rows ------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A row: how expensive the check is (for the order), its payload, whether it compares several values, what it
    means, and how it prints."""

    name: str
    cost: int
    payload: Payload
    relation: bool
    meaning: str
    text: str

    def write(self, source: object, payload: Any) -> str:
        """A guard of this kind as a line."""
        return self.text.format(source=source, payload=Shown(payload))


KINDS: Final[dict[str, Kind]] = {
    name: Kind(name, cost, PAYLOADS[payload], relation, meaning, text)
    for name, cost, payload, relation, meaning, text in _native.GUARD_KINDS
}
