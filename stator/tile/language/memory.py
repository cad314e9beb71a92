"""Loads, stores and atomics through pointers, and the checks of their arguments.

Masks and values are brought into the pointers' shape here; block pointers and descriptors are lowered to this in
`block_pointers.py`, which registers itself for `load` and `store`.
Neighbours: `promotion.py`; `stator.tile.interpret.memory` checks the accesses themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stator.tile.errors import InvalidUse
from stator.tile.language.context import emit, emit_all
from stator.tile.language.promotion import broadcast_to, cast_to, is_number, to_tensor, typed_constant
from stator.tile.language.static import unwrap
from stator.tile.language.types import bfloat16, dtype, float16, int1
from stator.tile.language.values import sequence, tensor

_LOAD_CACHES = ("", ".ca", ".cg", ".cv")
_STORE_CACHES = ("", ".wb", ".cg", ".cs", ".wt")
_EVICTIONS = ("", "evict_first", "evict_last")
_PADDINGS = ("", "zero", "nan")
_SEMANTICS = ("relaxed", "acquire", "release", "acq_rel")
_SCOPES = ("gpu", "cta", "sys")

#: What else can be loaded from or stored to: a class of values → its functions; filled by `block_pointers.py`.
BLOCK_LOADS: dict[type, Callable[..., tensor]] = {}
BLOCK_STORES: dict[type, Callable[..., Any]] = {}


def one_of(what: str, value: Any, allowed: tuple[str, ...], default: str = "") -> str:
    """An option that is one of some words; None is the default."""
    value = unwrap(value)
    if value is None:
        return default
    if value not in allowed:
        names = ", ".join(repr(name) for name in allowed)
        raise InvalidUse(f"there is no {what} {value!r}", f"valid: {names}")
    return str(value)


def pointee(pointer: Any, what: str) -> dtype:
    """What a pointer points to."""
    if not isinstance(pointer, tensor) or not pointer.dtype.is_ptr():
        given = pointer.type if isinstance(pointer, tensor) else repr(unwrap(pointer))
        raise InvalidUse(f"{what} takes a pointer or a block of pointers, not {given}")
    element: dtype = pointer.dtype.element_ty
    return element


def _beside(what: str, pointer: tensor, value: Any, type: dtype) -> tensor:
    """A mask or value of a dtype in the shape of the pointers that it belongs to."""
    item = typed_constant(value, type) if is_number(value) else to_tensor(value)
    if item.type.shape and not pointer.type.shape:
        raise InvalidUse(f"{what} is a block of {item.type}, and the pointer is a single one")
    return broadcast_to(cast_to(item, type), pointer.type.shape)


def _spread(pointer: tensor, *beside: Any) -> tensor:
    """A block of pointers, grown to the shape of what goes with it."""
    for item in beside:
        if isinstance(item, tensor) and pointer.type.shape and len(item.type.shape) == len(pointer.type.shape):
            shape = [max(sizes) for sizes in zip(pointer.type.shape, item.type.shape, strict=True)]
            pointer = broadcast_to(pointer, shape)
    return pointer


def _mask(pointer: tensor, mask: Any) -> list[tensor]:
    if unwrap(mask) is None:
        return []
    given = to_tensor(mask)
    if not given.dtype.is_bool():
        raise InvalidUse(f"a mask is int1, not {given.dtype}", "compare: `mask != 0`")
    return [_beside("the mask", pointer, given, int1)]


def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    volatile: Any = False,
) -> tensor:
    """What lies at pointers, where the mask holds; elsewhere `other`, or something that is not defined (here 0)."""
    options = {
        "cache": one_of("cache modifier", cache_modifier, _LOAD_CACHES),
        "eviction": one_of("eviction policy", eviction_policy, _EVICTIONS),
        "volatile": bool(unwrap(volatile)),
    }
    checks = [unwrap(axis) for axis in sequence(boundary_check)] if unwrap(boundary_check) is not None else []
    padding = one_of("padding option", padding_option, _PADDINGS)
    if type(pointer) in BLOCK_LOADS:
        if unwrap(mask) is not None or unwrap(other) is not None:
            raise InvalidUse("a load of a block pointer has no mask", "use boundary_check and padding_option")
        return BLOCK_LOADS[type(pointer)](pointer, checks, padding, options)
    element = pointee(pointer, "load")
    if checks or padding:
        raise InvalidUse("boundary_check and padding_option belong to block pointers", "use mask and other")
    if unwrap(other) is not None and unwrap(mask) is None:
        raise InvalidUse("`other` without a mask is never taken", "pass a mask, or leave `other` out")
    pointer = _spread(pointer, mask, other)
    operands = [pointer, *_mask(pointer, mask)]
    if unwrap(other) is not None:
        operands.append(_beside("`other`", pointer, other, element))
    return emit("load", *operands, type=pointer.type.with_element_ty(element), **options)


def store(
    pointer: Any,
    value: Any,
    mask: Any = None,
    boundary_check: Any = (),
    cache_modifier: Any = "",
    eviction_policy: Any = "",
) -> None:
    """Writes values to pointers, where the mask holds."""
    options = {
        "cache": one_of("cache modifier", cache_modifier, _STORE_CACHES),
        "eviction": one_of("eviction policy", eviction_policy, _EVICTIONS),
    }
    checks = [unwrap(axis) for axis in sequence(boundary_check)] if unwrap(boundary_check) is not None else []
    if type(pointer) in BLOCK_STORES:
        if unwrap(mask) is not None:
            raise InvalidUse("a store to a block pointer has no mask", "use boundary_check")
        BLOCK_STORES[type(pointer)](pointer, value, checks, options)
        return
    element = pointee(pointer, "store")
    if checks:
        raise InvalidUse("boundary_check belongs to block pointers", "use a mask")
    _check_writable(pointer)
    pointer = _spread(pointer, value, mask)
    emit_all("store", [pointer, _beside("the value", pointer, value, element), *_mask(pointer, mask)], **options)


def _check_writable(pointer: tensor) -> None:
    if pointer.dtype.is_const():
        raise InvalidUse("nothing is written through a const pointer", "leave `tl.const` out of the parameter")


# ---- atomics


def _atomic_options(sem: Any, scope: Any) -> dict[str, str]:
    return {
        "sem": one_of("memory semantic", sem, _SEMANTICS, "acq_rel"),
        "scope": one_of("memory scope", scope, _SCOPES, "gpu"),
    }


def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> tensor:
    """Writes `val` where `cmp` lies; gives what lay there."""
    element = pointee(pointer, "atomic_cas")
    _check_writable(pointer)
    if element.primitive_bitwidth not in (16, 32, 64):
        raise InvalidUse(f"atomic_cas takes elements of 16, 32 or 64 bits, not {element}")
    pointer = _spread(pointer, cmp, val)
    operands = [_beside("the value", pointer, item, element) for item in (cmp, val)]
    type = pointer.type.with_element_ty(element)
    return emit("atomic_cas", pointer, *operands, type=type, **_atomic_options(sem, scope))


#: A kind → the dtypes that it refuses.
_REFUSED: dict[str, Callable[[dtype], bool]] = {
    "add": lambda element: element.is_bool() or element.primitive_bitwidth < 16 or element.is_fp8(),
    "max": lambda element: element in (float16, bfloat16) or element.primitive_bitwidth < 16,
    "min": lambda element: element in (float16, bfloat16) or element.primitive_bitwidth < 16,
    "and": lambda element: not element.is_int() or element.primitive_bitwidth < 16,
    "or": lambda element: not element.is_int() or element.primitive_bitwidth < 16,
    "xor": lambda element: not element.is_int() or element.primitive_bitwidth < 16,
    "xchg": lambda element: element.primitive_bitwidth < 16,
}


def _rmw(kind: str, pointer: Any, val: Any, mask: Any, sem: Any, scope: Any) -> tensor:
    element = pointee(pointer, f"atomic_{kind}")
    _check_writable(pointer)
    if _REFUSED[kind](element):
        raise InvalidUse(f"atomic_{kind} does not take elements of {element}")
    pointer = _spread(pointer, val, mask)
    operands = [_beside("the value", pointer, val, element), *_mask(pointer, mask)]
    type = pointer.type.with_element_ty(element)
    return emit("atomic_rmw", pointer, *operands, type=type, kind=kind, **_atomic_options(sem, scope))


def atomic_xchg(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Writes values at pointers; gives what lay there."""
    return _rmw("xchg", pointer, val, mask, sem, scope)


def atomic_add(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Adds values to what lies at pointers; gives what lay there."""
    return _rmw("add", pointer, val, mask, sem, scope)


def atomic_max(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Leaves the greater value at pointers; gives what lay there."""
    return _rmw("max", pointer, val, mask, sem, scope)


def atomic_min(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Leaves the lesser value at pointers; gives what lay there."""
    return _rmw("min", pointer, val, mask, sem, scope)


def atomic_and(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Leaves the bits that both have at pointers; gives what lay there."""
    return _rmw("and", pointer, val, mask, sem, scope)


def atomic_or(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Leaves the bits that one has at pointers; gives what lay there."""
    return _rmw("or", pointer, val, mask, sem, scope)


def atomic_xor(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
    """Leaves the bits that only one has at pointers; gives what lay there."""
    return _rmw("xor", pointer, val, mask, sem, scope)
