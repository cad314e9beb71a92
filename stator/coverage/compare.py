"""Run a function and record everything that a caller can observe; compare two such records.

That is: values, dtypes, sizes, strides, `requires_grad`, which results share memory with which inputs and results, the
inputs after the call, gradients. The tolerance is measured on eager itself: its error against a run in float64, and
how much its results change when the inputs change by one rounding error; where that does not explain a difference,
when its own results on the way do (`ways.py`). Neighbours: `judge.py`; the random programs of the tests are
compared by it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from stator.base.errors import StatorError
from stator.coverage.ways import FORWARD_WAYS, WAYS, Around, Plain, Together, moved_like, plain_forward
from stator.graphs.formulas import as_eager_chooses

#: How many times eager's own error ours may be.
SLACK = 24.0
#: Where one of so many elements is another one in some run of eager's, all may be as far off as the middle of these.
MOVING = 64
#: How many rounding errors of the largest terms are always allowed. Few, where eager's error is known from a run in
#: float64; eager's error in float64 itself is not known, and cancellation makes it large.
ROUNDINGS = {torch.float64: 128.0}
FEW_ROUNDINGS = 4.0
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
EPSILON = {dtype: torch.finfo(dtype).eps for dtype in FLOATS}


@dataclass
class Seen:
    """What one run of a function shows. `failed` is what it raised in forward, `backward_failed` in backward."""

    results: list[Any] = field(default_factory=list)
    geometry: list[Any] = field(default_factory=list)
    sharing: list[Any] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor | None] = field(default_factory=list)
    failed: BaseException | None = None
    backward_failed: BaseException | None = None


def observe_on(
    function: Callable[..., Any],
    tensors: Sequence[Tensor],
    leaves: Sequence[Tensor],
    *,
    backward: bool = True,
    noise: float = 0.0,
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Seen:
    """The same on given tensors. Gradients are asked for at `leaves`, for cotangents that `noise` perturbs.

    What is no leaf before, and is given a history by a write, is a result: it is not differentiated for.
    """
    seen = Seen()
    leaves = [t for t in leaves if t.requires_grad]
    mode = within()
    try:
        with mode:
            out = function(*tensors)
    except Exception as error:
        seen.failed = error
        return seen
    flat = flatten(out)
    names = {t.untyped_storage()._cdata: f"input {i}" for i, t in reversed(list(enumerate(tensors)))}
    for i, result in enumerate(flat):
        if not isinstance(result, Tensor):
            seen.results.append(result)
            seen.geometry.append(type(result).__name__)
            seen.sharing.append(None)
            continue
        if result.layout is not torch.strided:
            seen.results.append(result.detach().to_dense())
            seen.geometry.append(
                (result.dtype, tuple(result.shape), result.layout, result.requires_grad, result.device)
            )
            seen.sharing.append(None)
            continue
        seen.results.append(result.detach().clone())
        seen.geometry.append((result.dtype, tuple(result.shape), _strides(result), result.requires_grad, result.device))
        same = next((j for j, t in enumerate(tensors) if t is result), None)
        memory = names.setdefault(result.untyped_storage()._cdata, f"result {i}") if result.numel() else ""
        seen.sharing.append((same, memory, result.storage_offset() if memory.startswith("input") else 0))
    seen.inputs = [t.detach().clone() for t in tensors]
    if backward:
        _backward(seen, flat, tensors, leaves, noise, mode)
    return seen


def _backward(
    seen: Seen,
    flat: list[Any],
    tensors: Sequence[Tensor],
    wanted: Sequence[Tensor],
    noise: float,
    mode: AbstractContextManager[Any],
) -> None:
    outputs = [t for t in flat if isinstance(t, Tensor) and t.requires_grad]
    if not outputs or not wanted:
        return
    cotangents = [_cotangent(t, i, noise) for i, t in enumerate(outputs)]
    if any(isinstance(way, Around) for way in (mode.ways if isinstance(mode, Together) else (mode,))):
        returned = {id(flat[i]) for i, shared in enumerate(seen.sharing) if shared and shared[0] is not None}
        cotangents = [_added_last(t, c) if id(t) in returned else c for t, c in zip(outputs, cotangents, strict=True)]
        wholes = {t.untyped_storage()._cdata: t for t in reversed(tensors)}
        for i, out in enumerate(outputs):
            whole = wholes.get(out.untyped_storage()._cdata) if out.layout is torch.strided and out.numel() else None
            if whole is not None and id(out) not in returned:
                cotangents[i] = _added_around(out, whole, cotangents[i])
    # Below a mode PyTorch takes one formula whatever the data; what is measured is the one that it takes without.
    chosen = as_eager_chooses(outputs) if isinstance(mode, TorchDispatchMode | Together) else nullcontext()
    try:
        with mode, chosen:
            grads = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
    except Exception as error:
        seen.backward_failed = error
        return
    seen.gradients = [None if g is None else g.detach().clone() for g in grads]


def _cotangent(like: Tensor, number: int, noise: float) -> Tensor:
    generator = torch.Generator().manual_seed(1000 + number)
    wide = torch.complex128 if like.is_complex() else torch.float64
    made = torch.randn(like.shape, generator=generator, dtype=wide).to(like.dtype)
    if noise and (like.is_floating_point() or like.is_complex()):  # what is summed of them is only so exact
        shake = torch.randn(like.shape, generator=generator, dtype=torch.float64)
        made = (made.to(wide) * (1 + noise * torch.finfo(like.dtype).eps * shake)).to(like.dtype)
    return made.to(like.device)


def _added_last(tensor: Tensor, cotangent: Tensor) -> Tensor:
    """The cotangent to begin with, where a hook adds the tensor's own to the sum of all others."""
    tensor.register_hook(lambda gradient: cotangent + gradient)
    return torch.zeros_like(cotangent)


