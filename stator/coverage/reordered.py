"""Eager once more, with sums in another order and norms by another formula.

Sums, products, matrix products and scans are taken in parts and in another order: which of them overflow, and what
cancels, depends on that. Norms and their gradients, whose formulas differ in what they subtract, come by the formula of
the textbook; variances and means of inputs one rounding off, or of those given. All in eager's dtype; what is exact in
any order stays as it is.
Neighbour: `ways.py` has eager's other ways, and lists this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from stator.coverage.mode import Way
from stator.coverage.textbook import NORMS
from stator.prims.dtypes import HALF_TYPES

#: Sums and products, whose order is left open → the reduction of a dim, and how parts of it are joined.
REDUCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "sum": (torch.sum, torch.add),
    "mean": (torch.sum, torch.add),
    "nansum": (torch.nansum, torch.add),
    "prod": (torch.prod, torch.mul),
}
#: The sums of at most so many products of three factors are taken one by one.
MOST_PRODUCTS = 1 << 20
#: So many terms are added one after the other at most.
MOST_TERMS = 1 << 10
#: So much smaller no sum of doubles overflows.
SMALLER = 2.0**-64
#: A power of two that is greater than any number but infinity, and the opposite of which is less than any but zero.
LARGEST_POWER = 2048.0
#: In how many parts a reduction is taken at most, as if by the lanes of a vector.
PARTS = 16
#: Where the factors of a matrix product are, and which of their dims is summed over.
PRODUCTS = {"mm": (0, -1, -2), "bmm": (0, -1, -2), "addmm": (1, -1, -2), "baddbmm": (1, -1, -2)} | {
    "addbmm": (1, -1, -2), "dot": (0, -1, -1), "vdot": (0, -1, -1), "mv": (0, -1, -1), "addmv": (1, -1, -1)
}  # fmt: skip
#: Scans → how the last of what was before is joined with what follows.
SCANS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cumsum": torch.add, "cumprod": torch.mul}
#: How many elements vectors have.
LANES = (4, 8, 16)
#: What sums in place.
IN_PLACE = frozenset({*SCANS, "addmm", "baddbmm", "addmv"})
#: What subtracts means and maxima, or takes squares: as exact as inputs that are one rounding off.
STABLE = frozenset("var std var_mean std_mean norm linalg_vector_norm logsumexp logcumsumexp fused_rms_norm".split())
#: Losses that weigh their terms, and give the sum of the weights, by which a mean is divided.
WEIGHTED = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
#: Sums of what lies in windows: linear in their first operand.
WINDOWS = frozenset(
    f"{name}{end}"
    for name in ("avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d", "adaptive_avg_pool3d")
    for end in ("", "_backward")
) | {"col2im", "unfold_backward"}
#: What is subtracted from one where it is nearly one: not all libraries round its last digit alike.
STEEP = frozenset({"special_erf", "erf", "tanh"})


class Reordered(Way):
    """While this is active eager's sums have another order, by a seed."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = torch.Generator().manual_seed(seed)
        self.extreme = seed == 0
        self.joins = seed % 3 == 1
        self.rounds = seed % 3 == 2
        self.vanishes = seed == 3
        self.cancels = self.by_sign = seed == 6
        self.in_turn = {5: 1, 7: -1}.get(seed, 0)
        self.multiplies_in_turn = {4: 1, 5: 1, 7: -1, 8: -1}.get(seed, 0)

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name.split("::")[1].strip("_")
        if func._schema.is_mutable:
            if name in IN_PLACE and func._schema.name.endswith("_"):
                functional = getattr(getattr(torch.ops.aten, name), func._overloadname)
                return args[0].copy_(self.called(functional, args, kwargs))
            return func(*args, **kwargs)
        if name in WINDOWS:
            return self.pooled(func, args, kwargs)
        if name in REDUCTIONS:
            return self.reduced(func, name, args, kwargs)
        if name == "trace":
            return self.reduced(torch.sum, "sum", (args[0].diagonal(), [0]), {})
        if name in PRODUCTS:
            return self.multiplied(func, name, args, kwargs)
        if name in SCANS:
            return self.scanned(func, name, args, kwargs)
        if name == "trilinear":
            return self.contracted(func(*args, **kwargs), args)
        if name in STEEP:
            return self.moved(func(*args, **kwargs))
        if (place := _place_of_reduction(func)) is not None and not name.endswith("backward"):
            return self.collected(func, name, place, args, kwargs)
        if name in STABLE and not self.vanishes:
            args = tuple(self.moved(a) if isinstance(a, Tensor) else a for a in args)
        out = func(*args, **kwargs)
        with self:  # its sums have another order too
            if name in FILLED:
                return FILLED[name](self, out, *args, **kwargs)
            return NORMS[name](out, *args, **kwargs) if name in NORMS else out

    def moved(self, tensor: Tensor) -> Tensor:
        """The same, one rounding off."""
        if not tensor.is_floating_point():
            return tensor
        shake = torch.randn(tensor.shape, generator=self.random, dtype=torch.float64).to(tensor.device)
        found = (tensor.double() * (1 + torch.finfo(tensor.dtype).eps * shake)).to(tensor.dtype)
        return torch.where(found.isfinite(), found, tensor)  # the largest number is no infinity

    def reduced(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        """In another order, and in parts; half types in float32."""
        out: Tensor = func(*args, **kwargs)
        x, *rest = args
        if not (out.is_floating_point() or (out.is_complex() and name in ("sum", "mean"))) or not x.dim():
            return out
        if not x.numel():
            return out
        dims = rest[0] if rest else None
        chosen = [dims % x.dim()] if isinstance(dims, int) else [d % x.dim() for d in dims or range(x.dim())]
        if out.is_complex():
            # Both parts are added up alike, and meet where a mean is one complex number by another.
            parts = torch.view_as_real(x.to(out.dtype).resolve_conj())
            total = torch.view_as_complex(self.reduced(torch.sum, "sum", (parts, chosen), {}).contiguous())
            number = x.numel() // max(out.numel(), 1)
            return out.copy_((total / number if name == "mean" else total).reshape(out.shape))
        run, join = REDUCTIONS[name]
        wide = torch.float32 if out.dtype in HALF_TYPES else out.dtype
        # Sums are of what the dtype that is asked for holds; means are not.
        terms = x.to(wide if name == "mean" else out.dtype)
        row = terms.movedim(chosen, [*range(-len(chosen), 0)]).flatten(-len(chosen))
        if self.in_turn and row.shape[-1] <= MOST_TERMS:  # as they lie, from the first on or from the last
            totals = list(row.to(wide).unbind(-1))[:: self.in_turn]
            while len(totals) > 1:
                totals[:2] = [join(totals[0], totals[1])]
            return out.copy_((totals[0] / row.shape[-1] if name == "mean" else totals[0]).reshape(out.shape))
        row = row[..., torch.randperm(row.shape[-1], generator=self.random).to(x.device)]
        totals = [run(part, -1, dtype=wide) for part in self.parts(row, name)]
        if self.cancels:
            # What is in range in the end is in some order all the way: one that adds what has the sum's other sign.
            exact = run(row, -1, dtype=torch.float64)
            if name != "prod":
                exact = torch.where(exact.isfinite(), exact, run(row.double() * SMALLER, -1) / SMALLER)
            totals = [exact.to(wide)]
        while len(totals) > 1:  # one after the other, as a tree, or in between
            at = int(torch.randint(0, len(totals) - 1, (), generator=self.random))
            totals.insert(at, join(totals.pop(0), totals.pop(0)))
        (total,) = totals
        if self.vanishes and name != "prod":
            total = _known(total, row, run)
        return out.copy_((total / row.shape[-1] if name == "mean" else total).reshape(out.shape))

    def collected(self, func: Any, name: str, place: int, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A loss whose terms are added in another order: those that it gives without a reduction."""
        filled = [*args, *[a.default_value for a in func._schema.arguments[len(args) :] if not a.kwarg_only]]
        out, reduction = func(*args, **kwargs), filled[place]
        if reduction == 0:
            return out
        filled[place] = 0
        terms, (loss, *more) = tree_leaves(func(*filled, **kwargs))[0], tree_leaves(out)
        weighted = reduction == 1 and name in WEIGHTED
        with self:
            total = terms.mean() if reduction == 1 and not weighted else terms.sum()
        loss.copy_(total / more[0] if weighted else total)
        return out

    def parts(self, row: Tensor, name: str) -> Sequence[Tensor]:
        """Any; or those that overflow if any do: what is positive and what is not, large factors and small ones."""
        if self.extreme:
            neutral = torch.full_like(row, 1.0 if name == "prod" else 0.0)
            large = row.abs() > 1 if name == "prod" else row > 0
            return torch.where(large, row, neutral), torch.where(large, neutral, row)
        return row.chunk(int(torch.randint(2, PARTS + 1, (), generator=self.random)), -1)

    def pooled(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        """The sum of what parts of the elements give."""
        out: Tensor = func(*args, **kwargs)
        if not out.is_floating_point():
            return out
        wide = torch.float32 if out.dtype in HALF_TYPES else out.dtype
        x, *rest = [a.to(wide) if isinstance(a, Tensor) else a for a in args]
        count = 2 if self.extreme else int(torch.randint(2, PARTS + 1, (), generator=self.random))
        chosen = torch.randint(0, count, x.shape, generator=self.random).to(x.device)
        chosen = (x > 0).long() if self.extreme else chosen
        first, *others = [func(torch.where(chosen == k, x, 0.0), *rest, **kwargs) for k in range(count)]
        for other in others:
            first = first + other
        return out.copy_(first)

    def multiplied(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        """In another order; or in float64, where nothing overflows on the way; or one term after the other.

        Then each product is joined with the sum so far, or is rounded before: which of the two a library does, and in
        what order, depends on the processor. Or what is positive and what is negative are added up apart.
        """
        args = self.recombined(args, *PRODUCTS[name])
        out: Tensor = self.scaled(func, args, kwargs)
        if not out.is_floating_point() or name == "addbmm":
            return out
        if self.joins or self.rounds or self.by_sign:
            return self.summed(out, args, kwargs, PRODUCTS[name][0])
        if not self.extreme:
            return out
        return out.copy_(func(*[a.double() if isinstance(a, Tensor) else a for a in args], **kwargs))

    def scaled(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        """The factor of a product before it is taken, after it, or as the library has it: what overflows may differ."""
        alpha, beta = kwargs.get("alpha", 1), kwargs.get("beta", 1)
        if alpha == 1 or not args[0].is_floating_point() or args[0].dtype in HALF_TYPES:
            return cast(Tensor, func(*args, **kwargs))
        x, left, right = args
        match int(torch.randint(0, 3, (), generator=self.random)):
            case 0:
                return cast(Tensor, func(*args, **kwargs))
            case 1:
                return cast(Tensor, func(x, left * alpha, right, beta=beta))
            case _:
                product: Tensor = func(x, left, right, beta=0) * alpha
                return product + x * beta if beta else product

    def summed(self, out: Tensor, args: Sequence[Any], kwargs: dict[str, Any], first: int) -> Tensor:
        """One term after the other; a product that is joined with the sum cannot overflow alone."""
        left, right = args[first], args[first + 1]
        if not 0 < left.shape[-1] <= MOST_TERMS:
            return out
        wide = torch.float32 if out.dtype in HALF_TYPES else out.dtype
        # Rows by columns, where there are any: terms are products of a column and a row.
        left, right = left.to(wide).movedim(-1, 0), right.to(wide).movedim(-2 if right.dim() > 1 else 0, 0)
        if right.dim() > 1:
            left, right = left.unsqueeze(-1), right.unsqueeze(-2)
        total = self.joined(left, right)
        if first:
            total = total * kwargs.get("alpha", 1)
            beta = kwargs.get("beta", 1)
            total = total + args[0].to(wide) * beta if beta else total
        return out.copy_(total)

    def joined(self, left: Tensor, right: Tensor) -> Tensor:
        """The sum, along the first dim, of products that are not rounded on their own, or are; or by sign."""
        total = torch.zeros_like(left[0] * right[0])
        if self.by_sign:  # both overflow wherever any parts of the sum do
            negative = torch.zeros_like(total)
            for one, other in zip(left, right, strict=True):
                product = one * other
                total, negative = total + product.clamp(min=0), negative + product.clamp(max=0)
            return total + negative
        for one, other in zip(left, right, strict=True):
            total = total + one * other if self.rounds else torch.addcmul(total, one, other)
        return total

    def distances(self, out: Tensor, a: Tensor, b: Tensor) -> Tensor:
        """The roots of products of (-2 a, its squares, 1) and (b, 1, its squares), in whose sums near rows cancel.

        Sums of squares are known to a few rounding errors: a great one rounds the same for inputs one rounding off.
        Half of the errors end below zero, and do not show, but for those that are upwards everywhere.
        """
        up = 1 + 2 * torch.finfo(a.dtype).eps
        squares = [x.square().sum(-1, keepdim=True) for x in (a, b)]
        squares = [x * up if self.extreme else self.moved(x) for x in squares]
        left = torch.cat([a * -2, squares[0], torch.ones_like(squares[0])], -1)
        right = torch.cat([b, torch.ones_like(squares[1]), squares[1]], -1)
        multiply = torch.mm if left.dim() == 2 else torch.bmm  # below autograd `matmul` is no product that this sees
        return out.copy_(multiply(left, right.mT).clamp_min(0).sqrt())

    def attended(
        self,
        out: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        dropout: float = 0.0,
        causal: bool = False,
        *,
        attn_mask: Tensor | None = None,
        scale: float | None = None,
    ) -> Any:
        """Attention as two products and a softmax: fills the first of (results, log of the sums).

        Shares are rounded to a half type before they are multiplied, as by a library's product, or are not.
        """
        if dropout or query.shape[:-2] != key.shape[:-2] or not out[0].numel():
            return out
        wide = torch.float32 if query.dtype in HALF_TYPES else query.dtype
        rows, columns = query.shape[-2], key.shape[-2]
        factors = (query.to(wide) * (query.shape[-1] ** -0.5 if scale is None else scale), key.to(wide).mT)
        scores = torch.bmm(*[t.reshape(-1, *t.shape[-2:]) for t in factors]).reshape(*query.shape[:-1], columns)
        if causal:
            ahead = torch.ones(rows, columns, dtype=torch.bool, device=query.device).triu(1)
            scores = scores.masked_fill(ahead, -math.inf)
        if attn_mask is not None:
            scores = scores + attn_mask.to(wide)
        powers = (scores - scores.amax(-1, True)).exp()
        shares = powers / powers.sum(-1, keepdim=True)
        shares = shares.to(query.dtype).to(wide) if self.rounds else shares
        found = torch.bmm(*[t.reshape(-1, *t.shape[-2:]) for t in (shares, value.to(wide))]).reshape(out[0].shape)
        out[0].copy_(torch.where(found.isfinite(), found, out[0].to(wide)))  # what nothing may look at is left as it is
        return out

    def recombined(self, args: Sequence[Any], first: int, left: int, right: int) -> list[Any]:
        """Factors whose terms come in another order; or from the first on, as in most libraries, or from the last."""
        order = torch.randperm(args[first].shape[left], generator=self.random).to(args[first].device)
        if self.multiplies_in_turn:
            order = order.sort(descending=self.multiplies_in_turn < 0).values
        found = list(args)
        found[first] = args[first].index_select(left, order)
        found[first + 1] = args[first + 1].index_select(right, order)
        return found

    def contracted(self, out: Tensor, args: Sequence[Any]) -> Tensor:
        """Three factors (`bilinear`, its gradients): any two meet first, and each sum has an order of its own."""
        factors, absent, summed = list(args[:3]), args[3:6], set(args[6])
        if not out.is_floating_point() or not out.numel():
            return out
        for i, dims in enumerate(absent):
            for dim in sorted(dims):
                factors[i] = factors[i].unsqueeze(dim)
        if torch.broadcast_shapes(*[f.shape for f in factors]).numel() > MOST_PRODUCTS:
            return out
        third = int(torch.randint(0, 3, (), generator=self.random))
        last, dims = factors.pop(third), summed & set(absent[third])
        value = self.product(factors[0], factors[1], sorted(dims))
        return out.copy_(self.product(value, last, sorted(summed)).reshape(out.shape))

    def product(self, left: Tensor, right: Tensor, dims: Sequence[int]) -> Tensor:
        """The product, summed over these dims, which stay with one element."""
        if not dims:
            return left * right
        left, right = torch.broadcast_tensors(left, right)
        if not self.joins:
            with self:
                return (left * right).sum([*dims], keepdim=True)
        ends = [*range(-len(dims), 0)]
        rows = [t.movedim([*dims], ends).flatten(ends[0]).movedim(-1, 0) for t in (left, right)]
        order = torch.randperm(len(rows[0]), generator=self.random).to(left.device)
        total = self.joined(*[row[order] for row in rows]) if len(order) <= MOST_TERMS else (rows[0] * rows[1]).sum(0)
        for dim in sorted(dims):
            total = total.unsqueeze(dim)
        return total

    def scanned(self, func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
        """In two parts, which meet anywhere; in blocks, like lanes; or as the ends of the dtype allow in any order."""
        x, dim = args
        out: Tensor = func(x, dim, **kwargs)
        length = x.shape[dim] if x.dim() else 0
        if length < 2:
            return out
        if out.is_floating_point() and (self.extreme or self.vanishes or self.cancels):
            return out.copy_(self.at_ends(func, name, out, x.to(out.dtype), dim))
        if self.joins and out.dtype not in HALF_TYPES and (out.is_floating_point() or out.is_complex()):
            lanes = LANES[int(torch.randint(0, len(LANES), (), generator=self.random))]
            return out.copy_(_in_blocks(x.to(out.dtype), dim, lanes, SCANS[name], float(name == "cumprod")))
        cut = int(torch.randint(1, length, (), generator=self.random))
        first, second = (func(part, dim, **kwargs) for part in x.split([cut, length - cut], dim))
        return torch.cat([first, SCANS[name](second, first.narrow(dim, -1, 1))], dim)

    def at_ends(self, func: Any, name: str, out: Tensor, x: Tensor, dim: int) -> Tensor:
        """Infinite wherever neighbours among those so far come to more than the dtype holds; a product of nothing,
        wherever they come to less; or in float64, where a number in range does not overflow on the way.
        """
        if self.cancels:
            return func(x.double(), dim)
        limits = torch.finfo(out.dtype)
        if name == "cumprod":
            sizes = x.double().abs().log2().nan_to_num(0, LARGEST_POWER, -LARGEST_POWER)
            most, least = _of_neighbours(sizes, dim)
            if self.vanishes:
                return torch.where(least < math.log2(limits.smallest_normal * limits.eps), torch.zeros_like(out), out)
            beyond = most > math.log2(limits.max)
        elif self.vanishes:
            return out
        else:
            most, least = _of_neighbours(x.double().nan_to_num(0, 0, 0) * SMALLER, dim)
            beyond = torch.maximum(most, -least) > limits.max * SMALLER
        return torch.where(beyond & out.isfinite(), torch.full_like(out, torch.inf).copysign(out), out)


def _in_blocks(x: Tensor, dim: int, lanes: int, join: Callable[[Tensor, Tensor], Tensor], neutral: float) -> Tensor:
    """A scan of so many elements at a time, each block joined with the last of what was before.

    Within a block it doubles the distance at each step (Hillis and Steele, Data parallel algorithms, 1986).
    """
    row = x.movedim(dim, -1)
    count = -(-row.shape[-1] // lanes)
    blocks = torch.nn.functional.pad(row, (0, count * lanes - row.shape[-1]), value=neutral).unflatten(
        -1, (count, lanes)
    )
    step = 1
    while step < lanes:
        blocks = torch.cat([blocks[..., :step], join(blocks[..., :-step], blocks[..., step:])], -1)
        step *= 2
    found = [blocks[..., 0, :]]
    for number in range(1, count):
        found.append(join(found[-1][..., -1:], blocks[..., number, :]))
    return torch.cat(found, -1)[..., : row.shape[-1]].movedim(-1, dim)


def _of_neighbours(terms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The greatest and the least sum of terms that lie side by side, among those up to each place."""
    ends = terms.cumsum(dim)
    starts = ends - terms
    most = (ends - starts.cummin(dim).values).cummax(dim).values
    return most, (ends - starts.cummax(dim).values).cummin(dim).values


def _known(total: Tensor, row: Tensor, run: Callable[..., Tensor]) -> Tensor:
    """Nothing, where a sum that had to be rounded is less than a rounding error of its terms: its sign is not known.

    Few orders give a zero, and where one does logarithms, quotients and their gradients are infinite.
    """
    exact, size = run(row.double(), -1), run(row.double().abs(), -1)
    lost = (total != exact) & (total.abs() <= torch.finfo(total.dtype).eps * size)
    return torch.where(lost, 0.0, total)


#: Other formulas that depend on how sums are taken, by name like `NORMS`.
FILLED: dict[str, Callable[..., Any]] = {
    "euclidean_dist": Reordered.distances,
    "scaled_dot_product_flash_attention_for_cpu": Reordered.attended,
}


@cache
def _place_of_reduction(func: Any) -> int | None:
    """Where a loss is told how its terms are reduced (0: not at all, 1: to their mean, 2: to their sum)."""
    return next((i for i, a in enumerate(func._schema.arguments) if a.name == "reduction"), None)
