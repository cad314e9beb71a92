"""The table of operators of tile IR with layouts: tile IR's own, and those that move tiles between threads and
memories.

Of tile IR's rows the attributes, effects and meaning are as they were; a rule of layouts joins the rule of types, rows
whose result may be laid out in any way have an attribute `layout`, accesses have `vector` (so many neighbouring
registers are one access of neighbouring elements that one mask covers) and what works in shared memory has `scratch`,
the bytes from which on it may (-1: not yet decided; `scratch.py` says how many). `call` is not there: functions are
inlined.

A buffer in shared memory is of type ptr[dtype, shared][shape, S], where S is a `Shared`; leading sizes that the layout
has not are slots, one behind the other. `allocate` decides `offset` of `local_alloc`, in bytes.
Neighbours: `rules` has the layouts; `stator.tile.ir` prints, parses, builds and verifies with this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any

from stator.tile.gpu import rules
from stator.tile.gpu.rules import LayoutRule, spread
from stator.tile.ir import rules as types_of
from stator.tile.ir.build import IRBuilder
from stator.tile.ir.core import Block, Function, Module
from stator.tile.ir.operators import OPERATORS, Attribute, Operator
from stator.tile.ir.parse import parse as parse_ir
from stator.tile.ir.rules import Rule, TypeRule, count
from stator.tile.ir.text import module_text
from stator.tile.ir.types import DType, Pointer, Type
from stator.tile.ir.verify import verify as verify_ir
from stator.tile.layouts.linear import Layout
from stator.tile.layouts.memory import Shared
from stator.tile.layouts.mma import group_columns

_LAYOUT = Attribute("a layout of threads", lambda value: isinstance(value, Layout))
_LAYOUT_OR_NONE = replace(_LAYOUT, default=None)
_VECTOR = Attribute(
    "a power of two", lambda value: type(value) is int and value > 0 and not value & (value - 1), default=1
)
_SCRATCH = Attribute("bytes, or -1", lambda value: type(value) is int and value >= -1, default=-1)
_SHARED = Attribute("a layout of shared memory", lambda value: isinstance(value, Shared))
_TYPE = Attribute("a type", lambda value: isinstance(value, Type))
_COUNT = Attribute("an int of at least 0", lambda value: type(value) is int and value >= 0, default=0)
_ORDER = OPERATORS["permute"].attributes["order"]
_START = Attribute(
    "the place of an element, or None",
    lambda value: value is None or (isinstance(value, tuple) and all(type(i) is int and i >= 0 for i in value)),
    default=None,
)


def with_layouts(rule: Rule, layouts: LayoutRule) -> Rule:
    """Both rules: layouts are given to what the rule of types gives."""

    def both(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
        results = rule(types, attrs, regions)
        found = layouts(types, attrs, results)
        return tuple([Type(r.element, r.shape, layout) for r, layout in zip(results, found, strict=True)])

    return both


# ---- shared memory


def buffer(type_: Type) -> Shared:
    """Where the elements of a buffer lie."""
    element, layout = type_.element, type_.layout
    if not isinstance(element, Pointer) or element.space != "shared":
        raise TypeRule(f"{type_} is no buffer in shared memory")
    if not isinstance(layout, Shared):
        raise TypeRule(f"{type_} has no layout of memory")
    if type_.shape[len(type_.shape) - layout.rank :] != layout.shape or type_.rank > layout.rank + 1:
        raise TypeRule(f"{layout} is no layout of {type_}, nor of one slot of it")
    return layout


def content(type_: Type) -> DType:
    """The dtype of a buffer's elements."""
    buffer(type_)
    assert isinstance(type_.element, Pointer)
    if not isinstance(type_.element.to, DType):
        raise TypeRule(f"{type_} holds no numbers")
    assert isinstance(type_.element.to, DType)
    return type_.element.to


def slot(type_: Type) -> Type:
    """One slot of a buffer, or the buffer itself where it has none."""
    return Type(type_.element, buffer(type_).shape, type_.layout)


def buffer_bytes(type_: Type) -> int:
    """How many a buffer takes, all slots."""
    return slot_bytes(type_) * prod(type_.shape[: type_.rank - buffer(type_).rank])


