"""Constants, locals, cells, globals, attributes and imports."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from stator.base.errors import GraphBreak
from stator.capture.machine import opcode
from stator.capture.source import ConstSource, ItemSource
from stator.capture.value import Raised

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


class FirstImport(GraphBreak):
    """An import statement would load a module for the first time."""


@opcode("LOAD_CONST")
def load_const(tx: Machine, obj: Any) -> None:
    tx.stack.append(tx.build.const(obj))


# -- locals ------------------------------------------------------------------------------------------


@opcode("LOAD_FAST")
def load_fast(tx: Machine, slot: int) -> None:
    value = tx.slots[slot] or tx.load_slot(slot)
    if value is None:
        unset(tx, slot, UnboundLocalError, "local")
    tx.stack.append(value)


def unset(tx: Machine, slot: int, cls: type[NameError], scope: str) -> NoReturn:
    """Reading a variable that has no value."""
    where = " in enclosing scope" if scope == "free" else ""
    name = tx.decoded.slot_names[slot]
    tx.raise_exception(cls, f"cannot access {scope} variable {name!r} where it is not associated with a value{where}")


@opcode("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(tx: Machine, slot: int) -> None:
    tx.stack.append(tx.load_slot(slot))
    tx.slots[slot] = None


@opcode("STORE_FAST")
def store_fast(tx: Machine, slot: int) -> None:
    tx.slots[slot] = tx.stack.pop()
    if tx.pending:
        tx.pending.pop(slot, None)


@opcode("DELETE_FAST")
def delete_fast(tx: Machine, slot: int) -> None:
    if tx.load_slot(slot) is None:
        unset(tx, slot, UnboundLocalError, "local")
    tx.slots[slot] = None


# -- cells -------------------------------------------------------------------------------------------


@opcode("MAKE_CELL")
def make_cell(tx: Machine, slot: int) -> None:
    tx.slots[slot] = tx.build.make_cell(tx.load_slot(slot))


@opcode("COPY_FREE_VARS")
def copy_free_vars(tx: Machine, count: int) -> None:
    base = len(tx.slots) - count
    for index in range(count):
        tx.slots[base + index] = tx.function.closure_cell(tx, index)


@opcode("LOAD_CLOSURE")
def load_closure(tx: Machine, slot: int) -> None:
    tx.stack.append(tx.slots[slot])


def unset_cell(tx: Machine, slot: int) -> NoReturn:
    """Reading a cell that is empty."""
    if slot >= len(tx.slots) - len(tx.code.co_freevars):
        unset(tx, slot, NameError, "free")
    unset(tx, slot, UnboundLocalError, "local")


@opcode("LOAD_DEREF")
def load_deref(tx: Machine, slot: int) -> None:
    value = tx.slots[slot].get(tx)  # type: ignore[union-attr]
    if value is None:
        unset_cell(tx, slot)
    tx.stack.append(value)


@opcode("STORE_DEREF")
def store_deref(tx: Machine, slot: int) -> None:
    tx.slots[slot].set(tx, tx.stack.pop())  # type: ignore[union-attr]


@opcode("DELETE_DEREF")
def delete_deref(tx: Machine, slot: int) -> None:
    cell: Any = tx.slots[slot]
    if cell.get(tx) is None:
        unset_cell(tx, slot)
    cell.set(tx, None)


# -- globals -----------------------------------------------------------------------------------------


@opcode("LOAD_GLOBAL")
def load_global(tx: Machine, name: str) -> None:
    tx.stack.append(tx.load_global(tx.globals, name))


@opcode("STORE_GLOBAL")
def store_global(tx: Machine, name: str) -> None:
    stack: Any = tx.stack
    tx.effects.store_global(tx.globals, name, stack.pop())


@opcode("DELETE_GLOBAL")
def delete_global(tx: Machine, name: str) -> None:
    deleted = tx.session.deleted
    stored = tx.effects.stored_global(tx.globals, name)
    if stored is deleted or (stored is None and name not in tx.globals):
        tx.raise_exception(NameError, f"name {name!r} is not defined")
    if stored is None:
        tx.load_global(tx.globals, name)  # guards that it is there
    tx.effects.store_global(tx.globals, name, deleted)


# -- attributes --------------------------------------------------------------------------------------


@opcode("LOAD_ATTR")
def load_attr(tx: Machine, name: str) -> None:
    stack = tx.stack
    stack[-1] = stack[-1].get_attr(tx, name)  # type: ignore[union-attr]


@opcode("LOAD_SUPER_ATTR")
def load_super_attr(tx: Machine, arg: tuple[str, bool]) -> None:
    name, two_arguments = arg
    instance, cls, function = tx.stack.pop(), tx.stack.pop(), tx.stack.pop()
    assert instance is not None and cls is not None and function is not None
    ordinary = function.is_constant() and function.constant() is super
    made = function.call(tx, [cls, instance] if ordinary or two_arguments else [], {})
    tx.stack.append(made.get_attr(tx, name))


@opcode("STORE_ATTR")
def store_attr(tx: Machine, name: str) -> None:
    target, value = tx.stack.pop(), tx.stack.pop()
    target.set_attr(tx, name, value)  # type: ignore[union-attr, arg-type]


@opcode("DELETE_ATTR")
def delete_attr(tx: Machine, name: str) -> None:
    tx.stack.pop().del_attr(tx, name)  # type: ignore[union-attr]


# -- imports -----------------------------------------------------------------------------------------


@opcode("IMPORT_NAME")
def import_name(tx: Machine, name: str) -> None:
    """Runs the import for real, when the module is loaded already: then it only finds it in `sys.modules`."""
    names, level = (item.constant() for item in (tx.stack.pop(), tx.stack.pop()))  # type: ignore[union-attr]
    namespace = tx.globals
    if tx.load_builtin(namespace, "__import__").constant() is not IMPORT:
        raise GraphBreak("import is not Python's own", "import at module level")
    package = tx.load_global(namespace, "__package__").constant() if level and "__package__" in namespace else ""
    full = importlib.util.resolve_name("." * level + name, package or "") if level else name
    if full not in sys.modules:
        raise FirstImport(f"importing {full!r} for the first time", "import it at module level")
    module = IMPORT(name, namespace, {}, names, level)
    loaded(tx, full)
    top = full if names else full[: len(full) - len(name) + len(name.partition(".")[0])]
    if sys.modules.get(top) is not module:
        raise GraphBreak(f"importing {full!r} gives something else than sys.modules has", "import it at module level")
    tx.stack.append(loaded(tx, top))


#: What an import statement calls, unless somebody has put something else in its place.
IMPORT = builtins.__import__


def loaded(tx: Machine, name: str) -> Value:
    """A module in `sys.modules`, where another call may find another one."""
    return tx.build.wrap(tx, sys.modules[name], ItemSource(ConstSource(sys.modules), name))


@opcode("IMPORT_FROM")
def import_from(tx: Machine, name: str) -> None:
    module: Value = tx.stack[-1]  # type: ignore[assignment]
    try:
        found = module.get_attr(tx, name)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), AttributeError):
            raise
        owner = module.get_attr(tx, "__name__").constant()
        if f"{owner}.{name}" not in sys.modules:
            tx.guard("ABSENT", ConstSource(sys.modules), f"{owner}.{name}")
            place = getattr(module.constant(), "__file__", None) or "unknown location"
            tx.raise_exception(ImportError, f"cannot import name {name!r} from {owner!r} ({place})")
        found = loaded(tx, f"{owner}.{name}")
    tx.stack.append(found)


@opcode("LOAD_ASSERTION_ERROR")
def load_assertion_error(tx: Machine, arg: None) -> None:
    tx.stack.append(tx.builtin(AssertionError))
