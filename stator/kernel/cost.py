"""What kernels cost, in additions of one element.

Decisions about lanes, unrolling and threads compare it. Neighbour: `decisions`.
"""

from __future__ import annotations

from stator.loop.kernel import Kernel
from stator.sizes import Extent

#: What an operator costs beside an addition; the rest cost 1.
COST = {
    "exp": 14, "exp2": 14, "expm1": 16, "log": 20, "log2": 22, "log10": 40, "log1p": 26, "sigmoid": 22, "tanh": 34,
    "erf": 38, "sin": 24, "cos": 24, "div": 4, "reciprocal": 4, "sqrt": 6, "rsqrt": 10, "random": 60, "floordiv": 40,
    "mod": 40, "pow": 70, "tan": 50, "asin": 36, "acos": 36, "atan": 30, "atan2": 40, "sinh": 36, "cosh": 26,
    "erfc": 80, "scan": 8, "known": 0, "lgamma": 500, "erfinv": 40,
}  # fmt: skip
ITEM_COST = 3  # what a load or store of one element costs beside an addition


def total_cost(kernel: Kernel) -> Extent:
    """An estimate of the work, in additions of one element."""
    points, inner = kernel.outer_numel, kernel.reduce_numel
    cost: Extent = 0
    for node in kernel.nodes:
        each = ITEM_COST if node.op == "load" else COST.get(node.op, 1)
        cost += each * (inner if node in kernel.inner or node.op == "reduce" else 1)
    cost += ITEM_COST * sum(inner if store.space == "inner" else 1 for store in kernel.stores)
    return cost * points
