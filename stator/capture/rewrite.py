"""The code object that runs in place of a captured frame.

    load every source that is needed  →  call the compiled graph  →  replay effects  →  build and return the result

Sources are all loaded first, because an effect may overwrite what a source reaches. Values are loaded once: a memo
keeps each in a local, so identity and aliasing in the result are those of the program. Live objects are constants of
the code object, by identity. Invariant: the code has the signature, flags and free variables of the original, so it
can stand in the same function. Neighbours: `value.py` (`reconstruct`), `effects.py` (`replay`), `frames.py`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from inspect import CO_VARARGS
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
from bytecode import Bytecode, CompilerFlags, Instr, Label
from bytecode.instr import FreeVar, TryBegin, TryEnd

from stator._native import EagerGraph, Plan, Straight
from stator.base.errors import InternalError
from stator.capture.arguments import parameters
from stator.capture.source import (
    AttrSource,
    CellSource,
    ClassAttrSource,
    ClosureSource,
    ConstSource,
    DictKeySource,
    EarlierSource,
    FunctionClosureSource,
    FunctionCodeSource,
    FunctionDefaultSource,
    FunctionGlobalsSource,
    FunctionKwDefaultSource,
    GlobalSource,
    GlobalsSource,
    InstanceDictSource,
    ItemSource,
    LengthSource,
    LocalSource,
    SizeSource,
    Source,
    StorageSource,
    StrideSource,
    TypeSource,
)
from stator.capture.values.python.objects.class_statement import made_here

if TYPE_CHECKING:
    from stator.capture.effects import Effects
    from stator.capture.output_state import Change
    from stator.capture.value import Value

SINCE_312 = sys.version_info >= (3, 12)
SINCE_313 = sys.version_info >= (3, 13)

#: Container kind → the instruction that builds it.
BUILDS = {"list": "BUILD_LIST", "tuple": "BUILD_TUPLE", "set": "BUILD_SET", "map": "BUILD_MAP", "slice": "BUILD_SLICE"}

#: Constants that are written as they are; every other object is pinned by identity.
LITERALS = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))


#: What code is made of here.
Instruction = Instr | Label | TryBegin | TryEnd


def call_named(function: Callable[..., Any], names: Sequence[str], *values: Any) -> Any:
    """Calls a function, the last arguments by name."""
    count = len(values) - len(names)
    return function(*values[:count], **dict(zip(names, values[count:], strict=True)))


def generators_of(calls: Iterable[Sequence[Value]]) -> dict[Source, None]:
    """The random generators from outside among the arguments of some calls."""
    values = (value for args in calls for value in args if value.python_type() is torch.Generator)
    sources = (value.source for value in values)
    return dict.fromkeys(source for source in sources if source is not None and not isinstance(source, EarlierSource))


def stored_key(obj: dict[Any, Any], kind: type[dict[Any, Any]], index: int) -> Any:
    """The key of an instance of a subclass of dict, by the builtin's own order."""
    return list(kind.__iter__(obj))[index]


