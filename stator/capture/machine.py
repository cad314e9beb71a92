"""The machine that executes bytecode on values.

It fetches, dispatches and unwinds; what an opcode means is in `opcodes/*.py`, which fill `HANDLERS`, and what an
operation means is in the value classes. One `Machine` runs one frame; all frames of a conversion share a `Session`.
Invariant: a frame's state is its slots, its stack, its instruction index and the exception it handles; nothing else
changes while it runs, except through the session. NULL on the stack and an unset slot are `None`.
Neighbours: `bytecode/decode.py` (what is run), `value.py` (the protocol), `frames.py` (runs the outermost frame).
"""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

from stator.base.errors import DataDependent, GraphBreak, Unsupported
from stator.base.options import Options
from stator.bytecode.decode import decode
from stator.bytecode.instructions import Decoded
from stator.bytecode.opcodes import OPCODES
from stator.capture.arguments import bind, binding_error
from stator.capture.generators import GeneratorValue
from stator.capture.source import ConstSource, GlobalSource, GlobalsSource, ItemSource, Source
from stator.capture.value import Builder, Inlinable, Operators, Raised, Value

if TYPE_CHECKING:
    from stator.capture.effects import Effects
    from stator.capture.graph import GraphBuilder

#: An opcode: changes the machine, and gives a value only when it leaves the frame.
Handler = Callable[["Machine", Any], "Value | None"]

#: Neutral name → what it does; filled by `opcodes/*.py`.
HANDLERS: dict[str, Handler] = {}

