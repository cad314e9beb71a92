"""What the call of a node does beside giving its value: views of memory, random numbers, checks of data, writes.

Passes and partitions ask this before they drop, merge, move or repeat a call. Neighbours: `nodes.py` (makes them),
`fake/execute.py` (reads the facts of an operator from its schema).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from stator.fake.execute import argument, plan_of
from stator.fake.overloads import overload

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


def is_pure(node: fx.Node) -> bool:
    """Whether the call gives the same for the same arguments, and does nothing else."""
    target: Any = node.target
    return not isinstance(target, torch._ops.OpOverload) or plan_of(target).pure or _drops_nothing(target, node)


def draws(node: fx.Node) -> bool:
    """Whether the call takes numbers from torch's generator, which it does although nobody reads its results."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    return not _drops_nothing(target, node)


def acts(node: fx.Node) -> bool:
    """Whether the call does something although nobody reads its results: it draws random numbers, or checks data."""
    target: Any = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    checks = not target._schema.returns or (target in CHECKING and node.meta.get("phase", "forward") == "forward")
    return draws(node) or (checks and plan_of(target).pure)


def _drops_nothing(target: Any, node: fx.Node) -> bool:
    """Whether a call that writes nothing draws random numbers only for a dropout, of which there is none."""
    arguments = target._schema.arguments
    names = [parameter.name for parameter in arguments]
    if "dropout_p" not in names or any(a.alias_info is not None and a.alias_info.is_write for a in arguments):
        return False
    position = names.index("dropout_p")
    rate = argument(target, node.args, node.kwargs, position)
    return bool((arguments[position].default_value if rate is None else rate) == 0)


def root(node: fx.Node) -> fx.Node:
    """The node in whose memory the node's value lies."""
    while is_view(node):
        node = node.args[0]  # type: ignore[assignment]
    return node
