"""How results lie in memory, on fakes and in eager: every operator on tensors that lie in memory in many ways.

A sample's tensors are presented contiguous, with the channel innermost, with their dims reversed and rotated, with gaps
and offsets, expanded, and with dims of one element or none. Dtype, size, every stride, offset and whether a result is a
view have to be eager's. `python -m stator.coverage --layouts` runs all. Neighbours: `database.py`, `__main__.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stator.base.errors import DataDependent, StatorError
from stator.coverage import database
from stator.coverage.database import FREE, SEED, Sample
from stator.fake import FakeMode
from stator.graphs import composite

#: Entries whose kernels end the process on empty tensors, in eager.
FATAL = {"nn.functional.embedding_bag", "_segment_reduce.lengths", "_segment_reduce.offsets"}

#: What is presented otherwise of a sample's tensors: each one → another of the same values.
Presentation = Callable[[Tensor], Tensor]


def _ordered(order: Callable[[int], Sequence[int]], least: int, x: Tensor) -> Tensor:
    """With its dims in memory in some order, from the outermost to the innermost."""
    if x.dim() < least:
        return x.clone()
    dims = list(order(x.dim()))
    packed = torch.empty([x.shape[d] for d in dims], dtype=x.dtype)
    return packed.permute([dims.index(d) for d in range(x.dim())]).copy_(x)


def _stepped(x: Tensor) -> Tensor:
    if not x.dim():
        return x.clone()
    return torch.zeros([*x.shape[:-1], 2 * x.shape[-1]], dtype=x.dtype)[..., ::2].copy_(x)


def _offset(x: Tensor) -> Tensor:
    return torch.zeros([x.shape[0] + 1, *x.shape[1:]], dtype=x.dtype)[1:].copy_(x) if x.dim() else x.clone()


def _expanded(x: Tensor) -> Tensor:
    return x[:1].clone().expand(x.shape) if x.dim() and x.shape[0] > 1 else x.clone()


def _cut(extent: int, left: int, then: Presentation, x: Tensor) -> Tensor:
    """With every dim of one extent cut to a few elements."""
    for dim, n in enumerate(x.shape):
        if n == extent:
            x = x.narrow(dim, 0, left)
    return then(x)


def _line(extent: int, first: Presentation, x: Tensor) -> Tensor:
    """One element of every dim of other extents, where they lie: with strides in any order, and gaps."""
    x = first(x)
    for dim, n in enumerate(x.shape):
        if n not in (extent, 0):
            x = x.narrow(dim, 0, 1)
    return x


PRESENTATIONS: dict[str, Presentation] = {
    "contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    "reversed": partial(_ordered, lambda rank: range(rank)[::-1], 2),
    "channels last": partial(_ordered, lambda rank: [0, *range(2, rank), 1], 3),
    "rotated": partial(_ordered, lambda rank: [*range(1, rank), 0], 3),
    "stepped": _stepped,
    "offset": _offset,
    "expanded": _expanded,
}


def presented(sample: Sample) -> Iterator[tuple[str, Sample]]:
    """The sample in every way, with a label each."""
    tensors = [leaf for leaf in sample.leaves if isinstance(leaf, Tensor)]
    for label, present in PRESENTATIONS.items():
        yield label, _mapped(sample, present)
    for label in ("reversed", "channels last"):
        for number in range(len(tensors)) if len(tensors) > 1 else ():
            yield f"{label} {number}", _mapped(sample, PRESENTATIONS[label], number)
    for extent in sorted({n for tensor in tensors for n in tensor.shape if n > 1}):
        yield f"{extent} as 1", _mapped(sample, partial(_cut, extent, 1, PRESENTATIONS["contiguous"]))
        for label in ("reversed", "channels last", "rotated"):
            yield f"{extent} as 1, {label}", _mapped(sample, partial(_cut, extent, 1, PRESENTATIONS[label]))
            yield f"{extent} alone, {label}", _mapped(sample, partial(_line, extent, PRESENTATIONS[label]))
        yield f"{extent} as 0", _mapped(sample, partial(_cut, extent, 0, PRESENTATIONS["contiguous"]))


def _mapped(sample: Sample, present: Presentation, only: int | None = None) -> Sample:
    leaves, number = [], 0
    for leaf in sample.leaves:
        if isinstance(leaf, Tensor):
            leaf = present(leaf.detach()) if only in (None, number) else leaf.detach().clone()
            number += 1
        leaves.append(leaf)
    return Sample(sample.function, sample.spec, tuple(leaves))


def wrong(sample: Sample) -> str | None:
    """How the results lie otherwise on fakes than in eager; "" if they do not, None where nothing can be compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = _described(sample, sample.leaves)
        if isinstance(expected, Exception):
            return None
        mode = FakeMode()
        with mode:
            found = _described(
                sample, [mode.from_real(leaf) if isinstance(leaf, Tensor) else leaf for leaf in sample.leaves]
            )
    if isinstance(found, DataDependent | StatorError):
        return None
    if isinstance(found, Exception):
        return f"raises {type(found).__name__}: {found}".replace("\n", " ")[:200]
    pairs = [(mine, theirs) for mine, theirs in zip(found, expected, strict=True) if mine != theirs]
    return "; ".join(f"is {mine}, eager's {theirs}" for mine, theirs in pairs)


def _described(sample: Sample, leaves: Sequence[Any]) -> list[Any] | Exception:
    """Dtype, size, strides, offset and whether it is a view, of each result; an input that is given back is that."""
    args, kwargs = pytree.tree_unflatten(list(leaves), sample.spec)
    torch.manual_seed(SEED)
    try:
        results = pytree.tree_leaves(composite.call(sample.function, args, kwargs))
    except Exception as error:
        return error
    found: list[Any] = []
    for result in results:
        if not isinstance(result, Tensor) or result.layout is not torch.strided:
            found.append(type(result).__name__ if not isinstance(result, Tensor) else str(result.layout))
        elif any(result is leaf for leaf in leaves):
            found.append("an input")
        else:
            place = tuple(result.shape), result.stride(), result.storage_offset()
            found.append((str(result.dtype), *place, "view" if result._is_view() else "fresh"))
    return found


def cases(name: str, dtype: str = "float32", limit: int = 2) -> Iterator[tuple[str, Sample]]:
    """The samples of an entry in every way."""
    for number, sample in enumerate(database.samples(name, dtype, limit)):
        if sample.usable and name not in FATAL and not FREE.match(name):
            for label, made in presented(sample):
                yield f"{number} {label}", made


def run(match: str = "", limit: int = 4) -> int:
    """Every case of the entries that match; prints what differs, and gives how many cases do."""
    count = bad = 0
    for name in database.names("float32", match):
        for label, sample in cases(name, limit=limit):
            why = wrong(sample)
            count += why is not None
            bad += bool(why)
            if why:
                print(f"{name} {label}: {why}", flush=True)
    print(f"{count} calls, results of {bad} lie otherwise")
    return bad
