"""Fake tensors: tensors with everything but data. Front door of the room."""

from stator.fake import rules, rules_layers, rules_run, rules_views  # noqa: F401  (they fill the table of shape rules)
from stator.fake.mode import FakeMode
from stator.fake.tensor import FakeTensor, make

__all__ = ["FakeMode", "FakeTensor", "make"]
