"""Runs a program both ways and says how they differ.

After each call these must be equal: the result or the exception (type and message), the arguments, the global data of
the program's module, the random state, what was printed, the gradients where there are any, and which of all these are one object or share memory.
Neighbours: `table.py`, `__main__.py` and `test_programs.py`, which report.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import types
import warnings
from collections import deque
from collections.abc import Callable, ItemsView, KeysView, Mapping, ValuesView
from typing import Any, NamedTuple

import torch

import stator
from stator.base import faults
from stator.base.errors import FallbackWarning
from tests.capture.programs.table import Program

CALLS = 3
SEED = 20


class Outcome(NamedTuple):
    """What came of a program."""

    #: What differs from eager, or where stator failed and eager did not; empty when nothing does.
    difference: str
    #: Graphs and operators that the first call gave.
    graphs: int
    operators: int
    #: Why it was not one graph, as the warnings say.
    why: str

    @property
    def whole(self) -> bool:
        """Whether one graph holds it."""
        return self.graphs == 1 and not self.why


class Counting:
    """A backend that runs graphs as they are, and counts."""

    def __init__(self) -> None:
        self.graphs = 0
        self.operators = 0

    def __call__(self, gm: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        self.operators += sum(node.op in ("call_function", "call_method") for node in gm.graph.nodes)
        return gm.forward


def check(program: Program, reset: bool = True) -> Outcome:
    """Runs a program in eager and compiled."""
    if reset:
        stator.reset()
    backend = Counting()
    expected, _ = run(program, program.function)
    compiled = stator.compile(program.function, backend=backend, options={"strict": True})
    before = faults.total()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FallbackWarning)
        first: list[tuple[int, int]] = []
        found, _ = run(program, compiled, lambda: first.append((backend.graphs, backend.operators)))
    why = [str(item.message) for item in caught if issubclass(item.category, FallbackWarning)]
    graphs, operators = first[0] if first else (0, 0)
    wrong = difference(found, expected) or "; ".join(map(str, faults.recent(before)))
    return Outcome(wrong, graphs, operators, why[0] if why else "")


def run(program: Program, function: Any, after: Callable[[], None] = lambda: None) -> tuple[list[Any], Any]:
    """Calls a function on the program's arguments several times; what is seen after each call."""
    torch.manual_seed(SEED)
    module = sys.modules[program.function.__module__]
    before = {name: value for name, value in vars(module).items() if is_data(name, value)}
    vars(module).update(copy.deepcopy(before))
    torch.utils.hooks.RemovableHandle.next_id = 0
    with torch.random.fork_rng():
        args = program.make()
        seen: list[Any] = []
        try:
            for _ in range(CALLS):
                printed = io.StringIO()
                try:
                    with contextlib.redirect_stdout(printed):
                        result: Any = function(*args)
                except Exception as error:
                    result = error
                finally:
                    after()
                state = {name: value for name, value in vars(module).items() if is_data(name, value)}
                seen.append(describe((result, args, state, torch.get_rng_state(), modes(), printed.getvalue()), {}))
            if (gradients := backward(result, args)) is not None:
                seen.append(describe(gradients, {}))
        finally:
            for name in [name for name, value in vars(module).items() if is_data(name, value)]:
                delattr(module, name)
            vars(module).update(before)
    return seen, args


def is_data(name: str, value: Any) -> bool:
    """Whether a global of a program's module is data that it may change."""
    return name.isupper() and isinstance(value, int | float | str | list | dict | torch.Tensor | None)


def modes() -> tuple[Any, ...]:
    """The state of the process that programs may leave changed."""
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype()


def backward(result: Any, args: Any) -> Any:
    """The gradients of what the last call gave, or None where nothing takes any."""
    tensors: list[torch.Tensor] = []
    collect(result, tensors, set())
    total = [item.sum() for item in tensors if item.requires_grad and item.is_floating_point()]
    if not total:
        return None
    leaves: list[torch.Tensor] = []
    collect(args, leaves, set())
    try:
        torch.stack([item.double() for item in total]).sum().backward()
    except RuntimeError as error:  # the program has used up the history of what it gave
        return error
    return [item.grad if item.is_leaf else None for item in leaves]


