"""`FakeMode`: inside it every operator takes and gives fakes, factories included.

Real tensors that an operator meets are converted by `from_real`, whose memo makes one fake per tensor.
Invariant: nothing inside the mode reads or writes the data of a real tensor, except small constants.

Neighbours: `execute.py` does the work of one operator; `aot/trace.py` subclasses the mode to record a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stator.base.errors import Unsupported
from stator.fake import refusals, repeated, starts
from stator.fake.execute import CONSTANT_ELEMENTS, NUMBERS, execute, is_small, on_cpu, plan_of
from stator.fake.symbolic import is_symbolic
from stator.fake.tensor import FakeTensor, Memory, make, meta_like_storage

aten = torch.ops.aten
_LIFTS = {aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default}
_SIZES = aten.size.default
#: Operators that make tensors of numbers alone.
FACTORIES = {
    aten.scalar_tensor.default,
    aten.full.default,
    aten.zeros.default,
    aten.ones.default,
    aten.arange.default,
    aten.arange.start,
    aten.arange.start_step,
}


#: Sizes and strides.
Geometry: TypeAlias = tuple[Sequence[int | torch.SymInt], Sequence[int | torch.SymInt]]


class FakeMode(TorchDispatchMode):
    """The mode under which programs run without data."""

    def __init__(self, hook: Callable[[Any, tuple[Any, ...], dict[str, Any]], None] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: Called with (operator, args, kwargs) before each operator.
        self.hook = hook
        #: How many operators have drawn from PyTorch's default generators, or may have.
        self.draws = 0
        # The real tensor is kept beside its fake: its id is the key, so it must not be freed and reused.
        self._memo: dict[int, tuple[torch.Tensor, FakeTensor]] = {}
        self._storages: dict[int, Memory] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # PyTorch asks when the class is made. With its default answer, yes, it wraps `__torch_dispatch__`, and the
        # wrapper imports the whole of its own compiler at the first operator.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.hook is not None:
            self.hook(func, args, kwargs)
        if func in _LIFTS:
            return self.lift(args[0])
        if func is _SIZES:  # asked of a symbolic tensor by an operator that takes numbers, which these become
            return tuple(args[0].shape)
        args = self.fakes(self.lifted(func, args))
        if kwargs:
            kwargs = dict(zip(kwargs, self.fakes(tuple(kwargs.values())), strict=True))
        plan = plan_of(func)
        self.draws += plan.draws
        refusals.check(func, plan, args, kwargs)
        starts.check(func, args, kwargs)
        repeated.check(func, args)
        if plan.composite:
            with self:
                return func.decompose(*args, **kwargs)
        if plan.view and torch.is_inference_mode_enabled() and not args[0].is_inference():
            # A view is an inference tensor only if what it views is one.
            with torch.inference_mode(False):
                return execute(func, args, kwargs)
        out = execute(func, args, kwargs)
        starts.note(func, args, out)
        if func in FACTORIES:
            remember_value(func, args, kwargs, out)
        return out

    def lifted(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with a tensor for a number, where that is the only tensor the operator takes."""
        dtype = NUMBERS.get(type(args[0])) if args else None
        if dtype is None or not plan_of(func).alone or plan_of(func).view:  # derivatives conjugate numbers
            return args
        return self.lift(torch.tensor(args[0], dtype=dtype)), *args[1:]

    def fakes(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with every real tensor replaced by its fake; the same tuple if there is none."""
        for arg in args:
            kind = type(arg)
            if kind is FakeTensor:
                continue
            if isinstance(arg, torch.Tensor) or ((kind is list or kind is tuple) and _has_tensor(arg)):
                return tuple(self._fake(item) for item in args)
        return args

    def _fake(self, arg: Any) -> Any:
        if isinstance(arg, FakeTensor):
            return arg
        if isinstance(arg, torch.Tensor):
            return self.from_real(arg)
        if isinstance(arg, (list, tuple)):
            return type(arg)(self._fake(item) for item in arg)
        return arg

    def lift(self, tensor: torch.Tensor) -> FakeTensor:
        """A tensor that the program just made from Python numbers (`torch.tensor`)."""
        if isinstance(tensor, FakeTensor):
            return tensor
        fake = make(tensor.size(), tensor.dtype, tensor.device)
        if tensor.numel() <= CONSTANT_ELEMENTS and tensor.device.type == "cpu":
            with torch._C._DisableTorchDispatch():
                fake.constant = tensor.detach().clone()
        return fake

    def from_real(
        self, tensor: torch.Tensor, *, requires_grad: bool | None = None, geometry: Geometry | None = None
    ) -> FakeTensor:
        """The fake of a real tensor: same geometry, device, dtype, place in autograd; one per tensor object.

        `geometry` gives sizes and strides that are symbolic.
        """
        if isinstance(tensor, FakeTensor):
            return tensor
        known = self._memo.get(id(tensor))
        if known is not None:
            return known[1]
        if tensor.is_nested:
            raise Unsupported("a tensor input", "it is a nested tensor")
        if geometry is None:
            geometry = tensor.size(), tensor.stride()
        fake = self._convert(tensor, geometry, tensor.requires_grad if requires_grad is None else requires_grad)
        self._memo[id(tensor)] = (tensor, fake)
        return fake

    def _convert(self, tensor: torch.Tensor, geometry: Geometry, requires_grad: bool) -> FakeTensor:
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise Unsupported("a tensor input", f"its layout is {tensor.layout}")
        if tensor.is_neg() or tensor.is_conj():
            raise Unsupported("a tensor input", "its conjugation or negation is pending", "call .resolve_conj() on it")
        with torch._C._DisableTorchDispatch(), torch.inference_mode(False):
            size, stride = geometry
            fake = make(size, tensor.dtype, tensor.device, stride, tensor.storage_offset())
            if tensor.storage_offset() and not fake._has_symbolic_sizes_strides:
                fake._meta = meta_like_storage(tensor)
            # Views of one storage keep being views of one storage.
            fake.memory = self._storages.setdefault(tensor.untyped_storage()._cdata, Memory())
            if isinstance(tensor, torch.nn.Parameter):
                fake._is_param = True
        if requires_grad:
            fake = leaf_like(fake, tensor)
            if not _is_leaf(tensor):
                with torch._C._DisableTorchDispatch(), torch.inference_mode(False):
                    fake = inner(fake)
        return fake


def _is_leaf(tensor: torch.Tensor) -> bool:
    try:
        return tensor.is_leaf
    except RuntimeError as error:  # its history can no longer be made
        raise Unsupported("a tensor input", f"autograd refuses it: {error}") from error


def views_constant(tensor: torch.Tensor) -> bool:
    """Whether autograd takes it to be a view of a tensor that requires no gradients."""
    base = tensor._base
    return base is not None and not base.requires_grad


def leaf_like(fake: FakeTensor, real: torch.Tensor) -> FakeTensor:
    """The fake as a leaf that takes gradients, and a view where the real leaf is one, of a tensor that takes none.

    Of such a leaf a view that autograd does not record takes no gradients: it is a view of that other tensor.
    """
    with torch.inference_mode(False), torch.enable_grad():
        if views_constant(real) and not isinstance(real, torch.nn.Parameter):
            fake = fake.view_as(fake)  # type: ignore[assignment]
        with torch._C._DisableTorchDispatch():
            fake.requires_grad_()
    return fake


class _Inner(torch.autograd.Function):
    """Gives a tensor a place inside the autograd graph, as the real one has it: requires grad, is no leaf."""

    @staticmethod
    def forward(ctx: Any, leaf: FakeTensor) -> FakeTensor:
        ctx.set_materialize_grads(False)
        inner = make(leaf.size(), leaf.dtype, leaf.device, leaf.stride(), leaf.storage_offset())
        inner._meta, inner.memory = leaf._meta, leaf.memory
        return inner

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def inner(leaf: FakeTensor) -> FakeTensor:
    """A fake like `leaf` that requires grad as the result of something, as inputs in the middle of a program do."""
    with torch.enable_grad():
        fake: FakeTensor = _Inner.apply(leaf)  # type: ignore[no-untyped-call]
        return fake


def is_inner(function: Any) -> bool:
    """Whether a part of the autograd graph is only such a place."""
    return getattr(type(function), "_forward_cls", None) is _Inner


def is_custom(function: Any) -> bool:
    """Whether a part of the autograd graph has a backward of the user's own."""
    return isinstance(function, torch.autograd.function.BackwardCFunction) and not is_inner(function)


@contextmanager
def without_saved_tensor_hooks(seen: Callable[[torch.Tensor], None] | None = None) -> Iterator[None]:
    """The caller's hooks (checkpointing has some) are for what a call saves, not for the fakes of a compiler.

    Ours check what PyTorch does not check under any hooks: that what backward needs was not written to since. `seen` is
    shown what autograd saves.
    """

    def save(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
        if seen is not None:
            seen(tensor)
        return tensor, tensor._version

    autograd: Any = torch._C._autograd
    disabled = not autograd._saved_tensors_hooks_is_enabled()
    if disabled or (seen is None and autograd._top_saved_tensors_default_hooks(True) is None):
        yield
        return
    with torch.autograd.graph.saved_tensors_hooks(save, _restored):
        try:
            yield
        finally:
            seen = None  # autograd has the hooks for as long as what was saved


def _restored(saved: tuple[torch.Tensor, int]) -> torch.Tensor:
    tensor, version = saved
    if tensor._version != version:
        raise RuntimeError("a variable needed for gradient computation has been modified by an inplace operation")
    return tensor


def _has_tensor(items: Any) -> bool:
    return any(isinstance(item, torch.Tensor) and type(item) is not FakeTensor for item in items)


def remember_value(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Small tensors made from numbers alone are constants."""
    if is_small(out) and not (is_symbolic(args) or is_symbolic(kwargs.values())):
        out.constant = on_cpu(func, args, kwargs)
