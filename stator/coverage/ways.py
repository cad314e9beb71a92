"""Eager once more, as it may as well have computed: rounded at random, or with other instructions.

`RandomRounding` moves every result that had to be rounded by a rounding error, in forward and backward: what then
changes much (terms that cancel, a power of a power) is no more exact in eager than in other code for the same formula.
What an operator computes exactly stays, so a maximum is still one of its operands. `Elsewhere` computes elementwise
operators with vector instructions, or without, which eager decides by where an element lies; at NaN they differ.
`AsSaved` keeps what backward reads from being overwritten unnoticed. `Around` adds the gradients of an input that is
returned in another order. `Reordered` takes sums in another order, `Stepwise` rounds products before they are added.
`Tied` gives an extreme the other of two zeros. `SignedNaN` gives every NaN that is computed one sign: which one it has
is neither defined by IEEE 754 nor the same in eager's kernels. `Together` takes several of these at once, `InForward`
one while forward runs.

Invariant: neither changes what a program does but in these numbers. Neighbours: `reordered.py`; `compare.py`
measures by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from stator.coverage.mode import Way, is_view
from stator.coverage.reordered import Reordered
from stator.coverage.stepwise import Stepwise
from stator.coverage.tied import Tied
from stator.prims.table import is_pointwise

aten = torch.ops.aten

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
#: Their rounding is no arithmetic's: every compiler has to do the same.
CONVERSIONS = {aten._to_copy.default, aten.copy_.default, aten.copy.default}
#: Their truth values choose, and are not computed with.
CHOOSING = {aten.where.self, aten.masked_fill.Scalar, aten.masked_fill.Tensor}
#: Functions whose values are no fractions, but at a few places: where one in float64 is short (erfcx(1e-40) = 1,
#: tanh(1e-13) = 1e-13, expm1(-37) = -1) it is rounded as any other, and the next library has the number beside it.
TRANSCENDENTAL = frozenset(
    (
        "exp expm1 log log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv "
        "lgamma digamma i0 sinc softplus mish special_erfcx special_ndtri special_log_ndtr special_i0e special_i1 "
        "special_i1e special_bessel_j0 special_bessel_j1 special_modified_bessel_i0 special_modified_bessel_i1"
    ).split()
)
#: Sums and products of many: where they come to a number that is short (softmax adds up to 1), terms that are not were
#: rounded on the way to it; and what they are off by grows as the root of how many there are.
SUMMING = frozenset(
    "sum mean nansum prod cumsum cumprod logcumsumexp logsumexp mm bmm addmm baddbmm dot vdot mv addmv _softmax "
    "_log_softmax".split()
)
#: The magnitudes of operands at which their values may be exact.
PLACES = (0.0, 0.5, 1.0, 2.0, torch.inf)
#: At least this many elements side by side are computed by vector instructions.
MANY = 64


class Plain(Way):
    """Eager under a mode: autograd's formulas do not read data then, and some are others for that."""

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)


