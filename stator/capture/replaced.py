"""What a program has put something else in place of, and the libraries that capture runs on use as well.

Builtins, and what tensors say of their geometry: PyTorch's Python code and ours ask for it while they compile, and
would take what the program says of a tensor for what lies in memory. A function runs in eager until they are put back.
Neighbours: `frames.py` asks first of all; `base/isolation.py` keeps Python's builtins for our own modules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stator.base import isolation
from stator.base.errors import GraphBreak
from stator.capture.guards import Guard
from stator.capture.values.lookup import static_attribute
from stator.capture.values.torch.tensor_class import OWN, PLAIN_CLASSES

if TYPE_CHECKING:
    from stator.capture.guards import GuardSet

#: Attributes of tensors by which memory is read and written.
GEOMETRY = (
    "shape", "size", "stride", "dim", "ndim", "numel", "nelement", "storage_offset", "untyped_storage", "dtype",
    "device", "layout", "itemsize", "element_size", "is_contiguous", "_base",
)  # fmt: skip


class Replaced(GraphBreak):
    """The program has replaced what everybody computes with."""


def geometry() -> tuple[str, ...]:
    """The attributes of tensor classes that tell their geometry, and are not torch's own."""
    return tuple(
        [
            f"{cls.__name__}.{name}"
            for cls in PLAIN_CLASSES
            for name in GEOMETRY
            if static_attribute(cls, name) is not OWN[cls].get(name)
        ]
    )


def refuse_replaced(guards: GuardSet) -> None:
    """Raises `Replaced` where there is any, with a guard for as long as it is so."""
    for module, owner, replaced in (("builtins", "Python", isolation.replaced), ("torch", "torch", geometry)):
        if names := replaced():
            guards.add(Guard("CALL", None, (replaced, names)))
            text = f"{module}.{names[0]} is not {owner}'s own, and the libraries that capture runs on use it"
            raise Replaced(text, "put it back, or let the program call a function of its own")
