"""Scalar expressions: an interned DAG that says what one element of a buffer is.

`Expr(op, args, dtype, attr)`; equality is identity. Build it with the constructors below: they check dtypes and fold
what is exact in IEEE arithmetic (signed zeros and NaN included) and never drop a rounding. Operators are the table
`scalar.OPS`; the special ones:
  load      attr = (buffer name, Index)       the element at that flat position
  const     attr = the number                 index   attr = Index, as i64
  cast      bitcast                           reduce  attr = kind; the body over all reduce axes of its nest
  scan      attr = kind; the body over the points of the reduce axes up to this one, in their order
  masked    (mask, body, other): loads in the body happen only where the mask is true
  random    (seed i64, counter i64), attr = "uniform" | "normal": Philox-4x32-10
  known     attr = (lowest, highest): the integer itself, which was proved to lie there before it went through memory
Neighbours: `index` (what loads point with), `nest` and `kernel` (what holds expressions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from stator.base.dtypes import ITEMSIZE, contains
from stator.loop import scalar, tables
from stator.loop.extent import Bound, less
from stator.loop.index import NO_AXES, Axis, Index, Indexable, indirect
from stator.loop.magnitude import holds
from stator.loop.scalar import FLOATS, HALVES, INTEGERS, OPS, REDUCTIONS, SCANS
from stator.sizes import Extent, Size
from stator.sizes.real import Bits

SPECIAL = ("load", "const", "index", "reduce", "scan", "cast", "bitcast", "masked", "random", "known")


class Expr:
    """One node. `children` are its operands, and the expressions that its index loads through; `level` is how deeply
    reductions nest in it."""

    __slots__ = ("_digest", "args", "attr", "axes", "children", "dtype", "level", "op")
    op: str
    args: tuple[Expr, ...]
    dtype: str
    attr: Any
    axes: frozenset[Axis]
    children: tuple[Expr, ...]
    level: int
    _digest: int | None

    @property
    def constant(self) -> int | None:
        """The integer that it is, if that is known."""
        return self.attr if self.op == "const" and self.dtype in INTEGERS else None

    @property
    def digest(self) -> int:
        """A number that is the same in every process; few are asked for theirs."""
        if self._digest is None:
            for node in postorder([self]):
                if node._digest is None:
                    mark = crc32(f"{node.op} {node.dtype} {node.attr!r}".encode())
                    node._digest = hash((mark, *[arg._digest for arg in node.args])) & 0xFFFFFFFFFFFFFFFF
        assert self._digest is not None
        return self._digest

    def substitute(self, mapping: Mapping[Axis, Index]) -> Expr:
        """Replace axes by indices everywhere, loads and indirect indices included."""
        return Rewriter(mapping)(self)

    def __repr__(self) -> str:
        if self.op == "load":
            return f"{self.attr[0]}[{self.attr[1]}]"
        if self.op in ("const", "index"):
            return str(self.attr)
        name = self.op if self.attr is None else f"{self.op}:{self.attr}"
        return f"{name}({', '.join(a.op if a.args else repr(a) for a in self.args)})"


_EXPRS: dict[Any, Expr] = tables.table()


def _intern(op: str, args: tuple[Expr, ...], dtype: str, attr: Any = None) -> Expr:
    key = (op, args, dtype, attr)
    if op == "const" and dtype in FLOATS:
        key = (op, args, dtype, attr.hex())  # tells 0.0 from -0.0, and one NaN serves
    found = _EXPRS.get(key)
    if found is not None:
        return found
    self = object.__new__(Expr)
    self.op, self.args, self.dtype, self.attr = op, args, dtype, attr
    axes = NO_AXES
    # What has been summed up comes before what is added to it, which is not kept meanwhile.
    children = (args[2], *args[:2]) if op == "fma" else args
    if args:
        axes = args[0].axes
        for arg in args:
            if arg.axes is not axes and not arg.axes <= axes:
                axes = axes | arg.axes
    elif op in ("load", "index"):
        position: Index = attr[1] if op == "load" else attr
        axes = position.axes()
        if position.has_indirect:
            children = tuple([atom.expr for atom in position.indirects()])  # type: ignore[misc]
    self.axes, self.children = axes, children
    self.level = (max([child.level for child in children]) if children else 0) + (op == "reduce")
    self._digest = None
    return _EXPRS.setdefault(key, self)


# -- leaves ----------------------------------------------------------------------------------------


def load(buffer: str, index: Indexable, dtype: str) -> Expr:
    """The element of a buffer at a flat position (in elements)."""
    return _intern("load", (), dtype, (buffer, Index.of(index)))


def const(value: Any, dtype: str) -> Expr:
    """A constant, rounded to the dtype."""
    return _intern("const", (), dtype, scalar.convert(dtype, value))


def number(value: Any, dtype: str) -> Expr:
    """A number that may be symbolic: a constant, the value of a size or the float with some bits, cast to the dtype."""
    if type(value) is Bits:
        return cast(bitcast(index(value.size), "f64"), dtype)
    return cast(index(value), dtype) if type(value) is Size else const(value, dtype)


def index(value: Indexable) -> Expr:
    """An index as an i64 value."""
    position = Index.of(value)
    if not position.terms and type(position.const) is int:
        return const(position.const, "i64")
    if len(position.terms) == 1 and position.const == 0 and position.terms[0][1] == 1:
        inner = getattr(position.terms[0][0], "expr", None)
        if inner is not None and inner.dtype == "i64":
            return inner
    return _intern("index", (), "i64", position)


def to_index(value: Expr, bound: Extent) -> Index:
    """An integer value as an index; it must lie in 0 … bound-1."""
    if value.dtype not in INTEGERS:
        raise TypeError(f"an index must be an integer, not {value.dtype}")
    if value.op == "cast" and value.args[0].op == "index":
        value = value.args[0]
    if value.op == "index" and value.attr.within(bound):
        return value.attr
    return indirect(value, bound)


# -- special nodes ---------------------------------------------------------------------------------


def cast(value: Expr, dtype: str) -> Expr:
    """The value in another dtype. A cast there and back disappears only where the way was exact."""
    if dtype not in ITEMSIZE:
        raise TypeError(f"unknown dtype {dtype!r}")
    if value.dtype == dtype:
        return value
    if value.op == "const" and not (dtype in INTEGERS and value.dtype in FLOATS and not _plain(value.attr)):
        return const(value.attr, dtype)
    if value.op == "cast" and contains(value.dtype, value.args[0].dtype):
        return cast(value.args[0], dtype)
    rounded = value.op == "cast" and value.dtype in HALVES and value.args[0].dtype == "f32"
    if rounded and held(value.args[0], value.dtype):
        return cast(value.args[0], dtype)
    return _intern("cast", (value,), dtype)


#: What says of a cast to a half type that no kernel leaves it out.
KEPT = "kept"


def keep(value: Expr) -> Expr:
    """The cast as one that no kernel leaves out; what is none, as it is."""
    return _intern("cast", value.args, value.dtype, KEPT) if value.op == "cast" else value


#: How many expressions are looked at for that; of longer chains the last rounding stays.
_LOOKED_AT = 32


def held(root: Expr, half: str) -> bool:
    """Whether a half type holds all that a float32 may be, as it is made of such numbers without rounding."""
    seen, stack = {root}, [root]
    while stack and len(seen) <= _LOOKED_AT:
        value = stack.pop()
        if value.op == "cast" and contains(half, value.args[0].dtype):
            continue
        if value.op == "const" and scalar.holds(half, value.attr):
            continue
        first = 0 if value.op in ("reduce", "scan") and value.attr in ("max", "min") else scalar.CHOOSING.get(value.op)
        if first is None:
            return False
        stack += [arg for arg in value.args[first:] if arg not in seen]
        seen.update(stack)
    return not stack


def _plain(value: float) -> bool:
    """Whether a float is the same integer on every machine."""
    return scalar.in_range("i32", value)


def known(value: Expr, low: int, high: int) -> Expr:
    """The same integer, which lies between two others, both included."""
    if value.dtype not in INTEGERS:
        raise TypeError(f"known does not take {value.dtype}")
    return value if value.op == "const" else _intern("known", (value,), value.dtype, (low, high))


def bitcast(value: Expr, dtype: str) -> Expr:
    """The same bits read as another dtype of the same size."""
    if ITEMSIZE[value.dtype] != ITEMSIZE[dtype]:
        raise TypeError(f"bitcast from {value.dtype} to {dtype}: sizes differ")
    return value if value.dtype == dtype else _intern("bitcast", (value,), dtype)


def reduce(kind: str, body: Expr) -> Expr:
    """The body over all reduce axes of its nest. argmax and argmin give the flat position, as i64."""
    if kind not in REDUCTIONS:
        raise TypeError(f"unknown reduction {kind!r}")
    if body.dtype in ("bf16", "f16") or (kind in ("sum", "prod") and body.dtype == "bool"):
        raise TypeError(f"reduce {kind} does not take {body.dtype}")
    if kind in ("any", "all") and body.dtype != "bool":
        raise TypeError(f"reduce {kind} takes bool, not {body.dtype}")
    return _intern("reduce", (body,), "i64" if kind.startswith("arg") else body.dtype, kind)


def scan(kind: str, body: Expr) -> Expr:
    """The body over the points of the reduce axes up to the one at hand, which is one of `scalar.SCANS`."""
    if kind not in SCANS:
        raise TypeError(f"unknown scan {kind!r}")
    if body.dtype in ("bf16", "f16", "bool") or (kind == "logsumexp" and body.dtype not in FLOATS):
        raise TypeError(f"scan {kind} does not take {body.dtype}")
    return _intern("scan", (body,), body.dtype, kind)


def masked(mask: Expr, body: Expr, other: Expr) -> Expr:
    """`mask ? body : other`, where the body's loads happen only if the mask is true."""
    if mask.dtype != "bool" or body.dtype != other.dtype:
        raise TypeError(f"masked does not take ({mask.dtype}, {body.dtype}, {other.dtype})")
    if mask.op == "const":
        return body if mask.attr else other
    return body if body is other else _intern("masked", (mask, body, other), body.dtype)


