"""Generators of the interpreted program: a frame that is run piece by piece.

A generator function called during capture gives a `GeneratorValue`, whose own `Machine` runs up to the next yield each
time it is asked. Invariant: what a generator does happens when the program asks for it, as in Python, so effects and
graph calls keep their order. A generator leaves the compiled frame only before its start, or after its end.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

from stator.base.errors import GraphBreak
from stator.capture.fields import part, value_class
from stator.capture.value import Raised, Value

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stator.capture.machine import Machine
    from stator.capture.rewrite import Assembler


@value_class
class GeneratorValue(Value):
    """A suspended, running or finished generator."""

    kind = "a generator"

    machine: Machine
    started: bool = field(init=False, default=False)
    running: bool = field(init=False, default=False)
    #: What it returned, once it has finished.
    result: Value | None = field(init=False, default=None)

    def python_type(self) -> type:
        return types.GeneratorType

    def truth(self, tx: Machine) -> bool:
        return True

    def iterate(self, tx: Machine) -> Value:
        return self

    def next_item(self, tx: Machine) -> Value | None:
        return self.resume(tx, tx.session.none)

    def snapshot(self) -> Any:
        """All that is left, for a function that runs at capture (`", ".join(…)`): it is used up."""
        tx = self.machine.parent
        assert tx is not None
        return iter([item.snapshot() for item in self.unpack(tx)])

    def get_attr(self, tx: Machine, name: str) -> Value:
        if name in GeneratorMethod.COUNTS:
            return GeneratorMethod(self, name)
        raise self.refuse(f"reading attribute {name!r}")

    def children(self) -> Iterator[Value]:
        return (value for value in self.machine.slots if value is not None)

    def reconstruct(self, out: Assembler) -> None:
        """One that has not started is made by calling its function; one that is suspended is the machine's alone."""
        machine = self.machine
        if machine.finished:
            out.call(exhausted_generator)
        elif not self.started:
            function: Any = machine.function
            arguments = [value for value in machine.slots if value is not None]
            out.call(call_with_slots, function, *arguments)
        else:
            raise GraphBreak(
                f"the generator {machine.function.qualname} has been started and is used outside of the graph",
                "make a list of it, or loop over it in one compiled function",
            )

    # -- running -----------------------------------------------------------------------------------------

    def resume(self, tx: Machine, sent: Value) -> Value | None:
        """Runs to the next yield with `sent` as its result; None when the generator has returned (`result`)."""
        machine = self.machine
        if not self.started and not sent.is_none():
            tx.raise_exception(TypeError, "can't send non-None value to a just-started generator")
        if machine.finished:
            self.result = tx.session.none
            return None
        if self.started:
            machine.stack.append(sent)
        return self._run(tx, None)

    def throw(self, tx: Machine, raised: Raised) -> Value | None:
        """Raises at the yield where the generator stands; otherwise like `resume`."""
        machine = self.machine
        if machine.finished:
            raise raised
        if not self.started:
            machine.finished = True
            raise raised
        receiver = self.receiver()
        if receiver is None:
            return self._run(tx, raised)
        return self._throw_into(tx, receiver, raised)

    def close(self, tx: Machine) -> None:
        """`generator.close()`."""
        if self.machine.finished or not self.started:
            self.machine.finished = True
            return
        leave = Raised(tx.build.make_exception(tx, GeneratorExit, []))
        try:
            item = self.throw(tx, leave)
        except Raised as raised:
            if issubclass(raised.value.python_type(), GeneratorExit | StopIteration):
                return
            raise
        if item is not None:
            tx.raise_exception(RuntimeError, "generator ignored GeneratorExit")

    def receiver(self) -> Value | None:
        """What a `yield from` that the generator stands at delegates to."""
        machine = self.machine
        index = machine.ip - 2
        if index >= 0 and machine.decoded.instructions[index].name == "SEND":
            return machine.stack[-1]
        return None

    def _throw_into(self, tx: Machine, receiver: Value, raised: Raised) -> Value | None:
        """An exception thrown at a `yield from` goes to what it delegates to."""
        machine = self.machine
        leaving = issubclass(raised.value.python_type(), GeneratorExit)
        try:
            if not isinstance(receiver, GeneratorValue):
                return self._run(tx, raised)
            if leaving:
                receiver.close(tx)
                return self._run(tx, raised)
            item = receiver.throw(tx, raised)
        except Raised as inner:
            return self._run(tx, inner)
        if item is not None:
            return item
        machine.stack[-1] = receiver.result or tx.session.none
        machine.ip = machine.decoded.instructions[machine.ip - 2].arg
        return self._run(tx, None)

    def _run(self, tx: Machine, raised: Raised | None) -> Value | None:
        machine = self.machine
        if self.running:
            tx.raise_exception(ValueError, "generator already executing")
        self.started = self.running = True
        machine.parent = tx
        try:
            if raised is not None:
                machine.unwind(raised)
            item = machine.run()
        except Raised as error:
            if issubclass(error.value.python_type(), StopIteration):
                tx.raise_exception(RuntimeError, "generator raised StopIteration")
            raise
        finally:
            self.running = False
        if not machine.finished:
            return item
        self.result = item
        return None


