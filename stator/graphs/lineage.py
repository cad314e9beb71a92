"""What autograd takes a real tensor to be a view of: a write to the one then gives the other a new history too.

Only a group of inputs in one storage asks for it, where such a write happens: `capture/aliasing.py` guards it,
`fingerprint.py` names it, `aot/aliased_inputs.py` makes fakes that are related likewise.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

#: How a view was made that any write may go through, and one of which autograd has recorded nothing.
RECORDED = torch._C._autograd.CreationMeta.DEFAULT
UNRECORDED = torch._C._autograd.CreationMeta.NO_GRAD_MODE


def whole_of(tensor: torch.Tensor) -> torch.Tensor:
    """What autograd takes the tensor to be a view of; the tensor if it is none."""
    base: torch.Tensor | None = tensor._base
    return tensor if base is None else base


def creation(view: torch.Tensor) -> torch._C._autograd.CreationMeta:
    """How autograd says that a view was made."""
    return torch._C._autograd._get_creation_meta(view)


def takes_gradients(tensor: torch.Tensor) -> bool:
    """Whether gradients are added up for the tensor itself.

    A view says that it requires gradients where only its base does, if autograd has not recorded the view; nothing that
    is computed from it leads to either.
    """
    if not tensor.requires_grad or tensor.grad_fn is not None:
        return False
    if not base_requires_grad(tensor):
        return True
    with torch.enable_grad():
        alias = tensor.view_as(tensor).grad_fn
    return alias is not None and alias.next_functions[0][0] is not None


def tells_history(tensor: torch.Tensor) -> bool:
    """Whether PyTorch says where a tensor comes from: of a view that it has not recorded, not after a write."""
    try:
        return tensor.is_leaf in (True, False)
    except RuntimeError:
        return False


def base_requires_grad(tensor: torch.Tensor) -> bool:
    """Whether it is a view of a tensor that requires gradients, so that it says that it does itself, always."""
    return tensor._base is not None and tensor._base.requires_grad


def count_together(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether a write to one counts as a write to the other: not so for `.data`. Nothing else tells."""
    if a.is_inference() or b.is_inference():
        return False
    versions = a._version, b._version
    torch.autograd.graph.increment_version(a)
    together = b._version != versions[1]
    set_versions([(a, versions[0])])
    return together


def set_versions(versions: Iterable[tuple[torch.Tensor, int]]) -> None:
    """Have tensors, and all that counts with them, be of these versions.

    Inference tensors count none and are left as they are.
    """
    counted = [(tensor, version) for tensor, version in versions if not tensor.is_inference()]
    torch._C._autograd._unsafe_set_version_counter(
        tuple([tensor for tensor, _ in counted]), tuple([version for _, version in counted])
    )


def is_watched(tensor: torch.Tensor) -> bool:
    """Whether the caller is told of the tensor's gradient."""
    return bool(tensor._backward_hooks) or bool(tensor.retains_grad)


def lineage(tensor: torch.Tensor) -> str:
    """All that matters of how a tensor is a view of another, in words; empty for one that is none."""
    whole = tensor._base
    if whole is None:
        return ""
    watched = ", watched" if is_watched(tensor) else ""
    autograd = f"requires_grad={whole.requires_grad} leaf={whole.is_leaf}"
    geometry = f"{tuple(whole.shape)} {tuple(whole.stride())} +{whole.storage_offset()}"
    return f"{creation(tensor).name} view of {whole.dtype} {geometry} {autograd}{watched}"


def together(tensors: Iterable[torch.Tensor]) -> list[list[int]]:
    """The positions of tensors that are views of one another, as autograd has it, in groups."""
    groups: dict[int, list[int]] = {}
    for position, tensor in enumerate(tensors):
        groups.setdefault(id(whole_of(tensor)), []).append(position)
    return list(groups.values())
