"""Masks of attention that are known without their data: those that leave everything, and those that are causal.

Libraries of models make masks of positions (`arange`) by comparisons, also where all of it is left; in eager they look
at the mask and do without. On a GPU PyTorch's kernels for attention take no mask whose rows are one element, and are
slower with any. So a mask of integers that are linear in the position is looked at here: where the comparison holds at
all positions there is no mask, where it says that no query sees a later key it is `is_causal`. Whatever is not seen
through stays. Nothing is evaluated, so sizes may be symbolic.
Neighbours: `rewrite.py` (patterns in general), `normal.py` (what calls are).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import fx
from torch.nn.functional import scaled_dot_product_attention

from stator.base import log
from stator.base.device import HOST
from stator.fake.symbolic import extents
from stator.graphs.nodes import module
from stator.patterns.normal import Form, form, name_of, number, tensor, writes
from stator.sizes import Extent

#: The parameters of attention that may be given by position.
_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_NAME = "mask of positions"


class Linear(NamedTuple):
    """Integers: at each position the offset and the sum of its indices, each times its step."""

    offset: int
    steps: tuple[int, ...]


class Holds(NamedTuple):
    """Where integers are not negative."""

    of: Linear


#: What is known of a tensor; True of one that is true everywhere.
Known: TypeAlias = Linear | Holds | bool | None


def simplify(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph without masks that can be done without; the same object where there is none."""
    found = _found(gm.graph)
    if not found:
        return gm
    graph, nodes = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in gm.graph.nodes:
        nodes[node] = made = graph.node_copy(node, nodes.__getitem__)
        if node in found:
            given = dict(zip(_PARAMETERS[3:], made.args[3:], strict=False))
            made.args = made.args[:3]
            made.kwargs = {**given, **made.kwargs, "attn_mask": None, "is_causal": found[node]}
            log.record(log.PATTERN, name=_NAME, graph=type(gm).__name__, file="", line=0, refused="")
    made_module = module(graph, type(gm).__name__, gm)
    made_module.meta.update(gm.meta)
    return made_module


def _found(graph: fx.Graph) -> dict[fx.Node, bool]:
    """The calls of attention whose mask leaves everything, or is causal: which of the two it is."""
    calls = [node for node in graph.nodes if node.target is scaled_dot_product_attention]
    masks = {node: mask for node in calls if isinstance(mask := argument(node, "attn_mask"), fx.Node)}
    if not masks or any(writes(node) and _is_whole(node.args[0]) for node in graph.nodes if node.args):
        return {}
    known = _Reader()
    found = {}
    for node, mask in masks.items():
        query = tensor(node.args[0] if node.args else None)
        if query is None or query.device.type == HOST or argument(node, "is_causal"):
            continue
        said = known(mask)
        if said is True or (isinstance(said, Holds) and _always(said.of, _size(mask))):
            found[node] = False
        elif isinstance(said, Holds) and _is_causal(said.of, _size(mask)):
            found[node] = True
    return found


def argument(node: fx.Node, name: str) -> Any:
    """An argument of a call of attention, None where it is not given."""
    place = _PARAMETERS.index(name)
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def _is_whole(value: Any) -> bool:
    """Whether it is a tensor of integers or truth values, which masks are made of."""
    found = tensor(value)
    return found is not None and not found.is_floating_point() and not found.is_complex()


def _size(node: fx.Node) -> tuple[Extent, ...]:
    value = tensor(node)
    assert value is not None
    return extents(value.shape)


def _always(linear: Linear, size: tuple[Extent, ...]) -> bool:
    """Whether it is nowhere negative."""
    least = linear.offset
    for step, n in zip(linear.steps, size, strict=True):
        if step < 0:
            if not isinstance(n, int):
                return False
            least += step * (n - 1)
    return least >= 0


def _is_causal(linear: Linear, size: tuple[Extent, ...]) -> bool:
    """Whether it is not negative where the key is no later than the query, of as many keys as queries."""
    *outer, query, key = linear.steps if len(size) > 1 else (0, 0)
    return not any(outer) and query == -key > linear.offset >= 0 and size[-1] == size[-2]


# -- what is known of a tensor -----------------------------------------------------------------------------------------


class _Reader:
    """Reads nodes, each once."""

    def __init__(self) -> None:
        self.known: dict[fx.Node, Known] = {}

    def __call__(self, value: Any) -> Known:
        if not isinstance(value, fx.Node):
            return Linear(value, ()) if type(value) is int else value is True or None
        if value not in self.known:
            self.known[value] = self._read(value) if _is_whole(value) else None
        return self.known[value]

    def _read(self, node: fx.Node) -> Known:
        if (whole := number(node)) is not None:
            return True if whole is True else Linear(whole, ()) if type(whole) is int else None
        found = form(node)
        rule = _RULES.get(name_of(node) if found is None or found.op not in _RULES else found.op)
        made = rule(self, node, found) if rule is not None and found is not None else None
        size = _size(node)
        match made:
            case Linear():
                return _fitted(made, size)
            case Holds(of):
                return Holds(_fitted(of, size))
        return made


