"""`python -m tests.aot.changing`: every operator that has gradients, in functions that ask for them, at changing sizes.

A sample of PyTorch's operator database is called three times, each time with other extents: equal extents stay equal,
values are those of the sample, over again. `inside` asks for the gradients of a mean within the compiled function,
`outside` returns it. One compiled function sees all sizes, symbolic from the first call on.
"""

from __future__ import annotations

import argparse
import collections
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

import stator
from stator.base.errors import CaptureError, DataDependent, Unsupported
from stator.coverage import database
from stator.coverage.compare import Seen, differences, observe_on, spread_of
from stator.coverage.database import SEED, Arguments, Sample

#: By how much every extent above 1 is larger than the sample's.
GROWTH = (0, 1, 3)
WAYS = ("inside", "outside")
REFUSALS = (CaptureError, DataDependent, Unsupported)


def grown(sample: Sample, by: int) -> Sample:
    """The sample with larger tensors."""
    return replace(sample, leaves=tuple(_grown(leaf, by) for leaf in sample.leaves))


def _grown(leaf: Any, by: int) -> Any:
    if not by or not isinstance(leaf, torch.Tensor) or not leaf.numel() or leaf.layout is not torch.strided:
        return leaf
    size = [extent + by if extent > 1 else extent for extent in leaf.shape]
    values = leaf.detach().reshape(-1)
    count = torch.Size(size).numel()
    return values.repeat(-(-count // len(values)))[:count].view(size).requires_grad_(leaf.requires_grad)


def program(sample: Sample, way: str) -> Callable[..., Any]:
    """What is compiled: `(args, kwargs, leaves) -> loss or gradients`."""
    function = sample.function

    def outside(args: Any, kwargs: Any, leaves: Any) -> Any:
        total = None
        out = function(*args, **kwargs)
        for part in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(part, torch.Tensor) and part.requires_grad:
                mean = (part.abs() if part.is_complex() else part).sin().mean()
                total = mean if total is None else total + mean
        return total

    def inside(args: Any, kwargs: Any, leaves: Any) -> Any:
        total = outside(args, kwargs, leaves)
        return None if total is None else torch.autograd.grad(total, leaves, allow_unused=True)

    return inside if way == "inside" else outside


def observed(function: Callable[..., Any], given: Arguments, way: str) -> Seen:
    """One call, of leaves, and the gradients of what it gives."""
    torch.manual_seed(SEED)
    args, kwargs = tree_map_only(torch.Tensor, _leaf, (given.args, given.kwargs))
    tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
    leaves = [tensor for tensor in tensors if tensor.requires_grad]

    def call(*_: torch.Tensor) -> Any:
        return function(args, kwargs, leaves)

    seen = observe_on(call, tensors, leaves, backward=way == "outside")
    seen.geometry = seen.sharing = []  # other tests compare these
    return seen


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def judge(sample: Sample, way: str, backend: str = "inductor") -> Iterator[tuple[str, str]]:
    """For each size: right, refused, unusable (eager raises) or wrong, and why."""
    stator.reset()
    options = {"strict": True, "cache": False, "eager_random": True} if backend == "inductor" else None
    compiled = stator.compile(program(sample, way), dynamic=True, backend=backend, options=options)
    for by in GROWTH:
        sized = grown(sample, by)

        def eager(noise: float = 0.0, wide: bool = False, sized: Sample = sized) -> Seen:
            return observed(program(sized, way), sized.fresh(noise, wide), way)

        want = eager()
        if want.failed is not None or want.backward_failed is not None or want.results == [None]:
            yield "unusable", ""
            continue
        got = observed(compiled, sized.fresh(), way)
        refused = next((e for e in (got.failed, got.backward_failed) if isinstance(e, REFUSALS)), None)
        found = differences(got, spread_of(eager, want), layout=False)
        yield ("refused", str(refused)[:200]) if refused else ("wrong", "; ".join(found)) if found else ("right", "")


def differentiable(match: str, dtype: str) -> list[str]:
    """The entries that have gradients, and always the same result."""
    return [name for name in database.names(dtype, match) if not database.UNWRITTEN.match(name)]


def samples(name: str, dtype: str, limit: int) -> list[Sample]:
    """Those that a compiler of dense programs takes, and that have gradients."""
    found = database.samples(name, dtype, limit)
    leaves = [[leaf for leaf in sample.leaves if isinstance(leaf, torch.Tensor)] for sample in found]
    return [s for s, tensors in zip(found, leaves, strict=True) if s.usable and any(t.requires_grad for t in tensors)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--match", default="")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--samples", type=int, default=1, help="of each entry; 0 is all")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--ways", nargs="+", default=WAYS)
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), help="number and count of parts")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts: collections.Counter[str] = collections.Counter()
    began = time.perf_counter()
    number, parts = given.part
    for name in differentiable(given.match, given.dtype)[number::parts]:
        for at, sample in enumerate(samples(name, given.dtype, given.samples)):
            for way in given.ways:
                try:
                    found = list(judge(sample, way, given.backend))
                except Exception as error:
                    found = [("wrong", f"{type(error).__name__}: {error}"[:300])]
                counts.update(verdict for verdict, _ in found)
                for by, (verdict, why) in zip(GROWTH, found, strict=False):
                    if verdict in ("wrong", "refused"):
                        print(f"{verdict} {name}[{at}] {way} +{by}: {why[:300]}", flush=True)
    print(f"{dict(counts)} in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