def collect(obj: Any, into: list[torch.Tensor], seen: set[int]) -> None:
    """All tensors in an object."""
    if id(obj) in seen:
        return
    seen.add(id(obj))
    match obj:
        case torch.Tensor():
            into.append(obj)
        case torch.nn.Module():
            into.extend(obj.parameters())
        case Mapping():
            for item in obj.values():
                collect(item, into, seen)
        case list() | tuple() | set() | frozenset():
            for item in obj:
                collect(item, into, seen)
        case _ if hasattr(obj, "__dict__") and not isinstance(obj, type | types.FunctionType | types.ModuleType):
            for item in vars(obj).values():
                collect(item, into, seen)


# -- comparing -----------------------------------------------------------------------------------------


def describe(obj: Any, memo: dict[Any, int]) -> Any:
    """An object as plain data: types, values, and a number for each object with an identity of its own."""
    match obj:
        case None | bool() | int() | float() | complex() | str() | bytes() | range() | torch.dtype() | torch.device():
            return type(obj).__name__, repr(obj)
    if isinstance(obj, type | types.ModuleType | types.BuiltinFunctionType):
        return "known", repr(obj)
    number = memo.get(id(obj))
    if number is not None:
        return "again", number
    number = memo[id(obj)] = len(memo)
    memo[("keep", number)] = obj  # type: ignore[assignment]
    return type(obj).__name__, number, contents(obj, memo)


def contents(obj: Any, memo: dict[Any, int]) -> Any:
    """What an object holds."""
    inside = [describe(value, memo) for value in attributes(obj)]
    match obj:
        case torch.Tensor():
            return tensor(obj, memo), inside
        case BaseException():
            return str(obj), describe(obj.args, memo)
        case types.FunctionType():
            return obj.__qualname__, [describe(cell, memo) for cell in obj.__closure__ or ()]
        case types.MethodType():
            return obj.__func__.__qualname__, describe(obj.__self__, memo)
        case types.CellType():
            return describe(obj.cell_contents, memo)
        case Mapping():
            return [(describe(key, memo), describe(value, memo)) for key, value in obj.items()], inside
        case set() | frozenset():
            return sorted(map(repr, obj)), inside
        case list() | tuple() | deque() | KeysView() | ValuesView() | ItemsView():
            return [describe(item, memo) for item in obj], inside
    return inside


def attributes(obj: Any) -> list[Any]:
    """The names and values of an object's attributes, slots included."""
    found: list[Any] = []
    if not isinstance(obj, types.FunctionType | types.MethodType | torch.Tensor):
        for name, value in getattr(obj, "__dict__", {}).items():
            found += [name, value]
    for cls in type(obj).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(obj, name):
                found += [name, getattr(obj, name)]
    return found


def tensor(obj: torch.Tensor, memo: dict[Any, int]) -> Any:
    """A tensor's facts and data; which others share its memory."""
    facts = (obj.dtype, obj.device, obj.requires_grad, obj.is_leaf, obj.is_inference(), version(obj))
    if obj.layout is not torch.strided or torch._C._functorch.is_functorch_wrapped_tensor(obj):
        return facts, str(obj)
    storage = obj.untyped_storage()
    share = memo.setdefault(("storage", storage._cdata), len(memo)) if storage.nbytes() else -1
    plain = obj.detach().clone()
    values = plain.view(torch.uint8).tolist() if plain.dim() and plain.is_contiguous() else repr(plain.tolist())
    gradient = describe(obj.grad, memo) if obj.is_leaf else None
    return facts, tuple(obj.shape), obj.stride(), obj.storage_offset(), share, values, gradient


def version(obj: torch.Tensor) -> int:
    """How often a tensor was changed; inference tensors do not count."""
    return 0 if obj.is_inference() else obj._version


def difference(found: list[Any], expected: list[Any]) -> str:
    """The first place where two descriptions differ, in words."""
    if len(found) != len(expected):
        return f"{len(found)} steps, not {len(expected)}"
    for number, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        place = first_difference(ours, theirs)
        if place:
            return f"call {number + 1}: {place}"
    return ""


def first_difference(ours: Any, theirs: Any) -> str:
    """Where two descriptions part."""
    if ours == theirs:
        return ""
    if isinstance(ours, tuple | list) and isinstance(theirs, tuple | list) and len(ours) == len(theirs):
        for left, right in zip(ours, theirs, strict=True):
            place = first_difference(left, right)
            if place:
                return place
    return f"{str(ours)[:300]} instead of {str(theirs)[:300]}"