def _fitted(linear: Linear, size: tuple[Extent, ...]) -> Linear:
    """The same with a step for each dim of a size, 0 along dims of one element."""
    steps = (*[0] * (len(size) - len(linear.steps)), *linear.steps)
    return Linear(linear.offset, tuple([0 if n == 1 else step for step, n in zip(steps, size, strict=True)]))


def _arange(known: _Reader, node: fx.Node, found: Form) -> Known:
    args = node.args
    start, step = (args[0] if len(args) > 1 else 0), (args[2] if len(args) > 2 else 1)  # the size says where it ends
    if type(start) is not int or type(step) is not int or {"start", "end", "step"} & {*node.kwargs}:
        return None
    return Linear(start, (step,))


def _ones(known: _Reader, node: fx.Node, found: Form) -> Known:
    value = tensor(node)
    assert value is not None
    return True if value.dtype is torch.bool else Linear(1, ())


def _same(known: _Reader, node: fx.Node, found: Form) -> Known:
    said = known(found.args[0])
    value = tensor(node)
    assert value is not None
    kept = (value.dtype is torch.bool) == (said is True or isinstance(said, Holds))
    return said if kept and (value.dtype in (torch.bool, torch.int64, torch.int32)) else None


def _sum(known: _Reader, node: fx.Node, found: Form) -> Known:
    left, right = known(found.args[0]), known(found.args[1])
    if not isinstance(left, Linear) or not isinstance(right, Linear):
        return None
    return _added(left, right, 1 if found.op == "add" else -1)


def _added(left: Linear, right: Linear, times: int) -> Linear:
    rank = max(len(left.steps), len(right.steps))
    pairs = zip(*[(*[0] * (rank - len(x.steps)), *x.steps) for x in (left, right)], strict=True)
    return Linear(left.offset + times * right.offset, tuple([a + times * b for a, b in pairs]))


def _compared(known: _Reader, node: fx.Node, found: Form) -> Known:
    """`a >= b` holds where `a - b` is not negative; `a > b` where `a - b - 1` is not."""
    left, right = known(found.args[0]), known(found.args[1])
    if not isinstance(left, Linear) or not isinstance(right, Linear):
        return None
    if found.op in ("le", "lt"):
        left, right = right, left
    strict = found.op in ("lt", "gt")
    return Holds(_added(_added(left, right, -1), Linear(int(strict), ()), -1))


def _both(known: _Reader, node: fx.Node, found: Form) -> Known:
    operands = [arg for arg in found.args[:2] if not _is_true(known, arg)]
    if len(operands) == 2:
        return None
    return known(operands[0]) if operands else True


def _either(known: _Reader, node: fx.Node, found: Form) -> Known:
    return True if any(_is_true(known, arg) for arg in found.args[:2]) else None


def _is_true(known: _Reader, node: Any) -> bool:
    said = known(node)
    return said is True or (isinstance(said, Holds) and _always(said.of, _size(node)))


def _reshaped(known: _Reader, node: fx.Node, found: Form) -> Known:
    """Dims of one element more, or less."""
    source = found.args[0]
    said = known(source)
    if said is None or said is True:
        return said
    of = said.of if isinstance(said, Holds) else said
    assert isinstance(of, Linear)
    before, after = _size(source), _size(node)
    if [n for n in before if n != 1] != [n for n in after if n != 1]:
        return None
    steps = iter([step for step, n in zip(of.steps, before, strict=True) if n != 1])
    made = Linear(of.offset, tuple([0 if n == 1 else next(steps) for n in after]))
    return Holds(made) if isinstance(said, Holds) else made


def _expanded(known: _Reader, node: fx.Node, found: Form) -> Known:
    """Along dims of one element the step is 0, so it is where they are repeated."""
    return known(found.args[0])


def _permuted(known: _Reader, node: fx.Node, found: Form) -> Known:
    source, order = found.args
    said = known(source)
    match said:
        case Linear(offset, steps):
            return Linear(offset, tuple([steps[dim] for dim in order]))
        case Holds(Linear(offset, steps)):
            return Holds(Linear(offset, tuple([steps[dim] for dim in order])))
    return said


_RULES: dict[str, Callable[[_Reader, fx.Node, Form], Known]] = {
    "arange": _arange, "ones": _ones, "new_ones": _ones, "ones_like": _ones, "same": _same, "to": _same,
    "add": _sum, "sub": _sum, "lt": _compared, "le": _compared, "gt": _compared, "ge": _compared,
    **dict.fromkeys(("and", "and_", "logical_and", "bitwise_and"), _both),
    **dict.fromkeys(("or", "or_", "logical_or", "bitwise_or"), _either),
    "reshape": _reshaped, "expand": _expanded, "permute": _permuted,
}  # fmt: skip
