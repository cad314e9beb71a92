"""Triton sources: a text with `launch_k<i>` functions to callables.

Triton reads the source of a kernel from its file, so the text is filed in the store and executed as that file; as no
module, since an import would leave its bytecode beside it. Compiled binaries are kept by Triton's own cache.
Neighbours: `codegen.triton` writes the text, `link` asks for the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stator.base.errors import InternalError
from stator.base.store import Store, key_of


class Launcher:
    """Runs a kernel on tensors; `at` is the same with its arguments moved by constants, as of native kernels."""

    __slots__ = ("launch",)

    def __init__(self, launch: Callable[..., None]) -> None:
        self.launch = launch

    def __call__(self, *tensors: Any) -> None:
        self.launch(*tensors)

    def at(self, *moves: int) -> Callable[..., None]:
        """The kernel with its arguments moved by these bytes."""
        launch = self.launch
        return lambda *tensors: launch(*[_moved(t, by) if by else t for t, by in zip(tensors, moves, strict=True)])


def _moved(tensor: Any, by: int) -> Any:
    if not tensor.numel():  # nothing of it is touched, and it has no memory to move in
        return tensor
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + by // tensor.itemsize)


def load(source: str, kernels: Sequence[str], store: Store) -> list[Callable[..., Any]]:
    """The launchers of the named kernels, in order."""
    key = "triton-" + key_of(source)
    path = store.path(key)
    if path is None:
        store.put(key, source.encode())
        path = store.path(key)
    if path is None:
        raise InternalError("link", "the store lost an entry that it just took")
    namespace: dict[str, Any] = {"__name__": f"stator_{key.replace('-', '_')}", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), namespace)
    return [Launcher(namespace[f"launch_{kernel}"]) for kernel in kernels]
