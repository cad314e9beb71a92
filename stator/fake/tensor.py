"""`FakeTensor`: size, stride, dtype, device, autograd history, and no data.

A fake is a wrapper subclass, so the dispatcher treats it as a tensor of the device it claims (autograd, autocast and
operator selection included), whether or not this machine has such a device. The meta tensor behind it, on which
PyTorch's own shape kernels run, is made only when somebody asks for it.

Invariant: `fake.meta` has the fake's size, stride, offset and dtype; fakes with one `memory` are views of one another.
Neighbours: `execute.py` runs operators on fakes, `rules.py` knows the shapes of the common ones, `mode.py` is the mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch

from stator.base.errors import DataDependent

_wrap = torch.Tensor._make_wrapper_subclass
Tensor = TypeVar("Tensor", bound=torch.Tensor)


class Memory:
    """What fakes that are views of one another share."""

    __slots__ = ("moved", "unknown", "written")

    def __init__(self) -> None:
        #: Whether the tensors there begin elsewhere in eager (`starts.py`).
        self.moved = False
        #: Whether an operator has written there. Version counters tell less: a write through `.data` is not counted.
        self.written = False
        #: Whether something has been written there that is not known: no view of it is a constant any more.
        self.unknown = False


class FakeTensor(torch.Tensor):
    """A tensor without data. Made by `make`, `wrap_meta` or `FakeMode.from_real`, never by its constructor."""

    #: Identity of the memory; None means "its own, nobody asked yet". Read it with `memory_of`.
    memory: Memory | None = None
    _constant: torch.Tensor | None = None
    #: What a tracer knows about this tensor (`aot/functional.py`), else None.
    handle: Any = None
    _meta: torch.Tensor | None = None

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @property
    def constant(self) -> torch.Tensor | None:
        """A small real tensor with the value, where the value is known (`torch.tensor(3)`), else None."""
        memory = self.memory
        return None if memory is not None and memory.unknown else self._constant

    @constant.setter
    def constant(self, value: torch.Tensor | None) -> None:
        self._constant = value

    @property
    def meta(self) -> torch.Tensor:
        """The meta tensor with the same geometry."""
        meta = self._meta
        if meta is None:
            with torch._C._DisableTorchDispatch():
                meta = with_pending(_meta_like(self), self)
            self._meta = meta
        return meta

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _execute(func, args, kwargs or {})

    def tolist(self) -> Any:
        """The value as Python numbers, where it is known."""
        if self.constant is None:
            raise DataDependent("tolist")
        return self.constant.tolist()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        dtype = str(self.dtype).removeprefix("torch.")
        grad = ", requires_grad" if self.requires_grad else ""
        return f"FakeTensor({dtype}{list(self.shape)}, {self.device}{grad})"

    def __deepcopy__(self, memo: dict[int, Any]) -> FakeTensor:
        copy = make(self.shape, self.dtype, self.device, self.stride(), self.storage_offset())
        copy.constant = self.constant
        memo[id(self)] = copy
        copy.requires_grad_(self.requires_grad)
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        index = (tuple(self.shape), self.dtype, self.device, self.stride(), self.storage_offset())
        return make, index


def _no_executor(func: Any, args: Any, kwargs: Any) -> Any:
    raise RuntimeError("stator.fake.execute was not imported")


#: Runs one operator on fakes outside every mode; `execute.py` puts itself here (it needs this file, not the reverse).
_execute = _no_executor


def install_executor(function: Any) -> None:
    """Let `function(func, args, kwargs)` run the operators that meet fakes outside a mode."""
    global _execute
    _execute = function


#: A tensor of the host has no number, though the program gives it one.
_CLAIMED = {torch.device("cpu", 0): torch.device("cpu")}


def make(
    size: Sequence[int | torch.SymInt],
    dtype: torch.dtype,
    device: torch.device,
    stride: Sequence[int | torch.SymInt] | None = None,
    offset: int | torch.SymInt = 0,
) -> FakeTensor:
    """A fake with memory of its own; contiguous unless strides are given."""
    _check_size(size)
    device = _CLAIMED.get(device, device)
    if stride is None:
        return _wrap(FakeTensor, size, dtype=dtype, device=device)
    return _wrap(FakeTensor, size, strides=stride, storage_offset=offset, dtype=dtype, device=device)


def _check_size(size: Sequence[int | torch.SymInt]) -> None:
    """Refuse extents below zero, which PyTorch itself looks for among plain ints alone."""
    for extent in size:
        if type(extent) is torch.SymInt and extent < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {int(extent)}: {list(size)}")


def wrap_meta(meta: torch.Tensor, device: torch.device) -> FakeTensor:
    """The fake over a meta tensor, claiming `device`."""
    _check_size(meta.size())
    fake = _wrap(
        FakeTensor,
        meta.size(),
        strides=meta.stride(),
        storage_offset=meta.storage_offset(),
        dtype=meta.dtype,
        device=_CLAIMED.get(device, device),
    )
    fake._meta = meta
    return with_pending(fake, meta)


def with_pending(made: Tensor, like: torch.Tensor) -> Tensor:
    """The tensor, whose conjugation and negation are put off as those of `like` are: the dispatcher then acts on it."""
    if like.is_conj():
        torch._C._set_conj(made, True)
    if like.is_neg():
        torch._C._set_neg(made, True)
    return made


def memory_of(fake: FakeTensor) -> Memory:
    """The identity of the fake's memory."""
    memory = fake.memory
    if memory is None:
        memory = fake.memory = Memory()
    return memory


def forget(*tensors: Any) -> None:
    """Something that is not known has been written to these: neither they nor views of them are constants any more."""
    for tensor in tensors:
        if isinstance(tensor, FakeTensor):
            memory_of(tensor).unknown = True


def _meta_like(tensor: torch.Tensor, elements: Any = None) -> torch.Tensor:
    """A meta tensor with the tensor's geometry, over a storage of `elements` elements (default: just enough)."""
    size, stride, offset = tensor.size(), tensor.stride(), tensor.storage_offset()
    if offset == 0 and elements is None:
        return torch.empty_strided(size, stride, dtype=tensor.dtype, device="meta")
    if elements is None:
        reach = sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
        elements = offset + (0 if 0 in size else 1 + reach)
    return torch.empty(elements, dtype=tensor.dtype, device="meta").as_strided(size, stride, offset)


def meta_like_storage(tensor: torch.Tensor) -> torch.Tensor:
    """A meta tensor with the geometry of a real tensor over a storage as large as the tensor's own."""
    return _meta_like(tensor, tensor.untyped_storage().nbytes() // tensor.element_size())