def _added_around(view: Tensor, whole: Tensor, cotangent: Tensor) -> Tensor:
    """The same for a view of an input, which is cut from it beside the compiled program."""
    if not whole.requires_grad or view.grad_fn is None:  # a view that `no_grad` made of a leaf is a leaf itself
        return cotangent
    (own,) = torch.autograd.grad(view, whole, cotangent, retain_graph=True, allow_unused=True)
    if own is None:
        return cotangent
    _added_last(whole, own)
    return torch.zeros_like(cotangent)


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """The strides that matter: those of dimensions longer than one, of tensors that are not empty."""
    if not tensor.numel():
        return ()
    return tuple(s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)


def flatten(out: Any) -> list[Any]:
    """The leaves of nested lists, tuples and dictionaries."""
    if isinstance(out, dict):
        return [leaf for item in out.values() for leaf in flatten(item)]
    if isinstance(out, (list, tuple)):
        return [leaf for item in out for leaf in flatten(item)]
    return [out]


# ---- comparing -------------------------------------------------------------------------------------------------------


@dataclass
class Spread:
    """Eager's results, and other runs of eager that say how exact they are."""

    want: Seen
    others: list[Seen]
    #: The coarsest rounding on the way: a float64 result of float32 values is only so exact.
    epsilon: float = 0.0


#: By how many rounding errors inputs are perturbed; more of them for where eager is exact by chance.
NOISES = (1.0, -0.5)
MORE_NOISES = (*NOISES, 0.75, -1.0, 1.25, -1.5, 1.75, -2.0)


def spread_of(
    run: Callable[..., Seen], want: Seen | None = None, epsilon: float = 0.0, noises: Sequence[float] = NOISES
) -> Spread:
    """`run(noise=…, wide=…)` is eager on the inputs."""
    want = want or run()
    others = [*[run(noise=noise) for noise in noises], run(wide=True)]
    alike = [o for o in others if o.failed is None and len(o.results) == len(want.results)]
    return Spread(want, alike, epsilon)


def judged(got: Seen, run: Callable[..., Seen], want: Seen, epsilon: float = 0.0, *, layout: bool = True) -> list[str]:
    """The differences that no way of measuring eager's own error explains, asked for one after the other."""
    if not differences(got, Spread(want, []), layout=layout):
        return []
    spread = spread_of(run, want, epsilon)
    if not differences(got, spread, layout=layout):
        return []
    return differences(got, _further(run, spread), layout=layout)


def _further(run: Callable[..., Seen], spread: Spread) -> Spread:
    """With more noise, and eager's other ways, each measured from eager under a mode that changes nothing.

    Which is a way as well: without a mode autograd adds gradients in place, and the sum is laid out as the first is.
    """
    want, others = spread.want, [run(noise=noise) for noise in MORE_NOISES[len(NOISES) :]]
    for unchanged, ways in ((Plain, WAYS), (plain_forward, FORWARD_WAYS)):
        plain = run(within=unchanged)
        others.append(plain)
        for other in (run(within=way) for way in ways):
            if other.failed is None and _are_alike(want, plain) and _are_alike(want, other):
                results = list(moved_like(want.results, plain.results, other.results))
                inputs = list(moved_like(want.inputs, plain.inputs, other.inputs))
                gradients = list(moved_like(want.gradients, plain.gradients, other.gradients))
                others.append(replace(want, results=results, inputs=inputs, gradients=gradients))
    alike = [o for o in others if o.failed is None and len(o.results) == len(want.results)]
    return replace(spread, others=[*spread.others, *alike])


def _are_alike(a: Seen, b: Seen) -> bool:
    return len(a.results) == len(b.results) and len(a.gradients) == len(b.gradients)


def differences(got: Seen, spread: Spread, *, layout: bool = True) -> list[str]:
    """The differences that a caller can observe, in words; without `layout`, of values only."""
    want = spread.want
    if want.failed is not None:
        return [] if got.failed is not None else [f"eager raises {_short(want.failed)}, the compiled function does not"]
    if got.failed is not None:
        return [f"raises {_short(got.failed)}"]
    if len(got.results) != len(want.results):
        return [f"{len(got.results)} results instead of {len(want.results)}"]
    found: list[str] = []
    if layout:
        found += _laid_out_otherwise(got, want)
    found += _far("result", got.results, want.results, [o.results for o in spread.others], spread.epsilon)
    found += _far("input", got.inputs, want.inputs, [o.inputs for o in spread.others], spread.epsilon)
    if want.backward_failed is not None:
        return found  # ours may know better
    if got.backward_failed is not None:
        return [*found, f"backward raises {_short(got.backward_failed)}"]
    others = [o.gradients for o in spread.others if len(o.gradients) == len(want.gradients)]
    return found + _far("gradient", got.gradients, want.gradients, others, spread.epsilon)


