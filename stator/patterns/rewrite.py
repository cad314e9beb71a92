"""Replaces patterns in a captured graph, where nobody can tell but by the time that it takes.

What a match covers may be read by nothing else; no argument may be written to between the first covered call and the
result, nor may a mode change there; covered calls belong to one checkpointed region or to none. The replacement gives a
tensor of the same dtype and sizes; strides are restored. Invariant: the graph that capture made is left as it is, and
the new one has its placeholders and attributes.
Neighbours: `matcher.py` finds, `stator.driver` asks, `base/log.py` (PATTERN) tells what was done and what was not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.amp import autocast_mode

from stator.base import log
from stator.base.announce import announce
from stator.base.errors import InvalidPattern, PatternWarning, StatorError
from stator.fake.mode import FakeMode
from stator.fake.symbolic import extents
from stator.fake.tensor import FakeTensor, Memory, memory_of
from stator.graphs.nodes import module
from stator.patterns import attention as _attention  # noqa: F401  (fills the table)
from stator.patterns.matcher import SHOWING, Match, find
from stator.patterns.normal import RESHAPING, Form, form, is_torch, name_of, spelled, tensor, writes
from stator.patterns.pattern import Pattern, Traced, call
from stator.patterns.registry import patterns

_MODES = frozenset({torch._C._set_grad_enabled, autocast_mode._enter_autocast, autocast_mode._exit_autocast})
#: Operators of torch.nn.functional that write to buffers.
_STATEFUL = frozenset({"batch_norm", "instance_norm"})
#: What is told of a check that gives False: it matters less than what is given in words.
_NO = "its check says no"


def rewrite(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph with every pattern replaced; the same object where there is none."""
    anchors = _by_anchor()
    if not any(_worth(node, pattern) for node in gm.graph.nodes for pattern in anchors.get(name_of(node), ())):
        return gm
    if any(spelled(node) in RESHAPING for node in gm.graph.nodes):  # fakes are as they are in the end
        return gm
    name, graph = type(gm).__name__, _copied(gm.graph)
    table, changed = patterns(), False
    work = [(node, 0) for node in graph.nodes]
    for node, first in work:
        known = [] if node._erased else [p for p in anchors.get(name_of(node), ()) if _worth(node, p)]
        match = _replaced([pattern for pattern in known if table.index(pattern) >= first], node, name)
        if match is not None:  # what a replacement makes is looked at for the patterns behind it, so this ends
            work += [(made, table.index(match.pattern) + 1) for made in match.made]
            changed = True
    if not changed:
        return gm
    rewritten = module(graph, name, gm)
    rewritten.meta.update(gm.meta)
    return rewritten


def _worth(anchor: fx.Node, pattern: Pattern) -> bool:
    return pattern.worth is None or pattern.worth(anchor)


def _by_anchor() -> dict[str, list[Pattern]]:
    """The patterns by the operator that graphs are searched for; what is wrong in itself is told of once."""
    anchors: dict[str, list[Pattern]] = {}
    for pattern in patterns():
        try:
            anchors.setdefault(pattern.anchor, []).append(pattern)
        except InvalidPattern as error:
            announce(error.render(), PatternWarning)
    return anchors


def _copied(graph: fx.Graph) -> fx.Graph:
    """The same nodes, with the same facts, but that a call which gives its operand itself is read in place of it.

    So a node that is written to in place is two nodes here: what it was, and what it is from then on.
    """
    copy, nodes, latest = fx.Graph(), dict[fx.Node, fx.Node](), dict[int, fx.Node]()
    for node in graph.nodes:
        nodes[node] = made = copy.node_copy(node, lambda operand: latest.get(id(_value(operand)), nodes[operand]))
        if isinstance(_value(node), torch.Tensor):
            latest[id(_value(node))] = made
    return copy


def _value(node: fx.Node) -> Any:
    return node.meta.get("val")


