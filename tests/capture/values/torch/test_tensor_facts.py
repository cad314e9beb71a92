"""Every fact that a tensor tells about itself, asked of tensors that differ in it.

The facts are found by introspection: each attribute and each question of `torch.Tensor` that gives a plain value. A
compiled function that asks for one is called on all the tensors, forwards and backwards, so that each comes after one
that differs; what it gives must be eager's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator


def x() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 0.5


def made(change: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> torch.Tensor:
    change(tensor)
    return tensor


def inference() -> torch.Tensor:
    with torch.inference_mode():
        return x()


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": x,
    "leaf": lambda: x().requires_grad_(),
    "inner": lambda: x().requires_grad_() * 1,
    "view": lambda: x()[:2],
    "inner view": lambda: x().requires_grad_()[:1],
    "detached": lambda: x().requires_grad_().detach(),
    "parameter": lambda: nn.Parameter(x()),
    "frozen": lambda: nn.Parameter(x(), requires_grad=False),
    "buffer": lambda: nn.Buffer(x()),
    "double": lambda: x().double(),
    "half": lambda: x().bfloat16(),
    "long": lambda: x().long(),
    "bool": lambda: x() > 1,
    "complex": lambda: x() * 1j,
    "conjugate": lambda: (x() * 1j).conj(),
    "negative": lambda: (x() * 1j).conj().imag,
    "transposed": lambda: x().t(),
    "offset": lambda: torch.arange(12.0)[6:].view(2, 3),
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "strided": lambda: torch.ones(2, 6)[:, ::2],
    "four": lambda: torch.ones(1, 2, 2, 3),
    "channels last": lambda: torch.ones(1, 2, 2, 3).to(memory_format=torch.channels_last),
    "empty": lambda: torch.ones(0, 3),
    "scalar": lambda: torch.ones(()),
    "retaining": lambda: made(torch.Tensor.retain_grad, x().requires_grad_() * 1),
    "with gradient": lambda: made(lambda t: t.sum().backward(), x().requires_grad_()),
    "hooked": lambda: made(lambda t: t.register_hook(lambda g: g), x().requires_grad_()),
    "inference": inference,
    "written": lambda: made(lambda t: t.add_(1).sub_(1), x()),
    "with attribute": lambda: made(lambda t: setattr(t, "extra", 1), x()),
    "marked": lambda: made(lambda t: setattr(t, "_is_param", True), x()),
    "shared": lambda: x().share_memory_(),
}

#: Addresses, and what a compiled function may not ask at all.
SKIPPED = {
    "volatile",
    "__class__",
    "__dict__",
    "__doc__",
    "__module__",
    "_cdata",
    "__hash__",
    "data_ptr",
    "const_data_ptr",
}

#: How the names of methods begin that ask something.
ASKS = (
    "is",
    "_is_",
    "has",
    "get_",
    "dim",
    "size",
    "stride",
    "numel",
    "nelem",
    "elem",
    "storage_offset",
    "ndim",
    "_dim",
)

#: Facts of what is made of a tensor, and those that take a longer question.
QUESTIONS = (
    "isinstance(t, torch.nn.Parameter)", "isinstance(t, torch.nn.Buffer)", "isinstance(t, torch.FloatTensor)",
    "isinstance(t * 1, torch.DoubleTensor)", "isinstance(t.long(), torch.LongTensor)", "t.grad is None",
    "t.grad_fn is None", "t._base is None", "(t * 1).grad_fn is None", "(t * 1).is_leaf", "t[0:1]._is_view()",
    "(t * 1)._is_view()", "t.detach().requires_grad", "t._backward_hooks is None", "hasattr(t, 'extra')", "type(t)",
    "t.is_contiguous(memory_format=torch.channels_last)", "type(t.data)", "type(t.detach())", "t.detach()._version",
    "t.is_leaf and t.requires_grad", "len(dir(t))", "t._is_param if hasattr(t, '_is_param') else 0", "t.type()",
    "(t * 1).output_nr", "t.dim_order()", "t.contiguous() is t", "t.float() is t", "t.is_shared()", "t.__sizeof__()",
    "torch.is_inference(t)", "torch.is_conj(t)", "torch.is_neg(t)", "t.data.requires_grad", "len(vars(t))",
)  # fmt: skip


def is_plain(value: Any) -> bool:
    return value is None or isinstance(
        value, bool | int | float | str | tuple | torch.dtype | torch.device | torch.layout
    )


def facts() -> list[str]:
    """The attributes and questions of a tensor that give a plain value."""
    found, tensor = [], x()
    for name in sorted(set(dir(torch.Tensor)) - SKIPPED):
        try:
            value = getattr(tensor, name)
            text = f"t.{name}()" if callable(value) else f"t.{name}"
            if callable(value) and (not name.startswith(ASKS) or not is_plain(value())):
                continue
        except (RuntimeError, TypeError, AttributeError, NotImplementedError):
            continue
        if callable(value) or is_plain(value):
            found.append(text)
    return found


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args)[1]
    except Exception as error:
        return type(error)


def test_the_facts_are_found() -> None:
    assert {"t.shape", "t.is_leaf", "t._version", "t.is_inference()", "t.requires_grad", "t._is_view()"} <= set(facts())


@pytest.mark.filterwarnings("ignore::Warning")
@pytest.mark.parametrize("text", [*facts(), *QUESTIONS])
def test_fact(text: str) -> None:
    program = eval(f"lambda t, y: (y * 2, {text})", {"torch": torch})
    tensors = [make() for make in TENSORS.values()]
    if len({repr(outcome(program, t, x())) for t in tensors}) == 1:
        tensors = tensors[:3]  # nothing to tell apart
    compiled = stator.compile(program, backend="eager")
    for tensor in (*tensors, *reversed(tensors)):
        assert repr(outcome(compiled, tensor, x())) == repr(outcome(program, tensor, x()))
