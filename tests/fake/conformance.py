"""`python -m tests.fake.conformance`: every operator's real result against its shape function, over the database.

Each sample of an entry runs for real, gradients included; below autograd every ATen operator that it calls is run on
fakes of the same arguments too. Results have to be alike: which are tensors and which are undefined, size, dtype,
strides, device. Kernels are compiled for what the fakes say.
"""

from __future__ import annotations

import argparse
import collections
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stator.base.errors import DataDependent, Unsupported
from stator.coverage import database
from stator.fake import FakeMode

aten = torch.ops.aten

#: Operators whose result is not described by what they are given: memory as it is.
FREE = {aten.empty_like.default, aten.new_empty_strided.default}


@dataclass
class Conformance(TorchDispatchMode):
    """Runs operators for real, and compares."""

    #: What was found: operator → how its result differs.
    found: dict[str, str] = field(default_factory=dict)
    #: How often each operator was compared, and how often its fake was refused.
    compared: collections.Counter[str] = field(default_factory=collections.Counter)
    refused: collections.Counter[str] = field(default_factory=collections.Counter)

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        said = self._said(func, args, kwargs)
        real = func(*args, **kwargs)
        if said is not None and func not in FREE:
            self.compared[str(func)] += 1
            why = "; ".join(_unlike(real, said[0]))
            if why:
                self.found.setdefault(str(func), why)
        return real

    def _said(self, func: Any, args: Any, kwargs: Any) -> tuple[Any] | None:
        """What the shape function says, or None where it refuses to."""
        if not all(t.layout is torch.strided for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)):
            return None
        try:
            with FakeMode():
                return (func(*args, **kwargs),)
        except (DataDependent, Unsupported):
            self.refused[str(func)] += 1
            return None
        except RuntimeError:  # where the real kernel raises as well, that is seen
            return None


def _unlike(real: Any, said: Any) -> Iterator[str]:
    """How a result differs from what was said."""
    pairs = [(real, said)] if isinstance(real, Tensor) or isinstance(said, Tensor) else None
    if pairs is None:
        if not isinstance(real, (tuple, list)) or not isinstance(said, (tuple, list)):
            return
        if len(real) != len(said):
            yield f"{len(real)} results, said to be {len(said)}"
            return
        pairs = list(zip(real, said, strict=True))
    for number, (mine, fake) in enumerate(pairs):
        if isinstance(mine, (tuple, list)):
            yield from _unlike(mine, fake)
        elif isinstance(mine, Tensor) != isinstance(fake, Tensor):
            yield f"result {number} is {_kind(mine)}, said to be {_kind(fake)}"
        elif isinstance(mine, Tensor) and mine.layout is torch.strided and _geometry(mine) != _geometry(fake):
            yield f"result {number} is {_geometry(mine)}, said to be {_geometry(fake)}"


def _kind(value: Any) -> str:
    return "a tensor" if isinstance(value, Tensor) else repr(value)


def _geometry(tensor: Tensor) -> tuple[Any, ...]:
    """What kernels rely on: strides matter where there are several elements along them."""
    strides = [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1] if tensor.numel() else []
    return tuple(tensor.shape), tensor.dtype, tuple(strides), tensor.device.type


def check(name: str, dtype: str, device: str, limit: int) -> Conformance:
    """All operators that the samples of an entry call."""
    mode = Conformance()
    for sample in database.samples(name, dtype, limit, device):
        if not sample.usable:
            continue
        given = sample.fresh()
        torch.manual_seed(database.SEED)
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                try:
                    with mode:
                        out = sample.function(*given.args, **given.kwargs)
                except Exception:  # a sample that eager refuses
                    break
                results = [t for t in tree_leaves(out) if isinstance(t, Tensor) and t.layout is torch.strided]
                parts = [t for t in results if t.requires_grad]
                leaves = [t for t in given.leaves if t.requires_grad]
                if grad and parts and leaves:
                    with mode:
                        torch.autograd.grad(parts, leaves, [torch.ones_like(t) for t in parts], allow_unused=True)
    return mode


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--match", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtypes", nargs="+", default=["float32"])
    parser.add_argument("--samples", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, list[str]] = collections.defaultdict(list)
    compared, refused = collections.Counter[str](), collections.Counter[str]()
    for dtype in given.dtypes:
        for name in database.names(dtype, given.match, given.device):
            try:
                mode = check(name, dtype, given.device, given.samples)
            except Exception as error:
                print(f"error {name} {dtype}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                continue
            compared += mode.compared
            refused += mode.refused
            for operator, why in mode.found.items():
                if operator not in found:
                    print(f"{operator} in {name} {dtype}: {why}", flush=True)
                found[operator].append(name)
    print(f"{len(compared)} operators, {compared.total()} calls, {len(found)} operators differ, {len(refused)} refused")


if __name__ == "__main__":
    main()