def _replaced(known: list[Pattern], anchor: fx.Node, graph: str) -> Match | None:
    """What was replaced, if one of the patterns was there; of matches that are refused, the last is told."""
    refused: tuple[Match, str] | None = None
    for pattern in known:
        for match in find(pattern, anchor):
            try:
                why = _objection(match) or _put(match)
            except InvalidPattern as error:
                announce(error.render(), PatternWarning)
                break
            if not why:
                _tell(match, graph, "")
                return match
            refused = (match, why) if refused is None or why != _NO else refused
    if refused is not None:
        _tell(refused[0], graph, refused[1])
    return None


def _tell(match: Match, graph: str, refused: str) -> None:
    file, line = match.location or ("", 0)
    log.record(log.PATTERN, name=match.pattern.name, graph=graph, file=file, line=line, refused=refused)


def _objection(match: Match) -> str:
    """Why the match is not replaced, or ""."""
    covered = set(match.covered)
    for node in match.covered:
        reader = next((user for user in node.users if user not in covered and not _is_dead(user)), None)
        if node is not match.result and reader is not None and not _shows_argument(node, match):
            return f"a value inside, {node.name}, is read by {reader.name} too"
    if any(isinstance(bound, fx.Node) and bound in covered for bound in match.inputs.values()):
        return "an argument is computed by what is replaced"
    if len({node.meta.get("recompute") for node in match.covered}) > 1:
        return "it lies in two checkpointed regions"
    if why := _disturbed(match, covered):
        return why
    verdict = _verdict(match)
    return "" if verdict is True else verdict or _NO


def _is_dead(node: fx.Node) -> bool:
    """Whether the program has no use for what a call gives, which only gives that."""
    return not node.users and form(node) is not None and not writes(node) and _is_known(node)


def _is_known(node: fx.Node) -> bool:
    """Whether it is a call of PyTorch's that writes to nothing unless its name says so."""
    return node.op != "call_function" or (is_torch(node.target) and name_of(node) not in _STATEFUL)


def _verdict(match: Match) -> bool | str:
    """What the pattern's check says, which is code of the user's."""
    if match.pattern.check is None:
        return True
    try:
        return match.pattern.check(match)
    except Exception as error:
        raise InvalidPattern(match.pattern.name, f"its check raises {type(error).__name__}: {error}") from error


def _shows_argument(node: fx.Node, match: Match) -> bool:
    """Whether the node only shows what it is given, which is not computed by what is replaced."""
    covered = set(match.covered)
    found = form(node)
    while found is not None and found.op in SHOWING:
        node = found.args[0]
        if not isinstance(node, fx.Node) or node not in covered:
            return True
        found = form(node)
    return False


def _disturbed(match: Match, covered: set[fx.Node]) -> str:
    """What happens between the first covered call and the result that the order of calls may not be changed against."""
    written = any(memory.written for memory in _memories(match).values())
    for node in _between(match.result, covered):
        if node.op == "call_function" and node.target in _MODES:
            return "a mode changes inside"
        if node in covered:
            if writes(node) and not _writes_own(node, match, covered):
                return f"{node.name} writes to what others see"
        elif written and (writes(node) or not _is_known(node)):
            return f"an argument is written to, and {node.name} inside may be what does it"
    return ""


def _writes_own(node: fx.Node, match: Match, covered: set[fx.Node]) -> bool:
    """Whether a call writes to memory that covered calls have made, and that nobody reads between."""
    arguments, reader = _memories(match).values(), node
    while True:
        operand = reader.args[0]
        value = tensor(operand)
        if operand not in covered or not isinstance(value, FakeTensor) or set(operand.users) != {reader}:  # type: ignore[union-attr]
            return False
        reader, below = operand, tensor(operand.args[0])  # type: ignore[assignment, union-attr]
        if not isinstance(below, FakeTensor) or memory_of(below) is not memory_of(value):
            return all(memory_of(value) is not memory for memory in arguments)


