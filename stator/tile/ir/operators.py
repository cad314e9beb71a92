"""The table of operators: what there is in tile IR, one row each.

A row says how the operator's types follow, which attributes it has, what it does beside giving a value, which regions
it has and in a line what it computes; `stator.tile.interpret.compute` says that in full. Elementwise operators take
operands of one type, scalars or tiles. Integers wrap around; a float operator rounds once, to nearest even.
Neighbours: `rules` and `externs` have the rules; `build`, `verify`, `text` and `parse` read the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

from stator.tile.ir import rules
from stator.tile.ir.core import Operation
from stator.tile.ir.externs import extern
from stator.tile.ir.rules import FORMATS, Rule, TypeRule, elementwise
from stator.tile.ir.types import DTYPES, DType, Pointer, Type

#: Attributes that every operation may have: what is known of its first result, a number for each axis.
HINTS = ("divisibility", "contiguity", "constancy")
_REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Attribute:
    """What an attribute may be: in words, and as a check; required unless it has a default."""

    what: str
    accepts: Callable[[Any], bool] = field(repr=False)
    default: Any = _REQUIRED

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


@dataclass(frozen=True, slots=True)
class Operator:
    """One row. `effects` are of "reads", "writes", "fails", "prints", "syncs" and "ends" (a terminator)."""

    name: str
    rule: Rule
    doc: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    effects: frozenset[str] = frozenset()
    regions: tuple[str, ...] = ()
    elementwise: bool = False

    @property
    def is_pure(self) -> bool:
        """Whether the row has no effects; `effects_of` says it of an operation, whose regions may have some."""
        return not self.effects

    @property
    def is_terminator(self) -> bool:
        return "ends" in self.effects

    def complete(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes in the order of the row, with defaults; TypeRule where one is missing, unknown or wrong."""
        unknown = [name for name in attrs if name not in self.attributes and name not in HINTS]
        if unknown:
            raise TypeRule(f"has no attribute {unknown[0]!r}; it has {', '.join(self.attributes) or 'none'}")
        found: dict[str, Any] = {}
        for name, attribute in self.attributes.items():
            value = attrs.get(name, attribute.default)
            if value is _REQUIRED:
                raise TypeRule(f"needs the attribute {name!r}")
            if value is not attribute.default and not attribute.accepts(value):
                raise TypeRule(f"the attribute {name!r} is {attribute.what}, not {value!r}")
            found[name] = value
        for name in HINTS:
            if name in attrs:
                if not _ints(attrs[name]):
                    raise TypeRule(f"the hint {name!r} is a tuple of ints, not {attrs[name]!r}")
                found[name] = attrs[name]
        return found


#: A table of operators: of tile IR, or of tile IR with layouts, which has more.
Operators: TypeAlias = Mapping[str, Operator]
OPERATORS: dict[str, Operator] = {}


def effects_of(operation: Operation, operators: Operators = OPERATORS) -> frozenset[str]:
    """What an operation does beside giving values: by its row, by its attributes, and in its regions."""
    found = operators[operation.op].effects
    if operation.op == "inline_asm" and not operation.attrs["is_pure"]:
        found |= {"reads", "writes"}
    for region in operation.regions:
        for inner in region.operations:
            found |= effects_of(inner, operators) - {"ends"}
    return found


def _int(value: object) -> bool:
    return type(value) is int


def _ints(value: object) -> bool:
    return isinstance(value, tuple) and all(map(_int, value))


def _typed(kind: type, what: str, default: Any = _REQUIRED) -> Attribute:
    return Attribute(what, lambda value: type(value) is kind, default)


def _choice(*names: str, default: Any = _REQUIRED) -> Attribute:
    return Attribute(f"one of {', '.join(map(repr, names))}", lambda value: value in names, default)


_INT = _typed(int, "an int")
_SHAPE = Attribute("a tuple of ints", _ints)
_ELEMENT = Attribute("a dtype or pointer", lambda value: isinstance(value, DType | Pointer))
_ELEMENTS = Attribute(
    "a tuple of dtypes", lambda value: isinstance(value, tuple) and all(isinstance(v, DType) for v in value)
)
_TYPES = Attribute(
    "a tuple of types", lambda value: isinstance(value, tuple) and all(isinstance(v, Type) for v in value)
)
_NAN = _choice("number", "propagate", default="number")
_FLAG = _typed(bool, "True or False", False)
_TEXT = _typed(str, "a text")


def _add(name: str, rule: Rule, doc: str, **more: Any) -> None:
    more["attributes"] = MappingProxyType(more.get("attributes", {}))
    more["effects"] = frozenset(more.get("effects", "").split())
    OPERATORS[name] = Operator(name, rule, doc, **more)


