"""What a call does to tensors, as data: values, geometry, who shares memory, gradients, what a later write does.

`observe` runs a function on fresh inputs and tells all of it; two functions that are told alike are alike to their
caller. `test_aliasing.py` compares compiled functions with eager ones so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Function = Callable[..., Any]
Inputs = Callable[[], list[torch.Tensor]]


def flat(out: Any) -> list[Any]:
    return list(out) if isinstance(out, (list, tuple)) else [out]


def observe(function: Function, make: Inputs) -> dict[str, Any]:
    """All that a caller can see of one call, and of what is done to its results afterwards."""
    seen, outputs = _call(function, make)
    if "error" in seen:
        return seen
    seen["later"] = [_later(function, make, position) for position in range(len(outputs))]
    return seen


def _call(function: Function, make: Inputs) -> tuple[dict[str, Any], list[torch.Tensor]]:
    torch.manual_seed(0)
    inputs = make()
    versions = list(map(_version, inputs))
    try:
        results = flat(function(*inputs))
    except RuntimeError as error:
        return {"error": type(error).__name__}, []
    outputs = [out for out in results if isinstance(out, torch.Tensor)]
    return {
        "results": [told(out) if isinstance(out, torch.Tensor) else out for out in results],
        "inputs": [told(t) for t in inputs],
        "written": [_version(t) - before for t, before in zip(inputs, versions, strict=True)],
        "shared": _relations([*inputs, *outputs]),
        "gradients": gradients(inputs, outputs),
    }, outputs


def told(tensor: torch.Tensor) -> dict[str, Any]:
    """One tensor by itself."""
    return {
        "value": tensor.detach().clone(),
        "geometry": (tensor.shape, tensor.stride(), tensor.dtype),
        "autograd": _place(tensor),
        "pending": (tensor.is_conj(), tensor.is_neg()),
    }


def _place(tensor: torch.Tensor) -> Any:
    """Where a tensor is in the autograd graph; some views that were made under no_grad refuse to tell."""
    try:
        return tensor.requires_grad, tensor.is_leaf, tensor.grad_fn is None, tensor.is_inference()
    except RuntimeError as error:
        return type(error).__name__


def _version(tensor: torch.Tensor) -> int:
    """How often it was written to; inference tensors do not tell."""
    return 0 if tensor.is_inference() else tensor._version


def _relations(tensors: list[torch.Tensor]) -> list[Any]:
    """Of each pair: one object or two, one memory, the distance in it, one the base of the other."""
    found: list[Any] = []
    for i, a in enumerate(tensors):
        for j, b in enumerate(tensors[:i]):
            together = a.untyped_storage()._cdata == b.untyped_storage()._cdata
            distance = a.storage_offset() - b.storage_offset() if together else None
            bases = (a._base is b, b._base is a, a._base is not None and a._base is b._base) if together else ()
            found.append((i, j, a is b, together, distance, bases))
    return found


def gradients(inputs: list[torch.Tensor], outputs: list[torch.Tensor]) -> Any:
    """The gradients of a weighted sum of what can be differentiated: results, and inputs that were written."""
    try:
        roots = [t for t in (*outputs, *inputs) if t.requires_grad and t.grad_fn is not None]
        sources = {id(s): s for t in inputs for s in _sources(t)}
        if not roots or not sources:
            return None
        loss = sum((t * torch.arange(1.0, t.numel() + 1).view(t.shape)).sum() for t in roots)
        return list(torch.autograd.grad(loss, list(sources.values()), allow_unused=True))  # type: ignore[arg-type]
    except RuntimeError as error:
        return type(error).__name__


def _sources(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The leaves that an input was made from; tests hang them on it."""
    made_from = getattr(tensor, "made_from", None)
    return [made_from] if made_from is not None else [tensor] if tensor.is_leaf and tensor.requires_grad else []


def _later(function: Function, make: Inputs, position: int) -> Any:
    """What a write to one result does to all tensors, and to gradients."""
    torch.manual_seed(0)
    inputs = make()
    outputs = [out for out in flat(function(*inputs)) if isinstance(out, torch.Tensor)]
    tensors = [*inputs, *outputs]
    before = list(map(_version, tensors))
    target = outputs[position]
    try:
        target.mul_(3)
    except RuntimeError as error:
        return type(error).__name__
    values = [t.detach().clone() for t in tensors]
    return values, [_version(t) - v for t, v in zip(tensors, before, strict=True)], gradients(inputs, outputs)


def differences(a: Any, b: Any, where: str = "") -> list[str]:
    """The places where two descriptions differ. Where eager raises in backward, a gradient is no difference."""
    if where.endswith("[2]") and b == "RuntimeError" and isinstance(a, list):
        return []
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        same = isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape
        return [] if same and torch.allclose(a, b, atol=1e-5, equal_nan=True) else [f"{where}: {a} for {b}"]
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [text for key in a for text in differences(a[key], b[key], f"{where}.{key}")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return [text for i, (x, y) in enumerate(zip(a, b, strict=True)) for text in differences(x, y, f"{where}[{i}]")]
    return [] if type(a) is type(b) and a == b else [f"{where}: {a} for {b}"]