#: Neutral name → why it is not interpreted; filled by `opcodes/refused.py`, as the rows say.
REFUSED: dict[str, str] = {}

ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def opcode(*names: str) -> Callable[[Handler], Handler]:
    """Registers the function for these neutral instructions."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert OPCODES[name].refused is None, f"{name} is interpreted, its row says refused"
            HANDLERS[name] = handler
        return handler

    return register


class RefusedOpcode(GraphBreak):
    """The program uses a kind of statement that capture does not interpret."""


class HandledError(GraphBreak):
    """An error that eager would word otherwise, or raise as another class, meets a handler."""


class TooDeep(GraphBreak):
    """Calls are nested beyond the limit: most likely recursion."""


class TooLong(GraphBreak):
    """The program jumps backwards too often while being captured."""


class Session:
    """What all frames of one conversion share."""

    __slots__ = (
        "asked", "build", "builtins", "deleted", "depth_limit", "effects", "globals", "graph", "guard", "handles",
        "jumps", "library", "looked_up", "nested", "none", "operators", "options", "questions", "root_globals",
        "running", "values",
    )  # fmt: skip

    def __init__(
        self,
        *,
        graph: GraphBuilder,
        effects: Effects,
        guard: Callable[[str, Source | None, Any], None],
        build: Builder,
        operators: Operators,
        deleted: Value,
        root_globals: dict[str, Any],
        options: Options | None = None,
        depth_limit: int = 100,
        library: tuple[str, ...] = (),
    ) -> None:
        self.graph = graph
        self.effects = effects
        #: Adds a guard: kind, source, payload.
        self.guard = guard
        self.build = build
        self.operators = operators
        #: What `effects.stored_global` gives for a deleted global.
        self.deleted = deleted
        #: Globals of the outermost function; names in them have the short sources.
        self.root_globals = root_globals
        self.options = options or Options()
        self.depth_limit = depth_limit
        #: Path prefixes of files whose lines are not the user's.
        self.library = library
        self.none = build.const(None)
        #: id(object) → its value: identity of objects that existed before.
        self.values: dict[int, Value] = {}
        #: (id(globals), name) → value of a global that the program has read.
        self.globals: dict[tuple[int, str], Value] = {}
        #: id(object) → value of a builtin that an instruction itself names.
        self.builtins: dict[int, Value] = {}
        #: What was found on classes, under guards that exist, by (class, name), and by (class, base, name) the class
        #: in which `super()` finds a name.
        self.looked_up: dict[tuple[type | str, ...], Any] = {}
        #: Guards asked for by (kind, source, id of the payload) → the payload, kept so that its id stays its own.
        self.asked: dict[tuple[str, Source | None, int], Any] = {}
        #: Questions that a guard asks again, by function and arguments.
        self.questions: dict[object, object] = {}
        #: The innermost frame.
        self.running: Machine | None = None
        #: Backward jumps left before capture gives up.
        self.jumps = 1_000_000
        #: Whether some code that was interpreted may handle exceptions.
        self.handles = False
        #: Whether other functions of Python than the outermost were interpreted.
        self.nested = False


class Machine:
    """One frame."""

    __slots__ = (
        "build", "code", "decoded", "depth", "effects", "finished", "function", "globals", "graph", "handled",
        "ip", "operators", "parent", "pending", "program", "session", "slots", "stack", "values",
    )  # fmt: skip

    def __init__(
        self, session: Session, code: CodeType, function: Inlinable, slots: list[Value | None], parent: Machine | None
    ) -> None:
        decoded = decode(code)
        self.session = session
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        if self.depth > session.depth_limit:
            raise TooDeep(f"more than {session.depth_limit} nested calls", "is the function recursive?")
        self.code = code
        self.decoded = decoded
        self.program = decoded.program or link(decoded)
        session.handles = session.handles or bool(code.co_exceptiontable)
        self.function = function
        self.globals = function.globals
        slots.extend([None] * (len(decoded.slot_names) - len(slots)))
        self.slots = slots
        #: Slot → (object, source) of arguments that nobody has read yet.
        self.pending: dict[int, tuple[Any, Source]] = {}
        self.stack: list[Value | None] = []
        self.ip = 0
        #: The exception being handled here, what `raise` alone raises again.
        self.handled: Value | None = None
        self.finished = False
        self.graph = session.graph
        self.effects = session.effects
        self.values = session.values
        self.build = session.build
        self.operators = session.operators

    # -- running -----------------------------------------------------------------------------------------

    def run(self) -> Value:
        """Runs until the frame returns (then `finished`) or yields."""
        session = self.session
        outer, session.running = session.running, self
        try:
            return self._run()
        finally:
            session.running = outer

    def _run(self) -> Value:
        program = self.program
        while True:
            try:
                while True:
                    index = self.ip
                    self.ip = index + 1
                    handler, arg = program[index]
                    result = handler(self, arg)
                    if result is not None:
                        return result
            except Raised as raised:
                self.unwind(raised)
            except (GraphBreak, DataDependent, Unsupported) as stop:
                if stop.location is None:
                    stop.location = self.location()
                raise

    def unwind(self, raised: Raised) -> None:
        """Goes to the handler of the instruction that raised, or leaves the frame."""
        index = self.ip - 1
        block = self.decoded.block_at(index)
        if not raised.again:
            raised.again = True
            raised.value.raised_while(self, self.handled_exception())
        if block is None:
            self.finished = True
            raise raised
        if not raised.certain:
            raise HandledError("an error of a tensor operation may be handled here", "check sizes and types before")
        stack = self.stack
        del stack[block.depth :]
        if block.lasti:
            stack.append(self.build.const(index))
        stack.append(raised.value)
        self.ip = block.target

    # -- what values ask ---------------------------------------------------------------------------------

    def call(self, function: Value, args: Sequence[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """`function(*args, **kwargs)`."""
        return function.call(self, args, kwargs or {})

    def inline(self, function: Inlinable, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
        """Runs a Python function in a child frame; a generator function gives its generator."""
        code = function.code
        if code.co_flags & ASYNC:
            raise RefusedOpcode(f"{function.qualname} is async", "await outside of the compiled function")
        slots = bind(
            code,
            args,
            kwargs,
            lambda position: function.default(self, position),
            lambda name: function.keyword_default(self, name),
            self.build.make_tuple,
            self._keyword_dict,
        )
        if slots is None:
            self._binding_error(function, len(args), list(kwargs))
        self.session.nested = True
        child = Machine(self.session, code, function, slots, self)
        if code.co_flags & inspect.CO_GENERATOR:
            return GeneratorValue(child)
        return child.run()

    def raise_exception(self, cls: type[BaseException], *args: Any) -> NoReturn:
        """The program raises `cls(*args)`; arguments are values or plain objects."""
        values = [arg if isinstance(arg, Value) else self.build.const(arg) for arg in args]
        raise Raised(self.build.make_exception(self, cls, values))

    def raise_roughly(self, cls: type[BaseException], text: str) -> NoReturn:
        """The same for an exception that Python may word otherwise: its text must not be read."""
        made: Any = self.build.make_exception(self, cls, [self.build.const(text)])
        made.exact = False
        raise Raised(made)

    def raise_real(self, error: BaseException) -> NoReturn:
        """The program raises what real code has just raised."""
        self.raise_exception(type(error), *map(self.build.const, error.args))

    def raise_of_fakes(self, error: BaseException) -> NoReturn:
        """The program raises something here, as an operation on fake tensors did."""
        if isinstance(error, RecursionError):
            raise error
        made: Any = self.build.make_exception(self, type(error), [self.build.const(str(error))])
        made.exact = False
        raise Raised(made, certain=False)

    def guard(self, kind: str, source: Source | None, payload: Any = None) -> None:
        """The compiled code is only valid while this holds."""
        session = self.session
        key = kind, source, id(payload)
        if key not in session.asked:
            session.asked[key] = payload
            session.guard(kind, source, payload)

    def builtin(self, obj: Any) -> Value:
        """The value of an object that the interpreter itself names (`AssertionError`, `format`…)."""
        found = self.session.builtins.get(id(obj))
        if found is None:
            found = self.session.builtins[id(obj)] = self.build.wrap(self, obj, ConstSource(obj))
        return found

    def load_global(self, namespace: dict[str, Any], name: str) -> Value:
        """A global of a function with these globals, or a builtin."""
        session = self.session
        stored = session.effects.stored_global(namespace, name)
        if stored is not None and stored is not session.deleted:
            return stored
        key = id(namespace), name
        found = session.globals.get(key)
        if found is not None and stored is None:
            return found
        own = namespace is session.root_globals
        if name in namespace and stored is None:
            source = GlobalSource(name) if own else ItemSource(ConstSource(namespace), name)
            found = self.build.wrap(self, namespace[name], source)
        else:
            if stored is None:
                self.guard("ABSENT", GlobalsSource() if own else ConstSource(namespace), name)
            found = self.load_builtin(namespace, name)
        session.globals[key] = found
        return found

    def load_builtin(self, namespace: dict[str, Any], name: str) -> Value:
        """What a function with these globals finds under a name among the builtins."""
        scope = namespace.get("__builtins__", builtins)
        table = scope if isinstance(scope, dict) else vars(scope)
        if name not in table:
            self.guard("ABSENT", ConstSource(table), name)
            self.raise_exception(NameError, f"name {name!r} is not defined")
        self.guard("ID", ItemSource(ConstSource(table), name), table[name])
        return self.builtin(table[name])

    def frame_super(self) -> tuple[Value, Value]:
        """The class and the object that `super()` without arguments means in this frame."""
        names = self.decoded.slot_names
        if "__class__" not in self.code.co_freevars or not self.code.co_argcount:
            self.raise_exception(RuntimeError, "super(): __class__ cell not found")
        cell, first = self.slots[names.index("__class__")], self.load_slot(0)
        if names[0] in self.code.co_cellvars and first is not None:
            first = first.get(self)  # type: ignore[attr-defined]
        cls = None if cell is None else cell.get(self)  # type: ignore[attr-defined]
        if cls is None:
            self.raise_exception(RuntimeError, "super(): empty __class__ cell")
        if first is None:
            self.raise_exception(RuntimeError, "super(): arg[0] deleted")
        return cls, first

    # -- where it is -------------------------------------------------------------------------------------

    def line(self) -> int:
        """The line of the current instruction."""
        return self.decoded.position(max(self.ip - 1, 0)).line or self.code.co_firstlineno

    def location(self) -> tuple[str, int]:
        """File and line of the innermost frame that is not in a library."""
        library = self.session.library
        frame: Machine | None = self
        while frame is not None:
            if not frame.code.co_filename.startswith(library):
                return frame.code.co_filename, frame.line()
            frame = frame.parent
        return self.code.co_filename, self.line()

    # -- what opcodes ask --------------------------------------------------------------------------------

    def load_slot(self, slot: int) -> Value | None:
        """A slot's value, made now if it is an argument that nobody has read."""
        value = self.slots[slot]
        if value is None and (waiting := self.pending.pop(slot, None)) is not None:
            value = self.slots[slot] = self.build.wrap(self, *waiting)
        return value

    def handled_exception(self) -> Value | None:
        """The innermost exception being handled, here or in a caller."""
        frame: Machine | None = self
        while frame is not None:
            if frame.handled is not None:
                return frame.handled
            frame = frame.parent
        return None

    def _keyword_dict(self, extra: dict[str, Value]) -> Value:
        const = self.build.const
        return self.build.make_dict(self, [(const(name), value) for name, value in extra.items()])

    def _binding_error(self, function: Inlinable, count: int, names: list[str]) -> NoReturn:
        code = function.code
        positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
        defaults = sum(function.default(self, position) is not None for position in range(positional))
        keywords = [
            name
            for name in code.co_varnames[positional : positional + keyword_only]
            if function.keyword_default(self, name) is not None
        ]
        self.raise_real(binding_error(code, function.qualname, count, names, defaults, keywords))


def link(decoded: Decoded) -> list[tuple[Handler, Any]]:
    """Pairs of handler and operand: the form that `run` dispatches on, kept with the decoded code."""
    program = [(HANDLERS[name], arg) if name in HANDLERS else (_refuse, name) for name, arg in decoded.instructions]
    decoded.program = program
    return program


def _refuse(tx: Machine, name: str) -> Value | None:
    raise RefusedOpcode(REFUSED[name])