def _elementwise(arity: int, name: str, rows: Mapping[str, str], **attributes: Attribute) -> None:
    for operator, doc in rows.items():
        _add(operator, elementwise(arity, name), doc, attributes=attributes, elementwise=True)


_add("constant", rules.constant, "a number, everywhere in a tile", attributes={
    "value": Attribute("a number", lambda value: isinstance(value, bool | int | float)),
    "type": _typed(Type, "a type"),
})  # fmt: skip
_add("arange", rules.arange, "start … end-1", attributes={"start": _INT, "end": _INT})
_add("program_id", rules.axis_number, "where in the grid this program is, along an axis", attributes={"axis": _INT})
_add("num_programs", rules.axis_number, "how many programs the grid has along an axis", attributes={"axis": _INT})

_add("splat", rules.splat, "a tile of one scalar", attributes={"shape": _SHAPE})
_add("broadcast", rules.broadcast, "sizes of 1 grow to those of a shape", attributes={"shape": _SHAPE})
_add("reshape", rules.reshape, "the same elements in another shape, row-major; with `reorder` in any order",
     attributes={"shape": _SHAPE, "reorder": _FLAG})  # fmt: skip
_add("permute", rules.permute, "axis i of the result is axis order[i]", attributes={"order": _SHAPE})
_add("expand_dims", rules.expand_dims, "a new axis of size 1", attributes={"axis": _INT})
_add("join", rules.join, "two tiles along a new last axis")
_add("split", rules.split, "the two halves of a last axis of 2")
_add("cat", rules.cat, "one tile behind the other along axis 0; with `reorder` in any order",
     attributes={"reorder": _FLAG})  # fmt: skip
_add("gather", rules.gather, "elements of a tile at positions along an axis", attributes={"axis": _INT})

_elementwise(2, "number", {
    "add": "the sum", "sub": "the difference", "mul": "the product",
    "rem": "the remainder with the sign of the dividend, as C has it; 0 of a division of integers by 0",
})  # fmt: skip
_elementwise(2, "float", {
    "div": "the quotient, which generated code may give an ulp or two off", "div_rn": "the quotient, correctly rounded",
})  # fmt: skip
_elementwise(2, "integer", {"idiv": "the quotient rounded to zero, as C has it; 0 of a division by 0"})
_elementwise(2, "number", {
    "minimum": "the lesser one; of a NaN and a number, what `nan` says", "maximum": "the greater one, likewise",
}, nan=_NAN)  # fmt: skip
_elementwise(2, "bits", {"and": "bitwise and", "or": "bitwise or", "xor": "bitwise exclusive or"})
_elementwise(1, "bits", {"not": "all bits inverted"})
_elementwise(2, "integer", {
    "shl": "shifted left: 0 by as many bits as there are, or more",
    "shr": "shifted right, signed ones with their sign",
})  # fmt: skip
_elementwise(1, "signed", {"abs": "the absolute value; the least integer stays"})
_elementwise(1, "number", {"neg": "the value with the other sign"})
_elementwise(2, "wide", {"mulhi": "the upper half of the bits of the product"})
_elementwise(3, "number", {"clamp": "minimum(maximum(x, low), high); a NaN as `nan` says"}, nan=_NAN)
_elementwise(3, "float", {"fma": "a * b + c, rounded once"})
for _name, _doc in {
    "eq": "equal", "ne": "not equal: a NaN to itself too", "lt": "less", "le": "less or equal", "gt": "greater",
    "ge": "greater or equal",
}.items():  # fmt: skip
    _add(_name, rules.compare, f"whether the first is {_doc}", elementwise=True)
_add("select", rules.select, "of two values the first where a condition holds", elementwise=True)
_elementwise(1, "float", {
    "exp": "e ** x", "exp2": "2 ** x", "log": "the natural logarithm", "log2": "the logarithm to base 2",
    "sin": "the sine", "cos": "the cosine", "tanh": "the hyperbolic tangent", "erf": "the error function",
    "sqrt": "the square root, which generated code may give an ulp or two off",
    "sqrt_rn": "the square root, correctly rounded", "rsqrt": "one by the square root",
    "floor": "the greatest integer that is not more", "ceil": "the least integer that is not less",
    "trunc": "the integer part", "round": "the nearest integer, of two the even one",
})  # fmt: skip
_add("extern", extern, "a function of libdevice", attributes={"symbol": _TEXT}, elementwise=True)
_add("inline_asm", rules.inline_asm, "instructions of the target, for each element or for so many at once",
     attributes={"asm": _TEXT, "constraints": _TEXT, "dtypes": _ELEMENTS, "pack": _INT,
                 "is_pure": _typed(bool, "True or False", True)})  # fmt: skip

_add("cast", rules.cast, "the value in another dtype; `interpret.casts` says what becomes of one that does not fit",
     elementwise=True, attributes={"dtype": _ELEMENT, "rounding": _choice("rtne", "rtz", default="rtne")})  # fmt: skip
