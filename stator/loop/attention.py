"""Attention as one kernel, forward or backward: what it computes, as data. It is no nest of loops over one space.

    s[m, n] = score(scale * sum(q[m, d] * k[n, d]), batch, head, m, n)        -inf where causal and n > m
    o[m, e] = sum(exp(s[m, n] - l[m]) * v[n, e]),  l[m] = log(sum(exp(s[m, n])))

Backward, with g the gradient of o, p[m, n] = exp(s[m, n] - l[m]) and delta[m] = sum(g[m, e] * o[m, e]):

    ds[m, n] = p[m, n] * (sum(g[m, e] * v[n, e]) - delta[m]),  dv = pᵀ g,  dk = scale * dsᵀ q,  dq = scale * ds k

`score` is an expression of a load from the buffer `SCORE`, over the axes of `AXES`; it may load from other buffers,
which stand behind the tensors among the parameters. What it adds or masks has no gradient here.
The method is that of Dao et al., "FlashAttention-2" (2023): rows are walked in blocks of keys with a running maximum.
Neighbours: `lowering/attention.py` makes it, `kernel/attention.py` decides, `codegen/triton/attention.py` prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stator.loop.expr import Expr, Rewriter, cast, const, load, op, postorder
from stator.loop.index import ZERO, Axis, Index
from stator.loop.scalar import FLOATS, OPS
from stator.sizes import Extent

#: Positions below it, sign aside, have 32 bits.
SHORT: Final = 1 << 31
#: Elements of a row, at most.
WIDEST: Final = 256
#: What `score` reads where the scaled product stands.
SCORE: Final = "score"
#: A number for each row of queries, as these are.
EXACT: Final = "exact"
PER_ROW: Final = ("l", "delta", EXACT)
#: The tensors of each kind of kernel, in the order of its parameters; those after the bar are written.
TENSORS: Final = {
    "forward": (("q", "k", "v"), ("o", "l")),
    "keys": (("q", "k", "v", "g", "l", "delta"), ("dk", "dv")),
    "queries": (("q", "k", "v", "g", "l", "delta"), ("dq",)),
}


@dataclass(frozen=True, slots=True)
class Attention:
    """One kernel; strides are in elements, by tensor, along batches, heads, rows and elements of a row.

    `kind` is a key of `TENSORS`; each of the `groups` heads of queries that follow one another share a head of keys.
    How many batches and rows there are may be symbolic.

    Where values have much in common, and rows see many keys alike, both terms of ds nearly cancel, and what is left is
    as good as `o` was rounded. But a row of ds sums to zero, as one of p sums to one: what it does sum to is what delta
    is off by. So the kernel of queries that is `exact` finds that beside dq, and gives the delta that keys take then:

        off[m] = sum(ds[m, n]),  dq = scale * (ds k - off * p k),  exact = delta + off
    """

    kind: str
    dtype: str
    batches: Extent
    heads: int
    groups: int
    queries: Extent
    keys: Extent
    width: int  # of a row of q and k
    depth: int  # of a row of v
    strides: tuple[tuple[str, tuple[Extent, ...]], ...]
    scale: float
    causal: bool = False
    score: Expr | None = None
    spares: int = 0  # parameters behind all others that it leaves alone
    logs: Extent = 0  # rows of `l`, of which those behind the last are +inf
    exact: bool = False  # of queries: whether it also gives an exact `delta`

    @property
    def axes(self) -> tuple[Axis, Axis, Axis, Axis]:
        """Batches, heads, rows of queries and rows of keys, as `score` knows them."""
        return axes(self.batches, self.heads, self.queries, self.keys)

    def stride(self, tensor: str) -> tuple[Extent, ...]:
        """The strides of a tensor."""
        return dict(self.strides)[tensor]

    @property
    def tensors(self) -> tuple[str, ...]:
        """Its tensors, in the order of its parameters, but for what `score` loads."""
        read, _ = TENSORS[self.kind]
        return read + self.written

    @property
    def written(self) -> tuple[str, ...]:
        """The tensors that it writes."""
        _, written = TENSORS[self.kind]
        return (*written, EXACT) if self.exact else written

    @property
    def loads(self) -> tuple[str, ...]:
        """The buffers that `score` loads from, in order."""
        nodes = postorder([self.score]) if self.score is not None else ()
        return tuple(dict.fromkeys([node.attr[0] for node in nodes if node.op == "load" and node.attr[0] != SCORE]))

    @property
    def extents(self) -> Iterator[Extent]:
        """What it is written with, beside what `score` is."""
        yield from (self.batches, self.queries, self.keys, self.logs)
        for _, stride in self.strides:
            yield from stride

    def text(self) -> str:
        """The canonical print."""
        sizes = f"{self.batches}×{self.heads}/{self.groups}×{self.queries}×{self.keys}×{self.width}/{self.depth}"
        strides = ", ".join([f"{name} {'/'.join(map(str, steps))}" for name, steps in self.strides])
        causal = " causal" if self.causal else ""
        logs = f", {self.logs} logarithms" if self.logs != self.queries else ""
        exact = " exact" if self.exact else ""
        return f"attention {self.kind}{exact} {self.dtype} {sizes} by {self.scale!r}{causal}{logs}; {strides}"


def axes(batches: Extent, heads: int, queries: Extent, keys: Extent) -> tuple[Axis, Axis, Axis, Axis]:
    """The axes of scores."""
    return Axis("b", batches), Axis("h", heads), Axis("m", queries), Axis("n", keys)


def given() -> Expr:
    """The scaled product, as `score` reads it."""
    return load(SCORE, ZERO, "f32")


def shortened(score: Expr) -> Expr:
    """The same score, with positions of 32 bits, where these hold them, that are compared or become floats.

    It is computed of each pair of rows, and a GPU takes several times as long for 64 bits.
    """
    return _Shorter({})(score)


def apart(score: Expr, m: Axis, n: Axis) -> tuple[Expr, bool]:
    """What is left of a score, and whether no row sees a later one: then blocks behind the diagonal are not walked.

    where(n <= m and c, x, -inf)   -->   where(c, x, -inf), True
    """
    if score.op == "add" and score.args[0].op == "load" and (kept := _chosen(score.args[1])) is not None:
        score = op("where", kept, score.args[0], const(-math.inf, "f32"))  # a mask that was made a bias
    if score.op != "where" or not _is_nothing(score.args[2]):
        return score, False
    kept, value, nothing = score.args
    parts = _conjuncts(kept)
    causal = [part for part in parts if (ahead := _ahead(part, m, n)) is not None and ahead <= 0]
    rest = [part for part in parts if part not in causal or _ahead(part, m, n) != 0]
    for part in rest[1:]:
        rest[0] = op("and", rest[0], part)
    return op("where", rest[0], value, nothing) if rest else value, bool(causal)


def _chosen(bias: Expr) -> Expr | None:
    """The condition under which a bias is 0, where it is -inf otherwise."""
    while bias.op == "cast":
        bias = bias.args[0]
    if bias.op != "where" or not _is_nothing(bias.args[2]) or bias.args[1].op != "const" or bias.args[1].attr != 0:
        return None
    return bias.args[0]


def _is_nothing(value: Expr) -> bool:
    while value.op == "cast":
        value = value.args[0]
    return value.op == "const" and value.attr == -math.inf


def _conjuncts(condition: Expr) -> list[Expr]:
    return [part for arg in condition.args for part in _conjuncts(arg)] if condition.op == "and" else [condition]


def _ahead(condition: Expr, m: Axis, n: Axis) -> int | None:
    """By how many rows a key may be ahead of its query, where that is all that a condition says."""
    if condition.op not in ("ge", "gt", "le", "lt") or any(arg.op not in ("index", "const") for arg in condition.args):
        return None
    left, right = (Index.of(arg.attr) for arg in condition.args)
    first, second = (left, right) if condition.op in ("ge", "gt") else (right, left)
    least = first - second - (1 if condition.op in ("gt", "lt") else 0)  # which is not negative
    ahead = least - m.index + n.index
    return ahead.const if not ahead.terms and type(ahead.const) is int else None


class _Shorter(Rewriter):
    __slots__ = ()

    def _rebuild(self, node: Expr) -> Expr:
        short = all(map(_is_short, node.args))
        if node.op == "cast" and node.dtype in FLOATS and short:
            return cast(cast(node.args[0], "i32"), node.dtype)
        if node.op in OPS and OPS[node.op].rule == "compare" and short:
            return op(node.op, *[cast(arg, "i32") for arg in node.args])
        return super()._rebuild(node)


def _is_short(value: Expr) -> bool:
    """Whether it is a number, or a position whose bounds are, that 32 bits hold."""
    if value.op == "const" and value.dtype == "i64":
        return -SHORT <= value.attr < SHORT
    if value.op != "index":
        return False
    return all(type(bound) is int and -SHORT <= bound < SHORT for bound in value.attr.bounds())
