"""Results whose state in autograd a compiled graph cannot give them; it is restored after the graph has run.

A tensor made in inference mode inside of the program becomes an inference tensor. One whose history was freed inside
(by `backward()`) leaves the graph detached, and gets a history that raises what PyTorch raises for a freed one. One on
which the program called `requires_grad_()` leaves without it, and the call is repeated, be it on the base that a result
is a view of; if other results have it in their history, the graph ends before the call; so it does before a function
that `torch.vmap` maps, whose tensors only it can use.
Neighbours: `values/autograd/gradients.py` (makes such tensors), `rewrite.py` (calls what remakes them), `frames.py`.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from stator.base.errors import DataDependent, GraphBreak, Unsupported
from stator.graphs import composite
from stator.graphs.lineage import RECORDED, UNRECORDED, creation, takes_gradients, tells_history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import fx

    from stator.capture.graph import GraphBuilder, Late


class Change(NamedTuple):
    """What the graph gives in place of a node, and what makes of it the tensor that the program has."""

    node: fx.Node
    restore: Callable[[torch.Tensor], torch.Tensor]


class OutputRefused(GraphBreak):
    """A tensor cannot leave the graph: it has to end before the instruction number `step` of the frame."""

    def __init__(self, reason: str, cause: fx.Node) -> None:
        super().__init__(reason)
        self.location = cause.meta["location"]
        self.step: int = cause.meta["step"]


class LateRefused(OutputRefused):
    """What is done after the graph, such as giving a leaf another flag, cannot be, as the graph uses it afterwards."""

    def __init__(self, late: Late, reason: str, hint: str = "") -> None:
        GraphBreak.__init__(self, reason, hint)
        self.location, self.step = late.location, late.step


class _Ended(torch.autograd.Function):
    """Stands for the history of a tensor that has been freed."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor, why: str) -> torch.Tensor:
        ctx.why = why
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(ctx.why)


