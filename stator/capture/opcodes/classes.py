"""Class bodies: names are looked up in the namespace of the class first (`objects/class_statement.py`)."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from stator.capture.machine import opcode
from stator.capture.opcodes.names import load_deref

if TYPE_CHECKING:
    from stator.capture.machine import Machine
    from stator.capture.value import Value


def namespace(tx: Machine) -> dict[str, Value]:
    """The names of the class body that runs."""
    body: Any = tx.function
    return body.namespace


@opcode("LOAD_BUILD_CLASS")
def load_build_class(tx: Machine, arg: None) -> None:
    tx.stack.append(tx.builtin(builtins.__build_class__))


@opcode("LOAD_NAME")
def load_name(tx: Machine, name: str) -> None:
    found = namespace(tx).get(name)
    tx.stack.append(tx.load_global(tx.globals, name) if found is None else found)


@opcode("STORE_NAME")
def store_name(tx: Machine, name: str) -> None:
    value = tx.stack.pop()
    assert value is not None
    namespace(tx)[name] = value


@opcode("DELETE_NAME")
def delete_name(tx: Machine, name: str) -> None:
    if namespace(tx).pop(name, None) is None:
        tx.raise_exception(NameError, f"name {name!r} is not defined")


@opcode("LOAD_CLASSDEREF")
def load_classderef(tx: Machine, slot: int) -> None:
    found = namespace(tx).get(tx.decoded.slot_names[slot])
    if found is None:
        load_deref(tx, slot)
    else:
        tx.stack.append(found)


@opcode("LOAD_LOCALS")
def load_locals(tx: Machine, arg: None) -> None:
    """Only ever followed by `LOAD_FROM_DICT_OR_DEREF`, which knows what namespace is meant."""
    tx.stack.append(tx.session.none)


@opcode("LOAD_FROM_DICT_OR_DEREF")
def load_from_dict_or_deref(tx: Machine, slot: int) -> None:
    tx.stack.pop()
    load_classderef(tx, slot)
