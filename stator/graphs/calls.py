"""What the call of a node does beside giving its value: views of memory, random numbers, checks of data, writes.

Passes, partitions and lowering ask this before they drop, merge, move or repeat a call. Neighbours: `nodes.py` (makes
them), `fake/effects.py` (the effects of operators), `fake/execute.py` (other facts of their schemas).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import fx

from stator.base.effects import Effect
from stator.fake.effects import OURS, operator_effects
from stator.fake.execute import argument, plan_of
from stator.fake.overloads import overload

#: Methods that give a tensor another geometry in place; without the underscore they give another view of it.
RESTRIDING = frozenset({"t_", "transpose_", "swapaxes_", "swapdims_", "squeeze_", "unsqueeze_", "as_strided_"})

#: Operators whose kernels raise for some values of their operands.
CHECKING = {
    overload(name)
    for name in (
        *("_linalg_svd", "_linalg_eigh", "linalg_eig", "_linalg_eigvals", "linalg_eigvals", "cholesky_inverse"),
        *("linalg_lstsq", "lu_unpack", "linalg_lu_solve", "linalg_ldl_solve", "ormqr", "linalg_householder_product"),
        *("ctc_loss.IntList", "_ctc_loss", "multi_margin_loss", "multilabel_margin_loss_forward"),
        *("max_unpool2d", "max_unpool3d", "binary_cross_entropy", "masked_scatter", "segment_reduce"),
    )
}


def is_view(node: fx.Node) -> bool:
    """Whether the node only renames memory."""
    target: Any = node.target
    return node.op == "call_function" and isinstance(target, torch._ops.OpOverload) and plan_of(target).view


def effects_of(node: fx.Node) -> tuple[Effect, ...]:
    """What the call does beside giving its value; one with effects is never dropped, and keeps its place among them."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return ()
    always = _effects_of_all(target)
    if always is not None:
        return always
    found = operator_effects(target)
    if target in CHECKING:
        return (Effect.CHECK,) if node.meta.get("phase", "forward") == "forward" else ()
    if Effect.RANDOM in found and drops_nothing(target, node.args, node.kwargs):
        return tuple([effect for effect in found if effect is not Effect.RANDOM])
    return found


@cache
def _effects_of_all(target: Any) -> tuple[Effect, ...] | None:
    """The effects that each call of an overload has, whatever is registered later; None where calls differ."""
    found = operator_effects(target)
    return None if target in CHECKING or Effect.RANDOM in found or target.namespace not in OURS else found


def may_repeat(node: fx.Node) -> bool:
    """Whether nobody sees that the call is made again, with the same arguments: it computes, and checks at most."""
    found = effects_of(node)
    return not found or found == (Effect.CHECK,)


def may_merge(node: fx.Node) -> bool:
    """Whether its value may be that of an equal call before. One without a value is called for what it does."""
    target: Any = node.target
    return may_repeat(node) and (not isinstance(target, torch._ops.OpOverload) or bool(target._schema.returns))


def drops_nothing(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call that writes nothing draws random numbers only for a dropout, of which there is none."""
    arguments = target._schema.arguments
    names = [parameter.name for parameter in arguments]
    if "dropout_p" not in names or any(a.alias_info is not None and a.alias_info.is_write for a in arguments):
        return False
    position = names.index("dropout_p")
    rate = argument(target, args, kwargs, position)
    return bool((arguments[position].default_value if rate is None else rate) == 0)


def root(node: fx.Node) -> fx.Node:
    """The node in whose memory the node's value lies."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node