def random(kind: str, seed: Expr, counter: Expr, dtype: str = "f32") -> Expr:
    """Element `counter` of the stream keyed by `seed`: "uniform" in [0, 1) or "normal"."""
    if (seed.dtype, counter.dtype) != ("i64", "i64") or kind not in ("uniform", "normal"):
        raise TypeError(f"random {kind!r} of ({seed.dtype}, {counter.dtype})")
    return _intern("random", (seed, counter), dtype, kind)


# -- operators -------------------------------------------------------------------------------------


def op(name: str, *args: Expr) -> Expr:
    """An operator of `scalar.OPS`, folded where the result is exactly known."""
    dtype = scalar.result_dtype(name, tuple([a.dtype for a in args]))
    folded = _fold(name, args, dtype)
    return folded if folded is not None else _intern(name, args, dtype)


def _fold(name: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    if name in scalar.EXACT and all(a.op == "const" for a in args):
        return const(scalar.apply(name, dtype, *[a.attr for a in args]), dtype)
    if dtype == "i64" and name in _OF_INDICES and (position := _fold_index(name, *args)) is not None:
        return index(position)
    if OPS[name].rule == "compare":
        return _fold_compare(name, *args)
    rule = _RULES.get(name)
    return rule(*args) if rule is not None else None


def _known_index(value: Expr) -> Index | None:
    if value.op == "index":
        return value.attr
    return Index.of(value.attr) if value.op == "const" and value.dtype == "i64" else None


#: What indices are closed under, where the other operand is a number for some of them.
_OF_INDICES = frozenset(("add", "sub", "mul", "neg", "floordiv", "mod", "minimum", "maximum"))


def _fold_index(name: str, *args: Expr) -> Index | None:
    found = [_known_index(arg) for arg in args]
    if None in found:
        return None
    a, b = found[0], found[-1]
    assert a is not None and b is not None
    number = b.const if not b.terms and type(b.const) is int else 0
    match name:
        case "add":
            result = a + b
        case "sub":
            result = a - b
        case "neg":
            result = a * -1
        case "mul":
            if a.terms and b.terms:
                return None
            result = b * a.const if not a.terms else a * b.const
        case "floordiv" | "mod":
            if number <= 0 or not a.nonnegative:
                return None
            result = a // number if name == "floordiv" else a % number
        case _:
            low, high = (a - b).bounds()
            if type(low) is not int or type(high) is not int or low < 0 < high:
                return None
            result = a if (low >= 0) == (name == "maximum") else b
    return result if holds(result) else None


def _fold_compare(name: str, left: Expr, right: Expr) -> Expr | None:
    """Comparisons of indices that their bounds decide."""
    a, b = _known_index(left), _known_index(right)
    if a is None or b is None or left.dtype != "i64":
        return None
    low, high = (a - b).bounds()
    if type(low) is not int or type(high) is not int:
        return _fold_open(name, low, high)
    known = {
        "lt": (high < 0, low >= 0), "le": (high <= 0, low > 0), "gt": (low > 0, high <= 0), "ge": (low >= 0, high < 0),
        "eq": (low == high == 0, low > 0 or high < 0), "ne": (low > 0 or high < 0, low == high == 0),
    }[name]  # fmt: skip
    return const(known[0], "bool") if any(known) else None


def _fold_open(name: str, low: Bound, high: Bound) -> Expr | None:
    """A comparison with a difference of symbolic bounds."""
    below, above, least, most = less(high, 0), less(0, low), less(-1, low), less(high, 1)
    zero = low == high == 0
    known = {
        "lt": (below, least), "le": (most, above), "gt": (above, most), "ge": (least, below),
        "eq": (zero, below or above), "ne": (below or above, zero),
    }[name]  # fmt: skip
    return const(known[0], "bool") if any(known) else None


def _is(value: Expr, number: float, negative: bool = False) -> bool:
    """Whether it is this constant, with the sign of a zero."""
    if value.op != "const" or value.attr != number:
        return False
    return value.dtype not in FLOATS or (math.copysign(1.0, value.attr) < 0) == (negative or number < 0)


def _add(a: Expr, b: Expr) -> Expr | None:
    for x, y in ((a, b), (b, a)):
        if _is(y, 0, negative=True):  # x + (-0.0) is x; x + 0.0 is not, for x = -0.0
            return x
    return None


def _mul(a: Expr, b: Expr) -> Expr | None:
    for x, y in ((a, b), (b, a)):
        if _is(y, 1):
            return x
        if _is(y, 0) and y.dtype not in FLOATS:
            return y
    return None


def _same(a: Expr, b: Expr) -> Expr | None:
    return a if a is b else None


def _logic(neutral: bool) -> Callable[[Expr, Expr], Expr | None]:
    def rule(a: Expr, b: Expr) -> Expr | None:
        for x, y in ((a, b), (b, a)):
            if y.op == "const" and y.dtype == "bool":
                return x if y.attr is neutral else y
        return _same(a, b)

    return rule


def _where(mask: Expr, a: Expr, b: Expr) -> Expr | None:
    if mask.op == "const":
        return a if mask.attr else b
    if mask.op == "not":
        return op("where", mask.args[0], b, a)
    if a.dtype == "bool" and a.op == b.op == "const" and a is not b:
        return mask if a.attr else op("not", mask)
    return _same(a, b)


_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


def _not(a: Expr) -> Expr | None:
    if a.op in ("eq", "ne") or (a.op in _OPPOSITE and a.args[0].dtype not in FLOATS):  # NaN is not less, nor more
        return op(_OPPOSITE[a.op], *a.args)
    return a.args[0] if a.op == "not" else None


def _undo(name: str) -> Callable[[Expr], Expr | None]:
    return lambda a: a.args[0] if a.op == name else None


_RULES: dict[str, Callable[..., Expr | None]] = {
    "add": _add,
    "sub": lambda a, b: a if _is(b, 0) else None,
    "mul": _mul,
    "div": lambda a, b: a if _is(b, 1) else None,
    "neg": _undo("neg"),
    "not": _not,
    "abs": lambda a: a if a.op == "abs" and a.dtype in FLOATS else None,
    "minimum": _same,
    "maximum": _same,
    "and": _logic(True),
    "or": _logic(False),
    "where": _where,
}


# -- walking and rewriting -------------------------------------------------------------------------


#: By a root, what is below it: each stage asks for that of each nest.
_ORDERS: dict[Expr, tuple[Expr, ...]] = tables.table()


def postorder(roots: Sequence[Expr]) -> tuple[Expr, ...]:
    """Every node once, operands first (those inside indirect indices too). Deterministic."""
    if len(roots) != 1:
        return tuple(_ordered(roots))
    found = _ORDERS.get(roots[0])
    if found is None:
        found = _ORDERS[roots[0]] = tuple(_ordered(roots))
    return found


def _ordered(roots: Sequence[Expr]) -> list[Expr]:
    seen: set[Expr] = set()
    order: list[Expr] = []
    stack = [*reversed(roots)]
    while stack:
        node = stack[-1]
        if node not in seen:
            missing = [child for child in node.children if child not in seen]
            if missing:
                stack += missing[::-1]
                continue
            seen.add(node)
            order.append(node)
        stack.pop()
    return order


def loads(roots: Sequence[Expr]) -> list[Expr]:
    """The distinct loads, in order of first use."""
    return [node for node in postorder(roots) if node.op == "load"]


def scans(roots: Sequence[Expr]) -> bool:
    """Whether there is a scan among these nodes and what they are made of."""
    return any(node.op == "scan" for node in postorder(roots))


class Rewriter:
    """Rewrites expressions bottom up with one memo: axes to indices, and loads through `on_load`.

    `on_load(buffer, index, dtype)` gets the index after substitution and gives the replacement; reductions are kept,
    their bodies rewritten.
    """

    __slots__ = ("mapping", "memo", "on_load")

    def __init__(
        self,
        mapping: Mapping[Axis, Index],
        on_load: Callable[[str, Index, str], Expr] = load,
        memo: dict[Expr, Expr] | None = None,
    ) -> None:
        self.mapping, self.on_load = mapping, on_load
        self.memo: dict[Expr, Expr] = {} if memo is None else memo

    def __call__(self, root: Expr) -> Expr:
        memo = self.memo
        found = memo.get(root)
        if found is not None:
            return found
        stack = [root]
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            missing = [child for child in node.children if child not in memo]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            memo[node] = self._rebuild(node)
        return memo[root]

    def index(self, position: Index) -> Index:
        """The rewritten index."""
        return position.substitute(self.mapping, self)

    def _rebuild(self, node: Expr) -> Expr:
        if node.op == "load":
            buffer, position = node.attr
            return self.on_load(buffer, self.index(position), node.dtype)
        if node.op == "index":
            return index(self.index(node.attr))
        if not node.args:
            return node
        args = tuple([self.memo[a] for a in node.args])
        return node if args == node.args else rebuild(node, args)


def rebuild(node: Expr, args: tuple[Expr, ...]) -> Expr:
    """The same operation on other operands, through its constructor."""
    match node.op:
        case "cast":
            made = cast(args[0], node.dtype)
            return keep(made) if node.attr == KEPT else made
        case "bitcast":
            return bitcast(args[0], node.dtype)
        case "known":
            return known(args[0], *node.attr)
        case "reduce":
            return reduce(node.attr, args[0])
        case "scan":
            return scan(node.attr, args[0])
        case "masked":
            return masked(*args)
        case "random":
            return random(node.attr, args[0], args[1], node.dtype)
        case _:
            return op(node.op, *args)
