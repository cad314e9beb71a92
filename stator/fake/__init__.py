"""Fake tensors: tensors with everything but data. Front door of the package."""

from stator.fake import (  # noqa: F401  (they fill the table of shape rules)
    rules,
    rules_images,
    rules_layers,
    rules_losses,
    rules_packed,
    rules_quantized,
    rules_reductions,
    rules_refusing,
    rules_run,
    rules_special,
    rules_views,
)
from stator.fake.mode import FakeMode
from stator.fake.tensor import FakeTensor, make

__all__ = ["FakeMode", "FakeTensor", "make"]