def _laid_out_otherwise(got: Seen, want: Seen) -> list[str]:
    found = []
    for i, (mine, theirs) in enumerate(zip(got.geometry, want.geometry, strict=True)):
        if mine != theirs:
            found.append(f"result {i} is {mine}, eager's {theirs}")
    for i, (shared, eager) in enumerate(zip(got.sharing, want.sharing, strict=True)):
        if shared != eager:
            found.append(f"result {i} shares memory {shared}, eager's {eager}")
    return found


def _far(what: str, got: list[Any], want: list[Any], others: list[list[Any]], coarse: float) -> list[str]:
    if len(got) != len(want):
        return [f"{len(got)} {what}s instead of {len(want)}"]
    found = []
    for i, (mine, theirs) in enumerate(zip(got, want, strict=True)):
        if isinstance(mine, Tensor) and isinstance(theirs, Tensor):
            kinds = [(str(t.dtype), tuple(t.shape), str(t.device)) for t in (mine, theirs)]
            if kinds[0] != kinds[1]:
                found.append(f"{what} {i} is {kinds[0]}, eager's {kinds[1]}")
                continue
            similar = [o[i] for o in others if isinstance(o[i], Tensor) and o[i].shape == mine.shape]
            # The terms that a gradient sums are of the cotangents' size, however small their sum is; of a result that
            # no input moves (a window) nothing else tells how large they are.
            constant = bool(similar) and all(bool((other == theirs).all()) for other in similar)
            why = _apart(mine, theirs, similar, coarse, terms=1.0 if what == "gradient" or constant else 0.0)
            if why:
                found.append(f"{what} {i} {why}")
        elif isinstance(mine, Tensor) != isinstance(theirs, Tensor):
            tensor = mine if isinstance(mine, Tensor) else theirs
            if tensor is not mine or bool(tensor.ne(0).any()):
                found.append(f"{what} {i} is {_kind(mine)}, eager's {_kind(theirs)}")
        elif mine != theirs and not (mine != mine and theirs != theirs):
            found.append(f"{what} {i} is {mine!r}, eager's {theirs!r}")
    return found


def _kind(value: Any) -> str:
    return f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)


def _apart(got: Tensor, want: Tensor, others: list[Tensor], coarse: float, terms: float) -> str:
    """How two tensors differ by more than eager's own error, or ""; `terms` is how large they are that were summed."""
    if got.is_complex():
        got, want = _parts(got), _parts(want)
        others = [_parts(other) for other in others if other.is_complex()]
    a, b = got.double(), want.double()
    if got.dtype in EPSILON:
        epsilon = max(EPSILON[got.dtype], coarse)
        normal = b[b.isfinite()].abs()
        scale = float(normal.max()) if normal.numel() else 0.0
        scale = max(scale, terms) if got.dtype is torch.float64 else min(scale, 1.0)
        rounding = ROUNDINGS.get(got.dtype, FEW_ROUNDINGS) * epsilon
        allowed = rounding * (b.abs().nan_to_num(0, 0, 0) + scale) + torch.finfo(got.dtype).tiny
    else:
        allowed = torch.zeros_like(b)
    own = torch.zeros_like(b)  # as far as the run goes that is farthest: many runs are no reason to allow more
    most = torch.zeros_like(b)
    for other in others:
        moved = (other.double() - b).abs()
        moved[(other.double() == b) | (other.isnan() & b.isnan())] = 0
        moved = moved.nan_to_num(torch.inf, torch.inf, torch.inf)
        far = SLACK * moved
        finite = moved[moved.isfinite()]
        if finite.numel() and got.dtype in EPSILON:  # one unlucky element may be exact by chance
            far = far + 2 * finite.mean()
        own, most = torch.maximum(own, far), torch.maximum(most, moved)
    moving = most[(most > allowed) & most.isfinite()]
    if moving.numel() * MOVING >= most.numel() > 0:  # no run moves all that rounding decides
        own = torch.maximum(own, moving.median())
    allowed = allowed + own
    equal = (a == b) | (a.isnan() & b.isnan())
    off = (a - b).abs().nan_to_num(torch.inf, torch.inf, torch.inf)
    wrong = ~equal & (off > allowed) | (~equal & a.isnan() & ~allowed.isinf())
    if not bool(wrong.any()):
        return ""
    where = wrong.nonzero()[0].tolist()
    at = tuple(where)
    return (
        f"is {got[at].item()!r} at {where}, eager's {want[at].item()!r} ({int(wrong.sum())} of {wrong.numel()} wrong)"
    )


def _parts(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor.resolve_conj())


def _short(error: BaseException) -> str:
    text = error.message if isinstance(error, StatorError) else str(error)
    return f"{type(error).__name__}: {text}".replace("\n", " ")[:300]