def _between(result: fx.Node, covered: set[fx.Node]) -> Iterator[fx.Node]:
    """The nodes from the result back to the first covered one."""
    left, node = len(covered), result
    while left:
        left -= node in covered
        yield node
        node = node.prev


def _put(match: Match) -> str:
    """The replacement in place of the result, and what only that needed goes; or why it cannot stand there."""
    graph, result = match.result.graph, match.result
    kept = ("location", "step", "recompute")
    replacement = match.pattern.replaced
    emit = _Emitter(graph, {name: result.meta[name] for name in kept if name in result.meta})
    with FakeMode(), torch.no_grad(), graph.inserting_before(result):
        try:
            new = emit.all(match, replacement)
        except (RuntimeError, TypeError, ValueError, IndexError, StatorError) as error:
            emit.undo()
            return f"replace() fails there: {error}"
        before, after = match.value, new.meta["val"]
        if _shown(before) != _shown(after):
            raise InvalidPattern(match.pattern.name, f"replace() gives {_shown(after)} for {_shown(before)}")
        strides = extents(after.stride()) == extents(before.stride())
        if not strides and before.is_contiguous():
            new, strides = emit.call("call_method", "contiguous", (new,), {}), True
    if not strides or _lies_in(match, new.meta["val"]) != _lies_in(match, before):
        emit.undo()
        return "the replacement would lie in other memory" if strides else "its strides differ"
    match.made = emit.made
    result.replace_all_uses_with(new)
    for node in sorted(match.covered, reverse=True):
        if not node.users:
            graph.erase_node(node)
    return ""


def _shown(value: torch.Tensor) -> str:
    return f"{value.dtype} {extents(value.shape)}"


def _memories(match: Match) -> dict[str, Memory]:
    """Where the arguments lie."""
    return {name: memory_of(value) for name, value in match.values.items() if isinstance(value, FakeTensor)}


def _lies_in(match: Match, value: torch.Tensor) -> list[str]:
    """The arguments in whose memory a value lies."""
    assert isinstance(value, FakeTensor)
    return [name for name, memory in _memories(match).items() if memory is memory_of(value)]


class _Emitter:
    """Makes nodes with their fakes."""

    def __init__(self, graph: fx.Graph, meta: dict[str, Any]) -> None:
        self.graph = graph
        self.meta = meta
        self.made: list[fx.Node] = []

    def undo(self) -> None:
        """Take the nodes out again."""
        for node in reversed(self.made):
            self.graph.erase_node(node)

    def call(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The node of a call, or its value, where that is plain."""
        node = self.graph.create_node(kind, target, args, kwargs)
        self.made.append(node)
        value = call(node, {operand: operand.meta["val"] for operand in node.all_input_nodes})
        if not isinstance(value, torch.Tensor | list | tuple | torch.SymInt | torch.SymFloat):
            self.graph.erase_node(self.made.pop())
            return value
        node.meta.update(self.meta, val=value)
        return node

    def bound(self, value: Any) -> Any:
        """The node of what an argument stands for, or a number."""
        if not isinstance(value, Form):
            return value
        operand = self.bound(value.args[0])
        if value.op == "permute":
            return self.call("call_method", "permute", (operand, *value.args[1]), {})
        return self.call("call_function", torch.logical_not, (operand,), {})

    def all(self, match: Match, traced: Traced) -> fx.Node:
        """The replacement of a match."""
        names = zip(match.pattern.names, traced.inputs, strict=True)
        nodes = {
            node: self.bound(match.inputs[name]) if node.users or node is traced.result else None
            for name, node in names
        }
        for node in traced.graph.nodes:
            if node.op in ("call_function", "call_method"):
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), nodes.__getitem__)
                nodes[node] = self.call(node.op, node.target, args, kwargs)
        made = nodes[traced.result]
        assert isinstance(made, fx.Node)
        return made
