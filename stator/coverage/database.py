"""PyTorch's operator database as entries and samples.

An entry is an operator or a variant of one (`name.variant`), with the dtypes that it takes on a device. The database
ships with torch among its tests, takes seconds to import, and is only imported when it is asked for. A sample's tensors
are kept as recipes: every run gets fresh ones, of the same values and strides. Neighbours: `judge.py`, `workers.py`.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "int64": torch.int64,
    "bool": torch.bool,
}
#: Dtypes that a run may ask for, and the record and the page leave out.
FURTHER = {"float16": torch.float16, "complex64": torch.complex64}
#: What a dtype among the arguments is in a run in float64.
WIDE = {
    torch.float32: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float16: torch.float64,
    torch.complex64: torch.complex128,
}
#: Entries that return uninitialised memory: only the geometry of their results is compared.
UNWRITTEN = re.compile(r"^(new_)?empty(_like|_strided|_permuted)?$")
#: Entries of which only the results with these numbers are uninitialised.
UNWRITTEN_RESULTS = {
    "torch.ops.aten._flash_attention_forward": (2, 3),
    "torch.ops.aten._efficient_attention_forward": (2, 3),
}
#: Entries whose results share memory with the input in a way that nobody may rely on.
FREE = re.compile(r"^unsafe_(chunk|split)$")
#: The seed of the generators of samples and functions.
SEED = 42


@dataclass(frozen=True)
class Sample:
    """One call of an operator: `function(*args, **kwargs)`, with the arguments flattened."""

    function: Callable[..., Any]
    spec: Any
    leaves: tuple[Any, ...]

    @property
    def usable(self) -> bool:
        """Whether all tensors are of the kind that a compiler of dense programs is asked to take."""
        return all(t.layout is torch.strided for t in self.leaves if isinstance(t, Tensor))

    def fresh(self, noise: float = 0.0, wide: bool = False) -> Arguments:
        """New arguments: perturbed by about `noise` rounding errors, `wide` in float64."""
        wanted = {i: _copy(t, noise, wide) for i, t in enumerate(self.leaves) if isinstance(t, Tensor)}
        # The function gets results of an operator where it may not write to a leaf.
        given: dict[int, Any] = {i: t.clone() if t.requires_grad else t for i, t in wanted.items()}
        kinds = WIDE if wide else {}
        given |= {i: kinds.get(leaf, leaf) for i, leaf in enumerate(self.leaves) if isinstance(leaf, torch.dtype)}
        leaves = [given.get(i, leaf) for i, leaf in enumerate(self.leaves)]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return Arguments(args, kwargs, [given[i] for i in wanted], list(wanted.values()))


@dataclass(frozen=True)
class Arguments:
    """The arguments of one run, the tensors among them, and the leaves at which gradients arrive."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tensors: list[Tensor]
    leaves: list[Tensor]


def _copy(t: Tensor, noise: float, wide: bool) -> Tensor:
    strided = 0 not in t.stride()
    copy = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device) if strided else torch.empty_like(t)
    copy.copy_(t.detach())
    inexact = t.dtype.is_floating_point or t.dtype.is_complex
    if noise and inexact:
        generator = torch.Generator().manual_seed(int(noise * 4) % 97)
        shake = torch.randn(t.shape, generator=generator, dtype=WIDE.get(t.dtype, t.dtype))
        copy.copy_(copy.to(shake.dtype) * (1 + noise * torch.finfo(t.dtype).eps * shake.to(t.device)))
    if wide and inexact:
        copy = copy.to(WIDE.get(t.dtype, t.dtype))
    return copy.requires_grad_(t.requires_grad)


def names(dtype: str, match: str = "", device: str = "cpu") -> list[str]:
    """The entries that take the dtype on the device, as `name.variant`."""
    kind = (DTYPES | FURTHER)[dtype]
    taking = [name for name, op in _entries().items() if kind in op.supported_dtypes(device)]
    return [name for name in taking if re.search(match, name)]


def samples(name: str, dtype: str, limit: int, device: str = "cpu") -> list[Sample]:
    """Samples of an entry, with gradients where it has them: all, or `limit` of them. More samples include fewer."""
    op, kind = _entries()[name], (DTYPES | FURTHER)[dtype]
    torch.manual_seed(SEED)
    differentiable = op.supports_autograd and kind in op.supported_backward_dtypes(device)
    found = list(op.sample_inputs(device, kind, requires_grad=differentiable))
    return [sample_of(op, found[i]) for i in _spread(len(found), limit)]


def entry(name: str) -> Any:
    """The database's record of an entry."""
    return _entries()[name]


def all_names(match: str = "") -> list[str]:
    """Every entry, whatever dtypes it takes."""
    return [name for name in _entries() if re.search(match, name)]


def sample_of(op: Any, made: Any) -> Sample:
    """A sample of the database as a call that can be made again and again."""
    leaves, spec = pytree.tree_flatten(((made.input, *made.args), dict(made.kwargs)))
    return Sample(op.op, spec, tuple(leaves))


def _spread(count: int, limit: int) -> list[int]:
    """`limit` of `count` numbers: the middle one, then halfway between those that are there, again and again."""
    chosen: dict[int, None] = {}
    parts = 1
    while len(chosen) < (min(limit, count) if limit > 0 else count):
        parts *= 2
        chosen.update(dict.fromkeys(i * count // parts for i in range(1, parts, 2)))
        if parts > count:
            chosen.update(dict.fromkeys(range(count)))
    return list(chosen)[: limit if limit > 0 else count]


@functools.cache
def _entries() -> dict[str, Any]:
    module = _imported()
    # The functions of random entries restore the generator around the call, which no graph can hold; we seed instead.
    vars(module).update(wrapper_set_seed=_plainly)
    return {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in module.op_db}


def operators() -> list[Any]:
    """PyTorch's own list of entries."""
    found: list[Any] = _imported().op_db
    return found


def _imported() -> Any:
    """The module, which imports what else is installed: that this uses something deprecated is no error of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = import_module("torch.testing._internal.common_methods_invocations")
    # For each entry it looks through the whole stack, and its sources, for a test of torch's that asks: there is none.
    vars(import_module("torch.testing._internal.common_utils")).update(extract_test_fn=lambda: None)
    return module


def _plainly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)
