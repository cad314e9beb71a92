"""A reference interpreter of neutral instructions over real objects, which can stop at any step.

It is slow and plain: one case an instruction. Calls run for real. `State` is what a continuation is given.
"""

from __future__ import annotations

import builtins
import operator
import sys
import types
from typing import Any

from stator.bytecode import continuation
from stator.bytecode.decode import decode

NULL = type("Null", (), {"__repr__": lambda self: "NULL"})()
SYMBOLS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and_", "|": "or_", "^": "xor", "<<": "lshift", ">>": "rshift",
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
}  # fmt: skip
UNARY = {"UNARY_NEGATIVE": operator.neg, "UNARY_POSITIVE": operator.pos, "UNARY_INVERT": operator.invert,
         "UNARY_NOT": operator.not_, "TO_BOOL": bool, "GET_ITER": iter, "LIST_TO_TUPLE": tuple}  # fmt: skip
CONVERT = {0: lambda value: value, 1: str, 2: repr, 3: ascii}


class State:
    """One frame."""

    def __init__(self, function: types.FunctionType, slots: list[Any]) -> None:
        self.function = function
        self.decoded = decode(function.__code__)
        self.slots = slots + [NULL] * (len(self.decoded.slot_names) - len(slots))
        self.stack: list[Any] = []
        self.index = 0
        self.handled: BaseException | None = None
        self.result: Any = NULL
        self.steps = 0

    # -- running -------------------------------------------------------------------------------------------

    def run(self, steps: int = -1) -> bool:
        """Runs so many steps, or to the end; whether the function has returned."""
        while self.result is NULL and self.steps != steps:
            self.steps += 1
            index, self.index = self.index, self.index + 1
            try:
                self.execute(*self.decoded.instructions[index])
            except Exception as error:
                if error.__context__ is None and error is not self.handled:
                    error.__context__ = self.handled
                block = self.decoded.block_at(index)
                if block is None:
                    raise
                del self.stack[block.depth :]
                self.stack += [index, error] if block.lasti else [error]
                self.index = block.target
        return self.result is not NULL

    def finish(self) -> Any:
        """The rest, by a continuation."""
        decoded = self.decoded
        nulls = [position for position, item in enumerate(self.stack) if item is NULL]
        bound = [slot for slot, item in enumerate(self.slots) if item is not NULL]
        point = continuation.point(decoded, self.index, nulls, bound)
        assert continuation.depth(decoded, self.index) == len(self.stack)
        stack = list(self.stack)
        handled = continuation.handled_positions(decoded, self.index)
        for position, inner in zip(handled, [*handled[1:], None], strict=False):
            stack[position] = self.handled if inner is None else self.stack[inner]
        named = dict(zip(decoded.slot_names, self.slots, strict=True))
        named |= {continuation.stack_name(position): item for position, item in enumerate(stack)}
        args = [named[name] for name in continuation.parameters(decoded, point)]
        return continuation.function(decoded, point, self.function.__globals__)(*args)

    # -- one instruction -----------------------------------------------------------------------------------

    def execute(self, name: str, arg: Any) -> None:
        if name in UNARY:
            self.stack.append(UNARY[name](self.stack.pop()))
        elif name.startswith("BUILD_"):
            self.stack.append(self.build(name, arg))
        elif "_FAST" in name or "DEREF" in name or name in ("MAKE_CELL", "COPY_FREE_VARS", "LOAD_CLOSURE"):
            self.variable(name, arg)
        elif name.startswith(("CALL", "MAKE_F")):
            self.call(name, arg)
        elif "JUMP" in name or name in ("FOR_ITER", "RETURN_VALUE"):
            self.control(name, arg)
        elif "EXC" in name or "RAISE" in name or name in ("BEFORE_WITH", "WITH_EXCEPT_START"):
            self.exception(name, arg)
        elif name.startswith(("MATCH", "UNPACK", "GET_LEN")):
            self.unpack(name, arg)
        else:
            self.item(name, arg)

    def variable(self, name: str, arg: Any) -> None:
        slots, stack = self.slots, self.stack
        match name:
            case "COPY_FREE_VARS":
                slots[len(slots) - arg :] = self.function.__closure__ or ()
            case "MAKE_CELL":
                slots[arg] = types.CellType() if slots[arg] is NULL else types.CellType(slots[arg])
            case "LOAD_FAST" | "LOAD_CLOSURE" | "LOAD_FAST_AND_CLEAR":
                if slots[arg] is NULL and name == "LOAD_FAST":
                    raise UnboundLocalError(self.decoded.slot_names[arg])
                stack.append(slots[arg])
                if name == "LOAD_FAST_AND_CLEAR":
                    slots[arg] = NULL
            case "STORE_FAST":
                slots[arg] = stack.pop()
            case "DELETE_FAST":
                if slots[arg] is NULL:
                    raise UnboundLocalError(self.decoded.slot_names[arg])
                slots[arg] = NULL
            case "LOAD_DEREF":
                try:
                    stack.append(slots[arg].cell_contents)
                except ValueError:
                    raise NameError(self.decoded.slot_names[arg]) from None
            case "STORE_DEREF":
                slots[arg].cell_contents = stack.pop()
            case "DELETE_DEREF":
                del slots[arg].cell_contents
            case _:
                raise AssertionError(name)

    def call(self, name: str, arg: Any) -> None:
        stack = self.stack
        names: tuple[str, ...] = ()
        match name:
            case "MAKE_FUNCTION":
                code, flags = arg
                closure, notes, keywords, defaults = (stack.pop() if flags & bit else None for bit in (8, 4, 2, 1))
                made = types.FunctionType(code, self.function.__globals__, code.co_name, defaults, closure)
                made.__kwdefaults__ = keywords
                if notes:
                    made.__annotations__ = dict(zip(notes[::2], notes[1::2], strict=True))
                stack.append(made)
                return
            case "CALL_FUNCTION_EX":
                keywords = stack.pop() if arg else {}
                args = list(stack.pop())
            case _:
                count, names = arg if name == "CALL_KW" else (arg, ())
                args = stack[len(stack) - count :]
                del stack[len(stack) - count :]
                keywords = dict(zip(names, args[len(args) - len(names) :], strict=True))
                args = args[: len(args) - len(names)]
        second, first = stack.pop(), stack.pop()
        function, args = (second, args) if first is NULL else (first, args if second is NULL else [second, *args])
        stack.append(self.frame_reader(function)(*args, **keywords))

    def frame_reader(self, function: Any) -> Any:
        """Functions that look at the frame that calls them must see this one."""
        if function is super:
            first = self.slots[0].cell_contents if isinstance(self.slots[0], types.CellType) else self.slots[0]
            return lambda: super(self.slots[self.decoded.slot_names.index("__class__")].cell_contents, first)
        if function in (locals, vars):
            return self.visible
        if function is sys.exc_info:
            return lambda: (type(self.handled) if self.handled else None, self.handled, None)
        return function

    def visible(self) -> dict[str, Any]:
        found = {}
        for name, item in zip(self.decoded.slot_names, self.slots, strict=True):
            if item is not NULL:
                found[name] = item.cell_contents if isinstance(item, types.CellType) else item
        return found

    def control(self, name: str, arg: Any) -> None:
        stack = self.stack
        match name:
            case "RETURN_VALUE":
                self.result = stack.pop()
            case "JUMP":
                self.index = arg
            case "FOR_ITER":
                item = next(stack[-1], NULL)
                if item is NULL:
                    stack.pop()
                    self.index = arg
                else:
                    stack.append(item)
            case _:
                value = stack.pop()
                test = value is None if "NONE" in name else bool(value)
                if test is not ("FALSE" in name or "NOT" in name):
                    self.index = arg

    def exception(self, name: str, arg: Any) -> None:
        stack = self.stack
        match name:
            case "PUSH_EXC_INFO":
                error = stack.pop()
                stack += [self.handled, error]
                self.handled = error
            case "POP_EXCEPT":
                self.handled = stack.pop()
            case "CHECK_EXC_MATCH":
                wanted = stack.pop()
                stack.append(isinstance(stack[-1], wanted))
            case "RERAISE":
                raise stack.pop()
            case "RAISE_VARARGS":
                cause = stack.pop() if arg == 2 else None
                error = stack.pop() if arg else self.handled
                error = error() if isinstance(error, type) else error
                if error is None:
                    raise RuntimeError("No active exception to reraise")
                if arg == 2:
                    raise error from cause
                raise error
            case "BEFORE_WITH":
                manager = stack.pop()
                stack += [manager.__exit__, type(manager).__enter__(manager)]
            case "WITH_EXCEPT_START":
                error = stack[-1]
                stack.append(stack[-4](type(error), error, error.__traceback__))
            case _:
                raise AssertionError(name)

    def build(self, name: str, arg: Any) -> Any:
        stack = self.stack
        count = {"BUILD_MAP": 2 * arg, "BUILD_CONST_KEY_MAP": arg + 1}.get(name, arg)
        items = stack[len(stack) - count :]
        del stack[len(stack) - count :]
        match name:
            case "BUILD_MAP":
                return dict(zip(items[::2], items[1::2], strict=True))
            case "BUILD_CONST_KEY_MAP":
                return dict(zip(items[-1], items, strict=False))
            case "BUILD_SLICE":
                return slice(*items)
            case "BUILD_STRING":
                return "".join(items)
        return {"BUILD_TUPLE": tuple, "BUILD_LIST": list, "BUILD_SET": set}[name](items)

    def unpack(self, name: str, arg: Any) -> None:
        stack = self.stack
        match name:
            case "UNPACK_SEQUENCE":
                items = list(stack.pop())
                if len(items) != arg:
                    raise ValueError(f"{len(items)} items for {arg}")
                stack += reversed(items)
            case "UNPACK_EX":
                before, after = arg
                items = list(stack.pop())
                if len(items) < before + after:
                    raise ValueError(f"{len(items)} items for {arg}")
                end = len(items) - after
                stack += [*reversed(items[end:]), items[before:end], *reversed(items[:before])]
            case "GET_LEN":
                stack.append(len(stack[-1]))
            case "MATCH_MAPPING":
                stack.append(isinstance(stack[-1], dict))
            case "MATCH_SEQUENCE":
                stack.append(isinstance(stack[-1], list | tuple | range))
            case "MATCH_KEYS":
                subject, keys = stack[-2:]
                stack.append(tuple(subject[key] for key in keys) if all(key in subject for key in keys) else None)
            case "MATCH_CLASS":
                names, cls, subject = stack.pop(), stack.pop(), stack.pop()
                matched = None
                if isinstance(subject, cls):
                    own = cls in (bool, bytes, dict, float, int, list, set, str, tuple)
                    wanted = [*(() if own else cls.__match_args__[:arg] if arg else ()), *names]
                    if all(hasattr(subject, each) for each in wanted):
                        matched = (*([subject] * arg if own else ()), *(getattr(subject, each) for each in wanted))
                stack.append(matched)

    def item(self, name: str, arg: Any) -> None:
        stack = self.stack
        match name:
            case "NOP":
                pass
            case "POP_TOP":
                stack.pop()
            case "COPY":
                stack.append(stack[-arg])
            case "SWAP":
                stack[-1], stack[-arg] = stack[-arg], stack[-1]
            case "PUSH_NULL":
                stack.append(NULL)
            case "LOAD_CONST":
                stack.append(arg)
            case "LOAD_ASSERTION_ERROR":
                stack.append(AssertionError)
            case "LOAD_GLOBAL":
                namespace = self.function.__globals__
                if arg not in namespace and not hasattr(builtins, arg):
                    raise NameError(f"name {arg!r} is not defined")
                stack.append(namespace[arg] if arg in namespace else getattr(builtins, arg))
            case "STORE_GLOBAL":
                self.function.__globals__[arg] = stack.pop()
            case "DELETE_GLOBAL":
                del self.function.__globals__[arg]
            case "LOAD_ATTR":
                stack.append(getattr(stack.pop(), arg))
            case "LOAD_SUPER_ATTR":
                instance, cls, kind = stack.pop(), stack.pop(), stack.pop()
                stack.append(getattr(kind(cls, instance), arg[0]))
            case "STORE_ATTR":
                target = stack.pop()
                setattr(target, arg, stack.pop())
            case "DELETE_ATTR":
                delattr(stack.pop(), arg)
            case "IMPORT_NAME":
                names, level = stack.pop(), stack.pop()
                stack.append(__import__(arg, self.function.__globals__, {}, names, level))
            case "IMPORT_FROM":
                stack.append(getattr(stack[-1], arg))
            case "BINARY_OP" | "COMPARE_OP":
                right, left = stack.pop(), stack.pop()
                stack.append(getattr(operator, SYMBOLS[arg])(left, right))
            case "INPLACE_OP":
                right, left = stack.pop(), stack.pop()
                stack.append(getattr(operator, "i" + SYMBOLS[arg].removesuffix("_"))(left, right))
            case "IS_OP":
                right, left = stack.pop(), stack.pop()
                stack.append((left is right) is not arg)
            case "CONTAINS_OP":
                right, left = stack.pop(), stack.pop()
                stack.append((left in right) is not arg)
            case "BINARY_SUBSCR":
                key, container = stack.pop(), stack.pop()
                stack.append(container[key])
            case "STORE_SUBSCR":
                key, container = stack.pop(), stack.pop()
                container[key] = stack.pop()
            case "DELETE_SUBSCR":
                key, container = stack.pop(), stack.pop()
                del container[key]
            case "LIST_APPEND":
                stack[-arg - 1].append(stack.pop())
            case "SET_ADD":
                stack[-arg - 1].add(stack.pop())
            case "MAP_ADD":
                value, key = stack.pop(), stack.pop()
                stack[-arg][key] = value
            case "LIST_EXTEND":
                stack[-arg - 1].extend(stack.pop())
            case "SET_UPDATE" | "DICT_UPDATE":
                stack[-arg - 1].update(stack.pop())
            case "DICT_MERGE":
                more = stack.pop()
                if not more.keys().isdisjoint(stack[-arg]):
                    raise TypeError("a keyword twice")
                stack[-arg].update(more)
            case "CONVERT_VALUE":
                stack.append(CONVERT[arg](stack.pop()))
            case "FORMAT_SIMPLE":
                stack.append(format(CONVERT[arg](stack.pop())))
            case "FORMAT_WITH_SPEC":
                spec = stack.pop()
                stack.append(format(CONVERT[arg](stack.pop()), spec))
            case _:
                raise AssertionError(f"{name} has no meaning here")
