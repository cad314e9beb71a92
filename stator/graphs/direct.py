"""What functions of `torch.nn.functional` call of PyTorch's C++, and with what, where they take long to get there.

A graph that runs in eager makes these calls itself: the Python in between, which checks what has been checked while the
graph was captured and fills in defaults, takes 0.5 to 2 µs, and the guards of a graph take 0.3.
Neighbours: `aot/eager_graph.py` makes the calls, `capture/frames.py` asks whether there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.nn import functional as F


class Direct(NamedTuple):
    """A call without keywords."""

    target: Callable[..., Any]
    args: tuple[Any, ...]


def direct(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Direct | None:
    """The one call that a function makes for these arguments, nodes among them; None where it is not known."""
    made = _DIRECT.get(target)
    return made(*args, **kwargs) if made is not None else None


def calls_directly(graph: fx.Graph) -> bool:
    """Whether it has such calls."""
    return any(node.op == "call_function" and direct(node.target, node.args, node.kwargs) for node in graph.nodes)


def _layer_norm(
    input: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Direct:
    return Direct(torch.layer_norm, (input, normalized_shape, weight, bias, eps, True))  # the last has no meaning


def _group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Direct:
    return Direct(torch.group_norm, (input, num_groups, weight, bias, eps, True))


def _max_pool(target: Callable[..., Any]) -> Callable[..., Direct | None]:
    def made(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Direct | None:
        stride = [] if stride is None else stride
        if return_indices is not False:
            return None
        return Direct(target, (input, kernel_size, stride, padding, dilation, ceil_mode))

    return made


def _adaptive(target: Callable[..., Any]) -> Callable[..., Direct | None]:
    def made(input: Any, output_size: Any) -> Direct | None:
        sizes = output_size if isinstance(output_size, (list, tuple)) else (output_size,)
        return Direct(target, (input, output_size)) if all(isinstance(n, int) for n in sizes) else None

    return made


#: Function → the call that it makes for some arguments; None where it does more.
_DIRECT: dict[Any, Callable[..., Direct | None]] = {
    F.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
    F.max_pool1d: _max_pool(torch.max_pool1d),
    F.max_pool2d: _max_pool(torch.max_pool2d),
    F.max_pool3d: _max_pool(torch.max_pool3d),
    F.adaptive_avg_pool2d: _adaptive(torch._C._nn.adaptive_avg_pool2d),
    F.adaptive_avg_pool3d: _adaptive(torch._C._nn.adaptive_avg_pool3d),
}