def slot_bytes(type_: Type) -> int:
    """How far a slot lies behind the one before it: a multiple of 16."""
    return -(-buffer(type_).size * content(type_).itemsize // 16) * 16


def _alloc(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 0)
    content(attrs["type"])
    return (attrs["type"],)


def _one_slot(type_: Type) -> Shared:
    found = buffer(type_)
    if type_.rank != found.rank:
        raise TypeRule(f"{type_} has slots: take one of them by `local_index`")
    return found


def _load(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    _one_slot(types[0])
    layout, start = attrs["layout"], attrs["start"]
    if start is None:
        if layout.shape != types[0].shape:
            raise TypeRule(f"{layout} is no layout of {types[0]}")
    else:
        if not (len(start) == layout.rank == types[0].rank):
            raise TypeRule(f"{start} is no element of {types[0]}")
        fits = [not s % n and s + n <= m for s, n, m in zip(start, layout.shape, types[0].shape, strict=True)]
        if not all(fits):
            raise TypeRule(f"a part of {layout.shape} does not begin at {start} of {types[0]}")
    return (Type(content(types[0]), layout.shape, layout),)


def _store(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    _one_slot(types[0])
    value = types[1]
    spread(value)
    if not (value.element == content(types[0]) and value.shape == types[0].shape):
        raise TypeRule(f"{value} does not fit {types[0]}")
    return ()


def _index(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 2)
    if types[0].rank != buffer(types[0]).rank + 1:
        raise TypeRule(f"{types[0]} has no slots")
    if str(types[1]) != "i32":
        raise TypeRule(f"the number of a slot is an i32, not {types[1]}")
    return (slot(types[0]),)


def _permuted(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    types_of.permute(types, attrs, regions)
    layout = _one_slot(types[0]).transpose(attrs["order"])
    return (Type(types[0].element, layout.shape, layout),)


def _copy(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    """Buffer, pointers, mask, other: as a load that goes to a buffer."""
    if len(types) not in (2, 3, 4):
        raise TypeRule(f"takes a buffer, pointers, and a mask and `other` on demand, not {len(types)}")
    _one_slot(types[0])
    (loaded,) = types_of.load(types[1:], attrs, regions)
    rules.access(types[1:], attrs, [loaded])
    fits = loaded.element == content(types[0]) and loaded.shape == types[0].shape
    if not fits:
        raise TypeRule(f"{loaded} does not fit {types[0]}")
    return ()


def _converted(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    given, layout = types[0], attrs["layout"]
    if len(spread(given).warp) != len(layout.warp):
        raise TypeRule(f"{layout} is of another number of warps than {given}")
    if layout.shape != given.shape:
        raise TypeRule(f"{layout} is no layout of {given}")
    return (Type(given.element, given.shape, layout),)


def _dot(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    """Without tensor cores: both operands lie in shared memory, of which each thread reads what it needs."""
    count(types, 3)
    operands = [Type(content(given), _one_slot(given).shape) for given in types[:2]]
    types_of.dot([*operands, types[2].shaped(*types[2].shape)], attrs, regions)
    return (Type(types[2].element, types[2].shape, spread(types[2])),)


def _tile(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    (given,), layout = types, attrs["layout"]
    spread(given)
    if not isinstance(given.element, DType):
        raise TypeRule(f"{given} holds no numbers")
    if layout.shape != given.shape:
        raise TypeRule(f"{layout} is no layout of {given}")
    return (Type(Pointer(given.element, "shared"), given.shape, layout),)


def _wgmma(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    """By warp groups: operands lie in shared memory, but for the left one where threads have it."""
    count(types, 3)
    a, b, acc = types
    left = a if isinstance(a.layout, Layout) else Type(content(a), a.shape, _one_slot(a))
    right = Type(content(b), b.shape, _one_slot(b))
    types_of.dot([left.shaped(*a.shape), right.shaped(*b.shape), acc.shaped(*acc.shape)], attrs, regions)
    return (Type(acc.element, acc.shape, rules.wgmma(left, right, acc, attrs["precision"])),)


def _waited(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    count(types, 1)
    if not group_columns(spread(types[0])):
        raise TypeRule(f"{types[0]} is no result of warp groups")
    return (types[0],)


# ---- the table

#: An operator of tile IR → the rule of its layouts; those that are not there want one layout for all tiles.
_RULES: dict[str, LayoutRule] = {
    "constant": rules.chosen, "arange": rules.chosen, "splat": rules.chosen, "histogram": rules.chosen,
    "broadcast": rules.broadcast, "expand_dims": rules.expand_dims, "reshape": rules.reshape, "permute": rules.permute,
    "join": rules.join, "split": rules.split, "cat": rules.cat, "gather": rules.gather, "reduce": rules.reduce,
    "scan": rules.scan, "sort": rules.scan, "load": rules.access, "store": rules.access,
}  # fmt: skip
#: Rows that stay as they are: control flow carries types with their layouts, and scalars have none.
_PLAIN = frozenset("if for while yield condition return print assert assume barrier program_id num_programs".split())
_CHOSEN = frozenset("constant arange splat histogram broadcast".split())
_CHOSEN_OF_SCALARS = frozenset("expand_dims reshape join".split())
_ACCESS = frozenset("load store".split())
#: What goes through shared memory between its reads and its writes.
SCRATCH = frozenset("convert_layout reduce gather histogram atomic_rmw atomic_cas".split())
#: Not there any more: functions are inlined, scaled products are plain ones.
GONE = frozenset(["call", "dot_scaled"])


def _row(row: Operator) -> Operator:
    attributes = dict(row.attributes)
    if row.name in _CHOSEN | _CHOSEN_OF_SCALARS:
        attributes["layout"] = _LAYOUT_OR_NONE
    if row.name in _ACCESS:
        attributes["vector"] = _VECTOR
    if row.name in SCRATCH:
        attributes["scratch"] = _SCRATCH
    rule = row.rule if row.name in _PLAIN else with_layouts(row.rule, _RULES.get(row.name, rules.alike))
    return replace(row, rule=rule, attributes=MappingProxyType(attributes))


def _constant(types: Sequence[Type], attrs: Mapping[str, Any], regions: Sequence[Block]) -> tuple[Type, ...]:
    """The layout is that of the attribute `type`."""
    (given,) = types_of.constant(types, attrs, regions)
    if not given.is_scalar:
        spread(given)
    return (given,)


GPU_OPERATORS: dict[str, Operator] = {name: _row(row) for name, row in OPERATORS.items() if name not in GONE}
GPU_OPERATORS["constant"] = replace(OPERATORS["constant"], rule=_constant)
GPU_OPERATORS["dot"] = replace(
    OPERATORS["dot"], rule=_dot, effects=frozenset(["reads"]), doc="acc + a @ b of buffers, without tensor cores"
)


def _add(name: str, rule: Rule, doc: str, effects: str, **attributes: Attribute) -> None:
    GPU_OPERATORS[name] = Operator(name, rule, doc, MappingProxyType(attributes), frozenset(effects.split()))


_add("convert_layout", _converted, "the same tile in another layout", "", layout=_LAYOUT, scratch=_SCRATCH)
_add("mma", with_layouts(types_of.dot, rules.mma), "acc + a @ b by tensor cores", "",
     **OPERATORS["dot"].attributes)  # fmt: skip
_add("wgmma", _wgmma, "acc + a @ b by warp groups, which is there behind `wgmma_wait`", "reads",
     **OPERATORS["dot"].attributes)  # fmt: skip
_add("wgmma_wait", _waited, "a product by warp groups; all but the last `pending` of them have ended, for the thread's "
     "own warp", "reads", pending=_COUNT)  # fmt: skip
_add("local_tile", _tile, "a buffer that holds a tile, and nothing else ever", "", layout=_SHARED)
_add("local_alloc", _alloc, "a buffer in shared memory, at `offset` bytes once that is decided", "writes",
     type=_TYPE, offset=_SCRATCH)  # fmt: skip
_add("local_index", _index, "one slot of a buffer", "")
_add("local_permute", _permuted, "the same buffer as a tile whose axis i is axis order[i]", "", order=_ORDER)
_add("local_load", _load, "what lies in a buffer, or the part of it from `start` on that the layout is of", "reads",
     layout=_LAYOUT, start=_START)  # fmt: skip
_add("local_store", _store, "writes a tile to a buffer", "writes")
_COPIED = {name: row for name, row in OPERATORS["load"].attributes.items() if name != "volatile"}
_add("async_copy", _copy, "what a load of these operands gives goes to a buffer, some time before `async_wait` is over",
     "reads writes", vector=_VECTOR, **_COPIED)  # fmt: skip
_add("async_commit", types_of.no_operands, "copies since the last one are a group", "syncs")
_add("async_wait", types_of.no_operands, "all but the last `pending` groups have arrived, for the thread itself",
     "syncs", pending=_COUNT)  # fmt: skip


_add("proxy_fence", types_of.no_operands, "warp groups see what the thread itself has written to shared memory, once "
     "all threads have waited for one another", "syncs")  # fmt: skip


# ---- the IR's functions, with this table


def builder(function: Function, block: Block | None = None) -> IRBuilder:
    """Appends operations of this table."""
    return IRBuilder(function, block, GPU_OPERATORS)


def parse(text: str) -> Module:
    return parse_ir(text, GPU_OPERATORS)


def verify(module: Module) -> None:
    """Raise GrammarError unless all functions are well formed, layouts included."""
    verify_ir(module, GPU_OPERATORS)


def text(module: Module, locations: bool = False) -> str:
    return module_text(module, locations, GPU_OPERATORS)