def ended(why: str, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with such a history."""
    with torch.enable_grad():
        made: torch.Tensor = _Ended.apply(torch.empty(0, requires_grad=True), tensor, why)  # type: ignore[no-untyped-call]
        return made


def inferred(tensor: torch.Tensor) -> torch.Tensor:
    """An inference tensor over the memory of the tensor."""
    with torch.inference_mode():
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def older_view(enabled: bool, tensor: torch.Tensor) -> torch.Tensor:
    """A view made in that grad mode, before the tensor that it is a view of began to take gradients."""
    with torch.set_grad_enabled(enabled):
        view: torch.Tensor = torch.ops.aten.alias(tensor)
    tensor.requires_grad_()
    return view


def changes(graph: GraphBuilder, outputs: Sequence[fx.Node]) -> dict[fx.Node, Change]:
    """For each output that has to be changed, how; raises `OutputRefused` where that is impossible."""
    refuse_used_later(graph)
    if not graph.made and not graph.differentiated and graph.entered is None:
        return {}
    found: dict[fx.Node, Change] = {}
    left = []
    for node in outputs:
        fake = node.meta["val"]
        if graph.entered is None or not isinstance(fake, torch.Tensor):
            continue
        if id(fake) in graph.plain_views:
            raise OutputRefused("a view that was made in inference mode of a tensor that was not", graph.entered)
        if fake.is_inference():
            found[node] = detached(graph, node, outputs, inferred, graph.entered)
    for node in outputs:
        fake = node.meta["val"]
        if not isinstance(fake, torch.Tensor) or not fake.requires_grad:
            continue
        if not tells_history(fake):
            raise OutputRefused("a view that autograd has not recorded, of a tensor that was written to since", node)
        why = end_of_history(graph, fake)
        if why:
            found[node] = detached(graph, node, outputs, partial(ended, why), differentiating(graph))
        elif fake.grad_fn is None and not takes_gradients(fake):
            if id(fake._base) in graph.made:
                found[node] = detached(graph, node, outputs, view_like(graph, fake), granting(graph, fake._base))
        elif id(fake) not in graph.made or fake.grad_fn is not None:  # a write has made it a view of something
            left.append(node)
    reached = {id(leaf) for leaf in leaves_of([node.meta["val"] for node in left])}
    for node in outputs:
        fake = node.meta["val"]
        if id(fake) in graph.made and takes_gradients(fake) and node not in found:
            cause = granting(graph, fake)
            if id(fake) in reached:
                raise OutputRefused(
                    "requires_grad_() on a tensor whose gradient may be asked for after the graph", cause
                )
            found[node] = detached(graph, node, outputs, torch.Tensor.requires_grad_, cause)
    for node in left if graph.made else ():
        if all(id(leaf) in graph.made for leaf in leaves_of([node.meta["val"]])):
            cause = next(all_granting(graph))
            raise OutputRefused("requires_grad_() makes the only tensor that takes gradients", cause)
    return found


def refuse_used_later(graph: GraphBuilder) -> None:
    """Raises `LateRefused` for what is changed at the end of the graph, but used after the change in it."""
    for node, late in sorted(graph.late.items(), key=lambda item: item[1].step):
        if frozenset(node.users) - late.users or graph.asked() > late.asked:
            what = "an input or parameter that the graph uses before and after it"
            raise LateRefused(late, f"requires_grad_() on, or .data of, {what}")
    state = graph.late_state
    if state is not None and graph.mode.draws > state.asked:
        hint = "give the operators a torch.Generator of their own"
        raise LateRefused(state, "the random state is set between random numbers of one graph", hint)


def refuse_leaked(graph: GraphBuilder, outputs: Sequence[fx.Node]) -> None:
    """Raises `OutputRefused` if a tensor of a mapped function, one of a part of the batch, is used behind it."""
    if not graph.mapped:
        return
    used = [*outputs, *(source for node in graph.graph.nodes for source in node.all_input_nodes)]
    lost = next((node for node in used if node._erased), None)
    if lost is not None:
        raise OutputRefused("a tensor of a function that torch.vmap maps is used outside of it", lost)


def end_of_history(graph: GraphBuilder, fake: Any) -> str:
    """What PyTorch says if somebody asks for a tensor's gradients after the graph; nothing if it gives them."""
    if not graph.differentiated or fake.grad_fn is None:
        return ""
    leaves = leaves_of([fake])
    if not leaves:  # it leads nowhere
        return ""
    try:
        ones = graph.run(torch.ones_like, (fake.detach(),), {})
        graph.run(composite.gradients, ((fake,), leaves, (ones,), True, False, True, True), {})
    except RuntimeError as error:
        return str(error)
    except (Unsupported, DataDependent):
        return ""
    return ""


def detached(
    graph: GraphBuilder,
    node: fx.Node,
    outputs: Sequence[fx.Node],
    restore: Callable[[torch.Tensor], torch.Tensor],
    cause: fx.Node,
) -> Change:
    """The tensor without its history; nothing else that lives on may share its memory, or autograd would know it."""
    fake = node.meta["val"]
    others = [other.meta["val"] for other in outputs if other is not node] + [leaf.fake for leaf in graph.leaves()]
    if any(share(fake, other) for other in others):
        raise OutputRefused("a result whose place in autograd is its own shares its memory with another tensor", cause)
    location = node.meta["location"]
    return Change(graph.call("call_method", "detach", ([node], {}), ([fake], {}), location)[0], restore)


def view_like(graph: GraphBuilder, fake: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """What makes a view of a tensor that the program made take gradients later, which says that it requires them."""
    if creation(fake) not in (RECORDED, UNRECORDED):
        raise OutputRefused(
            "one of several views of a tensor that requires_grad_() is called on", granting(graph, fake._base)
        )
    return partial(older_view, creation(fake) == RECORDED)


def share(fake: Any, other: Any) -> bool:
    """Whether two tensors are one, or views of one memory."""
    return other is fake or (fake.memory is not None and getattr(other, "memory", None) is fake.memory)


def leaves_of(tensors: Sequence[Any]) -> list[Any]:
    """The tensors that gradients of some others may be added to, those of the last steps first."""
    found = {id(tensor): tensor for tensor in tensors if takes_gradients(tensor)}
    waiting = deque(dict.fromkeys(tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None))
    seen = set(waiting)
    while waiting:
        function = waiting.popleft()
        leaf = getattr(function, "variable", None)
        if leaf is not None and leaf.requires_grad:  # the program may have called requires_grad_(False) since
            found[id(leaf)] = leaf
        parents = [parent for parent, _ in function.next_functions if parent is not None and parent not in seen]
        seen.update(parents)
        waiting.extend(dict.fromkeys(parents))
    return list(found.values())


def differentiating(graph: GraphBuilder) -> fx.Node:
    """The first call that asks for gradients."""
    return next(node for node in graph.graph.nodes if node.target is torch.autograd.grad)


def all_granting(graph: GraphBuilder) -> Iterator[fx.Node]:
    """The calls that make tensors take gradients."""
    return (node for node in graph.graph.nodes if node.target == "requires_grad_")


def granting(graph: GraphBuilder, fake: Any) -> fx.Node:
    """The call that made this one so."""
    return next(node for node in all_granting(graph) if node.meta["val"] is fake)