_add("bitcast", rules.bitcast, "the same bits as another dtype", attributes={"dtype": _ELEMENT}, elementwise=True)
_add("int_to_ptr", rules.int_to_ptr, "an address as a pointer", attributes={"dtype": _ELEMENT}, elementwise=True)
_add("ptr_to_int", rules.ptr_to_int, "a pointer as an address", elementwise=True, attributes={
    "dtype": Attribute("a dtype", lambda value: isinstance(value, DType), DTYPES["i64"]),
})  # fmt: skip
_add("addptr", rules.addptr, "so many elements further on", elementwise=True)

_CACHE = {
    "cache": _choice("", ".ca", ".cg", ".cv", ".wb", ".cs", ".wt", default=""),
    "eviction": _choice("", "evict_first", "evict_last", default=""),
}
_ATOMIC = {
    "sem": _choice("relaxed", "acquire", "release", "acq_rel", default="acq_rel"),
    "scope": _choice("gpu", "cta", "sys", default="gpu"),
}
_add("load", rules.load, "what lies at pointers, where the mask (if any) holds; `other` elsewhere, or 0",
     effects="reads", attributes={**_CACHE, "volatile": _FLAG})  # fmt: skip
_add(
    "store",
    rules.store,
    "writes values to pointers, where the mask (if any) holds",
    effects="writes",
    attributes=_CACHE,
)
_add("atomic_rmw", rules.atomic_rmw, "changes what lies at pointers, in order; gives what was there",
     effects="reads writes", attributes={"kind": _choice(*rules.ATOMICS), **_ATOMIC})  # fmt: skip
_add("atomic_cas", rules.atomic_cas, "writes the third value where the second one's bits are; gives what was there",
     effects="reads writes", attributes=_ATOMIC)  # fmt: skip

_add("dot", rules.dot, "acc + a @ b, with sums as good as those in f32, or in f64 where that is the dtype",
     attributes={
         "precision": _choice("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6", default="tf32"),
         "max_imprecise": _typed(int, "an int", 0),
     })  # fmt: skip
_add("dot_scaled", rules.dot_scaled, "acc + (a * scale_a) @ (b * scale_b), a scale for 32 elements of the inner axis",
     attributes={
         "format_a": _choice(*FORMATS), "format_b": _choice(*FORMATS), "scale_a": _FLAG, "scale_b": _FLAG,
         "pack_a": _choice("inner", "outer", default="inner"), "pack_b": _choice("inner", "outer", default="inner"),
         "fast_math": _FLAG,
     })  # fmt: skip
_add("reduce", rules.reduce, "all elements along an axis combined into one, in pairs of neighbours",
     attributes={"axis": _INT}, regions=("combine",))  # fmt: skip
_add("scan", rules.scan, "each element along an axis combined with those before it (behind it, if reverse)",
     attributes={"axis": _INT, "reverse": _FLAG}, regions=("combine",))  # fmt: skip
_add(
    "histogram", rules.histogram, "how often 0 … bins-1 occur, where the mask (if any) holds", attributes={"bins": _INT}
)
_add("sort", rules.sort, "the elements along an axis in order, NaN as the greatest", attributes={
    "axis": _INT, "descending": _FLAG,
})  # fmt: skip

_add("assert", rules.bits_of_truth, "fails with a message unless all conditions hold", effects="fails",
     attributes={"message": _TEXT})  # fmt: skip
_add(
    "print",
    rules.nothing,
    "prints values behind a prefix",
    effects="prints",
    attributes={"prefix": _TEXT, "hex": _FLAG},
)
_add("barrier", rules.no_operands, "the threads of a program wait for one another", effects="syncs")
_add("assume", rules.bits_of_truth, "the compiler may take it that conditions hold", effects="fails")

_add("if", rules.if_, "the first region if a condition holds, else the second", regions=("then", "otherwise"))
_add("for", rules.for_, "a region for lower, lower + step, … before upper; the step may be negative", regions=("body",),
     attributes={
         "stages": _typed(int, "an int", 0), "unroll": _typed(int, "an int", 0), "flatten": _FLAG,
         "warp_specialize": _FLAG, "single_acc": _FLAG, "no_licm": _FLAG,
     })  # fmt: skip
_add("while", rules.while_, "the second region as long as the first one's condition holds", regions=("test", "body"))
_add("call", rules.call, "a function of the module", effects="reads writes fails prints",
     attributes={"callee": _TEXT, "types": _TYPES})  # fmt: skip
_add("yield", rules.nothing, "what a region gives", effects="ends")
_add("condition", rules.condition, "whether a loop goes on, and with what", effects="ends")
_add("return", rules.nothing, "what a function gives", effects="ends")
