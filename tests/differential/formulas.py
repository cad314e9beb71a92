"""Gradients by a formula that depends on data: `python -m tests.differential.formulas [--match prod]`.

Below a mode (as in every trace) PyTorch has no data and takes one formula for all. Each operator of the database runs
in eager, alone and below a mode that does nothing, on zeros, infinities and NaN, with infinite cotangents too. Where
these two differ, the compiled function has to give what eager gives alone: `differing` tells where it does not.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

import stator
from stator.coverage.database import operators
from stator.coverage.ways import Plain

ODD = (0.0, 0.0, 0.0, math.inf, -math.inf, math.nan, 1.0, -0.0)
#: What one element of the cotangents is, and how many of the inputs' elements are odd.
WAYS = ((0.0, 0.15), (0.0, 0.03), (math.inf, 0.0), (math.nan, 0.0), (0.0, 0.0))
#: How many of an operator's samples are tried.
SAMPLES = 12


def observed(
    function: Callable[..., Any],
    sample: Any,
    seed: int,
    way: tuple[float, float],
    within: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> list[Tensor | None]:
    """The gradients of a sample with odd values."""
    generator = torch.Generator().manual_seed(seed)
    odd, share = way

    def spoilt(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return value
        made = value.detach().clone()
        draw = torch.rand(made.shape, generator=generator) / share if share else torch.ones(made.shape)
        for i, number in enumerate(ODD):
            made[(draw * len(ODD)).long() == i] = number
        return made.requires_grad_(value.requires_grad)

    args, kwargs = tree_map(spoilt, ((sample.input, *sample.args), sample.kwargs))
    leaves = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.requires_grad]
    torch.manual_seed(seed)
    with within():
        found = tree_leaves(function(*args, **kwargs))
        outs = [t for t in found if isinstance(t, Tensor) and t.requires_grad and t.is_floating_point()]
        cotangents = [torch.randn(out.shape, generator=generator) for out in outs]
        for cotangent in cotangents if odd else ():
            cotangent.view(-1)[:1] = odd
        return list(torch.autograd.grad(outs, leaves, cotangents, allow_unused=True)) if outs and leaves else []


def agree(a: Sequence[Tensor | None], b: Sequence[Tensor | None]) -> bool:
    """Whether two lists of gradients are the same, up to roundings."""
    return len(a) == len(b) and all(
        torch.allclose(x, y, rtol=1e-3, atol=1e-4, equal_nan=True)
        if isinstance(x, Tensor) and isinstance(y, Tensor)
        else x is y
        for x, y in zip(a, b, strict=True)
    )


def differing(entry: Any) -> Iterator[tuple[bool, str]]:
    """For each sample with two formulas whether the compiled function gives what eager gives, and which it is."""
    samples = list(entry.sample_inputs("cpu", torch.float32, requires_grad=True))
    for number, sample in enumerate(samples[:: max(1, len(samples) // SAMPLES)]):
        for way in WAYS:
            try:
                want, below = (observed(entry, sample, number, way, within) for within in (nullcontext, Plain))
            except (RuntimeError, ValueError, NotImplementedError):  # such values are none for this operator
                continue
            if agree(want, below):
                continue
            for backend in ("aot_eager", "inductor"):
                stator.reset()
                options = {"strict": True} | ({"cache": False} if backend == "inductor" else {})
                compiled = stator.compile(entry.op, backend=backend, options=options)
                got = observed(compiled, sample, number, way)
                yield agree(got, want), f"{entry.name}, sample {number}, {way}, {backend}: {got}, eager's {want}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--match", default="", help="only entries whose name matches")
    given = parser.parse_args(arguments)
    failed = False
    for entry in operators():
        if not re.search(given.match, entry.name) or torch.float32 not in entry.supported_backward_dtypes("cpu"):
            continue
        child = os.fork()  # kernels of PyTorch die of NaN among positions
        if not child:
            os._exit(_report(entry))
        failed |= os.waitpid(child, 0)[1] == 256
    return int(failed)


def _report(entry: Any) -> int:
    """Tell what one entry has, and whether anything is wrong."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = list(differing(entry))
    if found:
        print(
            f"{entry.name}: {len(found)} samples have another formula, {sum(ok for ok, _ in found)} right", flush=True
        )
    for ok, text in found:
        if not ok:
            print(text, flush=True)
    return int(not all(ok for ok, _ in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
