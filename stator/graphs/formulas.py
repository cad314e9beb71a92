"""Gradients whose formula in PyTorch asks the data, as traces: the same choice, made by `where` when the graph runs.

`prod`, `cumprod` and the `max`, `min` and `median` of a whole tensor are differentiated by one formula where a factor
is zero (or the value is NaN) and by another where not. Below a mode, which has no data, PyTorch always takes one of
them, and at zeros, infinities and NaN that is not what eager gives. `python -m tests.differential.formulas` asks every
operator whether it is one of these.

Invariant: only gradients that are not differentiated again are replaced; PyTorch's own formula is part of ours or is
dropped as dead. Neighbours: `aot/trace.py` and the engine's entry in `composite.py` run backward inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

#: (autograd's node, the gradient of its result, what PyTorch's formula gave below a mode) → the gradient.
Formula: TypeAlias = Callable[[Any, Tensor, Tensor], Tensor]


def _of_all_factors(node: Any, grad: Tensor, safe: Tensor) -> Tensor:
    """`prod()`: without zeros a quotient; with two, zeros; with one PyTorch's products of all others."""
    factors, result = node._saved_self.to(grad.dtype), node._saved_result
    if not factors.dim():
        return safe
    zeros = (factors == 0).sum()
    return torch.where(zeros == 0, grad * (result / factors).conj(), torch.where(zeros == 1, safe, 0))


def _of_factors(node: Any, grad: Tensor, safe: Tensor) -> Tensor:
    """`prod(dim)`: a quotient where there are no zeros at all."""
    factors, result = node._saved_self.to(grad.dtype), node._saved_result
    if not factors.dim():
        return safe
    if not node._saved_keepdim:
        grad, result = grad.unsqueeze(_dim(node)), result.unsqueeze(_dim(node))
    return torch.where((factors == 0).any(), safe, grad * (result / factors).conj())


def _of_running_product(node: Any, grad: Tensor, _: Tensor) -> Tensor:
    """`cumprod`: sums from behind, divided; at the first zero of a row the products without it; behind it zeros."""
    factors, products, dim = node._saved_self, node._saved_result.conj(), _dim(node)
    grad = grad.to(factors.dtype)
    if factors.numel() <= 1 or factors.shape[dim] == 1:
        return grad
    factors = factors.conj()
    zero = factors == 0
    zeros = zero.cumsum(dim)
    before = (products * grad).masked_fill(zeros != 0, 0)
    quotients = before.flip(dim).cumsum(dim).flip(dim) / factors
    first = zero & (zeros == 1)
    place = first.long().argmax(dim, keepdim=True)
    rest = factors.masked_fill((zeros != 1) | first, 1).cumprod(dim) * grad.masked_fill(zeros != 1, 0)
    ahead = products.gather(dim, (place - 1).clamp_min(0)).masked_fill(place == 0, 1)
    return torch.where(zeros == 0, quotients, torch.where(first, rest.sum(dim, keepdim=True) * ahead, 0))


def _of_chosen(node: Any, grad: Tensor, spread: Tensor) -> Tensor:
    """`max()`, `min()`, `median()`: shared by all that are the value, and no product with zeros elsewhere."""
    if grad.device.type != "cpu":
        return spread  # the formula that eager takes there
    x, value = node._saved_self, node._saved_result
    chosen = (x == value) | (x.isnan() & value.isnan())
    return torch.where(chosen, grad / chosen.sum(), 0).contiguous()  # written into zeros


def _dim(node: Any) -> int:
    """A saved dim, which is read as an unsigned number."""
    dim: int = node._saved_dim
    return dim - (1 << 64) if dim >= 1 << 63 else dim


#: By the name of autograd's node.
FORMULAS: dict[str, Formula] = {
    "ProdBackward0": _of_all_factors,
    "ProdBackward1": _of_factors,
    "CumprodBackward0": _of_running_product,
    **dict.fromkeys(("MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"), _of_chosen),
}


@contextmanager
def as_eager_chooses(outputs: Iterable[Tensor]) -> Iterator[None]:
    """Backward of the outputs, run inside, gives these gradients."""
    handles = [
        node.register_hook(partial(_replaced, formula, node))
        for node in _history(outputs)
        if (formula := FORMULAS.get(node.name())) is not None
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _history(outputs: Iterable[Tensor]) -> set[Any]:
    """The nodes of autograd's graph."""
    seen: set[Any] = set()
    waiting = [out.grad_fn for out in outputs]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [parent for parent, _ in node.next_functions]
    return seen


def _replaced(
    formula: Formula, node: Any, given: Sequence[Tensor | None], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...] | None:
    (found,), (grad,) = given, grads
    if found is None or grad is None or torch.is_grad_enabled():
        return None
    return (formula(node, grad, found).to(found.dtype),)
