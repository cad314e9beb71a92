"""What instructions on single numbers give that need not be written: of constants, of neutral elements, there and back.

Text of LLVM is read, checked and gone over by every pass; what is not written costs nothing. Only what is exact is
left out, and what LLVM itself would do at once. Neighbours: `code` asks before it writes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NamedTuple

#: What an operator gives of two integers, before it is brought to its bits.
_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor,
}  # fmt: skip
#: The second operand that changes nothing.
_NEUTRAL = {
    "add": "0", "sub": "0", "mul": "1", "or": "0", "xor": "0", "and": "-1", "shl": "0", "lshr": "0", "ashr": "0",
    "udiv": "1", "sdiv": "1",
}  # fmt: skip
#: The operand that decides alone, which is the result.
_DECIDES = {"mul": "0", "and": "0"}
_COMMUTES = frozenset(["add", "mul", "and", "or", "xor"])
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "slt": operator.lt, "sle": operator.le, "sgt": operator.gt,
    "sge": operator.ge,
}  # fmt: skip
_TRUTHS = {"true": True, "false": False}
_LOGIC = frozenset(["and", "or", "xor"])
#: A conversion → the one that it takes back, exactly.
_BACK = {"fptrunc": ("fpext",), "trunc": ("zext", "sext"), "bitcast": ("bitcast",)}
_ZERO = {"float": "0x0000000000000000", "double": "0x0000000000000000"}


class Conversion(NamedTuple):
    """How a value came to be."""

    name: str
    source: str
    value: str


def integer(text: str) -> int | None:
    """The number that a text is, if it is one."""
    return int(text) if text.lstrip("-").isdigit() else None


def signed(type_: str, number: int) -> int:
    """A number in the bits of a type."""
    bits = int(type_[1:])
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def folded(name: str, type_: str, args: tuple[str, ...]) -> str | None:
    """What an operator of integers gives, if that is an operand or a constant."""
    if len(args) != 2 or type_[0] != "i":
        return None
    name = name.partition(" ")[0]
    if type_ == "i1":
        return _logic(name, *args) if name in _LOGIC else None
    a, b = args
    first, second = integer(a), integer(b)
    if second is None:
        if first is None or name not in _COMMUTES:
            return None
        a, b = b, a
    elif first is not None:
        return str(signed(type_, _INTEGERS[name](first, second))) if name in _INTEGERS else None
    if b == _NEUTRAL.get(name):
        return a
    return b if b == _DECIDES.get(name) else None


def _logic(name: str, a: str, b: str) -> str | None:
    """Of truths."""
    if b not in _TRUTHS:
        a, b = b, a
    if b not in _TRUTHS:
        return a if a == b and name != "xor" else None
    if a in _TRUTHS:
        return "true" if _INTEGERS[name](_TRUTHS[a], _TRUTHS[b]) else "false"
    if name == "xor":
        return None if _TRUTHS[b] else a
    return a if _TRUTHS[b] == (name == "and") else b


def compared(predicate: str, type_: str, a: str, b: str) -> str | None:
    """What a comparison of integers gives, if that is known."""
    first, second = (integer(a), integer(b)) if type_[0] == "i" and predicate in _COMPARISONS else (None, None)
    if first is None or second is None:
        return None
    return "true" if _COMPARISONS[predicate](signed(type_, first), signed(type_, second)) else "false"


def converted(name: str, source: str, target: str, value: str, before: Conversion | None) -> str | None:
    """What a conversion gives, if that is a constant, or what the one before it was made of."""
    if before is not None and before.source == target and before.name in _BACK.get(name, ()):
        return before.value
    if name == "bitcast":
        return value if source == target else "0" if target[0] == "i" and value == _ZERO.get(source) else None
    number = integer(value)
    if number is None or target[0] != "i" or source[0] != "i" or source == "i1":
        return None
    return str(signed(target, signed(source, number))) if name in ("trunc", "sext") else None