class RandomRounding(Way):
    """Every rounded result, moved by about one rounding error, or as much beside the exact one (`exact`).

    Without `errors` it is the exact one, rounded: two formulas for one number agree then, as they may in other code.
    """

    def __init__(self, seed: int, *, exact: bool = False, errors: bool = True) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.exact = exact
        self.errors = float(errors)

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in CONVERSIONS or torch.Tag.nondeterministic_seeded in func.tags or is_view(func):
            return func(*args, **kwargs)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        before = [t.clone() for t in given] if func._schema.is_mutable else given
        exact = _exactly(func, args, kwargs)
        out = func(*args, **kwargs)
        results = tree_leaves(out)
        for result, wide in zip(results, exact or [None] * len(results), strict=True):
            if isinstance(result, Tensor) and result.device.type != "meta" and result.layout is torch.strided:
                self._move(result, wide, before, func._schema.name.split("::")[1].rstrip("_"))
        return out

    def _move(self, result: Tensor, wide: Any, given: list[Tensor], name: str) -> None:
        """Add an error to what was rounded: what differs from the wide result, or else is no operand's element."""
        if not (result.is_floating_point() or result.is_complex()) or result.is_conj() or result.is_neg():
            return
        if result._is_zerotensor():
            return
        narrow = torch.view_as_real(result) if result.is_complex() else result
        centre = narrow.double()
        if isinstance(wide, Tensor) and wide.shape == result.shape and wide.dtype is not result.dtype:
            exact = torch.view_as_real(wide) if wide.is_complex() else wide
            error = (exact - narrow.double()).abs()
            rounded = error > 0
            centre = torch.where(exact.isfinite(), exact, centre) if self.exact else centre
        elif narrow.dtype is torch.float64:
            same = [torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in given]
            kept = [t.detach().to(narrow.device).double().flatten() for t in same if t.dtype is not torch.bool]
            values = torch.cat(kept) if kept else narrow.new_empty(0)
            made = ~torch.isin(narrow, torch.cat([values, -values]))
            rounded = made & _long(narrow)
            if name in SUMMING and bool(_long(values).any()):
                rounded = made
            if name in TRANSCENDENTAL and len(given) == 1 and given[0].shape == narrow.shape:
                rounded |= ~torch.isin(given[0].to(narrow.device).abs().double(), narrow.new_tensor(PLACES))
            terms = _terms(given, narrow) if name in SUMMING else 1
            error = narrow.abs() * (torch.finfo(narrow.dtype).eps / 2 * terms**0.5)
        else:
            return
        epsilon = torch.finfo(narrow.dtype).eps
        size = torch.maximum(error, narrow.double().abs() * (epsilon / 2))
        shake = torch.randn(narrow.shape, generator=self.generator, dtype=torch.float64).to(narrow.device)
        moved = (centre + size * shake * self.errors).to(narrow.dtype)
        narrow.copy_(torch.where(rounded & narrow.isfinite() & moved.isfinite(), moved, narrow))


def _terms(given: Sequence[Tensor], result: Tensor) -> int:
    """About how many terms a sum has: what is read for each number that comes out, or the longest row of a scan."""
    most = max([t.numel() for t in given], default=1)
    return most // max(result.numel(), 1) if most > result.numel() else max(result.shape, default=1)


def _long(numbers: Tensor) -> Tensor:
    """Which doubles have more digits than a float32 holds."""
    return numbers.float().double() != numbers