class Pinned:
    """Stands for a live object until the code object exists: the assembler would compare constants by value."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj


class Assembler:
    """Emits the replacement of one code object."""

    def __init__(self, code: CodeType, namespace: dict[str, Any]) -> None:
        self.code = code
        self.namespace = namespace
        #: Nodes of the graph whose tensors are needed, in order of first use.
        self.outputs: list[Any] = []
        #: Of those that leave the graph otherwise than they are, what makes them so again.
        self.changes: dict[Any, Change] = {}
        self._sources: list[Instruction] = []
        self._earlier: list[Instruction] = []
        self._drawn_from: list[Source] = []
        self._body: list[Instruction] = []
        self._code = self._body
        self._pins: dict[int, Pinned] = {}
        self._source_slots: dict[Source, str] = {}
        self._value_slots: dict[int, str] = {}
        self._output_slots: dict[Any, str] = {}
        # Values are remembered by id, so they must not go away before the code is made.
        self._kept: list[Value] = []

    # -- what values and effects ask -----------------------------------------------------------------------

    def load(self, value: Value) -> None:
        """Push a value."""
        slot = self._value_slots.get(id(value))
        if slot is not None:
            self.emit("LOAD_FAST", slot)
        elif value.is_constant() and not value.is_symbolic() and type(value.constant()) in LITERALS:
            self.load_object(value.constant())
        elif value.source is not None:
            self.load_source(value.source)
        else:
            value.reconstruct(self)
            if id(value) not in self._value_slots:
                self.remember(value)

    def prepare(self, value: Value) -> None:
        """Rebuild a value now, so that it can be loaded in every branch that follows."""
        if value.source is None and id(value) not in self._value_slots:
            self.load(value)
            self.pop()

    def load_object(self, obj: Any) -> None:
        """Push a live Python object; a class that the frame has made is made anew."""
        made = made_here(obj)
        if made is not None:
            self.load(made)
            return
        self.emit("LOAD_CONST", obj if type(obj) in LITERALS else self._pin(obj))

    def load_output(self, node: Any) -> None:
        """Push the tensor that the graph computes at `node`."""
        slot = self._output_slots.get(node)
        if slot is None:
            slot = self._output_slots[node] = f".output_{len(self.outputs)}"
            self.outputs.append(node)
        self.emit("LOAD_FAST", slot)

    def load_source(self, source: Source) -> None:
        """Push what the source reached when the frame started."""
        if isinstance(source, LocalSource):
            self.emit("LOAD_FAST", source.name)
        elif isinstance(source, ConstSource):
            self.load_object(source.value)
        elif isinstance(source, StorageSource):
            self.load_source(source.base)
        elif isinstance(source, EarlierSource):
            self.emit("LOAD_FAST", f".earlier_{source.index}")
        else:
            self.emit("LOAD_FAST", self._source_slot(source))

    def call(self, obj: Callable[..., object], *values: Value) -> None:
        """Push `obj(*values)`."""
        self.start_call(lambda: self.load_object(obj))
        for value in values:
            self.load(value)
        self.finish_call(len(values))

    def build(self, kind: str, count: int) -> None:
        """Push a container of the `count` topmost items."""
        self.emit(BUILDS[kind], count)

    def remember(self, value: Value) -> None:
        """TOS is `value` from now on."""
        slot = self._value_slots[id(value)] = f".value_{len(self._kept)}"
        self._kept.append(value)
        self.emit("COPY", 1)
        self.emit("STORE_FAST", slot)

    def pop(self) -> None:
        """Drop TOS."""
        self.emit("POP_TOP")

    # -- sources -------------------------------------------------------------------------------------------

    def _source_slot(self, source: Source) -> str:
        """The local that holds what `source` reaches; loaded before anything else happens."""
        slot = self._source_slots.get(source)
        if slot is None:
            before, self._code = self._code, []
            self._step(source)
            slot = self._source_slots[source] = f".source_{len(self._source_slots)}"
            self.emit("STORE_FAST", slot)
            self._sources += self._code
            self._code = before
        return slot

    def _step(self, source: Source) -> None:
        """Push one step of a source; the steps below it are in their own locals."""
        match source:
            case ClosureSource(name=name):
                self.emit("LOAD_DEREF", FreeVar(name))
            case GlobalSource(name=name):
                self.emit("LOAD_GLOBAL", (False, name))
            case GlobalsSource():
                self.load_object(self.namespace)
            case AttrSource(base=base, name=name):
                self._attributes(base, name)
            case InstanceDictSource(base=base):
                self._attributes(base, "__dict__")
            case FunctionCodeSource(base=base):
                self._attributes(base, "__code__")
            case FunctionGlobalsSource(base=base):
                self._attributes(base, "__globals__")
            case ItemSource(base=StorageSource(kind=kind) as base, key=key):
                self._call_on(inspect.getattr_static(kind, "__getitem__"), base, key)
            case ItemSource(base=base, key=key):
                self._item(base, key)
            case FunctionDefaultSource(base=Source() as base, index=index):
                self._item(AttrSource(base, "__defaults__"), index)
            case FunctionKwDefaultSource(base=Source() as base, name=name):
                self._item(AttrSource(base, "__kwdefaults__"), name)
            case FunctionClosureSource(base=Source() as base, index=index):
                self._item(AttrSource(base, "__closure__"), index)
                self._attribute("cell_contents")
            case CellSource(base=base):
                self._attributes(base, "cell_contents")
            case TypeSource(base=base):
                self._call_on(type, base)
            case DictKeySource(base=StorageSource(kind=kind) as base, index=index):
                self._call_on(stored_key, base, kind, index)
            case DictKeySource(base=base, index=index):
                self._call_on(list, base)
                self.load_object(index)
                self.emit("BINARY_SUBSCR")
            case ClassAttrSource(base=base, name=name):
                self._call_on(inspect.getattr_static, base, name)
            case SizeSource(base=base, dim=dim):
                self._call_on(torch.Tensor.size, base, dim)
            case StrideSource(base=base, dim=dim):
                self._call_on(torch.Tensor.stride, base, dim)
            case LengthSource(base=base):
                self._call_on(len, base)
            case _:
                raise InternalError("capture", f"no bytecode loads the source {source}")

    def _attributes(self, base: Source | None, name: str) -> None:
        assert base is not None
        self.load_source(base)
        self._attribute(name)

    def _attribute(self, name: str) -> None:
        self.emit("LOAD_ATTR", (False, name) if SINCE_312 else name)

    def _item(self, base: Source | None, key: object) -> None:
        assert base is not None
        self.load_source(base)
        self.load_object(key)
        self.emit("BINARY_SUBSCR")

    def _call_on(self, function: Callable[..., object], base: Source | None, *rest: object) -> None:
        assert base is not None
        self.start_call(lambda: self.load_object(function))
        self.load_source(base)
        for obj in rest:
            self.load_object(obj)
        self.finish_call(1 + len(rest))

    # -- emission ------------------------------------------------------------------------------------------

    def emit(self, name: str, *arg: Any) -> None:
        """Appends one instruction of this Python."""
        self._code.append(Instr(name, *arg))

    def append(self, *items: Instruction) -> None:
        """Appends what has been made elsewhere."""
        self._code.extend(items)

    def _pin(self, obj: Any) -> Pinned:
        pin = self._pins.get(id(obj))
        if pin is None:
            pin = self._pins[id(obj)] = Pinned(obj)
        return pin

    def start_call(self, load: Callable[[], None]) -> None:
        """NULL goes below the callable before 3.13, above it since."""
        if not SINCE_313:
            self.emit("PUSH_NULL")
        load()
        if SINCE_313:
            self.emit("PUSH_NULL")

    def finish_call(self, count: int) -> None:
        """Calls what `start_call` has pushed with the `count` items above it."""
        if not SINCE_312:
            self.emit("PRECALL", count)
        self.emit("CALL", count)

    def call_earlier(self, calls: Sequence[tuple[Callable[..., Any], Sequence[Value], dict[str, Value]]]) -> None:
        """Emit what is called before the graph runs; first of all, since what it loads is remembered.

        The states of generators are kept: a graph that raises is to have changed nothing.
        """
        before, self._code = self._code, self._earlier
        self._drawn_from = list(generators_of([*args, *kwargs.values()] for _, args, kwargs in calls))
        for index, source in enumerate(self._drawn_from):
            self._call_on(torch.Generator.get_state, source)
            self.emit("STORE_FAST", f".state_{index}")
        for index, (function, args, kwargs) in enumerate(calls):
            called = functools.partial(call_named, function, tuple(kwargs)) if kwargs else function
            self.call(called, *args, *kwargs.values())
            self.emit("STORE_FAST", f".earlier_{index}")
        self._code = before

    # -- what is no more than the graph -----------------------------------------------------------------------

    def straight(
        self, graph: Callable[..., Sequence[Any]], inputs: Sequence[Source], recovery: Callable[..., object]
    ) -> Straight | None:
        """What does the same without a frame, where all is to call a compiled graph and give what it gives.

        Asked once everything is emitted, before it is assembled.
        """
        places = [self._place(source) for source in inputs]
        returned = self._returned()
        count = len(self.outputs)
        whole = returned == tuple(range(count))
        if not isinstance(graph, Plan | EagerGraph) or self._earlier or self.changes:
            return None
        if not whole and not isinstance(returned, int):
            return None
        found = tuple([place for place in places if place is not None])
        return Straight(graph, recovery, found, count, -1 if whole else returned) if len(found) == len(places) else None

    def _place(self, source: Source) -> tuple[int, int] | None:
        """A parameter and -1, or *args and the number of an item."""
        names = parameters(self.code)
        plain = self.code.co_argcount + self.code.co_kwonlyargcount
        match source:
            case LocalSource(name=name) if name in names:
                return names.index(name), -1
            case ItemSource(base=LocalSource(name=name), key=int(key)) if key >= 0 and self.code.co_flags & CO_VARARGS:
                return (plain, key) if names[plain] == name else None
        return None

    def _returned(self) -> Any:
        """What is returned: the number of an output, or a tuple of such; None where the code does anything else."""
        slots: dict[object, Any] = {slot: self.outputs.index(node) for node, slot in self._output_slots.items()}
        stack: list[Any] = []
        for item in self._body:
            match (item.name, item.arg) if isinstance(item, Instr) else (None, None):
                case "LOAD_FAST", slot if slot in slots:
                    stack.append(slots[slot])
                case "COPY", 1:
                    stack.append(stack[-1])
                case "STORE_FAST", slot:
                    slots[slot] = stack.pop()
                case "BUILD_TUPLE", int(count):
                    first = len(stack) - count
                    stack[first:] = [tuple(stack[first:])]
                case "RETURN_VALUE", _:
                    return stack[-1]
                case _:
                    return None
        return None

    # -- the whole -----------------------------------------------------------------------------------------

    def finish(self, result: Value, effects: Effects) -> None:
        """Emit effects and result; afterwards `outputs` is what the graph has to give."""
        effects.replay(self)
        self.load(result)
        self.emit("RETURN_VALUE")

    def assemble(
        self,
        graph: Callable[..., Sequence[Any]] | None,
        inputs: Sequence[Source],
        grad_flags: Sequence[tuple[Source, bool]] = (),
        recovery: Callable[..., object] | None = None,
    ) -> CodeType:
        """The code object that calls `graph`, if there is one, on the tensors that `inputs` reach.

        Before, those in `grad_flags` are made to take gradients, or none: doing so again changes nothing.
        When the graph raises, `recovery` is called with the exception and the inputs: nothing has happened until then.
        """
        body, self._code = self._code, []
        for source, flag in grad_flags:
            self._call_on(torch.Tensor.requires_grad_, source, flag)
            self.pop()
        if graph is not None:
            self._call_graph(graph, inputs, recovery, grad_flags)
        start = [Instr("COPY_FREE_VARS", len(self.code.co_freevars))] if self.code.co_freevars else []
        start.append(Instr("RESUME", 0))
        return self._code_object([*start, *self._sources, *self._earlier, *self._code, *body])

    def _call_graph(
        self,
        graph: Callable[..., Sequence[Any]],
        inputs: Sequence[Source],
        recovery: Callable[..., object] | None,
        grad_flags: Sequence[tuple[Source, bool]],
    ) -> None:
        """Call the graph and keep its results."""
        failed, done, attempt = Label(), Label(), None
        self.start_call(lambda: self.load_object(graph))
        for source in inputs:
            self.load_source(source)
        if recovery is not None:
            attempt = TryBegin(failed, push_lasti=False, stack_depth=0)
            self.append(attempt)
        self.finish_call(len(inputs))
        if attempt is not None and recovery is not None:
            self.append(TryEnd(attempt))
            self.emit("JUMP_FORWARD", done)
            self.append(failed)
            self._give_up(recovery, inputs, grad_flags)
            self.append(done)
        if self.outputs:
            self.emit("UNPACK_SEQUENCE", len(self.outputs))
            for node in self.outputs:
                self.emit("STORE_FAST", self._output_slots[node])
            for node, change in self.changes.items():
                self.start_call(functools.partial(self.load_object, change.restore))
                self.emit("LOAD_FAST", self._output_slots[node])
                self.finish_call(1)
                self.emit("STORE_FAST", self._output_slots[node])
        else:
            self.emit("POP_TOP")

    def _give_up(
        self, recovery: Callable[..., object], inputs: Sequence[Source], grad_flags: Sequence[tuple[Source, bool]]
    ) -> None:
        """What follows an exception, which is TOS."""
        self.emit("STORE_FAST", ".error")
        for index, generator in enumerate(self._drawn_from):
            self.start_call(functools.partial(self.load_object, torch.Generator.set_state))
            self.load_source(generator)
            self.emit("LOAD_FAST", f".state_{index}")
            self.finish_call(2)
            self.pop()
        for source, flag in grad_flags:
            self._call_on(torch.Tensor.requires_grad_, source, not flag)
            self.pop()
        self.start_call(lambda: self.load_object(recovery))
        self.emit("LOAD_FAST", ".error")
        self.emit("DELETE_FAST", ".error")  # the frame is in its traceback: both would wait for the garbage collector
        for source in inputs:
            self.load_source(source)
        self.finish_call(1 + len(inputs))
        self.emit("RETURN_VALUE")

    def _code_object(self, instructions: list[Instruction]) -> CodeType:
        code = self.code
        made = Bytecode(instructions)
        made.argcount, made.posonlyargcount = code.co_argcount, code.co_posonlyargcount
        made.kwonlyargcount = code.co_kwonlyargcount
        made.argnames = list(parameters(code))
        made.freevars = list(code.co_freevars)
        made.flags = CompilerFlags(code.co_flags)
        made.name, made.filename, made.first_lineno = code.co_name, code.co_filename, code.co_firstlineno
        for instruction in instructions:
            if isinstance(instruction, Instr) and instruction.location is None:
                instruction.lineno = code.co_firstlineno
        finished = made.to_code(compute_exception_stack_depths=False)
        consts = tuple(item.obj if type(item) is Pinned else item for item in finished.co_consts)
        return finished.replace(co_consts=consts, co_qualname=code.co_qualname)