def exhausted_generator() -> Iterator[Any]:
    """A generator that has returned."""
    nothing: tuple[Any, ...] = ()
    generator = (item for item in nothing)
    next(generator, None)
    return generator


def call_with_slots(function: types.FunctionType, *slots: Any) -> Any:
    """Calls a function with what its parameters hold, in the order of its slots."""
    code = function.__code__
    count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    rest = list(slots[named:])
    args = [*slots[:count], *(rest.pop(0) if code.co_flags & inspect.CO_VARARGS else ())]
    kwargs = dict(zip(code.co_varnames[count:named], slots[count:named], strict=True))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(rest.pop(0))
    return function(*args, **kwargs)


@value_class
class GeneratorMethod(Value):
    """`generator.send` and the like."""

    kind = "a generator's method"

    generator: GeneratorValue = part()
    name: str

    #: Name → how many arguments it takes; `throw` also takes (class, exception, traceback).
    COUNTS: ClassVar[dict[str, range]] = {
        "send": range(1, 2), "throw": range(1, 4), "close": range(1), "__next__": range(1), "__iter__": range(1),
    }  # fmt: skip

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def call(self, tx: Machine, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        generator = self.generator
        if kwargs or len(args) not in self.COUNTS[self.name]:
            raise self.refuse(f"these arguments of {self.name}()")
        match self.name:
            case "__iter__":
                return generator
            case "close":
                generator.close(tx)
                return tx.session.none
            case "throw":
                item = generator.throw(tx, Raised(as_exception(tx, thrown(args))))
            case _:
                item = generator.resume(tx, args[0] if args else tx.session.none)
        if item is None:
            raise exhausted(tx, generator)
        return item


def exhausted(tx: Machine, iterator: Value) -> Raised:
    """The StopIteration of an iterator that has ended, with what a generator returned."""
    result = iterator.result if isinstance(iterator, GeneratorValue) else None
    args = [] if result is None or result.is_none() else [result]
    if isinstance(iterator, GeneratorValue):
        iterator.result = None  # it is given once
    return Raised(tx.build.make_exception(tx, StopIteration, args))


def thrown(args: Sequence[Value]) -> Value:
    """The exception among the arguments of `throw`: the second when there is one."""
    second = args[1] if len(args) > 1 else None
    return args[0] if second is None or second.is_none() else second


def as_exception(tx: Machine, value: Value) -> Value:
    """The exception that `raise value` raises: classes are called."""
    kind = value.python_type()
    if issubclass(kind, BaseException):
        return value
    if issubclass(kind, type) and issubclass(value.constant(), BaseException):
        made = value.call(tx, [], {})
        if issubclass(made.python_type(), BaseException):
            return made
        text = f"calling {value.constant()} should have returned an instance of BaseException, not {made.python_type()}"
        tx.raise_exception(TypeError, text)
    tx.raise_exception(TypeError, "exceptions must derive from BaseException")