def _exactly(func: Any, args: Any, kwargs: Any) -> list[Any] | None:
    """The results in float64, or None where an operator takes no such operands."""

    def widened(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.detach().to(WIDE.get(value.dtype, value.dtype), copy=True)
        return WIDE.get(value, value) if isinstance(value, torch.dtype) else value

    try:
        with WideResults():
            return tree_leaves(func(*tree_map(widened, args), **tree_map(widened, kwargs)))
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None


class WideResults(AbstractContextManager[None]):
    """Functions of whole numbers, and constants, are float64; may be entered again, for backward."""

    def __enter__(self) -> None:
        self.usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

    def __exit__(self, *raised: object) -> None:
        torch.set_default_dtype(self.usual)


class Elsewhere(Way):
    """Every element of elementwise operators computed by vector instructions, or without them.

    With a `seed` each operator has a choice of its own: layouts and lengths decide it, which differ within a program.
    """

    def __init__(self, *, vectors: bool = True, seed: int | None = None) -> None:
        super().__init__()
        self.vectors = vectors
        self.chosen: dict[Any, bool] = {}
        self.random = None if seed is None else torch.Generator().manual_seed(seed)

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        out = func(*args, **kwargs)
        if func._schema.is_mutable or not is_pointwise(func):
            return out
        if not isinstance(out, Tensor) or func in CHOOSING:
            return out
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        alike = all(t.dtype is out.dtype for t in tensors)
        meets = out.is_floating_point() and not any(t.is_complex() for t in tensors)
        if (alike or meets) and all(t.device == out.device for t in tensors):
            if self.random is not None and func not in self.chosen:
                self.chosen[func] = bool(torch.randint(0, 2, (), generator=self.random))
            vectors = self.chosen.get(func, self.vectors)

            def placed(value: Any) -> Any:
                return self._placed(value, out.dtype, vectors)

            plain = {name: value for name, value in kwargs.items() if name != "memory_format"}  # those are of four dims
            out.copy_(func(*tree_map(placed, args), **tree_map(placed, plain))[..., 0])
        return out

    def _placed(self, value: Any, dtype: torch.dtype, vectors: bool) -> Any:
        """The tensor many times, side by side; or with gaps between its elements. All in the dtype of the result."""
        if not isinstance(value, Tensor):
            return value
        value = value.to(dtype)
        if vectors:
            return value.unsqueeze(-1).expand(*value.shape, MANY).contiguous()
        return torch.stack([value, value], -1)[..., :1]


class AsSaved(Plain):
    """Backward reads what was saved, also where a kernel hid from autograd that it was written to since (`kron`).

    With a half type as `rounded` it reads what memory of that type holds, while forward went on with what it had:
    values that cancel in eager (an element, and the norm of it alone) are a rounding apart then.
    """

    def __init__(self, rounded: torch.dtype | None = None) -> None:
        super().__init__()

        def saved(tensor: Tensor) -> Tensor:
            copy = tensor.detach().clone()
            return copy if rounded is None or not copy.is_floating_point() else copy.to(rounded).to(copy.dtype)

        self.hooks = torch.autograd.graph.saved_tensors_hooks(saved, lambda copy: copy)

    def __enter__(self) -> Any:
        self.hooks.__enter__()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self.hooks.__exit__(*error)


class Around(Plain):
    """The cotangent of an input, or of a view of one, that is a result too comes to the sum of all else.

    Autograd adds what comes in at roots before anything else, and a compiled program is one node of its graph: there
    the sum is complete before. Whether it overflows, or is no number for complex ones, depends on that.
    """


#: What moves elements, or is defined on their signs: a NaN keeps its own there, or gets the one that it should have.
SIGNED = frozenset(
    (
        "abs neg copysign alias clone contiguous copy detach where cat stack flip roll repeat constant_pad_nd index "
        "gather index_select take masked_fill masked_select masked_scatter fill index_put index_copy index_fill triu "
        "tril scatter slice_scatter select_scatter diagonal_scatter as_strided_scatter full full_like lift_fresh_copy "
        "_conj_physical"
    ).split()
)
#: An odd number that spreads the bits of others, by which it is multiplied.
MIXED = 0x1E3779B97F4A7C15
#: Size of a number → the integers of its bits.
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class SignedNaN(Way):
    """Every NaN that arithmetic gives is negative, or none is; with a `seed` those of some operands are, drawn by it.

    An instruction for vectors and a library's function differ in what they make of a zero, or of an infinity.
    """

    def __init__(self, *, negative: bool = False, seed: int | None = None) -> None:
        super().__init__()
        self.negative = negative
        generator = torch.Generator().manual_seed(seed or 0)
        self.key = None if seed is None else int(torch.randint(1 << 60, (), generator=generator))

    def called(self, func: Any, args: Any, kwargs: Any) -> Any:
        operand = args[0].clone() if self.key is not None and args and isinstance(args[0], Tensor) else None
        out = func(*args, **kwargs)
        if func._schema.name.split("::")[1].rstrip("_") not in SIGNED and not is_view(func):
            for result in tree_leaves(out):
                if isinstance(result, Tensor) and result.layout is torch.strided and not result._is_zerotensor():
                    self._sign(result, operand)
        return out

    def _sign(self, result: Tensor, operand: Tensor | None) -> None:
        parts = torch.view_as_real(result) if result.is_complex() and not result.is_conj() else result
        if not parts.is_floating_point() or parts.is_neg() or parts.itemsize not in BITS:
            return
        bits = parts.view(BITS[parts.itemsize])
        limits = torch.iinfo(bits.dtype)
        negative = torch.tensor(self.negative, device=bits.device)
        if operand is not None and operand.dtype == parts.dtype and operand.shape == parts.shape:
            drawn = (operand.view(bits.dtype).to(torch.int64) ^ (self.key or 0)) * MIXED
            negative = drawn >> 40 & 1 > 0
        signed = torch.where(negative, bits | limits.min, bits & limits.max)
        bits.copy_(torch.where(parts.isnan(), signed, bits))


class Together(AbstractContextManager[Any]):
    """Several ways at once: what one choice of instructions leaves NaN is a number that sums in some order hide."""

    def __init__(self, *ways: AbstractContextManager[Any]) -> None:
        self.ways = ways

    def __enter__(self) -> None:
        for way in self.ways:
            way.__enter__()

    def __exit__(self, *error: Any) -> None:
        for way in reversed(self.ways):
            way.__exit__(*error)


class InForward(AbstractContextManager[Any]):
    """A way while forward runs: backward, without a mode, reads data again to choose its formula.

    So what is different on the way back, where a product overflows or a maximum is shared by more elements, is seen.
    """

    def __init__(self, mode: AbstractContextManager[Any]) -> None:
        self.mode = mode
        #: Programs enter a way twice, for forward and then for backward.
        self.entered = 0

    def __enter__(self) -> None:
        self.entered += 1
        if self.entered == 1:
            self.mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self.entered == 1:
            self.mode.__exit__(*error)


def plain_forward() -> AbstractContextManager[Any]:
    """What `InForward` is measured by."""
    return InForward(Plain())


#: How often each way that draws numbers is taken: what a comparison decides is close in few of them.
SEEDS = 12
#: Other ways of eager's.
WAYS: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
    *[lambda seed=seed: RandomRounding(seed, exact=seed % 2 > 0) for seed in range(SEEDS)],
    lambda: RandomRounding(0, exact=True, errors=False),
    *[lambda seed=seed: Reordered(seed) for seed in range(SEEDS)],
    lambda: Elsewhere(vectors=True),
    lambda: Elsewhere(vectors=False),
    *[lambda seed=seed: Elsewhere(seed=seed) for seed in range(SEEDS // 2)],
    *[lambda vectors=vectors: Together(Reordered(0), Elsewhere(vectors=vectors)) for vectors in (True, False)],
    *[lambda seed=seed: Together(RandomRounding(seed), Reordered(seed)) for seed in range(SEEDS // 3)],
    *[lambda vectors=vectors: Together(Around(), Elsewhere(vectors=vectors)) for vectors in (True, False)],
    AsSaved,
    Around,
    Stepwise,
    *[lambda seed=seed: Tied(seed) for seed in range(SEEDS // 3)],
    lambda: SignedNaN(negative=True),
    lambda: SignedNaN(negative=False),
    *[lambda seed=seed: SignedNaN(seed=seed) for seed in range(SEEDS // 2)],
)
#: And those of forward only.
FORWARD_WAYS: tuple[Callable[[], AbstractContextManager[Any]], ...] = (
    *[lambda seed=seed: InForward(RandomRounding(seed, exact=seed % 2 > 0)) for seed in range(SEEDS // 3)],
    *[lambda seed=seed: InForward(Reordered(seed)) for seed in range(SEEDS // 3)],
)


def moved_like(want: list[Any], plain: list[Any], other: list[Any]) -> Iterator[Any]:
    """What was wanted, changed as much as one run of eager differs from another; NaN where that is without bounds."""
    for value, *runs in zip(want, plain, other, strict=True):
        if all(isinstance(t, Tensor) and t.shape == value.shape for t in (value, *runs)):
            yield _moved_like(value, *runs)
        else:
            yield value


def _moved_like(value: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if value.is_complex():  # each part on its own: one may be NaN and the other not
        return torch.view_as_complex(_moved_like(*[torch.view_as_real(t.resolve_conj()) for t in (value, a, b)]))
    far = value + (b - a) if value.is_floating_point() else b
    return torch.where(_same(a, b), value, torch.where(_same(value, a), b, far))


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())
