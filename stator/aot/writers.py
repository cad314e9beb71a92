"""Operators that write to tensors and count no version: once something is frozen, they do.

Fused optimizers and collectives are such; what is computed of parameters alone would be stale after a step. Version
counters are raised by a kernel before theirs (`ADInplaceOrView`, where PyTorch raises those of its other operators),
in the whole process. Kernels with a gradient are left alone, as PyTorch saves what they write to (statistics of batch
norms, noise): their buffers are compared by value. Neighbours: `frozen.py` asks for it; `csrc/frozen.c` reads versions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

#: How the names of these operators begin; they end in `_`, and write to their first argument.
WRITERS = ("aten::_fused_", "c10d::", "_c10d_functional::", "fsdp::")
_KEY = "ADInplaceOrView"
_LIBRARIES: dict[str, torch.library.Library] = {}  # whose end would undo it


def counts(operator: torch._ops.OpOverload) -> bool:
    """Whether calls raise the version counters of what they write to."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), _KEY))


def uncounted(names: tuple[str, ...] = WRITERS) -> list[str]:
    """Those of the process's operators in place that raise no version."""
    return [
        name
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith(names)
        and name.split(".")[0].endswith("_")
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, _KEY)
        and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
    ]


def count_writes() -> None:
    """Let every operator of `WRITERS` that has been registered by now count."""
    for name in uncounted():
        namespace, operator = name.split("::")
        if namespace not in _LIBRARIES:
            _LIBRARIES[namespace] = torch.library.Library(namespace, "IMPL")
        _LIBRARIES[namespace].impl(operator, _counting(namespace, operator), _KEY, with_keyset=True)


def _counting(namespace: str, operator: str) -> Any:
    packet, _, overload = operator.partition(".")
    target = getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")

    def write(keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        try:
            return target.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)
        finally:
            written = [leaf for leaf in pytree.tree_leaves(args[0]) if isinstance(leaf, torch.Tensor)]
            torch.autograd.graph.increment_version([tensor for tensor in written if not tensor.is_inference()])

    return write
